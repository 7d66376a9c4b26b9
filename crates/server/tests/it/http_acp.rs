//! The official remote transport: calls by POST, what comes of them on streams that can be taken up again.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::http_client::{HttpClient, HttpResponse, SseEvent, SseEvents};
use testkit::server::{CI, Door, Server, Setup, run};
use testkit::{Script, call, say};

/// A client of the transport, with its connection's stream open.
struct Remote {
    web: HttpClient,
    connection: String,
    events: SseEvents,
    last: u64,
}

impl Remote {
    async fn new(door: &Door) -> Self {
        Self::with(&door.web(), json!({})).await
    }

    async fn with(web: &HttpClient, abilities: Value) -> Self {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": abilities });
        let hello = web.post("/acp", &request(1, "initialize", &params)).await;
        assert_eq!(hello.status, 200);
        assert_eq!(hello.json()["result"]["protocolVersion"], 1);
        let connection = hello.header("acp-connection-id").unwrap().to_owned();
        let web = web.with("acp-connection-id", &connection);
        let events = web.events("/acp").await;
        Self { web, connection, events, last: 1 }
    }

    async fn post(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let reply = self.web.post("/acp", &request(self.last, method, &params)).await;
        assert_eq!((reply.status, reply.text()), (202, String::new()));
        self.last
    }

    /// A call whose answer comes on the connection's stream.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.post(method, params).await;
        self.events.reply(id).await.0
    }

    async fn session(&mut self, server: &Server) -> (String, SseEvents) {
        let new = self.call("session/new", json!({ "cwd": server.workspace(), "mcpServers": [] })).await;
        let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
        let events = self.stream(&session, None).await;
        (session, events)
    }

    async fn stream(&self, session: &str, after: Option<&str>) -> SseEvents {
        let web = self.web.with("acp-session-id", session);
        match after {
            Some(id) => web.with("last-event-id", id).events("/acp").await,
            None => web.events("/acp").await,
        }
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        self.post("session/prompt", params).await
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// What was said in these events, by the agent.
fn said(events: &[SseEvent]) -> String {
    let chunk = |event: &SseEvent| {
        let update = &event.json()["params"]["update"];
        let text = update["sessionUpdate"] == "agent_message_chunk";
        text.then(|| update["content"]["text"].as_str().unwrap_or_default().to_owned())
    };
    events.iter().filter_map(chunk).collect()
}

fn refused(reply: &HttpResponse, status: u16, code: &str) {
    assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(code)), "{}", reply.text());
}

#[tokio::test]
async fn a_prompt_is_answered_on_the_stream_of_its_session_after_its_updates() {
    run(Setup::script(&Script::new([vec![say("one")]])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        let id = remote.prompt(&session, "hello").await;
        let (reply, seen) = events.reply(id).await;
        assert_eq!(reply["result"]["stopReason"], "end_turn");
        assert_eq!(said(&seen), "one");
        assert!(seen.iter().all(|event| event.id.is_some()), "every event has an id");
        drop(events);
        door.close().await;
    })
    .await;
}

/// Zeph's name for `session/set_config_option`, in both spellings, with the session in the parameters or in a header.
#[tokio::test]
async fn session_configure_sets_an_option_however_it_names_the_session() {
    run(Setup::script(&Script::new([])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        for params in [
            json!({ "sessionId": session, "configId": "model", "value": "script:two" }),
            json!({ "session_id": session, "config_id": "model", "value": "script:one" }),
        ] {
            let id = remote.post("session/configure", params.clone()).await;
            let (reply, seen) = events.reply(id).await;
            let is_model = |option: &&Value| option["id"] == "model";
            let options = reply["result"]["configOptions"].as_array().unwrap();
            let model = options.iter().find(is_model).unwrap();
            assert_eq!(model["currentValue"], params["value"], "{reply}");
            let told = seen.iter().map(SseEvent::json).find_map(|frame| {
                let update = &frame["params"]["update"];
                (update["sessionUpdate"] == "config_option_update").then(|| update["configOptions"].clone())
            });
            let told = told.unwrap();
            assert_eq!(
                told.as_array().unwrap().iter().find(is_model),
                Some(model),
                "the update has the change"
            );
        }
        let nameless =
            request(90, "session/configure", &json!({ "config_id": "model", "value": "script:two" }));
        refused(&remote.web.post("/acp", &nameless).await, 400, "bad_session");
        let named = remote.web.with("acp-session-id", &session);
        assert_eq!(named.post("/acp", &nameless).await.status, 202);
        assert!(events.reply(90).await.0["result"]["configOptions"].is_array());
        drop((events, remote));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_prompt_that_is_accepted_is_in_the_log() {
    run(Setup::script(&Script::new([vec![say("one")]])).on_disk(), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        let id = remote.prompt(&session, "hello").await;
        let head = server.handle(&session).await.read(engine::Seq::START).head();
        assert!(head > engine::Seq::START, "accepted before it was written");
        events.reply(id).await;
        drop((events, remote));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_not_of_the_protocol_get_the_status_it_names() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let web = door.web();
        let initialize = request(1, "initialize", &json!({ "protocolVersion": 1 }));
        refused(
            &web.with("content-type", "text/plain").post("/acp", &initialize).await,
            415,
            "unsupported_media_type",
        );
        refused(&web.post("/acp", &request(2, "session/list", &json!({}))).await, 400, "missing_connection");
        let unknown = web.with("acp-connection-id", "6b1f5c8e-0000-8000-8000-000000000000");
        refused(
            &unknown.post("/acp", &request(2, "session/list", &json!({}))).await,
            404,
            "unknown_connection",
        );
        let events = unknown.with("accept", "text/event-stream");
        refused(&events.get("/acp").await, 404, "unknown_connection");
        refused(&unknown.delete("/acp").await, 404, "unknown_connection");
        refused(&unknown.with("accept", "application/json").get("/acp").await, 406, "not_acceptable");

        let batch = web.post("/acp", &json!([initialize])).await;
        assert_eq!((batch.status, &batch.json()["error"]["code"]), (501, &json!(-32600)));
        let bad = web.send("POST", "/acp", Some(b"{bad")).await;
        assert_eq!((bad.status, &bad.json()["error"]["code"]), (400, &json!(-32700)));
        let old = web.post("/acp", &request(1, "initialize", &json!({ "protocolVersion": "1" }))).await;
        assert_eq!((old.status, &old.json()["error"]["code"]), (200, &json!(-32602)));
        assert_eq!(old.header("acp-connection-id"), None);

        let remote = Remote::new(&door).await;
        let prompt = request(5, "session/prompt", &json!({ "prompt": [] }));
        refused(&remote.web.post("/acp", &prompt).await, 400, "bad_session");
        let other = request(5, "session/prompt", &json!({ "sessionId": "a", "prompt": [] }));
        refused(&remote.web.with("acp-session-id", "b").post("/acp", &other).await, 400, "bad_session");
        let again = remote.web.with("accept", "text/event-stream");
        refused(&again.get("/acp").await, 409, "stream_in_use");
        refused(&again.with("last-event-id", "soon").get("/acp").await, 409, "truncated");
        assert_eq!(remote.web.delete("/acp").await.status, 202);
        refused(&remote.web.delete("/acp").await, 404, "unknown_connection");
        refused(&again.get("/acp").await, 404, "unknown_connection");
        drop(remote);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_breaks_is_taken_up_at_any_event_without_gap_or_double() {
    let lines =
        [vec![call("write", r#"{"path":"a.txt","content":"a"}"#)], vec![say("one")], vec![say("two")]];
    run(Setup::script(&Script::new(lines)), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        let first = remote.prompt(&session, "write it").await;
        let (_, mut whole) = events.reply(first).await;
        let second = remote.prompt(&session, "go on").await;
        whole.extend(events.reply(second).await.1);
        drop(events);
        for (index, event) in whole.iter().enumerate() {
            let mut rest = remote.stream(&session, event.id.as_deref()).await;
            let last = whole.last().unwrap();
            let again = if index + 1 == whole.len() {
                Vec::new()
            } else {
                rest.until(|seen| seen.id == last.id).await
            };
            let shown =
                |events: &[SseEvent]| -> Vec<_> { events.iter().map(|event| event.data.clone()).collect() };
            assert_eq!(shown(&again), shown(&whole[index + 1..]), "after {:?}", event.id);
        }
        drop(remote);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_goes_on_after_a_restart_of_the_server_and_gets_the_answer_it_is_owed() {
    run(
        Setup::script(&Script::new([vec![call("shell", r#"{"command":"make"}"#)], vec![say("done")]]))
            .on_disk(),
        async |server| {
            let door = server.door(0).await;
            let port = door.address.port();
            let mut remote = Remote::new(&door).await;
            let (session, mut events) = remote.session(server).await;
            let id = remote.prompt(&session, "make it").await;
            let seen = events.until(|event| event.json()["method"] == "session/request_permission").await;
            let ask = seen.last().unwrap().json()["id"].clone();
            let last = events.last.clone().unwrap();
            drop(events);
            door.close().await;
            server.restart().await;

            let door = server.door(port).await;
            let mut events = remote.stream(&session, Some(&last)).await;
            let (reply, rest) = events.reply(id).await;
            assert_eq!(reply["result"]["stopReason"], "cancelled", "{reply}");
            let withdrawn = |event: &SseEvent| {
                event.json()["method"] == "$/cancel_request" && event.json()["params"]["requestId"] == ask
            };
            assert_eq!(rest.iter().filter(|event| withdrawn(event)).count(), 1);
            let next = remote.prompt(&session, "again").await;
            let (reply, seen) = events.reply(next).await;
            assert_eq!(
                (reply["result"]["stopReason"].as_str(), said(&seen).as_str()),
                (Some("end_turn"), "done")
            );
            drop((events, remote));
            door.close().await;
        },
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_was_lost_on_the_way_comes_again() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let first = remote.call("session/list", json!({})).await;
        let last = remote.events.last.clone().unwrap();
        let id = remote.post("session/list", json!({})).await;
        let lost = remote.events.reply(id).await.0;
        // As if nothing after the first answer had arrived.
        remote.events = remote.web.with("last-event-id", &last).events("/acp").await;
        assert_eq!(remote.events.reply(id).await.0, lost);
        assert_eq!(first["result"], lost["result"]);
        drop(remote);
        door.close().await;
    })
    .await;
}

/// The turn ends while nobody reads the stream, and the client resumes before it reads again: the end of the turn is
/// history by then, and the prompt is still to be answered, once.
#[tokio::test]
async fn a_prompt_whose_turn_ended_before_a_resume_is_answered_all_the_same() {
    run(Setup::script(&Script::new([vec![say("one")], vec![say("two")]])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        let first = remote.prompt(&session, "hello").await;
        events.reply(first).await;
        let last = events.last.clone().unwrap();
        drop(events);
        let second = remote.prompt(&session, "again").await;
        server.idle(&session).await;
        let place = json!({
            "sessionId": session, "cwd": server.workspace(), "mcpServers": [], "_meta": { "acp/cursor": "0" },
        });
        let resumed = remote.call("session/resume", place).await;
        assert!(resumed["result"].is_object(), "{resumed}");
        let mut events = remote.stream(&session, Some(&last)).await;
        let (reply, _) = events.reply(second).await;
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
        drop((events, remote));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_load_tells_the_history_on_the_stream_of_its_session() {
    run(Setup::script(&Script::new([vec![say("one")]])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, mut events) = remote.session(server).await;
        let id = remote.prompt(&session, "hello").await;
        events.reply(id).await;

        let mut other = Remote::new(&door).await;
        let mut events = other.stream(&session, None).await;
        let place = json!({ "sessionId": session, "cwd": server.workspace(), "mcpServers": [] });
        let id = other.post("session/load", place).await;
        let (reply, seen) = events.reply(id).await;
        assert!(reply["result"].is_object(), "{reply}");
        assert_eq!(said(&seen), "one");
        drop((events, other, remote));
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_sessions_and_connections_of_one_client_are_not_there_for_another() {
    run(Setup::script(&Script::new([vec![say("one")]])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let (session, events) = remote.session(server).await;
        let ci = HttpClient::new(door.address, CI);
        let theirs = ci.with("acp-connection-id", &remote.connection).with("accept", "text/event-stream");
        refused(&theirs.get("/acp").await, 404, "unknown_connection");
        let mut other = Remote::with(&ci, json!({})).await;
        let listed = other.call("session/list", json!({})).await;
        assert_eq!(listed["result"]["sessions"], json!([]));
        let id = other.prompt(&session, "mine now").await;
        let (reply, _) = other.events.reply(id).await;
        assert_eq!(reply["error"]["code"], -32002);
        let stream = other.web.with("acp-session-id", &session).with("last-event-id", "0");
        refused(&stream.with("accept", "text/event-stream").get("/acp").await, 404, "session_not_found");
        drop((events, other, remote));
        door.close().await;
    })
    .await;
}

/// A stream that broke before anybody read from it has told nothing.
#[tokio::test]
async fn what_a_broken_first_reader_did_not_read_is_told_to_the_next() {
    run(Setup::script(&Script::new([vec![say("one")]])), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        let new = remote.call("session/new", json!({ "cwd": server.workspace(), "mcpServers": [] })).await;
        let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
        let id = remote.prompt(&session, "hello").await;
        server.idle(&session).await;
        drop(remote.stream(&session, None).await);
        let web = remote.web.with("acp-session-id", &session).with("accept", "text/event-stream");
        let mut answer = web.begin("GET", "/acp", None).await;
        while answer.status == 409 {
            // The server has not heard yet that the first reader is gone.
            answer = web.begin("GET", "/acp", None).await;
        }
        let (reply, seen) = SseEvents::of(answer).reply(id).await;
        assert_eq!((reply["result"]["stopReason"].as_str(), said(&seen).as_str()), (Some("end_turn"), "one"));
        drop(remote);
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn answers_that_are_kept_no_longer_are_not_passed_over_in_silence() {
    run(Setup::offline(), async |server| {
        let door = server.door(0).await;
        let mut remote = Remote::new(&door).await;
        remote.call("session/list", json!({})).await;
        let first = remote.events.last.clone().unwrap();
        for _ in 0..300 {
            remote.call("session/list", json!({})).await;
        }
        let last = remote.events.last.clone().unwrap();
        let web = remote.web.with("accept", "text/event-stream");
        refused(&web.with("last-event-id", &first).get("/acp").await, 409, "truncated");
        drop(web.with("last-event-id", &last).events("/acp").await);
        drop(remote);
        door.close().await;
    })
    .await;
}

/// F1, over the remote transport: asked once, on the session's stream, and not again after a reconnect.
#[tokio::test]
async fn the_files_of_a_remote_editor_are_asked_for_on_the_sessions_stream() {
    let read = || call("read", r#"{"path":"a.txt"}"#);
    let script = Script::new([vec![read()], vec![say("done")], vec![read()], vec![say("over")]]);
    run(Setup::script(&script), async |server| {
        testkit::server::write(server.workspace().join("a.txt"), "disk\n");
        let door = server.door(0).await;
        let mut remote = Remote::with(&door.web(), json!({ "fs": { "readTextFile": true } })).await;
        let (session, mut events) = remote.session(server).await;
        let prompt = remote.prompt(&session, "read it").await;
        let asked = |event: &SseEvent| event.json()["method"] == "fs/read_text_file";
        let seen = events.until(asked).await;
        let (before, ask) = (seen[seen.len() - 2].id.clone().unwrap(), seen.last().unwrap().json());
        assert_eq!(ask["params"]["path"], json!(server.workspace().join("a.txt")));
        // The client loses its stream in the middle and takes it up again before the question.
        drop(events);
        let mut events = remote.stream(&session, Some(&before)).await;
        let answer = json!({ "jsonrpc": "2.0", "id": ask["id"], "result": { "content": "unsaved\n" } });
        assert_eq!(remote.web.post("/acp", &answer).await.status, 202);
        let (reply, seen) = events.reply(prompt).await;
        assert_eq!(reply["result"]["stopReason"], "end_turn");
        assert!(!seen.iter().any(asked), "a call is made once");
        let shown = seen.iter().map(|event| event.json().to_string()).collect::<String>();
        assert!(shown.contains("unsaved"), "{shown}");
        // Nobody reads the stream: nobody is asked, and nothing waits.
        drop(events);
        remote.prompt(&session, "again").await;
        server.idle(&session).await;
        let told = format!("{:?}", script.requests().last().unwrap().messages);
        assert!(told.contains("disk"), "{told}");
        drop(remote);
        door.close().await;
    })
    .await;
}
