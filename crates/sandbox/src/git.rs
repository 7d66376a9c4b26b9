//! What a repository's own settings make git run or read, as far as it can lie in the workspace.

use std::path::{Component, Path, PathBuf};

use crate::protected::{PROTECTED_IN_GIT, protected_below};

/// The largest settings file that is looked at; git's own are a few hundred bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Paths that the settings name and that are as good as the settings: the folder of hooks, included
/// files, and the link from a submodule's working tree to its repository. Relative hooks start at the
/// working tree, the others at the settings.
pub(crate) fn named_paths(config: &Path, tree: &Path) -> Vec<PathBuf> {
    let Some(text) = read_small(config) else { return Vec::new() };
    named_in(&text, config.parent().unwrap_or(tree), tree)
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

/// What a repository names that git runs while it only shows something. Variables cannot switch it off,
/// because the repository chose the name.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("diff", &["external", "command", "textconv"]),
    ("filter", &["clean", "smudge", "process"]),
    ("merge", &["driver"]),
];
/// The filters of large files as their installer writes them.
const KNOWN_PROGRAMS: [&str; 3] = ["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];
/// How deep settings that include others are read.
const INCLUDES_MAX: usize = 5;

/// Variables under which git, while it only shows something, runs none of the programs that a repository's
/// settings can name under a name that is known. They hold in submodules too.
pub fn git_looks_only() -> Vec<(String, String)> {
    const SETTINGS: [(&str, &str); 15] = [
        ("core.fsmonitor", "false"),
        ("core.hooksPath", "/dev/null"),
        ("core.pager", "cat"),
        ("core.sshCommand", "false"),
        ("core.askPass", ""),
        ("core.alternateRefsCommand", "true"),
        // Else `git diff` writes the index anew where a file was touched.
        ("diff.autoRefreshIndex", "false"),
        ("credential.helper", ""),
        ("protocol.allow", "never"),
        ("log.showSignature", "false"),
        ("gpg.program", "false"),
        ("gpg.openpgp.program", "false"),
        ("gpg.x509.program", "false"),
        ("gpg.ssh.program", "false"),
        ("gpg.ssh.defaultKeyCommand", "false"),
    ];
    let count = ("GIT_CONFIG_COUNT".to_owned(), SETTINGS.len().to_string());
    let settings = SETTINGS.iter().enumerate().flat_map(|(nth, (key, value))| {
        [
            (format!("GIT_CONFIG_KEY_{nth}"), (*key).to_owned()),
            (format!("GIT_CONFIG_VALUE_{nth}"), (*value).to_owned()),
        ]
    });
    let plain = [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_PAGER", "cat")];
    let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
    std::iter::once(count).chain(settings).chain(plain).collect()
}

/// The first setting of a repository in, around or below these folders that makes git run a program even then:
/// the settings file and the key.
pub fn git_program(roots: &[PathBuf]) -> Option<(PathBuf, String)> {
    let mut configs = Vec::new();
    for root in roots {
        let around = root.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists());
        around.iter().for_each(|git| configs.extend(configs_of(git)));
        if is_repository(root) {
            configs.extend(configs_of(root));
        }
        for (below, _) in protected_below(root) {
            let path = root.join(&below);
            if path.file_name().is_some_and(|name| name == ".git") || is_repository(&path) {
                configs.extend(configs_of(&path));
            }
        }
    }
    configs.sort();
    configs.dedup();
    configs.into_iter().find_map(|config| program_in(&config, 0).map(|key| (config, key)))
}

/// The settings of a repository, by its folder or by the file that leads to it.
fn configs_of(git: &Path) -> Vec<PathBuf> {
    let leads = |file: &Path, word: &str| {
        let text = read_small(file)?;
        let to = text.trim().strip_prefix(word)?.trim().to_owned();
        Some(file.parent()?.join(to))
    };
    let folder = if git.is_dir() { Some(git.to_owned()) } else { leads(git, "gitdir:") };
    let Some(folder) = folder else { return Vec::new() };
    let common = leads(&folder.join("commondir"), "");
    std::iter::once(folder)
        .chain(common)
        .flat_map(|folder| ["config", "config.worktree"].map(|name| folder.join(name)))
        .collect()
}

fn program_in(config: &Path, depth: usize) -> Option<String> {
    let text = read_small(config)?;
    settings(&text).into_iter().find_map(|Setting { section, key, value }| {
        if matches!(section.as_str(), "include" | "includeif") && key == "path" {
            // What is too deep or the person's own is not looked at; a repository rarely includes anything.
            let included = config.parent()?.join(&value);
            return (depth < INCLUDES_MAX).then(|| program_in(&included, depth + 1)).flatten();
        }
        let (_, keys) = PROGRAMS.iter().find(|(name, _)| *name == section)?;
        let runs =
            keys.contains(&key.as_str()) && !value.is_empty() && !KNOWN_PROGRAMS.contains(&value.as_str());
        runs.then(|| format!("{section}.{key}"))
    })
}

fn read_small(file: &Path) -> Option<String> {
    let small = std::fs::metadata(file).is_ok_and(|data| data.is_file() && data.len() <= CONFIG_BYTES_MAX);
    small
        .then(|| std::fs::read(file).ok())
        .flatten()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A line of a settings file. What stands in quotes after the section's name is left out.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    section: String,
    key: String,
    value: String,
}

fn settings(text: &str) -> Vec<Setting> {
    let mut section = String::new();
    let mut found = Vec::new();
    let text = text.trim_start_matches('\u{feff}').replace("\\\r\n", "").replace("\\\n", "");
    for line in text.lines() {
        let mut rest = line.trim();
        while let Some((header, after)) = rest.strip_prefix('[').and_then(split_header) {
            let name = header.split(|c: char| c.is_whitespace() || c == '"' || c == '.').next();
            section = name.unwrap_or_default().to_ascii_lowercase();
            rest = after.trim();
        }
        if let Some((key, value)) = rest.split_once('=') {
            let (section, key) = (section.clone(), key.trim().to_ascii_lowercase());
            found.push(Setting { section, key, value: plain_value(value) });
        }
    }
    found
}

/// The name of a section and what comes after it. A bracket in quotes does not end it.
fn split_header(text: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn named_in(text: &str, folder: &Path, tree: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for Setting { section, key, value } in settings(text) {
        let base = match (section.as_str(), key.as_str()) {
            ("core", "hookspath") => tree,
            ("include" | "includeif", "path") | ("core", "worktree") => folder,
            _ => continue,
        };
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

    #[test]
    fn settings_that_run_a_program_are_found_in_every_repository_around() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let make = |name: &str| {
            std::fs::create_dir_all(root.join(name).join("objects")).unwrap();
            std::fs::create_dir_all(root.join(name).join("refs")).unwrap();
            std::fs::write(root.join(name).join("HEAD"), "ref: refs/heads/main").unwrap();
            std::fs::write(root.join(name).join("config"), "[core]\n\tbare = false\n").unwrap();
        };
        ["top/.git", "top/lib/.git", "top/bare", "store/sub", "store/other"].into_iter().for_each(make);
        std::fs::create_dir_all(root.join("top/sub")).unwrap();
        std::fs::write(root.join("top/sub/.git"), "gitdir: ../../store/sub\n").unwrap();
        std::fs::write(root.join("store/sub/commondir"), "../other\n").unwrap();
        std::fs::create_dir_all(root.join("top/src")).unwrap();
        let plain = "[core]\nfsmonitor = ./x\n[alias]\nst = status\n[diff \"a]b\"]\nxfuncname = x\n[filter \"lfs\"]\nprocess = git-lfs filter-process\n";
        let check = |work: &str| git_program(&[root.join(work)]).map(|(_, key)| key);
        std::fs::write(root.join("top/.git/config"), plain).unwrap();
        assert_eq!((check("top"), check("top/src")), (None, None));
        for (config, text, key) in [
            ("top/.git/config", "[diff]\nexternal = ./x\n", "diff.external"),
            ("top/.git/config.worktree", "[diff \"x\"] textconv=./x\n", "diff.textconv"),
            ("top/lib/.git/config", "\u{feff}[core][Filter \"x\"]\n\tClean = \\\n./x\n", "filter.clean"),
            ("top/bare/config", "[diff.x]\ncommand = ./x\n", "diff.command"),
            ("store/sub/config", "[merge \"a]\"]\ndriver = ./x\n", "merge.driver"),
            ("store/other/config", "[include]\npath = more\n", "diff.external"),
        ] {
            let config = root.join(config);
            let before = std::fs::read(&config);
            std::fs::write(root.join("store/other/more"), "[diff]\nexternal = ./x\n").unwrap();
            std::fs::write(&config, text).unwrap();
            assert_eq!(check("top").as_deref(), Some(key), "{}", config.display());
            match before {
                Ok(before) => std::fs::write(&config, before).unwrap(),
                Err(_) => std::fs::remove_file(&config).unwrap(),
            }
        }
        std::fs::write(root.join("top/.git/config"), "[diff]\nexternal = ./x\n").unwrap();
        assert!(check("top/src").is_some());
    }
}
