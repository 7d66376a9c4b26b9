//! The helper: this program, started once more to build a fence and to watch over a command inside.
//!
//! Three processes: the helper itself, outside, which sees what the command tries and ends it; the
//! first process of a new process namespace, with whose end the kernel ends all others in there; and
//! the command. The helper has a single thread, so its copies after a fork are whole and may do
//! ordinary work before they become another program.
//!
//! **Invariant:** the command is started only after every layer of the fence stands.

mod calls;
mod channel;
mod filter;
mod guards;
mod init;
mod judge;
mod landlock;
mod launch;
mod lent;
mod mounts;
mod placeholder;
mod resolve;
mod scene;
mod supervise;
mod sys;
mod watch;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::policy::Mode;
use crate::report::Report;
use crate::spec::{Input, Spec};
use crate::wire::FRAME_BYTES_MAX;

/// Why no command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    /// The fence cannot be built.
    NoFence(String),
    /// The program cannot be started; an error number.
    NotStarted(i32),
}

impl Trouble {
    fn report(self) -> Report {
        match self {
            Self::NoFence(reason) => Report::NoFence(reason),
            Self::NotStarted(error) => Report::NotStarted(error),
        }
    }
}

/// Names the step that failed.
fn step<T>(what: &str, result: io::Result<T>) -> Result<T, Trouble> {
    result.map_err(|error| Trouble::NoFence(format!("{what}: {error}")))
}

/// Frees the names of a workspace that a killed helper left taken.
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
    // Signals of a terminal are for the program that started it. Whoever starts it by hand may have made
    // it a leader already, and is told below.
    rustix::process::setsid().ok();
    let Some((line, spec)) = receive() else {
        eprintln!("this is the sandbox's helper; it is started by the program itself");
        return ExitCode::FAILURE;
    };
    let ended = match spec.policy.mode {
        Mode::Off => supervise::unfenced(&spec, line),
        Mode::ReadOnly | Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => supervise::fenced(&spec, line),
    };
    match ended {
        supervise::End::Code(code) => ExitCode::from(code),
        supervise::End::Signal(signal) => sys::end_by(signal),
    }
}

/// Takes the line out of the way of the command, which gets no input or another one, and reads what to
/// do.
fn receive() -> Option<(UnixStream, Spec)> {
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?;
    read_nothing().ok()?;
    let mut line = UnixStream::from(line);
    let mut length = [0; 4];
    line.read_exact(&mut length).ok()?;
    let length =
        usize::try_from(u32::from_le_bytes(length)).ok().filter(|length| *length <= FRAME_BYTES_MAX)?;
    let mut body = vec![0; length];
    line.read_exact(&mut body).ok()?;
    let spec = Spec::read(&body).ok()?;
    if spec.input == Input::Handed {
        rustix::stdio::dup2_stdin(channel::receive_file(&line)?).ok()?;
    }
    Some((line, spec))
}

/// Makes the standard input of this process an empty one.
fn read_nothing() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(File::open("/dev/null")?)?)
}

/// Lets go of an input that the command has by now. Its writer is to learn when the command no longer
/// reads, and would not as long as somebody else could.
fn leave_input(input: Input) {
    if input == Input::Handed {
        // Where there is nothing to read instead, the writer merely learns it later.
        read_nothing().ok();
    }
}
