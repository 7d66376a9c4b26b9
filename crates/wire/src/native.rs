//! The dialect of our own clients: the web app and the terminal client.
//!
//! Other dialects send the log event by event. This one sends what the log amounts to: rows (a message, a
//! tool call, an edit), folded here, of which a client gets the last ones, and the session's state. A row's
//! id is the position of its first event, so rows are always ordered by id, and its `rev` is the position of
//! its last change. A client that reconnects with the last position it has seen gets the rows that changed
//! since, complete: no history of patches is needed. Only growing text is sent in pieces.
//!
//! Frames are JSON objects, one per message. A client sends [`RequestEnvelope`]s; each gets a
//! [`RequestReply`] with the same id. In between, the server sends [`ServerNotification`]s.
//!
//! The web app's types (`web/src/wire.ts`) are generated from these types by a test. Their names there are
//! set with `ts(rename)`, and the names on the wire with `serde(rename)`; the doc comments of fields are
//! part of that file.

mod card_and_state;
pub mod fold;
pub mod hub_requests;
mod request;
mod server_frame;
#[cfg(test)]
mod tests;
mod transcript_row;

pub use card_and_state::{
    AskView, BranchOrigin, CardState, QuestionView, QueuedPrompt, SessionCard, SessionState, SettingChoice,
    SettingView, SlashCommand,
};
pub use request::{Decision, ImageAttachment, PushSubscription, Request, RequestEnvelope, Role};
pub use server_frame::{
    DeviceView, FileMatch, Invitation, PairingRequest, ReplyBody, ReplyError, RequestReply, RuleView,
    ServerFrame, ServerHello, ServerNotification, ViewUpdate,
};
pub use transcript_row::{
    DiffStatus, DiffView, HunkView, NoticeSeverity, PlanStepState, PlanStepView, PlanView, Row, RowContent,
    TextAppend, ToolCallState, ToolCallView, TurnSummary,
};

/// Rows of a newly opened view.
pub const WINDOW_ROWS: usize = 120;
/// Rows of a page of earlier rows.
pub const PAGE_ROWS: usize = 60;
/// How much of a message a row shows, from its beginning.
pub const TEXT_BYTES_MAX: usize = 40 << 10;
/// How much of a tool's input a row shows.
pub const INPUT_BYTES_MAX: usize = 6 << 10;
/// How much of a tool's output a row shows, at its end.
pub const OUTPUT_BYTES_MAX: usize = 12 << 10;
/// Limit for the diff lines of a row.
pub const DIFF_LINES_MAX: usize = 400;
/// How much of a command, an input or a text a permission request shows; the person must see what they
/// decide.
pub const ASK_BYTES_MAX: usize = 64 << 10;
/// Limit for the diff lines of a permission request.
pub const ASK_LINES_MAX: usize = 4000;
/// Limit for each text of a row that is requested in full.
pub const FULL_ROW_BYTES_MAX: usize = 8 << 20;
/// Cards per page.
pub const PAGE_CARDS: usize = 100;
