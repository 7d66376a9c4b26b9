//! `/undo` and `/redo`: what the last turn did to files is undone, or done again.

use std::sync::Arc;

use engine::{Body, SessionGone, TurnContext};

use crate::tools;
use crate::undo::{UndoDirection, UndoHistory, name_some};
use crate::workspace::Workspace;

/// How an answer begins that the model need not get.
pub(crate) const NOTHING: &str = "No file was changed: ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UndoCommand {
    direction: UndoDirection,
    /// Even if somebody else has changed a file since.
    force: Result<bool, &'static str>,
}

impl UndoCommand {
    pub(super) fn back(argument: Option<&str>) -> Self {
        Self { direction: UndoDirection::Back, force: force(argument) }
    }

    pub(super) fn forth(argument: Option<&str>) -> Self {
        Self { direction: UndoDirection::Forth, force: force(argument) }
    }
}

fn force(argument: Option<&str>) -> Result<bool, &'static str> {
    match argument {
        None => Ok(false),
        Some("force") => Ok(true),
        Some(_) => Err("the only word that can follow is force"),
    }
}

/// Executes the step and logs every file that it changed.
pub(crate) async fn answer(
    command: UndoCommand,
    undo: &Arc<UndoHistory>,
    workspace: &Workspace,
    context: &TurnContext,
) -> Result<String, SessionGone> {
    let (undo, at) = (Arc::clone(undo), workspace.clone());
    let step = move || -> Result<_, String> {
        let files = at.files().map_err(|error| error.to_string())?;
        undo.step(files, command.direction, command.force?)
    };
    let stepped = match tools::blocking(step).await.and_then(|outcome| outcome) {
        Ok(stepped) => stepped,
        Err(reason) => return Ok(format!("{NOTHING}{reason}.")),
    };
    for change in stepped.changes {
        context.emit(Body::FileEdited { call: None, change }).await?;
    }
    let names: Vec<String> = stepped.paths.iter().map(|path| workspace.shown(path)).collect();
    let done = if command.direction == UndoDirection::Back { "Undone" } else { "Redone" };
    let mut said = match names.as_slice() {
        [] => "All files are already as they should be.".to_owned(),
        names => format!("{done}: {}.", name_some(names)),
    };
    if !stepped.not_restored.is_empty() {
        said.push_str(&format!(" Not changed: {}.", name_some(&stepped.not_restored)));
    }
    if stepped.unfinished {
        said.push_str(" Run the same command again for the rest.");
    }
    Ok(said)
}
