//! The extension methods that zeph's clients know: session administration beyond the standard.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Event, Listed, SessionId, Timestamp, ToolInfo};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::decode::read;
use super::{IMPORT_EVENTS_MAX, servers};
use crate::call::{Call, Fault};
use crate::portable;
use crate::timestamp::rfc3339;

#[derive(Deserialize)]
struct SessionParams {
    #[serde(alias = "sessionId")]
    session_id: String,
}

#[derive(Deserialize)]
struct MoveParams {
    #[serde(alias = "sessionId")]
    session_id: String,
    path: PathBuf,
}

#[derive(Deserialize)]
struct ImportParams {
    events: Vec<Box<RawValue>>,
}

pub(super) fn request(method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
    match method {
        "_session/list" => Ok(Call::ListAll),
        "_session/get" => Ok(Call::Get { id: session(params)? }),
        "_session/delete" => Ok(Call::Remove { id: session(params)? }),
        "_session/export" => Ok(Call::Export { id: session(params)? }),
        "_session/import" => import(params),
        "_agent/tools" => Ok(Call::Tools { id: session(params)? }),
        "_agent/mcp/list" => Ok(Call::Servers { id: servers::session(params)? }),
        "_agent/mcp/add" => servers::add(params),
        "_agent/mcp/remove" => servers::remove(params),
        "_agent/working_dir/update" => {
            let params: MoveParams = read(params)?;
            Ok(Call::Move { id: parse_id(&params.session_id)?, path: params.path })
        }
        _ => Ok(super::decode::extension(method, params, false)),
    }
}

fn session(params: Option<&RawValue>) -> Result<SessionId, Fault> {
    let params: SessionParams = read(params)?;
    parse_id(&params.session_id)
}

pub(super) fn parse_id(text: &str) -> Result<SessionId, Fault> {
    SessionId::parse(text).map_err(|error| Fault::InvalidRequest(error.to_string()))
}

fn import(params: Option<&RawValue>) -> Result<Call, Fault> {
    let params: ImportParams = read(params)?;
    if params.events.len() > IMPORT_EVENTS_MAX {
        return Err(Fault::InvalidRequest(format!(
            "{} events are too many: at most {IMPORT_EVENTS_MAX} can be imported at once",
            params.events.len()
        )));
    }
    let read = |(at, raw): (usize, Box<RawValue>)| {
        portable::decode(raw.get()).map_err(|error| Fault::InvalidParams(format!("event {at}: {error}")))
    };
    let events: Result<Vec<_>, _> = params.events.into_iter().enumerate().map(read).collect();
    Ok(Call::Import { events: events? })
}

pub(super) fn listed_all(sessions: &[Listed]) -> Value {
    let entry = |session: &Listed| {
        json!({
            "session_id": session.row.id.as_str(),
            "created_at": rfc3339(session.row.created_at),
            "busy": session.row.busy,
        })
    };
    json!({ "sessions": sessions.iter().map(entry).collect::<Vec<_>>() })
}

pub(super) fn got(session: &Listed, events: &[Arc<Event>]) -> Value {
    json!({
        "session_id": session.row.id.as_str(),
        "created_at": rfc3339(session.row.created_at),
        "busy": session.row.busy,
        "events": portable_events(events),
    })
}

pub(super) fn exported(session: &Listed, events: &[Arc<Event>], at: Timestamp) -> Value {
    json!({
        "session_id": session.row.id.as_str(),
        "exported_at": rfc3339(at),
        "events": portable_events(events),
    })
}

pub(super) fn tools(tools: &[ToolInfo]) -> Value {
    let entry =
        |tool: &ToolInfo| json!({ "name": tool.name.as_ref(), "description": tool.description.as_ref() });
    json!({ "tools": tools.iter().map(entry).collect::<Vec<_>>() })
}

fn portable_events(events: &[Arc<Event>]) -> Vec<Value> {
    events.iter().map(|event| portable::encode(event)).collect()
}
