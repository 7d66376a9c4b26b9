//! `write`: a whole file, new or replaced. Also how any tool puts a changed file in place.
//!
//! A file is replaced by renaming a finished one over it, so nobody ever reads half of it.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolClass, ToolContent, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, Job, Outcome, Tool, Work, arguments, as_text, file_work, read_whole};

pub(super) const TOOL: Tool = Tool {
    name: "write",
    description: "Writes a whole file; makes it and its folders if they are not there. Prefer edit for changes.",
    kind: ToolKind::Edit,
    class: ToolClass::Edit,
    schema: || {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
                "text": {"type": "string", "description": "everything the file shall hold"}
            },
            "required": ["path", "text"],
            "additionalProperties": false
        })
    },
    intend,
};

#[derive(Deserialize)]
struct Arguments {
    path: String,
    text: String,
}

fn intend(text: &str) -> Result<Intent, String> {
    let write: Arguments = arguments(text)?;
    Ok(Intent {
        title: format!("Write {}", write.path),
        path: Some(write.path),
        line: None,
        subject: None,
        risk: Risk::Medium,
        reason: "writes a file",
        work: Box::new(Write { text: write.text, change: None }),
    })
}

struct Write {
    text: String,
    change: Option<FileChange>,
}

impl Work for Write {
    fn prepare(&mut self, job: &Job) -> Result<Vec<ToolContent>, String> {
        let path = job.path()?;
        let before = current(job, path)?;
        let change = FileChange {
            path: path.to_owned(),
            before: before.map(Into::into),
            after: Some(std::mem::take(&mut self.text).into()),
        };
        self.change = Some(change.clone());
        Ok(vec![ToolContent::Diff(change)])
    }

    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || {
            let change = self.change.ok_or("the write was not prepared")?;
            let lines = change.after.as_ref().map_or(0, |text| text.lines().count());
            let verb = if change.before.is_some() { "replaced" } else { "created" };
            let lines = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
            let told = format!("{verb} {} ({lines})", job.place.shown(&change.path));
            put_in_place(&job, change, told, None)
        })
    }
}

/// What the file holds, if it is there. Refuses one that changed since the agent last saw it.
pub(super) fn current(job: &Job, path: &Path) -> Result<Option<String>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = read_whole(path)?;
    if job.seen.differs(path, &bytes) {
        return Err("the file changed since it was read; read it again first".into());
    }
    as_text(bytes).map(Some)
}

/// Puts a prepared change in place, unless the file became another one in the meantime.
pub(super) fn put_in_place(
    job: &Job,
    change: FileChange,
    told: String,
    line: Option<u32>,
) -> Result<Outcome, String> {
    let path = change.path.as_path();
    // Folders and links may have changed while permission was asked.
    let real = job.place.resolve(path).map_err(|error| error.to_string())?;
    let now = if path.exists() { Some(as_text(read_whole(path)?)?) } else { None };
    if real != path || now.as_deref() != change.before.as_deref() {
        return Err("the file changed while permission was asked; read it again first".into());
    }
    let after = change.after.clone().unwrap_or_default();
    replace(path, after.as_bytes(), &job.call.0)
        .map_err(|error| format!("the file cannot be written: {error}"))?;
    job.seen.remember(path, after.as_bytes());
    let location = Location { path: path.to_owned(), line };
    Ok(Outcome { told: Some(told), change: Some(change), locations: vec![location], ..Outcome::default() })
}

fn replace(path: &Path, bytes: &[u8], unique: &str) -> std::io::Result<()> {
    let parent = path.parent().ok_or_else(|| std::io::Error::other("it has no folder"))?;
    std::fs::create_dir_all(parent)?;
    let draft = parent.join(format!(".ropewalk-{unique}.tmp"));
    let outcome = write_draft(&draft, path, bytes).and_then(|()| std::fs::rename(&draft, path));
    if outcome.is_err() {
        std::fs::remove_file(&draft).ok();
    }
    outcome
}

fn write_draft(draft: &Path, target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(draft)?;
    if let Ok(metadata) = target.metadata() {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}
