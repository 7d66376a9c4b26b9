//! The helper's own work, outside of the fence: starts what is inside, listens to the program and to
//! the command, counts, and ends it all.
//!
//! **Invariant:** nothing that it started lives when it ends, and no placeholder is left that nobody
//! else needs.

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

use super::channel::{self, Message};
use super::judge::Judge;
use super::launch::Launch;
use super::scene::Scene;
use super::{Trouble, guards, init, leave_input, step, sys, watch};
use crate::confine::ASK_TO_END;
use crate::report::Report;
use crate::spec::Spec;

/// How often memory and processes are counted.
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// How long the program may take to read the last reports.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often to look whether processes that were killed are gone. Only a process that the kernel holds
/// takes more than one look.
const GONE_EVERY: Duration = Duration::from_millis(2);
/// The exit code when no command ran.
const NOT_RUN: u8 = 125;

/// How the helper is to end: as the command did.
pub(super) enum End {
    Code(u8),
    Signal(i32),
}

/// Runs a command inside a fence.
pub(super) fn fenced(spec: &Spec, line: UnixStream) -> End {
    let mut supervisor = match Supervisor::new(spec, line) {
        Ok(supervisor) => supervisor,
        Err(end) => return end,
    };
    let (scene, placeholders) = match Scene::new(spec) {
        Ok(prepared) => prepared,
        Err(trouble) => return supervisor.fail(trouble),
    };
    let end = match start_fenced(spec, &scene) {
        Ok((inside, channel)) => {
            supervisor.inside = Some(inside);
            supervisor.watch(&channel, Some(&scene))
        }
        Err(trouble) => supervisor.fail(trouble),
    };
    guards::remove(placeholders);
    supervisor.farewell();
    end
}

fn start_fenced(spec: &Spec, scene: &Scene) -> Result<(Pid, OwnedFd), Trouble> {
    let launch = Launch::new(spec)?;
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
            init::main(scene, &launch, &inside, ids)
        }
        Err(error) => Err(Trouble::NoFence(format!(
            "making namespaces: {error} (the system may forbid user namespaces to ordinary programs)"
        ))),
    }
}

/// Runs a command without a fence, but so that nothing it starts is left behind.
pub(super) fn unfenced(spec: &Spec, line: UnixStream) -> End {
    let mut supervisor = match Supervisor::new(spec, line) {
        Ok(supervisor) => supervisor,
        Err(end) => return end,
    };
    let end = match start_unfenced(spec) {
        Ok((command, channel)) => {
            supervisor.command = Some(command);
            supervisor.send(&Report::Started);
            supervisor.watch(&channel, None)
        }
        Err(trouble) => supervisor.fail(trouble),
    };
    end_descendants();
    supervisor.farewell();
    end
}

fn start_unfenced(spec: &Spec) -> Result<(Pid, OwnedFd), Trouble> {
    // What loses its parent becomes a child of ours, wherever it moved itself.
    step("adopting processes", set_child_subreaper(Some(getpid())).map_err(Into::into))?;
    let launch = Launch::new(spec)?;
    let (inside, outside) = step("talking to the command", channel::pair())?;
    match step("starting a process", sys::fork_into(0))? {
        Some(pid) => {
            leave_input(spec.input);
            Ok((pid, outside))
        }
        None => {
            drop(outside);
            inside.failed(&launch.run_unfenced(&inside));
            sys::leave(127)
        }
    }
}

/// Ends every process below this one, and those that they start meanwhile.
fn end_descendants() {
    loop {
        for pid in watch::descendants() {
            kill_process(pid, Signal::KILL).ok();
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(GONE_EVERY);
    }
}

struct Supervisor<'a> {
    spec: &'a Spec,
    line: UnixStream,
    line_open: bool,
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

/// What was ready.
struct Ready {
    line: PollFlags,
    channel: bool,
    signals: bool,
    calls: PollFlags,
}

impl<'a> Supervisor<'a> {
    fn new(spec: &'a Spec, line: UnixStream) -> Result<Self, End> {
        let signals = sys::signals_as_file(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP]);
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = open("/proc", folder, Mode::empty());
        let (Ok(signals), Ok(processes), Ok(())) = (signals, processes, line.set_nonblocking(true)) else {
            return Err(End::Code(NOT_RUN));
        };
        Ok(Self {
            spec,
            line,
            line_open: true,
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

    /// Looks after the command to its end.
    fn watch(&mut self, channel: &OwnedFd, scene: Option<&Scene>) -> End {
        let mut judge: Option<Judge<'_>> = None;
        let mut calls_end = false;
        let mut count_at = Instant::now() + COUNT_EVERY;
        loop {
            let calls = judge.as_ref().filter(|_| !calls_end).map(Judge::listener);
            let ready = self.wait(channel, calls, count_at);
            if ready.calls.contains(PollFlags::IN) {
                if let Some(violation) = judge.as_mut().and_then(Judge::next) {
                    self.send(&Report::Refused(violation));
                }
            } else if !ready.calls.is_empty() {
                calls_end = true;
            }
            if ready.channel {
                self.hear(channel, scene, &mut judge);
            }
            if !ready.line.is_empty() {
                self.serve_line(ready.line);
            }
            if ready.signals && self.serve_signals() {
                self.hear(channel, scene, &mut judge);
                return self.end();
            }
            if Instant::now() >= count_at {
                self.count(judge.as_ref().map(Judge::processes));
                count_at = Instant::now() + COUNT_EVERY;
            }
        }
    }

    fn wait(&self, channel: &OwnedFd, calls: Option<&OwnedFd>, until: Instant) -> Ready {
        let line = match (self.line_open, self.outgoing.is_empty()) {
            (false, _) => PollFlags::empty(),
            (true, true) => PollFlags::IN,
            (true, false) => PollFlags::IN | PollFlags::OUT,
        };
        let mut files = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
        if self.line_open {
            files.push(PollFd::new(&self.line, line));
        }
        if let Some(calls) = calls {
            files.push(PollFd::new(calls, PollFlags::IN));
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        poll(&mut files, Some(&left)).ok();
        let mut rest = files[2..].iter().map(PollFd::revents);
        let mut next = |there: bool| if there { rest.next() } else { None }.unwrap_or(PollFlags::empty());
        Ready {
            line: next(self.line_open),
            calls: next(calls.is_some()),
            signals: !files[0].revents().is_empty(),
            channel: files[1].revents().contains(PollFlags::IN),
        }
    }

    fn hear<'s>(&mut self, channel: &OwnedFd, scene: Option<&'s Scene>, judge: &mut Option<Judge<'s>>) {
        while let Some(message) = channel::receive(channel) {
            match message {
                Message::Started(handles) => {
                    *judge = scene.map(|scene| Judge::new(scene, handles));
                    self.send(&Report::Started);
                }
                Message::Failed(trouble) => {
                    self.failed = true;
                    self.send(&trouble.report());
                }
                Message::Ended(status) => self.status = Some(ExitStatus::from_raw(status)),
            }
        }
    }

    /// What the program wants.
    fn serve_line(&mut self, ready: PollFlags) {
        if ready.contains(PollFlags::OUT) {
            self.flush();
        }
        let mut wishes = [0; 16];
        match self.line.read(&mut wishes) {
            Ok(0) => self.kill_and_close(),
            Ok(count) if wishes[..count].iter().all(|wish| *wish == ASK_TO_END) => self.ask_to_end(),
            Ok(_) => self.kill(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.kill_and_close(),
        }
    }

    fn kill_and_close(&mut self) {
        self.line_open = false;
        self.kill();
    }

    /// Whether all has ended.
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
                for pid in watch::descendants() {
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
    fn count(&mut self, processes: Option<&OwnedFd>) {
        if self.stopped {
            return;
        }
        let started =
            || watch::descendants().iter().map(|pid| pid.as_raw_nonzero().get()).collect::<Vec<_>>();
        let used = match processes {
            Some(processes) => watch::namespace(processes),
            None if self.inside.is_none() => watch::listed(&self.processes, &started()),
            None => return,
        };
        let report = if used.tasks > self.spec.processes_max {
            Report::TooManyProcesses
        } else if used.memory_bytes > self.spec.memory_bytes_max {
            let exact = match processes {
                Some(processes) => watch::exact_memory_bytes(processes, &watch::pids_in(processes)),
                None => watch::exact_memory_bytes(&self.processes, &started()),
            };
            if exact <= self.spec.memory_bytes_max {
                return;
            }
            Report::TooMuchMemory
        } else {
            return;
        };
        self.stopped = true;
        self.send(&report);
        self.kill();
    }

    fn fail(&mut self, trouble: Trouble) -> End {
        self.send(&trouble.report());
        self.farewell();
        End::Code(NOT_RUN)
    }

    /// As the command ended; killed, if nobody could say.
    fn end(&self) -> End {
        if self.failed {
            return End::Code(NOT_RUN);
        }
        let killed = End::Signal(Signal::KILL.as_raw());
        let Some(status) = self.status else { return killed };
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(u8::try_from(code & 0xff).unwrap_or(NOT_RUN)),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => killed,
        }
    }

    /// Sends what can be sent now and keeps the rest, so that a slow reader never stops the judging.
    fn send(&mut self, report: &Report) {
        self.outgoing.extend(report.frame());
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.line.write(&self.outgoing) {
                Ok(count) if count > 0 => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => self.outgoing.clear(),
            }
        }
    }

    /// Waits a little for a program that is slow to read the last reports.
    fn farewell(&mut self) {
        let until = Instant::now() + FAREWELL;
        self.flush();
        while !self.outgoing.is_empty() && Instant::now() < until {
            let mut files = [PollFd::new(&self.line, PollFlags::OUT)];
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            poll(&mut files, Some(&left)).ok();
            self.flush();
        }
    }
}
