//! Calls about the tool servers of a session.

use engine::{Act, SessionHandle, SessionId, ToolInfo, ToolServer};
use service::ServiceError;
use wire::{Fault, Outcome};

use crate::handlers::{Handled, Handlers, fault};

impl Handlers {
    pub(crate) async fn list_tools(&self, session: Option<SessionId>) -> Handled {
        let session = self.named_or_only(session)?;
        self.service.row(&self.caller, &session).await.map_err(fault)?;
        Ok(Some(Outcome::Tools(self.tools(&session))))
    }

    /// What the agent can do in a session: built in, and brought by servers.
    fn tools(&self, session: &SessionId) -> Vec<ToolInfo> {
        let registry = self.service.registry();
        let mut tools = registry.abilities().tools.clone();
        let live = registry.live(&self.caller.principal, session);
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
        self.service.add_server(&self.caller, &handle, server).map_err(fault)?;
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
        let session = self.named_or_only(session)?;
        self.service.check(&self.caller, Act::ManageServers, Some(&session)).map_err(fault)?;
        self.session(&session).await
    }

    pub(crate) fn named_or_only(&self, session: Option<SessionId>) -> Result<SessionId, Fault> {
        let only = session.or_else(|| self.debts.only_session());
        only.ok_or_else(|| Fault::InvalidParams("say which session: send session_id".into()))
    }
}

fn unable() -> Fault {
    fault(ServiceError::NoToolServers)
}
