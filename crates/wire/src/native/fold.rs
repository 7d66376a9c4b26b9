//! Folds a session's log into rows and a state, event by event.
//!
//! Both are functions of the log alone, so a client that reconnects, a second client and a restarted server
//! see the same. Rows depend on nothing before the start of their turn except the queued prompts, so they
//! can be made from the start of any turn; the state does not need the chunks of streams, so it can be made
//! from an outline of the log.
//!
//! **Invariant:** an event makes at most one row, so the event's position is the row's id.

mod ask_view;
mod client_position;
mod diff_view;
mod row_text;
mod rows;
mod session_state;
#[cfg(test)]
mod tests;
mod turn_starts;

pub use ask_view::ask_view;
pub use client_position::{ViewDelta, Viewer};
pub use diff_view::changed_diff;
pub use rows::{PromptText, RowLimits, Rows};
pub use session_state::{InitialState, SessionStateFold, settings, slash_command};
pub use turn_starts::{TurnStart, TurnStarts};
