//! The writing half of a connection: streams the events of its sessions and writes every reply.
//!
//! One task does both, so a reply can never overtake the updates it belongs after, and nothing about
//! a session is sent before the reply that names it. A session costs a cursor here, not a queue: the
//! log rings, a page is taken, encoded and handed to the link. While the link is full, nothing is
//! taken.
//!
//! Which prompts are to be answered when their turn ends stands in the log, so a client that comes back
//! to a stream, even after a restart of the server, is answered too.

mod extras;
mod shown;
mod writing;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Page, Principal, Registry, Seq, SessionHandle, SessionId, Settings, Standing, SurfaceId, Taken,
    TerminalId, Totals,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::{Cursor, Fault, Outcome, Replies, RpcId, UpdateStart};

use crate::batch::{At, Batch, Mark};
use crate::debts::Debts;
use extras::Extras;
use shown::{Attached, HostRequest, Replay};
use writing::Writing;

pub(crate) use shown::Shown;

/// A reader that takes nothing for this long loses its stream; it may take it up again.
const STALLED: Duration = Duration::from_secs(30);

/// What the reading half wants written.
pub(crate) enum Command {
    Answer {
        id: RpcId,
        outcome: Result<Outcome, Fault>,
    },
    /// Shows a session.
    Attach {
        handle: SessionHandle,
        from: Start,
        /// What the client's dialect has counted before that place.
        counted: UpdateStart,
        answer: AttachAnswer,
    },
    /// Answers when everything up to `seq` was written, and therefore is durable.
    AnswerAfter {
        session: SessionId,
        seq: Seq,
        id: RpcId,
        outcome: Outcome,
    },
    /// The session was closed or deleted: answers when the rest of its log was written.
    Finish {
        session: SessionId,
        id: RpcId,
        outcome: Outcome,
    },
    /// Asks the client itself to do something, when everything up to `after` was written.
    Host {
        session: SessionId,
        after: Seq,
        frame: Vec<u8>,
        /// The terminal that it gives back: not before the end of the call that shows it was written.
        releases: Option<TerminalId>,
    },
    /// Somebody reads the stream from here on, who has everything up to the position.
    Connect {
        outgoing: mpsc::Sender<Batch>,
        /// Cancelled when somebody else takes the stream over: this reader may be gone without a word.
        given_up: CancellationToken,
        after: Option<Cursor>,
    },
}

/// Where a client begins to see a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    After(Seq),
    /// After this too, but what is there by now is history that the client missed.
    Missed(Cursor),
    /// At the head, which was here; a client that sees the session already just goes on.
    Now(Seq),
}

impl Start {
    fn position(self) -> Cursor {
        match self {
            Self::Missed(position) => position,
            Self::After(seq) | Self::Now(seq) => Cursor::after(seq),
        }
    }
}

/// When the request that opened a session is answered.
pub(crate) enum AttachAnswer {
    First {
        id: RpcId,
        outcome: Outcome,
    },
    /// After the history up to now, with this or, without it, with the session as it is then.
    AfterReplay {
        id: RpcId,
        rules: Vec<String>,
        outcome: Option<Outcome>,
    },
    /// It is answered elsewhere. `history`: everything up to now is told as such.
    Elsewhere {
        history: bool,
    },
    /// The client knows the session; it was away.
    Back,
    /// Nobody asked: the client is shown this session from the first word on. It was like this there.
    Unasked {
        settings: Box<Settings>,
        totals: Totals,
        /// Questions that were asked before that place, and wait, are asked.
        asks: bool,
    },
}

pub(crate) struct Writer {
    pub(crate) commands: mpsc::Receiver<Command>,
    /// Nobody reads without; that is only possible where the client may come back.
    pub(crate) outgoing: Option<mpsc::Sender<Batch>>,
    /// Nobody waits for whoever reads, once another one has come.
    pub(crate) given_up: CancellationToken,
    /// The client may come back and ask for what it missed.
    pub(crate) durable: bool,
    pub(crate) replies: Replies,
    pub(crate) debts: Arc<Debts>,
    pub(crate) surface: SurfaceId,
    pub(crate) standing: Standing,
    pub(crate) openings: watch::Receiver<u64>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) principal: Principal,
    pub(crate) shown: Shown,
    pub(crate) out: Out,
}

/// What is about to be handed to the link.
pub(crate) struct Out {
    batch: Batch,
    extras: Extras,
    durable: bool,
}

impl Out {
    /// `lost` learns which of the frames that are not in the log can be told no more.
    pub(crate) fn new(durable: bool, lost: Arc<Mutex<Option<Cursor>>>) -> Self {
        Self { durable, extras: Extras::new(lost), batch: Batch::default() }
    }

    /// A frame that is not made from the log.
    fn extra(&mut self, session: Option<&SessionId>, at: Seq, write: impl FnOnce(&mut Vec<u8>)) {
        let offset = self.batch.bytes.len();
        write(&mut self.batch.bytes);
        let frame = self.batch.bytes.get(offset..).unwrap_or_default();
        if frame.is_empty() {
            return;
        }
        let nth = if self.durable { self.extras.keep(at, frame) } else { 0 };
        self.batch.marks.push(Mark { offset, session: session.cloned(), at: At::Extra(at, nth) });
    }

    /// A frame that is not made from the log and is never told again.
    fn once(&mut self, session: &SessionId, at: Seq, frame: &[u8]) {
        let nth = if self.durable { self.extras.count(at) } else { 0 };
        let offset = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(frame);
        self.batch.marks.push(Mark { offset, session: Some(session.clone()), at: At::Extra(at, nth) });
    }

    /// Tells again what the client missed and what stands up to here.
    fn again(&mut self, session: Option<&SessionId>, cursor: Seq) {
        while let Some(extra) = self.extras.due(cursor) {
            let offset = self.batch.bytes.len();
            self.batch.bytes.extend_from_slice(&extra.frame);
            self.batch.marks.push(Mark {
                offset,
                session: session.cloned(),
                at: At::Extra(extra.at, extra.nth),
            });
        }
    }
}

/// The link is closed: nobody reads any more.
struct Gone;

enum Wake {
    Command(Option<Box<Command>>),
    Rung(Vec<u64>),
    Opened,
    Closed,
}

impl Writer {
    pub(crate) async fn run(mut self) {
        // Either everything was written or the peer is gone; both are the end.
        drop(self.write_all().await);
    }

    async fn write_all(&mut self) -> Result<(), Gone> {
        loop {
            let connected = self.outgoing.is_some();
            let wake = tokio::select! {
                biased;
                command = self.commands.recv() => Wake::Command(command.map(Box::new)),
                keys = self.shown.bell.wait(), if connected => Wake::Rung(keys),
                Ok(()) = self.openings.changed(), if self.shown.any_ended() => Wake::Opened,
                () = closed(self.outgoing.as_ref()), if connected => Wake::Closed,
            };
            match wake {
                Wake::Command(Some(command)) => self.command(*command),
                Wake::Opened => self.reopen_all(),
                Wake::Command(None) => return self.write_rest().await,
                Wake::Closed => self.disconnected()?,
                Wake::Rung(keys) => {
                    for key in keys {
                        if self.stream(key).await {
                            self.shown.bell.ring(key);
                        }
                        self.send().await?;
                    }
                }
            }
            self.send().await?;
        }
    }

    /// The reading half is gone: what the logs already hold is still written.
    async fn write_rest(&mut self) -> Result<(), Gone> {
        if self.outgoing.is_none() {
            return Ok(());
        }
        let keys: Vec<_> = self.shown.sessions.keys().copied().collect();
        for key in keys {
            while self.stream(key).await {
                self.send().await?;
            }
        }
        self.send().await
    }

    async fn send(&mut self) -> Result<(), Gone> {
        let batch = std::mem::take(&mut self.out.batch);
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let Some(outgoing) = &self.outgoing else {
            // What was not made from the log is kept; the rest is read again.
            return Ok(());
        };
        let sent = tokio::select! {
            biased;
            () = self.given_up.cancelled() => false,
            sent = outgoing.send(batch) => sent.is_ok(),
            () = tokio::time::sleep(STALLED), if self.durable => false,
        };
        if sent { Ok(()) } else { self.disconnected() }
    }

    /// A client that may come back is waited for.
    fn disconnected(&mut self) -> Result<(), Gone> {
        self.outgoing = None;
        if self.durable { Ok(()) } else { Err(Gone) }
    }

    fn answer(&mut self, id: &RpcId, outcome: Result<&Outcome, &Fault>) {
        self.debts.tally(|tally| tally.answered(id, outcome));
        let client = self.debts.client();
        let at = if self.durable { self.shown.only_cursor() } else { Seq::START };
        self.out.extra(None, at, |out| self.replies.write(client, id, outcome, out));
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Answer { id, outcome } => self.answer(&id, outcome.as_ref()),
            Command::Attach { handle, from, counted, answer } => self.attach(handle, from, counted, answer),
            Command::AnswerAfter { session, seq, id, outcome } => match self.shown.find(&session) {
                Some(attached) if attached.reader.cursor() < seq && !attached.ended => {
                    attached.after.push((seq, id, outcome));
                }
                Some(_) | None => self.answer(&id, Ok(&outcome)),
            },
            Command::Host { session, after, frame, releases } => match self.shown.find(&session) {
                Some(attached) => {
                    let call = HostRequest { after, frame, releases };
                    if attached.ended || call.is_due(attached.reader.cursor(), &attached.updates) {
                        self.out.once(&session, attached.reader.cursor(), &call.frame);
                    } else {
                        attached.calls.push(call);
                    }
                }
                None => self.out.once(&session, Seq::START, &frame),
            },
            Command::Finish { session, id, outcome } => self.finish(&session, id, outcome),
            Command::Connect { outgoing, given_up, after } => {
                // Two may come at once; the one that came first is not served any more.
                if !given_up.is_cancelled() {
                    self.given_up = given_up;
                    self.connect(outgoing, after);
                }
            }
        }
    }

    fn finish(&mut self, session: &SessionId, id: RpcId, outcome: Outcome) {
        match self.shown.find(session) {
            // Open again: somebody was faster in the meantime.
            Some(attached) if !attached.handle.is_closed() => {}
            Some(attached) if !attached.ended => return attached.finish.push((id, outcome)),
            Some(attached) => {
                let (at, totals) = (attached.reader.cursor(), attached.handle.snapshot().totals);
                self.out.extra(Some(session), at, |out| attached.updates.totals(&totals, out));
                self.answer(&id, Ok(&outcome));
                return self.shown.forget(session);
            }
            None => {}
        }
        self.answer(&id, Ok(&outcome));
    }

    fn connect(&mut self, outgoing: mpsc::Sender<Batch>, after: Option<Cursor>) {
        self.outgoing = Some(outgoing);
        self.out.extras.rewind(after.unwrap_or_default());
        match after {
            Some(position) => self.shown.rewind(position, self.surface),
            None => self.shown.rewind_all(self.surface),
        }
        if self.shown.sessions.is_empty() {
            self.out.again(None, Seq(u64::MAX));
        }
        self.shown.ring_all();
    }

    fn attach(&mut self, handle: SessionHandle, from: Start, counted: UpdateStart, answer: AttachAnswer) {
        let mut seen = None;
        if let Some(before) = self.shown.find(handle.id()) {
            seen = Some(before.reader.cursor());
            // Closed and opened again before its end was seen: the new reader tells the rest.
            for (id, outcome) in std::mem::take(&mut before.finish) {
                self.answer(&id, Ok(&outcome));
            }
        }
        let position = from.position();
        let after = match (from, seen) {
            (Start::Now(_), Some(seen)) => seen,
            // What is on its way to the client must not be skipped.
            (Start::After(_) | Start::Missed(_), Some(seen)) => seen.min(position.seq),
            (Start::After(_) | Start::Missed(_) | Start::Now(_), None) => position.seq,
        };
        // Whoever is answered may use the session at once, also if the one who opened it has not gone on yet.
        self.debts.opened(handle.id());
        let mut updates = wire::Updates::new(self.debts.client(), &handle, counted);
        let reader = handle.read(after);
        let head = reader.head();
        let mut replay = None;
        let mut missed = Vec::new();
        let asks = || handle.snapshot().asks.iter().copied().filter(|seq| *seq <= after).collect();
        match answer {
            AttachAnswer::First { id, outcome } => {
                missed = asks();
                self.answer(&id, Ok(&outcome));
                self.out.extra(Some(handle.id()), after, |out| updates.commands(handle.commands(), out));
                // What this connection was told before is history: its prompts were answered then.
                let told = seen.unwrap_or(head);
                if matches!(from, Start::Missed(_)) && after < told {
                    replay = Some(Replay::until(told));
                }
            }
            AttachAnswer::Elsewhere { history } => {
                missed = asks();
                self.out.extra(Some(handle.id()), after, |out| updates.commands(handle.commands(), out));
                replay = history.then(|| Replay::until(head));
            }
            AttachAnswer::Back => {}
            AttachAnswer::Unasked { settings, totals, asks: wanted } => {
                updates.begin_with(*settings, totals);
                if wanted {
                    missed = asks();
                }
            }
            AttachAnswer::AfterReplay { id, rules, outcome } => {
                replay = Some(Replay { answers: vec![(id, rules, outcome)], ..Replay::until(head) });
            }
        }
        let lag = self.debts.reader();
        let attached = self.shown.show(handle, reader, updates, replay, self.surface);
        attached.missed.extend(missed);
        attached.lag = lag;
        if seen.is_none_or(|seen| position.seq < seen) {
            attached.skip = position.frames();
        }
    }

    fn reopen_all(&mut self) {
        let ended: Vec<_> = self.shown.sessions.values().filter(|attached| attached.ended).collect();
        let ids: Vec<_> = ended.into_iter().map(|attached| attached.handle.id().clone()).collect();
        for id in ids {
            self.reopen(&id);
        }
    }

    /// Whoever opened a session again that this client did not close, the client sees it go on.
    fn reopen(&mut self, id: &SessionId) {
        if let Some(handle) = self.registry.live(&self.principal, id) {
            self.shown.go_on(handle, self.debts.client(), self.surface);
        }
    }

    /// Writes the next page of a session. Says whether there may be more.
    async fn stream(&mut self, key: u64) -> bool {
        let Some(attached) = self.shown.sessions.get_mut(&key) else { return false };
        if !self.standing.is_owner() {
            attached.updates.keep_for_session();
        }
        let mut writing = Writing {
            replies: &self.replies,
            debts: &self.debts,
            surface: self.surface,
            durable: self.durable,
            out: &mut self.out,
        };
        for seq in std::mem::take(&mut attached.missed) {
            writing.missed(attached, seq).await;
        }
        writing.reprice(attached).await;
        writing.events(attached, &[]);
        match attached.reader.take(Page::USUAL).await {
            Ok(Taken::Events(events)) => {
                attached.measure();
                writing.events(attached, &events);
                if attached.replay.as_ref().is_some_and(|replay| attached.reader.cursor() >= replay.until) {
                    writing.end_replay(attached);
                }
                writing.release(attached);
                true
            }
            Ok(Taken::UpToDate) => {
                attached.measure();
                writing.end_replay(attached);
                writing.release(attached);
                false
            }
            Ok(Taken::Ended { trouble }) => {
                writing.end_replay(attached);
                let id = attached.handle.id().clone();
                let finished = !attached.finish.is_empty();
                writing.end(attached, trouble.as_deref());
                if finished {
                    self.shown.forget(&id);
                } else {
                    self.reopen(&id);
                }
                false
            }
            Err(error) => {
                writing.end(attached, Some(&error.to_string()));
                false
            }
        }
    }
}

async fn closed(outgoing: Option<&mpsc::Sender<Batch>>) {
    match outgoing {
        Some(outgoing) => outgoing.closed().await,
        None => std::future::pending().await,
    }
}
