//! Sessions of another program: their folders are listed, and imported when somebody continues one.
//!
//! Only the reader of a folder ([`SessionFolders`]) knows its format. Nothing in a folder is changed. Once it is
//! imported, the session is one of ours with the same id, and the folder is not read any more. Only the owner
//! may list and import folders; the caller has checked that.
//!
//! **Invariant:** an id that the store has, or had, is never listed or imported from a folder, so nothing is listed
//! twice and a deleted session does not come back.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::{History, ListedSession, NewSessionRequest, OpenError, Registry};
use crate::backend::BoxFuture;
use crate::ids::{SessionId, Timestamp};
use crate::session_handle::SessionHandle;
use crate::store::{ListQuery, NewSession, SessionRow, StoreError};

/// The number of folders whose descriptions are read at once.
const DESCRIBED_AT_ONCE: usize = 128;

/// Reads the folders of another program.
pub trait SessionFolders: Send + Sync + 'static {
    /// The folders there are, by their names and times alone.
    fn entries(&self) -> BoxFuture<'_, Vec<FolderEntry>>;

    /// Whether there is a folder of this name.
    fn has(&self, id: &SessionId) -> BoxFuture<'_, bool>;

    /// Descriptions for listings; folders that cannot be read are left out.
    fn describe(&self, entries: Vec<FolderEntry>) -> BoxFuture<'_, Vec<SessionRow>>;

    /// The session in the folder of this name, if there is one. The error says why it cannot be imported.
    fn read(&self, id: &SessionId) -> BoxFuture<'_, Result<Option<FolderSession>, String>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// The folder's name.
    pub id: SessionId,
    pub updated_at: Timestamp,
}

/// A session that can be imported.
#[derive(Debug)]
pub struct FolderSession {
    /// Its working folder, if that is known and still exists.
    pub cwd: Option<PathBuf>,
    pub title: Option<Arc<str>>,
    pub parent: Option<SessionId>,
    pub created_at: Timestamp,
    pub history: History,
}

impl Registry {
    /// A page of sessions that were used, newest activity first, including those in folders whose id begins
    /// with `prefix`.
    pub async fn list_with_folders(
        &self,
        query: ListQuery,
        prefix: &str,
    ) -> Result<Vec<ListedSession>, OpenError> {
        let mut listed = self.list_used(query.clone()).await?;
        let Some(folders) = &self.folders else { return Ok(listed) };
        let mut entries = folders.entries().await;
        let before = |entry: &FolderEntry| {
            query.before.as_ref().is_none_or(|(at, id)| (entry.updated_at, &entry.id) < (*at, id))
        };
        entries.retain(|entry| entry.id.as_str().starts_with(prefix) && before(entry));
        if listed.len() >= query.limit
            && let Some(last) = listed.last()
        {
            // Sessions older than the page are not on it.
            entries.retain(|entry| (entry.updated_at, &entry.id) > (last.row.updated_at, &last.row.id));
        }
        let ids = entries.iter().map(|entry| entry.id.clone()).collect();
        let unused: HashSet<_> =
            self.store.unused(ids).await.map_err(OpenError::Store)?.into_iter().collect();
        entries.retain(|entry| unused.contains(&entry.id));
        entries.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        let mut found = Vec::new();
        for piece in entries.chunks(DESCRIBED_AT_ONCE) {
            if found.len() >= query.limit {
                break;
            }
            let rows = folders.describe(piece.to_vec()).await;
            let owned = rows.into_iter().map(|row| SessionRow {
                owner: query.owner.clone(),
                title: row.title.map(|title| self.title_without_secrets(title)),
                ..row
            });
            let wanted = owned.filter(|row| query.admits(row));
            found.extend(wanted.map(|row| ListedSession { row, live: false, cancelling: false }));
        }
        listed.append(&mut found);
        listed.sort_by(|a, b| (b.row.updated_at, &b.row.id).cmp(&(a.row.updated_at, &a.row.id)));
        listed.truncate(query.limit);
        Ok(listed)
    }

    /// The session in the folder of this name, unless the store has, or had, one with this id.
    pub async fn folder(&self, id: &SessionId) -> Result<Option<FolderSession>, OpenError> {
        let Some(folders) = &self.folders else { return Ok(None) };
        if self.store.unused(vec![id.clone()]).await.map_err(OpenError::Store)?.is_empty() {
            return Ok(None);
        }
        let unreadable = |reason| OpenError::Store(StoreError::Damaged { reason });
        folders.read(id).await.map_err(unreadable)
    }

    /// Makes the session in a folder one of ours, under its own id: the whole of it or none.
    pub async fn take_in(
        &self,
        id: &SessionId,
        request: NewSessionRequest,
        found: FolderSession,
    ) -> Result<SessionHandle, OpenError> {
        let owner = request.owner.clone();
        let FolderSession { title, parent, created_at, history, .. } = found;
        let created_at = created_at.min(self.clock.now());
        let described = |session| NewSession { id: id.clone(), title, parent, created_at, ..session };
        match self.import_new(request, described, history).await {
            // Another caller was faster.
            Err(OpenError::Store(StoreError::Exists)) => self.open(&owner, id).await,
            taken => taken,
        }
    }

    /// Whether another program has a session with this id.
    pub(super) async fn has_folder(&self, id: &SessionId) -> bool {
        match &self.folders {
            Some(folders) => folders.has(id).await,
            None => false,
        }
    }
}
