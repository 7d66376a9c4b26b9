//! Resolves the path that a process passed to a system call, from outside, while the process waits.
//!
//! The result is only for reports: before the kernel reads the path, the process can change it in its memory, or change the
//! folders on the way.

use std::ffi::{OsStr, OsString};
use std::fs::read_link;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::sys;

const PATH_BYTES_MAX: usize = 4096;
/// Links whose targets do not exist yet and are links again.
const LINKS_MAX: usize = 8;
/// How often a path is looked up again while other processes rename and mount.
const TRIES_MAX: usize = 128;

/// The command's view of the file system.
pub(super) struct CommandView {
    pub(super) root: OwnedFd,
    pub(super) processes: OwnedFd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedPath {
    pub(super) path: PathBuf,
    pub(super) exists: bool,
}

/// Where a relative path starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathBase {
    WorkingFolder,
    /// A file that the process has open.
    File(i32),
}

/// The path at an address of a process. `None` if there is no address.
pub(super) fn read_path(pid: i32, address: u64) -> Option<OsString> {
    if address == 0 {
        return None;
    }
    let mut buffer = [0; PATH_BYTES_MAX];
    let read = sys::read_memory(pid, address, &mut buffer).ok()?;
    let end = buffer[..read].iter().position(|byte| *byte == 0)?;
    Some(OsString::from_vec(buffer[..end].to_vec()))
}

/// The path of a file that a process has open. `None` for pipes and the like.
pub(super) fn open_file(pid: i32, fd: i32) -> Option<PathBuf> {
    let path = read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    (path.is_absolute() && !path.starts_with("/memfd:")).then_some(path)
}

impl CommandView {
    /// The real path, without links, as the process would reach it. `None` if it leads to no place in
    /// the tree of folders.
    pub(super) fn resolve(
        &self,
        pid: i32,
        base: PathBase,
        path: &OsStr,
        follow: bool,
    ) -> Option<ResolvedPath> {
        let mut text = match base {
            _ if path.as_bytes().starts_with(b"/") => PathBuf::from(path),
            PathBase::WorkingFolder => read_link(format!("/proc/{pid}/cwd")).ok()?.join(path),
            PathBase::File(fd) => open_file(pid, fd)?.join(path),
        };
        for _ in 0..LINKS_MAX {
            text = self.without_magic(pid, &text)?;
            match self.look_up(&text, follow)? {
                Step::Found(resolved) => return Some(resolved),
                Step::Again(target) => text = target,
            }
        }
        None
    }

    fn look_up(&self, text: &Path, follow: bool) -> Option<Step> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let last = if follow { flags } else { flags | OFlags::NOFOLLOW };
        match self.open(text, last) {
            Ok(file) => Some(Step::Found(ResolvedPath { path: name(&file)?, exists: true })),
            Err(Errno::NOENT) => {
                let (parent, entry) = (text.parent()?, text.file_name()?);
                let parent = self.open(parent, flags | OFlags::DIRECTORY).ok()?;
                let folder = name(&parent)?;
                // A link to nothing: to create through it creates what it names.
                match readlinkat(&parent, entry, Vec::new()) {
                    Ok(target) if follow => {
                        Some(Step::Again(folder.join(OsStr::from_bytes(target.as_bytes()))))
                    }
                    _ => Some(Step::Found(ResolvedPath { path: folder.join(entry), exists: false })),
                }
            }
            // Not followed from outside; the path is at least this one.
            Err(Errno::LOOP | Errno::XDEV) => {
                Some(Step::Found(ResolvedPath { path: text.into(), exists: true }))
            }
            Err(_) => None,
        }
    }

    /// While anything on the machine is renamed or mounted, the kernel cannot be sure of a `..` and returns `EAGAIN`:
    /// then the lookup is repeated.
    fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let ask = || openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let mut found = ask();
        for _ in 0..TRIES_MAX {
            if found.as_ref().err() != Some(&Errno::AGAIN) {
                break;
            }
            found = ask();
        }
        found
    }

    /// Replaces the parts that mean something else to each process: its own entries of `/proc`, and the names of
    /// its open files.
    fn without_magic(&self, pid: i32, text: &Path) -> Option<PathBuf> {
        let alias = match text.to_str() {
            Some("/dev/stdin") => Some("/proc/self/fd/0".into()),
            Some("/dev/stdout") => Some("/proc/self/fd/1".into()),
            Some("/dev/stderr") => Some("/proc/self/fd/2".into()),
            _ => text.strip_prefix("/dev/fd").ok().map(|rest| Path::new("/proc/self/fd").join(rest)),
        };
        let text = alias.as_deref().unwrap_or(text);
        let Ok(below) = text.strip_prefix("/proc") else { return Some(text.into()) };
        let mut parts = below.components();
        let Some(Component::Normal(process)) = parts.next() else { return Some(text.into()) };
        let own = process == "self" || process == "thread-self";
        let magic_length = match parts.clone().next() {
            Some(Component::Normal(name)) if name == "root" || name == "cwd" || name == "exe" => 1,
            Some(Component::Normal(name)) if name == "fd" && parts.clone().nth(1).is_some() => 2,
            _ => return Some(text.into()),
        };
        let magic: PathBuf = parts.by_ref().take(magic_length).collect();
        let target = if own {
            read_link(Path::new("/proc").join(pid.to_string()).join(magic)).ok()?
        } else {
            let link = readlinkat(&self.processes, Path::new(process).join(magic), Vec::new()).ok()?;
            PathBuf::from(OsString::from_vec(link.into_bytes()))
        };
        let place = target.is_absolute() && !target.starts_with("/memfd:");
        place.then(|| parts.fold(target, |path, part| path.join(part)))
    }
}

enum Step {
    Found(ResolvedPath),
    Again(PathBuf),
}

/// The path of a file that this process has open.
fn name(file: &OwnedFd) -> Option<PathBuf> {
    read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}
