//! Placeholder entries that occupy a protected name while a command runs, where the person has no such entry.
//!
//! A name that does not exist cannot be made read-only, and the first process that creates it owns it. So an empty entry is
//! created there, guarded like a real one, and removed afterwards. The sticky bit, which is never set on such names otherwise,
//! marks it as a placeholder: one that a killed helper left behind is recognised by it.
//!
//! Removing an entry removes the mounts on it in every namespace, and with them the guard of another command that runs at the
//! same time. So each helper holds a shared lock on the entry while its command runs, and only a helper that gets the
//! exclusive lock removes it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, linkat, mkdirat, openat,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::protected_names::PROTECTED;

/// The mode bit that marks an entry as a placeholder.
pub(super) const MARK: u32 = 0o1000;
/// How often another helper may take an entry away right after it was found. Each time it is gone for
/// good, so more than a few mean that something else is wrong.
const TRIES_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceholderKind {
    Folder,
    /// For names that git reads as a file, with content that has no effect.
    File(&'static str),
}

pub(super) struct Placeholder {
    parent: OwnedFd,
    name: std::path::PathBuf,
    kind: PlaceholderKind,
    entry: OwnedFd,
}

/// The result of claiming a protected name.
pub(super) enum ClaimResult {
    /// The person has an entry there.
    Theirs,
    /// A placeholder that this helper keeps locked until [`Placeholder::remove`].
    Ours(Placeholder),
}

/// Creates a placeholder at the name if it does not exist.
pub(super) fn claim(parent: &OwnedFd, name: &Path, kind: PlaceholderKind) -> io::Result<ClaimResult> {
    for _ in 0..TRIES_MAX {
        match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if !is_marked(&stat, kind) => return Ok(ClaimResult::Theirs),
            Ok(_) => {}
            Err(Errno::NOENT) => match create(parent, name, kind) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
        let entry = match openat(parent, name, flags(kind), Mode::empty()) {
            Ok(entry) => entry,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        flock(&entry, FlockOperation::LockShared)?;
        if is_still(parent, name, &entry)? {
            let parent = rustix::io::fcntl_dupfd_cloexec(parent, 3)?;
            return Ok(ClaimResult::Ours(Placeholder { parent, name: name.into(), kind, entry }));
        }
    }
    Err(io::Error::other("the name keeps being created and removed"))
}

/// Frees the names of a workspace that a killed helper left occupied, unless a command needs them.
pub(crate) fn sweep(root: &Path) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = openat(rustix::fs::CWD, root, flags, Mode::empty()) else { return };
    let names = PROTECTED.into_iter().chain(["HEAD"]).map(|name| (name, PlaceholderKind::Folder));
    names.for_each(|(name, kind)| free(&top, name, kind));
    let Ok(git) = openat(&top, ".git", flags, Mode::empty()) else { return };
    for (name, kind) in [
        ("hooks", PlaceholderKind::Folder),
        ("config", PlaceholderKind::File("")),
        ("config.worktree", PlaceholderKind::File("")),
        ("commondir", PlaceholderKind::File(".\n")),
    ] {
        free(&git, name, kind);
    }
}

/// Frees a name if it is marked as a placeholder's. What cannot be freed is left for the next command.
fn free(parent: &OwnedFd, name: &str, kind: PlaceholderKind) {
    let marked = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_marked(&stat, kind));
    let entry = marked.then(|| openat(parent, name, flags(kind), Mode::empty()).ok()).flatten();
    let parent = rustix::io::fcntl_dupfd_cloexec(parent, 3);
    if let (Some(entry), Ok(parent)) = (entry, parent) {
        Placeholder { parent, name: name.into(), kind, entry }.remove().ok();
    }
}

impl Placeholder {
    /// Frees the name, unless another command needs it or the person has filled it.
    pub(super) fn remove(self) -> io::Result<()> {
        match flock(&self.entry, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // Whoever holds it removes it.
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let stat = fstat(&self.entry)?;
        if !is_still(&self.parent, &self.name, &self.entry)? || !is_marked(&stat, self.kind) {
            return Ok(());
        }
        let (flag, empty) = match self.kind {
            PlaceholderKind::Folder => (AtFlags::REMOVEDIR, true),
            PlaceholderKind::File(text) => {
                (AtFlags::empty(), usize::try_from(stat.st_size) == Ok(text.len()))
            }
        };
        let removed = if empty { unlinkat(&self.parent, &self.name, flag) } else { Err(Errno::NOTEMPTY) };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                fchmod(&self.entry, Mode::from_raw_mode(stat.st_mode & 0o7777 & !MARK)).map_err(Into::into)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn create(parent: &OwnedFd, name: &Path, kind: PlaceholderKind) -> Result<(), Errno> {
    match kind {
        PlaceholderKind::Folder => mkdirat(parent, name, Mode::from_raw_mode(MARK | 0o755)),
        PlaceholderKind::File(text) => create_file(parent, name, text),
    }
}

/// The file appears with its text in it: git may read it at any time.
fn create_file(parent: &OwnedFd, name: &Path, text: &str) -> Result<(), Errno> {
    let mut early = name.as_os_str().to_owned();
    early.push(format!(".{}", rustix::process::getpid().as_raw_nonzero()));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(parent, &early, flags, Mode::from_raw_mode(MARK | 0o644))?;
    let created = rustix::io::write(&file, text.as_bytes())
        .and_then(|_| linkat(parent, &early, parent, name, AtFlags::empty()));
    unlinkat(parent, &early, AtFlags::empty())?;
    created
}

fn flags(kind: PlaceholderKind) -> OFlags {
    let common = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if kind == PlaceholderKind::Folder { common | OFlags::DIRECTORY } else { common }
}

fn is_marked(stat: &Stat, kind: PlaceholderKind) -> bool {
    let expected = if kind == PlaceholderKind::Folder { FileType::Directory } else { FileType::RegularFile };
    FileType::from_raw_mode(stat.st_mode) == expected && stat.st_mode & MARK != 0
}

/// Whether the name still belongs to the entry that was opened by it.
fn is_still(parent: &OwnedFd, name: &Path, entry: &OwnedFd) -> io::Result<bool> {
    let (opened, named) = (fstat(entry)?, statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
    match named {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
