//! Converts the output of zeph's `_session/export` into our events, so that `_session/import` accepts it
//! unchanged.
//!
//! Zeph stores updates as text, without times and without turns. So a user message begins a turn and the
//! next user message ends it; adjacent chunks are one message. Updates that zeph itself does not replay are
//! left out, and a notice says how many.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Body, CallId, Content, Event, Location, MessageId, NoticeLevel, Opaque, Origin, Seq, Stop, SurfaceId,
    ToolContent, ToolEnd, ToolStart, TurnId,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::tool_calls::tool_kind;
use crate::event_json::LAST_AT;

const TITLE_CHARS_MAX: usize = 120;

/// Our own export has an object as payload, so the two cannot be confused.
#[derive(Deserialize)]
struct ExportedUpdate {
    event_type: String,
    payload: String,
}

#[derive(Default)]
struct ZephImport {
    events: Vec<Event>,
    /// The running turn.
    turn: Option<TurnId>,
    turns: u64,
    /// Content of the user's message, until something else follows.
    said: Vec<Content>,
    message: u64,
    /// Whether the last chunk was a thought.
    thinking: Option<bool>,
    calls: BTreeSet<Arc<str>>,
    left_out: usize,
}

/// The events, if all of these are zeph's.
pub(super) fn read(raws: &[Box<RawValue>]) -> Option<Vec<Event>> {
    let exported: Option<Vec<ExportedUpdate>> =
        raws.iter().map(|raw| serde_json::from_str(raw.get()).ok()).collect();
    let exported = exported.filter(|exported| !exported.is_empty())?;
    let mut reading = ZephImport::default();
    for ExportedUpdate { event_type, payload } in exported {
        reading.add(&event_type, payload);
    }
    Some(reading.finish())
}

impl ZephImport {
    fn add(&mut self, kind: &str, payload: String) {
        if kind == "user_message" {
            if self.said.is_empty() {
                self.end_turn();
            }
            return self.said.push(Content::text(payload));
        }
        match (kind, kind.starts_with("tool_call").then(|| serde_json::from_str::<Value>(&payload))) {
            ("agent_message", _) => self.say(payload, false),
            ("agent_thought", _) => self.say(payload, true),
            ("tool_call" | "tool_call_update", Some(Ok(call))) => self.call(&call),
            _ => self.left_out += 1,
        }
    }

    fn say(&mut self, text: String, thought: bool) {
        self.begin_turn();
        if self.thinking.replace(thought) != Some(thought) {
            self.message += 1;
        }
        let (message, text) = (MessageId(self.message), text.into());
        self.push(match thought {
            true => Body::Thought { message, text },
            false => Body::Text { message, text },
        });
    }

    fn call(&mut self, call: &Value) {
        let Some(id) = call["toolCallId"].as_str().filter(|id| !id.is_empty()) else {
            self.left_out += 1;
            return;
        };
        self.begin_turn();
        self.thinking = None;
        let id: Arc<str> = id.into();
        if self.calls.insert(Arc::clone(&id)) {
            self.push(Body::ToolStarted(Box::new(start(&id, call))));
        }
        if matches!(call["status"].as_str(), Some("completed" | "failed")) {
            self.calls.remove(&id);
            self.push(Body::ToolEnded(Box::new(end(&id, call))));
        }
    }

    fn begin_turn(&mut self) {
        if self.turn.is_some() && self.said.is_empty() {
            return;
        }
        self.turns += 1;
        self.turn = Some(TurnId(self.turns));
        self.push(Body::TurnStarted);
        let content = std::mem::take(&mut self.said);
        if !content.is_empty() {
            self.push(Body::UserMessage { content });
        }
    }

    /// Calls without an end get an unknown result, so that the session has no open calls.
    fn end_turn(&mut self) {
        self.thinking = None;
        if self.turn.is_none() {
            return;
        }
        for id in std::mem::take(&mut self.calls) {
            self.push(Body::ToolEnded(Box::new(end(&id, &Value::Null))));
        }
        self.push(Body::TurnEnded { stop: Stop::EndTurn, error: None });
        self.turn = None;
    }

    fn finish(mut self) -> Vec<Event> {
        if !self.said.is_empty() {
            self.begin_turn();
        }
        self.end_turn();
        if self.left_out > 0 {
            let text = format!(
                "{} events of zeph's export are not shown, because their kinds are not supported",
                self.left_out
            );
            self.push(Body::Notice { level: NoticeLevel::Warning, text: text.into() });
        }
        self.events
    }

    fn push(&mut self, body: Body) {
        let person = matches!(body, Body::TurnStarted | Body::UserMessage { .. });
        let origin = match person {
            true => Origin::Surface { id: SurfaceId(0), name: "zeph".into(), request: None, remote: None },
            false => Origin::Agent,
        };
        let turn = self.turn;
        // Zeph stores no times. The importer replaces times later than its own clock.
        self.events.push(Event { seq: Seq::START, at: LAST_AT, origin, turn, body, relayed: None });
    }
}

fn start(id: &Arc<str>, call: &Value) -> ToolStart {
    let title = call["title"].as_str().unwrap_or("tool");
    let input = if call["rawInput"].is_null() { "{}".to_owned() } else { call["rawInput"].to_string() };
    ToolStart {
        call: CallId(Arc::clone(id)),
        tool: call["kind"].as_str().unwrap_or("tool").into(),
        title: title.chars().take(TITLE_CHARS_MAX).collect::<String>().into(),
        kind: tool_kind(call["kind"].as_str().unwrap_or_default()),
        locations: locations(call),
        input: Opaque(input.into()),
        client_terminal: None,
    }
}

fn end(id: &Arc<str>, call: &Value) -> ToolEnd {
    let text = |piece: &Value| {
        let text = piece["content"]["text"].as_str().or_else(|| piece["newText"].as_str());
        text.map(|text| ToolContent::Block(Content::text(text)))
    };
    ToolEnd {
        plain_text: false,
        call: CallId(Arc::clone(id)),
        failed: call["status"].as_str() == Some("failed"),
        content: call["content"].as_array().into_iter().flatten().filter_map(text).collect(),
        locations: locations(call),
        raw: None,
        exit: None,
        elapsed_ms: 0,
    }
}

fn locations(call: &Value) -> Vec<Location> {
    let place = |place: &Value| {
        let line = place["line"].as_u64().and_then(|line| line.try_into().ok());
        Some(Location { path: PathBuf::from(place["path"].as_str()?), line })
    };
    call["locations"].as_array().into_iter().flatten().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn events(list: &Value) -> Option<Vec<Event>> {
        let raws: Vec<Box<RawValue>> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|raw| serde_json::value::to_raw_value(raw).unwrap())
            .collect();
        read(&raws)
    }

    #[test]
    fn pieces_become_turns_with_messages_and_calls() {
        let call = json!({ "toolCallId": "c", "title": "bash", "kind": "execute", "status": "in_progress", "rawInput": { "command": "ls" } });
        let done = json!({ "toolCallId": "c", "status": "completed", "content": [{ "type": "content", "content": { "type": "text", "text": "a.txt" } }] });
        let list = json!([
            { "event_type": "user_message", "payload": "one" },
            { "event_type": "agent_thought", "payload": "hm" },
            { "event_type": "agent_message", "payload": "he" },
            { "event_type": "agent_message", "payload": "llo" },
            { "event_type": "tool_call", "payload": call.to_string() },
            { "event_type": "tool_call_update", "payload": done.to_string() },
            { "event_type": "usage_update", "payload": "{}" },
            { "event_type": "user_message", "payload": "two" },
            { "event_type": "user_message", "payload": "three" },
            { "event_type": "tool_call", "payload": json!({ "toolCallId": "d" }).to_string() },
        ]);
        let shown: Vec<String> = events(&list).unwrap().iter().map(summary_of).collect();
        let expected = [
            "1 started",
            "1 user one",
            "1 thought 1 hm",
            "1 text 2 he",
            "1 text 2 llo",
            "1 tool c bash",
            "1 end c a.txt",
            "1 ended",
            "2 started",
            "2 user two/three",
            "2 tool d tool",
            "2 end d ",
            "2 ended",
            "- notice",
        ];
        assert_eq!(shown, expected);
    }

    fn summary_of(event: &Event) -> String {
        let turn = event.turn.map_or("-".to_owned(), |turn| turn.0.to_string());
        let text = |content: &[Content]| {
            let text = |block: &Content| {
                if let Content::Text(text) = block { text.to_string() } else { String::new() }
            };
            content.iter().map(text).collect::<Vec<_>>().join("/")
        };
        let of_call = |content: &[ToolContent]| {
            let block = |piece: &ToolContent| {
                if let ToolContent::Block(block) = piece {
                    text(std::slice::from_ref(block))
                } else {
                    String::new()
                }
            };
            content.iter().map(block).collect::<String>()
        };
        let what = if let Body::UserMessage { content } = &event.body {
            format!("user {}", text(content))
        } else if let Body::Text { message, text } = &event.body {
            format!("text {} {text}", message.0)
        } else if let Body::Thought { message, text } = &event.body {
            format!("thought {} {text}", message.0)
        } else if let Body::ToolStarted(start) = &event.body {
            format!("tool {} {}", start.call.0, start.title)
        } else if let Body::ToolEnded(end) = &event.body {
            format!("end {} {}", end.call.0, of_call(&end.content))
        } else {
            crate::record::kind(&event.body).replace("turn_", "")
        };
        format!("{turn} {what}")
    }

    #[test]
    fn what_is_ours_is_not_taken_for_zephs() {
        assert!(events(&json!([])).is_none());
        assert!(events(&json!([{ "event_type": "user_message", "payload": { "content": [] } }])).is_none());
        let mixed = json!([{ "event_type": "agent_message", "payload": "a" }, { "event_type": "text", "payload": {} }]);
        assert!(events(&mixed).is_none());
    }
}
