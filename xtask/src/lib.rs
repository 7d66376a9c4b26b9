//! What `xtask` and `drills` share: starting programs, and installing what they need.

pub mod command;
pub mod setup;
