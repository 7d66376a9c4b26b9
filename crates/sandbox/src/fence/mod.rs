//! The fence helper: this program, started once more to build a fence and to supervise a command inside it.
//!
//! There are three processes. The helper itself stays outside, sees what the command tries, and ends it. The first process
//! of a new process namespace: when it ends, the kernel ends all others in there. And the command. The helper has a single
//! thread, so its copies after a fork are complete and may do ordinary work before they become another program.
//!
//! **Invariant:** the command is started only after every layer of the fence stands.

mod channel;
mod command_supervisor;
mod fence_and_exec;
mod file_system_layout;
mod guarded_entries;
mod init;
mod landlock;
mod mounts;
mod placeholder;
mod programs_in_tmp;
mod resource_usage;
mod seccomp_filter;
mod supervised_calls;
mod sys;
mod system_call_judge;
mod system_call_paths;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::helper_frames::HELPER_FRAME_BYTES_MAX;
use crate::helper_report::HelperReport;
use crate::helper_request::{HelperRequest, Input};
use crate::policy::Mode;

/// Why no command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FenceError {
    /// The fence cannot be built.
    NoFence(String),
    /// The program cannot be started; an error number.
    NotStarted(i32),
}

impl FenceError {
    fn report(self) -> HelperReport {
        match self {
            Self::NoFence(reason) => HelperReport::NoFence(reason),
            Self::NotStarted(error) => HelperReport::NotStarted(error),
        }
    }
}

/// Names the step that failed.
fn step<T>(what: &str, result: io::Result<T>) -> Result<T, FenceError> {
    result.map_err(|error| FenceError::NoFence(format!("{what}: {error}")))
}

/// Frees the names of a workspace that a killed helper left occupied.
pub(crate) fn free_names(root: &std::path::Path) {
    placeholder::sweep(root);
}

/// The version of Landlock in this kernel.
pub(crate) fn landlock_version() -> io::Result<u32> {
    sys::landlock_version()
}

/// What the program does when it was started as the helper. Call it before anything else: it must be
/// the only thread.
pub fn helper_main() -> ExitCode {
    // Signals of a terminal are for the program that started the helper. This fails if the helper was started by
    // hand as a session leader; then the message below is printed.
    rustix::process::setsid().ok();
    let Some((connection, spec)) = receive() else {
        eprintln!("this is the sandbox's helper; it is started by the program itself");
        return ExitCode::FAILURE;
    };
    let ended = match spec.policy.mode {
        Mode::Off => command_supervisor::unfenced(&spec, connection),
        Mode::ReadOnly | Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => {
            command_supervisor::fenced(&spec, connection)
        }
    };
    match ended {
        command_supervisor::HelperExit::Code(code) => ExitCode::from(code),
        command_supervisor::HelperExit::Signal(signal) => sys::end_by(signal),
    }
}

/// Moves the connection away from standard input, where the command gets no input or another one, and reads the
/// request.
fn receive() -> Option<(UnixStream, HelperRequest)> {
    let connection = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?;
    read_nothing().ok()?;
    let mut connection = UnixStream::from(connection);
    let mut length = [0; 4];
    connection.read_exact(&mut length).ok()?;
    let length = usize::try_from(u32::from_le_bytes(length))
        .ok()
        .filter(|length| *length <= HELPER_FRAME_BYTES_MAX)?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    let spec = HelperRequest::read(&body).ok()?;
    if spec.input == Input::Handed {
        rustix::stdio::dup2_stdin(channel::receive_file(&connection)?).ok()?;
    }
    Some((connection, spec))
}

/// Makes the standard input of this process an empty one.
fn read_nothing() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(File::open("/dev/null")?)?)
}

/// Closes an input that the command has by now. Its writer must see when the command no longer reads, and would not
/// as long as another process has it open.
fn leave_input(input: Input) {
    if input == Input::Handed {
        // If this fails, the writer only sees it later.
        read_nothing().ok();
    }
}
