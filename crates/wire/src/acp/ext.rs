//! The extension methods that zeph's clients know: session administration beyond the standard.

use std::path::PathBuf;

use engine::{Listed, Seq, SessionId, Timestamp, ToolInfo};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::decode::read;
use super::{IMPORT_EVENTS_MAX, servers, zeph_events};
use crate::call::{Call, EventRange, EventsPart, Fault};
use crate::portable;
use crate::timestamp::rfc3339;

#[derive(Deserialize)]
struct SessionParams {
    #[serde(alias = "sessionId")]
    session_id: String,
}

#[derive(Deserialize)]
struct RangeParams {
    #[serde(alias = "sessionId")]
    session_id: String,
    #[serde(default)]
    after: Option<u64>,
    #[serde(default)]
    limit: Option<usize>,
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
        "_session/get" => range(params).map(|(id, range)| Call::Get { id, range }),
        "_session/delete" => Ok(Call::Remove { id: session(params)? }),
        "_session/export" => range(params).map(|(id, range)| Call::Export { id, range }),
        "_session/import" => import(params),
        "_agent/tools" => Ok(Call::Tools { id: servers::session(params)? }),
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

fn range(params: Option<&RawValue>) -> Result<(SessionId, EventRange), Fault> {
    let params: RangeParams = read(params)?;
    if params.limit == Some(0) {
        return Err(Fault::InvalidParams("limit is the number of events in the reply, at least 1".into()));
    }
    let range = EventRange { after: params.after.map(Seq), limit: params.limit };
    Ok((parse_id(&params.session_id)?, range))
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
    if let Some(events) = zeph_events::read(&params.events) {
        return Ok(Call::Import { events });
    }
    let read = |(at, raw): (usize, Box<RawValue>)| {
        portable::decode(raw.get()).map_err(|error| {
            Fault::InvalidParams(format!("event {at}: {}", portable::what_is_wrong(raw.get(), &error)))
        })
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

pub(super) fn got<'a>(session: &Listed, events: &'a EventsPart) -> SessionEvents<'a> {
    SessionEvents {
        session_id: session.row.id.to_string(),
        created_at: Some(rfc3339(session.row.created_at)),
        busy: Some(session.row.busy),
        exported_at: None,
        next: events.next.map(|next| next.0),
        events: events.list(),
    }
}

pub(super) fn exported<'a>(session: &Listed, events: &'a EventsPart, at: Timestamp) -> SessionEvents<'a> {
    SessionEvents {
        session_id: session.row.id.to_string(),
        created_at: None,
        busy: None,
        exported_at: Some(rfc3339(at)),
        next: events.next.map(|next| next.0),
        events: events.list(),
    }
}

#[derive(Serialize)]
pub(super) struct SessionEvents<'a> {
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exported_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    events: &'a [Box<RawValue>],
}

pub(super) fn tools(tools: &[ToolInfo]) -> Value {
    let entry =
        |tool: &ToolInfo| json!({ "name": tool.name.as_ref(), "description": tool.description.as_ref() });
    json!({ "tools": tools.iter().map(entry).collect::<Vec<_>>() })
}
