//! What tools and commands may reach, and how that is kept: starting, limiting and ending child
//! processes, and opening files. Every child of the program is born here.
//!
//! A child gets nothing it was not given: no inherited environment, no standard input, and no terminal
//! but one that was made for it.
//! It leads its own process group, which ends as a whole: when the command ends, when its time or
//! output limit is reached, when it is cancelled, and when whoever waits for it goes away.
//!
//! A child with a fence is started by a helper, which is this program once more: see `docs/sandbox.md`.
//!
//! Files that this process touches for a tool are opened below handles of the session's folders.

mod ability;
mod account;
#[cfg(target_os = "linux")]
mod cage;
mod command;
mod confine;
mod files;
mod git;
mod group;
mod policy;
mod protected;
mod report;
mod run;
mod service;
mod signal;
mod spec;
mod steered;
mod terminal;
mod violation;
mod wire;

pub use ability::{Ability, Backend, probe};
pub use account::account_homes;
#[cfg(target_os = "linux")]
pub use cage::helper_main;
pub use command::{Command, Limits, Program};
pub use confine::{Fence, HELPER_ARGUMENT, Helper};
pub use files::{Entry, FileError, Files, Kind, Spot, Unfit};
pub use git::{git_looks_only, git_program};
pub use policy::{Broken, Mode, Policy, UnknownMode, Want};
pub use protected::{PROTECTED, Protected, ProtectedEntries, protected_below};
pub use run::{Cause, Chunk, Ended, Output, StartError, Stream, run, run_in_terminal};
pub use service::{Service, ServiceNews, ServicePipes};
pub use steered::steered_program;
pub use terminal::{Terminal, Window};
pub use violation::{Op, Violation};

/// There is no fence to build here, so nothing is started.
#[cfg(not(target_os = "linux"))]
pub fn helper_main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
