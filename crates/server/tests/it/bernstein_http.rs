//! The Bernstein dialect over `POST /acp`: each request stands alone, the sessions do not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{ListQuery, Principal};
use serde_json::{Value, json};
use testkit::http_client::{HttpClient, SseEvent, SseEvents};
use testkit::server::{CI, Door, Server, Setup, run};
use testkit::{Line, Script, say};

async fn check(setup: Setup, test: impl AsyncFnOnce(&mut Server, &Door)) {
    run(setup, async |server| {
        let door = server.door(0).await;
        test(server, &door).await;
        door.close().await;
    })
    .await;
}

fn message(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// Posts a request and gives the answer, which comes as JSON with the status 200.
async fn call(web: &HttpClient, method: &str, params: Value) -> Value {
    let reply = web.post("/acp", &message(method, &params)).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let answer = reply.json();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
    answer
}

/// A prompt whose stream is read: the session and its events after the answer.
struct Told {
    session: String,
    events: SseEvents,
}

impl Told {
    async fn prompt(server: &Server, web: &HttpClient, text: &str) -> Self {
        let params = json!({ "prompt": text, "cwd": server.workspace() });
        let mut events = streamed(web, "prompt", params).await;
        let first = events.next().await.unwrap();
        assert_eq!(first.event.as_deref(), Some("response"));
        let session = first.json()["result"]["sessionId"].as_str().unwrap().to_owned();
        Self { session, events }
    }

    /// Everything up to the delta of this type, all of it about this session.
    async fn until(&mut self, kind: &str) -> Vec<SseEvent> {
        let seen = self.events.until(|event| event.json()["params"]["delta"]["type"] == kind).await;
        self.check(&seen);
        seen
    }

    /// Everything up to the end of the stream.
    async fn rest(&mut self) -> Vec<SseEvent> {
        let mut seen = Vec::new();
        while let Some(event) = self.events.next().await {
            seen.push(event);
        }
        self.check(&seen);
        seen
    }

    fn check(&self, seen: &[SseEvent]) {
        for event in seen {
            assert_eq!(event.event.as_deref(), Some("notification"));
            assert_eq!(event.json()["params"]["sessionId"], self.session);
        }
    }
}

async fn streamed(web: &HttpClient, method: &str, params: Value) -> SseEvents {
    let body = message(method, &params).to_string();
    let web = web.with("accept", "application/json, text/event-stream;q=0.9");
    let answer = web.begin("POST", "/acp", Some(body.as_bytes())).await;
    assert_eq!(answer.status, 200);
    let events = SseEvents::of(answer);
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    events
}

fn said(events: &[SseEvent]) -> String {
    events.iter().filter_map(|event| event.json()["params"]["delta"].as_str().map(str::to_owned)).collect()
}

/// M1, B5, A17.
#[tokio::test]
async fn one_message_has_one_answer() {
    check(Setup::offline(), async |_, door| {
        let web = door.web();
        let hello = call(&web, "initialize", json!({ "protocolVersion": "2025-04-01" })).await;
        assert_eq!(hello["result"]["negotiatedProtocolVersion"], "2025-04-01");
        let silent = json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} });
        for web in [&web, &web.with("accept", "text/event-stream")] {
            let reply = web.post("/acp", &silent).await;
            assert_eq!((reply.status, reply.text()), (202, String::new()));
        }
        for (body, code) in [
            (r#"{"jsonrpc":"1.0","id":7,"method":"prompt"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":"initialized"}"#, -32600),
            (r#"{"jsonrpc":"2.0","method":"prompt","params":{"prompt":"hi"}}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":"prompt","params":{}}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":7,"method":"cancel","params":{"sessionId":"nobody"}}"#, -32001),
        ] {
            let reply = web.send("POST", "/acp", Some(body.as_bytes())).await;
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (200, &json!(code)), "{body}");
        }
    })
    .await;
}

/// M1, C26, C27, H3, I9: the session works on after the answer, and later requests name it.
#[tokio::test]
async fn a_session_outlives_the_request_that_opened_it() {
    let script = Script::new([vec![say("done")], vec![say("working"), Line::Hang]]);
    check(Setup::script(&script), async |server, door| {
        let web = door.web();
        let params = json!({ "prompt": "go", "cwd": server.workspace() });
        let opened = call(&web, "prompt", params.clone()).await["result"].clone();
        let session = opened["sessionId"].as_str().unwrap();
        let expected =
            json!({ "sessionId": session, "mode": "manual", "cwd": server.workspace(), "role": "backend" });
        assert_eq!(opened, expected);
        server.idle(session).await;
        let all = server.registry().list(ListQuery::all(Principal::local())).await.unwrap();
        assert_eq!(all.iter().map(|listed| &*listed.row.source).collect::<Vec<_>>(), ["acp"]);
        let mode = call(&web, "setMode", json!({ "sessionId": session, "mode": "auto" })).await;
        assert_eq!(mode["result"], json!({ "sessionId": session, "mode": "auto" }));
        let bad = call(&web, "setMode", json!({ "sessionId": session, "mode": "yolo" })).await;
        assert_eq!(bad["error"]["code"], -32003);

        let opened = call(&web, "prompt", params).await["result"].clone();
        let cancel = json!({ "sessionId": opened["sessionId"], "reason": "enough" });
        let stopped = call(&web, "cancel", cancel.clone()).await["result"].clone();
        assert_eq!((&stopped["cancelled"], &stopped["reason"]), (&json!(true), &json!("enough")));
        assert_eq!(call(&web, "cancel", cancel).await["error"]["code"], -32001);
    })
    .await;
}

/// M2, E29.
#[tokio::test]
async fn a_stream_tells_the_answer_then_what_happens_until_the_session_is_cancelled() {
    let script = Script::new([vec![say("one "), say("two")]]);
    check(Setup::script(&script), async |server, door| {
        let web = door.web();
        let mut told = Told::prompt(server, &web, "go").await;
        let seen = told.until("turn_ended").await;
        assert_eq!(said(&seen), "one two");
        let cancel = json!({ "sessionId": told.session });
        assert_eq!(call(&web, "cancel", cancel).await["result"]["cancelled"], true);
        told.rest().await;
    })
    .await;
}

/// M2: what is left when the session ends is told before the stream ends.
#[tokio::test]
async fn a_stream_ends_with_the_last_word_of_its_session() {
    let script = Script::new([vec![say("working"), Line::Hang]]);
    check(Setup::script(&script), async |server, door| {
        let mut told = Told::prompt(server, &door.web(), "go").await;
        told.events.until(|event| event.json()["params"]["delta"] == "working").await;
        let mut editor = server.client().await;
        editor.call("session/close", json!({ "sessionId": told.session })).await;
        let rest = told.rest().await;
        let ended = rest.iter().map(|event| event.json()["params"]["delta"].clone());
        let ended: Vec<_> = ended.filter(|delta| delta["type"] == "turn_ended").collect();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended.first().unwrap()["stopReason"], "cancelled");
    })
    .await;
}

/// M2: what opens no session has nothing to tell after its answer.
#[tokio::test]
async fn a_stream_without_a_session_ends_after_the_answer() {
    check(Setup::offline(), async |_, door| {
        for (method, params) in [
            ("initialize", json!({ "protocolVersion": "2025-04-01" })),
            ("cancel", json!({ "sessionId": "nobody" })),
            ("prompt", json!({})),
        ] {
            let mut events = streamed(&door.web(), method, params).await;
            let only = events.next().await.unwrap();
            assert_eq!((only.event.as_deref(), &only.json()["id"]), (Some("response"), &json!(7)));
            assert_eq!(events.next().await, None, "{method}");
        }
    })
    .await;
}

/// M2: each of two callers gets what is theirs, and cannot name what is not.
#[tokio::test]
async fn two_callers_each_get_only_theirs() {
    let script = Script::new([vec![say("same")], vec![say("same")]]);
    check(Setup::script(&script), async |server, door| {
        let (owner, ci) = (door.web(), HttpClient::new(door.address, CI));
        let mut first = Told::prompt(server, &owner, "go").await;
        let mut second = Told::prompt(server, &ci, "go").await;
        // That everything is about the own session is looked at by `until` and `rest`.
        assert_eq!(said(&first.until("turn_ended").await), "same");
        assert_eq!(said(&second.until("turn_ended").await), "same");
        for (web, session) in [(&owner, &second.session), (&ci, &first.session)] {
            let foreign = json!({ "sessionId": session });
            assert_eq!(call(web, "cancel", foreign).await["error"]["code"], -32001);
        }
        for (web, told) in [(&owner, &mut first), (&ci, &mut second)] {
            call(web, "cancel", json!({ "sessionId": told.session })).await;
            told.rest().await;
        }
    })
    .await;
}

/// G14: asked on the stream, answered by a request of its own.
#[tokio::test]
async fn a_question_on_the_stream_is_answered_by_another_request() {
    let touch = testkit::call("shell", r#"{"command":"echo x >> made"}"#);
    let script = Script::new([vec![touch], vec![]]);
    check(Setup::script(&script), async |server, door| {
        let web = door.web();
        let mut told = Told::prompt(server, &web, "go").await;
        let seen = told.events.until(|event| event.json()["method"] == "requestPermission").await;
        let ask = seen.last().unwrap().json()["params"].clone();
        let mut params = json!({ "sessionId": told.session, "promptId": ask["promptId"] });
        assert_eq!(call(&web, "requestPermission", params.clone()).await["error"]["code"], -32602);
        params["decision"] = "approved".into();
        let ci = HttpClient::new(door.address, CI);
        assert_eq!(call(&ci, "requestPermission", params.clone()).await["error"]["code"], -32001);
        assert_eq!(call(&web, "requestPermission", params.clone()).await["result"], params);
        told.until("turn_ended").await;
        assert_eq!(std::fs::read_to_string(server.workspace().join("made")).unwrap(), "x\n");
    })
    .await;
}

/// A18.
#[tokio::test]
async fn a_message_that_is_too_long_is_answered_and_the_next_one_is_served() {
    check(Setup::offline(), async |server, door| {
        let web = door.web();
        let prompt = |bytes: usize| {
            json!({ "prompt": format!("hello {}", "x".repeat(bytes)), "cwd": server.workspace() })
        };
        let reply = web.post("/acp", &message("prompt", &prompt(2_000_000))).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (200, &json!(-32700)));
        assert!(reply.text().contains("frame exceeds size limit"));
        let opened = call(&web, "prompt", prompt(900_000)).await["result"].clone();
        server.idle(opened["sessionId"].as_str().unwrap()).await;
    })
    .await;
}

/// Whoever stops reading ends the stream and nothing else.
#[tokio::test]
async fn a_session_goes_on_without_the_reader_of_its_stream() {
    let script = Script::new([vec![testkit::call("list", r#"{"path":"."}"#)], vec![say("all done")]]);
    check(Setup::script(&script), async |server, door| {
        let told = Told::prompt(server, &door.web(), "go").await;
        let session = told.session.clone();
        drop(told);
        server.idle(&session).await;
        let mut editor = server.client().await;
        editor.load(&session).await;
        assert_eq!(editor.said(), "all done");
    })
    .await;
}
