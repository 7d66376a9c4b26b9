//! A model for people without an API key: it introduces itself, and does what it is told in fixed phrases,
//! with the same tools that a real model has.
//!
//! It knows nothing but the messages that it is given. So it also proves that these are right: what it
//! remembers after a restart is what the log holds.

mod answer;
mod request_parser;
mod tool_result_summary;

use std::collections::VecDeque;
use std::time::Duration;

use engine::{BoxFuture, Usage};

use super::{Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream, Price};

const CONTEXT_TOKENS: u64 = 128_000;
/// The size of streamed pieces, so that an answer is seen to grow.
const PIECE_CHARS_MAX: usize = 24;
/// A token is about four characters of English or code.
const CHARS_PER_TOKEN: u64 = 4;

pub struct Offline;

impl Model for Offline {
    fn offers(&self) -> Vec<ModelInfo> {
        let info = |id: &str, name: &str, description: &str| ModelInfo {
            id: id.into(),
            name: name.into(),
            description: description.into(),
            context_tokens: CONTEXT_TOKENS,
            output_tokens_max: None,
            images: false,
            price: Some(Price::FREE),
        };
        vec![
            info(
                "offline:plain",
                "Offline",
                "Does simple requests without a model key; answers in sentences",
            ),
            info(
                "offline:terse",
                "Offline, terse",
                "Does simple requests without a model key; answers in one line",
            ),
        ]
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        let input = request.system.chars().count() as u64 + request.messages.iter().map(chars).sum::<u64>();
        Box::new(OfflineStream {
            steps: answer::steps(&request).into(),
            input_chars: input,
            output_chars: 0,
            output_chars_max: request.output_tokens_max.map(|tokens| tokens * CHARS_PER_TOKEN),
            counted: false,
        })
    }
}

/// One step of an answer.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Say(String),
    Think(String),
    Call {
        name: &'static str,
        arguments: serde_json::Value,
    },
    Pause(Duration),
    /// Numbered chunks of a size, from `next` to `last`.
    Flood {
        next: u64,
        last: u64,
        chunk_bytes: usize,
    },
    Fail(String),
}

struct OfflineStream {
    steps: VecDeque<Step>,
    input_chars: u64,
    output_chars: u64,
    output_chars_max: Option<u64>,
    counted: bool,
}

impl ModelStream for OfflineStream {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        Box::pin(async {
            while !self.exhausted() {
                let Some(step) = self.steps.pop_front() else { break };
                if let Some(event) = self.take(step).await? {
                    return Ok(event);
                }
            }
            Ok(self.finish())
        })
    }
}

impl OfflineStream {
    fn exhausted(&self) -> bool {
        self.output_chars_max.is_some_and(|max| self.output_chars >= max)
    }

    async fn take(&mut self, step: Step) -> Result<Option<ModelEvent>, ModelError> {
        match step {
            Step::Say(text) => {
                let (piece, rest) = piece(&text);
                if !rest.is_empty() {
                    self.steps.push_front(Step::Say(rest.to_owned()));
                }
                Ok(self.count(piece).map(ModelEvent::Text))
            }
            Step::Think(text) => Ok(self.count(&text).map(ModelEvent::Thinking)),
            Step::Call { name, arguments } => {
                let arguments = arguments.to_string();
                self.count(&arguments);
                let id = format!("call-{}", self.steps.len());
                Ok(Some(ModelEvent::ToolCall { id, name: name.into(), arguments }))
            }
            Step::Pause(time) => {
                tokio::time::sleep(time).await;
                Ok(None)
            }
            Step::Flood { next, last, chunk_bytes } => {
                if next < last {
                    self.steps.push_front(Step::Flood { next: next + 1, last, chunk_bytes });
                }
                let mut text = format!("chunk {next} ");
                text.extend(std::iter::repeat_n('.', chunk_bytes.saturating_sub(text.len() + 1)));
                text.push('\n');
                Ok(self.count(&text).map(ModelEvent::Text))
            }
            Step::Fail(reason) => Err(ModelError::permanent(reason)),
        }
    }

    fn count(&mut self, text: &str) -> Option<String> {
        self.output_chars += text.chars().count() as u64;
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn finish(&mut self) -> ModelEvent {
        if self.counted {
            let stop = if self.exhausted() { ModelStop::MaxTokens } else { ModelStop::Finished };
            return ModelEvent::Done { stop };
        }
        self.counted = true;
        let (input, output) =
            (self.input_chars.div_ceil(CHARS_PER_TOKEN), self.output_chars.div_ceil(CHARS_PER_TOKEN));
        ModelEvent::Usage(Usage {
            context_used: input + output,
            context_size: CONTEXT_TOKENS,
            input,
            output,
            ..Usage::default()
        })
    }
}

/// The next words of a text, and the rest.
fn piece(text: &str) -> (&str, &str) {
    let end = text.char_indices().nth(PIECE_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    let end = if end == text.len() { end } else { text[..end].rfind([' ', '\n']).map_or(end, |at| at + 1) };
    text.split_at(end)
}

fn chars(message: &Message) -> u64 {
    let chars = |text: &str| text.chars().count() as u64;
    match message {
        Message::Summary(text) | Message::User { text, .. } | Message::ToolResult { text, .. } => chars(text),
        Message::Assistant { text, calls, .. } => {
            chars(text) + calls.iter().map(|call| chars(&call.arguments)).sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests;
