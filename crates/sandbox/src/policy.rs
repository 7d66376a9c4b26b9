//! What may be reached, as one table. The mounts of a child, the file tools of this process and the report of a refusal are
//! all derived from it, so their answers cannot differ.
//!
//! **Invariant:** a narrower mode never allows what a wider one refuses.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::protected_names::{PROTECTED_IN_HOME, is_protected, normalised_name};

/// How far a session's tools and commands reach. Fixed when the process starts; ordered from narrow
/// to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Nothing is written, nothing is sent.
    ReadOnly,
    /// Writes stay in the workspace, nothing is sent.
    #[default]
    WorkspaceWrite,
    /// Writes stay in the workspace.
    WorkspaceWriteNetwork,
    /// No fence at all.
    Off,
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::ReadOnly, Mode::WorkspaceWrite, Mode::WorkspaceWriteNetwork, Mode::Off];

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::WorkspaceWriteNetwork => "workspace-write-network",
            Self::Off => "off",
        }
    }

    /// Whether the workspace may be written.
    pub fn writes(self) -> bool {
        self >= Self::WorkspaceWrite
    }

    /// Whether other machines may be reached.
    pub fn network(self) -> bool {
        self >= Self::WorkspaceWriteNetwork
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sandbox mode; choose read-only, workspace-write, workspace-write-network or off")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            "danger-full-access" | "none" => Ok(Self::Off),
            name => Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownMode(text.into())),
        }
    }
}

/// How a path would be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAccess {
    Read,
    /// Create, change, rename or remove.
    Write,
}

/// Why a path is out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DenialReason {
    #[error("it holds secrets and is hidden from tools and commands")]
    Hidden,
    #[error("the sandbox is read-only")]
    ReadOnly,
    #[error("it is outside the workspace")]
    Outside,
    #[error("it could make your editor, your shell or git run something, so only you may change it")]
    Protected,
}

/// What a session's tools and commands may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    /// Real paths of the folders that may be written in the modes that write.
    pub roots: Vec<PathBuf>,
    /// Real paths that are neither read nor written, whatever the roots are.
    pub hidden: Vec<PathBuf>,
    /// Real paths below the roots that are only read: what a repository's own settings name, and what makes
    /// an agent run something in a folder of its own. Only the last name of a path may be a link.
    pub locked: Vec<PathBuf>,
    /// The folders that no root may lead out of, if there are such: who named the root may not work elsewhere. A root is
    /// compared by its real path when it is opened, so that a link which is put in its place later opens nothing.
    pub within: Option<Vec<PathBuf>>,
    /// Real paths of the person's home folders: the one of the environment first, then the account's. A
    /// folder around one of them is never written.
    pub homes: Vec<PathBuf>,
}

impl Policy {
    /// Judges a path that has no link left in it.
    pub fn judge(&self, want: PathAccess, real: &Path) -> Result<(), DenialReason> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        if self.hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Err(DenialReason::Hidden);
        }
        if want == PathAccess::Read {
            return Ok(());
        }
        if !self.mode.writes() {
            return Err(DenialReason::ReadOnly);
        }
        let roots = self.roots.iter().filter(|root| !self.is_around_home(root));
        let inside: Vec<_> = roots.filter_map(|root| real.strip_prefix(root).ok()).collect();
        if inside.is_empty() {
            return Err(DenialReason::Outside);
        }
        let locked = self.locked.iter().any(|locked| real.starts_with(locked));
        // Roots may lie in each other; what one of them protects, none gives away.
        if locked || self.is_start_file(real) || inside.into_iter().any(is_protected) {
            return Err(DenialReason::Protected);
        }
        Ok(())
    }

    /// Whether a folder contains the home folder: then it is too much to be a workspace.
    pub(crate) fn is_around_home(&self, root: &Path) -> bool {
        self.homes.iter().any(|home| home != root && home.starts_with(root))
    }

    fn is_start_file(&self, real: &Path) -> bool {
        // A project may lie in such a folder; then only its root is given, and not the folder.
        let whole = self.homes.iter().filter(|home| self.roots.contains(home));
        let mut first = whole.filter_map(|home| real.strip_prefix(home).ok()?.components().next());
        first.any(|name| {
            PROTECTED_IN_HOME.contains(&normalised_name(&name.as_os_str().to_string_lossy()).as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_their_names_and_their_older_ones() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert_eq!("Danger_Full_Access".parse(), Ok(Mode::Off));
        assert!("full".parse::<Mode>().is_err());
    }

    #[test]
    fn a_home_keeps_what_starts_with_the_person_and_what_is_around_it_is_not_written() {
        let policy = |root: &str| Policy {
            mode: Mode::WorkspaceWrite,
            roots: vec![root.into()],
            homes: vec!["/home/me".into()],
            ..Policy::default()
        };
        for (root, path, expected) in [
            ("/home/me", "/home/me/code/a", Ok(())),
            ("/home/me", "/home/me/.config/systemd/user/x", Err(DenialReason::Protected)),
            ("/home/me", "/home/me/.vimrc", Err(DenialReason::Protected)),
            ("/home/me/.config/nvim", "/home/me/.config/nvim/init.lua", Ok(())),
            ("/home", "/home/me/code/a", Err(DenialReason::Outside)),
            ("/", "/srv/a", Err(DenialReason::Outside)),
        ] {
            assert_eq!(policy(root).judge(PathAccess::Write, Path::new(path)), expected, "{root} {path}");
        }
    }

    #[test]
    fn the_table_says_what_may_be_reached() {
        let policy = |mode| Policy {
            mode,
            roots: vec!["/home/work".into(), "/more".into()],
            hidden: vec!["/home/me/.ssh".into(), "/home/work/state".into()],
            within: None,
            locked: vec!["/more/tools/hooks".into()],
            homes: vec!["/home/me".into()],
        };
        let judge = |mode, want, path: &str| policy(mode).judge(want, Path::new(path));
        use DenialReason::{Hidden, Outside, Protected, ReadOnly};
        for (path, expected) in [
            ("/home/work/a", Ok(())),
            ("/more/a/.git/hooks/x", Err(Protected)),
            ("/more/a/.ropewalk/config.toml", Err(Protected)),
            ("/more/a/HEAD", Err(Protected)),
            ("/home/workshop/a", Err(Outside)),
            ("/home/work/state/sessions.db", Err(Hidden)),
            ("/home/work/.git", Err(Protected)),
            // A file tool has no business in there.
            ("/home/work/.git/index", Err(Protected)),
            ("/home/work/.git/hooks/pre-commit", Err(Protected)),
            ("/home/work/.git/config", Err(Protected)),
            ("/home/work/.git/commondir", Err(Protected)),
            ("/home/work/.git/modules/a/b/hooks/x", Err(Protected)),
            ("/home/work/.GIT./config", Err(Protected)),
            ("/home/work/git~1/config", Err(Protected)),
            ("/home/work/.g\u{200c}it/config", Err(Protected)),
            ("/more/.vscode/tasks.json", Err(Protected)),
            ("/more/.gitignore", Ok(())),
            ("/more/tools/hooks/pre-commit", Err(Protected)),
            ("/more/.git/worktrees/w/commondir", Err(Protected)),
            ("/more/.config/nextest.toml", Ok(())),
        ] {
            assert_eq!(judge(Mode::WorkspaceWrite, PathAccess::Write, path), expected, "{path}");
            let narrow = judge(Mode::ReadOnly, PathAccess::Write, path);
            assert!(matches!(narrow, Err(ReadOnly | Hidden)), "{path}");
            assert_eq!(judge(Mode::Off, PathAccess::Write, path), Ok(()), "{path}");
        }
        assert_eq!(judge(Mode::ReadOnly, PathAccess::Read, "/etc/passwd"), Ok(()));
        assert_eq!(judge(Mode::WorkspaceWriteNetwork, PathAccess::Read, "/home/me/.ssh/id"), Err(Hidden));
    }
}
