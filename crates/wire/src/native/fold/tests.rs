//! Rows and state are functions of the log, wherever the fold begins and whenever a client looks.

mod test_logs;

use std::collections::BTreeMap;

use engine::Event;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{Rows, TurnStarts, Viewer};
use crate::native::{PAGE_ROWS, Row, RowContent, TEXT_BYTES_MAX, TextAppend, ToolCallState};
use test_logs::{any_log, log};

fn fold(events: &[Event]) -> Rows {
    let mut rows = Rows::default();
    events.iter().for_each(|event| rows.observe(event));
    rows
}

fn marks(events: &[Event]) -> TurnStarts {
    let mut marks = TurnStarts::default();
    events.iter().filter(|event| !event.body.is_streamed()).for_each(|event| marks.observe(event));
    marks
}

/// A client that applies what it is sent.
#[derive(Default)]
struct Client {
    rows: BTreeMap<u64, Row>,
}

impl Client {
    fn look(&mut self, viewer: &mut Viewer, rows: &Rows) {
        let delta = viewer.next_delta(rows);
        if delta.reset {
            self.rows.clear();
        }
        self.rows.extend(delta.rows.into_iter().map(|row| (row.id, row)));
        for TextAppend { row, rev, text } in delta.appends {
            let row = self.rows.get_mut(&row).expect("a row that grows is there");
            row.rev = rev;
            if let RowContent::AgentMessage { text: before, .. } | RowContent::Thought { text: before, .. } =
                &mut row.what
            {
                before.push_str(&text);
            } else if let RowContent::Tool(tool) = &mut row.what {
                tool.output.push_str(&text);
            } else {
                panic!("this does not grow: {row:?}");
            }
        }
    }

    /// The client has all current rows, at least from its own first row on.
    fn is_current(&self, rows: &Rows) {
        let first = self.rows.keys().next().copied().unwrap_or_default();
        let held: Vec<&Row> = rows.iter().filter(|row| row.id >= first).collect();
        let oldest = held.first().map_or(u64::MAX, |row| row.id);
        let own: Vec<&Row> = self.rows.values().filter(|row| row.id >= oldest).collect();
        assert_eq!(own, held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn from_the_start_of_any_turn_the_rows_are_the_same(script in any_log(), few in 0_usize..40) {
        let log = log(&script);
        let (all, marks) = (fold(&log), marks(&log));
        let mut late = marks.last_rows(few);
        let start = late.upto();
        log.iter().filter(|event| event.seq.0 > start).for_each(|event| late.observe(event));
        let expected: Vec<&Row> = all.iter().filter(|row| row.id > start).collect();
        prop_assert_eq!(late.iter().collect::<Vec<_>>(), expected);
        prop_assert!(late.len() >= few.min(all.len()), "there are enough");
    }

    #[test]
    fn pages_backwards_are_all_of_the_rows(script in any_log(), from in 0_usize..400) {
        let log = log(&script);
        let (all, marks) = (fold(&log), marks(&log));
        let wanted: Vec<Row> = all.iter().take(from).cloned().collect();
        let mut before = all.iter().nth(from).map_or(u64::MAX, |row| row.id);
        let mut found: Vec<Row> = Vec::new();
        loop {
            let (mut rows, end) = (marks.rows_before(before, PAGE_ROWS), marks.next_after(before));
            let start = rows.upto();
            for event in log.iter().filter(|event| event.seq.0 > start) {
                if end.is_none_or(|end| event.seq.0 <= end) {
                    rows.observe(event);
                    rows.drop_from(before);
                }
            }
            let first = rows.len().saturating_sub(PAGE_ROWS);
            let page: Vec<Row> = rows.iter().skip(first).cloned().collect();
            let earlier = first > 0 || rows.earlier();
            prop_assert!(!earlier || !page.is_empty(), "a page that is not the first has rows");
            found.splice(0..0, page.iter().cloned());
            let Some(oldest) = page.first().filter(|_| earlier) else { break };
            before = oldest.id;
        }
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn whoever_looks_now_and_then_ends_with_what_there_is(
        script in any_log(),
        every in 1_usize..30,
        held in 4_usize..200,
    ) {
        let log = log(&script);
        let (mut rows, mut viewer, mut client) = (Rows::default(), Viewer::new(None), Client::default());
        for (at, event) in log.iter().enumerate() {
            rows.observe(event);
            rows.trim(held);
            if at % every == 0 {
                client.look(&mut viewer, &rows);
                client.is_current(&rows);
            }
        }
        client.look(&mut viewer, &rows);
        client.is_current(&rows);
    }

    #[test]
    fn whoever_comes_back_ends_with_what_there_is(script in any_log(), left in 0_usize..400, held in 4_usize..200) {
        let log = log(&script);
        let (mut rows, mut viewer, mut client) = (Rows::default(), Viewer::new(None), Client::default());
        let mut left_at = None;
        for (at, event) in log.iter().enumerate() {
            rows.observe(event);
            rows.trim(held);
            if at == left {
                client.look(&mut viewer, &rows);
                left_at = Some(rows.upto());
            }
        }
        let mut back = Viewer::new(left_at);
        client.look(&mut back, &rows);
        client.is_current(&rows);
    }

    #[test]
    fn one_row_can_be_had_whole(script in any_log(), which in 0_usize..400) {
        let log = log(&script);
        let (all, marks) = (fold(&log), marks(&log));
        let Some(row) = all.iter().nth(which) else { return Ok(()) };
        let mut rows = marks.rows_around(row.id).with_full_row(row.id);
        let (start, end) = (rows.upto(), marks.next_after(row.id));
        for event in log.iter().filter(|event| event.seq.0 > start) {
            if end.is_none_or(|end| event.seq.0 <= end) {
                rows.observe(event);
                rows.keep_only(row.id);
            }
        }
        let whole = rows.iter().next().expect("the row").clone();
        if let (RowContent::AgentMessage { text, .. }, RowContent::AgentMessage { text: all, more }) = (&row.what, &whole.what) {
            prop_assert!(all.starts_with(text.as_str()) && *more == 0);
        }
        prop_assert_eq!(whole.id, row.id);
    }
}

fn words(row: &Row) -> String {
    let what = match &row.what {
        RowContent::Prompt { from, text, attached, .. } => format!("{from}: {text} {attached:?}"),
        RowContent::AgentMessage { text, .. } => format!("said {text}"),
        RowContent::Thought { text, .. } => format!("thought {text}"),
        RowContent::Tool(tool) => format!(
            "{} {:?} decided {:?} reason {:?} output {:?} diffs {}",
            tool.call,
            tool.state,
            tool.decided,
            tool.reason,
            tool.output,
            tool.diffs.len()
        ),
        RowContent::Plan(plan) => {
            format!("plan {}", plan.steps.iter().map(|step| step.text.clone()).collect::<String>())
        }
        RowContent::Question { text, reply, by } => format!("{text} {reply:?} {by:?}"),
        RowContent::Notice { text, .. } => format!("notice {text}"),
        RowContent::Note { text } => format!("note {text}"),
        RowContent::TurnEnd(ended) => {
            format!("{} in {} ms, {} tools, {} files", ended.stop, ended.elapsed_ms, ended.tools, ended.files)
        }
    };
    let under = row.under.map(|under| format!(" under {under}")).unwrap_or_default();
    format!("{}@{}{under}: {what}\n", row.id, row.rev)
}

fn check(script: &str, expected: &Expect) {
    expected.assert_eq(&fold(&log(script)).iter().map(words).collect::<String>());
}

#[test]
fn a_turn_is_a_prompt_what_came_of_it_and_its_end() {
    check(
        "prompt hello
         thought hm
         say one
         say two
         plan a
         tool c1
         out c1 text
         edit c1 a.rs
         end c1
         plan b
         say three
         ended",
        &expect![[r#"
            2@2: phone: hello []
            3@3: thought hm
            4@5: said onetwo
            6@11: plan b
            7@10: c1 Done decided None reason None output "text" diffs 1
            12@12: said three
            13@13: endTurn in 12 ms, 1 tools, 1 files
        "#]],
    );
}

#[test]
fn people_who_decide_are_named_and_the_policy_is_not() {
    check(
        "prompt go
         tool c1
         ask 1 c1
         allow 1 c1
         end c1
         tool c2
         policy 2 c2
         end c2
         tool c3
         ask 3 c3
         deny 3 c3
         end c3
         question 4
         reply 4 blue
         ended",
        &expect![[r#"
            2@2: phone: go []
            3@6: c1 Done decided Some("allowed by phone") reason None output "" diffs 0
            7@9: c2 Done decided None reason None output "" diffs 0
            10@13: c3 Refused decided Some("refused by phone") reason Some("refused by phone") output "" diffs 0
            14@15: which? Some("blue") Some("phone")
            16@16: endTurn in 15 ms, 3 tools, 0 files
        "#]],
    );
}

#[test]
fn sub_agents_stand_under_their_call_and_do_not_mix_their_words() {
    check(
        "prompt go
         tool c1
         say a
         sub c1 say x
         say b
         sub c1 say y
         sub c1 tool c2
         end c2
         end c1
         ended",
        &expect![[r#"
            2@2: phone: go []
            3@10: c1 Done decided None reason None output "" diffs 0
            4@6: said ab
            5@7 under 3: said xy
            8@9 under 3: c2 Done decided None reason None output "" diffs 0
            11@11: endTurn in 10 ms, 2 tools, 0 files
        "#]],
    );
}

#[test]
fn a_prompt_that_never_began_is_not_lost() {
    check(
        "prompt one
         prompt two
         drop
         ended",
        &expect![[r#"
            2@2: phone: one []
            4@4: note a queued prompt from phone was cancelled: two
            5@5: endTurn in 4 ms, 0 tools, 0 files
        "#]],
    );
}

#[test]
fn what_was_cleared_is_gone() {
    check(
        "prompt one
         say secret
         ended
         prompt /clear
         clear
         say cleared
         ended",
        &expect![[r#"
            8@8: said cleared
            9@9: endTurn in 4 ms, 0 tools, 0 files
        "#]],
    );
}

#[test]
fn a_message_is_cut_at_its_limit_and_not_before() {
    for (bytes, more) in [(TEXT_BYTES_MAX, 0), (TEXT_BYTES_MAX + 1, 1)] {
        let text = "x".repeat(bytes);
        let rows = fold(&log(&format!("prompt go\nsay {text}\nended")));
        let said = rows.iter().find_map(|row| {
            if let RowContent::AgentMessage { text, more } = &row.what {
                Some((text.len(), *more))
            } else {
                None
            }
        });
        assert_eq!(said, Some((TEXT_BYTES_MAX, more)));
    }
}

#[test]
fn a_flood_of_output_is_told_as_what_is_new() {
    let (mut rows, mut viewer, mut client) = (Rows::default(), Viewer::new(None), Client::default());
    let mut script = String::from("prompt go\ntool c1\n");
    (0..4000).for_each(|line| script.push_str(&format!("out c1 line-{line}\n")));
    let (mut whole, mut appended) = (0, 0);
    for event in log(&script) {
        rows.observe(&event);
        let before = client.rows.clone();
        client.look(&mut viewer, &rows);
        let sent_whole = before.get(&3).zip(client.rows.get(&3)).is_some_and(|(before, after)| {
            matches!((&before.what, &after.what), (RowContent::Tool(a), RowContent::Tool(b)) if a.more != b.more)
        });
        whole += usize::from(sent_whole);
        appended += usize::from(!sent_whole);
        client.is_current(&rows);
    }
    assert!(whole * 50 < appended, "{whole} rows and {appended} pieces");
}

#[test]
fn a_call_that_never_ended_is_still_running() {
    let rows = fold(&log("prompt go\ntool c1"));
    let running = rows
        .iter()
        .any(|row| matches!(&row.what, RowContent::Tool(tool) if tool.state == ToolCallState::Running));
    assert!(running);
}

#[test]
fn a_position_from_nowhere_begins_anew() {
    let rows = fold(&log("prompt go\nsay hi\nended"));
    for after in [Some(99), None] {
        let delta = Viewer::new(after).next_delta(&rows);
        assert!(delta.reset && delta.rows.len() == 3);
    }
    let delta = Viewer::new(Some(rows.upto())).next_delta(&rows);
    assert!(delta.is_empty());
}
