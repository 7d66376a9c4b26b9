//! Which entries of the workspace are guarded, found before the command's view is built.
//!
//! A guarded entry is a mount of its own: read-only, or merely pinned. A mount cannot be renamed or
//! removed from inside, so the folders on the way to a read-only entry are pinned too; without that,
//! renaming one of them would leave its name free.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::Trouble;
use super::placeholder::{Found, Kind, Placeholder, claim};
use crate::git::{self, real_path};
use crate::policy::Policy;
use crate::protected::{
    PROTECTED, PROTECTED_ANYWHERE, PROTECTED_IN_GIT, PROTECTED_IN_HOME, Protected, held_of, protected_below,
};

/// How deep and how many repositories of submodules are looked for.
const MODULE_DEPTH_MAX: usize = 8;
const MODULES_MAX: usize = 200;
/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;
/// What is a folder among the entries of a home.
const HOME_FOLDERS: [&str; 7] = [".ssh", ".config", ".local", ".cargo", ".vim", ".chimera", ".gnupg"];
/// What tells the folder of a repository from a folder on the way to one.
const REPOSITORY_PARTS: [&str; 5] = ["HEAD", "config", "hooks", "objects", "refs"];

/// A writable root.
pub(super) struct Root {
    pub(super) path: PathBuf,
    handle: OwnedFd,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let handle = handle.map_err(|error| {
            Trouble::NoFence(format!(
                "the folder {} cannot be opened without following links: {error}",
                path.display()
            ))
        })?;
        Ok(Self { path: path.into(), handle })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    Pinned,
    ReadOnly,
}

/// An entry below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) root: usize,
    pub(super) below: PathBuf,
    pub(super) hold: Hold,
}

/// What to do where the name is free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Free {
    Leave,
    /// Neither is what a link with that name leads to taken.
    Never,
    Take(Kind),
}

pub(super) struct Guards<'a> {
    roots: &'a [Root],
    homes: &'a [PathBuf],
    list: Vec<Guard>,
    /// Where in the list an entry is.
    known: BTreeMap<PathBuf, usize>,
    placeholders: Vec<Placeholder>,
    /// How many links led to what is looked at.
    links: usize,
}

/// Finds what to guard. On trouble no placeholder is left.
pub(super) fn find(roots: &[Root], policy: &Policy) -> Result<(Vec<Guard>, Vec<Placeholder>), Trouble> {
    let (list, known, placeholders) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut guards = Guards { roots, homes: &policy.homes, list, known, placeholders, links: 0 };
    let found = (0..roots.len()).try_for_each(|root| guards.root(root));
    match found.and_then(|()| policy.locked.iter().try_for_each(|path| guards.locked(path))) {
        Ok(()) => Ok((guards.list, guards.placeholders)),
        Err(trouble) => {
            remove(guards.placeholders);
            Err(trouble)
        }
    }
}

/// Frees the names that were taken.
pub(super) fn remove(placeholders: Vec<Placeholder>) {
    for placeholder in placeholders {
        // What cannot be removed is found again by the next command, by its mark.
        placeholder.remove().ok();
    }
}

impl Guards<'_> {
    fn root(&mut self, root: usize) -> Result<(), Trouble> {
        for name in PROTECTED.into_iter().filter(|name| *name != ".git") {
            // Always a folder, also for what is a file elsewhere: git does not see empty folders, and
            // would add an empty file to a commit.
            self.guard(root, Path::new(name), Free::Take(Kind::Folder))?;
        }
        for name in PROTECTED_ANYWHERE {
            // Where it is not the home they start nothing, and an empty file would get into a commit.
            self.guard(root, Path::new(name), Free::Leave)?;
        }
        if self.homes.contains(&self.roots[root].path) {
            for name in PROTECTED_IN_HOME {
                let kind = if HOME_FOLDERS.contains(&name) { Kind::Folder } else { Kind::File("") };
                self.guard(root, Path::new(name), Free::Take(kind))?;
            }
        }
        self.top_repository(root)?;
        self.around(root)?;
        self.deeper(root)
    }

    /// What the policy locks, as far as it is there.
    fn locked(&mut self, path: &Path) -> Result<(), Trouble> {
        (0..self.roots.len()).try_for_each(|root| match path.strip_prefix(&self.roots[root].path) {
            Ok(below) if !below.as_os_str().is_empty() => self.guard(root, below, Free::Never),
            _ => Ok(()),
        })
    }

    /// The repository of the root itself, there or not.
    fn top_repository(&mut self, root: usize) -> Result<(), Trouble> {
        if git::is_repository(&self.roots[root].path) {
            return self.inside_repository(root, Path::new(""), 0);
        }
        let git = Path::new(".git");
        match self.kind(root, git) {
            Some(FileType::Directory) if !self.is_placeholder(root, git) => self.repository(root, git, 0),
            _ => {
                // Where there is no repository, git takes a folder with a HEAD for one.
                self.guard(root, Path::new("HEAD"), Free::Take(Kind::Folder))?;
                self.guard(root, git, Free::Take(Kind::Folder))?;
                // A linked working tree or a submodule, whose repository is elsewhere.
                let tree = self.roots[root].path.clone();
                self.named(&tree.join(git), &tree, Free::Take(Kind::Folder))
            }
        }
    }

    /// What is protected further below, as far as it is there. Names that are free stay free: to hold each of
    /// them in each folder would litter the project.
    fn deeper(&mut self, root: usize) -> Result<(), Trouble> {
        for (below, what) in protected_below(&self.roots[root].path) {
            let top = below.components().nth(1).is_none();
            match (what, held_of(&below)) {
                (Protected::Repository, _) if top && below == Path::new(".git") => {}
                (Protected::Repository, _) => self.deeper_repository(root, &below)?,
                (Protected::Settings, None) => {}
                (Protected::Settings, Some([])) => {
                    self.guard(root, &below, Free::Never)?;
                    if !top && below.file_name() == Some(OsStr::new(".git")) {
                        self.deeper_named(root, &below)?;
                    }
                }
                (Protected::Settings, Some(held)) => {
                    held.iter().try_for_each(|name| self.guard(root, &below.join(name), Free::Never))?;
                }
            }
        }
        Ok(())
    }

    fn deeper_repository(&mut self, root: usize, folder: &Path) -> Result<(), Trouble> {
        for name in PROTECTED_IN_GIT {
            self.guard(root, &folder.join(name), Free::Never)?;
        }
        self.deeper_named(root, folder)
    }

    fn deeper_named(&mut self, root: usize, git: &Path) -> Result<(), Trouble> {
        let git = self.roots[root].path.join(git);
        let tree = if git.ends_with(".git") { git.parent() } else { None }.unwrap_or(&git);
        self.named(&git, tree, Free::Never)
    }

    /// What a repository names, if it is below a root. The folder of hooks is held also where it is not there: git
    /// runs what is put into it.
    fn named(&mut self, git: &Path, tree: &Path, files: Free) -> Result<(), Trouble> {
        let named = git::named_paths(git, tree);
        named.hooks.iter().try_for_each(|hooks| self.guard_named(hooks, Free::Take(Kind::Folder)))?;
        named.files.iter().try_for_each(|file| self.guard_named(file, files))
    }

    /// What repositories around the root name in it.
    fn around(&mut self, root: usize) -> Result<(), Trouble> {
        let folders: Vec<PathBuf> = self.roots[root].path.ancestors().skip(1).map(Path::to_owned).collect();
        let mut folders = folders.into_iter().map(|folder| (folder.join(".git"), folder));
        folders.try_for_each(
            |(git, folder)| {
                if git.exists() { self.named(&git, &folder, Free::Never) } else { Ok(()) }
            },
        )
    }

    /// The folder of a repository: written by every commit, except for what makes git run something.
    fn repository(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), Trouble> {
        self.hold(root, folder, Hold::Pinned);
        self.inside_repository(root, folder, depth)
    }

    fn inside_repository(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), Trouble> {
        for name in PROTECTED_IN_GIT {
            let kind = match name {
                "hooks" => Kind::Folder,
                // Says that the repository is where it is, which git takes for granted otherwise.
                "commondir" => Kind::File(".\n"),
                _ => Kind::File(""),
            };
            self.guard(root, &folder.join(name), Free::Take(kind))?;
        }
        let tree = self.roots[root].path.clone();
        self.named(&tree.join(folder), &tree, Free::Take(Kind::Folder))?;
        self.worktrees(root, &folder.join("worktrees"))?;
        self.modules(root, &folder.join("modules"), depth + 1)
    }

    /// Each linked working tree has settings of its own, and says where the repository is.
    fn worktrees(&mut self, root: usize, folder: &Path) -> Result<(), Trouble> {
        for name in self.folders_in(root, folder) {
            self.hold(root, folder, Hold::Pinned);
            let worktree = folder.join(name);
            self.hold(root, &worktree, Hold::Pinned);
            for name in ["commondir", "gitdir", "config.worktree"] {
                self.guard(root, &worktree.join(name), Free::Leave)?;
            }
        }
        Ok(())
    }

    /// Repositories of submodules, which lie in folders named after their paths.
    fn modules(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), Trouble> {
        if self.kind(root, folder) != Some(FileType::Directory) {
            return Ok(());
        }
        if depth > MODULE_DEPTH_MAX || self.list.len() > MODULES_MAX {
            // Too much to look at: then nothing there may be changed.
            self.hold(root, folder, Hold::ReadOnly);
            return Ok(());
        }
        for name in self.folders_in(root, folder) {
            self.hold(root, folder, Hold::Pinned);
            let inner = folder.join(name);
            // By any of its parts: a command could have renamed those that are not protected.
            if REPOSITORY_PARTS.iter().any(|part| self.kind(root, &inner.join(part)).is_some()) {
                self.repository(root, &inner, depth)?;
            } else {
                self.modules(root, &inner, depth + 1)?;
            }
        }
        Ok(())
    }

    /// A path that the repository's settings name, wherever it is.
    fn guard_named(&mut self, named: &Path, free: Free) -> Result<(), Trouble> {
        let real = real_path(named);
        let inside = (0..self.roots.len()).find_map(|root| {
            let below = real.strip_prefix(&self.roots[root].path).ok()?;
            (!below.as_os_str().is_empty()).then(|| (root, below.to_owned()))
        });
        match inside {
            Some((root, below)) => self.guard(root, &below, free),
            // Outside nothing is written anyway.
            None => Ok(()),
        }
    }

    /// What a link leads to, there or not. One that leads back to itself leads nowhere.
    fn follow(&mut self, link: &Path, rest: &Path, free: Free) -> Result<(), Trouble> {
        let Ok(target) = std::fs::read_link(link) else { return Ok(()) };
        if self.links >= LINKS_MAX {
            return Ok(());
        }
        let named = link.parent().unwrap_or(link).join(target);
        // What is joined with nothing ends in a slash, and then it is no file.
        let named = if rest.as_os_str().is_empty() { named } else { named.join(rest) };
        self.links += 1;
        let guarded = self.guard_named(&named, free);
        self.links -= 1;
        guarded
    }

    /// Makes an entry read-only and pins the way to it.
    fn guard(&mut self, root: usize, below: &Path, free: Free) -> Result<(), Trouble> {
        let mut ancestors: Vec<&Path> =
            below.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        ancestors.reverse();
        for step in ancestors {
            let last = step == below;
            match self.kind(root, step) {
                None if matches!(free, Free::Leave | Free::Never) => return Ok(()),
                None => {
                    let kind = match free {
                        Free::Take(kind) if last => kind,
                        _ => Kind::Folder,
                    };
                    return self.take(root, step, kind);
                }
                Some(FileType::Symlink) => {
                    // The link stays as it is, and so does what it leads to.
                    self.hold(root, step, Hold::ReadOnly);
                    let rest = below.strip_prefix(step).unwrap_or(Path::new(""));
                    let free = if free == Free::Never { free } else { Free::Take(Kind::Folder) };
                    return self.follow(&self.roots[root].path.join(step), rest, free);
                }
                Some(_) if last => {
                    if let Free::Take(kind) = free {
                        return self.take(root, step, kind);
                    }
                    self.hold(root, step, Hold::ReadOnly);
                }
                Some(FileType::Directory) => self.hold(root, step, Hold::Pinned),
                // Below a file there is nothing.
                Some(_) => {
                    self.hold(root, step, Hold::ReadOnly);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Holds a name that the person may have or not have.
    fn take(&mut self, root: usize, below: &Path, kind: Kind) -> Result<(), Trouble> {
        let known = self.known.get(&self.roots[root].path.join(below));
        if known.is_some_and(|at| self.list[*at].hold == Hold::ReadOnly) {
            return Ok(());
        }
        let parent = self.open(root, below.parent().unwrap_or(Path::new("")));
        let name = Path::new(below.file_name().unwrap_or(OsStr::new("")));
        match parent.map_err(io::Error::from).and_then(|parent| claim(&parent, name, kind)) {
            Ok(Found::Theirs) => {}
            Ok(Found::Ours(placeholder)) => self.placeholders.push(placeholder),
            // Where we cannot create it, neither can the command.
            Err(error) if self.nobody_can(root, below, &error) => return Ok(()),
            Err(error) => {
                let path = self.roots[root].path.join(below);
                return Err(Trouble::NoFence(format!(
                    "the name {} cannot be protected: {error}",
                    path.display()
                )));
            }
        }
        self.hold(root, below, Hold::ReadOnly);
        Ok(())
    }

    fn nobody_can(&self, root: usize, below: &Path, error: &io::Error) -> bool {
        let theirs = || {
            let parent = below.parent().unwrap_or(Path::new(""));
            let stat = self.open(root, parent).and_then(rustix::fs::fstat);
            stat.is_ok_and(|stat| stat.st_uid != rustix::process::geteuid().as_raw())
        };
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => true,
            io::ErrorKind::PermissionDenied => theirs(),
            _ => false,
        }
    }

    fn hold(&mut self, root: usize, below: &Path, hold: Hold) {
        let path = self.roots[root].path.join(below);
        match self.known.get(&path) {
            Some(at) => self.list[*at].hold = self.list[*at].hold.max(hold),
            None => {
                self.known.insert(path, self.list.len());
                self.list.push(Guard { root, below: below.into(), hold });
            }
        }
    }

    fn open(&self, root: usize, below: &Path) -> Result<OwnedFd, Errno> {
        let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&self.roots[root].handle, path, flags, Mode::empty(), resolve)
    }

    fn kind(&self, root: usize, below: &Path) -> Option<FileType> {
        let stat = statat(&self.roots[root].handle, below, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// An empty `.git` that an earlier command left.
    fn is_placeholder(&self, root: usize, below: &Path) -> bool {
        let stat = statat(&self.roots[root].handle, below, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_mode & 0o1000 != 0) && self.folders_in(root, below).is_empty()
    }

    fn folders_in(&self, root: usize, below: &Path) -> Vec<std::ffi::OsString> {
        let Ok(entries) = std::fs::read_dir(self.roots[root].path.join(below)) else { return Vec::new() };
        let folders =
            entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.map(|entry| entry.file_name()).collect()
    }
}
