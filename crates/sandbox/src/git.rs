//! What a repository's own settings make git run or read, as far as it can lie in the workspace.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::protected_names::{PROTECTED_IN_GIT, protected_below};
use crate::user_home_folders::account_homes;

mod index;
mod setting_programs;
mod settings;

pub use setting_programs::{git_program_setting, git_read_only_environment};
use settings::{GitSetting, GitSettings, read_file};

/// The largest file that only contains the path of a repository.
const LINK_BYTES_MAX: u64 = 1 << 16;

/// Paths that a repository names and that are as good as its settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedPaths {
    /// Folders of hooks. Relative ones start at the working tree.
    pub(crate) hooks: Vec<PathBuf>,
    /// Included settings, the link from a submodule's working tree to its repository, and what stands in the
    /// place of its hooks and settings.
    pub(crate) files: Vec<PathBuf>,
}

/// What a repository names, by the folder or the file that is called `.git` and the folder that is its working
/// tree unless it names another. Touches the disk.
pub(crate) fn named_paths(git: &Path, tree: &Path) -> NamedPaths {
    let folders = repository_folders(git).unwrap_or_default();
    let settings = GitSettings::read(&config_files(&folders));
    let mut trees: Vec<PathBuf> =
        settings.all("core", "worktree").flat_map(|setting| setting.paths(&account_homes())).collect();
    let links = trees.iter().map(|tree| tree.join(".git"));
    let included = settings.list.iter().filter(|setting| setting.includes());
    let included = included.flat_map(|setting| setting.paths(&account_homes()));
    let own = folders.iter().flat_map(|folder| PROTECTED_IN_GIT.map(|name| folder.join(name)));
    // Where these are links, what they lead to has another name.
    let own = own.filter(|path| path.is_symlink());
    let files = own.chain(links).chain(included).collect();
    if trees.is_empty() {
        trees.push(tree.to_owned());
    }
    // Of several in one file the last counts.
    let hooks: BTreeMap<&PathBuf, &GitSetting> =
        settings.all("core", "hookspath").map(|setting| (&setting.file, setting)).collect();
    let hooks = hooks.into_values().flat_map(|setting| {
        trees.iter().flat_map(|tree| setting.paths_from(tree, &account_homes())).collect::<Vec<_>>()
    });
    NamedPaths { hooks: hooks.collect(), files }
}

impl NamedPaths {
    /// All of them, without links and dots.
    fn real_paths(self) -> impl Iterator<Item = PathBuf> {
        self.hooks.into_iter().chain(self.files).map(|named| real_path(&named))
    }
}

/// What is locked below a root because of git, besides the names that always are: by repositories at the root
/// and around it. Touches the disk.
pub(crate) fn locked_below(root: &Path) -> Vec<PathBuf> {
    let mut locked: Vec<PathBuf> = Vec::new();
    if is_repository(root) {
        locked.extend(PROTECTED_IN_GIT.map(|name| root.join(name)));
    } else if !root.join(".git").is_dir() {
        // Where there is no repository, git takes a folder with a HEAD for one.
        locked.push(root.join("HEAD"));
    }
    let around = root.ancestors().filter_map(|folder| named_at(&folder.join(".git")));
    locked.extend(in_root(root, around));
    locked
}

/// What repositories below a root name, each of them anywhere in the root. Looks through many folders.
pub(crate) fn named_below(root: &Path) -> Vec<PathBuf> {
    let below = protected_below(root).into_iter().map(|(below, _)| root.join(below));
    in_root(root, below.filter_map(|path| named_at(&path))).collect()
}

/// A folder around the root can hold hooks, but nothing in the root is one.
fn in_root(root: &Path, named: impl Iterator<Item = NamedPaths>) -> impl Iterator<Item = PathBuf> {
    named.flat_map(NamedPaths::real_paths).filter(move |path| path == root || !root.starts_with(path))
}

/// Whether a repository between a root and a path names the path, or a folder around it. Touches the disk.
pub(crate) fn is_named(path: &Path, root: &Path) -> bool {
    let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    let named = folders.filter_map(|folder| named_at(&folder.join(".git")));
    in_root(root, named).any(|named| path.starts_with(named))
}

/// What a repository names, if there is one: a folder or file called `.git`, or one without a working tree.
fn named_at(path: &Path) -> Option<NamedPaths> {
    let tree = match path.file_name()? {
        name if name == ".git" && path.exists() => path.parent()?,
        _ if is_repository(path) => path,
        _ => return None,
    };
    Some(named_paths(path, tree))
}

/// Whether the folder is what is called `.git` elsewhere, or a repository without a working tree.
pub(crate) fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

/// The folders in which git keeps a repository, by the folder or the file that is called `.git`: its own and
/// the one that it shares with other working trees. The error is why that cannot be read.
fn repository_folders(git: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let folder = if git.is_dir() { Some(git.to_owned()) } else { pointed_folder(git, b"gitdir:")? };
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let common = pointed_folder(&folder.join("commondir"), b"")?;
    Ok(std::iter::once(folder).chain(common).collect())
}

fn config_files(folders: &[PathBuf]) -> Vec<PathBuf> {
    folders.iter().flat_map(|folder| ["config", "config.worktree"].map(|name| folder.join(name))).collect()
}

/// Where a file leads that holds one path.
fn pointed_folder(file: &Path, word: &[u8]) -> Result<Option<PathBuf>, &'static str> {
    let Some(bytes) = read_file(file, LINK_BYTES_MAX)? else { return Ok(None) };
    let Some(path) = bytes.strip_prefix(word) else { return Ok(None) };
    let path = path.strip_prefix(b" ").unwrap_or(path);
    let end = path.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let to = PathBuf::from(OsString::from_vec(path[..end].to_vec()));
    Ok(file.parent().map(|folder| folder.join(to)))
}

/// How many dangling links are followed.
const DANGLING_MAX: usize = 40;

/// The path without links and dots, as far as it exists; the rest stays as it is written. A dangling link is followed:
/// creating its target would create the entry.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..DANGLING_MAX {
        match resolve_dangling_link(&path) {
            Some(target) => path = target,
            None => break,
        }
    }
    let (known, rest) = existing_part(&path);
    let Ok(real) = known.canonicalize() else { return path };
    rest.iter().rev().fold(real, |real, part| match part {
        Component::ParentDir => real.parent().map(Path::to_owned).unwrap_or(real),
        Component::Normal(name) => real.join(name),
        _ => real,
    })
}

/// The path with its first dangling link replaced by the link's target.
fn resolve_dangling_link(path: &Path) -> Option<PathBuf> {
    let (known, rest) = existing_part(path);
    let link = known.join(rest.last()?);
    let target = known.join(std::fs::read_link(link).ok()?);
    Some(rest.iter().rev().skip(1).fold(target, |path, part| path.join(part)))
}

/// The part of a path that exists, and the components behind it, last one first.
fn existing_part(path: &Path) -> (&Path, Vec<Component<'_>>) {
    let (mut known, mut rest) = (path, Vec::new());
    while !known.exists() {
        let (Some(last), Some(parent)) = (known.components().next_back(), known.parent()) else { break };
        rest.push(last);
        known = parent;
    }
    (known, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_and_includes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        let text = "[core]\n\tbare = false\n\tHooksPath = \".husky/_\" ; mine\n[remote \"x\"]\n path = no\n\
                    [include]\npath = ../shared.cfg\n[includeIf \"gitdir:/a\"] path=/b/c # d\n\
                    [core]\nworktree = ../../../sub\n";
        std::fs::write(git.join("config"), text).unwrap();
        let tree = folder.path().join("tree");
        let named = named_paths(&git, &tree);
        assert_eq!(named.hooks, [git.join("../../../sub/.husky/_")], "it has another working tree");
        assert_eq!(
            named.files,
            [git.join("../../../sub/.git"), git.join("../shared.cfg"), PathBuf::from("/b/c")]
        );
        std::fs::write(git.join("config"), "[core]\nhooksPath = a\n").unwrap();
        assert_eq!(named_paths(&git, &tree).hooks, [tree.join("a")]);
    }
}
