//! External agents: what an agent of the official protocol says, in the engine's words, and what we say to it
//! as its client.
//!
//! Pure, like every dialect. The agent is another program that may say anything, so nothing here fails on
//! what it says: what is not understood is handed on as it came ([`engine::Body::Foreign`]), and what would
//! be too much is cut. What our words would lose travels beside them, word for word
//! ([`engine::Said::relayed`]). Where one update becomes several events, one of them carries its words and
//! the others an empty text, which says that nothing is to be written for them.

mod answers;
mod asks;
mod calls;
mod client;
mod content;
mod ending;
mod facts;
mod hearing;
pub mod journal;
mod primer;
mod raw;
mod settings;
mod shown;
#[cfg(test)]
mod tests;

pub use answers::{BadAnswer, Can, Ended, Opened, ended, greeted, opened};
pub use asks::{BadAsk, outcome, permission};
pub use client::{PROMPT, cancel, close, fork, initialize, load, new_session, prompt, reaches, resume};
pub(crate) use facts::{ANSWER, EXTENSION};
pub use facts::{answer, extension, is_lasting};
pub use hearing::{Heard, Hearing};
pub use primer::Primer;
pub use settings::{How, Offers, set};
