//! Chimera's event log: folders with a summary and one file per event, read as its programs wrote them, and written in
//! the same form beside our own store if somebody wants that (`--eventlog`).
//!
//! What the files say is `wire::chimera`'s business; here is where they lie and how they are read and written.

mod files;
mod folders;
mod follower;
mod writer;

use std::path::Path;
use std::sync::Arc;

use engine::{FolderSession, Limits, Principal, Registry, SessionFolders, SessionId, Wish};
use wire::chimera::Summary;

pub use self::files::SessionFolder;
pub use self::folders::Folders;
pub use self::follower::EventLog;
use crate::guards::Guards;
use crate::trouble::Trouble;
use crate::{paths, run, server};

/// The folders of chimera's sessions, if it is known where they are.
pub fn folders() -> Option<Arc<dyn SessionFolders>> {
    Some(Arc::new(Folders::new(paths::chimera()?.join("eventlog"))))
}

/// The model that a session of chimera's was begun with, if its summary says.
pub fn model(id: &SessionId) -> Option<String> {
    let path = paths::chimera()?.join("eventlog").join(id.as_str());
    let summary = SessionFolder::open(&path).ok()?.summary().ok()??;
    Summary::of(&summary).model
}

/// Makes the session that somebody wants to go on with one of ours, if chimera has it and we do not. Whatever else is
/// wrong with the id is said by whoever opens the session.
pub async fn take_in_named(text: &str, cwd: &Path) -> Result<(), Trouble> {
    let (Ok(id), Some(folders)) = (SessionId::parse(text), folders()) else { return Ok(()) };
    if !folders.has(&id).await {
        return Ok(());
    }
    let limits = Limits { attended: false, ..Limits::default() };
    let (registry, audit) = server::audited(limits, false, &Guards::none())?;
    let taken = match server::audit_must_be_free(audit.as_ref()).await {
        Ok(()) => take_in(&registry, &id, cwd).await,
        Err(trouble) => Err(trouble),
    };
    registry.shutdown().await;
    taken
}

async fn take_in(registry: &Registry, id: &SessionId, cwd: &Path) -> Result<(), Trouble> {
    match registry.folder(id).await.map_err(Trouble::open)? {
        Some(found) => take_in_found(registry, id, cwd, found).await,
        None => Ok(()),
    }
}

/// The session in a registry that keeps nothing, for whoever only reads it; nothing if chimera does not have it, or we do.
pub async fn for_reading(registry: &Registry, text: &str) -> Result<Option<Arc<Registry>>, Trouble> {
    let Ok(id) = SessionId::parse(text) else { return Ok(None) };
    let Some(found) = registry.folder(&id).await.map_err(Trouble::open)? else { return Ok(None) };
    let passing = server::passing(Limits::default(), &Guards::none())?;
    let taken = take_in_found(&passing, &id, &run::folder(None)?, found).await;
    if taken.is_err() {
        passing.shutdown().await;
    }
    taken.map(|()| Some(passing))
}

async fn take_in_found(
    registry: &Registry,
    id: &SessionId,
    cwd: &Path,
    found: FolderSession,
) -> Result<(), Trouble> {
    let wish = Wish::new(Principal::local(), found.cwd.clone().unwrap_or_else(|| cwd.to_owned()), "import");
    registry.take_in(id, wish, found).await.map_err(Trouble::open).map(drop)
}
