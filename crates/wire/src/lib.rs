//! Every byte shape, pure and synchronous: nothing here knows sockets, tasks or time.
//!
//! Bytes become frames, frames become JSON-RPC messages, and a dialect turns messages into [`Call`]s
//! and the log's events and our answers back into messages.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod acp;
pub mod archive;
mod call;
pub mod chimera;
mod diff;
mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod markdown;
pub mod outcome;
pub mod page;
pub mod plain;
pub mod portable;
pub mod record;
mod rpc;
pub mod timestamp;
pub mod transcript;

pub use call::{Call, ChangeAnswer, Fault, Hello, Outcome, Place, SessionView};
pub use frame::{FRAME_BYTES_MAX, Frame, FrameBuffer};
pub use rpc::{Message, RpcId, parse};
pub use timestamp::rfc3339;
