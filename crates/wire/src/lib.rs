//! Every byte shape, pure and synchronous: nothing here knows sockets, tasks or time.
//!
//! Bytes become frames, frames become JSON-RPC messages, and a dialect turns messages into [`Call`]s
//! and the log's events and our answers back into messages.
#![warn(clippy::wildcard_enum_match_arm)]

mod frame;
mod rpc;
mod call;
mod timestamp;
pub mod acp;

pub use call::{Call, Fault, Hello, Outcome, Place, SessionView};
pub use frame::{FRAME_BYTES_MAX, Frame, FrameBuffer};
pub use rpc::{Message, RpcId, parse};
pub use timestamp::rfc3339;
