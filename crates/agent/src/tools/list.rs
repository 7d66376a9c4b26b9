//! `list`: the entries of a folder.

use std::sync::Arc;

use engine::{BoxFuture, Risk};
use sandbox::{Entry, EntryKind, FileError, Files, PermittedPath};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments, file_work};

const ENTRIES_MAX: usize = 1000;

pub(crate) const NAME: &str = "list";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "the folder; the working folder if left out"}},
        "additionalProperties": false
    });
    ToolDefinition::reads(
        NAME,
        "Lists a folder, one name per line; folders end with a slash.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let list: Arguments = arguments(text)?;
    let path = list.path.clone().unwrap_or_else(|| ".".into());
    Ok(Intent {
        title: format!("List {path}"),
        path: Some(path),
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "lists a folder",
        work: Box::new(list),
    })
}

impl ToolWork for Arguments {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || match listing(job.files()?, job.spot()?) {
            Err(FileError::Unusable { reason, .. }) => {
                Err(format!("the folder cannot be listed: {reason}").into())
            }
            outcome => Ok(ToolOutcome::plain(outcome?)),
        })
    }
}

/// The names in a folder, one per line.
pub(crate) fn listing(files: &Files, spot: &PermittedPath) -> Result<String, FileError> {
    let shown = |entry: Entry| {
        let slash = if entry.kind == EntryKind::Folder { "/" } else { "" };
        format!("{}{slash}\n", entry.name.to_string_lossy())
    };
    let mut names: Vec<_> = files.entries(spot)?.into_iter().map(shown).collect();
    names.sort();
    let more = names.len().saturating_sub(ENTRIES_MAX);
    names.truncate(ENTRIES_MAX);
    let mut text = names.concat();
    if more > 0 {
        text.push_str(&format!("[{more} more]\n"));
    }
    Ok(text)
}
