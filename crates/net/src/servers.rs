//! Calls about the tool servers of a session.
//!
//! A tool server is a program that runs with the rights of whoever started this one, outside the sandbox,
//! or an address that this machine connects to. So only the owner at the machine may name one: clients
//! with tokens of their own are confined to folders, and this would be their way out.

use engine::{Act, SessionHandle, SessionId, ToolInfo, ToolServer, may};
use wire::{Fault, Outcome};

use crate::handlers::{Handled, Handlers};

impl Handlers {
    /// The servers that a client names, if it may name any.
    pub(crate) fn own_servers(&self, servers: Vec<ToolServer>) -> Result<Vec<ToolServer>, Fault> {
        if servers.is_empty() {
            return Ok(servers);
        }
        may(self.sender.standing, Act::NameServer).map_err(|why| Fault::InvalidParams(why.to_string()))?;
        Ok(servers)
    }

    /// What the agent can do in a session: built in, and brought by servers.
    pub(crate) fn tools(&self, session: &SessionId) -> Vec<ToolInfo> {
        let mut tools = self.registry.abilities().tools.clone();
        let live = self.registry.live(&self.principal, session);
        if let Some(servers) = live.as_ref().and_then(SessionHandle::servers) {
            tools.extend(servers.list().into_iter().flat_map(|server| server.tools));
        }
        tools
    }

    pub(crate) async fn list_servers(&self, session: Option<SessionId>) -> Handled {
        let handle = self.named(session).await?;
        let servers = handle.servers().ok_or_else(unable)?;
        Ok(Some(Outcome::Servers(servers.list())))
    }

    pub(crate) async fn add_server(&self, session: Option<SessionId>, server: ToolServer) -> Handled {
        let handle = self.named(session).await?;
        let name = std::sync::Arc::clone(&server.name);
        connect(&handle, self.own_servers(vec![server])?)?;
        Ok(Some(Outcome::ServerAdded { name }))
    }

    pub(crate) async fn remove_server(&self, session: Option<SessionId>, name: String) -> Handled {
        let handle = self.named(session).await?;
        if handle.servers().ok_or_else(unable)?.remove(&name) {
            return Ok(Some(Outcome::ServerRemoved { name }));
        }
        Err(Fault::InvalidParams(format!(
            "there is no tool server {name:?} in this session; _agent/mcp/list shows what there is"
        )))
    }

    async fn named(&self, session: Option<SessionId>) -> Result<SessionHandle, Fault> {
        let only = || self.debts.only_session();
        match session.or_else(only) {
            Some(session) => self.session(&session).await,
            None => Err(Fault::InvalidParams("say which session: send session_id".into())),
        }
    }
}

/// Adds servers to a session that is open. Those that it has stay: another client may need them.
pub(crate) fn connect(handle: &SessionHandle, servers: Vec<ToolServer>) -> Result<(), Fault> {
    if servers.is_empty() {
        return Ok(());
    }
    let known = handle.servers().ok_or_else(unable)?;
    servers.into_iter().try_for_each(|server| known.add(server)).map_err(Fault::InvalidParams)
}

fn unable() -> Fault {
    Fault::Internal("this agent takes no tool servers".into())
}
