//! What a repository's own settings make git run or read, as far as it can lie in the workspace.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::protected::PROTECTED_IN_GIT;

mod index;
mod programs;
mod settings;

pub use programs::{git_looks_only, git_program};
use settings::{Settings, read_file};

/// The largest file that only says where a repository is.
const LINK_BYTES_MAX: u64 = 1 << 16;

/// Paths that the settings name and that are as good as the settings: the folder of hooks, included
/// files, and the link from a submodule's working tree to its repository. Relative hooks start at the
/// working tree, the others at the settings.
pub(crate) fn named_paths(config: &Path, tree: &Path) -> Vec<PathBuf> {
    let settings = Settings::read(&[config.to_owned()]);
    let mut found = Vec::new();
    for setting in &settings.list {
        match (setting.section.as_str(), setting.key.as_str()) {
            ("core", "hookspath") => found.extend(setting.paths(tree)),
            ("core", "worktree") => {
                found.extend(setting.paths_by_file().into_iter().map(|tree| tree.join(".git")));
            }
            _ if setting.includes() => found.extend(setting.paths_by_file()),
            _ => {}
        }
    }
    found
}

/// What is locked below a root because of git, besides the names that always are.
pub(crate) fn locked_below(root: &Path) -> Vec<PathBuf> {
    let own = root.join(".git");
    if own.is_dir() {
        return named_paths(&own.join("config"), root).iter().map(|named| real_path(named)).collect();
    }
    if is_repository(root) {
        return PROTECTED_IN_GIT.map(|name| root.join(name)).into();
    }
    // Where there is no repository, git takes a folder with a HEAD for one.
    vec![root.join("HEAD")]
}

/// Whether the folder is what is called `.git` elsewhere, or a repository without a working tree.
pub(crate) fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

/// The folders in which git keeps a repository, by the folder or the file that is called `.git`: its own and
/// the one that it shares with other working trees. The error says why that cannot be read.
fn repository_folders(git: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let folder = if git.is_dir() { Some(git.to_owned()) } else { leads(git, b"gitdir:")? };
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let common = leads(&folder.join("commondir"), b"")?;
    Ok(std::iter::once(folder).chain(common).collect())
}

/// Where a file leads that holds one path.
fn leads(file: &Path, word: &[u8]) -> Result<Option<PathBuf>, &'static str> {
    let Some(bytes) = read_file(file, LINK_BYTES_MAX)? else { return Ok(None) };
    let Some(path) = bytes.strip_prefix(word) else { return Ok(None) };
    let path = path.strip_prefix(b" ").unwrap_or(path);
    let end = path.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let to = PathBuf::from(OsString::from_vec(path[..end].to_vec()));
    Ok(file.parent().map(|folder| folder.join(to)))
}

/// The path without links and dots, as far as it exists; what does not exist is kept as it is written.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut known = path;
    loop {
        if let Ok(real) = known.canonicalize() {
            return rest.iter().rev().fold(real, |real, part: &Component<'_>| match part {
                Component::ParentDir => real.parent().map(Path::to_owned).unwrap_or(real),
                Component::Normal(name) => real.join(name),
                _ => real,
            });
        }
        match (known.components().next_back(), known.parent()) {
            (Some(last), Some(parent)) => {
                rest.push(last);
                known = parent;
            }
            _ => return path.into(),
        }
    }
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
        assert_eq!(
            named_paths(&git.join("config"), Path::new("/w")),
            [
                Path::new("/w/.husky/_"),
                &git.join("../shared.cfg"),
                Path::new("/b/c"),
                &git.join("../../../sub/.git")
            ]
        );
    }
}
