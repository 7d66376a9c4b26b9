//! A receiver that keeps no mirror: the seed's contract.

use std::sync::{Arc, atomic::Ordering};

use bridge::RemoteAnswers;
use engine::{Body, Input, PageRequest, PermissionAnswer, Principal, Sender, Seq, SessionId, SurfaceId};
use serde_json::{Value, json};
use server::{Connection, ConnectionParts, memory};
use testkit::server::{DEADLINE, OlderClient, Server, Setup, run};
use testkit::{Line, Script, call, say};
use wire::{Dialect, DialectSelection, Frame};

use super::test_bridge::{BridgeOptions, TOKEN, TestBridge};
use super::test_receiver::{Behaviour, Receiver, Socket};

async fn opened(server: &mut Server) -> (OlderClient, String) {
    let mut client = server.older_client(Dialect::Ferret).await;
    let session = client.new_session().await;
    (client, session)
}

fn shell(command: &str) -> Line {
    call("shell", json!({ "command": command }).to_string())
}

/// O1, O4, O6, O10, O11, O20.
#[tokio::test]
async fn a_session_is_registered_announced_kept_alive_and_taken_leave_of() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let socket = receiver.socket().await;
        assert_eq!(socket.path, format!("/ws/{session}"));
        world.said("bridge connected", 1).await;
        let connected = format!("[ferret] bridge connected: {} session={session}", receiver.url);
        assert_eq!(world.lines(), [connected], "one line, and nothing else");
        let registered = receiver.seen("POST /api/sessions", 1).await;
        let expected = json!({
            "session_id": session, "model": "offline:plain", "sandbox": "workspace-write",
            "approval": "auto", "cwd": server.workspace().display().to_string(),
        });
        assert_eq!(registered[0].body, expected);
        let beats = receiver.seen(&format!("POST /api/sessions/{session}/heartbeat"), 3).await;
        let beat = json!({ "sandbox": "workspace-write", "approval": "auto", "cost_total_usd": 0.0 });
        assert_eq!(beats[0].body, beat);
        world.close().await;
        receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
        let bearer = format!("Bearer {TOKEN}");
        assert!(receiver.all().iter().all(|seen| seen.authorization.as_deref() == Some(bearer.as_str())));
        drop(socket);
    })
    .await;
}

/// A local ferret client that keeps every byte.
struct Local {
    peer: memory::LinkPeer,
    connection: Connection,
}

impl Local {
    async fn load(server: &Server, session: &str) -> Self {
        let parts = server.connection_parts(Principal::local());
        let (link, peer) = memory::pair();
        let parts = ConnectionParts { dialect: DialectSelection::Only(Dialect::Ferret), ..parts };
        let mut local = Self { peer, connection: Connection::start(parts, link) };
        for (id, method, params) in
            [(1, "initialize", json!({})), (2, "session/load", json!({ "sessionId": session }))]
        {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            local.peer.frames.send(Frame::Line(request.to_string().into_bytes())).await.unwrap();
            local.until(|frame| frame["id"] == id).await;
        }
        local
    }

    async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            let batch = tokio::time::timeout(DEADLINE, self.peer.batches.recv()).await.unwrap().unwrap();
            for frame in batch.frames() {
                frames.push(String::from_utf8(frame.to_vec()).unwrap());
            }
            if frames.last().is_some_and(|frame| is(&serde_json::from_str(frame).unwrap())) {
                return frames;
            }
        }
    }

    async fn close(self) {
        drop(self.peer);
        self.connection.finish().await;
    }
}

fn is_kind(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |frame| frame["params"]["kind"] == kind
}

/// O7, P6, E20, O18: what is used is told on both sides, in the same bytes as everything else.
#[tokio::test]
async fn the_frames_are_those_of_a_local_client_byte_for_byte() {
    let usage = engine::Usage { input: 7, output: 3, cost_usd: 0.25, ..engine::Usage::default() };
    let script = Script::new([
        vec![say("one"), call("list", "{}"), Line::Usage(usage)],
        vec![say("two"), Line::Usage(usage)],
    ]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let mut local = Local::load(server, &session).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "full" })).await;
        client.message(&session, "go").await;
        let here = local.until(is_kind("turn_end")).await;
        let there = socket.until(is_kind("turn_end")).await;
        assert_eq!(there, here);
        let costs: Vec<_> = there.iter().filter(|frame| frame.contains("cost_update")).collect();
        assert_eq!(costs.len(), 2);
        assert!(costs[1].contains("0.5"), "{costs:?}");
        local.close().await;
        world.close().await;
    })
    .await;
}

/// O8, O15, O17, G17: a turn is driven from elsewhere, its question is answered there, and the log says so.
#[tokio::test]
async fn a_turn_is_driven_from_elsewhere_and_the_log_says_who_did() {
    let script = Script::new([vec![shell("echo x >> made")], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let hello = json!({ "clientInfo": { "name": "dev" } });
        socket.call(1, "initialize", hello).await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        assert_eq!(client.next_of("permission_request").await["id"], question["id"]);
        // For good is said at the machine: from here it holds for the session.
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "always" });
        let (answered, _) = socket.call(3, "permission/respond", answer).await;
        assert_eq!(answered["result"], json!({ "ok": true }));
        // Whoever was not first sees the question withdrawn.
        assert_eq!(client.next_of("permission_resolved").await["id"], question["id"]);
        let frames = socket.until(|frame| frame["id"] == 2).await;
        assert!(frames.last().unwrap().contains("end_turn"), "{frames:?}");
        let change = json!({ "sessionId": session, "approval": "full" });
        socket.call(4, "session/setApproval", change).await;
        world.said("dev set the approval to full", 1).await;
        assert!(server.workspace().join("made").exists());
        let status = client.call("session/bridgeStatus", json!({ "sessionId": session })).await;
        assert_eq!((&status["connected"], &status["url"]), (&json!(true), &json!(receiver.url)));
        let id = SessionId::parse(&session).unwrap();
        let events =
            server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await.unwrap();
        let from_remote = |is: &dyn Fn(&Body) -> bool| {
            let event = events.iter().find(|event| is(&event.body)).expect("the event");
            event.origin.remote().map(|user| user.to_string())
        };
        for is in [(|body: &Body| matches!(body, Body::UserMessage { .. })) as fn(&Body) -> bool, |body| {
            matches!(body, Body::SettingChanged { .. })
        }] {
            assert_eq!(from_remote(&is).as_deref(), Some("dev"));
        }
        let prompt = events.iter().find(|event| matches!(event.body, Body::UserMessage { .. })).unwrap();
        let stored = wire::event_json::encode(prompt);
        let bridge = json!({ "origin": "bridge", "remote_user": "dev" });
        assert_eq!(stored["origin"]["surface"]["bridge"], bridge);
        let resolved = events.iter().find(|event| matches!(event.body, Body::Resolved { .. })).unwrap();
        let stored = wire::event_json::encode(resolved);
        assert!(stored.to_string().contains(&format!("\"bridge\":{bridge}")), "{stored}");
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// A receiver without memory shows every question that is replayed: one that it answered itself is followed by its end.
#[tokio::test]
async fn a_question_that_the_receiver_answered_itself_is_settled_in_the_replay() {
    let script = Script::new([vec![shell("echo x >> made")], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        let (answered, before) = socket.call(2, "permission/respond", answer).await;
        assert_eq!(answered["result"], json!({ "ok": true }));
        let resolved = json!({
            "sessionId": session, "kind": "permission_resolved", "id": question["id"], "decision": "allow",
        });
        let params = |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["params"].take();
        assert!(before.iter().any(|frame| params(frame) == resolved), "{before:#?}");
        client.next_of("turn_end").await;
        drop(socket);
        let mut socket = receiver.socket().await;
        let again = socket.until(is_kind("turn_end")).await;
        let settled: Vec<Value> = again
            .iter()
            .map(params)
            .filter(|params| params["id"] == question["id"])
            .map(|params| params["kind"].clone())
            .collect();
        assert_eq!(settled, ["permission_request", "permission_resolved"], "{again:#?}");
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// G17, the other way: answered here, withdrawn there.
#[tokio::test]
async fn a_question_that_is_answered_here_is_withdrawn_elsewhere() {
    let script = Script::new([vec![shell("echo x >> made")], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let question = socket.kind("permission_request").await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        client.call("permission/respond", answer.clone()).await;
        let resolved = socket.kind("permission_resolved").await;
        assert_eq!(resolved["id"], question["id"]);
        let (late, _) = socket.call(1, "permission/respond", answer).await;
        assert!(late["error"]["message"].as_str().unwrap().contains("already answered"), "{late}");
        client.reply(asked).await.unwrap();
        world.close().await;
    })
    .await;
}

/// O16: and nothing else reaches past the one session.
#[tokio::test]
async fn nothing_from_elsewhere_reaches_past_the_session_or_widens_its_sandbox() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let other = server.folder("other");
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let (wide, _) =
            socket.call(1, "session/setSandbox", json!({ "sessionId": session, "sandbox": "off" })).await;
        assert!(wide["error"]["message"].as_str().unwrap().contains("restart required"), "{wide}");
        let server_of_tools = json!({ "sessionId": session, "name": "x", "command": "sh", "args": [] });
        for (method, params) in [
            ("session/new", json!({ "cwd": other })),
            ("session/fork", json!({ "sessionId": session })),
            ("session/delete", json!({ "sessionId": session })),
            ("_agent/mcp/add", server_of_tools),
            ("session/message", json!({ "sessionId": "somebody-elses", "message": "go" })),
        ] {
            let (refused, _) = socket.call(2, method, params).await;
            assert!(refused["error"].is_object(), "{method}: {refused}");
        }
        let (new, _) = socket.call(2, "session/new", json!({ "cwd": server.workspace() })).await;
        let why = new["error"]["message"].as_str().unwrap();
        assert!(why.contains("one session") && why.contains("ropewalk bridge"), "{why}");
        let listed = |answer: Value| {
            let sessions = answer["result"]["sessions"].as_array().unwrap_or_else(|| panic!("{answer}"));
            sessions.iter().map(|listed| listed["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(listed(socket.call(2, "session/list", json!({})).await.0), [session.as_str()]);
        let here = json!({ "cwd": server.workspace() });
        assert_eq!(listed(socket.call(2, "session/list", here).await.0), [session.as_str()]);
        assert!(listed(socket.call(2, "session/list", json!({ "cwd": other })).await.0).is_empty());
        let rule = json!({ "sessionId": session, "message": "/permissions add allow shell(*)" });
        let (answered, told) = socket.call(2, "session/message", rule).await;
        let said = format!("{answered}{told:?}");
        assert!(said.contains("only the owner at the machine"), "{said}");
        // A load shows the session, and moves it nowhere.
        let (loaded, _) = socket.call(3, "session/load", json!({ "sessionId": session, "cwd": other })).await;
        assert!(loaded["result"].is_object(), "{loaded}");
        assert_eq!(*server.handle(&session).await.snapshot().cwd, server.workspace());
        world.close().await;
    })
    .await;
}

/// The member that marks a replay is taken out: what is left is the frame as it was.
fn unmarked(frame: &str) -> (String, Option<u64>) {
    let Some((before, after)) = frame.split_once(",\"replay\":true,\"replaySeq\":") else {
        return (frame.to_owned(), None);
    };
    let number = after.strip_suffix("}}").expect("at the end of the parameters");
    (format!("{before}}}}}"), Some(number.parse().unwrap()))
}

/// J11: after a cut the last fifty updates are told again, each marked and otherwise the same in every byte; whoever counts
/// updates has each of them once.
#[tokio::test]
async fn what_was_missed_while_the_socket_was_cut_comes_once() {
    let mut script = vec![vec![say("one")]];
    for number in 0..30 {
        script.push(vec![say(format!("step {number}")), call("list", "{}")]);
    }
    script.push(vec![say("done")]);
    let script = Script::new(script);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let mut local = Local::load(server, &session).await;
        client.message(&session, "first").await;
        let mut here = local.until(is_kind("turn_end")).await;
        let mut there = socket.until(is_kind("turn_end")).await;
        assert_eq!(there, here);
        socket.confirm().await;
        wait_for_nothing_queued(&mut client, &session).await;
        // A brief cut, in which a few are missed.
        receiver.inner.manner.socket.store(503, Ordering::SeqCst);
        drop(socket);
        world.said("bridge: WS closed (code=1006)", 1).await;
        client.call("session/setApproval", json!({ "sessionId": session, "approval": "read-only" })).await;
        here.extend(local.until(is_kind("approval_changed")).await);
        receiver.inner.manner.socket.store(101, Ordering::SeqCst);
        let mut socket = receiver.socket().await;
        let again = socket.until(|frame| frame["params"]["kind"] == "approval_changed").await;
        let (again, numbers): (Vec<_>, Vec<_>) = again.iter().map(|frame| unmarked(frame)).unzip();
        assert_eq!(again, here, "fewer than fifty: all of them");
        assert_eq!(numbers, (1..=here.len() as u64).map(Some).collect::<Vec<_>>());
        there.extend(again.iter().skip(there.len()).cloned());
        // From here on, live again; and cut once more after many.
        client.message(&session, "second").await;
        here.extend(local.until(is_kind("turn_end")).await);
        let live = socket.until(is_kind("turn_end")).await;
        assert!(live.iter().all(|frame| unmarked(frame).1.is_none()), "what is live is not marked");
        there.extend(live);
        assert_eq!(joined(&there), joined(&here));
        assert!(there.len() > 60, "{}", there.len());
        socket.confirm().await;
        wait_for_nothing_queued(&mut client, &session).await;
        drop(socket);
        world.said("bridge: WS closed (code=1006)", 2).await;
        let mut socket = receiver.socket().await;
        let last = there.len() as u64;
        let again = socket.until(|frame| frame["params"]["replaySeq"] == last).await;
        let (again, numbers): (Vec<_>, Vec<_>) = again.iter().map(|frame| unmarked(frame)).unzip();
        assert_eq!(again, there[there.len() - 50..]);
        assert_eq!(numbers, (last - 49..=last).map(Some).collect::<Vec<_>>());
        assert!(!world.lines().iter().any(|line| line.contains("exceeded")), "{:?}", world.lines());
        assert_eq!(receiver.seen("POST /api/sessions", 1).await.len(), 1);
        local.close().await;
        world.close().await;
    })
    .await;
}

/// A request whose turn was under way when the socket was cut is answered on the next one, after its updates, once.
#[tokio::test]
async fn a_request_under_way_at_a_cut_is_answered_after_it() {
    let script = Script::new([vec![shell("echo x >> made")], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": "p-1", "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        receiver.inner.manner.socket.store(503, Ordering::SeqCst);
        drop(socket);
        world.said("bridge: WS closed (code=1006)", 1).await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        client.call("permission/respond", answer).await;
        client.next_of("turn_end").await;
        receiver.inner.manner.socket.store(101, Ordering::SeqCst);
        let mut socket = receiver.socket().await;
        let frames = socket.until(|frame| frame["id"] == "p-1").await;
        let kinds: Vec<Value> = frames
            .iter()
            .map(|frame| serde_json::from_str::<Value>(frame).unwrap()["params"]["kind"].clone())
            .collect();
        assert!(kinds.contains(&json!("turn_end")), "after its updates: {frames:#?}");
        assert!(frames.last().unwrap().contains("end_turn"), "{frames:#?}");
        socket.confirm().await;
        wait_for_nothing_queued(&mut client, &session).await;
        drop(socket);
        let mut socket = receiver.socket().await;
        let (listed, before) = socket.call(9, "session/list", json!({})).await;
        assert!(listed["result"].is_object(), "{listed}");
        assert!(
            !before.iter().any(|frame| frame.contains("p-1")),
            "confirmed, and not sent again: {before:#?}"
        );
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// An answer whose confirmation was cut comes once more, word for word and with the id of its request. What was asked is done
/// once, so a receiver that ignores an answer to nothing open has lost nothing and got nothing twice.
#[tokio::test]
async fn an_answer_that_was_not_confirmed_comes_again_word_for_word_and_is_done_once() {
    let script = Script::new([vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        // The ping that asks for a confirmation comes after the answer, and is not read.
        let (answer, _) = socket.call(1, "session/message", prompt).await;
        drop(socket);
        let mut socket = receiver.socket().await;
        let frames = socket.until(|frame| frame["id"] == 1).await;
        assert_eq!(serde_json::from_str::<Value>(frames.last().unwrap()).unwrap(), answer);
        let id = SessionId::parse(&session).unwrap();
        let events =
            server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await.unwrap();
        let prompts = events.iter().filter(|event| matches!(event.body, Body::UserMessage { .. }));
        assert_eq!(prompts.count(), 1);
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// What is being told when the bridge is ended is told to its end, also to a receiver that reads only then.
#[tokio::test]
async fn a_bridge_that_is_ended_in_the_middle_of_a_batch_tells_it_to_its_end() {
    let pieces: Vec<String> = (0..250).map(|number| format!("{number} {}\n", "x".repeat(48 << 10))).collect();
    let script = Script::new([pieces.iter().map(say).collect::<Vec<_>>()]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        // More than a socket holds that nobody reads.
        client.message(&session, "go").await;
        let (frames, ()) = tokio::join!(socket.until(is_kind("turn_end")), world.close());
        let said: String = frames
            .iter()
            .map(|frame| serde_json::from_str::<Value>(frame).unwrap())
            .filter(|frame| frame["params"]["kind"] == "agent_message_chunk")
            .map(|frame| frame["params"]["text"].as_str().unwrap().to_owned())
            .collect();
        assert!(said == pieces.concat(), "{} bytes of {}", said.len(), pieces.concat().len());
        client.take_updates();
    })
    .await;
}

/// A receiver that has forgotten the session waits for no answer, and may use the number of an old request again.
#[tokio::test]
async fn a_receiver_that_forgot_its_requests_is_not_answered_them() {
    let script = Script::new([vec![shell("echo x >> made")], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        receiver.inner.manner.socket.store(404, Ordering::SeqCst);
        drop(socket);
        receiver.seen("POST /api/sessions", 2).await;
        receiver.inner.manner.socket.store(101, Ordering::SeqCst);
        let mut socket = receiver.socket().await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        let (answered, before) = socket.call(1, "permission/respond", answer).await;
        assert_eq!(answered["result"], json!({ "ok": true }));
        assert!(before.iter().any(|frame| frame.contains("permission_request")), "{before:#?}");
        socket.kind("turn_end").await;
        let (_, before) = socket.call(2, "session/list", json!({})).await;
        assert!(!before.iter().any(|frame| frame.contains("stopReason")), "{before:#?}");
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// A receiver that has forgotten the session and kept the socket waits for what it asked by it.
#[tokio::test]
async fn a_receiver_that_is_registered_at_again_by_a_heartbeat_is_answered_after_a_cut() {
    let script = Script::new([vec![shell("echo x >> made")], vec![say("done")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        receiver.inner.manner.heartbeat.store(404, Ordering::SeqCst);
        receiver.seen("POST /api/sessions", 2).await;
        receiver.inner.manner.heartbeat.store(204, Ordering::SeqCst);
        let beats = format!("POST /api/sessions/{session}/heartbeat");
        let so_far = receiver.seen(&beats, 1).await.len();
        receiver.seen(&beats, so_far + 2).await;
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        drop(socket);
        let mut socket = receiver.socket().await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        client.call("permission/respond", answer).await;
        let frames = socket.until(|frame| frame["id"] == 1).await;
        assert!(frames.last().unwrap().contains("end_turn"), "{frames:#?}");
        assert!(!world.lines().iter().any(|line| line.contains("exceeded")), "{:?}", world.lines());
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// Lines, however many a message has; a frame that does not end with its message is none.
#[tokio::test]
async fn several_frames_in_one_message_are_taken_and_empty_lines_are_none() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let request = |id: u64| {
            let params = json!({ "sessionId": session });
            json!({ "jsonrpc": "2.0", "id": id, "method": "session/bridgeStatus", "params": params })
                .to_string()
        };
        let messages = [
            format!("{}\n{}\n", request(1), request(2)),
            format!("{}\r\n\r\n\n{}", request(3), request(4)),
            format!("\n{}", request(5)),
            "\n".to_owned(),
            String::new(),
            request(6),
        ];
        for message in &messages {
            socket.raw(message).await;
        }
        for id in 1..=6 {
            let frames = socket.until(|frame| frame["id"].is_u64()).await;
            let answer: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
            assert_eq!(
                (&answer["id"], &answer["result"]["connected"]),
                (&json!(id), &json!(true)),
                "{answer}"
            );
        }
        let (head, tail) = (&messages[5][..20], &messages[5][20..]);
        for half in [head, tail] {
            socket.raw(half).await;
            let frames = socket.until(|frame| frame["error"].is_object()).await;
            assert!(frames.last().unwrap().contains("\"id\":null"), "{frames:?}");
        }
        world.close().await;
    })
    .await;
}

/// O15: one name, whether the receiver says hello or not, unless it says who it is.
#[tokio::test]
async fn a_receiver_that_names_nobody_is_called_the_same_throughout() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        let said = json!({ "sessionId": session, "message": "list" });
        for hello in [None, Some(json!({})), Some(json!({ "clientInfo": { "name": " " } }))] {
            if let Some(hello) = hello {
                socket.call(1, "initialize", hello).await;
            }
            socket.call(2, "session/message", said.clone()).await;
            assert_eq!(client.next_of("user_message").await["from"], "remote (bridge)");
        }
        socket.call(1, "initialize", json!({ "clientInfo": { "name": "alice" } })).await;
        drop(socket);
        let mut socket = receiver.socket().await;
        socket.call(2, "session/message", said).await;
        assert_eq!(client.next_of("user_message").await["from"], "alice (bridge)", "also after a cut");
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// A receiver that does not say that it is a hub sees the seed's four endpoints and no other, whatever it answers.
#[tokio::test]
async fn a_receiver_that_is_no_hub_sees_four_endpoints() {
    for upgrade in [101, 400, 404] {
        run(Setup::offline(), async |server| {
            let (_client, session) = opened(server).await;
            let receiver = Receiver::start(Behaviour::plain()).await;
            receiver.inner.manner.socket.store(upgrade, Ordering::SeqCst);
            let only = SessionId::parse(&session).ok();
            let options = BridgeOptions { only, ..BridgeOptions::default() };
            let world = TestBridge::start(server, &receiver.url, options);
            receiver.seen(&format!("GET /ws/{session}"), if upgrade == 101 { 1 } else { 4 }).await;
            receiver.seen(&format!("POST /api/sessions/{session}/heartbeat"), 3).await;
            world.close().await;
            receiver.seen(&format!("DELETE /api/sessions/{session}"), 1).await;
            let known = [
                "POST /api/sessions".to_owned(),
                format!("GET /ws/{session}"),
                format!("POST /api/sessions/{session}/heartbeat"),
                format!("DELETE /api/sessions/{session}"),
            ];
            let others: Vec<_> =
                receiver.all().into_iter().filter(|seen| !known.contains(&seen.what)).collect();
            assert!(others.is_empty(), "{others:?}");
        })
        .await;
    }
}

/// The receiver has confirmed everything.
async fn wait_for_nothing_queued(client: &mut OlderClient, session: &str) {
    let confirmed = async {
        loop {
            let status = client.call("session/bridgeStatus", json!({ "sessionId": session })).await;
            if status["queued"] == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, confirmed).await.expect("the pong arrives");
}

/// Chunks of text that stand side by side are one, however they were cut.
fn joined(frames: &[String]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for frame in frames {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let chunk = |frame: &Value| frame["params"]["kind"] == "agent_message_chunk";
        match all.last_mut() {
            Some(last) if chunk(last) && chunk(&frame) => {
                let text = format!(
                    "{}{}",
                    last["params"]["text"].as_str().unwrap(),
                    frame["params"]["text"].as_str().unwrap()
                );
                last["params"]["text"] = text.into();
            }
            _ => all.push(frame),
        }
    }
    all
}

/// J12, O14, O19.
#[tokio::test]
async fn more_than_the_window_is_said_and_a_load_tells_everything() {
    let script = Script::new([vec![say("one")], vec![say("two"), call("list", "{}")], vec![say("three")]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let options = BridgeOptions { replay_window: 3, ..BridgeOptions::default() };
        let world = TestBridge::start(server, &receiver.url, options);
        let mut socket = receiver.socket().await;
        client.message(&session, "first").await;
        socket.kind("turn_end").await;
        socket.confirm().await;
        wait_for_nothing_queued(&mut client, &session).await;
        // Nobody comes back before all of it was missed.
        receiver.inner.manner.socket.store(503, Ordering::SeqCst);
        drop(socket);
        world.said("bridge: WS closed", 1).await;
        client.message(&session, "second").await;
        receiver.inner.manner.socket.store(101, Ordering::SeqCst);
        let mut socket = receiver.socket().await;
        let notice = socket.kind("notice").await;
        assert!(notice["text"].as_str().unwrap().starts_with("bridge: replay window exceeded"), "{notice}");
        world.said("bridge: replay window exceeded", 1).await;
        socket.kind("turn_end").await;
        let (loaded, history) = socket.call(9, "session/load", json!({ "sessionId": session })).await;
        assert!(loaded["result"].is_object(), "{loaded}");
        let prompts = history.iter().filter(|frame| frame.contains("user_message")).count();
        assert_eq!(prompts, 2, "{history:#?}");
        world.close().await;
    })
    .await;
}

async fn refused(socket: &mut Socket, id: u64, method: &str, params: Value) -> String {
    let (answer, _) = socket.call(id, method, params).await;
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test]
async fn local_only_shows_questions_elsewhere_and_takes_no_answers_from_there() {
    let script = Script::new([vec![shell("echo x >> made")], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let options = BridgeOptions { answers: RemoteAnswers::LocalOnly, ..BridgeOptions::default() };
        let world = TestBridge::start(server, &receiver.url, options);
        let mut socket = receiver.socket().await;
        for (method, params) in [
            ("session/setApproval", json!({ "sessionId": session, "approval": "full" })),
            ("session/message", json!({ "sessionId": session, "message": "/approval full" })),
        ] {
            assert!(refused(&mut socket, 1, method, params).await.contains("local-only"), "{method}");
        }
        let prompt = json!({ "sessionId": session, "message": "go" });
        socket
            .send(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/message", "params": prompt }))
            .await;
        let question = socket.kind("permission_request").await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        let why = refused(&mut socket, 3, "permission/respond", answer.clone()).await;
        assert!(why.contains("local-only"), "{why}");
        client.call("permission/respond", answer).await;
        socket.until(|frame| frame["id"] == 2).await;
        world.close().await;
        client.take_updates();
    })
    .await;
}

#[tokio::test]
async fn an_approver_elsewhere_looks_and_answers_and_does_not_drive() {
    let script = Script::new([vec![shell("echo x >> made")], vec![]]);
    run(Setup::script(&script), async |server| {
        let (mut client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let options = BridgeOptions { answers: RemoteAnswers::Approver, ..BridgeOptions::default() };
        let world = TestBridge::start(server, &receiver.url, options);
        let mut socket = receiver.socket().await;
        for (method, params) in [
            ("session/message", json!({ "sessionId": session, "message": "go" })),
            ("session/setApproval", json!({ "sessionId": session, "approval": "full" })),
            ("session/cancel", json!({ "sessionId": session })),
        ] {
            assert!(refused(&mut socket, 1, method, params).await.contains("not steer"), "{method}");
        }
        let asked = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        let question = socket.kind("permission_request").await;
        let answer = json!({ "sessionId": session, "id": question["id"], "decision": "allow" });
        assert_eq!(socket.call(2, "permission/respond", answer).await.0["result"]["ok"], true);
        client.reply(asked).await.unwrap();
        world.close().await;
        client.take_updates();
    })
    .await;
}

/// O17, by a command: who typed it stands in the log, and a row of our own clients says it loudly.
#[tokio::test]
async fn an_approval_that_is_changed_by_a_command_from_elsewhere_is_a_banner_here() {
    run(Setup::offline(), async |server| {
        let (_client, session) = opened(server).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let mut socket = receiver.socket().await;
        socket.call(1, "session/message", json!({ "sessionId": session, "message": "/approval full" })).await;
        world.said("remote set the approval to full", 1).await;
        let id = SessionId::parse(&session).unwrap();
        let events =
            server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await.unwrap();
        let mut rows = wire::native::fold::Rows::default();
        events.iter().for_each(|event| rows.observe(event));
        let shown = rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect::<String>();
        assert!(shown.contains("over the bridge, remote set the approval to full"), "{shown}");
        world.close().await;
    })
    .await;
}

/// What the engine writes for somebody who is here has no trace of a bridge.
#[tokio::test]
async fn what_is_done_here_carries_no_bridge() {
    run(Setup::offline(), async |server| {
        let (mut client, session) = opened(server).await;
        client.message(&session, "list").await;
        let handle = server.handle(&session).await;
        let by = Sender::new(SurfaceId(1), "editor");
        let answer = Input::Answer { by, ask: engine::AskId(9), answer: PermissionAnswer::AllowOnce };
        assert!(handle.send(answer).await.is_err());
        let id = SessionId::parse(&session).unwrap();
        let events =
            server.registry().read(&Principal::local(), &id, Seq::START, PageRequest::USUAL).await.unwrap();
        let plain =
            |event: &Arc<engine::Event>| !wire::event_json::encode(event).to_string().contains("bridge");
        assert!(events.iter().all(plain));
        client.take_updates();
    })
    .await;
}
