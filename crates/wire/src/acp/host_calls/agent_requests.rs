//! The opposite direction: requests from an external agent to us as its client, and our responses.

use agent_client_protocol_schema::v1 as schema;
use engine::{Exit, HostCall, HostReply, NewTerminal, TerminalId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::json_errors;

/// A request from an external agent to its client, and the session that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentHostRequest {
    /// The agent's own session id.
    pub session: Box<str>,
    /// Paths are as the agent wrote them. A terminal without a working directory has an empty path, and one
    /// without an output limit has the maximum.
    pub call: HostCall,
}

/// Why a host request failed. The text is read by the agent's model, or in the agent's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostRequestError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Missing(String),
    #[error("not allowed: {0}")]
    Refused(String),
    #[error("the turn was cancelled")]
    Cancelled,
    #[error("{0}")]
    Failed(String),
}

impl HostRequestError {
    /// The JSON-RPC error code.
    pub fn code(&self) -> i64 {
        match self {
            Self::Invalid(_) => -32602,
            Self::Missing(_) => -32002,
            Self::Refused(_) => -32001,
            Self::Cancelled => -32800,
            Self::Failed(_) => -32603,
        }
    }
}

/// Decodes a request from an agent to its client. `None` if the method is not a host method.
pub fn host_request(
    method: &str,
    params: Option<&RawValue>,
) -> Option<Result<AgentHostRequest, HostRequestError>> {
    let wish = match method {
        "fs/read_text_file" => read(method, params).map(|asked: schema::ReadTextFileRequest| {
            let call = HostCall::ReadText { path: asked.path, line: asked.line, limit: asked.limit };
            session_request(&asked.session_id, call)
        }),
        "fs/write_text_file" => read(method, params).map(|asked: schema::WriteTextFileRequest| {
            let call = HostCall::WriteText { path: asked.path, text: asked.content.into() };
            session_request(&asked.session_id, call)
        }),
        "terminal/create" => read(method, params).map(|asked: schema::CreateTerminalRequest| {
            let variable = |variable: schema::EnvVariable| (variable.name, variable.value);
            let new = NewTerminal {
                program: asked.command,
                arguments: asked.args,
                environment: asked.env.into_iter().map(variable).collect(),
                cwd: asked.cwd.unwrap_or_default(),
                output_bytes_max: asked.output_byte_limit.unwrap_or(u64::MAX),
            };
            session_request(&asked.session_id, HostCall::CreateTerminal(new))
        }),
        "terminal/output" => read(method, params).map(|asked: schema::TerminalOutputRequest| {
            session_request(&asked.session_id, HostCall::TerminalOutput(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/wait_for_exit" => read(method, params).map(|asked: schema::WaitForTerminalExitRequest| {
            session_request(&asked.session_id, HostCall::WaitForExit(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/kill" => read(method, params).map(|asked: schema::KillTerminalRequest| {
            session_request(&asked.session_id, HostCall::KillTerminal(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/release" => read(method, params).map(|asked: schema::ReleaseTerminalRequest| {
            session_request(&asked.session_id, HostCall::ReleaseTerminal(TerminalId(asked.terminal_id.0)))
        }),
        _ => return None,
    };
    Some(wish)
}

fn session_request(session: &schema::SessionId, call: HostCall) -> AgentHostRequest {
    AgentHostRequest { session: session.0.as_ref().into(), call }
}

fn read<T: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<T, HostRequestError> {
    let params = params.map_or("{}", RawValue::get);
    json_errors::read(params, "the parameters")
        .map_err(|error| HostRequestError::Invalid(format!("{method}: {error}")))
}

/// The response to a host request that succeeded.
pub fn host_result(reply: &HostReply) -> Result<Box<RawValue>, HostRequestError> {
    match reply {
        HostReply::Done => raw(&serde_json::Map::new()),
        HostReply::Text(text) => raw(&schema::ReadTextFileResponse::new(text.as_ref())),
        HostReply::Terminal(id) => {
            raw(&schema::CreateTerminalResponse::new(schema::TerminalId::new(id.0.as_ref())))
        }
        HostReply::Output(output) => {
            raw(&schema::TerminalOutputResponse::new(output.text.as_ref(), output.truncated)
                .exit_status(output.exit.as_ref().map(status)))
        }
        HostReply::Extension(answer) => RawValue::from_string(answer.0.to_string())
            .map_err(|error| HostRequestError::Failed(error.to_string())),
        HostReply::Exit(exit) => raw(&schema::WaitForTerminalExitResponse::new(status(exit))),
    }
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, HostRequestError> {
    // Cannot happen with these types.
    serde_json::value::to_raw_value(answer).map_err(|error| HostRequestError::Failed(error.to_string()))
}

fn status(exit: &Exit) -> schema::TerminalExitStatus {
    schema::TerminalExitStatus::new()
        .exit_code(exit.code.map(i32::cast_unsigned))
        .signal(exit.signal.as_ref().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use engine::{SessionId, TerminalOutput};

    use super::super::{HostResultKind, host_reply, write_host_call};
    use super::*;
    use crate::rpc::{RpcId, RpcMessage, parse};

    /// Each side's encoder is read by the other side's decoder, in both directions.
    #[test]
    fn our_two_ends_understand_each_other() {
        let (exit, terminal) =
            (Exit { code: Some(-1), signal: Some("SIGHUP".into()) }, TerminalId("t".into()));
        let new = NewTerminal {
            program: "sh".into(),
            arguments: vec!["-c".into(), "ls".into()],
            environment: vec![("A".into(), "b".into())],
            cwd: "/w".into(),
            output_bytes_max: 100,
        };
        let output = TerminalOutput { text: "o\n".into(), truncated: true, exit: Some(exit.clone()) };
        for (call, reply) in [
            (
                HostCall::ReadText { path: "/w/a".into(), line: Some(3), limit: None },
                HostReply::Text("x".into()),
            ),
            (HostCall::WriteText { path: "/w/a".into(), text: "x\n\"".into() }, HostReply::Done),
            (HostCall::CreateTerminal(new), HostReply::Terminal(terminal.clone())),
            (HostCall::TerminalOutput(terminal.clone()), HostReply::Output(output)),
            (HostCall::WaitForExit(terminal.clone()), HostReply::Exit(exit)),
            (HostCall::KillTerminal(terminal.clone()), HostReply::Done),
            (HostCall::ReleaseTerminal(terminal), HostReply::Done),
        ] {
            let mut frame = Vec::new();
            let session = SessionId::parse("s").unwrap();
            let wanted: HostResultKind = write_host_call(&RpcId::number(1), &session, &call, &mut frame);
            let Ok(RpcMessage::Request { method, params, .. }) = parse(frame.trim_ascii_end()) else {
                panic!()
            };
            let wish = host_request(&method, params).unwrap().unwrap();
            assert_eq!(wish, AgentHostRequest { session: "s".into(), call });
            let answer = host_result(&reply).unwrap();
            assert_eq!(host_reply(wanted, Ok(&answer)), Ok(reply));
        }
    }

    #[test]
    fn what_is_left_out_has_its_meaning_and_nonsense_is_refused() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let params = raw(r#"{"sessionId":"s","command":"ls","_meta":{"x":1},"more":[]}"#);
        let wish = host_request("terminal/create", Some(&params)).unwrap().unwrap();
        let HostCall::CreateTerminal(new) = wish.call else { panic!() };
        assert_eq!((new.cwd, new.output_bytes_max), (PathBuf::new(), u64::MAX));
        for (method, params) in [
            ("fs/read_text_file", "[]"),
            ("terminal/kill", r#"{"sessionId":"s"}"#),
            ("fs/write_text_file", "{}"),
        ] {
            let refused = host_request(method, Some(&raw(params))).unwrap().unwrap_err();
            assert_eq!(refused.code(), -32602, "{refused}");
            assert!(refused.to_string().starts_with(method), "{refused}");
        }
        assert!(host_request("session/request_permission", None).is_none());
    }
}
