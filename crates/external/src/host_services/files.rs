//! Files for an external agent: as the person's editor has them if it offers them, otherwise as they are on
//! disk.
//!
//! If the editor refuses, there is no fallback to the disk: the file on disk stays as it is.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use engine::{Body, FileChange, HostError, Opaque, Risk, ToolClass, ToolContent, ToolKind, TurnContext};
use guard::REDACTED;
use sandbox::{PathAccess, PermittedPath};
use wire::acp::HostRequestError;

use super::action_permission::HostAction;
use super::{Shared, until_cancelled};

const READ_BYTES_MAX: usize = 10 << 20;
const WRITE_BYTES_MAX: usize = 10 << 20;

pub(super) async fn read(
    services: &Arc<Shared>,
    turn: &TurnContext,
    path: &Path,
    line: Option<u32>,
    limit: Option<u32>,
) -> Result<Arc<str>, HostRequestError> {
    let spot = services.find(turn, path, PathAccess::Read).await?;
    let input = serde_json::json!({ "path": path, "line": line, "limit": limit });
    let action = HostAction {
        tool: "read",
        title: format!("Read {}", path.display()),
        kind: ToolKind::Read,
        class: ToolClass::Read,
        paths: Some((spot.real().to_owned(), path.to_owned())),
        lines: Vec::new(),
        input: Opaque(input.to_string().into()),
        default_assessment: (Risk::Low, "reads a file"),
        preview: Vec::new(),
        outside_digest: None,
    };
    services.permit(turn, action).await?;
    let asked = turn.host(|can| can.read).zip(services.client_path(spot.real()));
    if let Some((editor, named)) = asked {
        match until_cancelled(turn, editor.read_text(named, line, limit)).await {
            Ok(text) => return check_size(text),
            // Without the editor there are no unsaved changes.
            Err(HostError::Away | HostError::Gone) => {}
            // Editors have no specific error for a missing file.
            Err(_) if spot.kind().is_none() => return Err(missing(&spot)),
            Err(error) => return Err(HostRequestError::Failed(error.to_string())),
        }
    }
    let text = read_disk(services, turn, &spot).await?.ok_or_else(|| missing(&spot))?;
    Ok(excerpt(&text, line, limit).into())
}

pub(super) async fn write(
    services: &Arc<Shared>,
    turn: &TurnContext,
    path: &Path,
    text: Arc<str>,
) -> Result<(), HostRequestError> {
    if text.len() > WRITE_BYTES_MAX {
        let most = WRITE_BYTES_MAX >> 20;
        return Err(HostRequestError::Failed(format!(
            "the text is larger than {most} MiB; let a command make the file"
        )));
    }
    let spot = services.find(turn, path, PathAccess::Write).await?;
    let before = current_text(services, turn, &spot).await?;
    refuse_marks(&text, before.as_deref())?;
    let change = FileChange { path: spot.real().to_owned(), before, after: Some(Arc::clone(&text)) };
    let input = serde_json::json!({ "path": path, "text": &*text });
    let action = HostAction {
        tool: "write",
        title: format!("Write {}", path.display()),
        kind: ToolKind::Edit,
        class: ToolClass::Edit,
        paths: Some((spot.real().to_owned(), path.to_owned())),
        lines: Vec::new(),
        input: Opaque(input.to_string().into()),
        default_assessment: (Risk::Medium, "writes a file"),
        preview: vec![ToolContent::Diff(change.clone())],
        outside_digest: None,
    };
    services.permit(turn, action).await?;
    let edited = Body::FileEdited { call: None, change };
    // Before the file is changed: a change that cannot be logged is not made.
    services.count(edited.weight()).await?;
    write_back(services, turn, &spot, text).await?;
    turn.emit(edited).await.map_err(|gone| HostRequestError::Failed(gone.to_string()))
}

/// Writes a text: through the editor if it offers that, otherwise to the disk.
async fn write_back(
    services: &Arc<Shared>,
    turn: &TurnContext,
    spot: &PermittedPath,
    text: Arc<str>,
) -> Result<(), HostRequestError> {
    let asked = turn.host(|can| can.write).zip(services.client_path(spot.real()));
    if let Some((editor, named)) = asked {
        match until_cancelled(turn, editor.write_text(named, Arc::clone(&text))).await {
            Ok(()) => return Ok(()),
            Err(HostError::Away) => {}
            Err(error) => {
                let told = format!("{error}; the file on the disk was not written directly");
                return Err(HostRequestError::Failed(told));
            }
        }
    }
    let (to, shared) = (spot.clone(), Arc::clone(services));
    let draft = format!(".ropewalk-{}.tmp", uuid::Uuid::new_v4().simple());
    let put =
        services.run_blocking(move || Ok(shared.files()?.replace(&to, text.as_bytes(), &draft))).await?;
    match put {
        Ok(()) => Ok(()),
        Err(error) => Err(services.file_error(turn, PathAccess::Write, error).await),
    }
}

/// The current text of the file, to show the change. A file that is not text is not shown.
async fn current_text(
    services: &Arc<Shared>,
    turn: &TurnContext,
    spot: &PermittedPath,
) -> Result<Option<Arc<str>>, HostRequestError> {
    let edited = turn.host(|can| can.write && can.read).zip(services.client_path(spot.real()));
    if let Some((editor, named)) = edited
        && let Ok(text) = until_cancelled(turn, editor.read_text(named, None, None)).await
    {
        return Ok(Some(text));
    }
    match read_disk(services, turn, spot).await {
        Ok(text) => Ok(text.map(Into::into)),
        Err(HostRequestError::Failed(_)) if spot.kind() == Some(sandbox::EntryKind::File) => Ok(None),
        Err(unserved) => Err(unserved),
    }
}

/// The text on disk, if the file exists.
async fn read_disk(
    services: &Arc<Shared>,
    turn: &TurnContext,
    spot: &PermittedPath,
) -> Result<Option<String>, HostRequestError> {
    if spot.kind().is_none() {
        return Ok(None);
    }
    let (at, shared) = (spot.clone(), Arc::clone(services));
    let opened = services.run_blocking(move || Ok(shared.files()?.open_file(&at))).await?;
    let file = match opened {
        Ok(file) => file,
        Err(error) => return Err(services.file_error(turn, PathAccess::Read, error).await),
    };
    let shown = spot.real().display().to_string();
    services
        .run_blocking(move || {
            let mut bytes = Vec::new();
            let read = file.take(READ_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
            read.map_err(|error| HostRequestError::Failed(format!("could not read {shown}: {error}")))?;
            if bytes.len() > READ_BYTES_MAX {
                return Err(too_large());
            }
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| HostRequestError::Failed(format!("{shown} is not a text file")))
        })
        .await
}

fn check_size(text: Arc<str>) -> Result<Arc<str>, HostRequestError> {
    if text.len() > READ_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

fn too_large() -> HostRequestError {
    let most = READ_BYTES_MAX >> 20;
    HostRequestError::Failed(format!("it is larger than {most} MiB; search in it instead"))
}

fn missing(spot: &PermittedPath) -> HostRequestError {
    HostRequestError::Missing(format!("{} does not exist", spot.real().display()))
}

/// An agent that saw only the redaction mark would overwrite the secret with it.
fn refuse_marks(new: &str, before: Option<&str>) -> Result<(), HostRequestError> {
    if new.contains(REDACTED) && !before.is_some_and(|before| before.contains(REDACTED)) {
        return Err(HostRequestError::Refused(format!(
            "the new text contains {REDACTED}, which stands for a secret that was taken out; writing it would \
             destroy the secret"
        )));
    }
    Ok(())
}

/// The requested lines; the first is line 1.
fn excerpt(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    let first = line.map_or(0, |line| line.saturating_sub(1) as usize);
    let count = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(first).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_whole_lines() {
        let text = "a\nb\nc";
        for (line, limit, expected) in [
            (None, None, text),
            (Some(1), Some(1), "a\n"),
            (Some(0), Some(1), "a\n"),
            (Some(2), None, "b\nc"),
            (Some(3), Some(9), "c"),
            (Some(9), None, ""),
            (None, Some(0), ""),
        ] {
            assert_eq!(excerpt(text, line, limit), expected, "{line:?} {limit:?}");
        }
    }
}
