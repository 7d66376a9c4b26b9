//! Calls about the tool servers (MCP) of a session.

use engine::{Act, SessionHandle, SessionId, ToolInfo, ToolServer};
use service::ServiceError;
use wire::{RequestError, RequestOutcome};

use crate::handlers::{HandlerResult, Handlers, fault};

impl Handlers {
    pub(crate) async fn list_tools(&self, session: Option<SessionId>) -> HandlerResult {
        let session = self.named_or_only(session)?;
        self.service.row(&self.caller, &session).await.map_err(fault)?;
        Ok(Some(RequestOutcome::Tools(self.tools(&session))))
    }

    /// The agent's tools in a session: the built-in ones, and those of tool servers.
    fn tools(&self, session: &SessionId) -> Vec<ToolInfo> {
        let registry = self.service.registry();
        let mut tools = registry.abilities().tools.clone();
        let live = registry.live(&self.caller.principal, session);
        if let Some(servers) = live.as_ref().and_then(SessionHandle::servers) {
            tools.extend(servers.list().into_iter().flat_map(|server| server.tools));
        }
        tools
    }

    pub(crate) async fn list_servers(&self, session: Option<SessionId>) -> HandlerResult {
        let handle = self.named(session).await?;
        let servers = handle.servers().ok_or_else(unable)?;
        Ok(Some(RequestOutcome::Servers(servers.list())))
    }

    pub(crate) async fn add_server(&self, session: Option<SessionId>, server: ToolServer) -> HandlerResult {
        let handle = self.named(session).await?;
        let name = std::sync::Arc::clone(&server.name);
        self.service.add_server(&self.caller, &handle, server).map_err(fault)?;
        Ok(Some(RequestOutcome::ServerAdded { name }))
    }

    pub(crate) async fn remove_server(&self, session: Option<SessionId>, name: String) -> HandlerResult {
        let handle = self.named(session).await?;
        if handle.servers().ok_or_else(unable)?.remove(&name) {
            return Ok(Some(RequestOutcome::ServerRemoved { name }));
        }
        Err(RequestError::InvalidParams(format!(
            "tool server {name:?} not found in this session; list them with _agent/mcp/list"
        )))
    }

    async fn named(&self, session: Option<SessionId>) -> Result<SessionHandle, RequestError> {
        let session = self.named_or_only(session)?;
        self.service.check(&self.caller, Act::ManageServers, Some(&session)).map_err(fault)?;
        self.session(&session).await
    }

    pub(crate) fn named_or_only(&self, session: Option<SessionId>) -> Result<SessionId, RequestError> {
        let only = session.or_else(|| self.pending_replies.only_session());
        only.ok_or_else(|| RequestError::InvalidParams("name the session: send session_id".into()))
    }
}

fn unable() -> RequestError {
    fault(ServiceError::NoToolServers)
}
