//! The ferret dialect, 0.2: flat updates that an editor can render one by one.

mod decode;
mod reply;
mod tool_names;
mod updates;

pub(crate) use decode::{notification, request};
pub(crate) use reply::{fault, reply};
#[cfg(test)]
pub(crate) use tool_names::TOOLS;
pub use updates::Updates;

/// The prefix of its sessions' ids.
pub(crate) const ID_PREFIX: &str = "ferret-";
