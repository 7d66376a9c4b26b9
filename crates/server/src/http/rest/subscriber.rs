//! One subscriber of a session's event stream: a cursor into the log, and a pipe to the client.
//!
//! There is no queue. What the client has not taken is not read from the log, so a slow client costs
//! one chunk of text and blocks nobody. A client that takes nothing for too long is disconnected; it reconnects
//! with the number of the last frame it has.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use engine::{
    Doorbell, LogRead, LogReader, OpenError, PageRequest, Seq, SessionHandle, SessionId, Subscription,
};
use metrics::{ConnectionGuard, DoorLabel, LagReporter};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::rest::{RestStream, StreamFormat};

use super::event_streams::EventStreams;
use super::frame_checkpoints::FrameCheckpoint;
use super::rest_context::RestContext;
use crate::http::Peer;

/// A client that takes nothing for so long is disconnected.
const STALLED: Duration = Duration::from_secs(30);
/// While there is nothing to send, this often it is checked whether the client still reads.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// Frames are written together up to this size.
const PIECE_BYTES: usize = 64 << 10;
/// Few enough to be held for every client that has stopped reading.
const PAGE: PageRequest = PageRequest { count_max: 128, bytes_max: 128 << 10, outline: false };

pub(super) struct SubscriberParts {
    pub context: RestContext,
    pub streams: Arc<EventStreams>,
    pub handle: SessionHandle,
    pub form: StreamFormat,
    /// The last frame that the client has.
    pub since: u64,
    /// Ends when a turn was sent to its end and nothing else is queued.
    pub until_idle: bool,
    pub pipe: ClientPipe,
}

/// The pipe to the client.
pub(super) struct ClientPipe {
    pub sender: mpsc::Sender<Bytes>,
    /// The HTTP connection, which is closed when the client takes nothing any more.
    pub peer: Option<Peer>,
    /// Cancelled when the client's token is replaced.
    pub revoked: Arc<CancellationToken>,
}

/// The stream is over, for whatever reason.
struct StreamEnded;

enum Wake {
    More,
    Silence,
    Over,
}

pub(super) struct Subscriber {
    context: RestContext,
    streams: Arc<EventStreams>,
    id: SessionId,
    form: StreamFormat,
    handle: SessionHandle,
    reader: LogReader,
    bell: Arc<Doorbell>,
    _subscription: Subscription,
    openings: watch::Receiver<u64>,
    stream: RestStream,
    since: u64,
    /// Events up to here were cleared and are not sent again.
    forgotten: Seq,
    /// The end of the log when the client connected: `since` is about frames up to here.
    known: Seq,
    until_idle: bool,
    pipe: ClientPipe,
    piece: Vec<u8>,
    lag: LagReporter,
    _counted: ConnectionGuard,
}

impl Subscriber {
    pub fn new(parts: SubscriberParts) -> Self {
        let SubscriberParts { context, streams, handle, form, since, until_idle, pipe } = parts;
        let snapshot = handle.snapshot();
        let forgotten = snapshot.replay_from;
        let checkpoint = streams.checkpoints().before(handle.id(), form, since, forgotten);
        let reader = handle.read(checkpoint.after);
        let (known, bell) = (reader.head(), Arc::new(Doorbell::default()));
        Self {
            openings: context.state.registry.openings(),
            lag: context.state.metrics.reader(),
            _counted: context.state.metrics.connection(DoorLabel::Sse),
            context,
            streams,
            id: handle.id().clone(),
            form,
            _subscription: reader.subscribe(&bell, 0),
            reader,
            bell,
            stream: RestStream::new(handle.id(), form, checkpoint.told)
                .after(checkpoint.after)
                .in_folder(Arc::clone(&snapshot.cwd)),
            handle,
            since,
            forgotten,
            known,
            until_idle,
            pipe,
            piece: Vec::new(),
        }
    }

    pub async fn run(mut self) {
        while let Ok(()) = self.step().await {}
    }

    async fn step(&mut self) -> Result<(), StreamEnded> {
        match self.reader.take(PAGE).await {
            Ok(LogRead::Events(events)) => {
                self.lag.set(self.reader.head().0.saturating_sub(self.reader.cursor().0));
                for event in events {
                    self.tell(&event);
                    if self.piece.len() >= PIECE_BYTES {
                        self.flush().await?;
                    }
                }
                // Reading old events from the store must not keep other tasks waiting.
                tokio::task::yield_now().await;
                Ok(())
            }
            Ok(LogRead::UpToDate) => self.up_to_date().await,
            Ok(LogRead::Ended { trouble }) => self.away(trouble.as_deref()).await,
            Err(error) => {
                tracing::warn!(%error, session = %self.id, "could not continue reading a stream");
                Err(StreamEnded)
            }
        }
    }

    fn tell(&mut self, event: &engine::Event) {
        let since = if event.seq <= self.forgotten {
            u64::MAX
        } else if event.seq <= self.known {
            self.since
        } else {
            0
        };
        self.stream.write(event, since, &mut self.piece);
        if self.stream.is_between_turns() && matches!(event.body, engine::Body::TurnEnded { .. }) {
            let checkpoint = FrameCheckpoint { after: event.seq, told: self.stream.frame_count() };
            self.streams.checkpoints().note(&self.id, self.form, checkpoint);
        }
    }

    async fn up_to_date(&mut self) -> Result<(), StreamEnded> {
        self.flush().await?;
        let snapshot = self.handle.snapshot();
        // A client that reconnects for the last frame alone has seen the end before it.
        let ended = self.stream.last_turn_succeeded().is_some() || (self.since > 0 && self.since != u64::MAX);
        if self.until_idle && ended && !snapshot.busy && snapshot.waiting == 0 {
            self.stream.write_end(self.stream.last_turn_succeeded(), &mut self.piece);
            self.flush().await?;
            return Err(StreamEnded);
        }
        let wake = tokio::select! {
            biased;
            () = over(&self.context, &self.pipe) => Wake::Over,
            _ = self.bell.wait() => Wake::More,
            () = tokio::time::sleep(ASK_EVERY) => Wake::Silence,
        };
        self.woken(wake).await
    }

    async fn woken(&mut self, wake: Wake) -> Result<(), StreamEnded> {
        match wake {
            Wake::More => Ok(()),
            Wake::Over => Err(StreamEnded),
            // The body writes nothing for it, but takes it only if the client takes what was written before.
            Wake::Silence => self.send(Bytes::new()).await,
        }
    }

    /// The log is closed. The session may only have left memory: then the stream waits until it is loaded again
    /// and goes on. To watch is not to use it, so it is not loaded for this.
    async fn away(&mut self, trouble: Option<&str>) -> Result<(), StreamEnded> {
        if let Some(trouble) = trouble {
            self.stream.write_error(trouble, &mut self.piece);
        }
        self.flush().await?;
        loop {
            let (registry, owner) = (&self.context.state.registry, &self.context.caller.principal);
            let back = registry.live(owner, &self.id).filter(|handle| !handle.is_same(&self.handle));
            if let Some(handle) = back {
                self.reader = handle.read(self.reader.cursor());
                self._subscription = self.reader.subscribe(&self.bell, 0);
                self.handle = handle;
                return Ok(());
            }
            if let Err(OpenError::NotFound(_)) = registry.row(owner, &self.id).await {
                self.stream.write_end(None, &mut self.piece);
                self.flush().await?;
                return Err(StreamEnded);
            }
            let wake = tokio::select! {
                biased;
                () = over(&self.context, &self.pipe) => Wake::Over,
                changed = self.openings.changed() => if changed.is_ok() { Wake::More } else { Wake::Over },
                () = tokio::time::sleep(ASK_EVERY) => Wake::Silence,
            };
            self.woken(wake).await?;
        }
    }

    async fn flush(&mut self) -> Result<(), StreamEnded> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.send(piece).await
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), StreamEnded> {
        let sent = tokio::select! {
            biased;
            () = over(&self.context, &self.pipe) => return Err(StreamEnded),
            sent = tokio::time::timeout(STALLED, self.pipe.sender.send(piece)) => sent,
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(StreamEnded),
            Err(_) => {
                tracing::info!(session = %self.id, "a stream was closed: its client did not read for too long");
                if let Some(peer) = &self.pipe.peer {
                    peer.hang_up();
                }
                Err(StreamEnded)
            }
        }
    }
}

/// Waits until the client is gone, its token is replaced, or the server stops.
async fn over(context: &RestContext, pipe: &ClientPipe) {
    tokio::select! {
        () = context.state.stop.cancelled() => {}
        () = pipe.sender.closed() => {}
        () = pipe.revoked.cancelled() => {}
    }
}
