//! Bernstein: a prompt opens its own session and is answered at once; a notification reports its end.

use std::path::Path;

use serde_json::{Value, json};

use super::jsonrpc::{RpcClient, text};
use super::{Client, PendingAsk};

pub struct Bernstein {
    talk: RpcClient,
    session: String,
}

impl Bernstein {
    pub fn greet(mut talk: RpcClient) -> Self {
        let hello = talk.call("initialize", &json!({ "protocolVersion": "2025-04-01" }));
        assert_eq!(hello["protocolVersion"], "2025-04-01");
        Self { talk, session: String::new() }
    }

    fn delta(&mut self, kind: &str, also: impl Fn(&Value) -> bool) -> Value {
        let session = &self.session;
        self.talk.received.until(kind, |frame| {
            let (of, delta) = (&frame["params"]["sessionId"], &frame["params"]["delta"]);
            (of == session && delta["type"] == kind && also(delta)).then(|| delta.clone())
        })
    }
}

impl Client for Bernstein {
    fn open(&mut self, _folder: &Path) -> String {
        panic!("a prompt opens its own session")
    }

    fn join(&mut self, _session: &str, _folder: &Path) {
        panic!("a session belongs to the client whose prompt opened it")
    }

    fn set_approval(&mut self, session: &str, approval: &str) {
        let mode = if approval == "full" { "auto" } else { "manual" };
        self.talk.call("setMode", &json!({ "sessionId": session, "mode": mode }));
    }

    fn prompt(&mut self, session: Option<&str>, folder: &Path, said: &str) -> String {
        assert_eq!(session, None);
        let params = json!({ "prompt": said, "cwd": folder, "mode": "manual" });
        self.session = text(&self.talk.call("prompt", &params)["sessionId"]);
        self.session.clone()
    }

    fn asked(&mut self) -> PendingAsk {
        self.talk.received.until("a question", |frame| {
            (frame["method"] == "requestPermission").then(|| PendingAsk {
                session: text(&frame["params"]["sessionId"]),
                name: frame["params"]["promptId"].clone(),
                request: frame["params"].clone(),
            })
        })
    }

    fn answer(&mut self, asked: &PendingAsk, allow: bool) -> bool {
        let decision = if allow { "approved" } else { "rejected" };
        let params = json!({ "sessionId": asked.session, "promptId": asked.name, "decision": decision });
        let id = self.talk.begin("requestPermission", &params);
        self.talk.end(id)["result"]["decision"] == decision
    }

    fn withdrawn(&mut self, asked: &PendingAsk) {
        let name = asked.name.clone();
        self.delta("permission_withdrawn", |delta| delta["promptId"] == name);
    }

    fn hears(&mut self, said: &str) {
        self.talk.received.hears(said);
    }

    fn cancel(&mut self, session: &str) {
        let stopped = self.talk.call("cancel", &json!({ "sessionId": session }));
        assert_eq!(stopped["cancelled"], true);
    }

    fn stopped(&mut self) -> String {
        text(&self.delta("turn_ended", |_| true)["stopReason"])
    }

    fn list(&mut self) -> Vec<String> {
        panic!("sessions are known by the answers to prompts")
    }
}
