//! The parameters of our requests to an agent, as its client.

use engine::{Content, ServerTransport, SessionSpec, ToolServer};
use serde_json::{Value, json};

use super::responses::AgentAbilities;
use crate::acp::schema_block;
use crate::transcript::block_text;

/// Parameters of `initialize`. Files and terminals are always offered: what no editor provides is done in
/// the workspace. Only an agent that cannot work with a client's files is not offered them. Optional
/// features that only a few clients understand are not requested, because every client sees what the agent
/// sends.
pub fn initialize(files: bool) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "protocolVersion": 1,
        "clientInfo": { "name": "ropewalk", "title": "Ropewalk", "version": version },
        "clientCapabilities": {
            "fs": { "readTextFile": files, "writeTextFile": files },
            "terminal": true,
            "_meta": { "terminal_output": true },
        },
    })
}

/// Parameters of `session/new`.
pub fn new_session(spec: &SessionSpec, abilities: &AgentAbilities) -> Value {
    let servers: Vec<_> = spec.servers.iter().filter_map(|known| server(known, abilities)).collect();
    let mut params = json!({ "cwd": spec.cwd.to_string_lossy(), "mcpServers": servers });
    if abilities.additional_directories && !spec.roots.is_empty() {
        params["additionalDirectories"] = spec.roots.iter().map(|root| root.to_string_lossy()).collect();
    }
    params
}

/// Parameters of `session/load`.
pub fn load(spec: &SessionSpec, session: &str, abilities: &AgentAbilities) -> Value {
    let mut params = new_session(spec, abilities);
    params["sessionId"] = session.into();
    params
}

/// Parameters of `session/resume`.
pub fn resume(spec: &SessionSpec, session: &str, abilities: &AgentAbilities) -> Value {
    load(spec, session, abilities)
}

/// Parameters of `session/fork`.
pub fn fork(spec: &SessionSpec, session: &str, abilities: &AgentAbilities) -> Value {
    load(spec, session, abilities)
}

pub const PROMPT: &str = "session/prompt";

/// Parameters of [`PROMPT`]. Content that the agent does not accept is sent as text.
pub fn prompt(session: &str, content: &[Content], abilities: &AgentAbilities) -> Value {
    let prompt: Vec<_> =
        content.iter().map(|block| schema_block(&accepted_content(block, abilities))).collect();
    json!({ "sessionId": session, "prompt": prompt })
}

/// Parameters of the notification `session/cancel`.
pub fn cancel(session: &str) -> Value {
    json!({ "sessionId": session })
}

/// Parameters of `session/close`.
pub fn close(session: &str) -> Value {
    json!({ "sessionId": session })
}

/// Whether the agent can reach a tool server.
pub fn reaches(server: &ToolServer, abilities: &AgentAbilities) -> bool {
    match server.transport {
        ServerTransport::Child { .. } => true,
        ServerTransport::Http { .. } => abilities.http || abilities.sse,
    }
}

fn server(server: &ToolServer, abilities: &AgentAbilities) -> Option<Value> {
    let pairs = |pairs: &[(String, String)]| -> Value {
        pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let name = server.name.as_ref();
    match &server.transport {
        ServerTransport::Child { command, arguments, environment } => Some(json!({
            "name": name,
            "command": command.to_string_lossy(),
            "args": arguments,
            "env": pairs(environment),
        })),
        ServerTransport::Http { url, headers } => {
            let way = if abilities.http { "http" } else { "sse" };
            reaches(server, abilities)
                .then(|| json!({ "type": way, "name": name, "url": url.as_ref(), "headers": pairs(headers) }))
        }
    }
}

fn accepted_content(block: &Content, abilities: &AgentAbilities) -> Content {
    match block {
        Content::Image { .. } if !abilities.images => Content::text(block_text(block)),
        Content::Audio { .. } if !abilities.audio => Content::text(block_text(block)),
        Content::Resource { uri, text, .. } if !abilities.embedded => {
            Content::text(format!("{uri}:\n{text}"))
        }
        Content::Binary { .. } if !abilities.embedded => Content::text(block_text(block)),
        Content::Text(_)
        | Content::Link(_)
        | Content::Image { .. }
        | Content::Audio { .. }
        | Content::Resource { .. }
        | Content::Binary { .. } => block.clone(),
    }
}
