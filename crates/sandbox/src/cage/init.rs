//! The first process of the command's process namespace. When it ends the kernel ends all others in
//! there and waits for them, so nothing can outlive it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior, set_parent_process_death_signal, wait,
};

use super::channel::Inside;
use super::launch::Launch;
use super::scene::Scene;
use super::{Trouble, leave_input, mounts, step, sys};

/// Builds the view, starts the command, and ends with it.
pub(super) fn main(scene: &Scene, launch: &Launch, channel: &Inside, ids: (u32, u32)) -> ! {
    let command = match prepare(scene, channel, ids) {
        Ok(signals) => start(scene, launch, channel).map(|command| (command, signals)),
        Err(trouble) => Err(trouble),
    };
    match command {
        Ok((command, signals)) => {
            let status = look_after(command, &signals);
            channel.ended(status);
            sys::leave(0)
        }
        Err(trouble) => {
            channel.failed(&trouble);
            sys::leave(1)
        }
    }
}

fn prepare(scene: &Scene, channel: &Inside, (user, group): (u32, u32)) -> Result<OwnedFd, Trouble> {
    // Only our own user and group exist inside. The kernel demands the first line of whoever is not root.
    step("entering a user namespace", fs::write("/proc/self/setgroups", "deny"))?;
    step("entering a user namespace", fs::write("/proc/self/uid_map", format!("{user} {user} 1")))?;
    step("entering a user namespace", fs::write("/proc/self/gid_map", format!("{group} {group} 1")))?;
    step(
        "tying the sandbox to its helper",
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into),
    )?;
    // The helper may have died before; then nobody would ever send that signal.
    let mut line = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty())];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut line, Some(&zero)).is_ok_and(|count| count > 0) {
        sys::leave(1);
    }
    step(
        "hiding from the command",
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into),
    )?;
    mounts::build(scene)?;
    step("watching signals", sys::signals_as_file(&[Signal::CHILD, Signal::TERM]))
}

fn start(scene: &Scene, launch: &Launch, channel: &Inside) -> Result<Pid, Trouble> {
    match step("starting a process", sys::fork_into(0))? {
        Some(command) => {
            leave_input(launch.input);
            Ok(command)
        }
        None => {
            let trouble = launch.run_fenced(scene, channel);
            channel.failed(&trouble);
            sys::leave(127)
        }
    }
}

/// Collects what ends in the namespace until the command does, and passes on the wish to end.
fn look_after(command: Pid, signals: &OwnedFd) -> i32 {
    loop {
        let mut ready = [PollFd::new(signals, PollFlags::IN)];
        poll(&mut ready, None).ok();
        while let Some(arrived) = sys::next_signal(signals) {
            // From inside anybody may send it, and would only hurt itself; it means nothing.
            if arrived.signal == Signal::TERM.as_raw() && arrived.from_outside {
                tell_all(Signal::TERM);
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
fn tell_all(signal: Signal) {
    sys::signal_all(signal);
    // A stopped process would not hear it.
    sys::signal_all(Signal::CONT);
}
