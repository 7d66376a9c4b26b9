//! What the agent says, in the order in which it says it.
//!
//! A task cuts its output into messages and puts them into one queue, which is bounded by number and by
//! bytes. It reads no further while the queue is full: then the agent waits too.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;
use wire::upstream::journal::Asked;
use wire::{Fault, Frame, FrameBuffer, Message, Remains, RpcId};

use super::noise::{self, Noise, Quiet};
use super::surrogates;
use super::{PeerError, Remote, Shared, Waiter};
use crate::journal::Notes;

/// Messages heard and not yet taken.
const QUEUE_MAX: usize = 256;
const READ_BYTES: usize = 64 << 10;
/// The room in the queue is counted in pieces of this size.
const ROOM_BYTES: usize = 1 << 10;
/// How long an agent that no longer reads is still listened to: it may say why.
const LAST_WORDS: Duration = Duration::from_secs(1);
const INVALID_REQUEST: i64 = -32600;

/// One thing that was heard.
#[derive(Debug)]
pub enum Heard {
    /// To be answered exactly once, with [`super::Peer::answer`] or [`super::Peer::refuse`].
    Request {
        id: RpcId,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// An answer to a request of ours. It arrives when this is dropped.
    Answered(Answered),
    /// Something that is no message. `untold` more were heard before and not told.
    Noise {
        what: Noise,
        untold: u64,
    },
    /// The conversation is over: nothing more is heard, and nobody is answered.
    Ended(Ending),
}

/// How a conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The agent closed its output, mostly because it ended.
    Closed,
    /// The agent stopped reading.
    Deaf,
}

/// An answer on its way to whoever asked.
pub struct Answered {
    lane: Option<Arc<str>>,
    method: Box<str>,
    parcel: Option<Parcel>,
}

type Parcel = (oneshot::Sender<Result<Box<RawValue>, PeerError>>, Result<Box<RawValue>, PeerError>);

impl Answered {
    /// Whose request it was, as [`super::Terms::lane`] said.
    pub fn lane(&self) -> Option<&Arc<str>> {
        self.lane.as_ref()
    }

    /// What was asked.
    pub fn method(&self) -> &str {
        &self.method
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        if let Some((reply, result)) = self.parcel.take() {
            // Whoever asked may have given up in this moment.
            drop(reply.send(result));
        }
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered")
            .field("lane", &self.lane)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// The one who hears. Dropped, the conversation is over.
pub struct Ears {
    queue: mpsc::Receiver<Queued>,
    shared: Arc<Shared>,
    ended: Option<Ending>,
}

struct Queued {
    heard: Heard,
    room: Room,
}

/// What something that was heard takes of the room for such things, until this is dropped.
#[derive(Debug, Default)]
pub struct Room {
    _held: Option<OwnedSemaphorePermit>,
}

impl Ears {
    /// The next thing, for who is done with the one before. Safe to drop; the end is told again and again.
    pub async fn next(&mut self) -> Heard {
        self.next_with_room().await.0
    }

    /// The next thing, for who puts it into another queue and keeps its room with it.
    pub async fn next_with_room(&mut self) -> (Heard, Room) {
        if let Some(ending) = self.ended {
            return (Heard::Ended(ending), Room::default());
        }
        let queued = self.queue.recv().await;
        let Queued { heard, room } =
            queued.unwrap_or_else(|| Queued { heard: Heard::Ended(Ending::Closed), room: Room::default() });
        if let Heard::Ended(ending) = heard {
            self.ended = Some(ending);
            self.shared.forget_all();
        }
        (heard, room)
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.queue.close();
        self.shared.hush();
        // Answers that were heard already arrive.
        while let Ok(queued) = self.queue.try_recv() {
            drop(queued);
        }
        self.shared.forget_all();
    }
}

pub(super) fn start(
    shared: &Arc<Shared>,
    input: impl AsyncRead + Send + Unpin + 'static,
    notes: Option<Notes>,
    tasks: &TaskTracker,
) -> Ears {
    let (queue, heard) = mpsc::channel(QUEUE_MAX);
    let rooms = (shared.limits.heard_bytes_max / ROOM_BYTES).clamp(1, Semaphore::MAX_PERMITS);
    let rooms = u32::try_from(rooms).unwrap_or(u32::MAX);
    let listener = Listener {
        shared: Arc::clone(shared),
        queue,
        room: Arc::new(Semaphore::new(rooms as usize)),
        rooms,
        quiet: Quiet::default(),
        notes,
    };
    tasks.spawn(listener.listen(input));
    Ears { queue: heard, shared: Arc::clone(shared), ended: None }
}

struct Listener {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    /// All the room there is.
    rooms: u32,
    quiet: Quiet,
    notes: Option<Notes>,
}

/// Nobody listens any more.
struct Unheard;

enum Wake {
    Bytes(usize),
    Closed,
    Deaf,
    Unheard,
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
                Wake::Closed => break Ending::Closed,
                Wake::Deaf => break Ending::Deaf,
                Wake::Unheard => return,
            }
            while let Some(frame) = buffer.next_frame() {
                if self.take(frame, &buffer, false).await.is_err() {
                    return;
                }
            }
        };
        self.shared.hush();
        if let Some(frame) = buffer.finish()
            && self.take(frame, &buffer, true).await.is_err()
        {
            return;
        }
        // Nobody listens if this fails.
        self.put(Heard::Ended(ending), 0).await.ok();
    }

    async fn wake(&self, input: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> Wake {
        let deaf = async {
            self.shared.deaf.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            biased;
            () = self.queue.closed() => Wake::Unheard,
            read = input.read(bytes) => match read {
                Ok(0) => Wake::Closed,
                Ok(count) => Wake::Bytes(count),
                Err(error) => {
                    tracing::debug!(%error, "the agent's output cannot be read");
                    Wake::Closed
                }
            },
            () = deaf => Wake::Deaf,
        }
    }

    async fn take(&mut self, mut frame: Frame, buffer: &FrameBuffer, last: bool) -> Result<(), Unheard> {
        if let Frame::Line(line) = &mut frame {
            surrogates::mend(line);
        }
        if let Some(notes) = &self.notes {
            notes.take(&frame, buffer, |line| self.answered_by(line)).await;
        }
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong { limit_bytes, .. } => {
                let dropped = buffer.dropped();
                let remains = wire::remains(&dropped.head, &dropped.tail);
                let limit = limit_bytes as u64;
                self.settle(&remains, &PeerError::TooLong { bytes: dropped.bytes, limit }).await?;
                let (bytes, method) = (dropped.bytes, remains.method.as_deref().map(noise::excerpt));
                return self.noise(Noise::TooLong { bytes, limit, method }).await;
            }
        };
        let bytes = line.len();
        let heard = match wire::parse(&line) {
            Ok(Message::Request { id, method, params }) => {
                Heard::Request { id, method: method.into(), params: params.map(RawValue::to_owned) }
            }
            Ok(Message::Notification { method, params }) => {
                Heard::Notification { method: method.into(), params: params.map(RawValue::to_owned) }
            }
            Ok(Message::Response { id, result }) => match self.waiter(&id) {
                Some(waiter) => {
                    let result = result.map(RawValue::to_owned);
                    answered(waiter, result.map_err(|error| PeerError::Remote(Remote::read(error))))
                }
                // An answer that was given up comes late, and is nobody's.
                None if self.was_asked(&id) => return Ok(()),
                None => return self.noise(Noise::StrayAnswer { id }).await,
            },
            Err(_) if last => return self.noise(Noise::HalfALine { bytes: bytes as u64 }).await,
            Err((_, fault)) => return self.misunderstood(&line, fault).await,
        };
        self.put(heard, bytes).await
    }

    /// Whoever sent what cannot be understood, or waits for it, is told if that can be found out.
    async fn misunderstood(&mut self, line: &[u8], fault: Fault) -> Result<(), Unheard> {
        let what = noise::of(line, fault);
        if let Noise::NotAMessage { .. } = what {
            self.settle(&wire::remains(line, line), &PeerError::Malformed).await?;
        }
        self.noise(what).await
    }

    /// Answers for a message that did not arrive.
    async fn settle(&mut self, remains: &Remains, error: &PeerError) -> Result<(), Unheard> {
        match &remains.id {
            Some(id) if remains.answers => match self.waiter(id) {
                Some(waiter) => self.put(answered(waiter, Err(error.clone())), 0).await,
                None => Ok(()),
            },
            Some(id) => {
                let why = match error {
                    PeerError::Malformed => "not a JSON-RPC request".to_owned(),
                    error => format!("{error}; it was dropped"),
                };
                // An agent that does not read cannot be told.
                self.shared.refuse(id, &Remote::new(INVALID_REQUEST, why)).ok();
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn noise(&mut self, what: Noise) -> Result<(), Unheard> {
        self.shared.noise.fetch_add(1, Ordering::Relaxed);
        match self.quiet.admit() {
            Some(untold) => self.put(Heard::Noise { what, untold }, 0).await,
            None => Ok(()),
        }
    }

    async fn put(&self, heard: Heard, bytes: usize) -> Result<(), Unheard> {
        let rooms = u32::try_from(bytes / ROOM_BYTES).unwrap_or(u32::MAX).min(self.rooms);
        let room = match rooms {
            0 => None,
            rooms => tokio::select! {
                biased;
                () = self.queue.closed() => return Err(Unheard),
                room = Arc::clone(&self.room).acquire_many_owned(rooms) => room.ok(),
            },
        };
        self.queue.send(Queued { heard, room: Room { _held: room } }).await.map_err(|_| Unheard)
    }

    fn waiter(&self, id: &RpcId) -> Option<Waiter> {
        self.shared.waiting().by_number.remove(&number(id)?)
    }

    /// The request that waits for this answer.
    fn answered_by(&self, line: &[u8]) -> Option<Asked> {
        let Ok(Message::Response { id, .. }) = wire::parse(line) else { return None };
        let waiting = self.shared.waiting();
        let waiter = waiting.by_number.get(&number(&id)?)?;
        let session = waiter.lane.as_ref().map(ToString::to_string);
        Some(Asked { method: waiter.method.to_string(), session })
    }

    fn was_asked(&self, id: &RpcId) -> bool {
        number(id).is_some_and(|number| number != 0 && number <= self.shared.waiting().last)
    }
}

fn number(id: &RpcId) -> Option<u64> {
    id.as_json().parse().ok()
}

fn answered(waiter: Waiter, result: Result<Box<RawValue>, PeerError>) -> Heard {
    let Waiter { reply, lane, method } = waiter;
    Heard::Answered(Answered { lane, method, parcel: Some((reply, result)) })
}
