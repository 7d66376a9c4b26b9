//! `sessions export`: a session as a file, or as a folder of chimera's.
//!
//! A file appears whole or not at all: it is written beside its place and then moved there. The log is
//! read in pages and written as it is read, so a session of any length can be exported.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Page, Principal, Registry, Seq, SessionId, SessionRow};
use serde_json::{Value, json};
use service::{SessionText, SessionTextError};
use wire::chimera;
use wire::document::{Facts, Form};

use super::find;
use crate::cli::{ExportFormat, ExportOptions};
use crate::terminal;
use crate::trouble::Trouble;

pub async fn run(registry: &Arc<Registry>, options: &ExportOptions) -> Result<(), Trouble> {
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
        return terminal::put_json(&report);
    }
    terminal::say(&format!("wrote {}", terminal::harmless(&written.display().to_string())));
    Ok(())
}

/// Writes a session to standard output, piece by piece.
pub async fn put(
    registry: &Arc<Registry>,
    row: SessionRow,
    form: Form,
    harmless: bool,
) -> Result<(), Trouble> {
    let mut text = open(registry, row, form).await?;
    while let Some(piece) = next(&mut text).await? {
        if harmless {
            terminal::put(&piece)?;
        } else {
            terminal::put_bytes(piece.as_bytes())?;
        }
    }
    Ok(())
}

/// A session as one text, if that has no more than so many bytes.
pub async fn whole(
    registry: &Arc<Registry>,
    row: SessionRow,
    format: ExportFormat,
    bytes_max: usize,
) -> Result<Option<String>, Trouble> {
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

async fn open(registry: &Arc<Registry>, row: SessionRow, form: Form) -> Result<SessionText, Trouble> {
    SessionText::open(registry, &Principal::local(), row, form).await.map_err(unreadable)
}

async fn next(text: &mut SessionText) -> Result<Option<String>, Trouble> {
    text.next().await.map_err(unreadable)
}

fn unreadable(error: SessionTextError) -> Trouble {
    match error {
        SessionTextError::Open(error) => Trouble::open(error),
        SessionTextError::TooLong(error) => Trouble::failed("the session cannot be shown in this form")
            .because(error)
            .fix("ropewalk sessions export ID --format json"),
    }
}

/// The format that the name of a file asks for.
fn guess(output: Option<&Path>) -> ExportFormat {
    let extension = output.and_then(Path::extension).unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("html" | "htm") => ExportFormat::Html,
        Some("md" | "markdown") => ExportFormat::Markdown,
        _ => ExportFormat::Json,
    }
}

fn form(format: ExportFormat) -> Form {
    match format {
        ExportFormat::Json => Form::Json { pretty: true },
        ExportFormat::Markdown => Form::Markdown,
        ExportFormat::Html => Form::Html,
        ExportFormat::Chimera => Form::Chimera,
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

/// Writes one file per event while the log is read. Says how many.
async fn write_folder(
    registry: &Registry,
    row: &SessionRow,
    parent: &Path,
) -> Result<(PathBuf, u64), Trouble> {
    let name = chimera::folder_name(row);
    let place = parent.join(&name);
    if place.exists() {
        return Err(Trouble::failed(format!("{} exists already", place.display()))
            .because("an event log is never overwritten")
            .fix("another folder with --output"));
    }
    // The name says that nobody should read it yet.
    let unfinished = parent.join(unfinished_name(&name));
    let written = write_events(registry, row, &unfinished).await;
    let moved = |count| fs::rename(&unfinished, &place).map(|()| count);
    let written = written.and_then(|count| moved(count).map_err(|error| unwritable(&place, error)));
    if written.is_err() {
        // What is left of it is in nobody's way.
        drop(fs::remove_dir_all(&unfinished));
    }
    written.map(|count| (place, count))
}

async fn write_events(registry: &Registry, row: &SessionRow, folder: &Path) -> Result<u64, Trouble> {
    let failed = |error| unwritable(folder, error);
    fs::create_dir_all(folder.parent().unwrap_or(folder)).map_err(failed)?;
    DirBuilder::new().mode(0o700).create(folder).map_err(failed)?;
    let (mut writer, mut facts, mut count) = (chimera::Writer::new(row), Facts::default(), 0);
    let mut after = Seq::START;
    loop {
        let page = registry.read(&Principal::local(), &row.id, after, Page::USUAL).await;
        let page = page.map_err(Trouble::open)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in &page {
            facts.observe(event);
            let (name, file) = writer.file(event);
            write_new(&folder.join(name), pretty(&file).as_bytes()).map_err(failed)?;
            count += 1;
        }
    }
    let summary = chimera::summary(row, &facts);
    write_new(&folder.join("summary.json"), pretty(&summary).as_bytes()).map_err(failed)?;
    Ok(count)
}

/// Writes a session to a file, piece by piece. Says how many events it has.
async fn write_document(
    registry: &Arc<Registry>,
    row: SessionRow,
    form: Form,
    path: &Path,
) -> Result<u64, Trouble> {
    let mut text = open(registry, row, form).await?;
    let mut target = Target::open(path).map_err(|error| unwritable(path, error))?;
    while let Some(piece) = next(&mut text).await? {
        target.write(piece.as_bytes()).map_err(|error| unwritable(path, error))?;
    }
    target.finish(path).map_err(|error| unwritable(path, error))?;
    Ok(text.events())
}

/// A file on its way to its place. Dropped before its end, it leaves nothing behind.
pub struct Target {
    file: File,
    unfinished: Option<PathBuf>,
}

impl Target {
    pub fn open(path: &Path) -> io::Result<Self> {
        // A device or a pipe is written to, not replaced.
        if path.exists() && !path.is_file() {
            return Ok(Self { file: OpenOptions::new().write(true).open(path)?, unfinished: None });
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        remove_left(path, &name);
        let unfinished = path.with_file_name(unfinished_name(&name));
        let file = create_new(&unfinished)?;
        // As long as it is locked, somebody writes it.
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

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // It was made by us and is of no use.
            drop(fs::remove_file(unfinished));
        }
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut target = Target::open(path)?;
    target.write(bytes)?;
    target.finish(path)
}

/// Removes what writers of this file left beside it that were killed.
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

/// A name that nobody can have put a link under beforehand.
fn unfinished_name(name: &str) -> String {
    format!(".{name}.{}.part", SessionId::random())
}

/// A file that was not there, for nobody else to read: a session may hold what is secret.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_new(path)?.write_all(bytes)
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

pub fn unwritable(path: &Path, error: io::Error) -> Trouble {
    Trouble::failed(format!("{} cannot be written", path.display())).because(error)
}
