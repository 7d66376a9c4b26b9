//! The second layer of the fence: Landlock, from the same layout. It holds where a mount would fail to.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::file_system_layout::{FenceLayout, SHARED_MEMORY};
use super::{FenceError, step, sys};

/// The oldest version that this program relies on: it can refuse to shorten a file.
pub(super) const VERSION_MIN: u32 = 3;

const WRITE_FILE: u64 = 1 << 1;
const REMOVE: u64 = 1 << 4 | 1 << 5;
const MAKE_DEVICE: u64 = 1 << 6 | 1 << 11;
const MAKE: u64 = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEVICE: u64 = 1 << 15;
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;

/// Restricts this process for good. A terminal that was made for it may be opened again by its names:
/// it comes from outside, so no place of the view holds it.
pub(super) fn restrict(layout: &FenceLayout, terminal: Option<BorrowedFd<'_>>) -> Result<(), FenceError> {
    let version = step("asking for Landlock", sys::landlock_version())?;
    if version < VERSION_MIN {
        let reason = format!("Landlock has version {version}, and {VERSION_MIN} is needed (Linux 6.2)");
        return Err(FenceError::NoFence(reason));
    }
    let device = if version >= 5 { IOCTL_DEVICE } else { 0 };
    let files = WRITE_FILE | REMOVE | MAKE_DEVICE | MAKE | REFER | TRUNCATE | device;
    let network = if version >= 4 && !layout.mode.network() { BIND_TCP | CONNECT_TCP } else { 0 };
    let scoped = if version >= 6 { SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS } else { 0 };
    let ruleset = step("making Landlock rules", sys::landlock_ruleset(version, files, network, scoped))?;
    let allow = |path: &Path, access: u64| {
        let allowed = open(path).and_then(|place| sys::landlock_allow(&ruleset, place, access));
        step(&format!("allowing {} with Landlock", path.display()), allowed)
    };
    let everything = WRITE_FILE | REMOVE | MAKE | REFER | TRUNCATE;
    for path in layout.writable.iter().chain(&layout.scratch) {
        allow(path, everything)?;
    }
    allow(Path::new(SHARED_MEMORY), everything)?;
    allow(Path::new("/dev"), WRITE_FILE | TRUNCATE | device)?;
    if let Some(terminal) = terminal {
        let allowed = sys::landlock_allow(&ruleset, terminal, WRITE_FILE | TRUNCATE | device);
        step("allowing the terminal with Landlock", allowed)?;
    }
    step("restricting with Landlock", sys::landlock_restrict(ruleset))
}

fn open(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}
