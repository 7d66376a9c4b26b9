//! `sessions export`: a session as a file, or as a folder of chimera's.
//!
//! A file appears whole or not at all: it is written beside its place and then moved there.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Event, Registry, SessionId, SessionRow, Timestamp};
use serde_json::{Value, json};
use wire::transcript::Transcript;
use wire::{archive, chimera, markdown, page};

use super::{all_events, find};
use crate::cli::{ExportFormat, ExportOptions};
use crate::terminal;
use crate::trouble::Trouble;

pub async fn run(registry: &Registry, options: &ExportOptions) -> Result<(), Trouble> {
    let row = find::one(registry, &options.id).await?;
    let events = all_events(registry, &row).await?;
    let now = registry.clock().now();
    let format = options.format.unwrap_or_else(|| guess(options.output.as_deref()));
    let Some(target) = &options.output else {
        let text = render(format, &row, &events, now);
        let to_terminal = io::stdout().is_terminal();
        return if to_terminal { terminal::put(&text) } else { terminal::put_bytes(text.as_bytes()) };
    };
    let written = if format == ExportFormat::Chimera && !is_json(target) {
        write_folder(target, &chimera::write(&row, &events))?
    } else {
        let file = if target.is_dir() { target.join(file_name(format, &row)) } else { target.clone() };
        let text = render(format, &row, &events, now);
        write_file(&file, text.as_bytes()).map_err(|error| unwritable(&file, error))?;
        file
    };
    if options.json {
        let report = json!({ "session_id": row.id.as_str(), "events": events.len(), "path": written.to_string_lossy() });
        return terminal::put_json(&report);
    }
    terminal::say(&format!("wrote {}", terminal::harmless(&written.display().to_string())));
    Ok(())
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

fn render(format: ExportFormat, row: &SessionRow, events: &[Arc<Event>], now: Timestamp) -> String {
    let transcript = || Transcript::of(events.iter().map(AsRef::as_ref));
    match format {
        ExportFormat::Json => pretty(&archive::encode(row, events, now)),
        ExportFormat::Markdown => markdown::render(row, &transcript()),
        ExportFormat::Html => page::render(row, &transcript()),
        ExportFormat::Chimera => pretty(&chimera::write(row, events).envelope(now)),
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

fn write_folder(parent: &Path, folder: &chimera::Folder) -> Result<PathBuf, Trouble> {
    let place = parent.join(&folder.name);
    if place.exists() {
        return Err(Trouble::failed(format!("{} exists already", place.display()))
            .because("an event log is never overwritten")
            .fix("another folder with --output"));
    }
    // The name says that nobody should read it yet.
    let unfinished = parent.join(unfinished_name(&folder.name));
    let write = || -> io::Result<()> {
        fs::create_dir_all(parent)?;
        DirBuilder::new().mode(0o700).create(&unfinished)?;
        for (name, event) in &folder.events {
            write_new(&unfinished.join(name), pretty(event).as_bytes())?;
        }
        write_new(&unfinished.join("summary.json"), pretty(&folder.summary).as_bytes())?;
        fs::rename(&unfinished, &place)
    };
    write().map_err(|error| {
        // What is left of it is in nobody's way.
        drop(fs::remove_dir_all(&unfinished));
        unwritable(&place, error)
    })?;
    Ok(place)
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A device or a pipe is written to, not replaced.
    if path.exists() && !path.is_file() {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unfinished = path.with_file_name(unfinished_name(&name));
    let written = write_new(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // It was made by us and is of no use.
        drop(fs::remove_file(&unfinished));
    }
    written
}

/// A name that nobody can have put a link under beforehand.
fn unfinished_name(name: &str) -> String {
    format!(".{name}.{}.part", SessionId::random())
}

/// A file that was not there, for nobody else to read: a session may hold what is secret.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

fn unwritable(path: &Path, error: io::Error) -> Trouble {
    Trouble::failed(format!("{} cannot be written", path.display())).because(error)
}
