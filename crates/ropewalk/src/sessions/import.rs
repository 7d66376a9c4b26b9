//! `sessions import`: imports a session from a file, a folder of chimera, or standard input.
//!
//! The file may come from anybody. It becomes a new session with a new id, without the approval it had elsewhere.
//!
//! An export of ours is streamed twice: once to inspect it, once to import its events. Chimera's files are read completely,
//! because their events can be in any order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::sealed::SealedEventOpener;
use engine::{APPROVAL, Body, History, HistoryPiece, NewSessionRequest, Principal, Registry, SessionHandle};
use serde_json::json;
use tokio::sync::mpsc;
use wire::chimera_archive;
use wire::event_json;
use wire::session_archive::{self, ArchiveError, ArchiveHead, ImportedSession};

use crate::chimera_event_log::SessionFolder;
use crate::cli::ImportOptions;
use crate::cli_error::CliError;
use crate::{output, paths, run, sealed_devices};

/// The largest file.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// The largest file that is read into memory.
const WHOLE_BYTES_MAX: u64 = 512 << 20;
/// Events, or bytes of them, per piece.
const PIECE_EVENTS: usize = 512;
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of queued pieces.
const PIECES_MAX: usize = 2;
/// Maximum number of warnings to show.
const WARNINGS_MAX: usize = 8;
/// Maximum number of warnings to collect.
const WARNINGS_KEPT_MAX: usize = 1000;

/// The session to import.
enum ImportSource {
    Whole(ImportedSession),
    /// An export of ours, with its name for messages.
    File {
        file: File,
        name: String,
        head: ArchiveHead,
        count: usize,
        approval: Option<Arc<str>>,
        /// Opens its events, if they are sealed.
        opener: Option<SealedEventOpener>,
    },
}

pub async fn run(registry: &Registry, options: &ImportOptions) -> Result<(), CliError> {
    let found = find(&options.source, options.key.as_deref())?;
    let (title, named, count, approval, mut warnings) = match &found {
        ImportSource::Whole(imported) => {
            let approval = imported.events.iter().rev().find_map(|event| approval_of(&event.body));
            let ImportedSession { title, cwd, events, warnings, .. } = imported;
            (title.clone(), cwd.clone(), events.len(), approval, warnings.clone())
        }
        ImportSource::File { head, count, approval, .. } => {
            (head.title.clone(), head.cwd.clone(), *count, approval.clone(), Vec::new())
        }
    };
    if count == 0 {
        return Err(CliError::failed(format!("{} has no events", options.source.display()))
            .because("there is nothing to import"));
    }
    let cwd = place(options, named, &mut warnings)?;
    warnings.extend(note_approval(approval));
    let wish = NewSessionRequest::new(Principal::local(), cwd, "import");
    let handle = match found {
        ImportSource::Whole(imported) => {
            registry.import(wish, title, imported.events).await.map_err(CliError::from_open)?
        }
        ImportSource::File { file, name, opener, .. } => {
            let (sender, history): (_, History) = mpsc::channel(PIECES_MAX);
            let reading = tokio::task::spawn_blocking(move || send_events(file, opener.as_ref(), &sender));
            let imported = registry.import_from(wish, title, history).await;
            let left_out = reading
                .await
                .map_err(|_| CliError::failed("reading the file failed").because("this is a bug"))?;
            warnings.extend(left_out.map_err(|error| not_an_export(&name, &error))?);
            imported.map_err(CliError::from_open)?
        }
    };
    report(options, &handle, count, &warnings)
}

/// Reads the events of a file and sends them on. Returns warnings about what was left out.
fn send_events(
    file: File,
    opener: Option<&SealedEventOpener>,
    pieces: &mpsc::Sender<HistoryPiece>,
) -> Result<Vec<String>, ArchiveError> {
    let (mut imported, mut bytes, mut at) = (ImportedSession::default(), 0, 0_u64);
    let mut warnings = Vec::new();
    let mut send = |imported: &mut ImportedSession| {
        let room = WARNINGS_KEPT_MAX.saturating_sub(warnings.len());
        warnings.extend(imported.warnings.drain(..).take(room));
        pieces.blocking_send(HistoryPiece::Events(std::mem::take(&mut imported.events)))
    };
    let scanned = session_archive::scan(BufReader::new(file), &mut |event| {
        // Events that cannot be opened were reported before anything was written.
        let plain = opener.and_then(|opener| opener.open(event).ok());
        imported.take(&format!("event {at}"), plain.as_deref().unwrap_or(event));
        (at, bytes) = (at + 1, bytes + event.len());
        if imported.events.len() < PIECE_EVENTS && bytes < PIECE_BYTES {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        // The session cannot be written; its writer reports why.
        if send(&mut imported).is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match scanned {
        Ok(_) => {
            drop(send(&mut imported));
            // Without the end, nothing is imported.
            drop(pieces.blocking_send(HistoryPiece::End));
        }
        Err(error) => {
            drop(pieces.blocking_send(HistoryPiece::Failed(error.to_string())));
            return Err(error);
        }
    }
    Ok(warnings)
}

/// The session's own folder if it exists here, otherwise the current one.
fn place(
    options: &ImportOptions,
    named: Option<PathBuf>,
    warnings: &mut Vec<String>,
) -> Result<PathBuf, CliError> {
    if let Some(cwd) = &options.cwd {
        return run::folder(Some(cwd));
    }
    if let Some(cwd) = named.as_ref().filter(|cwd| cwd.is_absolute() && cwd.is_dir()) {
        return Ok(cwd.clone());
    }
    let here = run::folder(None)?;
    let named = named.map_or_else(|| "its folder".into(), |cwd| cwd.display().to_string());
    warnings.push(format!("{named} does not exist here; the session now works in {}", here.display()));
    Ok(here)
}

fn approval_of(body: &Body) -> Option<Arc<str>> {
    match body {
        Body::SettingChanged { id, value } if **id == *APPROVAL => Some(Arc::clone(value)),
        _ => None,
    }
}

/// A warning that the approval preset of the original session is not imported.
fn note_approval(approval: Option<Arc<str>>) -> Option<String> {
    let usual = engine::approval_spec().default;
    let approval = approval.filter(|approval| *approval != usual)?;
    Some(format!("the approval preset was {approval}; it is now {usual}"))
}

fn report(
    options: &ImportOptions,
    handle: &SessionHandle,
    events: usize,
    warnings: &[String],
) -> Result<(), CliError> {
    if options.json {
        let report = json!({ "session_id": handle.id().as_str(), "events": events, "warnings": warnings });
        return output::put_json(&report);
    }
    let paint = output::stderr_paint();
    for warning in warnings.iter().take(WARNINGS_MAX) {
        output::say(&format!("{} {}", paint.warn("warning:"), output::one_line(warning)));
    }
    if warnings.len() > WARNINGS_MAX {
        output::say(&format!("{} {} more", paint.warn("warning:"), warnings.len() - WARNINGS_MAX));
    }
    output::put(&format!("{}\n", handle.id()))
}

fn find(source: &Path, key: Option<&Path>) -> Result<ImportSource, CliError> {
    if source.is_dir() {
        return read_folder(source).map(ImportSource::Whole);
    }
    let from_stdin = source.as_os_str() == "-";
    let name = if from_stdin { "standard input".into() } else { source.display().to_string() };
    let file = if from_stdin { copy_to_temp(io::stdin().lock()) } else { open(source) };
    file.and_then(|file| inspect(file, name.clone(), key)).map_err(|error| match error {
        ImportError::File(error) if error.kind() == io::ErrorKind::NotFound => {
            CliError::not_found(format!("file {name} not found"))
        }
        ImportError::File(error) => CliError::failed(format!("could not read {name}")).because(error),
        ImportError::Archive(error) => not_an_export(&name, &error),
        ImportError::Sealed(error) => *error,
    })
}

#[derive(Debug)]
enum ImportError {
    File(io::Error),
    Archive(ArchiveError),
    Sealed(Box<CliError>),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<ArchiveError> for ImportError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

/// Inspects a file: its kind, and what to know before its events are read.
fn inspect(mut file: File, name: String, key: Option<&Path>) -> Result<ImportSource, ImportError> {
    let (mut count, mut approval) = (0, None);
    let head = session_archive::scan(BufReader::new(&mut file).take(FILE_BYTES_MAX), &mut |event| {
        count += 1;
        // Most events are text.
        if event.contains("setting_changed")
            && let Ok(event) = event_json::decode(event)
        {
            approval = approval_of(&event.body).or(approval.take());
        }
        ControlFlow::Continue(())
    })?;
    file.seek(SeekFrom::Start(0))?;
    match head.schema.as_str() {
        session_archive::SCHEMA => Ok(ImportSource::File { file, name, head, count, approval, opener: None }),
        session_archive::SEALED_SCHEMA => inspect_sealed(file, name, head, key),
        chimera_archive::SCHEMA => {
            Ok(ImportSource::Whole(chimera_archive::read_envelope(&read_bounded(file)?)?))
        }
        _ => Err(ArchiveError::UnknownSchema(head.schema).into()),
    }
}

/// Inspects a sealed file: each event is opened once before anything is written.
fn inspect_sealed(
    mut file: File,
    name: String,
    head: ArchiveHead,
    key: Option<&Path>,
) -> Result<ImportSource, ImportError> {
    let opener =
        sealed_devices::opener(&name, &head, key).map_err(|error| ImportError::Sealed(Box::new(error)))?;
    let (mut count, mut approval, mut refused) = (0, None, None);
    session_archive::scan(BufReader::new(&mut file).take(FILE_BYTES_MAX), &mut |event| {
        count += 1;
        match opener.open(event) {
            Ok(plain) => {
                if plain.contains("setting_changed")
                    && let Ok(event) = event_json::decode(&plain)
                {
                    approval = approval_of(&event.body).or(approval.take());
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                refused = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = refused {
        let error = sealed_devices::not_opened(&name, count, &error);
        return Err(ImportError::Sealed(Box::new(error)));
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(ImportSource::File { file, name, head, count, approval, opener: Some(opener) })
}

/// A file that can be read twice.
fn open(path: &Path) -> Result<File, ImportError> {
    let file = File::open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { copy_to_temp(file) }
}

/// Copies a stream to a private temporary file, which disappears with this process.
fn copy_to_temp(source: impl Read) -> Result<File, ImportError> {
    let folder = paths::state().map_err(|_| io::Error::other("the state folder is not known"))?;
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!(".import-{}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    let bytes = io::copy(&mut source.take(FILE_BYTES_MAX + 1), &mut file)?;
    if bytes > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {} GiB", FILE_BYTES_MAX >> 30)).into());
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn not_an_export(name: &str, error: &ArchiveError) -> CliError {
    let because = match error {
        ArchiveError::Malformed(source) => format!("{error}: {source}"),
        ArchiveError::UnknownSchema(_) => error.to_string(),
    };
    CliError::failed(format!("could not import {name}"))
        .because(because)
        .fix("use a file from `ropewalk sessions export ID`")
}

fn read_bounded(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(WHOLE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > WHOLE_BYTES_MAX {
        return Err(too_large());
    }
    Ok(text)
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} MB", WHOLE_BYTES_MAX >> 20))
}

fn read_folder(folder: &Path) -> Result<ImportedSession, CliError> {
    let unreadable =
        |error: io::Error| CliError::failed(format!("could not read {}", folder.display())).because(error);
    // A link as the argument is followed; links within the folder are not.
    let real = folder.canonicalize().map_err(unreadable)?;
    let opened = SessionFolder::open(&real).map_err(unreadable)?;
    let (mut bytes, mut files) = (0, Vec::new());
    for (index, name) in opened.events().map_err(unreadable)? {
        let file = opened.event(index, name);
        bytes += file.content.as_ref().map_or(0, String::len) as u64;
        if bytes > WHOLE_BYTES_MAX {
            return Err(unreadable(too_large()));
        }
        files.push(file);
    }
    let summary = opened.summary().ok().flatten();
    if files.is_empty() && summary.is_none() {
        return Err(CliError::failed(format!("{} is not a session folder", folder.display()))
            .because("it has neither a summary.json nor files named event-000000-....json"));
    }
    let without = summary.is_none();
    let mut imported = chimera_archive::read(&summary.unwrap_or_default(), files);
    if without {
        imported.warnings.insert(0, "summary.json is missing or cannot be read".into());
    }
    Ok(imported)
}
