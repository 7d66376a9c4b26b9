//! The REST surface: what happens in a session is a stream of events, everything else a request.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::SyncSender;

use serde_json::{Value, json};

use super::events::{Event, follow};
use super::jsonrpc::text;
use super::{Client, PendingAsk, ReceivedFrames, mailbox};
use crate::doors::web::{Answer, Ask};

pub struct Rest {
    address: SocketAddr,
    sender: SyncSender<Value>,
    received: ReceivedFrames,
    message: Value,
}

impl Rest {
    pub fn open(address: SocketAddr) -> Self {
        let (sender, incoming) = mailbox();
        Self { address, sender, received: ReceivedFrames::new(incoming), message: Value::Null }
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        Ask::post(path, &body.to_string()).send_to(self.address)
    }

    fn follow(&self, session: &str) {
        let sender = self.sender.clone();
        let each = move |event: Event| {
            sender.send(json!({ "event": event.name, "data": event.data })).ok();
        };
        let (status, head) = follow(self.address, &Ask::get(&format!("/session/{session}/events")), each);
        assert_eq!(status, 200, "{head}");
    }
}

impl Client for Rest {
    fn open(&mut self, folder: &Path) -> String {
        let answer = self.post("/session", &json!({ "cwd": folder }));
        assert_eq!(answer.status, 201, "{answer:?}");
        let session = text(&answer.json()["session_id"]);
        self.follow(&session);
        session
    }

    fn join(&mut self, session: &str, _folder: &Path) {
        self.follow(session);
    }

    fn prompt(&mut self, session: Option<&str>, folder: &Path, said: &str) -> String {
        let session = session.map_or_else(|| self.open(folder), str::to_owned);
        let answer = self.post(&format!("/session/{session}/message"), &json!({ "text": said }));
        assert_eq!(answer.status, 202, "{answer:?}");
        self.message = answer.json()["message_id"].clone();
        session
    }

    fn asked(&mut self) -> PendingAsk {
        self.received.until("a question", |frame| {
            (frame["event"] == "permission_request").then(|| PendingAsk {
                session: text(&frame["data"]["session_id"]),
                name: frame["data"]["permission_id"].clone(),
                request: frame["data"].clone(),
            })
        })
    }

    fn answer(&mut self, asked: &PendingAsk, allow: bool) -> bool {
        let body = json!({ "session_id": asked.session, "permission_id": asked.name, "approved": allow });
        self.post("/tool/approve", &body).status == 200
    }

    fn withdrawn(&mut self, asked: &PendingAsk) {
        self.received.until("the question is withdrawn", |frame| {
            let data = &frame["data"]["data"];
            let resolved = data["subtype"] == "permission_resolved" && data["permission_id"] == asked.name;
            resolved.then_some(())
        });
    }

    fn hears(&mut self, said: &str) {
        self.received.hears(said);
    }

    fn cancel(&mut self, session: &str) {
        let answer = self.post(&format!("/session/{session}/cancel"), &json!({}));
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    fn stopped(&mut self) -> String {
        let message = self.message.clone();
        self.received.until("the result", |frame| {
            let data = &frame["data"];
            let ended = frame["event"] == "result" && data["message_id"] == message;
            ended.then(|| match (data["cancelled"].as_bool(), data["success"].as_bool()) {
                (Some(true), _) => "cancelled".to_owned(),
                (_, Some(true)) => "end_turn".to_owned(),
                _ => data.to_string(),
            })
        })
    }

    fn list(&mut self) -> Vec<String> {
        let listed = Ask::get("/session").send_to(self.address).json();
        let sessions = listed["sessions"].as_array().unwrap_or_else(|| panic!("{listed}"));
        sessions.iter().map(|session| text(session.get("session_id").unwrap_or(session))).collect()
    }
}
