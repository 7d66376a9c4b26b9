//! Requests and notifications that both dialects understand.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Answer, Content, MODE, MODEL, SessionId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::acp;
use crate::call::{Call, ChangeAnswer, Fault, Hello, Place};
use crate::json;

/// A client's name stands in the log with everything it does.
const NAME_CHARS_MAX: usize = 128;
/// What is said to a question.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A request that both have. `Err(Fault::UnknownMethod)` leaves it to the dialect.
pub(crate) fn request(method: &str, params: Option<&RawValue>, frame_bytes: usize) -> Result<Call, Fault> {
    acp::check_size(method, frame_bytes)?;
    match method {
        "session/new" => Ok(Call::New(place(read(params)?)?)),
        "session/load" => Ok(Call::Load { id: named(params)?, place: None }),
        "session/resume" => resume(params),
        "session/fork" => {
            let id = named(params)?;
            Ok(Call::Fork { id, place: place(read(params)?)? })
        }
        "session/list" => {
            let params: ListParams = read(params)?;
            Ok(Call::List { cwd: params.cwd, cursor: params.cursor })
        }
        "session/close" => Ok(Call::Close { id: named(params)? }),
        "session/delete" => Ok(Call::Delete { id: named(params)? }),
        "session/message" => message(params),
        "session/prompt" => acp::prompt(params),
        "session/cancel" => Ok(Call::Cancel { id: named(params)? }),
        "session/setMode" => {
            let chosen: ModeParams = read(params)?;
            // The agents of both are modes; the session knows which.
            let (id, setting) = (named(params)?, MODE.into());
            Ok(Call::Change { id, setting, value: chosen.mode.into(), answer: ChangeAnswer::Word })
        }
        "session/setModel" => {
            let chosen: ModelParams = read(params)?;
            Ok(set(named(params)?, MODEL, chosen.model.into()))
        }
        _ => Err(Fault::UnknownMethod(method.to_owned())),
    }
}

/// Everything is a request here; only a cancel may come without an id, as the official protocol has it, and an answer
/// to a question, which must not be lost: `answer` reads it.
pub(crate) fn notification(
    method: &str,
    params: Option<&RawValue>,
    answer: impl FnOnce() -> Result<Call, Fault>,
) -> Result<Call, Fault> {
    match method {
        "session/cancel" => Ok(Call::Cancel { id: named(params)? }),
        "permission/respond" | "tool/approve" => answer(),
        _ => Ok(Call::Ignore),
    }
}

/// Who says hello. Whatever else the parameters hold, the handshake does not fail on it.
pub(crate) fn hello(params: Option<&RawValue>) -> Result<Hello, Fault> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "protocolVersion", alias = "protocol_version", default)]
        version: Value,
        #[serde(rename = "clientInfo", alias = "client_info", default)]
        client: Value,
    }
    let params: Params = read(params)?;
    let name = params.client.get("name").and_then(Value::as_str).unwrap_or(Hello::UNNAMED);
    let name: String = name.chars().filter(|c| !engine::is_hidden(*c)).take(NAME_CHARS_MAX).collect();
    Ok(Hello { name: name.into(), version: params.version.as_u64() })
}

/// The session that the parameters name.
pub(crate) fn named(params: Option<&RawValue>) -> Result<SessionId, Fault> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: String,
    }
    let params: Params = read(params)?;
    session_id(&params.session_id)
}

/// The same where one need not be named.
pub(crate) fn maybe_named(params: Option<&RawValue>) -> Result<Option<SessionId>, Fault> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "sessionId", alias = "session_id")]
        session_id: Option<String>,
    }
    let params: Params = read(params)?;
    params.session_id.as_deref().map(session_id).transpose()
}

fn resume(params: Option<&RawValue>) -> Result<Call, Fault> {
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
    Ok(Call::Replay { id: named(params)?, since })
}

/// Below zero, no integer, or nothing at all means everything that is kept. No update has a number that does not fit.
fn cursor(text: &str) -> u64 {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().unwrap_or(u64::MAX) } else { 0 }
}

fn session_id(text: &str) -> Result<SessionId, Fault> {
    SessionId::parse(text).map_err(|error| Fault::InvalidParams(error.to_string()))
}

/// A setting that is changed and whose value is told back.
pub(crate) fn set(id: SessionId, setting: &str, value: Arc<str>) -> Call {
    Call::Change { id, setting: setting.into(), value, answer: ChangeAnswer::Value }
}

/// The answer to a question, in the words of both and of their older clients. For good means the same tool with
/// the same arguments: these clients are shown no rule that would say more.
pub(crate) fn answer(word: &str) -> Result<Answer, Fault> {
    match word {
        "allow" | "approve" | "approved" => Ok(Answer::AllowOnce),
        "always" => Ok(Answer::AllowExactly),
        "deny" | "denied" | "reject" | "rejected" => Ok(Answer::DenyOnce),
        "never" => Ok(Answer::DenyExactly),
        // What is not understood must not be taken for a yes, nor end the question.
        _ => Err(Fault::InvalidParams("the answer must be one of allow, deny, always, never".into())),
    }
}

/// The answer to a question, or to a wish: whoever answers in words says them as `answer`.
pub(crate) fn answer_in(word: Option<&str>, said: Option<String>) -> Result<Answer, Fault> {
    match (word, said) {
        (_, Some(said)) if said.len() <= ANSWER_BYTES_MAX => Ok(Answer::Reply(said.into())),
        (_, Some(_)) => {
            Err(Fault::InvalidParams(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")))
        }
        (word, None) => answer(word.unwrap_or_default()),
    }
}

/// Parameters that are missing are none.
pub(crate) fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, Fault> {
    let text = params.map_or("{}", RawValue::get);
    if text.starts_with('[') {
        return Err(Fault::InvalidParams("the parameters must be an object".into()));
    }
    json::read(text, "the parameters")
        .map_err(|error| Fault::InvalidParams(format!("the parameters are wrong: {error}")))
}

#[derive(Deserialize)]
struct PlaceParams {
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

/// A prompt that is answered with what was said to it.
pub(crate) fn message(params: Option<&RawValue>) -> Result<Call, Fault> {
    let params: MessageParams = read(params)?;
    let content = match params.message {
        Value::String(text) => vec![Content::text(text)],
        blocks @ Value::Array(_) => acp::blocks(blocks, "message")?,
        // One block by itself, as updates have it.
        block @ Value::Object(_) => acp::blocks(Value::Array(vec![block]), "message")?,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
            let came = json::kind(&other);
            let text = format!("the message must be a string or content blocks, not {came}");
            return Err(Fault::InvalidParams(text));
        }
    };
    let is_blank = |block: &Content| matches!(block, Content::Text(text) if text.trim().is_empty());
    if content.iter().all(is_blank) {
        return Err(Fault::InvalidParams("the message is empty: send some text as message".into()));
    }
    acp::check_text(&content)?;
    Ok(Call::Message { id: session_id(&params.session_id)?, content })
}

fn place(params: PlaceParams) -> Result<Place, Fault> {
    if let Some(cwd) = params.cwd.as_ref().filter(|cwd| !cwd.is_absolute()) {
        return Err(Fault::InvalidParams(format!("{} is not an absolute path", cwd.display())));
    }
    Ok(Place { cwd: params.cwd, roots: Vec::new(), servers: Vec::new() })
}

/// What one of the two reads from a request with these parameters, as JSON.
#[cfg(test)]
pub(crate) fn call_of(
    request: fn(&str, Option<&RawValue>, usize) -> Result<Call, Fault>,
    method: &str,
    params: &str,
) -> Result<Call, Fault> {
    let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
    request(method, Some(&raw), params.len())
}
