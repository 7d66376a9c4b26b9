//! The surfaces of a server: a link (stdio, byte streams, memory) or an HTTP route reads a client's calls, a connection passes
//! them to sessions and writes replies and updates back.
//!
//! This crate knows neither what a method means nor how a permission is decided.

mod bernstein_ask_deadline;
mod connection;
mod flush_on_finish;
mod frame_batch;
mod handlers;
mod host_calls;
pub mod http;
mod link;
mod panics;
mod pending_replies;
mod request_order;
mod tool_server_handlers;
mod writer;
mod writer_command_sender;

pub use connection::{Connection, ConnectionParts, OnInitialize, PreopenedSession};
pub use flush_on_finish::FlushedConnection;
pub use frame_batch::{FrameBatch, FrameMark, FramePosition, PositionedFrame};
pub use link::{Incoming, Link, byte_stream, memory, stdio};
