//! The ids of connections: a client that reconnects after a restart is recognised by its id alone.
//!
//! An id is a UUID that holds random bytes, the client's capabilities, and a seal made with a
//! secret of this installation and the name of the connection's owner. It is no credential:
//! whoever presents it has presented a token before.

use engine::{HostAbilities, Principal, SurfaceId};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use wire::acp::ClientAbilities;
use wire::{Client, Dialect};

/// Bytes of the id that are not the seal.
const OPEN_BYTES: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(Uuid);

impl ConnectionId {
    pub(super) fn new(secret: &[u8; 32], owner: &Principal, abilities: ClientAbilities) -> Self {
        let mut bytes = *Uuid::new_v4().as_bytes();
        // The version of UUIDs that are made as one likes.
        let flags = flags(abilities);
        bytes[6] = 0x80 | (flags & 0xf) as u8;
        // The variant of UUIDs stands in the two highest bits.
        bytes[8] = 0x80 | (flags >> 4 & 0x3f) as u8;
        let seal = seal(secret, owner, &bytes);
        bytes[OPEN_BYTES..].copy_from_slice(&seal);
        Self(Uuid::from_bytes(bytes))
    }

    /// The id, if it was made here for this owner.
    pub(super) fn parse(secret: &[u8; 32], owner: &Principal, text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        let genuine = id.as_bytes()[OPEN_BYTES..] == seal(secret, owner, id.as_bytes());
        genuine.then_some(Self(id))
    }

    /// The same after a restart: what the connection said is still its own.
    pub(super) fn surface(self) -> SurfaceId {
        SurfaceId(self.0.as_u64_pair().0)
    }

    pub(super) fn client(self) -> Client {
        let bytes = self.0.as_bytes();
        let (flags, more) = (bytes[6], bytes[8]);
        let abilities = ClientAbilities {
            notices: flags & 1 != 0,
            compaction: flags & 2 != 0,
            terminal_output: flags & 4 != 0,
            cursors: flags & 8 != 0,
            forms: more & 1 != 0,
            host: HostAbilities {
                read: more & 2 != 0,
                write: more & 4 != 0,
                terminal: more & 8 != 0,
                typing: more & 16 != 0,
            },
            zeph: false,
        };
        Client { dialect: Dialect::Acp, abilities }
    }
}

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

fn flags(abilities: ClientAbilities) -> u16 {
    let ClientAbilities { notices, compaction, terminal_output, cursors, forms, host, zeph: _ } = abilities;
    let HostAbilities { read, write, terminal, typing } = host;
    let flags = [notices, compaction, terminal_output, cursors, forms, read, write, terminal, typing];
    flags.into_iter().enumerate().map(|(bit, set)| u16::from(set) << bit).sum()
}

fn seal(secret: &[u8; 32], owner: &Principal, bytes: &[u8; 16]) -> [u8; 16 - OPEN_BYTES] {
    let mut hash = Sha256::new();
    // Ids without the abilities of byte 8 were sealed under another name.
    hash.update(b"ropewalk connection id, 2");
    hash.update(secret);
    hash.update(&bytes[..OPEN_BYTES]);
    hash.update(owner.0.as_bytes());
    let digest = hash.finalize();
    let mut seal = [0; 16 - OPEN_BYTES];
    seal.copy_from_slice(&digest[..16 - OPEN_BYTES]);
    seal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_recognised_by_its_maker_for_its_owner_and_by_nobody_else() {
        let (secret, owner) = ([7; 32], Principal::local());
        let host = HostAbilities { read: true, write: false, terminal: true, typing: true };
        let abilities =
            ClientAbilities { compaction: true, cursors: true, host, ..ClientAbilities::default() };
        let id = ConnectionId::new(&secret, &owner, abilities);
        let text = id.to_string();
        assert_eq!(ConnectionId::parse(&secret, &owner, &text), Some(id));
        assert_eq!(id.client().abilities, abilities);
        assert_eq!(Uuid::try_parse(&text).unwrap().get_version_num(), 8);
        assert_eq!(ConnectionId::parse(&[8; 32], &owner, &text), None);
        assert_eq!(ConnectionId::parse(&secret, &Principal("ci".into()), &text), None);
        for at in 0..16 {
            let mut bytes = *id.0.as_bytes();
            bytes[at] ^= 1;
            assert_eq!(ConnectionId::parse(&secret, &owner, &Uuid::from_bytes(bytes).to_string()), None);
        }
        for bad in ["", "x", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(ConnectionId::parse(&secret, &owner, bad), None, "{bad:?}");
        }
    }
}
