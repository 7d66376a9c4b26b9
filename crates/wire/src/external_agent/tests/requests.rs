//! Our requests match the official schema, and its responses are understood.

use std::path::PathBuf;

use agent_client_protocol_schema::v1 as schema;
use engine::{Content, ServerTransport, SessionId, SessionSpec, Stop, ToolServer};
use expect_test::expect;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Session, raw};
use crate::external_agent::{
    AgentAbilities, BadResponse, cancel, close, fork, initialize, initialize_response, load, new_session,
    prompt, prompt_response, reaches, resume, session_response,
};

fn read<T: DeserializeOwned>(params: &Value) -> T {
    serde_json::from_value(params.clone()).unwrap()
}

fn spec() -> SessionSpec {
    SessionSpec {
        id: SessionId::parse("ours").unwrap(),
        cwd: PathBuf::from("/p"),
        roots: vec![PathBuf::from("/q")],
        within: None,
        servers: vec![
            ToolServer {
                name: "git".into(),
                transport: ServerTransport::Child {
                    command: PathBuf::from("uvx"),
                    arguments: vec!["mcp-server-git".into()],
                    environment: vec![("A".into(), "b".into())],
                },
            },
            ToolServer {
                name: "web".into(),
                transport: ServerTransport::Http {
                    url: "http://w/mcp".into(),
                    headers: vec![("X-Key".into(), "k".into())],
                },
            },
        ],
    }
}

#[test]
fn an_agent_is_greeted_with_files_and_terminals_and_nothing_else() {
    let params = initialize(true);
    let request: schema::InitializeRequest = read(&params);
    let client = request.client_capabilities;
    assert!(client.fs.read_text_file && client.fs.write_text_file && client.terminal);
    assert!(client.elicitation.is_none() && client.session.is_none());
    assert_eq!(params["clientCapabilities"]["_meta"], json!({ "terminal_output": true }));
    assert_eq!(request.client_info.unwrap().name, "ropewalk");
}

#[test]
fn sessions_are_opened_with_what_the_agent_can_take() {
    let can = AgentAbilities { http: true, additional_directories: true, ..AgentAbilities::default() };
    expect![[r#"{"cwd":"/p","mcpServers":[{"name":"git","command":"uvx","args":["mcp-server-git"],"env":[{"name":"A","value":"b"}]},{"type":"http","name":"web","url":"http://w/mcp","headers":[{"name":"X-Key","value":"k"}]}],"additionalDirectories":["/q"]}"#]]
        .assert_eq(&new_session(&spec(), &can).to_string());
    let little = new_session(&spec(), &AgentAbilities::default());
    assert_eq!(
        (little.get("additionalDirectories"), little["mcpServers"].as_array().unwrap().len()),
        (None, 1)
    );
    let sse = new_session(&spec(), &AgentAbilities { sse: true, ..AgentAbilities::default() });
    assert_eq!(sse["mcpServers"][1]["type"], "sse");
    let new: schema::NewSessionRequest = read(&new_session(&spec(), &can));
    assert_eq!((new.mcp_servers.len(), new.additional_directories.len()), (2, 1));
    let [child, web] = &spec().servers[..] else { panic!() };
    assert!(
        reaches(child, &AgentAbilities::default())
            && reaches(web, &can)
            && !reaches(web, &AgentAbilities::default())
    );
}

#[test]
fn sessions_are_brought_back_by_the_agents_name_for_them() {
    let can = AgentAbilities::default();
    let load: schema::LoadSessionRequest = read(&load(&spec(), "theirs", &can));
    let resume: schema::ResumeSessionRequest = read(&resume(&spec(), "theirs", &can));
    let fork: schema::ForkSessionRequest = read(&fork(&spec(), "theirs", &can));
    for id in [&load.session_id, &resume.session_id, &fork.session_id] {
        assert_eq!(id.0.as_ref(), "theirs");
    }
    let cancel: schema::CancelNotification = read(&cancel("theirs"));
    let close: schema::CloseSessionRequest = read(&close("theirs"));
    assert_eq!(cancel.session_id, close.session_id);
}

#[test]
fn a_prompt_holds_what_the_agent_can_take_and_names_the_rest() {
    let content = [
        Content::text("look"),
        Content::Image { mime: "image/png".into(), data: "AAAA".into(), uri: None },
        Content::Resource { uri: "file:///a".into(), mime: None, text: "what a says".into() },
    ];
    let all = AgentAbilities { images: true, embedded: true, ..AgentAbilities::default() };
    let request: schema::PromptRequest = read(&prompt("theirs", &content, &all));
    assert!(matches!(
        request.prompt[..],
        [schema::ContentBlock::Text(_), schema::ContentBlock::Image(_), schema::ContentBlock::Resource(_)]
    ));
    let texts = prompt("theirs", &content, &AgentAbilities::default());
    let texts: Vec<_> =
        texts["prompt"].as_array().unwrap().iter().map(|block| block["text"].as_str()).collect();
    assert_eq!(texts, [Some("look"), Some("[image, image/png, 3 bytes]"), Some("file:///a:\nwhat a says")]);
}

#[test]
fn what_an_agent_can_do_is_read_from_its_greeting() {
    let claude = json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "promptCapabilities": { "image": true, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": true }, "loadSession": true,
            "sessionCapabilities": { "additionalDirectories": {}, "close": {}, "fork": {}, "resume": {}, "list": null },
        },
        "agentInfo": { "name": "claude-agent-acp", "version": "0.99.1" },
        "authMethods": [{ "id": "login", "type": "terminal", "name": "Log in" }],
    });
    let (greeting, can) = initialize_response(&raw(&claude)).unwrap();
    assert_eq!(
        can,
        AgentAbilities {
            load: true,
            resume: true,
            fork: true,
            close: true,
            images: true,
            audio: false,
            embedded: true,
            http: true,
            sse: true,
            additional_directories: true,
        }
    );
    assert!(greeting.images && greeting.embedded && greeting.servers && !greeting.audio);
    let foreign = greeting.foreign.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&foreign.agent.unwrap().0).unwrap(), claude["agentInfo"]);
    assert_eq!(serde_json::from_str::<Value>(&foreign.capabilities.0).unwrap(), claude["agentCapabilities"]);
    assert_eq!(foreign.auth_methods.len(), 1);
}

/// The example agents of the official SDKs send little more than their version.
#[test]
fn an_agent_that_says_little_can_do_little() {
    let (greeting, can) = initialize_response(&raw(&json!({ "protocolVersion": 1 }))).unwrap();
    assert_eq!(can, AgentAbilities::default());
    assert_eq!(&*greeting.foreign.unwrap().capabilities.0, "{}");
}

#[test]
fn an_agent_of_another_version_is_not_spoken_to() {
    let bad = |answer: Value| initialize_response(&raw(&answer)).unwrap_err();
    assert_eq!(bad(json!({ "protocolVersion": 2 })), BadResponse::OtherVersion { found: 2 });
    for answer in [json!({}), json!(null), json!({ "protocolVersion": "1" })] {
        assert_eq!(bad(answer), BadResponse::Malformed);
    }
}

#[test]
fn a_session_is_known_by_the_agents_name_for_it() {
    let session = |answer: Value| session_response(&raw(&answer)).session;
    assert_eq!(session(json!({ "sessionId": "ses_1" })).as_deref(), Some("ses_1"));
    for answer in
        [json!({}), json!(null), json!({ "sessionId": "" }), json!({ "sessionId": "x".repeat(1000) })]
    {
        assert_eq!(session(answer), None);
    }
}

#[test]
fn the_end_of_a_turn_says_why_and_what_it_took() {
    for (answer, stop, counted) in [
        (json!({ "stopReason": "end_turn" }), Stop::EndTurn, None),
        (json!({ "stopReason": "cancelled" }), Stop::Cancelled, None),
        (json!({ "stopReason": "refusal", "usage": null }), Stop::Refusal, None),
        (
            json!({ "stopReason": "max_tokens", "usage": { "inputTokens": 200, "outputTokens": 20, "totalTokens": 220 } }),
            Stop::MaxTokens,
            Some((200, 20)),
        ),
        // Gemini.
        (
            json!({ "stopReason": "end_turn", "_meta": { "quota": { "token_count": { "input_tokens": 7, "output_tokens": 2 } } } }),
            Stop::EndTurn,
            Some((7, 2)),
        ),
        (json!({ "stopReason": "bored" }), Stop::EndTurn, None),
        (json!(null), Stop::EndTurn, None),
    ] {
        let ended = prompt_response(&raw(&answer));
        assert_eq!(
            (ended.stop, ended.usage.map(|usage| (usage.input, usage.output))),
            (stop, counted),
            "{answer}"
        );
    }
}

#[test]
fn the_tokens_of_a_turn_leave_the_context_where_it_stood() {
    let mut session = Session::default();
    session.lines(&[json!({ "sessionUpdate": "usage_update", "used": 5, "size": 9 })]);
    let answer = json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1, "outputTokens": 1 } });
    let usage = session.translator.prompt_result(&raw(&answer)).usage.unwrap();
    assert_eq!((usage.context_used, usage.context_size, usage.unpriced), (5, 9, true));
}
