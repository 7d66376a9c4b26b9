//! Judges the calls that the filter sends: fails the ones that are never allowed, lets the others go on
//! to the kernel, and writes down what it will refuse.
//!
//! **Invariant:** a call is failed here only because of numbers in its registers. About paths the
//! kernel decides; this file only knows what it will say.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::calls::{At, CALLS, Call, Flags, Links, Shape, Target};
use super::channel::Handles;
use super::resolve::{Base, Resolved, View, open_file, read_path};
use super::scene::Scene;
use super::sys;
use crate::policy::Broken;
use crate::violation::{Op, Violation};

/// Refusals of a command that are told one by one.
const TOLD_MAX: usize = 50;
/// Devices whose writing is allowed.
const DEVICES: &str = "/dev";
const TERMINALS: &str = "/dev/pts";

pub(super) struct Judge<'a> {
    scene: &'a Scene,
    listener: OwnedFd,
    view: View,
    told: BTreeSet<(Op, Option<PathBuf>, String)>,
}

/// What is about to be refused.
struct Refusal {
    op: Op,
    path: Option<PathBuf>,
    detail: String,
    broken: Option<Broken>,
}

impl Refusal {
    fn words(op: Op, detail: impl Into<String>) -> Self {
        Self { op, path: None, detail: detail.into(), broken: None }
    }

    fn of_path(op: Op, path: PathBuf, broken: Broken) -> Self {
        Self { op, path: Some(path), detail: String::new(), broken: Some(broken) }
    }
}

/// A call that waits.
struct Waiting {
    id: u64,
    pid: i32,
    arguments: [u64; 6],
}

impl Waiting {
    /// An argument that is a file number or flags: the kernel looks at half of the register.
    #[expect(clippy::cast_possible_truncation, reason = "the kernel takes the lower half, too")]
    fn number(&self, nth: usize) -> i32 {
        self.arguments[nth] as u32 as i32
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(scene: &'a Scene, handles: Handles) -> Self {
        sys::notify_sync_wake_up(&handles.listener);
        let view = View { root: handles.root, processes: handles.processes };
        Self { scene, listener: handles.listener, view, told: BTreeSet::new() }
    }

    pub(super) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    pub(super) fn processes(&self) -> &OwnedFd {
        &self.view.processes
    }

    /// Answers one call. Returns what is to be told, and whether there may be more calls.
    pub(super) fn next(&mut self) -> Option<Violation> {
        let received = sys::notify_receive(&self.listener).ok()?;
        let pid = i32::try_from(received.pid).unwrap_or(0);
        let waiting = Waiting { id: received.id, pid, arguments: received.data.args };
        let call = CALLS.iter().find(|call| call.number == libc::c_long::from(received.data.nr));
        let (answer, refusal) = self.judge(call, &waiting);
        // What was read of a process that is gone may be another one's.
        let still_there = refusal.is_none() || sys::notify_is_valid(&self.listener, waiting.id);
        let told = if still_there { self.tell(refusal, pid) } else { None };
        sys::notify_answer(&self.listener, waiting.id, answer);
        told
    }

    /// The error to fail the call with, if that is for us to do, and what to write down.
    fn judge(&self, call: Option<&Call>, waiting: &Waiting) -> (Option<i32>, Option<Refusal>) {
        // The filter and this table are the same, so this does not happen; if it does, nothing passes.
        let Some(call) = call else { return (Some(libc::EPERM), None) };
        let refuse = |op, words: &str| (Some(libc::EPERM), Some(Refusal::words(op, words)));
        match &call.shape {
            Shape::Refuse(op, words) => refuse(*op, words),
            Shape::Clone { .. } => refuse(Op::Namespace, "making a namespace"),
            Shape::Ioctl => refuse(Op::Terminal, "typing into the terminal"),
            Shape::Socket => self.socket(waiting),
            // Only what is no stream comes here.
            Shape::Pair => {
                let words = "a pair of sockets that can reach other programs on this machine";
                (Some(libc::EACCES), Some(Refusal::words(Op::Network, words)))
            }
            Shape::Kill => (None, self.kill(waiting)),
            Shape::Open { at, flags } => (None, self.open(waiting, *at, flags)),
            Shape::One { op, at, target, links } => (None, self.one(waiting, *op, *at, *target, *links)),
            Shape::Two { op, from, to } => (None, self.two(waiting, *op, *from, *to)),
            Shape::File(op) => {
                let path = open_file(waiting.pid, waiting.number(0));
                (None, path.and_then(|path| self.change(*op, Resolved { path, exists: true })))
            }
        }
    }

    fn socket(&self, waiting: &Waiting) -> (Option<i32>, Option<Refusal>) {
        const KIND: i32 = 0xf;
        let (family, kind, protocol) = (waiting.number(0), waiting.number(1), waiting.number(2));
        let plain = [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&(kind & KIND));
        let words = match family {
            libc::AF_INET | libc::AF_INET6 if self.scene.mode.network() && plain => return (None, None),
            libc::AF_NETLINK if self.scene.mode.network() && protocol == libc::NETLINK_ROUTE => {
                return (None, None);
            }
            // How the C library asks whether a name service runs here, before nearly every look-up of a
            // user's or a machine's name. Refused like every other, but not worth a word.
            libc::AF_UNIX if kind == libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK => {
                return (Some(libc::EACCES), None);
            }
            libc::AF_UNIX => "a connection to another program on this machine".to_owned(),
            libc::AF_INET | libc::AF_INET6 if self.scene.mode.network() => "raw network access".to_owned(),
            libc::AF_INET => "a connection over IPv4".to_owned(),
            libc::AF_INET6 => "a connection over IPv6".to_owned(),
            libc::AF_NETLINK => "a connection to the kernel (netlink)".to_owned(),
            libc::AF_PACKET => "raw network access".to_owned(),
            libc::AF_VSOCK => "a connection to the host of this machine (vsock)".to_owned(),
            other => format!("a socket of family {other}"),
        };
        (Some(libc::EACCES), Some(Refusal::words(Op::Network, words)))
    }

    /// A process that is not in the namespace cannot be signalled. Whether one is meant that lives
    /// outside, or one that has just ended, shows in whether the number is taken out there.
    fn kill(&self, waiting: &Waiting) -> Option<Refusal> {
        let target = waiting.number(0);
        let taken = |folder: &OwnedFd| {
            rustix::fs::statat(folder, target.to_string(), rustix::fs::AtFlags::empty()).is_ok()
        };
        let outside = !taken(&self.view.processes) && Path::new("/proc").join(target.to_string()).exists();
        outside.then(|| Refusal::words(Op::Signal, format!("a signal to process {target}")))
    }

    fn open(&self, waiting: &Waiting, at: At, flags: &Flags) -> Option<Refusal> {
        let flags = match flags {
            Flags::Argument(nth) => waiting.number(*nth),
            Flags::Fixed(flags) => *flags,
            Flags::Record(nth) => {
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
        if self.scene.is_hidden(&resolved.path) {
            // Only what is really there is kept from the command; the rest it would not find anyway.
            let op = if writes || creates { Op::Write } else { Op::Read };
            let kept = op == Op::Write || resolved.path.symlink_metadata().is_ok();
            return kept.then(|| Refusal::of_path(op, resolved.path, Broken::Hidden));
        }
        match (resolved.exists, writes, creates) {
            (true, false, _) | (false, _, false) => None,
            (true, true, _) if resolved.path.starts_with(DEVICES) => None,
            (true, true, _) => self.change(Op::Write, resolved),
            // Nobody can create anything there. By this name the command's own terminal is opened again,
            // which is from outside and so is not seen in the view.
            (false, _, true) if resolved.path.starts_with(TERMINALS) => None,
            (false, _, true) => self.refused(Op::Create, resolved.path),
        }
    }

    /// Whether to look closer at a file that is opened to be read. A quick look at the names, because
    /// this is asked for every such file; a link of another name to a hidden place is not seen here, and
    /// leads nowhere all the same.
    fn may_be_hidden(&self, waiting: &Waiting, at: At) -> bool {
        let names_one = |path: &Path| {
            let hidden = || self.scene.hidden.iter().filter_map(|hidden| hidden.path.file_name());
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

    fn one(&self, waiting: &Waiting, op: Op, at: At, target: Target, links: Links) -> Option<Refusal> {
        let follow = match links {
            Links::Follow => true,
            Links::Keep => false,
            Links::KeepIf { flags } => waiting.number(flags) & libc::AT_SYMLINK_NOFOLLOW == 0,
        };
        let resolved = self.resolve(waiting, at, follow)?;
        match target {
            // A name that we keep taken looks as if it were there. Other folders are marked likewise.
            Target::New if resolved.exists => {
                let held = is_marked(&resolved.path);
                let refusal = held.then(|| self.refused(op, resolved.path)).flatten();
                refusal.filter(|refusal| refusal.broken == Some(Broken::Protected))
            }
            Target::New => self.refused(op, resolved.path),
            Target::There => self.change(op, resolved),
        }
    }

    /// The first of the two paths that is out of reach.
    fn two(&self, waiting: &Waiting, op: Op, from: At, to: At) -> Option<Refusal> {
        let source = self.resolve(waiting, from, false)?;
        if !source.exists {
            return None;
        }
        let target = self.resolve(waiting, to, false);
        self.change(op, source).or_else(|| {
            let target = target?;
            if target.exists && op == Op::Link { None } else { self.change_or_create(op, target) }
        })
    }

    fn change_or_create(&self, op: Op, resolved: Resolved) -> Option<Refusal> {
        if resolved.exists { self.change(op, resolved) } else { self.refused(op, resolved.path) }
    }

    /// Something is done to an entry that must be there.
    fn change(&self, op: Op, resolved: Resolved) -> Option<Refusal> {
        if !resolved.exists {
            return None;
        }
        if matches!(op, Op::Remove | Op::Rename) && self.scene.is_pinned(&resolved.path) {
            return Some(Refusal::of_path(op, resolved.path, Broken::Protected));
        }
        self.refused(op, resolved.path)
    }

    fn refused(&self, op: Op, path: PathBuf) -> Option<Refusal> {
        let broken = self.scene.judge_write(&path)?;
        Some(Refusal::of_path(op, path, broken))
    }

    fn resolve(&self, waiting: &Waiting, at: At, follow: bool) -> Option<Resolved> {
        let base = match at.folder.map(|nth| waiting.number(nth)) {
            None | Some(libc::AT_FDCWD) => Base::WorkingFolder,
            Some(fd) => Base::File(fd),
        };
        let path = read_path(waiting.pid, waiting.arguments[at.path]);
        match (path, base) {
            // No path means the file itself.
            (None, Base::File(fd)) => open_file(waiting.pid, fd).map(|path| Resolved { path, exists: true }),
            (Some(path), Base::File(fd)) if path.is_empty() => {
                open_file(waiting.pid, fd).map(|path| Resolved { path, exists: true })
            }
            (Some(path), _) if path != OsStr::new("") => self.view.resolve(waiting.pid, base, &path, follow),
            _ => None,
        }
    }

    /// Tells each refusal once, and not more than people read.
    fn tell(&mut self, refusal: Option<Refusal>, pid: i32) -> Option<Violation> {
        let refusal = refusal?;
        if self.told.len() > TOLD_MAX {
            return None;
        }
        if !self.told.insert((refusal.op, refusal.path.clone(), refusal.detail.clone())) {
            return None;
        }
        let program =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        if self.told.len() > TOLD_MAX {
            return Some(Violation {
                op: Op::More,
                path: None,
                detail: String::new(),
                broken: None,
                program,
            });
        }
        let Refusal { op, path, detail, broken } = refusal;
        Some(Violation { op, path, detail, broken, program })
    }
}

/// Whether the entry is one of ours that keeps a protected name taken.
fn is_marked(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.mode() & super::placeholder::MARK != 0)
}
