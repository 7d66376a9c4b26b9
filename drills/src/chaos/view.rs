//! The state of a session as a client sees it: all received updates, folded.
//!
//! The log is folded into the same shape. A client has missed or seen something twice exactly if the
//! two differ.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

#[derive(Debug, Default, Clone, PartialEq)]
pub struct View {
    /// By kind and id.
    pub messages: BTreeMap<String, String>,
    pub users: BTreeMap<String, String>,
    pub tools: BTreeMap<String, Map<String, Value>>,
    pub plan: Value,
    pub mode: Value,
    /// The options with the values they have.
    pub config: BTreeMap<String, Value>,
    pub model: Value,
    pub title: Value,
    pub usage: Value,
    /// Questions by their place among the session's, and how often each was withdrawn.
    pub asks: BTreeMap<u64, u32>,
    pub answers: BTreeMap<String, Vec<Value>>,
}

impl View {
    /// One message of the official protocol, as it came.
    pub fn take(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("session/update") => self.update(&message["params"]["update"]),
            Some("session/request_permission") => {
                if let Some(ask) = ask_number(&message["id"]) {
                    self.asks.entry(ask).or_default();
                }
            }
            Some("$/cancel_request") => {
                if let Some(ask) = ask_number(&message["params"]["requestId"]) {
                    *self.asks.entry(ask).or_default() += 1;
                }
            }
            Some(_) => {}
            None => self.answer(message),
        }
    }

    fn answer(&mut self, message: &Value) {
        let mode = &message["result"]["modes"]["currentModeId"];
        if !mode.is_null() {
            self.mode = mode.clone();
        }
        if !message["result"]["configOptions"].is_null() {
            self.configure(&message["result"]["configOptions"]);
            // An update tells the model beside the options; an answer has it among them.
            self.model = self.config.get("model").cloned().unwrap_or_default();
        }
        self.answers.entry(message["id"].to_string()).or_default().push(message.clone());
    }

    fn configure(&mut self, options: &Value) {
        for option in options.as_array().into_iter().flatten() {
            // Zeph's transport calls the approval by zeph's name.
            let id = match option["id"].as_str().unwrap_or("none") {
                "auto_approve" => "approval",
                id => id,
            };
            self.config.insert(id.to_owned(), option["currentValue"].clone());
        }
    }

    fn update(&mut self, update: &Value) {
        let text = || update["content"]["text"].as_str().unwrap_or_default();
        let id = || update["messageId"].as_str().unwrap_or("none").to_owned();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.say("text", &id(), text()),
            Some("agent_thought_chunk") => self.say("thought", &id(), text()),
            Some("user_message_chunk") => self.users.entry(id()).or_default().push_str(text()),
            Some("tool_call" | "tool_call_update") => {
                let call = update["toolCallId"].as_str().unwrap_or("none").to_owned();
                let tool = self.tools.entry(call).or_default();
                let fields = update.as_object().into_iter().flatten();
                for (name, value) in
                    fields.filter(|(name, _)| !["sessionUpdate", "_meta"].contains(&name.as_str()))
                {
                    tool.insert(name.clone(), value.clone());
                }
            }
            Some("plan") => self.plan = update["entries"].clone(),
            Some("current_mode_update") => self.mode = update["currentModeId"].clone(),
            Some("config_option_update") => self.configure(&update["configOptions"]),
            Some("session_info_update") if !update["_meta"]["currentModel"].is_null() => {
                self.model = update["_meta"]["currentModel"].clone();
            }
            Some("session_info_update") if !update["title"].is_null() => self.title = update["title"].clone(),
            Some("usage_update") => self.usage = serde_json::json!([update["used"], update["size"]]),
            _ => {}
        }
    }

    fn say(&mut self, kind: &str, id: &str, text: &str) {
        self.messages.entry(format!("{kind} {id}")).or_default().push_str(text);
    }

    /// The events of an export.
    pub fn of_log(events: &[Value]) -> anyhow::Result<Self> {
        let mut view = Self { mode: "code".into(), model: "offline:plain".into(), ..Self::default() };
        for event in events {
            view.event(event)?;
        }
        Ok(view)
    }

    fn event(&mut self, event: &Value) -> anyhow::Result<()> {
        let payload = &event["payload"];
        let text = || payload["text"].as_str().unwrap_or_default();
        let kind = event["event_type"].as_str().context("an event without a type")?;
        match kind {
            "text" | "thought" => self.say(kind, &format!("m{}", payload["message"]), text()),
            // A client that does not know notices is shown them as thoughts.
            "notice" => self.say("thought", &format!("n{}", event["seq"]), text()),
            "user_message" => {
                let blocks = payload["content"].as_array().into_iter().flatten();
                let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
                self.users.insert(format!("u{}", event["turn"]), text);
            }
            "tool_started" => {
                let fields = Map::from_iter([("title".to_owned(), payload["title"].clone())]);
                self.tools.insert(call_of(payload)?, fields);
            }
            "tool_ended" => {
                let status = if payload["failed"] == true { "failed" } else { "completed" };
                self.tools.entry(call_of(payload)?).or_default().insert("status".to_owned(), status.into());
            }
            "plan" => self.plan = payload["entries"].clone(),
            "setting_changed" => {
                let id = payload["id"].as_str().unwrap_or("none");
                self.config.insert(id.to_owned(), payload["value"].clone());
                match id {
                    "mode" => self.mode = payload["value"].clone(),
                    "model" => self.model = payload["value"].clone(),
                    _ => {}
                }
            }
            "title" => self.title = payload["text"].clone(),
            "usage" => {
                self.usage = serde_json::json!([payload["context_used"], payload["context_size"]]);
            }
            "asked" => {
                let ask = payload["ask"].as_u64().context("a question without a number")?;
                self.asks.insert(ask, 0);
            }
            _ => {}
        }
        Ok(())
    }

    /// Only what the log says in the same words.
    pub fn as_logged(&self) -> Self {
        let mut view = self.clone();
        for tool in view.tools.values_mut() {
            tool.retain(|name, _| name == "title" || name == "status");
        }
        // The log says only what was changed.
        view.config.clear();
        view.answers.clear();
        view.asks.clear();
        view
    }

    /// Without what is shown only to some clients: what they said themselves, and what they were asked.
    pub fn without_own(&self) -> Self {
        Self { users: BTreeMap::new(), asks: BTreeMap::new(), answers: BTreeMap::new(), ..self.clone() }
    }

    /// The first place where two views differ.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let texts =
            [("message", &self.messages, &other.messages), ("user message", &self.users, &other.users)];
        for (what, ours, theirs) in texts {
            for id in ours.keys().chain(theirs.keys()) {
                let (one, two) = (ours.get(id), theirs.get(id));
                if one != two {
                    return Some(format!("{what} {id:?}: {}", texts_differ(one, two)));
                }
            }
        }
        for id in self.tools.keys().chain(other.tools.keys()) {
            let (one, two) = (self.tools.get(id), other.tools.get(id));
            if one != two {
                return Some(format!("tool call {id}:\n  {one:?}\n  {two:?}"));
            }
        }
        let values = [
            ("plan", &self.plan, &other.plan),
            ("mode", &self.mode, &other.mode),
            ("model", &self.model, &other.model),
            ("title", &self.title, &other.title),
            ("usage", &self.usage, &other.usage),
        ];
        for (what, one, two) in values {
            if one != two {
                return Some(format!("{what}:\n  {one}\n  {two}"));
            }
        }
        if self.config != other.config {
            return Some(format!("options:\n  {:?}\n  {:?}", self.config, other.config));
        }
        (self.asks != other.asks).then(|| format!("questions:\n  {:?}\n  {:?}", self.asks, other.asks))
    }
}

/// Requests of a client that can come back are named after the session and the question.
fn ask_number(id: &Value) -> Option<u64> {
    id.as_str()?.rsplit_once('/')?.1.parse().ok()
}

fn call_of(payload: &Value) -> anyhow::Result<String> {
    match payload["call"].as_str() {
        Some(call) => Ok(call.to_owned()),
        None => bail!("a tool event without a call: {payload}"),
    }
}

/// Both texts around the first character that differs.
fn texts_differ(one: Option<&String>, two: Option<&String>) -> String {
    let (Some(one), Some(two)) = (one, two) else {
        let shown = |text: Option<&String>| text.map_or("nothing".to_owned(), |text| format!("{text:?}"));
        return format!("\n  {}\n  {}", shown(one), shown(two));
    };
    let at = one.chars().zip(two.chars()).take_while(|(one, two)| one == two).count();
    let around = |text: &str| text.chars().skip(at.saturating_sub(40)).take(120).collect::<String>();
    format!("from character {at} on\n  {:?}\n  {:?}", around(one), around(two))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::View;

    fn chunk(text: &str) -> serde_json::Value {
        let update = json!({
            "sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": text},
        });
        json!({"method": "session/update", "params": {"update": update}})
    }

    fn check(told: &[&str], expected: bool) {
        let said = |text: &str| json!({"event_type": "text", "payload": {"message": 1, "text": text}});
        let log = View::of_log(&[said("one "), said("two "), said("three")]).unwrap();
        let mut view = View { mode: "code".into(), model: "offline:plain".into(), ..View::default() };
        told.iter().for_each(|text| view.take(&chunk(text)));
        assert_eq!(view.as_logged().difference(&log.as_logged()).is_none(), expected, "{told:?}");
    }

    #[test]
    fn a_gap_a_double_and_a_wrong_order_are_seen() {
        check(&["one ", "two three"], true);
        check(&["one ", "three"], false);
        check(&["one ", "two ", "two ", "three"], false);
        check(&["two ", "one ", "three"], false);
        check(&[], false);
    }
}
