//! `/undo` and `/redo`: what the last turn did to files is taken back, or done again.

use std::sync::Arc;

use engine::{Body, SessionGone, TurnContext};

use crate::place::Place;
use crate::tools;
use crate::undo::{Undo, Way, some_of};

/// How an answer begins that the model need not hear.
pub(crate) const NOTHING: &str = "No file was changed: ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    way: Way,
    /// Also where somebody else has changed a file since.
    force: Result<bool, &'static str>,
}

impl Order {
    pub(super) fn back(argument: Option<&str>) -> Self {
        Self { way: Way::Back, force: force(argument) }
    }

    pub(super) fn forth(argument: Option<&str>) -> Self {
        Self { way: Way::Forth, force: force(argument) }
    }
}

fn force(argument: Option<&str>) -> Result<bool, &'static str> {
    match argument {
        None => Ok(false),
        Some("force") => Ok(true),
        Some(_) => Err("the only word that can follow is force"),
    }
}

/// Takes the step and shows every file that it changed.
pub(crate) async fn answer(
    order: Order,
    undo: &Arc<Undo>,
    place: &Place,
    context: &TurnContext,
) -> Result<String, SessionGone> {
    let (undo, at) = (Arc::clone(undo), place.clone());
    let step = move || -> Result<_, String> {
        let files = at.files().map_err(|error| error.to_string())?;
        undo.step(files, order.way, order.force?)
    };
    let stepped = match tools::blocking(step).await.and_then(|outcome| outcome) {
        Ok(stepped) => stepped,
        Err(reason) => return Ok(format!("{NOTHING}{reason}.")),
    };
    for change in stepped.changes {
        context.emit(Body::FileEdited { call: None, change }).await?;
    }
    let names: Vec<String> = stepped.paths.iter().map(|path| place.shown(path)).collect();
    let done = if order.way == Way::Back { "Undone" } else { "Done again" };
    let mut said = match names.as_slice() {
        [] => "All files are already as they should be.".to_owned(),
        names => format!("{done}: {}.", some_of(names)),
    };
    if !stepped.left.is_empty() {
        said.push_str(&format!(" Left as it is: {}.", some_of(&stepped.left)));
    }
    if stepped.unfinished {
        said.push_str(" The same command again does the rest.");
    }
    Ok(said)
}
