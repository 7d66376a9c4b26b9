//! Finds the entries of the workspace that have to be guarded, before the command's view is built.
//!
//! A guarded entry is a mount of its own: read-only, or only pinned. A mount cannot be renamed or removed from inside, so the
//! folders on the way to a read-only entry are pinned too. Without that, renaming one of them would leave its name free.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::FenceError;
use super::placeholder::{ClaimResult, Placeholder, PlaceholderKind, claim};
use crate::git::{self, real_path};
use crate::policy::Policy;
use crate::protected_names::{
    PROTECTED, PROTECTED_ANYWHERE, PROTECTED_IN_GIT, PROTECTED_IN_HOME, ProtectedKind, guarded_parts,
    protected_below,
};

/// How deep and how many repositories of submodules are looked for.
const MODULE_DEPTH_MAX: usize = 8;
const MODULES_MAX: usize = 200;
/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;
/// Which of the protected entries of a home folder are folders.
const HOME_FOLDERS: [&str; 7] = [".ssh", ".config", ".local", ".cargo", ".vim", ".chimera", ".gnupg"];
/// Entries by which the folder of a repository is recognised.
const REPOSITORY_PARTS: [&str; 5] = ["HEAD", "config", "hooks", "objects", "refs"];

/// A writable root.
pub(super) struct WritableRoot {
    pub(super) path: PathBuf,
    handle: OwnedFd,
}

impl WritableRoot {
    pub(super) fn open(path: &Path) -> Result<Self, FenceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let handle = handle.map_err(|error| {
            FenceError::NoFence(format!(
                "the folder {} cannot be opened without following links: {error}",
                path.display()
            ))
        })?;
        Ok(Self { path: path.into(), handle })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GuardKind {
    Pinned,
    ReadOnly,
}

/// An entry below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuardedEntry {
    pub(super) root: usize,
    pub(super) below: PathBuf,
    pub(super) hold: GuardKind,
}

/// What to do if the entry does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Leave,
    /// Leave it, and also the target of a link with that name.
    Never,
    Take(PlaceholderKind),
}

pub(super) struct GuardFinder<'a> {
    roots: &'a [WritableRoot],
    homes: &'a [PathBuf],
    list: Vec<GuardedEntry>,
    /// The index of an entry in the list.
    known: BTreeMap<PathBuf, usize>,
    placeholders: Vec<Placeholder>,
    /// How many links were followed to the current entry.
    links: usize,
}

/// Finds what to guard. On an error no placeholder is left.
pub(super) fn find(
    roots: &[WritableRoot],
    policy: &Policy,
) -> Result<(Vec<GuardedEntry>, Vec<Placeholder>), FenceError> {
    let (list, known, placeholders) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut guards = GuardFinder { roots, homes: &policy.homes, list, known, placeholders, links: 0 };
    let found = (0..roots.len()).try_for_each(|root| guards.root(root));
    match found.and_then(|()| policy.locked.iter().try_for_each(|path| guards.locked(path))) {
        Ok(()) => Ok((guards.list, guards.placeholders)),
        Err(error) => {
            remove(guards.placeholders);
            Err(error)
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

impl GuardFinder<'_> {
    fn root(&mut self, root: usize) -> Result<(), FenceError> {
        for name in PROTECTED.into_iter().filter(|name| *name != ".git") {
            // Always a folder, also for what is a file elsewhere: git does not see empty folders, and
            // would add an empty file to a commit.
            self.guard(root, Path::new(name), IfMissing::Take(PlaceholderKind::Folder))?;
        }
        for name in PROTECTED_ANYWHERE {
            // Where it is not the home they start nothing, and an empty file would get into a commit.
            self.guard(root, Path::new(name), IfMissing::Leave)?;
        }
        if self.homes.contains(&self.roots[root].path) {
            for name in PROTECTED_IN_HOME {
                let kind = if HOME_FOLDERS.contains(&name) {
                    PlaceholderKind::Folder
                } else {
                    PlaceholderKind::File("")
                };
                self.guard(root, Path::new(name), IfMissing::Take(kind))?;
            }
        }
        self.top_repository(root)?;
        self.surrounding_repositories(root)?;
        self.nested_entries(root)
    }

    /// The paths that the policy locks, as far as they exist.
    fn locked(&mut self, path: &Path) -> Result<(), FenceError> {
        (0..self.roots.len()).try_for_each(|root| match path.strip_prefix(&self.roots[root].path) {
            Ok(below) if !below.as_os_str().is_empty() => self.guard(root, below, IfMissing::Never),
            _ => Ok(()),
        })
    }

    /// The repository of the root itself, whether it exists or not.
    fn top_repository(&mut self, root: usize) -> Result<(), FenceError> {
        if git::is_repository(&self.roots[root].path) {
            return self.inside_repository(root, Path::new(""), 0);
        }
        let git = Path::new(".git");
        match self.kind(root, git) {
            Some(FileType::Directory) if !self.is_placeholder(root, git) => self.repository(root, git, 0),
            _ => {
                // Where there is no repository, git takes a folder with a HEAD for one.
                self.guard(root, Path::new("HEAD"), IfMissing::Take(PlaceholderKind::Folder))?;
                self.guard(root, git, IfMissing::Take(PlaceholderKind::Folder))?;
                // A linked working tree or a submodule, whose repository is elsewhere.
                let tree = self.roots[root].path.clone();
                self.configured_paths(&tree.join(git), &tree, IfMissing::Take(PlaceholderKind::Folder))
            }
        }
    }

    /// Protected entries further below, as far as they exist. Names that are free stay free: occupying each of them in each
    /// folder would litter the project.
    fn nested_entries(&mut self, root: usize) -> Result<(), FenceError> {
        for (below, what) in protected_below(&self.roots[root].path) {
            let top = below.components().nth(1).is_none();
            match (what, guarded_parts(&below)) {
                (ProtectedKind::Repository, _) if top && below == Path::new(".git") => {}
                (ProtectedKind::Repository, _) => self.nested_repository(root, &below)?,
                (ProtectedKind::Settings, None) => {}
                (ProtectedKind::Settings, Some([])) => {
                    self.guard(root, &below, IfMissing::Never)?;
                    if !top && below.file_name() == Some(OsStr::new(".git")) {
                        self.nested_configured_paths(root, &below)?;
                    }
                }
                (ProtectedKind::Settings, Some(held)) => {
                    held.iter().try_for_each(|name| self.guard(root, &below.join(name), IfMissing::Never))?;
                }
            }
        }
        Ok(())
    }

    fn nested_repository(&mut self, root: usize, folder: &Path) -> Result<(), FenceError> {
        for name in PROTECTED_IN_GIT {
            self.guard(root, &folder.join(name), IfMissing::Never)?;
        }
        self.nested_configured_paths(root, folder)
    }

    fn nested_configured_paths(&mut self, root: usize, git: &Path) -> Result<(), FenceError> {
        let git = self.roots[root].path.join(git);
        let tree = if git.ends_with(".git") { git.parent() } else { None }.unwrap_or(&git);
        self.configured_paths(&git, tree, IfMissing::Never)
    }

    /// What a repository's settings name, if it is below a root. The folder of hooks is guarded even if it does not exist:
    /// git runs what is put into it.
    fn configured_paths(&mut self, git: &Path, tree: &Path, files: IfMissing) -> Result<(), FenceError> {
        let named = git::named_paths(git, tree);
        named
            .hooks
            .iter()
            .try_for_each(|hooks| self.guard_named(hooks, IfMissing::Take(PlaceholderKind::Folder)))?;
        named.files.iter().try_for_each(|file| self.guard_named(file, files))
    }

    /// What the settings of repositories around the root name inside it.
    fn surrounding_repositories(&mut self, root: usize) -> Result<(), FenceError> {
        let folders: Vec<PathBuf> = self.roots[root].path.ancestors().skip(1).map(Path::to_owned).collect();
        let mut folders = folders.into_iter().map(|folder| (folder.join(".git"), folder));
        folders.try_for_each(|(git, folder)| {
            if git.exists() { self.configured_paths(&git, &folder, IfMissing::Never) } else { Ok(()) }
        })
    }

    /// The folder of a repository: written by every commit, except for what makes git run something.
    fn repository(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), FenceError> {
        self.add_guard(root, folder, GuardKind::Pinned);
        self.inside_repository(root, folder, depth)
    }

    fn inside_repository(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), FenceError> {
        for name in PROTECTED_IN_GIT {
            let kind = match name {
                "hooks" => PlaceholderKind::Folder,
                // Says that the repository is where it is, which git takes for granted otherwise.
                "commondir" => PlaceholderKind::File(".\n"),
                _ => PlaceholderKind::File(""),
            };
            self.guard(root, &folder.join(name), IfMissing::Take(kind))?;
        }
        let tree = self.roots[root].path.clone();
        self.configured_paths(&tree.join(folder), &tree, IfMissing::Take(PlaceholderKind::Folder))?;
        self.worktrees(root, &folder.join("worktrees"))?;
        self.modules(root, &folder.join("modules"), depth + 1)
    }

    /// Each linked working tree has settings of its own, and says where the repository is.
    fn worktrees(&mut self, root: usize, folder: &Path) -> Result<(), FenceError> {
        for name in self.folders_in(root, folder) {
            self.add_guard(root, folder, GuardKind::Pinned);
            let worktree = folder.join(name);
            self.add_guard(root, &worktree, GuardKind::Pinned);
            for name in ["commondir", "gitdir", "config.worktree"] {
                self.guard(root, &worktree.join(name), IfMissing::Leave)?;
            }
        }
        Ok(())
    }

    /// Repositories of submodules, which lie in folders named after their paths.
    fn modules(&mut self, root: usize, folder: &Path, depth: usize) -> Result<(), FenceError> {
        if self.kind(root, folder) != Some(FileType::Directory) {
            return Ok(());
        }
        if depth > MODULE_DEPTH_MAX || self.list.len() > MODULES_MAX {
            // Too many to examine: then nothing there may be changed.
            self.add_guard(root, folder, GuardKind::ReadOnly);
            return Ok(());
        }
        for name in self.folders_in(root, folder) {
            self.add_guard(root, folder, GuardKind::Pinned);
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
    fn guard_named(&mut self, named: &Path, free: IfMissing) -> Result<(), FenceError> {
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

    /// Guards the target of a link, whether it exists or not. A link that leads back to itself leads nowhere.
    fn follow(&mut self, link: &Path, rest: &Path, free: IfMissing) -> Result<(), FenceError> {
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
    fn guard(&mut self, root: usize, below: &Path, free: IfMissing) -> Result<(), FenceError> {
        let mut ancestors: Vec<&Path> =
            below.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        ancestors.reverse();
        for step in ancestors {
            let last = step == below;
            match self.kind(root, step) {
                None if matches!(free, IfMissing::Leave | IfMissing::Never) => return Ok(()),
                None => {
                    let kind = match free {
                        IfMissing::Take(kind) if last => kind,
                        _ => PlaceholderKind::Folder,
                    };
                    return self.occupy_or_guard(root, step, kind);
                }
                Some(FileType::Symlink) => {
                    // The link stays as it is, and so does what it leads to.
                    self.add_guard(root, step, GuardKind::ReadOnly);
                    let rest = below.strip_prefix(step).unwrap_or(Path::new(""));
                    let free = if free == IfMissing::Never {
                        free
                    } else {
                        IfMissing::Take(PlaceholderKind::Folder)
                    };
                    return self.follow(&self.roots[root].path.join(step), rest, free);
                }
                Some(_) if last => {
                    if let IfMissing::Take(kind) = free {
                        return self.occupy_or_guard(root, step, kind);
                    }
                    self.add_guard(root, step, GuardKind::ReadOnly);
                }
                Some(FileType::Directory) => self.add_guard(root, step, GuardKind::Pinned),
                // Below a file there is nothing.
                Some(_) => {
                    self.add_guard(root, step, GuardKind::ReadOnly);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Guards a name that may or may not exist; a free one is occupied by a placeholder.
    fn occupy_or_guard(
        &mut self,
        root: usize,
        below: &Path,
        kind: PlaceholderKind,
    ) -> Result<(), FenceError> {
        let known = self.known.get(&self.roots[root].path.join(below));
        if known.is_some_and(|at| self.list[*at].hold == GuardKind::ReadOnly) {
            return Ok(());
        }
        let parent = self.open(root, below.parent().unwrap_or(Path::new("")));
        let name = Path::new(below.file_name().unwrap_or(OsStr::new("")));
        match parent.map_err(io::Error::from).and_then(|parent| claim(&parent, name, kind)) {
            Ok(ClaimResult::Theirs) => {}
            Ok(ClaimResult::Ours(placeholder)) => self.placeholders.push(placeholder),
            // Where we cannot create it, neither can the command.
            Err(error) if self.is_unwritable(root, below, &error) => return Ok(()),
            Err(error) => {
                let path = self.roots[root].path.join(below);
                return Err(FenceError::NoFence(format!(
                    "the name {} cannot be protected: {error}",
                    path.display()
                )));
            }
        }
        self.add_guard(root, below, GuardKind::ReadOnly);
        Ok(())
    }

    fn is_unwritable(&self, root: usize, below: &Path, error: &io::Error) -> bool {
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

    fn add_guard(&mut self, root: usize, below: &Path, hold: GuardKind) {
        let path = self.roots[root].path.join(below);
        match self.known.get(&path) {
            Some(at) => self.list[*at].hold = self.list[*at].hold.max(hold),
            None => {
                self.known.insert(path, self.list.len());
                self.list.push(GuardedEntry { root, below: below.into(), hold });
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
