//! Who is asked, whose answer counts, and what happens without one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::SessionLimits;
use serde_json::{Value, json};
use testkit::server::{Client, Server, Setup, run};
use testkit::{Line, Script};

fn touch() -> Line {
    testkit::call("shell", r#"{"command":"echo x >> made"}"#)
}

/// A client, its session, and a turn that waits for leave to make the file `made`.
struct Asking {
    client: Client,
    session: String,
    turn: u64,
    ask: Value,
}

/// Runs a test from the moment that its client is asked. Later prompts ask the same again.
async fn check(setup: impl FnOnce(Setup) -> Setup, test: impl AsyncFnOnce(&mut Server, Asking)) {
    let script = Script::new([vec![touch()], vec![testkit::say("so be it")], vec![touch()], vec![]]);
    run(setup(Setup::script(&script)), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        test(server, Asking { client, session, turn, ask }).await;
    })
    .await;
}

fn made(server: &Server) -> usize {
    std::fs::read_to_string(server.workspace().join("made")).map_or(0, |text| text.lines().count())
}

fn status(client: &Client) -> Value {
    client.story().calls.into_values().next_back().unwrap()["status"].clone()
}

/// G1.
#[tokio::test]
async fn a_permission_request_offers_the_four_answers() {
    check(
        |setup| setup,
        async |_, Asking { mut client, session, turn, ask }| {
            let params = &ask["params"];
            assert_eq!(params["sessionId"], session);
            let kinds = params["options"].as_array().unwrap().iter().map(|option| &option["kind"]);
            assert!(kinds.eq(["allow_once", "allow_always", "reject_once", "reject_always"]));
            let call = client.updates_of("tool_call")[0];
            assert_eq!(params["toolCall"]["toolCallId"], call["toolCallId"]);
            assert_eq!(params["toolCall"]["rawInput"], call["rawInput"]);
            client.answer(&ask, "reject_once").await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
        },
    )
    .await;
}

/// G2, FF1.
#[tokio::test]
async fn an_answer_gets_through_while_the_turn_runs() {
    check(
        |setup| setup,
        async |server, Asking { mut client, turn, ask, .. }| {
            client.answer(&ask, "allow_once").await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!((made(server), status(&client)), (1, json!("completed")));
        },
    )
    .await;
}

/// G3.
#[tokio::test]
async fn without_leave_the_tool_does_not_run() {
    for answer in ["reject_once", "reject_always", "made up"] {
        check(
            |setup| setup,
            async |server, Asking { mut client, turn, ask, .. }| {
                client.answer(&ask, answer).await;
                assert_eq!(client.stop_reason(turn).await, "end_turn");
                assert_eq!((made(server), status(&client)), (0, json!("failed")), "{answer:?}");
                assert!(client.said().contains("so be it"), "the model goes on");
            },
        )
        .await;
    }
}

/// The outcome `cancelled` means that the prompt's turn was cancelled.
#[tokio::test]
async fn whoever_cancels_the_request_of_their_own_prompt_cancels_the_turn() {
    check(
        |setup| setup,
        async |server, Asking { mut client, session, turn, ask }| {
            let mut other = server.client().await;
            other.load(&session).await;
            let asked = other.next_ask().await;
            client.answer_cancelled(&ask).await;
            assert_eq!(client.stop_reason(turn).await, "cancelled");
            assert_eq!(other.next_withdrawn().await, asked["id"]);
            other.answer(&asked, "allow_once").await;
            assert_eq!((made(server), status(&client)), (0, json!("failed")));
            assert!(!client.said().contains("so be it"), "the model is not asked again");
            // The session goes on: what the model was not asked then, it answers now.
            assert_eq!(client.prompt(&session, "go on").await, "end_turn");
            assert!(client.said().contains("so be it"));
        },
    )
    .await;
}

/// What a sub-agent asks for is asked in the same turn.
#[tokio::test]
async fn a_cancelled_request_of_a_sub_agent_cancels_the_turn() {
    let task = testkit::call("task", r#"{"description":"d","prompt":"p"}"#);
    let script = Script::new([vec![task], vec![touch()], vec![testkit::say("so be it")]]);
    run(Setup::script(&script), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        client.answer_cancelled(&ask).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert_eq!(made(server), 0);
        assert_eq!(script.requests().len(), 2, "no model is asked again");
    })
    .await;
}

/// A client that looks on gives that outcome too when its window is closed.
#[tokio::test]
async fn whoever_cancels_the_request_of_another_prompt_refuses_it_and_no_more() {
    check(
        |setup| setup,
        async |server, Asking { mut client, session, turn, ask }| {
            let mut other = server.client().await;
            other.load(&session).await;
            let asked = other.next_ask().await;
            other.answer_cancelled(&asked).await;
            assert_eq!(client.next_withdrawn().await, ask["id"]);
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!((made(server), status(&client)), (0, json!("failed")));
            assert!(client.said().contains("so be it"), "the model goes on");
        },
    )
    .await;
}

/// Somebody else answered; the client confirms that it withdrew the request, perhaps late.
#[tokio::test]
async fn a_request_that_was_withdrawn_is_cancelled_without_effect() {
    check(
        |setup| setup,
        async |server, Asking { mut client, session, turn, ask }| {
            let mut other = server.client().await;
            other.load(&session).await;
            let asked = other.next_ask().await;
            other.answer(&asked, "allow_once").await;
            assert_eq!(client.next_withdrawn().await, ask["id"]);
            client.answer_cancelled(&ask).await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!((made(server), status(&client)), (1, json!("completed")));
        },
    )
    .await;
}

/// G3: an error is no leave either.
#[tokio::test]
async fn a_permission_request_without_a_usable_answer_lets_nothing_run() {
    check(
        |setup| setup,
        async |server, Asking { mut client, turn, ask, .. }| {
            client.reply_with_error(&ask).await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!(made(server), 0);
        },
    )
    .await;
}

/// An answer once and for all is not asked for again, not even after a restart.
#[tokio::test]
async fn always_and_never_are_remembered() {
    for (answer, lines, end) in [("allow_always", 2, "completed"), ("reject_always", 0, "failed")] {
        check(Setup::on_disk, async |server, Asking { mut client, session, turn, ask }| {
            client.answer(&ask, answer).await;
            client.stop_reason(turn).await;
            client.hang_up().await;
            server.restart().await;
            let mut client = server.client().await;
            client.load(&session).await;
            assert_eq!(client.prompt(&session, "again").await, "end_turn");
            assert_eq!((made(server), status(&client)), (lines, json!(end)));
        })
        .await;
    }
}

/// I1, G3: a cancel settles the open question, on every client.
#[tokio::test]
async fn a_cancel_withdraws_the_question() {
    check(
        |setup| setup,
        async |server, Asking { mut client, session, turn, ask }| {
            let mut other = server.client().await;
            other.load(&session).await;
            let asked = other.next_ask().await;
            client.notify("session/cancel", json!({ "sessionId": session })).await;
            assert_eq!(client.stop_reason(turn).await, "cancelled");
            assert_eq!(client.next_withdrawn().await, ask["id"]);
            assert_eq!(other.next_withdrawn().await, asked["id"]);
            client.answer(&ask, "allow_once").await;
            assert_eq!((made(server), status(&client)), (0, json!("failed")));
        },
    )
    .await;
}

/// Two clients are asked the same; the first answer counts and the other client is told to stop asking.
#[tokio::test]
async fn the_first_answer_wins_and_the_other_client_is_told() {
    for first_answer in ["allow_once", "reject_once"] {
        check(
            |setup| setup,
            async |server, Asking { mut client, session, turn, ask }| {
                let mut other = server.client().await;
                other.load(&session).await;
                let asked = other.next_ask().await;
                assert_eq!(asked["params"]["toolCall"], ask["params"]["toolCall"]);
                let late = if first_answer == "allow_once" { "reject_once" } else { "allow_once" };
                other.answer(&asked, first_answer).await;
                assert_eq!(client.next_withdrawn().await, ask["id"]);
                client.answer(&ask, late).await;
                assert_eq!(client.stop_reason(turn).await, "end_turn");
                other.catch_up(&session).await;
                assert_eq!(made(server), usize::from(first_answer == "allow_once"));
                assert!(!other.kinds().contains(&"withdrawn"), "who answered is not told to stop");
                assert_eq!(status(&client), status(&other));
            },
        )
        .await;
    }
}

/// Both answers are on their way at once, many times: exactly one counts.
#[tokio::test]
async fn answers_that_race_give_one_resolution() {
    for _ in 0..20 {
        check(
            |setup| setup,
            async |server, Asking { mut client, session, turn, ask }| {
                let mut other = server.client().await;
                other.load(&session).await;
                let asked = other.next_ask().await;
                tokio::join!(client.answer(&ask, "allow_once"), other.answer(&asked, "reject_once"));
                client.stop_reason(turn).await;
                other.catch_up(&session).await;
                let allowed = status(&client) == "completed";
                assert_eq!((made(server), status(&other)), (usize::from(allowed), status(&client)));
                client.drain_withdrawn();
                other.drain_withdrawn();
            },
        )
        .await;
    }
}

/// The client that was asked goes away; whoever loads the session next is asked again.
#[tokio::test]
async fn a_question_outlives_the_client_that_was_asked() {
    check(
        |setup| setup,
        async |server, Asking { client, session, .. }| {
            client.vanish();
            let mut back = server.client().await;
            back.load(&session).await;
            let load_answered = back.frames().len();
            let ask = back.next_ask().await;
            assert!(back.frames().len() > load_answered, "the history comes before the question");
            back.answer(&ask, "allow_once").await;
            server.idle(&session).await;
            back.catch_up(&session).await;
            assert_eq!((made(server), status(&back)), (1, json!("completed")));
            assert!(back.said().contains("so be it"));
        },
    )
    .await;
}

/// The same for a client that resumes: it is told no history, but it is asked.
#[tokio::test]
async fn a_question_is_asked_again_after_a_resume() {
    check(
        |setup| setup,
        async |server, Asking { client, session, .. }| {
            client.vanish();
            let mut back = server.client().await;
            let params = back.open_params(&session);
            back.call("session/resume", params).await;
            let ask = back.next_ask().await;
            back.answer(&ask, "allow_once").await;
            server.idle(&session).await;
            back.catch_up(&session).await;
            assert_eq!((made(server), status(&back)), (1, json!("completed")));
            assert!(back.updates_of("user_message_chunk").is_empty());
        },
    )
    .await;
}

/// A client that loads a session it already has is not asked twice.
#[tokio::test]
async fn loading_again_does_not_ask_again() {
    check(
        |setup| setup,
        async |server, Asking { mut client, session, turn, ask }| {
            client.load(&session).await;
            client.catch_up(&session).await;
            assert_eq!(client.kinds().iter().filter(|kind| **kind == "ask").count(), 1);
            client.answer(&ask, "allow_once").await;
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            assert_eq!(made(server), 1);
        },
    )
    .await;
}

/// Nobody answers in time: that is a no.
#[tokio::test]
async fn a_question_with_a_deadline_is_refused_when_it_is_over() {
    let short = |setup: Setup| {
        let ask_timeout = Some(Duration::from_millis(20));
        Setup { limits: SessionLimits { ask_timeout, ..SessionLimits::default() }, ..setup }
    };
    check(short, async |server, Asking { mut client, turn, ask, .. }| {
        assert_eq!(client.next_withdrawn().await, ask["id"]);
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert_eq!((made(server), status(&client)), (0, json!("failed")));
    })
    .await;
}

/// S1: the risk and its reason, beside the request for programs and in it for people.
#[tokio::test]
async fn a_permission_request_says_how_risky_it_is() {
    for (command, risk, loud) in
        [("git push origin main", "medium", None), ("rm -rf build", "critical", Some("Critical risk: "))]
    {
        let call = testkit::call("shell", json!({ "command": command }).to_string());
        let script = Script::new([vec![call], vec![]]);
        run(Setup::script(&script), async |server| {
            let mut client = server.client().await;
            let session = client.new_session().await;
            let turn = client.send_prompt(&session, "go").await;
            let ask = client.next_ask().await;
            assert_eq!(ask["params"]["_meta"]["risk"], risk, "{command}");
            assert!(ask["params"]["_meta"]["reason"].as_str().unwrap().contains(command), "{ask}");
            let content = &ask["params"]["toolCall"]["content"][0]["content"]["text"];
            let shown = content.as_str().unwrap_or_default();
            assert_eq!(shown.starts_with(loud.unwrap_or("-")), loud.is_some(), "{shown}");
            client.answer(&ask, "reject_once").await;
            client.stop_reason(turn).await;
        })
        .await;
    }
}
