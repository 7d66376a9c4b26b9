//! Recorded messages of agents, and the events they become.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it is about")]

mod any_input;
mod conversation_recap;
mod messages;
mod permission_requests;
mod requests;
mod settings;
mod tool_calls;

use engine::{Body, MessageId, ToolContent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{TranslatedEvent, UpdateTranslator};
use crate::transcript::block_text;

/// A session in the middle of a turn.
struct Session {
    translator: UpdateTranslator,
    messages: u64,
    in_turn: bool,
}

impl Default for Session {
    fn default() -> Self {
        Self { translator: UpdateTranslator::default(), messages: 0, in_turn: true }
    }
}

impl Session {
    fn translate(&mut self, update: &Value) -> Vec<TranslatedEvent> {
        let params = raw(&json!({ "sessionId": "theirs", "update": update }));
        let mut next = || {
            self.messages += 1;
            MessageId(self.messages)
        };
        self.translator.translate(&params, &mut next, self.in_turn)
    }

    /// The events of each update, one per line.
    fn lines(&mut self, updates: &[Value]) -> String {
        let mut lines = String::new();
        for update in updates {
            for translated in self.translate(update) {
                lines.push_str(&line(&translated, update));
            }
        }
        lines
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

/// `.` means our encoding alone, `+` that the event carries the agent's update, `-` that another event
/// carries it.
fn line(translated: &TranslatedEvent, update: &Value) -> String {
    let words = match &translated.said.relayed {
        Some(words) if words.0.is_empty() => "-",
        Some(words) => {
            assert_eq!(serde_json::from_str::<Value>(&words.0).unwrap(), *update, "word for word");
            "+"
        }
        None => ".",
    };
    let parent = translated.parent.as_ref().map(|call| format!(" within {}", call.0)).unwrap_or_default();
    format!("{words} {}{parent}\n", brief(&translated.said.body))
}

fn brief(body: &Body) -> String {
    let content = |content: &[ToolContent]| {
        let piece = |piece: &ToolContent| match piece {
            ToolContent::Block(block) => format!("{:?}", block_text(block)),
            ToolContent::Diff(change) => {
                format!("diff of {} {:?} to {:?}", change.path.display(), change.before, change.after)
            }
        };
        content.iter().map(piece).collect::<Vec<_>>().join(", ")
    };
    match body {
        Body::Text { message, text } => format!("text {} {text:?}", message.0),
        Body::Thought { message, text } => format!("thought {} {text:?}", message.0),
        Body::ToolStarted(start) => {
            let places: Vec<_> =
                start.locations.iter().map(|place| place.path.display().to_string()).collect();
            format!(
                "started {} {} {:?} {:?} {places:?} {}",
                start.call.0, start.tool, start.title, start.kind, start.input.0
            )
        }
        Body::ToolChanged(change) => {
            let shown = change.content.as_deref().map(content);
            let input = change.input.as_ref().map(|input| &input.0);
            let places = change.locations.as_ref().map(Vec::len);
            format!(
                "changed {} {:?} {:?} {places:?} {input:?} {shown:?}",
                change.call.0, change.title, change.kind
            )
        }
        Body::ToolOutput { call, stream, text } => format!("output {} {stream:?} {text:?}", call.0),
        Body::ToolEnded(end) => {
            let raw = end.raw.as_ref().map(|raw| &raw.0);
            let word = if end.failed { "failed" } else { "done" };
            let exit = end.exit.as_ref().map(|exit| (exit.code, exit.signal.as_deref()));
            format!(
                "{word} {} [{}] {raw:?} {exit:?} {} ms",
                end.call.0,
                content(&end.content),
                end.elapsed_ms
            )
        }
        Body::Plan { entries } => {
            let entry = |e: &engine::PlanEntry| format!("{} {:?} {:?}", e.content, e.priority, e.status);
            format!("plan {:?}", entries.iter().map(entry).collect::<Vec<_>>())
        }
        Body::Usage(usage) => format!(
            "usage {}/{} in {} out {} ${:.4} unpriced {}",
            usage.context_used, usage.context_size, usage.input, usage.output, usage.cost_usd, usage.unpriced
        ),
        Body::Offered { settings } => {
            format!("offered {:?}", settings.iter().map(|spec| spec.id.as_ref()).collect::<Vec<_>>())
        }
        Body::SettingChanged { id, value } => format!("set {id} {value}"),
        Body::Title { title } => format!("title {title:?}"),
        Body::Notice { level, text } => format!("notice {level:?} {text:?}"),
        Body::Foreign { payload } => format!("foreign {}", payload.0),
        Body::Commands { commands } => {
            let command = |c: &engine::CommandSpec| format!("{} {:?} {:?}", c.name, c.description, c.hint);
            format!("commands {:?}", commands.iter().map(command).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}
