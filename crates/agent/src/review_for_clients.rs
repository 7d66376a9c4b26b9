//! The review of a session's changes, for clients.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{BoxFuture, ChangedFile, Review};

use crate::tools::blocking;
use crate::undo::UndoHistory;
use crate::workspace::Workspace;

pub(crate) struct SessionReview {
    pub(crate) undo: Arc<UndoHistory>,
    /// The workspace as it was last opened.
    pub(crate) workspace: Arc<Mutex<Workspace>>,
}

impl SessionReview {
    fn workspace(&self) -> Workspace {
        self.workspace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Review for SessionReview {
    fn changes(&self) -> BoxFuture<'_, Result<Vec<ChangedFile>, String>> {
        let (undo, workspace) = (Arc::clone(&self.undo), self.workspace());
        Box::pin(async move {
            blocking(move || undo.changes(workspace.files().map_err(|error| error.to_string())?)).await?
        })
    }

    fn keep(&self, path: PathBuf, hunk: Option<Arc<str>>) -> BoxFuture<'_, Result<(), String>> {
        let (undo, workspace) = (Arc::clone(&self.undo), self.workspace());
        Box::pin(async move {
            let keep = move || {
                let files = workspace.files().map_err(|error| error.to_string())?;
                let path = undo.reviewed(files, &workspace.cwd.join(path))?;
                undo.keep(files, &path, hunk.as_deref())
            };
            blocking(keep).await?
        })
    }
}
