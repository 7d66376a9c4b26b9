//! What was said and done in a session, one object each: `GET /sessions/<id>/messages`.

use std::sync::Arc;

use engine::{Body, Event, MessageId, Timestamp};
use serde_json::{Value, json};

use super::facts::{tool_result, tool_use};
use crate::siblings::prompt_text;
use crate::timestamp::rfc3339;

/// Pieces of one message, put together again.
struct Piece {
    kind: &'static str,
    message: MessageId,
    at: Timestamp,
    text: String,
}

/// The messages of these events, oldest first. What was cleared is not told.
pub fn messages(events: &[Arc<Event>]) -> Vec<Value> {
    let (mut told, mut piece) = (Vec::new(), None::<Piece>);
    for event in events {
        let next = match &event.body {
            Body::Text { message, text } => Some(("agent_message", *message, text)),
            Body::Thought { message, text } => Some(("agent_thought", *message, text)),
            Body::UserMessage { .. }
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::Cleared
            | Body::TurnEnded { .. } => None,
            // These stand between the pieces of a message without ending it.
            Body::TurnQueued { .. }
            | Body::TurnStarted
            | Body::Plan { .. }
            | Body::ToolOutput { .. }
            | Body::FileEdited { .. }
            | Body::FileShown { .. }
            | Body::Asked { .. }
            | Body::Resolved { .. }
            | Body::CancelRequested
            | Body::PolicyBlocked { .. }
            | Body::SettingChanged { .. }
            | Body::Usage(_)
            | Body::Commands { .. }
            | Body::Title { .. }
            | Body::Notice { .. }
            | Body::Compacted { .. }
            | Body::Moved { .. }
            | Body::Foreign { .. } => continue,
        };
        if let Some((kind, message, text)) = next {
            match &mut piece {
                Some(piece) if piece.kind == kind && piece.message == message => piece.text.push_str(text),
                Some(_) | None => {
                    put(&mut told, piece.take());
                    piece = Some(Piece { kind, message, at: event.at, text: text.to_string() });
                }
            }
            continue;
        }
        put(&mut told, piece.take());
        whole(&mut told, event);
    }
    put(&mut told, piece);
    told
}

/// What is one message by itself.
fn whole(told: &mut Vec<Value>, event: &Event) {
    if let Body::UserMessage { content } = &event.body {
        told.push(message("user_message", event.at, &json!({ "text": prompt_text(content) })));
    } else if let Body::ToolStarted(start) = &event.body {
        told.push(message("tool_call", event.at, &tool_use(start)));
    } else if let Body::ToolEnded(end) = &event.body {
        told.push(message("tool_result", event.at, &tool_result(end)));
    } else if let Body::Cleared = &event.body {
        told.clear();
    }
}

fn put(told: &mut Vec<Value>, piece: Option<Piece>) {
    told.extend(piece.map(|piece| message(piece.kind, piece.at, &json!({ "text": piece.text }))));
}

/// The payload is JSON in a string: clients decode it by its kind.
fn message(kind: &str, at: Timestamp, payload: &Value) -> Value {
    json!({ "event_type": kind, "payload": payload.to_string(), "created_at": rfc3339(at) })
}
