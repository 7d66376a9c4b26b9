//! The conversation with an agent that is another program: JSON-RPC, one message per line, both ways.
//!
//! [`Peer`] speaks, [`Ears`] hears. What the agent says is heard in the order in which it was said, answers
//! to our requests included: they come as [`Heard::Answered`] and reach whoever asked when that value is
//! dropped. So the end of a turn cannot overtake what was said before it, however many queues it passes.
//!
//! Whatever the agent does, the conversation goes on: what is no message is [`Noise`], a line that is too
//! long is thrown away as it arrives. Who does not take what was heard slows the agent down. An agent that
//! does not read fills a queue, after which nothing more is sent, and is given up after a while.
//!
//! **Invariant:** nothing here waits for the agent but the futures of [`Peer::request`], and these end: with
//! the answer, at their deadline, or with the conversation.
//! **Invariant:** whoever takes what was heard must not wait for an answer meanwhile: it is behind.

mod hearing;
mod noise;
mod saying;
mod surrogates;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::RpcId;
use wire::acp::write_cancel_request;

use super::journal::Notes;

pub use hearing::{Answered, Ears, Ending, Heard, Room};
pub use noise::Noise;

/// Requests of ours that wait for an answer at once.
const WAITING_MAX: usize = 1024;
/// Messages that wait to be written.
const OUTGOING_MAX: usize = 1024;
/// What an agent says of a refusal is shown to people.
const MESSAGE_CHARS_MAX: usize = 2000;

/// What a conversation may cost.
#[derive(Debug, Clone, Copy)]
pub struct PeerLimits {
    /// The longest line that is taken.
    pub line_bytes_max: usize,
    /// What was heard and not yet taken. One message may be more.
    pub heard_bytes_max: usize,
    /// What is to be said and not yet written.
    pub unsaid_bytes_max: usize,
    /// How long the agent may take to read anything of it.
    pub write_wait: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: wire::FRAME_BYTES_MAX,
            heard_bytes_max: 8 << 20,
            unsaid_bytes_max: 64 << 20,
            write_wait: Duration::from_secs(30),
        }
    }
}

/// How a request is made.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// After this the answer is given up. Without, it takes as long as it takes.
    pub deadline: Option<Duration>,
    /// Whose request it is: [`Answered::lane`] has it, for who hears for several.
    pub lane: Option<Arc<str>>,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PeerError {
    #[error("the agent is gone")]
    Gone,
    #[error("the agent did not answer in time")]
    TimedOut,
    #[error("the agent does not read what it is sent, or has more to answer than it may have at once")]
    Busy,
    #[error("the message has {bytes} bytes, and {limit} is the most")]
    TooLong { bytes: u64, limit: u64 },
    #[error("the agent's answer cannot be understood")]
    Malformed,
    #[error("{0}")]
    Remote(Remote),
}

/// An error as one side of the conversation tells it to the other.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Remote {
    pub code: i64,
    pub message: String,
    pub data: Option<Box<RawValue>>,
}

impl Remote {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads what was sent as an error. It may be anything.
    fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct Told {
            code: Option<i64>,
            message: Option<String>,
            data: Option<Box<RawValue>>,
        }
        let told: Option<Told> = serde_json::from_str(raw.get()).ok();
        let Told { code, message, data } = told.unwrap_or(Told { code: None, message: None, data: None });
        let message = message.filter(|message| !message.trim().is_empty());
        let mut message = message.unwrap_or_else(|| "the agent gave no reason".into());
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
        }
        Self { code: code.unwrap_or(-32603), message, data }
    }
}

/// The way to the agent. Its copies are the same conversation.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    limits: PeerLimits,
    /// None when nothing more can be said.
    outgoing: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    unsaid_bytes: AtomicUsize,
    /// Told when something was written, or nothing more can be.
    written: Notify,
    waiting: Mutex<Waiting>,
    noise: AtomicU64,
    /// The agent does not read any more.
    deaf: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    /// The number of the last request.
    last: u64,
    by_number: HashMap<u64, Waiter>,
}

struct Waiter {
    reply: oneshot::Sender<Result<Box<RawValue>, PeerError>>,
    lane: Option<Arc<str>>,
    method: Box<str>,
}

/// A frame that could not be said.
struct Unsaid {
    error: PeerError,
    frame: Vec<u8>,
}

impl Peer {
    /// Begins the conversation. Its tasks end with it. What the agent says is noted, if somebody wants it.
    pub fn start(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        limits: PeerLimits,
        notes: Option<Notes>,
        tasks: &TaskTracker,
    ) -> (Self, Ears) {
        let (outgoing, unsaid) = mpsc::channel(OUTGOING_MAX);
        let shared = Arc::new(Shared {
            limits,
            outgoing: Mutex::new(Some(outgoing)),
            unsaid_bytes: AtomicUsize::new(0),
            written: Notify::new(),
            waiting: Mutex::default(),
            noise: AtomicU64::new(0),
            deaf: CancellationToken::new(),
        });
        tasks.spawn(saying::write(Arc::clone(&shared), unsaid, output));
        let ears = hearing::start(&shared, input, notes, tasks);
        (Self { shared }, ears)
    }

    /// Asks, and gives the answer. The request is on its way when this returns; whoever drops the future
    /// before the answer has given it up, and the agent is told.
    pub fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        terms: Terms,
    ) -> BoxFuture<'static, Result<Box<RawValue>, PeerError>> {
        let Terms { deadline, lane } = terms;
        let deadline = deadline.map(|wait| tokio::time::Instant::now() + wait);
        let asked = self.ask(method, params, lane);
        Box::pin(async move {
            let (answer, given_up) = asked?;
            let answer = async { answer.await.unwrap_or(Err(PeerError::Gone)) };
            let answered = match deadline {
                None => answer.await,
                Some(at) => tokio::time::timeout_at(at, answer).await.unwrap_or(Err(PeerError::TimedOut)),
            };
            drop(given_up);
            answered
        })
    }

    pub fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), PeerError> {
        self.shared.say(saying::message(None, method, params)?)
    }

    /// Answers a request of the agent's. Waits while there is no room: an agent that is not answered would
    /// wait for ever.
    pub async fn answer(&self, id: &RpcId, result: &impl Serialize) -> Result<(), PeerError> {
        self.shared.say_when_there_is_room(saying::answer(id, result)?).await
    }

    /// Answers a request of the agent's with an error, and waits in the same way.
    pub async fn refuse(&self, id: &RpcId, error: &Remote) -> Result<(), PeerError> {
        self.shared.say_when_there_is_room(saying::refusal(id, error)?).await
    }

    /// Says nothing more: what is on its way is still written, then the agent's input ends.
    pub fn close(&self) {
        self.shared.hush();
    }

    /// Whether something can still be said.
    pub fn is_open(&self) -> bool {
        self.shared.outgoing().is_some()
    }

    /// How often the agent said something that is no message.
    pub fn noise_count(&self) -> u64 {
        self.shared.noise.load(Ordering::Relaxed)
    }

    #[expect(clippy::type_complexity, reason = "the two halves of one waiting")]
    fn ask(
        &self,
        method: &str,
        params: &impl Serialize,
        lane: Option<Arc<str>>,
    ) -> Result<(oneshot::Receiver<Result<Box<RawValue>, PeerError>>, GivenUp), PeerError> {
        let (reply, answer) = oneshot::channel();
        let number = self.shared.expect(Waiter { reply, lane, method: method.into() })?;
        // Made before the first failure can come, so that nobody is waited for who was never asked.
        let mut given_up = GivenUp { shared: Arc::clone(&self.shared), number, asked: false };
        self.shared.say(saying::message(Some(number), method, params)?)?;
        given_up.asked = true;
        Ok((answer, given_up))
    }
}

impl Shared {
    /// Notes that an answer is waited for, and gives its number.
    fn expect(&self, waiter: Waiter) -> Result<u64, PeerError> {
        if self.outgoing().is_none() {
            return Err(PeerError::Gone);
        }
        let mut waiting = self.waiting();
        if waiting.by_number.len() >= WAITING_MAX {
            return Err(PeerError::Busy);
        }
        waiting.last += 1;
        let number = waiting.last;
        waiting.by_number.insert(number, waiter);
        Ok(number)
    }

    fn say(&self, frame: Vec<u8>) -> Result<(), PeerError> {
        self.offer(frame).map_err(|unsaid| unsaid.error)
    }

    async fn say_when_there_is_room(&self, mut frame: Vec<u8>) -> Result<(), PeerError> {
        loop {
            let written = self.written.notified();
            match self.offer(frame) {
                Err(Unsaid { error: PeerError::Busy, frame: again }) => frame = again,
                outcome => return outcome.map_err(|unsaid| unsaid.error),
            }
            written.await;
        }
    }

    /// Says it if there is room, else gives it back.
    fn offer(&self, frame: Vec<u8>) -> Result<(), Unsaid> {
        let (bytes, limit) = (frame.len(), self.limits.unsaid_bytes_max);
        if bytes > limit {
            let error = PeerError::TooLong { bytes: bytes as u64, limit: limit as u64 };
            return Err(Unsaid { error, frame });
        }
        let outgoing = self.outgoing();
        let Some(outgoing) = outgoing.as_ref() else { return Err(Unsaid { error: PeerError::Gone, frame }) };
        if self.unsaid_bytes.load(Ordering::Acquire) + bytes > limit {
            return Err(Unsaid { error: PeerError::Busy, frame });
        }
        self.unsaid_bytes.fetch_add(bytes, Ordering::AcqRel);
        outgoing.try_send(frame).map_err(|error| {
            self.unsaid_bytes.fetch_sub(bytes, Ordering::AcqRel);
            match error {
                mpsc::error::TrySendError::Full(frame) => Unsaid { error: PeerError::Busy, frame },
                mpsc::error::TrySendError::Closed(frame) => Unsaid { error: PeerError::Gone, frame },
            }
        })
    }

    fn refuse(&self, id: &RpcId, error: &Remote) -> Result<(), PeerError> {
        self.say(saying::refusal(id, error)?)
    }

    fn hush(&self) {
        *self.outgoing() = None;
        self.written.notify_waiters();
    }

    /// Nobody who waits will be answered. Dropping the senders is what tells them.
    fn forget_all(&self) {
        self.waiting().by_number.clear();
    }

    fn outgoing(&self) -> MutexGuard<'_, Option<mpsc::Sender<Vec<u8>>>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that somebody waits for. Dropped before the answer, the agent is told not to bother.
struct GivenUp {
    shared: Arc<Shared>,
    number: u64,
    asked: bool,
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        let waited = self.shared.waiting().by_number.remove(&self.number).is_some();
        if waited && self.asked {
            let mut frame = Vec::new();
            write_cancel_request(&mut frame, &RpcId::number(self.number));
            // An agent that cannot be told will answer in vain.
            self.shared.say(frame).ok();
        }
    }
}

#[cfg(test)]
mod tests;
