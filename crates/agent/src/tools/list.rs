//! `list`: what is in a folder.

use std::sync::Arc;

use engine::{BoxFuture, Risk, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, Job, Outcome, Tool, Work, arguments, file_work};

const ENTRIES_MAX: usize = 1000;

pub(super) const TOOL: Tool = Tool {
    name: "list",
    description: "Lists a folder, one name per line; folders end with a slash.",
    kind: ToolKind::Read,
    class: ToolClass::Read,
    schema: || {
        json!({
            "type": "object",
            "properties": {"path": {"type": "string", "description": "the folder; the working folder if left out"}},
            "additionalProperties": false
        })
    },
    intend,
};

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
        file_work(move || {
            let cannot = |error: std::io::Error| format!("the folder cannot be listed: {error}");
            let mut names = Vec::new();
            for entry in std::fs::read_dir(job.path()?).map_err(cannot)? {
                let entry = entry.map_err(cannot)?;
                let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
                names.push(format!("{}{slash}\n", entry.file_name().to_string_lossy()));
            }
            names.sort();
            let more = names.len().saturating_sub(ENTRIES_MAX);
            names.truncate(ENTRIES_MAX);
            let mut text = names.concat();
            if more > 0 {
                text.push_str(&format!("[{more} more]\n"));
            }
            Ok(Outcome::text(text))
        })
    }
}
