//! JSON-RPC calls and responses, shared by all such dialects.

use serde_json::{Value, json};

use super::ReceivedFrames;
use super::carriers::Carrier;

pub struct RpcClient {
    carrier: Box<dyn Carrier>,
    pub received: ReceivedFrames,
    last_id: u64,
}

impl RpcClient {
    pub fn new(mut carrier: Box<dyn Carrier>) -> Self {
        let received = ReceivedFrames::new(carrier.incoming());
        Self { carrier, received, last_id: 0 }
    }

    /// Begins a call; its number finds the answer.
    pub fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.carrier.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        self.carrier.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub fn answer(&mut self, id: &Value, result: &Value) {
        self.carrier.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    /// The whole answer, also if it is an error.
    #[track_caller]
    pub fn end(&mut self, id: u64) -> Value {
        let own = |frame: &Value| frame["id"] == id && frame["method"].is_null();
        self.received.until("an answer", |frame| own(frame).then(|| frame.clone()))
    }

    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.end(id);
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
        answer["result"].clone()
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text, not {value}")).to_owned()
}

/// The ids in a list of sessions.
pub fn ids(listed: &Value) -> Vec<String> {
    listed["sessions"].as_array().unwrap().iter().map(|session| text(&session["sessionId"])).collect()
}
