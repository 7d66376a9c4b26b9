//! Requests to the client: `fs/*` and `terminal/*`.

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{
    Exit, ForeignError, HostCall, HostError, HostReply, Opaque, SessionId, TerminalId, TerminalOutput,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::tool_calls::unicode_path;
use super::write_request;
use crate::rpc::RpcId;

mod agent_requests;

pub use agent_requests::{AgentHostRequest, HostRequestError, host_request, host_result};

/// Limit for the client's reason of a refusal, which is passed on to the model.
const REASON_CHARS_MAX: usize = 500;
/// Limit for a terminal id, because it is stored in the log.
const TERMINAL_ID_BYTES_MAX: usize = 256;

/// What kind of result the response to a host call must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostResultKind {
    Nothing,
    Text,
    Terminal,
    Output,
    Exit,
    Extension,
}

/// Appends the request and returns what kind of result its response must have.
pub fn write_host_call(
    id: &RpcId,
    session: &SessionId,
    call: &HostCall,
    out: &mut Vec<u8>,
) -> HostResultKind {
    let session = schema::SessionId::new(session.as_str());
    let terminal = |id: &TerminalId| schema::TerminalId::new(Arc::clone(&id.0));
    match call {
        HostCall::ReadText { path, line, limit } => {
            let params =
                schema::ReadTextFileRequest::new(session, unicode_path(path)).line(*line).limit(*limit);
            write_request(id, "fs/read_text_file", &params, out);
            HostResultKind::Text
        }
        HostCall::WriteText { path, text } => {
            let params = schema::WriteTextFileRequest::new(session, unicode_path(path), text.as_ref());
            write_request(id, "fs/write_text_file", &params, out);
            HostResultKind::Nothing
        }
        HostCall::CreateTerminal(new) => {
            let variable = |(name, value): &(String, String)| schema::EnvVariable::new(name, value);
            let params = schema::CreateTerminalRequest::new(session, new.program.clone())
                .args(new.arguments.clone())
                .env(new.environment.iter().map(variable).collect::<Vec<_>>())
                .cwd(unicode_path(&new.cwd))
                .output_byte_limit(new.output_bytes_max);
            write_request(id, "terminal/create", &params, out);
            HostResultKind::Terminal
        }
        HostCall::TerminalOutput(of) => {
            let params = schema::TerminalOutputRequest::new(session, terminal(of));
            write_request(id, "terminal/output", &params, out);
            HostResultKind::Output
        }
        HostCall::WaitForExit(of) => {
            let params = schema::WaitForTerminalExitRequest::new(session, terminal(of));
            write_request(id, "terminal/wait_for_exit", &params, out);
            HostResultKind::Exit
        }
        HostCall::KillTerminal(of) => {
            let params = schema::KillTerminalRequest::new(session, terminal(of));
            write_request(id, "terminal/kill", &params, out);
            HostResultKind::Nothing
        }
        HostCall::ReleaseTerminal(of) => {
            let params = schema::ReleaseTerminalRequest::new(session, terminal(of));
            write_request(id, "terminal/release", &params, out);
            HostResultKind::Nothing
        }
        HostCall::TypeInto { terminal: of, bytes } => {
            // This has no official form, so zeph's is used.
            let params = serde_json::json!({
                "session_id": session.0.as_ref(),
                "terminal_id": of.0.as_ref(),
                "data": STANDARD.encode(bytes),
            });
            write_request(id, "terminal/write_stdin", &params, out);
            HostResultKind::Nothing
        }
        HostCall::Extension { method, params } => {
            write_request(id, method, &raw(params), out);
            HostResultKind::Extension
        }
    }
}

/// Decodes the client's response, which may be anything.
pub fn host_reply(
    wanted: HostResultKind,
    result: Result<&RawValue, &RawValue>,
) -> Result<HostReply, HostError> {
    if wanted == HostResultKind::Extension {
        return match result {
            Ok(result) => Ok(HostReply::Extension(Opaque(result.get().into()))),
            Err(error) => Err(HostError::Foreign(foreign_error(error))),
        };
    }
    let result = result.map_err(refused)?;
    match wanted {
        // Some clients answer null where there is no result.
        HostResultKind::Nothing | HostResultKind::Extension => Ok(HostReply::Done),
        HostResultKind::Text => {
            let answer: schema::ReadTextFileResponse = read(result)?;
            Ok(HostReply::Text(answer.content.into()))
        }
        HostResultKind::Terminal => {
            let id = read::<schema::CreateTerminalResponse>(result)?.terminal_id.0;
            let fits = !id.is_empty() && id.len() <= TERMINAL_ID_BYTES_MAX;
            if fits { Ok(HostReply::Terminal(TerminalId(id))) } else { Err(HostError::Malformed) }
        }
        HostResultKind::Output => {
            let answer: schema::TerminalOutputResponse = read(result)?;
            let exit = answer.exit_status.map(exit);
            Ok(HostReply::Output(TerminalOutput {
                text: answer.output.into(),
                truncated: answer.truncated,
                exit,
            }))
        }
        HostResultKind::Exit => {
            let answer: schema::WaitForTerminalExitResponse = read(result)?;
            Ok(HostReply::Exit(exit(answer.exit_status)))
        }
    }
}

/// Parameters that were never parsed here are still written on one line.
fn raw(params: &Opaque) -> Box<RawValue> {
    let line = params.0.replace(['\n', '\r'], " ");
    RawValue::from_string(line).unwrap_or_default()
}

/// An error exactly as the other side sent it.
pub fn foreign_error(error: &RawValue) -> ForeignError {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
        #[serde(borrow, default)]
        data: Option<&'a RawValue>,
    }
    match serde_json::from_str::<Error<'_>>(error.get()) {
        Ok(Error { code, message, data }) => {
            ForeignError { code, message: message.into(), data: data.map(|data| Opaque(data.get().into())) }
        }
        Err(_) => ForeignError { code: -32603, message: "the error is malformed".into(), data: None },
    }
}

fn read<T: DeserializeOwned>(result: &RawValue) -> Result<T, HostError> {
    serde_json::from_str(result.get()).map_err(|_| HostError::Malformed)
}

fn exit(status: schema::TerminalExitStatus) -> Exit {
    // Values above `i32::MAX` are Windows exit codes; the same bits mean the same code there.
    Exit { code: status.exit_code.map(u32::cast_signed), signal: status.signal.map(Into::into) }
}

fn refused(error: &RawValue) -> HostError {
    #[derive(serde::Deserialize)]
    struct Error {
        message: String,
    }
    let message = serde_json::from_str::<Error>(error.get()).map_or_else(|_| String::new(), |e| e.message);
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = words.chars().take(REASON_CHARS_MAX).collect();
    HostError::Refused(if reason.is_empty() { "it gave no reason".into() } else { reason })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(call: &HostCall, expected: Expect) {
        let mut out = Vec::new();
        let session = SessionId::parse("s").unwrap();
        write_host_call(&RpcId::number(7), &session, call, &mut out);
        expected.assert_eq(&String::from_utf8(out).unwrap());
    }

    fn answered(wanted: HostResultKind, text: &str) -> Result<HostReply, HostError> {
        host_reply(wanted, Ok(&RawValue::from_string(text.into()).unwrap()))
    }

    #[test]
    fn each_call_has_the_form_of_the_protocol() {
        let terminal = || TerminalId("t1".into());
        check(
            &HostCall::ReadText { path: "/w/a".into(), line: Some(3), limit: Some(10) },
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a","line":3,"limit":10}}
        "#]],
        );
        check(
            &HostCall::ReadText { path: "/w/a".into(), line: None, limit: None },
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
        "#]],
        );
        check(
            &HostCall::WriteText { path: "/w/a".into(), text: "x\n\"".into() },
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"x\n\""}}
        "#]],
        );
        let new = engine::NewTerminal {
            program: "sh".into(),
            arguments: vec!["-c".into(), "ls".into()],
            environment: vec![("A".into(), "b".into())],
            cwd: "/w".into(),
            output_bytes_max: 100,
        };
        check(
            &HostCall::CreateTerminal(new),
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{"sessionId":"s","command":"sh","args":["-c","ls"],"env":[{"name":"A","value":"b"}],"cwd":"/w","outputByteLimit":100}}
        "#]],
        );
        check(
            &HostCall::TerminalOutput(terminal()),
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/output","params":{"sessionId":"s","terminalId":"t1"}}
        "#]],
        );
        check(
            &HostCall::WaitForExit(terminal()),
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/wait_for_exit","params":{"sessionId":"s","terminalId":"t1"}}
        "#]],
        );
        check(
            &HostCall::KillTerminal(terminal()),
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/kill","params":{"sessionId":"s","terminalId":"t1"}}
        "#]],
        );
        check(
            &HostCall::ReleaseTerminal(terminal()),
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/release","params":{"sessionId":"s","terminalId":"t1"}}
        "#]],
        );
        check(
            &HostCall::TypeInto { terminal: terminal(), bytes: b"ls\n".as_slice().into() },
            expect![[r#"
            {"jsonrpc":"2.0","id":7,"method":"terminal/write_stdin","params":{"session_id":"s","terminal_id":"t1","data":"bHMK"}}
        "#]],
        );
    }

    #[test]
    fn answers_are_read_and_nonsense_is_refused() {
        use HostResultKind::{Nothing, Output, Terminal, Text};
        assert_eq!(answered(Nothing, "null"), Ok(HostReply::Done));
        assert_eq!(answered(Text, r#"{"content":"x","more":1}"#), Ok(HostReply::Text("x".into())));
        let terminal = HostReply::Terminal(TerminalId("t".into()));
        assert_eq!(answered(Terminal, r#"{"terminalId":"t"}"#), Ok(terminal));
        let ended = Exit { code: Some(1), signal: None };
        let output = TerminalOutput { text: "o".into(), truncated: true, exit: Some(ended.clone()) };
        let text = r#"{"output":"o","truncated":true,"exitStatus":{"exitCode":1}}"#;
        assert_eq!(answered(Output, text), Ok(HostReply::Output(output)));
        assert_eq!(answered(HostResultKind::Exit, r#"{"exitCode":1}"#), Ok(HostReply::Exit(ended)));
        let killed = Exit { code: None, signal: Some("SIGKILL".into()) };
        assert_eq!(answered(HostResultKind::Exit, r#"{"signal":"SIGKILL"}"#), Ok(HostReply::Exit(killed)));
        for (wanted, text) in
            [(Text, "null"), (Text, r#"{"content":1}"#), (Terminal, r#"{"terminalId":""}"#), (Output, "[]")]
        {
            assert_eq!(answered(wanted, text), Err(HostError::Malformed), "{text}");
        }
        let long = RawValue::from_string(format!(r#"{{"terminalId":"{}"}}"#, "x".repeat(300))).unwrap();
        assert_eq!(host_reply(Terminal, Ok(&long)), Err(HostError::Malformed));
    }

    #[test]
    fn a_refusal_is_told_in_one_short_line() {
        let refused =
            |text: String| host_reply(HostResultKind::Text, Err(&RawValue::from_string(text).unwrap()));
        let said = |text: &str| Err(HostError::Refused(text.into()));
        assert_eq!(refused(r#"{"code":1,"message":"no\n such  file"}"#.into()), said("no such file"));
        assert_eq!(refused("7".into()), said("it gave no reason"));
        let long = refused(format!(r#"{{"message":"{}"}}"#, "é".repeat(9000)));
        assert_eq!(long, said(&"é".repeat(REASON_CHARS_MAX)));
    }
}
