//! A model provider on loopback that says what a test wrote down, in the words of a real one.
//!
//! The path of a request decides the language: Anthropic Messages, OpenAI Responses, OpenAI Chat
//! Completions, Gemini, Ollama. Each is written after its provider's own documentation and recordings,
//! not after our decoders, so that the two cannot share a mistake. Everything is bytes on a socket of
//! ours: a provider can be cut, stalled or garbled at any byte.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod answer_rules;
mod anthropic;
mod gemini;
mod ollama;
mod openai_chat;
mod openai_responses;
pub(crate) mod request;
mod script;
mod serve;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Line, say};

pub use answer_rules::Rules;
pub use request::ReceivedRequest;
pub use script::read as read_script;

/// The provider API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderApi {
    Anthropic,
    Responses,
    Chat,
    Gemini,
    Ollama,
}

impl ProviderApi {
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::Responses, Self::Chat, Self::Gemini, Self::Ollama];

    fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        Some(match path {
            path if path.ends_with("/messages") => Self::Anthropic,
            path if path.ends_with("/responses") => Self::Responses,
            path if path.ends_with("/chat/completions") => Self::Chat,
            path if path.ends_with(":streamGenerateContent") => Self::Gemini,
            path if path.ends_with("/api/chat") => Self::Ollama,
            _ => return None,
        })
    }

    /// What stands between the address and the paths above.
    pub fn base(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Responses | Self::Chat => "/v1",
            Self::Gemini => "/v1beta",
            Self::Ollama => "",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Ollama => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }

    fn frames(self, lines: &[Line], model: &str) -> Vec<Frame> {
        match self {
            Self::Anthropic => anthropic::frames(lines, model),
            Self::Responses => openai_responses::frames(lines, model),
            Self::Chat => openai_chat::frames(lines, model),
            Self::Gemini => gemini::frames(lines, model),
            Self::Ollama => ollama::frames(lines, model),
        }
    }

    /// The body of an answer that is an error.
    fn error_body(self, status: u16, message: &str) -> String {
        match self {
            Self::Anthropic => anthropic::error_body(status, message),
            Self::Responses | Self::Chat => openai_chat::error_body(status, message),
            Self::Gemini => gemini::error_body(status, message),
            Self::Ollama => ollama::error_body(message),
        }
    }
}

/// One piece of a reply as it is sent.
#[derive(Debug, Clone, PartialEq)]
enum Frame {
    Event(String),
    /// Says that the reply is over.
    Terminator(String),
    /// Nothing more comes.
    Hang,
}

/// How a reply goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An error instead of an answer.
    Refuse { status: u16, headers: Vec<(String, String)> },
    /// A page for browsers instead of an answer.
    Html { status: u16 },
    /// The connection is cut in the middle of this event, counted from 0.
    Cut { event: usize },
    /// The stream ends as it should but for the provider's own mark of the end.
    NoTerminator,
    /// Sent in pieces of so many bytes.
    Split(usize),
    /// Bytes that mean nothing.
    Garbage,
    /// A line that does not end while anybody listens.
    EndlessLine,
    /// So long before the first byte.
    Late(Duration),
}

impl Fault {
    /// Too many requests; `after` is the header that says when to come again.
    pub fn busy(header: &str, after: &str) -> Self {
        Self::Refuse { status: 429, headers: vec![(header.into(), after.into())] }
    }

    pub fn refuse(status: u16) -> Self {
        Self::Refuse { status, headers: Vec::new() }
    }
}

/// One answer: the script's lines, and how they go wrong on the way.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScriptedReply {
    pub lines: Vec<Line>,
    pub fault: Option<Fault>,
}

impl ScriptedReply {
    pub fn faulty(fault: Fault, lines: Vec<Line>) -> Self {
        Self { lines, fault: Some(fault) }
    }
}

impl From<Vec<Line>> for ScriptedReply {
    fn from(lines: Vec<Line>) -> Self {
        Self { lines, fault: None }
    }
}

/// The provider. It ends when it is dropped.
pub struct Mock {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    /// How many clients hung up before their answer was whole.
    hung_up: watch::Sender<usize>,
    source: Source,
}

/// Where answers come from.
enum Source {
    /// The list, in order.
    List,
    /// The list; after its last answer the first comes again.
    Repeated,
    Rules(Rules),
}

#[derive(Default)]
struct State {
    answers: VecDeque<ScriptedReply>,
    requests: Vec<ReceivedRequest>,
    /// What `GET /v1/models` and `GET /api/tags` say.
    models: Vec<String>,
}

impl Mock {
    /// Answers requests in their order. After the last one every answer is a short text.
    pub async fn start<A: Into<ScriptedReply>>(answers: impl IntoIterator<Item = A>) -> Self {
        Self::listen(0, answers.into_iter().map(Into::into).collect(), false).await
    }

    /// On a port of the caller's choice; 0 is any.
    pub async fn listen(port: u16, answers: Vec<ScriptedReply>, repeat: bool) -> Self {
        Self::open(port, answers, if repeat { Source::Repeated } else { Source::List }).await
    }

    /// Answers each request by what it asks.
    pub async fn follow(port: u16, rules: Rules) -> Self {
        Self::open(port, Vec::new(), Source::Rules(rules)).await
    }

    async fn open(port: u16, answers: Vec<ScriptedReply>, source: Source) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port on loopback");
        let address = listener.local_addr().expect("the port's address");
        let state = State { answers: answers.into(), models: vec!["mock".into()], ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), hung_up: watch::Sender::new(0), source });
        let mut serving = JoinSet::new();
        serving.spawn(serve::accept(listener, Arc::clone(&shared)));
        Self { address, shared, _serving: serving }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a client of this language is to be led.
    pub fn base_url(&self, tongue: ProviderApi) -> String {
        format!("http://{}{}", self.address, tongue.base())
    }

    /// Adds an answer after all others.
    pub fn then(&self, answer: impl Into<ScriptedReply>) {
        self.shared.lock().answers.push_back(answer.into());
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.lock().requests.clone()
    }

    /// What it says when it is asked for its models.
    pub fn offer(&self, models: &[&str]) {
        self.shared.lock().models = models.iter().map(|model| (*model).to_owned()).collect();
    }

    /// Waits until so many clients have hung up before their answer was whole.
    pub async fn hung_up(&self, times: usize) {
        let mut hung_up = self.shared.hung_up.subscribe();
        let waiting = hung_up.wait_for(|seen| *seen >= times);
        let waited = tokio::time::timeout(crate::server::DEADLINE, waiting).await;
        waited.expect("the client hangs up").expect("the mock runs");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether answers are chosen by what is asked.
    fn follows(&self) -> bool {
        matches!(self.source, Source::Rules(_))
    }

    fn answer_to(&self, seen: &ReceivedRequest) -> ScriptedReply {
        if let Source::Rules(rules) = &self.source {
            return rules.answer(seen);
        }
        let mut state = self.lock();
        let answer = state.answers.pop_front();
        if let (Source::Repeated, Some(answer)) = (&self.source, &answer) {
            let again = answer.clone();
            state.answers.push_back(again);
        }
        answer.unwrap_or_else(|| vec![say("the script is over")].into())
    }
}

/// A text in a few pieces, as models say it.
fn pieces(text: &str) -> Vec<&str> {
    let third = (text.chars().count() / 3).max(8);
    let mut rest = text;
    let mut pieces = Vec::new();
    while let Some((at, _)) = rest.char_indices().nth(third) {
        let (piece, more) = rest.split_at(at);
        pieces.push(piece);
        rest = more;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// The arguments of a call in many small pieces: 8 bytes each, as tokens are.
fn argument_pieces(json: &str) -> Vec<&str> {
    const PIECE_BYTES: usize = 8;
    let mut rest = json;
    let mut pieces = Vec::new();
    while rest.len() > PIECE_BYTES {
        let at = (PIECE_BYTES..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (piece, more) = rest.split_at(at);
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

/// `event: NAME` and its data.
fn named_event(data: &serde_json::Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
