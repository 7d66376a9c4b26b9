//! Judges the system calls that the filter sends: fails the ones that are never allowed, lets the others go on to the
//! kernel, and records what the kernel will refuse.
//!
//! **Invariant:** a call is failed here only because of numbers in its registers. The kernel decides about paths; this module
//! only predicts what it will decide.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::channel::FenceHandles;
use super::file_system_layout::FenceLayout;
use super::supervised_calls::{
    CALLS, CallShape, LinkHandling, OpenFlags, PathArgument, SystemCall, TargetState,
};
use super::sys;
use super::system_call_paths::{CommandView, PathBase, ResolvedPath, open_file, read_path};
use crate::policy::DenialReason;
use crate::violation::{RefusedOperation, Violation};

/// How many refusals of a command are reported one by one.
const REPORTED_MAX: usize = 50;
/// Devices whose writing is allowed.
const DEVICES: &str = "/dev";
const TERMINALS: &str = "/dev/pts";

pub(super) struct CallJudge<'a> {
    layout: &'a FenceLayout,
    listener: OwnedFd,
    view: CommandView,
    reported: BTreeSet<(RefusedOperation, Option<PathBuf>, String)>,
}

/// A refusal before it is reported.
struct CallRefusal {
    op: RefusedOperation,
    path: Option<PathBuf>,
    detail: String,
    reason: Option<DenialReason>,
}

impl CallRefusal {
    fn words(op: RefusedOperation, detail: impl Into<String>) -> Self {
        Self { op, path: None, detail: detail.into(), reason: None }
    }

    fn of_path(op: RefusedOperation, path: PathBuf, reason: DenialReason) -> Self {
        Self { op, path: Some(path), detail: String::new(), reason: Some(reason) }
    }
}

/// A system call that waits for an answer.
struct WaitingCall {
    id: u64,
    pid: i32,
    arguments: [u64; 6],
}

impl WaitingCall {
    /// An argument that is a file number or flags: the kernel looks at half of the register.
    #[expect(clippy::cast_possible_truncation, reason = "the kernel takes the lower half, too")]
    fn number(&self, nth: usize) -> i32 {
        self.arguments[nth] as u32 as i32
    }
}

impl<'a> CallJudge<'a> {
    pub(super) fn new(layout: &'a FenceLayout, handles: FenceHandles) -> Self {
        sys::notify_sync_wake_up(&handles.listener);
        let view = CommandView { root: handles.root, processes: handles.processes };
        Self { layout, listener: handles.listener, view, reported: BTreeSet::new() }
    }

    pub(super) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    pub(super) fn processes(&self) -> &OwnedFd {
        &self.view.processes
    }

    /// Answers one call. Returns the refusal to report, if there is one.
    pub(super) fn next(&mut self) -> Option<Violation> {
        let received = sys::notify_receive(&self.listener).ok()?;
        let pid = i32::try_from(received.pid).unwrap_or(0);
        let waiting = WaitingCall { id: received.id, pid, arguments: received.data.args };
        let call = CALLS.iter().find(|call| call.number == libc::c_long::from(received.data.nr));
        let (answer, refusal) = self.judge(call, &waiting);
        // If the process is gone, what was read may belong to another one.
        let still_there = refusal.is_none() || sys::notify_is_valid(&self.listener, waiting.id);
        let reported = if still_there { self.report_once(refusal, pid) } else { None };
        sys::notify_answer(&self.listener, waiting.id, answer);
        reported
    }

    /// The error to fail the call with, if it is failed here, and the refusal to report.
    fn judge(&self, call: Option<&SystemCall>, waiting: &WaitingCall) -> (Option<i32>, Option<CallRefusal>) {
        // The filter and this table are the same, so this does not happen; if it does, nothing passes.
        let Some(call) = call else { return (Some(libc::EPERM), None) };
        let refuse = |op, words: &str| (Some(libc::EPERM), Some(CallRefusal::words(op, words)));
        match &call.shape {
            CallShape::Refuse(op, words) => refuse(*op, words),
            CallShape::Clone { .. } => refuse(RefusedOperation::Namespace, "creating a namespace"),
            CallShape::Ioctl => refuse(RefusedOperation::Terminal, "typing into the terminal"),
            CallShape::Socket => self.socket(waiting),
            // The filter sends only sockets that are not streams.
            CallShape::Pair => {
                let words = "a pair of sockets that can reach other programs on this machine";
                (Some(libc::EACCES), Some(CallRefusal::words(RefusedOperation::Network, words)))
            }
            CallShape::Kill => (None, self.kill(waiting)),
            CallShape::Open { at, flags } => (None, self.open(waiting, *at, flags)),
            CallShape::One { op, at, target, links } => {
                (None, self.single_path(waiting, *op, *at, *target, *links))
            }
            CallShape::Two { op, from, to } => (None, self.two_paths(waiting, *op, *from, *to)),
            CallShape::File(op) => {
                let path = open_file(waiting.pid, waiting.number(0));
                (None, path.and_then(|path| self.change(*op, ResolvedPath { path, exists: true })))
            }
        }
    }

    fn socket(&self, waiting: &WaitingCall) -> (Option<i32>, Option<CallRefusal>) {
        const KIND: i32 = 0xf;
        let (family, kind, protocol) = (waiting.number(0), waiting.number(1), waiting.number(2));
        let plain = [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&(kind & KIND));
        let words = match family {
            libc::AF_INET | libc::AF_INET6 if self.layout.mode.network() && plain => return (None, None),
            libc::AF_NETLINK if self.layout.mode.network() && protocol == libc::NETLINK_ROUTE => {
                return (None, None);
            }
            // How the C library asks whether a name service runs here, before nearly every look-up of a
            // user's or a machine's name. Refused like every other, but not reported.
            libc::AF_UNIX if kind == libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK => {
                return (Some(libc::EACCES), None);
            }
            libc::AF_UNIX => "a connection to another program on this machine".to_owned(),
            libc::AF_INET | libc::AF_INET6 if self.layout.mode.network() => "raw network access".to_owned(),
            libc::AF_INET => "a connection over IPv4".to_owned(),
            libc::AF_INET6 => "a connection over IPv6".to_owned(),
            libc::AF_NETLINK => "a connection to the kernel (netlink)".to_owned(),
            libc::AF_PACKET => "raw network access".to_owned(),
            libc::AF_VSOCK => "a connection to the host of this machine (vsock)".to_owned(),
            other => format!("a socket of family {other}"),
        };
        (Some(libc::EACCES), Some(CallRefusal::words(RefusedOperation::Network, words)))
    }

    /// A process that is not in the namespace cannot be signalled. Whether one is meant that lives
    /// outside, or one that has just ended, shows in whether the number is taken out there.
    fn kill(&self, waiting: &WaitingCall) -> Option<CallRefusal> {
        let target = waiting.number(0);
        let taken = |folder: &OwnedFd| {
            rustix::fs::statat(folder, target.to_string(), rustix::fs::AtFlags::empty()).is_ok()
        };
        let outside = !taken(&self.view.processes) && Path::new("/proc").join(target.to_string()).exists();
        outside.then(|| CallRefusal::words(RefusedOperation::Signal, format!("a signal to process {target}")))
    }

    fn open(&self, waiting: &WaitingCall, at: PathArgument, flags: &OpenFlags) -> Option<CallRefusal> {
        let flags = match flags {
            OpenFlags::Argument(nth) => waiting.number(*nth),
            OpenFlags::Fixed(flags) => *flags,
            OpenFlags::Record(nth) => {
                let mut record = [0; 4];
                let read = sys::read_memory(waiting.pid, waiting.arguments[*nth], &mut record).ok()?;
                (read == 4).then(|| i32::from_ne_bytes(record))?
            }
        };
        if flags & libc::O_PATH != 0 {
            return None;
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        if !writes && !creates && !self.may_be_hidden(waiting, at) {
            return None;
        }
        let keeps_link = flags & libc::O_NOFOLLOW != 0
            || flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
        let resolved = self.resolve(waiting, at, !keeps_link)?;
        if self.layout.is_hidden(&resolved.path) {
            // Only an entry that exists is reported; the command would not find any other.
            let op = if writes || creates { RefusedOperation::Write } else { RefusedOperation::Read };
            let kept = op == RefusedOperation::Write || resolved.path.symlink_metadata().is_ok();
            return kept.then(|| CallRefusal::of_path(op, resolved.path, DenialReason::Hidden));
        }
        match (resolved.exists, writes, creates) {
            (true, false, _) | (false, _, false) => None,
            (true, true, _) if resolved.path.starts_with(DEVICES) => None,
            (true, true, _) => self.change(RefusedOperation::Write, resolved),
            // Nothing can be created there. By this name the command's own terminal is opened again, which comes from
            // outside and so is not visible in the view.
            (false, _, true) if resolved.path.starts_with(TERMINALS) => None,
            (false, _, true) => self.predicted_refusal(RefusedOperation::Create, resolved.path),
        }
    }

    /// Whether a file that is opened for reading has to be examined. Only compares names, because it is called for every
    /// such file; a link of another name to a hidden entry is not detected here, and leads nowhere anyway.
    fn may_be_hidden(&self, waiting: &WaitingCall, at: PathArgument) -> bool {
        let names_one = |path: &Path| {
            let hidden = || self.layout.hidden.iter().filter_map(|hidden| hidden.path.file_name());
            path.components().any(|part| hidden().any(|name| part.as_os_str() == name))
        };
        let Some(path) = read_path(waiting.pid, waiting.arguments[at.path]) else { return false };
        let path = Path::new(&path);
        if path.is_absolute() || names_one(path) {
            return names_one(path);
        }
        let base = match at.folder.map(|nth| waiting.number(nth)) {
            None | Some(libc::AT_FDCWD) => std::fs::read_link(format!("/proc/{}/cwd", waiting.pid)).ok(),
            Some(fd) => open_file(waiting.pid, fd),
        };
        base.is_some_and(|base| names_one(&base))
    }

    fn single_path(
        &self,
        waiting: &WaitingCall,
        op: RefusedOperation,
        at: PathArgument,
        target: TargetState,
        links: LinkHandling,
    ) -> Option<CallRefusal> {
        let follow = match links {
            LinkHandling::Follow => true,
            LinkHandling::Keep => false,
            LinkHandling::KeepIf { flags } => waiting.number(flags) & libc::AT_SYMLINK_NOFOLLOW == 0,
        };
        let resolved = self.resolve(waiting, at, follow)?;
        match target {
            // A name that we keep taken looks as if it were there. Other folders are marked likewise.
            TargetState::New if resolved.exists => {
                let held = is_marked(&resolved.path);
                let refusal = held.then(|| self.predicted_refusal(op, resolved.path)).flatten();
                refusal.filter(|refusal| refusal.reason == Some(DenialReason::Protected))
            }
            TargetState::New => self.predicted_refusal(op, resolved.path),
            TargetState::There => self.change(op, resolved),
        }
    }

    /// The first of the two paths that is out of reach.
    fn two_paths(
        &self,
        waiting: &WaitingCall,
        op: RefusedOperation,
        from: PathArgument,
        to: PathArgument,
    ) -> Option<CallRefusal> {
        let source = self.resolve(waiting, from, false)?;
        if !source.exists {
            return None;
        }
        let target = self.resolve(waiting, to, false);
        self.change(op, source).or_else(|| {
            let target = target?;
            if target.exists && op == RefusedOperation::Link {
                None
            } else {
                self.change_or_create(op, target)
            }
        })
    }

    fn change_or_create(&self, op: RefusedOperation, resolved: ResolvedPath) -> Option<CallRefusal> {
        if resolved.exists { self.change(op, resolved) } else { self.predicted_refusal(op, resolved.path) }
    }

    /// Something is done to an entry that must be there.
    fn change(&self, op: RefusedOperation, resolved: ResolvedPath) -> Option<CallRefusal> {
        if !resolved.exists {
            return None;
        }
        if matches!(op, RefusedOperation::Remove | RefusedOperation::Rename)
            && self.layout.is_pinned(&resolved.path)
        {
            return Some(CallRefusal::of_path(op, resolved.path, DenialReason::Protected));
        }
        self.predicted_refusal(op, resolved.path)
    }

    fn predicted_refusal(&self, op: RefusedOperation, path: PathBuf) -> Option<CallRefusal> {
        let reason = self.layout.judge_write(&path)?;
        Some(CallRefusal::of_path(op, path, reason))
    }

    fn resolve(&self, waiting: &WaitingCall, at: PathArgument, follow: bool) -> Option<ResolvedPath> {
        let base = match at.folder.map(|nth| waiting.number(nth)) {
            None | Some(libc::AT_FDCWD) => PathBase::WorkingFolder,
            Some(fd) => PathBase::File(fd),
        };
        let path = read_path(waiting.pid, waiting.arguments[at.path]);
        match (path, base) {
            // No path means the file itself.
            (None, PathBase::File(fd)) => {
                open_file(waiting.pid, fd).map(|path| ResolvedPath { path, exists: true })
            }
            (Some(path), PathBase::File(fd)) if path.is_empty() => {
                open_file(waiting.pid, fd).map(|path| ResolvedPath { path, exists: true })
            }
            (Some(path), _) if path != OsStr::new("") => self.view.resolve(waiting.pid, base, &path, follow),
            _ => None,
        }
    }

    /// Reports each refusal once, and no more of them than people read.
    fn report_once(&mut self, refusal: Option<CallRefusal>, pid: i32) -> Option<Violation> {
        let refusal = refusal?;
        if self.reported.len() > REPORTED_MAX {
            return None;
        }
        if !self.reported.insert((refusal.op, refusal.path.clone(), refusal.detail.clone())) {
            return None;
        }
        let program =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        if self.reported.len() > REPORTED_MAX {
            return Some(Violation {
                op: RefusedOperation::More,
                path: None,
                detail: String::new(),
                reason: None,
                program,
            });
        }
        let CallRefusal { op, path, detail, reason } = refusal;
        Some(Violation { op, path, detail, reason, program })
    }
}

/// Whether the entry is a placeholder that occupies a protected name.
fn is_marked(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.mode() & super::placeholder::MARK != 0)
}
