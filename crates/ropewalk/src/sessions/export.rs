//! `sessions export`: writes a session to a file, or to a folder in chimera's format.
//!
//! A file appears complete or not at all: it is written under a temporary name and then renamed. The log is streamed in
//! pages, so a session of any length can be exported.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{PageRequest, Principal, Registry, Seq, SessionId, SessionRow};
use serde_json::{Value, json};
use service::{SessionText, SessionTextError};
use wire::chimera_archive;
use wire::session_export_writer::{DocumentFacts, DocumentFormat};

use super::find;
use crate::cli::{ExportFormat, ExportOptions};
use crate::cli_error::CliError;
use crate::output;

pub async fn run(registry: &Arc<Registry>, options: &ExportOptions) -> Result<(), CliError> {
    let row = find::one(registry, &options.id).await?;
    let format = options.format.unwrap_or_else(|| guess(options.output.as_deref()));
    let Some(target) = &options.output else {
        return put(registry, row, form(format), io::stdout().is_terminal()).await;
    };
    let id = row.id.clone();
    let (written, events) = if format == ExportFormat::Chimera && !is_json(target) {
        write_folder(registry, &row, target).await?
    } else {
        let file = if target.is_dir() { target.join(file_name(format, &row)) } else { target.clone() };
        let events = write_document(registry, row, form(format), &file).await?;
        (file, events)
    };
    if options.json {
        let report =
            json!({ "session_id": id.as_str(), "events": events, "path": written.to_string_lossy() });
        return output::put_json(&report);
    }
    output::say(&format!("wrote {}", output::harmless(&written.display().to_string())));
    Ok(())
}

/// Writes a session to standard output, piece by piece.
pub async fn put(
    registry: &Arc<Registry>,
    row: SessionRow,
    form: DocumentFormat,
    harmless: bool,
) -> Result<(), CliError> {
    let mut text = open(registry, row, form).await?;
    while let Some(piece) = next(&mut text).await? {
        if harmless {
            output::put(&piece)?;
        } else {
            output::put_bytes(piece.as_bytes())?;
        }
    }
    Ok(())
}

/// A session as one text; `None` if it has more than this many bytes.
pub async fn whole(
    registry: &Arc<Registry>,
    row: SessionRow,
    format: ExportFormat,
    bytes_max: usize,
) -> Result<Option<String>, CliError> {
    let mut text = open(registry, row, form(format)).await?;
    let mut whole = String::new();
    while let Some(piece) = next(&mut text).await? {
        whole.push_str(&piece);
        if whole.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(whole))
}

async fn open(
    registry: &Arc<Registry>,
    row: SessionRow,
    form: DocumentFormat,
) -> Result<SessionText, CliError> {
    SessionText::open(registry, &Principal::local(), row, form).await.map_err(unreadable)
}

async fn next(text: &mut SessionText) -> Result<Option<String>, CliError> {
    text.next().await.map_err(unreadable)
}

fn unreadable(error: SessionTextError) -> CliError {
    match error {
        SessionTextError::Open(error) => CliError::from_open(error),
        SessionTextError::TooLong(error) => CliError::failed("could not export the session in this format")
            .because(error)
            .fix("ropewalk sessions export ID --format json"),
    }
}

/// The format by the file extension.
fn guess(output: Option<&Path>) -> ExportFormat {
    let extension = output.and_then(Path::extension).unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("html" | "htm") => ExportFormat::Html,
        Some("md" | "markdown") => ExportFormat::Markdown,
        _ => ExportFormat::Json,
    }
}

fn form(format: ExportFormat) -> DocumentFormat {
    match format {
        ExportFormat::Json => DocumentFormat::Json { pretty: true },
        ExportFormat::Markdown => DocumentFormat::Markdown,
        ExportFormat::Html => DocumentFormat::Html,
        ExportFormat::Chimera => DocumentFormat::Chimera,
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn file_name(format: ExportFormat, row: &SessionRow) -> String {
    let extension = match format {
        ExportFormat::Json | ExportFormat::Chimera => "json",
        ExportFormat::Markdown => "md",
        ExportFormat::Html => "html",
    };
    format!("{}.{extension}", row.id)
}

/// Writes one file per event. Returns the folder and the number of events.
async fn write_folder(
    registry: &Registry,
    row: &SessionRow,
    parent: &Path,
) -> Result<(PathBuf, u64), CliError> {
    let name = chimera_archive::folder_name(row);
    let place = parent.join(&name);
    if place.exists() {
        return Err(CliError::failed(format!("{} already exists", place.display()))
            .because("an event log is never overwritten")
            .fix("choose another folder with --output"));
    }
    // A temporary name, because it is incomplete.
    let unfinished = parent.join(unfinished_name(&name));
    let written = write_events(registry, row, &unfinished).await;
    let moved = |count| fs::rename(&unfinished, &place).map(|()| count);
    let written = written.and_then(|count| moved(count).map_err(|error| unwritable(&place, error)));
    if written.is_err() {
        // A leftover does no harm.
        drop(fs::remove_dir_all(&unfinished));
    }
    written.map(|count| (place, count))
}

async fn write_events(registry: &Registry, row: &SessionRow, folder: &Path) -> Result<u64, CliError> {
    let failed = |error| unwritable(folder, error);
    fs::create_dir_all(folder.parent().unwrap_or(folder)).map_err(failed)?;
    DirBuilder::new().mode(0o700).create(folder).map_err(failed)?;
    let (mut writer, mut facts, mut count) = (chimera_archive::Writer::new(row), DocumentFacts::default(), 0);
    let mut after = Seq::START;
    loop {
        let page = registry.read(&Principal::local(), &row.id, after, PageRequest::USUAL).await;
        let page = page.map_err(CliError::from_open)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in &page {
            facts.observe(event);
            let (name, file) = writer.file(event);
            write_new(&folder.join(name), pretty(&file).as_bytes()).map_err(failed)?;
            count += 1;
        }
    }
    let summary = chimera_archive::summary(row, &facts);
    write_new(&folder.join("summary.json"), pretty(&summary).as_bytes()).map_err(failed)?;
    Ok(count)
}

/// Writes a session to a file, piece by piece. Returns the number of events.
async fn write_document(
    registry: &Arc<Registry>,
    row: SessionRow,
    form: DocumentFormat,
    path: &Path,
) -> Result<u64, CliError> {
    let mut text = open(registry, row, form).await?;
    let mut target = OutputFile::open(path).map_err(|error| unwritable(path, error))?;
    while let Some(piece) = next(&mut text).await? {
        target.write(piece.as_bytes()).map_err(|error| unwritable(path, error))?;
    }
    target.finish(path).map_err(|error| unwritable(path, error))?;
    Ok(text.events())
}

/// A file that is being written. If dropped before `finish`, it leaves nothing behind.
pub struct OutputFile {
    file: File,
    unfinished: Option<PathBuf>,
}

impl OutputFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Devices and pipes are written to, not replaced.
        if path.exists() && !path.is_file() {
            return Ok(Self { file: OpenOptions::new().write(true).open(path)?, unfinished: None });
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        remove_left(path, &name);
        let unfinished = path.with_file_name(unfinished_name(&name));
        let file = create_new(&unfinished)?;
        // The lock marks it as being written.
        file.try_lock().ok();
        Ok(Self { file, unfinished: Some(unfinished) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    pub fn finish(mut self, path: &Path) -> io::Result<()> {
        self.file.flush()?;
        if let Some(unfinished) = &self.unfinished {
            fs::rename(unfinished, path)?;
        }
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // It is incomplete and ours.
            drop(fs::remove_file(unfinished));
        }
    }
}

/// Writes a private file, completely or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut target = OutputFile::open(path)?;
    target.write(bytes)?;
    target.finish(path)
}

/// Removes temporary files that killed writers of this file left behind.
fn remove_left(path: &Path, name: &str) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (begins, id_chars) = (format!(".{name}."), SessionId::random().as_str().len());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        let id = found.strip_prefix(&begins).and_then(|rest| rest.strip_suffix(".part"));
        if id.is_none_or(|id| id.len() != id_chars) {
            continue;
        }
        let left = store::open_regular(&entry.path()).ok().flatten();
        if left.is_some_and(|left| left.try_lock().is_ok()) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// An unpredictable name, so that nobody can place a link there beforehand.
fn unfinished_name(name: &str) -> String {
    format!(".{name}.{}.part", SessionId::random())
}

/// Writes a new private file: a session may contain secrets.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_new(path)?.write_all(bytes)
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

pub fn unwritable(path: &Path, error: io::Error) -> CliError {
    CliError::failed(format!("could not write {}", path.display())).because(error)
}
