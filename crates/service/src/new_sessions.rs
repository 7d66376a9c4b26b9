//! Commands that create a session, or continue one elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Act, Event, MakeId, NewSessionRequest, OpenError, SessionHandle, SessionHold, SessionId, SessionRow,
    ToolServer,
};
use wire::WorkspaceParams;

use crate::service::{Service, blocking};
use crate::{Caller, ServiceError};

/// The options of a session that a caller creates.
#[derive(Debug, Default)]
pub struct NewSessionOptions {
    /// The server's own folder without.
    pub cwd: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    pub servers: Vec<ToolServer>,
    /// Makes the id, for dialects with ids of their own; random if `None`.
    pub make_id: Option<MakeId>,
}

impl NewSessionOptions {
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

    pub async fn create(
        &self,
        caller: &Caller,
        new: NewSessionOptions,
    ) -> Result<SessionHandle, ServiceError> {
        self.create_held(caller, new).await.map(|(handle, _hold)| handle)
    }

    /// The same for a caller that has a first prompt already.
    pub async fn create_held(
        &self,
        caller: &Caller,
        new: NewSessionOptions,
    ) -> Result<(SessionHandle, SessionHold), ServiceError> {
        self.check(caller, Act::Create, None)?;
        let make_id = new.make_id;
        let request = self.new_session_request(caller, new).await?;
        Ok(self.registry().create_held(request, make_id).await?)
    }

    /// A new session with everything that was written in another one so far, in its folder if none is named.
    pub async fn fork(
        &self,
        caller: &Caller,
        source: &SessionId,
        mut new: NewSessionOptions,
    ) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Fork, Some(source))?;
        let row = self.row_or_taken_in(caller, source).await?;
        new.cwd = new.cwd.or(Some(row.cwd));
        let make_id = new.make_id;
        let request = self.new_session_request(caller, new).await?;
        Ok(match make_id {
            Some(make_id) => self.registry().fork_with_id(source, request, make_id).await?,
            None => self.registry().fork(source, request).await?,
        })
    }

    /// The folders in a history from another machine mean nothing here.
    pub async fn import(&self, caller: &Caller, events: Vec<Event>) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Import, None)?;
        let request = NewSessionRequest {
            source: "import".into(),
            ..self.new_session_request(caller, NewSessionOptions::default()).await?
        };
        Ok(self.registry().import(request, None, events).await?)
    }

    /// The session, brought back to memory, and imported first if it is only in another program's folder; at
    /// the position that the caller names.
    pub async fn load(
        &self,
        caller: &Caller,
        id: &SessionId,
        place: Option<WorkspaceParams>,
    ) -> Result<SessionHandle, ServiceError> {
        self.check(caller, Act::Open, Some(id))?;
        // A caller that may not move a session need not know where it works.
        let place = place.filter(|_| caller.may(Act::Move).is_ok());
        let place = place.unwrap_or(WorkspaceParams { cwd: None, roots: Vec::new(), servers: Vec::new() });
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

    /// The servers that a caller names, if they may name any. A tool server is a program that runs outside
    /// the sandbox with the rights of the user who started this server, or an address that this machine
    /// connects to. For clients that are confined to folders it would be a way out.
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

    async fn new_session_request(
        &self,
        caller: &Caller,
        new: NewSessionOptions,
    ) -> Result<NewSessionRequest, ServiceError> {
        let roots = self.check_roots(new.roots).await?;
        let cwd = new.cwd.unwrap_or_else(|| self.rules().home_dir.clone());
        self.real_folder(&cwd).await?;
        let servers = self.named_servers(caller, new.servers)?;
        let source = Arc::clone(&self.rules().source);
        Ok(NewSessionRequest {
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

    /// A session in a folder of another program, for the owner at the machine; nobody else learns that there
    /// are any. Its folder is checked as that of a new session is; a missing one is replaced by the server's
    /// own.
    async fn take_in(&self, caller: &Caller, id: &SessionId) -> Result<SessionHandle, ServiceError> {
        let found = self.registry().folder(id).await?;
        let found = found.ok_or_else(|| ServiceError::not_found(id))?;
        let new = NewSessionOptions { cwd: found.cwd.clone(), ..NewSessionOptions::default() };
        let request =
            NewSessionRequest { source: "import".into(), ..self.new_session_request(caller, new).await? };
        Ok(self.registry().take_in(id, request, found).await?)
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
