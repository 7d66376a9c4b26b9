//! Exported sessions: every form that can be imported comes back unchanged, and every readable form shows
//! everything, escaped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Body, CallId, Content, Event, Exit, FileChange, MessageId, NoticeLevel, Opaque, Origin, OutputStream,
    Principal, Resolution, Resolver, Seq, SessionId, SessionRow, Standing, Stop, SurfaceId, Timestamp,
    ToolContent, ToolEnd, ToolKind, ToolStart, TurnId, Usage,
};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::chimera_archive::{self, EventFile};
use wire::session_export_writer::{Document, DocumentFacts, DocumentFormat};
use wire::transcript::Transcript;
use wire::{event_json, session_archive, transcript_html, transcript_markdown, transcript_text, turn_result};

use crate::bodies;

const NOW: Timestamp = Timestamp(1_794_783_600_000);

fn row() -> SessionRow {
    SessionRow {
        id: SessionId::parse("0123abcd-0000").unwrap(),
        owner: Principal::local(),
        cwd: PathBuf::from("/home/me/project"),
        roots: Vec::new(),
        parent: None,
        source: "run".into(),
        title: Some("Fix <the> parser".into()),
        created_at: NOW,
        updated_at: NOW,
        busy: false,
        last_seq: Seq(9),
    }
}

fn events(bodies: impl IntoIterator<Item = Body>) -> Vec<Arc<Event>> {
    let person = Origin::Surface { id: SurfaceId(7), name: "zed".into(), request: None, remote: None };
    let event = |(seq, body): (u64, Body)| {
        let origin = if matches!(body, Body::UserMessage { .. }) { person.clone() } else { Origin::Agent };
        Arc::new(Event { seq: Seq(seq), at: NOW, origin, turn: Some(TurnId(1)), body, relayed: None })
    };
    (1..).zip(bodies).map(event).collect()
}

fn owned(events: &[Arc<Event>]) -> Vec<Event> {
    events.iter().map(|event| Event::clone(event)).collect()
}

/// Exports to a chimera folder and imports it.
fn through_folder(events: &[Arc<Event>]) -> session_archive::ImportedSession {
    let folder = chimera_archive::write(&row(), events);
    let file = |(name, event): (String, Value)| EventFile {
        index: chimera_archive::event_file_index(&name).unwrap(),
        name,
        content: Ok(event.to_string()),
    };
    chimera_archive::read(&folder.summary, folder.events.into_iter().map(file).collect())
}

proptest! {
    #[test]
    fn every_form_that_comes_back_comes_back_whole(bodies in proptest::collection::vec(bodies::any_body(), 0..6)) {
        let bodies = bodies.into_iter().map(|body| match body {
            // Numbers beyond any honest count are refused, which is another test's subject.
            Body::Asked { request, .. } => Body::Asked { ask: engine::AskId(1), request },
            Body::Resolved { call, resolution, by, .. } => Body::Resolved { ask: engine::AskId(1), call, resolution, by, reply: None, exactly: false },
            body => body,
        });
        let events = events(bodies);
        let written = session_archive::encode(&row(), &events, NOW).to_string();
        let back = session_archive::decode(&written).unwrap();
        prop_assert_eq!(&back.events, &owned(&events));
        prop_assert_eq!(back.warnings, Vec::<String>::new());

        let folder = through_folder(&events);
        let envelope = chimera_archive::write(&row(), &events).envelope(NOW).to_string();
        for imported in [folder, chimera_archive::read_envelope(&envelope).unwrap()] {
            prop_assert_eq!(&imported.events, &owned(&events));
            prop_assert_eq!(imported.title.as_deref(), Some("Fix <the> parser"));
            prop_assert_eq!(imported.cwd, Some(PathBuf::from("/home/me/project")));
            prop_assert_eq!(imported.warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn nothing_that_a_session_holds_becomes_markup(text in "[<>&\"'`*#a-z /=!-]{0,40}") {
        let text: Arc<str> = format!("{text}<script>x</script><img src=x onerror=y>").into();
        let html = transcript_html::render(&row(), &Transcript::of(events(all_saying(&text)).iter().map(AsRef::as_ref)));
        prop_assert!(!html.contains("<script"));
        prop_assert!(!html.contains("<img"));
    }

    #[test]
    fn arbitrary_text_is_refused_without_a_panic(text in ".{0,60}") {
        drop(session_archive::decode(&text));
        drop(chimera_archive::read_envelope(&text));
        prop_assert!(wire::timestamp::parse(&text).is_none_or(|at| at.0 < 1 << 50));
    }
}

/// One event of each kind that shows text, all with the same text.
fn all_saying(text: &Arc<str>) -> Vec<Body> {
    let call = CallId("c".into());
    let text = || Arc::clone(text);
    vec![
        Body::UserMessage {
            content: vec![
                Content::Text(text()),
                Content::Resource { uri: text(), mime: None, text: text() },
                Content::Image { mime: text(), data: text(), uri: None },
            ],
        },
        Body::Text { message: MessageId(1), text: text() },
        Body::Thought { message: MessageId(2), text: text() },
        Body::ToolStarted(Box::new(ToolStart {
            input: Opaque(text()),
            ..ToolStart::new(call.clone(), text(), text())
        })),
        Body::ToolOutput { call: call.clone(), stream: OutputStream::Stdout, text: text() },
        Body::PolicyBlocked { call: None, tool: text(), path: None, mode: text(), reason: text() },
        Body::Notice { level: NoticeLevel::Error, text: text() },
        Body::SettingChanged { id: text(), value: text() },
        Body::TurnEnded { stop: Stop::Failed, error: Some(text()) },
    ]
}

fn a_short_session() -> Vec<Arc<Event>> {
    let call = CallId("c1".into());
    let edit = CallId("c2".into());
    let start = |call: &CallId, title: &str| {
        Body::ToolStarted(Box::new(ToolStart {
            kind: ToolKind::Execute,
            ..ToolStart::new(call.clone(), "shell".into(), title.into())
        }))
    };
    let end = |call: &CallId, failed, content, code| {
        Body::ToolEnded(Box::new(ToolEnd {
            failed,
            content,
            exit: code,
            elapsed_ms: 1500,
            ..ToolEnd::of(call.clone())
        }))
    };
    let change =
        FileChange { path: "/p/a.rs".into(), before: Some("one\n".into()), after: Some("two\n".into()) };
    events([
        Body::TurnStarted,
        Body::UserMessage { content: vec![Content::text("make it <work>")] },
        Body::Text { message: MessageId(1), text: "I will **look**".into() },
        Body::Text { message: MessageId(1), text: " first.\n".into() },
        start(&call, "cargo test"),
        Body::Resolved {
            ask: engine::AskId(1),
            call: Some(call.clone()),
            resolution: Resolution::AllowedOnce,
            by: Resolver::Surface {
                id: SurfaceId(7),
                name: "zed".into(),
                remote: None,
                standing: Standing::OwnerAtMachine,
            },
            reply: None,
            exactly: false,
        },
        Body::ToolOutput { call: call.clone(), stream: OutputStream::Stdout, text: "1 failed\n```\n".into() },
        end(&call, true, Vec::new(), Some(Exit { code: Some(101), signal: None })),
        start(&edit, "Edit a.rs"),
        Body::FileEdited { call: Some(edit.clone()), change: change.clone() },
        end(&edit, false, vec![ToolContent::Diff(change)], None),
        Body::Usage(Usage { input: 1200, output: 34, cost_usd: 0.0123, ..Usage::default() }),
        Body::TurnEnded { stop: Stop::MaxTokens, error: None },
    ])
}

#[test]
fn a_session_reads_well_in_a_terminal() {
    let events = a_short_session();
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    expect![[r#"
        Fix <the> parser
        0123abcd-0000  /home/me/project  2026-11-15 23:00 UTC  1 turn  1,234 tokens, $0.0123

        You (zed, 2026-11-15 23:00)
          > make it <work>

        I will **look** first.

          ✗ cargo test (exit 101, allowed by zed, 1.5 s)
            1 failed
            ```

          ✓ Edit a.rs (1.5 s)
            /p/a.rs
            -one
            +two

          (stopped: the answer reached the model's length limit)
    "#]]
    .assert_eq(&transcript_text::render(&row(), &transcript, false));
}

#[test]
fn a_session_reads_well_as_markdown() {
    let events = a_short_session();
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    expect![[r#"
        # Fix <the> parser

        - 0123abcd-0000
        - /home/me/project
        - 2026-11-15 23:00 UTC
        - 1 turn
        - 1,234 tokens, $0.0123

        ## You

        *zed, 2026-11-15 23:00 UTC*

        > make it <work>

        I will **look** first.

        **shell**: `cargo test` (exit 101, allowed by zed, 1.5 s)

        ````text
        1 failed
        ```
        ````

        **shell**: `Edit a.rs` (1.5 s)

        `/p/a.rs`

        ```diff
        -one
        +two
        ```

        *stopped: the answer reached the model's length limit*
    "#]]
    .assert_eq(&transcript_markdown::render(&row(), &transcript));
}

#[test]
fn a_page_needs_nothing_from_anywhere() {
    let events = a_short_session();
    let html = transcript_html::render(&row(), &Transcript::of(events.iter().map(AsRef::as_ref)));
    assert!(html.contains("default-src 'none'"), "{html}");
    assert!(html.contains("<title>Fix &lt;the&gt; parser</title>"), "{html}");
    for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let body = html.split_once("</header>\n").unwrap().1;
    expect![[r#"
        <section class="you">
        <h2>You <small>zed, 2026-11-15 23:00 UTC</small></h2>
        <p class="plain">make it &lt;work&gt;</p>
        </section>
        <section class="agent">
        <p>I will <strong>look</strong> first.</p>
        </section>
        <details class="tool bad"><summary><i>✗</i> <code>cargo test</code> <small>exit 101, allowed by zed, 1.5 s</small></summary>
        <pre>1 failed
        ```</pre>
        </details>
        <details class="tool"><summary><i>✓</i> <code>Edit a.rs</code> <small>1.5 s</small></summary>
        <p class="path">/p/a.rs</p>
        <pre class="diff"><span class="gone">-one</span>
        <span class="came">+two</span>
        </pre>
        </details>
        <p class="note">stopped: the answer reached the model's length limit</p>
        </main>
        </body>
        </html>
    "#]]
    .assert_eq(body);
}

#[test]
fn a_turn_is_told_in_one_object() {
    let events = a_short_session();
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    let result = turn_result::encode(&row().id, &transcript, Stop::MaxTokens, None);
    assert_eq!(result["type"], "result");
    assert_eq!(result["stop_reason"], "max_tokens");
    assert_eq!(result["text"], "I will **look** first.");
    assert_eq!(result["usage"]["input_tokens"], 1200);
    assert_eq!(result["tools"][0]["status"], "failed");
    assert_eq!(result["tools"][0]["exit_code"], 101);
    assert_eq!(result["tools"][1]["status"], "completed");
    assert_eq!(result.get("error"), None);
    let line = turn_result::event_line(&row().id, &events[2]);
    assert_eq!((&line["type"], &line["session_id"]), (&json!("event"), &json!("0123abcd-0000")));
    assert_eq!(event_json::decode(&line.to_string()).unwrap(), *events[2]);
}

#[test]
fn why_something_was_refused_is_shown() {
    let mut bodies = owned(&a_short_session()).into_iter().map(|event| event.body).collect::<Vec<_>>();
    for body in &mut bodies {
        if let Body::Resolved { resolution, reply, .. } = body {
            (*resolution, *reply) = (Resolution::DeniedOnce, Some("not on a Friday".into()));
        }
    }
    let events = events(bodies);
    let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
    let shown = transcript_text::render(&row(), &transcript, false);
    assert!(shown.contains("refused by zed") && shown.contains("zed refuses: not on a Friday"), "{shown}");
}

#[test]
fn what_was_cleared_is_not_shown() {
    let mut bodies = owned(&a_short_session()).into_iter().map(|event| event.body).collect::<Vec<_>>();
    bodies.push(Body::Cleared);
    bodies.push(Body::UserMessage { content: vec![Content::text("anew")] });
    let events = events(bodies);
    let shown = transcript_text::render(&row(), &Transcript::of(events.iter().map(AsRef::as_ref)), true);
    assert!(shown.contains("cleared") && shown.contains("anew") && !shown.contains("cargo test"), "{shown}");
}

#[test]
fn a_session_that_chimera_wrote_becomes_turns() {
    let file = |index: u64, content: Result<Value, &str>| EventFile {
        name: format!("event-{index:06}-00000000.json"),
        index,
        content: content.map(|value| value.to_string()).map_err(str::to_owned),
    };
    let event = |index: u64, kind: &str, at: f64, metadata: Value| {
        file(
            index,
            Ok(json!({ "idx": index, "event_id": "0", "type": kind, "timestamp": at, "metadata": metadata })),
        )
    };
    let summary =
        json!({ "run_id": "otter-1", "started_at": "2026-11-15T23:00:00Z", "cwd": "/p", "title": null });
    let imported = chimera_archive::read(
        &summary,
        vec![
            event(
                6,
                "agent_result",
                12.5,
                json!({ "output": "done", "cost": 0.5, "success": true, "error": null }),
            ),
            event(0, "user_message", 10.0, json!({ "content": "hi" })),
            event(
                1,
                "tool_call",
                11.0,
                json!({ "tool_name": "bash", "arguments": { "c": 1 }, "call_id": "k" }),
            ),
            event(2, "tool_result", 11.0, json!({ "call_id": "k", "output": "out", "success": false })),
            file(3, Err("it cannot be read")),
            event(5, "loop_detected", 12.0, json!({})),
            event(7, "user_message", 13.0, json!({ "content": "more" })),
        ],
    );
    let row = SessionRow { title: imported.title.clone(), ..row() };
    expect![[r#"
        (untitled)
        0123abcd-0000  /home/me/project  2026-11-15 23:00 UTC  2 turns  $0.5000

        You (chimera, 2026-11-15 23:00)
          > hi

          ✗ bash {"c":1} (failed)
            out

          error: A part of this session could not be imported (event-000003-00000000.json is left out: it cannot be read). The session may have cost more than is shown here and counted in its budget. If a /clear is among the lost events, the conversation before it is given to the model again: run /clear again if you do not want that.

        done

        You (chimera, 2026-11-15 23:00)
          > more
    "#]]
    .assert_eq(&transcript_text::render(&row, &Transcript::of(&imported.events), false));
    expect![[r#"
        1 events are missing: 4
        event-000003-00000000.json is left out: it cannot be read
        1 events are left out, because their kinds have no counterpart here"#]]
    .assert_eq(&imported.warnings.join("\n"));
    let ends = imported.events.iter().filter(|event| matches!(event.body, Body::TurnEnded { .. })).count();
    assert_eq!(ends, 2);
    assert_eq!(imported.events.last().unwrap().at, Timestamp(NOW.0 + 3000));
}

#[test]
fn events_that_cannot_be_read_are_left_out_and_named() {
    let mut written = session_archive::encode(&row(), &a_short_session(), NOW);
    written["events"][1] = json!({ "event_type": "later", "payload": {} });
    written["events"][2]["turn"] = json!(u64::MAX);
    written["events"][3]["at"] = json!(i64::MIN);
    let back = session_archive::decode(&written.to_string()).unwrap();
    assert_eq!(back.events.len(), 11, "a notice stands for the one that may have been a setting");
    expect![[r#"
        event 1 is left out: unknown kind of event "later"
        event 2 is left out: turn 18446744073709551615 is too high
        event 3 is left out: its time is not between the years 1970 and 9999"#]]
    .assert_eq(&back.warnings.join("\n"));
    written["schema"] = json!("ropewalk.session/2");
    expect![[r#"its format is "ropewalk.session/2", which this version cannot read"#]]
        .assert_eq(&session_archive::decode(&written.to_string()).unwrap_err().to_string());
}

#[test]
fn a_file_is_scanned_event_by_event_whatever_the_order_of_its_parts() {
    use std::ops::ControlFlow;
    let scanned = |text: &str, most: usize| {
        let mut events = Vec::new();
        let head = session_archive::scan(text.as_bytes(), &mut |event| {
            events.push(event.to_owned());
            if events.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (head, events)
    };
    let written = session_archive::encode(&row(), &a_short_session(), NOW);
    let (head, events) = scanned(&written.to_string(), usize::MAX);
    let head = head.unwrap();
    assert_eq!(
        (head.schema.as_str(), head.title, head.cwd),
        (session_archive::SCHEMA, row().title, Some(row().cwd))
    );
    let mut imported = session_archive::ImportedSession::default();
    events.iter().for_each(|event| imported.take("event", event));
    assert_eq!(imported.events, session_archive::decode(&written.to_string()).unwrap().events);
    let (head, events) = scanned(r#"{"events":[{"a":1},2],"more":{},"schema":"s","session":{}}"#, usize::MAX);
    assert_eq!((head.unwrap().schema.as_str(), events.join(" ").as_str()), ("s", r#"{"a":1} 2"#));
    assert_eq!(scanned(r#"{"events":[1,2,3]}"#, 2).1.len(), 2);
    for broken in ["", "[]", r#"{"events":[1,2"#, r#"{"events":[1]}x"#, r#"{"events":5}"#] {
        assert!(scanned(broken, usize::MAX).0.is_err(), "{broken}");
    }
}

#[test]
fn names_of_event_files_are_known_with_and_without_digits() {
    for (name, expected) in [
        ("event-000012-0123abcd.json", Some(12)),
        ("event-000012.json", Some(12)),
        ("event-1000000-0123abcd.json", Some(1_000_000)),
        ("event-12-0123abcd.json", None),
        ("event-000012-xyz.json", None),
        ("summary.json", None),
    ] {
        assert_eq!(chimera_archive::event_file_index(name), expected, "{name}");
    }
}

/// Three turns of the short session, the first of them cleared.
fn a_cleared_session() -> Vec<Arc<Event>> {
    let turn = |number: u64| {
        a_short_session()
            .into_iter()
            .map(move |event| Event { turn: Some(TurnId(number)), ..Event::clone(&event) })
    };
    let cleared = Event { body: Body::Cleared, turn: None, ..Event::clone(&a_short_session()[0]) };
    let all = turn(1).chain([cleared]).chain(turn(2)).chain(turn(3));
    (1..).zip(all).map(|(seq, event)| Arc::new(Event { seq: Seq(seq), ..event })).collect()
}

/// What a document comes to that is written in pages of this size.
fn in_pages(form: DocumentFormat, events: &[Arc<Event>], size: usize) -> String {
    let mut facts = DocumentFacts::default();
    events.iter().for_each(|event| facts.observe(event));
    let mut document = Document::new(form, row(), Some(facts), NOW);
    let mut out = String::new();
    document.begin(&mut out);
    for page in events.chunks(size) {
        document.put(page, &mut out).unwrap();
    }
    document.end(&mut out);
    out
}

#[test]
fn a_session_is_written_the_same_in_pages_of_any_size() {
    for events in [a_cleared_session(), a_short_session(), Vec::new()] {
        let transcript = Transcript::of(events.iter().map(AsRef::as_ref));
        let whole = [
            (DocumentFormat::Markdown, transcript_markdown::render(&row(), &transcript)),
            (DocumentFormat::Html, transcript_html::render(&row(), &transcript)),
            (DocumentFormat::Plain { full: true }, transcript_text::render(&row(), &transcript, true)),
            (
                DocumentFormat::Json { pretty: true },
                format!("{:#}\n", session_archive::encode(&row(), &events, NOW)),
            ),
            (
                DocumentFormat::Json { pretty: false },
                session_archive::encode(&row(), &events, NOW).to_string(),
            ),
            (
                DocumentFormat::Chimera,
                format!("{:#}\n", chimera_archive::write(&row(), &events).envelope(NOW)),
            ),
            (DocumentFormat::Messages, Value::Array(wire::rest::Messages::of(&events)).to_string()),
        ];
        for (form, whole) in whole {
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(in_pages(form, &events, size), whole, "{form:?} in pages of {size}");
            }
        }
    }
}

/// A turn of any number of steps is written with few of them in memory.
#[test]
fn the_rows_that_a_long_turn_holds_are_few() {
    let steps = 20_000;
    let step = |number: u64| {
        let call = CallId(format!("c{number}").into());
        let start = ToolStart {
            kind: ToolKind::Execute,
            ..ToolStart::new(call.clone(), "shell".into(), "echo".into())
        };
        let end = ToolEnd { elapsed_ms: 1, ..ToolEnd::of(call) };
        [Body::ToolStarted(Box::new(start)), Body::ToolEnded(Box::new(end))]
    };
    let events = events((0..steps).flat_map(step));
    let (mut transcript, mut most, mut taken) = (Transcript::default(), 0, 0);
    for page in events.chunks(512) {
        page.iter().for_each(|event| transcript.observe(event));
        taken += transcript.take_settled().len();
        most = most.max(transcript.rows.len());
    }
    taken += transcript.take_rest().len();
    assert_eq!(taken as u64, steps);
    assert!(most < 1500, "{most} rows were held");
}
