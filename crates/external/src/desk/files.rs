//! Files for an agent: as the person's editor has them if it shows them, else as they are on the disk.
//!
//! An editor that says no is not gone around: what is on the disk stays as it is.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use engine::{Body, FileChange, HostError, Opaque, Risk, ToolClass, ToolContent, ToolKind, TurnContext};
use guard::REDACTED;
use sandbox::{Spot, Want};
use wire::acp::Unserved;

use super::permission::Wish;
use super::{Shared, within};

const READ_BYTES_MAX: usize = 10 << 20;
const WRITE_BYTES_MAX: usize = 10 << 20;

pub(super) async fn read(
    desk: &Arc<Shared>,
    turn: &TurnContext,
    path: &Path,
    line: Option<u32>,
    limit: Option<u32>,
) -> Result<Arc<str>, Unserved> {
    let spot = desk.find(turn, path, Want::Read).await?;
    let input = serde_json::json!({ "path": path, "line": line, "limit": limit });
    let wish = Wish {
        tool: "read",
        title: format!("Read {}", path.display()),
        kind: ToolKind::Read,
        class: ToolClass::Read,
        paths: Some((spot.real().to_owned(), path.to_owned())),
        lines: Vec::new(),
        input: Opaque(input.to_string().into()),
        usual: (Risk::Low, "reads a file"),
        preview: Vec::new(),
        outside: None,
    };
    desk.permit(turn, wish).await?;
    let asked = turn.host(|can| can.read).zip(desk.named(spot.real()));
    if let Some((editor, named)) = asked {
        match within(turn, editor.read_text(named, line, limit)).await {
            Ok(text) => return whole(text),
            // Without the editor there is nothing unsaved any more.
            Err(HostError::Away | HostError::Gone) => {}
            // An editor has no word for a file that is not there.
            Err(_) if spot.kind().is_none() => return Err(missing(&spot)),
            Err(error) => return Err(Unserved::Failed(error.to_string())),
        }
    }
    let text = disk(desk, turn, &spot).await?.ok_or_else(|| missing(&spot))?;
    Ok(excerpt(&text, line, limit).into())
}

pub(super) async fn write(
    desk: &Arc<Shared>,
    turn: &TurnContext,
    path: &Path,
    text: Arc<str>,
) -> Result<(), Unserved> {
    if text.len() > WRITE_BYTES_MAX {
        let most = WRITE_BYTES_MAX >> 20;
        return Err(Unserved::Failed(format!(
            "the text is larger than {most} MiB; let a command make the file"
        )));
    }
    let spot = desk.find(turn, path, Want::Write).await?;
    let before = before(desk, turn, &spot).await?;
    refuse_marks(&text, before.as_deref())?;
    let change = FileChange { path: spot.real().to_owned(), before, after: Some(Arc::clone(&text)) };
    let input = serde_json::json!({ "path": path, "text": &*text });
    let wish = Wish {
        tool: "write",
        title: format!("Write {}", path.display()),
        kind: ToolKind::Edit,
        class: ToolClass::Edit,
        paths: Some((spot.real().to_owned(), path.to_owned())),
        lines: Vec::new(),
        input: Opaque(input.to_string().into()),
        usual: (Risk::Medium, "writes a file"),
        preview: vec![ToolContent::Diff(change.clone())],
        outside: None,
    };
    desk.permit(turn, wish).await?;
    let edited = Body::FileEdited { call: None, change };
    // Before the file is changed: what is not written down is not done.
    desk.count(edited.weight()).await?;
    put(desk, turn, &spot, text).await?;
    turn.emit(edited).await.map_err(|gone| Unserved::Failed(gone.to_string()))
}

/// Puts a text where it belongs: through the editor if it can, else on the disk.
async fn put(desk: &Arc<Shared>, turn: &TurnContext, spot: &Spot, text: Arc<str>) -> Result<(), Unserved> {
    let asked = turn.host(|can| can.write).zip(desk.named(spot.real()));
    if let Some((editor, named)) = asked {
        match within(turn, editor.write_text(named, Arc::clone(&text))).await {
            Ok(()) => return Ok(()),
            Err(HostError::Away) => {}
            Err(error) => {
                let told = format!("{error}; nothing was written to the disk behind its back");
                return Err(Unserved::Failed(told));
            }
        }
    }
    let (to, shared) = (spot.clone(), Arc::clone(desk));
    let draft = format!(".ropewalk-{}.tmp", uuid::Uuid::new_v4().simple());
    let put = desk.blocking(move || Ok(shared.files()?.replace(&to, text.as_bytes(), &draft))).await?;
    match put {
        Ok(()) => Ok(()),
        Err(error) => Err(desk.unusable(turn, Want::Write, error).await),
    }
}

/// What the file holds, for whoever decides about the change. What is no text is not shown.
async fn before(desk: &Arc<Shared>, turn: &TurnContext, spot: &Spot) -> Result<Option<Arc<str>>, Unserved> {
    let edited = turn.host(|can| can.write && can.read).zip(desk.named(spot.real()));
    if let Some((editor, named)) = edited
        && let Ok(text) = within(turn, editor.read_text(named, None, None)).await
    {
        return Ok(Some(text));
    }
    match disk(desk, turn, spot).await {
        Ok(text) => Ok(text.map(Into::into)),
        Err(Unserved::Failed(_)) if spot.kind() == Some(sandbox::Kind::File) => Ok(None),
        Err(unserved) => Err(unserved),
    }
}

/// What is on the disk, if anything is.
async fn disk(desk: &Arc<Shared>, turn: &TurnContext, spot: &Spot) -> Result<Option<String>, Unserved> {
    if spot.kind().is_none() {
        return Ok(None);
    }
    let (at, shared) = (spot.clone(), Arc::clone(desk));
    let opened = desk.blocking(move || Ok(shared.files()?.open_file(&at))).await?;
    let file = match opened {
        Ok(file) => file,
        Err(error) => return Err(desk.unusable(turn, Want::Read, error).await),
    };
    let shown = spot.real().display().to_string();
    desk.blocking(move || {
        let mut bytes = Vec::new();
        let read = file.take(READ_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| Unserved::Failed(format!("{shown} cannot be read: {error}")))?;
        if bytes.len() > READ_BYTES_MAX {
            return Err(too_large());
        }
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Unserved::Failed(format!("{shown} is not a text file")))
    })
    .await
}

fn whole(text: Arc<str>) -> Result<Arc<str>, Unserved> {
    if text.len() > READ_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

fn too_large() -> Unserved {
    let most = READ_BYTES_MAX >> 20;
    Unserved::Failed(format!("it is larger than {most} MiB; search in it instead"))
}

fn missing(spot: &Spot) -> Unserved {
    Unserved::Missing(format!("{} does not exist", spot.real().display()))
}

/// Who knows only the mark of a secret would put the mark in the secret's place.
fn refuse_marks(new: &str, before: Option<&str>) -> Result<(), Unserved> {
    if new.contains(REDACTED) && !before.is_some_and(|before| before.contains(REDACTED)) {
        return Err(Unserved::Refused(format!(
            "the new text contains {REDACTED}, which stands for a secret that was taken out; writing it would \
             destroy the secret"
        )));
    }
    Ok(())
}

/// The lines that were asked for; the first is line 1.
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
