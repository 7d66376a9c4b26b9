//! The files that this process opens for a tool, through folder handles that a path cannot escape.
//!
//! Each root is opened once. A path is resolved first: its links are followed by their text, and the policy judges the final
//! path. Then the file is opened from the root's handle with links forbidden. So if a folder is swapped for a link between the
//! two steps the result is an error, never another file, and a root that is renamed or replaced stays the folder that was
//! opened.
//!
//! A file is replaced by renaming a finished one over it: no reader sees half of it, and other hard links to the old file stay
//! as they are.
//!
//! **Invariant:** nothing is opened for a tool that [`Policy::judge`] refuses, however the [`PermittedPath`] was created.

mod atomic_write;
mod open_beneath;
mod resolve;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Dir, FileType, Mode as Bits, OFlags};
use rustix::io::Errno;

use crate::git;
use crate::policy::{DenialReason, Mode, PathAccess, Policy};
use open_beneath::{FOLDER, FolderHandle};

const PERMISSIONS: Bits = Bits::RWXU.union(Bits::RWXG).union(Bits::RWXO);

/// The files of a session.
pub struct Files {
    policy: Policy,
    roots: Vec<Arc<OpenRoot>>,
    /// The whole file system: where links outside the roots are followed from, and the last root if
    /// there is no fence.
    everything: Arc<OpenRoot>,
    /// What repositories below the roots name, looked for with the first write.
    named_below: OnceLock<Vec<PathBuf>>,
}

/// A path inside a root that the policy permits. The entry there may change; its location cannot.
#[derive(Debug, Clone)]
pub struct PermittedPath {
    root: Arc<OpenRoot>,
    /// Plain names only.
    below: PathBuf,
    real: PathBuf,
}

#[derive(Debug)]
struct OpenRoot {
    path: PathBuf,
    handle: FolderHandle,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub kind: EntryKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Folder,
    Link,
    /// A pipe, a socket, a device.
    Other,
}

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{}", refusal(.path, *.reason))]
    Refused { path: PathBuf, reason: DenialReason },
    #[error("{} cannot be used: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: UnusableReason },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReason {
    #[error("No such file or directory (os error 2)")]
    Missing,
    #[error("it is a folder")]
    Folder,
    #[error("it is not a folder")]
    NotAFolder,
    #[error("it is not a regular file")]
    Special,
    #[error("it is a broken link")]
    LeadsNowhere,
    #[error("its path has too many links")]
    TooManyLinks,
    #[error("its path was changed to a link meanwhile; check it again")]
    Swapped,
    #[error("its name cannot be the name of a file")]
    Malformed,
    #[error("{0}")]
    System(String),
}

impl From<Errno> for UnusableReason {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::Missing,
            Errno::ISDIR => Self::Folder,
            Errno::NOTDIR => Self::NotAFolder,
            // A socket, or a device without a driver.
            Errno::NXIO => Self::Special,
            Errno::LOOP | Errno::XDEV => Self::Swapped,
            Errno::INVAL => Self::Malformed,
            other => Self::System(std::io::Error::from(other).to_string()),
        }
    }
}

impl Files {
    /// Opens the roots. Touches the disk.
    pub fn open(mut policy: Policy) -> Result<Self, FileError> {
        let mut roots = Vec::new();
        for path in &mut policy.roots {
            let root = OpenRoot::open(path)?;
            if let Some(within) = &policy.within {
                root.check_within(within)?;
            }
            path.clone_from(&root.path);
            roots.push(Arc::new(root));
        }
        #[cfg(target_os = "linux")]
        policy.roots.iter().for_each(|root| crate::fence::free_names(root));
        policy.locked.extend(policy.roots.iter().flat_map(|root| git::locked_below(root)));
        for hidden in &mut policy.hidden {
            // What is not there yet is hidden under the name it was given.
            *hidden = hidden.canonicalize().unwrap_or_else(|_| hidden.clone());
        }
        let everything = Arc::new(OpenRoot::open(Path::new("/"))?);
        Ok(Self { policy, roots, everything, named_below: OnceLock::new() })
    }

    /// The policy, with the real paths of its folders.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Resolves an absolute path, existing or not, if the policy permits to reach it.
    pub fn find(&self, path: &Path, want: PathAccess) -> Result<PermittedPath, FileError> {
        let real = self.resolve(path, want)?;
        self.judge(&real, want)?;
        let root = self.root_of(&real).unwrap_or(&self.everything);
        let below = real.strip_prefix(&root.path).unwrap_or(&real).to_owned();
        Ok(PermittedPath { root: Arc::clone(root), below, real })
    }

    /// Opens a regular file for reading. Never blocks on anything else.
    pub fn open_file(&self, target: &PermittedPath) -> Result<File, FileError> {
        self.judge(&target.real, PathAccess::Read)?;
        let open = || -> Result<OwnedFd, UnusableReason> {
            // A device may do something merely because it is opened, so it is looked at first.
            regular(FileType::from_raw_mode(target.stat()?.st_mode))?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let fd = target.root.handle.open(&target.below, flags)?;
            regular(FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode))?;
            Ok(fd)
        };
        open().map(File::from).map_err(|reason| target.unusable(reason))
    }

    /// The entries of a folder, in no order.
    pub fn entries(&self, target: &PermittedPath) -> Result<Vec<Entry>, FileError> {
        self.judge(&target.real, PathAccess::Read)?;
        let read = || -> Result<Vec<Entry>, Errno> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
            let folder = Dir::new(target.root.handle.open(&target.below, flags)?)?;
            read_entries(folder)
        };
        read().map_err(|error| target.unusable(error.into()))
    }

    /// Puts a file in place, with the folders it needs. `draft` is a name that nobody else uses: where a
    /// file is replaced, the new one has it for a moment. Keeps the permissions of what it replaces.
    pub fn replace(&self, target: &PermittedPath, bytes: &[u8], draft: &str) -> Result<(), FileError> {
        self.replace_with(target, bytes, draft, None)
    }

    /// The same with permissions of its own, given as the lowest nine bits.
    pub fn replace_with(
        &self,
        target: &PermittedPath,
        bytes: &[u8],
        draft: &str,
        permissions: Option<u32>,
    ) -> Result<(), FileError> {
        self.judge(&target.real, PathAccess::Write)?;
        let (Some(parent), Some(name)) = (target.below.parent(), target.below.file_name()) else {
            return Err(target.unusable(UnusableReason::Folder));
        };
        if !is_plain(OsStr::new(draft)) {
            return Err(target.unusable(UnusableReason::Malformed));
        }
        let put = || -> Result<(), UnusableReason> {
            let folder = target.root.handle.make_folders(parent)?;
            atomic_write::put(&folder, name, bytes, draft, permissions)
        };
        put().map_err(|reason| target.unusable(reason))
    }

    /// Removes a regular file; folders and whatever else is there stay.
    pub fn remove(&self, target: &PermittedPath) -> Result<(), FileError> {
        self.judge(&target.real, PathAccess::Write)?;
        let (Some(parent), Some(name)) = (target.below.parent(), target.below.file_name()) else {
            return Err(target.unusable(UnusableReason::Folder));
        };
        let remove = || -> Result<(), UnusableReason> {
            let folder = target.root.handle.open(parent, FOLDER)?;
            let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            regular(FileType::from_raw_mode(stat.st_mode))?;
            Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?)
        };
        remove().map_err(|reason| target.unusable(reason))
    }

    fn judge(&self, real: &Path, want: PathAccess) -> Result<(), FileError> {
        let refused = |reason| FileError::Refused { path: real.to_owned(), reason };
        self.policy.judge(want, real).map_err(refused)?;
        // The table lets commands read what the machine consists of; a file tool has no use for it.
        if self.policy.mode != Mode::Off && self.root_of(real).is_none() {
            return Err(refused(DenialReason::Outside));
        }
        let fenced = want == PathAccess::Write && self.policy.mode != Mode::Off;
        if fenced && (self.is_in_bare_repository(real) || self.is_named_by_repository(real)) {
            return Err(refused(DenialReason::Protected));
        }
        Ok(())
    }

    /// Whether it is part of what a repository's settings name. Those at the root and around it are in the table. The
    /// others are looked for with the first write, and those on the way with each: they may have been added since, or
    /// lie further below than was looked at.
    fn is_named_by_repository(&self, real: &Path) -> bool {
        let find = || self.policy.roots.iter().flat_map(|root| git::named_below(root)).collect();
        let below: &Vec<PathBuf> = self.named_below.get_or_init(find);
        below.iter().any(|named| real.starts_with(named))
            || self.root_of(real).is_some_and(|root| git::is_named(real, &root.path))
    }

    /// Whether a folder on the way, below the root, is a repository without a working tree: by any name.
    fn is_in_bare_repository(&self, real: &Path) -> bool {
        let Some(root) = self.root_of(real) else { return false };
        let folders = real.ancestors().skip(1).take_while(|folder| *folder != root.path);
        folders.into_iter().any(git::is_repository)
    }

    /// The innermost root around a path without links.
    fn root_of(&self, real: &Path) -> Option<&Arc<OpenRoot>> {
        let around = self.roots.iter().filter(|root| real.starts_with(&root.path));
        around.max_by_key(|root| root.path.as_os_str().len())
    }
}

impl OpenRoot {
    fn open(path: &Path) -> Result<Self, FileError> {
        let unusable = |reason| FileError::Unusable { path: path.to_owned(), reason };
        let real = path.canonicalize().map_err(|error| unusable(unusable_reason(&error)))?;
        let handle = FolderHandle::of(&real).map_err(|error| unusable(error.into()))?;
        Ok(Self { path: real, handle })
    }

    /// The handle was opened by the real path without following links, so the path is where the folder is.
    fn check_within(&self, folders: &[PathBuf]) -> Result<(), FileError> {
        let around =
            |folder: &PathBuf| folder.canonicalize().is_ok_and(|folder| self.path.starts_with(folder));
        if folders.iter().any(around) {
            return Ok(());
        }
        Err(FileError::Refused { path: self.path.clone(), reason: DenialReason::Outside })
    }
}

impl PermittedPath {
    /// The absolute path, without links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// The entry with this name in the folder at this path. The policy judges it when it is used.
    pub fn child(&self, name: &OsStr) -> Option<Self> {
        is_plain(name).then(|| Self {
            root: Arc::clone(&self.root),
            below: self.below.join(name),
            real: self.real.join(name),
        })
    }

    /// The kind of the entry, if it exists.
    pub fn kind(&self) -> Option<EntryKind> {
        self.stat().ok().map(|stat| kind(FileType::from_raw_mode(stat.st_mode)))
    }

    /// The lowest nine bits of the permissions of what is there.
    pub fn permissions(&self) -> Option<u32> {
        let bits = Bits::from_raw_mode(self.stat().ok()?.st_mode) & PERMISSIONS;
        // How wide the bits are differs between systems.
        u32::try_from(u64::from(bits.bits())).ok()
    }

    /// When the entry was last written, in nanoseconds; only meaningful for comparison.
    pub fn modified_ns(&self) -> Option<i128> {
        let stat = self.stat().ok()?;
        Some(i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec))
    }

    fn stat(&self) -> Result<rustix::fs::Stat, Errno> {
        let (Some(parent), Some(name)) = (self.below.parent(), self.below.file_name()) else {
            return rustix::fs::fstat(self.root.handle.open(Path::new(""), FOLDER)?);
        };
        rustix::fs::statat(self.root.handle.open(parent, FOLDER)?, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn unusable(&self, reason: UnusableReason) -> FileError {
        FileError::Unusable { path: self.real.clone(), reason }
    }
}

fn refusal(path: &Path, reason: DenialReason) -> String {
    let path = path.display();
    match reason {
        DenialReason::Outside => {
            format!("{path} is outside the workspace; to work there too, start with --add-dir and its folder")
        }
        DenialReason::Hidden => format!(
            "{path} is hidden from tools and commands because it holds secrets; if the agent needs something from it, copy that into the workspace yourself"
        ),
        DenialReason::ReadOnly => format!(
            "{path} cannot be changed: the sandbox is read-only; to allow changes, restart with --sandbox \
             workspace-write"
        ),
        DenialReason::Protected => format!(
            "{path} is protected: it could make your editor, your shell or git run something; change it yourself"
        ),
    }
}

fn unusable_reason(error: &std::io::Error) -> UnusableReason {
    Errno::from_io_error(error)
        .map_or_else(|| UnusableReason::System(error.to_string()), UnusableReason::from)
}

/// Whether this is a single plain name, and not a path.
fn is_plain(name: &OsStr) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name)
}

fn kind(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

fn regular(file_type: FileType) -> Result<(), UnusableReason> {
    match kind(file_type) {
        EntryKind::File => Ok(()),
        EntryKind::Folder => Err(UnusableReason::Folder),
        EntryKind::Link => Err(UnusableReason::Swapped),
        EntryKind::Other => Err(UnusableReason::Special),
    }
}

fn read_entries(mut folder: Dir) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::new();
    while let Some(entry) = folder.read() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let file_type = match entry.file_type() {
            // Some file systems do not report it in the listing.
            FileType::Unknown => rustix::fs::statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            known => known,
        };
        entries.push(Entry { name: OsString::from_vec(name.to_bytes().to_vec()), kind: kind(file_type) });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the kernel cannot open below a handle, each name is opened on its own. The answers must
    /// be the same.
    #[test]
    fn stepping_from_name_to_name_is_as_strict_as_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (work, out) = (base.join("work"), base.join("out"));
        std::fs::create_dir_all(work.join("a/b")).unwrap();
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("f"), "outside").unwrap();
        std::fs::write(work.join("a/b/f"), "inside").unwrap();
        std::os::unix::fs::symlink(&out, work.join("out")).unwrap();
        std::os::unix::fs::symlink(out.join("f"), work.join("link")).unwrap();
        for step in [false, true] {
            let handle = FolderHandle::of(&work).unwrap().stepping(step);
            let open = |path: &str, flags| handle.open(Path::new(path), flags);
            assert!(open("a/b/f", OFlags::RDONLY).is_ok(), "{step}");
            assert!(open("", FOLDER).is_ok(), "{step}");
            for bad in ["out/f", "link", "out"] {
                let error = open(bad, OFlags::RDONLY).unwrap_err();
                assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{step} {bad} {error}");
                assert!(open(bad, FOLDER).is_err(), "{step} {bad}");
            }
            for bad in ["..", "a/../..", "/etc", "./a"] {
                assert_eq!(open(bad, FOLDER).unwrap_err(), Errno::INVAL, "{step} {bad}");
            }
            assert!(handle.make_folders(Path::new("out/new")).is_err(), "{step}");
            let deep = "x/".repeat(5000);
            assert_eq!(handle.make_folders(Path::new(&deep)).unwrap_err(), Errno::NAMETOOLONG, "{step}");
            assert!(handle.make_folders(Path::new("a/new/er")).is_ok(), "{step}");
        }
        assert!(work.join("a/new/er").is_dir() && !out.join("new").exists());
    }
}
