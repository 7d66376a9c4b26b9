//! What we say to an agent as its client: the parameters of our requests.

use engine::{Content, ServerWay, SessionSpec, ToolServer};
use serde_json::{Value, json};

use super::answers::Can;
use crate::acp::schema_block;
use crate::transcript::block_text;

/// Parameters of `initialize`. Files and terminals are always there for the agent: what no editor offers is
/// done in the workspace. Only an agent that cannot work with a client's files is not offered them. What the
/// agent would send to few clients only is not asked for, since what it says is shown to all.
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
pub fn new_session(spec: &SessionSpec, can: &Can) -> Value {
    let servers: Vec<_> = spec.servers.iter().filter_map(|known| server(known, can)).collect();
    let mut params = json!({ "cwd": spec.cwd.to_string_lossy(), "mcpServers": servers });
    if can.additional_directories && !spec.roots.is_empty() {
        params["additionalDirectories"] = spec.roots.iter().map(|root| root.to_string_lossy()).collect();
    }
    params
}

/// Parameters of `session/load`.
pub fn load(spec: &SessionSpec, session: &str, can: &Can) -> Value {
    let mut params = new_session(spec, can);
    params["sessionId"] = session.into();
    params
}

/// Parameters of `session/resume`.
pub fn resume(spec: &SessionSpec, session: &str, can: &Can) -> Value {
    load(spec, session, can)
}

/// Parameters of `session/fork`.
pub fn fork(spec: &SessionSpec, session: &str, can: &Can) -> Value {
    load(spec, session, can)
}

pub const PROMPT: &str = "session/prompt";

/// Parameters of [`PROMPT`]. What the agent cannot take is told in words.
pub fn prompt(session: &str, content: &[Content], can: &Can) -> Value {
    let prompt: Vec<_> = content.iter().map(|block| schema_block(&taken(block, can))).collect();
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
pub fn reaches(server: &ToolServer, can: &Can) -> bool {
    match server.way {
        ServerWay::Child { .. } => true,
        ServerWay::Http { .. } => can.http || can.sse,
    }
}

fn server(server: &ToolServer, can: &Can) -> Option<Value> {
    let pairs = |pairs: &[(String, String)]| -> Value {
        pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let name = server.name.as_ref();
    match &server.way {
        ServerWay::Child { command, arguments, environment } => Some(json!({
            "name": name,
            "command": command.to_string_lossy(),
            "args": arguments,
            "env": pairs(environment),
        })),
        ServerWay::Http { url, headers } => {
            let way = if can.http { "http" } else { "sse" };
            reaches(server, can)
                .then(|| json!({ "type": way, "name": name, "url": url.as_ref(), "headers": pairs(headers) }))
        }
    }
}

fn taken(block: &Content, can: &Can) -> Content {
    match block {
        Content::Image { .. } if !can.images => Content::text(block_text(block)),
        Content::Audio { .. } if !can.audio => Content::text(block_text(block)),
        Content::Resource { uri, text, .. } if !can.embedded => Content::text(format!("{uri}:\n{text}")),
        Content::Binary { .. } if !can.embedded => Content::text(block_text(block)),
        Content::Text(_)
        | Content::Link(_)
        | Content::Image { .. }
        | Content::Audio { .. }
        | Content::Resource { .. }
        | Content::Binary { .. } => block.clone(),
    }
}
