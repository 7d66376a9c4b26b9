//! Otter, in both its forms: the plain one, and the later one in which every update has a number.
//!
//! **Invariant:** how many updates an event is, and which numbers they have, is a function of the log. So
//! a number means the same to everybody, whoever watches and however often the server was started.

mod decode;
mod reply;
mod tools;
mod updates;

pub(crate) use decode::{notification, parse_ask, request};
pub(crate) use reply::{fault, reply};
#[cfg(test)]
pub(crate) use tools::TOOLS;
pub use updates::{Updates, updates_of};

/// How the ids of its sessions begin.
pub(crate) const ID_PREFIX: &str = "otter-";
