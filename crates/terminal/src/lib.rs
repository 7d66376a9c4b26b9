//! The terminal client: a session on a whole screen, or line by line where there is none.
//!
//! A strict client of our own dialect (`wire::native`): what it shows is what it was told, and all it
//! does is ask. Decisions are values ([`app::App`]); one loop feeds keys and frames in and carries
//! requests out.

mod ansi;
mod app;
mod clean;
mod client;
mod composer;
mod diff;
mod draw;
mod entry;
mod layout;
mod line;
mod lines;
mod look;
mod offers;
mod opening;
mod picker;
mod prose;
mod screen;
mod shelf;
#[cfg(test)]
mod tests;
mod transcript;
mod words;
mod wrap;

pub use app::Manner;
pub use client::{Ended, full_screen};
pub use line::{Dial, Dialing, Line};
pub use lines::{LineEnd, LineManner, lines};
pub use look::Look;
pub use opening::{Failure, Start, Wish};

/// What this client is called in the log.
pub const NAME: &str = "terminal";
