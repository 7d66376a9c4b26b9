//! The review of a session, as whoever looks at it from outside has it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{BoxFuture, Changed, Review};

use crate::place::Place;
use crate::tools::blocking;
use crate::undo::Undo;

pub(crate) struct SessionReview {
    pub(crate) undo: Arc<Undo>,
    /// The folders as they could be opened last.
    pub(crate) place: Arc<Mutex<Place>>,
}

impl SessionReview {
    fn place(&self) -> Place {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Review for SessionReview {
    fn changes(&self) -> BoxFuture<'_, Result<Vec<Changed>, String>> {
        let (undo, place) = (Arc::clone(&self.undo), self.place());
        Box::pin(async move {
            blocking(move || undo.changes(place.files().map_err(|error| error.to_string())?)).await?
        })
    }

    fn keep(&self, path: PathBuf, hunk: Option<Arc<str>>) -> BoxFuture<'_, Result<(), String>> {
        let (undo, place) = (Arc::clone(&self.undo), self.place());
        Box::pin(async move {
            let keep = move || {
                let files = place.files().map_err(|error| error.to_string())?;
                let path = undo.reviewed(files, &place.cwd.join(path))?;
                undo.keep(files, &path, hunk.as_deref())
            };
            blocking(keep).await?
        })
    }
}
