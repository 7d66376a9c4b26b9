//! One reader of a stream: a cursor into the log, and a pipe to the client.
//!
//! There is no queue. What the client has not taken is not read from the log, so a slow client costs
//! one piece of text and holds nobody up. One that takes nothing for too long is let go; it comes back
//! with the number of the last frame it has.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use engine::{Doorbell, LogReader, OpenError, Page, Seq, SessionHandle, SessionId, Subscription, Taken};
use metrics::{Door, Guard, LagHandle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::rest::{Form, Stream};

use super::events::Streams;
use super::marks::Mark;
use super::reach::Reach;
use crate::http::Peer;

/// A client that takes nothing for so long is let go.
const STALLED: Duration = Duration::from_secs(30);
/// Where there is nothing to tell, whether the client takes anything is asked this often.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// Frames are written together up to this size.
const PIECE_BYTES: usize = 64 << 10;
/// Few enough to be held for every client that has stopped reading.
const PAGE: Page = Page { count_max: 128, bytes_max: 128 << 10, outline: false };

pub(super) struct SubscriberParts {
    pub reach: Reach,
    pub streams: Arc<Streams>,
    pub handle: SessionHandle,
    pub form: Form,
    /// The last frame that the client has.
    pub since: u64,
    /// Ends when a turn was told to its end and nothing else is to be done.
    pub until_idle: bool,
    pub outlet: Outlet,
}

/// The way to the client.
pub(super) struct Outlet {
    pub sender: mpsc::Sender<Bytes>,
    /// Whose connection ends when it takes nothing any more.
    pub peer: Option<Peer>,
    /// The client may not be here any longer.
    pub leave: Arc<CancellationToken>,
}

/// The stream is over, for whatever reason.
struct Over;

enum Wake {
    More,
    Silence,
    Over,
}

pub(super) struct Subscriber {
    reach: Reach,
    streams: Arc<Streams>,
    id: SessionId,
    form: Form,
    handle: SessionHandle,
    reader: LogReader,
    bell: Arc<Doorbell>,
    _subscription: Subscription,
    openings: watch::Receiver<u64>,
    stream: Stream,
    since: u64,
    /// What was forgotten up to here is not told again.
    forgotten: Seq,
    /// What stands up to here was there when the client came: `since` is about that.
    known: Seq,
    until_idle: bool,
    outlet: Outlet,
    piece: Vec<u8>,
    lag: LagHandle,
    _counted: Guard,
}

impl Subscriber {
    pub fn new(parts: SubscriberParts) -> Self {
        let SubscriberParts { reach, streams, handle, form, since, until_idle, outlet } = parts;
        let snapshot = handle.snapshot();
        let forgotten = snapshot.replay_from;
        let mark = streams.marks().before(handle.id(), form, since, forgotten);
        let reader = handle.read(mark.after);
        let (known, bell) = (reader.head(), Arc::new(Doorbell::default()));
        Self {
            openings: reach.doors.registry.openings(),
            lag: reach.doors.metrics.reader(),
            _counted: reach.doors.metrics.connection(Door::Sse),
            reach,
            streams,
            id: handle.id().clone(),
            form,
            _subscription: reader.subscribe(&bell, 0),
            reader,
            bell,
            stream: Stream::new(handle.id(), form, mark.told)
                .after(mark.after)
                .in_folder(Arc::clone(&snapshot.cwd)),
            handle,
            since,
            forgotten,
            known,
            until_idle,
            outlet,
            piece: Vec::new(),
        }
    }

    pub async fn run(mut self) {
        while let Ok(()) = self.step().await {}
    }

    async fn step(&mut self) -> Result<(), Over> {
        match self.reader.take(PAGE).await {
            Ok(Taken::Events(events)) => {
                self.lag.set(self.reader.head().0.saturating_sub(self.reader.cursor().0));
                for event in events {
                    self.tell(&event);
                    if self.piece.len() >= PIECE_BYTES {
                        self.flush().await?;
                    }
                }
                // What is long enough ago to be stored must not keep others waiting.
                tokio::task::yield_now().await;
                Ok(())
            }
            Ok(Taken::UpToDate) => self.up_to_date().await,
            Ok(Taken::Ended { trouble }) => self.away(trouble.as_deref()).await,
            Err(error) => {
                tracing::warn!(%error, session = %self.id, "a stream cannot be read on");
                Err(Over)
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
        self.stream.tell(event, since, &mut self.piece);
        if self.stream.is_between_turns() && matches!(event.body, engine::Body::TurnEnded { .. }) {
            let mark = Mark { after: event.seq, told: self.stream.told() };
            self.streams.marks().note(&self.id, self.form, mark);
        }
    }

    async fn up_to_date(&mut self) -> Result<(), Over> {
        self.flush().await?;
        let snapshot = self.handle.snapshot();
        // A client that comes back for the last frame alone has seen the end before it.
        let ended = self.stream.ended().is_some() || (self.since > 0 && self.since != u64::MAX);
        if self.until_idle && ended && !snapshot.busy && snapshot.waiting == 0 {
            self.stream.end(self.stream.ended(), &mut self.piece);
            self.flush().await?;
            return Err(Over);
        }
        let wake = tokio::select! {
            biased;
            () = over(&self.reach, &self.outlet) => Wake::Over,
            _ = self.bell.wait() => Wake::More,
            () = tokio::time::sleep(ASK_EVERY) => Wake::Silence,
        };
        self.woken(wake).await
    }

    async fn woken(&mut self, wake: Wake) -> Result<(), Over> {
        match wake {
            Wake::More => Ok(()),
            Wake::Over => Err(Over),
            // The body tells nothing of it, but takes it only if the client takes what it has told.
            Wake::Silence => self.send(Bytes::new()).await,
        }
    }

    /// The log is closed. The session may only have left memory: then the stream waits for its return
    /// and goes on. To watch is not to use it, so it is not brought back for this.
    async fn away(&mut self, trouble: Option<&str>) -> Result<(), Over> {
        if let Some(trouble) = trouble {
            self.stream.trouble(trouble, &mut self.piece);
        }
        self.flush().await?;
        loop {
            let (registry, owner) = (&self.reach.doors.registry, &self.reach.by.principal);
            let back = registry.live(owner, &self.id).filter(|handle| !handle.is_same(&self.handle));
            if let Some(handle) = back {
                self.reader = handle.read(self.reader.cursor());
                self._subscription = self.reader.subscribe(&self.bell, 0);
                self.handle = handle;
                return Ok(());
            }
            if let Err(OpenError::NotFound(_)) = registry.row(owner, &self.id).await {
                self.stream.end(None, &mut self.piece);
                self.flush().await?;
                return Err(Over);
            }
            let wake = tokio::select! {
                biased;
                () = over(&self.reach, &self.outlet) => Wake::Over,
                changed = self.openings.changed() => if changed.is_ok() { Wake::More } else { Wake::Over },
                () = tokio::time::sleep(ASK_EVERY) => Wake::Silence,
            };
            self.woken(wake).await?;
        }
    }

    async fn flush(&mut self) -> Result<(), Over> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.send(piece).await
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Over> {
        let sent = tokio::select! {
            biased;
            () = over(&self.reach, &self.outlet) => return Err(Over),
            sent = tokio::time::timeout(STALLED, self.outlet.sender.send(piece)) => sent,
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Over),
            Err(_) => {
                tracing::info!(session = %self.id, "a stream was not read from for too long");
                if let Some(peer) = &self.outlet.peer {
                    peer.hang_up();
                }
                Err(Over)
            }
        }
    }
}

/// Nobody reads any more, nobody may, or the server stops.
async fn over(reach: &Reach, outlet: &Outlet) {
    tokio::select! {
        () = reach.doors.stop.cancelled() => {}
        () = outlet.sender.closed() => {}
        () = outlet.leave.cancelled() => {}
    }
}
