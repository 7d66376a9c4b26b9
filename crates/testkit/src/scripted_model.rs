//! A model that says exactly what a test wrote down, and shows the test what it was told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream, Price};
use engine::{BoxFuture, Usage};

/// One thing the model does in a reply. A reply that just ends is finished.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Text(String),
    Thinking(String),
    /// A tool and its arguments as JSON.
    Call(String, String),
    Usage(Usage),
    Error(String),
    /// Says nothing more until the call is dropped.
    Hang,
    Stop(ModelStop),
}

pub fn say(text: impl Into<String>) -> Line {
    Line::Text(text.into())
}

pub fn think(text: impl Into<String>) -> Line {
    Line::Thinking(text.into())
}

/// A tool call; the arguments are JSON.
pub fn call(tool: impl Into<String>, arguments: impl Into<String>) -> Line {
    Line::Call(tool.into(), arguments.into())
}

pub fn fail(reason: impl Into<String>) -> Line {
    Line::Error(reason.into())
}

/// One reply per model call, in order. After the last one every reply is a short text.
#[derive(Clone)]
pub struct Script {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    replies: VecDeque<Vec<Line>>,
    requests: Vec<ModelRequest>,
}

impl Script {
    pub fn new(replies: impl IntoIterator<Item = Vec<Line>>) -> Self {
        let shared = Shared { replies: replies.into_iter().collect(), requests: Vec::new() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Everything the model was asked so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.lock().requests.clone()
    }

    /// What the model was told of its last tool call, if it made one.
    pub fn last_result(&self) -> String {
        let requests = self.requests();
        let messages = requests.last().map(|request| request.messages.as_slice()).unwrap_or_default();
        let mut results = messages.iter().filter_map(|message| match message {
            Message::ToolResult { text, .. } => Some(text.to_string()),
            _ => None,
        });
        results.next_back().unwrap_or_default()
    }

    /// Adds a reply after all others.
    pub fn then(&self, reply: Vec<Line>) {
        self.lock().replies.push_back(reply);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for Script {
    fn offers(&self) -> Vec<ModelInfo> {
        let info = |id: &str| ModelInfo {
            id: id.into(),
            name: id.into(),
            description: "says what the test wrote down".into(),
            context_tokens: 128_000,
            output_tokens_max: None,
            images: true,
            price: Some(Price::FREE),
        };
        vec![info("script:one"), info("script:two")]
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        let mut shared = self.lock();
        shared.requests.push(request);
        let lines = shared.replies.pop_front().unwrap_or_else(|| vec![say("the script is over")]);
        Box::new(Reading { lines: lines.into(), calls: 0 })
    }
}

struct Reading {
    lines: VecDeque<Line>,
    calls: usize,
}

impl ModelStream for Reading {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        Box::pin(async {
            match self.lines.pop_front() {
                None => Ok(ModelEvent::Done { stop: ModelStop::Finished }),
                Some(Line::Text(text)) => Ok(ModelEvent::Text(text)),
                Some(Line::Thinking(text)) => Ok(ModelEvent::Thinking(text)),
                Some(Line::Call(name, arguments)) => {
                    self.calls += 1;
                    let id = format!("model-call-{}", self.calls);
                    Ok(ModelEvent::ToolCall { id, name, arguments })
                }
                Some(Line::Usage(usage)) => Ok(ModelEvent::Usage(usage)),
                Some(Line::Error(reason)) => Err(ModelError::permanent(reason)),
                Some(Line::Hang) => std::future::pending().await,
                Some(Line::Stop(stop)) => Ok(ModelEvent::Done { stop }),
            }
        })
    }
}
