//! One session's folder, written event by event.
//!
//! A file appears whole: it is written beside its place and moved there. The position of an event in our log stands in
//! its file, so whoever goes on after a restart knows where; the name of an event's file depends on the event alone, so
//! two processes that write the same event write one file. Files that are there are never changed or removed, chimera's
//! own and torn ones included; only the summary is written again.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Body, Event, Seq, SessionRow};
use rustix::fs::OFlags;
use serde_json::Value;
use wire::chimera::{self, LOCK, SUMMARY};
use wire::document::Facts;

use super::files::{EVENT_BYTES_MAX, SessionFolder};

/// As long as chimera's programs wait for each other.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Files that are tried from the last one back until one can be read.
const TORN_MAX: usize = 1000;

/// What the summary says besides what stands in the log.
pub struct Described {
    pub row: SessionRow,
    /// The model that the session has, chosen or not.
    pub model: Option<Arc<str>>,
}

pub struct FolderWriter {
    folder: PathBuf,
    files: chimera::Writer,
    facts: Facts,
    /// Events up to here are written.
    written: Seq,
    described: bool,
}

impl FolderWriter {
    /// `known`: where the log ended when the session was opened. A folder that chimera wrote has that much of it.
    pub fn open(root: &Path, row: &SessionRow, known: Seq) -> io::Result<Self> {
        let folder = root.join(chimera::folder_name(row));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let _lock = lock(&folder)?;
        let mut files = chimera::Writer::new(row);
        let opened = SessionFolder::open(&folder)?;
        let there = opened.events()?;
        if let Some((last, _)) = there.last() {
            files.go_on_at(usize::try_from(*last).unwrap_or(usize::MAX).saturating_add(1));
        }
        let written = written(&opened, &there, known);
        Ok(Self { folder, files, facts: Facts::default(), written, described: false })
    }

    /// Events of the log, in its order from the first on.
    pub fn write(&mut self, session: &Described, events: &[Arc<Event>]) -> io::Result<()> {
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

    /// The session leaves memory: what the summary says is what there is.
    pub fn finish(&mut self, session: &Described) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        self.describe(session)
    }

    fn describe(&mut self, session: &Described) -> io::Result<()> {
        let mut summary = chimera::summary(&session.row, &self.facts);
        if summary["model"].is_null() {
            summary["model"] = session.model.as_deref().into();
        }
        self.put(SUMMARY, &summary)?;
        self.described = true;
        Ok(())
    }

    fn put(&self, name: &str, value: &Value) -> io::Result<()> {
        let unfinished = self.folder.join(format!(".{name}.part"));
        // A torn one of a process that was killed is written over.
        let mut file = private().truncate(true).open(&unfinished)?;
        let written = file.write_all(format!("{value:#}\n").as_bytes());
        let moved = written.and_then(|()| fs::rename(&unfinished, self.folder.join(name)));
        if moved.is_err() {
            // It was made here and is of no use.
            drop(fs::remove_file(&unfinished));
        }
        moved
    }
}

/// How far our log is written in a folder.
fn written(folder: &SessionFolder, there: &[(u64, String)], known: Seq) -> Seq {
    for (_, name) in there.iter().rev().take(TORN_MAX) {
        let Ok(text) = folder.text(name, EVENT_BYTES_MAX) else { continue };
        match chimera::position(&text) {
            Some(seq) => return seq,
            // Chimera's own: the session was taken in from here, and what it had then is not written again.
            None if serde_json::from_str::<Value>(&text).is_ok() => return known,
            None => {}
        }
    }
    Seq::START
}

/// Whether the summary says something about it.
fn is_told_in_summary(body: &Body) -> bool {
    matches!(
        body,
        Body::TurnStarted | Body::TurnEnded { .. } | Body::Title { .. } | Body::Moved { .. } | Body::Cleared
    )
}

/// A file for its owner alone. Nothing is written through a link.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.write(true).create(true).mode(0o600).custom_flags(flags);
    options
}

/// The right to write in a folder, given back when the file is dropped.
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
            // On a thread of its own.
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests;
