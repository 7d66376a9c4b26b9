//! The system calls that are sent to the supervisor, and how to read them: one table for the filter and the supervisor.

use libc::c_long;

use super::seccomp_filter::{NEW_NAMESPACE, NEW_NAMESPACE_IN_CLONE};
use super::sys::{
    SYS_FCHMODAT2, SYS_FILE_SETATTR, SYS_OPEN_TREE_ATTR, SYS_REMOVEXATTRAT, SYS_RENAMEAT, SYS_SETXATTRAT,
};
use crate::violation::Op;

pub(super) struct SystemCall {
    pub(super) number: c_long,
    pub(super) shape: CallShape,
}

/// How a call is read. Numbers are the positions of arguments.
pub(super) enum CallShape {
    /// Always refused, and reported with these words.
    Refuse(Op, &'static str),
    Open {
        at: PathArgument,
        flags: OpenFlags,
    },
    One {
        op: Op,
        at: PathArgument,
        target: TargetState,
        links: LinkHandling,
    },
    Two {
        op: Op,
        from: PathArgument,
        to: PathArgument,
    },
    /// A file that is already open.
    File(Op),
    Socket,
    /// Two sockets that are connected with each other.
    Pair,
    Clone {
        flags: u32,
    },
    Ioctl,
    Kill,
}

/// Which arguments hold a path.
#[derive(Clone, Copy)]
pub(super) struct PathArgument {
    /// The folder that the path starts from; without one, the working folder.
    pub(super) folder: Option<usize>,
    pub(super) path: usize,
}

pub(super) enum OpenFlags {
    Argument(usize),
    /// In a record that this argument points to.
    Record(usize),
    Fixed(i32),
}

/// What must exist at the path; otherwise the call fails anyway.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetState {
    New,
    There,
}

/// Whether a link at the end of the path is followed.
#[derive(Clone, Copy)]
pub(super) enum LinkHandling {
    Follow,
    Keep,
    KeepIf { flags: usize },
}

/// `ioctl` commands that type into a terminal or talk to the console.
pub(super) const TERMINAL_COMMANDS: [u32; 2] = [0x5412, 0x541c];

const fn path(path: usize) -> PathArgument {
    PathArgument { folder: None, path }
}

const fn at(folder: usize, path: usize) -> PathArgument {
    PathArgument { folder: Some(folder), path }
}

const fn refuse(number: c_long, op: Op, words: &'static str) -> SystemCall {
    SystemCall { number, shape: CallShape::Refuse(op, words) }
}

const fn one(
    number: c_long,
    op: Op,
    at: PathArgument,
    target: TargetState,
    links: LinkHandling,
) -> SystemCall {
    SystemCall { number, shape: CallShape::One { op, at, target, links } }
}

const fn new(number: c_long, op: Op, at: PathArgument) -> SystemCall {
    one(number, op, at, TargetState::New, LinkHandling::Keep)
}

const fn change(number: c_long, op: Op, at: PathArgument, links: LinkHandling) -> SystemCall {
    one(number, op, at, TargetState::There, links)
}

const fn two(number: c_long, op: Op, from: PathArgument, to: PathArgument) -> SystemCall {
    SystemCall { number, shape: CallShape::Two { op, from, to } }
}

const fn file(number: c_long, op: Op) -> SystemCall {
    SystemCall { number, shape: CallShape::File(op) }
}

const fn open(number: c_long, at: PathArgument, flags: OpenFlags) -> SystemCall {
    SystemCall { number, shape: CallShape::Open { at, flags } }
}

/// The filter compares one after the other, so the most frequent come first.
pub(super) const CALLS: &[SystemCall] = &[
    open(libc::SYS_openat, at(0, 1), OpenFlags::Argument(2)),
    #[cfg(target_arch = "x86_64")]
    open(libc::SYS_open, path(0), OpenFlags::Argument(1)),
    open(libc::SYS_openat2, at(0, 1), OpenFlags::Record(2)),
    SystemCall { number: libc::SYS_clone, shape: CallShape::Clone { flags: NEW_NAMESPACE_IN_CLONE } },
    SystemCall { number: libc::SYS_ioctl, shape: CallShape::Ioctl },
    SystemCall { number: libc::SYS_kill, shape: CallShape::Kill },
    SystemCall { number: libc::SYS_socket, shape: CallShape::Socket },
    SystemCall { number: libc::SYS_socketpair, shape: CallShape::Pair },
    #[cfg(target_arch = "x86_64")]
    open(libc::SYS_creat, path(0), OpenFlags::Fixed(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC)),
    new(libc::SYS_mkdirat, Op::Create, at(0, 1)),
    new(libc::SYS_mknodat, Op::Create, at(0, 1)),
    new(libc::SYS_symlinkat, Op::Create, at(1, 2)),
    change(libc::SYS_unlinkat, Op::Remove, at(0, 1), LinkHandling::Keep),
    two(SYS_RENAMEAT, Op::Rename, at(0, 1), at(2, 3)),
    two(libc::SYS_renameat2, Op::Rename, at(0, 1), at(2, 3)),
    two(libc::SYS_linkat, Op::Link, at(0, 1), at(2, 3)),
    change(libc::SYS_truncate, Op::Write, path(0), LinkHandling::Follow),
    change(libc::SYS_fchmodat, Op::Permissions, at(0, 1), LinkHandling::Follow),
    change(SYS_FCHMODAT2, Op::Permissions, at(0, 1), LinkHandling::KeepIf { flags: 3 }),
    change(libc::SYS_fchownat, Op::Permissions, at(0, 1), LinkHandling::KeepIf { flags: 4 }),
    file(libc::SYS_fchmod, Op::Permissions),
    file(libc::SYS_fchown, Op::Permissions),
    change(libc::SYS_utimensat, Op::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 3 }),
    change(libc::SYS_setxattr, Op::Attributes, path(0), LinkHandling::Follow),
    change(libc::SYS_lsetxattr, Op::Attributes, path(0), LinkHandling::Keep),
    file(libc::SYS_fsetxattr, Op::Attributes),
    change(libc::SYS_removexattr, Op::Attributes, path(0), LinkHandling::Follow),
    change(libc::SYS_lremovexattr, Op::Attributes, path(0), LinkHandling::Keep),
    file(libc::SYS_fremovexattr, Op::Attributes),
    change(SYS_SETXATTRAT, Op::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 2 }),
    change(SYS_REMOVEXATTRAT, Op::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 2 }),
    change(SYS_FILE_SETATTR, Op::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 4 }),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_mkdir, Op::Create, path(0)),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_mknod, Op::Create, path(0)),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_symlink, Op::Create, path(1)),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_rmdir, Op::Remove, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_unlink, Op::Remove, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    two(libc::SYS_rename, Op::Rename, path(0), path(1)),
    #[cfg(target_arch = "x86_64")]
    two(libc::SYS_link, Op::Link, path(0), path(1)),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_chmod, Op::Permissions, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_chown, Op::Permissions, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_lchown, Op::Permissions, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_utime, Op::Attributes, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_utimes, Op::Attributes, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_futimesat, Op::Attributes, at(0, 1), LinkHandling::Follow),
    SystemCall { number: libc::SYS_unshare, shape: CallShape::Clone { flags: NEW_NAMESPACE } },
    refuse(libc::SYS_setns, Op::Namespace, "joining a namespace"),
    refuse(libc::SYS_chroot, Op::Mount, "changing the root folder"),
    refuse(libc::SYS_pivot_root, Op::Mount, "changing the root folder"),
    refuse(libc::SYS_mount, Op::Mount, "mounting"),
    refuse(libc::SYS_umount2, Op::Mount, "unmounting"),
    refuse(libc::SYS_fsopen, Op::Mount, "mounting"),
    refuse(libc::SYS_fsconfig, Op::Mount, "mounting"),
    refuse(libc::SYS_fsmount, Op::Mount, "mounting"),
    refuse(libc::SYS_fspick, Op::Mount, "mounting"),
    refuse(libc::SYS_move_mount, Op::Mount, "mounting"),
    refuse(libc::SYS_open_tree, Op::Mount, "mounting"),
    refuse(SYS_OPEN_TREE_ATTR, Op::Mount, "mounting"),
    refuse(libc::SYS_mount_setattr, Op::Mount, "changing a mount"),
    refuse(libc::SYS_ptrace, Op::Trace, "tracing another process"),
    refuse(libc::SYS_process_vm_readv, Op::Trace, "reading the memory of another process"),
    refuse(libc::SYS_process_vm_writev, Op::Trace, "writing the memory of another process"),
    refuse(libc::SYS_pidfd_getfd, Op::Trace, "taking a file of another process"),
    refuse(libc::SYS_kcmp, Op::Trace, "comparing processes"),
    refuse(libc::SYS_bpf, Op::Kernel, "loading a program into the kernel (bpf)"),
    refuse(libc::SYS_perf_event_open, Op::Kernel, "measuring other processes (perf_event_open)"),
    refuse(libc::SYS_userfaultfd, Op::Kernel, "handling page faults (userfaultfd)"),
    refuse(libc::SYS_io_uring_setup, Op::Kernel, "input and output past the sandbox (io_uring)"),
    refuse(libc::SYS_io_uring_enter, Op::Kernel, "input and output past the sandbox (io_uring)"),
    refuse(libc::SYS_io_uring_register, Op::Kernel, "input and output past the sandbox (io_uring)"),
    refuse(libc::SYS_keyctl, Op::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_add_key, Op::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_request_key, Op::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_open_by_handle_at, Op::Kernel, "opening a file by its handle"),
    refuse(libc::SYS_kexec_load, Op::Kernel, "loading another kernel"),
    refuse(libc::SYS_kexec_file_load, Op::Kernel, "loading another kernel"),
    refuse(libc::SYS_init_module, Op::Kernel, "loading a kernel module"),
    refuse(libc::SYS_finit_module, Op::Kernel, "loading a kernel module"),
    refuse(libc::SYS_delete_module, Op::Kernel, "removing a kernel module"),
    refuse(libc::SYS_reboot, Op::Kernel, "restarting the machine"),
    refuse(libc::SYS_swapon, Op::Kernel, "changing the swap space"),
    refuse(libc::SYS_swapoff, Op::Kernel, "changing the swap space"),
    refuse(libc::SYS_acct, Op::Kernel, "changing the accounting of processes"),
    refuse(libc::SYS_settimeofday, Op::Kernel, "setting the clock"),
    refuse(libc::SYS_clock_settime, Op::Kernel, "setting the clock"),
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_iopl, Op::Kernel, "reaching hardware"),
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_ioperm, Op::Kernel, "reaching hardware"),
];
