//! How turns end: by themselves, by a limit, by a failure, by a cancel; and that the session goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent::ModelStop;
use engine::Stop;
use serde_json::json;
use testkit::server::{Setup, run_with_session as check};
use testkit::{Line, Script, Turns};
use tokio::sync::Semaphore;

fn script(replies: impl IntoIterator<Item = Vec<Line>>) -> Setup {
    Setup::script(&Script::new(replies))
}

/// I1.
#[tokio::test]
async fn cancel_works_as_a_notification_and_as_a_request() {
    let hang = vec![testkit::say("x"), Line::Hang];
    check(script([hang.clone(), hang]), async |_, mut client, session| {
        for as_request in [false, true] {
            let turn = client.send_prompt(&session, "go").await;
            client.next_update_of("agent_message_chunk").await;
            let params = json!({ "sessionId": session });
            if as_request {
                let answer = client.call("session/cancel", params).await;
                assert_eq!(answer, json!({ "sessionId": session, "cancelled": true }));
            } else {
                client.notify("session/cancel", params).await;
            }
            assert_eq!(client.stop_reason(turn).await, "cancelled");
        }
        // There is nothing to cancel, and nobody to tell.
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        client.notify("session/cancel", json!({ "sessionId": "nobody" })).await;
        client.notify("session/cancel", json!({})).await;
        assert_eq!(client.prompt(&session, "go on").await, "end_turn");
    })
    .await;
}

/// I2: time stands still unless everybody waits for it, so a cancel that needs any grace would show.
#[tokio::test(start_paused = true)]
async fn a_cancel_interrupts_the_model_at_once() {
    let thinking = script([vec![testkit::say("thinking"), Line::Hang]]);
    for (setup, prompt) in [(thinking, "go"), (Setup::offline(), "stream 1000000")] {
        check(setup, async |_, mut client, session| {
            let turn = client.send_prompt(&session, prompt).await;
            client.next_update_of("agent_message_chunk").await;
            let before = tokio::time::Instant::now();
            client.notify("session/cancel", json!({ "sessionId": session })).await;
            assert_eq!(client.stop_reason(turn).await, "cancelled");
            assert!(before.elapsed() < Duration::from_millis(500));
        })
        .await;
    }
}

/// A turn that does not listen is ended all the same, after its grace.
#[tokio::test(start_paused = true)]
async fn a_turn_that_ignores_the_cancel_is_ended_by_force() {
    let deaf = Turns::new(|_, _| std::future::pending());
    check(Setup::new(deaf), async |_, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        client.catch_up(&session).await;
        let before = tokio::time::Instant::now();
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert!(before.elapsed() <= Duration::from_secs(6), "{:?}", before.elapsed());
    })
    .await;
}

/// I4.
#[tokio::test]
async fn what_was_said_before_a_cancel_is_delivered_before_its_answer() {
    let script = Script::new([vec![testkit::say("half a "), testkit::say("sentence"), Line::Hang]]);
    check(Setup::script(&script), async |server, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        while client.said() != "half a sentence" {
            client.next_update().await;
        }
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert_eq!(client.kinds().last(), Some(&"reply"));
        let mut later = server.client().await;
        later.load(&session).await;
        assert_eq!(later.said(), "half a sentence");
        client.prompt(&session, "go on").await;
        let told = format!("{:?}", script.requests()[1].messages);
        assert!(told.contains("half a sentence"), "the model knows what it said: {told}");
    })
    .await;
}

/// I5.
#[tokio::test]
async fn every_way_to_stop_has_its_reason() {
    let setup = script([
        vec![testkit::say("done")],
        vec![testkit::say("too l"), Line::Stop(ModelStop::MaxTokens)],
        vec![Line::Stop(ModelStop::Refusal)],
    ]);
    check(setup, async |_, mut client, session| {
        for reason in ["end_turn", "max_tokens", "refusal"] {
            assert_eq!(client.prompt(&session, "go").await, reason);
        }
    })
    .await;
}

/// I7, FF2.
#[tokio::test]
async fn a_late_cancel_does_not_hit_the_next_prompt() {
    check(Setup::offline(), async |_, mut client, session| {
        for _ in 0..50 {
            assert_eq!(client.prompt(&session, "hello").await, "end_turn");
            client.notify("session/cancel", json!({ "sessionId": session })).await;
            assert_eq!(client.prompt(&session, "hello again").await, "end_turn");
        }
    })
    .await;
}

/// I7: the same for a cancel of one request that is answered already.
#[tokio::test]
async fn a_late_cancel_of_a_request_hits_nothing() {
    check(Setup::offline(), async |_, mut client, session| {
        let first = client.send_prompt(&session, "hello").await;
        client.stop_reason(first).await;
        let second = client.send_prompt(&session, "stream 100").await;
        client.notify("$/cancel_request", json!({ "requestId": first })).await;
        assert_eq!(client.stop_reason(second).await, "end_turn");
    })
    .await;
}

/// I8.
#[tokio::test]
async fn a_request_is_cancelled_by_its_id_and_no_other() {
    let hang = || vec![testkit::say("x"), Line::Hang];
    check(script([hang(), hang()]), async |_, mut client, session| {
        let first = client.send_prompt(&session, "one").await;
        let second = client.send_prompt(&session, "two").await;
        let third = client.send_prompt(&session, "three").await;
        client.next_update_of("agent_message_chunk").await;
        client.notify("$/cancel_request", json!({ "requestId": second })).await;
        assert_eq!(client.stop_reason(second).await, "cancelled");
        client.notify("$/cancel_request", json!({ "requestId": "nobody" })).await;
        client.notify("$/cancel_request", json!({ "requestId": first })).await;
        assert_eq!(client.stop_reason(first).await, "cancelled");
        client.next_update_of("agent_message_chunk").await;
        client.notify("$/cancel_request", json!({ "requestId": third })).await;
        assert_eq!(client.stop_reason(third).await, "cancelled");
    })
    .await;
}

/// A cancel takes what its own client queued along, and nobody else's.
#[tokio::test]
async fn a_cancel_leaves_what_other_clients_queued() {
    let setup = script([vec![testkit::say("x"), Line::Hang], vec![testkit::say("yours")]]);
    check(setup, async |server, mut client, session| {
        let mut other = server.client().await;
        other.load(&session).await;
        let running = client.send_prompt(&session, "one").await;
        client.next_update_of("agent_message_chunk").await;
        let queued = client.send_prompt(&session, "two").await;
        client.catch_up(&session).await;
        let theirs = other.send_prompt(&session, "three").await;
        other.catch_up(&session).await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(running).await, "cancelled");
        assert_eq!(client.stop_reason(queued).await, "cancelled");
        assert_eq!(other.stop_reason(theirs).await, "end_turn");
    })
    .await;
}

/// I10.
#[tokio::test]
async fn a_session_is_usable_after_a_cancel() {
    check(Setup::offline(), async |_, mut client, session| {
        for _ in 0..20 {
            let turn = client.send_prompt(&session, "stream 100000").await;
            client.notify("session/cancel", json!({ "sessionId": session })).await;
            assert_eq!(client.stop_reason(turn).await, "cancelled");
            assert_eq!(client.prompt(&session, "hello").await, "end_turn");
        }
    })
    .await;
}

/// I11.
#[tokio::test]
async fn a_turn_that_fails_is_answered_with_the_reason_and_the_next_one_works() {
    let setup = script([
        vec![testkit::say("well"), testkit::fail("the provider is down")],
        vec![testkit::say("better")],
    ]);
    check(setup, async |server, mut client, session| {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
        let refused = client.refused("session/prompt", prompt).await;
        assert_eq!((refused.code, refused.message.as_str()), (-32603, "the provider is down"));
        assert_eq!(client.prompt(&session, "again").await, "end_turn");
        let mut later = server.client().await;
        later.load(&session).await;
        assert_eq!(later.story().texts("agent_message_chunk"), ["well", "better"]);
    })
    .await;
}

/// I11: also if it is the agent itself that breaks.
#[tokio::test]
async fn a_turn_that_panics_is_answered_and_the_next_one_works() {
    let turns = AtomicUsize::new(0);
    let breaking = Turns::new(move |_, _| {
        let turn = turns.fetch_add(1, Ordering::SeqCst);
        assert_ne!(turn, 0, "injected");
        async move {
            assert_ne!(turn, 1, "injected");
            Ok(Stop::EndTurn)
        }
    });
    check(Setup::new(breaking), async |_, mut client, session| {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
        assert_eq!(client.refused("session/prompt", prompt.clone()).await.code, -32603);
        assert_eq!(client.refused("session/prompt", prompt).await.code, -32603);
        assert_eq!(client.prompt(&session, "again").await, "end_turn");
    })
    .await;
}

/// I11: also if it is the session itself that breaks; whoever opens it again goes on from the store.
#[tokio::test]
async fn a_session_that_breaks_answers_everybody_and_can_be_opened_again() {
    let gate = Arc::new(Semaphore::new(0));
    let go = Arc::clone(&gate);
    let gated = Turns::new(move |_, context| {
        let gate = Arc::clone(&gate);
        async move {
            context.text(context.message(0), "before").await.unwrap();
            gate.acquire().await.unwrap().forget();
            context.text(context.message(1), "after").await.ok();
            Ok(Stop::EndTurn)
        }
    });
    check(Setup::new(gated).on_disk(), async |server, mut client, session| {
        let turn = client.send_prompt(&session, "go").await;
        let queued = client.send_prompt(&session, "go on").await;
        client.next_update_of("agent_message_chunk").await;
        client.catch_up(&session).await;
        server.clock().break_once();
        go.add_permits(1);
        assert_eq!(client.reply(turn).await.unwrap_err().code, -32603);
        assert_eq!(client.reply(queued).await.unwrap_err().code, -32603);
        client.forget_updates();
        client.load(&session).await;
        assert_eq!(client.said(), "before");
        go.add_permits(1);
        assert_eq!(client.prompt(&session, "go").await, "end_turn");
    })
    .await;
}

/// I12: the 50th call is the last.
#[tokio::test]
async fn a_turn_makes_at_most_fifty_model_calls() {
    let script = Script::new(vec![vec![testkit::call("list", "{}")]; 60]);
    check(Setup::script(&script), async |_, mut client, session| {
        assert_eq!(client.prompt(&session, "go").await, "max_turn_requests");
        assert_eq!(script.requests().len(), 50);
    })
    .await;
    let mut replies = vec![vec![testkit::call("list", "{}")]; 49];
    replies.push(vec![testkit::say("done")]);
    check(Setup::script(&Script::new(replies)), async |_, mut client, session| {
        assert_eq!(client.prompt(&session, "go").await, "end_turn");
    })
    .await;
}
