//! Text files in a folder, read within bounds: a project's below a handle, the person's as they are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sandbox::{FileError, Files, Kind, Mode, Policy, Want};

/// Files of one folder that are looked at. Nobody writes more by hand.
const ENTRIES_MAX: usize = 128;

pub(crate) struct Shelf {
    root: PathBuf,
    kept: Kept,
}

enum Kept {
    /// `None`: the folder cannot be opened, so nothing is there.
    Project(Option<Box<Files>>),
    Person,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    /// The name without what stands after its last dot.
    pub(crate) stem: String,
    pub(crate) text: String,
}

impl Shelf {
    /// The folder alone, whatever else the tools may reach. A project from elsewhere could otherwise have
    /// any file of this machine told to the model, by a link.
    pub(crate) fn project(root: &Path, hidden: &[PathBuf]) -> Self {
        let policy = Policy {
            mode: Mode::ReadOnly,
            roots: vec![root.to_owned()],
            hidden: hidden.to_vec(),
            ..Policy::default()
        };
        Self { root: root.to_owned(), kept: Kept::Project(Files::open(policy).ok().map(Box::new)) }
    }

    pub(crate) fn person(root: &Path) -> Self {
        Self { root: root.to_owned(), kept: Kept::Person }
    }

    pub(crate) fn is_project(&self) -> bool {
        matches!(self.kept, Kept::Project(_))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// At most so many characters of a file, if there is one.
    pub(crate) fn read(&self, path: &Path, chars_max: usize) -> Option<String> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        // No character is longer than four bytes.
        file.take(4 * chars_max as u64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Some(text.chars().filter(|c| *c != '\0').take(chars_max).collect())
    }

    /// The files of a folder whose names end so, in the order of their names.
    pub(crate) fn pages(&self, folder: &Path, ending: &str, chars_max: usize) -> Vec<Page> {
        let page = |name: String| {
            let stem = name.strip_suffix(ending)?.strip_suffix('.')?.to_owned();
            let path = folder.join(&name);
            let text = self.read(&path, chars_max)?;
            Some(Page { path, stem, text })
        };
        self.names(folder).into_iter().filter_map(page).collect()
    }

    /// What stands in a folder, by name.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = match &self.kept {
            Kept::Project(None) => Vec::new(),
            Kept::Project(Some(files)) => {
                let spot = files.find(folder, Want::Read);
                let spot = spot.ok().filter(|spot| spot.kind() == Some(Kind::Folder));
                let entries = spot.and_then(|spot| files.entries(&spot).ok()).unwrap_or_default();
                entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
            }
            Kept::Person => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                entries
                    .take(10 * ENTRIES_MAX)
                    .filter_map(|entry| entry.file_name().into_string().ok())
                    .collect()
            }
        };
        names.sort();
        names.truncate(ENTRIES_MAX);
        names
    }

    fn open(&self, path: &Path) -> Option<File> {
        match &self.kept {
            Kept::Project(files) => {
                let files = files.as_deref()?;
                match files.find(path, Want::Read) {
                    Ok(spot) => files.open_file(&spot).ok(),
                    Err(FileError::Refused { .. }) => {
                        tracing::warn!(path = %path.display(), "it is a link out of the project and is not read");
                        None
                    }
                    Err(FileError::Unusable { .. }) => None,
                }
            }
            // Never waits for what is no file.
            Kept::Person => {
                path.metadata().ok().filter(std::fs::Metadata::is_file)?;
                File::open(path).ok()
            }
        }
    }
}
