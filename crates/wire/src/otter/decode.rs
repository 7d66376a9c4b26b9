//! Decodes requests and notifications of otter's clients.

use engine::{AskId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client_request::{ClientRequest as Request, RequestError};
use crate::ferret_otter_common as common;

pub(crate) fn request(
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<Request, RequestError> {
    match method {
        "initialize" => Ok(Request::Initialize(common::hello(params)?)),
        "permission/respond" => respond(params),
        "tool/approve" => approve(params),
        _ => common::request(method, params, frame_bytes),
    }
}

pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> Result<Request, RequestError> {
    common::notification(method, params, || request(method, params, 0))
}

/// The id of a permission request. It contains the session, because an answer does not name it.
pub(super) fn ask_name(session: &SessionId, ask: AskId) -> String {
    format!("r{}.{session}", ask.0)
}

pub(crate) fn parse_ask(name: &str) -> Option<(AskId, SessionId)> {
    let (ask, session) = name.strip_prefix('r')?.split_once('.')?;
    Some((AskId(ask.parse().ok()?), SessionId::parse(session).ok()?))
}

fn respond(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "requestId", alias = "request_id")]
        request_id: String,
        #[serde(alias = "decision")]
        reply: Option<String>,
        answer: Option<String>,
    }
    let params: Params = common::read(params)?;
    let answer = common::answer_in(params.reply.as_deref(), params.answer)?;
    let (ask, id) = parse_ask(&params.request_id).ok_or_else(|| unknown(&params.request_id))?;
    Ok(Request::Answer { id: Some(id), ask, answer })
}

/// The answer that the clients in otter's own sources send. They name the session in a field of its own.
fn approve(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "permissionId", alias = "permission_id")]
        permission_id: String,
        #[serde(alias = "reply")]
        decision: Option<String>,
        answer: Option<String>,
    }
    let id = common::session_param(params)?;
    let params: Params = common::read(params)?;
    let answer = common::answer_in(params.decision.as_deref(), params.answer)?;
    match parse_ask(&params.permission_id) {
        Some((ask, of)) if of == id => Ok(Request::Answer { id: Some(id), ask, answer }),
        Some(_) | None => Err(unknown(&params.permission_id)),
    }
}

fn unknown(name: &str) -> RequestError {
    let ask = name.chars().take(engine::SESSION_ID_CHARS_MAX * 2).collect();
    RequestError::NoSuchAsk { ask }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, params: &str) -> Result<Request, RequestError> {
        common::call_of(request, method, params)
    }

    #[test]
    fn any_spelling_of_a_cursor_is_read_and_nonsense_means_everything() {
        let since = |cursor: &str| {
            let call = check("session/resume", &format!(r#"{{"sessionId":"s"{cursor}}}"#)).unwrap();
            let Request::Replay { since, .. } = call else { panic!("{call:?}") };
            since
        };
        assert_eq!(since(r#","sinceEventId":7"#), 7);
        assert_eq!(since(r#","since_event_id":7"#), 7);
        assert_eq!(since(r#","lastEventId":7"#), 7);
        assert_eq!(since(r#","sinceEventId":1000000000000000000000000000000"#), u64::MAX);
        assert_eq!(since(""), 0);
        for nonsense in ["0", "-5", "1.5", "\"7\"", "null", "[7]", "1e30", "true"] {
            assert_eq!(since(&format!(r#","sinceEventId":{nonsense}"#)), 0, "{nonsense}");
        }
    }

    #[test]
    fn an_answer_finds_its_session_by_the_name_of_the_question() {
        let session = SessionId::parse("s-1").unwrap();
        let name = ask_name(&session, AskId(7));
        let call =
            check("permission/respond", &format!(r#"{{"requestId":"{name}","reply":"allow"}}"#)).unwrap();
        let Request::Answer { id, ask, answer } = call else { panic!("{call:?}") };
        assert_eq!((id, ask, answer), (Some(session), AskId(7), engine::PermissionAnswer::AllowOnce));
        for name in ["r7", "7.s-1", "rx.s-1", "r7.", "r7.a b", "r-1.s-1", "r99999999999999999999.s-1", ""] {
            let fault = check("permission/respond", &format!(r#"{{"requestId":"{name}","reply":"allow"}}"#));
            assert!(matches!(fault, Err(RequestError::NoSuchAsk { .. })), "{name}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_and_never_taken_for_a_yes() {
        for word in ["", "yes please", "ALLOW", "allow "] {
            let params = format!(r#"{{"requestId":"r7.s-1","reply":"{word}"}}"#);
            assert!(
                matches!(check("permission/respond", &params), Err(RequestError::InvalidParams(_))),
                "{word}"
            );
        }
        let other = r#"{"sessionId":"s-2","permissionId":"r7.s-1","decision":"approve"}"#;
        assert!(matches!(check("tool/approve", other), Err(RequestError::NoSuchAsk { .. })));
    }
}
