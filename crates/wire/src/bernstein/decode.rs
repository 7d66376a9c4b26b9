//! Decodes requests and notifications.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{APPROVAL, Content, PermissionAnswer, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{AUTO, BERNSTEIN_FRAME_BYTES_MAX, MANUAL, NOTIFICATIONS, REQUESTS, VERSION, ask_of};
use crate::acp;
use crate::client_request::{ClientInfo, ClientRequest as Request, RequestError, SettingReply};
use crate::json_errors;

/// How many characters of an unknown name an error repeats.
const NAME_CHARS_MAX: usize = 80;
const DEFAULT_ROLE: &str = "backend";

pub(crate) fn request(
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<Request, RequestError> {
    if frame_bytes > BERNSTEIN_FRAME_BYTES_MAX {
        return Err(RequestError::FrameTooLong { limit_bytes: BERNSTEIN_FRAME_BYTES_MAX });
    }
    match method {
        "initialize" => initialize(params),
        "prompt" => prompt(params),
        "cancel" => cancel(params),
        "setMode" => set_mode(params),
        "requestPermission" => decide(params),
        _ if NOTIFICATIONS.contains(&method) => {
            Err(RequestError::InvalidRequest(format!("{method} is a notification: send it without id")))
        }
        _ => Err(RequestError::UnknownMethod(short(method))),
    }
}

pub(crate) fn notification(method: &str, _params: Option<&RawValue>) -> Result<Request, RequestError> {
    if REQUESTS.contains(&method) {
        return Err(RequestError::InvalidRequest(format!("{method} is a request: send it with an id")));
    }
    Ok(Request::Ignore)
}

fn initialize(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        protocol_version: Option<Value>,
        client_info: Option<Info>,
    }
    #[derive(Deserialize)]
    struct Info {
        name: Option<String>,
    }
    let params: Params = read(params)?;
    if params.protocol_version.is_some_and(|version| version != VERSION) {
        return Err(RequestError::InvalidParams(format!("protocolVersion must be {VERSION:?}, as a string")));
    }
    let name = params.client_info.and_then(|info| info.name);
    let name = name.map_or_else(|| Arc::from("client"), |name| Arc::from(short(&name)));
    Ok(Request::Initialize(ClientInfo { name, version: None }))
}

fn prompt(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        prompt: Option<Value>,
        text: Option<Value>,
        content: Option<Value>,
        cwd: Option<PathBuf>,
        role: Option<String>,
        mode: Option<String>,
    }
    let params: Params = read(params)?;
    let said = params.prompt.or(params.text).or(params.content);
    let said = said.ok_or_else(|| RequestError::InvalidParams("prompt is missing: say what to do".into()))?;
    let content = content(said)?;
    let cwd = params.cwd.filter(|cwd| !cwd.as_os_str().is_empty() && *cwd != *".");
    let role = params.role.filter(|role| !role.is_empty()).unwrap_or_else(|| DEFAULT_ROLE.to_owned());
    let approval = params.mode.map_or(Ok(MANUAL), |mode| approval(&mode))?;
    Ok(Request::Task { cwd, role, approval: approval.into(), content })
}

/// A text, or content blocks as in the official protocol.
fn content(said: Value) -> Result<Vec<Content>, RequestError> {
    let content = match said {
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => vec![Content::text(text)],
        Value::Object(_) => acp::blocks(Value::Array(vec![said]), "prompt")?,
        Value::Array(_) => acp::blocks(said, "prompt")?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            return Err(RequestError::InvalidParams(
                "prompt must be a text, or an array of content blocks".into(),
            ));
        }
    };
    if content.is_empty() {
        return Err(RequestError::InvalidParams("prompt is empty: say what to do".into()));
    }
    Ok(content)
}

fn cancel(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        session_id: String,
        reason: Option<String>,
    }
    let params: Params = read(params)?;
    let reason = params.reason.filter(|reason| !reason.is_empty());
    Ok(Request::Stop { id: session(&params.session_id)?, reason })
}

fn set_mode(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        session_id: String,
        mode: String,
    }
    let params: Params = read(params)?;
    let value = approval(&params.mode)?.into();
    let id = session(&params.session_id)?;
    Ok(Request::Change { id, setting: APPROVAL.into(), value, answer: SettingReply::Value })
}

/// An answer must say yes or no explicitly: a missing decision is never a yes.
fn decide(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        session_id: String,
        prompt_id: String,
        decision: Option<Value>,
        /// The answer to a question.
        answer: Option<String>,
    }
    let params: Params = read(params)?;
    let answer = match (params.decision.as_ref().and_then(Value::as_str), params.answer) {
        (_, Some(said)) => PermissionAnswer::Reply(said.into()),
        (Some("approved"), None) => PermissionAnswer::AllowOnce,
        (Some("rejected"), None) => PermissionAnswer::DenyOnce,
        (Some(_) | None, None) => {
            return Err(RequestError::InvalidParams("decision must be \"approved\" or \"rejected\"".into()));
        }
    };
    let id = session(&params.session_id)?;
    let ask = ask_of(&id, &params.prompt_id);
    Ok(Request::Answer { id: Some(id), ask, answer })
}

fn approval(mode: &str) -> Result<&'static str, RequestError> {
    match mode {
        "auto" => Ok(AUTO),
        "manual" => Ok(MANUAL),
        _ => Err(RequestError::UnknownChoice(format!("mode must be auto or manual, not {:?}", short(mode)))),
    }
}

/// An id that no session can have is treated as an unknown session.
fn session(id: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(id).map_err(|_| RequestError::NoSuchSession { id: short(id) })
}

/// Missing parameters are read as an empty object.
fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RequestError> {
    let text = params.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
    // serde would read an array as the members in order.
    if !text.starts_with('{') {
        return Err(RequestError::InvalidParams("params must be an object".into()));
    }
    json_errors::read(text, "the parameters").map_err(|error| RequestError::InvalidParams(error.to_string()))
}

fn short(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Dialect, DialectSelection};
    use expect_test::{Expect, expect};

    fn check(method: &str, params: &str, expected: Expect) {
        let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
        expected.assert_eq(&match request(method, Some(&raw), params.len()) {
            Ok(call) => format!("{call:?}"),
            Err(fault) => format!("! {fault:?}"),
        });
    }

    #[test]
    fn a_prompt_has_the_seeds_defaults() {
        check(
            "prompt",
            r#"{"prompt":"hi","cwd":".","more":[1]}"#,
            expect![[r#"Task { cwd: None, role: "backend", approval: "suggest", content: [Text("hi")] }"#]],
        );
        check(
            "prompt",
            r#"{"text":"hi","cwd":"sub","role":"qa","mode":"auto"}"#,
            expect![[r#"Task { cwd: Some("sub"), role: "qa", approval: "full", content: [Text("hi")] }"#]],
        );
        check(
            "prompt",
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
            expect![[
                r#"Task { cwd: None, role: "backend", approval: "suggest", content: [Text("a"), Text("b")] }"#
            ]],
        );
    }

    #[test]
    fn a_prompt_that_says_nothing_or_the_wrong_thing_is_refused() {
        check("prompt", "{}", expect![[r#"! InvalidParams("prompt is missing: say what to do")"#]]);
        check(
            "prompt",
            r#"{"prompt":"  "}"#,
            expect![[r#"! InvalidParams("prompt is empty: say what to do")"#]],
        );
        check(
            "prompt",
            r#"{"prompt":7}"#,
            expect![[r#"! InvalidParams("prompt must be a text, or an array of content blocks")"#]],
        );
        check(
            "prompt",
            r#"{"prompt":"x","mode":"yolo"}"#,
            expect![[r#"! UnknownChoice("mode must be auto or manual, not \"yolo\"")"#]],
        );
        check("prompt", r#"["hi"]"#, expect![[r#"! InvalidParams("params must be an object")"#]]);
    }

    #[test]
    fn only_a_clear_yes_allows() {
        let params = |decision: &str| format!(r#"{{"sessionId":"s-1","promptId":"s-1/3"{decision}}}"#);
        check(
            "requestPermission",
            &params(r#","decision":"approved""#),
            expect![[r#"Answer { id: Some(SessionId(s-1)), ask: AskId(3), answer: AllowOnce }"#]],
        );
        for other in ["", r#","decision":null"#, r#","decision":"yes""#, r#","decision":true"#] {
            check(
                "requestPermission",
                &params(other),
                expect![[r#"! InvalidParams("decision must be \"approved\" or \"rejected\"")"#]],
            );
        }
    }

    #[test]
    fn a_question_of_another_session_is_none_of_this_one() {
        let session = SessionId::parse("s-1").unwrap();
        assert_eq!(ask_of(&session, "s-1/12").0, 12);
        for other in ["s-2/12", "12", "s-1", "s-1/", "s-1/+12", "s-1/12/1", "s-1/99999999999999999999", ""] {
            assert_eq!(ask_of(&session, other).0, 0, "{other:?}");
        }
    }

    #[test]
    fn one_message_of_ours_is_told_from_others() {
        let ours = [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-04-01"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"prompt"}"#,
            r#" {"method":"initialized"}"#,
            r#"{"method":"setMode","params":{}}"#,
        ];
        let others = [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.2"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"[{"method":"prompt"}]"#,
            r#"["prompt"]"#,
            r#"["prompt",{}]"#,
            "{not json",
            "",
        ];
        let is_ours = |frame: &&str, selection| {
            let ours = super::super::is_frame(frame.as_bytes(), selection);
            if let Ok(message) = crate::parse(frame.as_bytes()) {
                assert_eq!(super::super::is_message(&message, selection), ours, "{frame}");
            }
            ours
        };
        assert!(ours.iter().all(|frame| is_ours(frame, DialectSelection::Detected)));
        assert!(!others.iter().any(|frame| is_ours(frame, DialectSelection::Detected)));
        // At a server that was started for this dialect, a message belongs to another dialect only if it
        // says so.
        let (ferret, bernstein) =
            (DialectSelection::Preferred(Dialect::Ferret), DialectSelection::Preferred(Dialect::Bernstein));
        assert!(!others.iter().any(|frame| is_ours(frame, ferret)));
        let theirs: Vec<_> = others.iter().filter(|frame| !is_ours(frame, bernstein)).collect();
        assert_eq!(theirs, [&others[0], &others[1]]);
        assert!(others.iter().all(|frame| is_ours(frame, DialectSelection::Only(Dialect::Bernstein))));
    }
}
