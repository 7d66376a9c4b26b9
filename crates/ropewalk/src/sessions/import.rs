//! `sessions import`: a session from a file, a folder of chimera's, or standard input.
//!
//! The file may come from anybody. It becomes a new session with a new id; what it was allowed to do
//! elsewhere it is not allowed here.
//!
//! An export of ours is read twice, each time with a few events in memory: once to know what it is, once for its
//! events. Chimera's files are read whole, because their events stand in any order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::sealed::Opener;
use engine::{APPROVAL, Body, History, HistoryPiece, Principal, Registry, SessionHandle, Wish};
use serde_json::json;
use tokio::sync::mpsc;
use wire::archive::{self, ArchiveError, Head, Imported};
use wire::chimera;
use wire::portable;

use crate::cli::ImportOptions;
use crate::eventlog::SessionFolder;
use crate::trouble::Trouble;
use crate::{paths, run, sealed, terminal};

/// Whoever sends more than this does not end.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// What is read whole is held whole.
const WHOLE_BYTES_MAX: u64 = 512 << 20;
/// Events, or bytes of them, that are handed on at a time.
const PIECE_EVENTS: usize = 512;
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that may wait to be written.
const PIECES_MAX: usize = 2;
/// Warnings that are shown one by one.
const WARNINGS_MAX: usize = 8;
/// Warnings that are remembered.
const WARNINGS_KEPT_MAX: usize = 1000;

/// What is to become a session.
enum Found {
    Whole(Imported),
    /// An export of ours, and what it was called.
    File {
        file: File,
        name: String,
        head: Head,
        count: usize,
        approval: Option<Arc<str>>,
        /// Reads its events, if they are sealed.
        opener: Option<Opener>,
    },
}

pub async fn run(registry: &Registry, options: &ImportOptions) -> Result<(), Trouble> {
    let found = find(&options.source, options.key.as_deref())?;
    let (title, named, count, approval, mut warnings) = match &found {
        Found::Whole(imported) => {
            let approval = imported.events.iter().rev().find_map(|event| approval_of(&event.body));
            let Imported { title, cwd, events, warnings, .. } = imported;
            (title.clone(), cwd.clone(), events.len(), approval, warnings.clone())
        }
        Found::File { head, count, approval, .. } => {
            (head.title.clone(), head.cwd.clone(), *count, approval.clone(), Vec::new())
        }
    };
    if count == 0 {
        return Err(Trouble::failed(format!("{} has no events", options.source.display()))
            .because("there is nothing that could be shown or gone on with"));
    }
    let cwd = place(options, named, &mut warnings)?;
    warnings.extend(note_approval(approval));
    let wish = Wish::new(Principal::local(), cwd, "import");
    let handle = match found {
        Found::Whole(imported) => {
            registry.import(wish, title, imported.events).await.map_err(Trouble::open)?
        }
        Found::File { file, name, opener, .. } => {
            let (sender, history): (_, History) = mpsc::channel(PIECES_MAX);
            let reading = tokio::task::spawn_blocking(move || send_events(file, opener.as_ref(), &sender));
            let imported = registry.import_from(wish, title, history).await;
            let left_out = reading
                .await
                .map_err(|_| Trouble::failed("reading the file broke").because("this is a bug"))?;
            warnings.extend(left_out.map_err(|error| not_an_export(&name, &error))?);
            imported.map_err(Trouble::open)?
        }
    };
    tell(options, &handle, count, &warnings)
}

/// Reads the events of a file and sends them on. Answers what was left out.
fn send_events(
    file: File,
    opener: Option<&Opener>,
    pieces: &mpsc::Sender<HistoryPiece>,
) -> Result<Vec<String>, ArchiveError> {
    let (mut imported, mut bytes, mut at) = (Imported::default(), 0, 0_u64);
    let mut warnings = Vec::new();
    let mut send = |imported: &mut Imported| {
        let room = WARNINGS_KEPT_MAX.saturating_sub(warnings.len());
        warnings.extend(imported.warnings.drain(..).take(room));
        pieces.blocking_send(HistoryPiece::Events(std::mem::take(&mut imported.events)))
    };
    let scanned = archive::scan(BufReader::new(file), &mut |event| {
        // What could not be opened was told before anything was written.
        let plain = opener.and_then(|opener| opener.open(event).ok());
        imported.take(&format!("event {at}"), plain.as_deref().unwrap_or(event));
        (at, bytes) = (at + 1, bytes + event.len());
        if imported.events.len() < PIECE_EVENTS && bytes < PIECE_BYTES {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        // The session cannot be written: whoever writes it says why.
        if send(&mut imported).is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match scanned {
        Ok(_) => {
            drop(send(&mut imported));
            // Without it, nothing is imported.
            drop(pieces.blocking_send(HistoryPiece::End));
        }
        Err(error) => {
            drop(pieces.blocking_send(HistoryPiece::Failed(error.to_string())));
            return Err(error);
        }
    }
    Ok(warnings)
}

/// The session's own folder if it exists here, else this one.
fn place(
    options: &ImportOptions,
    named: Option<PathBuf>,
    warnings: &mut Vec<String>,
) -> Result<PathBuf, Trouble> {
    if let Some(cwd) = &options.cwd {
        return run::folder(Some(cwd));
    }
    if let Some(cwd) = named.as_ref().filter(|cwd| cwd.is_absolute() && cwd.is_dir()) {
        return Ok(cwd.clone());
    }
    let here = run::folder(None)?;
    let named = named.map_or_else(|| "its folder".into(), |cwd| cwd.display().to_string());
    warnings.push(format!("{named} is not here; the session works in {}", here.display()));
    Ok(here)
}

fn approval_of(body: &Body) -> Option<Arc<str>> {
    match body {
        Body::SettingChanged { id, value } if **id == *APPROVAL => Some(Arc::clone(value)),
        _ => None,
    }
}

/// An import never takes over what was allowed elsewhere; the person should know of it.
fn note_approval(approval: Option<Arc<str>>) -> Option<String> {
    let usual = engine::approval_spec().default;
    let approval = approval.filter(|approval| *approval != usual)?;
    Some(format!("approval was {approval} there and is {usual} here"))
}

fn tell(
    options: &ImportOptions,
    handle: &SessionHandle,
    events: usize,
    warnings: &[String],
) -> Result<(), Trouble> {
    if options.json {
        let report = json!({ "session_id": handle.id().as_str(), "events": events, "warnings": warnings });
        return terminal::put_json(&report);
    }
    let paint = terminal::stderr_paint();
    for warning in warnings.iter().take(WARNINGS_MAX) {
        terminal::say(&format!("{} {}", paint.warn("warning:"), terminal::one_line(warning)));
    }
    if warnings.len() > WARNINGS_MAX {
        terminal::say(&format!("{} {} more", paint.warn("warning:"), warnings.len() - WARNINGS_MAX));
    }
    terminal::put(&format!("{}\n", handle.id()))
}

fn find(source: &Path, key: Option<&Path>) -> Result<Found, Trouble> {
    if source.is_dir() {
        return read_folder(source).map(Found::Whole);
    }
    let from_stdin = source.as_os_str() == "-";
    let name = if from_stdin { "standard input".into() } else { source.display().to_string() };
    let file = if from_stdin { spooled(io::stdin().lock()) } else { open(source) };
    file.and_then(|file| look(file, name.clone(), key)).map_err(|error| match error {
        LookError::File(error) if error.kind() == io::ErrorKind::NotFound => {
            Trouble::not_found(format!("there is no file {name}"))
        }
        LookError::File(error) => Trouble::failed(format!("{name} cannot be read")).because(error),
        LookError::Archive(error) => not_an_export(&name, &error),
        LookError::Sealed(trouble) => *trouble,
    })
}

#[derive(Debug)]
enum LookError {
    File(io::Error),
    Archive(ArchiveError),
    Sealed(Box<Trouble>),
}

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<ArchiveError> for LookError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

/// What kind of file it is, and what there is to know of it before its events are read.
fn look(mut file: File, name: String, key: Option<&Path>) -> Result<Found, LookError> {
    let (mut count, mut approval) = (0, None);
    let head = archive::scan(BufReader::new(&mut file).take(FILE_BYTES_MAX), &mut |event| {
        count += 1;
        // Most events are text.
        if event.contains("setting_changed")
            && let Ok(event) = portable::decode(event)
        {
            approval = approval_of(&event.body).or(approval.take());
        }
        ControlFlow::Continue(())
    })?;
    file.seek(SeekFrom::Start(0))?;
    match head.schema.as_str() {
        archive::SCHEMA => Ok(Found::File { file, name, head, count, approval, opener: None }),
        archive::SEALED_SCHEMA => look_sealed(file, name, head, key),
        chimera::SCHEMA => Ok(Found::Whole(chimera::read_envelope(&read_bounded(file)?)?)),
        _ => Err(ArchiveError::UnknownSchema(head.schema).into()),
    }
}

/// The same of a file whose events are sealed: each is opened once before anything is written.
fn look_sealed(mut file: File, name: String, head: Head, key: Option<&Path>) -> Result<Found, LookError> {
    let opener = sealed::opener(&name, &head, key).map_err(|trouble| LookError::Sealed(Box::new(trouble)))?;
    let (mut count, mut approval, mut refused) = (0, None, None);
    archive::scan(BufReader::new(&mut file).take(FILE_BYTES_MAX), &mut |event| {
        count += 1;
        match opener.open(event) {
            Ok(plain) => {
                if plain.contains("setting_changed")
                    && let Ok(event) = portable::decode(&plain)
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
        let trouble = sealed::not_opened(&name, count, &error);
        return Err(LookError::Sealed(Box::new(trouble)));
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(Found::File { file, name, head, count, approval, opener: Some(opener) })
}

/// A file that can be read twice.
fn open(path: &Path) -> Result<File, LookError> {
    let file = File::open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { spooled(file) }
}

/// The same of what can be read once: kept in a file that nobody else sees, and that is gone with this process.
fn spooled(source: impl Read) -> Result<File, LookError> {
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

fn not_an_export(name: &str, error: &ArchiveError) -> Trouble {
    let because = match error {
        ArchiveError::Malformed(source) => format!("{error}: {source}"),
        ArchiveError::UnknownSchema(_) => error.to_string(),
    };
    Trouble::failed(format!("{name} cannot be imported"))
        .because(because)
        .fix("a file that was written by `ropewalk sessions export ID`")
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

fn read_folder(folder: &Path) -> Result<Imported, Trouble> {
    let unreadable =
        |error: io::Error| Trouble::failed(format!("{} cannot be read", folder.display())).because(error);
    // Whoever names a link means what it leads to; within the folder none is followed.
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
        return Err(Trouble::failed(format!("{} is no session", folder.display()))
            .because("it has neither a summary.json nor files named event-000000-....json"));
    }
    let without = summary.is_none();
    let mut imported = chimera::read(&summary.unwrap_or_default(), files);
    if without {
        imported.warnings.insert(0, "summary.json is missing or cannot be read".into());
    }
    Ok(imported)
}
