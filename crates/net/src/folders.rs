//! Sessions in folders of another program, for the owner at the machine: in the lists of the dialect that they belong
//! to, and taken in when one is opened. Nobody else learns that there are any.

use engine::{ListQuery, Listed, MakeId, OpenError, Principal, SessionHandle, SessionId, SessionRow, Wish};
use wire::{Fault, Place};

use crate::handlers::{Handlers, fault};

impl Handlers {
    /// Makes the ids of this client's new sessions.
    pub(crate) fn make_id(&self) -> MakeId {
        self.debts.client().dialect.make_id()
    }

    fn sees_folders(&self) -> bool {
        self.principal == Principal::local() && self.sender.standing.is_owner()
    }

    pub(crate) async fn listed(&self, query: ListQuery) -> Result<Vec<Listed>, Fault> {
        let prefix = self.debts.client().dialect.id_prefix().filter(|_| self.sees_folders());
        let listed = match prefix {
            Some(prefix) => self.registry.list_with_folders(query, prefix).await,
            None => self.registry.list_used(query).await,
        };
        listed.map_err(fault)
    }

    /// The session with this id, taken in first if it is in a folder only.
    pub(crate) async fn opened(&self, id: &SessionId) -> Result<SessionHandle, Fault> {
        match self.registry.open(&self.principal, id).await {
            Err(OpenError::NotFound(_)) if self.sees_folders() => self.take_in(id).await,
            opened => opened.map_err(fault),
        }
    }

    /// What is known of the session without opening it, for whoever copies it.
    pub(crate) async fn row(&self, id: &SessionId) -> Result<SessionRow, Fault> {
        match self.registry.row(&self.principal, id).await {
            Err(OpenError::NotFound(_)) if self.sees_folders() => {
                self.take_in(id).await?;
                self.registry.row(&self.principal, id).await.map_err(fault)
            }
            row => row.map_err(fault),
        }
    }

    /// Its folder is checked as that of a new session is; one that is not there is replaced by the server's own.
    async fn take_in(&self, id: &SessionId) -> Result<SessionHandle, Fault> {
        let found = self.registry.folder(id).await.map_err(fault)?;
        let found = found.ok_or_else(|| Fault::NoSuchSession { id: id.to_string() })?;
        let place = Place { cwd: found.cwd.clone(), roots: Vec::new(), servers: Vec::new() };
        let wish = Wish { source: "import".into(), ..self.wish(place)? };
        self.registry.take_in(id, wish, found).await.map_err(fault)
    }
}
