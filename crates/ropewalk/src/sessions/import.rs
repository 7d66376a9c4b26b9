//! `sessions import`: a session from a file, a folder of chimera's, or standard input.
//!
//! The file may come from anybody. It becomes a new session with a new id; what it was allowed to do
//! elsewhere it is not allowed here.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{APPROVAL, Body, Principal, Registry, SessionHandle, Wish};
use serde_json::{Value, json};
use wire::archive::{self, ArchiveError, Imported};
use wire::chimera::{self, EventFile};

use crate::cli::ImportOptions;
use crate::trouble::Trouble;
use crate::{run, terminal};

/// A session of this size is beyond what could be read afterwards.
const BYTES_MAX: u64 = 512 << 20;
/// Warnings that are shown one by one.
const WARNINGS_MAX: usize = 8;

pub async fn run(registry: &Registry, options: &ImportOptions) -> Result<(), Trouble> {
    let mut imported = read(&options.source)?;
    if imported.events.is_empty() {
        return Err(Trouble::failed(format!("{} has no events", options.source.display()))
            .because("there is nothing that could be shown or gone on with"));
    }
    let cwd = place(options, &mut imported)?;
    note_approval(&mut imported);
    let count = imported.events.len();
    let wish = Wish {
        owner: Principal::local(),
        cwd,
        roots: Vec::new(),
        servers: Vec::new(),
        source: "import".into(),
    };
    let events = std::mem::take(&mut imported.events);
    let handle = registry.import(wish, imported.title.clone(), events).await.map_err(Trouble::open)?;
    tell(options, &handle, count, &imported.warnings)
}

/// The session's own folder if it exists here, else this one.
fn place(options: &ImportOptions, imported: &mut Imported) -> Result<PathBuf, Trouble> {
    if let Some(cwd) = &options.cwd {
        return run::folder(Some(cwd));
    }
    if let Some(cwd) = imported.cwd.as_ref().filter(|cwd| cwd.is_absolute() && cwd.is_dir()) {
        return Ok(cwd.clone());
    }
    let here = run::folder(None)?;
    let named = imported.cwd.as_ref().map(|cwd| cwd.display().to_string());
    let named = named.unwrap_or_else(|| "its folder".into());
    imported.warnings.push(format!("{named} is not here; the session works in {}", here.display()));
    Ok(here)
}

/// An import never takes over what was allowed elsewhere; the person should know of it.
fn note_approval(imported: &mut Imported) {
    let approval = imported.events.iter().rev().find_map(|event| match &event.body {
        Body::SettingChanged { id, value } if **id == *APPROVAL => Some(Arc::clone(value)),
        _ => None,
    });
    let usual = engine::approval_spec().default;
    if let Some(approval) = approval.filter(|approval| *approval != usual) {
        imported.warnings.push(format!("approval was {approval} there and is {usual} here"));
    }
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

fn read(source: &Path) -> Result<Imported, Trouble> {
    if source.is_dir() {
        return read_folder(source);
    }
    let from_stdin = source.as_os_str() == "-";
    let shown = if from_stdin { "standard input".into() } else { source.display().to_string() };
    let text =
        if from_stdin { read_bounded(io::stdin().lock()) } else { File::open(source).and_then(read_bounded) };
    let text = text.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Trouble::not_found(format!("there is no file {shown}")),
        _ => Trouble::failed(format!("{shown} cannot be read")).because(error),
    })?;
    let imported = archive::schema_of(&text).and_then(|schema| match schema.as_str() {
        chimera::SCHEMA => chimera::read_envelope(&text),
        _ => archive::decode(&text),
    });
    imported.map_err(|error| {
        let because = match &error {
            ArchiveError::Malformed(source) => format!("{error}: {source}"),
            ArchiveError::UnknownSchema(_) => error.to_string(),
        };
        Trouble::failed(format!("{shown} cannot be imported"))
            .because(because)
            .fix("a file that was written by `ropewalk sessions export ID`")
    })
}

fn read_bounded(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {} MB", BYTES_MAX >> 20)));
    }
    Ok(text)
}

fn read_folder(folder: &Path) -> Result<Imported, Trouble> {
    let unreadable =
        |error: io::Error| Trouble::failed(format!("{} cannot be read", folder.display())).because(error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        if let Some(index) = chimera::event_file_index(&name) {
            let content = File::open(folder.join(&name)).and_then(read_bounded);
            files.push(EventFile { name, index, content: content.map_err(|error| error.to_string()) });
        }
    }
    let summary = File::open(folder.join("summary.json")).and_then(read_bounded);
    let summary = summary.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
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
