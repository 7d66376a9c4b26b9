//! The official protocol: permission requests are JSON-RPC requests to the client.

use std::path::Path;

use serde_json::{Value, json};

use super::jsonrpc::{RpcClient, ids, text};
use super::{Client, PendingAsk};

pub struct Official {
    talk: RpcClient,
    prompt: u64,
}

impl Official {
    pub fn greet(mut talk: RpcClient) -> Self {
        let hello = talk.call("initialize", &json!({ "protocolVersion": 1 }));
        assert_eq!(hello["protocolVersion"], 1);
        Self { talk, prompt: 0 }
    }
}

impl Client for Official {
    fn open(&mut self, folder: &Path) -> String {
        text(&self.talk.call("session/new", &json!({ "cwd": folder, "mcpServers": [] }))["sessionId"])
    }

    fn join(&mut self, session: &str, folder: &Path) {
        let params = json!({ "sessionId": session, "cwd": folder, "mcpServers": [] });
        self.talk.call("session/load", &params);
    }

    fn set_approval(&mut self, session: &str, approval: &str) {
        let params = json!({ "sessionId": session, "configId": "approval", "value": approval });
        self.talk.call("session/set_config_option", &params);
    }

    fn close(&mut self, session: &str) {
        self.talk.call("session/close", &json!({ "sessionId": session }));
    }

    fn prompt(&mut self, session: Option<&str>, folder: &Path, said: &str) -> String {
        let session = session.map_or_else(|| self.open(folder), str::to_owned);
        let block = json!({ "type": "text", "text": said });
        self.prompt = self.talk.begin("session/prompt", &json!({ "sessionId": session, "prompt": [block] }));
        session
    }

    fn asked(&mut self) -> PendingAsk {
        self.talk.received.until("a question", |frame| {
            (frame["method"] == "session/request_permission").then(|| PendingAsk {
                session: text(&frame["params"]["sessionId"]),
                name: frame["id"].clone(),
                request: frame["params"].clone(),
            })
        })
    }

    /// There is no answer to an answer: that it decided is seen in what follows.
    fn answer(&mut self, asked: &PendingAsk, allow: bool) -> bool {
        let kind = if allow { "allow_once" } else { "reject_once" };
        let options = asked.request["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind).unwrap();
        let outcome = json!({ "outcome": "selected", "optionId": option["optionId"] });
        self.talk.answer(&asked.name, &json!({ "outcome": outcome }));
        true
    }

    fn withdrawn(&mut self, asked: &PendingAsk) {
        self.talk.received.until("the question is withdrawn", |frame: &Value| {
            let ours = frame["params"]["requestId"] == asked.name;
            (ours && frame["method"] == "$/cancel_request").then_some(())
        });
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
