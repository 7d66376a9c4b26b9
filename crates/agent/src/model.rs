//! What the agent needs of a model: one question, one stream of events.
//!
//! A stream is pulled, never pushed: the model produces what is taken, and dropping the stream ends
//! the call. So there is no queue between model and turn, and nothing to tidy up after a cancel.

mod anthropic;
mod call;
pub mod catalog;
mod chat;
mod entries;
mod gemini;
mod http;
mod offline;
mod ollama;
mod price;
mod provider;
mod responses;
mod retry;
mod schema;
mod sse;
mod trouble;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use engine::{BoxFuture, Usage};

pub(crate) use http::use_ring;
pub use offline::Offline;
pub use price::{LongPrice, Price};
pub use provider::{Provider, ProviderConfig, Secret, Timeouts};
pub use wire::{Asking, Decoder, Omit, Wire};

/// A source of models: one provider, one or more models.
pub trait Model: Send + Sync + 'static {
    fn offers(&self) -> Vec<ModelInfo>;

    /// Asks one of the offered models. Errors come as the stream's first event.
    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream>;
}

pub trait ModelStream: Send {
    /// The next event. After `Done` or an error nothing more is asked for.
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// `provider:model`.
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub context_tokens: u64,
    /// The most it can say at once, where that is known.
    pub output_tokens_max: Option<u64>,
    /// It can look at images.
    pub images: bool,
    /// Without, the cost of a call is not known.
    pub price: Option<Price>,
}

/// Whether this is the model for people without a key, which says only what it was built to say.
pub(crate) fn is_offline(id: &str) -> bool {
    id.starts_with("offline:")
}

/// Everything a model is told. It knows nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub model: Arc<str>,
    pub system: Arc<str>,
    pub messages: Vec<Message>,
    pub tools: Arc<[ToolSpec]>,
    pub output_tokens_max: Option<u64>,
    pub thinking: Thinking,
    pub temperature: Option<f32>,
    /// The same for all calls of a conversation: providers find their cache by it.
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
    /// Stands for everything that came before it.
    Summary(Arc<str>),
    User {
        text: Arc<str>,
        images: Vec<Image>,
    },
    Assistant {
        text: Arc<str>,
        calls: Vec<ToolCall>,
        /// The same reply as its provider wants it back, while the turn lasts that it was made in.
        native: Option<Native>,
    },
    ToolResult {
        call: Arc<str>,
        tool: Arc<str>,
        text: Arc<str>,
        images: Vec<Image>,
        failed: bool,
    },
}

/// A reply in the words of its provider: signed thoughts and the like, which only the provider can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Native {
    /// Whoever made it. Nobody else is given it.
    pub provider: Arc<str>,
    pub json: Arc<str>,
    /// What the provider calls the calls of the reply, in their order.
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
    /// JSON, as the model wrote it. What was no JSON is a JSON string here.
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
    /// A complete call. `arguments` is what the model wrote, also where that is no JSON: nobody mends it.
    ToolCall {
        id: String,
        name: String,
        arguments: String,
    },
    /// The whole reply in the provider's words, after everything else of it.
    Native(Native),
    /// Something the person should know while they wait: a provider that is busy and is asked again.
    Notice(String),
    Usage(Usage),
    Done {
        stop: ModelStop,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelStop {
    /// The model has said what it wanted, or waits for its tool calls.
    Finished,
    MaxTokens,
    Refusal,
}

/// The model could not answer. The text is shown to the person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ModelError {
    pub text: String,
    pub kind: ModelErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Asking again may help, after so long if the provider said it.
    Passing { retry_after: Option<Duration> },
    /// The conversation is longer than the model can take.
    TooLong,
    /// Asking again does not help: a wrong key, an unknown model, no credit.
    Lasting,
}

impl ModelError {
    pub fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ModelErrorKind::Lasting }
    }

    pub fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ModelErrorKind::Passing { retry_after: None } }
    }
}
