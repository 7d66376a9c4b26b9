//! Sessions: kept apart, kept, forked, resumed, administered; and answers that are kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Client, Transport, everywhere, option, said, uuid_shape};
use crate::seeds::program;

/// `SessionContext`: sessions do not share a conversation, a fork takes it along, and a server that starts again knows it.
#[test]
fn sessions_are_isolated_forked_and_resumed() {
    everywhere(|mut client| {
        client.hello();
        let (one, other) = (client.new_session(), client.new_session());
        assert!([&one, &other].iter().all(|id| id.parse::<uuid_shape::Uuid>().is_ok()), "{one} {other}");
        client.prompt(&one, "think of the walrus");
        let asked = "what did I say?";
        assert!(said(&client.prompt(&one, asked).0).contains("walrus"));
        assert!(!said(&client.prompt(&other, asked).0).contains("walrus"));
        let place = json!({ "sessionId": one, "cwd": client.work(), "mcpServers": [] });
        let (_, fork) = client.call("session/fork", &place);
        let forked = fork["result"]["sessionId"].as_str().unwrap().to_owned();
        assert_eq!(option(&fork["result"]["configOptions"], "model")["currentValue"], "offline:plain");
        assert!(said(&client.prompt(&forked, asked).0).contains("walrus"), "the fork remembers");
        assert!(forked != one && forked.parse::<uuid_shape::Uuid>().is_ok(), "{forked}");
        client.prompt(&forked, "think of the carpenter");
        assert!(!said(&client.prompt(&one, asked).0).contains("carpenter"), "and goes its own way");
        // What is in memory is resumed at once; what nobody knows cannot be forked, loaded or resumed.
        let (frames, resumed) = client.call("session/resume", &place);
        assert!(resumed["result"].is_object() && frames.is_empty(), "{frames:?} {resumed}");
        let nobody = json!({ "sessionId": "nobody", "cwd": client.work(), "mcpServers": [] });
        for method in ["session/fork", "session/load", "session/resume"] {
            assert_eq!(client.refused(method, &nobody), -32002, "{method}");
        }
    });
}

/// A session that another process made, which has ended since.
fn session_of_before(home: &Arc<TempDir>) -> String {
    let mut first = Client::stdio(home, &[]);
    first.hello();
    let session = first.new_session();
    first.prompt(&session, "think of the walrus");
    let Transport::Stdio(program) = first.transport else { unreachable!() };
    assert_eq!(program.close().0, Some(0));
    session
}

/// The same after a restart: `load_session` tells the history, `resume_session` does not.
#[test]
fn a_session_is_loaded_with_its_history_and_resumed_without_after_a_restart() {
    for open in [Client::stdio, Client::http, Client::socket] {
        let home = program::home();
        let session = session_of_before(&home);
        let mut client = open(&home, &[]);
        client.hello();
        let place = json!({ "sessionId": session, "cwd": client.work(), "mcpServers": [] });
        let (frames, answer) = client.call("session/resume", &place);
        assert!(answer["result"].is_object(), "{answer}");
        let told =
            |frames: &[Value]| frames.iter().any(|frame| frame.to_string().contains("user_message_chunk"));
        assert!(!told(&frames), "nothing is replayed: {frames:?}");
        let (frames, answer) = client.call("session/load", &place);
        assert!(answer["result"].is_object() && told(&frames), "{frames:?}");
        assert!(said(&client.prompt(&session, "what did I say?").0).contains("walrus"));
    }
}

/// `max_sessions`: the least recently used session without work makes room; a running turn is not ended for another one.
#[test]
fn differs_a_session_with_work_makes_no_room() {
    let home = program::home();
    let mut client = Client::stdio(&home, &["--max-sessions", "1"]);
    client.hello();
    let idle = client.new_session();
    let busy = client.new_session();
    assert_ne!(idle, busy, "the one without work made room");
    let prompt = json!({ "sessionId": busy, "prompt": [{ "type": "text", "text": "sleep 60000" }] });
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    program.send(&json!({ "jsonrpc": "2.0", "id": 100, "method": "session/prompt", "params": prompt }));
    let place = json!({ "cwd": client.work(), "mcpServers": [] });
    let (_, answer) = client.call("session/new", &place);
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let message = "session limit reached: all 1 open sessions are busy; wait, or close one";
    assert_eq!(answer["error"]["message"], message);
}

/// `session/list` has the sessions of before, too: a client that starts again asks it which there are.
#[test]
fn differs_the_list_has_sessions_that_are_not_in_memory() {
    let home = program::home();
    let session = session_of_before(&home);
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let (_, listed) = client.call("session/list", &json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session.as_str(), "{listed}");
}

/// A store that cannot be used refuses, and says why: a conversation that would be forgotten is not begun.
#[test]
fn differs_without_a_store_no_session_begins() {
    let home = program::home();
    fs::create_dir_all(home.path().join("state/sessions.db")).unwrap();
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let (_, answer) = client.call("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
    assert!(answer["error"]["message"].is_string(), "{answer}");
}

/// Rows are kept in a database of Ropewalk's own layout, not in zeph's tables; what zeph has there is brought along with its
/// `_session/export` and our `_session/import` (`what_zeph_exported_is_imported`).
#[test]
fn differs_sessions_are_not_in_zephs_tables() {
    let home = program::home();
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let session = client.new_session();
    client.prompt(&session, "hello");
    assert!(home.path().join("state/sessions.db").is_file());
    assert!(!home.path().join(".config/zeph").exists() && !home.path().join(".local").exists());
}

/// A prompt whose questions are all answered with this option: what was asked, and how the prompt was answered.
fn answered(client: &mut Client, session: &str, text: &str, option: &str) -> (Vec<Value>, Value) {
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": params }));
    let mut questions = Vec::new();
    loop {
        let mut frame = program.next();
        if frame["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
            program.send(&json!({ "jsonrpc": "2.0", "id": frame["id"], "result": outcome }));
            questions.push(frame["params"].take());
        } else if frame["id"] == 90 && frame.get("method").is_none() {
            return (questions, frame);
        }
    }
}

/// An answer for good is a rule in a file that only its owner reads, and the next session is not asked. A file that is
/// missing has no rules; one that is damaged is told of (`docs/permissions.md`).
#[test]
fn an_answer_for_good_is_kept_in_a_file_for_its_owner_alone() {
    let home = program::home();
    for asked in [true, false] {
        let mut client = Client::stdio(&home, &[]);
        client.hello();
        let session = client.new_session();
        let (questions, _) = answered(&mut client, &session, "run git push nowhere main", "allow_always");
        assert_eq!(questions.len(), usize::from(asked));
        let file = fs::metadata(home.path().join("state/permissions.toml")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let Transport::Stdio(program) = client.transport else { unreachable!() };
        assert_eq!(program.close().0, Some(0));
    }
}

/// Missing, it has no answers. Of one that cannot be read nobody can tell what it refuses, so everything is asked, and the
/// question says why; zeph begins without answers.
#[test]
fn differs_with_a_malformed_permission_file_everything_is_asked() {
    for text in [None, Some("[tools\nshell = ")] {
        let home = program::home();
        let file = home.path().join(".config/zeph/acp-permissions.toml");
        if let Some(text) = text {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
        }
        let mut client = Client::stdio(&home, &[]);
        client.hello();
        let session = client.new_session();
        let (questions, answer) = answered(&mut client, &session, "list", "allow_once");
        let asked: String = questions.iter().map(Value::to_string).collect();
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        assert_eq!(asked.contains("permission rules cannot be read"), text.is_some(), "{asked}");
        assert_eq!(asked.is_empty(), text.is_none(), "{asked}");
    }
}

/// Zeph's own file of answers is read and never written: Ropewalk's rules say more than it can hold.
#[test]
fn differs_zephs_permission_file_is_only_read() {
    let home = program::home();
    let file = home.path().join(".config/zeph/acp-permissions.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[tools]\nread_file = \"allow\"\n").unwrap();
    let mut client = Client::stdio(&home, &[]);
    client.hello();
    let session = client.new_session();
    let (questions, _) = answered(&mut client, &session, "run git push nowhere main", "allow_always");
    assert!(!questions.is_empty(), "an answer for good was given");
    let rules = fs::read_to_string(home.path().join("state/permissions.toml")).unwrap();
    assert!(rules.contains("git push nowhere main"), "{rules}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "[tools]\nread_file = \"allow\"\n");
}

/// Zeph's own export, in its own words: four kinds of updates, each as a text.
#[test]
fn what_zeph_exported_is_imported() {
    everywhere(|mut client| {
        client.hello();
        let call = json!({ "toolCallId": "c1", "title": "bash", "kind": "execute", "status": "completed",
            "content": [{ "type": "content", "content": { "type": "text", "text": "notes.txt" } }] });
        let events = json!([
            { "event_type": "user_message", "payload": "think of the walrus" },
            { "event_type": "agent_thought", "payload": "a walrus" },
            { "event_type": "tool_call", "payload": call.to_string() },
            { "event_type": "agent_message", "payload": "I will " },
            { "event_type": "agent_message", "payload": "remember it." },
        ]);
        let imported = client.result("_session/import", &json!({ "events": events }));
        let session = imported["session_id"].as_str().unwrap().to_owned();
        let place = json!({ "sessionId": session, "cwd": client.work(), "mcpServers": [] });
        let (frames, _) = client.call("session/load", &place);
        let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
        let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
        let told = [
            "user_message_chunk",
            "agent_thought_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
        ];
        let told: Vec<&str> = kinds.into_iter().filter(|kind| told.contains(kind)).collect();
        assert_eq!(
            told,
            [
                "user_message_chunk",
                "agent_thought_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk"
            ]
        );
        assert_eq!(said(&updates), "I will remember it.");
        assert!(said(&client.prompt(&session, "what did I say?").0).contains("walrus"));
    });
}

/// An event that cannot be read is refused with its number and what is wrong with it.
#[test]
fn an_event_that_cannot_be_imported_is_named() {
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let good = json!({ "event_type": "turn_started", "payload": {} });
    for (bad, why) in [
        (json!({ "event_type": "text", "payload": { "message": 1 } }), "`text` is missing"),
        (json!({ "event_type": "text", "payload": "words" }), "`payload` must be an object, not a string"),
        (json!({ "event_type": "novel", "payload": {} }), "unknown kind of event \"novel\""),
        (json!({ "payload": {} }), "`event_type` is missing"),
    ] {
        let (_, answer) = client.call("_session/import", &json!({ "events": [good, bad] }));
        let error = &answer["error"];
        assert_eq!(error["code"], -32602, "{answer}");
        let text = error.to_string().replace("\\\"", "\"");
        assert!(text.contains("event 1: ") && text.contains(why), "{why}: {answer}");
    }
}

/// The seven custom methods, in the README's order.
#[test]
fn custom_methods_list_read_copy_and_remove_sessions() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        fs::create_dir_all(client.work().join("inner")).unwrap();
        client.prompt(&session, "hello");
        let id = json!({ "session_id": session });
        let list = client.result("_session/list", &json!({}));
        assert_eq!(list["sessions"][0]["session_id"], session);
        let got = client.result("_session/get", &id);
        assert!(got["session_id"] == *session && !got["events"].as_array().unwrap().is_empty());
        let exported = client.result("_session/export", &id);
        assert!(exported["exported_at"].is_string());
        let imported = client.result("_session/import", &json!({ "events": exported["events"] }));
        let copy = imported["session_id"].as_str().unwrap().to_owned();
        assert!(
            copy != session && copy.parse::<uuid_shape::Uuid>().is_ok(),
            "a UUID from the server: {copy}"
        );
        // The README names no parameters: the connection has one session open.
        for params in [&id, &json!({})] {
            let tools = client.result("_agent/tools", params);
            assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "read"));
        }
        let inner = client.work().join("inner");
        let moved =
            client.result("_agent/working_dir/update", &json!({ "session_id": session, "path": inner }));
        assert_eq!(moved["working_dir"], inner.to_str().unwrap());
        assert_eq!(client.result("_session/delete", &json!({ "session_id": copy }))["deleted"], true);
        assert_eq!(client.refused("_session/get", &json!({ "session_id": copy })), -32002);
        assert_eq!(client.refused("_nobody/knows", &json!({})), -32601);
    });
}

/// The README's guards: 128 characters of `[a-zA-Z0-9_-]`, no `..`, 10,000 events.
#[test]
fn custom_methods_are_guarded() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        for bad in ["a/b", "a b", "a\u{7}b", &"a".repeat(129)] {
            assert_eq!(client.refused("_session/get", &json!({ "session_id": bad })), -32600, "{bad:?}");
        }
        assert_eq!(client.refused("_session/get", &json!({ "session_id": "a".repeat(128) })), -32002);
        let up = json!({ "session_id": session, "path": format!("{}/../x", client.work().display()) });
        assert_eq!(client.refused("_agent/working_dir/update", &up), -32600);
        let event = json!({ "event_type": "user_message", "payload": { "content": [] } });
        if let Transport::Stdio(_) = client.transport {
            let many = vec![event; 10_001];
            assert_eq!(client.refused("_session/import", &json!({ "events": many })), -32600);
        }
    });
}

/// `_agent/working_dir/update` takes any path without `..`. What the agent may write is decided by the session's folder, so a
/// client cannot move it out of the folders that the session was opened with.
#[test]
fn differs_a_session_moves_only_within_its_folders() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (inner, outer) = (client.work().join("inner"), client.home.path().join("outer"));
        fs::create_dir(&inner).unwrap();
        fs::create_dir(&outer).unwrap();
        let to = |path: &std::path::Path| json!({ "session_id": session, "path": path });
        let (_, refused) = client.call("_agent/working_dir/update", &to(&outer));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let work = client.work();
        for folder in [&inner, &work, &inner] {
            let moved = client.result("_agent/working_dir/update", &to(folder));
            assert_eq!(moved["working_dir"], folder.to_str().unwrap());
        }
        // Also when it was out of memory meanwhile.
        client.result("session/close", &json!({ "sessionId": session }));
        let resume = json!({ "sessionId": session, "cwd": inner, "mcpServers": [] });
        client.result("session/resume", &resume);
        assert_eq!(client.refused("_agent/working_dir/update", &to(&outer)), -32602);
        let moved = client.result("_agent/working_dir/update", &to(&work));
        assert_eq!(moved["working_dir"], work.to_str().unwrap());
    });
}
