//! Files as the person's editor has them: the agent reads unsaved text from the editor, and writes through it.
//!
//! Where a path leads and whether it may be accessed is decided here, before the editor is asked. If the
//! editor refuses, there is no fallback: the file on disk stays as it is, and the model is told.
//!
//! Everything here runs on threads that may block.

mod editor_terminal;
mod new_terminal_output;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, EDITOR_SILENT, HostError, HostLink, NoticeLevel};
use sandbox::{FileError, PermittedPath};
use tokio::runtime::Handle;

use crate::tools::{FILE_BYTES_MAX, ToolFailure, ToolJob, read_whole};
use crate::workspace::Workspace;

pub(crate) use editor_terminal::{
    EditorCommand, EditorTerminal, attend_in_background, open as open_terminal, run as run_in_terminal,
};

/// The contents of a file.
pub(crate) struct FileContents {
    /// `None` if there is no such file.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Why the bytes are from the disk although the editor was asked.
    pub(crate) note: Option<String>,
}

/// Reads a file in order to show it: from the editor if it offers that, otherwise from the disk, with a note
/// that says so.
pub(crate) fn read(job: &ToolJob, spot: &PermittedPath) -> Result<FileContents, ToolFailure> {
    let disk = read_whole(job.files()?, spot)?;
    match ask_editor(job, spot, disk.as_deref()) {
        EditorText::No => Ok(FileContents { bytes: disk, note: None }),
        EditorText::Yes(text) => Ok(FileContents { bytes: Some(check_size(&text)?), note: None }),
        EditorText::Failed(_) if disk.is_none() => Ok(FileContents { bytes: None, note: None }),
        EditorText::Failed(error) => {
            let note = format!("[{error}; this is the version on the disk]");
            Ok(FileContents { bytes: disk, note: Some(note) })
        }
    }
}

/// Reads a file in order to change it: from the editor, if the change will be made there.
pub(crate) fn read_for_change(job: &ToolJob, spot: &PermittedPath) -> Result<Option<Vec<u8>>, ToolFailure> {
    let disk = read_whole(job.files()?, spot)?;
    if job.context.host(|can| can.write).is_none() {
        return Ok(disk);
    }
    match ask_editor(job, spot, disk.as_deref()) {
        EditorText::No => Ok(disk),
        EditorText::Yes(text) => check_size(&text).map(Some),
        // Editors have no specific error for a missing file.
        EditorText::Failed(_) if disk.is_none() => Ok(None),
        EditorText::Failed(HostError::TimedOut) => Err(format!(
            "the editor could not return its version of the file: {}. It is not asked again in this turn: if you try again, the file on the disk is changed",
            HostError::TimedOut
        )
        .into()),
        EditorText::Failed(error) => Err(format!("the editor could not return its version of the file: {error}").into()),
    }
}

/// Whether there is no such file on the disk.
pub(crate) fn is_missing(job: &ToolJob, spot: &PermittedPath) -> Result<bool, ToolFailure> {
    Ok(read_whole(job.files()?, spot)?.is_none())
}

/// Writes a text: through the editor if it offers that, otherwise to the disk.
pub(crate) fn write(
    job: &ToolJob,
    spot: &PermittedPath,
    text: &str,
    to_disk: impl FnOnce() -> Result<(), FileError>,
) -> Result<(), ToolFailure> {
    let asked = job.context.host(|can| can.write).zip(client_path(&job.workspace, spot));
    let to_disk = || match to_disk() {
        Err(FileError::Unusable { reason, .. }) => Err(format!("could not write the file: {reason}").into()),
        outcome => outcome.map_err(ToolFailure::from),
    };
    let Some((editor, path)) = asked else { return to_disk() };
    match wait_for_editor(job, editor.write_text(path, text.into())) {
        Ok(()) => Ok(()),
        Err(HostError::Away) => to_disk(),
        Err(error) => Err(format!(
            "the editor did not write the file: {error}. The file on the disk was not written directly; read the file again to see what it contains"
        )
        .into()),
    }
}

/// The editor's text of a file.
enum EditorText {
    /// There is no editor to ask, or the file is not text.
    No,
    Yes(Arc<str>),
    Failed(HostError),
}

fn ask_editor(job: &ToolJob, spot: &PermittedPath, disk: Option<&[u8]>) -> EditorText {
    // Editors only have text; an image would be garbled.
    let text = disk.is_none_or(|bytes| !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok());
    let asked = job.context.host(|can| can.read).zip(client_path(&job.workspace, spot));
    let Some((editor, path)) = asked.filter(|_| text) else { return EditorText::No };
    match read_from_editor(job, &editor, path) {
        Ok(text) => EditorText::Yes(text),
        // Without the editor there are no unsaved changes.
        Err(HostError::Away | HostError::Gone) => EditorText::No,
        Err(error) => EditorText::Failed(error),
    }
}

/// Reads the whole file, because a later change is compared with all of it.
fn read_from_editor(job: &ToolJob, editor: &HostLink, path: PathBuf) -> Result<Arc<str>, HostError> {
    wait_for_editor(job, editor.read_text(path, None, None))
}

fn check_size(text: &str) -> Result<Vec<u8>, ToolFailure> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB; search in it instead", FILE_BYTES_MAX >> 20).into());
    }
    Ok(text.as_bytes().to_vec())
}

/// The path as the client knows it: below the folder that it named, even if that is a link. `None` if the
/// path is not Unicode.
fn client_path(workspace: &Workspace, spot: &PermittedPath) -> Option<PathBuf> {
    let real = spot.real();
    let path = match real.strip_prefix(workspace.folder()) {
        Ok(below) => workspace.cwd.join(below),
        Err(_) => real.to_owned(),
    };
    path.to_str().is_some().then_some(path)
}

/// Waits for the editor until the turn is cancelled.
fn wait_for_editor<T>(
    job: &ToolJob,
    answer: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    Handle::current().block_on(async {
        tokio::select! {
            biased;
            () = job.context.cancel.cancelled() => {
                Err(HostError::Refused("the turn was cancelled".into()))
            }
            answer = answer => {
                if let Err(HostError::TimedOut) = answer {
                    report_silence(job).await;
                }
                answer
            }
        }
    })
}

/// Reports that the editor did not answer and is not asked any more.
async fn report_silence(job: &ToolJob) {
    // If the session is gone, there is no log to write to.
    job.context.emit(silence_notice()).await.ok();
}

fn silence_notice() -> Body {
    Body::Notice { level: NoticeLevel::Warning, text: EDITOR_SILENT.into() }
}
