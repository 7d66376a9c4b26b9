//! Requests and notifications of ferret's clients, as calls.

use engine::{APPROVAL, AskId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call::{Call, Fault};
use crate::siblings;

/// The name of a question. It belongs to its session, which every answer names too.
pub(super) fn ask_name(ask: AskId) -> String {
    format!("perm-{}", ask.0)
}

pub(crate) fn request(method: &str, params: Option<&RawValue>, frame_bytes: usize) -> Result<Call, Fault> {
    match method {
        "initialize" => Ok(Call::Initialize(siblings::hello(params)?)),
        "session/setSandbox" => {
            #[derive(Deserialize)]
            struct Params {
                #[serde(alias = "mode")]
                sandbox: Option<String>,
            }
            let wanted = siblings::read::<Params>(params)?.sandbox;
            Ok(Call::Sandbox { id: siblings::named(params)?, wanted })
        }
        "session/setApproval" => {
            #[derive(Deserialize)]
            struct Params {
                #[serde(alias = "preset", alias = "mode")]
                approval: String,
            }
            let chosen: Params = siblings::read(params)?;
            Ok(siblings::set(siblings::named(params)?, APPROVAL, chosen.approval.into()))
        }
        "session/bridgeStatus" => Ok(Call::Bridge { id: siblings::named(params)? }),
        "permission/respond" => respond(params),
        _ => siblings::request(method, params, frame_bytes),
    }
}

pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
    siblings::notification(method, params)
}

fn respond(params: Option<&RawValue>) -> Result<Call, Fault> {
    #[derive(Deserialize)]
    struct Params {
        id: String,
        decision: Option<String>,
        answer: Option<String>,
    }
    let id = siblings::named(params)?;
    let params: Params = siblings::read(params)?;
    let answer = siblings::answer_in(params.decision.as_deref(), params.answer)?;
    let ask = params.id.strip_prefix("perm-").and_then(|number| number.parse().ok());
    match ask {
        Some(ask) => Ok(Call::Answer { id, ask: AskId(ask), answer }),
        None => Err(Fault::NoSuchAsk { ask: params.id.chars().take(64).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use engine::{Answer, SessionId};

    use super::*;

    fn check(method: &str, params: &str) -> Result<Call, Fault> {
        let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
        request(method, Some(&raw), params.len())
    }

    #[test]
    fn each_of_the_four_decisions_is_understood_and_nothing_else() {
        let decided = |word: &str| {
            let params = format!(r#"{{"sessionId":"s","id":"perm-7","decision":"{word}"}}"#);
            check("permission/respond", &params).map(|call| {
                let Call::Answer { ask, answer, .. } = call else { panic!("{call:?}") };
                (ask, answer)
            })
        };
        assert_eq!(decided("allow"), Ok((AskId(7), Answer::AllowOnce)));
        assert_eq!(decided("deny"), Ok((AskId(7), Answer::DenyOnce)));
        assert_eq!(decided("always"), Ok((AskId(7), Answer::AllowExactly)));
        assert_eq!(decided("never"), Ok((AskId(7), Answer::DenyExactly)));
        assert!(matches!(decided("maybe"), Err(Fault::InvalidParams(_))));
        for id in ["7", "perm-", "perm-x", "perm--1", ""] {
            let params = format!(r#"{{"sessionId":"s","id":"{id}","decision":"allow"}}"#);
            assert!(matches!(check("permission/respond", &params), Err(Fault::NoSuchAsk { .. })), "{id}");
        }
    }

    #[test]
    fn ids_are_read_in_both_spellings_and_the_older_agents_are_modes() {
        for agent in ["build", "plan", "explore", "review", "ask"] {
            let call =
                check("session/setMode", &format!(r#"{{"session_id":"s","mode":"{agent}"}}"#)).unwrap();
            let Call::Change { id, value, .. } = call else { panic!("{call:?}") };
            assert_eq!((id, value.as_ref()), (SessionId::parse("s").unwrap(), agent));
        }
        let message = check("session/message", r#"{"sessionId":"s","text":"hi"}"#);
        assert!(matches!(message, Ok(Call::Message { .. })), "{message:?}");
        for empty in [r#"{"sessionId":"s","text":" "}"#, r#"{"sessionId":"s"}"#, r#"{"text":"hi"}"#, "[]"] {
            let refused = check("session/message", empty);
            assert!(matches!(refused, Err(Fault::InvalidParams(_))), "{empty}: {refused:?}");
        }
        // Parameters have names: a list could be read as anything.
        let listed = check("session/setMode", r#"["ask"]"#);
        assert!(matches!(listed, Err(Fault::InvalidParams(_))), "{listed:?}");
    }
}
