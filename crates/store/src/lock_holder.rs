//! Which process holds the lock that a write waits for: the kernel lists every lock with its process.
//!
//! SQLite locks bytes of the `-shm` file. The files are only examined by their metadata, never opened: closing one of them
//! here would release the locks that this process holds on it. The audit locks a whole file (`flock`).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes of the index that writers, and those who recover the log, lock
/// (<https://sqlite.org/walformat.html#the_wal_index_file_format>).
const WRITE_BYTE: u64 = 120;
const RECOVER_BYTE: u64 = 122;
/// The kernel returns the list in pieces, and a lock may be in none of them while others come and go, so the
/// list is read a few times.
const LOOKS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockHolder {
    pub(crate) pid: u32,
    pub(crate) program: Option<String>,
    pub(crate) stopped: bool,
}

impl LockHolder {
    /// The process that keeps others from writing to the database with this index (`-shm`), if the system
    /// says.
    pub(crate) fn of_database(index: &Path) -> Option<Self> {
        let inode = fs::metadata(index).ok()?.ino();
        (0..LOOKS).find_map(|_| {
            let locks = fs::read_to_string("/proc/locks").ok()?;
            let pid =
                [WRITE_BYTE, RECOVER_BYTE].into_iter().find_map(|byte| holder_of(&locks, inode, byte))?;
            Some(Self::at(pid))
        })
    }

    /// The process that has locked this file as a whole, if the system says.
    pub(crate) fn of_file(file: &File) -> Option<Self> {
        (0..LOOKS).find_map(|_| flock_holders(file).first().copied().map(Self::at))
    }

    fn at(pid: u32) -> Self {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned());
        let stopped = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_stopped(&stat));
        Self { pid, program, stopped }
    }

    /// A description of who holds the lock on `what`, and what to do about it.
    pub(crate) fn described(&self, what: &str) -> (String, String) {
        let Self { pid, program, stopped } = self;
        if *pid == std::process::id() {
            return (format!("{what} is locked by another part of this process"), "try again".into());
        }
        let program = program.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        match stopped {
            true => (
                format!("{what} is locked by process {pid}{program}, which is stopped"),
                format!("continue it with kill -CONT {pid}, or end it"),
            ),
            false => (
                format!("{what} is locked by process {pid}{program}"),
                "wait until it is done, or end it".into(),
            ),
        }
    }
}

/// A line is `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`; one with an arrow waits for the lock. The
/// device is not compared: some file systems show another one here than for the file itself.
fn holder_of(locks: &str, inode: u64, byte: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, "WRITE", pid, file, start, end] = fields.as_slice() else { return None };
        let its = file.rsplit(':').next()?.parse::<u64>().ok()?;
        let start: u64 = start.parse().ok()?;
        let end = end.parse().unwrap_or(u64::MAX);
        // A process that cannot be seen from here has the number 0.
        let pid = pid.parse().ok().filter(|pid| *pid != 0)?;
        (its == inode && start <= byte && byte <= end).then_some(pid)
    })
}

/// The processes that have locked this file as a whole, as far as the system says.
pub fn flock_holders(file: &File) -> Vec<u32> {
    let inode = file.metadata().map(|found| found.ino()).unwrap_or_default();
    flock_holders_in(&fs::read_to_string("/proc/locks").unwrap_or_default(), inode)
}

/// A line is `2: FLOCK  ADVISORY  WRITE 79 fd:01:6 0 EOF`; one with an arrow waits for the lock. Readers hold such a
/// lock too.
fn flock_holders_in(locks: &str, inode: u64) -> Vec<u32> {
    let holder = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields.as_slice() else { return None };
        let its = file.rsplit(':').next()?.parse::<u64>().ok()?;
        // A process that cannot be seen from here has the number 0.
        pid.parse().ok().filter(|pid| *pid != 0 && its == inode)
    };
    locks.lines().filter_map(holder).collect()
}

/// The state comes after the name, which may contain anything.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: POSIX  ADVISORY  READ 77 fd:01:5 123 123\n\
        1: -> POSIX  ADVISORY  WRITE 78 fd:01:5 120 120\n\
        2: FLOCK  ADVISORY  WRITE 79 fd:01:6 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 81 fd:01:6 0 EOF\n\
        3: POSIX  ADVISORY  WRITE 80 fd:01:5 120 120\n\
        4: POSIX  ADVISORY  WRITE 0 fd:01:9 120 120\n\
        5: FLOCK  ADVISORY  READ 82 fd:01:7 0 EOF\n\
        6: FLOCK  ADVISORY  READ 83 fd:01:7 0 EOF\n\
        7: FLOCK  ADVISORY  READ 0 fd:01:7 0 EOF\n";

    #[test]
    fn the_holder_of_a_lock_is_found_by_file_and_byte() {
        assert_eq!(holder_of(LOCKS, 5, 120), Some(80));
        assert_eq!(holder_of(LOCKS, 5, 123), None);
        assert_eq!(holder_of(LOCKS, 6, 120), Some(79));
        assert_eq!(holder_of(LOCKS, 9, 120), None);
    }

    #[test]
    fn those_who_hold_a_lock_on_a_file_are_found_and_those_who_wait_are_not() {
        assert!(flock_holders_in(LOCKS, 5).is_empty());
        assert_eq!(flock_holders_in(LOCKS, 6), [79]);
        assert_eq!(flock_holders_in(LOCKS, 7), [82, 83]);
    }

    #[test]
    fn a_stopped_process_is_known_by_its_state_whatever_it_is_called() {
        assert!(is_stopped("80 (a) T b) T 1 80"));
        assert!(!is_stopped("80 (a) T b) S 1 80"));
    }
}
