//! Methods and transports: capabilities, modes, options, tool servers, and the endpoints of HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Client, Transport, events, everywhere, of_kind, option, post, serve_http, uuid_shape};
use crate::doors::web::{self, Ask};
use crate::seeds::program::{self, DEADLINE};

/// `AgentCapabilities` and the auth hint, as the README lists them.
#[test]
fn initialize_advertises_what_the_readme_lists() {
    everywhere(|mut client| {
        let hello = client.hello();
        let can = &hello["agentCapabilities"];
        assert_eq!(can["loadSession"], true);
        assert_eq!(can["mcpCapabilities"], json!({ "http": true, "sse": true }));
        assert_eq!(can["_meta"], json!({ "config_options": true, "ext_methods": true }));
        for ability in ["list", "fork", "resume"] {
            assert!(can["sessionCapabilities"][ability].is_object(), "{ability}: {can}");
        }
        assert!(can["auth"]["logout"].is_object());
        assert_eq!(hello["_meta"]["auth_hint"], "authentication required");
        assert_eq!(client.result("logout", &json!({})), json!({}));
    });
}

/// `set_session_mode` of a session that there is; notifications that nobody knows are accepted in silence.
#[test]
fn a_mode_is_set_and_unknown_notifications_are_accepted() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        client.result("session/set_mode", &json!({ "sessionId": session, "modeId": "architect" }));
        for method in ["_zeph/editor_focused", "_lsp/didSave", "nobody/knows"] {
            client.notify(method, &json!({ "sessionId": session }));
        }
        assert_eq!(client.prompt(&session, "hello").1, "end_turn");
    });
}

/// "Logs the notification method name at debug level", "logs the `session_id` and `mode_id` at debug level": `-vv`. What a
/// client wrote stands in one line, and not much of it.
#[test]
fn notifications_and_modes_are_logged_at_debug_level() {
    let mut client = Client::stdio(&program::home(), &["-vv"]);
    client.hello();
    let session = client.new_session();
    client.result("session/set_mode", &json!({ "sessionId": session, "modeId": "architect" }));
    client.notify("_zeph/editor_focused", &json!({ "sessionId": session }));
    client.notify(&format!("forged\nWARN {}", "x".repeat(300)), &json!({}));
    let Transport::Stdio(program) = client.transport else { unreachable!() };
    let (code, log) = program.close();
    assert_eq!(code, Some(0), "{log}");
    let has = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(&["DEBUG", "a mode is chosen", &session, "architect"]), "{log}");
    assert!(has(&["DEBUG", "a notification came", "_zeph/editor_focused"]), "{log}");
    assert!(has(&["DEBUG", "a notification came", "forged\\n"]), "{log}");
    assert!(!log.contains(&"x".repeat(100)), "{log}");
}

/// An unknown session is -32002 as in the official protocol and not `invalid_request`; modes are enforced here, so one that
/// there is not is refused where zeph acknowledges anything.
#[test]
fn differs_an_unknown_session_is_not_found_and_an_unknown_mode_is_refused() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        assert_eq!(
            client.refused("session/set_mode", &json!({ "sessionId": "nobody", "modeId": "ask" })),
            -32002
        );
        let unknown =
            client.refused("session/set_mode", &json!({ "sessionId": session, "modeId": "nonsense" }));
        assert_eq!(unknown, -32602);
        client.result("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" }));
        let (updates, _) = client.prompt(&session, "write a.txt: no");
        assert_eq!(of_kind(&updates, "tool_call_update").last().unwrap()["status"], "failed");
        assert!(!client.work().join("a.txt").exists());
    });
}

/// The three ways to reach a tool server, `sse` as `http`; and servers that come and go at run time.
#[test]
fn tool_servers_are_taken_in_all_three_ways_and_managed() {
    everywhere(|mut client| {
        client.hello();
        let servers = json!([
            { "name": "child", "command": "/nonexistent/server", "args": [], "env": [{ "name": "A", "value": "b" }] },
            { "type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp", "headers": [] },
            { "type": "sse", "name": "old", "url": "http://127.0.0.1:1/sse", "headers": [] },
        ]);
        let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": servers }));
        let session = new["sessionId"].as_str().unwrap().to_owned();
        let listed = |client: &mut Client| {
            let list = client.result("_agent/mcp/list", &json!({ "session_id": session }));
            let pair =
                |server: &Value| format!("{} {}", server["name"], server["transport"]).replace('"', "");
            list["servers"].as_array().unwrap().iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(listed(&mut client), ["child stdio", "web http", "old http"]);
        let transport = json!({ "type": "stdio", "command": "/nonexistent/other", "args": [], "env": {} });
        let add = json!({ "session_id": session, "id": "more", "transport": transport });
        assert_eq!(client.result("_agent/mcp/add", &add)["added"], "more");
        assert_eq!(listed(&mut client).len(), 4);
        let remove = json!({ "session_id": session, "id": "more" });
        assert_eq!(client.result("_agent/mcp/remove", &remove)["removed"], "more");
        assert_eq!(listed(&mut client).len(), 3);
    });
}

/// Zeph has one `McpManager` for all of its sessions; here a server is a program of one session, which ends with it. So the
/// custom methods are about a session: without a name about the only one that is open, and where there is none, or more than
/// one, they ask for it.
#[test]
fn differs_tool_servers_belong_to_a_session() {
    everywhere(|mut client| {
        client.hello();
        let add = |session: &Value| {
            let transport =
                json!({ "type": "stdio", "command": "/nonexistent/other", "args": [], "env": {} });
            json!({ "session_id": session, "id": "more", "transport": transport })
        };
        for method in ["_agent/mcp/list", "_agent/tools"] {
            assert_eq!(client.refused(method, &json!({})), -32602, "{method}: none is open");
        }
        assert_eq!(client.refused("_agent/mcp/add", &add(&Value::Null)), -32602);
        let one = client.new_session();
        assert_eq!(client.result("_agent/mcp/add", &add(&Value::Null))["added"], "more");
        let other = client.new_session();
        for method in ["_agent/mcp/list", "_agent/tools"] {
            assert_eq!(client.refused(method, &json!({})), -32602, "{method}: which one?");
        }
        assert_eq!(client.refused("_agent/mcp/remove", &json!({ "id": "more" })), -32602);
        for (session, count) in [(&one, 1), (&other, 0)] {
            let list = client.result("_agent/mcp/list", &json!({ "session_id": session }));
            assert_eq!(list["servers"].as_array().unwrap().len(), count, "{list}");
            let states = list["servers"].as_array().unwrap().iter().map(|server| &server["state"]);
            assert!(
                states.into_iter().all(|state| state == "idle"),
                "nothing started without a prompt: {list}"
            );
        }
    });
}

/// The three endpoints, the header, and the statuses that can be had from outside. 500 and 503, and the reaper that looks
/// every 60 s, are in `crates/server/tests/it/http_zeph.rs`; 503 before the server is ready is
/// `until_it_is_ready_the_server_says_that_it_is_starting`.
#[test]
fn the_http_endpoints_are_the_three_of_the_readme() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    let first = post(&server, None, &hello);
    assert_eq!((first.status, first.header("content-type")), (200, Some("text/event-stream")));
    let connection = first.header("acp-session-id").unwrap().to_owned();
    assert!(connection.parse::<uuid_shape::Uuid>().is_ok(), "{connection}");
    assert_eq!(events(&first)[0]["result"]["protocolVersion"], 1);
    let work = home.path().join("work").canonicalize().unwrap();
    let new = json!({ "jsonrpc": "2.0", "id": 5, "method": "session/new", "params": { "cwd": work, "mcpServers": [] } });
    assert_eq!(events(&post(&server, Some(&connection), &new)).last().unwrap()["id"], 5);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {} });
    let second = post(&server, Some(&connection), &list);
    assert_eq!((second.status, second.header("acp-session-id")), (200, Some(connection.as_str())));

    // The stream is taken up again after the first event, and then has everything since: the commands of the new session,
    // which came after the answer that names it, and the answer to the last call.
    let ask = Ask::get("/acp").header("accept", "text/event-stream");
    let again = ask.clone().header("acp-session-id", &connection).header("last-event-id", "1");
    let mut stream = web::connect(server.address());
    std::io::Write::write_all(&mut stream, &again.bytes(server.port)).unwrap();
    let mut seen = Vec::new();
    while !["\"sessions\"", "available_commands_update"]
        .iter()
        .all(|word| String::from_utf8_lossy(&seen).contains(word))
    {
        let mut some = [0; 4096];
        let count = std::io::Read::read(&mut stream, &mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&some[..count]);
    }
    drop(stream);

    for ask in [&ask, &Ask::get("/acp"), &Ask::get("/acp").header("accept", "application/json")] {
        let refused = ask.clone().send(&server);
        assert_eq!(refused.status, 400, "a GET needs the header");
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(text.contains("Acp-Session-Id"), "and says which one: {text}");
    }
    for (id, status) in [("nonsense", 400), ("6b1f5c8e-3c5f-4a49-9a2b-000000000000", 404)] {
        assert_eq!(post(&server, Some(id), &list).status, status);
        assert_eq!(ask.clone().header("acp-session-id", id).send(&server).status, status);
    }
    assert_eq!(Ask::get("/acp/ws").websocket().send(&server).status, 101);
    assert_eq!(server.stop().0, Some(0));
}

/// "Sent during session initialization": what comes while no stream is open, as the commands of a new session may, comes with
/// a later answer. A client that only posts misses nothing.
#[test]
fn what_nobody_read_comes_with_a_later_answer() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let call = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let first = post(&server, None, &call(1, "initialize", json!({ "protocolVersion": 1 })));
    let connection = first.header("acp-session-id").unwrap().to_owned();
    let work = home.path().join("work").canonicalize().unwrap();
    let new = call(2, "session/new", json!({ "cwd": work, "mcpServers": [] }));
    let mut seen = events(&post(&server, Some(&connection), &new));
    let began = Instant::now();
    let is_commands =
        |frame: &Value| frame["params"]["update"]["sessionUpdate"] == "available_commands_update";
    for id in 3.. {
        seen.extend(events(&post(&server, Some(&connection), &call(id, "session/list", json!({})))));
        if seen.iter().any(is_commands) {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{seen:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(seen.iter().filter(|frame| is_commands(frame)).count(), 1, "{seen:#?}");
}

/// On the same address is the official transport, whose clients accept JSON too, or say nothing: a POST is zeph's if it names
/// such a connection, or accepts events alone.
#[test]
fn differs_a_first_post_is_zephs_only_if_it_accepts_events_alone() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } })
            .to_string();
    let official = [None, Some("application/json, text/event-stream"), Some("*/*")];
    for accept in official {
        let ask = Ask::post("/acp", &hello);
        let answer = accept.map_or(ask.clone(), |accept| ask.header("accept", accept)).send(&server);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert!(answer.header("acp-connection-id").is_some() && answer.header("acp-session-id").is_none());
    }
    let first = post(&server, None, &serde_json::from_str(&hello).unwrap());
    let connection = first.header("acp-session-id").unwrap();
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}"#;
    let second = Ask::post("/acp", list).header("acp-session-id", connection).send(&server);
    assert_eq!((second.status, second.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(server.stop().0, Some(0));
}

/// Being on this machine proves nothing about who calls: HTTP asks for a token, `ZEPH_ACP_AUTH_TOKEN` or another.
#[test]
fn differs_http_asks_for_a_token() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    let ask = Ask::post("/acp", &hello.to_string()).header("accept", "text/event-stream");
    assert_eq!(ask.clone().bare().send(&server).status, 401);
    assert_eq!(ask.token("somebody-elses-token").send(&server).status, 401);
    assert_eq!(Ask::get("/acp/ws").websocket().bare().send(&server).status, 401);
    assert_eq!(server.stop().0, Some(0));
}

/// `session/configure` with `config_id = "model"`, the same by the official name and by `set_session_model`.
#[test]
fn the_model_is_switched_in_all_the_ways_of_the_readme() {
    everywhere(|mut client| {
        client.hello();
        let session = client.new_session();
        let current = |options: &Value| option(options, "model")["currentValue"].clone();
        let configure = json!({ "session_id": session, "config_id": "model", "value": "offline:terse" });
        let (frames, answer) = client.call("session/configure", &configure);
        assert_eq!(current(&answer["result"]["configOptions"]), "offline:terse");
        let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
        let told = of_kind(&updates, "config_option_update");
        assert_eq!(current(&told[0]["configOptions"]), "offline:terse", "the update has the changed option");
        let configure = json!({ "sessionId": session, "configId": "model", "value": "offline:plain" });
        assert_eq!(
            current(&client.result("session/configure", &configure)["configOptions"]),
            "offline:plain"
        );
        for params in [
            json!({ "sessionId": session, "modelId": "offline:terse" }),
            json!({ "session_id": session, "model_id": "offline:plain" }),
        ] {
            assert_eq!(client.result("session/set_model", &params), json!({}));
        }
        let official = json!({ "sessionId": session, "configId": "model", "value": "offline:terse" });
        assert_eq!(
            current(&client.result("session/set_config_option", &official)["configOptions"]),
            "offline:terse"
        );
        let unknown = json!({ "sessionId": session, "configId": "model", "value": "no:such" });
        assert_eq!(client.refused("session/configure", &unknown), -32602);
    });
}

/// The official protocol wants every option in the update, so that a client need not keep the others.
#[test]
fn differs_the_update_has_every_option() {
    let mut client = Client::http(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let (frames, _) = client.call(
        "session/configure",
        &json!({ "session_id": session, "config_id": "model", "value": "offline:terse" }),
    );
    let updates: Vec<Value> = frames.iter().map(|frame| frame["params"]["update"].clone()).collect();
    assert!(of_kind(&updates, "config_option_update")[0]["configOptions"].as_array().unwrap().len() > 1);
}

/// The README's options and categories, on its own transports.
#[test]
fn config_options_have_the_categories_of_the_readme() {
    for open in [Client::http, Client::socket] {
        let mut client = open(&program::home(), &[]);
        client.hello();
        let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
        for (id, category) in [("model", "model"), ("thinking", "model"), ("auto_approve", "other")] {
            assert_eq!(option(&new["configOptions"], id)["category"], category);
        }
        let approve =
            json!({ "session_id": new["sessionId"], "config_id": "auto_approve", "value": "strict" });
        let options = client.result("session/configure", &approve)["configOptions"].clone();
        assert_eq!(option(&options, "auto_approve")["currentValue"], "strict");
    }
}

/// On standard input and output the clients are editors of the official protocol, which look for the option by its category.
#[test]
fn differs_thinking_is_a_thought_level_on_standard_input_and_output() {
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
    assert_eq!(option(&new["configOptions"], "thinking")["category"], "thought_level");
    assert_eq!(option(&new["configOptions"], "model")["category"], "model");
}

/// "Session IDs are UUIDs returned in the `Acp-Session-Id` response header": for requests that name it later. A socket is its
/// own connection, which nothing else can take up; its upgrade has the official header.
#[test]
fn differs_a_socket_has_no_session_header() {
    let home = program::home();
    let server = serve_http(&home, &[]);
    let upgraded = Ask::get("/acp/ws").websocket().send(&server);
    assert_eq!((upgraded.status, upgraded.header("acp-session-id")), (101, None));
    assert!(upgraded.header("acp-connection-id").is_some(), "{upgraded:?}");
    assert_eq!(server.stop().0, Some(0));
}

/// What is done without asking has five degrees here, so `auto_approve` is a choice and no switch; a client that switches it
/// gets the loosest, or the one that asks before it changes anything. zeph's own values are taken too. On standard input and output, where the clients are
/// those of the official protocol, it is listed by its own name and taken by both.
#[test]
fn differs_auto_approve_is_a_choice_that_a_switch_sets_too() {
    everywhere(|mut client| {
        client.hello();
        let new = client.result("session/new", &json!({ "cwd": client.work(), "mcpServers": [] }));
        let name = if let Transport::Stdio(_) = client.transport { "approval" } else { "auto_approve" };
        assert_eq!(option(&new["configOptions"], name)["type"], "select");
        let said = [
            (json!("suggest"), "suggest"),
            (json!("auto-edit"), "auto"),
            (json!("full-auto"), "full"),
            (json!(false), "suggest"),
            (json!(true), "full"),
        ];
        for (on, value) in said {
            let switch = json!({ "session_id": new["sessionId"], "config_id": "auto_approve", "value": on });
            let options = client.result("session/configure", &switch)["configOptions"].clone();
            assert_eq!(option(&options, name)["currentValue"], value);
        }
    });
}

/// `auto_approve`, switched while a question waits: it is answered by that, and the client's own question withdrawn.
#[test]
fn auto_approve_allows_the_question_that_waits() {
    let mut client = Client::stdio(&program::home(), &[]);
    client.hello();
    let session = client.new_session();
    let Transport::Stdio(program) = &mut client.transport else { unreachable!() };
    let prompt = json!([{ "type": "text", "text": "run touch made; true" }]);
    program.send(&json!({ "jsonrpc": "2.0", "id": 90, "method": "session/prompt", "params": { "sessionId": session, "prompt": prompt } }));
    let asked = loop {
        let frame = program.next();
        if frame["method"] == "session/request_permission" {
            break frame["id"].clone();
        }
    };
    let switch = json!({ "session_id": session, "config_id": "auto_approve", "value": "full" });
    let (frames, _) = program.call(91, "session/configure", &switch);
    let withdrawn =
        |frame: &&Value| frame["method"] == "$/cancel_request" && frame["params"]["requestId"] == asked;
    assert_eq!(frames.iter().filter(withdrawn).count(), 1, "{frames:?}");
    assert_eq!(program.until_answer(&json!(90)).1["result"]["stopReason"], "end_turn");
    assert!(client.work().join("made").exists());
}
