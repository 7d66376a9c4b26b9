//! ferret and otter: permission requests are notifications, answered by a call.

use std::path::Path;

use serde_json::{Value, json};

use super::jsonrpc::{RpcClient, ids, text};
use super::{Client, PendingAsk};

pub struct ChimeraClient {
    talk: RpcClient,
    words: ChimeraShape,
    prompt: u64,
}

/// The differences between the two.
struct ChimeraShape {
    /// Where an update stands in its notification, and where its kind in it.
    update: fn(&Value) -> &Value,
    kind: &'static str,
    ask_name: &'static str,
    join: &'static str,
    /// The parameters of an answer.
    answer: fn(&PendingAsk, bool) -> Value,
}

impl ChimeraClient {
    pub fn ferret(mut talk: RpcClient) -> Self {
        let hello = talk.call("initialize", &json!({ "protocolVersion": "0.2" }));
        assert_eq!(hello["protocolVersion"], "0.2");
        let words = ChimeraShape {
            update: |frame| &frame["params"],
            kind: "kind",
            ask_name: "id",
            join: "session/load",
            answer: |asked, allow| {
                let decision = if allow { "allow" } else { "deny" };
                json!({ "sessionId": asked.session, "id": asked.name, "decision": decision })
            },
        };
        Self { talk, words, prompt: 0 }
    }

    pub fn otter(mut talk: RpcClient) -> Self {
        let hello = talk.call("initialize", &json!({ "protocolVersion": "0.1" }));
        assert_eq!(hello["serverInfo"]["name"], "otter-acp");
        let words = ChimeraShape {
            update: |frame| &frame["params"]["update"],
            kind: "sessionUpdate",
            ask_name: "requestId",
            join: "session/resume",
            answer: |asked, allow| {
                let reply = if allow { "allow" } else { "deny" };
                json!({ "requestId": asked.name, "reply": reply })
            },
        };
        Self { talk, words, prompt: 0 }
    }

    /// Waits for an update of a kind, and of a question if one is meant.
    fn update(&mut self, kind: &str, ask: Option<&Value>) -> PendingAsk {
        let words = &self.words;
        self.talk.received.until(kind, |frame| {
            let update = (words.update)(frame);
            let meant = ask.is_none_or(|ask| update[words.ask_name] == *ask);
            (update[words.kind] == kind && meant).then(|| PendingAsk {
                session: text(&frame["params"]["sessionId"]),
                name: update[words.ask_name].clone(),
                request: update.clone(),
            })
        })
    }
}

impl Client for ChimeraClient {
    fn open(&mut self, folder: &Path) -> String {
        text(&self.talk.call("session/new", &json!({ "cwd": folder }))["sessionId"])
    }

    fn join(&mut self, session: &str, _folder: &Path) {
        self.talk.call(self.words.join, &json!({ "sessionId": session }));
    }

    fn set_approval(&mut self, session: &str, approval: &str) {
        self.talk.call("session/setApproval", &json!({ "sessionId": session, "approval": approval }));
    }

    fn prompt(&mut self, session: Option<&str>, folder: &Path, said: &str) -> String {
        let session = session.map_or_else(|| self.open(folder), str::to_owned);
        let block = json!({ "type": "text", "text": said });
        self.prompt = self.talk.begin("session/prompt", &json!({ "sessionId": session, "prompt": [block] }));
        session
    }

    fn asked(&mut self) -> PendingAsk {
        self.update("permission_request", None)
    }

    fn answer(&mut self, asked: &PendingAsk, allow: bool) -> bool {
        let params = (self.words.answer)(asked, allow);
        let id = self.talk.begin("permission/respond", &params);
        let answer = self.talk.end(id);
        answer["result"]["ok"] == true || answer["result"]["applied"] == true
    }

    fn withdrawn(&mut self, asked: &PendingAsk) {
        self.update("permission_resolved", Some(&asked.name));
    }

    fn hears(&mut self, said: &str) {
        self.talk.received.hears(said);
    }

    fn cancel(&mut self, session: &str) {
        self.talk.notify("session/cancel", &json!({ "sessionId": session }));
    }

    fn stopped(&mut self) -> String {
        let answer = self.talk.end(self.prompt);
        text(&answer["result"]["stopReason"])
    }

    fn list(&mut self) -> Vec<String> {
        ids(&self.talk.call("session/list", &json!({})))
    }
}
