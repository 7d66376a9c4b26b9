//! The bytes of messages: a first one that says which it is, then fields of known length.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{LaneAsk, Offer, Refused, SealedCall};

pub(crate) const CONTENT: u8 = 0x01;
pub(crate) const KEYS: u8 = 0x02;
pub(crate) const OFFER: u8 = 0x10;
pub(crate) const PAIRED: u8 = 0x11;
pub(crate) const LANE_ASK: u8 = 0x20;
pub(crate) const LANE_ANSWER: u8 = 0x21;
pub(crate) const CALL: u8 = 0x30;
pub(crate) const REPLY: u8 = 0x31;

/// What a device may send to a machine.
pub enum Incoming {
    Offer(Offer),
    LaneAsk(LaneAsk),
    Call(SealedCall),
}

impl Incoming {
    pub fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        match bytes.first() {
            Some(&OFFER) => Offer::parse(bytes).map(Self::Offer),
            Some(&LANE_ASK) => LaneAsk::parse(bytes).map(Self::LaneAsk),
            Some(&CALL) => SealedCall::parse(bytes).map(Self::Call),
            Some(_) | None => Err(Refused::Malformed),
        }
    }
}

/// As it stands in frames: base64url without padding.
pub fn to_text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn from_text(text: &str) -> Result<Vec<u8>, Refused> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::Malformed)
}

/// Takes a message apart from its front.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Refuses what does not begin with this kind.
    pub fn of(bytes: &'a [u8], kind: u8) -> Result<Self, Refused> {
        match bytes.split_first() {
            Some((first, rest)) if *first == kind => Ok(Self(rest)),
            Some(_) | None => Err(Refused::Malformed),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Refused::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn number(&mut self) -> Result<u64, Refused> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn end(self) -> Result<(), Refused> {
        if self.0.is_empty() { Ok(()) } else { Err(Refused::Malformed) }
    }
}
