//! Otter's clients: every update has a number that means the same to everybody, for ever.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use engine::{Body, Event, Seq, Stop, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};
use service::ServiceRules;
use testkit::server::{OlderClient, Server, Setup, run};
use testkit::{Line, Script, Turns, call, fail, say};
use tokio::sync::Semaphore;
use wire::Dialect::Otter;

use crate::ferret::{two_replies, updates_of_two_replies};

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Otter).await;
    let session = client.new_session().await;
    (client, session)
}

fn kind(update: &Value) -> &str {
    update["update"]["sessionUpdate"].as_str().unwrap()
}

fn of<'a>(updates: &'a [Value], wanted: &str) -> Vec<&'a Value> {
    updates.iter().filter(|update| kind(update) == wanted).map(|update| &update["update"]).collect()
}

fn ids(updates: &[Value]) -> Vec<u64> {
    updates.iter().map(|update| update["eventId"].as_u64().unwrap()).collect()
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap()
}

fn touch() -> Line {
    call("shell", r#"{"command":"echo x >> made"}"#)
}

/// Resumes on a connection of its own: the answer, and what was told before it.
async fn resumed(server: &mut Server, session: &str, cursor: Value) -> (Value, Vec<Value>) {
    let mut client = server.older_client(Otter).await;
    let mut params = json!({ "sessionId": session });
    params.as_object_mut().unwrap().extend(cursor.as_object().unwrap().clone());
    let answer = client.call("session/resume", params).await;
    (answer, client.take_updates())
}

/// B3, B4, A16.
#[tokio::test]
async fn both_handshakes_are_in_one_answer_and_the_version_is_the_one_asked_for() {
    run(Setup::offline(), async |server| {
        let mut client = server.connect_older(Otter);
        assert_eq!(client.refused("session/new", json!({})).await.code, -32002);
        for (params, version) in [
            (json!({}), json!("0.1")),
            (json!({ "protocolVersion": "0.1" }), json!("0.1")),
            (json!({ "protocolVersion": 1 }), json!("0.1")),
            (json!({ "protocolVersion": 2 }), json!(2)),
        ] {
            let hello = client.call("initialize", params).await;
            assert_eq!(hello["protocolVersion"], version);
            assert_eq!(hello["serverInfo"]["name"], "otter-acp");
            let names: Vec<_> = hello["capabilities"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["sessionFork", "sessionList", "permissionRequest", "thinking", "vision"]);
            let agent = json!({
                "promptCapabilities": { "text": true },
                "sessionCapabilities": { "cancel": true, "resume": true },
                "toolApproval": true,
                "eventIds": true,
            });
            assert_eq!(hello["agentCapabilities"], agent);
        }
    })
    .await;
}

/// E26, E27, E28, J1, D2.
#[tokio::test]
async fn updates_are_numbered_without_gaps_and_calls_find_their_results() {
    let usage = Usage { input: 7, output: 3, cost_usd: 0.25, ..Usage::default() };
    let script = two_replies(usage);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let updates = updates_of_two_replies(&mut client, &session).await;
        assert!(ids(&updates).into_iter().eq(1..=count(updates.len())));
        assert_eq!(kind(&updates[0]), "turn_start");
        let end = updates.last().unwrap();
        assert_eq!((kind(end), &end["update"]["stopReason"]), ("turn_end", &json!("end_turn")));
        let text = |update: &&Value| update["content"]["text"].as_str().unwrap().to_owned();
        let said: String = of(&updates, "agent_message_chunk").iter().map(text).collect();
        assert_eq!(said, "one two");
        let (started, ended) = (of(&updates, "tool_call")[0], of(&updates, "tool_result")[0]);
        assert_eq!((&started["tool"], &started["input"]), (&json!("list_files"), &json!({})));
        assert_eq!((&ended["callId"], &ended["success"]), (&started["callId"], &json!(true)));
        let costs: Vec<_> =
            of(&updates, "usage_update").iter().map(|update| update["costUsd"].clone()).collect();
        assert_eq!(costs, [0.25, 0.5]);
    })
    .await;
}

/// G12, G13: both spellings, one question each.
#[tokio::test]
async fn a_question_is_answered_in_both_spellings_and_late_answers_do_nothing() {
    let script = Script::new([vec![touch()], vec![], vec![touch()], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let message = json!({ "sessionId": session, "message": "go" });
        let asked = client.send("session/message", message.clone()).await;
        let question = client.next_of("permission_request").await["update"].take();
        let name = question["requestId"].as_str().unwrap().to_owned();
        assert_eq!(name, format!("r1.{session}"));
        assert_eq!(
            (&question["tool"], &question["options"]),
            (&json!("bash"), &json!(["allow", "always", "deny"]))
        );
        let answer = json!({ "requestId": name, "reply": "allow" });
        assert_eq!(client.call("permission/respond", answer.clone()).await, json!({ "applied": true }));
        client.reply(asked).await.unwrap();
        assert_eq!(client.call("permission/respond", answer).await, json!({ "applied": false }));
        let asked = client.send("session/message", message).await;
        let question = client.next_of("permission_request").await["update"].take();
        let answer =
            json!({ "sessionId": session, "permissionId": question["permissionId"], "decision": "deny" });
        assert_eq!(client.call("tool/approve", answer).await, json!({ "applied": true }));
        client.reply(asked).await.unwrap();
        let made = std::fs::read_to_string(server.workspace().join("made")).unwrap();
        assert_eq!(made, "x\n");
        let stranger = json!({ "requestId": "r1.somebody-else", "reply": "allow" });
        assert_eq!(client.refused("permission/respond", stranger).await.code, -32602);
    })
    .await;
}

/// G12 with several clients: questions and their ends are numbered like everything else.
#[tokio::test]
async fn an_open_question_is_told_again_and_its_end_is_told_to_all() {
    let script = Script::new([vec![touch()], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut first, session) = opened(server).await;
        let message = json!({ "sessionId": session, "message": "go" });
        let asked = first.send("session/message", message).await;
        let question = first.next_of("permission_request").await;
        let mut second = server.older_client(Otter).await;
        let since = question["eventId"].as_u64().unwrap() - 1;
        let resume = json!({ "sessionId": session, "sinceEventId": since });
        assert_eq!(second.call("session/resume", resume).await["replayed"], 1);
        assert_eq!(second.next_update().await, question);
        let answer = json!({ "requestId": question["update"]["requestId"], "reply": "deny" });
        assert_eq!(second.call("permission/respond", answer).await["applied"], true);
        let ended = first.next_of("permission_resolved").await;
        assert_eq!((&ended["eventId"], &ended["update"]["reply"]), (&json!(since + 2), &json!("deny")));
        assert_eq!(second.next_of("permission_resolved").await, ended);
        first.reply(asked).await.unwrap();
    })
    .await;
}

/// A15, I6, J7, A11.
#[tokio::test]
async fn what_goes_wrong_is_said_with_its_code_and_data() {
    let script = Script::new([vec![say("so far"), fail("no model")], vec![say("fine")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let failed =
            client.refused("session/message", json!({ "sessionId": session, "message": "go" })).await;
        assert_eq!(failed.code, -32000);
        let names: Vec<_> = failed.data.as_object().unwrap().keys().collect();
        assert_eq!(names, ["name", "message", "stack"]);
        assert!(failed.data["message"].as_str().unwrap().contains("no model"));
        let end = client.next_of("turn_end").await;
        assert_eq!(end["update"]["stopReason"], "error");
        assert_eq!(client.message(&session, "again").await["output"], "fine");
        for method in ["session/resume", "session/message", "session/cancel", "session/load"] {
            let params = json!({ "sessionId": "nobody", "message": "x" });
            assert_eq!(client.refused(method, params).await.code, -32602, "{method}");
        }
        assert_eq!(client.refused("session/resume", json!({})).await.code, -32602);
        assert_eq!(client.refused("no/such", json!({})).await.code, -32601);
    })
    .await;
}

/// I4: what was said before the cancel arrives before the answer, and is in it.
#[tokio::test]
async fn a_cancelled_message_is_answered_after_everything_that_was_said() {
    let script = Script::new([vec![say("half"), Line::Hang], vec![say("whole")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let asked = client.send("session/message", json!({ "sessionId": session, "text": "go" })).await;
        client.next_of("agent_message_chunk").await;
        let cancelled = client.call("session/cancel", json!({ "session_id": session })).await;
        assert_eq!(cancelled, json!({ "sessionId": session, "cancelled": true }));
        let answer = client.reply(asked).await.unwrap();
        assert_eq!((&answer["stopReason"], &answer["output"]), (&json!("cancelled"), &json!("half")));
        assert_eq!(client.next_of("turn_end").await["update"]["stopReason"], "cancelled");
        assert_eq!(client.message(&session, "go on").await["output"], "whole");
    })
    .await;
}

/// H2, H4, C22, session/prompt: what otter shares with ferret.
#[tokio::test]
async fn modes_models_and_waiting_messages_work_as_in_ferret() {
    let script = Script::new([vec![say("first")], vec![say("second")], vec![say("third")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let set = client.call("session/setMode", json!({ "sessionId": session, "mode": "explore" })).await;
        assert_eq!(set, json!({ "sessionId": session, "mode": "explore" }), "by the name that was sent");
        client.call("session/setModel", json!({ "sessionId": session, "modelId": "script:two" })).await;
        let message = json!({ "sessionId": session, "message": "x" });
        let one = client.send("session/message", message.clone()).await;
        let two = client.send("session/message", message).await;
        assert_eq!(client.reply(one).await.unwrap()["output"], "first");
        assert_eq!(client.reply(two).await.unwrap()["output"], "second");
        assert_eq!(script.requests()[0].model.as_ref(), "script:two");
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "x" }] });
        assert_eq!(client.call("session/prompt", prompt).await, json!({ "stopReason": "end_turn" }));
        let updates = client.take_updates();
        assert!(ids(&updates).into_iter().eq(1..=count(updates.len())));
        assert_eq!(of(&updates, "current_mode_update")[0]["currentModeId"], "explore");
    })
    .await;
}

/// J2, J5, J6: each spelling and each odd cursor, here and after a restart.
#[tokio::test]
async fn a_resume_tells_what_came_after_its_cursor_then_answers() {
    run(Setup::offline().on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "stream 5").await;
        let all = client.take_updates();
        let last = count(all.len());
        drop(client);
        for restarted in [false, true] {
            if restarted {
                server.restart().await;
            }
            let cases = [
                (json!({ "sinceEventId": 3 }), 3),
                (json!({ "since_event_id": 3 }), 3),
                (json!({ "lastEventId": 3 }), 3),
                (json!({}), 0),
                (json!({ "sinceEventId": 0 }), 0),
                (json!({ "sinceEventId": -4 }), 0),
                (json!({ "sinceEventId": "two" }), 0),
                (json!({ "sinceEventId": last }), last),
                (json!({ "sinceEventId": last + 7 }), last),
            ];
            for (cursor, since) in cases {
                let (answer, told) = resumed(server, &session, cursor.clone()).await;
                let wanted = json!({
                    "sessionId": session, "replayed": last - since, "lastEventId": last, "truncated": false,
                });
                assert_eq!(answer, wanted, "{cursor}");
                assert_eq!(told, all[usize::try_from(since).unwrap()..], "{cursor}");
            }
        }
    })
    .await;
}

/// J3, J4.
#[tokio::test]
async fn only_the_last_updates_are_kept_and_who_asks_for_more_is_told_so() {
    let turns = Turns::new(|_, context| async move {
        // With its start, the message and its end, a turn of 1100 updates.
        for _ in 0..1097 {
            let text = Body::Text { message: context.message(1), text: "x".into() };
            context.emit(text).await.unwrap();
        }
        Ok(Stop::EndTurn)
    });
    run(Setup::new(turns).on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "go").await;
        drop(client);
        let (last, first) = (1100, 77);
        for (since, truncated) in [(0, true), (first - 2, true), (first - 1, false), (first, false)] {
            let (answer, told) = resumed(server, &session, json!({ "sinceEventId": since })).await;
            assert_eq!(answer["truncated"], truncated, "{since}");
            assert_eq!(answer["lastEventId"], last);
            assert_eq!(ids(&told)[0], (since + 1).max(first));
            assert_eq!(answer["replayed"], count(told.len()));
        }
        // Whoever loads a session wants all of it, under the same numbers.
        let mut client = server.older_client(Otter).await;
        client.call("session/load", json!({ "sessionId": session })).await;
        assert!(ids(&client.take_updates()).into_iter().eq(1..=last));
    })
    .await;
}

/// J3: the limit is the server's choice.
#[tokio::test]
async fn how_much_is_kept_can_be_chosen() {
    let setup =
        Setup { rules: ServiceRules { history_max: 4, ..ServiceRules::default() }, ..Setup::offline() };
    run(setup, async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "stream 9").await;
        let all = client.take_updates();
        let (answer, told) = resumed(server, &session, json!({})).await;
        assert_eq!((&answer["replayed"], &answer["truncated"]), (&json!(4), &json!(true)));
        assert_eq!(told, all[all.len() - 4..]);
    })
    .await;
}

/// What was cleared is not told again, and the numbers go on.
#[tokio::test]
async fn a_cleared_history_keeps_its_numbers() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        client.message(&session, "/clear").await;
        client.message(&session, "list").await;
        let all = client.take_updates();
        let (answer, told) = resumed(server, &session, json!({})).await;
        assert_eq!((&answer["truncated"], &answer["lastEventId"]), (&json!(true), &json!(all.len())));
        assert_eq!(told, all[all.len() - told.len()..]);
        assert!(!told.is_empty() && told.len() < all.len());
        let mut again = server.older_client(Otter).await;
        again.call("session/load", json!({ "sessionId": session })).await;
        assert_eq!(again.take_updates(), told);
    })
    .await;
}

/// A copy has the numbers of what it was copied from, and goes on with its own.
#[tokio::test]
async fn a_fork_goes_on_counting_where_it_was_copied() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        let all = client.take_updates();
        let fork = client.call("session/fork", json!({ "sessionId": session })).await;
        let fork = fork["sessionId"].as_str().unwrap().to_owned();
        assert_ne!(fork, session);
        client.message(&fork, "list").await;
        let live = client.take_updates();
        assert_eq!(live[0]["eventId"], count(all.len()) + 1);
        let (_, told) = resumed(server, &fork, json!({ "sinceEventId": all.len() })).await;
        assert_eq!(told, live);
        let (_, told) = resumed(server, &fork, json!({})).await;
        assert!(ids(&told).into_iter().eq(1..=count(told.len())));
    })
    .await;
}

/// A client that has not read what is on its way asks for something else: the numbers stay right.
#[tokio::test]
async fn a_resume_of_a_session_that_is_being_watched_keeps_the_numbers() {
    let setup =
        Setup { rules: ServiceRules { history_max: 10_000, ..ServiceRules::default() }, ..Setup::offline() };
    run(setup, async |server| {
        let (mut client, session) = opened(server).await;
        let message = json!({ "sessionId": session, "message": "stream 3000 9" });
        let asked = client.send("session/message", message).await;
        let handle = server.handle(&session).await;
        let mut reader = handle.read(Seq::START);
        let ended = |event: &Arc<Event>| matches!(event.body, Body::TurnEnded { .. });
        while !reader.next().await.unwrap().unwrap().iter().any(ended) {}
        // Nothing was read so far. This cursor is beyond all that there is.
        let resume = json!({ "sessionId": session, "sinceEventId": 1_000_000 });
        let answer = client.call("session/resume", resume).await;
        client.reply(asked).await.unwrap();
        let all = client.take_updates();
        assert!(all.len() > 3000 && ids(&all).into_iter().eq(1..=count(all.len())));
        assert_eq!(answer["lastEventId"], count(all.len()));
        let again = client.call("session/resume", json!({ "sessionId": session, "sinceEventId": 5 })).await;
        assert_eq!(again["replayed"], count(all.len()) - 5);
        assert_eq!(client.take_updates(), all[5..]);
    })
    .await;
}

/// A backend that says as many things as the gate has permits, and ends when the gate is closed.
fn gated(gate: &Arc<Semaphore>) -> Turns {
    let gate = Arc::clone(gate);
    Turns::new(move |_, context| {
        let gate = Arc::clone(&gate);
        async move {
            let mut nth = 0;
            while let Ok(permit) = gate.acquire().await {
                permit.forget();
                nth += 1;
                let body = match nth % 3 {
                    0 => Body::Usage(Usage { input: 1, ..Usage::default() }),
                    1 => Body::Text { message: context.message(1), text: format!("{nth} ").into() },
                    // Nobody is shown this.
                    _ => Body::Foreign { payload: engine::Opaque("{}".into()) },
                };
                context.emit(body).await.unwrap();
            }
            Ok(Stop::EndTurn)
        }
    })
}

/// Reads until the turn is over.
async fn to_the_end(client: &mut OlderClient, seen: &mut Vec<Value>) {
    while seen.last().is_none_or(|update| kind(update) != "turn_end") {
        seen.push(client.next_update().await);
    }
}

/// What a client knows that is cut off and comes back `cuts` times while things are being said.
async fn check(cuts: Vec<(usize, usize, usize)>, points: Vec<prop::sample::Index>) {
    let gate = Arc::new(Semaphore::new(0));
    run(Setup::new(gated(&gate)).on_disk(), async |server| {
        let (mut witness, session) = opened(server).await;
        let asked = witness.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let mut seen: Vec<Value> = Vec::new();
        for (before, read, during) in cuts {
            gate.add_permits(before);
            let mut client = server.older_client(Otter).await;
            let since = seen.last().map_or(0, |update| update["eventId"].as_u64().unwrap());
            let resume = json!({ "sessionId": session, "sinceEventId": since });
            let resume = client.send("session/resume", resume).await;
            gate.add_permits(during);
            let answer = client.reply(resume).await.unwrap();
            let told = client.take_updates();
            assert_eq!(answer["replayed"], count(told.len()));
            let last = told.last().map_or(json!(since), |update| update["eventId"].clone());
            assert_eq!(answer["lastEventId"], last);
            // It is cut off after some of it, whatever else is on its way.
            let rest = read.saturating_sub(told.len()).min(before + during);
            seen.extend(told.into_iter().take(read));
            if rest == 0 {
                continue;
            }
            gate.add_permits(3);
            seen.push(client.next_update().await);
        }
        let mut client = server.older_client(Otter).await;
        let since = seen.last().map_or(0, |update| update["eventId"].as_u64().unwrap());
        let resume = json!({ "sessionId": session, "sinceEventId": since });
        let resume = client.send("session/resume", resume).await;
        gate.close();
        client.reply(resume).await.unwrap();
        to_the_end(&mut client, &mut seen).await;
        let mut all = Vec::new();
        to_the_end(&mut witness, &mut all).await;
        witness.reply(asked).await.unwrap();
        assert_eq!(seen, all);
        drop((client, witness));
        server.restart().await;
        let (_, stored) = resumed(server, &session, json!({})).await;
        assert_eq!(stored, all);
        assert!(ids(&stored).into_iter().eq(1..=count(stored.len())));
        for point in points {
            let at = point.index(stored.len() + 1);
            let (answer, told) = resumed(server, &session, json!({ "sinceEventId": at })).await;
            assert_eq!((told.as_slice(), &answer["replayed"]), (&stored[at..], &json!(stored.len() - at)));
        }
    })
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// J8: whoever comes back at any point, while things happen or after a restart, is told the rest
    /// exactly once.
    #[test]
    fn a_client_that_comes_back_anywhere_is_told_the_rest_exactly_once(
        cuts in proptest::collection::vec((0..40_usize, 0..60_usize, 0..40_usize), 1..5),
        points in proptest::collection::vec(any::<prop::sample::Index>(), 3),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(cuts, points));
    }
}

/// What is sent about a session before it is loaded is carried out once it is, in the order in which it was sent.
#[tokio::test]
async fn what_follows_a_load_waits_for_it() {
    run(Setup::offline().on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        drop(client);
        for method in ["session/load", "session/resume"] {
            server.restart().await;
            let mut client = server.older_client(Otter).await;
            let about = json!({ "sessionId": session });
            let message = json!({ "sessionId": session, "message": "list" });
            let mode = json!({ "sessionId": session, "mode": "plan" });
            let loading = client.send(method, about).await;
            let changing = client.send("session/setMode", mode).await;
            let asked = client.send("session/message", message).await;
            client.reply(loading).await.unwrap();
            assert_eq!(client.reply(changing).await.unwrap()["mode"], "plan");
            assert_eq!(client.reply(asked).await.unwrap()["stopReason"], "end_turn");
        }
    })
    .await;
}

#[tokio::test]
async fn a_session_that_was_not_opened_is_told_from_one_that_is_not_there() {
    run(Setup::offline().on_disk(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        drop(client);
        server.restart().await;
        let mut client = server.older_client(Otter).await;
        let refused = client.refused("session/message", json!({ "sessionId": session, "message": "list" })).await;
        assert_eq!(
            refused.message,
            format!("session {session} is not open on this connection; open it with session/load, or make one with session/new")
        );
        let refused = client.refused("session/load", json!({ "sessionId": "otter-x" })).await;
        assert_eq!(refused.message, "session not found: otter-x; list the sessions with session/list");
    })
    .await;
}

/// An answer that is lost leaves the agent waiting for ever.
#[tokio::test]
async fn an_answer_counts_without_an_id_too() {
    let script = Script::new([vec![touch()], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let question = client.next_of("permission_request").await["update"].take();
        client
            .notify("permission/respond", json!({ "requestId": question["requestId"], "reply": "allow" }))
            .await;
        client.reply(asked).await.unwrap();
        assert!(server.workspace().join("made").exists());
    })
    .await;
}

/// One content block is a message, as updates have it; parameters that are null are none.
#[tokio::test]
async fn a_message_may_be_one_block_and_parameters_may_be_null() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let block = json!({ "type": "text", "text": "list" });
        let said = client.call("session/message", json!({ "sessionId": session, "content": block })).await;
        assert_eq!(said["stopReason"], "end_turn");
        assert!(client.call("session/list", Value::Null).await["sessions"].is_array());
        let refused = client.refused("session/message", json!({ "sessionId": session, "content": 7 })).await;
        assert_eq!(refused.message, "the message must be a string or content blocks, not a number");
    })
    .await;
}
