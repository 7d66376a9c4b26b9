//! Writes one session's folder, event by event.
//!
//! A file appears complete: it is written under a temporary name and renamed. Each file has the event's position in our log,
//! so writing can continue after a restart. The file name depends only on the event, so two processes that write the same
//! event write the same file. Existing files are never changed or removed, including chimera's own and torn ones; only the
//! summary is rewritten.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Body, Event, Seq, SessionRow};
use rustix::fs::OFlags;
use serde_json::Value;
use wire::chimera_archive::{self, LOCK, SUMMARY};
use wire::session_export_writer::DocumentFacts;

use super::folder_reader::{EVENT_BYTES_MAX, SessionFolder};

/// The same wait as in chimera's programs.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many files to try, from the last one back, until one can be read.
const TORN_MAX: usize = 1000;

/// What the summary contains besides the log.
pub struct SessionMeta {
    pub row: SessionRow,
    /// The model of the session, chosen or default.
    pub model: Option<Arc<str>>,
}

pub struct FolderWriter {
    folder: PathBuf,
    files: chimera_archive::Writer,
    facts: DocumentFacts,
    /// The last written event.
    written: Seq,
    described: bool,
}

impl FolderWriter {
    /// `known`: where the log ended when the session was opened. A folder from chimera has the events up to there.
    pub fn open(root: &Path, row: &SessionRow, known: Seq) -> io::Result<Self> {
        let folder = root.join(chimera_archive::folder_name(row));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let _lock = lock(&folder)?;
        let mut files = chimera_archive::Writer::new(row);
        let opened = SessionFolder::open(&folder)?;
        let there = opened.events()?;
        if let Some((last, _)) = there.last() {
            files.go_on_at(usize::try_from(*last).unwrap_or(usize::MAX).saturating_add(1));
        }
        let written = written(&opened, &there, known);
        Ok(Self { folder, files, facts: DocumentFacts::default(), written, described: false })
    }

    /// Writes events of the log, in order from the first one.
    pub fn write(&mut self, session: &SessionMeta, events: &[Arc<Event>]) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        for event in events {
            self.facts.observe(event);
            if event.seq <= self.written {
                self.files.pass(event);
                continue;
            }
            let (name, file) = self.files.file(event);
            self.put(&name, &file)?;
            self.written = event.seq;
        }
        if !self.described || events.iter().any(|event| is_told_in_summary(&event.body)) {
            self.describe(session)?;
        }
        Ok(())
    }

    /// Writes the final summary when the session leaves memory.
    pub fn finish(&mut self, session: &SessionMeta) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        self.describe(session)
    }

    fn describe(&mut self, session: &SessionMeta) -> io::Result<()> {
        let mut summary = chimera_archive::summary(&session.row, &self.facts);
        if summary["model"].is_null() {
            summary["model"] = session.model.as_deref().into();
        }
        self.put(SUMMARY, &summary)?;
        self.described = true;
        Ok(())
    }

    fn put(&self, name: &str, value: &Value) -> io::Result<()> {
        let unfinished = self.folder.join(format!(".{name}.part"));
        // Overwrites a torn file of a killed process.
        let mut file = private().truncate(true).open(&unfinished)?;
        let written = file.write_all(format!("{value:#}\n").as_bytes());
        let moved = written.and_then(|()| fs::rename(&unfinished, self.folder.join(name)));
        if moved.is_err() {
            // It is incomplete and ours.
            drop(fs::remove_file(&unfinished));
        }
        moved
    }
}

/// The last event of our log in a folder.
fn written(folder: &SessionFolder, there: &[(u64, String)], known: Seq) -> Seq {
    for (_, name) in there.iter().rev().take(TORN_MAX) {
        let Ok(text) = folder.text(name, EVENT_BYTES_MAX) else { continue };
        match chimera_archive::position(&text) {
            Some(seq) => return seq,
            // An event of chimera: the session was imported from here, so its events are not written again.
            None if serde_json::from_str::<Value>(&text).is_ok() => return known,
            None => {}
        }
    }
    Seq::START
}

/// Whether the event changes the summary.
fn is_told_in_summary(body: &Body) -> bool {
    matches!(
        body,
        Body::TurnStarted | Body::TurnEnded { .. } | Body::Title { .. } | Body::Moved { .. } | Body::Cleared
    )
}

/// Options for a private file. Links are not followed.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.write(true).create(true).mode(0o600).custom_flags(flags);
    options
}

/// Locks a folder for writing until the file is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let file = private().open(folder.join(LOCK))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if since.elapsed() >= LOCK_WAIT => {
                return Err(io::Error::other(format!("{LOCK} in {} is locked", folder.display())));
            }
            // Runs on a blocking thread.
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests;
