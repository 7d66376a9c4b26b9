//! The JSON-RPC connection to an external agent: one message per line, in both directions.
//!
//! [`AgentConnection`] sends and [`MessageReceiver`] receives. Messages are received in the order in which
//! the agent sent them, and that includes answers to our requests: an answer arrives as
//! [`AgentMessage::Reply`] and is delivered to the requester when that value is dropped. So the end of a turn
//! cannot overtake what was sent before it, however many queues the messages pass through.
//!
//! The conversation continues whatever the agent sends: a line that is not a message becomes
//! [`InvalidOutput`], and an overlong line is discarded while it arrives. A slow receiver slows the agent
//! down. If the agent does not read, a queue fills up, nothing more is sent, and after a while the connection
//! is given up.
//!
//! **Invariant:** only the futures of [`AgentConnection::request`] wait for the agent, and they always end:
//! with the answer, at their deadline, or with the connection.
//! **Invariant:** a task that receives messages must not wait for an answer at the same time, because the
//! answer comes through the queue that the task itself empties.

mod frame_writer;
mod invalid_output;
mod lone_surrogates;
mod message_receiver;

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

use super::agent_journal::JournalSender;

pub use invalid_output::InvalidOutput;
pub use message_receiver::{AgentMessage, ConnectionEnd, DeferredReply, MessageReceiver, QueueSpace};

/// Our requests that wait for an answer at the same time.
const PENDING_MAX: usize = 1024;
/// Messages that wait to be written.
const OUTGOING_MAX: usize = 1024;
/// The message of an agent's error is shown to people.
const MESSAGE_CHARS_MAX: usize = 2000;

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The longest line that is accepted.
    pub line_bytes_max: usize,
    /// Received messages that wait to be processed. A single message may be larger.
    pub queued_bytes_max: usize,
    /// Outgoing messages that wait to be written.
    pub unsent_bytes_max: usize,
    /// How long the agent may go without reading any of them.
    pub write_wait: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: wire::LINE_FRAME_BYTES_MAX,
            queued_bytes_max: 8 << 20,
            unsent_bytes_max: 64 << 20,
            write_wait: Duration::from_secs(30),
        }
    }
}

/// Options of a request.
#[derive(Debug, Clone, Default)]
pub struct RequestOptions {
    /// After this time the request fails. Without a deadline it may take any time.
    pub deadline: Option<Duration>,
    /// The session that makes the request: [`DeferredReply::session`] has it, to route the answer.
    pub session: Option<Arc<str>>,
}

/// Why a request or a message failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectionError {
    #[error("the agent has ended")]
    Gone,
    #[error("the agent did not answer in time")]
    TimedOut,
    #[error("the agent does not read its input, or has too many unanswered requests")]
    Busy,
    #[error("the message has {bytes} bytes, but the limit is {limit}")]
    TooLong { bytes: u64, limit: u64 },
    #[error("the agent's answer is malformed")]
    Malformed,
    #[error("{0}")]
    RpcError(RpcError),
}

/// A JSON-RPC error object, sent by either side.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads the error object of a response. The agent may have sent anything.
    fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct ErrorObject {
            code: Option<i64>,
            message: Option<String>,
            data: Option<Box<RawValue>>,
        }
        let error: Option<ErrorObject> = serde_json::from_str(raw.get()).ok();
        let ErrorObject { code, message, data } =
            error.unwrap_or(ErrorObject { code: None, message: None, data: None });
        let message = message.filter(|message| !message.trim().is_empty());
        let mut message = message.unwrap_or_else(|| "the agent gave no reason".into());
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
        }
        Self { code: code.unwrap_or(-32603), message, data }
    }
}

/// The sending side of the connection. Clones share the connection.
#[derive(Clone)]
pub struct AgentConnection {
    shared: Arc<Shared>,
}

struct Shared {
    limits: ConnectionLimits,
    /// `None` when nothing more can be sent.
    outgoing: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    unsent_bytes: AtomicUsize,
    /// Notified when something was written, or when nothing more can be.
    written: Notify,
    pending: Mutex<PendingRequests>,
    invalid_output: AtomicU64,
    /// Cancelled when the agent does not read any more.
    stopped_reading: CancellationToken,
}

#[derive(Default)]
struct PendingRequests {
    /// The number of the last request.
    last: u64,
    by_number: HashMap<u64, PendingRequest>,
}

struct PendingRequest {
    reply: oneshot::Sender<Result<Box<RawValue>, ConnectionError>>,
    session: Option<Arc<str>>,
    method: Box<str>,
}

/// A frame that could not be queued.
struct UnsentFrame {
    error: ConnectionError,
    frame: Vec<u8>,
}

impl AgentConnection {
    /// Starts the connection's tasks, which end with it. Received frames go to `notes`, if there is a journal.
    pub fn start(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        limits: ConnectionLimits,
        notes: Option<JournalSender>,
        tasks: &TaskTracker,
    ) -> (Self, MessageReceiver) {
        let (outgoing, unsent) = mpsc::channel(OUTGOING_MAX);
        let shared = Arc::new(Shared {
            limits,
            outgoing: Mutex::new(Some(outgoing)),
            unsent_bytes: AtomicUsize::new(0),
            written: Notify::new(),
            pending: Mutex::default(),
            invalid_output: AtomicU64::new(0),
            stopped_reading: CancellationToken::new(),
        });
        tasks.spawn(frame_writer::write(Arc::clone(&shared), unsent, output));
        let receiver = message_receiver::start(&shared, input, notes, tasks);
        (Self { shared }, receiver)
    }

    /// Sends a request; the future yields the answer. The request is queued when this returns. Dropping the
    /// future before the answer sends the agent a cancel notification.
    pub fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        options: RequestOptions,
    ) -> BoxFuture<'static, Result<Box<RawValue>, ConnectionError>> {
        let RequestOptions { deadline, session } = options;
        let deadline = deadline.map(|wait| tokio::time::Instant::now() + wait);
        let asked = self.ask(method, params, session);
        Box::pin(async move {
            let (answer, cancel_on_drop) = asked?;
            let answer = async { answer.await.unwrap_or(Err(ConnectionError::Gone)) };
            let answered = match deadline {
                None => answer.await,
                Some(at) => {
                    tokio::time::timeout_at(at, answer).await.unwrap_or(Err(ConnectionError::TimedOut))
                }
            };
            drop(cancel_on_drop);
            answered
        })
    }

    pub fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), ConnectionError> {
        self.shared.send(frame_writer::message(None, method, params)?)
    }

    /// Answers a request of the agent. Waits while the queue is full, because the agent would wait forever
    /// for a dropped answer.
    pub async fn answer(&self, id: &RpcId, result: &impl Serialize) -> Result<(), ConnectionError> {
        self.shared.send_when_possible(frame_writer::answer(id, result)?).await
    }

    /// Answers a request of the agent with an error, and waits in the same way.
    pub async fn refuse(&self, id: &RpcId, error: &RpcError) -> Result<(), ConnectionError> {
        self.shared.send_when_possible(frame_writer::refusal(id, error)?).await
    }

    /// Closes the sending side: what is queued is still written, then the agent's input is closed.
    pub fn close(&self) {
        self.shared.close_output();
    }

    /// Whether messages can still be sent.
    pub fn is_open(&self) -> bool {
        self.shared.outgoing().is_some()
    }

    /// How often the agent sent something that is not a message.
    pub fn invalid_output_count(&self) -> u64 {
        self.shared.invalid_output.load(Ordering::Relaxed)
    }

    #[expect(clippy::type_complexity, reason = "the two halves of one waiting")]
    fn ask(
        &self,
        method: &str,
        params: &impl Serialize,
        session: Option<Arc<str>>,
    ) -> Result<(oneshot::Receiver<Result<Box<RawValue>, ConnectionError>>, CancelOnDrop), ConnectionError>
    {
        let (reply, answer) = oneshot::channel();
        let number = self.shared.register(PendingRequest { reply, session, method: method.into() })?;
        // Created before sending can fail, so that a request that was not sent is removed again.
        let mut cancel_on_drop = CancelOnDrop { shared: Arc::clone(&self.shared), number, sent: false };
        self.shared.send(frame_writer::message(Some(number), method, params)?)?;
        cancel_on_drop.sent = true;
        Ok((answer, cancel_on_drop))
    }
}

impl Shared {
    /// Registers a pending request and returns its number.
    fn register(&self, request: PendingRequest) -> Result<u64, ConnectionError> {
        if self.outgoing().is_none() {
            return Err(ConnectionError::Gone);
        }
        let mut pending = self.pending();
        if pending.by_number.len() >= PENDING_MAX {
            return Err(ConnectionError::Busy);
        }
        pending.last += 1;
        let number = pending.last;
        pending.by_number.insert(number, request);
        Ok(number)
    }

    fn send(&self, frame: Vec<u8>) -> Result<(), ConnectionError> {
        self.try_queue(frame).map_err(|unsent| unsent.error)
    }

    async fn send_when_possible(&self, mut frame: Vec<u8>) -> Result<(), ConnectionError> {
        loop {
            let written = self.written.notified();
            match self.try_queue(frame) {
                Err(UnsentFrame { error: ConnectionError::Busy, frame: again }) => frame = again,
                outcome => return outcome.map_err(|unsent| unsent.error),
            }
            written.await;
        }
    }

    /// Queues the frame if there is room, otherwise returns it.
    fn try_queue(&self, frame: Vec<u8>) -> Result<(), UnsentFrame> {
        let (bytes, limit) = (frame.len(), self.limits.unsent_bytes_max);
        if bytes > limit {
            let error = ConnectionError::TooLong { bytes: bytes as u64, limit: limit as u64 };
            return Err(UnsentFrame { error, frame });
        }
        let outgoing = self.outgoing();
        let Some(outgoing) = outgoing.as_ref() else {
            return Err(UnsentFrame { error: ConnectionError::Gone, frame });
        };
        if self.unsent_bytes.load(Ordering::Acquire) + bytes > limit {
            return Err(UnsentFrame { error: ConnectionError::Busy, frame });
        }
        self.unsent_bytes.fetch_add(bytes, Ordering::AcqRel);
        outgoing.try_send(frame).map_err(|error| {
            self.unsent_bytes.fetch_sub(bytes, Ordering::AcqRel);
            match error {
                mpsc::error::TrySendError::Full(frame) => UnsentFrame { error: ConnectionError::Busy, frame },
                mpsc::error::TrySendError::Closed(frame) => {
                    UnsentFrame { error: ConnectionError::Gone, frame }
                }
            }
        })
    }

    fn refuse(&self, id: &RpcId, error: &RpcError) -> Result<(), ConnectionError> {
        self.send(frame_writer::refusal(id, error)?)
    }

    fn close_output(&self) {
        *self.outgoing() = None;
        self.written.notify_waiters();
    }

    /// Fails all pending requests, by dropping their senders.
    fn fail_all(&self) {
        self.pending().by_number.clear();
    }

    fn outgoing(&self) -> MutexGuard<'_, Option<mpsc::Sender<Vec<u8>>>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a cancel notification to the agent if it is dropped before the answer has come.
struct CancelOnDrop {
    shared: Arc<Shared>,
    number: u64,
    sent: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let waited = self.shared.pending().by_number.remove(&self.number).is_some();
        if waited && self.sent {
            let mut frame = Vec::new();
            write_cancel_request(&mut frame, &RpcId::number(self.number));
            // If this cannot be sent, a late answer is ignored.
            self.shared.send(frame).ok();
        }
    }
}

#[cfg(test)]
mod tests;
