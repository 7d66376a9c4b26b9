//! Commands that begin a session, or bring one back in another place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Act, Event, MakeId, OpenError, SessionHandle, SessionHold, SessionId, SessionRow, ToolServer, Wish,
};
use wire::Place;

use crate::service::{Service, blocking};
use crate::{Caller, ServiceError};

/// What a caller wants of a new session.
#[derive(Debug, Default)]
pub struct NewSession {
    /// The server's own folder without.
    pub cwd: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    pub servers: Vec<ToolServer>,
    /// A dialect that has ids of its own makes them; random without.
    pub make_id: Option<MakeId>,
}

impl NewSession {
    pub fn in_folder(cwd: PathBuf) -> Self {
        Self { cwd: Some(cwd), ..Self::default() }
    }
}

impl Service {
    /// A folder that a new session of this caller may work in, as the file system knows it.
    pub async fn folder(&self, caller: &Caller, wanted: Option<&str>) -> Result<PathBuf, ServiceError> {
        self.check(caller, Act::ReadOffer, None)?;
        let Some(wanted) = wanted else { return Ok(self.rules().home_dir.clone()) };
        let (rules, wanted) = (Arc::clone(self.rules()), PathBuf::from(wanted));
        blocking(move || rules.real_folder(&wanted)).await?
    }

    pub async fn create(&self, caller: &Caller, new: NewSession) -> Result<SessionHandle, ServiceError> {
        self.create_held(caller, new).await.map(|(handle, _hold)| handle)
    }

    /// The same for a caller who has its first prompt already.
    pub async fn create_held(
        &self,
        caller: &Caller,
        new: NewSession,
    ) -> Result<(SessionHandle, SessionHold), ServiceError> {
        self.check(caller, Act::Create, None)?;
        let make_id = new.make_id;
        let wish = self.wish(caller, new).await?;
        Ok(self.registry().create_held(wish, make_id).await?)
    }

    /// A new session with everything that was written in another one so far, in its folder if none is named.
    pub async fn fork(
        &self,
        caller: &Caller,
        source: &SessionId,
        mut new: NewSession,
    ) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Fork, Some(source))?;
        let row = self.row_or_taken_in(caller, source).await?;
        new.cwd = new.cwd.or(Some(row.cwd));
        let make_id = new.make_id;
        let wish = self.wish(caller, new).await?;
        Ok(match make_id {
            Some(make_id) => self.registry().fork_with_id(source, wish, make_id).await?,
            None => self.registry().fork(source, wish).await?,
        })
    }

    /// What a history from elsewhere says of folders is another machine's business.
    pub async fn import(&self, caller: &Caller, events: Vec<Event>) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Import, None)?;
        let wish = Wish { source: "import".into(), ..self.wish(caller, NewSession::default()).await? };
        Ok(self.registry().import(wish, None, events).await?)
    }

    /// The session, brought back to memory, and taken in first if it is in another program's folder only; in the
    /// place that the caller names.
    pub async fn load(
        &self,
        caller: &Caller,
        id: &SessionId,
        place: Option<Place>,
    ) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Open, Some(id))?;
        // Where a session works is not the business of whoever may not move it.
        let place = place.filter(|_| caller.may(Act::Move).is_ok());
        let place = place.unwrap_or(Place { cwd: None, roots: Vec::new(), servers: Vec::new() });
        self.check_roots(place.roots).await?;
        let handle = match self.open(caller, id).await {
            Err(ServiceError::Open(OpenError::NotFound(_))) if caller.is_owner() => {
                self.take_in(caller, id).await?
            }
            opened => opened?,
        };
        let servers = self.named_servers(caller, place.servers)?;
        add_servers(&handle, servers)?;
        let here = Arc::clone(&handle.snapshot().cwd);
        if let Some(cwd) = place.cwd.filter(|cwd| *cwd != *here)
            && let Some(cwd) = blocking(move || cwd.is_dir().then_some(cwd)).await?
        {
            self.real_folder(&cwd).await?;
            self.moved(caller, &handle, cwd).await?;
        }
        Ok(handle)
    }

    /// Gives a session a further tool server.
    pub fn add_server(
        &self,
        caller: &Caller,
        handle: &SessionHandle,
        server: ToolServer,
    ) -> Result<(), ServiceError> {
        self.check(caller, Act::ManageServers, Some(handle.id()))?;
        add_servers(handle, self.named_servers(caller, vec![server])?)
    }

    /// The servers that a caller names, if they may name any. A tool server is a program that runs with the rights of
    /// whoever started this one, outside the sandbox, or an address that this machine connects to: for clients that
    /// are confined to folders it would be the way out.
    fn named_servers(
        &self,
        caller: &Caller,
        servers: Vec<ToolServer>,
    ) -> Result<Vec<ToolServer>, ServiceError> {
        if !servers.is_empty() {
            caller.may(Act::NameServer).map_err(|why| ServiceError::ToolServer(why.to_string()))?;
        }
        Ok(servers)
    }

    async fn wish(&self, caller: &Caller, new: NewSession) -> Result<Wish, ServiceError> {
        let roots = self.check_roots(new.roots).await?;
        let cwd = new.cwd.unwrap_or_else(|| self.rules().home_dir.clone());
        self.real_folder(&cwd).await?;
        let servers = self.named_servers(caller, new.servers)?;
        let source = Arc::clone(&self.rules().source);
        Ok(Wish {
            owner: caller.principal.clone(),
            cwd,
            roots,
            within: self.rules().within(),
            servers,
            source,
        })
    }

    async fn real_folder(&self, cwd: &Path) -> Result<PathBuf, ServiceError> {
        let (rules, cwd) = (Arc::clone(self.rules()), cwd.to_owned());
        blocking(move || rules.real_folder(&cwd)).await?
    }

    async fn check_roots(&self, roots: Vec<PathBuf>) -> Result<Vec<PathBuf>, ServiceError> {
        if roots.is_empty() {
            return Ok(roots);
        }
        let rules = Arc::clone(self.rules());
        blocking(move || rules.check_roots(&roots).map(|()| roots)).await?
    }

    async fn row_or_taken_in(&self, caller: &Caller, id: &SessionId) -> Result<SessionRow, ServiceError> {
        match self.registry().row(&caller.principal, id).await {
            Err(OpenError::NotFound(_)) if caller.is_owner() => {
                self.take_in(caller, id).await?;
                Ok(self.registry().row(&caller.principal, id).await?)
            }
            row => Ok(row?),
        }
    }

    /// A session in a folder of another program, for the owner at the machine; nobody else learns that there are any.
    /// Its folder is checked as that of a new session is; one that is not there is replaced by the server's own.
    async fn take_in(&self, caller: &Caller, id: &SessionId) -> Result<SessionHandle, ServiceError> {
        let found = self.registry().folder(id).await?;
        let found = found.ok_or_else(|| ServiceError::not_found(id))?;
        let new = NewSession { cwd: found.cwd.clone(), ..NewSession::default() };
        let wish = Wish { source: "import".into(), ..self.wish(caller, new).await? };
        Ok(self.registry().take_in(id, wish, found).await?)
    }
}

/// Those that the session has stay: another client may need them.
fn add_servers(handle: &SessionHandle, servers: Vec<ToolServer>) -> Result<(), ServiceError> {
    if servers.is_empty() {
        return Ok(());
    }
    let known = handle.servers().ok_or(ServiceError::NoToolServers)?;
    servers.into_iter().try_for_each(|server| known.add(server)).map_err(ServiceError::ToolServer)
}
