//! Records which files a command changes: files that it names, and files that the session has read or
//! changed, are examined before it runs and again when it has ended.
//!
//! That is a guess at what matters, not a copy of the tree: other changes of a command cannot be undone. The
//! examined files are bounded by number and size, so that a command takes a few milliseconds longer at most.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox::{EntryKind, Files, PathAccess, PermittedPath};

use super::journal::State;
use super::{Inner, UndoHistory, read_state};
use crate::file_walk::FileWalk;
use crate::tools::{ToolJob, ToolOutcome, blocking};
use crate::workspace::Workspace;

/// Files that are examined for one command.
const FILES_MAX: usize = 500;
const BYTES_MAX: u64 = 64 << 20;
/// Folders that `cd` in the line leads to.
const FOLDERS_MAX: usize = 8;

/// Runs a command, given by its line, and records which of the files that it may concern it has changed.
/// Without a line, it is just run.
pub(crate) async fn record_command(
    line: Option<String>,
    job: &Arc<ToolJob>,
    run: impl Future<Output = ToolOutcome>,
) -> ToolOutcome {
    let Some(line) = line.filter(|_| job.session.undo.all.is_some()) else { return run.await };
    let looking = Arc::clone(job);
    let before = blocking(move || FilesBefore::of(&line, &looking)).await.ok().flatten();
    let outcome = run.await;
    if let Some(before) = before {
        let job = Arc::clone(job);
        blocking(move || before.compare(&job)).await.ok();
    }
    outcome
}

/// Files as they are before a command runs.
struct FilesBefore {
    undo: Arc<UndoHistory>,
    files: Vec<(PermittedPath, State)>,
}

impl FilesBefore {
    fn of(line: &str, job: &ToolJob) -> Option<Self> {
        let files = job.workspace.files().ok()?;
        let mut spots = files_in_line(line, &job.workspace, files);
        let known = job.session.read_versions.latest(FILES_MAX).into_iter();
        let still =
            |path: PathBuf| files.find(&path, PathAccess::Write).ok().filter(|spot| spot.real() == path);
        spots.extend(known.filter_map(still));
        let mut seen = HashSet::new();
        spots.retain(|spot| seen.insert(spot.real().to_owned()));
        spots.truncate(FILES_MAX);
        let mut inner = job.session.undo.open()?;
        let Inner { store, journal, commands } = inner.as_mut()?;
        let (mut looked, mut left) = (Vec::new(), BYTES_MAX);
        for spot in spots {
            let Ok((state, bytes)) = read_state(files, &spot) else { continue };
            if let (State::File { hash, .. }, Some(bytes)) = (&state, &bytes) {
                let Some(rest) = left.checked_sub(bytes.len() as u64) else { continue };
                left = rest;
                // Contents stored for this command must not be dropped to store the rest. What cannot be
                // stored is reported when somebody wants to undo it.
                store.keep(hash, bytes, journal, *commands == 0 && looked.is_empty()).ok();
            }
            looked.push((spot, state));
        }
        *commands += 1;
        Some(Self { undo: Arc::clone(&job.session.undo), files: looked })
    }

    fn compare(mut self, job: &ToolJob) {
        let Ok(files) = job.workspace.files() else { return };
        let mut changed = Vec::new();
        for (spot, before) in std::mem::take(&mut self.files) {
            match read_state(files, &spot) {
                Ok((after, _)) if after != before => changed.push((spot, before, after)),
                Ok(_) | Err(_) => {}
            }
        }
        let mut inner = self.undo.open();
        if let Some(Some(Inner { store, journal, .. })) = inner.as_deref_mut().filter(|_| !changed.is_empty())
        {
            for (spot, before, after) in changed {
                journal.note(job.context.turn().0, spot.real(), before, after);
            }
            if let Err(error) = store.write_journal(journal) {
                tracing::warn!(%error, "what a command changed cannot be undone");
            }
        }
    }
}

impl Drop for FilesBefore {
    fn drop(&mut self) {
        if let Some(Some(inner)) = self.undo.open().as_deref_mut() {
            inner.commands = inner.commands.saturating_sub(1);
        }
    }
}

/// The files that a line names, there or not, and those in folders that it names.
fn files_in_line(line: &str, workspace: &Workspace, files: &Files) -> Vec<PermittedPath> {
    let mut folders = vec![workspace.folder().to_owned()];
    let mut spots = Vec::new();
    for command in guard::shell::read(line).commands {
        let mut words = command.argv.iter().map(guard::shell::Word::text);
        if command.argv.first().is_some_and(|word| word.text() == "cd") {
            let to: Vec<PathBuf> =
                words.nth(1).into_iter().flat_map(|to| folders.iter().map(move |at| at.join(to))).collect();
            folders.extend(to);
            folders.truncate(FOLDERS_MAX);
            continue;
        }
        let targets = command
            .redirects
            .iter()
            .filter(|redirect| redirect.writes())
            .map(|redirect| redirect.target.text());
        for word in words.skip(1).chain(targets) {
            let value = word.split_once('=').map(|(_, value)| value);
            for word in [Some(word), value].into_iter().flatten().filter(|word| !word.is_empty()) {
                for folder in &folders {
                    add(&mut spots, &folder.join(word), workspace, files);
                }
            }
        }
        if spots.len() >= FILES_MAX {
            break;
        }
    }
    spots
}

fn add(spots: &mut Vec<PermittedPath>, path: &Path, workspace: &Workspace, files: &Files) {
    let Ok(spot) = files.find(path, PathAccess::Write) else { return };
    match spot.kind() {
        Some(EntryKind::Folder) => {
            // The whole workspace is more than a command is likely to mean.
            if !workspace.folder().starts_with(spot.real()) {
                let inside = FileWalk::new(files, &spot).take(FILES_MAX.saturating_sub(spots.len()));
                spots.extend(inside.filter_map(|spot| files.find(spot.real(), PathAccess::Write).ok()));
            }
        }
        Some(EntryKind::Link | EntryKind::Other) => {}
        Some(EntryKind::File) | None => spots.push(spot),
    }
}
