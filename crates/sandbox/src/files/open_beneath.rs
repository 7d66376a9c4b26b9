//! Opens what lies below a folder handle without following any link.
//!
//! Linux does it in one call. Where that call is missing, in old kernels and other systems, each name is opened from the handle
//! of the one before; the results are the same.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode as Bits, OFlags};
use rustix::io::Errno;

/// A folder as a place to start from. With `O_PATH` it needs no right to read the folder.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The longest path that Linux accepts in one call. Going in steps could create folders that no other program can name.
const PATH_BYTES_MAX: usize = 4096;

const ALWAYS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(super) struct FolderHandle {
    fd: OwnedFd,
    /// The kernel cannot do it in one call.
    steps: bool,
}

impl FolderHandle {
    /// Opens a folder by its real path: a link in it is an error.
    pub(super) fn of(real: &Path) -> Result<Self, Errno> {
        let top = rustix::fs::openat(CWD, "/", FOLDER | ALWAYS, Bits::empty())?;
        let top = Self { steps: !opens_below(&top), fd: top };
        let fd = top.open(real.strip_prefix("/").map_err(|_| Errno::INVAL)?, FOLDER)?;
        Ok(Self { fd, steps: top.steps })
    }

    #[cfg(test)]
    pub(super) fn stepping(self, steps: bool) -> Self {
        Self { steps, ..self }
    }

    /// Opens what is at a path of plain names; the handle's own folder if there are none.
    pub(super) fn open(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        // Components leave out the dots that the kernel would see.
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain {
            return Err(Errno::INVAL);
        }
        if below.as_os_str().len() >= PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if below.as_os_str().is_empty() {
            return rustix::fs::openat(&self.fd, ".", flags | ALWAYS, Bits::empty());
        }
        if self.steps { self.open_in_steps(below, flags) } else { open_below(&self.fd, below, flags) }
    }

    /// The folder at a path of plain names, made if it is not there.
    pub(super) fn make_folders(&self, below: &Path) -> Result<OwnedFd, Errno> {
        match self.open(below, FOLDER) {
            Err(Errno::NOENT) => {}
            outcome => return outcome,
        }
        let mut at = self.open(Path::new(""), FOLDER)?;
        for name in below.iter() {
            at = match step(&at, name, FOLDER) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&at, name, Bits::from_raw_mode(0o777)) {
                        // Somebody else was faster; whether it is a folder shows when it is opened.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    step(&at, name, FOLDER)?
                }
                outcome => outcome?,
            };
        }
        Ok(at)
    }

    fn open_in_steps(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut at = None;
        let mut names = below.iter().peekable();
        while let Some(name) = names.next() {
            let flags = if names.peek().is_some() { FOLDER } else { flags };
            let from = at.as_ref().unwrap_or(&self.fd);
            at = Some(step(from, name, flags)?);
        }
        at.ok_or(Errno::INVAL)
    }
}

fn step(from: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(from, name, flags | ALWAYS, Bits::empty())
}

/// Whether the kernel has the call and lets us use it: older container rules answer with EPERM.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn opens_below(top: &OwnedFd) -> bool {
    !matches!(open_below(top, Path::new("."), FOLDER), Err(Errno::NOSYS | Errno::PERM))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn opens_below(_: &OwnedFd) -> bool {
    false
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_below(from: &OwnedFd, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(from, below, flags | ALWAYS, Bits::empty(), resolve)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_below(_: &OwnedFd, _: &Path, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}
