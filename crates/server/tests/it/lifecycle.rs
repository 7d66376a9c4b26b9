//! Sessions come, go, come back, and are never mixed up.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use engine::{SessionLimits, Stop};
use serde_json::{Value, json};
use service::ServiceRules;
use testkit::server::{Client, DEADLINE, Keep, Server, Setup, run, run_with_client as check, write};
use testkit::{Line, Script, Turns};

/// A backend whose turns wait to be cancelled.
fn waiting() -> Setup {
    Setup::new(Turns::new(|_, context| async move {
        context.cancel.cancelled().await;
        Ok(Stop::Cancelled)
    }))
}

/// A backend whose turns talk without end, and a little more when they are told to stop.
fn stubborn() -> Turns {
    Turns::new(|_, context| async move {
        let mut late = 0;
        while late < 1000 {
            late += usize::from(context.cancel.is_cancelled());
            if context.text(context.message(0), "old ").await.is_err() {
                break;
            }
        }
        Ok(Stop::EndTurn)
    })
}

async fn list(client: &mut Client, params: Value) -> Vec<Value> {
    client.call("session/list", params).await["sessions"].as_array().unwrap().clone()
}

fn ids(sessions: &[Value]) -> Vec<&str> {
    sessions.iter().map(|session| session["sessionId"].as_str().unwrap()).collect()
}

fn session(id: &str) -> Value {
    json!({ "sessionId": id })
}

/// C1.
#[tokio::test]
async fn a_new_session_has_an_id_of_its_own_modes_and_options() {
    check(Setup::offline(), async |server, mut client| {
        let params = json!({ "cwd": server.workspace(), "mcpServers": [] });
        let one = client.call("session/new", params.clone()).await;
        let two = client.call("session/new", params).await;
        assert_ne!(one["sessionId"], two["sessionId"]);
        assert_eq!(one["modes"]["currentModeId"], "code");
        let modes = one["modes"]["availableModes"].as_array().unwrap();
        assert!(modes.iter().map(|mode| &mode["id"]).eq(["code", "ask", "architect"]), "{modes:?}");
        let options = one["configOptions"].as_array().unwrap();
        assert!(
            options.iter().map(|option| &option["id"]).eq([
                "mode",
                "model",
                "thinking",
                "temperature",
                "approval"
            ]),
            "{options:?}"
        );
    })
    .await;
}

/// C2.
#[tokio::test]
async fn session_ids_of_every_kind_are_taken_and_malformed_ones_refused() {
    check(Setup::offline(), async |_, mut client| {
        let long = "x".repeat(128);
        let good = [
            "0e4b6f0c-6a3c-4f0e-9d55-0123456789ab",
            "ferret-20260101T000000-0123abcd",
            "otter-20260101T000000-0123abcd",
            "task_42",
            &long,
        ];
        for id in good {
            let params = client.open_params(id);
            assert_eq!(client.refused("session/load", params).await.code, -32002, "{id}");
        }
        let too_long = "x".repeat(129);
        for id in ["", "a/b", "a b", "a\nb", "../x", "ä", &too_long] {
            for method in ["session/load", "session/resume", "session/fork"] {
                let params = client.open_params(id);
                assert_eq!(client.refused(method, params).await.code, -32600, "{method} {id:?}");
            }
            for method in ["session/close", "session/delete"] {
                assert_eq!(client.refused(method, session(id)).await.code, -32600, "{method} {id:?}");
            }
        }
    })
    .await;
}

/// C4.
#[tokio::test]
async fn an_unknown_session_is_not_found() {
    check(Setup::offline(), async |_, mut client| {
        for method in ["session/load", "session/resume", "session/fork"] {
            let params = client.open_params("nobody");
            let refused = client.refused(method, params).await;
            assert_eq!(refused.code, -32002);
            assert!(refused.message.starts_with("session not found: nobody"), "{refused:?}");
            assert_eq!(refused.data, session("nobody"));
        }
    })
    .await;
}

/// C6.
#[tokio::test]
async fn a_list_has_the_newest_first_and_can_be_narrowed_to_a_folder() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let here = client.new_session().await;
        let elsewhere = server.folder("elsewhere");
        let there = client.call("session/new", json!({ "cwd": elsewhere, "mcpServers": [] })).await;
        let there = there["sessionId"].as_str().unwrap().to_owned();
        client.prompt(&there, "there").await;
        client.prompt(&here, "hello").await;
        let all = list(&mut client, json!({})).await;
        assert_eq!(ids(&all), [&here, &there]);
        assert_eq!(all[0]["title"], "hello");
        assert_eq!(all[0]["cwd"], json!(server.workspace()));
        assert!(all[0]["updatedAt"].as_str().unwrap().starts_with("2023-11-14T22:13:2"), "{}", all[0]);
        assert_eq!(all[0]["_meta"]["source"], "acp");
        assert_eq!(ids(&list(&mut client, json!({ "cwd": elsewhere })).await), [&there]);
        assert_eq!(list(&mut client, json!({ "cwd": "/nobody/works/here" })).await, Vec::<Value>::new());
        client.hang_up().await;
        server.restart().await;
        let mut client = server.client().await;
        let fresh = client.new_session().await;
        assert_eq!(ids(&list(&mut client, json!({})).await), [&fresh, &here, &there]);
    })
    .await;
}

/// Editors begin a session for each window.
#[tokio::test]
async fn a_session_that_was_never_prompted_is_listed_only_while_it_is_in_memory() {
    let script = Script::new([vec![testkit::say("hello")]]);
    run(Setup::script(&script).on_disk(), async |server| {
        let mut client = server.client().await;
        let empty = client.new_session().await;
        let set = json!({ "sessionId": empty, "configId": "approval", "value": "suggest" });
        client.call("session/set_config_option", set).await;
        let used = client.new_session().await;
        assert_eq!(client.prompt(&used, "hi").await, "end_turn");
        let untouched = client.new_session().await;
        let listed = list(&mut client, json!({})).await;
        assert_eq!(ids(&listed).len(), 3, "{listed:?}");
        client.hang_up().await;
        server.restart().await;

        let mut client = server.client().await;
        assert_eq!(ids(&list(&mut client, json!({})).await), [used.as_str()]);
        // They are there all the same.
        client.load(&untouched).await;
        let listed = list(&mut client, json!({})).await;
        let mut found = ids(&listed);
        found.sort_unstable();
        let mut expected = [used.as_str(), untouched.as_str()];
        expected.sort_unstable();
        assert_eq!(found, expected);
        client.load(&empty).await;
        assert_eq!(list(&mut client, json!({})).await.len(), 3);
    })
    .await;
}

/// C8.
#[tokio::test]
async fn a_list_has_at_most_a_page_and_says_how_to_go_on() {
    let count = async |list_max: usize| {
        let ends = Setup::new(Turns::new(|_, _| async move { Ok(Stop::EndTurn) }));
        let setup = Setup { rules: ServiceRules { list_max, ..ServiceRules::default() }, ..ends };
        let mut pages = Vec::new();
        check(setup, async |_, mut client| {
            for _ in 0..101 {
                let session = client.new_session().await;
                client.prompt(&session, "hello").await;
            }
            let mut cursor = Value::Null;
            loop {
                let page = client.call("session/list", json!({ "cursor": cursor })).await;
                pages.push(page["sessions"].as_array().unwrap().len());
                cursor = page["nextCursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
            assert_eq!(client.refused("session/list", json!({ "cursor": "x" })).await.code, -32602);
        })
        .await;
        pages
    };
    assert_eq!(count(ServiceRules::default().list_max).await, [100, 1]);
    assert_eq!(count(101).await, [101]);
    assert_eq!(count(0).await, [101]);
}

/// C13.
#[tokio::test]
async fn close_says_what_was_used_in_all_then_answers_and_the_session_is_gone() {
    check(Setup::offline(), async |_, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "hello").await;
        let used = client.updates_of("usage_update").last().unwrap()["used"].clone();
        client.forget_updates();
        assert_eq!(client.call("session/close", session(&id)).await, json!({}));
        let last: Vec<_> = client.updates().cloned().collect();
        assert_eq!(
            (last.len(), &last[0]["sessionUpdate"], &last[0]["used"]),
            (1, &json!("usage_update"), &used)
        );
        assert_eq!(client.kinds().last(), Some(&"reply"));
        let prompt = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "more" }] });
        assert_eq!(client.refused("session/prompt", prompt).await.code, -32002);
        client.load(&id).await;
        assert_eq!(client.prompt(&id, "more").await, "end_turn");
    })
    .await;
}

/// C14.
#[tokio::test]
async fn a_deleted_session_is_gone_for_good() {
    check(Setup::offline().on_disk(), async |server, mut client| {
        let id = client.new_session().await;
        client.prompt(&id, "hello").await;
        let mut other = server.client().await;
        other.load(&id).await;
        assert_eq!(client.call("session/delete", session(&id)).await, json!({}));
        assert_eq!(client.call("session/delete", session(&id)).await, json!({}));
        for _ in 0..2 {
            for method in ["session/load", "session/resume", "session/fork"] {
                let params = client.open_params(&id);
                assert_eq!(client.refused(method, params).await.code, -32002, "{method}");
            }
            let prompt = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "more" }] });
            assert_eq!(other.refused("session/prompt", prompt).await.code, -32002);
            assert_eq!(list(&mut client, json!({})).await, Vec::<Value>::new());
            client.hang_up().await;
            other.hang_up().await;
            server.restart().await;
            client = server.client().await;
            other = server.client().await;
        }
    })
    .await;
}

/// C15.
#[tokio::test]
async fn a_session_closed_in_mid_turn_and_loaded_again_hears_nothing_of_the_old_turn() {
    for ending in ["session/close", "session/delete"] {
        check(Setup::new(stubborn()), async |_, mut client| {
            let id = client.new_session().await;
            let prompt = client.send_prompt(&id, "go").await;
            client.next_update_of("agent_message_chunk").await;
            client.call(ending, session(&id)).await;
            assert_eq!(client.stop_reason(prompt).await, "cancelled");
            let params = client.open_params(&id);
            if ending == "session/delete" {
                assert_eq!(client.refused("session/load", params).await.code, -32002);
                return;
            }
            client.call("session/load", params).await;
            let story = client.story();
            client.catch_up(&id).await;
            assert_eq!(client.story(), story, "the old turn goes on");
        })
        .await;
    }
}

/// C16.
#[tokio::test]
async fn the_oldest_idle_session_makes_room_and_busy_ones_do_not() {
    let setup = Setup { limits: SessionLimits { sessions_max: 2, ..SessionLimits::default() }, ..waiting() };
    check(setup, async |server, mut client| {
        let first = client.new_session().await;
        let second = client.new_session().await;
        let third = client.new_session().await;
        assert_eq!(server.registry().live_count(), 2);
        let turns = [client.send_prompt(&second, "go").await, client.send_prompt(&third, "go").await];
        client.catch_up(&second).await;
        client.catch_up(&third).await;
        let refused = client.refused("session/new", json!({ "cwd": "/", "mcpServers": [] })).await;
        assert!(refused.message.contains("session limit reached"), "{refused:?}");
        let params = client.open_params(&first);
        assert!(client.refused("session/load", params).await.message.contains("session limit reached"));
        for (id, turn) in [&second, &third].into_iter().zip(turns) {
            client.notify("session/cancel", session(id)).await;
            assert_eq!(client.stop_reason(turn).await, "cancelled");
        }
        client.load(&first).await;
        assert_eq!(server.registry().live_count(), 2);
    })
    .await;
}

/// C16, C17: a session that left memory comes back by itself when its client goes on.
#[tokio::test]
async fn a_prompt_brings_an_evicted_session_back() {
    let setup =
        Setup { limits: SessionLimits { sessions_max: 1, ..SessionLimits::default() }, ..Setup::offline() };
    check(setup, async |_, mut client| {
        let first = client.new_session().await;
        client.prompt(&first, "the first words").await;
        let second = client.new_session().await;
        client.prompt(&second, "hello").await;
        client.forget_updates();
        assert_eq!(client.prompt(&first, "what did I say?").await, "end_turn");
        assert!(client.said().contains("the first words"), "{}", client.said());
    })
    .await;
}

/// C17.
#[tokio::test(start_paused = true)]
async fn an_idle_session_leaves_memory_after_its_time_and_a_busy_one_stays() {
    check(waiting(), async |server, mut client| {
        let idle = client.new_session().await;
        let busy = client.new_session().await;
        let turn = client.send_prompt(&busy, "go").await;
        client.catch_up(&busy).await;
        let reaped = async |server: &Server| {
            tokio::time::advance(Duration::from_secs(61)).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            server.registry().live_count()
        };
        server.clock().advance(Duration::from_secs(1790));
        assert_eq!(reaped(server).await, 2);
        server.clock().advance(Duration::from_secs(11));
        assert_eq!(reaped(server).await, 1);
        client.load(&idle).await;
        client.notify("session/cancel", session(&busy)).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
    })
    .await;
}

/// C18.
#[tokio::test]
async fn two_sessions_know_nothing_of_each_other() {
    check(Setup::offline(), async |server, mut client| {
        let mut other = server.client().await;
        let (one, two) = (client.new_session().await, other.new_session().await);
        let first = client.send_prompt(&one, "apples").await;
        let second = other.send_prompt(&two, "pears").await;
        client.stop_reason(first).await;
        other.stop_reason(second).await;
        client.prompt(&one, "what did I say?").await;
        other.prompt(&two, "what did I say?").await;
        assert!(client.said().contains("apples") && !client.said().contains("pears"));
        assert!(other.said().contains("pears") && !other.said().contains("apples"));
        assert!(client.frames().iter().all(|frame| !frame.to_string().contains(&two)));
    })
    .await;
}

/// C20.
#[tokio::test]
async fn without_a_store_a_session_works_and_says_once_that_it_is_not_saved() {
    let setup = Setup { keep: Keep::Ephemeral(Arc::default()), ..Setup::offline() };
    check(setup, async |_, mut client| {
        let id = client.new_session().await;
        assert_eq!(client.prompt(&id, "hello").await, "end_turn");
        client.prompt(&id, "what did I say?").await;
        assert!(client.said().contains("- hello"), "{}", client.said());
        let warnings: Vec<_> = client.story().messages.into_values().collect();
        let unsaved = warnings.iter().filter(|(_, text)| text.contains("not saved")).count();
        assert_eq!(unsaved, 1, "{warnings:?}");
        assert_eq!(ids(&list(&mut client, json!({})).await), [&id]);
    })
    .await;
    let setup = Setup { keep: Keep::Ephemeral(Arc::default()), ..Setup::offline() };
    run(setup, async |server| {
        let mut client = server.connect();
        let abilities = json!({ "session": { "notices": {} } });
        client.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": abilities })).await;
        client.new_session().await;
        assert_eq!(client.next_update_of("notice").await["severity"], "warning");
    })
    .await;
}

/// Nothing may look saved that is not: without a store nothing is opened, created or listed.
#[tokio::test]
async fn without_a_store_requests_are_refused_with_the_reason() {
    let setup = Setup { keep: Keep::Nowhere, ..Setup::offline() };
    run(setup, async |server| {
        let mut client = server.client().await;
        let cwd = server.workspace();
        for (method, params) in [
            ("session/new", json!({ "cwd": cwd, "mcpServers": [] })),
            ("session/list", json!({})),
            ("session/load", json!({ "sessionId": "s", "cwd": cwd, "mcpServers": [] })),
        ] {
            let message = client.refused(method, params).await.message;
            assert!(message.contains("the session store cannot be used"), "{method}: {message}");
            assert!(
                message.contains("sessions.db") && message.contains("--ephemeral"),
                "{method}: {message}"
            );
        }
    })
    .await;
}

/// C21.
#[tokio::test]
async fn the_list_shows_which_sessions_are_running() {
    check(waiting(), async |_, mut client| {
        let id = client.new_session().await;
        let status = async |client: &mut Client| list(client, json!({})).await[0]["_meta"]["status"].clone();
        assert_eq!(status(&mut client).await, "idle");
        let turn = client.send_prompt(&id, "go").await;
        client.catch_up(&id).await;
        assert_eq!(status(&mut client).await, "running");
        client.notify("session/cancel", session(&id)).await;
        client.stop_reason(turn).await;
        assert_eq!(status(&mut client).await, "idle");
    })
    .await;
}

/// C22.
#[tokio::test]
async fn a_second_prompt_waits_for_the_first_and_both_are_answered_in_order() {
    let script =
        Script::new([vec![testkit::say("one")], vec![testkit::say("two")], vec![testkit::say("three")]]);
    check(Setup::script(&script), async |_, mut client| {
        let id = client.new_session().await;
        let turns = [
            client.send_prompt(&id, "a").await,
            client.send_prompt(&id, "b").await,
            client.send_prompt(&id, "c").await,
        ];
        for turn in turns.into_iter().rev() {
            assert_eq!(client.stop_reason(turn).await, "end_turn");
        }
        assert_eq!(client.said(), "onetwothree");
        let answered = client.frames().iter().filter(|frame| frame["result"]["stopReason"].is_string());
        assert!(answered.map(|frame| frame["id"].as_u64().unwrap()).eq(turns));
    })
    .await;
}

/// C22: the queue has an end, and a cancel empties what its sender queued.
#[tokio::test]
async fn too_many_waiting_prompts_are_refused_and_a_cancel_answers_all() {
    check(waiting(), async |_, mut client| {
        let id = client.new_session().await;
        let mut turns = Vec::new();
        for _ in 0..33 {
            turns.push(client.send_prompt(&id, "go").await);
        }
        let prompt = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "more" }] });
        let refused = client.refused("session/prompt", prompt).await;
        assert_eq!(refused.code, -32600, "{refused:?}");
        client.notify("session/cancel", session(&id)).await;
        for turn in turns {
            assert_eq!(client.stop_reason(turn).await, "cancelled");
        }
    })
    .await;
}

/// C23.
#[tokio::test]
async fn the_first_turn_gives_the_session_its_title_once() {
    check(Setup::offline(), async |_, mut client| {
        for (text, title) in [
            ("fix the\n bug", "fix the bug".to_owned()),
            (&"x".repeat(60), "x".repeat(60)),
            (&"x".repeat(61), format!("{}…", "x".repeat(59))),
        ] {
            let id = client.new_session().await;
            client.forget_updates();
            client.prompt(&id, text).await;
            client.prompt(&id, "another").await;
            let titles = client.updates_of("session_info_update");
            assert!(titles.iter().map(|update| &update["title"]).eq([&title]), "{titles:?}");
            assert_eq!(list(&mut client, json!({})).await[0]["title"], title);
        }
    })
    .await;
}

/// It is listed, so it is called something.
#[tokio::test]
async fn a_session_whose_only_turn_failed_or_was_cancelled_is_called_by_its_prompt() {
    let script = Script::new([vec![Line::Hang], vec![testkit::fail("no such model")]]);
    run(Setup::script(&script), async |server| {
        let mut client = server.client().await;
        let cancelled = client.new_session().await;
        let turn = client.send_prompt(&cancelled, "weave a net").await;
        while script.requests().is_empty() {
            client.glance().await;
        }
        client.notify("session/cancel", json!({ "sessionId": cancelled })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        let failed = client.new_session().await;
        let prompt = json!([{ "type": "text", "text": "mend the net" }]);
        client.refused("session/prompt", json!({ "sessionId": failed, "prompt": prompt })).await;
        let listed = list(&mut client, json!({})).await;
        let mut titles: Vec<_> = listed.iter().map(|session| session["title"].as_str().unwrap()).collect();
        titles.sort_unstable();
        assert_eq!(titles, ["mend the net", "weave a net"]);
    })
    .await;
}

/// C24.
#[tokio::test]
async fn the_project_rules_that_are_followed_are_named() {
    check(Setup::offline(), async |server, mut client| {
        let params = json!({ "cwd": server.workspace(), "mcpServers": [] });
        let without = client.call("session/new", params.clone()).await;
        assert_eq!(without["_meta"]["projectRules"], Value::Null);
        write(server.workspace().join("AGENTS.md"), "Use tabs.");
        let with = client.call("session/new", params).await;
        assert_eq!(with["_meta"]["projectRules"], json!([{ "name": "AGENTS.md" }]));
    })
    .await;
}

/// C25.
#[tokio::test]
async fn further_folders_must_really_be_among_the_allowed_ones() {
    let allowed = tempfile::tempdir().unwrap();
    let (inside, outside) = (allowed.path().join("inside"), tempfile::tempdir().unwrap());
    std::fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(outside.path(), allowed.path().join("link")).unwrap();
    let rules =
        ServiceRules { allowed_dirs: Some(vec![allowed.path().to_owned()]), ..ServiceRules::default() };
    check(Setup { rules, ..Setup::offline() }, async |server, mut client| {
        let id = client.new_session().await;
        let bad = [
            outside.path().to_owned(),
            allowed.path().join("link"),
            inside.join("../.."),
            allowed.path().join("none"),
            "relative".into(),
        ];
        for method in ["session/new", "session/load", "session/fork", "session/resume"] {
            let mut params = client.open_params(&id);
            params["additionalDirectories"] = json!([inside]);
            client.call(method, params.clone()).await;
            for folder in &bad {
                params["additionalDirectories"] = json!([inside, folder]);
                assert_eq!(client.refused(method, params.clone()).await.code, -32602, "{method} {folder:?}");
            }
        }
        assert!(server.workspace().exists());
    })
    .await;
}

/// C15: closing and loading one id from two connections, many times over.
#[tokio::test]
async fn closing_and_loading_one_session_from_two_sides_never_wedges_it() {
    check(Setup::offline(), async |server, mut client| {
        let mut other = server.client().await;
        let id = client.new_session().await;
        for round in 0..50 {
            let params = other.open_params(&id);
            let close = client.send("session/close", session(&id)).await;
            let load = other.send("session/load", params.clone()).await;
            client.reply(close).await.unwrap();
            other.reply(load).await.unwrap();
            other.call("session/load", params.clone()).await;
            client.call("session/load", params).await;
            if round % 10 == 0 {
                let prompt = client.send_prompt(&id, "hello").await;
                let answered = tokio::time::timeout(DEADLINE, client.stop_reason(prompt)).await;
                assert_eq!(answered.unwrap(), "end_turn");
            }
        }
    })
    .await;
}
