//! End-to-end encryption: what only a machine and its paired devices can read.
//!
//! This crate is pure: keys and bytes come in, keys and bytes go out. It knows no session, socket or file.
//! `docs/security.md` ("End to end") is the specification, `vectors.json` has an example of everything in it:
//! the tests here produce it, and the web app's tests read and reproduce it.
//!
//! **Invariant:** no nonce is used twice under one key. Contents and wrapped keys use random nonces, under
//! keys that seal far too few messages for a repetition. Calls and replies use counters, under keys
//! that live as long as the counter does.
//! **Invariant:** everything that is public but meaningful (who, which session, which position) is part
//! of the authenticated data. Moving a sealed message elsewhere makes it unreadable.

mod comparison_words;
mod content_keys;
mod error;
mod key;
mod key_context;
mod lane;
mod message_format;
mod random;
mod sealed_pairing;

pub use comparison_words::two as two_words;
pub use content_keys::{ContentKeys, ContentPosition};
pub use error::SealError;
pub use key::{DeviceId, Fingerprint, MachineId, Point, PrivateKey, SharedSecret};
pub use lane::{CallReply, DeviceLane, Lane, LaneId, LaneOpening, LaneRequest, Lanes, SealedCall};
pub use message_format::{DeviceMessage, from_text, to_text};
pub use random::{Random, SystemRandom};
pub use sealed_pairing::{
    DevicePairing, Enrolment, INVITATION_MS, NAME_BYTES_MAX, PairedMachine, PairingInvitation, PairingLink,
    PairingOffer, PairingSecret,
};
