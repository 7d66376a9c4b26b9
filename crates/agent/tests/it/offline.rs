//! The offline model in a whole house: what somebody without a key gets.

use agent::Offline;
use engine::{Body, PermissionAnswer};
use expect_test::{Expect, expect};

use crate::harness::Harness;

/// Prompts one after the other; the introduction is left out.
async fn check(prompts: &[&str], expected: Expect) -> Harness {
    let mut harness = Harness::with(Offline).await;
    harness.write("a.txt", "one\ntwo\n");
    harness.prompt("hello").await;
    let mut events = Vec::new();
    for prompt in prompts {
        events.extend(harness.prompt(prompt).await);
    }
    expected.assert_eq(&harness.lines(&events));
    harness
}

#[tokio::test]
async fn it_introduces_itself_once_and_names_the_session() {
    let mut harness = Harness::with(Offline).await;
    let first = harness.prompt("hello there").await;
    let lines = harness.lines(&first);
    assert!(
        lines.starts_with("say This is the offline model: no model key is configured. I can do: "),
        "{lines}"
    );
    assert!(lines.ends_with("title hello there\nEndTurn\n"), "{lines}");
    assert!(
        first.iter().filter(|event| matches!(event.body, Body::Text { .. })).count() > 3,
        "it is seen to grow"
    );
    let second = harness.prompt("hello there").await;
    let lines = harness.lines(&second);
    assert!(lines.starts_with("say I did not understand that.") && !lines.contains("title"), "{lines}");
}

#[tokio::test]
async fn it_uses_the_tools() {
    check(
        &["read a.txt", "list", "edit a.txt: two => 2", "write n/b.txt: x\ny\nrun cat n/b.txt; exit 3"],
        expect![[r#"
            say I will do that.|
            1 starts: Read a.txt (Read)
            1 ends: one|two|
            say I read a.txt: 2 lines; it begins with `one`.
            EndTurn
            say I will do that.|
            2 starts: List . (Read)
            2 ends: a.txt|
            say . has 1 entry: a.txt.
            EndTurn
            say I will do that.|
            3 starts: Edit a.txt (Edit)
            file DIR/a.txt Some("one|two|") -> Some("one|2|")
            3 ends:  told "edited a.txt at line 2"
            say I edited a.txt at line 2.
            EndTurn
            say I will do these 2 things.|
            4 starts: Write n/b.txt (Edit)
            file DIR/n/b.txt None -> Some("x|y|")
            4 ends:  told "created n/b.txt (2 lines)"
            5 starts: cat n/b.txt; exit 3 (Execute)
            asks Execute Medium cat n/b.txt; exit 3
            5 Stdout: x|y|
            5 fails: x|y| exit Some(3) None
            say I created n/b.txt (2 lines).|`cat n/b.txt; exit 3`: exit code 3; its last line is `y`.
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn calls_of_one_reply_have_their_own_ids_and_keep_their_order_for_the_model() {
    let mut harness = Harness::with(Offline).await;
    harness.write("a.txt", "one\n");
    let events = harness.prompt("read a.txt && then list && then read none").await;
    let started: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::ToolStarted(start) => Some(&start.call),
            _ => None,
        })
        .collect();
    let ended = events.iter().filter(|event| matches!(event.body, Body::ToolEnded(_))).count();
    assert_eq!((started.iter().collect::<std::collections::BTreeSet<_>>().len(), ended), (3, 3));
    let lines = harness.lines(&events);
    let last =
        "say I read a.txt: 1 line; it begins with `one`.|. has 1 entry: a.txt.|`read none` did not work";
    assert!(lines.contains(last), "{lines}");
}

#[tokio::test]
async fn a_plan_goes_through_its_states() {
    let mut harness = Harness::with(Offline).await;
    let events = harness.prompt("plan").await;
    let plans: String = harness
        .lines(&events)
        .lines()
        .filter(|line| line.starts_with("plan"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        plan Pending Pending Pending
        plan InProgress Pending Pending
        plan Completed InProgress Pending
        plan Completed Completed InProgress
        plan Completed Completed Completed
    "#]]
    .assert_eq(&plans);
    assert!(harness.lines(&events).ends_with("say The plan is done.\ntitle plan\nEndTurn\n"));
}

#[tokio::test]
async fn switching_the_model_shows_in_the_next_answer() {
    check(
        &["/model", "/model offline", "/model gpt", "/model terse", "read a.txt"],
        expect![[r#"
            say The model can be:|- `offline:plain` (current)|- `offline:terse`|
            EndTurn
            say "offline" matches several: offline:plain, offline:terse. Write more of the name.
            EndTurn
            say There is no model "gpt".||The model can be:|- `offline:plain` (current)|- `offline:terse`|
            EndTurn
            model = offline:terse
            say The model is now offline:terse.
            EndTurn
            1 starts: Read a.txt (Read)
            1 ends: one|two|
            say I read a.txt: 2 lines; it begins with `one`.
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn it_remembers_across_a_restart_and_forgets_when_cleared() {
    let mut harness = check(
        &["my name is Ada", "what did I say?"],
        expect![[r#"
            say I did not understand that. I can do: `read FILE`, `list [DIR]`, `search TEXT`, `run CMD`, `write FILE: TEXT`, `edit FILE: OLD => NEW`, `plan`, `think`, `stream N [BYTES]`, `sleep MS`, `what did I say?`, `fail`; several at once on several lines or joined by ` && then `.
            EndTurn
            say You said:|- hello|- my name is Ada|
            EndTurn
        "#]],
    )
    .await;
    harness.restart().await;
    let events = harness.prompt("what did I say?").await;
    assert_eq!(
        harness.lines(&events),
        "say You said:|- hello|- my name is Ada|- what did I say?|\nEndTurn\n"
    );

    let events = harness.prompt("/compact").await;
    assert!(
        harness
            .lines(&events)
            .starts_with("compacting\ncompacted\nsay For the model, this summary now replaces")
    );
    harness.restart().await;
    let events = harness.prompt("what did I say?").await;
    let lines = harness.lines(&events);
    assert!(
        lines.starts_with("say You said:|- hello|- my name is Ada|- what did I say?|- what did I say?|- (summed up) The user asked:|"),
        "{lines}"
    );

    let events = harness.prompt("/clear").await;
    assert_eq!(
        harness.lines(&events),
        "cleared\nsay The conversation is cleared. The session goes on.\nEndTurn\n"
    );
    let events = harness.prompt("what did I say?").await;
    assert!(harness.lines(&events).ends_with("|You said nothing before this.|\nEndTurn\n"));
}

#[tokio::test]
async fn a_review_only_reads() {
    check(
        &["/review a.txt", "/review a;b", "/nonsense"],
        expect![[r#"
            say I will do that.|
            1 starts: Read a.txt (Read)
            1 ends: one|two|
            say Review of a.txt: 2 lines.|- no lines longer than 120 characters|- no lines with TODO, FIXME or XXX|- no lines ending in blanks|The offline model sees such facts only; a real model judges the code.
            EndTurn
            say Nothing was reviewed: a path to review has letters, digits and . _ - / + @ only.
            EndTurn
            say I did not understand that. I can do: `read FILE`, `list [DIR]`, `search TEXT`, `run CMD`, `write FILE: TEXT`, `edit FILE: OLD => NEW`, `plan`, `think`, `stream N [BYTES]`, `sleep MS`, `what did I say?`, `fail`; several at once on several lines or joined by ` && then `.
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_failing_model_leaves_the_session_usable_and_a_flood_arrives_whole() {
    let mut harness = check(
        &["fail", "think", "sleep 1"],
        expect![[r#"
            Error: the offline model failed, as it was asked to
            Failed
            think Let me see. 
            think There is a question, 
            think and it wants an answer.
            say I thought about it.|
            EndTurn
            say I slept 1 ms.|
            EndTurn
        "#]],
    )
    .await;
    harness.answer = PermissionAnswer::DenyOnce;
    let events = harness.prompt("stream 20000").await;
    let texts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Text { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 20_000);
    assert!(texts[0].starts_with("chunk 1 .") && texts[19_999].starts_with("chunk 20000 ."));
    assert!(texts.iter().all(|text| text.len() == 100));
}
