//! The other direction: what an agent that is another program asks of us as its client, and our answers.

use agent_client_protocol_schema::v1 as schema;
use engine::{Exit, HostCall, HostReply, NewTerminal, TerminalId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::json;

/// What an agent asks for, and in which of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWish {
    /// The agent's own name for the session.
    pub session: Box<str>,
    /// Paths are as the agent wrote them. A terminal without a folder has an empty one, and one without
    /// a limit all there is.
    pub call: HostCall,
}

/// Why a wish was not fulfilled. The text is for whoever reads the agent's log, or its model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
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

impl Unserved {
    /// The protocol's number for it.
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

/// Reads a request of an agent's to its client. `None`: it is about something else.
pub fn host_wish(method: &str, params: Option<&RawValue>) -> Option<Result<HostWish, Unserved>> {
    let wish = match method {
        "fs/read_text_file" => read(method, params).map(|asked: schema::ReadTextFileRequest| {
            let call = HostCall::ReadText { path: asked.path, line: asked.line, limit: asked.limit };
            wish(&asked.session_id, call)
        }),
        "fs/write_text_file" => read(method, params).map(|asked: schema::WriteTextFileRequest| {
            let call = HostCall::WriteText { path: asked.path, text: asked.content.into() };
            wish(&asked.session_id, call)
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
            wish(&asked.session_id, HostCall::CreateTerminal(new))
        }),
        "terminal/output" => read(method, params).map(|asked: schema::TerminalOutputRequest| {
            wish(&asked.session_id, HostCall::TerminalOutput(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/wait_for_exit" => read(method, params).map(|asked: schema::WaitForTerminalExitRequest| {
            wish(&asked.session_id, HostCall::WaitForExit(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/kill" => read(method, params).map(|asked: schema::KillTerminalRequest| {
            wish(&asked.session_id, HostCall::KillTerminal(TerminalId(asked.terminal_id.0)))
        }),
        "terminal/release" => read(method, params).map(|asked: schema::ReleaseTerminalRequest| {
            wish(&asked.session_id, HostCall::ReleaseTerminal(TerminalId(asked.terminal_id.0)))
        }),
        _ => return None,
    };
    Some(wish)
}

fn wish(session: &schema::SessionId, call: HostCall) -> HostWish {
    HostWish { session: session.0.as_ref().into(), call }
}

fn read<T: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<T, Unserved> {
    let params = params.map_or("{}", RawValue::get);
    json::read(params, "the parameters").map_err(|error| Unserved::Invalid(format!("{method}: {error}")))
}

/// What is answered to a wish that was fulfilled.
pub fn host_result(reply: &HostReply) -> Result<Box<RawValue>, Unserved> {
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
        HostReply::Extension(answer) => {
            RawValue::from_string(answer.0.to_string()).map_err(|error| Unserved::Failed(error.to_string()))
        }
        HostReply::Exit(exit) => raw(&schema::WaitForTerminalExitResponse::new(status(exit))),
    }
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, Unserved> {
    // Cannot happen with these types.
    serde_json::value::to_raw_value(answer).map_err(|error| Unserved::Failed(error.to_string()))
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

    use super::super::{HostAnswer, host_reply, write_host_call};
    use super::*;
    use crate::rpc::{Message, RpcId, parse};

    /// What one side writes the other reads, in both directions.
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
            let wanted: HostAnswer = write_host_call(&RpcId::number(1), &session, &call, &mut frame);
            let Ok(Message::Request { method, params, .. }) = parse(frame.trim_ascii_end()) else { panic!() };
            let wish = host_wish(&method, params).unwrap().unwrap();
            assert_eq!(wish, HostWish { session: "s".into(), call });
            let answer = host_result(&reply).unwrap();
            assert_eq!(host_reply(wanted, Ok(&answer)), Ok(reply));
        }
    }

    #[test]
    fn what_is_left_out_has_its_meaning_and_nonsense_is_refused() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let params = raw(r#"{"sessionId":"s","command":"ls","_meta":{"x":1},"more":[]}"#);
        let wish = host_wish("terminal/create", Some(&params)).unwrap().unwrap();
        let HostCall::CreateTerminal(new) = wish.call else { panic!() };
        assert_eq!((new.cwd, new.output_bytes_max), (PathBuf::new(), u64::MAX));
        for (method, params) in [
            ("fs/read_text_file", "[]"),
            ("terminal/kill", r#"{"sessionId":"s"}"#),
            ("fs/write_text_file", "{}"),
        ] {
            let refused = host_wish(method, Some(&raw(params))).unwrap().unwrap_err();
            assert_eq!(refused.code(), -32602, "{refused}");
            assert!(refused.to_string().starts_with(method), "{refused}");
        }
        assert!(host_wish("session/request_permission", None).is_none());
    }
}
