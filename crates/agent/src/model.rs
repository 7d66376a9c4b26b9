//! The interface of a model: one request, one stream of events.
//!
//! A stream is pulled, never pushed: the model produces what is read, and dropping the stream ends the call.
//! So there is no queue between model and turn, and nothing to clean up after a cancel.

mod anthropic;
pub mod catalog;
mod conversation_entries;
mod gemini;
mod http;
mod model_call;
mod offline;
mod ollama;
mod openai_chat;
mod openai_responses;
mod price;
mod provider;
mod provider_error;
mod retry;
mod sse;
mod tool_schema;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use engine::{BoxFuture, Usage};

pub(crate) use http::use_ring;
pub use offline::Offline;
pub use price::{LongPrice, Price};
pub use provider::{Provider, ProviderConfig, Secret, Timeouts};
pub use wire::{Decoder, Omit, Wire, WireOptions};

/// A source of models: one provider, one or more models.
pub trait Model: Send + Sync + 'static {
    fn offers(&self) -> Vec<ModelInfo>;

    /// Asks one of the offered models. Errors come as the stream's first event.
    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream>;
}

pub trait ModelStream: Send {
    /// The next event. After `Done` or an error it is not called again.
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// `provider:model`.
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub context_tokens: u64,
    /// The maximum output, if known.
    pub output_tokens_max: Option<u64>,
    /// It can look at images.
    pub images: bool,
    /// Without it, the cost of a call is unknown.
    pub price: Option<Price>,
}

/// Whether this is the offline model.
pub(crate) fn is_offline(id: &str) -> bool {
    id.starts_with("offline:")
}

/// Everything that a model gets.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub model: Arc<str>,
    pub system: Arc<str>,
    pub messages: Vec<Message>,
    pub tools: Arc<[ToolSpec]>,
    pub output_tokens_max: Option<u64>,
    pub thinking: Thinking,
    pub temperature: Option<f32>,
    /// An id that is the same for all calls of a conversation, as a cache key for providers.
    pub conversation: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    #[default]
    Off,
    Low,
    Medium,
    High,
}

/// One message of the conversation. Every call of an assistant message is followed by its result.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Replaces everything before it.
    Summary(Arc<str>),
    User {
        text: Arc<str>,
        images: Vec<Image>,
    },
    Assistant {
        text: Arc<str>,
        calls: Vec<ToolCall>,
        /// The native form of the reply, only during the turn in which it was made.
        native: Option<NativeReply>,
    },
    ToolResult {
        call: Arc<str>,
        tool: Arc<str>,
        text: Arc<str>,
        images: Vec<Image>,
        failed: bool,
    },
}

/// A reply in its provider's own format: signed reasoning and the like, which only the provider can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeReply {
    /// The provider that made it. It is not sent to others.
    pub provider: Arc<str>,
    pub json: Arc<str>,
    /// The provider's ids of the reply's tool calls, in order.
    pub ids: Vec<Arc<str>>,
}

/// `data` is base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub mime: Arc<str>,
    pub data: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: Arc<str>,
    pub name: Arc<str>,
    /// JSON, as the model wrote it. Invalid JSON is stored as a JSON string.
    pub arguments: Arc<str>,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// A JSON schema of the arguments.
    pub schema: Arc<serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    Text(String),
    Thinking(String),
    /// A complete call. `arguments` is what the model wrote, even if it is not valid JSON.
    ToolCall {
        id: String,
        name: String,
        arguments: String,
    },
    /// The native form of the whole reply, after all its other events.
    Native(NativeReply),
    /// A notice for the waiting person, for example that a busy provider is retried.
    Notice(String),
    Usage(Usage),
    Done {
        stop: ModelStop,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelStop {
    /// The model has finished, or waits for its tool calls.
    Finished,
    MaxTokens,
    Refusal,
}

/// A failed model call. The text is shown to the person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ModelError {
    pub text: String,
    pub kind: ModelErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// A retry may help, after the given time if the provider named one.
    Transient { retry_after: Option<Duration> },
    /// The conversation is longer than the model's context.
    TooLong,
    /// A retry does not help: a wrong key, an unknown model, no credit.
    Permanent,
}

impl ModelError {
    pub fn permanent(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ModelErrorKind::Permanent }
    }

    pub fn transient(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ModelErrorKind::Transient { retry_after: None } }
    }
}
