//! Responses that are the same in both dialects.

use engine::{APPROVAL, ListedSession, MODE, MODEL, Stop};
use serde_json::{Map, Value, json};

use super::event_parts::{agent_name, path_text};
use crate::acp::{result, write_error};
use crate::client_request::{RequestError, RequestOutcome, SessionView};
use crate::rpc::RpcId;
use crate::timestamp::rfc3339;

/// The agent failed, or something it depends on.
const APPLICATION_ERROR: i64 = -32000;

pub(crate) fn reply(id: &RpcId, outcome: &RequestOutcome, out: &mut Vec<u8>) {
    match outcome {
        RequestOutcome::Created(view) | RequestOutcome::Opened(view) | RequestOutcome::Settings(view) => {
            result(id, &created(view), out);
        }
        RequestOutcome::Listed { sessions, next } => result(id, &listed(sessions, next.as_deref()), out),
        RequestOutcome::ListedAll(sessions) => result(id, &listed(sessions, None), out),
        RequestOutcome::SettingValue { id: session, setting, value } => {
            let mut set = json!({ "sessionId": session.as_str() });
            insert(&mut set, setting, value.as_ref().into());
            result(id, &set, out);
        }
        RequestOutcome::TurnEnded { stop, error, .. } => {
            if is_failure(*stop) {
                return failed(id, error.as_deref(), out);
            }
            result(id, &json!({ "stopReason": stop_reason(*stop) }), out);
        }
        RequestOutcome::MessageAnswer { id: session, stop, error, said: turn } => {
            if is_failure(*stop) {
                return failed(id, error.as_deref(), out);
            }
            // A cancelled turn has no final message: all of its text is the partial output.
            let output = if *stop == Stop::Cancelled { &turn.text } else { turn.last_message() };
            let mut said = json!({
                "sessionId": session.as_str(), "stopReason": stop_reason(*stop), "output": output,
            });
            if let Some(error) = error {
                insert(&mut said, "error", error.as_ref().into());
            }
            result(id, &said, out);
        }
        RequestOutcome::Cancelled { id: session, was_busy } => {
            result(id, &json!({ "sessionId": session.as_str(), "cancelled": was_busy }), out);
        }
        RequestOutcome::Removed(deleted) => result(id, &json!({ "deleted": deleted }), out),
        RequestOutcome::Replayed { id: session, replayed, last, truncated } => {
            let replayed = json!({
                "sessionId": session.as_str(),
                "replayed": replayed,
                "lastEventId": last,
                "truncated": truncated,
            });
            result(id, &replayed, out);
        }
        // These are encoded by each dialect, or answer requests that neither has.
        RequestOutcome::Initialized { .. }
        | RequestOutcome::Done
        | RequestOutcome::ExtensionAnswer(_)
        | RequestOutcome::TaskStarted { .. }
        | RequestOutcome::Stopped { .. }
        | RequestOutcome::Answered { .. }
        | RequestOutcome::Sandbox { .. }
        | RequestOutcome::Bridge(_)
        | RequestOutcome::SessionEvents { .. }
        | RequestOutcome::Exported { .. }
        | RequestOutcome::Imported { .. }
        | RequestOutcome::Tools(_)
        | RequestOutcome::Servers(_)
        | RequestOutcome::ServerAdded { .. }
        | RequestOutcome::ServerRemoved { .. }
        | RequestOutcome::Moved { .. } => result(id, &json!({}), out),
    }
}

pub(crate) fn fault(id: &RpcId, fault: &RequestError, out: &mut Vec<u8>) {
    let code = match fault {
        RequestError::Parse(_) | RequestError::FrameTooLong { .. } => -32700,
        RequestError::InvalidRequest(_) => -32600,
        RequestError::UnknownMethod(_) => -32601,
        RequestError::InvalidParams(_)
        | RequestError::NoSuchAsk { .. }
        | RequestError::UnknownChoice(_)
        | RequestError::NoSuchSession { .. }
        | RequestError::NotOpen { .. } => -32602,
        RequestError::Internal(_) | RequestError::Foreign(_) => -32603,
        RequestError::NotInitialized { .. } => -32002,
    };
    write_error(id, code, &fault.text(), None, out);
}

/// A session and its settings.
fn created(view: &SessionView) -> Value {
    json!({
        "sessionId": view.id.as_str(),
        "mode": agent_name(view.settings.get(MODE)),
        "model": view.settings.get(MODEL),
        "approval": view.settings.get(APPROVAL),
    })
}

pub(crate) fn stop_reason(stop: Stop) -> &'static str {
    if is_failure(stop) { "error" } else { stop.as_str() }
}

fn is_failure(stop: Stop) -> bool {
    match stop {
        Stop::Failed | Stop::Interrupted => true,
        Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal | Stop::Cancelled => false,
    }
}

/// Error chains and positions in our code are internal, so the stack is always empty.
fn failed(id: &RpcId, error: Option<&str>, out: &mut Vec<u8>) {
    let text = error.unwrap_or("the turn failed; send the message again to continue");
    let data = json!({ "name": "AgentError", "message": text, "stack": "" });
    write_error(id, APPLICATION_ERROR, text, Some(data), out);
}

fn listed(sessions: &[ListedSession], next: Option<&str>) -> Value {
    let session = |session: &ListedSession| {
        json!({
            "sessionId": session.row.id.as_str(),
            "cwd": path_text(&session.row.cwd),
            "title": session.row.title.as_deref(),
            "status": match (session.row.busy, session.cancelling) {
                (true, true) => "cancelled",
                (true, false) => "running",
                (false, _) => "idle",
            },
            "source": session.row.source.as_ref(),
            "parentId": session.row.parent.as_ref().map(engine::SessionId::as_str),
            "createdAt": rfc3339(session.row.created_at),
            "updatedAt": rfc3339(session.row.updated_at),
        })
    };
    let mut list = json!({ "sessions": sessions.iter().map(session).collect::<Vec<_>>() });
    if let Some(next) = next {
        insert(&mut list, "nextCursor", next.into());
    }
    list
}

fn insert(object: &mut Value, name: &str, value: Value) {
    object.as_object_mut().unwrap_or(&mut Map::new()).insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use engine::{Principal, Seq, SessionId, SessionRow, Timestamp};

    use super::*;

    #[test]
    fn a_list_says_which_sessions_run_and_which_unwind() {
        let session = |busy, cancelling| {
            let row = SessionRow {
                id: SessionId::parse("s").unwrap(),
                owner: Principal::local(),
                cwd: "/project".into(),
                roots: Vec::new(),
                parent: None,
                source: "stdio".into(),
                title: None,
                created_at: Timestamp(0),
                updated_at: Timestamp(0),
                busy,
                last_seq: Seq(1),
            };
            let list = listed(&[ListedSession { row, live: true, cancelling }], None);
            list["sessions"][0]["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(session(false, false), "idle");
        assert_eq!(session(true, false), "running");
        assert_eq!(session(true, true), "cancelled");
        assert_eq!(session(false, true), "idle", "the store has its end already");
    }
}
