//! `write`: writes a whole file, new or replaced. Also how every tool applies a change to a file.
//!
//! A file is replaced by renaming a complete one over it, so nobody ever reads a partial file.

use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolContent};
use sandbox::{FileError, PathAccess, PermittedPath};
use serde::Deserialize;
use serde_json::json;

use super::{
    Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, as_text, file_work,
};
use crate::editor_files;

/// The maximum size of a written file.
const WRITTEN_BYTES_MAX: usize = 10 << 20;
/// The mark that replaces a secret in the log.
const MARK: &str = "[REDACTED]";

pub(super) const NAME: &str = "write";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
            "text": {"type": "string", "description": "the whole new content of the file"}
        },
        "required": ["path", "text"],
        "additionalProperties": false
    });
    ToolDefinition::edits(
        NAME,
        "Writes a whole file; makes it and its folders if they are not there. Prefer edit for changes.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    text: String,
}

fn parse_call(text: &str) -> Result<Intent, String> {
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

impl ToolWork for Write {
    fn prepare(&mut self, job: &ToolJob) -> Result<Vec<ToolContent>, ToolFailure> {
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

    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let change = self.change.ok_or("could not prepare the write")?;
            let lines = change.after.as_ref().map_or(0, |text| text.lines().count());
            let verb = if change.before.is_some() { "replaced" } else { "created" };
            let lines = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
            let model_text = format!("{verb} {} ({lines})", job.workspace.shown(&change.path));
            apply_change(&job, change, model_text, None)
        })
    }
}

/// The current text of the file, if it exists. Fails if it has changed since the agent last read it.
pub(super) fn current(job: &ToolJob) -> Result<Option<String>, ToolFailure> {
    current_at(job, job.spot()?)
}

pub(super) fn current_at(job: &ToolJob, spot: &PermittedPath) -> Result<Option<String>, ToolFailure> {
    let Some(bytes) = editor_files::read_for_change(job, spot)? else { return Ok(None) };
    if job.session.read_versions.differs(spot.real(), &bytes) {
        return Err("the file changed since it was read; read it again first".into());
    }
    as_text(bytes).map(Some)
}

/// A model that remembers only the mark would overwrite the secret with it.
pub(super) fn refuse_marks(new: &str, before: Option<&str>) -> Result<(), ToolFailure> {
    if new.contains(MARK) && !before.is_some_and(|before| before.contains(MARK)) {
        return Err(format!(
            "the new text contains {MARK}, which stands for a secret that was taken out of the log; writing \
             it would destroy the secret. Change only the lines around it, or let the user do it"
        )
        .into());
    }
    Ok(())
}

/// Refuses texts that cannot be a text file.
fn refuse_unfit(text: &str) -> Result<(), String> {
    if text.len() > WRITTEN_BYTES_MAX {
        return Err(format!(
            "the text is larger than {} MiB; let a command make the file",
            WRITTEN_BYTES_MAX >> 20
        ));
    }
    if text.contains('\0') {
        return Err("the text contains a NUL byte, so it is not text; let a command make the file".into());
    }
    Ok(())
}

/// A unique, unpredictable name for a temporary file.
pub(crate) fn draft_name() -> String {
    format!(".ropewalk-{}.tmp", uuid::Uuid::new_v4().simple())
}

/// A change that is ready to be applied.
pub(super) struct PreparedChange {
    pub(super) change: FileChange,
    /// Permissions, if they differ from those of the replaced file.
    pub(super) permissions: Option<u32>,
}

/// Applies a prepared change, unless the file has changed in the meantime.
pub(super) fn apply_change(
    job: &ToolJob,
    change: FileChange,
    model_text: String,
    line: Option<u32>,
) -> Result<ToolOutcome, ToolFailure> {
    let put = PreparedChange { change, permissions: None };
    apply_all(job, std::slice::from_ref(&put))?;
    let PreparedChange { change, .. } = put;
    let location = Location { path: change.path.clone(), line };
    Ok(ToolOutcome {
        model_text: Some(model_text),
        changes: vec![change],
        locations: vec![location],
        ..ToolOutcome::default()
    })
}

/// Applies all changes or none of them.
pub(super) fn apply_all(job: &ToolJob, puts: &[PreparedChange]) -> Result<(), ToolFailure> {
    puts.iter().filter_map(|put| put.change.after.as_deref()).try_for_each(refuse_unfit)?;
    let spots =
        puts.iter().map(|put| still_there(job, &put.change)).collect::<Result<Vec<PermittedPath>, _>>()?;
    let permissions: Vec<Option<u32>> = spots.iter().map(PermittedPath::permissions).collect();
    for (done, (put, spot)) in puts.iter().zip(&spots).enumerate() {
        let FileChange { before, after, .. } = &put.change;
        let Err(failure) = write_bytes(job, spot, before.as_deref(), after.as_deref(), put.permissions)
        else {
            continue;
        };
        for at in (0..done).rev() {
            let (FileChange { before, after, .. }, spot) = (&puts[at].change, &spots[at]);
            if let Err(failure) = write_bytes(job, spot, after.as_deref(), before.as_deref(), permissions[at])
            {
                tracing::warn!(path = %spot.real().display(), ?failure, "could not undo a change");
            }
        }
        return Err(failure);
    }
    Ok(())
}

/// Resolves the file of a change, if it is still as it was when the change was prepared.
fn still_there(job: &ToolJob, change: &FileChange) -> Result<PermittedPath, ToolFailure> {
    let files = job.files()?;
    // Folders and links may have changed while permission was asked.
    let spot = files.find(&change.path, PathAccess::Write)?;
    // A missing file is not requested from the editor again, because it would show an error each time.
    let still_new = change.before.is_none() && editor_files::is_missing(job, &spot)?;
    let now =
        if still_new { None } else { editor_files::read_for_change(job, &spot)?.map(as_text).transpose()? };
    if spot.real() != change.path || now.as_deref() != change.before.as_deref() {
        return Err("the file changed while permission was asked; read it again first".into());
    }
    Ok(spot)
}

/// The one place where a tool writes a file, or removes it.
fn write_bytes(
    job: &ToolJob,
    spot: &PermittedPath,
    before: Option<&str>,
    after: Option<&str>,
    permissions: Option<u32>,
) -> Result<(), ToolFailure> {
    let (files, turn) = (job.files()?, job.context.turn());
    let before = before.map(str::as_bytes);
    let former = job.session.undo.will_change(turn, spot, before, after.map(str::as_bytes), permissions);
    let outcome = match after {
        Some(after) => {
            let to_disk = || files.replace_with(spot, after.as_bytes(), &draft_name(), permissions);
            editor_files::write(job, spot, after, to_disk)
        }
        None => files.remove(spot).map_err(|error| match error {
            FileError::Unusable { reason, .. } => format!("the file cannot be removed: {reason}").into(),
            refused @ FileError::Refused { .. } => ToolFailure::from(refused),
        }),
    };
    if let Err(failure) = outcome {
        job.session.undo.did_not_change(former);
        return Err(failure);
    }
    job.session.read_versions.remember(spot.real(), after.unwrap_or_default().as_bytes());
    Ok(())
}
