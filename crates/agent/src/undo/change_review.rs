//! The review of a session: its files compared with their content before the session changed them.
//!
//! Current bytes are compared with stored bytes. So the list is right whoever changed a file and however: a
//! tool, an undo or redo, an editor. A change that is kept becomes part of what its file is compared with. A
//! change that is reverted is a change of the turn that does it, and can be undone like every other.

use std::path::{Path, PathBuf};

use engine::{ChangedFile, FileChange, TurnId};
use sandbox::{FileError, Files, PathAccess};

use super::hunks::FileComparison;
use super::journal::{ReviewBase, State, UndoJournal};
use super::store::{self, UndoStore};
use super::{FileRestore, Inner, UndoHistory, cannot_keep, find_unchanged, read_state, restore_file};

/// A larger text is reviewed as a whole.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Of all texts of a review; beyond that, files are reviewed as a whole.
const TEXTS_BYTES_MAX: usize = 16 << 20;

const NO_FOLDER: &str = "undo is not available: the server has no folder for it";
const STALE: &str = "this change no longer exists, or was merged with another; look at the changes again";
const NOT_TEXT: &str = "it is not text, or too large to compare: it can only be kept or undone as a whole";

/// A reverted change of a file.
pub(crate) struct RevertedChange {
    /// The change, if it is text.
    pub(crate) change: Option<FileChange>,
    /// The line of the hunk, if it was one.
    pub(crate) line: Option<usize>,
}

/// One side of a comparison.
enum ReviewSide {
    Absent,
    Text(String),
    Opaque,
}

impl ReviewSide {
    fn of(state: &State, bytes: Option<Vec<u8>>) -> Self {
        let text = |bytes: Vec<u8>| {
            let fits = bytes.len() <= TEXT_BYTES_MAX && !bytes.contains(&0);
            fits.then(|| String::from_utf8(bytes).ok()).flatten()
        };
        match (state, bytes) {
            (State::Absent, _) => Self::Absent,
            (State::File { .. } | State::Large { .. }, bytes) => {
                bytes.and_then(text).map_or(Self::Opaque, Self::Text)
            }
        }
    }

    fn of_base(state: &State, store: &UndoStore) -> Self {
        let bytes = match state {
            State::File { hash, bytes, .. } if *bytes <= TEXT_BYTES_MAX as u64 => store.content(hash).ok(),
            State::File { .. } | State::Absent | State::Large { .. } => None,
        };
        Self::of(state, bytes)
    }

    /// The text to compare; a missing file is empty.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Absent => Some(""),
            Self::Text(text) => Some(text),
            Self::Opaque => None,
        }
    }

    fn len(&self) -> usize {
        self.text().map_or(0, str::len)
    }

    fn shown(&self, opaque: bool) -> Option<std::sync::Arc<str>> {
        match self {
            Self::Absent => None,
            Self::Text(text) if !opaque => Some(text.as_str().into()),
            Self::Text(_) | Self::Opaque => Some("".into()),
        }
    }
}

impl UndoHistory {
    /// The files that differ from their last reviewed state. Accesses the disk.
    pub(crate) fn changes(&self, files: &Files) -> Result<Vec<ChangedFile>, String> {
        let bases = {
            let inner = self.open().ok_or(NO_FOLDER)?;
            inner.as_ref().map(|inner| inner.journal.bases().to_vec()).unwrap_or_default()
        };
        // Read without the lock, so that a turn that changes a file does not wait for a reader.
        let Some(store) = self.all.as_ref().map(|all| UndoStore::open(all, self.session.as_str())) else {
            return Err(NO_FOLDER.into());
        };
        let mut room = TEXTS_BYTES_MAX;
        Ok(bases.iter().filter_map(|base| changed(base, &store, files, &mut room)).collect())
    }

    /// Accepts a hunk of a file, or all of its changes.
    pub(crate) fn keep(&self, files: &Files, path: &Path, hunk: Option<&str>) -> Result<(), String> {
        let mut inner = self.open().ok_or(NO_FOLDER)?;
        let Some(Inner { store, journal, .. }) = inner.as_mut() else { return Err(NO_FOLDER.into()) };
        let base = base_of(journal, path)?;
        let part = match hunk {
            None => None,
            Some(hunk) => base_with_hunk(&base, store, journal, files, hunk)?,
        };
        let former = journal.clone();
        journal.keep(path, part);
        store.write_journal(journal).map_err(|error| {
            *journal = former;
            format!("could not save the list of changes: {error}")
        })
    }

    /// Reverts a hunk of a file, or all of its changes, as a change of this turn.
    pub(crate) fn take_back(
        &self,
        files: &Files,
        turn: TurnId,
        path: &Path,
        hunk: Option<&str>,
    ) -> Result<RevertedChange, String> {
        let mut inner = self.open().ok_or(NO_FOLDER)?;
        let Some(Inner { store, journal, .. }) = inner.as_mut() else { return Err(NO_FOLDER.into()) };
        let base = base_of(journal, path)?;
        let spot = find_unchanged(files, path, PathAccess::Write)?;
        let (now, bytes) =
            read_state(files, &spot).map_err(|reason| format!("{}: {reason}", path.display()))?;
        if now.same_bytes(&base.state) {
            return Err(format!("{} already has its earlier content", path.display()));
        }
        let (wanted, line) = match hunk {
            None => (base.state.clone(), None),
            Some(hunk) => file_without_hunk(&base, store, journal, (&now, bytes.as_deref()), hunk)?,
        };
        let wanted = restorable(wanted, &now, store).map_err(|why| format!("{}: {why}", path.display()))?;
        let kept = match (&now, &bytes) {
            (State::File { hash, .. }, Some(bytes)) => store.keep(hash, bytes, journal, false),
            (State::Large { .. }, _) => Err(std::io::Error::other("it is too large to be stored for undo")),
            (_, _) => Ok(()),
        };
        kept.map_err(|error| cannot_keep(path, &error))?;
        let former = journal.clone();
        journal.note(turn.0, path, now.clone(), wanted.clone());
        let written = store
            .write_journal(journal)
            .map_err(|error| format!("could not save the list of changes: {error}"));
        let restore = FileRestore { path: path.to_owned(), spot, now, bytes, wanted };
        match written.and_then(|()| restore_file(files, store, &restore)) {
            Ok(change) => Ok(RevertedChange { change, line }),
            Err(reason) => {
                *journal = former;
                if let Err(error) = store.write_journal(journal) {
                    tracing::warn!(%error, "could not record that nothing was undone");
                }
                Err(reason)
            }
        }
    }

    /// The reviewed file that a path refers to.
    pub(crate) fn reviewed(&self, files: &Files, path: &Path) -> Result<PathBuf, String> {
        let known = |path: &Path| {
            let inner = self.open()?;
            inner.as_ref()?.journal.base_of(path).map(|base| PathBuf::from(&base.path))
        };
        if let Some(known) = known(path) {
            return Ok(known);
        }
        let spot = files.find(path, PathAccess::Read).map_err(|error| error.to_string())?;
        known(spot.real()).ok_or_else(|| not_changed(path))
    }
}

fn base_of(journal: &UndoJournal, path: &Path) -> Result<ReviewBase, String> {
    journal.base_of(path).cloned().ok_or_else(|| not_changed(path))
}

fn not_changed(path: &Path) -> String {
    format!("this session has no unreviewed changes in {}", path.display())
}

/// The change of a reviewed file, if it differs and may be shown.
fn changed(base: &ReviewBase, store: &UndoStore, files: &Files, room: &mut usize) -> Option<ChangedFile> {
    let path = Path::new(&base.path);
    let (now, disk) =
        match find_unchanged(files, path, PathAccess::Read).and_then(|spot| read_state(files, &spot)) {
            Ok((now, bytes)) => (Some(now.clone()), ReviewSide::of(&now, bytes)),
            // What tools may not see is not shown either. A folder or link in place of the file counts as existing.
            Err(_) if matches!(files.find(path, PathAccess::Read), Err(FileError::Refused { .. })) => {
                return None;
            }
            Err(_) => (None, ReviewSide::Opaque),
        };
    if now.is_some_and(|now| now.same_bytes(&base.state)) {
        return None;
    }
    let was = ReviewSide::of_base(&base.state, store);
    let left = room.checked_sub(was.len() + disk.len());
    let texts = was.text().zip(disk.text()).filter(|_| left.is_some());
    *room = left.unwrap_or(*room);
    let hunks = texts.map(|(was, disk)| FileComparison::new(&base.path, was, disk).shown());
    let opaque = hunks.is_none();
    Some(ChangedFile {
        path: path.to_owned(),
        before: was.shown(opaque),
        after: disk.shown(opaque),
        opaque,
        hunks: hunks.unwrap_or_default(),
    })
}

/// The new base of a file once a hunk is kept. `None` if that was its only change.
fn base_with_hunk(
    base: &ReviewBase,
    store: &mut UndoStore,
    journal: &mut UndoJournal,
    files: &Files,
    hunk: &str,
) -> Result<Option<State>, String> {
    let path = Path::new(&base.path);
    let spot = find_unchanged(files, path, PathAccess::Read)?;
    let (now, bytes) = read_state(files, &spot).map_err(|reason| format!("{}: {reason}", path.display()))?;
    let permissions = now.permissions().or(base.state.permissions());
    let (was, disk) = (ReviewSide::of_base(&base.state, store), ReviewSide::of(&now, bytes));
    let (was, disk) = was.text().zip(disk.text()).ok_or(NOT_TEXT)?;
    let text = FileComparison::new(&base.path, was, disk).with_only_hunk(hunk).ok_or(STALE)?;
    if text == disk {
        return Ok(None);
    }
    Ok(Some(kept_text(&text, permissions, path, store, journal)?))
}

/// The wanted state of a file once a hunk is reverted, and the line of the hunk.
fn file_without_hunk(
    base: &ReviewBase,
    store: &mut UndoStore,
    journal: &mut UndoJournal,
    (now, bytes): (&State, Option<&[u8]>),
    hunk: &str,
) -> Result<(State, Option<usize>), String> {
    let (was, disk) =
        (ReviewSide::of_base(&base.state, store), ReviewSide::of(now, bytes.map(<[u8]>::to_vec)));
    let (was, disk) = was.text().zip(disk.text()).ok_or(NOT_TEXT)?;
    let (text, line) = FileComparison::new(&base.path, was, disk).without_hunk(hunk).ok_or(STALE)?;
    let state = if text == was {
        base.state.clone()
    } else {
        kept_text(&text, now.permissions(), Path::new(&base.path), store, journal)?
    };
    Ok((state, Some(line)))
}

fn kept_text(
    text: &str,
    permissions: Option<u32>,
    path: &Path,
    store: &mut UndoStore,
    journal: &mut UndoJournal,
) -> Result<State, String> {
    let hash = store::hash(text.as_bytes());
    store.keep(&hash, text.as_bytes(), journal, false).map_err(|error| cannot_keep(path, &error))?;
    Ok(State::File { hash, bytes: text.len() as u64, permissions })
}

/// A state that a file can be restored to. Permissions are restored only if there is no file now.
fn restorable(wanted: State, now: &State, store: &UndoStore) -> Result<State, &'static str> {
    match wanted {
        State::Absent => Ok(State::Absent),
        State::Large { .. } => Err("its earlier content is too large to be stored (25 MiB at most)"),
        State::File { hash, .. } if !store.has(&hash) => Err("its earlier content is no longer stored"),
        State::File { hash, bytes, permissions } => {
            let permissions = if *now == State::Absent { permissions } else { now.permissions() };
            Ok(State::File { hash, bytes, permissions })
        }
    }
}
