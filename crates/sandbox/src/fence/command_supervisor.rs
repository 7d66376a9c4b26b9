//! The helper's own work outside the fence: it starts what is inside, reads from the program and from the command, counts
//! processes and memory, and ends everything.
//!
//! **Invariant:** when the helper ends, nothing that it started is alive, and no placeholder is left that no other command
//! needs.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, geteuid, getpid, kill_process, set_child_subreaper, wait,
};

use super::channel::{self, FenceMessage};
use super::fence_and_exec::PreparedCommand;
use super::file_system_layout::FenceLayout;
use super::system_call_judge::CallJudge;
use super::{FenceError, guarded_entries, init, leave_input, resource_usage, step, sys};
use crate::helper_connection::ASK_TO_END;
use crate::helper_report::HelperReport;
use crate::helper_request::HelperRequest;

/// How often memory and processes are counted.
const USAGE_INTERVAL: Duration = Duration::from_millis(200);
/// How long the program may take to read the last reports.
const FLUSH_WAIT: Duration = Duration::from_secs(1);
/// How often to check whether killed processes are gone. Only a process that the kernel holds takes more than one
/// check.
const REAP_INTERVAL: Duration = Duration::from_millis(2);
/// The exit code when no command ran.
const NOT_RUN: u8 = 125;

/// How the helper exits: as the command did.
pub(super) enum HelperExit {
    Code(u8),
    Signal(i32),
}

/// Runs a command inside a fence.
pub(super) fn fenced(spec: &HelperRequest, connection: UnixStream) -> HelperExit {
    let mut supervisor = match Supervisor::new(spec, connection) {
        Ok(supervisor) => supervisor,
        Err(end) => return end,
    };
    let (layout, placeholders) = match FenceLayout::new(spec) {
        Ok(prepared) => prepared,
        Err(error) => return supervisor.fail(error),
    };
    let end = match start_fenced(spec, &layout) {
        Ok((inside, channel)) => {
            supervisor.inside = Some(inside);
            supervisor.supervise(&channel, Some(&layout))
        }
        Err(error) => supervisor.fail(error),
    };
    guarded_entries::remove(placeholders);
    supervisor.flush_with_deadline();
    end
}

fn start_fenced(spec: &HelperRequest, layout: &FenceLayout) -> Result<(Pid, OwnedFd), FenceError> {
    let prepared = PreparedCommand::new(spec)?;
    let (inside, outside) = step("talking to the sandbox", channel::pair())?;
    let ids = (geteuid().as_raw(), getegid().as_raw());
    let network = if spec.policy.mode.network() { 0 } else { libc::CLONE_NEWNET };
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | network;
    match sys::fork_into(namespaces) {
        Ok(Some(pid)) => {
            leave_input(spec.input);
            Ok((pid, outside))
        }
        Ok(None) => {
            drop(outside);
            init::main(layout, &prepared, &inside, ids)
        }
        Err(error) => Err(FenceError::NoFence(format!(
            "creating namespaces: {error} (the system may not allow user namespaces for ordinary programs)"
        ))),
    }
}

/// Runs a command without a fence, but so that nothing it starts is left behind.
pub(super) fn unfenced(spec: &HelperRequest, connection: UnixStream) -> HelperExit {
    let mut supervisor = match Supervisor::new(spec, connection) {
        Ok(supervisor) => supervisor,
        Err(end) => return end,
    };
    let end = match start_unfenced(spec) {
        Ok((command, channel)) => {
            supervisor.command = Some(command);
            supervisor.send(&HelperReport::Started);
            supervisor.supervise(&channel, None)
        }
        Err(error) => supervisor.fail(error),
    };
    end_descendants();
    supervisor.flush_with_deadline();
    end
}

fn start_unfenced(spec: &HelperRequest) -> Result<(Pid, OwnedFd), FenceError> {
    // A process that loses its parent becomes a child of the helper, whatever group or session it moved to.
    step("adopting processes", set_child_subreaper(Some(getpid())).map_err(Into::into))?;
    let prepared = PreparedCommand::new(spec)?;
    let (inside, outside) = step("talking to the command", channel::pair())?;
    match step("starting a process", sys::fork_into(0))? {
        Some(pid) => {
            leave_input(spec.input);
            Ok((pid, outside))
        }
        None => {
            drop(outside);
            inside.failed(&prepared.run_unfenced(&inside));
            sys::leave(127)
        }
    }
}

/// Ends every descendant of this process, and those that they start meanwhile.
fn end_descendants() {
    loop {
        for pid in resource_usage::descendants() {
            kill_process(pid, Signal::KILL).ok();
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(REAP_INTERVAL);
    }
}

struct Supervisor<'a> {
    spec: &'a HelperRequest,
    connection: UnixStream,
    connection_open: bool,
    outgoing: Vec<u8>,
    signals: OwnedFd,
    processes: OwnedFd,
    /// The first process of the namespace.
    inside: Option<Pid>,
    /// The command itself, where there is no namespace.
    command: Option<Pid>,
    status: Option<ExitStatus>,
    failed: bool,
    stopped: bool,
}

/// The events of one poll.
struct ReadyEvents {
    connection: PollFlags,
    channel: bool,
    signals: bool,
    calls: PollFlags,
}

impl<'a> Supervisor<'a> {
    fn new(spec: &'a HelperRequest, connection: UnixStream) -> Result<Self, HelperExit> {
        let signals = sys::signals_as_file(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP]);
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = open("/proc", folder, Mode::empty());
        let (Ok(signals), Ok(processes), Ok(())) = (signals, processes, connection.set_nonblocking(true))
        else {
            return Err(HelperExit::Code(NOT_RUN));
        };
        Ok(Self {
            spec,
            connection,
            connection_open: true,
            outgoing: Vec::new(),
            signals,
            processes,
            inside: None,
            command: None,
            status: None,
            failed: false,
            stopped: false,
        })
    }

    /// Supervises the command to its end.
    fn supervise(&mut self, channel: &OwnedFd, layout: Option<&FenceLayout>) -> HelperExit {
        let mut call_judge: Option<CallJudge<'_>> = None;
        let mut calls_end = false;
        let mut count_at = Instant::now() + USAGE_INTERVAL;
        loop {
            let calls = call_judge.as_ref().filter(|_| !calls_end).map(CallJudge::listener);
            let ready = self.wait(channel, calls, count_at);
            if ready.calls.contains(PollFlags::IN) {
                if let Some(violation) = call_judge.as_mut().and_then(CallJudge::next) {
                    self.send(&HelperReport::Refused(violation));
                }
            } else if !ready.calls.is_empty() {
                calls_end = true;
            }
            if ready.channel {
                self.receive_messages(channel, layout, &mut call_judge);
            }
            if !ready.connection.is_empty() {
                self.serve_connection(ready.connection);
            }
            if ready.signals && self.serve_signals() {
                self.receive_messages(channel, layout, &mut call_judge);
                return self.exit_status();
            }
            if Instant::now() >= count_at {
                self.check_usage(call_judge.as_ref().map(CallJudge::processes));
                count_at = Instant::now() + USAGE_INTERVAL;
            }
        }
    }

    fn wait(&self, channel: &OwnedFd, calls: Option<&OwnedFd>, until: Instant) -> ReadyEvents {
        let connection = match (self.connection_open, self.outgoing.is_empty()) {
            (false, _) => PollFlags::empty(),
            (true, true) => PollFlags::IN,
            (true, false) => PollFlags::IN | PollFlags::OUT,
        };
        let mut files = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
        if self.connection_open {
            files.push(PollFd::new(&self.connection, connection));
        }
        if let Some(calls) = calls {
            files.push(PollFd::new(calls, PollFlags::IN));
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        poll(&mut files, Some(&left)).ok();
        let mut rest = files[2..].iter().map(PollFd::revents);
        let mut next = |there: bool| if there { rest.next() } else { None }.unwrap_or(PollFlags::empty());
        ReadyEvents {
            connection: next(self.connection_open),
            calls: next(calls.is_some()),
            signals: !files[0].revents().is_empty(),
            channel: files[1].revents().contains(PollFlags::IN),
        }
    }

    fn receive_messages<'s>(
        &mut self,
        channel: &OwnedFd,
        layout: Option<&'s FenceLayout>,
        call_judge: &mut Option<CallJudge<'s>>,
    ) {
        while let Some(message) = channel::receive(channel) {
            match message {
                FenceMessage::Started(handles) => {
                    *call_judge = layout.map(|layout| CallJudge::new(layout, handles));
                    self.send(&HelperReport::Started);
                }
                FenceMessage::Failed(error) => {
                    self.failed = true;
                    self.send(&error.report());
                }
                FenceMessage::Ended(status) => self.status = Some(ExitStatus::from_raw(status)),
            }
        }
    }

    /// Reads requests of the program.
    fn serve_connection(&mut self, ready: PollFlags) {
        if ready.contains(PollFlags::OUT) {
            self.flush();
        }
        let mut requests = [0; 16];
        match self.connection.read(&mut requests) {
            Ok(0) => self.kill_and_close(),
            Ok(count) if requests[..count].iter().all(|request| *request == ASK_TO_END) => self.ask_to_end(),
            Ok(_) => self.kill(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.kill_and_close(),
        }
    }

    fn kill_and_close(&mut self) {
        self.connection_open = false;
        self.kill();
    }

    /// Handles signals. Returns whether everything has ended.
    fn serve_signals(&mut self) -> bool {
        while let Some(arrived) = sys::next_signal(&self.signals) {
            if arrived.signal != Signal::CHILD.as_raw() {
                self.ask_to_end();
            }
        }
        let mut ended = false;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if Some(pid) == self.command {
                self.status = Some(ExitStatus::from_raw(status.as_raw()));
            }
            ended |= Some(pid) == self.command || Some(pid) == self.inside;
        }
        ended
    }

    fn ask_to_end(&self) {
        match self.inside {
            Some(inside) => drop(kill_process(inside, Signal::TERM)),
            None => {
                for pid in resource_usage::descendants() {
                    kill_process(pid, Signal::TERM).ok();
                }
            }
        }
    }

    fn kill(&self) {
        match (self.inside, self.command) {
            (Some(first), _) | (None, Some(first)) => drop(kill_process(first, Signal::KILL)),
            (None, None) => {}
        }
    }

    /// Ends a command that uses more than it may. `processes` is `/proc` of its namespace.
    fn check_usage(&mut self, processes: Option<&OwnedFd>) {
        if self.stopped {
            return;
        }
        let started =
            || resource_usage::descendants().iter().map(|pid| pid.as_raw_nonzero().get()).collect::<Vec<_>>();
        let used = match processes {
            Some(processes) => resource_usage::of_namespace(processes),
            None if self.inside.is_none() => resource_usage::of_processes(&self.processes, &started()),
            None => return,
        };
        let report = if used.tasks > self.spec.processes_max {
            HelperReport::TooManyProcesses
        } else if used.memory_bytes > self.spec.memory_bytes_max {
            let exact = match processes {
                Some(processes) => {
                    resource_usage::exact_memory_bytes(processes, &resource_usage::pids_in(processes))
                }
                None => resource_usage::exact_memory_bytes(&self.processes, &started()),
            };
            if exact <= self.spec.memory_bytes_max {
                return;
            }
            HelperReport::TooMuchMemory
        } else {
            return;
        };
        self.stopped = true;
        self.send(&report);
        self.kill();
    }

    fn fail(&mut self, error: FenceError) -> HelperExit {
        self.send(&error.report());
        self.flush_with_deadline();
        HelperExit::Code(NOT_RUN)
    }

    /// Exits as the command did; as killed if its status is unknown.
    fn exit_status(&self) -> HelperExit {
        if self.failed {
            return HelperExit::Code(NOT_RUN);
        }
        let killed = HelperExit::Signal(Signal::KILL.as_raw());
        let Some(status) = self.status else { return killed };
        match (status.code(), status.signal()) {
            (Some(code), _) => HelperExit::Code(u8::try_from(code & 0xff).unwrap_or(NOT_RUN)),
            (None, Some(signal)) => HelperExit::Signal(signal),
            (None, None) => killed,
        }
    }

    /// Sends what can be sent now and keeps the rest, so that a slow reader never stops the judging.
    fn send(&mut self, report: &HelperReport) {
        self.outgoing.extend(report.frame());
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.connection.write(&self.outgoing) {
                Ok(count) if count > 0 => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => self.outgoing.clear(),
            }
        }
    }

    /// Waits a little for a program that is slow to read the last reports.
    fn flush_with_deadline(&mut self) {
        let until = Instant::now() + FLUSH_WAIT;
        self.flush();
        while !self.outgoing.is_empty() && Instant::now() < until {
            let mut files = [PollFd::new(&self.connection, PollFlags::OUT)];
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            poll(&mut files, Some(&left)).ok();
            self.flush();
        }
    }
}
