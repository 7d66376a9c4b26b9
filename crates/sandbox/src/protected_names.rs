//! Names that only the person may create or change, because they make an editor, a shell, git, an agent or a version manager
//! run something when a folder is opened or used.
//!
//! They count at every depth: a folder below the workspace is opened like any other, and git looks into repositories that lie
//! in another one. File tools are refused by the path alone. Commands are stopped by mounts, which need an existing entry. So
//! what exists below the workspace is searched for before a command runs, and what is new is searched for afterwards.

use std::collections::{BTreeSet, VecDeque};
use std::fs::FileType;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use crate::git::{is_repository, locked_below};

/// Names that are occupied by placeholders while a command runs if they do not exist directly below a root.
pub const PROTECTED: [&str; 12] = [
    ".git",
    ".ropewalk",
    ".vscode",
    ".idea",
    ".zed",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".agents",
    ".mcp.json",
    ".envrc",
];

/// More names that neither file tools nor commands change.
const MORE_PROTECTED: [&str; 73] = [
    ".aider.conf.yml",
    ".continue",
    ".cline",
    ".devcontainer",
    ".devcontainer.json",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".direnv",
    ".env.enter",
    ".exrc",
    ".fleet",
    ".gdbinit",
    ".goose",
    ".gvimrc",
    ".hg",
    ".husky",
    ".jj",
    ".kilocode",
    ".kimi",
    ".kiro",
    ".lldbinit",
    ".lvimrc",
    ".mise",
    ".mise.local.toml",
    ".mise.toml",
    ".nova",
    ".nvim.lua",
    ".nvimrc",
    ".opencode",
    ".qwen",
    ".roo",
    ".rtx.toml",
    ".theia",
    ".vimrc",
    ".vs",
    ".windsurf",
    "mise.local.toml",
    "mise.toml",
    "opencode.json",
    "opencode.jsonc",
    ".opencode.json",
    ".svn",
    ".amazonq",
    ".augment",
    ".autoenv.zsh",
    ".autoenv_leave.zsh",
    ".bsp",
    ".cargo",
    ".copilot",
    ".crush.json",
    ".env.leave",
    ".factory",
    ".ghci",
    ".helix",
    ".iex.exs",
    ".irbrc",
    ".junie",
    ".lapce",
    ".lazy.lua",
    ".ocamlinit",
    ".openhands",
    ".pdbrc",
    ".perldb",
    ".pryrc",
    ".rdbgrc",
    ".renviron",
    ".ropeproject",
    ".rprofile",
    ".run",
    ".shadowenv.d",
    ".trae",
    ".ycm_extra_conf.py",
    "crush.json",
];
/// Endings of names that neither change: projects of editors.
const MORE_ENDINGS: [&str; 2] = [".code-workspace", ".sublime-project"];
/// Names that are protected only in a folder of the first name.
const MORE_IN: [(&str, &str); 4] =
    [(".config", "mise"), (".config", "mise.toml"), ("mise", "config.toml"), ("mise", "config.local.toml")];

/// Names that file tools do not change. Git itself changes them when it switches branches, so a command may.
const TOOLS_ONLY: [&str; 8] = [
    ".gitmodules",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".simple-git-hooks.cjs",
    ".simple-git-hooks.js",
    ".simple-git-hooks.json",
    "simple-git-hooks.json",
];
/// The same with any ending: `lefthook.yml`, `.lefthook-local.toml`.
const TOOLS_ONLY_STEMS: [&str; 4] = ["lefthook", ".lefthook", "lefthook-local", ".lefthook-local"];
const HOOK_ENDINGS: [&str; 5] = ["yml", "yaml", "toml", "json", "jsonc"];

/// Folders of other programs in which a command must be able to work: only these entries of them are guarded.
const SETTINGS_IN: [(&str, &[&str]); 5] = [
    // Build servers write it anew whenever they start.
    (".bsp", &[]),
    // It may also be where cargo keeps what it fetched.
    (".cargo", &["config", "config.toml"]),
    (".hg", &["hgrc", "hgrc-not-shared"]),
    (".jj", &["repo/config.toml", "workspace-config.toml"]),
    (".svn", &[]),
];

/// What lies directly below the home folder, where it is read when the person logs in, opens a shell or a
/// program. In other folders most of it is part of a project.
pub(crate) const PROTECTED_IN_HOME: [&str; 27] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".inputrc",
    ".xprofile",
    ".xsessionrc",
    ".xinitrc",
    ".pam_environment",
    ".gitconfig",
    ".vimrc",
    ".tmux.conf",
    ".npmrc",
    ".ssh",
    ".config",
    ".local",
    ".cargo",
    ".vim",
    ".chimera",
    ".gnupg",
];

/// Those of them that run something wherever a shell or git reads them: guarded directly below a root.
pub(crate) const PROTECTED_ANYWHERE: [&str; 11] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".gitconfig",
    ".ssh",
];

/// Inside `.git` of a repository a command finds only these protected; commits must work.
/// `commondir` names another folder whose hooks and settings count instead.
pub(crate) const PROTECTED_IN_GIT: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// Folders that programs fill with what they fetched or built. Nobody opens them, they are removed as a whole,
/// and they can be large.
const NOT_LOOKED_INTO: [&str; 32] = [
    "node_modules",
    "bower_components",
    "target",
    "build",
    "dist",
    "out",
    "_build",
    "_deps",
    "dist-newstyle",
    ".stack-work",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    ".eggs",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".cache",
    ".gradle",
    ".next",
    ".nuxt",
    ".yarn",
    ".pnpm-store",
    ".terraform",
    "pods",
    "deriveddata",
    "zig-cache",
    ".zig-cache",
    "elm-stuff",
    "coverage",
];

/// How much of a tree is looked at, nearest first.
const FOLDERS_MAX: usize = 3000;
const DEPTH_MAX: usize = 12;
const FOUND_MAX: usize = 200;
/// Only a slow file system takes so long.
const TIME_MAX: Duration = Duration::from_millis(500);
/// How many new entries are reported one by one.
const REPORTED_MAX: usize = 5;

/// Whether only the person may change this path below a root; file tools are refused.
pub(crate) fn is_protected(below_root: &Path) -> bool {
    let names = below_root.components().filter_map(|component| match component {
        Component::Normal(name) => Some(normalised_name(&name.to_string_lossy())),
        _ => None,
    });
    // A folder with a HEAD is what git takes for a repository, with settings of its own.
    let is_head = below_root.file_name().is_some_and(|name| name == "HEAD");
    let deep = below_root.components().count() > 1;
    let names: Vec<String> = names.collect();
    is_head && deep
        || names.windows(2).any(|pair| is_name_in(&pair[0], &pair[1]))
        || names.into_iter().enumerate().any(|(depth, name)| {
            is_name(&name)
                || is_tools_only(&name)
                || depth == 0 && PROTECTED_ANYWHERE.contains(&name.as_str())
        })
}

/// What a protected entry below a root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtectedKind {
    /// The folder of a repository: `.git`, or one without a working tree.
    Repository,
    /// Whatever else has such a name.
    Settings,
}

/// Looks for protected entries below a folder, by their paths from it. Follows no link.
pub fn protected_below(root: &Path) -> Vec<(PathBuf, ProtectedKind)> {
    TreeScan::at(root).found
}

/// The protected entries that were found in a folder tree.
struct TreeScan {
    found: Vec<(PathBuf, ProtectedKind)>,
    /// Folders that were looked into, and those that there was no time for.
    seen: BTreeSet<PathBuf>,
    ahead: VecDeque<(PathBuf, usize)>,
}

impl TreeScan {
    fn at(root: &Path) -> Self {
        let began = Instant::now();
        let ahead = VecDeque::from([(PathBuf::new(), 0)]);
        let mut look = Self { found: Vec::new(), seen: BTreeSet::new(), ahead };
        while look.seen.len() < FOLDERS_MAX && look.found.len() < FOUND_MAX && began.elapsed() < TIME_MAX {
            let Some((folder, depth)) = look.ahead.pop_front() else { break };
            look.folder(root, folder, depth);
        }
        look
    }

    fn folder(&mut self, root: &Path, folder: PathBuf, depth: usize) {
        let Ok(entries) = std::fs::read_dir(root.join(&folder)) else { return };
        let entries = entries.filter_map(Result::ok);
        let mut entries: Vec<_> =
            entries.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?))).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let has_head = entries.iter().any(|(name, _)| name == "HEAD");
        if depth > 0 && has_head && is_repository(&root.join(&folder)) {
            self.found.push((folder, ProtectedKind::Repository));
            return;
        }
        let within =
            folder.file_name().map(|name| normalised_name(&name.to_string_lossy())).unwrap_or_default();
        for (name, kind) in entries {
            let (name_seen, path) = (normalised_name(&name.to_string_lossy()), folder.join(&name));
            let in_folder = || is_name_in(&within, &name_seen).then_some(ProtectedKind::Settings);
            match kind_of(&name_seen, kind).or_else(in_folder) {
                Some(what) => self.found.push((path, what)),
                None if kind.is_dir()
                    && depth < DEPTH_MAX
                    && !NOT_LOOKED_INTO.contains(&name_seen.as_str()) =>
                {
                    self.ahead.push_back((path, depth + 1));
                }
                None => {}
            }
        }
        self.seen.insert(folder);
    }

    /// Whether a path did not exist at the time of this scan, as far as the scan went.
    fn did_not_exist(&self, path: &Path) -> bool {
        let known = |path: &Path| self.found.iter().any(|(found, _)| found == path);
        let Some(seen) = path.ancestors().skip(1).find(|folder| self.seen.contains(*folder)) else {
            return false;
        };
        let next = path.ancestors().take_while(|folder| *folder != seen).last().unwrap_or(path);
        !known(path) && !known(next) && !self.ahead.iter().any(|(ahead, _)| ahead == next)
    }
}

/// The protected entries of a workspace at one time, to tell which came afterwards.
pub struct ProtectedEntries {
    before: Vec<(PathBuf, TreeScan)>,
    /// Names outside the workspace that were free.
    free: Vec<PathBuf>,
    /// The full paths of the entries that were reported.
    reported: BTreeSet<PathBuf>,
}

impl ProtectedEntries {
    /// Touches the disk.
    pub fn scan(roots: &[PathBuf]) -> Self {
        let before = roots.iter().map(|root| (root.clone(), TreeScan::at(root))).collect();
        Self { before, free: Vec::new(), reported: BTreeSet::new() }
    }

    /// Looks at names in an agent's own folders, too: they make the agent run something when it is started.
    pub fn with_names_of_agent(self, names: &[PathBuf]) -> Self {
        Self { free: names.iter().filter(|name| is_free(name)).cloned().collect(), ..self }
    }

    /// Describes the entries that are new, in sentences for people. Each entry is reported once. Touches the disk.
    pub fn describe_new(&mut self) -> Option<String> {
        let said: Vec<_> =
            [self.notice_of_workspace(), self.notice_of_agent()].into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join("\n"))
    }

    fn notice_of_agent(&mut self) -> Option<String> {
        let added: Vec<_> = self.free.iter().filter(|name| !is_free(name)).cloned().collect();
        let added: Vec<_> = added.into_iter().filter(|name| self.reported.insert(name.clone())).collect();
        let shown = first_names(added.iter().map(|name| name.display().to_string()).collect())?;
        Some(format!(
            "new files in the agent's own folders could make it run something when you start it without a sandbox: {shown}; check them before you do"
        ))
    }

    fn notice_of_workspace(&mut self) -> Option<String> {
        let mut added = Vec::new();
        for (root, before) in &self.before {
            let new: Vec<_> = protected_below(root)
                .into_iter()
                .map(|(path, _)| path)
                .filter(|path| before.did_not_exist(path))
                .collect();
            let by_git = if new.is_empty() { Vec::new() } else { locked_below(root) };
            for path in new.into_iter().filter(|path| !is_placeholder(root, path, &by_git)) {
                if self.reported.insert(root.join(&path)) {
                    added.push(described(root, &path));
                }
            }
        }
        let shown = first_names(added)?;
        Some(format!(
            "new files in the workspace could make git, an editor or another program run something: {shown}; check them before you open or use that folder"
        ))
    }
}

/// The first of them by name, and how many more there are.
fn first_names(mut added: Vec<String>) -> Option<String> {
    added.sort();
    added.dedup();
    let shown = added.iter().take(REPORTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = added.len().checked_sub(REPORTED_MAX + 1).map(|more| format!(" and {} more", more + 1));
    (!added.is_empty()).then(|| format!("{shown}{}", more.unwrap_or_default()))
}

fn is_free(name: &Path) -> bool {
    name.symlink_metadata().is_err()
}

fn described(root: &Path, below: &Path) -> String {
    let nested = below.file_name().is_some_and(|name| name == ".git") || is_repository(&root.join(below));
    let what = if nested { " (a nested repository)" } else { "" };
    format!("{}{what}", below.display())
}

/// Whether an entry is a placeholder of another running command: an empty folder with the mark, at a path where
/// placeholders are created. A command can create such a folder too, but not at these paths: a name directly in the
/// workspace is occupied before it starts, and what settings name is read-only for it.
fn is_placeholder(root: &Path, below: &Path, named: &[PathBuf]) -> bool {
    let path = root.join(below);
    let marked = path.symlink_metadata().is_ok_and(|data| data.is_dir() && data.mode() & 0o1000 != 0);
    let held = below.to_str().is_some_and(|name| PROTECTED.contains(&name))
        || named.iter().any(|named| named.starts_with(&path));
    marked && held && std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none())
}

fn kind_of(name: &str, kind: FileType) -> Option<ProtectedKind> {
    if name == ".git" && kind.is_dir() {
        return Some(ProtectedKind::Repository);
    }
    (is_name(name) || is_tools_only(name)).then_some(ProtectedKind::Settings)
}

/// Which parts of a protected entry a command must not change, by paths from it; empty: all of it. `None`: it may
/// change all of it.
pub(crate) fn guarded_parts(path: &Path) -> Option<&'static [&'static str]> {
    let name = normalised_name(&path.file_name()?.to_string_lossy());
    if is_tools_only(&name) {
        return None;
    }
    match SETTINGS_IN.iter().find(|(folder, _)| *folder == name) {
        Some((_, [])) => None,
        Some((_, held)) => Some(held),
        None => Some(&[]),
    }
}

fn is_name(name: &str) -> bool {
    // `mise.local.toml`, and `mise.NAME.toml` for an environment of that name.
    let is_mise = || {
        let rest = name.strip_prefix('.').unwrap_or(name).strip_prefix("mise.");
        rest.is_some_and(|rest| rest.ends_with(".toml"))
    };
    PROTECTED.contains(&name)
        || MORE_PROTECTED.contains(&name)
        || MORE_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || is_mise()
}

fn is_name_in(folder: &str, name: &str) -> bool {
    MORE_IN.contains(&(folder, name))
}

fn is_tools_only(name: &str) -> bool {
    let hook =
        |(stem, ending): (&str, &str)| TOOLS_ONLY_STEMS.contains(&stem) && HOOK_ENDINGS.contains(&ending);
    TOOLS_ONLY.contains(&name) || name.rsplit_once('.').is_some_and(hook)
}

/// A name as a careless file system or a careless reader takes it: without case, without what cannot
/// be seen, without what Windows drops.
pub(crate) fn normalised_name(name: &str) -> String {
    let ignorable = |c: &char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let seen: String = name.chars().filter(|c| !ignorable(c)).flat_map(char::to_lowercase).collect();
    let trimmed = seen.trim_end_matches(['.', ' ']);
    // A stream of a file is the file, and the short name of `.git` is `.git`.
    let base = trimmed.split(':').next().unwrap_or(trimmed);
    if base == "git~1" { ".git".into() } else { base.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NAMES: &[&str] = &[
        ".git",
        ".git/HEAD",
        ".git/index",
        ".git/rebase-merge/git-rebase-todo",
        ".git/info/attributes",
        ".git/modules/a/b/hooks/x",
        ".ropewalk/config.toml",
        ".RopeWalk/config.toml",
        ".opencode/command/x.md",
        "opencode.json",
        ".devcontainer/devcontainer.json",
        ".nvim.lua",
        ".exrc",
        "my.code-workspace",
        "MISE.toml",
        ".envrc",
        ".mcp.json",
        ".husky/pre-commit",
        "lefthook.yml",
        ".lefthook-local.toml",
        ".gitmodules",
        ".pre-commit-config.yaml",
        ".hg/hgrc",
        ".config/mise/config.toml",
        ".config/mise.toml",
        "mise/config.toml",
        "mise.dev.toml",
        ".mise.dev.local.toml",
        "crush.json",
        ".crush.json",
        ".factory/mcp.json",
        ".augment/x",
        ".copilot/mcp.json",
        ".openhands/setup.sh",
        ".amazonq/mcp.json",
        ".junie/mcp/mcp.json",
        ".trae/mcp.json",
        ".helix/languages.toml",
        ".bsp/sbt.json",
        ".lazy.lua",
        "my.sublime-project",
        ".run/a.run.xml",
        ".cargo/config.toml",
        ".cargo/config",
        ".shadowenv.d/a.lisp",
        ".autoenv.zsh",
        ".Rprofile",
        ".ghci",
        ".iex.exs",
        ".pdbrc",
        ".irbrc",
        ".pryrc",
        ".gdbinit",
        ".lldbinit",
    ];

    #[test]
    fn protected_names_count_at_every_depth() {
        for name in NAMES {
            for folder in ["", "sub", "a/b/c/d", "node_modules/x"] {
                let path = Path::new(folder).join(name);
                assert!(is_protected(&path), "{}", path.display());
            }
        }
        assert!(is_protected(Path::new("sub/HEAD")) && is_protected(Path::new("x.git/HEAD")));
        assert!(is_protected(Path::new(".bashrc")));
        for free in [
            "src/main.rs",
            ".gitignore",
            ".gitattributes",
            ".github/workflows/ci.yml",
            "dotfiles/.bashrc",
            "src/head/mod.rs",
            "lefthook.md",
            ".env",
            ".tool-versions",
            "a/mise.md",
            "mise/tasks/build",
            ".config/nextest.toml",
            "src/config.toml",
            "factory/a.rs",
            "run/a",
            "Cargo.toml",
        ] {
            assert!(!is_protected(Path::new(free)), "{free}");
        }
    }

    /// The mark of a held name is one that a command can set as well.
    #[test]
    fn a_mark_keeps_nothing_new_from_being_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".git/objects")).unwrap();
        std::fs::write(root.join(".git/config"), "[core]\nhooksPath = tools/.husky/_\n").unwrap();
        let mut before = ProtectedEntries::scan(std::slice::from_ref(&root));
        let mark = |path: &str, bits| {
            std::fs::create_dir_all(root.join(path)).unwrap();
            std::fs::set_permissions(root.join(path), std::fs::Permissions::from_mode(bits)).unwrap();
        };
        // As the fence holds them.
        mark(".idea", 0o1755);
        mark("tools/.husky", 0o1755);
        assert_eq!(before.describe_new(), None);
        mark("lib4/.git", 0o1755);
        mark("lib5/.git/hooks", 0o755);
        mark("lib5/.git", 0o1755);
        mark(".devcontainer", 0o1755);
        std::fs::write(root.join(".idea/workspace.xml"), "").unwrap();
        let said = before.describe_new().unwrap();
        assert!(
            said.contains(": .devcontainer, .idea, lib4/.git (a nested repository), lib5/.git (a"),
            "{said}"
        );
    }

    #[test]
    fn what_is_new_is_told_and_names_that_are_held_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/.vscode")).unwrap();
        let mut before = ProtectedEntries::scan(std::slice::from_ref(&root));
        std::fs::create_dir_all(root.join(".idea")).unwrap();
        std::fs::set_permissions(root.join(".idea"), std::fs::Permissions::from_mode(0o1755)).unwrap();
        assert_eq!(before.describe_new(), None);
        std::fs::create_dir_all(root.join("lib2/.git")).unwrap();
        std::fs::create_dir_all(root.join("a/.ropewalk")).unwrap();
        let said = before.describe_new().unwrap();
        assert!(said.contains(": a/.ropewalk, lib2/.git (a nested repository); check them"), "{said}");
        assert_eq!(before.describe_new(), None, "it is told once");
        std::fs::create_dir_all(root.join("b/.vscode")).unwrap();
        assert!(before.describe_new().is_some_and(|said| said.contains(": b/.vscode; check them")));
    }

    #[test]
    fn a_name_of_an_agent_that_was_free_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().canonicalize().unwrap();
        std::fs::write(own.join("settings.json"), "mine").unwrap();
        let names = ["settings.json", "hooks", "plugins"].map(|name| own.join(name));
        let mut before = ProtectedEntries::scan(&[]).with_names_of_agent(&names);
        assert_eq!(before.describe_new(), None);
        std::fs::write(own.join("settings.json"), "changed, which the fence is for").unwrap();
        std::fs::create_dir(own.join("hooks")).unwrap();
        std::os::unix::fs::symlink("nowhere", own.join("plugins")).unwrap();
        let said = before.describe_new().unwrap();
        let reported = format!(": {0}/hooks, {0}/plugins; check them", own.display());
        assert!(
            said.starts_with("new files in the agent's own folders") && said.contains(&reported),
            "{said}"
        );
        assert_eq!(before.describe_new(), None, "it is told once");
    }

    /// A look that did not get everywhere says nothing of where it did not.
    #[test]
    fn what_was_only_not_looked_at_before_is_not_new() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/.vscode")).unwrap();
        let mut look = TreeScan::at(&root);
        look.found.clear();
        look.seen.remove(Path::new("a/b"));
        look.ahead.push_back(("a/b".into(), 2));
        let mut before = ProtectedEntries {
            before: vec![(root.clone(), look)],
            free: Vec::new(),
            reported: BTreeSet::new(),
        };
        assert_eq!(before.describe_new(), None);
        std::fs::create_dir_all(root.join("a/c/d/.vscode")).unwrap();
        assert!(before.describe_new().is_some_and(|said| said.contains(": a/c/d/.vscode; check")));
    }

    #[test]
    fn what_is_there_is_found_nearest_first_and_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in [
            "a/b/.vscode",
            "a/.git/hooks",
            "node_modules/x/.vscode",
            "bare.git/objects",
            "bare.git/refs",
            "s/.hg",
            "elsewhere/.idea",
            "x/.config/mise",
        ] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::fs::write(root.join("bare.git/HEAD"), "ref: refs/heads/main").unwrap();
        std::fs::write(root.join("mise.toml"), "").unwrap();
        std::fs::create_dir(root.join("w")).unwrap();
        std::fs::write(root.join("w/.git"), "gitdir: /x").unwrap();
        std::os::unix::fs::symlink("elsewhere", root.join("link")).unwrap();
        let found = protected_below(root);
        let shown: Vec<_> = found.iter().map(|(path, kind)| format!("{} {kind:?}", path.display())).collect();
        assert_eq!(
            shown,
            [
                "mise.toml Settings",
                "a/.git Repository",
                "bare.git Repository",
                "elsewhere/.idea Settings",
                "s/.hg Settings",
                "w/.git Settings",
                "a/b/.vscode Settings",
                "x/.config/mise Settings"
            ]
        );
        assert_eq!(guarded_parts(Path::new(".cargo")), Some(&["config", "config.toml"][..]));
        assert_eq!(
            (guarded_parts(Path::new(".bsp")), guarded_parts(Path::new("mise/config.toml"))),
            (None, Some(&[][..]))
        );
        assert_eq!(guarded_parts(Path::new("s/.hg")), Some(&["hgrc", "hgrc-not-shared"][..]));
        assert_eq!(
            (guarded_parts(Path::new("a/.gitmodules")), guarded_parts(Path::new("a/.idea"))),
            (None, Some(&[][..]))
        );
    }
}
