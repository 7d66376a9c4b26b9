//! Ferret's cloud bridge. What differs on purpose:
//!
//! - `differs_ctrl_c_on_the_full_screen_stops_a_running_turn_first`: the same key stops a turn in every terminal client.
//! - `differs_what_is_piped_into_it_is_not_read_and_that_is_said`: the local REPL is for somebody at a terminal.
//! - `differs_a_bridge_begins_no_other_session`: a bridge carries one session, nobody could see another one, and this one is ended
//!   where its agent is.
//! - `differs_what_is_replayed_is_marked_and_numbered`: without that, a receiver would show twice what it has already.
//! - `differs_a_server_without_a_session_beats_for_its_machine`: it is the one request by which a hub is told from others.
//! - `differs_a_bridge_writes_no_event_log_unless_a_folder_is_named`: a second copy of everything is for whoever asks for it.
//! - `differs_a_socket_at_another_host_ends_the_bridge`: the token is for the host that was named.
//! - `differs_what_a_slash_command_does_is_told_by_the_agent`: the message before it says whose command it was.
//! - `differs_an_answer_for_good_over_a_bridge_holds_in_its_session`: nobody elsewhere makes rules of this machine.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ::bridge::{BridgeTimings, REPLAY_WINDOW};
use serde_json::{Value, json};

use crate::seeds::bridge_process::{Bridge, TOKEN, Terminal, connected, connected_in};
use crate::seeds::program;
use crate::seeds::receiver::{Receiver, Request, Socket};

/// "Prerequisites" and "Auth-token format": the start, the status line, the token on every request.
#[tokio::test(flavor = "multi_thread")]
async fn it_starts_with_url_and_token_and_prints_a_one_line_status() {
    assert!(TOKEN.len() == 64 && TOKEN.bytes().all(|digit| digit.is_ascii_hexdigit()), "32 bytes of entropy");
    let (receiver, bridge, mut socket, session) = connected(&[]).await;
    // "session=ferret-20260430T1230-...".
    let parts: Vec<&str> = session.split('-').collect();
    assert!(
        matches!(parts[..], ["ferret", at, random] if at.contains('T') && random.len() == 8),
        "{session}"
    );
    let register = receiver.seen("POST /api/sessions", 1).await.remove(0);
    let cwd = bridge.home.path().join("work").canonicalize().unwrap();
    // "POST /api/sessions": the five members and no other.
    let body = json!({
        "session_id": session, "model": "offline:plain", "sandbox": "workspace-write", "approval": "auto",
        "cwd": cwd.display().to_string(),
    });
    assert_eq!(register.body, body);
    // "WSS /ws/<session_id>".
    assert_eq!(receiver.seen("GET /ws/", 1).await[0].what, format!("GET /ws/{session}"));
    // "A UI URL that the operator can share".
    let (status, _) = socket.call(1, "session/bridgeStatus", json!({ "sessionId": session })).await;
    assert_eq!(status["result"]["uiUrl"], format!("{}/s/{session}", receiver.url), "{status}");
    // "DELETE /api/sessions/<session_id>": sent on Ctrl-C.
    bridge.interrupt();
    receiver.seen("DELETE ", 1).await;
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
    let all = receiver.all();
    let what: Vec<&str> = all.iter().map(|request| request.what.as_str()).collect();
    let (ws, delete) = (format!("GET /ws/{session}"), format!("DELETE /api/sessions/{session}"));
    assert_eq!(what, ["POST /api/sessions", ws.as_str(), delete.as_str()], "and no other endpoint");
    let bearer = format!("Bearer {TOKEN}");
    assert!(all.iter().all(|request| request.headers["authorization"] == bearer), "{all:#?}");
    // What is ours alone is sent to hubs alone.
    let ours = |request: &Request| request.headers.keys().any(|name| name.starts_with("x-"));
    assert!(!all.iter().any(ours), "{all:#?}");
    assert!(!said.contains(TOKEN));
}

/// `FERRET_BRIDGE_TOKEN`, and only it or the flag: a token in a settings file is not honored.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_read_from_the_flag_or_the_variable_and_never_from_a_file() {
    let mut receiver = Receiver::plain().await;
    let url = receiver.url.clone();
    let arguments = ["--remote-url", &url, "--insecure"];
    // Pinned at the start; "rotation requires reconnecting": Ctrl-C, a new variable, a new start.
    let rotated = TOKEN.replace('5', "6");
    let named = [&arguments[..], &["--auth-token", &rotated]].concat();
    for (arguments, variable, sent) in
        [(&arguments[..], TOKEN, TOKEN), (&arguments, &rotated, &rotated), (&named, TOKEN, &rotated)]
    {
        let before = receiver.all().len();
        let mut bridge = Bridge::start(arguments, &[("FERRET_BRIDGE_TOKEN", variable)]);
        let _socket = receiver.socket().await;
        bridge.says("[ferret] bridge connected: ");
        bridge.interrupt();
        assert_eq!(bridge.ends().0, Some(0));
        let bearer = format!("Bearer {sent}");
        assert!(receiver.all()[before..].iter().all(|request| request.headers["authorization"] == bearer));
    }
    let home = program::home();
    let settings = home.path().join(".config/ropewalk");
    std::fs::create_dir_all(&settings).unwrap();
    let text = format!("[bridge]\nremote_url = \"{}\"\nauth_token = \"{TOKEN}\"\n", receiver.url);
    std::fs::write(settings.join("config.toml"), text).unwrap();
    let requests = receiver.all().len();
    let (code, said) = Bridge::start_in(&home, &["--insecure"], &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("ignoring the token in the settings file"), "{said}");
    assert!(!said.contains(TOKEN) && receiver.all().len() == requests, "{said}");
}

/// "WSS /ws/<session_id>", "Composition with sandbox + approval" and "Observability": the remote drives.
#[tokio::test(flavor = "multi_thread")]
async fn the_remote_sends_messages_cancels_answers_and_changes_the_approval_within_the_local_guardrails() {
    let home = program::home();
    let eventlog = home.path().join(".chimera/eventlog");
    let option = ["--eventlog", eventlog.to_str().unwrap()];
    let (_receiver, mut bridge, mut socket, session) = connected_in(&home, &option).await;
    let of_session = |mut params: Value| {
        params["sessionId"] = json!(session);
        params
    };
    socket.call(1, "initialize", json!({ "clientInfo": { "name": "alice" } })).await;
    // session/message: every update, then the answer.
    let message = of_session(json!({ "message": "list" }));
    let (answer, updates) = socket.call(2, "session/message", message).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    for kind in ["agent_message_chunk", "tool_call_start", "tool_call_end", "cost_update", "turn_end"] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(updates.iter().any(|update| update.contains(&kind)), "{kind}: {updates:#?}");
    }
    // Permission prompts are routed to the remote too; permission/respond.
    let params = of_session(json!({ "message": "run echo x >> made" }));
    socket.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/message", "params": params })).await;
    let asked = socket.kind("permission_request").await;
    let respond = of_session(json!({ "id": asked["id"], "decision": "allow" }));
    let (answer, before) = socket.call(4, "permission/respond", respond).await;
    assert_eq!(answer["result"], json!({ "ok": true }));
    // So that the question is settled in a replay too, also for whoever answered it.
    assert!(before.iter().any(|update| update.contains("\"kind\":\"permission_resolved\"")), "{before:#?}");
    socket.until(|frame| frame["id"] == 3).await;
    assert!(bridge.home.path().join("work/made").exists());
    // session/cancel.
    let params = of_session(json!({ "message": "sleep 50000" }));
    socket.send(&json!({ "jsonrpc": "2.0", "id": 5, "method": "session/message", "params": params })).await;
    socket.send(&json!({ "jsonrpc": "2.0", "id": 6, "method": "session/cancel", "params": of_session(json!({})) })).await;
    let frames = socket.until(|frame| frame["id"] == 5).await;
    assert!(frames.last().unwrap().contains("cancel"), "{frames:#?}");
    // The sandbox cannot be widened; the approval can be changed, and the local side prints a banner.
    let (answer, _) = socket.call(7, "session/setSandbox", of_session(json!({ "sandbox": "off" }))).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("restart required"), "{answer}");
    let (answer, _) = socket.call(8, "session/setApproval", of_session(json!({ "approval": "full" }))).await;
    assert!(answer["result"].is_object(), "{answer}");
    bridge.says("[ferret] bridge: alice set the approval to full");
    // session/load: the history, then the answer.
    let (answer, history) = socket.call(9, "session/load", of_session(json!({}))).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(history.iter().filter(|update| update.contains("\"kind\":\"user_message\"")).count(), 3);
    // session/list: this session.
    let (answer, _) = socket.call(10, "session/list", json!({})).await;
    assert_eq!(answer["result"]["sessions"].as_array().unwrap().len(), 1, "{answer}");
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
    // "The standard ferret eventlog": the change of the approval, and every other remote-originated event, with its field.
    let folder = eventlog.join(&session);
    let mut written: Vec<Value> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("event-"))
        .map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
        .collect();
    written.sort_by_key(|event| event["idx"].as_u64());
    let from_alice = json!({ "origin": "bridge", "remote_user": "alice" });
    let theirs: Vec<&Value> =
        written.iter().filter(|event| event["metadata"]["bridge"] == from_alice).collect();
    assert_eq!(theirs.iter().filter(|event| event["type"] == "user_message").count(), 3, "{written:#?}");
    assert!(theirs.iter().any(|event| event.to_string().contains("full")), "{theirs:#?}");
    // As everywhere else.
    let show = ["sessions", "show", &session, "--json"];
    let shown = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &home, &show).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let field = "\"bridge\":{\"origin\":\"bridge\",\"remote_user\":\"alice\"}";
    let compact: String = shown.split_whitespace().collect();
    assert!(compact.matches(field).count() >= 5, "{shown}");
}

/// "The standard ferret eventlog": the title that a remote `/rename` gives has no `bridge` field, its message has.
#[tokio::test(flavor = "multi_thread")]
async fn differs_what_a_slash_command_does_is_told_by_the_agent() {
    let (_receiver, bridge, mut socket, session) = connected(&[]).await;
    let message = json!({ "sessionId": session, "message": "/rename Other" });
    socket.call(1, "session/message", message).await;
    bridge.interrupt();
    let home = Arc::clone(&bridge.home);
    assert_eq!(bridge.ends().0, Some(0));
    let show = ["sessions", "show", &session, "--json"];
    let shown = program::command(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &home, &show).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let of_kind = |kind: &str| {
        let mut events = shown["events"].as_array().unwrap().iter();
        events.find(|event| event["event_type"] == kind).unwrap().to_string()
    };
    assert!(of_kind("user_message").contains("\"bridge\""), "{shown:#}");
    assert!(!of_kind("title").contains("\"bridge\""), "{shown:#}");
}

/// "POST /api/sessions/<session_id>/heartbeat" and "Reconnection semantics": 30 s, 5 s, the last 50.
#[tokio::test(flavor = "multi_thread")]
async fn it_beats_every_30_seconds_and_replays_the_last_50_events_5_seconds_after_a_cut() {
    let (mut receiver, mut bridge, mut socket, session) = connected(&[]).await;
    let message = json!({ "sessionId": session, "message": vec!["list"; 30].join("\n") });
    let (_, updates) = socket.call(1, "session/message", message).await;
    let known = updates.len() as u64;
    assert!(known > 60, "{known}");
    drop(socket);
    bridge.says("bridge: WS closed (code=1006)");
    let cut = tokio::time::Instant::now();
    let mut socket = receiver.socket().await;
    let connected = receiver.seen("GET /ws/", 2).await[1].at;
    assert!(connected - cut > Duration::from_secs(4), "a 5-second initial backoff");
    let again = socket.until(|frame| frame["params"]["replaySeq"] == known).await;
    let expected: Vec<String> = updates[updates.len() - 50..]
        .iter()
        .zip(known - 49..)
        .map(|(update, number)| {
            let inner = update.strip_suffix("}}").unwrap();
            format!("{inner},\"replay\":true,\"replaySeq\":{number}}}}}")
        })
        .collect();
    assert_eq!(again, expected);
    let beat = receiver.seen(&format!("POST /api/sessions/{session}/heartbeat"), 1).await.remove(0);
    assert_eq!(beat.body, json!({ "sandbox": "workspace-write", "approval": "auto", "cost_total_usd": 0.0 }));
    assert!(!beat.headers.keys().any(|name| name.starts_with("x-")), "{beat:#?}");
    let registered = receiver.all()[0].at;
    assert_eq!((beat.at - registered).as_secs_f64().round() as u64 / 30, 1);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "Ferret will refuse to connect over plain HTTP unless --insecure is passed"; the CLI prints a loud warning.
#[tokio::test(flavor = "multi_thread")]
async fn plain_http_is_refused_unless_insecure_is_passed() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN];
    let (code, said) = Bridge::start(&arguments, &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("plain http") && receiver.all().is_empty(), "{said}");
    let mut bridge = Bridge::start(&[&arguments[..], &["--insecure"]].concat(), &[]);
    let _socket = receiver.socket().await;
    bridge.says("[ferret] bridge connected: ");
    assert!(bridge.said.iter().any(|line| line.contains("INSECURE")), "{:?}", bridge.said);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "If the remote returns 401 / 403 the bridge does not retry", and "Troubleshooting".
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mended_by_waiting_ends_it_with_the_documents_words() {
    for (endpoint, status, words) in [
        ("POST /api/sessions", 401, "bridge: 401 Unauthorized"),
        ("POST /api/sessions", 403, "bridge: 403 Forbidden"),
        ("GET /ws/", 401, "bridge: 401 Unauthorized"),
        ("GET /ws/", 403, "bridge: 403 Forbidden"),
    ] {
        let receiver = Receiver::plain().await;
        receiver.answers(endpoint, status);
        let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
        let (code, said) = Bridge::start(&arguments, &[]).ends();
        assert_ne!(code, Some(0), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(receiver.seen(endpoint, 1).await.len(), 1, "no retry");
    }
}

/// "bridge: TLS verification failed. Your remote URL is using a self-signed cert. Either trust the cert at the OS level or
/// re-run with --insecure (dev only)": one of an authority of its own, and one that is its own authority, as openssl makes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_is_refused_until_it_is_trusted_or_insecure_is_passed() {
    let folder = tempfile::tempdir().unwrap();
    for mut receiver in [Receiver::secure(folder.path()).await, Receiver::self_signed(folder.path()).await] {
        let url = receiver.url.clone();
        let arguments = ["--remote-url", &url, "--auth-token", TOKEN];
        let (code, said) = Bridge::start(&arguments, &[]).ends();
        assert_ne!(code, Some(0), "{said}");
        assert!(said.contains("bridge: TLS verification failed: "), "{said}");
        assert!(said.contains("SSL_CERT_FILE") && said.contains("--insecure"), "what to do: {said}");
        for word in ["UnknownIssuer", "CaUsedAsEndEntity", "OtherError", "invalid peer certificate"] {
            assert!(!said.contains(word), "nothing out of the code: {said}");
        }
        assert!(receiver.all().is_empty());
        let authority = receiver.authority.as_ref().unwrap().to_str().unwrap().to_owned();
        let trusted = (&arguments[..], ("SSL_CERT_FILE", authority.as_str()));
        let insecure = [&arguments[..], &["--insecure"]].concat();
        for (arguments, variable) in [trusted, (&insecure, ("NO_COLOR", "1"))] {
            let mut bridge = Bridge::start(arguments, &[variable]);
            let _socket = receiver.socket().await;
            bridge.says("[ferret] bridge connected: ");
            bridge.interrupt();
            assert_eq!(bridge.ends().0, Some(0));
        }
    }
}

/// "bridge: replay window exceeded. A long disconnect dropped events. The remote UI will need a session/load to resync."
#[tokio::test(flavor = "multi_thread")]
async fn more_than_50_missed_events_are_said_and_session_load_tells_them() {
    let (mut receiver, mut bridge, mut socket, session) = connected(&[]).await;
    let text = [vec!["sleep 1000"], vec!["list"; 40]].concat().join("\n");
    let params = json!({ "sessionId": session, "message": text });
    socket.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": params })).await;
    socket.kind("agent_message_chunk").await;
    drop(socket);
    let mut socket = receiver.socket().await;
    let notice = socket.kind("notice").await;
    assert!(notice["text"].as_str().unwrap().starts_with("bridge: replay window exceeded"), "{notice}");
    bridge.says("bridge: replay window exceeded");
    // The message that was under way is answered all the same.
    let frames = socket.until(|frame| frame["id"] == 1).await;
    assert!(frames.last().unwrap().contains("end_turn"), "{frames:#?}");
    let (answer, history) = socket.call(2, "session/load", json!({ "sessionId": session })).await;
    assert!(answer["result"].is_object(), "{answer}");
    let ends = history.iter().filter(|update| update.contains("\"kind\":\"tool_call_end\"")).count();
    assert_eq!(ends, 40);
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "5-second initial backoff, exponential up to a 60-second cap, no jitter", and what the other numbers are.
#[tokio::test(flavor = "multi_thread")]
async fn it_waits_5_10_and_20_seconds_and_never_more_than_60() {
    let pace = BridgeTimings::default();
    let seconds = [pace.first, pace.longest, pace.heartbeat].map(|long| long.as_secs_f64());
    assert_eq!((seconds, REPLAY_WINDOW), ([5.0, 60.0, 30.0], 50));
    let receiver = Receiver::plain().await;
    receiver.answers("GET /ws/", 503);
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let mut bridge = Bridge::start(&arguments, &[]);
    for wait in ["5 s", "10 s", "20 s"] {
        let line = bridge.says("bridge: ");
        assert!(line.contains(&format!("Trying again in {wait};")), "{line}");
    }
    let tries = receiver.seen("GET /ws/", 3).await;
    for (pair, wait) in tries.windows(2).zip([5.0, 10.0]) {
        let waited = (pair[1].at - pair[0].at).as_secs_f64();
        // The bridge may not be early; how late it is, the machine decides.
        assert!(waited > wait - 0.1, "{waited} s instead of {wait}");
    }
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "On reconnect, ferret replays the last bridge.replay_window events": from the settings, and from the flag before them.
#[tokio::test(flavor = "multi_thread")]
async fn the_replay_window_is_what_the_flag_or_the_settings_say() {
    let home = program::home();
    let settings = home.path().join(".config/ropewalk");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), "[bridge]\nreplay_window = 4\n").unwrap();
    for (arguments, window) in [(&[][..], 4), (&["--replay-window", "3"], 3)] {
        let (mut receiver, bridge, mut socket, session) = connected_in(&home, arguments).await;
        let message = json!({ "sessionId": session, "message": "list" });
        let (_, updates) = socket.call(1, "session/message", message).await;
        assert!(updates.len() > 4, "{updates:#?}");
        drop(socket);
        let mut socket = receiver.socket().await;
        let (_, again) = socket.call(2, "session/bridgeStatus", json!({ "sessionId": session })).await;
        let replayed: Vec<u64> = again
            .iter()
            .filter_map(|frame| serde_json::from_str::<Value>(frame).unwrap()["params"]["replaySeq"].as_u64())
            .collect();
        let last = updates.len() as u64;
        assert_eq!(replayed, (last - window + 1..=last).collect::<Vec<_>>());
        bridge.interrupt();
        assert_eq!(bridge.ends().0, Some(0));
    }
}

/// "Defaults from ~/.codex/config.toml": the address, which --remote-url wins over, and never a token.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_read_from_codexs_settings_and_the_token_is_not() {
    let (mut receiver, mut named) = (Receiver::plain().await, Receiver::plain().await);
    let home = program::home();
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let stray = TOKEN.replace('5', "7");
    let text = format!("[bridge]\nremote_url = \"{}\"\nauth_token = \"{stray}\"\n", receiver.url);
    std::fs::write(home.path().join(".codex/config.toml"), text).unwrap();
    let (code, said) = Bridge::start_in(&home, &["--insecure"], &[]).ends();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("a bridge needs a token") && !said.contains(&stray), "{said}");
    let file = home.path().join(".codex/config.toml");
    assert!(said.contains(&format!("the token in {} is ignored", file.display())), "{said}");
    assert!(receiver.all().is_empty());
    let url = named.url.clone();
    for (receiver, arguments) in
        [(&mut receiver, &["--insecure"][..]), (&mut named, &["--insecure", "--remote-url", &url])]
    {
        let mut bridge = Bridge::start_in(&home, arguments, &[("FERRET_BRIDGE_TOKEN", TOKEN)]);
        let _socket = receiver.socket().await;
        bridge.says(&format!("[ferret] bridge connected: {}", receiver.url));
        bridge.interrupt();
        assert_eq!(bridge.ends().0, Some(0));
        let bearer = format!("Bearer {TOKEN}");
        assert!(receiver.all().iter().all(|request| request.headers["authorization"] == bearer));
    }
}

/// The updates up to the end of the turn, which may be among those that came before an answer.
async fn until_turn_end(socket: &mut Socket, mut updates: Vec<String>) -> Vec<String> {
    if !updates.iter().any(|update| update.contains("\"kind\":\"turn_end\"")) {
        updates.extend(socket.until(|frame| frame["params"]["kind"] == "turn_end").await);
    }
    updates
}

/// "The ferret CLI itself remains a co-driver", "Permission prompts are routed to both ... Whoever responds first wins; the
/// other surface gets a cancellation event", "the local CLI prints a banner", "cost_update notifications are sent to both".
#[tokio::test(flavor = "multi_thread")]
async fn whoever_sits_at_the_terminal_drives_too_and_the_first_answer_wins() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let home = program::home();
    let (mut terminal, mut bridge) = Terminal::start(&home, &arguments, &[]);
    let mut socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    let session = line.rsplit_once(" session=").unwrap().1.to_owned();
    let of_session = |mut params: Value| {
        params["sessionId"] = json!(session);
        params
    };
    socket.call(1, "initialize", json!({ "clientInfo": { "name": "alice" } })).await;
    // Asked here, seen there and here, answered there.
    terminal.types("run echo one >> made");
    let asked = socket.kind("permission_request").await;
    bridge.says("? ");
    let respond = of_session(json!({ "id": asked["id"], "decision": "allow" }));
    let (answer, updates) = socket.call(2, "permission/respond", respond).await;
    assert_eq!(answer["result"], json!({ "ok": true }));
    bridge.says("answered elsewhere");
    until_turn_end(&mut socket, updates).await;
    // Answered here, cancelled there, and a late answer is refused.
    terminal.types("run echo two >> made");
    let asked = socket.kind("permission_request").await;
    bridge.says("? ");
    terminal.types("y");
    assert_eq!(socket.kind("permission_resolved").await["id"], asked["id"]);
    let respond = of_session(json!({ "id": asked["id"], "decision": "deny" }));
    let (late, updates) = socket.call(3, "permission/respond", respond).await;
    assert!(late["error"]["message"].as_str().unwrap().contains("already answered"), "{late}");
    let updates = until_turn_end(&mut socket, updates).await;
    assert_eq!(std::fs::read_to_string(home.path().join("work/made")).unwrap(), "one\ntwo\n");
    // What was used is said here as there, and here also how the session is bridged.
    let mut costs = updates.iter().filter(|update| update.contains("\"kind\":\"cost_update\""));
    let there = &serde_json::from_str::<Value>(costs.next_back().unwrap()).unwrap()["params"];
    terminal.types("/cost");
    terminal.shows(&format!("session: {} in, {} out", there["input"], there["output"]));
    terminal.types("/bridge");
    terminal.shows(&format!("bridged to `{}`: connected", receiver.url));
    terminal.shows(&format!("{}/s/{session}", receiver.url));
    // What is said there is seen here, with who said it.
    let message = of_session(json!({ "message": "look at\nthe ropes" }));
    let (_, updates) = socket.call(5, "session/message", message).await;
    bridge.says("alice (bridge) › look at");
    bridge.says("  the ropes");
    until_turn_end(&mut socket, updates).await;
    let change = of_session(json!({ "approval": "read-only" }));
    socket.call(4, "session/setApproval", change).await;
    bridge.says("[ferret] bridge: alice set the approval to read-only");
    terminal.leaves();
    receiver.seen("DELETE ", 1).await;
    assert_eq!(bridge.ends().0, Some(0));
}

/// "DELETE: Sent on Ctrl-C to the bridge", and "the CLI prints a loud warning": with a full screen too, where the warning stays.
#[tokio::test(flavor = "multi_thread")]
async fn one_ctrl_c_on_the_full_screen_ends_the_bridge_and_the_warning_stands_there() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let (mut terminal, mut bridge) = Terminal::full_screen(&program::home(), &arguments, &[]);
    let _socket = receiver.socket().await;
    bridge.says("warning: INSECURE");
    bridge.says("[ferret] bridge connected: ");
    terminal.shows("INSECURE");
    terminal.shows("Ready");
    // Also with unsent text on the line, which no folder's name can hold.
    terminal.presses("§");
    terminal.shows("§");
    terminal.presses("\x03");
    receiver.seen("DELETE ", 1).await;
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
}

/// "DELETE: Sent on Ctrl-C to the bridge": line by line too, and with the same exit code, whatever became of the last turn.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_with_0_line_by_line_too() {
    let mut receiver = Receiver::plain().await;
    let url = receiver.url.clone();
    let arguments = ["--remote-url", &url, "--auth-token", TOKEN, "--insecure"];
    let (_terminal, mut bridge) = Terminal::start(&program::home(), &arguments, &[]);
    let mut socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    let session = line.rsplit_once(" session=").unwrap().1;
    socket.call(1, "session/message", json!({ "sessionId": session, "message": "hello" })).await;
    bridge.says("remote (bridge) › hello");
    bridge.interrupt();
    receiver.seen("DELETE ", 1).await;
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
    // The bridge did what it is for.
    let (mut terminal, bridge) = Terminal::start(&program::home(), &arguments, &[]);
    let mut socket = receiver.socket().await;
    terminal.types("fail");
    socket.kind("turn_end").await;
    terminal.leaves();
    receiver.seen("DELETE ", 2).await;
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
}

/// "Ferret prints a one-line status", "a UI URL that the operator can share", "WS closed (code=1006)": on the full screen too.
#[tokio::test(flavor = "multi_thread")]
async fn the_full_screen_shows_the_status_and_where_people_see_the_session() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let (mut terminal, mut bridge) = Terminal::full_screen(&program::home(), &arguments, &[]);
    let socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    let session = line.rsplit_once(" session=").unwrap().1.to_owned();
    terminal.shows("connected:");
    terminal.shows(&format!("{}/s/{session}", receiver.url));
    drop(socket);
    terminal.shows("(code=1006)");
    let _socket = receiver.socket().await;
    terminal.shows("connected:");
    terminal.presses("\x03");
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
}

/// The terminal client's Ctrl-C stops a turn that runs, whoever began it; only the next one ends the bridge.
#[tokio::test(flavor = "multi_thread")]
async fn differs_ctrl_c_on_the_full_screen_stops_a_running_turn_first() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let (mut terminal, mut bridge) = Terminal::full_screen(&program::home(), &arguments, &[]);
    let mut socket = receiver.socket().await;
    let line = bridge.says("[ferret] bridge connected: ");
    let session = line.rsplit_once(" session=").unwrap().1.to_owned();
    terminal.shows("Ready");
    let message = json!({ "sessionId": session, "message": "run echo one >> made" });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": message });
    socket.send(&request).await;
    socket.kind("permission_request").await;
    terminal.shows("allow once");
    terminal.presses("\x03");
    until_turn_end(&mut socket, Vec::new()).await;
    assert!(receiver.all().iter().all(|request| !request.what.starts_with("DELETE ")));
    terminal.shows("Ready");
    terminal.presses("\x03");
    receiver.seen("DELETE ", 1).await;
    assert_eq!(bridge.ends().0, Some(0));
}

/// The local REPL is on a terminal. What is piped in instead is not read, and that is said once.
#[tokio::test(flavor = "multi_thread")]
async fn differs_what_is_piped_into_it_is_not_read_and_that_is_said() {
    let mut receiver = Receiver::plain().await;
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let (read, mut write) = std::io::pipe().unwrap();
    let pipes = (Stdio::from(read), Stdio::null());
    let mut bridge = Bridge::run(&program::home(), &arguments, &[], pipes);
    let _socket = receiver.socket().await;
    bridge.says("[ferret] bridge connected: ");
    write.write_all(b"list\n").unwrap();
    bridge.interrupt();
    let (code, said) = bridge.ends();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("standard input is not a terminal, so input is ignored").count(), 1, "{said}");
}

/// The document lets the remote send any request. A bridge carries one session, which is registered under its id: another one
/// could be seen by nobody, so it is not begun.
#[tokio::test(flavor = "multi_thread")]
async fn differs_a_bridge_begins_no_other_session() {
    let (_receiver, bridge, mut socket, session) = connected(&[]).await;
    for (method, params) in [("session/new", json!({})), ("session/fork", json!({ "sessionId": session }))] {
        let (answer, _) = socket.call(1, method, params).await;
        assert!(answer["error"]["message"].as_str().unwrap().contains("one session"), "{answer}");
    }
    // Nor is this one ended from there: that is done where its agent is, and the bridge lives on.
    for (id, method) in (2..).zip(["session/close", "session/delete"]) {
        let (answer, _) = socket.call(id, method, json!({ "sessionId": session })).await;
        assert_eq!(answer["error"]["code"], -32600, "{method}: {answer}");
    }
    let (said, _) =
        socket.call(4, "session/message", json!({ "sessionId": session, "message": "list" })).await;
    assert_eq!(said["result"]["stopReason"], "end_turn", "{said}");
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// "Ferret replays the last events": each with two members more, at the end of its `params`; nothing else has them.
#[tokio::test(flavor = "multi_thread")]
async fn differs_what_is_replayed_is_marked_and_numbered() {
    let (mut receiver, bridge, mut socket, session) = connected(&[]).await;
    let message = |text: &str| json!({ "sessionId": session, "message": text });
    let (_, updates) = socket.call(1, "session/message", message("list")).await;
    assert!(updates.iter().all(|update| !update.contains("replay")), "{updates:#?}");
    drop(socket);
    let mut socket = receiver.socket().await;
    for (number, update) in updates.iter().enumerate() {
        let mut expected: Value = serde_json::from_str(update).unwrap();
        expected["params"]["replay"] = json!(true);
        expected["params"]["replaySeq"] = json!(number + 1);
        assert_eq!(serde_json::from_str::<Value>(&socket.next().await).unwrap(), expected);
    }
    bridge.interrupt();
    assert_eq!(bridge.ends().0, Some(0));
}

/// A heartbeat is for a session that was registered. `serve --bridge`, which is not in the document, may have none yet: it asks
/// whether a hub is there by a heartbeat for the machine, again after 5, 10, 20, 40 and 60 seconds, until there is a session.
#[tokio::test(flavor = "multi_thread")]
async fn differs_a_server_without_a_session_beats_for_its_machine() {
    let receiver = Receiver::plain().await;
    let home = program::home();
    let serve = ["serve", "--bridge", &receiver.url, "--bridge-token", TOKEN, "--insecure"];
    let mut server = program::Program::start_in(&home, &serve);
    let beats = receiver.seen("POST /api/sessions/", 2).await;
    assert!(beats.iter().all(|beat| beat.what.ends_with("/heartbeat")), "{beats:#?}");
    assert_eq!(beats[0].what, beats[1].what, "for one machine");
    assert!(beats[1].at - beats[0].at > Duration::from_secs(4), "{beats:#?}");
    assert_eq!(receiver.all().len(), 2, "and nothing else");
    // A session ends that: it is registered, and what beats from then on is the session.
    server.call(1, "initialize", &json!({}));
    server.call(2, "session/new", &json!({}));
    receiver.seen("GET /ws/", 1).await;
    assert!(receiver.all().iter().any(|request| request.what == "POST /api/sessions"));
    assert_eq!(server.close().0, Some(0));
}

/// "The bridge logs to the standard ferret eventlog under ~/.chimera/eventlog/ferret-<id>/": here it does if `--eventlog` names the
/// folder. A second copy of everything that was said is for whoever asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn differs_a_bridge_writes_no_event_log_unless_a_folder_is_named() {
    let home = program::home();
    let log = home.path().join(".chimera/eventlog");
    for (arguments, written) in [(&[][..], false), (&["--eventlog", log.to_str().unwrap()], true)] {
        let (_receiver, bridge, mut socket, session) = connected_in(&home, arguments).await;
        socket.call(1, "session/message", json!({ "sessionId": session, "message": "list" })).await;
        bridge.interrupt();
        assert_eq!(bridge.ends().0, Some(0));
        assert_eq!(log.join(&session).join("summary.json").is_file(), written);
        assert_eq!(home.path().join(".chimera").exists(), written);
    }
}

/// The remote answers a registration with a `ws_url`. The token goes to the host and port that was named and to no other.
#[tokio::test(flavor = "multi_thread")]
async fn differs_a_socket_at_another_host_ends_the_bridge() {
    let (receiver, other) = (Receiver::plain().await, Receiver::plain().await);
    let elsewhere = other.url.strip_prefix("http://").unwrap();
    receiver.names_socket_at(elsewhere);
    let arguments = ["--remote-url", &receiver.url, "--auth-token", TOKEN, "--insecure"];
    let (code, said) = Bridge::start(&arguments, &[]).ends();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(elsewhere), "{said}");
    assert!(other.all().is_empty(), "nobody else sees the token");
}

/// Who answers a bridge's questions for good answers for this session: nobody elsewhere makes rules of this machine.
#[tokio::test(flavor = "multi_thread")]
async fn differs_an_answer_for_good_over_a_bridge_holds_in_its_session() {
    let home = program::home();
    for decision in ["always", "deny"] {
        let (_receiver, bridge, mut socket, session) = connected_in(&home, &["--approval", "suggest"]).await;
        let params = json!({ "sessionId": session, "message": "run touch made" });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": params });
        socket.send(&request).await;
        let asked = socket.kind("permission_request").await;
        let answer = json!({ "sessionId": session, "id": asked["id"], "decision": decision });
        socket.call(2, "permission/respond", answer).await;
        socket.until(|frame| frame["id"] == 1).await;
        if decision == "always" {
            let again = json!({ "sessionId": session, "message": "run touch   made" });
            let (_, updates) = socket.call(3, "session/message", again).await;
            assert!(!updates.iter().any(|update| update.contains("permission_request")), "{updates:#?}");
        }
        bridge.interrupt();
        assert_eq!(bridge.ends().0, Some(0));
        assert!(!home.path().join(".config/ropewalk/permissions.toml").exists());
    }
}
