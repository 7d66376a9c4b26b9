//! The writing half of a connection: streams the events of its sessions and writes every reply.
//!
//! One task does both, so a reply can never overtake the updates that belong before it, and nothing about
//! a session is sent before the reply that names it. A session costs a cursor here, not a queue: the
//! log rings its doorbell, a page is read, encoded and handed to the link. While the link is full, nothing is
//! read.
//!
//! Which prompts are to be answered when their turn ends is recorded in the log, so a client that reconnects
//! to a stream, even after a restart of the server, gets its reply too.

mod attached_sessions;
mod event_page_writer;
mod extra_frames;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    LogRead, PageRequest, Principal, Registry, Seq, SessionHandle, SessionId, Settings, Standing, SurfaceId,
    TerminalId, Totals,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::{Cursor, Replies, RequestError, RequestOutcome, RpcId, UpdateStart};

use crate::frame_batch::{FrameBatch, FrameMark, FramePosition};
use crate::pending_replies::PendingReplies;
use attached_sessions::{AttachedSession, HistoryReplay, HostRequest};
use event_page_writer::PageWriter;
use extra_frames::ExtraFrames;

pub(crate) use attached_sessions::AttachedSessions;

/// A client that reads nothing for this long loses its stream; it may resume it.
const STALLED: Duration = Duration::from_secs(30);

/// What the reading half asks the writer to do.
pub(crate) enum WriterCommand {
    Answer {
        id: RpcId,
        outcome: Result<RequestOutcome, RequestError>,
    },
    /// Streams a session from here on.
    Attach {
        handle: SessionHandle,
        from: AttachFrom,
        /// What the client's dialect has counted before that position.
        counted: UpdateStart,
        answer: AttachAnswer,
    },
    /// Replies when everything up to `seq` was written, and therefore is durable.
    AnswerAfter {
        session: SessionId,
        seq: Seq,
        id: RpcId,
        outcome: RequestOutcome,
    },
    /// The session was closed or deleted: replies when the rest of its log was written.
    Finish {
        session: SessionId,
        id: RpcId,
        outcome: RequestOutcome,
    },
    /// Sends a request to the client (files, terminals), when everything up to `after` was written.
    Host {
        session: SessionId,
        after: Seq,
        frame: Vec<u8>,
        /// The terminal that it releases: not before the end of the tool call that shows it was written.
        releases: Option<TerminalId>,
    },
    /// A client reads the stream from here on; it has everything up to `after`.
    Connect {
        outgoing: mpsc::Sender<FrameBatch>,
        /// Cancelled when another reader takes the stream over: this one may have disconnected silently.
        replaced: CancellationToken,
        after: Option<Cursor>,
    },
}

/// The position from which a client gets a session's updates.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttachFrom {
    After(Seq),
    /// After this position too, but the events that are there by now are history that the client missed.
    Missed(Cursor),
    /// At the head, which was this position; a client that has the session attached already just goes on.
    Now(Seq),
}

impl AttachFrom {
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
        outcome: RequestOutcome,
    },
    /// After the history up to now, with this outcome or, without one, with the session as it is then.
    AfterReplay {
        id: RpcId,
        rules: Vec<String>,
        outcome: Option<RequestOutcome>,
    },
    /// It is answered on another stream. `history`: everything up to now is sent as history.
    Elsewhere {
        history: bool,
    },
    /// The client had the session attached before, and has reconnected.
    Back,
    /// There was no request: the session is attached from the connection's start, with its state at that position.
    Preopened {
        settings: Box<Settings>,
        totals: Totals,
        /// Asks that were made before that position, and are open, are sent.
        asks: bool,
    },
}

pub(crate) struct Writer {
    pub(crate) commands: mpsc::Receiver<WriterCommand>,
    /// None while nobody reads; that is only possible where the client can resume.
    pub(crate) outgoing: Option<mpsc::Sender<FrameBatch>>,
    /// Cancelled when another reader has taken over: then the writer does not wait for the old one.
    pub(crate) replaced: CancellationToken,
    /// The client can reconnect and resume the stream.
    pub(crate) resumable: bool,
    pub(crate) replies: Replies,
    pub(crate) pending_replies: Arc<PendingReplies>,
    pub(crate) surface: SurfaceId,
    pub(crate) standing: Standing,
    pub(crate) openings: watch::Receiver<u64>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) principal: Principal,
    pub(crate) sessions: AttachedSessions,
    pub(crate) out: OutgoingFrames,
}

/// The frames that are about to be handed to the link.
pub(crate) struct OutgoingFrames {
    batch: FrameBatch,
    extras: ExtraFrames,
    resumable: bool,
}

impl OutgoingFrames {
    /// `lost` gets the position of the last frame that is not in the log and not kept any more.
    pub(crate) fn new(resumable: bool, lost: Arc<Mutex<Option<Cursor>>>) -> Self {
        Self { resumable, extras: ExtraFrames::new(lost), batch: FrameBatch::default() }
    }

    /// A frame that is not made from the log.
    fn extra(&mut self, session: Option<&SessionId>, at: Seq, write: impl FnOnce(&mut Vec<u8>)) {
        let offset = self.batch.bytes.len();
        write(&mut self.batch.bytes);
        let frame = self.batch.bytes.get(offset..).unwrap_or_default();
        if frame.is_empty() {
            return;
        }
        let nth = if self.resumable { self.extras.keep(at, frame) } else { 0 };
        self.batch.marks.push(FrameMark {
            offset,
            session: session.cloned(),
            at: FramePosition::Extra(at, nth),
        });
    }

    /// A frame that is not made from the log and is never sent again.
    fn once(&mut self, session: &SessionId, at: Seq, frame: &[u8]) {
        let nth = if self.resumable { self.extras.count(at) } else { 0 };
        let offset = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(frame);
        self.batch.marks.push(FrameMark {
            offset,
            session: Some(session.clone()),
            at: FramePosition::Extra(at, nth),
        });
    }

    /// Sends again the extra frames up to this position that the client missed.
    fn again(&mut self, session: Option<&SessionId>, cursor: Seq) {
        while let Some(extra) = self.extras.due(cursor) {
            let offset = self.batch.bytes.len();
            self.batch.bytes.extend_from_slice(&extra.frame);
            self.batch.marks.push(FrameMark {
                offset,
                session: session.cloned(),
                at: FramePosition::Extra(extra.at, extra.nth),
            });
        }
    }
}

/// The link is closed, so nobody reads any more.
struct LinkClosed;

enum Wake {
    Command(Option<Box<WriterCommand>>),
    Rung(Vec<u64>),
    Opened,
    Closed,
}

impl Writer {
    pub(crate) async fn run(mut self) {
        // Either everything was written or the peer is gone; both are the end.
        drop(self.write_all().await);
    }

    async fn write_all(&mut self) -> Result<(), LinkClosed> {
        loop {
            let connected = self.outgoing.is_some();
            let wake = tokio::select! {
                biased;
                command = self.commands.recv() => Wake::Command(command.map(Box::new)),
                keys = self.sessions.bell.wait(), if connected => Wake::Rung(keys),
                Ok(()) = self.openings.changed(), if self.sessions.any_ended() => Wake::Opened,
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
                            self.sessions.bell.ring(key);
                        }
                        self.send().await?;
                    }
                }
            }
            self.send().await?;
        }
    }

    /// The reading half is gone: events that the logs already hold are still written.
    async fn write_rest(&mut self) -> Result<(), LinkClosed> {
        if self.outgoing.is_none() {
            return Ok(());
        }
        let keys: Vec<_> = self.sessions.by_key.keys().copied().collect();
        for key in keys {
            while self.stream(key).await {
                self.send().await?;
            }
        }
        self.send().await
    }

    async fn send(&mut self) -> Result<(), LinkClosed> {
        let batch = std::mem::take(&mut self.out.batch);
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let Some(outgoing) = &self.outgoing else {
            // Extra frames are kept for the next reader; the events are read from the log again.
            return Ok(());
        };
        let sent = tokio::select! {
            biased;
            () = self.replaced.cancelled() => false,
            sent = outgoing.send(batch) => sent.is_ok(),
            () = tokio::time::sleep(STALLED), if self.resumable => false,
        };
        if sent { Ok(()) } else { self.disconnected() }
    }

    /// The reader is gone. A client that can resume is waited for.
    fn disconnected(&mut self) -> Result<(), LinkClosed> {
        self.outgoing = None;
        if self.resumable { Ok(()) } else { Err(LinkClosed) }
    }

    fn answer(&mut self, id: &RpcId, outcome: Result<&RequestOutcome, &RequestError>) {
        self.pending_replies.tally(|tally| tally.answered(id, outcome));
        let client = self.pending_replies.client();
        let at = if self.resumable { self.sessions.only_cursor() } else { Seq::START };
        self.out.extra(None, at, |out| self.replies.write(client, id, outcome, out));
    }

    fn command(&mut self, command: WriterCommand) {
        match command {
            WriterCommand::Answer { id, outcome } => self.answer(&id, outcome.as_ref()),
            WriterCommand::Attach { handle, from, counted, answer } => {
                self.attach(handle, from, counted, answer)
            }
            WriterCommand::AnswerAfter { session, seq, id, outcome } => match self.sessions.find(&session) {
                Some(attached) if attached.reader.cursor() < seq && !attached.ended => {
                    attached.after.push((seq, id, outcome));
                }
                Some(_) | None => self.answer(&id, Ok(&outcome)),
            },
            WriterCommand::Host { session, after, frame, releases } => match self.sessions.find(&session) {
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
            WriterCommand::Finish { session, id, outcome } => self.finish(&session, id, outcome),
            WriterCommand::Connect { outgoing, replaced, after } => {
                // Two readers may connect at once; the first one is not served any more.
                if !replaced.is_cancelled() {
                    self.replaced = replaced;
                    self.connect(outgoing, after);
                }
            }
        }
    }

    fn finish(&mut self, session: &SessionId, id: RpcId, outcome: RequestOutcome) {
        match self.sessions.find(session) {
            // The session was opened again in the meantime.
            Some(attached) if !attached.handle.is_closed() => {}
            Some(attached) if !attached.ended => return attached.answers_at_end.push((id, outcome)),
            Some(attached) => {
                let (at, totals) = (attached.reader.cursor(), attached.handle.snapshot().totals);
                self.out.extra(Some(session), at, |out| attached.updates.totals(&totals, out));
                self.answer(&id, Ok(&outcome));
                return self.sessions.forget(session);
            }
            None => {}
        }
        self.answer(&id, Ok(&outcome));
    }

    fn connect(&mut self, outgoing: mpsc::Sender<FrameBatch>, after: Option<Cursor>) {
        self.outgoing = Some(outgoing);
        self.out.extras.rewind(after.unwrap_or_default());
        match after {
            Some(position) => self.sessions.rewind(position, self.surface),
            None => self.sessions.rewind_all(self.surface),
        }
        if self.sessions.by_key.is_empty() {
            self.out.again(None, Seq(u64::MAX));
        }
        self.sessions.ring_all();
    }

    fn attach(
        &mut self,
        handle: SessionHandle,
        from: AttachFrom,
        counted: UpdateStart,
        answer: AttachAnswer,
    ) {
        let mut seen = None;
        if let Some(before) = self.sessions.find(handle.id()) {
            seen = Some(before.reader.cursor());
            // Closed and opened again before its end was read: the new reader streams the rest.
            for (id, outcome) in std::mem::take(&mut before.answers_at_end) {
                self.answer(&id, Ok(&outcome));
            }
        }
        let position = from.position();
        let after = match (from, seen) {
            (AttachFrom::Now(_), Some(seen)) => seen,
            // Events that are on their way to the client must not be skipped.
            (AttachFrom::After(_) | AttachFrom::Missed(_), Some(seen)) => seen.min(position.seq),
            (AttachFrom::After(_) | AttachFrom::Missed(_) | AttachFrom::Now(_), None) => position.seq,
        };
        // Once it is answered, the client may use the session at once, also if the opening handler has not gone on yet.
        self.pending_replies.opened(handle.id());
        let mut updates = wire::Updates::new(self.pending_replies.client(), &handle, counted);
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
                // Events that this connection was sent before are history: its prompts were answered then.
                let told = seen.unwrap_or(head);
                if matches!(from, AttachFrom::Missed(_)) && after < told {
                    replay = Some(HistoryReplay::until(told));
                }
            }
            AttachAnswer::Elsewhere { history } => {
                missed = asks();
                self.out.extra(Some(handle.id()), after, |out| updates.commands(handle.commands(), out));
                replay = history.then(|| HistoryReplay::until(head));
            }
            AttachAnswer::Back => {}
            AttachAnswer::Preopened { settings, totals, asks: wanted } => {
                updates.begin_with(*settings, totals);
                if wanted {
                    missed = asks();
                }
            }
            AttachAnswer::AfterReplay { id, rules, outcome } => {
                replay =
                    Some(HistoryReplay { answers: vec![(id, rules, outcome)], ..HistoryReplay::until(head) });
            }
        }
        let lag = self.pending_replies.reader();
        let attached = self.sessions.show(handle, reader, updates, replay, self.surface);
        attached.earlier_asks.extend(missed);
        attached.lag = lag;
        if seen.is_none_or(|seen| position.seq < seen) {
            attached.skip = position.frames();
        }
    }

    fn reopen_all(&mut self) {
        let ended: Vec<_> = self.sessions.by_key.values().filter(|attached| attached.ended).collect();
        let ids: Vec<_> = ended.into_iter().map(|attached| attached.handle.id().clone()).collect();
        for id in ids {
            self.reopen(&id);
        }
    }

    /// A session that somebody opened again continues for this client, unless the client has closed it.
    fn reopen(&mut self, id: &SessionId) {
        if let Some(handle) = self.registry.live(&self.principal, id) {
            self.sessions.switch_handle(handle, self.pending_replies.client(), self.surface);
        }
    }

    /// Writes the next page of a session. Gives whether there may be more.
    async fn stream(&mut self, key: u64) -> bool {
        let Some(attached) = self.sessions.by_key.get_mut(&key) else { return false };
        if !self.standing.is_owner() {
            attached.updates.keep_for_session();
        }
        let mut page = PageWriter {
            replies: &self.replies,
            pending_replies: &self.pending_replies,
            surface: self.surface,
            resumable: self.resumable,
            out: &mut self.out,
        };
        for seq in std::mem::take(&mut attached.earlier_asks) {
            page.missed(attached, seq).await;
        }
        page.reprice(attached).await;
        page.events(attached, &[]);
        match attached.reader.take(PageRequest::USUAL).await {
            Ok(LogRead::Events(events)) => {
                attached.measure();
                page.events(attached, &events);
                if attached.replay.as_ref().is_some_and(|replay| attached.reader.cursor() >= replay.until) {
                    page.end_replay(attached);
                }
                page.release(attached);
                true
            }
            Ok(LogRead::UpToDate) => {
                attached.measure();
                page.end_replay(attached);
                page.release(attached);
                false
            }
            Ok(LogRead::Ended { trouble }) => {
                page.end_replay(attached);
                let id = attached.handle.id().clone();
                let finished = !attached.answers_at_end.is_empty();
                page.end(attached, trouble.as_deref());
                if finished {
                    self.sessions.forget(&id);
                } else {
                    self.reopen(&id);
                }
                false
            }
            Err(error) => {
                page.end(attached, Some(&error.to_string()));
                false
            }
        }
    }
}

async fn closed(outgoing: Option<&mpsc::Sender<FrameBatch>>) {
    match outgoing {
        Some(outgoing) => outgoing.closed().await,
        None => std::future::pending().await,
    }
}
