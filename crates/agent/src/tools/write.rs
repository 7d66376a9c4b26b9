//! `write`: a whole file, new or replaced. Also how any tool puts a changed file in place.
//!
//! A file is replaced by renaming a finished one over it, so nobody ever reads half of it.

use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolClass, ToolContent, ToolKind};
use sandbox::Want;
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments, as_text, file_work};
use crate::host;

/// What stands in the log where a secret was.
const MARK: &str = "[REDACTED]";

pub(super) const NAME: &str = "write";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
            "text": {"type": "string", "description": "everything the file shall hold"}
        },
        "required": ["path", "text"],
        "additionalProperties": false
    });
    Tool::new(
        NAME,
        "Writes a whole file; makes it and its folders if they are not there. Prefer edit for changes.",
        ToolKind::Edit,
        ToolClass::Edit,
        schema,
        intend,
    )
}

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
    fn prepare(&mut self, job: &Job) -> Result<Vec<ToolContent>, Failure> {
        let path = job.spot()?.real();
        host::check_text(&self.text)?;
        let before = current(job)?;
        refuse_marks(&self.text, before.as_deref())?;
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
pub(super) fn current(job: &Job) -> Result<Option<String>, Failure> {
    let spot = job.spot()?;
    let Some(bytes) = host::current(job, spot)? else { return Ok(None) };
    if job.session.seen.differs(spot.real(), &bytes) {
        return Err("the file changed since it was read; read it again first".into());
    }
    as_text(bytes).map(Some)
}

/// A model that remembers only the mark of a secret would put the mark in the secret's place.
pub(super) fn refuse_marks(new: &str, before: Option<&str>) -> Result<(), Failure> {
    if new.contains(MARK) && !before.is_some_and(|before| before.contains(MARK)) {
        return Err(format!(
            "the new text contains {MARK}, which stands for a secret that was taken out of the log; writing \
             it would destroy the secret. Change only the lines around it, or let the user do it"
        )
        .into());
    }
    Ok(())
}

/// A name that nobody uses and nobody can guess.
fn draft_name() -> String {
    format!(".ropewalk-{}.tmp", uuid::Uuid::new_v4().simple())
}

/// Puts a prepared change in place, unless the file became another one in the meantime.
pub(super) fn put_in_place(
    job: &Job,
    change: FileChange,
    told: String,
    line: Option<u32>,
) -> Result<Outcome, Failure> {
    let (files, path) = (job.files()?, change.path.as_path());
    // Folders and links may have changed while permission was asked.
    let spot = files.find(path, Want::Write)?;
    let now = host::current(job, &spot)?.map(as_text).transpose()?;
    if spot.real() != path || now.as_deref() != change.before.as_deref() {
        return Err("the file changed while permission was asked; read it again first".into());
    }
    let after = change.after.clone().unwrap_or_default();
    host::put(job, &spot, &after, || files.replace(&spot, after.as_bytes(), &draft_name()))?;
    job.session.seen.remember(path, after.as_bytes());
    let location = Location { path: path.to_owned(), line };
    Ok(Outcome { told: Some(told), changes: vec![change], locations: vec![location], ..Outcome::default() })
}
