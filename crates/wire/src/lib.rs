//! Every byte shape, pure and synchronous: nothing here knows sockets, tasks or time.
//!
//! Bytes become frames, frames become JSON-RPC messages, and a dialect turns messages into [`Call`]s
//! and the log's events and our answers back into messages.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod acp;
pub mod archive;
pub mod bernstein;
mod call;
pub mod chimera;
pub mod cursor;
mod dialect;
mod diff;
pub mod document;
mod encoder;
pub mod ferret;
mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod json;
pub mod markdown;
mod merge;
pub mod methods;
pub mod money;
pub mod native;
pub mod otter;
pub mod outcome;
pub mod page;
pub mod plain;
pub mod portable;
pub mod record;
pub mod rest;
mod rpc;
mod siblings;
pub mod since;
pub mod sse;
pub mod timestamp;
pub mod transcript;
pub mod tunnel;
mod turn_text;
pub mod upstream;

pub use call::{
    BridgeStatus, Call, ChangeAnswer, EventRange, EventsPart, Fault, Hello, Outcome, Place, SessionView,
};
pub use cursor::Cursor;
pub use dialect::{
    AskFrame, Backends, Client, Counted, Decoder, Dialect, Identity, OPTIONAL_METHODS, Piece, Replies,
    Spoken, Stand, UpdateStart, Updates, View, chosen, write_unreadable,
};
pub use encoder::{Encoder, Step};
pub use frame::{Dropped, FRAME_BYTES_MAX, Frame, FrameBuffer, Remains, remains};
pub use rpc::{Message, OwnedMessage, RpcId, parse};
pub use timestamp::rfc3339;
pub use turn_text::TurnText;
