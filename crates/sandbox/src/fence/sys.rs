//! System calls of the helper that have no safe interface elsewhere. Each function is one call.
#![expect(unsafe_code, reason = "these calls have no safe interface elsewhere")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_uint};
use rustix::process::{Pid, Signal};

pub(super) const MOUNT_RDONLY: u64 = 0x1;
pub(super) const MOUNT_NOSUID: u64 = 0x2;
pub(super) const MOUNT_NODEV: u64 = 0x4;
/// Calls that `libc` has no names for; their numbers are the same on every architecture.
pub(super) const SYS_FCHMODAT2: c_long = 452;
pub(super) const SYS_SETXATTRAT: c_long = 463;
pub(super) const SYS_REMOVEXATTRAT: c_long = 466;
pub(super) const SYS_OPEN_TREE_ATTR: c_long = 467;
pub(super) const SYS_FILE_SETATTR: c_long = 469;
#[cfg(target_arch = "x86_64")]
pub(super) const SYS_RENAMEAT: c_long = libc::SYS_renameat;
#[cfg(target_arch = "aarch64")]
pub(super) const SYS_RENAMEAT: c_long = 38;
/// Wakes the other side on this processor; `libc` has no name for it.
const NOTIFY_SYNC_WAKE_UP: u64 = 1;

fn checked(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Splits the process in two, the new one in new namespaces. `None` in the new one.
///
/// The helper has one thread, so the copy is whole: locks and the allocator work in it.
pub(super) fn fork_into(namespaces: c_int) -> io::Result<Option<Pid>> {
    let flags = c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: no stack is given, so the new process goes on with a copy of ours, as after fork.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(i32::try_from(pid).ok().and_then(Pid::from_raw))
}

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Restricts a mount and all mounts below it, and cuts them off from what is mounted elsewhere.
pub(super) fn restrict_mounts(tree: impl AsFd, set: u64) -> io::Result<()> {
    let attributes = MountAttributes { set, clear: 0, propagation: libc::MS_PRIVATE, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let path = c"".as_ptr();
    // SAFETY: the path and the attributes live across the call, and their size is given.
    let result = unsafe {
        let fd = tree.as_fd().as_raw_fd();
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path,
            flags,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    checked(result).map(drop)
}

/// Holds signals back and lets them be read from a file instead.
pub(super) fn signals_as_file(signals: &[Signal]) -> io::Result<OwnedFd> {
    let set = hold_signals(signals)?;
    // SAFETY: the set was made by `hold_signals`; the number returned is a new file of ours.
    unsafe {
        let fd = checked(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(RawFd::try_from(fd).map_err(io::Error::other)?))
    }
}

fn hold_signals(signals: &[Signal]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised before it is used; blocking signals has no other effect.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        checked(libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()).into())?;
        Ok(set.assume_init())
    }
}

/// Lets all signals through again, with what they do by default, as a fresh program expects it.
pub(super) fn restore_signals() -> io::Result<()> {
    hold_signals(&[])?;
    // SAFETY: the default handling of a signal needs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    Ok(())
}

/// A signal that was held back, and whether it came from outside of this process's namespace.
pub(super) struct ReceivedSignal {
    pub(super) signal: c_int,
    pub(super) from_outside: bool,
}

/// The next signal of a file made by [`signals_as_file`].
pub(super) fn next_signal(file: impl AsFd) -> Option<ReceivedSignal> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the kernel writes at most one record into the room for one.
    let read = unsafe { libc::read(file.as_fd().as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if read != isize::try_from(size).unwrap_or(-1) {
        return None;
    }
    // SAFETY: any bytes make a record of plain numbers.
    let info = unsafe { info.assume_init() };
    let signal = c_int::try_from(info.ssi_signo).ok()?;
    Some(ReceivedSignal { signal, from_outside: info.ssi_pid == 0 })
}

/// Closes every file but the standard ones and those given, in ascending order.
pub(super) fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let mut from: c_uint = 3;
    for fd in kept.iter().filter_map(|fd| c_uint::try_from(*fd).ok()).filter(|fd| *fd >= 3) {
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_range(from, c_uint::MAX)
}

fn close_range(first: c_uint, last: c_uint) -> io::Result<()> {
    // SAFETY: the files closed are used by nobody: the caller is about to become another program.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Becomes another program. Comes back only if that failed.
pub(super) fn exec(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<_> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: all texts end in a zero byte and the lists in a null pointer; they outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Sends a signal to everybody whom this process may signal, except itself.
pub(super) fn signal_all(signal: Signal) {
    // SAFETY: a plain call with numbers.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Ends this process by a signal, as another one was ended.
pub(super) fn end_by(signal: c_int) -> ! {
    // SAFETY: plain calls with numbers; none of them touches memory of ours.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}

/// Ends this process without running anything of its parent's that it is a copy of.
pub(super) fn leave(code: c_int) -> ! {
    // SAFETY: ends the process, nothing else.
    unsafe { libc::_exit(code) }
}

/// Takes every capability away for good.
pub(super) fn drop_capabilities() -> io::Result<()> {
    // Beyond the last capability that the kernel knows the call fails, which is the end of the list.
    for capability in 0..64 {
        // SAFETY: a plain call with numbers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            if capability == 0 {
                return Err(io::Error::last_os_error());
            }
            break;
        }
    }
    const NO_ROOT_AND_LOCKED: c_int = 0b1111;
    // SAFETY: a plain call with numbers.
    unsafe {
        checked(libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT_AND_LOCKED, 0, 0, 0).into())?;
        checked(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0).into())?;
    }
    // Version 3 of the call: two sets of effective, permitted and inheritable.
    let (header, none): ([u32; 2], [u32; 6]) = ([0x2008_0522, 0], [0; 6]);
    // SAFETY: the kernel reads two and six numbers, which is what is there.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Restricts this process and its children to what the program allows. The file returned is where
/// calls arrive that the program wants judged.
pub(super) fn install_filter(program: &mut [libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program outlives the call and has the length given; the number returned is a new file.
    unsafe {
        let fd = checked(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        ))?;
        Ok(OwnedFd::from_raw_fd(RawFd::try_from(fd).map_err(io::Error::other)?))
    }
}

/// The kernel's records are not larger than the ones this program knows.
pub(super) fn notify_sizes_fit() -> bool {
    let mut sizes = libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: the kernel writes three numbers into the record.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes) };
    result == 0
        && usize::from(sizes.seccomp_notif) <= size_of::<libc::seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) <= size_of::<libc::seccomp_notif_resp>()
}

/// Makes the way there and back shorter where the kernel can.
pub(super) fn notify_sync_wake_up(listener: impl AsFd) {
    // SAFETY: a plain call with numbers. Kernels before 6.6 refuse it, and all works as before.
    unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, NOTIFY_SYNC_WAKE_UP);
    }
}

/// The next call that waits for a judgement.
pub(super) fn notify_receive(listener: impl AsFd) -> io::Result<libc::seccomp_notif> {
    let mut call = MaybeUninit::<libc::seccomp_notif>::zeroed();
    // SAFETY: the record is zeroed, as the kernel wants it, and large enough: see `notify_sizes_fit`.
    unsafe {
        let fd = listener.as_fd().as_raw_fd();
        checked(libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, call.as_mut_ptr()).into())?;
        Ok(call.assume_init())
    }
}

/// Whether the caller still waits. If not, what was read of it may be another process's.
pub(super) fn notify_is_valid(listener: impl AsFd, id: u64) -> bool {
    // SAFETY: the kernel reads one number.
    unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0
    }
}

/// Lets the call go on, or fails it with an error number. A caller that is gone needs no answer.
pub(super) fn notify_answer(listener: impl AsFd, id: u64, refuse: Option<c_int>) {
    let flags = if refuse.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 };
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -refuse.unwrap_or(0), flags };
    // SAFETY: the record is whole and outlives the call.
    unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
    }
}

/// Reads memory of another process, as much of it as there is up to the size of the buffer.
pub(super) fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    const PAGE: usize = 4096;
    let address = usize::try_from(address).map_err(io::Error::other)?;
    // Parts that end where a page ends: one that is not there does not spoil the ones before it.
    let first = (PAGE - address % PAGE).min(buffer.len());
    let rest = buffer.len() - first;
    let remote = |from: usize, length: usize| libc::iovec {
        iov_base: address.wrapping_add(from) as *mut libc::c_void,
        iov_len: length,
    };
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let parts = [remote(0, first), remote(first, rest.min(PAGE))];
    // SAFETY: the kernel writes into the buffer, never beyond its length; the other process's
    // addresses are only numbers here.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, parts.as_ptr(), 2, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[repr(C)]
struct LandlockRuleset {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct LandlockPathBeneath {
    allowed_access: u64,
    parent_fd: c_int,
}

/// The version of Landlock that the kernel has.
pub(super) fn landlock_version() -> io::Result<u32> {
    const ASK_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory.
    let version = checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, ASK_VERSION)
    })?;
    u32::try_from(version).map_err(io::Error::other)
}

pub(super) fn landlock_ruleset(version: u32, files: u64, network: u64, scoped: u64) -> io::Result<OwnedFd> {
    let ruleset = LandlockRuleset { handled_access_fs: files, handled_access_net: network, scoped };
    // Older kernels know the first fields only.
    let size = match version {
        ..4 => 8,
        4..6 => 16,
        _ => size_of::<LandlockRuleset>(),
    };
    // SAFETY: the record is at least as long as the size given; the number returned is a new file.
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_landlock_create_ruleset, &raw const ruleset, size, 0))?;
        Ok(OwnedFd::from_raw_fd(RawFd::try_from(fd).map_err(io::Error::other)?))
    }
}

pub(super) fn landlock_allow(ruleset: impl AsFd, beneath: impl AsFd, access: u64) -> io::Result<()> {
    const PATH_BENEATH: c_int = 1;
    let rule = LandlockPathBeneath { allowed_access: access, parent_fd: beneath.as_fd().as_raw_fd() };
    // SAFETY: the record is the one that this kind of rule has.
    let result = unsafe {
        let fd = ruleset.as_fd().as_raw_fd();
        libc::syscall(libc::SYS_landlock_add_rule, fd, PATH_BENEATH, &raw const rule, 0)
    };
    checked(result).map(drop)
}

pub(super) fn landlock_restrict(ruleset: impl AsFd) -> io::Result<()> {
    // SAFETY: a plain call with numbers.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_fd().as_raw_fd(), 0) };
    checked(result).map(drop)
}
