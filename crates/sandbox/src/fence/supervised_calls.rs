//! The system calls that are sent to the supervisor, and how to read them: one table for the filter and the supervisor.

use libc::c_long;

use super::seccomp_filter::{NEW_NAMESPACE, NEW_NAMESPACE_IN_CLONE};
use super::sys::{
    SYS_FCHMODAT2, SYS_FILE_SETATTR, SYS_OPEN_TREE_ATTR, SYS_REMOVEXATTRAT, SYS_RENAMEAT, SYS_SETXATTRAT,
};
use crate::violation::RefusedOperation;

pub(super) struct SystemCall {
    pub(super) number: c_long,
    pub(super) shape: CallShape,
}

/// How a call is read. Numbers are the positions of arguments.
pub(super) enum CallShape {
    /// Always refused, and reported with these words.
    Refuse(RefusedOperation, &'static str),
    Open {
        at: PathArgument,
        flags: OpenFlags,
    },
    One {
        op: RefusedOperation,
        at: PathArgument,
        target: TargetState,
        links: LinkHandling,
    },
    Two {
        op: RefusedOperation,
        from: PathArgument,
        to: PathArgument,
    },
    /// A file that is already open.
    File(RefusedOperation),
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

const fn refuse(number: c_long, op: RefusedOperation, words: &'static str) -> SystemCall {
    SystemCall { number, shape: CallShape::Refuse(op, words) }
}

const fn one(
    number: c_long,
    op: RefusedOperation,
    at: PathArgument,
    target: TargetState,
    links: LinkHandling,
) -> SystemCall {
    SystemCall { number, shape: CallShape::One { op, at, target, links } }
}

const fn new(number: c_long, op: RefusedOperation, at: PathArgument) -> SystemCall {
    one(number, op, at, TargetState::New, LinkHandling::Keep)
}

const fn change(number: c_long, op: RefusedOperation, at: PathArgument, links: LinkHandling) -> SystemCall {
    one(number, op, at, TargetState::There, links)
}

const fn two(number: c_long, op: RefusedOperation, from: PathArgument, to: PathArgument) -> SystemCall {
    SystemCall { number, shape: CallShape::Two { op, from, to } }
}

const fn file(number: c_long, op: RefusedOperation) -> SystemCall {
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
    new(libc::SYS_mkdirat, RefusedOperation::Create, at(0, 1)),
    new(libc::SYS_mknodat, RefusedOperation::Create, at(0, 1)),
    new(libc::SYS_symlinkat, RefusedOperation::Create, at(1, 2)),
    change(libc::SYS_unlinkat, RefusedOperation::Remove, at(0, 1), LinkHandling::Keep),
    two(SYS_RENAMEAT, RefusedOperation::Rename, at(0, 1), at(2, 3)),
    two(libc::SYS_renameat2, RefusedOperation::Rename, at(0, 1), at(2, 3)),
    two(libc::SYS_linkat, RefusedOperation::Link, at(0, 1), at(2, 3)),
    change(libc::SYS_truncate, RefusedOperation::Write, path(0), LinkHandling::Follow),
    change(libc::SYS_fchmodat, RefusedOperation::Permissions, at(0, 1), LinkHandling::Follow),
    change(SYS_FCHMODAT2, RefusedOperation::Permissions, at(0, 1), LinkHandling::KeepIf { flags: 3 }),
    change(libc::SYS_fchownat, RefusedOperation::Permissions, at(0, 1), LinkHandling::KeepIf { flags: 4 }),
    file(libc::SYS_fchmod, RefusedOperation::Permissions),
    file(libc::SYS_fchown, RefusedOperation::Permissions),
    change(libc::SYS_utimensat, RefusedOperation::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 3 }),
    change(libc::SYS_setxattr, RefusedOperation::Attributes, path(0), LinkHandling::Follow),
    change(libc::SYS_lsetxattr, RefusedOperation::Attributes, path(0), LinkHandling::Keep),
    file(libc::SYS_fsetxattr, RefusedOperation::Attributes),
    change(libc::SYS_removexattr, RefusedOperation::Attributes, path(0), LinkHandling::Follow),
    change(libc::SYS_lremovexattr, RefusedOperation::Attributes, path(0), LinkHandling::Keep),
    file(libc::SYS_fremovexattr, RefusedOperation::Attributes),
    change(SYS_SETXATTRAT, RefusedOperation::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 2 }),
    change(SYS_REMOVEXATTRAT, RefusedOperation::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 2 }),
    change(SYS_FILE_SETATTR, RefusedOperation::Attributes, at(0, 1), LinkHandling::KeepIf { flags: 4 }),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_mkdir, RefusedOperation::Create, path(0)),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_mknod, RefusedOperation::Create, path(0)),
    #[cfg(target_arch = "x86_64")]
    new(libc::SYS_symlink, RefusedOperation::Create, path(1)),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_rmdir, RefusedOperation::Remove, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_unlink, RefusedOperation::Remove, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    two(libc::SYS_rename, RefusedOperation::Rename, path(0), path(1)),
    #[cfg(target_arch = "x86_64")]
    two(libc::SYS_link, RefusedOperation::Link, path(0), path(1)),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_chmod, RefusedOperation::Permissions, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_chown, RefusedOperation::Permissions, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_lchown, RefusedOperation::Permissions, path(0), LinkHandling::Keep),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_utime, RefusedOperation::Attributes, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_utimes, RefusedOperation::Attributes, path(0), LinkHandling::Follow),
    #[cfg(target_arch = "x86_64")]
    change(libc::SYS_futimesat, RefusedOperation::Attributes, at(0, 1), LinkHandling::Follow),
    SystemCall { number: libc::SYS_unshare, shape: CallShape::Clone { flags: NEW_NAMESPACE } },
    refuse(libc::SYS_setns, RefusedOperation::Namespace, "joining a namespace"),
    refuse(libc::SYS_chroot, RefusedOperation::Mount, "changing the root folder"),
    refuse(libc::SYS_pivot_root, RefusedOperation::Mount, "changing the root folder"),
    refuse(libc::SYS_mount, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_umount2, RefusedOperation::Mount, "unmounting"),
    refuse(libc::SYS_fsopen, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_fsconfig, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_fsmount, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_fspick, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_move_mount, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_open_tree, RefusedOperation::Mount, "mounting"),
    refuse(SYS_OPEN_TREE_ATTR, RefusedOperation::Mount, "mounting"),
    refuse(libc::SYS_mount_setattr, RefusedOperation::Mount, "changing a mount"),
    refuse(libc::SYS_ptrace, RefusedOperation::Trace, "tracing another process"),
    refuse(libc::SYS_process_vm_readv, RefusedOperation::Trace, "reading the memory of another process"),
    refuse(libc::SYS_process_vm_writev, RefusedOperation::Trace, "writing the memory of another process"),
    refuse(libc::SYS_pidfd_getfd, RefusedOperation::Trace, "taking a file of another process"),
    refuse(libc::SYS_kcmp, RefusedOperation::Trace, "comparing processes"),
    refuse(libc::SYS_bpf, RefusedOperation::Kernel, "loading a program into the kernel (bpf)"),
    refuse(
        libc::SYS_perf_event_open,
        RefusedOperation::Kernel,
        "measuring other processes (perf_event_open)",
    ),
    refuse(libc::SYS_userfaultfd, RefusedOperation::Kernel, "handling page faults (userfaultfd)"),
    refuse(
        libc::SYS_io_uring_setup,
        RefusedOperation::Kernel,
        "input and output past the sandbox (io_uring)",
    ),
    refuse(
        libc::SYS_io_uring_enter,
        RefusedOperation::Kernel,
        "input and output past the sandbox (io_uring)",
    ),
    refuse(
        libc::SYS_io_uring_register,
        RefusedOperation::Kernel,
        "input and output past the sandbox (io_uring)",
    ),
    refuse(libc::SYS_keyctl, RefusedOperation::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_add_key, RefusedOperation::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_request_key, RefusedOperation::Kernel, "using the keys of the kernel"),
    refuse(libc::SYS_open_by_handle_at, RefusedOperation::Kernel, "opening a file by its handle"),
    refuse(libc::SYS_kexec_load, RefusedOperation::Kernel, "loading another kernel"),
    refuse(libc::SYS_kexec_file_load, RefusedOperation::Kernel, "loading another kernel"),
    refuse(libc::SYS_init_module, RefusedOperation::Kernel, "loading a kernel module"),
    refuse(libc::SYS_finit_module, RefusedOperation::Kernel, "loading a kernel module"),
    refuse(libc::SYS_delete_module, RefusedOperation::Kernel, "removing a kernel module"),
    refuse(libc::SYS_reboot, RefusedOperation::Kernel, "restarting the machine"),
    refuse(libc::SYS_swapon, RefusedOperation::Kernel, "changing the swap space"),
    refuse(libc::SYS_swapoff, RefusedOperation::Kernel, "changing the swap space"),
    refuse(libc::SYS_acct, RefusedOperation::Kernel, "changing the accounting of processes"),
    refuse(libc::SYS_settimeofday, RefusedOperation::Kernel, "setting the clock"),
    refuse(libc::SYS_clock_settime, RefusedOperation::Kernel, "setting the clock"),
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_iopl, RefusedOperation::Kernel, "reaching hardware"),
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_ioperm, RefusedOperation::Kernel, "reaching hardware"),
];
