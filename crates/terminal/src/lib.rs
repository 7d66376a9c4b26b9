//! The terminal client: full-screen, or line by line where there is no terminal.
//!
//! A client of our own dialect (`wire::native`) only: it shows what the server sent, and changes things by requests.
//! Its logic is a pure value ([`app::App`]); one loop feeds keys and frames in and carries requests out.

mod ansi_parser;
mod app;
mod ask_panel;
mod completion;
mod composer;
mod connection;
mod diff;
mod draw;
mod formatting;
mod full_screen_loop;
mod layout;
mod line_mode;
mod markdown;
mod sanitize;
mod screen;
mod session_opener;
mod session_picker;
#[cfg(test)]
mod tests;
mod theme;
mod transcript;
mod transcript_entry;
mod wrap;

pub use app::FullScreenOptions;
pub use connection::{Dial, Dialing, ServerConnection};
pub use full_screen_loop::{ScreenExit, full_screen};
pub use line_mode::{LineModeExit, LineModeOptions, line_mode};
pub use session_opener::{OpenFailure, StartOptions, WhichSession};
pub use theme::Theme;

/// What this client is called in the log.
pub const NAME: &str = "terminal";
