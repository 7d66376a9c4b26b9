//! The dialect of our own clients: the web app and the terminal client.
//!
//! Other dialects show the log event by event. This one shows what the log amounts to: rows (a message,
//! a tool call, an edit), folded here, of which a client gets the last ones, and a session's state. A
//! row has the position of its first event as its id, so rows are ordered by id for ever, and the
//! position of its last change as `rev`. A client that names the last position it has seen is told the
//! rows that changed since, whole: to come back is to ask for what is newer, and needs no history of
//! patches. Only text that grows is sent piece by piece.
//!
//! Frames are JSON objects, one per message. A client sends [`Envelope`]s; every one is answered by a
//! [`Reply`] with its id. In between, the server tells what happens ([`Told`]).
//!
//! The types of the web app (`web/src/wire.ts`) are made from these; a test holds them together.

mod card;
pub mod fold;
mod frame;
pub mod hub;
mod request;
mod row;
#[cfg(test)]
mod tests;

pub use card::{
    AskView, Card, CardState, KeptOf, Question, SessionState, Setting, SettingChoice, SlashCommand, Waiting,
};
pub use frame::{
    Answered, Device, FoundFile, Frame, Hello, Invitation, Knock, Reply, RuleView, Told, View, Wrong,
};
pub use request::{Decision, Envelope, Picture, Request, Role, Subscription};
pub use row::{
    Append, Diff, DiffStatus, Ended, Hunk, Level, Plan, PlanStep, Row, StepState, Tool, ToolState, What,
};

/// Rows of a view that is opened anew.
pub const WINDOW_ROWS: usize = 120;
/// Rows of an earlier page.
pub const PAGE_ROWS: usize = 60;
/// What a row shows of a message, from its beginning.
pub const TEXT_BYTES_MAX: usize = 40 << 10;
/// What a row shows of a tool's input.
pub const INPUT_BYTES_MAX: usize = 6 << 10;
/// What a row shows of a tool's output, up to its end.
pub const OUTPUT_BYTES_MAX: usize = 12 << 10;
/// Lines of a row's diffs.
pub const DIFF_LINES_MAX: usize = 400;
/// What an ask shows of a command, an input or a text; what is decided must be seen.
pub const ASK_BYTES_MAX: usize = 64 << 10;
/// Lines of an ask's diffs.
pub const ASK_LINES_MAX: usize = 4000;
/// What a row with all of its text has of each.
pub const WHOLE_BYTES_MAX: usize = 8 << 20;
/// Cards of a page.
pub const PAGE_CARDS: usize = 100;
