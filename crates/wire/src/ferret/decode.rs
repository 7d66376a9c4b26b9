//! Decodes requests and notifications of ferret's clients.

use engine::{APPROVAL, AskId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client_request::{ClientRequest as Request, RequestError};
use crate::{ferret_otter_common as common, otter};

/// The id of a permission request. It is unique within its session, which every answer names too.
pub(super) fn ask_name(ask: AskId) -> String {
    format!("perm-{}", ask.0)
}

pub(crate) fn request(
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<Request, RequestError> {
    match method {
        "initialize" => Ok(Request::Initialize(common::hello(params)?)),
        "session/setSandbox" => {
            #[derive(Deserialize)]
            struct Params {
                #[serde(alias = "mode")]
                sandbox: Option<String>,
            }
            let wanted = common::read::<Params>(params)?.sandbox;
            Ok(Request::Sandbox { id: common::optional_session_param(params)?, wanted })
        }
        "session/setApproval" => {
            #[derive(Deserialize)]
            struct Params {
                #[serde(alias = "preset", alias = "mode")]
                approval: String,
            }
            let chosen: Params = common::read(params)?;
            Ok(common::set_setting(common::session_param(params)?, APPROVAL, chosen.approval.into()))
        }
        "session/bridgeStatus" => Ok(Request::Bridge { id: common::optional_session_param(params)? }),
        "permission/respond" => respond(params),
        _ => common::request(method, params, frame_bytes),
    }
}

pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> Result<Request, RequestError> {
    common::notification(method, params, || request(method, params, 0))
}

/// In ferret's words, or in otter's, which ferret's server accepts too: `requestId` and `reply`, and a
/// session only if neither the request's id nor the client's open sessions say which one is meant.
fn respond(params: Option<&RawValue>) -> Result<Request, RequestError> {
    #[derive(Deserialize)]
    struct Params {
        id: Option<String>,
        #[serde(rename = "requestId", alias = "request_id")]
        request_id: Option<String>,
        decision: Option<String>,
        reply: Option<String>,
        answer: Option<String>,
    }
    let session = common::optional_session_param(params)?;
    let params: Params = common::read(params)?;
    let name = params.id.or(params.request_id);
    let name = name.ok_or_else(|| RequestError::InvalidParams("name the question: send its id".into()))?;
    let answer = common::answer_in(params.decision.or(params.reply).as_deref(), params.answer)?;
    let own = name.strip_prefix("perm-").and_then(|number| number.parse().ok());
    let (ask, id) = match (own.map(AskId), otter::parse_ask(&name)) {
        (Some(ask), _) => (ask, session),
        (None, Some((ask, of))) if session.as_ref().is_none_or(|session| *session == of) => (ask, Some(of)),
        (None, Some(_) | None) => {
            let ask = name.chars().take(engine::SESSION_ID_CHARS_MAX * 2).collect();
            return Err(RequestError::NoSuchAsk { ask });
        }
    };
    Ok(Request::Answer { id, ask, answer })
}

#[cfg(test)]
mod tests {
    use engine::{PermissionAnswer, SessionId};

    use super::*;

    fn check(method: &str, params: &str) -> Result<Request, RequestError> {
        common::call_of(request, method, params)
    }

    #[test]
    fn each_of_the_four_decisions_is_understood_and_nothing_else() {
        let decided = |word: &str| {
            let params = format!(r#"{{"sessionId":"s","id":"perm-7","decision":"{word}"}}"#);
            check("permission/respond", &params).map(|call| {
                let Request::Answer { ask, answer, .. } = call else { panic!("{call:?}") };
                (ask, answer)
            })
        };
        assert_eq!(decided("allow"), Ok((AskId(7), PermissionAnswer::AllowOnce)));
        assert_eq!(decided("deny"), Ok((AskId(7), PermissionAnswer::DenyOnce)));
        assert_eq!(decided("always"), Ok((AskId(7), PermissionAnswer::AllowExactly)));
        assert_eq!(decided("never"), Ok((AskId(7), PermissionAnswer::DenyExactly)));
        assert!(matches!(decided("maybe"), Err(RequestError::InvalidParams(_))));
        for id in ["7", "perm-", "perm-x", "perm--1", ""] {
            let params = format!(r#"{{"sessionId":"s","id":"{id}","decision":"allow"}}"#);
            assert!(
                matches!(check("permission/respond", &params), Err(RequestError::NoSuchAsk { .. })),
                "{id}"
            );
        }
    }

    #[test]
    fn an_answer_in_otters_words_is_the_same_answer() {
        let session = SessionId::parse("s").unwrap();
        for (params, id) in [
            (r#"{"sessionId":"s","requestId":"perm-7","reply":"always"}"#, Some(&session)),
            (r#"{"requestId":"perm-7","reply":"always"}"#, None),
            (r#"{"requestId":"r7.s","reply":"always"}"#, Some(&session)),
            (r#"{"sessionId":"s","requestId":"r7.s","reply":"always"}"#, Some(&session)),
            (r#"{"id":"perm-7","decision":"always"}"#, None),
        ] {
            let call = check("permission/respond", params).unwrap();
            let Request::Answer { id: of, ask, answer } = call else { panic!("{call:?}") };
            assert_eq!(
                (of.as_ref(), ask, answer),
                (id, AskId(7), PermissionAnswer::AllowExactly),
                "{params}"
            );
        }
        let other = r#"{"sessionId":"t","requestId":"r7.s","reply":"allow"}"#;
        assert!(matches!(check("permission/respond", other), Err(RequestError::NoSuchAsk { .. })));
        let nameless = r#"{"sessionId":"s","reply":"allow"}"#;
        assert!(matches!(check("permission/respond", nameless), Err(RequestError::InvalidParams(_))));
    }

    #[test]
    fn ids_are_read_in_both_spellings_and_the_older_agents_are_modes() {
        for agent in ["build", "plan", "explore", "review", "ask"] {
            let call =
                check("session/setMode", &format!(r#"{{"session_id":"s","mode":"{agent}"}}"#)).unwrap();
            let Request::Change { id, value, .. } = call else { panic!("{call:?}") };
            assert_eq!((id, value.as_ref()), (SessionId::parse("s").unwrap(), agent));
        }
        let message = check("session/message", r#"{"sessionId":"s","text":"hi"}"#);
        assert!(matches!(message, Ok(Request::Message { .. })), "{message:?}");
        for empty in [r#"{"sessionId":"s","text":" "}"#, r#"{"sessionId":"s"}"#, r#"{"text":"hi"}"#, "[]"] {
            let refused = check("session/message", empty);
            assert!(matches!(refused, Err(RequestError::InvalidParams(_))), "{empty}: {refused:?}");
        }
        // Parameters are named: a list could be read as anything.
        let listed = check("session/setMode", r#"["ask"]"#);
        assert!(matches!(listed, Err(RequestError::InvalidParams(_))), "{listed:?}");
    }
}
