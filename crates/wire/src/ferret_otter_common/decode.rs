//! Decodes the requests and notifications that both dialects have.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Content, MODE, MODEL, PermissionAnswer, SessionId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::acp;
use crate::client_request::{
    ClientInfo, ClientRequest as Request, RequestError, SettingReply, WorkspaceParams,
};
use crate::json_errors;

/// Limit for a client's name, which is stored with every event that it causes.
const NAME_CHARS_MAX: usize = 128;
/// Limit for the answer to a question.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Decodes a request that both dialects have. `Err(RequestError::UnknownMethod)` leaves it to the dialect.
pub(crate) fn request(
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<Request, RequestError> {
    acp::check_size(method, frame_bytes)?;
    match method {
        "session/new" => Ok(Request::New(workspace(read(params)?)?)),
        "session/load" => Ok(Request::Load { id: session_param(params)?, workspace: None }),
        "session/resume" => resume(params),
        "session/fork" => {
            let id = session_param(params)?;
            Ok(Request::Fork { id, workspace: workspace(read(params)?)? })
        }
        "session/list" => {
            let params: ListParams = read(params)?;
            Ok(Request::List { cwd: params.cwd, cursor: params.cursor })
        }
        "session/close" => Ok(Request::Close { id: session_param(params)? }),
        "session/delete" => Ok(Request::Delete { id: session_param(params)? }),
        "session/message" => message(params),
        "session/prompt" => acp::prompt(params),
        "session/cancel" => Ok(Request::Cancel { id: session_param(params)? }),
        "session/setMode" => {
            let chosen: ModeParams = read(params)?;
            // The agents of both are modes here; the session knows which modes exist.
            let (id, setting) = (session_param(params)?, MODE.into());
            Ok(Request::Change { id, setting, value: chosen.mode.into(), answer: SettingReply::Word })
        }
        "session/setModel" => {
            let chosen: ModelParams = read(params)?;
            Ok(set_setting(session_param(params)?, MODEL, chosen.model.into()))
        }
        _ => Err(RequestError::UnknownMethod(method.to_owned())),
    }
}

/// Both dialects use requests for everything. Only a cancel may come without an id, as in the official
/// protocol, and an answer to a permission request, which must not be lost: `answer` decodes it.
pub(crate) fn notification(
    method: &str,
    params: Option<&RawValue>,
    answer: impl FnOnce() -> Result<Request, RequestError>,
) -> Result<Request, RequestError> {
    match method {
        "session/cancel" => Ok(Request::Cancel { id: session_param(params)? }),
        "permission/respond" | "tool/approve" => answer(),
        _ => Ok(Request::Ignore),
    }
}

/// The client's name and version. The handshake does not fail on anything else in the parameters.
pub(crate) fn hello(params: Option<&RawValue>) -> Result<ClientInfo, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "protocolVersion", alias = "protocol_version", default)]
        version: Value,
        #[serde(rename = "clientInfo", alias = "client_info", default)]
        client: Value,
    }
    let params: Params = read(params)?;
    let name = params.client.get("name").and_then(Value::as_str).unwrap_or(ClientInfo::UNNAMED);
    let name: String = name.chars().filter(|c| !engine::is_hidden(*c)).take(NAME_CHARS_MAX).collect();
    Ok(ClientInfo { name: name.into(), version: params.version.as_u64() })
}

/// The session that the parameters name.
pub(crate) fn session_param(params: Option<&RawValue>) -> Result<SessionId, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: String,
    }
    let params: Params = read(params)?;
    session_id(&params.session_id)
}

/// The same where naming a session is optional.
pub(crate) fn optional_session_param(params: Option<&RawValue>) -> Result<Option<SessionId>, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: Option<String>,
    }
    let params: Params = read(params)?;
    params.session_id.as_deref().map(session_id).transpose()
}

fn resume(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(
            rename = "sinceEventId",
            alias = "since_event_id",
            alias = "lastEventId",
            alias = "last_event_id",
            default
        )]
        since: Option<Box<RawValue>>,
    }
    let params_read: Params = read(params)?;
    let since = params_read.since.map_or(0, |since| cursor(since.get()));
    Ok(Request::Replay { id: session_param(params)?, since })
}

/// A negative number, a non-integer or no value means everything that is stored. A number that does not fit
/// is beyond any update.
fn cursor(text: &str) -> u64 {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().unwrap_or(u64::MAX) } else { 0 }
}

fn session_id(text: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(text).map_err(|error| RequestError::InvalidParams(error.to_string()))
}

/// Changes a setting; the response has the new value.
pub(crate) fn set_setting(id: SessionId, setting: &str, value: Arc<str>) -> Request {
    Request::Change { id, setting: setting.into(), value, answer: SettingReply::Value }
}

/// The answer to a permission request, in the words of both dialects and of their older clients. `always`
/// and `never` mean the same tool with the same arguments: these clients show no rule that would cover more.
pub(crate) fn answer(word: &str) -> Result<PermissionAnswer, RequestError> {
    match word {
        "allow" | "approve" | "approved" => Ok(PermissionAnswer::AllowOnce),
        "always" => Ok(PermissionAnswer::AllowExactly),
        "deny" | "denied" | "reject" | "rejected" => Ok(PermissionAnswer::DenyOnce),
        "never" => Ok(PermissionAnswer::DenyExactly),
        // An unknown word must not count as a yes, nor settle the request.
        _ => Err(RequestError::InvalidParams("the answer must be one of allow, deny, always, never".into())),
    }
}

/// The answer to a question or to a permission request: a free-text answer comes as `answer`.
pub(crate) fn answer_in(word: Option<&str>, said: Option<String>) -> Result<PermissionAnswer, RequestError> {
    match (word, said) {
        (_, Some(said)) if said.len() <= ANSWER_BYTES_MAX => Ok(PermissionAnswer::Reply(said.into())),
        (_, Some(_)) => {
            Err(RequestError::InvalidParams(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")))
        }
        (word, None) => answer(word.unwrap_or_default()),
    }
}

/// Missing parameters are read as an empty object.
pub(crate) fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, RequestError> {
    let text = params.map_or("{}", RawValue::get);
    if text.starts_with('[') {
        return Err(RequestError::InvalidParams("the parameters must be an object".into()));
    }
    json_errors::read(text, "the parameters")
        .map_err(|error| RequestError::InvalidParams(format!("the parameters are wrong: {error}")))
}

#[derive(Deserialize)]
struct FolderParams {
    #[serde(alias = "working_dir", alias = "workingDir")]
    cwd: Option<PathBuf>,
}

#[derive(Deserialize)]
struct ListParams {
    #[serde(alias = "working_dir", alias = "workingDir")]
    cwd: Option<PathBuf>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct ModeParams {
    #[serde(alias = "modeId", alias = "mode_id", alias = "agent")]
    mode: String,
}

#[derive(Deserialize)]
struct ModelParams {
    #[serde(alias = "modelId", alias = "model_id")]
    model: String,
}

#[derive(Deserialize)]
struct MessageParams {
    #[serde(rename = "sessionId", alias = "session_id")]
    session_id: String,
    /// A text, or the official protocol's content blocks.
    #[serde(alias = "text", alias = "content", alias = "prompt")]
    message: Value,
}

/// A prompt whose response carries the agent's answer.
pub(crate) fn message(params: Option<&RawValue>) -> Result<Request, RequestError> {
    let params: MessageParams = read(params)?;
    let content = match params.message {
        Value::String(text) => vec![Content::text(text)],
        blocks @ Value::Array(_) => acp::blocks(blocks, "message")?,
        // A single block, as in updates.
        block @ Value::Object(_) => acp::blocks(Value::Array(vec![block]), "message")?,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
            let came = json_errors::kind(&other);
            let text = format!("the message must be a string or content blocks, not {came}");
            return Err(RequestError::InvalidParams(text));
        }
    };
    let is_blank = |block: &Content| matches!(block, Content::Text(text) if text.trim().is_empty());
    if content.iter().all(is_blank) {
        return Err(RequestError::InvalidParams("the message is empty: send some text as message".into()));
    }
    acp::check_text(&content)?;
    Ok(Request::Message { id: session_id(&params.session_id)?, content })
}

fn workspace(params: FolderParams) -> Result<WorkspaceParams, RequestError> {
    if let Some(cwd) = params.cwd.as_ref().filter(|cwd| !cwd.is_absolute()) {
        return Err(RequestError::InvalidParams(format!("{} is not an absolute path", cwd.display())));
    }
    Ok(WorkspaceParams { cwd: params.cwd, roots: Vec::new(), servers: Vec::new() })
}

/// Decodes a request with these parameters, given as JSON, with the decoder of either dialect.
#[cfg(test)]
pub(crate) fn call_of(
    request: fn(&str, Option<&RawValue>, usize) -> Result<Request, RequestError>,
    method: &str,
    params: &str,
) -> Result<Request, RequestError> {
    let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
    request(method, Some(&raw), params.len())
}
