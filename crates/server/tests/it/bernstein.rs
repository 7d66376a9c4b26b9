//! The Bernstein dialect over one link: what its clients are told, asked and refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::time::Duration;

use engine::{Body, ListQuery, Principal, Resolution, Resolver, Seq, SessionLimits};
use serde_json::{Value, json};
use server::memory::LinkPeer;
use server::{Connection, ConnectionParts};
use testkit::server::{Server, Setup, run};
use testkit::{Line, Script};
use wire::{Dialect, Frame};

/// No wait is longer, also where time passes by itself.
const DEADLINE: Duration = Duration::from_secs(120);

struct Client {
    peer: LinkPeer,
    connection: Connection,
    arrived: VecDeque<Value>,
    seen: Vec<Value>,
    last_id: u64,
}

impl Client {
    fn connect(server: &Server, dialect: Option<Dialect>) -> Self {
        let mut parts: ConnectionParts = server.connection_parts(Principal::local());
        parts.rules.home_dir = server.workspace();
        parts.dialect = dialect.into();
        let (link, peer) = server::memory::pair();
        let connection = Connection::start(parts, link);
        Self { peer, connection, arrived: VecDeque::new(), seen: Vec::new(), last_id: 0 }
    }

    /// A client that has introduced itself.
    async fn greeted(server: &Server) -> Self {
        let mut client = Self::connect(server, None);
        client.call("initialize", json!({ "protocolVersion": "2025-04-01" })).await;
        client.notify("initialized", json!({})).await;
        client
    }

    async fn raw(&mut self, text: impl Into<Vec<u8>>) {
        self.peer.frames.send(Frame::Line(text.into())).await.unwrap();
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.raw(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.raw(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
        id
    }

    /// The next frame, whatever it is.
    async fn next(&mut self) -> Value {
        while self.arrived.is_empty() {
            let batch = tokio::time::timeout(DEADLINE, self.peer.batches.recv()).await;
            let batch = batch.unwrap_or_else(|_| panic!("nothing came after {:#?}", self.seen)).unwrap();
            self.arrived.extend(batch.frames().map(|frame| serde_json::from_slice::<Value>(frame).unwrap()));
        }
        let frame = self.arrived.pop_front().unwrap();
        self.seen.push(frame.clone());
        frame
    }

    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await;
            if wanted(&frame) {
                return frame;
            }
        }
    }

    async fn answer(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.until(|frame| frame["id"] == id).await
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params).await;
        assert_eq!(answer["error"], Value::Null, "{method}");
        answer["result"].clone()
    }

    async fn refused(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.answer(method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method} was not refused: {answer}"))
    }

    /// Opens a session and returns its id.
    async fn prompt(&mut self, text: &str) -> String {
        let opened = self.call("prompt", json!({ "prompt": text })).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    async fn delta(&mut self, kind: &str) -> Value {
        let frame = self.until(|frame| frame["params"]["delta"]["type"] == kind).await;
        assert_eq!(frame["method"], "streamUpdate");
        frame["params"]["delta"].clone()
    }

    async fn asked(&mut self) -> Value {
        self.until(|frame| frame["method"] == "requestPermission").await["params"].clone()
    }

    /// Everything the agent said so far.
    fn said(&self) -> String {
        self.seen.iter().filter_map(|frame| frame["params"]["delta"].as_str()).collect()
    }

    async fn hang_up(self) {
        self.connection.finish().await;
    }
}

/// Runs a test with one client. Its model first wants to make the file `made`, then says so.
async fn check(test: impl AsyncFnOnce(&mut Server, &mut Client)) {
    let touch = || testkit::call("shell", r#"{"command":"echo x >> made"}"#);
    let script = Script::new([vec![touch()], vec![testkit::say("so be it")], vec![touch()], vec![]]);
    check_with(Setup::script(&script), test).await;
}

async fn check_with(setup: Setup, test: impl AsyncFnOnce(&mut Server, &mut Client)) {
    run(setup, async |server| {
        let mut client = Client::greeted(server).await;
        test(server, &mut client).await;
        client.hang_up().await;
    })
    .await;
}

fn made(server: &Server) -> usize {
    std::fs::read_to_string(server.workspace().join("made")).map_or(0, |text| text.lines().count())
}

/// How a question was settled, as the log has it.
async fn settled(server: &Server, session: &str) -> (Resolution, Resolver) {
    let mut reader = server.handle(session).await.read(Seq::START);
    loop {
        let events = reader.next().await.unwrap().unwrap();
        for event in events {
            if let Body::Resolved { resolution, by, .. } = &event.body {
                return (*resolution, by.clone());
            }
        }
    }
}

/// B5, B6: and the `initialized` of [`Client::greeted`] has no answer.
#[tokio::test]
async fn the_handshake_says_what_there_is() {
    run(Setup::offline(), async |server| {
        let mut client = Client::connect(server, None);
        let said = client.call("initialize", json!({ "protocolVersion": "2025-04-01" })).await;
        let capabilities = json!({
            "prompts": true, "streaming": true, "cancellation": true,
            "modes": ["auto", "manual"], "permissions": true,
        });
        for key in ["protocolVersion", "negotiatedProtocolVersion", "clientRequestedVersion"] {
            assert_eq!(said[key], "2025-04-01", "{key}");
        }
        assert_eq!(said["serverInfo"]["name"], "ropewalk");
        assert_eq!(said["serverInfo"]["version"], "1.2.3");
        assert_eq!(said["capabilities"], capabilities);
        assert_eq!((&said["adapters"], &said["sandboxBackends"]), (&json!(["ropewalk"]), &json!([])));
        client.notify("initialized", json!({})).await;
        client.notify("no/such", json!({})).await;
        assert_eq!(client.refused("no/such", json!({})).await, -32601);
        assert_eq!(client.seen.len(), 2, "notifications have no answer: {:?}", client.seen);
        client.hang_up().await;
    })
    .await;
}

/// B5: a number is the official protocol's; a server that speaks only this dialect says what it wants.
#[tokio::test]
async fn a_number_as_version_is_another_protocol() {
    run(Setup::offline(), async |server| {
        let mut client = Client::connect(server, None);
        let said = client.call("initialize", json!({ "protocolVersion": 1 })).await;
        assert_eq!(said["protocolVersion"], 1);
        client.hang_up().await;
        let mut client = Client::connect(server, Some(Dialect::Bernstein));
        assert_eq!(client.refused("initialize", json!({ "protocolVersion": 1 })).await, -32602);
        let said = client.call("initialize", json!({})).await;
        assert_eq!(said["protocolVersion"], "2025-04-01");
        client.hang_up().await;
    })
    .await;
}

/// A10, A12, A13, A17.
#[tokio::test]
async fn what_is_wrong_with_a_frame_has_its_code() {
    check(async |_, client| {
        for (frame, code) in [
            ("{bad", -32700),
            ("[1]", -32600),
            (r#"{"jsonrpc":"1.0","id":7,"method":"prompt"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":"initialized"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":"streamUpdate","params":{}}"#, -32600),
            (r#"{"jsonrpc":"2.0","method":"prompt","params":{"prompt":"hi"}}"#, -32600),
            (r#"{"jsonrpc":"2.0","method":"cancel","params":{"sessionId":"s"}}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":"prompt"}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":7,"method":"prompt","params":["hi"]}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":7,"method":"prompt","params":{"prompt":""}}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":7,"method":"prompt","params":{"prompt":"x","cwd":7}}"#, -32602),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"prompt","params":{"prompt":"x","cwd":"/no/such"}}"#,
                -32602,
            ),
            (r#"{"jsonrpc":"2.0","id":7,"method":"cancel","params":{}}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":7,"method":"setMode","params":{"sessionId":"s"}}"#, -32602),
        ] {
            client.raw(frame).await;
            let answer = client.next().await;
            assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
        }
    })
    .await;
}

/// C26, E29.
#[tokio::test]
async fn a_prompt_opens_a_session_and_its_text_is_streamed() {
    let text: String = (0..200).map(|number| format!("word {number} ")).collect();
    let lines = text.split_inclusive(' ').map(testkit::say).collect();
    let script =
        Script::new([vec![testkit::think("hm"), testkit::say("first "), testkit::say("this")], lines]);
    check_with(Setup::script(&script), async |server, client| {
        let opened = client.call("prompt", json!({ "prompt": "go" })).await;
        let cwd = server.workspace();
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let expected = json!({ "sessionId": session, "mode": "manual", "cwd": cwd, "role": "backend" });
        assert_eq!(opened, expected);
        let ended = client.delta("turn_ended").await;
        assert_eq!(ended["stopReason"], "end_turn");
        assert_eq!(client.said(), "first this");
        assert!(client.seen.iter().any(|frame| frame["params"]["delta"]["type"] == "thought"));
        let updates = client.seen.iter().filter(|frame| frame["method"] == "streamUpdate");
        assert!(updates.clone().all(|frame| frame["params"]["sessionId"] == session));
        let own = updates.filter(|frame| frame["params"]["delta"]["type"] == "user_message").count();
        assert_eq!(own, 0, "what a client says is not repeated to it");

        let sub = server.folder("workspace/sub");
        let params = json!({ "content": "go", "cwd": "sub", "role": "qa", "mode": "auto" });
        let opened = client.call("prompt", params).await;
        let other = opened["sessionId"].clone();
        assert_ne!(other, session);
        assert_eq!(opened, json!({ "sessionId": other, "mode": "auto", "cwd": sub, "role": "qa" }));
        client.seen.clear();
        client.delta("turn_ended").await;
        assert_eq!(client.said(), text);
        assert!(client.seen.iter().all(|frame| frame["params"]["sessionId"] == other));
    })
    .await;
}

/// C27.
#[tokio::test]
async fn a_session_says_that_it_came_from_here() {
    check_with(Setup::offline(), async |server, client| {
        let session = client.prompt("hello").await;
        client.delta("turn_ended").await;
        let all = server.registry().list(ListQuery::all(Principal::local())).await.unwrap();
        let source =
            |listed: &engine::ListedSession| (listed.row.id.to_string(), listed.row.source.to_string());
        assert_eq!(all.iter().map(source).collect::<Vec<_>>(), [(session, "acp".to_owned())]);
    })
    .await;
}

/// G14: manual mode asks, and only an answer that says so allows.
#[tokio::test]
async fn the_client_is_asked_and_its_answer_counts() {
    for (decision, lines) in [("approved", 1), ("rejected", 0)] {
        check(async |server, client| {
            let session = client.prompt("go").await;
            let ask = client.asked().await;
            assert_eq!((&ask["sessionId"], &ask["tool"]), (&json!(session), &json!("shell")));
            assert!(ask["detail"].as_str().unwrap().contains("echo x >> made"), "{ask}");
            let prompt = ask["promptId"].clone();
            let with = |more: Value| {
                let mut params = json!({ "sessionId": session, "promptId": prompt });
                params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                params
            };
            for unclear in [json!({}), json!({ "decision": null }), json!({ "decision": "yes" })] {
                assert_eq!(client.refused("requestPermission", with(unclear)).await, -32602);
            }
            let yes = json!({ "decision": "approved" });
            for unknown in ["1", "nothing", "elsewhere/1"] {
                let mut params = with(yes.clone());
                params["promptId"] = unknown.into();
                assert_eq!(client.refused("requestPermission", params).await, -32002, "{unknown}");
            }
            let mut params = with(yes);
            params["sessionId"] = "nobody".into();
            assert_eq!(client.refused("requestPermission", params).await, -32001);
            assert_eq!(made(server), 0, "nothing so far was a yes");

            let params = with(json!({ "decision": decision }));
            assert_eq!(client.call("requestPermission", params.clone()).await, params);
            client.delta("turn_ended").await;
            assert_eq!(made(server), lines);
            assert_eq!(client.said(), "so be it");
            assert_eq!(client.refused("requestPermission", params).await, -32002, "it was answered");
            let withdrawn = |frame: &Value| frame["params"]["delta"]["type"] == "permission_withdrawn";
            assert!(!client.seen.iter().any(withdrawn), "who answers is not told that it was answered");
        })
        .await;
    }
}

/// G15: nobody answers, so the answer is no, in the client's name.
#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_for_a_minute_is_refused() {
    check(async |server, client| {
        let session = client.prompt("go").await;
        let ask = client.asked().await;
        let before = tokio::time::Instant::now();
        client.delta("turn_ended").await;
        let waited = before.elapsed();
        assert!(waited >= Duration::from_secs(59) && waited < Duration::from_secs(62), "{waited:?}");
        assert_eq!(made(server), 0);
        let (resolution, by) = settled(server, &session).await;
        // Nobody said no.
        assert_eq!((resolution, by), (Resolution::TimedOut, Resolver::Engine));
        let params = json!({ "sessionId": session, "promptId": ask["promptId"], "decision": "approved" });
        assert_eq!(client.refused("requestPermission", params).await, -32002);
    })
    .await;
}

/// G15: also when the client that would have been asked is gone.
#[tokio::test(start_paused = true)]
async fn a_question_of_a_client_that_hung_up_is_refused_too() {
    check(async |server, _| {
        let mut gone = Client::greeted(server).await;
        let session = gone.prompt("go").await;
        gone.asked().await;
        gone.hang_up().await;
        assert_eq!(settled(server, &session).await.0, Resolution::TimedOut);
        server.idle(&session).await;
        assert_eq!(made(server), 0);
    })
    .await;
}

/// G16, H3.
#[tokio::test]
async fn auto_does_not_ask_and_manual_does() {
    check(async |server, client| {
        let params = json!({ "prompt": "go", "mode": "auto" });
        let session = client.call("prompt", params).await["sessionId"].as_str().unwrap().to_owned();
        client.delta("turn_ended").await;
        assert_eq!(made(server), 1);
        assert!(!client.seen.iter().any(|frame| frame["method"] == "requestPermission"));

        for mode in ["manual", "auto"] {
            let params = json!({ "sessionId": session, "mode": mode });
            assert_eq!(client.call("setMode", params.clone()).await, params);
            assert_eq!(
                server.handle(&session).await.snapshot().settings.get("approval") == "full",
                mode == "auto"
            );
        }
        for mode in ["yolo", "full", "AUTO", ""] {
            let params = json!({ "sessionId": session, "mode": mode });
            assert_eq!(client.refused("setMode", params).await, -32003, "{mode:?}");
        }
        let params = json!({ "sessionId": "nobody", "mode": "auto" });
        assert_eq!(client.refused("setMode", params).await, -32001);
        let params = json!({ "sessionId": "../../etc/passwd", "mode": "auto" });
        assert_eq!(client.refused("setMode", params).await, -32001);
    })
    .await;
}

/// I9.
#[tokio::test]
async fn cancel_ends_what_runs_and_the_session_is_gone() {
    let script = Script::new([vec![testkit::say("working"), Line::Hang]]);
    check_with(Setup::script(&script), async |server, client| {
        let session = client.prompt("go").await;
        client.until(|frame| frame["params"]["delta"] == "working").await;
        client.seen.clear();
        let params = json!({ "sessionId": session, "reason": "user_done" });
        let expected = json!({ "sessionId": session, "cancelled": true, "reason": "user_done" });
        assert_eq!(client.call("cancel", params.clone()).await, expected);
        let ended = client.seen.iter().find(|frame| frame["params"]["delta"]["type"] == "turn_ended");
        assert_eq!(ended.unwrap()["params"]["delta"]["stopReason"], "cancelled", "told before the answer");
        assert_eq!(client.refused("cancel", params.clone()).await, -32001);
        let mode = json!({ "sessionId": session, "mode": "auto" });
        assert_eq!(client.refused("setMode", mode).await, -32001);
        assert_eq!(client.refused("cancel", json!({ "sessionId": "nobody" })).await, -32001);
        assert_eq!(server.registry().live_count(), 0);
        // What it did is kept.
        let all = server.registry().list(ListQuery::all(Principal::local())).await.unwrap();
        assert_eq!(all.len(), 1);
    })
    .await;
}

/// However many come at once, each gets a session and is carried out, or is told that there is no room.
#[tokio::test]
async fn prompts_at_once_do_not_push_out_each_others_sessions() {
    let setup =
        Setup { limits: SessionLimits { sessions_max: 2, ..SessionLimits::default() }, ..Setup::offline() };
    check_with(setup, async |server, client| {
        let mut waiting = std::collections::BTreeSet::new();
        for _ in 0..8 {
            waiting.insert(client.send("prompt", json!({ "prompt": "list" })).await);
        }
        let mut opened = 0;
        while !waiting.is_empty() {
            let answer = client.until(|frame| frame["id"].is_number()).await;
            assert!(waiting.remove(&answer["id"].as_u64().unwrap()), "{answer}");
            match answer["error"]["code"].as_i64() {
                None => opened += 1,
                Some(code) => assert_eq!(code, -32603, "{answer}"),
            }
        }
        assert!(opened >= 2);
        // No session was made that nothing was done in.
        let all = server.registry().list(ListQuery::all(Principal::local())).await.unwrap();
        assert_eq!(all.len(), opened);
        for listed in all {
            server.idle(listed.row.id.as_str()).await;
        }
    })
    .await;
}

/// A cancel says why, also if its client does not.
#[tokio::test]
async fn a_cancel_settles_what_is_asked() {
    check(async |server, client| {
        let session = client.prompt("go").await;
        let ask = client.asked().await;
        let stopped = client.call("cancel", json!({ "sessionId": session })).await;
        assert_eq!(stopped["reason"], "client_cancel");
        let withdrawn = json!({
            "type": "permission_withdrawn", "promptId": ask["promptId"], "decision": "cancelled",
        });
        assert!(client.seen.iter().any(|frame| frame["params"]["delta"] == withdrawn), "{:?}", client.seen);
        assert_eq!(made(server), 0);
    })
    .await;
}

/// Another client of the same session in another dialect: both are asked, the first answer counts.
#[tokio::test]
async fn who_answers_first_decides_in_every_dialect() {
    check(async |server, client| {
        let session = client.prompt("go").await;
        let ask = client.asked().await;
        let mut editor = server.client().await;
        editor.load(&session).await;
        let asked = editor.next_ask().await;
        editor.answer(&asked, "allow_once").await;
        let withdrawn = client.delta("permission_withdrawn").await;
        assert_eq!(withdrawn["promptId"], ask["promptId"]);
        assert_eq!(withdrawn["decision"], "approved");
        client.delta("turn_ended").await;
        assert_eq!(made(server), 1);
        let params = json!({ "sessionId": session, "promptId": ask["promptId"], "decision": "rejected" });
        assert_eq!(client.refused("requestPermission", params).await, -32002);
        server.idle(&session).await;
        editor.catch_up(&session).await;
        // What another client says here is told.
        editor.answer_all("reject_once");
        editor.prompt(&session, "once more").await;
        let told = client.delta("user_message").await;
        assert_eq!(told["text"], "once more");
        client.delta("turn_ended").await;
    })
    .await;
}

/// A18.
#[tokio::test]
async fn a_frame_may_have_a_mebibyte_and_a_larger_one_harms_nobody() {
    check_with(Setup::offline(), async |_, client| {
        let long = |bytes: usize| json!({ "prompt": format!("hello {}", "x".repeat(bytes)) });
        client.call("prompt", long(900_000)).await;
        client.delta("turn_ended").await;
        let answer = client.answer("prompt", long(2_000_000)).await;
        assert_eq!(answer["error"]["code"], -32700);
        assert!(answer["error"]["message"].as_str().unwrap().contains("frame exceeds size limit"));
        client.prompt("hello").await;
        client.delta("turn_ended").await;
    })
    .await;
}

/// The other events of a session have their shapes too.
#[tokio::test]
async fn edits_and_tools_are_told_as_objects() {
    let write = testkit::call("write", r#"{"path":"a.txt","text":"one\n"}"#);
    let run = testkit::call("shell", r#"{"command":"echo out"}"#);
    let script = Script::new([vec![write], vec![run], vec![]]);
    check_with(Setup::script(&script), async |_, client| {
        client.call("prompt", json!({ "prompt": "go", "mode": "auto" })).await;
        let started = client.delta("tool_call").await;
        assert_eq!(started["tool"], "write");
        assert_eq!(started["input"]["path"], "a.txt");
        let edit = client.delta("file_edit").await;
        assert_eq!((&edit["before"], &edit["after"]), (&Value::Null, &json!("one\n")));
        assert_eq!(edit["callId"], started["callId"]);
        assert_eq!(client.delta("tool_result").await["status"], "completed");
        client.delta("tool_output").await;
        assert_eq!(client.delta("tool_result").await["exitCode"], 0);
        client.delta("turn_ended").await;
    })
    .await;
}
