//! The otter dialect, in both its forms: the plain one, and the later one in which every update has a
//! number.
//!
//! **Invariant:** the number of updates of an event, and their numbers, are functions of the log. So a
//! number means the same to every client, whoever watches and however often the server was restarted.

mod decode;
mod reply;
mod tool_names;
mod updates;

pub(crate) use decode::{notification, parse_ask, request};
pub(crate) use reply::{fault, reply};
#[cfg(test)]
pub(crate) use tool_names::TOOLS;
pub use updates::{Updates, updates_of};

/// The prefix of its sessions' ids.
pub(crate) const ID_PREFIX: &str = "otter-";
