//! Processes of a run, found by its mark: each run has a home folder of its own, and `HOME` is in the
//! environment of every descendant, whoever its parent is.

use std::time::{Duration, Instant};

use super::AgentWorkspace;
use xtask::command;

const GONE_MAX: Duration = Duration::from_secs(5);

/// Processes that still have the place's home after a while; they are ended.
pub fn leftover_processes(workspace: &AgentWorkspace) -> Vec<String> {
    let mark = format!("HOME={}", workspace.home.display());
    let deadline = Instant::now() + GONE_MAX;
    let mut left = processes_with(&mark);
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        left = processes_with(&mark);
    }
    for (pid, _) in &left {
        drop(command::output(command::program("kill").args(["-9", &pid.to_string()])));
    }
    left.into_iter().map(|(_, line)| line).collect()
}

pub fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let has = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        has.then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()))
    })
    .collect()
}
