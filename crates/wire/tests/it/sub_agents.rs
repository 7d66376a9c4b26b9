//! What a sub-agent does is shown under the call that it works for, in every dialect and every form, and
//! is never taken for the agent's answer.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{
    Body, CallId, Content, Event, Exit, MessageId, Origin, OutputStream, Principal, Seq, SessionId,
    SessionRow, Snapshot, Stop, SurfaceId, Timestamp, ToolContent, ToolEnd, ToolKind, ToolStart, TurnId,
    Usage, approval_spec,
};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::Encoder as _;
use wire::acp::ClientAbilities;
use wire::rest::{Messages, RestStream, StreamFormat};
use wire::transcript::Transcript;
use wire::{
    EncodeContext, UpdateCount, acp, bernstein, chimera_archive, ferret, otter, transcript_html,
    transcript_markdown, transcript_text, turn_result,
};

use crate::bodies;

const OWN: SurfaceId = SurfaceId(1);

fn session() -> SessionId {
    SessionId::parse("s-1").unwrap()
}

fn snapshot() -> Snapshot {
    let begun = Snapshot::new(Arc::from([approval_spec()]), "/project".into());
    Snapshot { specs: Arc::from([]), ..begun }
}

fn call(name: &str) -> CallId {
    CallId(name.into())
}

fn task(name: &str) -> Origin {
    Origin::Task { call: call(name) }
}

fn say(message: u64, text: &str) -> Body {
    Body::Text { message: MessageId(message), text: text.into() }
}

fn start(name: &str, tool: &str, title: &str, kind: ToolKind) -> Body {
    Body::ToolStarted(Box::new(ToolStart { kind, ..ToolStart::new(call(name), tool.into(), title.into()) }))
}

fn end(name: &str, text: &str, exit: Option<Exit>) -> Body {
    Body::ToolEnded(Box::new(ToolEnd {
        failed: exit.is_some(),
        content: vec![ToolContent::Block(Content::text(text))],
        exit,
        elapsed_ms: 7,
        ..ToolEnd::of(call(name))
    }))
}

fn log(events: Vec<(Origin, Body)>) -> Vec<Arc<Event>> {
    let event = |(seq, (origin, body))| {
        Arc::new(Event {
            seq: Seq(seq),
            at: Timestamp(1000),
            origin,
            turn: Some(TurnId(1)),
            body,
            relayed: None,
        })
    };
    (1..).zip(events).map(event).collect()
}

/// Two sub-agents at once, of which one runs a command and is ended by the session itself.
fn story() -> Vec<Arc<Event>> {
    let usage = |context_used| Body::Usage(Usage { context_used, output: 5, ..Usage::default() });
    let me = || Origin::Surface { id: SurfaceId(2), name: "me".into(), request: None, remote: None };
    log(vec![
        (me(), Body::TurnStarted),
        (me(), Body::UserMessage { content: vec![Content::text("go")] }),
        (Origin::Agent, say(1, "I ask two.")),
        (Origin::Agent, usage(100)),
        (Origin::Agent, start("a", "task", "Look left", ToolKind::Think)),
        (Origin::Agent, start("b", "task", "Look right", ToolKind::Think)),
        (task("a"), Body::Thought { message: MessageId(2), text: "hm".into() }),
        (task("a"), say(3, "left ")),
        (task("b"), say(4, "right")),
        (task("a"), say(3, "side")),
        (task("a"), usage(9)),
        (task("b"), start("b1", "shell", "make", ToolKind::Execute)),
        (task("b"), Body::ToolOutput { call: call("b1"), stream: OutputStream::Stdout, text: "out".into() }),
        (Origin::Engine, end("b1", "out", Some(Exit { code: Some(3), signal: None }))),
        (Origin::Agent, end("a", "left side", None)),
        (Origin::Agent, end("b", "right", None)),
        (Origin::Agent, say(5, "Both are there.")),
        (Origin::Agent, Body::TurnEnded { stop: Stop::EndTurn, error: None }),
    ])
}

/// Each frame without what is the same in all of them.
fn frames(out: &[u8]) -> Vec<Value> {
    let frame = |line: &str| serde_json::from_str::<Value>(line).unwrap()["params"].take();
    String::from_utf8(out.to_vec()).unwrap().lines().map(frame).collect()
}

fn official(client: ClientAbilities, events: &[Arc<Event>]) -> Vec<Value> {
    let mut updates = acp::Updates::of(client, &session(), Arc::from([approval_spec()]), &snapshot());
    let (mut out, mut rest) = (Vec::new(), events);
    while !rest.is_empty() {
        let view = EncodeContext { replay: false, own: OWN };
        let (taken, _) = updates.encode(rest, view, &mut Vec::new(), &mut out);
        rest = &rest[taken..];
    }
    frames(&out)
}

#[test]
fn every_update_of_a_sub_agent_names_the_call_it_works_for() {
    let shown: String = official(ClientAbilities::default(), &story())
        .iter()
        .map(|frame| {
            let update = &frame["update"];
            let what = ["toolCallId", "content", "used"].map(|key| &update[key]);
            let what = what.into_iter().find(|value| !value.is_null()).unwrap();
            let text = what["text"].as_str().map_or_else(|| what.to_string(), str::to_owned);
            let parent = update["_meta"]["claudeCode"]["parentToolUseId"].as_str().unwrap_or("-");
            format!("{parent} {} {text}\n", update["sessionUpdate"].as_str().unwrap())
        })
        .collect();
    expect![[r#"
        - user_message_chunk go
        - agent_message_chunk I ask two.
        - usage_update 100
        - tool_call "a"
        - tool_call "b"
        a agent_thought_chunk hm
        a agent_message_chunk left 
        b agent_message_chunk right
        a agent_message_chunk side
        a usage_update 100
        b tool_call "b1"
        b tool_call_update "b1"
        - tool_call_update "a"
        - tool_call_update "b"
        - agent_message_chunk Both are there.
    "#]]
    .assert_eq(&shown);
}

#[test]
fn a_tool_call_says_what_it_is_and_how_its_terminal_goes() {
    let client = ClientAbilities { terminal_output: true, ..ClientAbilities::default() };
    let metas: String = official(client, &story())
        .iter()
        .filter(|frame| frame["update"]["toolCallId"] == "b1")
        .map(|frame| format!("{}\n", frame["update"]["_meta"]))
        .collect();
    expect![[r#"
        {"claudeCode":{"toolName":"shell","startedAt":"1970-01-01T00:00:01.000Z","parentToolUseId":"b"},"terminal_info":{"terminal_id":"b1","cwd":"/project"}}
        {"terminal_output":{"terminal_id":"b1","data":"out"},"claudeCode":{"parentToolUseId":"b"}}
        {"elapsedMs":7,"claudeCode":{"elapsedMs":7,"toolResponse":"out","parentToolUseId":"b"},"exitCode":3,"terminal_exit":{"terminal_id":"b1","exit_code":3,"signal":null}}
    "#]]
    .assert_eq(&metas);
    // A client that did not ask for it is shown the output as content, and no terminal.
    let plain = official(ClientAbilities::default(), &story());
    assert!(!plain.iter().any(|frame| frame.to_string().contains("terminal_")));
}

#[test]
fn pieces_of_two_sub_agents_are_never_put_together() {
    // A history from elsewhere may give both the same message.
    let events = log(vec![
        (task("a"), say(1, "one ")),
        (task("a"), say(1, "two")),
        (task("b"), say(1, "three")),
        (Origin::Agent, say(1, "four")),
    ]);
    let texts = |frames: Vec<Value>, path: &str| -> Vec<String> {
        frames.iter().map(|frame| frame.pointer(path).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let expected = ["one two", "three", "four"];
    assert_eq!(texts(official(ClientAbilities::default(), &events), "/update/content/text"), expected);
    let view = EncodeContext { replay: false, own: OWN };
    let mut out = Vec::new();
    ferret::Updates::of(&session(), &[approval_spec()], &snapshot()).encode(
        &events,
        view,
        &mut Vec::new(),
        &mut out,
    );
    assert_eq!(texts(frames(&out), "/text"), expected);
    let mut out = Vec::new();
    bernstein::Updates::new(&session()).encode(&events, view, &mut Vec::new(), &mut out);
    let told = frames(&out);
    assert_eq!(told[0]["delta"], json!({ "type": "text", "text": "one two" }));
    assert_eq!(told[0]["parent"], "a");
    assert_eq!(told[1]["parent"], "b");
    assert_eq!((&told[2]["delta"], told[2].get("parent")), (&json!("four"), None));
}

#[test]
fn the_older_dialects_and_the_streams_name_the_parent() {
    let events = story();
    let parent = |frame: &Value| frame["parent"].as_str().unwrap_or("-").to_owned();
    let view = EncodeContext { replay: false, own: OWN };

    let mut out = Vec::new();
    let mut ferret = ferret::Updates::of(&session(), &[approval_spec()], &snapshot());
    ferret.encode(&events, view, &mut Vec::new(), &mut out);
    let told: Vec<String> = frames(&out).iter().map(parent).collect();
    assert_eq!(told.concat(), "-----aabaabb-----", "ferret");

    let mut out = Vec::new();
    otter::Updates::new(&session(), UpdateCount::default().into()).encode(&events, &mut Vec::new(), &mut out);
    let told: Vec<String> = frames(&out).iter().map(|frame| parent(&frame["update"])).collect();
    assert_eq!(told.concat(), "------aabaabb-----", "otter");

    let mut out = Vec::new();
    bernstein::Updates::new(&session()).encode(&events, view, &mut Vec::new(), &mut out);
    let told: Vec<String> = frames(&out).iter().map(parent).collect();
    assert_eq!(told.concat(), "------aabaabb-----", "bernstein");

    let data = |form: StreamFormat| -> Vec<Value> {
        let (mut stream, mut out) = (RestStream::new(&session(), form, 0), Vec::new());
        events.iter().for_each(|event| stream.write(event, 0, &mut out));
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|d| serde_json::from_str(d).unwrap())
            .collect()
    };
    let told = data(StreamFormat::Loop);
    assert_eq!(told.iter().map(parent).collect::<String>(), "------aabaabb-------", "loop");
    assert_eq!(told.last().unwrap()["output"], "I ask two.Both are there.");
    assert_eq!(told.last().unwrap()["steps"], 2);
    let told = data(StreamFormat::Delta);
    assert_eq!(
        told.iter().map(|frame| parent(&frame["metadata"])).collect::<String>(),
        "-------aabaabb--------",
        "delta"
    );
    let steps = |kind: &str| told.iter().filter(|frame| frame["type"] == kind).count();
    assert_eq!((steps("step_start"), steps("step_end")), (2, 2));
    assert_eq!(told.last().unwrap()["metadata"]["output"], "I ask two.Both are there.");

    let messages = Messages::of(&events);
    let payload =
        |message: &Value| -> Value { serde_json::from_str(message["payload"].as_str().unwrap()).unwrap() };
    assert_eq!(messages.iter().map(|message| parent(&payload(message))).collect::<String>(), "----aabab----");
}

fn row() -> SessionRow {
    SessionRow {
        id: session(),
        owner: Principal::local(),
        cwd: "/project".into(),
        roots: Vec::new(),
        parent: None,
        source: "run".into(),
        title: Some("Two".into()),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        busy: false,
        last_seq: Seq(9),
    }
}

#[test]
fn transcripts_show_a_sub_agent_within_its_call() {
    let events = story();
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    assert_eq!(transcript.said_text(), "I ask two.\n\nBoth are there.");
    assert_eq!((transcript.totals.context_used, transcript.totals.output), (100, 10));
    expect![[r#"
        Two
        s-1  /project  1970-01-01 00:00 UTC  1 turn  10 tokens

        You (me, 1970-01-01 00:00)
          > go

        I ask two.

          ✓ Look left
            |   ~ hm
            | left side
            left side

          ✓ Look right
            | right
            |   ✗ make (exit 3)
            |     out
            right

        Both are there.
    "#]]
    .assert_eq(&transcript_text::render(&row(), &transcript, false));
    let markdown = transcript_markdown::render(&row(), &transcript);
    assert!(markdown.contains("> **shell**: `make`"), "{markdown}");
    let page = transcript_html::render(&row(), &transcript);
    assert!(page.contains("<div class=\"task\">"), "{page}");

    let told = turn_result::encode(&session(), &transcript, Stop::EndTurn, None);
    assert_eq!(told["text"], "I ask two.\n\nBoth are there.");
    let tools: Vec<String> = told["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| format!("{} in {}", tool["title"], tool["parent"]))
        .collect();
    assert_eq!(tools, [r#""Look left" in null"#, r#""Look right" in null"#, r#""make" in "b""#]);
}

#[test]
fn chimera_is_not_told_that_the_agent_said_it() {
    let folder = chimera_archive::write(&row(), &story());
    let events: Vec<Value> = folder.events.into_iter().map(|(_, event)| event).collect();
    let said: Vec<&Value> = events.iter().filter(|event| event["type"] == "text_delta").collect();
    assert_eq!(said.len(), 2);
    assert_eq!(events.last().unwrap()["metadata"]["output"], "I ask two.Both are there.");
    let nested = events.iter().filter(|event| event["metadata"]["parent"].is_string()).count();
    assert_eq!(nested, 7);
}

proptest! {
    #[test]
    fn whatever_a_sub_agent_does_the_schema_understands_it_and_it_is_marked(
        body in bodies::any_body(),
        flags in any::<[bool; 4]>(),
        parent in ".{0,12}",
    ) {
        let [notices, compaction, terminal_output, cursors] = flags;
        let client = ClientAbilities { notices, compaction, terminal_output, cursors, ..ClientAbilities::default() };
        let foreign = matches!(body, Body::Foreign { .. });
        let events = log(vec![(task(&parent), body)]);
        for frame in official(client, &events) {
            let parsed = serde_json::from_value::<schema::SessionNotification>(frame.clone());
            prop_assert!(foreign || parsed.is_ok(), "{frame}: {parsed:?}");
            if frame["update"].is_object() {
                prop_assert_eq!(&frame["update"]["_meta"]["claudeCode"]["parentToolUseId"], &json!(parent));
            }
        }
    }
}
