//! What a command changes: files that it names, and those that the session has read or changed, are
//! looked at before it runs and once more when it has ended.
//!
//! That is a guess at what matters, not a copy of the tree: whatever a command changes besides stays
//! changed. What is looked at is bounded by number and size, so that a command costs a few milliseconds
//! more at most.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox::{Files, Kind, Spot, Want};

use super::journal::State;
use super::{Inner, Undo, look};
use crate::place::Place;
use crate::tools::{Job, Outcome, blocking};
use crate::walk::Walk;

/// What is looked at for one command.
const FILES_MAX: usize = 500;
const BYTES_MAX: u64 = 64 << 20;
/// Folders of a line that `cd` leads to.
const FOLDERS_MAX: usize = 8;

/// Runs a command, given by its line, and notes which of the files that it may concern it has changed.
/// Without a line, just runs.
pub(crate) async fn around(
    line: Option<String>,
    job: &Arc<Job>,
    run: impl Future<Output = Outcome>,
) -> Outcome {
    let Some(line) = line.filter(|_| job.session.undo.all.is_some()) else { return run.await };
    let looking = Arc::clone(job);
    let before = blocking(move || Before::of(&line, &looking)).await.ok().flatten();
    let outcome = run.await;
    if let Some(before) = before {
        let job = Arc::clone(job);
        blocking(move || before.compare(&job)).await.ok();
    }
    outcome
}

/// Files as they are before a command runs.
struct Before {
    undo: Arc<Undo>,
    files: Vec<(Spot, State)>,
}

impl Before {
    fn of(line: &str, job: &Job) -> Option<Self> {
        let files = job.place.files().ok()?;
        let mut spots = concerned(line, &job.place, files);
        let known = job.session.seen.latest(FILES_MAX).into_iter();
        let still = |path: PathBuf| files.find(&path, Want::Write).ok().filter(|spot| spot.real() == path);
        spots.extend(known.filter_map(still));
        let mut seen = HashSet::new();
        spots.retain(|spot| seen.insert(spot.real().to_owned()));
        spots.truncate(FILES_MAX);
        let mut inner = job.session.undo.open()?;
        let Inner { store, journal, commands } = inner.as_mut()?;
        let (mut looked, mut left) = (Vec::new(), BYTES_MAX);
        for spot in spots {
            let Ok((state, bytes)) = look(files, &spot) else { continue };
            if let (State::File { hash, .. }, Some(bytes)) = (&state, &bytes) {
                let Some(rest) = left.checked_sub(bytes.len() as u64) else { continue };
                left = rest;
                // What this command needs already must not make room for the rest of it. What cannot be kept is
                // named when somebody wants it back.
                store.keep(hash, bytes, journal, *commands == 0 && looked.is_empty()).ok();
            }
            looked.push((spot, state));
        }
        *commands += 1;
        Some(Self { undo: Arc::clone(&job.session.undo), files: looked })
    }

    fn compare(mut self, job: &Job) {
        let Ok(files) = job.place.files() else { return };
        let mut changed = Vec::new();
        for (spot, before) in std::mem::take(&mut self.files) {
            match look(files, &spot) {
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

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(Some(inner)) = self.undo.open().as_deref_mut() {
            inner.commands = inner.commands.saturating_sub(1);
        }
    }
}

/// The files that a line names, there or not, and those in folders that it names.
fn concerned(line: &str, place: &Place, files: &Files) -> Vec<Spot> {
    let mut folders = vec![place.folder().to_owned()];
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
                    add(&mut spots, &folder.join(word), place, files);
                }
            }
        }
        if spots.len() >= FILES_MAX {
            break;
        }
    }
    spots
}

fn add(spots: &mut Vec<Spot>, path: &Path, place: &Place, files: &Files) {
    let Ok(spot) = files.find(path, Want::Write) else { return };
    match spot.kind() {
        Some(Kind::Folder) => {
            // The whole workspace is more than a command is likely to mean.
            if !place.folder().starts_with(spot.real()) {
                let inside = Walk::new(files, &spot).take(FILES_MAX.saturating_sub(spots.len()));
                spots.extend(inside.filter_map(|spot| files.find(spot.real(), Want::Write).ok()));
            }
        }
        Some(Kind::Link | Kind::Other) => {}
        Some(Kind::File) | None => spots.push(spot),
    }
}
