//! Taking back what a turn did to files, and doing it again.
//!
//! Before a tool changes a file its bytes are kept, or that it was not there, outside the workspace and
//! outside the user's own history. Not the log: secrets are taken out of that. And not the whole tree:
//! only what the agent touches. A step back or forth looks at all its files first and changes none of
//! them if one was changed by somebody else.
//!
//! **Invariant:** the agent's own undo never loses bytes: what it replaces can be had back by the
//! opposite step.
//! **Invariant:** files are found below the session's handles again; what has become a link is refused.

mod command;
mod hunks;
mod journal;
mod review;
mod store;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{BoxFuture, FileChange, Follower, SessionHandle, SessionId, TurnId};
use sandbox::{FileError, Files, Spot, Unfit, Want};

use self::journal::{Entry, Journal, State};
use self::store::{FILE_BYTES_MAX, Store};
use crate::tools::draft_name;

pub(crate) use self::command::around;
pub(crate) use self::review::TakenBack;

/// A larger text is restored without being shown as a change.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// Files that an answer names.
const NAMED_MAX: usize = 20;

/// What a session can take back.
pub(crate) struct Undo {
    /// The folder of all sessions; without, nothing is kept.
    all: Option<PathBuf>,
    session: SessionId,
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    store: Store,
    journal: Journal,
    /// Commands at work, whose files' contents no turn needs yet.
    commands: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Back,
    Forth,
}

/// What a step did.
#[derive(Debug, Default)]
pub(crate) struct Stepped {
    pub(crate) paths: Vec<PathBuf>,
    /// Those of the changes that are text.
    pub(crate) changes: Vec<FileChange>,
    /// Files that could not be brought back, in words.
    pub(crate) left: Vec<String>,
    /// It stopped in the middle.
    pub(crate) unfinished: bool,
}

/// What was noted before a change that may not come about.
pub(crate) struct Former(Option<Journal>);

impl Undo {
    pub(crate) fn new(all: Option<PathBuf>, session: SessionId) -> Self {
        Self { all, session, inner: Mutex::new(None) }
    }

    /// A tool is about to change a file. What cannot be kept is no reason not to work.
    pub(crate) fn will_change(
        &self,
        turn: TurnId,
        spot: &Spot,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        permissions: Option<u32>,
    ) -> Former {
        let now = spot.permissions();
        let before = (state_of(before, now), before);
        self.note(turn, spot.real(), before, state_of(after, permissions.or(now)))
    }

    /// It did not after all.
    pub(crate) fn did_not_change(&self, former: Former) {
        let Some(mut inner) = self.open() else { return };
        let (Some(Inner { store, journal, .. }), Some(former)) = (inner.as_mut(), former.0) else { return };
        *journal = former;
        if let Err(error) = store.write_journal(journal) {
            tracing::warn!(%error, "that nothing was changed is not kept");
        }
    }

    /// Says what was noted before.
    fn note(
        &self,
        turn: TurnId,
        path: &Path,
        (before, bytes): (State, Option<&[u8]>),
        after: State,
    ) -> Former {
        let Some(mut inner) = self.open() else { return Former(None) };
        let Some(Inner { store, journal, commands }) = inner.as_mut() else { return Former(None) };
        let former = journal.clone();
        let outcome = match (&before, bytes) {
            (State::File { hash, .. }, Some(bytes)) => store.keep(hash, bytes, journal, *commands == 0),
            (_, _) => Ok(()),
        };
        journal.note(turn.0, path, before, after);
        if let Err(error) = outcome.and_then(|()| store.write_journal(journal)) {
            tracing::warn!(path = %path.display(), %error, "what was there before a change is not kept");
        }
        Former(Some(former))
    }

    /// Takes back the last turn that changed files and is not taken back, or does again the last one that is.
    /// With `force` also where somebody else has changed a file since.
    pub(crate) fn step(&self, files: &Files, way: Way, force: bool) -> Result<Stepped, String> {
        let mut inner = self.open().ok_or("nothing is kept here: the server has no folder for it")?;
        let Some(Inner { store, journal, .. }) = inner.as_mut() else { return Err("nothing is kept".into()) };
        let at = match way {
            Way::Back => journal.done.checked_sub(1),
            Way::Forth => (journal.done < journal.turns.len()).then_some(journal.done),
        };
        let nothing = || match way {
            Way::Back => "no turn has changed files that could be put back",
            Way::Forth => "nothing was undone that could be done again",
        };
        let at = at.ok_or_else(nothing)?;
        let mut entries = journal.turns[at].files.clone();
        let mut plan = planned(store, files, &mut entries, way, force)?;
        // What is replaced is kept before anything is, and the journal knows of it.
        for deed in &plan.deeds {
            let kept = match (&deed.now, &deed.bytes) {
                (State::File { hash, .. }, Some(bytes)) => store.keep(hash, bytes, journal, false),
                (State::Large { .. }, _) => Err(io::Error::other("it is too large to be kept")),
                (_, _) => Ok(()),
            };
            kept.map_err(|error| cannot_keep(&deed.path, &error))?;
        }
        journal.turns[at].files = entries;
        store
            .write_journal(journal)
            .map_err(|error| format!("the list of changes cannot be written: {error}"))?;
        let mut stepped = Stepped { left: std::mem::take(&mut plan.left), ..Stepped::default() };
        for deed in plan.deeds {
            match put_back(files, store, &deed) {
                Ok(change) => {
                    stepped.paths.push(deed.path);
                    stepped.changes.extend(change);
                }
                // The same step can be taken again: what is done by then is passed over.
                Err(reason) if stepped.paths.is_empty() => return Err(reason),
                Err(reason) => {
                    stepped.left.push(reason);
                    stepped.unfinished = true;
                    return Ok(stepped);
                }
            }
        }
        journal.done = match way {
            Way::Back => at,
            Way::Forth => at + 1,
        };
        store
            .write_journal(journal)
            .map_err(|error| format!("the list of changes cannot be written: {error}"))?;
        Ok(stepped)
    }

    /// The session's list of changes, read when it is first needed.
    fn open(&self) -> Option<MutexGuard<'_, Option<Inner>>> {
        let all = self.all.as_ref()?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.get_or_insert_with(|| {
            let store = Store::open(all, self.session.as_str());
            Inner { journal: store.journal(), store, commands: 0 }
        });
        Some(inner)
    }
}

/// Forgets what is kept of a session when the session is deleted.
pub struct ForgetsUndo {
    pub folder: PathBuf,
}

impl Follower for ForgetsUndo {
    fn follow(&self, _: SessionHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn deleted(&self, id: &SessionId) -> BoxFuture<'static, ()> {
        let (folder, id) = (self.folder.clone(), id.clone());
        Box::pin(async move {
            let removed = crate::tools::blocking(move || store::remove(&folder, id.as_str())).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "what was kept for undo of a deleted session is still there");
            }
        })
    }
}

/// One file of a step.
struct Deed {
    path: PathBuf,
    spot: Spot,
    now: State,
    bytes: Option<Vec<u8>>,
    wanted: State,
}

#[derive(Default)]
struct Plan {
    deeds: Vec<Deed>,
    left: Vec<String>,
}

/// What a step has to do, if it may: everything is looked at and nothing is changed.
fn planned(
    store: &Store,
    files: &Files,
    entries: &mut [Entry],
    way: Way,
    force: bool,
) -> Result<Plan, String> {
    let word = if way == Way::Back { "undo" } else { "redo" };
    let (mut plan, mut strange) = (Plan::default(), Vec::new());
    for Entry { path, before, after } in entries {
        let (wanted, expected) = match way {
            Way::Back => (&*before, &mut *after),
            Way::Forth => (&*after, &mut *before),
        };
        let path = PathBuf::from(path.as_str());
        let spot = found(files, &path, Want::Write)?;
        let (now, bytes) = look(files, &spot).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let moved = wanted.permissions().filter(|_| wanted.permissions() != expected.permissions());
        if now.same_bytes(wanted) && moved.is_none_or(|bits| now.permissions() == Some(bits)) {
            continue;
        }
        if !now.same_bytes(expected) {
            strange.push(path.display().to_string());
        }
        let lost = match wanted {
            State::Absent => None,
            State::File { hash, .. } => (!store.has(hash)).then_some("is no longer kept"),
            State::Large { .. } => Some("is too large to be kept (25 MiB at most)"),
        };
        if let Some(lost) = lost {
            plan.left.push(format!("{}: what it held {lost}", path.display()));
            continue;
        }
        let wanted = match (wanted.clone(), moved) {
            // Permissions that the turn did not change are whatever they are.
            (State::File { hash, bytes, .. }, None) if now != State::Absent => {
                State::File { hash, bytes, permissions: None }
            }
            (wanted, _) => wanted,
        };
        *expected = now.clone();
        plan.deeds.push(Deed { path, spot, now, bytes, wanted });
    }
    if !strange.is_empty() && !force {
        let files = some_of(&strange);
        return Err(format!(
            "somebody else has changed this since: {files}. `/{word} force` does it all the same"
        ));
    }
    if !plan.left.is_empty() && !force {
        let left = some_of(&plan.left);
        return Err(format!("not everything can be put back: {left}. `/{word} force` does the rest"));
    }
    Ok(plan)
}

pub(crate) fn some_of(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - more].join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Brings one file to the state that is wanted of it, and says what that changed if it is text. What
/// restores less than a turn, such as one hunk of one file, ends here too.
fn put_back(files: &Files, store: &Store, deed: &Deed) -> Result<Option<FileChange>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{} was not put back: {error}", deed.path.display());
    // Links and folders may have changed since it was looked at.
    let (now, _) = look(files, &deed.spot).map_err(|error| named(&error))?;
    if !now.same_bytes(&deed.now) {
        return Err(named(&"somebody changed it this very moment; try again"));
    }
    let wanted = match &deed.wanted {
        State::Absent => None,
        State::File { hash, .. } => Some(store.content(hash).map_err(|error| named(&error))?),
        State::Large { .. } => return Err(named(&"it is not kept")),
    };
    let outcome = match &wanted {
        Some(bytes) => files.replace_with(&deed.spot, bytes, &draft_name(), deed.wanted.permissions()),
        None => files.remove(&deed.spot),
    };
    match outcome {
        Err(error) => Err(named(&error)),
        Ok(()) => Ok(change(deed, wanted.as_deref())),
    }
}

fn change(deed: &Deed, wanted: Option<&[u8]>) -> Option<FileChange> {
    let text = |bytes: Option<&[u8]>| -> Option<Option<std::sync::Arc<str>>> {
        let Some(bytes) = bytes else { return Some(None) };
        let text = std::str::from_utf8(bytes).ok()?;
        (bytes.len() <= SHOWN_BYTES_MAX && !bytes.contains(&0)).then(|| Some(text.into()))
    };
    let (before, after) = (text(deed.bytes.as_deref())?, text(wanted)?);
    (before != after).then(|| FileChange { path: deed.path.clone(), before, after })
}

fn cannot_keep(path: &Path, error: &io::Error) -> String {
    format!("{} is left as it is: what it holds cannot be kept ({error})", path.display())
}

/// Where a path leads, if it is still the place that it was.
fn found(files: &Files, path: &Path, want: Want) -> Result<Spot, String> {
    let spot = files.find(path, want).map_err(|error| error.to_string())?;
    if spot.real() != path {
        return Err(format!("{} is a link now; nothing is put back through it", path.display()));
    }
    Ok(spot)
}

fn state_of(bytes: Option<&[u8]>, permissions: Option<u32>) -> State {
    match bytes {
        None => State::Absent,
        Some(bytes) => State::File { hash: store::hash(bytes), bytes: bytes.len() as u64, permissions },
    }
}

/// What is at a spot, with its bytes unless they are too many.
fn look(files: &Files, spot: &Spot) -> Result<(State, Option<Vec<u8>>), String> {
    let file = match files.open_file(spot) {
        Ok(file) => file,
        Err(FileError::Unusable { reason: Unfit::Missing, .. }) => return Ok((State::Absent, None)),
        Err(FileError::Unusable { reason, .. }) => return Err(reason.to_string()),
        Err(refused @ FileError::Refused { .. }) => return Err(refused.to_string()),
    };
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let large = |bytes: u64| State::Large { bytes, written: spot.written().unwrap_or_default().to_string() };
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
