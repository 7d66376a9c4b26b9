//! Resolves a path to its real path: names are looked up one by one, links are followed by their text.
//!
//! Only the text of a link counts, so the magic links of `/proc`, which lead past every handle, are links like others. Nothing
//! here opens what it finds: if a folder changed meanwhile, the wrong result becomes an error when the file is opened.
//!
//! **Invariant:** a request about a path outside the roots gets the same answer whether something exists there or not.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::open_beneath::FOLDER;
use super::{FileError, Files, UnusableReason};
use crate::policy::PathAccess;

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

/// What a name in a folder is.
enum PathEntry {
    Folder,
    Link(PathBuf),
    Leaf,
}

/// The state of resolving one path.
struct PathWalk {
    /// Without links.
    real: PathBuf,
    /// Names still to come; `..` is one of them.
    ahead: VecDeque<OsString>,
    /// How many of these come from links.
    linked: usize,
    links: usize,
}

impl Files {
    pub(super) fn resolve(&self, path: &Path, want: PathAccess) -> Result<PathBuf, FileError> {
        let unusable = |reason| FileError::Unusable { path: path.to_owned(), reason };
        if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
            return Err(unusable(UnusableReason::Malformed));
        }
        if let Some(real) = self.without_links(path) {
            return Ok(real);
        }
        let mut walk = PathWalk { real: "/".into(), ahead: VecDeque::new(), linked: 0, links: 0 };
        self.go_to(&mut walk, path);
        while let Some(name) = walk.ahead.pop_front() {
            let linked = walk.linked > 0;
            walk.linked = walk.linked.saturating_sub(1);
            if name == ".." {
                walk.real.pop();
                continue;
            }
            let next = walk.real.join(&name);
            match self.look(&walk.real, &name) {
                Ok(PathEntry::Folder) => walk.real = next,
                Ok(PathEntry::Leaf) if walk.ahead.is_empty() => walk.real = next,
                Ok(PathEntry::Leaf) => return Err(self.dead_end(next, want, UnusableReason::NotAFolder)),
                Ok(PathEntry::Link(target)) => self.follow(&mut walk, &next, &target, want)?,
                // The rest of a path that is not there yet may only be plain names.
                Err(Errno::NOENT) if !linked && !walk.ahead.iter().any(|name| name == "..") => {
                    return Ok(walk.ahead.iter().fold(next, |real, name| real.join(name)));
                }
                Err(Errno::NOENT) if linked => {
                    return Err(self.dead_end(next, want, UnusableReason::LeadsNowhere));
                }
                Err(error) => return Err(self.dead_end(next, want, error.into())),
            }
        }
        Ok(walk.real)
    }

    /// The usual case at the cost of two calls: a path in a root that is as it is written, and whose
    /// folder exists.
    fn without_links(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root_of(path)?;
        let below = path.strip_prefix(&root.path).ok()?;
        let (parent, name) = (below.parent()?, below.file_name()?);
        let folder = root.handle.open(parent, FOLDER).ok()?;
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {}
            Err(Errno::NOENT) => {}
            Ok(_) | Err(_) => return None,
        }
        // Made of its parts again, so that a slash at its end or a double one is gone.
        Some(root.path.components().chain(below.components()).collect())
    }

    /// Turns to an absolute path. A root on it is the folder that was opened, whatever stands at its
    /// path.
    fn go_to(&self, walk: &mut PathWalk, path: &Path) {
        walk.real = self.root_of(path).map_or_else(|| "/".into(), |root| root.path.clone());
        let rest = path.strip_prefix(&walk.real).unwrap_or(path);
        for name in names(rest).into_iter().rev() {
            walk.ahead.push_front(name);
        }
    }

    fn follow(
        &self,
        walk: &mut PathWalk,
        at: &Path,
        target: &Path,
        want: PathAccess,
    ) -> Result<(), FileError> {
        walk.links += 1;
        if walk.links > LINKS_MAX {
            return Err(self.dead_end(at.to_owned(), want, UnusableReason::TooManyLinks));
        }
        // A protected name that is a link protects what is reached through it.
        if self.root_of(at).is_some() {
            self.judge(at, want)?;
        }
        let before = walk.ahead.len();
        if target.is_absolute() {
            self.go_to(walk, target);
        } else {
            for name in names(target).into_iter().rev() {
                walk.ahead.push_front(name);
            }
        }
        walk.linked += walk.ahead.len() - before;
        Ok(())
    }

    /// Why a path leads to no place: that it may not be reached goes before what is wrong with it.
    fn dead_end(&self, at: PathBuf, want: PathAccess, reason: UnusableReason) -> FileError {
        match self.judge(&at, want) {
            Err(refused) => refused,
            Ok(()) => FileError::Unusable { path: at, reason },
        }
    }

    fn look(&self, folder: &Path, name: &OsStr) -> Result<PathEntry, Errno> {
        let path = folder.join(name);
        if self.roots.iter().any(|root| root.path == path) {
            return Ok(PathEntry::Folder);
        }
        let root = self.root_of(folder).unwrap_or(&self.everything);
        let below = folder.strip_prefix(&root.path).map_err(|_| Errno::INVAL)?;
        let folder = root.handle.open(below, FOLDER)?;
        let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => PathEntry::Folder,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&folder, name, Vec::new())?;
                PathEntry::Link(OsString::from_vec(target.into_bytes()).into())
            }
            _ => PathEntry::Leaf,
        })
    }
}

fn names(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}
