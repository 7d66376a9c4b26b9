//! Receives the agent's messages, in the order in which they are sent.
//!
//! A task splits the agent's output into messages and puts them into one queue, which is bounded by count and
//! by bytes. While the queue is full the task does not read, so the agent has to wait too.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;
use wire::external_agent::journal::JournaledRequest;
use wire::{Frame, FrameBuffer, RequestError, RpcId, RpcMessage, TruncatedMessage};

use super::invalid_output::{self, InvalidOutput, ReportLimiter};
use super::lone_surrogates;
use super::{ConnectionError, PendingRequest, RpcError, Shared};
use crate::agent_journal::JournalSender;

/// Received messages that wait to be processed.
const QUEUE_MAX: usize = 256;
const READ_BYTES: usize = 64 << 10;
/// Queue space is counted in units of this size.
const UNIT_BYTES: usize = 1 << 10;
/// How long messages of an agent that no longer reads are still received: it may send the reason.
const FINAL_READ_TIME: Duration = Duration::from_secs(1);
const INVALID_REQUEST: i64 = -32600;

/// A message of the agent, or the end of the connection.
#[derive(Debug)]
pub enum AgentMessage {
    /// To be answered exactly once, with [`super::AgentConnection::answer`] or
    /// [`super::AgentConnection::refuse`].
    Request {
        id: RpcId,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// An answer to one of our requests. It is delivered when this value is dropped.
    Reply(DeferredReply),
    /// Output that is not a message. `omitted` more were received before and not reported.
    InvalidOutput {
        what: InvalidOutput,
        omitted: u64,
    },
    /// The connection is over: no more messages or answers will come.
    Ended(ConnectionEnd),
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The agent closed its output, usually because it exited.
    Closed,
    /// The agent stopped reading.
    NotReading,
}

/// An answer that is delivered to the requester when this value is dropped.
pub struct DeferredReply {
    session: Option<Arc<str>>,
    method: Box<str>,
    delivery: Option<Delivery>,
}

type Delivery =
    (oneshot::Sender<Result<Box<RawValue>, ConnectionError>>, Result<Box<RawValue>, ConnectionError>);

impl DeferredReply {
    /// The session that made the request, from [`super::RequestOptions::session`].
    pub fn session(&self) -> Option<&Arc<str>> {
        self.session.as_ref()
    }

    /// The method of the request.
    pub fn method(&self) -> &str {
        &self.method
    }
}

impl Drop for DeferredReply {
    fn drop(&mut self) {
        if let Some((reply, result)) = self.delivery.take() {
            // The requester may have given up at this moment.
            drop(reply.send(result));
        }
    }
}

impl fmt::Debug for DeferredReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered")
            .field("lane", &self.session)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// The receiving side of the connection. Dropping it ends the connection.
pub struct MessageReceiver {
    queue: mpsc::Receiver<QueuedMessage>,
    shared: Arc<Shared>,
    ended: Option<ConnectionEnd>,
}

struct QueuedMessage {
    message: AgentMessage,
    space: QueueSpace,
}

/// The queue space that a received message occupies until this value is dropped.
#[derive(Debug, Default)]
pub struct QueueSpace {
    _permit: Option<OwnedSemaphorePermit>,
}

impl MessageReceiver {
    /// The next message; releases the space of it at once. Cancel-safe; after the end it returns the end again.
    pub async fn next(&mut self) -> AgentMessage {
        self.next_with_space().await.0
    }

    /// The next message with its space, for a caller that puts both into another queue.
    pub async fn next_with_space(&mut self) -> (AgentMessage, QueueSpace) {
        if let Some(ending) = self.ended {
            return (AgentMessage::Ended(ending), QueueSpace::default());
        }
        let queued = self.queue.recv().await;
        let QueuedMessage { message, space } = queued.unwrap_or_else(|| QueuedMessage {
            message: AgentMessage::Ended(ConnectionEnd::Closed),
            space: QueueSpace::default(),
        });
        if let AgentMessage::Ended(ending) = message {
            self.ended = Some(ending);
            self.shared.fail_all();
        }
        (message, space)
    }
}

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        self.queue.close();
        self.shared.close_output();
        // Answers that were received already are delivered.
        while let Ok(queued) = self.queue.try_recv() {
            drop(queued);
        }
        self.shared.fail_all();
    }
}

pub(super) fn start(
    shared: &Arc<Shared>,
    input: impl AsyncRead + Send + Unpin + 'static,
    notes: Option<JournalSender>,
    tasks: &TaskTracker,
) -> MessageReceiver {
    let (queue, message) = mpsc::channel(QUEUE_MAX);
    let units = (shared.limits.queued_bytes_max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    let listener = Listener {
        shared: Arc::clone(shared),
        queue,
        space: Arc::new(Semaphore::new(units as usize)),
        units,
        limiter: ReportLimiter::default(),
        notes,
    };
    tasks.spawn(listener.listen(input));
    MessageReceiver { queue: message, shared: Arc::clone(shared), ended: None }
}

struct Listener {
    shared: Arc<Shared>,
    queue: mpsc::Sender<QueuedMessage>,
    space: Arc<Semaphore>,
    /// All units of space.
    units: u32,
    limiter: ReportLimiter,
    notes: Option<JournalSender>,
}

/// The receiver was dropped.
struct ReceiverGone;

enum Wake {
    Bytes(usize),
    Closed,
    NotReading,
    ReceiverGone,
}

impl Listener {
    async fn listen(mut self, mut input: impl AsyncRead + Send + Unpin) {
        let mut buffer = FrameBuffer::new(self.shared.limits.line_bytes_max);
        if self.notes.is_some() {
            buffer = buffer.hashing();
        }
        let mut bytes = vec![0; READ_BYTES];
        let ending = loop {
            match self.wake(&mut input, &mut bytes).await {
                Wake::Bytes(count) => buffer.push(&bytes[..count]),
                Wake::Closed => break ConnectionEnd::Closed,
                Wake::NotReading => break ConnectionEnd::NotReading,
                Wake::ReceiverGone => return,
            }
            while let Some(frame) = buffer.next_frame() {
                if self.take(frame, &buffer, false).await.is_err() {
                    return;
                }
            }
        };
        self.shared.close_output();
        if let Some(frame) = buffer.finish()
            && self.take(frame, &buffer, true).await.is_err()
        {
            return;
        }
        // This fails only if the receiver was dropped.
        self.put(AgentMessage::Ended(ending), 0).await.ok();
    }

    async fn wake(&self, input: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> Wake {
        let stopped_reading = async {
            self.shared.stopped_reading.cancelled().await;
            tokio::time::sleep(FINAL_READ_TIME).await;
        };
        tokio::select! {
            biased;
            () = self.queue.closed() => Wake::ReceiverGone,
            read = input.read(bytes) => match read {
                Ok(0) => Wake::Closed,
                Ok(count) => Wake::Bytes(count),
                Err(error) => {
                    tracing::debug!(%error, "could not read the agent's output");
                    Wake::Closed
                }
            },
            () = stopped_reading => Wake::NotReading,
        }
    }

    async fn take(&mut self, mut frame: Frame, buffer: &FrameBuffer, last: bool) -> Result<(), ReceiverGone> {
        if let Frame::Line(line) = &mut frame {
            lone_surrogates::replace_lone_surrogates(line);
        }
        if let Some(notes) = &self.notes {
            notes.take(&frame, buffer, |line| self.answered_by(line)).await;
        }
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong { limit_bytes, .. } => {
                let dropped = buffer.dropped();
                let remains = wire::read_truncated(&dropped.head, &dropped.tail);
                let limit = limit_bytes as u64;
                self.fail_request(&remains, &ConnectionError::TooLong { bytes: dropped.bytes, limit })
                    .await?;
                let (bytes, method) = (dropped.bytes, remains.method.as_deref().map(invalid_output::excerpt));
                return self.invalid_output(InvalidOutput::TooLong { bytes, limit, method }).await;
            }
        };
        let bytes = line.len();
        let message = match wire::parse(&line) {
            Ok(RpcMessage::Request { id, method, params }) => {
                AgentMessage::Request { id, method: method.into(), params: params.map(RawValue::to_owned) }
            }
            Ok(RpcMessage::Notification { method, params }) => {
                AgentMessage::Notification { method: method.into(), params: params.map(RawValue::to_owned) }
            }
            Ok(RpcMessage::Response { id, result }) => match self.take_request(&id) {
                Some(request) => {
                    let result = result.map(RawValue::to_owned);
                    reply_message(
                        request,
                        result.map_err(|error| ConnectionError::RpcError(RpcError::read(error))),
                    )
                }
                // A late answer to a request that was given up.
                None if self.was_asked(&id) => return Ok(()),
                None => return self.invalid_output(InvalidOutput::StrayAnswer { id }).await,
            },
            Err(_) if last => {
                return self.invalid_output(InvalidOutput::PartialLine { bytes: bytes as u64 }).await;
            }
            Err((_, fault)) => return self.report_invalid_message(&line, fault).await,
        };
        self.put(message, bytes).await
    }

    /// Reports an invalid message, and fails the request that it belongs to if that can be found out.
    async fn report_invalid_message(&mut self, line: &[u8], fault: RequestError) -> Result<(), ReceiverGone> {
        let what = invalid_output::of(line, fault);
        if let InvalidOutput::NotAMessage { .. } = what {
            self.fail_request(&wire::read_truncated(line, line), &ConnectionError::Malformed).await?;
        }
        self.invalid_output(what).await
    }

    /// Fails the request that an unreadable message belongs to, ours or the agent's.
    async fn fail_request(
        &mut self,
        remains: &TruncatedMessage,
        error: &ConnectionError,
    ) -> Result<(), ReceiverGone> {
        match &remains.id {
            Some(id) if remains.answers => match self.take_request(id) {
                Some(request) => self.put(reply_message(request, Err(error.clone())), 0).await,
                None => Ok(()),
            },
            Some(id) => {
                let why = match error {
                    ConnectionError::Malformed => "not a JSON-RPC request".to_owned(),
                    error => format!("{error}; it was dropped"),
                };
                // An agent that does not read cannot be answered.
                self.shared.refuse(id, &RpcError::new(INVALID_REQUEST, why)).ok();
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn invalid_output(&mut self, what: InvalidOutput) -> Result<(), ReceiverGone> {
        self.shared.invalid_output.fetch_add(1, Ordering::Relaxed);
        match self.limiter.admit() {
            Some(omitted) => self.put(AgentMessage::InvalidOutput { what, omitted }, 0).await,
            None => Ok(()),
        }
    }

    async fn put(&self, message: AgentMessage, bytes: usize) -> Result<(), ReceiverGone> {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).min(self.units);
        let space = match units {
            0 => None,
            units => tokio::select! {
                biased;
                () = self.queue.closed() => return Err(ReceiverGone),
                space = Arc::clone(&self.space).acquire_many_owned(units) => space.ok(),
            },
        };
        self.queue
            .send(QueuedMessage { message, space: QueueSpace { _permit: space } })
            .await
            .map_err(|_| ReceiverGone)
    }

    fn take_request(&self, id: &RpcId) -> Option<PendingRequest> {
        self.shared.pending().by_number.remove(&number(id)?)
    }

    /// The request that this line answers.
    fn answered_by(&self, line: &[u8]) -> Option<JournaledRequest> {
        let Ok(RpcMessage::Response { id, .. }) = wire::parse(line) else { return None };
        let pending = self.shared.pending();
        let request = pending.by_number.get(&number(&id)?)?;
        let session = request.session.as_ref().map(ToString::to_string);
        Some(JournaledRequest { method: request.method.to_string(), session })
    }

    fn was_asked(&self, id: &RpcId) -> bool {
        number(id).is_some_and(|number| number != 0 && number <= self.shared.pending().last)
    }
}

fn number(id: &RpcId) -> Option<u64> {
    id.as_json().parse().ok()
}

fn reply_message(request: PendingRequest, result: Result<Box<RawValue>, ConnectionError>) -> AgentMessage {
    let PendingRequest { reply, session, method } = request;
    AgentMessage::Reply(DeferredReply { session, method, delivery: Some((reply, result)) })
}
