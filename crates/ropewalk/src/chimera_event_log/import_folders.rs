//! Lists and imports chimera's own sessions. Nothing is written there.
//!
//! A listing uses the names and times of folders; summaries are read only for the shown page. All reads run on blocking
//! threads: a home folder may be on a slow disk.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use engine::{
    BoxFuture, Clock, FolderEntry, FolderSession, HistoryPiece, Principal, Seq, SessionFolders, SessionId,
    SessionRow, SystemClock, Timestamp, first_words,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use wire::chimera_archive::{PREFIXES, Reader, Summary};

use super::folder_reader::SessionFolder;

/// Maximum number of folders to list, the newest first.
const FOLDERS_MAX: usize = 10_000;
/// Maximum number of directory entries to look at.
const NAMES_MAX: usize = 200_000;
/// Maximum number of folders with a warning of their own.
const WARNINGS_MAX: usize = 100;
/// Events, or bytes of files, per piece.
const PIECE_EVENTS: usize = 512;
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of queued pieces.
const PIECES_MAX: usize = 2;
/// The largest session that is read.
const SESSION_BYTES_MAX: u64 = 4 << 30;

/// The session folders below a root.
pub struct ChimeraFolders {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    /// The folders that were already warned about.
    warned: Mutex<HashSet<String>>,
}

impl ChimeraFolders {
    pub fn new(root: PathBuf) -> Self {
        Self { shared: Arc::new(Shared { root, warned: Mutex::default() }) }
    }
}

impl SessionFolders for ChimeraFolders {
    fn entries(&self) -> BoxFuture<'_, Vec<FolderEntry>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { spawn_blocking(move || shared.entries()).await.unwrap_or_default() })
    }

    fn has(&self, id: &SessionId) -> BoxFuture<'_, bool> {
        if !is_of_chimera(id) {
            return Box::pin(std::future::ready(false));
        }
        let path = self.shared.root.join(id.as_str());
        let is_there = move || fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        Box::pin(async move { spawn_blocking(is_there).await.unwrap_or_default() })
    }

    fn describe(&self, entries: Vec<FolderEntry>) -> BoxFuture<'_, Vec<SessionRow>> {
        let shared = Arc::clone(&self.shared);
        let read = move || entries.into_iter().filter_map(|entry| shared.describe(entry)).collect();
        Box::pin(async move { spawn_blocking(read).await.unwrap_or_default() })
    }

    fn read(&self, id: &SessionId) -> BoxFuture<'_, Result<Option<FolderSession>, String>> {
        if !is_of_chimera(id) {
            return Box::pin(std::future::ready(Ok(None)));
        }
        let (path, id) = (self.shared.root.join(id.as_str()), id.clone());
        let (answer, answered) = oneshot::channel();
        drop(spawn_blocking(move || send(&path, &id, answer)));
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err("reading its folder failed; this is a bug".to_owned()))
        })
    }
}

fn is_of_chimera(id: &SessionId) -> bool {
    PREFIXES.iter().any(|prefix| id.as_str().starts_with(prefix))
}

impl Shared {
    fn entries(&self) -> Vec<FolderEntry> {
        let found = match fs::read_dir(&self.root) {
            Ok(found) => found,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.warn(&self.root.display().to_string(), &error);
                }
                return Vec::new();
            }
        };
        let now = SystemClock.now();
        let entry = |entry: fs::DirEntry| {
            let id = SessionId::parse(entry.file_name().to_str()?).ok().filter(is_of_chimera)?;
            // Links are skipped: they may point anywhere.
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_dir)?;
            let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            let updated_at = Timestamp(i64::try_from(since.as_millis()).ok()?).min(now);
            Some(FolderEntry { id, updated_at })
        };
        let mut entries: Vec<_> = found.take(NAMES_MAX).filter_map(|found| entry(found.ok()?)).collect();
        if entries.len() > FOLDERS_MAX {
            let reason = format!("only the newest {FOLDERS_MAX} of {} folders are listed", entries.len());
            self.warn(&self.root.display().to_string(), &reason);
            entries.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
            entries.truncate(FOLDERS_MAX);
        }
        entries
    }

    fn describe(&self, entry: FolderEntry) -> Option<SessionRow> {
        let read = || {
            let folder = SessionFolder::open(&self.root.join(entry.id.as_str()))?;
            match folder.summary()? {
                Some(summary) => Ok(Summary::of(&summary)),
                None if folder.has_events()? => Ok(Summary::default()),
                None => Err(io::Error::other("it has neither a summary nor events")),
            }
        };
        match read() {
            Ok(summary) => Some(row(entry, summary)),
            Err(error) => {
                self.warn(entry.id.as_str(), &error);
                None
            }
        }
    }

    /// Warns once per folder, however often it is listed.
    fn warn(&self, name: &str, reason: &dyn std::fmt::Display) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < WARNINGS_MAX && warned.insert(name.to_owned()) {
            tracing::warn!(folder = name, %reason, "skipping a session of chimera");
        }
    }
}

fn row(entry: FolderEntry, summary: Summary) -> SessionRow {
    let title = title(&summary);
    let program = entry.id.as_str().split('-').next().unwrap_or_default().into();
    SessionRow {
        owner: Principal::local(),
        cwd: summary.cwd.unwrap_or_default(),
        roots: Vec::new(),
        parent: summary.parent,
        source: program,
        title,
        created_at: summary.started_at.unwrap_or(entry.updated_at).min(entry.updated_at),
        updated_at: entry.updated_at,
        busy: false,
        last_seq: Seq::START,
        id: entry.id,
    }
}

fn title(summary: &Summary) -> Option<Arc<str>> {
    let named = summary.title.clone().or_else(|| first_words(summary.prompt.as_ref()?));
    named.map(Into::into)
}

/// Sends the description of the session, then its history while there is a receiver.
fn send(
    path: &std::path::Path,
    id: &SessionId,
    answer: oneshot::Sender<Result<Option<FolderSession>, String>>,
) {
    let (sender, history) = mpsc::channel(PIECES_MAX);
    let opened = open(path);
    let (folder, files, summary) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let outcome = if missing { Ok(None) } else { Err(error.to_string()) };
            return drop(answer.send(outcome));
        }
    };
    let said = Summary::of(&summary);
    let found = FolderSession {
        title: title(&said),
        cwd: said.cwd.filter(|cwd| cwd.is_absolute() && cwd.is_dir()),
        parent: said.parent,
        created_at: said.started_at.unwrap_or(SystemClock.now()),
        history,
    };
    if answer.send(Ok(Some(found))).is_ok() {
        let last = match send_events(&folder, files, &summary, &sender) {
            Ok(warnings) => {
                if !warnings.is_empty() {
                    let (count, first) = (warnings.len(), &warnings[0]);
                    tracing::warn!(session = %id, count, first, "a part of a session was not imported");
                }
                HistoryPiece::End
            }
            Err(reason) => HistoryPiece::Failed(reason),
        };
        // If the receiver is gone, it does not need the end.
        drop(sender.blocking_send(last));
    }
}

type OpenFolder = (SessionFolder, Vec<(u64, String)>, Value);

fn open(path: &std::path::Path) -> io::Result<OpenFolder> {
    let folder = SessionFolder::open(path)?;
    let summary = folder.summary().map_err(|error| io::Error::other(format!("its summary: {error}")))?;
    let (files, summary) = (folder.events()?, summary.unwrap_or_default());
    if files.is_empty() && Summary::of(&summary).prompt.is_none() {
        return Err(io::Error::other("its folder contains no session to continue"));
    }
    Ok((folder, files, summary))
}

/// Returns warnings about what was left out.
fn send_events(
    folder: &SessionFolder,
    files: Vec<(u64, String)>,
    summary: &Value,
    pieces: &mpsc::Sender<HistoryPiece>,
) -> Result<Vec<String>, String> {
    let mut reader = Reader::new(summary);
    let (mut total, mut waiting, mut count) = (0_u64, 0, 0);
    let send = |events| {
        pieces.blocking_send(HistoryPiece::Events(events)).map_err(|_| "the import was cancelled".to_owned())
    };
    for (index, name) in files {
        let file = folder.event(index, name);
        let bytes = file.content.as_ref().map_or(0, String::len);
        (total, waiting, count) = (total + bytes as u64, waiting + bytes, count + 1);
        if total > SESSION_BYTES_MAX {
            return Err(format!("its events are larger than {} GiB", SESSION_BYTES_MAX >> 30));
        }
        reader.take(&file);
        if count >= PIECE_EVENTS || waiting >= PIECE_BYTES {
            (waiting, count) = (0, 0);
            send(reader.events())?;
        }
    }
    let rest = reader.finish();
    send(rest.events)?;
    Ok(rest.warnings)
}

#[cfg(test)]
mod tests;
