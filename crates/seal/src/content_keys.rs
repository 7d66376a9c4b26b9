//! Sealing of what a machine shows (events, views and cards), once for all of its devices.
//!
//! There is one random key per generation. Every device has all of them, each wrapped for it alone. When a
//! device is revoked, the next generation begins, and the device never gets its key. Every session has keys of its
//! own, derived from that, so that random nonces are drawn from few messages: 2^32 messages of one session and
//! generation would repeat one with a probability of 1 in 2^33, and at thirty a second they take four years.

use std::collections::BTreeMap;
use std::fmt;

use p256::elliptic_curve::zeroize::Zeroizing;

use crate::key::{MachineId, SharedSecret, SymmetricKey};
use crate::key_context::Context;
use crate::message_format::{CONTENT, KEYS, Reader};
use crate::random::array;
use crate::{Random, SealError};

/// Older ones are forgotten, and what was sealed with them stays sealed.
const GENERATIONS_MAX: usize = 64;
const ENTRY_BYTES: usize = 8 + 32;

/// The position of a sealed item in a session. Moving it elsewhere makes it unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentPosition<'a> {
    Event {
        seq: u64,
    },
    View {
        from: Option<u64>,
        upto: u64,
    },
    /// With the public fields beside it.
    Card {
        state: &'a str,
        asks: &'a [u64],
        updated_at: i64,
    },
}

impl ContentPosition<'_> {
    fn bind(&self, context: Context) -> Context {
        match self {
            Self::Event { seq } => context.text("event").number(*seq),
            Self::View { from, upto } => context.text("view").maybe(*from).number(*upto),
            Self::Card { state, asks, updated_at } => {
                let asks: Vec<u8> = asks.iter().flat_map(|ask| ask.to_be_bytes()).collect();
                context.text("card").text(state).bytes(&asks).bytes(&updated_at.to_be_bytes())
            }
        }
    }
}

/// The keys of all generations. Never empty.
#[derive(Clone)]
pub struct ContentKeys(BTreeMap<u64, SymmetricKey>);

impl ContentKeys {
    pub fn generate(random: &mut dyn Random) -> Result<Self, SealError> {
        let mut keys = Self(BTreeMap::new());
        keys.renew(random)?;
        Ok(keys)
    }

    /// The next generation begins. Gives its number.
    pub fn renew(&mut self, random: &mut dyn Random) -> Result<u64, SealError> {
        let next = self.generation().checked_add(1).ok_or(SealError::Exhausted)?;
        self.0.insert(next, SymmetricKey(Zeroizing::new(array(random)?)));
        while self.0.len() > GENERATIONS_MAX {
            self.0.pop_first();
        }
        Ok(next)
    }

    /// The newest: what is sealed from here on is sealed with it.
    pub fn generation(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(generation, _)| *generation)
    }

    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.0.len() * ENTRY_BYTES));
        for (generation, key) in &self.0 {
            bytes.extend(generation.to_be_bytes());
            bytes.extend(key.0.as_slice());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SealError> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if entries.is_empty() || entries.len() > GENERATIONS_MAX || !rest.is_empty() {
            return Err(SealError::Malformed);
        }
        let mut keys = BTreeMap::new();
        for entry in entries {
            let (generation, key) = entry.split_first_chunk().ok_or(SealError::Malformed)?;
            let mut bytes = Zeroizing::new([0; 32]);
            bytes.copy_from_slice(key);
            keys.insert(u64::from_be_bytes(*generation), SymmetricKey(bytes));
        }
        if keys.len() == entries.len() { Ok(Self(keys)) } else { Err(SealError::Malformed) }
    }

    /// For all devices, at this place of this session.
    pub fn seal(
        &self,
        machine: &MachineId,
        session: &str,
        place: &ContentPosition<'_>,
        plain: &[u8],
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, SealError> {
        let generation = self.generation();
        let key = self.of_session(machine, session, generation)?;
        let nonce = array(random)?;
        let sealed = key.seal(nonce, &bound(machine, session, generation, place), plain)?;
        let mut bytes = vec![CONTENT];
        bytes.extend(generation.to_be_bytes());
        bytes.extend(nonce);
        bytes.extend(sealed);
        Ok(bytes)
    }

    /// The content, and the generation of the key that sealed it. A reader of current content accepts the
    /// newest generation only: a revoked device knows the others.
    pub fn open(
        &self,
        machine: &MachineId,
        session: &str,
        place: &ContentPosition<'_>,
        bytes: &[u8],
    ) -> Result<(u64, Vec<u8>), SealError> {
        let mut reader = Reader::of(bytes, CONTENT)?;
        let (generation, nonce) = (reader.number()?, reader.array()?);
        let key = self.of_session(machine, session, generation)?;
        let plain = key.open(nonce, &bound(machine, session, generation, place), reader.rest())?;
        Ok((generation, plain))
    }

    fn of_session(
        &self,
        machine: &MachineId,
        session: &str,
        generation: u64,
    ) -> Result<SymmetricKey, SealError> {
        let key = self.0.get(&generation).ok_or(SealError::UnknownGeneration)?;
        let context = Context::of("session").text(machine.as_str()).number(generation).text(session);
        SymmetricKey::derive(key.0.as_slice(), &[], &context)
    }
}

impl fmt::Debug for ContentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentKeys").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl SharedSecret {
    /// The keys, for this device alone.
    pub fn wrap(&self, keys: &ContentKeys, random: &mut dyn Random) -> Result<Vec<u8>, SealError> {
        let nonce = array(random)?;
        let bound = self.bound_keys(keys.generation());
        let sealed = self.derive("wrap", &[])?.seal(nonce, &bound, &keys.to_bytes())?;
        let mut bytes = vec![KEYS];
        bytes.extend(nonce);
        bytes.extend(sealed);
        Ok(bytes)
    }

    /// The keys, if they are of this generation and for this device.
    pub fn unwrap(&self, generation: u64, bytes: &[u8]) -> Result<ContentKeys, SealError> {
        let mut reader = Reader::of(bytes, KEYS)?;
        let nonce = reader.array()?;
        let plain = self.derive("wrap", &[])?.open(nonce, &self.bound_keys(generation), reader.rest())?;
        let plain = Zeroizing::new(plain);
        ContentKeys::from_bytes(&plain).and_then(|keys| {
            if keys.generation() == generation { Ok(keys) } else { Err(SealError::Malformed) }
        })
    }

    fn bound_keys(&self, generation: u64) -> Context {
        Context::of("keys").text(self.machine.as_str()).bytes(&self.device.0).number(generation)
    }
}

fn bound(machine: &MachineId, session: &str, generation: u64, place: &ContentPosition<'_>) -> Context {
    place.bind(Context::of("content").text(machine.as_str()).number(generation).text(session))
}
