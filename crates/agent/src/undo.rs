//! Undo and redo of what a turn did to files.
//!
//! Before a tool changes a file, its bytes are stored (or that it did not exist), outside of the workspace
//! and of the user's own version control. They are not taken from the log, which has secrets removed. Only
//! files that the agent touches are stored, not the whole tree. A step checks all of its files first, and
//! changes none of them if somebody else has changed one.
//!
//! **Invariant:** undo never loses bytes: what a step replaces can be restored by the opposite step.
//! **Invariant:** files are resolved again below the session's folder handles; what has become a link is
//! refused.

mod change_review;
mod command_changes;
mod hunks;
mod journal;
mod store;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{BoxFuture, FileChange, Follower, SessionHandle, SessionId, TurnId};
use sandbox::{FileError, Files, PathAccess, PermittedPath, UnusableReason};

use self::journal::{Entry, State, UndoJournal};
use self::store::{FILE_BYTES_MAX, UndoStore};
use crate::tools::draft_name;

pub(crate) use self::change_review::RevertedChange;
pub(crate) use self::command_changes::record_command;

/// A larger text is restored without showing the change.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// Files that are named in an answer.
const NAMED_MAX: usize = 20;

/// The undo history of a session.
pub(crate) struct UndoHistory {
    /// The folder of all sessions. Without it, nothing is stored.
    all: Option<PathBuf>,
    session: SessionId,
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    store: UndoStore,
    journal: UndoJournal,
    /// Running commands. The stored contents of their files are not referenced by a turn yet.
    commands: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoDirection {
    Back,
    Forth,
}

/// The result of an undo or redo step.
#[derive(Debug, Default)]
pub(crate) struct UndoStepResult {
    pub(crate) paths: Vec<PathBuf>,
    /// The changes that are text.
    pub(crate) changes: Vec<FileChange>,
    /// Files that could not be restored, with the reason.
    pub(crate) not_restored: Vec<String>,
    /// It stopped in the middle.
    pub(crate) unfinished: bool,
}

/// The journal before a change that may not be made after all.
pub(crate) struct PreviousJournal(Option<UndoJournal>);

impl UndoHistory {
    pub(crate) fn new(all: Option<PathBuf>, session: SessionId) -> Self {
        Self { all, session, inner: Mutex::new(None) }
    }

    /// Called before a tool changes a file. If its contents cannot be stored, the tool runs all the same.
    pub(crate) fn will_change(
        &self,
        turn: TurnId,
        spot: &PermittedPath,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        permissions: Option<u32>,
    ) -> PreviousJournal {
        let now = spot.permissions();
        let before = (state_of(before, now), before);
        self.note(turn, spot.real(), before, state_of(after, permissions.or(now)))
    }

    /// Called if the tool did not change the file after all.
    pub(crate) fn did_not_change(&self, former: PreviousJournal) {
        let Some(mut inner) = self.open() else { return };
        let (Some(Inner { store, journal, .. }), Some(former)) = (inner.as_mut(), former.0) else { return };
        *journal = former;
        if let Err(error) = store.write_journal(journal) {
            tracing::warn!(%error, "could not record that nothing was changed");
        }
    }

    /// Records a change, and returns the journal before it.
    fn note(
        &self,
        turn: TurnId,
        path: &Path,
        (before, bytes): (State, Option<&[u8]>),
        after: State,
    ) -> PreviousJournal {
        let Some(mut inner) = self.open() else { return PreviousJournal(None) };
        let Some(Inner { store, journal, commands }) = inner.as_mut() else { return PreviousJournal(None) };
        let former = journal.clone();
        let outcome = match (&before, bytes) {
            (State::File { hash, .. }, Some(bytes)) => store.keep(hash, bytes, journal, *commands == 0),
            (_, _) => Ok(()),
        };
        journal.note(turn.0, path, before, after);
        if let Err(error) = outcome.and_then(|()| store.write_journal(journal)) {
            tracing::warn!(path = %path.display(), %error, "could not save the earlier content of a file, so its change cannot be undone");
        }
        PreviousJournal(Some(former))
    }

    /// Undoes the last turn that changed files and is not undone, or redoes the last undone one. With `force`
    /// even if somebody else has changed a file since.
    pub(crate) fn step(
        &self,
        files: &Files,
        direction: UndoDirection,
        force: bool,
    ) -> Result<UndoStepResult, String> {
        let mut inner = self.open().ok_or("undo is not available: the server has no folder for it")?;
        let Some(Inner { store, journal, .. }) = inner.as_mut() else {
            return Err("undo is not available".into());
        };
        let at = match direction {
            UndoDirection::Back => journal.done.checked_sub(1),
            UndoDirection::Forth => (journal.done < journal.turns.len()).then_some(journal.done),
        };
        let nothing = || match direction {
            UndoDirection::Back => "there are no file changes to undo",
            UndoDirection::Forth => "there is nothing to redo",
        };
        let at = at.ok_or_else(nothing)?;
        let mut entries = journal.turns[at].files.clone();
        let mut plan = plan_step(store, files, &mut entries, direction, force)?;
        // What will be replaced is stored and recorded in the journal before anything is replaced.
        for restore in &plan.restores {
            let kept = match (&restore.now, &restore.bytes) {
                (State::File { hash, .. }, Some(bytes)) => store.keep(hash, bytes, journal, false),
                (State::Large { .. }, _) => Err(io::Error::other("it is too large to be stored for undo")),
                (_, _) => Ok(()),
            };
            kept.map_err(|error| cannot_keep(&restore.path, &error))?;
        }
        journal.turns[at].files = entries;
        store
            .write_journal(journal)
            .map_err(|error| format!("could not save the list of changes: {error}"))?;
        let mut stepped = UndoStepResult {
            not_restored: std::mem::take(&mut plan.not_restored),
            ..UndoStepResult::default()
        };
        for restore in plan.restores {
            match restore_file(files, store, &restore) {
                Ok(change) => {
                    stepped.paths.push(restore.path);
                    stepped.changes.extend(change);
                }
                // The same step can be repeated: files that are done are skipped.
                Err(reason) if stepped.paths.is_empty() => return Err(reason),
                Err(reason) => {
                    stepped.not_restored.push(reason);
                    stepped.unfinished = true;
                    return Ok(stepped);
                }
            }
        }
        journal.done = match direction {
            UndoDirection::Back => at,
            UndoDirection::Forth => at + 1,
        };
        store
            .write_journal(journal)
            .map_err(|error| format!("could not save the list of changes: {error}"))?;
        Ok(stepped)
    }

    /// The session's store and journal, opened when first needed.
    fn open(&self) -> Option<MutexGuard<'_, Option<Inner>>> {
        let all = self.all.as_ref()?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.get_or_insert_with(|| {
            let store = UndoStore::open(all, self.session.as_str());
            Inner { journal: store.journal(), store, commands: 0 }
        });
        Some(inner)
    }
}

/// Deletes the undo data of a session when the session is deleted.
pub struct UndoCleanup {
    pub folder: PathBuf,
}

impl Follower for UndoCleanup {
    fn follow(&self, _: SessionHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        let (folder, id) = (self.folder.clone(), id.clone());
        Box::pin(async move {
            let removed = crate::tools::blocking(move || store::remove(&folder, id.as_str())).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "could not delete the undo data of a deleted session");
            }
        })
    }
}

/// One file of a step.
struct FileRestore {
    path: PathBuf,
    spot: PermittedPath,
    now: State,
    bytes: Option<Vec<u8>>,
    wanted: State,
}

#[derive(Default)]
struct RestorePlan {
    restores: Vec<FileRestore>,
    not_restored: Vec<String>,
}

/// Plans a step: checks all files and changes none.
fn plan_step(
    store: &UndoStore,
    files: &Files,
    entries: &mut [Entry],
    direction: UndoDirection,
    force: bool,
) -> Result<RestorePlan, String> {
    let word = if direction == UndoDirection::Back { "undo" } else { "redo" };
    let (mut plan, mut strange) = (RestorePlan::default(), Vec::new());
    for Entry { path, before, after } in entries {
        let (wanted, expected) = match direction {
            UndoDirection::Back => (&*before, &mut *after),
            UndoDirection::Forth => (&*after, &mut *before),
        };
        let path = PathBuf::from(path.as_str());
        let spot = find_unchanged(files, &path, PathAccess::Write)?;
        let (now, bytes) =
            read_state(files, &spot).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let moved = wanted.permissions().filter(|_| wanted.permissions() != expected.permissions());
        if now.same_bytes(wanted) && moved.is_none_or(|bits| now.permissions() == Some(bits)) {
            continue;
        }
        if !now.same_bytes(expected) {
            strange.push(path.display().to_string());
        }
        let lost = match wanted {
            State::Absent => None,
            State::File { hash, .. } => (!store.has(hash)).then_some("is no longer stored"),
            State::Large { .. } => Some("is too large to be stored (25 MiB at most)"),
        };
        if let Some(lost) = lost {
            plan.not_restored.push(format!("{}: its earlier content {lost}", path.display()));
            continue;
        }
        let wanted = match (wanted.clone(), moved) {
            // Permissions that the turn did not change are left as they are.
            (State::File { hash, bytes, .. }, None) if now != State::Absent => {
                State::File { hash, bytes, permissions: None }
            }
            (wanted, _) => wanted,
        };
        *expected = now.clone();
        plan.restores.push(FileRestore { path, spot, now, bytes, wanted });
    }
    if !strange.is_empty() && !force {
        let files = name_some(&strange);
        return Err(format!(
            "somebody else has changed this since: {files}. To overwrite those changes: `/{word} force`"
        ));
    }
    if !plan.not_restored.is_empty() && !force {
        let left = name_some(&plan.not_restored);
        return Err(format!("not everything can be restored: {left}. To restore the rest: `/{word} force`"));
    }
    Ok(plan)
}

pub(crate) fn name_some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - more].join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Restores one file to the wanted state, and returns the change if it is text. Also used for less than a
/// turn, such as one hunk of a file.
fn restore_file(
    files: &Files,
    store: &UndoStore,
    restore: &FileRestore,
) -> Result<Option<FileChange>, String> {
    let named =
        |error: &dyn std::fmt::Display| format!("could not restore {}: {error}", restore.path.display());
    // Links and folders may have changed since the file was checked.
    let (now, _) = read_state(files, &restore.spot).map_err(|error| named(&error))?;
    if !now.same_bytes(&restore.now) {
        return Err(named(&"it was changed at the same moment; try again"));
    }
    let wanted = match &restore.wanted {
        State::Absent => None,
        State::File { hash, .. } => Some(store.content(hash).map_err(|error| named(&error))?),
        State::Large { .. } => return Err(named(&"its earlier content is not stored")),
    };
    let outcome = match &wanted {
        Some(bytes) => files.replace_with(&restore.spot, bytes, &draft_name(), restore.wanted.permissions()),
        None => files.remove(&restore.spot),
    };
    match outcome {
        Err(error) => Err(named(&error)),
        Ok(()) => Ok(change(restore, wanted.as_deref())),
    }
}

fn change(restore: &FileRestore, wanted: Option<&[u8]>) -> Option<FileChange> {
    let text = |bytes: Option<&[u8]>| -> Option<Option<std::sync::Arc<str>>> {
        let Some(bytes) = bytes else { return Some(None) };
        let text = std::str::from_utf8(bytes).ok()?;
        (bytes.len() <= SHOWN_BYTES_MAX && !bytes.contains(&0)).then(|| Some(text.into()))
    };
    let (before, after) = (text(restore.bytes.as_deref())?, text(wanted)?);
    (before != after).then(|| FileChange { path: restore.path.clone(), before, after })
}

fn cannot_keep(path: &Path, error: &io::Error) -> String {
    format!("{} was left as it is: its current content could not be saved ({error})", path.display())
}

/// Resolves a path, if it still leads to the same file.
fn find_unchanged(files: &Files, path: &Path, want: PathAccess) -> Result<PermittedPath, String> {
    let spot = files.find(path, want).map_err(|error| error.to_string())?;
    if spot.real() != path {
        return Err(format!("{} is a link now, and files are not restored through links", path.display()));
    }
    Ok(spot)
}

fn state_of(bytes: Option<&[u8]>, permissions: Option<u32>) -> State {
    match bytes {
        None => State::Absent,
        Some(bytes) => State::File { hash: store::hash(bytes), bytes: bytes.len() as u64, permissions },
    }
}

/// The state of a file, with its bytes unless there are too many.
fn read_state(files: &Files, spot: &PermittedPath) -> Result<(State, Option<Vec<u8>>), String> {
    let file = match files.open_file(spot) {
        Ok(file) => file,
        Err(FileError::Unusable { reason: UnusableReason::Missing, .. }) => return Ok((State::Absent, None)),
        Err(FileError::Unusable { reason, .. }) => return Err(reason.to_string()),
        Err(refused @ FileError::Refused { .. }) => return Err(refused.to_string()),
    };
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let large =
        |bytes: u64| State::Large { bytes, written: spot.modified_ns().unwrap_or_default().to_string() };
    if size > FILE_BYTES_MAX {
        return Ok((large(size), None));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Ok((large(bytes.len() as u64), None));
    }
    Ok((state_of(Some(&bytes), spot.permissions()), Some(bytes)))
}
