//! Replicates a session to a receiver that keeps a mirror: its log, and the views and the card that our own clients show.
//!
//! The receiver says first how far its mirror has come; everything after that is sent in order and counts
//! as stored when it is acknowledged. Only a bounded amount is sent without acknowledgement. Views are not in the log: one
//! that is lost is made again, so they wait for nothing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Body, Doorbell, Event, LogRead, LogReader, NoticeLevel, Origin, PageRequest, Seq, SessionHandle,
    StoreError, Subscription,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use wire::event_json;
use wire::native::SessionCard;
use wire::tunnel::{
    BATCH_BYTES_MAX, BATCH_EVENTS_MAX, BridgeFrame, CardEntry, EventEntry, HubFrame, LogSource, MirrorAck,
    MirrorReady, TUNNEL_FRAME_BYTES_MAX, ViewEntry, WatchState,
};

use super::batch_packer::{BODY_BYTES_MAX, pack};
use super::body_codec::BodyContext;
use super::bridge_error::BridgeError;
use super::mirror_branch::{BranchState, agree};
use super::tunnel_pipe::{Outgoing, TunnelConnection};
use super::{ConnectionEnd, Shared, parse_frame};
use app::MirrorSource;

const PAGE: PageRequest =
    PageRequest { count_max: BATCH_EVENTS_MAX, bytes_max: BATCH_BYTES_MAX, outline: false };
/// Batches and bytes of events that may be under way without an acknowledgement.
const UNACKNOWLEDGED_MAX: usize = 16;
const UNACKNOWLEDGED_BYTES_MAX: usize = 8 << 20;
/// How long to wait before a store that cannot be read is tried again.
const STORE_REST: Duration = Duration::from_secs(1);

/// Replicates the session until the connection ends or the bridge does.
pub(super) async fn run(
    shared: &Arc<Shared>,
    handles: &mut watch::Receiver<SessionHandle>,
    branch_state: &mut BranchState,
    mut pipe: TunnelConnection,
    stopped: impl Future<Output = ()>,
) -> ConnectionEnd {
    let mut stopped = std::pin::pin!(stopped);
    let agreed = tokio::select! {
        biased;
        () = &mut stopped => return ConnectionEnd::Stopped,
        agreed = agree(shared, handles, branch_state, (&mut pipe.incoming, &pipe.out)) => agreed,
        trouble = &mut pipe.over => Err(trouble.unwrap_or_else(|_| BridgeError::closed())),
    };
    let (ready, source) = match agreed {
        Ok(agreed) => agreed,
        Err(trouble) => return ConnectionEnd::Failed(trouble),
    };
    let handle = handles.borrow_and_update().clone();
    let mut mirror = MirrorSender::new(shared, handle, &ready, source);
    match mirror.serve(handles, pipe, stopped).await {
        Ok(()) => ConnectionEnd::Stopped,
        Err(trouble) => ConnectionEnd::Failed(trouble),
    }
}

/// Waits for the first frame, which says how far the mirror has come.
pub(super) async fn ready(
    shared: &Shared,
    incoming: &mut mpsc::Receiver<Vec<u8>>,
) -> Result<MirrorReady, BridgeError> {
    let first = async {
        while let Some(frame) = incoming.recv().await {
            if let Some(HubFrame::Ready(ready)) = parse_frame(&frame)? {
                return Ok(ready);
            }
        }
        std::future::pending().await
    };
    let late = || BridgeError::malformed("a mirror without its position");
    tokio::time::timeout(shared.timings.answer, first).await.unwrap_or_else(|_| Err(late()))
}

struct MirrorSender<'a> {
    shared: &'a Arc<Shared>,
    handle: SessionHandle,
    reader: LogReader,
    bell: Arc<Doorbell>,
    _ringing: Subscription,
    view: MirrorSource,
    /// The last event that was sent, and the last that was acknowledged.
    sent: u64,
    acknowledged: u64,
    /// Batches that were not acknowledged: the last event of each, and its bytes.
    unacknowledged: VecDeque<(u64, usize)>,
    unacknowledged_bytes: usize,
    card: Option<SessionCard>,
    /// Sent with the first batch.
    source: Option<LogSource>,
    /// The generation of the key that the view and the card were sealed with.
    generation: u64,
    watched: bool,
    pending: PendingWork,
    /// When to try a view again whose feed has ended: the store may be readable by then.
    view_again: Option<Instant>,
}

/// Which parts may have something to send, and when.
#[derive(Debug, Clone, Copy)]
struct PendingWork {
    log: bool,
    view: bool,
    card: bool,
    at: Instant,
}

enum Wake {
    Over(BridgeError),
    Heard(Vec<u8>),
    Stop,
    Handle,
    Log,
    View,
    ViewAgain,
    Card,
    Rekeyed,
    Flush,
}

impl<'a> MirrorSender<'a> {
    fn new(shared: &'a Arc<Shared>, handle: SessionHandle, ready: &MirrorReady, source: LogSource) -> Self {
        let head = handle.read(Seq::START).head();
        let after = Seq(ready.events);
        if after > head {
            // A receiver that does not support branches keeps what it has.
            tracing::warn!(session = %handle.id(), mirror = ready.events, log = head.0, "the mirror is ahead of its log");
        }
        let after = after.min(head);
        let reader = handle.read(after);
        let bell = Arc::new(Doorbell::default());
        let pending = PendingWork { log: true, view: true, card: true, at: Instant::now() };
        Self {
            _ringing: reader.subscribe(&bell, 0),
            // The mirrored view may be sealed with an older key: then it starts with a full view.
            view: MirrorSource::new(&shared.app, &handle, ready.view.filter(|_| !shared.codec.are_sealed())),
            generation: shared.codec.generation(),
            shared,
            handle,
            reader,
            bell,
            sent: after.0,
            acknowledged: after.0,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            card: None,
            source: Some(source),
            watched: ready.watched,
            pending,
            view_again: None,
        }
    }

    async fn serve(
        &mut self,
        handles: &mut watch::Receiver<SessionHandle>,
        mut pipe: TunnelConnection,
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), BridgeError> {
        let mut views = self.view.changes();
        let mut cards = self.shared.app.cards_change();
        let mut rekeyed = self.shared.codec.rekeyed();
        let mut stopping: Option<Instant> = None;
        loop {
            let PendingWork { log, view, card, at } = self.pending;
            let all_said = self.acknowledged >= self.sent && !(log || view || card);
            if stopping.is_some_and(|until| all_said || Instant::now() >= until) {
                return Ok(());
            }
            let sendable = (log && self.may_read()) || view || card;
            let at = if stopping.is_some() { Instant::now() } else { at };
            let wake = tokio::select! {
                biased;
                trouble = &mut pipe.over => Wake::Over(ended(trouble)),
                Some(frame) = pipe.incoming.recv() => Wake::Heard(frame),
                () = &mut stopped, if stopping.is_none() => Wake::Stop,
                Ok(()) = handles.changed() => Wake::Handle,
                _ = self.bell.wait(), if !log => Wake::Log,
                Ok(()) = views.changed(), if !view => Wake::View,
                Ok(()) = cards.changed(), if !card => Wake::Card,
                () = rekeyed.changed() => Wake::Rekeyed,
                () = tokio::time::sleep_until(at), if sendable => Wake::Flush,
                () = late(self.view_again), if self.view_again.is_some() => Wake::ViewAgain,
                () = late(stopping), if stopping.is_some() => Wake::Stop,
            };
            match wake {
                Wake::Over(trouble) => return Err(trouble),
                Wake::Heard(frame) => self.handle_frame(&frame)?,
                Wake::Stop => {
                    stopping.get_or_insert(Instant::now() + self.shared.timings.farewell);
                    // The log may have ended with events that the doorbell did not ring for.
                    (self.pending.log, self.pending.view, self.pending.card) = (true, true, true);
                }
                Wake::Handle => self.switch_handle(handles.borrow_and_update().clone()),
                Wake::Log => self.pending.log = true,
                Wake::View => self.pending.view = true,
                Wake::ViewAgain => {
                    self.view_again = None;
                    self.view.reopen(&self.shared.app, &self.handle);
                    views = self.view.changes();
                    self.pending.view = true;
                }
                Wake::Card => self.pending.card = true,
                Wake::Rekeyed => self.rekey(),
                Wake::Flush => self.flush(&pipe).await?,
            }
        }
    }

    /// Whether more events may be sent without acknowledgement.
    fn may_read(&self) -> bool {
        self.unacknowledged.len() < UNACKNOWLEDGED_MAX && self.unacknowledged_bytes < UNACKNOWLEDGED_BYTES_MAX
    }

    fn handle_frame(&mut self, frame: &[u8]) -> Result<(), BridgeError> {
        match parse_frame(frame)? {
            Some(HubFrame::Ack(MirrorAck { events, .. })) => self.on_ack(events),
            Some(HubFrame::Watched(WatchState { watched, anew })) => {
                if anew {
                    self.view.reset();
                    self.pending.view = true;
                }
                if anew || (watched && !self.watched) {
                    self.pending.at = Instant::now();
                }
                self.watched = watched;
            }
            // `ready` came already, and a session's socket carries no calls.
            Some(HubFrame::Ready(_) | HubFrame::Call(_)) | None => {}
        }
        Ok(())
    }

    /// Takes an acknowledgement; events that were not sent cannot be acknowledged.
    fn on_ack(&mut self, events: u64) {
        self.acknowledged = self.acknowledged.max(events.min(self.sent));
        while let Some((last, bytes)) = self.unacknowledged.front().copied() {
            if last > self.acknowledged {
                break;
            }
            self.unacknowledged.pop_front();
            self.unacknowledged_bytes -= bytes;
        }
        self.count();
    }

    fn count(&self) {
        let behind = self.reader.head().0.saturating_sub(self.acknowledged);
        self.shared.bridges.queued(self.handle.id(), behind);
    }

    /// A device was revoked: the view and the card are sealed again, with a key that it does not have.
    fn rekey(&mut self) {
        let generation = self.shared.codec.generation();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.view.reset();
            self.card = None;
            (self.pending.view, self.pending.card, self.pending.at) = (true, true, Instant::now());
        }
    }

    /// The session left memory and was loaded again: the same log continues under another handle.
    fn switch_handle(&mut self, handle: SessionHandle) {
        if handle.is_same(&self.handle) {
            return;
        }
        self.reader = handle.read(Seq(self.sent));
        self._ringing = self.reader.subscribe(&self.bell, 0);
        self.handle = handle;
        (self.pending.log, self.pending.card) = (true, true);
    }

    async fn flush(&mut self, pipe: &TunnelConnection) -> Result<(), BridgeError> {
        let began = Instant::now();
        let session = self.handle.id().clone();
        let after = self.sent;
        let page = if self.pending.log && self.may_read() { self.page().await } else { Vec::new() };
        let mut events = Vec::with_capacity(page.len());
        for event in &page {
            events.push(self.entry(event)?);
            self.sent = event.seq.0;
        }
        let view = self.next_view()?;
        let card = self.next_card()?;
        self.pending.view = false;
        self.pending.card = false;
        // A mirror that is behind catches up at once; new events are sent at the rate of its viewers.
        let interval = if self.watched { self.shared.timings.watched } else { self.shared.timings.unwatched };
        let behind = !page.is_empty() && self.reader.head().0 > self.sent;
        self.pending.at = if behind { began } else { self.pending.at.max(began + interval) };
        for mut batch in pack(after, events, view, card) {
            batch.source = self.source.take();
            if let Some(last) = batch.events.last() {
                batch.mark = self.mark(&page, last.seq);
                let bytes = batch.events.iter().map(|entry| entry.body.get().len()).sum();
                self.unacknowledged.push_back((last.seq, bytes));
                self.unacknowledged_bytes += bytes;
            }
            let frame = serde_json::to_vec(&BridgeFrame::Batch(batch)).map_err(BridgeError::malformed)?;
            if frame.len() > TUNNEL_FRAME_BYTES_MAX {
                // Events and views are measured before this; the receiver would close the connection.
                tracing::error!(%session, bytes = frame.len(), "a batch is larger than a frame may be");
                continue;
            }
            self.count();
            // A pipe that is closed says why.
            drop(pipe.out.send(Outgoing::Frame(frame)).await);
        }
        Ok(())
    }

    /// The next page of the log, if there is one.
    async fn page(&mut self) -> Vec<Arc<Event>> {
        match self.reader.take(PAGE).await {
            Ok(LogRead::Events(events)) => events,
            Ok(LogRead::UpToDate | LogRead::Ended { .. }) => {
                self.pending.log = false;
                Vec::new()
            }
            Err(error) => {
                self.wait_for_store(&error);
                Vec::new()
            }
        }
    }

    fn mark(&self, page: &[Arc<Event>], seq: u64) -> Option<String> {
        let event = page.iter().rfind(|event| event.seq.0 == seq)?;
        self.shared.codec.mark(self.handle.id(), event)
    }

    fn wait_for_store(&mut self, error: &StoreError) {
        tracing::debug!(session = %self.handle.id(), %error, "the bridge waits for the store");
        self.pending.at = Instant::now() + STORE_REST;
    }

    fn entry(&self, event: &Event) -> Result<EventEntry, BridgeError> {
        let (session, context) = (self.handle.id(), BodyContext::Event { seq: event.seq.0 });
        let body = self.shared.codec.body(session, &context, &event_json::encode(event))?;
        if body.get().len() <= BODY_BYTES_MAX {
            return Ok(EventEntry { seq: event.seq.0, body });
        }
        let text = format!(
            "an event of {} bytes is too large for the bridge; it can be seen only on its machine",
            body.get().len()
        );
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        let stand_in = Event { origin: Origin::Engine, body: notice, ..event.clone() };
        let body = self.shared.codec.body(session, &context, &event_json::encode(&stand_in))?;
        Ok(EventEntry { seq: event.seq.0, body })
    }

    fn next_view(&mut self) -> Result<Option<ViewEntry>, BridgeError> {
        if !self.pending.view {
            return Ok(None);
        }
        let Some((from, view)) = self.view.look() else {
            if self.view.has_ended() {
                self.view_again.get_or_insert(Instant::now() + STORE_REST);
            }
            return Ok(None);
        };
        let upto = view.upto;
        let body = self.shared.codec.body(self.handle.id(), &BodyContext::View { from, upto }, &view)?;
        Ok(Some(ViewEntry { from, upto, body }))
    }

    fn next_card(&mut self) -> Result<Option<CardEntry>, BridgeError> {
        if !self.pending.card {
            return Ok(None);
        }
        let card = self.shared.app.card(self.handle.id());
        let Some(card) = card.filter(|card| self.card.as_ref() != Some(card)) else { return Ok(None) };
        let asks: Vec<u64> = card.asks.iter().map(|ask| ask.ask).collect();
        let (state, updated_at) = (card.state, card.updated_at);
        let context = BodyContext::Card { state, asks: &asks, updated_at };
        let body = self.shared.codec.body(self.handle.id(), &context, &card)?;
        let entry = CardEntry { state, asks, updated_at, body };
        self.card = Some(card);
        Ok(Some(entry))
    }
}

fn ended(trouble: Result<BridgeError, oneshot::error::RecvError>) -> BridgeError {
    trouble.unwrap_or_else(|_| BridgeError::closed())
}

async fn late(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
