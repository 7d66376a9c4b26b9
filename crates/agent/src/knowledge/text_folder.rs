//! Reads text files in a folder, within limits: a project's below a folder handle, the person's directly.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sandbox::{EntryKind, FileError, Files, Mode, PathAccess, Policy};

/// Files of one folder that are read. Nobody writes more by hand.
const ENTRIES_MAX: usize = 128;

pub(crate) struct TextFolder {
    root: PathBuf,
    kind: FolderKind,
}

enum FolderKind {
    /// `None`: the folder cannot be opened, so it counts as empty.
    Project(Option<Box<Files>>),
    Person,
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    /// The file name without its extension.
    pub(crate) stem: String,
    pub(crate) text: String,
}

impl TextFolder {
    /// Only this folder, whatever else the tools may access. Otherwise a project of somebody else could use a
    /// link to give any file of this machine to the model.
    pub(crate) fn project(root: &Path, hidden: &[PathBuf]) -> Self {
        let policy = Policy {
            mode: Mode::ReadOnly,
            roots: vec![root.to_owned()],
            hidden: hidden.to_vec(),
            ..Policy::default()
        };
        Self { root: root.to_owned(), kind: FolderKind::Project(Files::open(policy).ok().map(Box::new)) }
    }

    pub(crate) fn person(root: &Path) -> Self {
        Self { root: root.to_owned(), kind: FolderKind::Person }
    }

    pub(crate) fn is_project(&self) -> bool {
        matches!(self.kind, FolderKind::Project(_))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// At most this many characters of a file, if it exists.
    pub(crate) fn read(&self, path: &Path, chars_max: usize) -> Option<String> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        // A character has at most four bytes.
        file.take(4 * chars_max as u64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Some(text.chars().filter(|c| *c != '\0').take(chars_max).collect())
    }

    /// The files of a folder with this extension, sorted by name.
    pub(crate) fn text_files(&self, folder: &Path, ending: &str, chars_max: usize) -> Vec<TextFile> {
        let text_file = |name: String| {
            let stem = name.strip_suffix(ending)?.strip_suffix('.')?.to_owned();
            let path = folder.join(&name);
            let text = self.read(&path, chars_max)?;
            Some(TextFile { path, stem, text })
        };
        self.names(folder).into_iter().filter_map(text_file).collect()
    }

    /// The entries of a folder, sorted by name.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = match &self.kind {
            FolderKind::Project(None) => Vec::new(),
            FolderKind::Project(Some(files)) => {
                let spot = files.find(folder, PathAccess::Read);
                let spot = spot.ok().filter(|spot| spot.kind() == Some(EntryKind::Folder));
                let entries = spot.and_then(|spot| files.entries(&spot).ok()).unwrap_or_default();
                entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
            }
            FolderKind::Person => {
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
        match &self.kind {
            FolderKind::Project(files) => {
                let files = files.as_deref()?;
                match files.find(path, PathAccess::Read) {
                    Ok(spot) => files.open_file(&spot).ok(),
                    Err(FileError::Refused { .. }) => {
                        tracing::warn!(path = %path.display(), "ignoring a link that leads out of the project");
                        None
                    }
                    Err(FileError::Unusable { .. }) => None,
                }
            }
            // Does not block on special files.
            FolderKind::Person => {
                path.metadata().ok().filter(std::fs::Metadata::is_file)?;
                File::open(path).ok()
            }
        }
    }
}
