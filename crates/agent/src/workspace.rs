//! The workspace of a session: its working folder and further roots, opened as handles that cannot be left.
//!
//! A workspace is opened with its session, and again for every turn. The handles keep referring to the
//! folders that they were opened on. Where the paths lead is decided when the session opens or moves, and not
//! again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::guard::Rulebook;
use engine::AskRequest;
use sandbox::{FileError, Files, Mode, PathAccess, PermittedPath, Policy, UnusableReason};

use crate::agent::ToolAccess;
use crate::search_permission_filter::{denied_by, read_request};

/// The tool that reads files.
pub(crate) const READ: &str = "read";

#[derive(Clone)]
pub(crate) struct Workspace {
    pub(crate) cwd: PathBuf,
    files: Result<Arc<Files>, FileError>,
    rules: Option<Arc<Rulebook>>,
}

impl Workspace {
    /// Opens the folders; accesses the disk. A folder that cannot be opened does not end the turn: every file
    /// request gets that error.
    pub(crate) fn open(
        cwd: PathBuf,
        roots: &[PathBuf],
        within: Option<&[PathBuf]>,
        reach: &ToolAccess,
    ) -> Self {
        let further = roots.iter().chain(&reach.add_dirs).cloned();
        let project = reach.project.and_then(|project| project(&cwd));
        let policy = Policy {
            mode: project.map_or(reach.mode, |mode| mode.min(reach.mode)),
            roots: std::iter::once(cwd.clone()).chain(further).collect(),
            hidden: reach.hidden.clone(),
            homes: reach.homes.clone(),
            within: within.map(|within| within.iter().chain(&reach.add_dirs).cloned().collect()),
            ..Policy::default()
        };
        Self { cwd, files: Files::open(policy).map(Arc::new).map_err(with_advice), rules: None }
    }

    /// With the person's rules, which apply to files that come with a prompt.
    pub(crate) fn with_rules(self, rules: Option<&Arc<Rulebook>>) -> Self {
        Self { rules: rules.cloned(), ..self }
    }

    /// The rule that denies a tool this file or folder, if there is one.
    pub(crate) fn denied_by(&self, tool: &str, real: &Path) -> Option<Arc<str>> {
        let request =
            AskRequest { path: Some(real.to_owned()), ..read_request(tool, &real.to_string_lossy()) };
        denied_by(self.rules.as_ref(), &self.cwd, &request)
    }

    pub(crate) fn files(&self) -> Result<&Files, FileError> {
        self.files.as_deref().map_err(Clone::clone)
    }

    /// The working folder that was opened, wherever its path leads since then.
    pub(crate) fn folder(&self) -> &Path {
        self.policy().ok().and_then(|policy| policy.roots.first()).unwrap_or(&self.cwd)
    }

    /// Whether the same paths lead to other folders than in `other`.
    pub(crate) fn leads_elsewhere_than(&self, other: &Workspace) -> bool {
        match (self.policy(), other.policy()) {
            (Ok(policy), Ok(others)) => self.cwd == other.cwd && policy.roots != others.roots,
            (_, _) => false,
        }
    }

    /// The sandbox mode of this workspace.
    pub(crate) fn mode(&self) -> Mode {
        self.policy().map_or(Mode::ReadOnly, |policy| policy.mode)
    }

    /// The sandbox policy, or why the folders could not be opened.
    pub(crate) fn policy(&self) -> Result<&Policy, FileError> {
        self.files().map(Files::policy)
    }

    /// Resolves a path, existing or not, if it may be accessed. Accesses the disk.
    pub(crate) fn find(&self, path: &Path, want: PathAccess) -> Result<PermittedPath, FileError> {
        self.files()?.find(&self.cwd.join(path), want)
    }

    /// A path as people write it: relative where it is below the working folder.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let real = self.files.as_ref().ok().and_then(|files| files.policy().roots.first());
        let cwd = real.unwrap_or(&self.cwd);
        let relative = path.strip_prefix(cwd).or_else(|_| path.strip_prefix(&self.cwd)).unwrap_or(path);
        if relative.as_os_str().is_empty() { ".".into() } else { relative.display().to_string() }
    }
}

fn with_advice(error: FileError) -> FileError {
    match error {
        FileError::Unusable { path, reason } => {
            let advice = format!("{reason}; create the folder again or start a session without it");
            FileError::Unusable { path, reason: UnusableReason::System(advice) }
        }
        refused @ FileError::Refused { .. } => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_from_the_working_folder_and_stay_in_the_roots() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let [work, extra, more, out] = ["work", "extra", "more", "out"].map(|name| base.join(name));
        for folder in [&work, &extra, &more, &out] {
            std::fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink(&work, base.join("way")).unwrap();
        let reach = ToolAccess {
            add_dirs: vec![more.clone()],
            hidden: vec![work.join("state")],
            ..ToolAccess::default()
        };
        let workspace = Workspace::open(base.join("way"), std::slice::from_ref(&extra), None, &reach);
        let find = |path: &Path| workspace.find(path, PathAccess::Write).map(|spot| spot.real().to_owned());
        assert_eq!(find(Path::new("new/file")).unwrap(), work.join("new/file"));
        for inside in [&extra, &more] {
            assert_eq!(find(&inside.join("f")).unwrap(), inside.join("f"));
        }
        for bad in [Path::new("../out/f"), Path::new("state/x"), &out, Path::new(".vscode/x")] {
            assert!(matches!(find(bad), Err(FileError::Refused { .. })), "{}", bad.display());
        }
        assert_eq!(workspace.shown(&work.join("new/file")), "new/file");
        assert_eq!(workspace.shown(&work), ".");
        assert_eq!(workspace.shown(&more), more.display().to_string());
    }

    #[test]
    fn a_folder_that_is_gone_is_named_to_whoever_wants_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let workspace = Workspace::open(gone.clone(), &[], None, &ToolAccess::default());
        let error = workspace.find(Path::new("a"), PathAccess::Read).unwrap_err().to_string();
        assert!(
            error.starts_with(&gone.display().to_string()) && error.contains("create the folder again"),
            "{error}"
        );
    }
}
