//! How much memory and how many tasks the processes of a command use together, read from `/proc` at intervals.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::process::Pid;

/// How many processes are counted; more than this are far too many anyway.
const PROCESSES_LOOKED_AT_MAX: usize = 65_536;
const STAT_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ResourceUse {
    /// Processes and threads.
    pub(super) tasks: u64,
    /// Memory in use. Memory that several processes share is counted for each of them.
    pub(super) memory_bytes: u64,
}

/// What all processes of a namespace use, but for its first one, which is ours.
pub(super) fn of_namespace(processes: &OwnedFd) -> ResourceUse {
    let pids = pids_in(processes);
    let uses = pids.iter().filter(|pid| **pid != 1).filter_map(|pid| of_process(processes, *pid));
    uses.fold(ResourceUse::default(), add)
}

/// What these processes of the machine use.
pub(super) fn of_processes(processes: &OwnedFd, pids: &[i32]) -> ResourceUse {
    pids.iter().filter_map(|pid| of_process(processes, *pid)).fold(ResourceUse::default(), add)
}

/// The memory of these processes, with shared memory counted once. Slow: used only when the quick count is too high.
pub(super) fn exact_memory_bytes(processes: &OwnedFd, pids: &[i32]) -> u64 {
    let one = |pid: &i32| {
        let text = read(processes, &format!("{pid}/smaps_rollup"), 1 << 12)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()
    };
    pids.iter().filter_map(one).sum::<u64>() * 1024
}

pub(super) fn pids_in(processes: &OwnedFd) -> Vec<i32> {
    let Ok(folder) = Dir::read_from(processes) else { return Vec::new() };
    let names = folder.filter_map(Result::ok).take(PROCESSES_LOOKED_AT_MAX);
    names.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect()
}

/// Every process that this one started and that still lives, at any depth, parents first.
pub(super) fn descendants() -> Vec<Pid> {
    let mut found: Vec<Pid> = children(rustix::process::getpid());
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_LOOKED_AT_MAX {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    // Each thread has a list of its own.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads
        .filter_map(Result::ok)
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()
        })
        .collect()
}

fn add(sum: ResourceUse, one: ResourceUse) -> ResourceUse {
    ResourceUse {
        tasks: sum.tasks + one.tasks,
        memory_bytes: sum.memory_bytes.saturating_add(one.memory_bytes),
    }
}

fn of_process(processes: &OwnedFd, pid: i32) -> Option<ResourceUse> {
    let stat = read(processes, &format!("{pid}/stat"), STAT_BYTES_MAX)?;
    parse(&stat, rustix::param::page_size() as u64)
}

/// The name before the last bracket may hold anything; then come the state and numbers.
fn parse(stat: &str, page_bytes: u64) -> Option<ResourceUse> {
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    // Counted from the state, which is the first.
    let tasks = fields.nth(17)?.parse().ok()?;
    let pages: u64 = fields.nth(3)?.parse().ok()?;
    Some(ResourceUse { tasks, memory_bytes: pages.saturating_mul(page_bytes) })
}

fn read(processes: &OwnedFd, path: &str, bytes_max: usize) -> Option<String> {
    let file = openat(processes, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::with_capacity(bytes_max);
    std::fs::File::from(file).take(bytes_max as u64).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_move_the_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 100 1000000 250 18446744073709551615";
        assert_eq!(parse(stat, 4096), Some(ResourceUse { tasks: 9, memory_bytes: 250 * 4096 }));
        assert_eq!(parse("42 (x) S 1", 4096), None);
    }

    #[test]
    fn this_process_uses_something() {
        let proc = openat(rustix::fs::CWD, "/proc", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let own = of_processes(&proc, &[rustix::process::getpid().as_raw_nonzero().get()]);
        assert!(own.tasks > 1 && own.memory_bytes > 1 << 20, "{own:?}");
    }
}
