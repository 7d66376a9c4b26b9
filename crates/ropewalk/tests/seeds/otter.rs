//! Otter's ACP server.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events::follow;
use crate::program::{DEADLINE, Program, TOKEN, command, ended, home, http_server, link};
use crate::web::Ask;

const SERVE: [&str; 3] = ["otter", "serve", "--acp"];

fn greeted(arguments: &[&str]) -> (Program, Value) {
    begun(Program::named(&home(), "chimera", arguments))
}

fn begun(mut otter: Program) -> (Program, Value) {
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    assert_eq!(hello["result"]["protocolVersion"], "0.1", "{hello}");
    let (_, new) = otter.call(2, "session/new", &json!({}));
    (otter, new["result"]["sessionId"].clone())
}

fn message(session: &Value, text: &str) -> Value {
    json!({ "sessionId": session, "message": text })
}

fn begin(otter: &mut Program, id: u64, method: &str, params: &Value) {
    otter.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
}

fn kind(frame: &Value) -> &str {
    frame["params"]["update"]["sessionUpdate"].as_str().unwrap_or_default()
}

#[track_caller]
fn until_kind(otter: &mut Program, wanted: &str) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let frame = otter.next();
        if kind(&frame) == wanted {
            return (before, frame);
        }
        before.push(frame);
    }
}

#[track_caller]
fn find<'a>(frames: &'a [Value], wanted: &str) -> &'a Value {
    let found = frames.iter().find(|frame| kind(frame) == wanted);
    &found.unwrap_or_else(|| panic!("no {wanted} in {frames:?}"))["params"]["update"]
}

fn numbers(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["params"]["eventId"].as_u64()).collect()
}

/// "Launching", "Wire protocol": by its own name and by a link, until the input closes.
#[test]
fn it_serves_stdio_until_the_input_closes() {
    let home = home();
    for name in ["chimera", "ropewalk"] {
        let mut otter = Program::named(&home, name, &SERVE);
        otter.line(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
        let answer = otter.next();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)));
        assert_eq!(answer["result"]["protocolVersion"], "0.1", "{answer}");
        assert!(answer["result"]["capabilities"].is_object());
        let (code, log) = otter.close();
        assert_eq!(code, Some(0), "{log}");
    }
}

/// "The server takes the standard otter flags".
#[test]
fn the_standard_flags_are_taken() {
    let home = home();
    let cwd = home.path().to_str().unwrap();
    let more = ["--cwd", cwd, "--model", "offline:terse", "--allowed-tools", "Read,Grep,Bash"];
    let mut otter = Program::named(&home, "chimera", &[&SERVE[..], &more].concat());
    otter.call(1, "initialize", &json!({}));
    let (_, new) = otter.call(2, "session/new", &json!({}));
    assert_eq!(new["result"]["model"], "offline:terse", "{new}");
    let (_, listed) = otter.call(3, "session/list", &json!({}));
    assert_eq!(
        listed["result"]["sessions"][0]["cwd"],
        json!(home.path().canonicalize().unwrap()),
        "{listed}"
    );
}

/// "Methods": each of the table, and one that is not in it.
#[test]
fn every_method_of_the_table_is_there() {
    let (mut otter, session) = greeted(&SERVE);
    let (updates, said) = otter.call(3, "session/message", &message(&session, "hello"));
    let chunks = updates.iter().filter(|frame| kind(frame) == "agent_message_chunk");
    let text: Vec<_> =
        chunks.map(|frame| frame["params"]["update"]["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(said["result"]["output"], text.concat(), "the final assistant message");
    let (history, loaded) = otter.call(4, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session);
    assert_eq!(numbers(&history), numbers(&updates), "history has the numbers that it had");
    let (_, listed) = otter.call(5, "session/list", &json!({}));
    assert!(listed["result"]["sessions"].as_array().unwrap().iter().any(|row| row["sessionId"] == session));
    for agent in ["plan", "build"] {
        let (_, mode) = otter.call(6, "session/setMode", &json!({ "sessionId": session, "mode": agent }));
        assert!(mode["result"]["mode"].is_string(), "{mode}");
    }
    let (_, model) =
        otter.call(7, "session/setModel", &json!({ "sessionId": session, "model": "offline:terse" }));
    assert_eq!(model["result"]["model"], "offline:terse");
    let (_, unknown) = otter.call(8, "no/such/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

/// "Notifications": the five kinds, in the envelope of the document.
#[test]
fn the_five_kinds_of_updates_are_told() {
    let (mut otter, session) = greeted(&SERVE);
    begin(&mut otter, 3, "session/message", &message(&session, "run rm -rf /tmp/x"));
    let (mut updates, asked) = until_kind(&mut otter, "permission_request");
    let request = asked["params"]["update"].clone();
    updates.push(asked);
    let reply = json!({ "requestId": request["requestId"], "reply": "deny" });
    begin(&mut otter, 4, "permission/respond", &reply);
    let (rest, _) = otter.until_answer(&json!(3));
    updates.extend(rest);
    let (more, _) = otter.call(5, "session/message", &message(&session, "list"));
    updates.extend(more);
    let updates: Vec<_> = updates.into_iter().filter(|frame| frame.get("method").is_some()).collect();
    for frame in &updates {
        assert_eq!((&frame["jsonrpc"], &frame["method"]), (&json!("2.0"), &json!("session/update")));
        assert!(frame.get("id").is_none(), "{frame}");
        assert_eq!(frame["params"]["sessionId"], session);
    }
    let chunk = find(&updates, "agent_message_chunk");
    assert_eq!(chunk["content"]["type"], "text");
    assert!(chunk["content"]["text"].is_string());
    let call = find(&updates, "tool_call");
    assert_eq!((&call["tool"], &call["input"]), (&json!("bash"), &json!({ "cmd": "rm -rf /tmp/x" })));
    let result = find(&updates, "tool_result");
    assert_eq!(result["callId"], call["callId"]);
    assert_eq!(result["success"], false);
    let usage = find(&updates, "usage_update");
    assert!(usage["input"].is_u64() && usage["output"].is_u64() && usage["costUsd"].is_number(), "{usage}");
    let names: Vec<_> = updates
        .iter()
        .filter(|frame| kind(frame) == "tool_call")
        .map(|frame| &frame["params"]["update"]["tool"])
        .collect();
    assert_eq!(names, ["bash", "list_files"]);
}

/// "Permission round-trip".
#[test]
fn a_question_blocks_the_turn_until_it_is_answered() {
    let (mut otter, session) = greeted(&SERVE);
    for (id, reply, done) in [(3, "deny", false), (5, "allow", true)] {
        let text = message(&session, "run touch made; true");
        begin(&mut otter, id, "session/message", &text);
        let (_, asked) = until_kind(&mut otter, "permission_request");
        let update = &asked["params"]["update"];
        assert!(update["requestId"].as_str().unwrap().starts_with('r'), "{update}");
        assert_eq!(
            (&update["tool"], &update["input"]),
            (&json!("bash"), &json!({ "cmd": "touch made; true" }))
        );
        assert_eq!(update["options"], json!(["allow", "always", "deny"]));
        let params = json!({ "requestId": update["requestId"], "reply": reply });
        let line = json!({ "jsonrpc": "2.0", "id": 42, "method": "permission/respond", "params": params });
        otter.send(&line);
        let (_, answer) = otter.until_answer(&json!(42));
        assert!(answer["result"].is_object(), "{answer}");
        let (_, said) = otter.until_answer(&json!(id));
        assert_eq!(said["result"]["stopReason"], "end_turn");
        assert_eq!(otter.home.path().join("work/made").exists(), done, "{reply}");
    }
}

/// "Session state": what was said outlives the process, and the sessions command shows it.
#[test]
fn a_session_is_loaded_after_a_restart_and_listed_by_the_sessions_command() {
    let (mut otter, session) = greeted(&SERVE);
    let (told, _) = otter.call(3, "session/message", &message(&session, "list"));
    let home = Arc::clone(&otter.home);
    otter.close();
    let mut otter = Program::named(&home, "chimera", &SERVE);
    otter.call(1, "initialize", &json!({}));
    let (history, loaded) = otter.call(2, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session);
    let updates =
        |frames: &[Value]| -> Vec<Value> { frames.iter().map(|frame| frame["params"].clone()).collect() };
    assert_eq!(updates(&history), updates(&told), "the same frames again");
    otter.close();
    for arguments in [&["otter", "sessions"][..], &["otter", "sessions", "list"]] {
        let listed = ended(&home, "chimera", arguments).with(0);
        let id: String = session.as_str().unwrap().chars().take(8).collect();
        assert!(listed.out.contains(&id), "{}", listed.out);
    }
}

/// "Session state": idle, running, cancelled; a second message queues behind the first.
#[test]
fn the_states_of_a_session_are_seen_and_messages_queue() {
    let (mut otter, session) = greeted(&SERVE);
    let status = |otter: &mut Program, id: u64| {
        let (frames, listed) = otter.call(id, "session/list", &json!({}));
        (frames, listed["result"]["sessions"][0]["status"].clone())
    };
    otter.call(3, "session/message", &message(&session, "hello"));
    assert_eq!(status(&mut otter, 4).1, "idle");
    begin(&mut otter, 5, "session/message", &message(&session, "run touch made; true"));
    let (_, asked) = until_kind(&mut otter, "permission_request");
    assert_eq!(status(&mut otter, 6).1, "running");
    begin(&mut otter, 7, "session/message", &message(&session, "list"));
    begin(&mut otter, 8, "session/list", &json!({}));
    let (frames, _) = otter.until_answer(&json!(8));
    assert!(!frames.iter().any(|frame| frame["id"] == 7), "it waits: {frames:?}");
    let reply = json!({ "requestId": asked["params"]["update"]["requestId"], "reply": "deny" });
    begin(&mut otter, 9, "permission/respond", &reply);
    let (frames, _) = otter.until_answer(&json!(5));
    assert!(!frames.iter().any(|frame| frame["id"] == 7), "the first is answered first: {frames:?}");
    let (_, second) = otter.until_answer(&json!(7));
    assert_eq!(second["result"]["stopReason"], "end_turn", "{second}");
    assert_eq!(status(&mut otter, 10).1, "idle");
    begin(&mut otter, 11, "session/message", &message(&session, "sleep 60000"));
    until_kind(&mut otter, "turn_start");
    begin(&mut otter, 12, "session/cancel", &json!({ "sessionId": session }));
    let (_, cancelled) = otter.until_answer(&json!(11));
    assert_eq!(cancelled["result"]["stopReason"], "cancelled");
    assert_eq!(status(&mut otter, 13).1, "idle");
}

/// "Error handling".
#[test]
fn the_codes_of_errors_are_those_of_the_table() {
    let (mut otter, session) = greeted(&SERVE);
    otter.line("{not json");
    assert_eq!(otter.until_answer(&Value::Null).1["error"]["code"], -32700);
    otter.line(r#"{"jsonrpc":"2.0","id":10}"#);
    assert_eq!(otter.until_answer(&json!(10)).1["error"]["code"], -32600);
    let code = |otter: &mut Program, id: u64, method: &str, params: Value| {
        otter.call(id, method, &params).1["error"]["code"].clone()
    };
    assert_eq!(code(&mut otter, 11, "no/such", json!({})), -32601);
    assert_eq!(code(&mut otter, 12, "session/message", json!({ "message": "hi" })), -32602);
    assert_eq!(code(&mut otter, 13, "session/load", json!({ "sessionId": "nobody" })), -32602);
    let (_, failed) = otter.call(14, "session/message", &message(&session, "fail"));
    assert_eq!(failed["error"]["code"], -32000);
    let data = failed["error"]["data"].as_object().unwrap();
    let mut names: Vec<_> = data.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["message", "name", "stack"]);
    // The server was not crashed by it.
    let (_, next) = otter.call(15, "session/message", &message(&session, "list"));
    assert_eq!(next["result"]["stopReason"], "end_turn");
}

/// "Test surface".
#[test]
fn malformed_json_is_answered_and_the_stream_stays_alive() {
    let mut otter = Program::start(&["serve", "--acp", "--dialect", "otter"]);
    otter.line("{not json");
    let (_, answer) = otter.until_answer(&Value::Null);
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    let (_, answer) = otter.call(1, "initialize", &json!({}));
    assert_eq!(answer["result"]["protocolVersion"], "0.1", "{answer}");
    let (code, log) = otter.close();
    assert_eq!(code, Some(0), "{log}");
}

/// "Cancellation": a last chunk with what was said, marked, under a number of its own that resuming finds again.
#[test]
fn a_cancelled_turn_ends_with_a_marked_chunk_that_has_the_partial_output() {
    let (mut otter, session) = greeted(&SERVE);
    begin(&mut otter, 3, "session/message", &message(&session, "hello\nsleep 60000"));
    let (mut told, first) = until_kind(&mut otter, "agent_message_chunk");
    told.push(first);
    begin(&mut otter, 4, "session/cancel", &json!({ "sessionId": session }));
    let (rest, said) = otter.until_answer(&json!(3));
    told.extend(rest);
    let told: Vec<_> = told.into_iter().filter(|frame| frame.get("method").is_some()).collect();
    let partial = said["result"]["output"].as_str().unwrap();
    assert_eq!(said["result"]["stopReason"], "cancelled");
    assert!(!partial.is_empty());
    let chunks: Vec<_> = told.iter().filter(|frame| kind(frame) == "agent_message_chunk").collect();
    let last = chunks.last().unwrap();
    let update = &last["params"]["update"];
    assert_eq!(
        (&update["cancelled"], &update["final"], &update["content"]["text"]),
        (&json!(true), &json!(true), &json!(partial))
    );
    // It takes the place of the chunks before it.
    let before = &chunks[..chunks.len() - 1];
    let streamed: Vec<_> =
        before.iter().map(|frame| frame["params"]["update"]["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed.concat(), partial);
    assert_eq!(kind(told.last().unwrap()), "turn_end");
    let ids = numbers(&told);
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "without gaps");
    // Resumed at any number, also between the two of the end and in the middle of the turn, the same frames come.
    for since in 0..=told.len() {
        let params = json!({ "sessionId": session, "sinceEventId": since });
        let (again, answer) = otter.call(100 + since as u64, "session/resume", &params);
        assert_eq!(again, told[since..], "since {since}");
        assert_eq!(answer["result"]["replayed"], told.len() - since);
    }
    // Also by another process.
    let home = Arc::clone(&otter.home);
    otter.close();
    let mut otter = Program::named(&home, "chimera", &SERVE);
    otter.call(1, "initialize", &json!({}));
    let since = told.len() - 2;
    let (again, _) = otter.call(2, "session/resume", &json!({ "sessionId": session, "sinceEventId": since }));
    assert_eq!(again, told[since..]);
}

/// "Capabilities handshake" and "Capability advertisement", in both forms.
#[test]
fn the_handshake_has_both_forms() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    let hello = &hello["result"];
    assert_eq!(hello["protocolVersion"], "0.1");
    assert_eq!(hello["serverInfo"]["name"], "otter-acp");
    assert!(hello["serverInfo"]["version"].is_string());
    for capability in ["sessionFork", "sessionList", "permissionRequest"] {
        assert_eq!(hello["capabilities"][capability], true, "{hello}");
    }
    let advertised = json!({
        "promptCapabilities": {"text": true},
        "sessionCapabilities": {"cancel": true, "resume": true},
        "toolApproval": true,
        "eventIds": true,
    });
    assert_eq!(hello["agentCapabilities"], advertised);
    let (_, later) = otter.call(2, "initialize", &json!({ "protocolVersion": 2 }));
    assert_eq!(later["result"]["protocolVersion"], 2);
    assert_eq!(later["result"]["agentCapabilities"], advertised);
    let (_, older) = otter.call(3, "initialize", &json!({ "protocolVersion": "0.1" }));
    assert_eq!(older["result"]["protocolVersion"], "0.1");
}

/// What is said of thinking and vision is true: the models here think, so it is not `false` as in the document.
#[test]
fn differs_capabilities_are_what_this_server_can_do() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    assert_eq!(hello["result"]["capabilities"]["thinking"], true);
    let (_, new) = otter.call(2, "session/new", &json!({}));
    let (updates, _) = otter.call(3, "session/message", &message(&new["result"]["sessionId"], "think"));
    find(&updates, "agent_thought_chunk");
}

/// "Pure mode".
#[test]
fn the_tools_are_narrowed_by_their_capitalised_names() {
    let (mut otter, session) = greeted(&["otter", "serve", "--acp", "--allowed-tools", "Read,Grep,Bash"]);
    std::fs::write(otter.home.path().join("work/note.txt"), "needle\n").unwrap();
    for (id, text, tool) in
        [(3, "read note.txt", "read_file"), (4, "search needle", "search"), (5, "run true", "bash")]
    {
        let (updates, _) = otter.call(id, "session/message", &message(&session, text));
        assert_eq!(find(&updates, "tool_call")["tool"], tool);
        assert_eq!(find(&updates, "tool_result")["success"], true, "{text}: {updates:?}");
    }
    otter.call(6, "session/message", &message(&session, "write a.txt: x"));
    assert!(!otter.home.path().join("work/a.txt").exists());
}

/// "Resume after disconnect", "Event ids", "Cursor edge cases".
#[test]
fn a_client_resumes_at_any_cursor() {
    let (mut otter, session) = greeted(&SERVE);
    let (told, _) = otter.call(3, "session/message", &message(&session, "list"));
    let last = told.len() as u64;
    assert_eq!(numbers(&told), (1..=last).collect::<Vec<_>>());
    let mut id = 3;
    let mut resume = |params: Value| {
        id += 1;
        let (again, answer) = otter.call(id, "session/resume", &params);
        (again, answer["result"].clone())
    };
    let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": 2 }));
    assert_eq!(again, told[2..], "strictly greater, in order, in the same shape");
    let expected =
        json!({ "sessionId": session, "replayed": last - 2, "lastEventId": last, "truncated": false });
    assert_eq!(answer, expected);
    for everything in [json!(0), json!(-5), json!("7"), json!(1.5), Value::Null] {
        let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": everything }));
        assert_eq!((again.len() as u64, &answer["replayed"]), (last, &json!(last)), "{everything}");
    }
    assert_eq!(resume(json!({ "sessionId": session })).0, told, "omitted");
    for nothing in [last, last + 1, last + 1000] {
        let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": nothing }));
        assert_eq!((again.len(), &answer["lastEventId"]), (0, &json!(last)));
    }
}

/// "Bounded history": 1024, or what the variable says.
#[test]
fn the_last_1024_updates_are_kept_or_as_many_as_the_variable_says() {
    let replayed = |otter: &mut Program, id: u64, session: &Value, since: u64| {
        let (again, answer) =
            otter.call(id, "session/resume", &json!({ "sessionId": session, "sinceEventId": since }));
        let answer = &answer["result"];
        assert_eq!(answer["replayed"], again.len());
        (again.len() as u64, answer["lastEventId"].as_u64().unwrap(), answer["truncated"] == true)
    };
    let (mut otter, session) = greeted(&SERVE);
    otter.call(3, "session/message", &message(&session, "stream 1100 10"));
    let (kept, last, truncated) = replayed(&mut otter, 4, &session, 1);
    assert_eq!((kept, truncated), (1024, true), "of {last}");
    assert_eq!(replayed(&mut otter, 5, &session, last - 1024), (1024, last, false));
    assert_eq!(replayed(&mut otter, 6, &session, last - 1), (1, last, false));
    let home = Arc::clone(&otter.home);
    otter.close();
    let few = |home: &TempDir| {
        let mut few = command(&link(home, "chimera"), home, &SERVE);
        few.env("OTTER_ACP_DEFAULT_HISTORY_SIZE", "10");
        few
    };
    let mut otter = Program::run(&home, few(&home));
    otter.call(1, "initialize", &json!({}));
    assert_eq!(replayed(&mut otter, 2, &session, 1), (10, last, true));
    let mut wrong = command(&link(&home, "chimera"), &home, &SERVE);
    wrong.env("OTTER_ACP_DEFAULT_HISTORY_SIZE", "many").stdin(std::process::Stdio::null());
    assert_eq!(wrong.output().unwrap().status.code(), Some(2));
}

/// "Resume after disconnect": over HTTP it is the header.
#[test]
fn over_http_a_client_goes_on_after_its_last_event_id() {
    let arguments = ["otter", "serve", "--http", "--port", "0"];
    let server = http_server(&home(), "chimera", &arguments, "OTTER_SERVER_TOKEN");
    let new = Ask::post("/session", "{}").token(TOKEN).send(&server);
    assert_eq!(new.status, 201, "{}", new.error());
    let session = new.json()["session_id"].as_str().unwrap().to_owned();
    let sent =
        Ask::post(&format!("/session/{session}/message"), r#"{"text":"list"}"#).token(TOKEN).send(&server);
    assert_eq!(sent.status, 202);
    let events = |since: Option<u64>| {
        let mut ask = Ask::get(&format!("/session/{session}/events")).token(TOKEN);
        if let Some(since) = since {
            ask = ask.header("last-event-id", &since.to_string());
        }
        let (send, heard) = sync_channel(1 << 10);
        assert_eq!(follow(server.address(), &ask, move |event| drop(send.send(event))).0, 200);
        let mut seen = Vec::new();
        loop {
            let event = heard.recv_timeout(DEADLINE).unwrap();
            let ended = event.name.as_deref() == Some("result");
            seen.push((event.id.unwrap().parse::<u64>().unwrap(), event.name.unwrap(), event.data));
            if ended {
                return seen;
            }
        }
    };
    let all = events(None);
    assert_eq!(all[0].0, 1);
    assert_eq!(events(Some(2)), all[2..]);
}

/// "Transport security": a flag of the HTTP server, which takes a certificate and its key or nothing.
#[test]
fn tls_is_an_option_of_the_http_server() {
    let home = home();
    let half = ended(&home, "chimera", &["otter", "serve", "--http", "--port", "0", "--tls-cert", "a.pem"]);
    assert_eq!(half.code, 2, "{}", half.err);
    assert!(half.err.contains("--tls-key"), "{}", half.err);
    let stdio =
        ended(&home, "chimera", &["otter", "serve", "--acp", "--tls-cert", "a.pem", "--tls-key", "b.pem"]);
    assert_eq!(stdio.code, 2, "there is nothing to protect on standard input: {}", stdio.err);
}
