//! Where a session may work: its folder and further roots, opened as handles that cannot be left.
//!
//! A place is opened with its session and again for every turn. Its handles stay the folders that were
//! there then; what its paths lead to is decided when the session opens or moves, and not again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::guard::Rulebook;
use engine::AskRequest;
use sandbox::{FileError, Files, Mode, Policy, Spot, Unfit, Want};

use crate::agent::Reach;
use crate::screen::{denied_by, look};

/// The tool that reads files.
pub(crate) const READ: &str = "read";

#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) cwd: PathBuf,
    files: Result<Arc<Files>, FileError>,
    rules: Option<Arc<Rulebook>>,
}

impl Place {
    /// Opens the folders. Touches the disk. A folder that cannot be opened is no reason to end the
    /// turn: whoever wants a file is told.
    pub(crate) fn open(cwd: PathBuf, roots: &[PathBuf], within: Option<&[PathBuf]>, reach: &Reach) -> Self {
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

    /// With the rules of the person, for what comes with a prompt.
    pub(crate) fn with_rules(self, rules: Option<&Arc<Rulebook>>) -> Self {
        Self { rules: rules.cloned(), ..self }
    }

    /// The rule that denies a tool this file or folder, if one does.
    pub(crate) fn denied_by(&self, tool: &str, real: &Path) -> Option<Arc<str>> {
        let request = AskRequest { path: Some(real.to_owned()), ..look(tool, &real.to_string_lossy()) };
        denied_by(self.rules.as_ref(), &self.cwd, &request)
    }

    pub(crate) fn files(&self) -> Result<&Files, FileError> {
        self.files.as_deref().map_err(Clone::clone)
    }

    /// The working folder as it was when the place was opened, whatever its path leads to since.
    pub(crate) fn folder(&self) -> &Path {
        self.policy().ok().and_then(|policy| policy.roots.first()).unwrap_or(&self.cwd)
    }

    /// Whether the same paths have come to lead to other folders.
    pub(crate) fn leads_elsewhere_than(&self, other: &Place) -> bool {
        match (self.policy(), other.policy()) {
            (Ok(policy), Ok(others)) => self.cwd == other.cwd && policy.roots != others.roots,
            (_, _) => false,
        }
    }

    /// How far this place reaches.
    pub(crate) fn mode(&self) -> Mode {
        self.policy().map_or(Mode::ReadOnly, |policy| policy.mode)
    }

    /// What may be reached from here, or why nothing may.
    pub(crate) fn policy(&self) -> Result<&Policy, FileError> {
        self.files().map(Files::policy)
    }

    /// Where a path leads, existing or not, if that may be reached. Touches the disk.
    pub(crate) fn find(&self, path: &Path, want: Want) -> Result<Spot, FileError> {
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
            let advice = format!("{reason}; make the folder again or start a session without it");
            FileError::Unusable { path, reason: Unfit::System(advice) }
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
        let reach =
            Reach { add_dirs: vec![more.clone()], hidden: vec![work.join("state")], ..Reach::default() };
        let place = Place::open(base.join("way"), std::slice::from_ref(&extra), None, &reach);
        let find = |path: &Path| place.find(path, Want::Write).map(|spot| spot.real().to_owned());
        assert_eq!(find(Path::new("new/file")).unwrap(), work.join("new/file"));
        for inside in [&extra, &more] {
            assert_eq!(find(&inside.join("f")).unwrap(), inside.join("f"));
        }
        for bad in [Path::new("../out/f"), Path::new("state/x"), &out, Path::new(".vscode/x")] {
            assert!(matches!(find(bad), Err(FileError::Refused { .. })), "{}", bad.display());
        }
        assert_eq!(place.shown(&work.join("new/file")), "new/file");
        assert_eq!(place.shown(&work), ".");
        assert_eq!(place.shown(&more), more.display().to_string());
    }

    #[test]
    fn a_folder_that_is_gone_is_named_to_whoever_wants_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let place = Place::open(gone.clone(), &[], None, &Reach::default());
        let error = place.find(Path::new("a"), Want::Read).unwrap_err().to_string();
        assert!(
            error.starts_with(&gone.display().to_string()) && error.contains("make the folder again"),
            "{error}"
        );
    }
}
