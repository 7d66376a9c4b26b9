//! What only a machine and its devices can read.
//!
//! Pure: keys and bytes come in, keys and bytes go out. Nothing here knows a session, a socket or a file.
//! `docs/security.md` ("End to end") is the specification, `vectors.json` an example of everything in it:
//! the tests here make it, and those of the web app read it and make it once more.
//!
//! **Invariant:** no nonce is used twice under one key. Contents and wrapped keys take random ones, under
//! keys that seal far fewer messages than would make two alike likely. Calls and replies count, under keys
//! that live as long as the counter does.
//! **Invariant:** what is not secret and yet means something (who, which session, which position) is part
//! of what is authenticated. Whoever moves a sealed message makes it unreadable.

mod content;
mod context;
mod key;
mod lane;
mod message;
mod pairing;
mod random;
mod refused;
mod words;

pub use content::{ContentKeys, Place};
pub use key::{Bond, DeviceId, Fingerprint, MachineId, Point, PrivateKey};
pub use lane::{Answering, Asked, Caller, Lane, LaneAsk, LaneId, Lanes, SealedCall};
pub use message::{Incoming, from_text, to_text};
pub use pairing::{
    Enrolment, INVITATION_MS, Invitation, Joining, NAME_BYTES_MAX, Offer, Paired, PairingLink, Secret,
};
pub use random::{Random, SystemRandom};
pub use refused::Refused;
pub use words::two as two_words;
