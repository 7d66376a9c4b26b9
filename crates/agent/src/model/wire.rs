//! The ways to speak to a model: what a request looks like and how a reply is read.
//!
//! Both directions are values: [`Wire::body`] makes a body of a request, a [`Decoder`] makes events of
//! bytes. Neither knows sockets, time or retries, so recorded replies run through them as they are.
//!
//! **Invariant:** what a decoder does not know it ignores; only an error that the provider names,
//! nonsense instead of JSON, or an end without a reason to end is an error.

mod reply;

use std::sync::Arc;

use serde_json::Value;

pub(super) use reply::{CallKey, Reply};

use super::sse::{Event, Frames, Framing};
use super::{ModelError, ModelEvent, ModelRequest, anthropic, chat, gemini, ollama, responses, trouble};

/// The language that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions, which most others speak too.
    Chat,
    Gemini,
    /// Ollama's own, not its imitation of OpenAI.
    Ollama,
}

/// What a wire is told besides the request.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    pub base_url: String,
    /// What the model can take and say, where that is known.
    pub context_tokens: Option<u64>,
    pub output_tokens_max: Option<u64>,
    /// It cannot look at images.
    pub blind: bool,
    pub omit: Omit,
}

/// What a model has refused to be told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omit {
    pub temperature: bool,
    pub thinking: bool,
    /// Thoughts in readable form.
    pub summary: bool,
}

impl Wire {
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::Responses | Self::Chat => "https://api.openai.com/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    pub fn body(self, request: &ModelRequest, asking: &Asking) -> Value {
        match self {
            Self::Anthropic => anthropic::encode(request, asking),
            Self::Responses => responses::encode(request, asking),
            Self::Chat => chat::encode(request, asking),
            Self::Gemini => gemini::encode(request, asking),
            Self::Ollama => ollama::encode(request, asking),
        }
    }

    /// Reads one reply of the model `id` (`provider:model`).
    pub fn decoder(self, id: &str) -> Decoder {
        let (framing, decode): (_, Box<dyn Decode>) = match self {
            Self::Anthropic => (Framing::Events, Box::new(anthropic::Reader::default())),
            Self::Responses => (Framing::Events, Box::new(responses::Reader::default())),
            Self::Chat => (Framing::Events, Box::new(chat::Reader::default())),
            Self::Gemini => (Framing::Events, Box::new(gemini::Reader::default())),
            Self::Ollama => (Framing::Lines, Box::new(ollama::Reader::default())),
        };
        Decoder { id: id.into(), frames: Frames::new(framing), decode, reply: Reply::default() }
    }

    pub(super) fn url(self, base_url: &str, model: &str) -> String {
        let base = base_url.trim_end_matches('/');
        match self {
            // People set the address of Anthropic without the version, as its own tools want it.
            Self::Anthropic if base.ends_with("/v1") => format!("{base}/messages"),
            Self::Anthropic => format!("{base}/v1/messages"),
            Self::Responses => format!("{base}/responses"),
            Self::Chat => format!("{base}/chat/completions"),
            Self::Gemini => format!("{base}/models/{}:streamGenerateContent?alt=sse", in_path(model)),
            Self::Ollama => format!("{base}/api/chat"),
        }
    }

    /// The header that carries the key, and what stands before it.
    pub(super) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("x-api-key", ""),
            Self::Gemini => ("x-goog-api-key", ""),
            Self::Responses | Self::Chat | Self::Ollama => ("authorization", "Bearer "),
        }
    }

    pub(super) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Anthropic => &[("anthropic-version", "2023-06-01")],
            Self::Responses | Self::Chat | Self::Gemini | Self::Ollama => &[],
        }
    }
}

/// A model's name comes from a setting: whatever would change the path is escaped.
fn in_path(model: &str) -> String {
    let mut path = String::with_capacity(model.len());
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'@' => path.push(byte.into()),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// One wire's way of reading: events in, the reply grows.
pub(super) trait Decode: Send {
    fn event(&mut self, name: Option<&str>, data: Value, reply: &mut Reply) -> Result<(), ModelError>;

    /// An event that is no JSON but has a meaning. True if it is known.
    fn mark(&mut self, _data: &str, _reply: &mut Reply) -> bool {
        false
    }

    /// The whole reply as the provider wants it back, where that says more than the plain form.
    fn native(&mut self, reply: &Reply) -> Option<Value>;
}

/// Reads one reply. What came before an error is told before it.
pub struct Decoder {
    id: Arc<str>,
    frames: Frames,
    decode: Box<dyn Decode>,
    reply: Reply,
}

impl Decoder {
    /// Takes in some bytes of the reply, split anywhere, and adds what they say to `events`.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let cut = self.frames.push(bytes);
        let read = self.read(false).and_then(|()| self.judge());
        self.tell(events);
        read?;
        cut.map_err(|error| ModelError::lasting(format!("the provider sent too much: {error}")))
    }

    /// There are no more bytes.
    pub fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.frames.finish();
        let read = self.read(true);
        let known = self.reply.ended() || self.reply.stop().is_some();
        if read.is_ok() && known {
            self.reply.end();
        }
        let read = read.and_then(|()| self.judge());
        self.tell(events);
        read?;
        if known { Ok(()) } else { Err(trouble::cut()) }
    }

    /// The reply is complete; nothing more is expected.
    pub fn ended(&self) -> bool {
        self.reply.ended()
    }

    /// How much was said so far: text, thoughts, and arguments of calls also where they are not complete.
    pub fn bytes(&self) -> usize {
        self.reply.bytes()
    }

    /// An end alone is no answer.
    fn judge(&mut self) -> Result<(), ModelError> {
        match self.reply.flaw().filter(|_| self.reply.is_due()) {
            Some(flaw) => {
                self.reply.withdraw();
                Err(ModelError::passing(flaw))
            }
            None => Ok(()),
        }
    }

    fn read(&mut self, last: bool) -> Result<(), ModelError> {
        while let Some(Event { name, data }) = self.frames.next() {
            if self.reply.ended() {
                return Ok(());
            }
            if self.decode.mark(&data, &mut self.reply) {
                continue;
            }
            match serde_json::from_str(&data) {
                Ok(value) => self.decode.event(name.as_deref(), value, &mut self.reply)?,
                // The end of a reply that was cut off in the middle of an event.
                Err(_) if last => {}
                Err(_) if data.trim().is_empty() => {}
                Err(_) => return Err(trouble::garbage(&data)),
            }
        }
        Ok(())
    }

    fn tell(&mut self, events: &mut Vec<ModelEvent>) {
        let native = if self.reply.is_due() { self.decode.native(&self.reply) } else { None };
        self.reply.tell(&self.id, native, events);
    }
}
