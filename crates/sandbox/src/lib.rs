//! What tools and commands may reach, and how that is kept: starting, limiting and ending child
//! processes, and opening files. Every child of the program is born here.
//!
//! A child gets nothing it was not given: no inherited environment, no standard input, no terminal.
//! It leads its own process group, which ends as a whole: when the command ends, when its time or
//! output limit is reached, when it is cancelled, and when whoever waits for it goes away.
//!
//! Files that this process touches for a tool are opened below handles of the session's folders.

mod command;
mod confine;
mod files;
mod group;
mod policy;
mod run;
mod signal;

pub use command::{Command, Limits, Program};
pub use confine::{Fence, Helper};
pub use files::{Entry, FileError, Files, Kind, Spot, Unfit};
pub use policy::{
    Broken, Mode, PROTECTED, PROTECTED_IN_GIT, PROTECTED_IN_HOME, Policy, UnknownMode, Want, is_protected,
};
pub use run::{Cause, Chunk, Ended, StartError, Stream, run};
