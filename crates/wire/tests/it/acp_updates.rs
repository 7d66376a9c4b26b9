//! The official dialect's output can be read by the official types, and merging loses nothing.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{
    AskId, AskRequest, Body, CallId, Content, Event, Exit, MessageId, Opaque, Origin, OutputStream, Question,
    Risk, Seq, SessionId, Snapshot, SurfaceId, TerminalId, Timestamp, ToolClass, ToolContent, ToolEnd,
    ToolKind, TurnId, approval_spec,
};
use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use wire::Encoder as _;
use wire::acp::{ClientAbilities, Updates};
use wire::{ConnectionEvent, EncodeContext, RpcId};

use crate::bodies;

fn updates(client: ClientAbilities) -> Updates {
    let specs = Arc::from([approval_spec()]);
    let snapshot = Snapshot::new(Arc::clone(&specs), "/project".into());
    Updates::of(client, &SessionId::parse("s-1").unwrap(), specs, &snapshot)
}

fn event(seq: u64, body: Body) -> Arc<Event> {
    Arc::new(Event {
        seq: Seq(seq),
        at: Timestamp(1000),
        origin: Origin::Agent,
        turn: Some(TurnId(1)),
        body,
        relayed: None,
    })
}

fn events(bodies: &[Body]) -> Vec<Arc<Event>> {
    (1..).zip(bodies).map(|(seq, body)| event(seq, body.clone())).collect()
}

/// Encodes everything, as a connection would, and returns the lines.
fn lines(updates: &mut Updates, events: &[Arc<Event>], replay: bool) -> Vec<String> {
    let mut out = Vec::new();
    let view = EncodeContext { replay, own: SurfaceId(1) };
    let mut rest = events;
    while !rest.is_empty() {
        let (taken, piece) = updates.encode(rest, view, &mut Vec::new(), &mut out);
        assert!(taken > 0);
        if let Some(ConnectionEvent::Asked { ask, request }) = piece {
            updates.ask(ask, request).write(&RpcId::number(7), &mut out);
        }
        rest = &rest[taken..];
    }
    let text = String::from_utf8(out).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

fn any_client() -> impl Strategy<Value = ClientAbilities> {
    any::<[bool; 5]>().prop_map(|[notices, compaction, terminal_output, cursors, forms]| ClientAbilities {
        notices,
        compaction,
        terminal_output,
        cursors,
        forms,
        ..ClientAbilities::default()
    })
}

/// Text with everything that needs care: quotes, control characters, characters beyond the basic plane.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,40}",
        "[\\x00-\\x1f\\x7f\"\\\\/]{0,20}",
        "[\u{10000}-\u{10ffff}\u{2028}\u{2029}\u{fffd}]{0,10}",
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
    ]
}

/// The minimum number of lines for a body on its own, sent live.
fn lines_at_least(body: &Body) -> usize {
    match body {
        Body::Text { .. }
        | Body::Thought { .. }
        | Body::Plan { .. }
        | Body::ToolStarted(_)
        | Body::ToolOutput { .. }
        | Body::ToolEnded(_)
        | Body::FileEdited { call: Some(_), .. }
        | Body::Asked { .. }
        | Body::SettingChanged { .. }
        | Body::Usage(_)
        | Body::Commands { .. }
        | Body::Title { .. }
        | Body::Notice { .. }
        | Body::Compacting { .. }
        | Body::ToolChanged(_)
        | Body::Offered { .. }
        | Body::Compacted { .. } => 1,
        Body::UserMessage { content } => content.len(),
        _ => 0,
    }
}

fn check_line(line: &str, foreign: bool) {
    let value: Value = serde_json::from_str(line).unwrap();
    assert_eq!(value["jsonrpc"], "2.0");
    match value["method"].as_str().unwrap() {
        "session/update" => {
            let parsed = serde_json::from_value::<schema::SessionNotification>(value["params"].clone());
            assert!(foreign || parsed.is_ok(), "{line}: {parsed:?}");
        }
        "session/request_permission" => {
            let params = value["params"].clone();
            serde_json::from_value::<schema::RequestPermissionRequest>(params).unwrap();
            assert_eq!(value["id"], 7);
        }
        "elicitation/create" => {
            let params = value["params"].clone();
            serde_json::from_value::<schema::CreateElicitationRequest>(params).unwrap();
            assert_eq!(value["id"], 7);
        }
        other => panic!("{other} is not ours to send"),
    }
}

proptest! {
    #[test]
    fn a_chunk_is_what_the_schema_itself_would_write(text in any_text(), id in any::<u64>(), thought in any::<bool>()) {
        let body = if thought {
            Body::Thought { message: MessageId(id), text: text.as_str().into() }
        } else {
            Body::Text { message: MessageId(id), text: text.as_str().into() }
        };
        let ours = lines(&mut updates(ClientAbilities::default()), &events(&[body]), false);
        let chunk = schema::ContentChunk::new(schema::ContentBlock::from(text))
            .message_id(schema::MessageId::new(format!("m{id}")));
        let update = if thought {
            schema::SessionUpdate::AgentThoughtChunk(chunk)
        } else {
            schema::SessionUpdate::AgentMessageChunk(chunk)
        };
        let params = schema::SessionNotification::new(schema::SessionId::new("s-1"), update);
        let params = serde_json::to_string(&params).unwrap();
        let theirs = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
        prop_assert_eq!(ours, [theirs]);
    }

    #[test]
    fn every_body_becomes_lines_that_the_schema_understands(
        bodies in vec(bodies::any_body(), 1..6), client in any_client(), replay in any::<bool>(),
    ) {
        for line in lines(&mut updates(client), &events(&bodies), replay) {
            let foreign = bodies.iter().any(|body| matches!(body, Body::Foreign { .. }));
            check_line(&line, foreign);
        }
    }

    #[test]
    fn no_body_is_lost(body in bodies::any_body(), client in any_client()) {
        let shown = lines(&mut updates(client), &events(std::slice::from_ref(&body)), false);
        prop_assert!(shown.len() >= lines_at_least(&body), "{body:?} became {shown:?}");
    }

    #[test]
    fn merging_changes_neither_the_text_nor_its_order(
        said in vec((0..3u64, any::<bool>(), prop_oneof![any_text(), Just("x".repeat(20_000))]), 0..20),
        cuts in vec(1..6usize, 1..10),
    ) {
        let body = |(message, thought, text): &(u64, bool, String)| {
            let (message, text) = (MessageId(*message), text.as_str().into());
            if *thought { Body::Thought { message, text } } else { Body::Text { message, text } }
        };
        let events = events(&said.iter().map(body).collect::<Vec<_>>());
        let mut updates = updates(ClientAbilities::default());
        let (mut rest, mut shown) = (events.as_slice(), Vec::new());
        for cut in cuts.into_iter().cycle() {
            if rest.is_empty() { break; }
            let (batch, later) = rest.split_at(cut.min(rest.len()));
            shown.extend(lines(&mut updates, batch, false));
            rest = later;
        }
        let heard = shown.iter().map(|line| {
            let update = &serde_json::from_str::<Value>(line).unwrap()["params"]["update"];
            let id = update["messageId"].as_str().unwrap().strip_prefix('m').unwrap().parse().unwrap();
            let text = update["content"]["text"].as_str().unwrap().to_owned();
            (id, update["sessionUpdate"] == "agent_thought_chunk", text)
        });
        prop_assert_eq!(joined(heard), joined(said.into_iter()));
    }
}

/// Merges adjacent chunks of one message.
fn joined(said: impl Iterator<Item = (u64, bool, String)>) -> Vec<(u64, bool, String)> {
    let mut all: Vec<(u64, bool, String)> = Vec::new();
    for (message, thought, text) in said {
        match all.last_mut() {
            Some(last) if (last.0, last.1) == (message, thought) => last.2.push_str(&text),
            _ => all.push((message, thought, text)),
        }
    }
    all
}

fn command_in_a_terminal() -> Vec<Arc<Event>> {
    let call = || CallId("c1".into());
    let end = ToolEnd {
        content: vec![ToolContent::Block(Content::text("hello"))],
        exit: Some(Exit { code: Some(0), signal: None }),
        elapsed_ms: 5,
        ..ToolEnd::of(call())
    };
    let output = Body::ToolOutput { call: call(), stream: OutputStream::Stdout, text: "hello".into() };
    let terminal = TerminalId("t1".into());
    events(&[
        Body::ToolTerminal { call: call(), terminal, surface: SurfaceId(1) },
        output,
        Body::ToolEnded(Box::new(end)),
    ])
}

#[test]
fn only_the_client_that_has_a_terminal_is_shown_it_and_history_never_names_it() {
    let shown = |replay, own| {
        let mut updates = updates(ClientAbilities::default());
        let mut out = Vec::new();
        let view = EncodeContext { replay, own: SurfaceId(own) };
        updates.encode(&command_in_a_terminal(), view, &mut Vec::new(), &mut out);
        String::from_utf8(out).unwrap()
    };
    expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","content":[{"type":"terminal","terminalId":"t1"}]}}}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"terminal","terminalId":"t1"}],"_meta":{"elapsedMs":5,"claudeCode":{"elapsedMs":5,"toolResponse":"hello"},"exitCode":0}}}}
    "#]].assert_eq(&shown(false, 1));
    for other in [shown(false, 2), shown(true, 1)] {
        assert!(!other.contains("terminalId") && other.contains("hello"), "{other}");
    }
}

fn asked(client: ClientAbilities, choices: &[&str], free_text: bool) -> String {
    let choices = choices.iter().map(|choice| (*choice).into()).collect();
    let request = AskRequest {
        call: Some(CallId("c1".into())),
        tool: "ask_user".into(),
        title: "Which colour?".into(),
        kind: ToolKind::Other,
        class: ToolClass::Read,
        path: None,
        subject: "ask_user".into(),
        input: Opaque("{}".into()),
        risk: Risk::Low,
        reason: "".into(),
        preview: Vec::new(),
        question: Some(Question { text: "Which colour?".into(), choices, free_text }),
        foreign: None,
        consent: None,
        rule: None,
    };
    let mut out = Vec::new();
    updates(client).ask(AskId(1), &request).write(&RpcId::number(7), &mut out);
    let line = String::from_utf8(out).unwrap();
    check_line(&line, false);
    line
}

#[test]
fn a_question_is_a_form_where_there_are_forms() {
    let forms = ClientAbilities { forms: true, ..ClientAbilities::default() };
    let ask = |choices: &[&str], free_text| asked(forms, choices, free_text);
    expect![[r#"
        {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","sessionId":"s-1","toolCallId":"c1","requestedSchema":{"type":"object","properties":{"answer":{"type":"string","title":"Answer","enum":["red","green"]}},"required":["answer"]},"message":"Which colour?"}}
        {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","sessionId":"s-1","toolCallId":"c1","requestedSchema":{"type":"object","properties":{"answer":{"type":"string","title":"Answer","enum":["red"]},"other":{"type":"string","title":"Something else"}}},"message":"Which colour?"}}
        {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","sessionId":"s-1","toolCallId":"c1","requestedSchema":{"type":"object","properties":{"answer":{"type":"string","title":"Answer"}},"required":["answer"]},"message":"Which colour?"}}
    "#]].assert_eq(&(ask(&["red", "green"], false) + &ask(&["red"], true) + &ask(&[], true)));
}

#[test]
fn a_question_is_a_choice_of_options_where_there_are_no_forms() {
    let ask = |choices: &[&str], free_text| asked(ClientAbilities::default(), choices, free_text);
    expect![[r#"
        {"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"c1","kind":"other","status":"pending","title":"Which colour?","content":[{"type":"content","content":{"type":"text","text":"Which colour?"}}],"rawInput":{}},"options":[{"optionId":"choice-0","name":"red","kind":"allow_once"},{"optionId":"choice-1","name":"green","kind":"allow_once"},{"optionId":"decide","name":"Let the agent decide","kind":"reject_once"}]}}
        {"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"c1","kind":"other","status":"pending","title":"Which colour?","content":[{"type":"content","content":{"type":"text","text":"Which colour?"}}],"rawInput":{}},"options":[{"optionId":"in_chat","name":"Answer in the chat","kind":"reject_once"},{"optionId":"decide","name":"Let the agent decide","kind":"reject_once"}]}}
    "#]].assert_eq(&(ask(&["red", "green"], false) + &ask(&[], true)));
}

/// The button shows what an answer for good would allow, exactly as wide as its rule.
#[test]
fn the_options_for_good_say_the_rule_that_they_write() {
    let named = |kind, rule: Option<&str>, session_only: bool| {
        let request = AskRequest {
            rule: rule.map(Into::into),
            kind,
            path: (kind == ToolKind::Edit).then(|| "/w/src/a.rs".into()),
            ..AskRequest::new("shell", "git push origin main", ToolClass::Execute)
        };
        let mut updates = wire::Updates::Acp(Box::new(updates(ClientAbilities::default())));
        if session_only {
            updates.keep_for_session();
        }
        let wire::AskFrame::Request(frame) = updates.ask(AskId(1), &request) else { unreachable!() };
        let mut out = Vec::new();
        frame.write(&RpcId::number(7), &mut out);
        let line = String::from_utf8(out).unwrap();
        check_line(&line, false);
        let asked: Value = serde_json::from_str(&line).unwrap();
        let names = ["allow_once", "allow_always", "reject_once", "reject_always"].map(|id| {
            let options = asked["params"]["options"].as_array().unwrap();
            options.iter().find(|option| option["optionId"] == id).unwrap()["name"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        assert_eq!((names[0].as_str(), names[2].as_str()), ("Allow", "Reject"));
        let kept = names[1].strip_prefix("Always allow ").unwrap();
        assert_eq!(names[3].strip_prefix("Never allow "), Some(kept));
        let told = asked["params"]["_meta"]["rule"].as_str();
        assert_eq!(told, rule.filter(|_| !session_only));
        kept.to_owned()
    };
    use ToolKind::{Edit, Execute, Other};
    assert_eq!(named(Execute, Some("shell(cargo test:*)"), false), "`cargo test …`");
    assert_eq!(named(Execute, Some("shell(git push origin main)"), false), "exactly this command");
    assert_eq!(named(Execute, None, false), "exactly this command");
    assert_eq!(named(Edit, Some("edit(src/a.rs)"), false), "`edit(src/a.rs)`");
    assert_eq!(named(Edit, Some("edit(src/a.rs)"), true), "changes to this file in this session");
    assert_eq!(named(Other, Some("mcp__s__t"), false), "every use of mcp__s__t");
    assert_eq!(named(Other, Some(&format!("mcp__s__t({})", "x".repeat(100))), false), "exactly this");
    assert_eq!(named(Execute, Some("shell(cargo test:*)"), true), "exactly this command in this session");
}

/// Editors show the content of the request, so the warning is in it; also in another agent's own request.
#[test]
fn a_request_that_is_asked_because_rules_cannot_be_read_says_so() {
    let reason = format!("{} (~/permissions.toml: line 2 is not TOML)", engine::RULES_UNREADABLE);
    let request =
        AskRequest { reason: reason.as_str().into(), ..AskRequest::new("shell", "ls", ToolClass::Execute) };
    let params = r#"{"sessionId":"x","toolCall":{"toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"theirs"}}]},"options":[]}"#;
    let foreign = |params: &str| {
        let foreign = engine::ForeignAsk { options: Vec::new(), params: Opaque(params.into()) };
        AskRequest { foreign: Some(Box::new(foreign)), ..request.clone() }
    };
    let bare = foreign(r#"{"sessionId":"x","toolCall":{"toolCallId":"t"},"options":[]}"#);
    for request in [request.clone(), foreign(params), bare] {
        let mut out = Vec::new();
        updates(ClientAbilities::default()).ask(AskId(1), &request).write(&RpcId::number(7), &mut out);
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["params"]["toolCall"]["content"][0]["content"]["text"], reason, "{value}");
    }
}

#[test]
fn what_another_agent_sent_stays_on_one_line() {
    let payload = "{\"sessionUpdate\":\"new_thing\",\r\n \"_meta\":{\"x\":[1,\n2]},\"text\":\"a\\nb\"}";
    let body = Body::Foreign { payload: engine::Opaque(payload.into()) };
    let shown = lines(&mut updates(ClientAbilities::default()), &events(&[body]), false);
    assert_eq!(shown.len(), 1);
    let value: Value = serde_json::from_str(&shown[0]).unwrap();
    assert_eq!(value["params"]["update"], serde_json::from_str::<Value>(payload).unwrap());
}

/// Another agent's update is relayed unchanged, with our session id.
#[test]
fn the_words_of_another_agent_are_shown_word_for_word() {
    let said = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"},"_meta":{"x":[1]},"new":null}"#;
    let piece = |seq, text: &str, relayed: Option<&str>| {
        let body = Body::Text { message: engine::MessageId(1), text: text.into() };
        let event =
            Event { relayed: relayed.map(|text| engine::Opaque(text.into())), ..(*event(seq, body)).clone() };
        Arc::new(event)
    };
    let log =
        [piece(1, "one ", None), piece(2, "a", Some(said)), piece(3, "two ", None), piece(4, "three", None)];
    for replay in [false, true] {
        let shown = lines(&mut updates(ClientAbilities::default()), &log, replay);
        let shown: Vec<Value> = shown.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(shown.len(), 3, "{shown:#?}");
        assert_eq!(shown[1]["params"]["update"], serde_json::from_str::<Value>(said).unwrap());
        assert_eq!(shown[1]["params"]["sessionId"], "s-1");
        assert_eq!(shown[2]["params"]["update"]["content"]["text"], "two three");
    }
}

/// Its terminals no longer exist when the session is replayed: then the call is encoded in our own form.
#[test]
fn a_terminal_that_is_gone_is_not_shown_again() {
    let said = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","content":[{"type":"terminal","terminalId":"t"}]}"#;
    let change = engine::ToolChange {
        title: Some("runs".into()),
        ..engine::ToolChange::of(engine::CallId("c".into()))
    };
    let told = event(1, Body::ToolChanged(Box::new(change)));
    let told = [Arc::new(Event { relayed: Some(engine::Opaque(said.into())), ..(*told).clone() })];
    let live = lines(&mut updates(ClientAbilities::default()), &told, false).concat();
    assert!(live.contains("terminalId"), "{live}");
    let again = lines(&mut updates(ClientAbilities::default()), &told, true).concat();
    assert!(!again.contains("terminalId") && again.contains("runs"), "{again}");
}

/// Token counts of the whole turn, after each model call; cache tokens only if there is a cache.
#[test]
fn usage_tells_the_turns_tokens_in_zephs_names() {
    let call = |input, cache_read| {
        let usage = engine::Usage {
            input,
            output: 2,
            cache_read,
            cache_write: cache_read,
            ..engine::Usage::default()
        };
        Body::Usage(usage)
    };
    let bodies = [call(5, 0), call(7, 3)];
    let plain = serde_json::json!({ "input_tokens": 5, "output_tokens": 2 });
    let cached = serde_json::json!({
        "input_tokens": 12, "output_tokens": 4, "cache_read_tokens": 3, "cache_write_tokens": 3,
    });
    let official = told(ClientAbilities::default(), &bodies, false);
    assert_eq!([&official[0]["_meta"], &official[1]["_meta"]], [&plain, &cached]);
    let zephs = told(ClientAbilities { zeph: true, ..ClientAbilities::default() }, &bodies, false);
    for (update, tokens) in zephs.iter().zip([plain, cached]) {
        assert_eq!(update["sessionUpdate"], "usage_update");
        assert!(update["used"].is_u64() && update["size"].is_u64(), "{update}");
        for name in ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"] {
            assert_eq!(update.get(name), tokens.get(name), "{update}");
        }
    }
}

/// A strict client accepts nothing else as an update, whoever sends it.
#[test]
fn an_external_agents_bare_values_reach_clients_in_objects() {
    let relayed = |said: Value| {
        let told = event(1, Body::ToolEnded(Box::new(ended("c", "x"))));
        let told = [Arc::new(Event { relayed: Some(Opaque(said.to_string().into())), ..(*told).clone() })];
        let line = lines(&mut updates(ClientAbilities::default()), &told, false).concat();
        serde_json::from_str::<Value>(&line).unwrap()["params"]["update"].take()
    };
    let update = |raw: Value| {
        serde_json::json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "rawInput": raw, "rawOutput": raw, "_meta": { "n": 1.50 } })
    };
    for raw in [serde_json::json!("done"), serde_json::json!(["a"]), serde_json::json!(7)] {
        let told = relayed(update(raw.clone()));
        let mut expected = update(Value::Null);
        expected["rawInput"] = serde_json::json!({ "input": raw });
        expected["rawOutput"] = serde_json::json!({ "output": raw });
        assert_eq!(told, expected);
    }
    let told = relayed(update(Value::Null));
    assert!(told.get("rawInput").is_none() && told.get("rawOutput").is_none(), "{told}");
    let object = update(serde_json::json!({ "ok": true }));
    assert_eq!(relayed(object.clone()), object);
}

/// The same in permission requests.
#[test]
fn an_external_agents_question_names_its_call_with_objects() {
    let params = serde_json::json!({ "toolCall": { "toolCallId": "c", "rawInput": "ls" }, "options": [] });
    let foreign = engine::ForeignAsk { options: Vec::new(), params: Opaque(params.to_string().into()) };
    let request =
        AskRequest { foreign: Some(Box::new(foreign)), ..AskRequest::new("t", "t", ToolClass::Execute) };
    let mut out = Vec::new();
    updates(ClientAbilities::default()).ask(AskId(1), &request).write(&RpcId::number(7), &mut out);
    let asked: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(asked["params"]["toolCall"]["rawInput"], serde_json::json!({ "input": "ls" }));
}

/// The updates that a connection gets for these bodies.
fn told(client: ClientAbilities, bodies: &[Body], replay: bool) -> Vec<Value> {
    let update = |line: &String| {
        check_line(line, false);
        let mut value: Value = serde_json::from_str(line).unwrap();
        value["params"]["update"].take()
    };
    lines(&mut updates(client), &events(bodies), replay).iter().map(update).collect()
}

fn started(call: &str, tool: &str, kind: ToolKind, input: &str) -> Body {
    Body::ToolStarted(Box::new(engine::ToolStart {
        kind,
        input: Opaque(input.into()),
        ..engine::ToolStart::new(CallId(call.into()), tool.into(), "title".into())
    }))
}

fn command(call: &str) -> Body {
    started(call, "shell", ToolKind::Execute, r#"{"command":"make"}"#)
}

fn wrote(call: &str, text: &str) -> Body {
    Body::ToolOutput { call: CallId(call.into()), stream: OutputStream::Stdout, text: text.into() }
}

fn ended(call: &str, text: &str) -> ToolEnd {
    ToolEnd {
        content: vec![ToolContent::Block(Content::text(text))],
        elapsed_ms: 5,
        ..ToolEnd::of(CallId(call.into()))
    }
}

fn exited(call: &str, text: &str) -> Body {
    let exit = Some(Exit { code: Some(0), signal: None });
    Body::ToolEnded(Box::new(ToolEnd { exit, ..ended(call, text) }))
}

fn text_of(update: &Value) -> &str {
    update["content"][0]["content"]["text"].as_str().unwrap()
}

const WITH_TERMINALS: ClientAbilities = ClientAbilities {
    terminal_output: true,
    notices: false,
    compaction: false,
    cursors: false,
    forms: false,
    host: engine::HostAbilities { read: false, write: false, terminal: false, typing: false },
    zeph: false,
};

/// Zed creates a terminal for the `terminal_info` of a `tool_call`, shows it only where content embeds it,
/// and removes it if later content does not.
#[test]
fn a_client_with_terminals_is_shown_a_command_in_one_to_its_end_and_in_history_too() {
    let bodies = [command("c"), wrote("c", "one\n"), wrote("c", "two\n"), exited("c", "one\ntwo\n")];
    let terminal = serde_json::json!([{ "type": "terminal", "terminalId": "c" }]);
    for replay in [false, true] {
        let told = told(WITH_TERMINALS, &bodies, replay);
        assert_eq!(told.len(), 4, "{told:#?}");
        assert_eq!(
            told[0]["_meta"]["terminal_info"],
            serde_json::json!({ "terminal_id": "c", "cwd": "/project" })
        );
        assert_eq!(told[0]["content"], terminal);
        let data: Vec<_> =
            told[1..3].iter().map(|update| &update["_meta"]["terminal_output"]["data"]).collect();
        assert_eq!(data, ["one\n", "two\n"]);
        assert_eq!(told[1]["content"], terminal, "a question may have been shown in its place");
        assert_eq!(told[2].get("content"), None);
        assert_eq!(told[3]["content"], terminal);
        assert_eq!(told[3]["status"], "completed");
        assert_eq!(
            told[3]["_meta"]["terminal_exit"],
            serde_json::json!({ "terminal_id": "c", "exit_code": 0, "signal": null })
        );
    }
}

/// No other terminal is announced for a command that is about to run in the client's own terminal: it would
/// stay empty. Other clients, and the history, have its output in a terminal of theirs.
#[test]
fn a_command_in_the_clients_own_terminal_is_announced_to_others_alone() {
    let begun = |own: u64| {
        let Body::ToolStarted(start) = command("c") else { unreachable!() };
        Body::ToolStarted(Box::new(engine::ToolStart { client_terminal: Some(SurfaceId(own)), ..*start }))
    };
    let in_terminal = |own: u64| {
        let (call, terminal) = (CallId("c".into()), TerminalId("T1".into()));
        Body::ToolTerminal { call, terminal, surface: SurfaceId(own) }
    };
    let shown = |own: u64, replay| {
        told(WITH_TERMINALS, &[begun(own), in_terminal(own), wrote("c", "hi\n"), exited("c", "hi\n")], replay)
    };
    let own = shown(1, false);
    let embedded: Vec<_> = own.iter().map(|update| &update["content"][0]["terminalId"]).collect();
    assert_eq!(embedded, [&Value::Null, &"T1".into(), &"T1".into()], "{own:#?}");
    for update in &own {
        let words = ["terminal_info", "terminal_output", "terminal_exit"];
        assert!(words.iter().all(|word| update["_meta"].get(word).is_none()), "{update}");
    }
    for others in [shown(2, false), shown(1, true)] {
        assert_eq!(others[0]["_meta"]["terminal_info"]["terminal_id"], "c", "{others:#?}");
        assert_eq!(others[1]["_meta"]["terminal_output"]["data"], "hi\n", "{others:#?}");
        assert_eq!(others[2]["_meta"]["terminal_exit"]["exit_code"], 0, "{others:#?}");
    }
    // The terminal could not be opened there after all, and the command ran here: its output is sent as
    // text.
    let fell_back = told(WITH_TERMINALS, &[begun(1), wrote("c", "hi\n"), exited("c", "hi\n")], false);
    assert!(text_of(fell_back.last().unwrap()).contains("hi"), "{fell_back:#?}");
}

/// E25: an update of a newer kind is replaced by kinds of the first version for a client that cannot show
/// it, so that such a client still shows all text.
#[test]
fn a_client_that_can_nothing_else_is_told_everything_in_kinds_that_every_client_knows() {
    let said = [
        Body::Text { message: MessageId(1), text: "the answer".into() },
        Body::Thought { message: MessageId(2), text: "a thought".into() },
        Body::Notice { level: engine::NoticeLevel::Warning, text: "a notice".into() },
        Body::Compacting { given_up: false },
        Body::Compacted { summary: "a summary".into() },
        command("c"),
        wrote("c", "some output"),
        exited("c", "some output"),
    ];
    let kinds = |client| -> Vec<(String, String)> {
        let told = told(client, &said, false);
        let kind = |update: &Value| update["sessionUpdate"].as_str().unwrap().to_owned();
        told.iter().map(|update| (kind(update), update.to_string())).collect()
    };
    let plain = kinds(ClientAbilities::default());
    let known = ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"];
    assert!(plain.iter().all(|(kind, _)| known.contains(&kind.as_str())), "{plain:#?}");
    for (text, expected) in [
        ("the answer", "agent_message_chunk"),
        ("a thought", "agent_thought_chunk"),
        ("a notice", "agent_thought_chunk"),
        ("a summary", "agent_thought_chunk"),
        ("some output", "tool_call_update"),
    ] {
        let found = plain.iter().find(|(_, update)| update.contains(text));
        assert_eq!(found.map(|(kind, _)| kind.as_str()), Some(expected), "{text}: {plain:#?}");
    }
    let able = kinds(ClientAbilities { notices: true, compaction: true, ..ClientAbilities::default() });
    let has = |kind: &str| able.iter().any(|(found, _)| found == kind);
    assert!(has("notice") && has("compaction_update"), "{able:#?}");
}

/// Editors show no thoughts outside a turn, or treat them as an error of the agent.
#[test]
fn a_notice_outside_a_turn_is_told_as_a_thought_with_the_next_turn() {
    let outside = |seq, body| {
        let Event { at, origin, relayed, .. } = (*event(seq, Body::TurnStarted)).clone();
        Arc::new(Event { seq: Seq(seq), at, origin, turn: None, body, relayed })
    };
    let notice = Body::Notice { level: engine::NoticeLevel::Warning, text: "careful".into() };
    let said = [outside(1, notice.clone()), event(2, Body::TurnStarted), outside(3, notice)];
    let mut encoder = updates(ClientAbilities::default());
    assert_eq!(lines(&mut encoder, &said[..1], false), Vec::<String>::new());
    let told = lines(&mut encoder, &said[1..2], false);
    assert!(
        told.len() == 1 && told[0].contains("agent_thought_chunk") && told[0].contains("careful"),
        "{told:?}"
    );
    assert_eq!(lines(&mut encoder, &said[2..], false).len(), 1, "a turn runs");
    // In a history it is where it was sent.
    assert_eq!(lines(&mut updates(ClientAbilities::default()), &said[..1], true).len(), 1);
}

/// The request's content replaces the terminal; once allowed, the terminal is back.
#[test]
fn a_command_that_was_asked_about_is_shown_in_its_terminal_again() {
    let mut updates = updates(WITH_TERMINALS);
    lines(&mut updates, &events(&[command("c")]), false);
    let mut out = Vec::new();
    updates.in_progress(&CallId("c".into()), &mut out);
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["params"]["update"]["content"][0]["terminalId"], "c", "{value}");
}

#[test]
fn a_terminal_is_shown_for_commands_alone_and_what_has_no_exit_is_told_as_text() {
    // Another tool of this kind: nothing is written, and its result is text.
    let told_jobs = told(
        WITH_TERMINALS,
        &[started("j", "jobs", ToolKind::Execute, "{}"), Body::ToolEnded(Box::new(ended("j", "none run")))],
        false,
    );
    assert_eq!(told_jobs[0].get("content"), None, "{told_jobs:?}");
    assert_eq!(text_of(&told_jobs[1]), "none run");
    // It never ran.
    let refused =
        told(WITH_TERMINALS, &[command("c"), Body::ToolEnded(Box::new(ended("c", "not allowed")))], false);
    assert_eq!(text_of(&refused[1]), "not allowed");
    // It was cut off: its output stays, followed by the reason of its end.
    let cut = told(
        WITH_TERMINALS,
        &[command("c"), wrote("c", "x"), Body::ToolEnded(Box::new(ended("c", "the turn ended")))],
        false,
    );
    assert_eq!(cut[2]["content"][0]["terminalId"], "c");
    assert_eq!(cut[2]["content"][1]["content"]["text"], "the turn ended");
    // Its output was sent only at its end.
    let late = told(WITH_TERMINALS, &[command("c"), exited("c", "all of it")], false);
    assert_eq!(late[1]["_meta"]["terminal_output"]["data"], "all of it");
    assert_eq!(late[2]["content"][0]["terminalId"], "c");
}

/// Clients render text as Markdown.
#[test]
fn what_commands_write_and_files_hold_is_fenced_and_what_is_markdown_is_not() {
    let plain = ClientAbilities::default();
    let running = told(plain, &[command("c"), wrote("c", "# one\n```\n")], false);
    assert_eq!(text_of(&running[1]), "````console\n# one\n```\n````");
    let over = told(plain, &[exited("c", "# one\ntwo")], true);
    assert_eq!(text_of(&over[0]), "```console\n# one\ntwo\n```");
    let read = |path: &str| ToolEnd {
        locations: vec![engine::Location { path: path.into(), line: None }],
        ..ended("r", "fn main() {}\n")
    };
    let end = |end: ToolEnd| text_of(&told(plain, &[Body::ToolEnded(Box::new(end))], false)[0]).to_owned();
    assert_eq!(end(read("/p/a.rs")), "```rust\nfn main() {}\n```");
    assert_eq!(end(read("/p/LICENSE")), "```\nfn main() {}\n```");
    assert_eq!(end(ToolEnd { failed: true, ..read("/p/a.rs") }), "fn main() {}\n");
    assert_eq!(end(ended("t", "**said** by a sub-agent")), "**said** by a sub-agent");
    let names = || ToolEnd { plain_text: true, ..ended("l", "__init__.py\nsrc/\n") };
    assert_eq!(end(names()), "```\n__init__.py\nsrc/\n```");
    assert_eq!(end(ToolEnd { failed: true, ..names() }), "__init__.py\nsrc/\n");
}

/// A strict client accepts nothing else as an update.
#[test]
fn what_a_tool_is_given_and_gives_is_an_object_or_nothing() {
    for (input, expected) in [
        (r#"{"a":1}"#, serde_json::json!({ "a": 1 })),
        (r#""no JSON""#, serde_json::json!({ "input": "no JSON" })),
        ("not JSON", serde_json::json!({ "input": "not JSON" })),
        ("[1]", serde_json::json!({ "input": [1] })),
        ("null", serde_json::json!({})),
    ] {
        let told = told(ClientAbilities::default(), &[started("c", "t", ToolKind::Other, input)], false);
        assert_eq!(told[0]["rawInput"], expected);
        let request =
            AskRequest { input: Opaque(input.into()), ..AskRequest::new("t", "t", ToolClass::Execute) };
        let mut out = Vec::new();
        updates(ClientAbilities::default()).ask(AskId(1), &request).write(&RpcId::number(7), &mut out);
        let asked: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(asked["params"]["toolCall"]["rawInput"], expected);
    }
    for (raw, expected) in [
        (r#""done""#, Some(serde_json::json!({ "output": "done" }))),
        ("7", Some(serde_json::json!({ "output": 7 }))),
        (r#"{"ok":true}"#, Some(serde_json::json!({ "ok": true }))),
        ("null", None),
    ] {
        let end = ToolEnd { raw: Some(Opaque(raw.into())), ..ended("c", "x") };
        let told = told(ClientAbilities::default(), &[Body::ToolEnded(Box::new(end))], false);
        assert_eq!(told[0].get("rawOutput"), expected.as_ref());
    }
}
