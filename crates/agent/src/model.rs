//! What the agent needs of a model: one question, one stream of events.
//!
//! A stream is pulled, never pushed: the model produces what is taken, and dropping the stream ends
//! the call. So there is no queue between model and turn, and nothing to tidy up after a cancel.

mod offline;

use std::sync::Arc;

use engine::{BoxFuture, Usage};

pub use offline::Offline;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub context_tokens: u64,
}

/// Everything a model is told. It knows nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub model: Arc<str>,
    pub system: Arc<str>,
    pub messages: Vec<Message>,
    pub tools: Arc<[ToolSpec]>,
    pub output_tokens_max: Option<u64>,
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
    },
    ToolResult {
        call: Arc<str>,
        tool: Arc<str>,
        text: Arc<str>,
        failed: bool,
    },
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
    /// JSON, as the model wrote it.
    pub arguments: Arc<str>,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// A JSON schema of the arguments.
    pub schema: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    Text(String),
    Thinking(String),
    ToolCall { id: String, name: String, arguments: String },
    Usage(Usage),
    Done { stop: ModelStop },
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
#[error("{0}")]
pub struct ModelError(pub String);
