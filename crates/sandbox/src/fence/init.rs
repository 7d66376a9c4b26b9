//! The first process of the command's process namespace. When it ends, the kernel ends all others in there and waits for
//! them, so nothing can outlive it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior, set_parent_process_death_signal, wait,
};

use super::channel::InnerEnd;
use super::fence_and_exec::PreparedCommand;
use super::file_system_layout::FenceLayout;
use super::{FenceError, leave_input, mounts, step, sys};

/// Builds the view, starts the command, and ends with it.
pub(super) fn main(
    layout: &FenceLayout,
    prepared: &PreparedCommand,
    channel: &InnerEnd,
    ids: (u32, u32),
) -> ! {
    let command = match prepare(layout, channel, ids) {
        Ok(signals) => start(layout, prepared, channel).map(|command| (command, signals)),
        Err(error) => Err(error),
    };
    match command {
        Ok((command, signals)) => {
            let status = reap_until_exit(command, &signals);
            channel.ended(status);
            sys::leave(0)
        }
        Err(error) => {
            channel.failed(&error);
            sys::leave(1)
        }
    }
}

fn prepare(
    layout: &FenceLayout,
    channel: &InnerEnd,
    (user, group): (u32, u32),
) -> Result<OwnedFd, FenceError> {
    // Only the current user and group exist inside. The kernel requires the first write of a process that is not root.
    step("entering a user namespace", fs::write("/proc/self/setgroups", "deny"))?;
    step("entering a user namespace", fs::write("/proc/self/uid_map", format!("{user} {user} 1")))?;
    step("entering a user namespace", fs::write("/proc/self/gid_map", format!("{group} {group} 1")))?;
    step(
        "tying the sandbox to its helper",
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into),
    )?;
    // The helper may have died before; then that signal would never be sent.
    let mut line = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty())];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut line, Some(&zero)).is_ok_and(|count| count > 0) {
        sys::leave(1);
    }
    step(
        "hiding from the command",
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into),
    )?;
    mounts::build(layout)?;
    step("watching signals", sys::signals_as_file(&[Signal::CHILD, Signal::TERM]))
}

fn start(layout: &FenceLayout, prepared: &PreparedCommand, channel: &InnerEnd) -> Result<Pid, FenceError> {
    match step("starting a process", sys::fork_into(0))? {
        Some(command) => {
            leave_input(prepared.input);
            Ok(command)
        }
        None => {
            let error = prepared.run_fenced(layout, channel);
            channel.failed(&error);
            sys::leave(127)
        }
    }
}

/// Reaps what ends in the namespace until the command does, and passes on the request to end.
fn reap_until_exit(command: Pid, signals: &OwnedFd) -> i32 {
    loop {
        let mut ready = [PollFd::new(signals, PollFlags::IN)];
        poll(&mut ready, None).ok();
        while let Some(arrived) = sys::next_signal(signals) {
            // A signal from inside is ignored: any process in there may send it, and would only end itself.
            if arrived.signal == Signal::TERM.as_raw() && arrived.from_outside {
                signal_namespace(Signal::TERM);
            }
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == command {
                return status.as_raw();
            }
        }
    }
}

/// Every process of the namespace but this one.
fn signal_namespace(signal: Signal) {
    sys::signal_all(signal);
    // A stopped process would not receive the signal.
    sys::signal_all(Signal::CONT);
}
