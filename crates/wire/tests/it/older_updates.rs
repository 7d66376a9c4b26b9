//! The updates of ferret and otter: every event in each dialect, one per line.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Content, Event, Exit, FileChange, Location, MessageId, NoticeLevel,
    Opaque, Origin, OutputStream, Resolution, Resolver, Seq, SessionId, Settings, Snapshot, Standing, Stop,
    SurfaceId, Timestamp, ToolClass, ToolContent, ToolEnd, ToolKind, ToolStart, Totals, TurnId, Usage,
    approval_spec,
};
use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use wire::Encoder as _;
use wire::{ConnectionEvent, EncodeContext, UpdateCount, UpdateStart, ferret, otter};

use crate::bodies;

const OWN: SurfaceId = SurfaceId(1);

fn session() -> SessionId {
    SessionId::parse("s-1").unwrap()
}

fn snapshot(replay_from: Seq) -> Snapshot {
    let mut settings = Settings::defaults(&[approval_spec()]);
    settings.set("approval".into(), "full".into());
    Snapshot {
        settings: Arc::new(settings),
        totals: Totals { input: 1000, ..Totals::default() },
        replay_from,
        ..Snapshot::new(Arc::from([]), "/project".into())
    }
}

fn events(bodies: &[Body]) -> Vec<Arc<Event>> {
    let event = |(seq, body): (u64, &Body)| {
        let origin = match body {
            Body::UserMessage { .. } => {
                Origin::Surface { id: SurfaceId(2), name: "phone".into(), request: None, remote: None }
            }
            _ => Origin::Agent,
        };
        Arc::new(Event {
            seq: Seq(seq),
            at: Timestamp(0),
            origin,
            turn: Some(TurnId(3)),
            body: body.clone(),
            relayed: None,
        })
    };
    (1..).zip(bodies).map(event).collect()
}

fn lines(out: Vec<u8>) -> Vec<String> {
    let text = String::from_utf8(out).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.split_terminator('\n').map(str::to_owned).collect()
}

/// Like a connection: permission requests are sent in order.
fn ferret_lines(updates: &mut ferret::Updates, events: &[Arc<Event>], replay: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = events;
    while !rest.is_empty() {
        let (taken, piece) =
            updates.encode(rest, EncodeContext { replay, own: OWN }, &mut Vec::new(), &mut out);
        assert!(taken > 0);
        if let Some(ConnectionEvent::Asked { ask, request }) = piece {
            out.extend(updates.ask(ask, request));
        }
        rest = &rest[taken..];
    }
    lines(out)
}

/// Encodes in pages of the size that the test chooses.
fn otter_lines(start: impl Into<UpdateStart>, events: &[Arc<Event>], page: usize) -> Vec<String> {
    otter_lines_in(&Arc::default(), start, events, page)
}

/// The same for a session that works in this folder when the first event happens.
fn otter_lines_in(
    folder: &Arc<PathBuf>,
    start: impl Into<UpdateStart>,
    events: &[Arc<Event>],
    page: usize,
) -> Vec<String> {
    let mut updates = otter::Updates::new(&session(), start.into()).in_folder(Arc::clone(folder));
    let mut out = Vec::new();
    for mut rest in events.chunks(page) {
        while !rest.is_empty() {
            let (taken, _) = updates.encode(rest, &mut Vec::new(), &mut out);
            assert!(taken > 0);
            rest = &rest[taken..];
        }
    }
    lines(out)
}

/// The updates for a changed approval setting and one more token.
fn approved_and_used(updates: &mut ferret::Updates) -> Vec<String> {
    let change = Body::SettingChanged { id: "approval".into(), value: "auto".into() };
    let usage = Body::Usage(Usage { input: 1, ..Usage::default() });
    ferret_lines(updates, &events(&[change, usage]), false)
}

fn fresh_ferret() -> ferret::Updates {
    ferret::Updates::of(&session(), &[approval_spec()], &snapshot(Seq::START))
}

/// Only what differs from line to line.
fn payloads(lines: &[String]) -> String {
    let payload = |line: &String| {
        let mut frame: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&frame["jsonrpc"], &frame["method"]), (&"2.0".into(), &"session/update".into()));
        assert!(frame.get("id").is_none());
        let params = frame["params"].as_object_mut().unwrap();
        assert_eq!(params.remove("sessionId"), Some("s-1".into()));
        frame["params"].to_string() + "\n"
    };
    lines.iter().map(payload).collect()
}

fn phone() -> Resolver {
    let standing = Standing::OwnerAtMachine;
    Resolver::Surface { id: SurfaceId(2), name: "phone".into(), remote: None, standing }
}

fn story() -> Vec<Body> {
    let call = || CallId("c1".into());
    let request = AskRequest {
        call: Some(call()),
        input: Opaque(r#"{"command":"git push"}"#.into()),
        reason: "it reaches another machine".into(),
        ..AskRequest::new("shell", "git push", ToolClass::Execute)
    };
    let usage =
        Usage { input: 7, output: 5, cache_read: 2, cache_write: 1, cost_usd: 0.5, ..Usage::default() };
    vec![
        Body::TurnStarted,
        Body::UserMessage { content: vec![Content::text("push it")] },
        Body::Text { message: MessageId(1), text: "I ".into() },
        Body::Text { message: MessageId(1), text: "push".into() },
        Body::ToolStarted(Box::new(ToolStart {
            kind: ToolKind::Execute,
            input: Opaque(r#"{"command":"git push"}"#.into()),
            ..ToolStart::new(call(), "shell".into(), "git push".into())
        })),
        Body::Asked { ask: AskId(7), request: Box::new(request) },
        Body::Resolved {
            ask: AskId(7),
            call: Some(call()),
            resolution: Resolution::AllowedOnce,
            by: phone(),
            reply: None,
            exactly: false,
        },
        Body::ToolOutput { call: call(), stream: OutputStream::Stdout, text: "ok\n".into() },
        Body::ToolOutput { call: call(), stream: OutputStream::Stderr, text: "hm\n".into() },
        Body::ToolEnded(Box::new(ToolEnd {
            failed: true,
            content: vec![ToolContent::Block(Content::text("ok\nhm\n"))],
            exit: Some(Exit { code: Some(3), signal: None }),
            elapsed_ms: 12,
            ..ToolEnd::of(call())
        })),
        Body::FileEdited {
            call: None,
            change: FileChange { path: "/a".into(), before: Some("1\n".into()), after: Some("2\n".into()) },
        },
        Body::FileShown { location: Location { path: "/a".into(), line: Some(12) } },
        Body::PolicyBlocked {
            call: None,
            tool: "write".into(),
            path: Some("/etc/x".into()),
            mode: "workspace-write".into(),
            reason: "outside".into(),
        },
        Body::SettingChanged { id: "approval".into(), value: "read-only".into() },
        Body::Usage(usage),
        Body::Usage(usage),
        Body::Notice { level: NoticeLevel::Warning, text: "careful".into() },
        Body::TurnEnded { stop: Stop::EndTurn, error: None },
    ]
}

fn check(lines: &[String], expected: &Expect) {
    expected.assert_eq(&payloads(lines));
}

#[test]
fn ferret_shows_each_event_as_the_kind_that_names_it() {
    check(
        &ferret_lines(&mut fresh_ferret(), &events(&story()), false),
        &expect![[r#"
            {"from":"phone","kind":"user_message","text":"push it"}
            {"text":"I push","kind":"agent_message_chunk"}
            {"title":"git push","kind":"tool_call_start","id":"c1","tool":"Bash","args":{"command":"git push"}}
            {"call":"c1","kind":"permission_request","id":"perm-7","tool":"Bash","args":{"command":"git push"},"risk":"medium","title":"git push","reason":"it reaches another machine"}
            {"stdout":"ok\n","kind":"tool_call_progress","id":"c1"}
            {"stderr":"hm\n","kind":"tool_call_progress","id":"c1"}
            {"exit_code":3,"kind":"tool_call_end","id":"c1","result":"ok\nhm\n","duration_ms":12,"failed":true}
            {"diff":"--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-1\n+2\n","kind":"file_edit","path":"/a"}
            {"line":12,"kind":"file_open","path":"/a"}
            {"reason":"outside","kind":"sandbox_violation","tool":"Write","path":"/etc/x","mode":"workspace-write"}
            {"new":"read-only","kind":"approval_changed","old":"auto"}
            {"total_usd":0.5,"kind":"cost_update","input":7,"output":5,"cache":3,"reasoning":0}
            {"total_usd":1.0,"kind":"cost_update","input":14,"output":10,"cache":6,"reasoning":0}
            {"text":"careful","kind":"notice","level":"warning"}
            {"stop_reason":"end_turn","kind":"turn_end","id":"turn-3"}
        "#]],
    );
}

/// E25: whatever kinds a client does not know and ignores, the agent's answer is in `agent_message_chunk`,
/// and nothing else is.
#[test]
fn the_answer_is_in_agent_message_chunks_whatever_else_is_ignored() {
    let chunks = |lines: Vec<String>, kind: &str, text: &str| -> String {
        let chunk = |line: &String| {
            let frame: Value = serde_json::from_str(line).unwrap();
            let update = frame["params"].get("update").unwrap_or(&frame["params"]).clone();
            (update[kind] == "agent_message_chunk")
                .then(|| update.pointer(text).unwrap().as_str().unwrap().to_owned())
        };
        lines.iter().filter_map(chunk).collect()
    };
    let ferret = ferret_lines(&mut fresh_ferret(), &events(&story()), false);
    assert_eq!(chunks(ferret, "kind", "/text"), "I push");
    let otter = otter_lines(UpdateCount::default(), &events(&story()), 100);
    assert_eq!(chunks(otter, "sessionUpdate", "/content/text"), "I push");
}

#[test]
fn otter_numbers_each_update_and_names_questions_after_their_session() {
    check(
        &otter_lines(UpdateCount::default(), &events(&story()), 100),
        &expect![[r#"
            {"update":{"sessionUpdate":"turn_start","turnId":"turn-3"},"eventId":1}
            {"update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"push it"}},"eventId":2}
            {"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I "}},"eventId":3}
            {"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"push"}},"eventId":4}
            {"update":{"sessionUpdate":"tool_call","callId":"c1","tool":"bash","input":{"cmd":"git push"},"title":"git push"},"eventId":5}
            {"update":{"sessionUpdate":"permission_request","requestId":"r7.s-1","permissionId":"r7.s-1","callId":"c1","tool":"bash","input":{"cmd":"git push"},"options":["allow","always","deny"],"title":"git push","risk":"medium","reason":"it reaches another machine"},"eventId":6}
            {"update":{"sessionUpdate":"permission_resolved","requestId":"r7.s-1","reply":"allow"},"eventId":7}
            {"update":{"sessionUpdate":"tool_progress","callId":"c1","stream":"stdout","text":"ok\n"},"eventId":8}
            {"update":{"sessionUpdate":"tool_progress","callId":"c1","stream":"stderr","text":"hm\n"},"eventId":9}
            {"update":{"sessionUpdate":"tool_result","callId":"c1","success":false,"error":"ok\nhm\n","exitCode":3,"durationMs":12},"eventId":10}
            {"update":{"sessionUpdate":"file_edit","path":"/a","diff":"--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-1\n+2\n"},"eventId":11}
            {"update":{"sessionUpdate":"file_open","path":"/a","line":12},"eventId":12}
            {"update":{"sessionUpdate":"sandbox_violation","tool":"write_file","path":"/etc/x","mode":"workspace-write","reason":"outside"},"eventId":13}
            {"update":{"sessionUpdate":"config_option_update","configId":"approval","value":"read-only"},"eventId":14}
            {"update":{"sessionUpdate":"usage_update","input":7,"output":5,"cacheRead":2,"cacheWrite":1,"reasoning":0,"contextUsed":0,"contextSize":0,"costUsd":0.5},"eventId":15}
            {"update":{"sessionUpdate":"usage_update","input":14,"output":10,"cacheRead":4,"cacheWrite":2,"reasoning":0,"contextUsed":0,"contextSize":0,"costUsd":1.0},"eventId":16}
            {"update":{"sessionUpdate":"notice","level":"warning","text":"careful"},"eventId":17}
            {"update":{"sessionUpdate":"turn_end","turnId":"turn-3","stopReason":"end_turn"},"eventId":18}
        "#]],
    );
}

#[test]
fn a_replay_in_ferret_leaves_out_what_the_answer_says_and_goes_on_from_there() {
    let mut updates = fresh_ferret();
    let history = ferret_lines(&mut updates, &events(&story()), true);
    let kinds: Vec<Value> = history
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["kind"].clone())
        .collect();
    assert!(!kinds.contains(&"cost_update".into()) && !kinds.contains(&"approval_changed".into()));
    assert!(kinds.contains(&"user_message".into()) && kinds.contains(&"turn_end".into()));
    check(
        &approved_and_used(&mut updates),
        &expect![[r#"
            {"new":"auto","kind":"approval_changed","old":"read-only"}
            {"total_usd":1.0,"kind":"cost_update","input":15,"output":10,"cache":6,"reasoning":0}
        "#]],
    );
}

#[test]
fn sums_of_a_cleared_session_begin_with_what_the_session_says() {
    let mut updates = ferret::Updates::of(&session(), &[approval_spec()], &snapshot(Seq(9)));
    check(
        &approved_and_used(&mut updates),
        &expect![[r#"
            {"new":"auto","kind":"approval_changed","old":"full"}
            {"total_usd":0.0,"kind":"cost_update","input":1001,"output":0,"cache":0,"reasoning":0}
        "#]],
    );
}

#[test]
fn positions_that_a_power_cut_took_are_counted_so_that_no_number_comes_twice() {
    let mut log = events(&[Body::TurnStarted, Body::TurnStarted]);
    log.push(Arc::new(Event { seq: Seq(65), ..(*log[1]).clone() }));
    let ids: Vec<_> = otter_lines(UpdateCount::default(), &log, 9)
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["eventId"].clone())
        .collect();
    assert_eq!(ids, [1, 2, 65]);
}

#[test]
fn what_a_client_said_itself_is_not_repeated_to_it_while_it_happens() {
    let own = Arc::new(Event {
        origin: Origin::Surface { id: OWN, name: "me".into(), request: None, remote: None },
        ..(*events(&[Body::UserMessage { content: vec![Content::text("hi")] }])[0]).clone()
    });
    assert_eq!(ferret_lines(&mut fresh_ferret(), &[Arc::clone(&own)], false), [""; 0]);
    assert_eq!(ferret_lines(&mut fresh_ferret(), &[own], true).len(), 1);
}

/// The agent's text, all together.
fn said(lines: &[String]) -> String {
    let text = |line: &String| {
        let frame: Value = serde_json::from_str(line).unwrap();
        let params = &frame["params"];
        (params["kind"] == "agent_message_chunk").then(|| params["text"].as_str().unwrap().to_owned())
    };
    lines.iter().filter_map(text).collect()
}

proptest! {
    #[test]
    fn whatever_is_in_a_log_each_frame_is_one_line_of_json(bodies in vec(bodies::any_body(), 1..12), replay: bool) {
        let log = events(&bodies);
        for line in ferret_lines(&mut fresh_ferret(), &log, replay) {
            prop_assert!(serde_json::from_str::<Value>(&line).is_ok(), "{}", line);
        }
        for line in otter_lines(UpdateCount::default(), &log, 3) {
            prop_assert!(serde_json::from_str::<Value>(&line).is_ok(), "{}", line);
        }
    }

    #[test]
    fn otter_shows_as_many_updates_as_are_counted(body in bodies::any_body()) {
        let log = events(&[body]);
        let shown = otter_lines(UpdateCount::default(), &log, 1).len();
        prop_assert_eq!(u64::try_from(shown).unwrap(), otter::updates_of(&log[0]));
    }

    #[test]
    fn otter_says_the_same_from_wherever_and_however_it_is_read(
        bodies in vec(bodies::any_body(), 1..24), page in 1..24_usize, at in 0..24_usize,
    ) {
        let log = events(&bodies);
        let whole = otter_lines(UpdateCount::default(), &log, 100);
        prop_assert_eq!(&otter_lines(UpdateCount::default(), &log, page), &whole);
        let (before, after) = log.split_at(at.min(log.len()));
        let mut counted = UpdateCount::default();
        for event in before {
            counted.add(event, otter::updates_of(event));
        }
        let mut start = UpdateStart::from(counted);
        before.iter().for_each(|event| start.observe(event));
        let moved = |event: &Arc<Event>| match &event.body {
            Body::Moved { cwd, .. } => Some(Arc::new(cwd.clone())),
            _ => None,
        };
        let folder = before.iter().rev().find_map(moved).unwrap_or_default();
        let rest = otter_lines_in(&folder, start.clone(), after, page);
        let skipped = usize::try_from(counted.updates).unwrap();
        prop_assert_eq!(&rest, &whole[skipped..]);
        // A client may have the first update of an event and not the second.
        if skipped < whole.len() {
            start.since = counted.updates + 1;
            prop_assert_eq!(&otter_lines_in(&folder, start, after, page), &whole[skipped + 1..]);
        }
        let ids: Vec<u64> = whole
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["eventId"].as_u64().unwrap())
            .collect();
        prop_assert!(ids.iter().copied().eq(1..=u64::try_from(ids.len()).unwrap()));
    }

    #[test]
    fn merging_loses_nothing_of_what_was_said(pieces in vec((0..3_u64, ".{0,9}"), 0..40)) {
        let piece = |(message, text): &(u64, String)| {
            Body::Text { message: MessageId(*message), text: text.as_str().into() }
        };
        let bodies: Vec<_> = pieces.iter().map(piece).collect();
        let told = said(&ferret_lines(&mut fresh_ferret(), &events(&bodies), false));
        prop_assert_eq!(told, pieces.iter().map(|(_, text)| text.as_str()).collect::<String>());
    }
}

/// `git apply` reads names relative to its working directory.
#[test]
fn the_names_in_a_diff_begin_at_the_folder_of_the_session() {
    let edited = |path: &str| {
        let change = FileChange { path: path.into(), before: None, after: Some("x\n".into()) };
        Body::FileEdited { call: None, change }
    };
    let moved = Body::Moved { cwd: "/other".into(), from: None };
    let log = events(&[edited("/project/src/a"), edited("/other/b"), moved, edited("/other/b")]);
    let names = |text: &str| -> Vec<String> {
        let after = text.split("+++ ").skip(1);
        after.map(|rest| rest.split("\\n").next().unwrap().to_owned()).collect()
    };
    let folder = Arc::clone(&snapshot(Seq::START).cwd);
    let expected = ["b/src/a", "b/other/b", "b/b"];
    assert_eq!(names(&ferret_lines(&mut fresh_ferret(), &log, false).concat()), expected);
    let (mut otter, mut out) = (otter::Updates::new(&session(), UpdateStart::default()), Vec::new());
    otter = otter.in_folder(Arc::clone(&folder));
    otter.encode(&log, &mut Vec::new(), &mut out);
    assert_eq!(names(&lines(out).concat()), expected);
    for form in [wire::rest::StreamFormat::Loop, wire::rest::StreamFormat::Delta] {
        let stream = wire::rest::RestStream::new(&session(), form, 0);
        let (mut stream, mut out) = (stream.in_folder(Arc::clone(&folder)), Vec::new());
        log.iter().for_each(|event| stream.write(event, 0, &mut out));
        assert_eq!(names(&String::from_utf8(out).unwrap()), expected);
    }
}

#[test]
fn a_cost_that_is_not_known_is_told_as_such_in_every_dialect() {
    let unknown = Usage { input: 7, unpriced: true, ..Usage::default() };
    let known = Usage { cost_usd: 0.5, ..Usage::default() };
    let log = events(&[Body::Usage(unknown), Body::Usage(known)]);
    let view = EncodeContext { replay: false, own: OWN };
    let mut updates = (
        wire::acp::Updates::of(
            wire::acp::ClientAbilities::default(),
            &session(),
            Arc::from([approval_spec()]),
            &snapshot(Seq::START),
        ),
        wire::rest::RestStream::new(&session(), wire::rest::StreamFormat::Loop, 0),
    );
    let (mut acp, mut rest) = (Vec::new(), Vec::new());
    updates.0.encode(&log, view, &mut Vec::new(), &mut acp);
    for event in &log {
        updates.1.write(event, 0, &mut rest);
    }
    let cost = |line: String| {
        let start = line.find("ost").map_or(0, |at| at - 1);
        line.get(start..).unwrap_or_default().to_owned()
    };
    let shown = |name: &str, lines: Vec<String>| {
        lines.into_iter().map(|line| format!("{name}: {}\n", cost(line))).collect::<String>()
    };
    let rest = String::from_utf8(rest).unwrap();
    let rest: Vec<_> = rest.lines().filter(|line| line.starts_with("data: ")).map(str::to_owned).collect();
    let all = [
        shown("acp", lines(acp)),
        shown("ferret", ferret_lines(&mut fresh_ferret(), &log, false)),
        shown("otter", otter_lines(UpdateCount::default(), &log, 9)),
        shown("rest", rest),
    ];
    expect![[r#"
        acp: {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"usage_update","used":0,"size":0,"_meta":{"input_tokens":7,"output_tokens":0}}}}
        acp: cost":{"amount":0.5,"currency":"USD"},"_meta":{"input_tokens":7,"output_tokens":0}}}}
        ferret: cost_update","input":7,"output":0,"cache":0,"reasoning":0,"cost_unknown":true}}
        ferret: cost_update","input":7,"output":0,"cache":0,"reasoning":0,"total_usd":0.5,"cost_unknown":true}}
        otter: costUnknown":true}}}
        otter: costUsd":0.5,"costUnknown":true}}}
        rest: cost_usd":null,"cost_unknown":true,"subtype":"usage"},"turn":3,"timestamp":0.0}
        rest: cost_usd":0.5,"subtype":"usage"},"turn":3,"timestamp":0.0}
    "#]].assert_eq(&all.concat());
}
