//! The byte format of messages: a type byte, then fields of known length.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{LaneRequest, PairingOffer, SealError, SealedCall};

pub(crate) const CONTENT: u8 = 0x01;
pub(crate) const KEYS: u8 = 0x02;
pub(crate) const OFFER: u8 = 0x10;
pub(crate) const PAIRED: u8 = 0x11;
pub(crate) const LANE_ASK: u8 = 0x20;
pub(crate) const LANE_ANSWER: u8 = 0x21;
pub(crate) const CALL: u8 = 0x30;
pub(crate) const REPLY: u8 = 0x31;

/// What a device may send to a machine.
pub enum DeviceMessage {
    Offer(PairingOffer),
    LaneAsk(LaneRequest),
    Call(SealedCall),
}

impl DeviceMessage {
    pub fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        match bytes.first() {
            Some(&OFFER) => PairingOffer::parse(bytes).map(Self::Offer),
            Some(&LANE_ASK) => LaneRequest::parse(bytes).map(Self::LaneAsk),
            Some(&CALL) => SealedCall::parse(bytes).map(Self::Call),
            Some(_) | None => Err(SealError::Malformed),
        }
    }
}

/// The text form in frames: base64url without padding.
pub fn to_text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn from_text(text: &str) -> Result<Vec<u8>, SealError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::Malformed)
}

/// Reads the fields of a message from its start.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Refuses what does not begin with this kind.
    pub fn of(bytes: &'a [u8], kind: u8) -> Result<Self, SealError> {
        match bytes.split_first() {
            Some((first, rest)) if *first == kind => Ok(Self(rest)),
            Some(_) | None => Err(SealError::Malformed),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SealError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SealError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn number(&mut self) -> Result<u64, SealError> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn end(self) -> Result<(), SealError> {
        if self.0.is_empty() { Ok(()) } else { Err(SealError::Malformed) }
    }
}
