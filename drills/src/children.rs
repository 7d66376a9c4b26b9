//! `cargo xtask children`: one server, many turns whose commands try to leave something running.
//!
//! `children [--turns N] [--mode MODE]`
//!
//! Commands detach, start sessions of their own, ignore being told to stop, flood their output, keep
//! it open from the background, and are cancelled halfway. After every turn none of their processes
//! may be left, after the server's end none of anything that it started, and the server's memory may
//! not grow with the number of turns.
//!
//! Processes are found by a mark: the name of the scratch folder. It is in the command line of all
//! that a turn starts, and, as `HOME`, in the environment of every descendant, whoever its parent is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::peer::{Frame, Peer, PermissionReply};
use xtask::command;

const TURNS_DEFAULT: u64 = 1_000;
const MODES: [&str; 2] = ["workspace-write", "off"];
/// More sessions than stay in memory are used before the first measurement.
const TURNS_PER_SESSION: u64 = 5;
/// When the memory is measured first: everything that is kept for good is there by then.
const SETTLED_TURN: u64 = 100;
const GROWTH_KIB_MAX: u64 = 24 << 10;
const TURN_MAX: Duration = Duration::from_secs(30);
/// How long after its turn a process may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(2);
/// What a turn that is cancelled says when it may be. A flood is made of it: clients see the end of a flood.
const READY: &str = "ready-to-be-cancelled";

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut turns, mut chosen) = (TURNS_DEFAULT, None);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--turns" => turns = value.parse()?,
            "--mode" => chosen = Some(value.clone()),
            _ => bail!("children does not know the argument {flag}"),
        }
    }
    for mode in MODES.into_iter().filter(|mode| chosen.as_ref().is_none_or(|chosen| chosen == mode)) {
        let scratch = Scratch::new(mode)?;
        let outcome = drive(&scratch, mode, turns);
        scratch.remove();
        outcome.with_context(|| format!("in the mode {mode}"))?;
    }
    Ok(())
}

fn drive(scratch: &Scratch, mode: &str, turns: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    let server = command::server()?;
    let home = format!("HOME={}", scratch.folder.display());
    let command = ["env".to_owned(), home, server.to_string_lossy().into_owned()];
    let serve = ["serve", "--sandbox", mode].map(str::to_owned);
    let mut peer = Peer::spawn(&[command.as_slice(), serve.as_slice()].concat(), &scratch.folder)?;
    peer.initialize(TURN_MAX)?;
    let mut session = String::new();
    let mut settled_kib = 0;
    let settled_turn = SETTLED_TURN.min(turns / 2);
    for turn in 0..turns {
        if turn % TURNS_PER_SESSION == 0 {
            session = peer.new_session(TURN_MAX)?;
            peer.allow_all(&session, TURN_MAX)?;
        }
        let leak = MISCHIEF[(turn % MISCHIEF.len() as u64) as usize];
        let context = || format!("turn {turn}: {}", leak.what);
        take_turn(&mut peer, &session, &scratch.prompt(&leak), leak.cancel).with_context(context)?;
        scratch.wait_until_gone(&[peer.pid()], MarkLocation::CommandLine).with_context(context)?;
        if turn + 1 == settled_turn {
            settled_kib = resident_kib(peer.pid())?;
        }
    }
    let end_kib = resident_kib(peer.pid())?;
    peer.close(TURN_MAX)?;
    scratch.wait_until_gone(&[], MarkLocation::Anywhere).context("after the server's end")?;
    println!(
        "children: {turns} turns in {:.1} s in the mode {mode}, no process left; the server held {settled_kib} KiB \
         after {settled_turn} turns and {end_kib} KiB at the end",
        start.elapsed().as_secs_f64()
    );
    ensure!(
        end_kib <= settled_kib + GROWTH_KIB_MAX,
        "the server grew from {settled_kib} to {end_kib} KiB; {GROWTH_KIB_MAX} KiB more are allowed"
    );
    Ok(())
}

fn take_turn(peer: &mut Peer, session: &str, prompt: &str, cancel: bool) -> anyhow::Result<()> {
    let wanted = peer.send_prompt(session, prompt)?;
    let deadline = Instant::now() + TURN_MAX;
    let mut cancelled = false;
    loop {
        match peer.next(deadline)?.context("the turn did not end")? {
            Frame::Response { id, error: Some(error), .. } if id == wanted => {
                bail!("the turn failed: {error}")
            }
            Frame::Response { id, result, .. } if id == wanted => {
                let expected = if cancel { "cancelled" } else { "end_turn" };
                ensure!(result["stopReason"] == expected, "the turn ended with {}", result["stopReason"]);
                return Ok(());
            }
            Frame::Request { id, params, .. } => {
                peer.answer_permission(&id, &params, PermissionReply::Allow)?
            }
            // The prompt, which has the word in two quoted halves, is shown too; only the output has it whole.
            Frame::Update(update) if cancel && !cancelled && says_ready(&update) => {
                peer.cancel(session)?;
                cancelled = true;
            }
            Frame::Update(_) | Frame::Response { .. } | Frame::Broken(_) => {}
        }
    }
}

fn says_ready(update: &serde_json::Value) -> bool {
    update.to_string().contains(READY)
}

/// A command that would leave something behind. `SLEEP` is a program that sleeps for five minutes.
#[derive(Clone, Copy)]
struct LeakCase {
    what: &'static str,
    command: &'static str,
    cancel: bool,
}

const fn leak(what: &'static str, command: &'static str) -> LeakCase {
    LeakCase { what, command, cancel: false }
}

const fn cancelled(what: &'static str, command: &'static str) -> LeakCase {
    LeakCase { what, command, cancel: true }
}

const MISCHIEF: [LeakCase; 9] = [
    leak("nothing bad", "true"),
    leak(
        "a daemon",
        "(setsid sh -c 'trap \"\" TERM HUP INT; SLEEP; SLEEP' </dev/null >/dev/null 2>&1 &); sleep 0.02",
    ),
    leak("a flood", "yes flood | head -c 3000000"),
    leak("jobs in the background that keep the output open", "SLEEP & SLEEP & (SLEEP &) ; echo done"),
    cancelled(
        "ignores being told to stop",
        "trap '' TERM INT HUP; echo 'ready-to-be-''cancelled'; SLEEP; SLEEP",
    ),
    leak(
        "a daemon that floods",
        "(setsid sh -c 'trap \"\" TERM; while :; do echo flood; SLEEP & done' &); sleep 0.02",
    ),
    cancelled(
        "cancelled while a daemon and a flood are there",
        "(setsid SLEEP &); while :; do echo 'ready-to-be-''cancelled'; done",
    ),
    leak(
        "a tree of processes",
        "f() { SLEEP & [ $1 -gt 0 ] && { f $(($1 - 1)) & f $(($1 - 1)) & }; wait; }; f 3 & sleep 0.02",
    ),
    cancelled(
        "cancelled in a session of its own",
        "setsid -w sh -c \"trap '' TERM; echo 'ready-to-be-''cancelled'; SLEEP\"",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkLocation {
    /// What turns start, and nothing that the server may keep for itself.
    CommandLine,
    Anywhere,
}

/// The folder of one run; its name is the mark.
struct Scratch {
    folder: PathBuf,
    mark: String,
}

impl Scratch {
    fn new(mode: &str) -> anyhow::Result<Self> {
        let mark = format!("ropewalk-children-{}-{mode}", std::process::id());
        let folder = std::env::temp_dir().join(&mark);
        let scratch = Self { mark, folder };
        fs::create_dir_all(scratch.folder.join("workspace"))?;
        fs::copy("/bin/sleep", scratch.sleep()).context("copying /bin/sleep")?;
        Ok(scratch)
    }

    /// In the workspace, so that it is there inside of any fence.
    fn sleep(&self) -> PathBuf {
        self.folder.join("workspace").join("sleep")
    }

    fn prompt(&self, leak: &LeakCase) -> String {
        format!("run {}", leak.command.replace("SLEEP", &format!("{} 300", self.sleep().display())))
    }

    fn wait_until_gone(&self, apart_from: &[u32], place: MarkLocation) -> anyhow::Result<()> {
        let deadline = Instant::now() + GONE_MAX;
        loop {
            let left = self.processes(apart_from, place);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{} processes are left: {}", left.len(), left.join("; "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn processes(&self, apart_from: &[u32], place: MarkLocation) -> Vec<String> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != std::process::id() && !apart_from.contains(pid));
        others.filter_map(|pid| self.marked(pid, place)).collect()
    }

    fn marked(&self, pid: u32, place: MarkLocation) -> Option<String> {
        let folder = Path::new("/proc").join(pid.to_string());
        let command_line = fs::read(folder.join("cmdline")).unwrap_or_default();
        let environment =
            if place == MarkLocation::Anywhere { fs::read(folder.join("environ")).ok() } else { None };
        let has_mark =
            |bytes: &[u8]| bytes.windows(self.mark.len()).any(|window| window == self.mark.as_bytes());
        if !has_mark(&command_line) && !environment.is_some_and(|environment| has_mark(&environment)) {
            return None;
        }
        Some(format!("{pid} {}", String::from_utf8_lossy(&command_line).replace('\0', " ").trim_end()))
    }

    /// Ends what a failed run left, by id, and removes the folder.
    fn remove(&self) {
        for left in self.processes(&[], MarkLocation::Anywhere) {
            let pid = left.split(' ').next().unwrap_or_default().to_owned();
            drop(command::output(command::program("kill").args(["-9", &pid])));
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the server is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.split_whitespace().next().context("no VmRSS")?.parse().context("VmRSS is no number")
}
