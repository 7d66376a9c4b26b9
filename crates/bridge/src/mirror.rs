//! A receiver that keeps a mirror: the log replicated to it, and beside it what our own clients show.
//!
//! The receiver says first how far its mirror has come; everything after that is sent in order and counts
//! as kept when it is acknowledged. Only so much is under way without that. Views are not in the log: one
//! that is lost is made anew, so they wait for nobody.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Body, Doorbell, Event, LogReader, NoticeLevel, Origin, Page, Seq, SessionHandle, StoreError,
    Subscription, Taken,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use wire::native::Card;
use wire::portable;
use wire::tunnel::{
    Ack, BATCH_BYTES_MAX, BATCH_EVENTS_MAX, CardEntry, Down, Entry, FRAME_BYTES_MAX, Ready, Source, Up,
    ViewEntry, Watched,
};

use super::body::About;
use super::branch::{Branching, agree};
use super::packing::{BODY_BYTES_MAX, pack};
use super::pipe::{Outgoing, Pipe};
use super::trouble::Trouble;
use super::{Ended, Shared, heard};
use app::Mirroring;

const PAGE: Page = Page { count_max: BATCH_EVENTS_MAX, bytes_max: BATCH_BYTES_MAX, outline: false };
/// Batches and bytes of events that may be under way without an acknowledgement.
const FLYING_MAX: usize = 16;
const FLYING_BYTES_MAX: usize = 8 << 20;
/// How long a store that cannot be read is left alone.
const STORE_REST: Duration = Duration::from_secs(1);

/// Replicates the session until the connection ends or the bridge does.
pub(super) async fn run(
    shared: &Arc<Shared>,
    handles: &mut watch::Receiver<SessionHandle>,
    branching: &mut Branching,
    mut pipe: Pipe,
    stopped: impl Future<Output = ()>,
) -> Ended {
    let mut stopped = std::pin::pin!(stopped);
    let agreed = tokio::select! {
        biased;
        () = &mut stopped => return Ended::Stopped,
        agreed = agree(shared, handles, branching, (&mut pipe.incoming, &pipe.out)) => agreed,
        trouble = &mut pipe.over => Err(trouble.unwrap_or_else(|_| Trouble::closed())),
    };
    let (ready, source) = match agreed {
        Ok(agreed) => agreed,
        Err(trouble) => return Ended::Trouble(trouble),
    };
    let handle = handles.borrow_and_update().clone();
    let mut mirror = Mirror::new(shared, handle, &ready, source);
    match mirror.serve(handles, pipe, stopped).await {
        Ok(()) => Ended::Stopped,
        Err(trouble) => Ended::Trouble(trouble),
    }
}

/// The first frame says how far the mirror has come.
pub(super) async fn ready(shared: &Shared, incoming: &mut mpsc::Receiver<Vec<u8>>) -> Result<Ready, Trouble> {
    let first = async {
        while let Some(frame) = incoming.recv().await {
            if let Some(Down::Ready(ready)) = heard(&frame)? {
                return Ok(ready);
            }
        }
        std::future::pending().await
    };
    let late = || Trouble::malformed("a mirror that does not say how far it has come");
    tokio::time::timeout(shared.pace.answer, first).await.unwrap_or_else(|_| Err(late()))
}

struct Mirror<'a> {
    shared: &'a Arc<Shared>,
    handle: SessionHandle,
    reader: LogReader,
    bell: Arc<Doorbell>,
    _ringing: Subscription,
    view: Mirroring,
    /// The last event that was sent, and the last that is kept.
    sent: u64,
    kept: u64,
    /// Batches that were not acknowledged: the last event of each, and its bytes.
    flying: VecDeque<(u64, usize)>,
    flying_bytes: usize,
    card: Option<Card>,
    /// Said with the first batch.
    source: Option<Source>,
    /// Of the key that the view and the card were sealed with.
    generation: u64,
    watched: bool,
    due: Due,
    /// When a view is looked for again, whose feed has ended: the store may be well by then.
    view_again: Option<Instant>,
}

/// What there may be to send.
#[derive(Debug, Clone, Copy)]
struct Due {
    log: bool,
    view: bool,
    card: bool,
    at: Instant,
}

enum Wake {
    Over(Trouble),
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

impl<'a> Mirror<'a> {
    fn new(shared: &'a Arc<Shared>, handle: SessionHandle, ready: &Ready, source: Source) -> Self {
        let head = handle.read(Seq::START).head();
        let after = Seq(ready.events);
        if after > head {
            // A receiver that knows no branches keeps what it has.
            tracing::warn!(session = %handle.id(), mirror = ready.events, log = head.0, "the mirror is ahead of its log");
        }
        let after = after.min(head);
        let reader = handle.read(after);
        let bell = Arc::new(Doorbell::default());
        let due = Due { log: true, view: true, card: true, at: Instant::now() };
        Self {
            _ringing: reader.subscribe(&bell, 0),
            // What the mirror has may be sealed with a key of before: then it begins anew.
            view: Mirroring::new(&shared.desk, &handle, ready.view.filter(|_| !shared.bodies.are_sealed())),
            generation: shared.bodies.generation(),
            shared,
            handle,
            reader,
            bell,
            sent: after.0,
            kept: after.0,
            flying: VecDeque::new(),
            flying_bytes: 0,
            card: None,
            source: Some(source),
            watched: ready.watched,
            due,
            view_again: None,
        }
    }

    async fn serve(
        &mut self,
        handles: &mut watch::Receiver<SessionHandle>,
        mut pipe: Pipe,
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Trouble> {
        let mut views = self.view.changes();
        let mut cards = self.shared.desk.cards_change();
        let mut rekeyed = self.shared.bodies.rekeyed();
        let mut stopping: Option<Instant> = None;
        loop {
            let Due { log, view, card, at } = self.due;
            let all_said = self.kept >= self.sent && !(log || view || card);
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
                Wake::Heard(frame) => self.heard(&frame)?,
                Wake::Stop => {
                    stopping.get_or_insert(Instant::now() + self.shared.pace.farewell);
                    // The log may have ended with something that nobody rang for.
                    (self.due.log, self.due.view, self.due.card) = (true, true, true);
                }
                Wake::Handle => self.go_on(handles.borrow_and_update().clone()),
                Wake::Log => self.due.log = true,
                Wake::View => self.due.view = true,
                Wake::ViewAgain => {
                    self.view_again = None;
                    self.view.go_on(&self.shared.desk, &self.handle);
                    views = self.view.changes();
                    self.due.view = true;
                }
                Wake::Card => self.due.card = true,
                Wake::Rekeyed => self.rekey(),
                Wake::Flush => self.flush(&pipe).await?,
            }
        }
    }

    /// Only so much is under way.
    fn may_read(&self) -> bool {
        self.flying.len() < FLYING_MAX && self.flying_bytes < FLYING_BYTES_MAX
    }

    fn heard(&mut self, frame: &[u8]) -> Result<(), Trouble> {
        match heard(frame)? {
            Some(Down::Ack(Ack { events, .. })) => self.acknowledged(events),
            Some(Down::Watched(Watched { watched, anew })) => {
                if anew {
                    self.view.anew();
                    self.due.view = true;
                }
                if anew || (watched && !self.watched) {
                    self.due.at = Instant::now();
                }
                self.watched = watched;
            }
            // It has said so, and a session's socket carries no calls.
            Some(Down::Ready(_) | Down::Call(_)) | None => {}
        }
        Ok(())
    }

    /// Nobody keeps what was not sent.
    fn acknowledged(&mut self, events: u64) {
        self.kept = self.kept.max(events.min(self.sent));
        while let Some((last, bytes)) = self.flying.front().copied() {
            if last > self.kept {
                break;
            }
            self.flying.pop_front();
            self.flying_bytes -= bytes;
        }
        self.count();
    }

    fn count(&self) {
        let behind = self.reader.head().0.saturating_sub(self.kept);
        self.shared.bridges.queued(self.handle.id(), behind);
    }

    /// A device was revoked: what is to be seen is sealed once more, with a key that it has not.
    fn rekey(&mut self) {
        let generation = self.shared.bodies.generation();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.view.anew();
            self.card = None;
            (self.due.view, self.due.card, self.due.at) = (true, true, Instant::now());
        }
    }

    /// The session left memory and came back: the same log goes on under another handle.
    fn go_on(&mut self, handle: SessionHandle) {
        if handle.is_same(&self.handle) {
            return;
        }
        self.reader = handle.read(Seq(self.sent));
        self._ringing = self.reader.subscribe(&self.bell, 0);
        self.handle = handle;
        (self.due.log, self.due.card) = (true, true);
    }

    async fn flush(&mut self, pipe: &Pipe) -> Result<(), Trouble> {
        let began = Instant::now();
        let session = self.handle.id().clone();
        let after = self.sent;
        let page = if self.due.log && self.may_read() { self.page().await } else { Vec::new() };
        let mut events = Vec::with_capacity(page.len());
        for event in &page {
            events.push(self.entry(event)?);
            self.sent = event.seq.0;
        }
        let view = self.next_view()?;
        let card = self.next_card()?;
        self.due.view = false;
        self.due.card = false;
        // What is behind is brought up at once; what happens now comes at the pace of those who look.
        let pace = if self.watched { self.shared.pace.watched } else { self.shared.pace.unwatched };
        let behind = !page.is_empty() && self.reader.head().0 > self.sent;
        self.due.at = if behind { began } else { self.due.at.max(began + pace) };
        for mut batch in pack(after, events, view, card) {
            batch.source = self.source.take();
            if let Some(last) = batch.events.last() {
                batch.mark = self.mark(&page, last.seq);
                let bytes = batch.events.iter().map(|entry| entry.body.get().len()).sum();
                self.flying.push_back((last.seq, bytes));
                self.flying_bytes += bytes;
            }
            let frame = serde_json::to_vec(&Up::Batch(batch)).map_err(Trouble::malformed)?;
            if frame.len() > FRAME_BYTES_MAX {
                // Events and views are measured before this; whoever gets it would close the connection.
                tracing::error!(%session, bytes = frame.len(), "a batch is larger than a frame may be");
                continue;
            }
            self.count();
            // A pipe that is closed says why.
            drop(pipe.out.send(Outgoing::Frame(frame)).await);
        }
        Ok(())
    }

    /// What comes next in the log, if something does.
    async fn page(&mut self) -> Vec<Arc<Event>> {
        match self.reader.take(PAGE).await {
            Ok(Taken::Events(events)) => events,
            Ok(Taken::UpToDate | Taken::Ended { .. }) => {
                self.due.log = false;
                Vec::new()
            }
            Err(error) => {
                self.rest(&error);
                Vec::new()
            }
        }
    }

    fn mark(&self, page: &[Arc<Event>], seq: u64) -> Option<String> {
        let event = page.iter().rfind(|event| event.seq.0 == seq)?;
        self.shared.bodies.mark(self.handle.id(), event)
    }

    fn rest(&mut self, error: &StoreError) {
        tracing::debug!(session = %self.handle.id(), %error, "the bridge waits for the store");
        self.due.at = Instant::now() + STORE_REST;
    }

    fn entry(&self, event: &Event) -> Result<Entry, Trouble> {
        let (session, about) = (self.handle.id(), About::Event { seq: event.seq.0 });
        let body = self.shared.bodies.body(session, &about, &portable::encode(event))?;
        if body.get().len() <= BODY_BYTES_MAX {
            return Ok(Entry { seq: event.seq.0, body });
        }
        let text =
            format!("an event of {} bytes is too large for the bridge; its machine has it", body.get().len());
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        let stand_in = Event { origin: Origin::Engine, body: notice, ..event.clone() };
        let body = self.shared.bodies.body(session, &about, &portable::encode(&stand_in))?;
        Ok(Entry { seq: event.seq.0, body })
    }

    fn next_view(&mut self) -> Result<Option<ViewEntry>, Trouble> {
        if !self.due.view {
            return Ok(None);
        }
        let Some((from, view)) = self.view.look() else {
            if self.view.is_over() {
                self.view_again.get_or_insert(Instant::now() + STORE_REST);
            }
            return Ok(None);
        };
        let upto = view.upto;
        let body = self.shared.bodies.body(self.handle.id(), &About::View { from, upto }, &view)?;
        Ok(Some(ViewEntry { from, upto, body }))
    }

    fn next_card(&mut self) -> Result<Option<CardEntry>, Trouble> {
        if !self.due.card {
            return Ok(None);
        }
        let card = self.shared.desk.card(self.handle.id());
        let Some(card) = card.filter(|card| self.card.as_ref() != Some(card)) else { return Ok(None) };
        let asks: Vec<u64> = card.asks.iter().map(|ask| ask.ask).collect();
        let (state, updated_at) = (card.state, card.updated_at);
        let about = About::Card { state, asks: &asks, updated_at };
        let body = self.shared.bodies.body(self.handle.id(), &about, &card)?;
        let entry = CardEntry { state, asks, updated_at, body };
        self.card = Some(card);
        Ok(Some(entry))
    }
}

fn ended(trouble: Result<Trouble, oneshot::error::RecvError>) -> Trouble {
    trouble.unwrap_or_else(|_| Trouble::closed())
}

async fn late(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
