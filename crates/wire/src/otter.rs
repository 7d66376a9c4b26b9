//! Otter, in both its forms: the plain one, and the later one in which every update has a number.
//!
//! **Invariant:** an event is at most one update, and which number that has is a function of the log. So
//! a number means the same to everybody, whoever watches and however often the server was started.

mod decode;
mod reply;
mod updates;

pub(crate) use decode::{notification, request};
pub(crate) use reply::{fault, reply};
pub use updates::{Updates, updates_of};

/// How the ids of its sessions begin.
pub(crate) const ID_PREFIX: &str = "otter-";
