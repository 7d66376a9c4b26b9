//! The extension methods of zeph's clients: session administration beyond the standard.

use std::path::PathBuf;

use engine::{ListedSession, Seq, SessionId, Timestamp, ToolInfo};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::decode::read;
use super::{IMPORT_EVENTS_MAX, tool_servers, zeph_import};
use crate::client_request::{ClientRequest as Request, EventPage, EventRange, RequestError};
use crate::event_json;
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

pub(super) fn request(method: &str, params: Option<&RawValue>) -> Result<Request, RequestError> {
    match method {
        "_session/list" => Ok(Request::ListAll),
        "_session/get" => range(params).map(|(id, range)| Request::Get { id, range }),
        "_session/delete" => Ok(Request::Remove { id: session(params)? }),
        "_session/export" => range(params).map(|(id, range)| Request::Export { id, range }),
        "_session/import" => import(params),
        "_agent/tools" => Ok(Request::Tools { id: tool_servers::session(params)? }),
        "_agent/mcp/list" => Ok(Request::Servers { id: tool_servers::session(params)? }),
        "_agent/mcp/add" => tool_servers::add(params),
        "_agent/mcp/remove" => tool_servers::remove(params),
        "_agent/working_dir/update" => {
            let params: MoveParams = read(params)?;
            Ok(Request::Move { id: parse_id(&params.session_id)?, path: params.path })
        }
        _ => Ok(super::decode::extension(method, params, false)),
    }
}

fn session(params: Option<&RawValue>) -> Result<SessionId, RequestError> {
    let params: SessionParams = read(params)?;
    parse_id(&params.session_id)
}

fn range(params: Option<&RawValue>) -> Result<(SessionId, EventRange), RequestError> {
    let params: RangeParams = read(params)?;
    if params.limit == Some(0) {
        return Err(RequestError::InvalidParams(
            "limit must be at least 1: it is the number of events in the reply".into(),
        ));
    }
    let range = EventRange { after: params.after.map(Seq), limit: params.limit };
    Ok((parse_id(&params.session_id)?, range))
}

pub(super) fn parse_id(text: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(text).map_err(|error| RequestError::InvalidRequest(error.to_string()))
}

fn import(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let params: ImportParams = read(params)?;
    if params.events.len() > IMPORT_EVENTS_MAX {
        return Err(RequestError::InvalidRequest(format!(
            "too many events: {}, and at most {IMPORT_EVENTS_MAX} can be imported at once",
            params.events.len()
        )));
    }
    if let Some(events) = zeph_import::read(&params.events) {
        return Ok(Request::Import { events });
    }
    let read = |(at, raw): (usize, Box<RawValue>)| {
        event_json::decode(raw.get()).map_err(|error| {
            RequestError::InvalidParams(format!(
                "event {at}: {}",
                event_json::what_is_wrong(raw.get(), &error)
            ))
        })
    };
    let events: Result<Vec<_>, _> = params.events.into_iter().enumerate().map(read).collect();
    Ok(Request::Import { events: events? })
}

pub(super) fn listed_all(sessions: &[ListedSession]) -> Value {
    let entry = |session: &ListedSession| {
        json!({
            "session_id": session.row.id.as_str(),
            "created_at": rfc3339(session.row.created_at),
            "busy": session.row.busy,
        })
    };
    json!({ "sessions": sessions.iter().map(entry).collect::<Vec<_>>() })
}

pub(super) fn got<'a>(session: &ListedSession, events: &'a EventPage) -> SessionEvents<'a> {
    SessionEvents {
        session_id: session.row.id.to_string(),
        created_at: Some(rfc3339(session.row.created_at)),
        busy: Some(session.row.busy),
        exported_at: None,
        next: events.next.map(|next| next.0),
        events: events.list(),
    }
}

pub(super) fn exported<'a>(
    session: &ListedSession,
    events: &'a EventPage,
    at: Timestamp,
) -> SessionEvents<'a> {
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
