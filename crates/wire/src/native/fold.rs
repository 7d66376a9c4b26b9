//! What a session's log amounts to: rows and a state, kept in step event by event.
//!
//! Both are functions of the log alone, so a client that comes back, a second client and a server that
//! was started again see the same. Rows depend on nothing before the start of their turn but the prompts
//! that wait, so they can be made from the start of any turn; the state needs no pieces of streams, so it
//! can be made from an outline of the log.
//!
//! **Invariant:** an event makes at most one row, so the event's position names the row.

mod asks;
mod diffs;
mod marks;
mod rows;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod viewer;

pub use asks::ask_view;
pub use diffs::changed_diff;
pub use marks::{Mark, Marks};
pub use rows::{Caps, Prompt, Rows};
pub use state::{Begin, State, settings, slash_command};
pub use viewer::{Delta, Viewer};
