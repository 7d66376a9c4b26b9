//! The wire formats of models: how a request is encoded and how a reply is decoded.
//!
//! Both directions are pure: [`Wire::body`] makes a body from a request, a [`Decoder`] makes events from
//! bytes. Neither knows sockets, time or retries, so recorded replies run through them unchanged.
//!
//! **Invariant:** a decoder ignores what it does not know. Only an error that the provider names, invalid
//! JSON, or an end without a finish reason is an error.

mod reply_builder;

use std::sync::Arc;

use serde_json::Value;

pub(super) use reply_builder::{CallKey, ReplyBuilder};

use super::sse::{Event, Frames, Framing};
use super::{
    ModelError, ModelEvent, ModelRequest, anthropic, gemini, ollama, openai_chat, openai_responses,
    provider_error,
};

/// The API format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions, which most others speak too.
    Chat,
    Gemini,
    /// Ollama's native API, not its OpenAI-compatible one.
    Ollama,
}

/// Options for encoding a request.
#[derive(Debug, Clone, Default)]
pub struct WireOptions {
    pub base_url: String,
    /// The model's limits, if known.
    pub context_tokens: Option<u64>,
    pub output_tokens_max: Option<u64>,
    /// The model cannot look at images.
    pub text_only: bool,
    pub omit: Omit,
}

/// Settings that a model has refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omit {
    pub temperature: bool,
    pub thinking: bool,
    /// Reasoning summaries.
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

    pub fn body(self, request: &ModelRequest, options: &WireOptions) -> Value {
        match self {
            Self::Anthropic => anthropic::encode(request, options),
            Self::Responses => openai_responses::encode(request, options),
            Self::Chat => openai_chat::encode(request, options),
            Self::Gemini => gemini::encode(request, options),
            Self::Ollama => ollama::encode(request, options),
        }
    }

    /// Reads one reply of the model `id` (`provider:model`).
    pub fn decoder(self, id: &str) -> Decoder {
        let (framing, decode): (_, Box<dyn Decode>) = match self {
            Self::Anthropic => (Framing::Events, Box::new(anthropic::Reader::default())),
            Self::Responses => (Framing::Events, Box::new(openai_responses::Reader::default())),
            Self::Chat => (Framing::Events, Box::new(openai_chat::Reader::default())),
            Self::Gemini => (Framing::Events, Box::new(gemini::Reader::default())),
            Self::Ollama => (Framing::Lines, Box::new(ollama::Reader::default())),
        };
        Decoder { id: id.into(), frames: Frames::new(framing), decode, reply: ReplyBuilder::default() }
    }

    pub(super) fn url(self, base_url: &str, model: &str) -> String {
        let base = base_url.trim_end_matches('/');
        match self {
            // People set Anthropic's address without the version, as its own tools expect it.
            Self::Anthropic if base.ends_with("/v1") => format!("{base}/messages"),
            Self::Anthropic => format!("{base}/v1/messages"),
            Self::Responses => format!("{base}/responses"),
            Self::Chat => format!("{base}/chat/completions"),
            Self::Gemini => format!("{base}/models/{}:streamGenerateContent?alt=sse", in_path(model)),
            Self::Ollama => format!("{base}/api/chat"),
        }
    }

    /// The header for the key, and the prefix of its value.
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

/// A model name comes from a setting, so characters that would change the path are escaped.
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

/// Decodes the events of one wire into a reply.
pub(super) trait Decode: Send {
    fn event(&mut self, name: Option<&str>, data: Value, reply: &mut ReplyBuilder) -> Result<(), ModelError>;

    /// Handles an event that is not JSON, such as `[DONE]`. Returns whether it is known.
    fn mark(&mut self, _data: &str, _reply: &mut ReplyBuilder) -> bool {
        false
    }

    /// The native form of the reply, if it contains more than the plain form.
    fn native(&mut self, reply: &ReplyBuilder) -> Option<Value>;
}

/// Decodes one reply. Events before an error are reported before it.
pub struct Decoder {
    id: Arc<str>,
    frames: Frames,
    decode: Box<dyn Decode>,
    reply: ReplyBuilder,
}

impl Decoder {
    /// Processes some bytes of the reply, split anywhere, and adds their events to `events`.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let cut = self.frames.push(bytes);
        let read = self.read(false).and_then(|()| self.judge());
        self.deliver(events);
        read?;
        cut.map_err(|error| ModelError::permanent(format!("the provider sent too much: {error}")))
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
        self.deliver(events);
        read?;
        if known { Ok(()) } else { Err(provider_error::cut_off()) }
    }

    /// The reply is complete; nothing more is expected.
    pub fn ended(&self) -> bool {
        self.reply.ended()
    }

    /// The size so far: text, thoughts, and arguments of calls, even incomplete ones.
    pub fn bytes(&self) -> usize {
        self.reply.bytes()
    }

    /// Checks that the reply is complete when it has ended.
    fn judge(&mut self) -> Result<(), ModelError> {
        match self.reply.incomplete_reason().filter(|_| self.reply.end_is_due()) {
            Some(incomplete_reason) => {
                self.reply.withdraw();
                Err(ModelError::transient(incomplete_reason))
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
                // The reply was cut off in the middle of an event.
                Err(_) if last => {}
                Err(_) if data.trim().is_empty() => {}
                Err(_) => return Err(provider_error::not_json(&data)),
            }
        }
        Ok(())
    }

    fn deliver(&mut self, events: &mut Vec<ModelEvent>) {
        let native = if self.reply.end_is_due() { self.decode.native(&self.reply) } else { None };
        self.reply.deliver(&self.id, native, events);
    }
}
