//! What happens in a turn: links, stop reasons, tool calls, content, usage, plans, commands.

use std::fs;

use serde_json::{Value, json};

use super::{Client, Transport, everywhere, of_kind, said, uuid_shape};
use crate::seeds::program;

/// The README's two schemes and its limits; what is left out is said, and the turn goes on. Redirects, time-outs, the size of
/// a page and addresses that are found only when a name is resolved are proven by `crates/server/tests/it/prompts.rs`, and by
/// `reach.rs` and `web.rs` in `crates/agent/tests/it`.
#[test]
fn links_are_resolved_inside_the_folder_and_the_rest_is_left_out_with_a_warning() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let work = client.work();
        fs::write(work.join("notes.txt"), "a note").unwrap();
        fs::write(work.join("large.txt"), "x".repeat((1 << 20) + 1)).unwrap();
        fs::write(work.join("binary"), b"\0\x01\xff\0").unwrap();
        for folder in [".ssh", ".gnupg"] {
            fs::create_dir(work.join(folder)).unwrap();
            fs::write(work.join(folder).join("key"), "a key").unwrap();
        }
        let inside = |name: &str| format!("file://{}/{name}", work.display());
        let left_out = [
            (inside("large.txt"), "larger than 1 MiB"),
            (inside("binary"), "not text"),
            (inside(".ssh/key"), "never given to a model"),
            (inside(".gnupg/key"), "never given to a model"),
            ("file:///etc/passwd".into(), "outside the workspace"),
            ("file:///proc/self/environ".into(), "outside the workspace"),
            ("ftp://example.org/x".into(), "only file://, http:// and https:// links are read"),
            ("http://127.0.0.1:1/x".into(), "not a public address"),
            ("http://10.0.0.1/x".into(), "not a public address"),
            ("https://100.64.0.1/x".into(), "not a public address"),
        ];
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "it" });
        let mut blocks = vec![json!({ "type": "text", "text": "hello" }), link(&inside("notes.txt"))];
        blocks.extend(left_out.iter().map(|(uri, _)| link(uri)));
        let (updates, stop) = client.send(&session, &Value::from(blocks));
        assert_eq!(stop, "end_turn");
        let warned = of_kind(&updates, "agent_thought_chunk");
        for (uri, why) in &left_out {
            let said = |update: &&Value| {
                let text = update["content"]["text"].as_str().unwrap();
                text.contains(&format!("{uri} was left out")) && text.contains(why)
            };
            assert!(warned.iter().any(said), "{uri}: {warned:?}");
        }
        let given = said(&client.prompt(&session, "what did I say?").0);
        assert!(given.contains(">a note</resource>"), "{given}");
        assert!(!given.contains("root:") && !given.contains("a key"), "{given}");
    });
}

/// The README's table: normal completion, `max_turns`, cancel. `MaxTokens` needs a model that is cut off:
/// `every_way_to_stop_has_its_reason` in `crates/server/tests/it/cancel.rs`.
#[test]
fn stop_reasons_are_mapped() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        assert_eq!(client.prompt(&session, "hello").1, "end_turn");
    });
    for open in [Client::stdio, Client::http, Client::socket] {
        let mut client = open(&program::home(), &["--max-turns", "1"]);
        client.hello();
        let session = client.new_session();
        assert_eq!(client.prompt(&session, "list").1, "max_turn_requests");
    }
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    let prompt = json!([{ "type": "text", "text": "sleep 600000" }]);
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
    program
        .send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(program.until_answer(&json!(90)).1["result"]["stopReason"], "cancelled");
}

/// Two steps for every tool call, under one UUID, with the file it is about; failures say so.
#[test]
fn a_tool_call_is_announced_and_then_completed_or_failed() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        fs::write(client.work().join("notes.txt"), "a note").unwrap();
        for (text, ended) in [("read notes.txt", "completed"), ("read missing.txt", "failed")] {
            let (updates, stop) = client.prompt(&session, text);
            assert_eq!(stop, "end_turn");
            let (calls, results) = (of_kind(&updates, "tool_call"), of_kind(&updates, "tool_call_update"));
            assert_eq!((calls.len(), calls[0]["status"].as_str()), (1, Some("in_progress")), "{updates:?}");
            let id = calls[0]["toolCallId"].as_str().unwrap();
            assert!(id.parse::<uuid_shape::Uuid>().is_ok(), "{id}");
            let last = results.last().unwrap();
            assert_eq!((last["toolCallId"].as_str(), last["status"].as_str()), (Some(id), Some(ended)));
            let output = last["content"][0].to_string();
            assert!(output.contains(if ended == "completed" { "a note" } else { "No such file" }), "{last}");
            let place = calls[0]["locations"][0]["path"].as_str().unwrap();
            assert!(place.starts_with(client.work().to_str().unwrap()), "{place}");
        }
    });
}

/// Output comes while the command runs, the exit code at its end. That an editor's terminal is released after the update
/// that shows it, and killed when its time is over, is in `crates/server/tests/it/host.rs`
/// (`a_command_runs_in_the_editors_terminal_which_is_given_back_last`,
/// `a_command_that_takes_too_long_is_killed_and_what_it_wrote_is_told`); that a sub-agent's updates name their parent is in
/// `crates/wire/tests/it/sub_agents.rs`.
#[test]
fn a_commands_output_is_streamed_and_its_exit_code_told() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "run cat missing");
        let exit = &of_kind(&updates, "tool_call_update").last().unwrap()["_meta"]["terminal_exit"];
        assert_eq!(exit["exit_code"], 1, "{updates:?}");
        let (updates, _) = client.prompt(&session, "run echo hi");
        let results = of_kind(&updates, "tool_call_update");
        let output: String =
            results.iter().filter_map(|update| update["_meta"]["terminal_output"]["data"].as_str()).collect();
        assert_eq!(output, "hi\n", "{updates:?}");
        assert_eq!(results.last().unwrap()["_meta"]["terminal_exit"]["exit_code"], 0, "{updates:?}");
    });
}

/// Some clients drop a whole update that embeds a terminal they do not know, so a command is shown in one only to a client
/// that says it can (`_meta.terminal_output` in its capabilities); others are shown the output as text, while it runs.
#[test]
fn differs_terminal_output_needs_the_clients_capability() {
    everywhere(|mut client| {
        client.result("initialize", &json!({ "protocolVersion": 1 }));
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "run echo hi");
        let results = of_kind(&updates, "tool_call_update");
        assert!(results.iter().all(|update| update["_meta"].get("terminal_output").is_none()), "{updates:?}");
        assert!(results.last().unwrap()["content"].to_string().contains("hi"), "{updates:?}");
    });
}

/// The official protocol calls `ToolCall.location` and its `filePath` `locations` and `path`, for a call may be about several
/// files.
#[test]
fn differs_the_place_of_a_tool_call_has_its_official_name() {
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let (updates, _) = client.prompt(&session, "write notes.txt: a note");
    let call = of_kind(&updates, "tool_call")[0];
    assert_eq!(call["locations"][0]["path"], client.work().join("notes.txt").to_str().unwrap());
    assert!(call.get("location").is_none(), "{call}");
}

/// Images of the four kinds, embedded resources between `<resource>` markers, and thoughts; what cannot be shown is skipped
/// with a warning. The offline model cannot look at images and names those that reached it; that others are given them, and
/// that one of more than 20 MiB is left out, is in `crates/agent/tests/it` and in `crates/agent/src/user_prompt.rs`.
#[test]
fn rich_content_is_taken_and_thoughts_are_streamed() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let image = |kind: &str| json!({ "type": "image", "mimeType": kind, "data": "iVBORw0KGgo=" });
        let taken = ["image/jpeg", "image/png", "image/gif", "image/webp"];
        let mut blocks = vec![json!({ "type": "text", "text": "hello" }), image("image/tiff")];
        blocks.extend(taken.map(image));
        blocks.push(json!({ "type": "resource", "resource": { "uri": "file:///x.txt", "text": "inside" } }));
        let (updates, stop) = client.send(&session, &Value::from(blocks));
        assert_eq!(stop, "end_turn");
        let warned = Value::from(updates).to_string();
        assert!(warned.contains("an image was left out: image/tiff is not one of"), "{warned}");
        let given = said(&client.prompt(&session, "what did I say?").0);
        assert!(given.contains("<resource name=\"file:///x.txt\">inside</resource>"), "{given}");
        assert!(taken.iter().all(|kind| given.contains(&format!("an image ({kind})"))), "{given}");
        let (updates, _) = client.prompt(&session, "think");
        assert!(!of_kind(&updates, "agent_thought_chunk").is_empty(), "{updates:?}");
    });
}

/// `session/list` with and without a folder; usage and a title after the first turn.
#[test]
fn sessions_are_listed_by_folder_and_a_turn_tells_usage_and_a_title() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (frames, answer) = client.call(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "hello walrus" }] }),
        );
        let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
        assert!(!of_kind(&updates, "usage_update").is_empty());
        assert_eq!(of_kind(&updates, "session_info_update")[0]["title"], "hello walrus");
        let usage = &answer["result"]["usage"];
        assert!(
            usage["inputTokens"].as_u64() > Some(0) && usage["outputTokens"].as_u64() > Some(0),
            "{usage}"
        );
        let ids = |list: &Value| -> Vec<String> {
            let sessions = list["sessions"].as_array().unwrap().iter();
            sessions.map(|session| session["sessionId"].as_str().unwrap().to_owned()).collect()
        };
        let here = client.result("session/list", &json!({ "cwd": client.work() }));
        assert_eq!(ids(&here), [session.as_str()]);
        assert!(here["sessions"][0]["cwd"].is_string() && here["sessions"][0]["updatedAt"].is_string());
        assert_eq!(ids(&client.result("session/list", &json!({}))), [session.as_str()]);
        assert!(ids(&client.result("session/list", &json!({ "cwd": "/" }))).is_empty());
    });
}

/// After a turn: `input_tokens` and `output_tokens`, and what a provider's cache did where it has one
/// (`usage_tells_the_turns_tokens_in_zephs_names` in `crates/wire/tests/it/acp_updates.rs`).
#[test]
fn a_turn_tells_its_tokens() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        for text in ["hello", "what did I say?"] {
            let prompt = json!([{ "type": "text", "text": text }]);
            let (frames, answer) =
                client.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
            let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
            let update = *of_kind(&updates, "usage_update").last().unwrap();
            let tokens = if let Transport::Stdio(_) = client.transport { &update["_meta"] } else { update };
            let usage = &answer["result"]["usage"];
            assert_eq!(tokens["input_tokens"], usage["inputTokens"], "of the turn: {update} {usage}");
            assert_eq!(tokens["output_tokens"], usage["outputTokens"], "{update}");
        }
    });
}

/// The official protocol keeps the names beside its own for itself, so on standard input and output the tokens are in `_meta`.
/// Everywhere its own names are there too: the update says how full the context is, and the answer what the turn took.
#[test]
fn differs_usage_has_the_official_names_too() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "hello");
        let usage = of_kind(&updates, "usage_update")[0];
        assert!(usage["used"].is_u64() && usage["size"].is_u64(), "{usage}");
        let official = matches!(client.transport, Transport::Stdio(_));
        assert_eq!(usage.get("input_tokens").is_none(), official, "{usage}");
    });
}

/// A plan is told as it is made.
#[test]
fn a_plan_is_told() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "plan");
        assert!(
            of_kind(&updates, "plan")[0]["entries"].as_array().is_some_and(|entries| !entries.is_empty())
        );
    });
}

/// The five commands of the README are offered when a session begins, and answered without the model.
#[test]
fn slash_commands_are_offered_and_dispatched() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let (updates, _) = client.prompt(&session, "/help");
        let told = said(&updates);
        for command in ["/help", "/model", "/mode", "/clear", "/compact"] {
            assert!(told.contains(command), "{told}");
        }
        let offered = |updates: &[Value]| -> Vec<String> {
            let commands = of_kind(updates, "available_commands_update");
            let names = commands.iter().flat_map(|update| update["availableCommands"].as_array().unwrap());
            names.map(|command| command["name"].as_str().unwrap().to_owned()).collect()
        };
        // Over HTTP the offer comes after the answer that ends the stream of `session/new`: `GET /acp` has it, as in
        // `the_http_endpoints_are_the_three_of_the_readme`.
        if matches!(client.transport, Transport::Stdio(_) | Transport::Socket { .. }) {
            let names = offered(&updates);
            for command in ["help", "model", "mode", "clear", "compact"] {
                assert!(names.iter().any(|name| name == command), "{names:?}");
            }
        }
        assert!(said(&client.prompt(&session, "/mode ask").0).contains("ask"));
        assert!(said(&client.prompt(&session, "/model offline:terse").0).contains("offline:terse"));
        assert_eq!(client.prompt(&session, "/clear").1, "end_turn");
        assert_eq!(client.prompt(&session, "/compact").1, "end_turn");
    });
}

/// `AcpShellExecutor` runs every command in the editor's terminal. No sandbox holds that, so commands run in a terminal of our
/// own behind the fence, and in the editor's where there is none (`--sandbox off`, or `terminal = "editor"` in the settings).
#[test]
fn differs_commands_run_in_a_terminal_of_our_own_behind_the_fence() {
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": { "terminal": true } });
    everywhere(|mut client| {
        client.result("initialize", &hello);
        let session = client.new_session();
        let prompt = json!([{ "type": "text", "text": "run echo hi" }]);
        let (frames, _) = client.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
        assert!(frames.iter().all(|frame| frame["method"] == "session/update"), "{frames:?}");
        assert!(frames.iter().any(|frame| frame["params"]["update"]["content"].to_string().contains("hi")));
    });
    let mut client = Client::stdio(&program::home(), &["--sandbox", "off"]);
    client.result("initialize", &hello);
    let session = client.new_session();
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    let prompt = json!([{ "type": "text", "text": "run echo hi" }]);
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
    while program.next()["method"] != "terminal/create" {}
}

/// "Each chunk is emitted with `_meta.terminal_output`, the exit with `_meta.terminal_exit`": that is how a command of ours is
/// shown. One that runs in the editor's own terminal, the editor shows itself; its terminal is embedded, and no other one is
/// announced, because nothing would ever be written to it.
#[test]
fn differs_an_editors_own_terminal_shows_its_own_output() {
    let able = json!({ "terminal": true, "_meta": { "terminal_output": true } });
    let mut client = Client::stdio(&program::home(), &["--sandbox", "off"]);
    client.result("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": able }));
    let session = client.new_session();
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    let prompt = json!([{ "type": "text", "text": "run echo hi" }]);
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
    let mut updates = Vec::new();
    let stopped = loop {
        let frame = program.next();
        let exit = json!({ "exitCode": 0, "signal": null });
        let result = match frame["method"].as_str() {
            Some("terminal/create") => json!({ "terminalId": "T1" }),
            Some("terminal/output") => json!({ "output": "hi\n", "truncated": false, "exitStatus": exit }),
            Some("terminal/wait_for_exit") => exit,
            Some("session/update") => {
                updates.push(frame["params"]["update"].clone());
                continue;
            }
            Some(_) => json!({}),
            None if frame["id"] == 90 => break frame["result"]["stopReason"].clone(),
            None => continue,
        };
        program.send(&json!({ "jsonrpc": "2.0", "id": frame["id"], "result": result }));
    };
    assert_eq!(stopped, "end_turn");
    let mut embedded = Vec::new();
    for update in &updates {
        for word in ["terminal_info", "terminal_output", "terminal_exit"] {
            assert!(update["_meta"].get(word).is_none(), "{word}: {update}");
        }
        let content = update["content"].as_array().into_iter().flatten();
        embedded.extend(content.filter_map(|piece| piece["terminalId"].as_str().map(str::to_owned)));
    }
    assert!(!embedded.is_empty() && embedded.iter().all(|terminal| terminal == "T1"), "{updates:?}");
    let calls = of_kind(&updates, "tool_call_update");
    assert_eq!(calls.last().unwrap()["status"], "completed", "{updates:?}");
}
