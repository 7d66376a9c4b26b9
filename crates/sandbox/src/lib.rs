//! Limits what tools and commands may reach: starts, limits and ends child processes, and opens files. Every child
//! process of the program is started here.
//!
//! A child gets nothing that it was not given: no inherited environment, no standard input, and no terminal except one
//! that was created for it. It leads its own process group, and the whole group ends together: when the command ends, when
//! its time or output limit is reached, when it is cancelled, and when the caller that waits for it is dropped.
//!
//! A child with a fence is started by a helper, which is this program started once more: see `docs/sandbox.md`.
//!
//! Files that this process opens for a tool are opened below handles of the session's folders.

mod command;
#[cfg(target_os = "linux")]
mod fence;
mod files;
mod git;
mod helper_connection;
mod helper_frames;
mod helper_report;
mod helper_request;
mod policy;
mod probe;
mod process_group;
mod protected_names;
mod pseudo_terminal;
mod run;
mod service_process;
mod signal_names;
mod user_home_folders;
mod version_manager_shims;
mod violation;

pub use command::{ChildCommand, CommandLimits, Program};
#[cfg(target_os = "linux")]
pub use fence::helper_main;
pub use files::{Entry, EntryKind, FileError, Files, PermittedPath, UnusableReason};
pub use git::{git_program_setting, git_read_only_environment};
pub use helper_connection::{Fence, HELPER_ARGUMENT, Helper};
pub use policy::{DenialReason, Mode, PathAccess, Policy, UnknownMode};
pub use probe::{FenceBackend, SandboxSupport, probe};
pub use protected_names::{PROTECTED, ProtectedEntries, ProtectedKind, protected_below};
pub use pseudo_terminal::{PseudoTerminal, WindowSize};
pub use run::{Chunk, CommandExit, EndCause, Output, StartError, StdStream, run, run_in_terminal};
pub use service_process::{ServiceEvent, ServicePipes, ServiceProcess};
pub use user_home_folders::account_homes;
pub use version_manager_shims::steered_program;
pub use violation::{RefusedOperation, Violation};

/// There is no fence to build here, so nothing is started.
#[cfg(not(target_os = "linux"))]
pub fn helper_main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
