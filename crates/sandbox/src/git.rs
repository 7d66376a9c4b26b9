//! What a repository's own settings make git run or read, as far as it can lie in the workspace.

use std::path::{Component, Path, PathBuf};

use crate::policy::PROTECTED_IN_GIT;

/// The largest settings file that is looked at; git's own are a few hundred bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Paths that the settings name and that are as good as the settings: the folder of hooks, included
/// files, and the link from a submodule's working tree to its repository. Relative hooks start at the
/// working tree, the others at the settings.
pub(crate) fn named_paths(config: &Path, tree: &Path) -> Vec<PathBuf> {
    let small = std::fs::metadata(config).is_ok_and(|data| data.len() <= CONFIG_BYTES_MAX);
    let Some(bytes) = small.then(|| std::fs::read(config).ok()).flatten() else { return Vec::new() };
    let folder = config.parent().unwrap_or(tree);
    named_in(&String::from_utf8_lossy(&bytes), folder, tree)
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

fn named_in(text: &str, folder: &Path, tree: &Path) -> Vec<PathBuf> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let entry = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, rest)) => {
                let name = name.split(|c: char| c.is_whitespace() || c == '"').next().unwrap_or_default();
                section = name.to_ascii_lowercase();
                rest.trim()
            }
            None => line,
        };
        let Some((key, value)) = entry.split_once('=') else { continue };
        let base = match (section.as_str(), key.trim().to_ascii_lowercase().as_str()) {
            ("core", "hookspath") => tree,
            ("include" | "includeif", "path") | ("core", "worktree") => folder,
            _ => continue,
        };
        let value = plain_value(value);
        if !value.is_empty() && !value.starts_with('~') {
            let named = base.join(value);
            let is_tree = section == "core" && base == folder;
            found.push(if is_tree { named.join(".git") } else { named });
        }
    }
    found
}

/// A value without quotes and comment.
fn plain_value(value: &str) -> String {
    let (mut plain, mut quoted, mut escaped) = (String::new(), false, false);
    for c in value.trim().chars() {
        match c {
            _ if escaped => {
                plain.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            _ => plain.push(c),
        }
    }
    plain.trim().to_owned()
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
        let text = "[core]\n\tbare = false\n\tHooksPath = \".husky/_\" ; mine\n[remote \"x\"]\n path = no\n\
                    [include]\npath = ../shared.cfg\n[includeIf \"gitdir:/a\"] path=/b/c # d\n[core] hookspath=~/h\n\
                    [core]\nworktree = ../../../sub\n";
        let found = named_in(text, Path::new("/w/.git"), Path::new("/w"));
        assert_eq!(
            found,
            [
                Path::new("/w/.husky/_"),
                Path::new("/w/.git/../shared.cfg"),
                Path::new("/b/c"),
                Path::new("/w/.git/../../../sub/.git")
            ]
        );
    }
}
