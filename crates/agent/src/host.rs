//! Files as the person's editor has them: what is not saved yet is what the agent reads, and what the
//! agent writes stands in the editor.
//!
//! Where a path leads and whether it may be reached is decided here, before the editor is asked. An
//! editor that says no is not gone around: what is on the disk stays as it is, and the model is told.
//!
//! Everything here runs on threads that may block.

mod new_output;
mod terminal;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, EDITOR_SILENT, HostError, HostLink, NoticeLevel};
use sandbox::{FileError, Spot};
use tokio::runtime::Handle;

use crate::place::Place;
use crate::tools::{FILE_BYTES_MAX, Failure, Job, read_whole};

pub(crate) use terminal::{
    EditorTerminal, Terminal, attend_in_background, open as open_terminal, run as run_in_terminal,
};

/// A file as it was found.
pub(crate) struct Found {
    /// Nothing, if there is no such file.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Why this is what is on the disk, where the editor was asked.
    pub(crate) note: Option<String>,
}

/// What a file holds, for somebody who looks at it: as the editor shows it if it can, else what is on the
/// disk, and then it says so.
pub(crate) fn look(job: &Job, spot: &Spot) -> Result<Found, Failure> {
    let disk = read_whole(job.files()?, spot)?;
    match edited(job, spot, disk.as_deref()) {
        Edited::No => Ok(Found { bytes: disk, note: None }),
        Edited::Yes(text) => Ok(Found { bytes: Some(whole(&text)?), note: None }),
        Edited::Failed(_) if disk.is_none() => Ok(Found { bytes: None, note: None }),
        Edited::Failed(error) => {
            let note = format!("[{error}; this is what is on the disk]");
            Ok(Found { bytes: disk, note: Some(note) })
        }
    }
}

/// What a file holds, for somebody who is about to change it: as the editor shows it, if the change will
/// be made there.
pub(crate) fn current(job: &Job, spot: &Spot) -> Result<Option<Vec<u8>>, Failure> {
    let disk = read_whole(job.files()?, spot)?;
    if job.context.host(|can| can.write).is_none() {
        return Ok(disk);
    }
    match edited(job, spot, disk.as_deref()) {
        Edited::No => Ok(disk),
        Edited::Yes(text) => whole(&text).map(Some),
        // An editor has no word for a file that is not there.
        Edited::Failed(_) if disk.is_none() => Ok(None),
        Edited::Failed(HostError::TimedOut) => Err(format!(
            "the editor cannot show the file as it is: {}. It is asked no more in this turn: try again, and the \
             file on the disk is changed",
            HostError::TimedOut
        )
        .into()),
        Edited::Failed(error) => Err(format!("the editor cannot show the file as it is: {error}").into()),
    }
}

/// Whether there is no such file on the disk.
pub(crate) fn is_missing(job: &Job, spot: &Spot) -> Result<bool, Failure> {
    Ok(read_whole(job.files()?, spot)?.is_none())
}

/// Puts a text where it belongs: through the editor if it can, else on the disk.
pub(crate) fn put(
    job: &Job,
    spot: &Spot,
    text: &str,
    to_disk: impl FnOnce() -> Result<(), FileError>,
) -> Result<(), Failure> {
    let asked = job.context.host(|can| can.write).zip(named(&job.place, spot));
    let to_disk = || match to_disk() {
        Err(FileError::Unusable { reason, .. }) => {
            Err(format!("the file cannot be written: {reason}").into())
        }
        outcome => outcome.map_err(Failure::from),
    };
    let Some((editor, path)) = asked else { return to_disk() };
    match wait(job, editor.write_text(path, text.into())) {
        Ok(()) => Ok(()),
        Err(HostError::Away) => to_disk(),
        Err(error) => Err(format!(
            "the editor did not write the file: {error}. Nothing was written to the disk behind its back; \
             read the file again to see what it holds"
        )
        .into()),
    }
}

/// What an editor says of a file.
enum Edited {
    /// There is none to ask, or it has nothing to say about such a file.
    No,
    Yes(Arc<str>),
    Failed(HostError),
}

fn edited(job: &Job, spot: &Spot, disk: Option<&[u8]>) -> Edited {
    // Editors have text; a picture would come back as something else.
    let text = disk.is_none_or(|bytes| !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok());
    let asked = job.context.host(|can| can.read).zip(named(&job.place, spot));
    let Some((editor, path)) = asked.filter(|_| text) else { return Edited::No };
    match read(job, &editor, path) {
        Ok(text) => Edited::Yes(text),
        // Without the editor there is nothing unsaved any more.
        Err(HostError::Away | HostError::Gone) => Edited::No,
        Err(error) => Edited::Failed(error),
    }
}

/// Whole, whatever part of it is wanted: a change is compared with all that was there.
fn read(job: &Job, editor: &HostLink, path: PathBuf) -> Result<Arc<str>, HostError> {
    wait(job, editor.read_text(path, None, None))
}

fn whole(text: &str) -> Result<Vec<u8>, Failure> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB; search in it instead", FILE_BYTES_MAX >> 20).into());
    }
    Ok(text.as_bytes().to_vec())
}

/// The path as the client knows it: below the folder that it named, also if that is a link. One that is
/// not Unicode cannot be said.
fn named(place: &Place, spot: &Spot) -> Option<PathBuf> {
    let real = spot.real();
    let path = match real.strip_prefix(place.folder()) {
        Ok(below) => place.cwd.join(below),
        Err(_) => real.to_owned(),
    };
    path.to_str().is_some().then_some(path)
}

/// Waits for the editor, but not longer than the turn lasts.
fn wait<T>(job: &Job, answer: impl Future<Output = Result<T, HostError>>) -> Result<T, HostError> {
    Handle::current().block_on(async {
        tokio::select! {
            biased;
            () = job.context.cancel.cancelled() => {
                Err(HostError::Refused("the turn was cancelled".into()))
            }
            answer = answer => {
                if let Err(HostError::TimedOut) = answer {
                    tell_of_silence(job).await;
                }
                answer
            }
        }
    })
}

/// Its person learns that the editor is asked no more.
async fn tell_of_silence(job: &Job) {
    // A session that is gone shows nothing.
    job.context.emit(silence()).await.ok();
}

fn silence() -> Body {
    Body::Notice { level: NoticeLevel::Warning, text: EDITOR_SILENT.into() }
}
