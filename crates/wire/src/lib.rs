//! Every wire format, pure and synchronous: nothing here knows sockets, tasks or clocks.
//!
//! Bytes become frames, frames become JSON-RPC messages, and a dialect decodes messages into
//! [`ClientRequest`]s and encodes the log's events and our responses as messages.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod acp;
pub mod bernstein;
pub mod chimera_archive;
mod client_request;
pub mod cursor;
mod dialect;
mod diff;
mod event_encoder;
pub mod event_json;
pub mod external_agent;
pub mod ferret;
mod ferret_otter_common;
#[doc(hidden)]
pub mod fuzz;
pub mod json_errors;
mod line_frames;
mod merged_chunk;
pub mod method_names;
pub mod money;
pub mod native;
pub mod otter;
pub mod parse_past_time;
pub mod record;
pub mod rest;
mod rpc;
pub mod session_archive;
pub mod session_export_writer;
pub mod sse;
pub mod transcript_html;
pub mod transcript_markdown;
pub mod transcript_text;
pub use engine::timestamp;
pub mod transcript;
pub mod tunnel;
pub mod turn_result;
mod turn_text;

pub use client_request::{
    BridgeStatus, ClientInfo, ClientRequest, EventPage, EventRange, RequestError, RequestOutcome,
    SessionView, SettingReply, WorkspaceParams,
};
pub use cursor::Cursor;
pub use dialect::{
    AskFrame, Client, ConnectionEvent, Decoder, Dialect, DialectSelection, EncodeContext, FrameOffset,
    Identity, OPTIONAL_METHODS, Replies, SandboxBackends, UpdateCount, UpdateStart, Updates, select_dialect,
    write_unreadable,
};
pub use engine::timestamp::rfc3339;
pub use event_encoder::{EncodeStep, Encoder};
pub use line_frames::{
    DroppedFrame, Frame, FrameBuffer, LINE_FRAME_BYTES_MAX, TruncatedMessage, read_truncated,
};
pub use rpc::{OwnedRpcMessage, RpcId, RpcMessage, parse};
pub use turn_text::TurnText;
