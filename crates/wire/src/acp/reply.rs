//! Responses: results and errors.

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1 as schema;
use engine::{ForeignGreeting, Greeting, ListedSession, Opaque, SessionId, Stop, Totals};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::tool_calls::unicode_path;
use super::{settings, tool_servers, zeph_methods};
use crate::client_request::{RequestError, RequestOutcome, SessionView};
use crate::dialect::Identity;
use crate::rpc::RpcId;
use crate::timestamp::rfc3339;

/// The only authentication method: being the person who started the server.
pub const AUTH_METHOD: &str = "local";

/// `zeph` says that the response goes out on zeph's transport.
pub(crate) fn encode(
    identity: &Identity,
    zeph: bool,
    id: &RpcId,
    outcome: &RequestOutcome,
    out: &mut Vec<u8>,
) {
    match outcome {
        RequestOutcome::Initialized { greeting, version: _ } => {
            result(id, &initialized(identity, greeting), out)
        }
        RequestOutcome::ExtensionAnswer(answer) => match serde_json::from_str::<&RawValue>(&answer.0) {
            Ok(answer) => result(id, &answer, out),
            Err(_) => result(id, &json!({}), out),
        },
        RequestOutcome::Done => result(id, &json!({}), out),
        RequestOutcome::Created(view) => result(id, &created(view, zeph), out),
        RequestOutcome::Opened(view) => result(id, &session_response(view, zeph), out),
        RequestOutcome::Listed { sessions, next } => result(id, &listed(sessions, next.clone()), out),
        RequestOutcome::Settings(view) => {
            let config_options = settings::options(&view.specs, &view.settings, zeph);
            result(id, &ConfigOptionsResponse { config_options }, out);
        }
        RequestOutcome::TurnEnded { stop, error, usage, words } => match (stop_reason(*stop), words) {
            (Some(reason), Some(words)) => result(id, &in_own_words(reason, words), out),
            (Some(reason), None) => result(id, &prompt_response(reason, usage), out),
            (None, _) => {
                let text = error.as_deref().unwrap_or("the turn failed; send another prompt to continue");
                encode_fault(id, &RequestError::Internal(text.into()), out);
            }
        },
        RequestOutcome::MessageAnswer { id: session, stop, error, said: turn } => {
            result(id, &message_response(session, *stop, error.as_deref(), &turn.text), out);
        }
        // Outcomes of requests that this protocol does not have.
        RequestOutcome::SettingValue { .. }
        | RequestOutcome::Replayed { .. }
        | RequestOutcome::TaskStarted { .. }
        | RequestOutcome::Stopped { .. }
        | RequestOutcome::Answered { .. }
        | RequestOutcome::Sandbox { .. }
        | RequestOutcome::Bridge(_) => result(id, &json!({}), out),
        RequestOutcome::Cancelled { id: session, was_busy } => {
            result(id, &json!({ "sessionId": session.as_str(), "cancelled": was_busy }), out);
        }
        RequestOutcome::ListedAll(sessions) => result(id, &zeph_methods::listed_all(sessions), out),
        RequestOutcome::SessionEvents { session, events } => {
            result(id, &zeph_methods::got(session, events), out)
        }
        RequestOutcome::Exported { session, events, at } => {
            result(id, &zeph_methods::exported(session, events, *at), out)
        }
        RequestOutcome::Imported { id: session } => {
            result(id, &json!({ "session_id": session.as_str() }), out)
        }
        RequestOutcome::Removed(deleted) => result(id, &json!({ "deleted": deleted }), out),
        RequestOutcome::Tools(tools) => result(id, &zeph_methods::tools(tools), out),
        RequestOutcome::Servers(views) => result(id, &tool_servers::listed(views), out),
        RequestOutcome::ServerAdded { name } => result(id, &json!({ "added": name.as_ref() }), out),
        RequestOutcome::ServerRemoved { name } => result(id, &json!({ "removed": name }), out),
        RequestOutcome::Moved { id: session, cwd } => {
            result(id, &json!({ "session_id": session.as_str(), "working_dir": unicode_path(cwd) }), out);
        }
    }
}

pub(crate) fn encode_fault(id: &RpcId, fault: &RequestError, out: &mut Vec<u8>) {
    let (code, data) = match fault {
        RequestError::Parse(_) | RequestError::FrameTooLong { .. } => (-32700, None),
        RequestError::InvalidRequest(_) | RequestError::NotInitialized { .. } => (-32600, None),
        RequestError::UnknownMethod(_) => (-32601, None),
        RequestError::InvalidParams(_) | RequestError::NoSuchAsk { .. } | RequestError::UnknownChoice(_) => {
            (-32602, None)
        }
        RequestError::NoSuchSession { id } | RequestError::NotOpen { id } => {
            (-32002, Some(json!({ "sessionId": id })))
        }
        RequestError::Internal(_) => (-32603, None),
        RequestError::Foreign(error) => {
            let data = error.data.as_ref().and_then(|data| serde_json::from_str(&data.0).ok());
            (error.code, data)
        }
    };
    write_error(id, code, &fault.text(), data, out);
}

/// A response that says why the request failed.
pub(crate) fn write_error(id: &RpcId, code: i64, message: &str, data: Option<Value>, out: &mut Vec<u8>) {
    let mut error = json!({ "code": code, "message": one_line(message) });
    if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
        error.insert("data".into(), data);
    }
    envelope(id, "error", &error, out);
}

/// Clients show the message in a status line.
fn one_line(message: &str) -> String {
    message.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

pub(crate) fn result(id: &RpcId, value: &impl Serialize, out: &mut Vec<u8>) {
    envelope(id, "result", value, out);
}

fn envelope(id: &RpcId, member: &str, value: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"");
    let begun = out.len();
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Cannot happen with our types; the reply must stay one well-formed line all the same.
        out.truncate(begun);
        out.extend_from_slice(br#"error":{"code":-32603,"message":"the answer cannot be written"}"#);
    }
    out.extend_from_slice(b"}\n");
}

/// Capabilities that are absent are left out: some clients show `false` as if it were offered.
fn initialized(identity: &Identity, greeting: &Greeting) -> Value {
    let auth = schema::AuthMethod::Agent(
        schema::AuthMethodAgent::new(AUTH_METHOD, "This machine")
            .description("You started this server, so no sign-in is needed.".to_string()),
    );
    let info = schema::Implementation::new(identity.name.clone(), identity.version.clone())
        .title(identity.title.clone());
    let mut prompt = Map::new();
    for (name, can) in
        [("image", greeting.images), ("audio", greeting.audio), ("embeddedContext", greeting.embedded)]
    {
        if can {
            prompt.insert(name.into(), true.into());
        }
    }
    let empty = || json!({});
    let mut answer = json!({
        "protocolVersion": ProtocolVersion::V1,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": prompt,
            "sessionCapabilities": {
                "list": empty(), "delete": empty(), "additionalDirectories": empty(),
                "fork": empty(), "resume": empty(), "close": empty(),
            },
            "auth": { "logout": empty() },
            "_meta": { "config_options": true, "ext_methods": true },
        },
        "authMethods": [auth],
        "agentInfo": info,
        "_meta": { "auth_hint": "authentication required", "sandbox": { "mode": identity.sandbox } },
    });
    if greeting.servers {
        answer["agentCapabilities"]["mcpCapabilities"] = json!({ "http": true, "sse": true });
    }
    if let Some(foreign) = &greeting.foreign {
        add_foreign(&mut answer, foreign);
    }
    for method in &identity.disabled {
        let (group, name) = match method.strip_prefix("session/") {
            Some(name) => ("sessionCapabilities", name),
            None => ("auth", method.as_str()),
        };
        if let Some(group) = answer["agentCapabilities"][group].as_object_mut() {
            group.remove(name);
        }
    }
    answer
}

/// An external agent appears under its own name and with its own authentication methods. Its capabilities
/// that this server does not know are added to ours.
fn add_foreign(answer: &mut Value, foreign: &ForeignGreeting) {
    let read = |opaque: &Opaque| serde_json::from_str::<Value>(&opaque.0).ok();
    if let Some(agent) = foreign.agent.as_ref().and_then(read) {
        answer["_meta"]["server"] = answer["agentInfo"].take();
        answer["agentInfo"] = agent;
    }
    answer["authMethods"] = foreign.auth_methods.iter().filter_map(read).collect();
    if let Some(meta) = foreign.meta.as_ref().and_then(read) {
        add_missing(&mut answer["_meta"], &meta);
    }
    let theirs = read(&foreign.capabilities);
    let theirs = theirs.iter().filter_map(Value::as_object).flatten();
    for (name, value) in theirs {
        match name.as_str() {
            // The agent alone decides what prompts may contain and how tool servers are reached.
            "promptCapabilities" | "mcpCapabilities" => answer["agentCapabilities"][name] = value.clone(),
            "loadSession" => {}
            _ => add_missing(&mut answer["agentCapabilities"][name], value),
        }
    }
}

fn add_missing(ours: &mut Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in theirs {
                add_missing(ours.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (ours @ Value::Null, theirs) => *ours = theirs.clone(),
        (_, _) => {}
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigOptionsResponse {
    config_options: Vec<Box<RawValue>>,
}

/// A session in the response that creates or opens it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modes: Option<schema::SessionModeState>,
    config_options: Vec<Box<RawValue>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Map<String, Value>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

fn created(view: &SessionView, zeph: bool) -> SessionResponse<'_> {
    SessionResponse { session_id: Some(view.id.as_str()), ..session_response(view, zeph) }
}

fn session_response(view: &SessionView, zeph: bool) -> SessionResponse<'_> {
    let mut extra = view.extra.as_ref().map(fields).unwrap_or_default();
    let theirs = extra.remove("_meta");
    let mut meta = project_rules(view);
    if let Some(Value::Object(theirs)) = theirs {
        meta.get_or_insert_default().extend(theirs);
    }
    SessionResponse {
        session_id: None,
        modes: settings::modes(&view.specs, &view.settings),
        config_options: settings::options(&view.specs, &view.settings, zeph),
        meta,
        extra,
    }
}

fn fields(opaque: &Opaque) -> Map<String, Value> {
    serde_json::from_str(&opaque.0).unwrap_or_default()
}

/// An external agent's own response to a prompt, with our stop reason: the turn may have been cancelled
/// here.
fn in_own_words(reason: schema::StopReason, words: &Opaque) -> Value {
    let mut answer = json!({ "stopReason": reason });
    if let Some(Value::Object(theirs)) = fields(words).remove("result")
        && let Some(answer) = answer.as_object_mut()
    {
        answer.extend(theirs.into_iter().filter(|(name, _)| name != "stopReason"));
    }
    answer
}

fn project_rules(view: &SessionView) -> Option<Map<String, Value>> {
    if view.rules.is_empty() {
        return None;
    }
    let rules: Vec<_> = view.rules.iter().map(|name| json!({ "name": name })).collect();
    Some(Map::from_iter([("projectRules".to_string(), Value::Array(rules))]))
}

fn listed(sessions: &[ListedSession], next: Option<String>) -> schema::ListSessionsResponse {
    let info = |session: &ListedSession| {
        let status = if session.row.busy { "running" } else { "idle" };
        let meta = Map::from_iter([
            ("status".to_string(), status.into()),
            ("source".to_string(), session.row.source.as_ref().into()),
        ]);
        schema::SessionInfo::new(
            schema::SessionId::new(session.row.id.as_str()),
            unicode_path(&session.row.cwd),
        )
        .additional_directories(session.row.roots.iter().map(|root| unicode_path(root)).collect::<Vec<_>>())
        .title(session.row.title.as_deref().map(str::to_owned))
        .updated_at(rfc3339(session.row.updated_at))
        .meta(meta)
    };
    schema::ListSessionsResponse::new(sessions.iter().map(info).collect()).next_cursor(next)
}

fn prompt_response(reason: schema::StopReason, usage: &Totals) -> schema::PromptResponse {
    let total = usage.input.saturating_add(usage.output);
    let tokens = schema::Usage::new(total, usage.input, usage.output)
        .thought_tokens(nonzero(usage.reasoning))
        .cached_read_tokens(nonzero(usage.cache_read))
        .cached_write_tokens(nonzero(usage.cache_write));
    schema::PromptResponse::new(reason).usage((total > 0).then_some(tokens))
}

fn message_response(session: &SessionId, stop: Stop, error: Option<&str>, output: &str) -> Value {
    let reason = stop_reason(stop).map_or_else(|| json!("error"), |reason| json!(reason));
    let mut said = json!({ "sessionId": session.as_str(), "stopReason": reason, "output": output });
    if let (Some(error), Some(said)) = (error, said.as_object_mut()) {
        said.insert("error".into(), error.into());
    }
    said
}

fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// `None` if the turn is answered with an error.
fn stop_reason(stop: Stop) -> Option<schema::StopReason> {
    match stop {
        Stop::EndTurn => Some(schema::StopReason::EndTurn),
        Stop::MaxTokens => Some(schema::StopReason::MaxTokens),
        Stop::MaxTurnRequests => Some(schema::StopReason::MaxTurnRequests),
        Stop::Refusal => Some(schema::StopReason::Refusal),
        Stop::Cancelled => Some(schema::StopReason::Cancelled),
        Stop::Failed | Stop::Interrupted => None,
    }
}
