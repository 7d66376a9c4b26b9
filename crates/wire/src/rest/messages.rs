//! The messages and tool calls of a session, one object each: `GET /sessions/<id>/messages`.

use std::path::Path;
use std::sync::Arc;

use engine::{CallId, ContextEvent, Event, Family, MessageId, SpeechEvent, Timestamp, ToolEvent, TurnEvent};
use serde_json::{Value, json};

use super::event_data::{tool_result, tool_use};
use crate::ferret_otter_common::prompt_text;
use crate::timestamp::rfc3339;

/// The messages of a session, oldest first, without those that were cleared.
#[derive(Default)]
pub struct Messages {
    complete: Vec<Value>,
    piece: Option<OpenChunk>,
}

/// The merged chunks of an unfinished message.
struct OpenChunk {
    kind: &'static str,
    message: MessageId,
    at: Timestamp,
    text: String,
    parent: Option<CallId>,
}

impl Messages {
    pub fn of(events: &[Arc<Event>]) -> Vec<Value> {
        let mut messages = Self::default();
        events.iter().for_each(|event| messages.observe(event));
        messages.take_rest()
    }

    /// Takes out the messages that are complete.
    pub fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.complete)
    }

    /// Takes out all remaining messages, with the unfinished one.
    pub fn take_rest(&mut self) -> Vec<Value> {
        self.end_piece();
        self.take()
    }

    /// The length of the unfinished message.
    pub fn held_bytes(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.text.len())
    }

    pub fn observe(&mut self, event: &Event) {
        match part(event) {
            Part::Piece { kind, message, text } => match &mut self.piece {
                Some(piece) if piece.kind == kind && piece.message == message => piece.text.push_str(text),
                Some(_) | None => {
                    self.end_piece();
                    let parent = event.origin.task().cloned();
                    self.piece =
                        Some(OpenChunk { kind, message, at: event.at, text: text.to_owned(), parent });
                }
            },
            Part::Whole { kind, payload } => {
                self.end_piece();
                self.complete.push(message(kind, event.at, payload(), event.origin.task()));
            }
            Part::End => self.end_piece(),
            Part::Cleared => *self = Self::default(),
            Part::Nothing => {}
        }
    }

    fn end_piece(&mut self) {
        let told = |piece: OpenChunk| {
            message(piece.kind, piece.at, json!({ "text": piece.text }), piece.parent.as_ref())
        };
        self.complete.extend(self.piece.take().map(told));
    }
}

/// The number of messages, without storing any of them.
#[derive(Debug, Default)]
pub struct MessageCount {
    count: u64,
    piece: Option<(&'static str, MessageId)>,
}

impl MessageCount {
    pub fn observe(&mut self, event: &Event) {
        match part(event) {
            Part::Piece { kind, message, .. } => {
                if self.piece.replace((kind, message)) != Some((kind, message)) {
                    self.count += 1;
                }
            }
            Part::Whole { .. } => {
                self.piece = None;
                self.count += 1;
            }
            Part::End => self.piece = None,
            Part::Cleared => *self = Self::default(),
            Part::Nothing => {}
        }
    }

    pub fn get(&self) -> u64 {
        self.count
    }
}

/// What an event means for the messages.
enum Part<'a> {
    Piece {
        kind: &'static str,
        message: MessageId,
        text: &'a str,
    },
    Whole {
        kind: &'static str,
        payload: Box<dyn Fn() -> Value + 'a>,
    },
    End,
    Cleared,
    /// It may come between the chunks of a message without ending it.
    Nothing,
}

fn part(event: &Event) -> Part<'_> {
    match event.body.family() {
        Family::Speech(SpeechEvent::Text { message, text }) => {
            Part::Piece { kind: "agent_message", message, text }
        }
        Family::Speech(SpeechEvent::Thought { message, text }) => {
            Part::Piece { kind: "agent_thought", message, text }
        }
        Family::Turn(TurnEvent::UserMessage { content }) => {
            let payload = Box::new(|| json!({ "text": prompt_text(content) }));
            Part::Whole { kind: "user_message", payload }
        }
        Family::Tool(ToolEvent::Started(start)) => {
            Part::Whole { kind: "tool_call", payload: Box::new(|| tool_use(start)) }
        }
        Family::Tool(ToolEvent::Ended(end)) => {
            Part::Whole { kind: "tool_result", payload: Box::new(|| tool_result(end, Path::new(""))) }
        }
        Family::Turn(TurnEvent::Ended { .. }) => Part::End,
        Family::Context(ContextEvent::Cleared) => Part::Cleared,
        Family::Turn(TurnEvent::Queued { .. } | TurnEvent::Started | TurnEvent::CancelRequested { .. })
        | Family::Speech(SpeechEvent::Output { .. })
        | Family::Tool(ToolEvent::Changed(_))
        | Family::Context(ContextEvent::Compacting { .. } | ContextEvent::Compacted { .. })
        | Family::Permission(_)
        | Family::Usage(_)
        | Family::Setup(_)
        | Family::Other => Part::Nothing,
    }
}

/// The payload is JSON in a string: clients decode it according to its kind.
fn message(kind: &str, at: Timestamp, mut payload: Value, parent: Option<&CallId>) -> Value {
    if let Some(parent) = parent {
        payload["parent"] = json!(parent.0.as_ref());
    }
    json!({ "event_type": kind, "payload": payload.to_string(), "created_at": rfc3339(at) })
}
