//! Otter's ACP server, in the order of its document; "Resume after disconnect" and what follows is in `otter/resume.rs`.
//!
//! What stays different, each by a test:
//!
//! - `differs_more_kinds_are_told`: five kinds cannot show a thought, a plan, a changed file or how a question was settled;
//!   a client that does not know a kind passes over it and keeps its number.
//! - `differs_content_is_one_block`: the document has a list in one example and one block in a later one; it is the later one.
//! - `differs_sessions_are_kept_in_one_store`: chimera's folders are listed and loaded, but a session has one home for all
//!   dialects; `--eventlog` writes the folders too.
//! - `differs_the_first_request_is_initialize`: before it, it is not known in which dialect to answer; the code is -32002, also for
//!   unknown methods.
//! - `differs_capabilities_are_what_this_server_can_do`: agents here think and may see images, so `thinking` is not `false`.
//! - `differs_a_cancel_also_ends_what_its_sender_queued`: who stops the agent does not want it to begin with the next message.
//! - `differs_http_asks_for_a_token`: other programs on the same machine can reach a loopback port, and find a short token by
//!   trying.
//! - `differs_tls_is_a_certificate_and_its_key`: the document names `--tls` without saying whose certificate it would be.
//! - `differs_texts_for_people_name_a_mode_as_everywhere`: the agent writes them for all clients of a session at once.
//! - `differs_bash_brings_what_reads_its_background_commands`: a command that nobody could look at or stop would run on.
//! - `differs_the_queue_has_an_end`: a client that only sends must not fill the memory.
//! - `differs_a_session_without_a_message_is_not_listed`: editors make one with every window.
//! - `differs_a_client_of_the_official_protocol_gets_that`: Zed and others speak it to whatever they start.
//! - `differs_a_bare_serve_is_acp`: the document does not say what it is.
//! - `differs_truncated_says_that_something_was_missed`: by the letter, every replay from the beginning would be truncated.
//! - `differs_no_event_log_is_written_unless_somebody_names_a_folder` (`eventlog.rs`): sessions are kept in one place, and chimera's
//!   folder is chimera's own.

mod resume;

use std::io::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::doors::web::Ask;
use crate::seeds::program::{DEADLINE, Program, TOKEN, ended, home, http_server};

const SERVE: [&str; 3] = ["otter", "serve", "--acp"];

fn greeted(arguments: &[&str]) -> (Program, Value) {
    let mut otter = Program::named(&home(), "chimera", arguments);
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

/// The field `mode` has the name that `session/setMode` takes; a sentence about it is written once, for all clients.
#[test]
fn differs_texts_for_people_name_a_mode_as_everywhere() {
    let (mut otter, session) = greeted(&SERVE);
    let (_, set) = otter.call(3, "session/setMode", &json!({ "sessionId": session, "mode": "plan" }));
    assert_eq!(set["result"]["mode"], "plan", "{set}");
    begin(&mut otter, 4, "session/message", &message(&session, "run touch made"));
    let (_, refused) = until_kind(&mut otter, "sandbox_violation");
    let update = &refused["params"]["update"];
    assert_eq!(update["mode"], "plan", "{update}");
    assert!(update["reason"].as_str().unwrap().contains("architect mode"), "{update}");
}

/// `--acp` beside `--http`, as `serve --http --stdio`: the editor on standard input is answered, the others over HTTP.
#[test]
fn acp_is_served_beside_http_on_the_same_sessions() {
    let arguments = ["otter", "serve", "--acp", "--http", "--port", "0", "-v"];
    let mut server = http_server(&home(), "chimera", &arguments, "OTTER_SERVER_TOKEN");
    let mut input = server.input.take().unwrap();
    let mut call = |id: u64, method: &str| {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} });
        input.write_all(format!("{frame}\n").as_bytes()).unwrap();
        let line = server.lines.recv_timeout(DEADLINE).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(call(1, "initialize")["result"]["protocolVersion"], "0.1");
    let session = call(2, "session/new")["result"]["sessionId"].as_str().unwrap().to_owned();
    let shown = Ask::get(&format!("/session/{session}")).token(TOKEN).send(&server);
    assert_eq!(shown.status, 200, "{}", shown.error());
    drop(input);
    server.until_log("the editor closed the connection; HTTP continues");
    assert_eq!(server.stop().0, Some(0));
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
    // The help of the command has the flags of the document.
    let help = ended(&home, "chimera", &["otter", "serve", "--help"]).with(0);
    for flag in ["--acp", "--http", "--cwd", "--model", "--allowed-tools"] {
        assert!(help.out.contains(flag), "{flag}: {}", help.out);
    }
}

/// "Wire protocol": one JSON object per line and nothing else, the id of the request in its answer and nowhere else.
#[test]
fn each_line_is_one_object_and_only_answers_have_an_id() {
    let (mut otter, session) = greeted(&SERVE);
    let (updates, answer) = otter.call(7, "session/message", &message(&session, "list"));
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
    for frame in updates {
        assert_eq!((&frame["jsonrpc"], &frame["method"]), (&json!("2.0"), &json!("session/update")));
        assert!(frame.is_object() && frame.get("id").is_none(), "{frame}");
    }
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
        let params = json!({ "sessionId": session, "mode": agent });
        let (updates, mode) = otter.call(6, "session/setMode", &params);
        assert_eq!(mode["result"]["mode"], agent, "{mode}");
        assert_eq!(
            find(&updates, "current_mode_update")["currentModeId"],
            agent,
            "the same name for everybody"
        );
    }
    let (_, model) =
        otter.call(7, "session/setModel", &json!({ "sessionId": session, "model": "offline:terse" }));
    assert_eq!(model["result"]["model"], "offline:terse");
    let (_, idle) = otter.call(8, "session/cancel", &json!({ "sessionId": session }));
    assert_eq!(idle["result"], json!({ "sessionId": session, "cancelled": false }));
    // That there is nothing to answer is another error than that there is no such method.
    for (id, reply) in (9..).zip(["allow", "deny", "always"]) {
        let params = json!({ "requestId": "r1", "reply": reply });
        assert_eq!(otter.call(id, "permission/respond", &params).1["error"]["code"], -32602, "{reply}");
    }
    let (_, unknown) = otter.call(12, "no/such/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

/// "Methods": a user message is a text or, as in the official protocol, content blocks.
#[test]
fn a_message_may_be_content_blocks() {
    let (mut otter, session) = greeted(&SERVE);
    let text = json!({ "type": "text", "text": "echo one" });
    let resource = json!({
        "type": "resource",
        "resource": { "uri": "file:///notes.txt", "mimeType": "text/plain", "text": "a note" },
    });
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" });
    for (id, name) in (3..).zip(["message", "content", "prompt"]) {
        let params = json!({ "sessionId": session, name: [text, resource, image] });
        let (updates, said) = otter.call(id, "session/message", &params);
        assert_eq!(said["result"]["stopReason"], "end_turn", "{name}: {said}");
        let shown = find(&updates, "user_message_chunk")["content"]["text"].as_str().unwrap();
        for part in ["echo one", "notes.txt", "image/png"] {
            assert!(shown.contains(part), "{name}: {part} is not in {shown:?}");
        }
    }
    for (id, empty) in
        (6..).zip([json!({ "content": [] }), json!({ "prompt": "" }), json!({ "content": [7] })])
    {
        let mut params = empty;
        params["sessionId"] = session.clone();
        assert_eq!(otter.call(id, "session/message", &params).1["error"]["code"], -32602, "{params}");
    }
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
    assert!(updates.iter().all(|frame| frame["params"]["sessionId"] == session));
    find(&updates, "agent_message_chunk");
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

/// More is told than the five kinds, each under a number of its own: what a client does not know it may pass over.
#[test]
fn differs_more_kinds_are_told() {
    let (mut otter, session) = greeted(&SERVE);
    let (mut updates, _) = otter.call(3, "session/message", &message(&session, "think"));
    updates.extend(otter.call(4, "session/message", &message(&session, "write a.txt: x")).0);
    let five = ["agent_message_chunk", "tool_call", "tool_result", "usage_update", "permission_request"];
    let ours = ["turn_start", "user_message_chunk", "agent_thought_chunk", "file_edit", "turn_end"];
    for wanted in ours {
        find(&updates, wanted);
    }
    let page = include_str!("../../../../../docs/dialects/otter.md");
    for frame in &updates {
        let kind = kind(frame);
        assert!(five.contains(&kind) || page.contains(&format!("`{kind}")), "{kind} is not on the page");
    }
    assert_eq!(numbers(&updates), (1..=updates.len() as u64).collect::<Vec<_>>());
}

/// The document shows a list of blocks in its first example and one block in its later one.
#[test]
fn differs_content_is_one_block() {
    let (mut otter, session) = greeted(&SERVE);
    let (updates, _) = otter.call(3, "session/message", &message(&session, "hello"));
    let chunk = find(&updates, "agent_message_chunk");
    assert_eq!(chunk["content"]["type"], "text");
    assert!(chunk["content"]["text"].is_string(), "{chunk}");
}

/// "Replies with the final assistant message": what was said after the last call of a tool.
#[test]
fn a_message_is_answered_with_the_final_assistant_message() {
    let (mut otter, session) = greeted(&SERVE);
    let (updates, answer) = otter.call(3, "session/message", &message(&session, "list"));
    let text = |updates: &[Value]| -> String {
        let said = updates.iter().filter(|frame| kind(frame) == "agent_message_chunk");
        said.map(|frame| frame["params"]["update"]["content"]["text"].as_str().unwrap()).collect()
    };
    let call = updates.iter().position(|frame| kind(frame) == "tool_result").unwrap();
    let (before, last) = updates.split_at(call);
    assert!(!text(before).is_empty() && !text(last).is_empty(), "{updates:?}");
    assert_eq!(answer["result"]["output"], text(last), "{answer}");
}

/// "Queues behind the active turn": so many messages wait, and who sends more is told.
#[test]
fn differs_the_queue_has_an_end() {
    let (mut otter, session) = greeted(&SERVE);
    begin(&mut otter, 3, "session/message", &message(&session, "sleep 60000"));
    until_kind(&mut otter, "turn_start");
    for id in 10..50 {
        begin(&mut otter, id, "session/message", &message(&session, "list"));
    }
    begin(&mut otter, 50, "session/cancel", &json!({ "sessionId": session }));
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 42 {
        let frame = otter.next();
        if let Some(id) = frame["id"].as_u64() {
            answers.insert(id, frame);
        }
    }
    let refused: Vec<_> = answers.values().filter(|answer| answer.get("error").is_some()).collect();
    let waited = answers.values().filter(|answer| answer["result"]["stopReason"] == "cancelled").count();
    assert_eq!((waited, refused.len()), (33, 8), "one that ran and 32 that waited");
    for answer in refused {
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("waiting"), "{answer}");
    }
}

/// A session in which nothing was ever said is listed only while it is in memory.
#[test]
fn differs_a_session_without_a_message_is_not_listed() {
    let (mut otter, session) = greeted(&SERVE);
    let (_, listed) = otter.call(3, "session/list", &json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session);
    let home = Arc::clone(&otter.home);
    otter.close();
    let mut otter = Program::named(&home, "chimera", &SERVE);
    otter.call(1, "initialize", &json!({}));
    assert_eq!(otter.call(2, "session/list", &json!({})).1["result"]["sessions"], json!([]));
    let (_, loaded) = otter.call(3, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session, "{loaded}");
}

/// A client that says what it can do speaks the official protocol.
#[test]
fn differs_a_client_of_the_official_protocol_gets_that() {
    let mut agent = Program::named(&home(), "chimera", &SERVE);
    let (_, hello) = agent.call(0, "initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    let cwd = agent.home.path().join("work");
    let (_, new) = agent.call(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = new["result"]["sessionId"].as_str().unwrap();
    assert!(!session.starts_with("otter-"), "{new}");
}

/// The document does not say what `otter serve` is without `--acp` and `--http`: it is `--acp`.
#[test]
fn differs_a_bare_serve_is_acp() {
    let mut otter = Program::named(&home(), "chimera", &["otter", "serve"]);
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    assert_eq!(hello["result"]["protocolVersion"], "0.1", "{hello}");
    let (code, log) = otter.close();
    assert_eq!((code, log.contains("listening on")), (Some(0), false), "{log}");
}

/// "Permission round-trip": the request and the reply of the document; each of the three replies does what it says.
#[test]
fn a_question_blocks_the_turn_until_it_is_answered() {
    let (mut otter, session) = greeted(&SERVE);
    for (id, reply, done) in [(3, "deny", false), (4, "allow", true), (5, "always", true)] {
        begin(&mut otter, id, "session/message", &message(&session, "run touch made; true"));
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
        let made = otter.home.path().join("work/made");
        assert_eq!(made.exists(), done, "{reply}");
        drop(std::fs::remove_file(made));
    }
    // What was always allowed is not asked for again.
    let (updates, _) = otter.call(6, "session/message", &message(&session, "run touch made; true"));
    assert!(!updates.iter().any(|frame| kind(frame) == "permission_request"), "{updates:?}");
    assert!(otter.home.path().join("work/made").exists());
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

/// The folders of chimera's programs are read (`eventlog.rs`), and not where a session is kept.
#[test]
fn differs_sessions_are_kept_in_one_store() {
    let (mut otter, session) = greeted(&SERVE);
    otter.call(3, "session/message", &message(&session, "list"));
    let home = Arc::clone(&otter.home);
    otter.close();
    assert!(!home.path().join(".chimera").exists());
    assert!(home.path().join(".local/state/ropewalk/sessions.db").exists());
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

/// "Error handling", -32603: the server itself cannot do its work. It says why and goes on.
#[test]
fn a_store_that_cannot_be_used_is_an_internal_error_and_the_server_goes_on() {
    let home = home();
    let state = home.path().join(".local/state/ropewalk");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("sessions.db"), "this is no database, and was never one\n".repeat(100))
        .unwrap();
    let mut otter = Program::named(&home, "chimera", &SERVE);
    otter.call(1, "initialize", &json!({}));
    for (id, method) in (2..).zip(["session/new", "session/list"]) {
        let (_, answer) = otter.call(id, method, &json!({}));
        assert_eq!(answer["error"]["code"], -32603, "{method}: {answer}");
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains("the session store cannot be used"), "{told}");
    }
    let (_, again) = otter.call(4, "initialize", &json!({}));
    assert_eq!(again["result"]["protocolVersion"], "0.1");
}

/// A client that has not said what it speaks is told to, with a code that the table does not have.
#[test]
fn differs_the_first_request_is_initialize() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    for (id, method) in (1..).zip(["session/new", "no/such/method"]) {
        let (_, early) = otter.call(id, method, &json!({}));
        assert_eq!(early["error"]["code"], -32002, "{method}: {early}");
        assert!(early["error"]["message"].as_str().unwrap().contains("initialize"), "{early}");
    }
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

/// `session/cancel` cancels the turn in flight, and here also what the same client has waiting behind it. That was never a
/// turn, so its end has no beginning before it.
#[test]
fn differs_a_cancel_also_ends_what_its_sender_queued() {
    let (mut otter, session) = greeted(&SERVE);
    begin(&mut otter, 3, "session/message", &message(&session, "hello\nsleep 60000"));
    until_kind(&mut otter, "agent_message_chunk");
    begin(&mut otter, 4, "session/message", &message(&session, "list"));
    begin(&mut otter, 5, "session/cancel", &json!({ "sessionId": session }));
    let mut frames = Vec::new();
    while [3, 4, 5].iter().any(|id| !frames.iter().any(|frame: &Value| frame["id"] == *id)) {
        frames.push(otter.next());
    }
    for id in [3, 4] {
        let said = frames.iter().find(|frame| frame["id"] == id).unwrap();
        assert_eq!(said["result"]["stopReason"], "cancelled", "{said}");
    }
    let updates: Vec<_> = frames.iter().filter(|frame| frame.get("method").is_some()).collect();
    assert!(!updates.iter().any(|frame| kind(frame) == "turn_start"), "{updates:?}");
    assert_eq!(updates.iter().filter(|frame| kind(frame) == "turn_end").count(), 2, "{updates:?}");
}

/// "Capabilities handshake", literally but for what this server can do more.
#[test]
fn initialize_says_what_the_server_can_do() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    let hello = &hello["result"];
    assert_eq!(hello["protocolVersion"], "0.1");
    assert_eq!(hello["serverInfo"], json!({ "name": "otter-acp", "version": env!("CARGO_PKG_VERSION") }));
    let capabilities = hello["capabilities"].as_object().unwrap();
    let mut names: Vec<_> = capabilities.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["permissionRequest", "sessionFork", "sessionList", "thinking", "vision"]);
    for capability in ["sessionFork", "sessionList", "permissionRequest"] {
        assert_eq!(capabilities[capability], true, "{capability}");
    }
    let (_, new) = otter.call(2, "session/new", &json!({}));
    let (_, copy) = otter.call(3, "session/fork", &json!({ "sessionId": new["result"]["sessionId"] }));
    assert!(copy["result"]["sessionId"].is_string(), "{copy}");
}

/// What is said of thinking and vision is true: both are shown, and who gives an image to a model that cannot look at it is told.
#[test]
fn differs_capabilities_are_what_this_server_can_do() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    let (_, hello) = otter.call(1, "initialize", &json!({}));
    assert_eq!(hello["result"]["capabilities"]["thinking"], true);
    assert_eq!(hello["result"]["capabilities"]["vision"], true);
    let (_, new) = otter.call(2, "session/new", &json!({}));
    let session = &new["result"]["sessionId"];
    let (updates, _) = otter.call(3, "session/message", &message(session, "think"));
    find(&updates, "agent_thought_chunk");
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" });
    let blocks = json!([{ "type": "text", "text": "what is this?" }, image]);
    let params = json!({ "sessionId": session, "content": blocks });
    let (updates, said) = otter.call(4, "session/message", &params);
    assert_eq!(said["result"]["stopReason"], "end_turn", "{said}");
    let shown = find(&updates, "user_message_chunk")["content"]["text"].as_str().unwrap();
    assert!(shown.contains("image/png"), "{shown}");
    let told = updates.iter().any(|frame| frame.to_string().contains("this model cannot look at images"));
    assert!(told, "{updates:?}");
}

/// "Pure mode": three tools are named, and five are there.
#[test]
fn differs_bash_brings_what_reads_its_background_commands() {
    let (mut otter, session) = greeted(&["otter", "serve", "--acp", "--allowed-tools", "Read,Grep,Bash"]);
    let (updates, _) = otter.call(3, "session/message", &message(&session, "write a.txt: x"));
    let refused = find(&updates, "tool_result")["error"].as_str().unwrap();
    assert!(refused.contains("the tools are read_file, search, bash, jobs, job_input"), "{refused}");
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
    let (updates, _) = otter.call(7, "session/message", &message(&session, "write a.txt: x"));
    let refused = find(&updates, "tool_result")["error"].as_str().unwrap();
    let told = "there is no tool \"write_file\"; the tools are read_file, search, bash";
    assert!(refused.starts_with(told), "in otter's own names: {refused}");
    // The flag of others is refused, and not passed over as if it had narrowed anything.
    let pure = ended(&otter.home, "chimera", &["otter", "serve", "--acp", "--pure"]);
    assert_eq!(pure.code, 2, "{}", pure.err);
    assert!(!pure.err.contains("-- --pure"), "that would start a program: {}", pure.err);
    // Whoever mistypes a name is told the names of the document too.
    let wrong =
        ended(&otter.home, "chimera", &["otter", "serve", "--acp", "--allowed-tools", "Read,Fly"]).with(2);
    assert!(wrong.err.contains("use Read, Edit, Write, Bash, Grep"), "{}", wrong.err);
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
