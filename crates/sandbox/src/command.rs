//! A command before it is started, as plain data.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::helper_connection::Fence;

#[derive(Debug, Clone)]
pub struct ChildCommand {
    pub program: Program,
    pub cwd: PathBuf,
    /// The whole environment of the child. Which variables may be passed on is its giver's decision.
    pub environment: Vec<(OsString, OsString)>,
    pub limits: CommandLimits,
    /// What the child may reach. Without a fence: whatever the user may.
    pub fence: Option<Fence>,
}

#[derive(Debug, Clone)]
pub enum Program {
    /// A line for `sh -c`.
    Shell(String),
    Exec {
        program: PathBuf,
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct CommandLimits {
    /// How long the command may run; zero is as long as it takes.
    pub wall: Duration,
    /// After this much output the rest is read and counted, but not handed on.
    pub forward_bytes_max: u64,
    /// After this much output the command is ended.
    pub output_bytes_max: u64,
    /// How long the command may take to end by itself after it was asked to.
    pub grace: Duration,
    /// Processes and threads that may live at once.
    pub processes_max: u32,
    /// Memory that the command and its children may hold together.
    pub memory_bytes_max: u64,
    /// The largest file it may write.
    pub file_bytes_max: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(120),
            forward_bytes_max: 1 << 20,
            output_bytes_max: 1 << 30,
            grace: Duration::from_millis(500),
            processes_max: 512,
            memory_bytes_max: 4 << 30,
            file_bytes_max: 4 << 30,
        }
    }
}
