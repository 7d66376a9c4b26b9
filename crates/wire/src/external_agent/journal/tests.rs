use engine::{Redactor, StreamRedactor};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Redacts one secret.
struct OneSecret;

impl Redactor for OneSecret {
    fn redact(&self, text: &str) -> Option<String> {
        text.contains("hush").then(|| text.replace("hush", "[redacted]"))
    }

    fn redact_json(&self, json: &str) -> Option<String> {
        self.redact(json)
    }

    fn is_in_base64(&self, _data: &str) -> bool {
        false
    }

    fn stream(&self) -> Box<dyn StreamRedactor> {
        unreachable!("a journal has no text in pieces")
    }
}

fn update(session: &str, update: &Value) -> RawAgentFrame {
    let params = json!({ "sessionId": session, "update": update });
    line(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}

fn line(frame: &Value) -> RawAgentFrame {
    RawAgentFrame::Line(frame.to_string().into_bytes())
}

fn answer(id: u64, result: &Value) -> RawAgentFrame {
    line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn asked(method: &str, session: Option<&str>) -> Option<JournaledRequest> {
    Some(JournaledRequest { method: method.into(), session: session.map(Into::into) })
}

/// One prompt to an agent that uses these ids for its session and its tool call, and ends with this text.
fn conversation(session: &str, call: &str, says: &str) -> Vec<(RawAgentFrame, Option<JournaledRequest>)> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let permission = json!({ "sessionId": session, "toolCall": { "toolCallId": call },
        "options": [{ "optionId": "a", "name": "Yes", "kind": "allow_once" }] });
    vec![
        (answer(1, &json!({ "protocolVersion": 1, "agentCapabilities": {} })), asked("initialize", None)),
        (answer(2, &json!({ "sessionId": session })), asked("session/new", None)),
        (RawAgentFrame::Line(b"starting...".to_vec()), None),
        (
            update(session, &json!({ "sessionUpdate": "agent_message_chunk", "content": text("hush, ") })),
            None,
        ),
        (
            update(
                session,
                &json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "ls", "kind": "execute",
                "rawInput": { "command": "ls" } }),
            ),
            None,
        ),
        (
            line(&json!({ "jsonrpc": "2.0", "id": call, "method": "session/request_permission",
                "params": permission })),
            None,
        ),
        (
            update(
                session,
                &json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed" }),
            ),
            None,
        ),
        (RawAgentFrame::TooLong { bytes: 99, sha256: hex(b"long") }, None),
        (update(session, &json!({ "sessionUpdate": "dance" })), None),
        (update(session, &json!({ "sessionUpdate": "agent_message_chunk", "content": text(says) })), None),
        (answer(3, &json!({ "stopReason": "end_turn" })), asked("session/prompt", Some(session))),
        (answer(9, &json!({})), None),
        (RawAgentFrame::Line(vec![b'{', 0xff, b'}']), None),
    ]
}

fn recorded(conversation: Vec<(RawAgentFrame, Option<JournaledRequest>)>) -> Vec<String> {
    let (mut scribe, head) = JournalWriter::begin("theirs");
    let mut lines = vec![head];
    for (frame, answers) in conversation {
        lines.push(scribe.record(1, frame, answers, &OneSecret));
    }
    lines.push(scribe.end());
    lines
}

fn usual() -> Vec<String> {
    recorded(conversation("s-1", "c-1", "done"))
}

fn replayed(lines: &[impl AsRef<[u8]>]) -> Result<JournalSummary, JournalDivergence> {
    let mut replay = JournalReplay::default();
    for line in lines {
        replay.read(line.as_ref())?;
    }
    replay.finish()
}

fn diverges(lines: &[impl AsRef<[u8]>]) -> String {
    replayed(lines).unwrap_err().to_string()
}

fn steps(lines: &[String]) -> Vec<Step> {
    let mut replay = JournalReplay::default();
    lines.iter().filter_map(|line| replay.read(line.as_bytes()).unwrap()).collect()
}

fn check_heard(lines: &[String], expected: Expect) {
    let mut shown = String::new();
    for step in steps(lines) {
        let kinds = step.events.iter().map(|heard| heard.split(':').next().unwrap()).collect::<Vec<_>>();
        let fault = step.fault.map(|fault| format!(" ! {fault}")).unwrap_or_default();
        shown.push_str(&format!("{} {}{fault}\n", step.step, kinds.join(", ")));
    }
    expected.assert_eq(&shown);
}

#[test]
fn every_frame_is_judged_and_kept() {
    let lines = usual();
    check_heard(
        &lines,
        expect![[r#"
            1 greeted
            2 opened, offered
            3  ! not valid JSON: expected value, at position 1
            4 text
            5 tool_started
            6 asked
            7 tool_ended
            8  ! it is too long
            9 foreign ! `update.sessionUpdate` must be one of user_message_chunk, agent_message_chunk, agent_thought_chunk, tool_call, tool_call_update, plan, available_commands_update, current_mode_update, config_option_upd…
            10 text
            11 turn_ended
            12  ! it answers no pending request
            13  ! it is not text
        "#]],
    );
    let sound = replayed(&lines).unwrap();
    assert_eq!((sound.agent.as_str(), sound.steps, sound.ended, sound.faults), ("theirs", 13, true, 5));
    assert_eq!(sound.faulty.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [3, 8, 9, 12, 13]);
    let steps = steps(&lines);
    assert_eq!((steps[7].bytes, &steps[7].frame), (99, &None));
    assert_eq!((steps[12].bytes, &steps[12].sha256), (3, &hex(b"{\xff}")));
}

#[test]
fn a_journal_has_no_secrets_and_can_be_verified_all_the_same() {
    let lines = usual();
    assert!(lines.iter().all(|line| !line.contains("hush")));
    let step = &steps(&lines)[3];
    let frame = step.frame.as_ref().unwrap();
    assert!(frame.contains("[redacted], "), "{frame}");
    assert_eq!(step.sha256, hex(frame.as_bytes()));
}

#[test]
fn a_frame_that_was_changed_is_named_by_its_step() {
    let lines = usual();
    let mut found = 0;
    for at in 1..=13 {
        let mut step: Step = serde_json::from_str(&lines[at]).unwrap();
        let Some(frame) = &mut step.frame else { continue };
        frame.push(' ');
        let mut changed = lines.clone();
        changed[at] = json(&step);
        assert_eq!(diverges(&changed), format!("step {at}: its frame was changed: the hash does not match"));
        step.sha256 = hex(step.frame.as_ref().unwrap().as_bytes());
        changed[at] = json(&step);
        assert!(diverges(&changed).starts_with(&format!("step {at}: it ")), "{}", diverges(&changed));
        found += 1;
    }
    assert_eq!(found, 11);
}

#[test]
fn a_step_that_is_missing_doubled_or_moved_is_named() {
    let lines = usual();
    for at in 1..=13 {
        let mut missing = lines.clone();
        missing.remove(at);
        assert!(diverges(&missing).starts_with(&format!("step {at}: it is missing")), "{at}");
        let mut doubled = lines.clone();
        doubled.insert(at, lines[at].clone());
        let expected = format!("step {}: step {at} is repeated in its place", at + 1);
        assert_eq!(diverges(&doubled), expected);
    }
    let mut moved = lines.clone();
    moved.swap(4, 9);
    assert_eq!(diverges(&moved), "step 4: it is missing: step 9 is in its place");
    let mut more = lines.clone();
    more.push(lines[13].clone());
    assert_eq!(diverges(&more), "step 14: there is data after the end of the journal");
}

#[test]
fn a_journal_without_its_end_says_so_and_one_without_a_head_is_none() {
    let lines = usual();
    let cut = replayed(&lines[..6]).unwrap();
    assert_eq!((cut.steps, cut.ended), (5, false));
    assert_eq!(diverges(&lines[1..]), "the head of the journal: the file does not start with one");
    assert_eq!(diverges(&[""; 0]), "the head of the journal: there is none");
    let other = [lines[0].replace("theirs", "others"), lines[1].clone()];
    assert_eq!(diverges(&other), "step 1: it does not match the head: one of the two was changed");
    let newer = [lines[0].replace("\"journal\":1", "\"journal\":2")];
    assert_eq!(diverges(&newer), "the head of the journal: it has format 2, but this version reads 1");
}

/// As if the decoder had changed since: all links are valid, and one step was translated differently.
#[test]
fn a_step_that_is_heard_as_something_else_is_named() {
    let lines = usual();
    let mut chain = link("", &lines[0]);
    let mut forged = vec![lines[0].clone()];
    for mut step in steps(&lines) {
        step.chain.clear();
        if step.step == 7 {
            step.events = vec!["text:0123456789abcdef".into()];
        }
        let open = json(&step);
        chain = link(&chain, &open);
        forged.push(closed(&open, &chain));
    }
    let why = diverges(&forged);
    assert!(
        why.starts_with("step 7: it was translated to text:0123456789abcdef, but now to tool_ended:"),
        "{why}"
    );
}

fn differ(here: &[String], there: &[String]) -> Option<String> {
    let mut against = JournalComparison::default();
    let (here, there) = (steps(here), steps(there));
    here.iter().zip(&there).find_map(|(here, there)| {
        against.differ(here, there).map(|what| JournalDivergence { step: here.step, what }.to_string())
    })
}

#[test]
fn two_journals_of_one_prompt_differ_only_in_what_the_agent_said() {
    let same = recorded(conversation("another-session", "another-call", "done"));
    assert_eq!(differ(&usual(), &same), None);
    let other = recorded(conversation("s", "c", "failed"));
    assert_eq!(
        differ(&usual(), &other).unwrap(),
        "step 10: params.update.content.text is \"done\" here and \"failed\" there"
    );
    let long = |end: &str| recorded(conversation("s", "c", &("é".repeat(100) + end)));
    assert_eq!(
        differ(&long("à"), &long("á")).unwrap(),
        "step 10: params.update.content.text, from byte 190 on, is \"éééééà\" here and \"éééééá\" there"
    );
    let mut mixed = conversation("s-1", "c-1", "done");
    mixed[6] = (
        update(
            "s-1",
            &json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c-2", "status": "completed" }),
        ),
        None,
    );
    assert_eq!(
        differ(&usual(), &recorded(mixed)).unwrap(),
        "step 7: params.update.toolCallId is number 1 of its kind here and 2 there"
    );
    let times = |time: &str| {
        let update = update("s", &json!({ "sessionUpdate": "session_info_update", "updatedAt": time }));
        recorded(vec![(update, None)])
    };
    assert_eq!(differ(&times("2025-04-01T12:00:00Z"), &times("2026-01-02T03:04:05.678Z")), None);
}

proptest! {
    #[test]
    fn whatever_byte_is_changed_its_step_is_named(
        at in 1_usize..=13, place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut lines: Vec<Vec<u8>> = usual().into_iter().map(String::into_bytes).collect();
        let place = place.index(lines[at].len());
        prop_assume!(lines[at][place] != byte && byte != b'\n');
        lines[at][place] = byte;
        prop_assert_eq!(replayed(&lines).unwrap_err().step, at as u64);
    }

    #[test]
    fn whatever_an_agent_says_its_journal_is_sound(
        said in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), ".{0,40}", any::<bool>()), 0..12),
    ) {
        let frames = said.into_iter().map(|(bytes, text, raw)| {
            let text = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
            (if raw { RawAgentFrame::Line(bytes) } else { update("s", &text) }, None)
        });
        let lines = recorded(frames.collect());
        prop_assert_eq!(replayed(&lines).unwrap().steps, lines.len() as u64 - 2);
    }
}
