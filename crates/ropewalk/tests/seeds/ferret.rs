//! Ferret's IDE bridge. What stays different on purpose:
//!
//! - `differs_loopback_is_no_authentication`: every page and program of the machine can connect to loopback.
//! - `differs_a_token_has_at_least_16_characters`: a short one is found by trying.
//! - `differs_the_mode_of_a_violation_is_the_one_that_refused`: where the approval or the agent's mode refused, a banner that
//!   named the sandbox would send people to the wrong switch.
//! - `differs_a_message_is_answered_with_everything_that_was_said`: a client that shows no stream misses nothing.

mod answers;
mod edits;
mod kinds;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use serde_json::{Value, json};

use crate::eventlog::{FERRET, chimeras, is_id};
use crate::events::follow;
use crate::program::{DEADLINE, Program, TOKEN, ended, home, http_server};
use crate::web::{Ask, Server};

/// A ferret as the document starts it, greeted, with a session.
fn greeted(arguments: &[&str]) -> (Program, Value) {
    let mut ferret = Program::named(&home(), "chimera", arguments);
    let (_, hello) = ferret.call(1, "initialize", &json!({}));
    assert_eq!(hello["result"]["protocolVersion"], "0.2", "{hello}");
    let (_, new) = ferret.call(2, "session/new", &json!({}));
    (ferret, new["result"]["sessionId"].clone())
}

/// Everything up to the first update of this kind, and that one.
#[track_caller]
fn until_kind(ferret: &mut Program, kind: &str) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let frame = ferret.next();
        assert!(frame.get("error").is_none(), "{frame}");
        if frame["params"]["kind"] == kind {
            return (before, frame["params"].clone());
        }
        before.push(frame);
    }
}

#[track_caller]
fn kinds_of(updates: &[Value]) -> Vec<&str> {
    updates
        .iter()
        .map(|update| {
            assert_eq!(update["method"], "session/update", "{update}");
            assert!(update.get("id").is_none(), "{update}");
            update["params"]["kind"].as_str().unwrap()
        })
        .collect()
}

/// "Launching", "Wire protocol": by its own name and by a link, until the input closes.
#[test]
fn it_serves_stdio_by_default_until_the_input_closes() {
    let home = home();
    for (name, arguments) in [
        ("chimera", &["ferret", "serve"][..]),
        ("ropewalk", &["ferret", "serve"]),
        ("chimera", &["ferret", "serve", "--sandbox", "workspace-write", "--approval", "auto"]),
    ] {
        let mut ferret = Program::named(&home, name, arguments);
        ferret.line(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
        let answer = ferret.next();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)));
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], "0.2", "{answer}");
        let capabilities =
            json!({"sandbox":true,"approval":true,"streaming":true,"cancellation":true,"bridge":true});
        assert_eq!(result["capabilities"], capabilities);
        let (code, log) = ferret.close();
        assert_eq!(code, Some(0), "{log}");
    }
}

/// "HTTP is opt-in via `--http`": without it nothing listens, and with it standard input is not served.
#[test]
fn http_is_opt_in() {
    let (ferret, _) = greeted(&["ferret", "serve"]);
    let (code, log) = ferret.close();
    assert_eq!((code, log.contains("listening on")), (Some(0), false), "{log}");
    let server = served(&home(), &[]);
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    assert_eq!(Ask::get("/session").token(TOKEN).send(&server).status, 200);
    assert_eq!(server.stop().0, Some(0));
}

/// `chimera ferret serve --http --port 5173`, to the letter. The test holds the port, so that what the program says does not
/// depend on the machine.
#[test]
fn the_port_of_the_document_is_the_one_that_is_tried() {
    let _held = crate::program::hold_port(5173);
    let refused = ended(&home(), "chimera", &["ferret", "serve", "--http", "--port", "5173"]).with(1);
    assert!(refused.err.contains("127.0.0.1:5173 cannot be listened on"), "{}", refused.err);
}

/// "The server takes the standard ferret flags".
#[test]
fn the_standard_flags_are_taken() {
    let home = home();
    let folder = home.path().join("other");
    std::fs::create_dir(&folder).unwrap();
    let cwd = folder.to_str().unwrap();
    let flags = ["ferret", "serve", "--cwd", cwd, "--model", "offline:terse", "--sandbox", "read-only"];
    let more = ["--approval", "full", "--allowed-tools", "Read,Grep,Bash"];
    let mut ferret = Program::named(&home, "chimera", &[&flags[..], &more].concat());
    ferret.call(1, "initialize", &json!({}));
    let (_, new) = ferret.call(2, "session/new", &json!({}));
    let new = &new["result"];
    assert_eq!((&new["model"], &new["approval"]), (&json!("offline:terse"), &json!("full")));
    let session = &new["sessionId"];
    let (_, sandbox) = ferret.call(3, "session/setSandbox", &json!({ "sessionId": session }));
    assert_eq!(sandbox["result"]["sandbox"], "read-only");
    std::fs::write(folder.join("note.txt"), "in the folder\n").unwrap();
    let (updates, _) =
        ferret.call(4, "session/message", &json!({ "sessionId": session, "message": "read note.txt" }));
    let read = updates.iter().find(|update| update["params"]["kind"] == "tool_call_start").unwrap();
    assert_eq!(
        (&read["params"]["tool"], &read["params"]["args"]["path"]),
        (&json!("Read"), &json!("note.txt"))
    );
    let end = updates.iter().find(|update| update["params"]["kind"] == "tool_call_end").unwrap();
    assert!(end["params"]["result"].as_str().unwrap().contains("in the folder"), "{end}");
    // What is not among the allowed tools is not there.
    let (updates, _) =
        ferret.call(5, "session/message", &json!({ "sessionId": session, "message": "write a.txt: x" }));
    assert!(!kinds_of(&updates).contains(&"file_edit"), "{updates:?}");
    assert!(!folder.join("a.txt").exists());
}

/// "Requests carry an integer `id`; the server responds with the same `id`", whether it succeeds or not.
#[test]
fn integer_ids_come_back_as_they_are() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve"]);
    for (id, method) in [
        (1_u64, "initialize"),
        (0, "session/list"),
        (42, "session/list"),
        (42, "no/such/method"),
        (1 << 53, "session/list"),
        (u64::from(u32::MAX) + 1, "session/load"),
    ] {
        ferret.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#));
        let answer = ferret.next();
        assert_eq!((answer["id"].as_u64(), &answer["jsonrpc"]), (Some(id), &json!("2.0")), "{answer}");
        assert_ne!(answer.get("result").is_some(), answer.get("error").is_some(), "{answer}");
    }
    assert_eq!(ferret.close().0, Some(0));
}

/// "`session/new`: Create a new session; returns `sessionId`": as `ferret-20260430T1230-1f3c2a8b`.
#[test]
fn a_session_id_is_ferrets() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let (_, other) = ferret.call(3, "session/new", &json!({}));
    let other = &other["result"]["sessionId"];
    for id in [&session, other] {
        assert!(is_id(id.as_str().unwrap(), "ferret"), "{id}");
    }
    assert_ne!(session, *other);
}

/// "List known sessions under `~/.chimera/eventlog/ferret-*/`", and "Load a previously persisted session by id".
#[test]
fn the_sessions_under_chimeras_event_log_are_listed_and_loaded() {
    let home = home();
    chimeras(&home, FERRET);
    // It is not one of ferret's.
    chimeras(&home, "mink-20260430T1230-1f3c2a8b");
    let mut ferret = Program::named(&home, "chimera", &["ferret", "serve"]);
    ferret.call(1, "initialize", &json!({}));
    let (_, listed) = ferret.call(2, "session/list", &json!({}));
    let listed = listed["result"]["sessions"].as_array().unwrap();
    let ids: Vec<_> = listed.iter().map(|row| row["sessionId"].as_str().unwrap()).collect();
    assert_eq!(ids, [FERRET]);
    let (history, loaded) = ferret.call(3, "session/load", &json!({ "sessionId": FERRET }));
    assert_eq!(loaded["result"]["sessionId"], FERRET, "{loaded}");
    let said: Vec<_> = history.iter().filter_map(|update| update["params"]["text"].as_str()).collect();
    assert_eq!(said, ["fix the build", "It builds."], "{history:?}");
}

/// "Unknown methods return JSON-RPC error code -32601 (Method not found)."
#[test]
fn an_unknown_method_is_not_found() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    for (id, method) in (3..).zip(["no/such/method", "session/setModes", "Session/new", "permission", ""]) {
        let (_, answer) = ferret.call(id, method, &json!({ "sessionId": session }));
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

/// "Methods": each of the table, and one that is not in it.
#[test]
fn every_method_of_the_table_is_there() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let (updates, said) =
        ferret.call(3, "session/message", &json!({ "sessionId": session, "message": "hello" }));
    assert!(kinds_of(&updates).contains(&"agent_message_chunk"));
    let text: String =
        updates.iter().filter_map(|update| update["params"]["text"].as_str()).collect::<Vec<_>>().concat();
    assert_eq!(said["result"]["output"], text, "the final assistant message");
    let (history, loaded) = ferret.call(4, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session);
    assert!(kinds_of(&history).contains(&"agent_message_chunk"));
    let (_, listed) = ferret.call(5, "session/list", &json!({}));
    let listed = listed["result"]["sessions"].as_array().unwrap();
    assert!(listed.iter().any(|row| row["sessionId"] == session), "{listed:?}");
    let (_, mode) = ferret.call(6, "session/setMode", &json!({ "sessionId": session, "mode": "plan" }));
    assert!(mode["result"]["mode"].is_string(), "{mode}");
    let model = json!({ "sessionId": session, "model": "offline:terse" });
    let (_, model) = ferret.call(7, "session/setModel", &model);
    assert_eq!(model["result"]["model"], "offline:terse");
    let (_, sandbox) = ferret.call(8, "session/setSandbox", &json!({ "sessionId": session }));
    assert_eq!(sandbox["result"]["sandbox"], "workspace-write");
    let write = json!({ "sessionId": session, "sandbox": "read-only" });
    let (_, refused) = ferret.call(9, "session/setSandbox", &write);
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("restart required"), "{refused}");
    let approval = json!({ "sessionId": session, "approval": "read-only" });
    let (updates, approval) = ferret.call(10, "session/setApproval", &approval);
    assert_eq!(approval["result"]["approval"], "read-only");
    let changed =
        &updates.iter().find(|update| update["params"]["kind"] == "approval_changed").unwrap()["params"];
    assert_eq!((&changed["old"], &changed["new"]), (&json!("auto"), &json!("read-only")));
    let (_, bridge) = ferret.call(11, "session/bridgeStatus", &json!({ "sessionId": session }));
    assert_eq!(bridge["result"]["connected"], false);
    let (_, unknown) = ferret.call(12, "no/such/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

/// "session/cancel": the turn in flight ends, and the session takes the next message.
#[test]
fn a_turn_in_flight_is_cancelled() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    ferret.send(&json!({
        "jsonrpc": "2.0", "id": 3, "method": "session/message",
        "params": { "sessionId": session, "message": "hello\nsleep 60000" },
    }));
    until_kind(&mut ferret, "agent_message_chunk");
    ferret.send(
        &json!({ "jsonrpc": "2.0", "id": 4, "method": "session/cancel", "params": { "sessionId": session } }),
    );
    let (frames, said) = ferret.until_answer(&json!(3));
    assert!(frames.iter().any(|frame| frame["id"] == 4 && frame["result"].is_object()), "{frames:?}");
    let end = frames.iter().find(|frame| frame["params"]["kind"] == "turn_end").unwrap();
    assert_eq!(end["params"]["stop_reason"], "cancelled");
    assert_eq!(said["result"]["stopReason"], "cancelled");
    assert!(!said["result"]["output"].as_str().unwrap().is_empty(), "what was said before: {said}");
    let (_, next) = ferret.call(5, "session/message", &json!({ "sessionId": session, "message": "list" }));
    assert_eq!(next["result"]["stopReason"], "end_turn");
}

/// "Integration recipe: Zed": the command of the recipe, and the words that Zed says to it.
#[test]
fn zeds_recipe_gets_the_official_protocol() {
    let arguments = ["ferret", "serve", "--sandbox", "workspace-write", "--approval", "auto"];
    let mut agent = Program::named(&home(), "chimera", &arguments);
    let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    let (_, hello) = agent.call(0, "initialize", &hello);
    assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    assert!(hello["result"]["agentCapabilities"].is_object());
    let cwd = agent.home.path().join("work");
    let (_, new) = agent.call(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let prompt = json!([{ "type": "text", "text": "hello" }]);
    let prompt = json!({ "sessionId": new["result"]["sessionId"], "prompt": prompt });
    let (updates, ended) = agent.call(2, "session/prompt", &prompt);
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    assert!(
        updates.iter().any(|update| update["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
    );
}

/// The entry of `~/.config/zed/settings.json`, as it is written there.
const ZED: &str = r#"{"agent_servers": {"ferret": {"command": "chimera",
    "args": ["ferret", "serve", "--sandbox", "workspace-write", "--approval", "auto"]}}}"#;
/// The settings of the extension for VS Code.
const VS_CODE: &str = r#"{"chimera.command": "chimera",
    "chimera.args": ["ferret", "serve", "--sandbox", "workspace-write", "--approval", "auto"]}"#;

/// "Integration recipe": what both editors start by their settings, and the updates that they are said to show.
#[test]
fn both_recipes_start_a_ferret_with_the_guards_that_they_name() {
    let zed: Value = serde_json::from_str(ZED).unwrap();
    let zed = &zed["agent_servers"]["ferret"];
    let code: Value = serde_json::from_str(VS_CODE).unwrap();
    for (command, arguments) in
        [(&zed["command"], &zed["args"]), (&code["chimera.command"], &code["chimera.args"])]
    {
        let arguments: Vec<_> =
            arguments.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let mut ferret = Program::named(&home(), command.as_str().unwrap(), &arguments);
        ferret.call(1, "initialize", &json!({}));
        let (_, new) = ferret.call(2, "session/new", &json!({}));
        assert_eq!(new["result"]["approval"], "auto", "{new}");
        let session = &new["result"]["sessionId"];
        let (_, sandbox) = ferret.call(3, "session/setSandbox", &json!({ "sessionId": session }));
        assert_eq!(sandbox["result"]["sandbox"], "workspace-write", "{sandbox}");
        let message = json!({ "sessionId": session, "message": "write a.txt: one" });
        let (updates, _) = ferret.call(4, "session/message", &message);
        let shown = ["tool_call_start", "file_edit", "file_open", "tool_call_end", "agent_message_chunk"];
        assert!(shown.iter().all(|kind| kinds_of(&updates).contains(kind)), "{updates:?}");
        ferret.send(&json!({
            "jsonrpc": "2.0", "id": 5, "method": "session/message",
            "params": { "sessionId": session, "message": "run git push origin main" },
        }));
        until_kind(&mut ferret, "permission_request");
    }
}

fn served(home: &Arc<tempfile::TempDir>, more: &[&str]) -> Server {
    let arguments = [&["ferret", "serve", "--http", "--port", "0"], more].concat();
    http_server(home, "chimera", &arguments, "FERRET_SERVER_TOKEN")
}

/// "`FERRET_SERVER_TOKEN` Bearer auth".
#[test]
fn the_token_of_the_variable_is_a_bearer() {
    let server = served(&home(), &[]);
    let status = |ask: Ask| ask.send(&server).status;
    assert_eq!(status(Ask::get("/session").bare().header("authorization", &format!("Bearer {TOKEN}"))), 200);
    assert_eq!(status(Ask::get("/session").token("another-token-0123456789")), 401);
    assert_eq!(status(Ask::get("/session").bare().header("authorization", &format!("Basic {TOKEN}"))), 401);
    let refused = Ask::get("/session").bare().send(&server);
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some_and(|way| way.starts_with("Bearer")), "{refused:?}");
}

/// "HTTP server (opt-in)": the same session is reachable from both transports at the same time.
#[test]
fn one_session_is_driven_over_stdio_and_http_at_once() {
    let home = home();
    let mut server = served(&home, &["--stdio"]);
    let mut input = server.input.take().unwrap();
    let mut send =
        |frame: Value| std::io::Write::write_all(&mut input, format!("{frame}\n").as_bytes()).unwrap();
    let answer = |server: &Server, id: u64| loop {
        let line = server.lines.recv_timeout(DEADLINE).unwrap();
        let frame: Value = serde_json::from_str(&line).unwrap();
        if frame["id"] == id {
            return frame["result"].clone();
        }
    };
    send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} }));
    assert_eq!(answer(&server, 1)["protocolVersion"], "0.2");
    send(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {} }));
    let session = answer(&server, 2)["sessionId"].as_str().unwrap().to_owned();
    let (events, heard) = sync_channel(1 << 10);
    let ask = Ask::get(&format!("/session/{session}/events")).token(TOKEN);
    let (status, _) = follow(server.address(), &ask, move |event| drop(events.send(event)));
    assert_eq!(status, 200);
    let message = Ask::post(&format!("/session/{session}/message"), r#"{"text":"run git push origin main"}"#);
    assert_eq!(message.token(TOKEN).send(&server).status, 202);
    // The bot on HTTP sees the tool and the question, the plugin on standard input answers it.
    let mut seen = Vec::new();
    loop {
        let event = heard.recv_timeout(DEADLINE).unwrap();
        let name = event.name.clone().unwrap();
        if name == "loop_event" && event.data["type"] == "tool_use" {
            assert_eq!(event.data["data"]["name"], "bash", "{}", event.data);
            assert_eq!(event.data["data"]["input"], json!({ "command": "git push origin main" }));
        }
        if name == "permission_request" {
            assert_eq!(event.data["tool"], "bash", "{}", event.data);
            assert_eq!(event.data["input"], json!({ "command": "git push origin main" }));
            send(json!({
                "jsonrpc": "2.0", "id": 3, "method": "permission/respond",
                "params": { "sessionId": session, "id": "perm-1", "decision": "deny" },
            }));
            assert_eq!(answer(&server, 3), json!({ "ok": true }));
        }
        seen.push(name.clone());
        if name == "result" {
            break;
        }
    }
    assert!(seen.iter().any(|name| name == "permission_request"), "{seen:?}");
    let tools = Ask::get("/tools").token(TOKEN).send(&server).json();
    let names: Vec<_> = tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert!(names.contains(&json!("bash")) && names.contains(&json!("read_file")), "{names:?}");
}

/// "Cloud bridge": the command reaches the bridge; what it does there is another document's.
#[test]
fn the_bridge_is_reached_by_its_old_name() {
    let home = home();
    let more = ["bridge", "--remote-url", "http://127.0.0.1:1", "--auth-token", TOKEN];
    let ours = ended(&home, "ropewalk", &more);
    let theirs = ended(&home, "chimera", &[&["ferret"], &more[..]].concat());
    assert_ne!(theirs.code, 0);
    assert_eq!((theirs.code, theirs.err), (ours.code, ours.err));
}

/// Every request needs the token, also from this machine: any page in a browser and any program can connect to loopback,
/// and whoever drives the agent runs commands.
#[test]
fn differs_loopback_is_no_authentication() {
    let server = served(&home(), &[]);
    assert_eq!(
        Ask::post("/session", "{}").bare().header("content-type", "application/json").send(&server).status,
        401
    );
    assert_eq!(Ask::get("/session").token(TOKEN).send(&server).status, 200);
}

/// `session/message` "replies with the final assistant message"; here also with what was said before the last call of a tool.
#[test]
fn differs_a_message_is_answered_with_everything_that_was_said() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve", "--approval", "full"]);
    ferret.call(1, "initialize", &json!({}));
    let (_, new) = ferret.call(2, "session/new", &json!({}));
    let params = json!({ "sessionId": new["result"]["sessionId"], "message": "write a.txt: one" });
    let (updates, answer) = ferret.call(3, "session/message", &params);
    let said = updates.iter().filter(|update| update["params"]["kind"] == "agent_message_chunk");
    let said: String = said.map(|update| update["params"]["text"].as_str().unwrap()).collect();
    let calls = updates.iter().filter(|update| update["params"]["kind"] == "tool_call_end").count();
    assert_eq!((answer["result"]["output"].as_str(), calls), (Some(said.as_str()), 1), "{answer}");
    ferret.close();
}

/// A short token can be guessed by trying; the document's has any length.
#[test]
fn differs_a_token_has_at_least_16_characters() {
    let home = home();
    let mut command = crate::program::command(
        &crate::program::link(&home, "chimera"),
        &home,
        &["ferret", "serve", "--http", "--port", "0"],
    );
    command.env("FERRET_SERVER_TOKEN", "short").stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("16"), "{output:?}");
}
