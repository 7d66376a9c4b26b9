//! Ferret's IDE bridge. What stays different on purpose:
//!
//! - `differs_loopback_is_no_authentication`: every page and program of the machine can connect to loopback.
//! - `differs_a_token_has_at_least_16_characters`: a short one is found by trying.
//! - `differs_the_mode_of_a_violation_is_the_one_that_refused`: where the approval or the agent's mode refused, a banner that
//!   named the sandbox would send people to the wrong switch.
//! - `differs_a_cancel_also_ends_what_its_sender_queued`: who stops the agent does not want it to begin with the next message.
//! - `differs_blanks_count_in_a_command_of_several_parts`: what a blank means there depends on everything before it.
//! - `differs_an_answer_for_good_holds_in_the_folder_or_in_the_session`: what is right in one project need not be in another, and
//!   who makes no rules of this machine is asked again elsewhere.
//! - `differs_the_first_request_is_initialize`: before it, it is not known in which dialect to answer; the code is -32002.
//! - `differs_the_handshake_and_the_updates_are_ferrets_alone`: the document fixes their bytes; otter's members are for otter's
//!   clients, and so are numbers of updates. `serverInfo` says with whom one speaks.
//! - `differs_a_client_of_the_official_protocol_gets_that`: Zed and others speak it to whatever they start.
//! - `differs_with_http_the_end_of_the_input_ends_nothing`: others may use the server over HTTP.
//! - `differs_the_list_has_sessions_of_every_dialect`: a session has one home, and any client of its owner goes on with it.
//! - `differs_a_session_without_a_message_is_not_listed`: editors make one with every window.
//! - `differs_more_kinds_are_told`: twelve kinds cannot show a thought, a plan or how a question was settled.
//! - `differs_no_event_log_is_written_unless_somebody_names_a_folder` (`eventlog.rs`): sessions are kept in one place, and chimera's
//!   folder is chimera's own.

mod answers;
mod edits;
mod kinds;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::doors::clients::events::follow;
use crate::doors::web::{Ask, Server};
use crate::seeds::eventlog::{FERRET, chimeras, is_id};
use crate::seeds::program::{DEADLINE, Program, TOKEN, ended, home, http_server};

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

/// "HTTP is opt-in via `--http`": without it nothing listens.
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
    let _held = crate::seeds::program::hold_port(5173);
    let refused = ended(&home(), "chimera", &["ferret", "serve", "--http", "--port", "5173"]).with(1);
    assert!(refused.err.contains("could not listen on 127.0.0.1:5173"), "{}", refused.err);
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
    assert_eq!(mode["result"]["mode"], "plan", "{mode}");
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

/// "Cancel an in-flight turn": here also what the same client has waiting behind it.
#[test]
fn differs_a_cancel_also_ends_what_its_sender_queued() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let message = |id: u64, text: &str| {
        let params = json!({ "sessionId": session, "message": text });
        json!({ "jsonrpc": "2.0", "id": id, "method": "session/message", "params": params })
    };
    ferret.send(&message(3, "hello\nsleep 60000"));
    until_kind(&mut ferret, "agent_message_chunk");
    ferret.send(&message(4, "list"));
    ferret.send(
        &json!({ "jsonrpc": "2.0", "id": 5, "method": "session/cancel", "params": { "sessionId": session } }),
    );
    let mut frames = Vec::new();
    while [3, 4, 5].iter().any(|id| !frames.iter().any(|frame: &Value| frame["id"] == *id)) {
        frames.push(ferret.next());
    }
    for id in [3, 4] {
        let said = frames.iter().find(|frame| frame["id"] == id).unwrap();
        assert_eq!(said["result"]["stopReason"], "cancelled", "{said}");
    }
    assert!(!frames.iter().any(|frame| frame["params"]["kind"] == "tool_call_start"), "{frames:?}");
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

/// Started by hand, it shows recipes; each starts what was started.
#[test]
fn the_recipes_on_a_terminal_are_for_what_was_started() {
    let home = home();
    let (mut typed, screen) = crate::seeds::bridge_process::terminal();
    let arguments = ["ferret", "serve", "--approval", "auto"];
    let mut command =
        crate::seeds::program::command(&crate::seeds::program::link(&home, "chimera"), &home, &arguments);
    let mut child = command.stdin(screen).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Its own end of the terminal is in the command.
    drop(command);
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<_> = lines.take_while(|line| line != "Press Ctrl-D to stop.").collect();
    std::io::Write::write_all(&mut typed, b"\x04").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let said = said.join("\n");
    assert!(said.contains(r#""args": ["ferret", "serve", "--approval", "auto"]"#), "{said}");
    assert!(!said.contains(r#"["serve"]"#), "{said}");
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

/// "The same session is reachable from both transports simultaneously": by the document's own command, and with `--stdio`. The
/// server outlives its input, because others may use it over HTTP.
#[test]
fn one_session_is_driven_over_stdio_and_http_at_once() {
    for more in [&["-v"][..], &["-v", "--stdio"]] {
        let server = driven_over_both(served(&home(), more));
        assert_eq!(Ask::get("/session").token(TOKEN).send(&server).status, 200, "{more:?}");
        server.until_log("the editor closed the connection; HTTP continues");
        assert_eq!(Ask::get("/session").token(TOKEN).send(&server).status, 200, "{more:?}");
        assert_eq!(server.stop().0, Some(0));
    }
}

/// What is no pipe is not read: services have /dev/null, and nobody means a file.
#[test]
fn without_a_pipe_http_is_served_alone() {
    let home = home();
    let frames = home.path().join("frames");
    std::fs::write(&frames, "{not json\n").unwrap();
    for input in ["/dev/null", frames.to_str().unwrap()] {
        let arguments = ["ferret", "serve", "--http", "--port", "0"];
        let mut command =
            crate::seeds::program::command(&crate::seeds::program::link(&home, "chimera"), &home, &arguments);
        command.env("FERRET_SERVER_TOKEN", TOKEN).stdin(File::open(input).unwrap());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(log.any(|line| line.starts_with("listening on ")), "{input}");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{input}: {output:?}");
    }
}

fn driven_over_both(mut server: Server) -> Server {
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
    server
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

/// `session/message` "replies with the final assistant message": what was said after the last call of a tool.
#[test]
fn a_message_is_answered_with_the_final_assistant_message() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve", "--approval", "full"]);
    ferret.call(1, "initialize", &json!({}));
    let (_, new) = ferret.call(2, "session/new", &json!({}));
    let params = json!({ "sessionId": new["result"]["sessionId"], "message": "write a.txt: one" });
    let (updates, answer) = ferret.call(3, "session/message", &params);
    let text = |updates: &[Value]| -> String {
        let said = updates.iter().filter(|update| update["params"]["kind"] == "agent_message_chunk");
        said.map(|update| update["params"]["text"].as_str().unwrap()).collect()
    };
    let call = updates.iter().position(|update| update["params"]["kind"] == "tool_call_end").unwrap();
    let (before, last) = updates.split_at(call);
    assert!(!text(before).is_empty() && !text(last).is_empty(), "{updates:?}");
    assert_eq!(answer["result"]["output"], text(last), "{answer}");
    ferret.close();
}

/// "A strict superset of otter's ACP server": otter's requests are taken, too. A resume counts as otter does, which tells each
/// event by itself.
#[test]
fn otters_requests_are_taken_too() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let tokens = |updates: &[Value]| {
        let cost = updates.iter().rfind(|update| update["params"]["kind"] == "cost_update");
        cost.map(|update| update["params"]["input"].as_u64().unwrap())
    };
    ferret.call(3, "session/message", &json!({ "sessionId": session, "message": "echo one" }));
    let (all, answer) = ferret.call(4, "session/resume", &json!({ "sessionId": session, "sinceEventId": 0 }));
    let last = answer["result"]["lastEventId"].as_u64().unwrap();
    let expected = json!({ "sessionId": session, "replayed": last, "lastEventId": last, "truncated": false });
    assert_eq!(answer["result"], expected);
    assert_eq!(kinds_of(&all)[0], "user_message");
    assert!(kinds_of(&all).contains(&"turn_end"));
    let (second, _) =
        ferret.call(5, "session/message", &json!({ "sessionId": session, "message": "echo two" }));
    let (rest, answer) =
        ferret.call(6, "session/resume", &json!({ "sessionId": session, "sinceEventId": last }));
    let users: Vec<_> = rest.iter().filter_map(|update| update["params"]["text"].as_str()).collect();
    assert!(users.contains(&"echo two") && !users.contains(&"echo one"), "{rest:?}");
    let now = answer["result"]["lastEventId"].as_u64().unwrap();
    assert_eq!(answer["result"]["replayed"], now - last);
    // The sums go on where the session is, not where the resume began.
    let (third, _) =
        ferret.call(7, "session/message", &json!({ "sessionId": session, "message": "echo three" }));
    assert!(tokens(&third) > tokens(&second), "{third:?}");
    // The answer to a question in otter's words, without a session.
    ferret.send(&json!({
        "jsonrpc": "2.0", "id": 8, "method": "session/message",
        "params": { "sessionId": session, "message": "run touch made; true" },
    }));
    let (_, asked) = until_kind(&mut ferret, "permission_request");
    let reply = json!({ "requestId": asked["id"], "reply": "allow" });
    ferret.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "permission/respond", "params": reply }));
    assert_eq!(ferret.until_answer(&json!(9)).1["result"], json!({ "ok": true }));
    ferret.until_answer(&json!(8));
    assert!(ferret.home.path().join("work/made").exists());
}

/// "`session/setSandbox`: Reads the active sandbox mode", "`session/bridgeStatus`: Returns cloud-bridge state if attached":
/// both are about the process, so they need no session.
#[test]
fn the_sandbox_and_the_bridge_are_told_without_a_session() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve"]);
    ferret.call(1, "initialize", &json!({}));
    for (id, sessions) in [(10, 0), (20, 1), (30, 2)] {
        let (_, sandbox) = ferret.call(id, "session/setSandbox", &json!({}));
        assert_eq!(sandbox["result"]["sandbox"], "workspace-write", "{sessions}: {sandbox}");
        let (_, bridge) = ferret.call(id + 1, "session/bridgeStatus", &json!({}));
        assert_eq!(bridge["result"]["connected"], false, "{sessions}: {bridge}");
        ferret.call(id + 2, "session/new", &json!({}));
    }
    let (_, refused) = ferret.call(40, "session/setSandbox", &json!({ "sandbox": "off" }));
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("restart required"), "{refused}");
    // With several sessions open, a question's number does not say whose it is.
    let (_, unclear) = ferret.call(41, "permission/respond", &json!({ "id": "perm-1", "decision": "allow" }));
    assert_eq!(unclear["error"]["code"], -32602, "{unclear}");
}

/// Before it, it is not known in which dialect to answer, also for methods that no dialect has.
#[test]
fn differs_the_first_request_is_initialize() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve"]);
    for (id, method) in (1..).zip(["session/new", "session/list", "no/such/method"]) {
        let (_, early) = ferret.call(id, method, &json!({}));
        assert_eq!(early["error"]["code"], -32002, "{method}: {early}");
        assert!(early["error"]["message"].as_str().unwrap().contains("initialize"), "{early}");
    }
    assert_eq!(ferret.call(9, "initialize", &json!({})).1["result"]["protocolVersion"], "0.2");
    assert_eq!(ferret.call(10, "no/such/method", &json!({})).1["error"]["code"], -32601);
}

/// The handshake has one member more than the document, and none of otter's; updates have no numbers.
#[test]
fn differs_the_handshake_and_the_updates_are_ferrets_alone() {
    let mut ferret = Program::named(&home(), "chimera", &["ferret", "serve"]);
    let (_, hello) = ferret.call(1, "initialize", &json!({}));
    let mut members: Vec<_> = hello["result"].as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["capabilities", "protocolVersion", "serverInfo"]);
    assert_eq!(
        hello["result"]["serverInfo"],
        json!({ "name": "ropewalk", "version": env!("CARGO_PKG_VERSION") })
    );
    let (_, new) = ferret.call(2, "session/new", &json!({}));
    let message = json!({ "sessionId": new["result"]["sessionId"], "message": "list" });
    let (updates, _) = ferret.call(3, "session/message", &message);
    assert!(updates.iter().all(|update| update["params"].get("eventId").is_none()), "{updates:?}");
}

/// A client that says the number of the official protocol gets it; Zed's recipe depends on that. Ferret's ids are for ferret's
/// clients.
#[test]
fn differs_a_client_of_the_official_protocol_gets_that() {
    let mut agent = Program::named(&home(), "chimera", &["ferret", "serve"]);
    let (_, hello) = agent.call(0, "initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    let cwd = agent.home.path().join("work");
    let (_, new) = agent.call(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = new["result"]["sessionId"].as_str().unwrap();
    assert!(!session.starts_with("ferret-"), "{new}");
}

/// "Runs until the input stream closes": with `--http` there may be other clients, so it runs until it is ended.
#[test]
fn differs_with_http_the_end_of_the_input_ends_nothing() {
    let mut server = served(&home(), &["-v"]);
    drop(server.input.take().unwrap());
    server.until_log("the editor closed the connection; HTTP continues");
    assert_eq!(Ask::get("/session").token(TOKEN).send(&server).status, 200);
    assert_eq!(server.stop().0, Some(0));
}

/// A session in which nothing was ever said is forgotten with the process, and listed only while it is in memory.
#[test]
fn differs_a_session_without_a_message_is_not_listed() {
    let (mut ferret, session) = greeted(&["ferret", "serve"]);
    let listed = |ferret: &mut Program| {
        let (_, listed) = ferret.call(9, "session/list", &json!({}));
        let rows = listed["result"]["sessions"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["sessionId"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut ferret), std::slice::from_ref(&session));
    let (_, used) = ferret.call(3, "session/new", &json!({}));
    let used = used["result"]["sessionId"].clone();
    ferret.call(4, "session/message", &json!({ "sessionId": used, "message": "list" }));
    let home = Arc::clone(&ferret.home);
    ferret.close();
    let mut ferret = Program::named(&home, "chimera", &["ferret", "serve"]);
    ferret.call(1, "initialize", &json!({}));
    assert_eq!(listed(&mut ferret), [used]);
    // It is there all the same.
    let (_, loaded) = ferret.call(2, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session, "{loaded}");
}

/// A short token can be guessed by trying; the document's has any length.
#[test]
fn differs_a_token_has_at_least_16_characters() {
    let home = home();
    let mut command = crate::seeds::program::command(
        &crate::seeds::program::link(&home, "chimera"),
        &home,
        &["ferret", "serve", "--http", "--port", "0"],
    );
    command.env("FERRET_SERVER_TOKEN", "short").stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("16"), "{output:?}");
}

/// "session/list": "known sessions".
#[test]
fn differs_the_list_has_sessions_of_every_dialect() {
    let home = home();
    let mut otter = Program::named(&home, "chimera", &["otter", "serve", "--acp"]);
    otter.call(1, "initialize", &json!({}));
    let session = otter.call(2, "session/new", &json!({})).1["result"]["sessionId"].clone();
    otter.call(3, "session/message", &json!({ "sessionId": session, "message": "list" }));
    otter.close();
    let mut ferret = Program::named(&home, "chimera", &["ferret", "serve"]);
    ferret.call(1, "initialize", &json!({}));
    let (_, listed) = ferret.call(2, "session/list", &json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
}
