//! An official client sees an external agent's updates unchanged.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use engine::{
    Body, Event, MessageId, Opaque, Origin, Seq, SessionId, SettingSpec, Snapshot, SurfaceId, Timestamp,
    TurnId, Usage, approval_spec,
};
use expect_test::expect;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::EncodeContext;
use wire::Encoder as _;
use wire::acp::{ClientAbilities, Updates};
use wire::external_agent::UpdateTranslator;
use wire::native::RowContent;
use wire::native::fold::Rows;
use wire::transcript::{Row, Transcript};

/// The log of a turn in which an agent sends these updates.
fn log(said: &[Value]) -> Vec<Arc<Event>> {
    let mut translator = UpdateTranslator::default();
    let mut messages = 0;
    let mut events: Vec<Arc<Event>> = Vec::new();
    for update in said {
        let params = json!({ "sessionId": "theirs", "update": update });
        let params = RawValue::from_string(params.to_string()).unwrap();
        let mut next = || {
            messages += 1;
            MessageId(messages)
        };
        for heard in translator.translate(&params, &mut next, true) {
            let origin = heard.parent.map_or(Origin::Agent, |call| Origin::Task { call });
            events.push(Arc::new(Event {
                seq: Seq(events.len() as u64 + 1),
                at: Timestamp(0),
                origin,
                turn: Some(TurnId(1)),
                body: heard.said.body,
                relayed: heard.said.relayed,
            }));
        }
    }
    events
}

fn snapshot() -> Snapshot {
    Snapshot::new(Arc::from([approval_spec()]), "/p".into())
}

/// The updates that a client gets, one event at a time, without our message ids.
fn shown(client: ClientAbilities, events: &[Arc<Event>], replay: bool) -> Vec<Value> {
    let snapshot = snapshot();
    let specs = Arc::clone(&snapshot.specs);
    let mut updates = Updates::of(client, &SessionId::parse("ours").unwrap(), specs, &snapshot);
    let view = EncodeContext { replay, own: SurfaceId(1) };
    let mut out = Vec::new();
    for event in events.chunks(1) {
        updates.encode(event, view, &mut Vec::new(), &mut out);
    }
    let lines = std::str::from_utf8(&out).unwrap().lines();
    let frames = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames
        .map(|mut frame| {
            assert_eq!(frame["params"]["sessionId"], "ours");
            let mut update = frame["params"]["update"].take();
            update.as_object_mut().unwrap().remove("messageId");
            update
        })
        .collect()
}

fn recorded() -> Vec<Value> {
    let text = |text: &str| json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
    vec![
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } }),
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "I write." }, "_meta": { "goose": { "created": 1 } } }),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "w", "title": "Preparing file…", "kind": "edit", "status": "pending", "content": [], "rawInput": {}, "unheard": true }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "w", "title": "Write a", "content": [{ "type": "diff", "path": "/p/a", "oldText": null, "newText": "b" }] }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "w", "status": "completed", "rawOutput": "done" }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "g", "title": "ls", "kind": "execute", "status": "completed", "content": text("out") }),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "k", "title": "Task", "status": "completed", "content": text("late") }),
        json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 0.5, "currency": "USD" }, "_meta": { "model": "m" } }),
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "high", "status": "pending" }] }),
        json!({ "sessionUpdate": "session_info_update", "title": "A title", "updatedAt": "2026-11-16T19:23:18Z" }),
        json!({ "sessionUpdate": "something_new", "with": ["anything"] }),
    ]
}

/// The agent's updates, except that strict clients need objects in some fields.
fn as_shown(said: &[Value]) -> Vec<Value> {
    let mut said = said.to_vec();
    for update in &mut said {
        if let Some(output) = update.get_mut("rawOutput").filter(|output| output.is_string()) {
            *output = json!({ "output": output.take() });
        }
    }
    said
}

#[test]
fn each_update_arrives_as_the_agent_sent_it() {
    let said = recorded();
    for terminal_output in [false, true] {
        let client = ClientAbilities { terminal_output, ..ClientAbilities::default() };
        assert_eq!(shown(client, &log(&said), false), as_shown(&said));
    }
}

/// Momentary values are not replayed: how full the context was, what it cost.
#[test]
fn history_is_what_the_agent_sent_too() {
    let said = recorded();
    let told = as_shown(&said);
    let lasting: Vec<_> = told.iter().filter(|update| update["sessionUpdate"] != "usage_update").collect();
    assert_eq!(shown(ClientAbilities::default(), &log(&said), true).iter().collect::<Vec<_>>(), lasting);
}

/// A client that loads a session has the chosen settings from the response, and the total is counted
/// already.
#[test]
fn what_history_says_of_choices_and_cost_is_not_taken_for_what_is_true_now() {
    let spec = approval_spec();
    let choices: Vec<_> = spec.choices.iter().map(|value| Arc::clone(&value.value)).collect();
    let (old, new) = (Arc::clone(&choices[0]), Arc::clone(&choices[1]));
    let mut snapshot = snapshot();
    let settings = Arc::make_mut(&mut snapshot.settings);
    settings.set(Arc::clone(&spec.id), Arc::clone(&new));
    snapshot.totals.cost_usd = 1.0;
    let words = || Some(Opaque(r#"{"sessionUpdate":"something"}"#.into()));
    let usage = |cost_usd| Body::Usage(Usage { cost_usd, ..Usage::default() });
    let chosen = Body::SettingChanged { id: Arc::clone(&spec.id), value: old };
    let other = SettingSpec { default: Arc::clone(&new), ..spec.clone() };
    let history =
        [(chosen, words()), (Body::Offered { settings: Vec::new() }, words()), (usage(0.5), words())];
    let now = [(usage(0.25), None), (Body::Offered { settings: vec![other] }, None)];
    let mut updates =
        Updates::of(ClientAbilities::default(), &SessionId::parse("ours").unwrap(), [spec].into(), &snapshot);
    let mut out = Vec::new();
    for (replay, said) in [(true, history.to_vec()), (false, now.to_vec())] {
        for (body, relayed) in said {
            let event =
                Event { seq: Seq(1), at: Timestamp(0), origin: Origin::Agent, turn: None, body, relayed };
            updates.encode(
                &[Arc::new(event)],
                EncodeContext { replay, own: SurfaceId(1) },
                &mut Vec::new(),
                &mut out,
            );
        }
    }
    let frames: Vec<Value> =
        out.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(frames[0]["params"]["update"]["cost"]["amount"], 1.25);
    assert_eq!(frames[1]["params"]["update"]["configOptions"][0]["currentValue"], *new);
    assert_eq!(frames.len(), 2, "{frames:?}");
}

/// The log has the pieces; a client sees the end of the output while it runs, and all of it afterwards.
#[test]
fn output_that_grows_is_shown_to_its_end_whatever_the_client_can_do() {
    let text = |text: &str| json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
    let update = |more: Value| {
        let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c" });
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    let said = [
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "bash", "kind": "execute" }),
        update(json!({ "status": "in_progress", "title": "make", "content": text("one\n") })),
        update(json!({ "status": "in_progress", "content": text("one\ntwo\n") })),
        update(json!({ "status": "completed", "content": text("one\ntwo\nthree\n") })),
    ];
    let events = log(&said);
    for terminal_output in [false, true] {
        let client = ClientAbilities { terminal_output, ..ClientAbilities::default() };
        let shown = shown(client, &events, false);
        assert_eq!(shown[0], said[0]);
        assert_eq!(shown[1], said[1]);
        assert_eq!(shown[2]["content"], said[2]["content"], "{}", shown[2]);
        assert_eq!(shown[3], said[3]);
    }
    let Some(Row::Tool(row)) = Transcript::of(events.iter().map(AsRef::as_ref)).rows.pop() else { panic!() };
    assert_eq!((&*row.title, row.output.as_str()), ("make", "one\ntwo\nthree\n"));
    let running = Transcript::of(events[..3].iter().map(AsRef::as_ref)).rows.pop();
    let Some(Row::Tool(row)) = running else { panic!() };
    assert_eq!(row.output, "one\ntwo\n");
}

/// Agents start a call before they know what it is about, and our own clients show what is known.
#[test]
fn a_row_of_ours_follows_what_the_agent_says_of_a_call() {
    let events = log(&recorded()[2..5]);
    let mut rows = Rows::default();
    let row = |rows: &Rows| {
        let mut tools = rows
            .iter()
            .filter_map(|row| if let RowContent::Tool(tool) = &row.what { Some(tool) } else { None });
        let tool = tools.next_back().unwrap();
        format!("{} {:?} {:?} {}", tool.title, tool.state, tool.kind, tool.diffs.len())
    };
    let mut seen = Vec::new();
    for event in &events {
        rows.observe(event);
        seen.push(row(&rows));
    }
    expect![[r#"
        Preparing file… Running "edit" 0
        Write a Running "edit" 1
        Write a Done "edit" 1"#]]
    .assert_eq(&seen.join("\n"));
}

/// Editors drop a whole update that names a terminal they do not know any more.
#[test]
fn a_terminal_is_shown_while_it_is_there_and_not_again() {
    let said = [
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "kind": "execute", "content": [{ "type": "terminal", "terminalId": "t" }] }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": [{ "type": "terminal", "terminalId": "t" }] }),
    ];
    let events = log(&said);
    assert_eq!(shown(ClientAbilities::default(), &events, false), said);
    let again = shown(ClientAbilities::default(), &events, true);
    let told: Vec<_> =
        again.iter().map(|update| format!("{} {}", update["sessionUpdate"], update["status"])).collect();
    expect![[r#"
        "tool_call" "in_progress"
        "tool_call_update" "completed""#]]
    .assert_eq(&told.join("\n"));
    assert!(!again.iter().any(|update| update.to_string().contains(r#""terminal""#)));
}

/// A terminal that the agent fills itself, as codex-acp and claude-agent-acp do, and one that this server
/// runs.
#[test]
fn a_terminal_that_a_client_does_not_know_is_told_in_our_words() {
    let embeds = |id: &str| json!([{ "type": "terminal", "terminalId": id }]);
    let own = |kind: &str, more: Value| {
        let mut update = json!({ "sessionUpdate": kind, "toolCallId": "c" });
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    let output = |data: &str| {
        own(
            "tool_call_update",
            json!({ "_meta": { "terminal_output": { "terminal_id": "c", "data": data } } }),
        )
    };
    let said = [
        own(
            "tool_call",
            json!({ "title": "ls", "kind": "execute", "content": embeds("c"), "_meta": { "terminal_info": { "terminal_id": "c" } } }),
        ),
        output("one\n"),
        output("two\n"),
        own(
            "tool_call_update",
            json!({ "status": "completed", "_meta": { "terminal_exit": { "terminal_id": "c", "exit_code": 0, "signal": null } } }),
        ),
    ];
    let events = log(&said);
    let terminals = ClientAbilities { terminal_output: true, ..ClientAbilities::default() };
    assert_eq!(shown(terminals, &events, false), said);

    let text = shown(ClientAbilities::default(), &events, false);
    assert!(!text.iter().any(|update| update.to_string().contains(r#""terminal""#)), "{text:#?}");
    assert!(text.iter().any(|update| update.to_string().contains("one\\ntwo\\n")), "{text:#?}");

    let again = shown(terminals, &events, true);
    let written: String =
        again.iter().filter_map(|update| update["_meta"]["terminal_output"]["data"].as_str()).collect();
    assert_eq!(again[0]["_meta"]["terminal_info"]["terminal_id"], "c", "{again:#?}");
    assert_eq!(written, "one\ntwo\n");
    assert_eq!(again.last().unwrap()["_meta"]["terminal_exit"]["exit_code"], 0);

    let ours = format!("{}1", wire::acp::SERVER_TERMINAL);
    let kept = [
        own("tool_call", json!({ "title": "ls", "kind": "execute", "content": embeds(&ours) })),
        own("tool_call_update", json!({ "status": "completed", "content": embeds(&ours) })),
    ];
    for client in [ClientAbilities::default(), terminals] {
        let told = shown(client, &log(&kept), false);
        assert!(!told.iter().any(|update| update.to_string().contains(&ours)), "{told:#?}");
        assert_eq!(told.last().unwrap()["status"], "completed");
    }
}
