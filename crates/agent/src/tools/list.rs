//! `list`: what is in a folder.

use std::sync::Arc;

use engine::{BoxFuture, Risk};
use sandbox::{Entry, FileError, Files, Kind, Spot};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, Job, Outcome, Tool, Work, arguments, file_work};

const ENTRIES_MAX: usize = 1000;

pub(crate) const NAME: &str = "list";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "the folder; the working folder if left out"}},
        "additionalProperties": false
    });
    Tool::reads(NAME, "Lists a folder, one name per line; folders end with a slash.", schema, intend)
}

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
}

fn intend(text: &str) -> Result<Intent, String> {
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

impl Work for Arguments {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || match listing(job.files()?, job.spot()?) {
            Err(FileError::Unusable { reason, .. }) => {
                Err(format!("the folder cannot be listed: {reason}").into())
            }
            outcome => Ok(Outcome::plain(outcome?)),
        })
    }
}

/// The names in a folder, one per line.
pub(crate) fn listing(files: &Files, spot: &Spot) -> Result<String, FileError> {
    let shown = |entry: Entry| {
        let slash = if entry.kind == Kind::Folder { "/" } else { "" };
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
