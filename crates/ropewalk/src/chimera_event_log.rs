//! Chimera's event log: folders with a summary and one file per event. Read as its programs wrote them, and with `--eventlog`
//! also written in the same format, next to our own store.
//!
//! `wire::chimera_archive` defines the content of the files; this module finds, reads and writes them.

mod all_sessions_writer;
mod folder_reader;
mod folder_writer;
mod import_folders;

use std::path::Path;
use std::sync::Arc;

use engine::{
    FolderSession, NewSessionRequest, Principal, Registry, SessionFolders, SessionId, SessionLimits,
};
use wire::chimera_archive::Summary;

pub use self::all_sessions_writer::EventLogWriter;
pub use self::folder_reader::SessionFolder;
pub use self::import_folders::ChimeraFolders;
use crate::cli_error::CliError;
use crate::guard_settings::Guards;
use crate::{paths, registry, run};

/// The folders of chimera's sessions, if their location is known.
pub fn folders() -> Option<Arc<dyn SessionFolders>> {
    Some(Arc::new(ChimeraFolders::new(paths::chimera()?.join("eventlog"))))
}

/// The model of a chimera session, if its summary has it.
pub fn model(id: &SessionId) -> Option<String> {
    let path = paths::chimera()?.join("eventlog").join(id.as_str());
    let summary = SessionFolder::open(&path).ok()?.summary().ok()??;
    Summary::of(&summary).model
}

/// Imports the session to continue, if chimera has it and we do not. Any other problem with the id is reported when the
/// session is opened.
pub async fn import_named(text: &str, cwd: &Path) -> Result<(), CliError> {
    let (Ok(id), Some(folders)) = (SessionId::parse(text), folders()) else { return Ok(()) };
    if !folders.has(&id).await {
        return Ok(());
    }
    let limits = SessionLimits { attended: false, ..SessionLimits::default() };
    let (registry, audit) = registry::audited_registry(limits, false, &Guards::none())?;
    let taken = match registry::audit_must_be_free(audit.as_ref()).await {
        Ok(()) => import(&registry, &id, cwd).await,
        Err(error) => Err(error),
    };
    registry.shutdown().await;
    taken
}

async fn import(registry: &Registry, id: &SessionId, cwd: &Path) -> Result<(), CliError> {
    match registry.folder(id).await.map_err(CliError::from_open)? {
        Some(found) => import_found(registry, id, cwd, found).await,
        None => Ok(()),
    }
}

/// Imports the session into a registry in memory, for reading. `None` if chimera does not have it, or our store does.
pub async fn open_read_only(registry: &Registry, text: &str) -> Result<Option<Arc<Registry>>, CliError> {
    let Ok(id) = SessionId::parse(text) else { return Ok(None) };
    let Some(found) = registry.folder(&id).await.map_err(CliError::from_open)? else { return Ok(None) };
    let passing = registry::scratch_registry(SessionLimits::default(), &Guards::none())?;
    let taken = import_found(&passing, &id, &run::folder(None)?, found).await;
    if taken.is_err() {
        passing.shutdown().await;
    }
    taken.map(|()| Some(passing))
}

async fn import_found(
    registry: &Registry,
    id: &SessionId,
    cwd: &Path,
    found: FolderSession,
) -> Result<(), CliError> {
    let wish = NewSessionRequest::new(
        Principal::local(),
        found.cwd.clone().unwrap_or_else(|| cwd.to_owned()),
        "import",
    );
    registry.take_in(id, wish, found).await.map_err(CliError::from_open).map(drop)
}
