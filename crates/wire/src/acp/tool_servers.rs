//! Tool servers (MCP) in the forms of the official protocol and of zeph's clients.

use agent_client_protocol_schema::v1 as schema;
use engine::{ServerState, ServerStatus, ServerTransport, SessionId, ToolServer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decode::{bad_params, read as read_params};
use super::zeph_methods::parse_id;
use crate::client_request::{ClientRequest, RequestError};
use crate::json_errors;

/// Each one is a process or a connection.
const SERVERS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 128;

/// The tool servers that a session is opened with.
pub(super) fn read(servers: Vec<schema::McpServer>) -> Result<Vec<ToolServer>, RequestError> {
    if servers.len() > SERVERS_MAX {
        let text = format!("too many tool servers: {}, and the limit is {SERVERS_MAX}", servers.len());
        return Err(RequestError::InvalidParams(text));
    }
    servers.into_iter().map(server).collect()
}

fn server(server: schema::McpServer) -> Result<ToolServer, RequestError> {
    let (name, transport) = match server {
        schema::McpServer::Http(http) => (http.name, over_http(http.url, http.headers)),
        // Most servers dropped the older SSE transport, and its address often speaks the newer one.
        schema::McpServer::Sse(sse) => (sse.name, over_http(sse.url, sse.headers)),
        schema::McpServer::Stdio(child) => {
            let environment = child.env.into_iter().map(|variable| (variable.name, variable.value)).collect();
            (
                child.name,
                ServerTransport::Child { command: child.command, arguments: child.args, environment },
            )
        }
        _ => {
            return Err(RequestError::InvalidParams(
                "the type of a tool server must be stdio, http or sse".into(),
            ));
        }
    };
    let empty = match &transport {
        ServerTransport::Child { command, .. } => command.as_os_str().is_empty(),
        ServerTransport::Http { url, .. } => url.is_empty(),
    };
    if name.trim().is_empty() || name.chars().count() > NAME_CHARS_MAX || empty {
        return Err(RequestError::InvalidParams(format!(
            "a tool server needs a name of at most {NAME_CHARS_MAX} characters and a command or url"
        )));
    }
    Ok(ToolServer { name: name.into(), transport })
}

fn over_http(url: String, headers: Vec<schema::HttpHeader>) -> ServerTransport {
    let headers = headers.into_iter().map(|header| (header.name, header.value)).collect();
    ServerTransport::Http { url: url.into(), headers }
}

#[derive(Deserialize)]
struct OptionalSession {
    #[serde(alias = "sessionId")]
    session_id: Option<String>,
}

pub(super) fn session(params: Option<&RawValue>) -> Result<Option<SessionId>, RequestError> {
    let Some(params) = params.filter(|params| params.get() != "null") else { return Ok(None) };
    let named: OptionalSession = json_errors::read(params.get(), "the parameters").map_err(bad_params)?;
    named.session_id.as_deref().map(parse_id).transpose()
}

/// The official form, or zeph's: `id` instead of the name, the rest below `transport`, variables as an
/// object.
pub(super) fn add(params: Option<&RawValue>) -> Result<ClientRequest, RequestError> {
    let id = session(params)?;
    let mut fields: Map<String, Value> = read_params(params)?;
    for inner in ["transport", "server"] {
        match fields.remove(inner) {
            Some(Value::Object(more)) => fields.extend(more),
            Some(Value::String(kind)) => drop(fields.insert("type".into(), kind.to_lowercase().into())),
            Some(_) | None => {}
        }
    }
    if let Some(name) = fields.remove("id")
        && !fields.contains_key("name")
    {
        fields.insert("name".into(), name);
    }
    fields.entry("args").or_insert_with(|| json!([]));
    for pairs in ["env", "headers"] {
        let listed = match fields.remove(pairs) {
            Some(Value::Object(named)) => {
                named.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
            }
            Some(Value::Array(listed)) => listed,
            Some(_) | None => Vec::new(),
        };
        fields.insert(pairs.into(), listed.into());
    }
    let named = json_errors::read_value(Value::Object(fields), "", "the server").map_err(bad_params)?;
    Ok(ClientRequest::AddServer { id, server: server(named)? })
}

pub(super) fn remove(params: Option<&RawValue>) -> Result<ClientRequest, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(alias = "id")]
        name: String,
    }
    let id = session(params)?;
    let params: Params = read_params(params)?;
    Ok(ClientRequest::RemoveServer { id, name: params.name })
}

pub(super) fn listed(servers: &[ServerStatus]) -> Value {
    json!({ "servers": servers.iter().map(view).collect::<Vec<_>>() })
}

fn view(server: &ServerStatus) -> Value {
    let (state, error) = match &server.state {
        ServerState::Idle => ("idle", None),
        ServerState::Starting => ("starting", None),
        ServerState::Ready => ("ready", None),
        ServerState::Failed { reason } => ("failed", Some(reason.as_ref())),
        ServerState::Refused => ("refused", None),
    };
    let tools = server
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name.as_ref(), "description": tool.description.as_ref() }));
    let mut view = json!({
        "id": server.name.as_ref(),
        "name": server.name.as_ref(),
        "transport": server.transport,
        "state": state,
        "tools": tools.collect::<Vec<_>>(),
    });
    if let Some(error) = error {
        view["error"] = error.into();
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(params: Value) -> String {
        let raw = RawValue::from_string(params.to_string()).unwrap();
        match add(Some(&raw)) {
            Ok(ClientRequest::AddServer { id, server }) => match server.transport {
                ServerTransport::Child { command, arguments, environment } => {
                    format!("{id:?} {} {} {arguments:?} {environment:?}", server.name, command.display())
                }
                ServerTransport::Http { url, headers } => format!("{id:?} {} {url} {headers:?}", server.name),
            },
            Ok(_) => "another call".into(),
            Err(fault) => fault.text(),
        }
    }

    /// X3, CC6.
    #[test]
    fn a_server_is_read_in_the_official_shape_and_in_zephs() {
        let child = r#"None git uvx ["mcp-server-git"] [("A", "b")]"#;
        for params in [
            json!({ "name": "git", "command": "uvx", "args": ["mcp-server-git"], "env": [{ "name": "A", "value": "b" }] }),
            json!({ "id": "git", "transport": { "type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": { "A": "b" } } }),
            json!({ "server": { "name": "git", "command": "uvx", "args": ["mcp-server-git"], "env": { "A": "b" } } }),
        ] {
            assert_eq!(added(params), child);
        }
        let web = r#"None w http://127.0.0.1:1/mcp [("X-Key", "k")]"#;
        for kind in ["http", "sse"] {
            let params = json!({ "type": kind, "name": "w", "url": "http://127.0.0.1:1/mcp", "headers": [{ "name": "X-Key", "value": "k" }] });
            assert_eq!(added(params), web);
        }
    }

    #[test]
    fn a_server_without_a_name_or_a_way_is_refused() {
        for params in [
            json!({}),
            json!({ "name": "x" }),
            json!({ "name": " ", "command": "x" }),
            json!({ "name": "x", "command": "" }),
            json!({ "name": "x".repeat(200), "command": "y" }),
            json!({ "type": "http", "name": "x", "url": "" }),
            json!({ "type": "carrier pigeon", "name": "x", "url": "u" }),
        ] {
            let said = added(params.clone());
            assert!(
                said.contains("invalid params") || said.contains("a tool server needs"),
                "{params}: {said}"
            );
        }
    }

    #[test]
    fn a_session_takes_a_limited_number_of_servers() {
        let one = || schema::McpServer::Http(schema::McpServerHttp::new("a", "http://a"));
        assert_eq!(read((0..SERVERS_MAX).map(|_| one()).collect()).unwrap().len(), SERVERS_MAX);
        assert!(read((0..=SERVERS_MAX).map(|_| one()).collect()).is_err());
    }
}
