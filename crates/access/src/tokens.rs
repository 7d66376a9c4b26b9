//! Tokens: who a caller is. Only digests are kept, and they are compared in constant time.
//!
//! A token has 256 random bits, so it cannot be guessed from a plain SHA-256 of it. The tokens of single
//! sessions live in memory only: a restart forgets them, and `rotate` makes new ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use engine::{Principal, SessionId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Session tokens that are kept at once; beyond that the oldest stops working.
const SESSION_TOKENS_MAX: usize = 1024;

/// SHA-256 of a token.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(token: &str) -> Self {
        Self::of_bytes(token.as_bytes())
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Keeps digests out of logs.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest")
    }
}

/// A client with a name and sessions of its own.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: Arc<str>,
    pub digest: Digest,
}

/// The tokens that the gate accepts.
#[derive(Debug, Clone)]
pub enum AcceptedTokens {
    /// No token is asked for. The binary allows this on loopback only.
    None,
    Tokens {
        master: Digest,
        clients: Vec<Client>,
    },
}

/// The holder of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenHolder {
    Master,
    Client(Arc<str>),
    Session(Principal, SessionId),
}

impl AcceptedTokens {
    /// Whether this principal still has a token.
    pub(super) fn know(&self, principal: &Principal) -> bool {
        match self {
            Self::None => true,
            Self::Tokens { clients, .. } => {
                *principal == Principal::local() || clients.iter().any(|client| client.id == principal.0)
            }
        }
    }

    /// The mark that binds a client's devices to the client's token: another token of the client has another mark. The owner's
    /// devices are not bound to a token, and nor is anybody's where none is asked for.
    pub(crate) fn mark(&self, principal: &Principal) -> Option<Digest> {
        let Self::Tokens { clients, .. } = self else { return None };
        let client = clients.iter().find(|client| client.id == principal.0)?;
        Some(Digest::of(&format!("devices of {}", client.digest.hex())))
    }

    /// Compares with every key, so that the time does not tell which one was nearly right.
    pub(super) fn holder(&self, given: &Digest) -> Option<TokenHolder> {
        let Self::Tokens { master, clients } = self else { return None };
        let mut found = None;
        for client in clients {
            if client.digest.is(given) {
                found = Some(TokenHolder::Client(Arc::clone(&client.id)));
            }
        }
        if master.is(given) { Some(TokenHolder::Master) } else { found }
    }
}

/// The tokens of single sessions.
#[derive(Debug)]
pub(super) struct SessionTokens {
    maker: TokenMaker,
    made: u64,
    by_session: HashMap<SessionId, SessionToken>,
}

#[derive(Debug)]
struct SessionToken {
    owner: Principal,
    digest: Digest,
    /// Counts up: the smallest is the oldest.
    number: u64,
}

impl SessionTokens {
    pub fn new(maker: TokenMaker) -> Self {
        Self { maker, made: 0, by_session: HashMap::new() }
    }

    pub fn issue(&mut self, owner: &Principal, id: &SessionId) -> String {
        if self.by_session.len() >= SESSION_TOKENS_MAX && !self.by_session.contains_key(id) {
            // An owner with too many tokens loses their own oldest; nobody evicts another's.
            let mut counts: HashMap<&Principal, usize> = HashMap::new();
            self.by_session.values().for_each(|token| *counts.entry(&token.owner).or_default() += 1);
            let most = counts.values().copied().max().unwrap_or_default();
            let own = counts.get(owner).copied().unwrap_or_default();
            let pays = |token: &SessionToken| {
                if own == most { token.owner == *owner } else { counts.get(&token.owner) == Some(&most) }
            };
            let oldest =
                self.by_session.iter().filter(|(_, token)| pays(token)).min_by_key(|(_, token)| token.number);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| self.by_session.remove(&id));
        }
        self.made += 1;
        let text = self.maker.token(self.made);
        let token = SessionToken { owner: owner.clone(), digest: Digest::of(&text), number: self.made };
        self.by_session.insert(id.clone(), token);
        text
    }

    pub fn forget(&mut self, id: &SessionId) {
        self.by_session.remove(id);
    }

    pub fn holder(&self, given: &Digest) -> Option<TokenHolder> {
        let mut found = None;
        for (id, token) in &self.by_session {
            if token.digest.is(given) {
                found = Some(TokenHolder::Session(token.owner.clone(), id.clone()));
            }
        }
        found
    }
}

/// Makes tokens from one random seed, so that making one cannot fail.
pub(super) struct TokenMaker([u8; 32]);

impl TokenMaker {
    pub fn new(seed: [u8; 32]) -> Self {
        Self(seed)
    }

    fn token(&self, number: u64) -> String {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(number.to_be_bytes());
        url_safe(&hash.finalize())
    }
}

impl fmt::Debug for TokenMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// Random bytes of the operating system.
pub fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// Base64 with the alphabet for addresses, without padding: 43 characters for 32 bytes.
pub fn url_safe(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let index = group >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[usize::try_from(index).unwrap_or_default()]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits_and_nothing_else() {
        let digest = Digest::of("token");
        assert!(Digest::parse(&digest.hex()).unwrap().is(&digest));
        assert_eq!(
            Digest::of("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        for bad in ["", "ba", &"g".repeat(64), &"+1".repeat(32), &"a".repeat(65), &"ä".repeat(32)] {
            assert!(Digest::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn tokens_are_written_with_letters_that_addresses_and_headers_allow() {
        assert_eq!(url_safe(b""), "");
        assert_eq!(url_safe(b"f"), "Zg");
        assert_eq!(url_safe(b"fo"), "Zm8");
        assert_eq!(url_safe(b"foobar"), "Zm9vYmFy");
        assert_eq!(url_safe(&[0xfb, 0xff]), "-_8");
        assert_eq!(url_safe(&[7; 32]).len(), 43);
    }

    #[test]
    fn a_rotated_token_is_dead_at_once_and_a_forgotten_one_too() {
        let mut tokens = SessionTokens::new(TokenMaker::new([1; 32]));
        let first = tokens.issue(&Principal("ci".into()), &id("a"));
        let holder = Some(TokenHolder::Session(Principal("ci".into()), id("a")));
        assert_eq!(tokens.holder(&Digest::of(&first)), holder);
        let second = tokens.issue(&Principal("ci".into()), &id("a"));
        assert_ne!(first, second);
        assert_eq!(tokens.holder(&Digest::of(&first)), None);
        assert_eq!(tokens.holder(&Digest::of(&second)), holder);
        tokens.forget(&id("a"));
        assert_eq!(tokens.holder(&Digest::of(&second)), None);
    }

    #[test]
    fn the_number_of_session_tokens_is_bounded_and_the_oldest_goes_first() {
        let mut tokens = SessionTokens::new(TokenMaker::new([1; 32]));
        let owner = Principal::local();
        let all: Vec<String> =
            (0..=SESSION_TOKENS_MAX).map(|number| tokens.issue(&owner, &id(&format!("s{number}")))).collect();
        assert_eq!(tokens.by_session.len(), SESSION_TOKENS_MAX);
        assert_eq!(tokens.holder(&Digest::of(&all[0])), None);
        assert!(tokens.holder(&Digest::of(&all[1])).is_some());
    }

    #[test]
    fn each_key_opens_for_its_holder_only() {
        let client = |id: &str, token: &str| Client { id: id.into(), digest: Digest::of(token) };
        let keys = AcceptedTokens::Tokens {
            master: Digest::of("m"),
            clients: vec![client("ci", "c"), client("bot", "b")],
        };
        assert_eq!(keys.holder(&Digest::of("m")), Some(TokenHolder::Master));
        assert_eq!(keys.holder(&Digest::of("c")), Some(TokenHolder::Client("ci".into())));
        assert_eq!(keys.holder(&Digest::of("b")), Some(TokenHolder::Client("bot".into())));
        assert_eq!(keys.holder(&Digest::of("")), None);
    }
}
