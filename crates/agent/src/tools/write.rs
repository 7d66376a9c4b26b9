//! `write`: a whole file, new or replaced. Also how any tool puts a changed file in place.
//!
//! A file is replaced by renaming a finished one over it, so nobody ever reads half of it.

use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolContent};
use sandbox::{FileError, Spot, Want};
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments, as_text, file_work};
use crate::host;

/// What a tool writes at most.
const WRITTEN_BYTES_MAX: usize = 10 << 20;
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
    Tool::edits(
        NAME,
        "Writes a whole file; makes it and its folders if they are not there. Prefer edit for changes.",
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
    refuse_unfit(&write.text)?;
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
    current_at(job, job.spot()?)
}

pub(super) fn current_at(job: &Job, spot: &Spot) -> Result<Option<String>, Failure> {
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

/// What no text file of a project is.
fn refuse_unfit(text: &str) -> Result<(), String> {
    if text.len() > WRITTEN_BYTES_MAX {
        return Err(format!(
            "the text is larger than {} MiB; let a command make the file",
            WRITTEN_BYTES_MAX >> 20
        ));
    }
    if text.contains('\0') {
        return Err("the text has a NUL in it, so it is no text; let a command make the file".into());
    }
    Ok(())
}

/// A name that nobody uses and nobody can guess.
pub(crate) fn draft_name() -> String {
    format!(".ropewalk-{}.tmp", uuid::Uuid::new_v4().simple())
}

/// A change that is ready to be put in place.
pub(super) struct Put {
    pub(super) change: FileChange,
    /// Other permissions than those of what it replaces.
    pub(super) permissions: Option<u32>,
}

/// Puts a prepared change in place, unless the file became another one in the meantime.
pub(super) fn put_in_place(
    job: &Job,
    change: FileChange,
    told: String,
    line: Option<u32>,
) -> Result<Outcome, Failure> {
    let put = Put { change, permissions: None };
    put_all(job, std::slice::from_ref(&put))?;
    let Put { change, .. } = put;
    let location = Location { path: change.path.clone(), line };
    Ok(Outcome { told: Some(told), changes: vec![change], locations: vec![location], ..Outcome::default() })
}

/// Puts all of the changes in place or none of them.
pub(super) fn put_all(job: &Job, puts: &[Put]) -> Result<(), Failure> {
    puts.iter().filter_map(|put| put.change.after.as_deref()).try_for_each(refuse_unfit)?;
    let spots = puts.iter().map(|put| still_there(job, &put.change)).collect::<Result<Vec<Spot>, _>>()?;
    let permissions: Vec<Option<u32>> = spots.iter().map(Spot::permissions).collect();
    for (done, (put, spot)) in puts.iter().zip(&spots).enumerate() {
        let FileChange { before, after, .. } = &put.change;
        let Err(failure) = put_bytes(job, spot, before.as_deref(), after.as_deref(), put.permissions) else {
            continue;
        };
        for at in (0..done).rev() {
            let (FileChange { before, after, .. }, spot) = (&puts[at].change, &spots[at]);
            if let Err(failure) = put_bytes(job, spot, after.as_deref(), before.as_deref(), permissions[at]) {
                tracing::warn!(path = %spot.real().display(), ?failure, "a change could not be taken back");
            }
        }
        return Err(failure);
    }
    Ok(())
}

/// Where the change goes, if what is there is what was there when it was made.
fn still_there(job: &Job, change: &FileChange) -> Result<Spot, Failure> {
    let files = job.files()?;
    // Folders and links may have changed while permission was asked.
    let spot = files.find(&change.path, Want::Write)?;
    // An editor was asked for a file that is not there before; each time it would show its person an error.
    let still_new = change.before.is_none() && host::is_missing(job, &spot)?;
    let now = if still_new { None } else { host::current(job, &spot)?.map(as_text).transpose()? };
    if spot.real() != change.path || now.as_deref() != change.before.as_deref() {
        return Err("the file changed while permission was asked; read it again first".into());
    }
    Ok(spot)
}

/// The one place where a tool writes a file, or removes it.
fn put_bytes(
    job: &Job,
    spot: &Spot,
    before: Option<&str>,
    after: Option<&str>,
    permissions: Option<u32>,
) -> Result<(), Failure> {
    let (files, turn) = (job.files()?, job.context.turn());
    let before = before.map(str::as_bytes);
    let former = job.session.undo.will_change(turn, spot, before, after.map(str::as_bytes), permissions);
    let outcome = match after {
        Some(after) => {
            let to_disk = || files.replace_with(spot, after.as_bytes(), &draft_name(), permissions);
            host::put(job, spot, after, to_disk)
        }
        None => files.remove(spot).map_err(|error| match error {
            FileError::Unusable { reason, .. } => format!("the file cannot be removed: {reason}").into(),
            refused @ FileError::Refused { .. } => Failure::from(refused),
        }),
    };
    if let Err(failure) = outcome {
        job.session.undo.did_not_change(former);
        return Err(failure);
    }
    job.session.seen.remember(spot.real(), after.unwrap_or_default().as_bytes());
    Ok(())
}
