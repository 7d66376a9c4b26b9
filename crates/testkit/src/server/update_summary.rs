//! Folds a client's updates into one value, independent of how they were split or merged on the way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Equal for two clients that received the same contents, live or replayed.
#[derive(Debug, Default, PartialEq)]
pub struct UpdateSummary {
    /// Messages and tool calls in the order they first appeared.
    pub order: Vec<String>,
    /// Voice and text of each message.
    pub messages: BTreeMap<String, (String, String)>,
    /// The last word about each field of a tool call.
    pub calls: BTreeMap<String, Map<String, Value>>,
    pub plan: Value,
    pub title: Value,
}

impl UpdateSummary {
    pub fn of<'a>(updates: impl Iterator<Item = &'a Value>) -> Self {
        let mut summary = Self::default();
        for update in updates {
            summary.add(update);
        }
        summary
    }

    /// The texts of one voice, message by message.
    pub fn texts(&self, voice: &str) -> Vec<&str> {
        let said = |id: &String| self.messages.get(id).filter(|(of, _)| of == voice);
        self.order.iter().filter_map(said).map(|(_, text)| text.as_str()).collect()
    }

    fn add(&mut self, update: &Value) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => self.chunk(kind, update),
            "tool_call" | "tool_call_update" => self.call(update),
            "plan" => self.plan = update["entries"].clone(),
            "session_info_update" if !update["title"].is_null() => self.title = update["title"].clone(),
            _ => {}
        }
    }

    fn chunk(&mut self, kind: &str, update: &Value) {
        let id = update["messageId"].as_str().unwrap_or_default().to_owned();
        self.appeared(&id);
        let (voice, text) = self.messages.entry(id).or_default();
        voice.replace_range(.., kind);
        match update["content"]["text"].as_str() {
            Some(more) => text.push_str(more),
            None => text.push_str(&update["content"].to_string()),
        }
    }

    fn call(&mut self, update: &Value) {
        let id = update["toolCallId"].as_str().unwrap_or_default().to_owned();
        self.appeared(&id);
        let call = self.calls.entry(id).or_default();
        for (name, value) in update.as_object().into_iter().flatten() {
            if name != "sessionUpdate" && !value.is_null() {
                call.insert(name.clone(), value.clone());
            }
        }
    }

    fn appeared(&mut self, id: &str) {
        if !self.order.iter().any(|known| known == id) {
            self.order.push(id.to_owned());
        }
    }
}
