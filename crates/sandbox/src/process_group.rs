//! A child and everything it started: created as one process group and ended as one.
//!
//! The parent death signal reaches only the child, and it is tied to the *thread* that started it, not to the process. Threads
//! of an async runtime come and go, so children are started by one thread that lives as long as the process.
//!
//! A fenced child is the helper, which ends what it started itself: it is asked to end, and is never killed while it can still
//! clean up.
//!
//! **Invariant:** when a [`ProcessGroup`] is dropped, no process of it is left running. The exception, without a helper, is a
//! process that made itself a session of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, ChildStdin};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::command::{ChildCommand, Program};
use crate::helper_connection::{self, ASK_TO_END, ASK_TO_KILL, Fence, HelperConnection};
use crate::helper_request::{HelperRequest, Input};
use crate::run::StartError;

/// Commands waiting for the starting thread. Starting takes about a millisecond; more
/// callers are refused as busy.
const STARTS_QUEUED_MAX: usize = 16;

pub(crate) struct ProcessGroup {
    pub(crate) child: Child,
    /// The connection to the helper, if the child is one.
    pub(crate) connection: Option<HelperConnection>,
    leader: Pid,
    finished: bool,
    asked_to_kill: bool,
}

impl ProcessGroup {
    /// With a terminal, that is the command's input and output.
    pub(crate) async fn start(command: &ChildCommand, terminal: Option<OwnedFd>) -> Result<Self, StartError> {
        let Some(fence) = &command.fence else {
            return Self::spawn_on_thread(prepare(command, Stdio::null(), terminal)?, false).await;
        };
        let input = if terminal.is_some() { Input::Terminal } else { Input::Nothing };
        Self::start_helper(command, fence, input, terminal, None).await
    }

    /// A child whose standard input is the caller's.
    pub(crate) async fn start_with_input(command: &ChildCommand) -> Result<Self, StartError> {
        let Some(fence) = &command.fence else {
            return Self::spawn_on_thread(prepare(command, Stdio::piped(), None)?, false).await;
        };
        let (theirs, ours) = std::io::pipe().map_err(StartError::Spawn)?;
        let mut group = Self::start_helper(command, fence, Input::Handed, None, Some(theirs.into())).await?;
        let ours = std::process::ChildStdin::from(OwnedFd::from(ours));
        group.child.stdin = Some(ChildStdin::from_std(ours).map_err(StartError::Spawn)?);
        Ok(group)
    }

    /// Starts the helper and tells it what to do.
    async fn start_helper(
        command: &ChildCommand,
        fence: &Fence,
        input: Input,
        terminal: Option<OwnedFd>,
        handed: Option<OwnedFd>,
    ) -> Result<Self, StartError> {
        let (ours, theirs) = helper_connection::socket_pair()?;
        let mut group = Self::spawn_on_thread(prepare_helper(fence, theirs, terminal)?, true).await?;
        let mut connection = HelperConnection::new(ours).map_err(StartError::Spawn)?;
        let mut sent = connection.send(&HelperRequest::new(command, &fence.policy, input)).await;
        if let (Ok(()), Some(file)) = (&sent, &handed) {
            sent = connection.send_file(file).await;
        }
        // A helper that does not listen has ended; its exit tells more.
        drop(sent);
        group.connection = Some(connection);
        Ok(group)
    }

    async fn spawn_on_thread(prepared: std::process::Command, helper: bool) -> Result<Self, StartError> {
        let (reply, started) = oneshot::channel();
        let request = SpawnRequest { command: prepared, helper, runtime: Handle::current(), reply };
        starter_thread()?.try_send(request).map_err(|_| StartError::Busy)?;
        started.await.map_err(|_| StartError::Busy)?.map_err(StartError::Spawn)
    }

    fn spawn(command: std::process::Command, helper: bool) -> io::Result<Self> {
        // A helper sees the end of its connection and ends by itself, after everything that it started.
        let child = tokio::process::Command::from(command).kill_on_drop(!helper).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let leader = leader.ok_or_else(|| io::Error::other("the child has no process id"))?;
        Ok(Self { child, connection: None, leader, finished: false, asked_to_kill: false })
    }

    /// Sends a signal to every process of the group. That none is left is not an error.
    pub(crate) fn signal(&mut self, signal: Signal) {
        match &self.connection {
            Some(connection) if signal != Signal::KILL => connection.ask(ASK_TO_END),
            Some(connection) if !self.asked_to_kill => {
                self.asked_to_kill = true;
                connection.ask(ASK_TO_KILL);
            }
            _ => {
                kill_process_group(self.leader, signal).ok();
                for strayed in session_members(self.leader) {
                    kill_process(strayed, signal).ok();
                }
            }
        }
    }

    /// The leader has ended: ends the rest. The group's number stays taken while a process of the
    /// group lives and may be reused for another one afterwards, so this is the last signal it is sent.
    pub(crate) fn finish(&mut self) {
        // A helper ends last.
        if self.connection.is_none() {
            self.signal(Signal::KILL);
        }
        self.finished = true;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.finished {
            self.signal(Signal::KILL);
        }
    }
}

/// Processes of the leader's session in other groups: `timeout` and shells with job control make
/// their own. One that began a session of its own is out of reach here.
fn session_members(leader: Pid) -> Vec<Pid> {
    let leader = leader.as_raw_nonzero().get();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let strayed = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name before the last bracket may hold anything; then come state, parent, group, session.
        let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(2);
        let (group, session): (i32, i32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        if session == leader && group != leader { Pid::from_raw(pid) } else { None }
    };
    processes.filter_map(Result::ok).filter_map(strayed).collect()
}

struct SpawnRequest {
    command: std::process::Command,
    helper: bool,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<ProcessGroup>>,
}

/// The queue of the thread that starts children.
fn starter_thread() -> Result<&'static SyncSender<SpawnRequest>, StartError> {
    static STARTER: OnceLock<Option<SyncSender<SpawnRequest>>> = OnceLock::new();
    let start = || {
        let (orders, queue) = sync_channel::<SpawnRequest>(STARTS_QUEUED_MAX);
        let serve = move || {
            for request in queue {
                let _runtime = request.runtime.enter();
                // If the caller went away, the group is dropped here and ends.
                drop(request.reply.send(ProcessGroup::spawn(request.command, request.helper)));
            }
        };
        std::thread::Builder::new().name("sandbox-start".into()).spawn(serve).ok().map(|_| orders)
    };
    STARTER.get_or_init(start).as_ref().ok_or(StartError::Busy)
}

/// Standard output and standard error: both the terminal, or pipes.
fn outputs(terminal: Option<OwnedFd>) -> Result<[Stdio; 2], StartError> {
    let Some(terminal) = terminal else { return Ok([Stdio::piped(), Stdio::piped()]) };
    let again = terminal.try_clone().map_err(StartError::Spawn)?;
    Ok([terminal.into(), again.into()])
}

/// With a terminal, that is the input too.
fn prepare(
    command: &ChildCommand,
    input: Stdio,
    terminal: Option<OwnedFd>,
) -> Result<std::process::Command, StartError> {
    let typed = terminal.as_ref().map(OwnedFd::try_clone).transpose().map_err(StartError::Spawn)?;
    let with_terminal = typed.is_some();
    let [stdout, stderr] = outputs(terminal)?;
    let mut prepared = match &command.program {
        Program::Shell(line) => {
            let mut shell = new_command("/bin/sh".as_ref());
            // A line may begin with a dash and is no option all the same.
            shell.arg("-c").arg("--").arg(line);
            shell
        }
        Program::Exec { program, arguments } => {
            let mut exec = new_command(program.as_os_str());
            exec.args(arguments);
            exec
        }
    };
    prepared
        .current_dir(&command.cwd)
        .env_clear()
        .envs(command.environment.iter().map(|(key, value)| (key, value)))
        .stdin(typed.map_or(input, Stdio::from))
        .stdout(stdout)
        .stderr(stderr);
    lead_own_group(&mut prepared, with_terminal);
    Ok(prepared)
}

fn prepare_helper(
    fence: &Fence,
    line: OwnedFd,
    terminal: Option<OwnedFd>,
) -> Result<std::process::Command, StartError> {
    let [stdout, stderr] = outputs(terminal)?;
    let mut prepared = new_command(fence.helper.program.as_os_str());
    prepared
        .args(&fence.helper.arguments)
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::from(line))
        .stdout(stdout)
        .stderr(stderr);
    // It makes a session of its own: without a step of ours before its start the system can start it
    // without copying this process first.
    Ok(prepared)
}

#[expect(clippy::disallowed_methods, reason = "this is the place where children start")]
fn new_command(program: &std::ffi::OsStr) -> std::process::Command {
    std::process::Command::new(program)
}

/// Gives the child its own session and process group, and lets it die with us. With a terminal, that is
/// its standard input and becomes the session's.
#[expect(unsafe_code, reason = "the steps between fork and exec have no safe interface")]
fn lead_own_group(command: &mut std::process::Command, terminal: bool) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the signal was set; then it would never be sent.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = parent;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The closure makes plain
    // system calls, allocates nothing (errors carry a number or a kind) and takes no lock.
    unsafe {
        command.pre_exec(before_exec);
    }
}
