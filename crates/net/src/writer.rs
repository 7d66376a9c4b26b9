//! The writing half of a connection: streams the events of its sessions and writes every reply.
//!
//! One task does both, so a reply can never overtake the updates it belongs after, and nothing about
//! a session is sent before the reply that names it. A session costs a cursor here, not a queue: the
//! log rings, a page is taken, encoded and handed to the link. While the link is full, nothing is
//! taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use engine::{
    AskId, Body, CallId, CommandSpec, Doorbell, Event, LogReader, Page, Principal, Registry, Resolution, Seq,
    SessionHandle, SessionId, Stop, Subscription, SurfaceId, Taken, Totals, TurnId,
};
use tokio::sync::{mpsc, watch};
use wire::acp::{AskFrame, ClientAbilities, Piece, Replies, Updates, View, write_cancel_request};
use wire::{Fault, Outcome, RpcId, SessionView};

use crate::debts::Debts;

/// Turns whose end was seen before their prompt was known to be ours.
const EARLY_MAX: usize = 64;

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
        answer: AttachAnswer,
    },
    /// Answers when everything up to `seq` was written, and therefore is durable.
    AnswerAfter {
        session: SessionId,
        seq: Seq,
        id: RpcId,
        outcome: Outcome,
    },
    /// A prompt was accepted: its answer is due when the turn ends.
    OweTurn {
        handle: SessionHandle,
        turn: TurnId,
        id: RpcId,
    },
    /// The session was closed or deleted: answers when the rest of its log was written.
    Finish {
        session: SessionId,
        id: RpcId,
        outcome: Outcome,
    },
}

/// Where a client begins to see a session.
pub(crate) enum Start {
    After(Seq),
    /// After this too, but what is there by now is history that the client missed.
    Missed(Seq),
    /// At the head, which was here; a client that sees the session already just goes on.
    Now(Seq),
}

/// When the request that opened a session is answered.
pub(crate) enum AttachAnswer {
    First {
        id: RpcId,
        outcome: Outcome,
    },
    /// After the history up to now.
    AfterReplay {
        id: RpcId,
        rules: Vec<String>,
    },
}

pub(crate) struct Writer {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) outgoing: mpsc::Sender<Vec<u8>>,
    pub(crate) replies: Replies,
    pub(crate) debts: Arc<Debts>,
    pub(crate) surface: SurfaceId,
    pub(crate) slash_commands: Vec<CommandSpec>,
    pub(crate) openings: watch::Receiver<u64>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) principal: Principal,
    pub(crate) shown: Shown,
}

/// The sessions that this connection shows.
#[derive(Default)]
pub(crate) struct Shown {
    bell: Arc<Doorbell>,
    sessions: HashMap<u64, Attached>,
    keys: HashMap<SessionId, u64>,
    last_key: u64,
}

struct Attached {
    handle: SessionHandle,
    reader: LogReader,
    _subscription: Subscription,
    updates: Updates,
    replay: Option<Replay>,
    ended: bool,
    /// Where questions stand that were asked before the client began to see the session.
    missed: Vec<Seq>,
    owed: BTreeMap<TurnId, RpcId>,
    early: VecDeque<TurnResult>,
    after: Vec<(Seq, RpcId, Outcome)>,
    finish: Vec<(RpcId, Outcome)>,
    /// Questions sent to this client, by our request's id.
    sent: BTreeMap<AskId, u64>,
}

struct Replay {
    until: Seq,
    /// Each load that is answered at its end, with the rules that it names.
    answers: Vec<(RpcId, Vec<String>)>,
    /// Questions in the history that nobody has answered so far.
    held: BTreeMap<AskId, AskFrame>,
}

impl Replay {
    fn until(until: Seq) -> Self {
        Self { until, answers: Vec::new(), held: BTreeMap::new() }
    }
}

struct TurnResult {
    turn: TurnId,
    stop: Stop,
    error: Option<Arc<str>>,
    usage: Totals,
}

/// The link is closed: nobody reads any more.
struct Gone;

enum Wake {
    Command(Option<Box<Command>>),
    Rung(Vec<u64>),
    Opened,
}

impl Writer {
    pub(crate) async fn run(mut self) {
        // Either everything was written or the peer is gone; both are the end.
        drop(self.write_all().await);
    }

    async fn write_all(&mut self) -> Result<(), Gone> {
        let mut out = Vec::new();
        loop {
            let wake = tokio::select! {
                biased;
                command = self.commands.recv() => Wake::Command(command.map(Box::new)),
                keys = self.shown.bell.wait() => Wake::Rung(keys),
                Ok(()) = self.openings.changed(), if self.shown.any_ended() => Wake::Opened,
                () = self.outgoing.closed() => return Err(Gone),
            };
            match wake {
                Wake::Command(Some(command)) => self.command(*command, &mut out),
                Wake::Opened => self.reopen_all(),
                Wake::Command(None) => return self.write_rest(out).await,
                Wake::Rung(keys) => {
                    for key in keys {
                        if self.stream(key, &mut out).await {
                            self.shown.bell.ring(key);
                        }
                        self.send(&mut out).await?;
                    }
                }
            }
            self.send(&mut out).await?;
        }
    }

    /// The reading half is gone: what the logs already hold is still written.
    async fn write_rest(&mut self, mut out: Vec<u8>) -> Result<(), Gone> {
        let keys: Vec<_> = self.shown.sessions.keys().copied().collect();
        for key in keys {
            while self.stream(key, &mut out).await {
                self.send(&mut out).await?;
            }
        }
        self.send(&mut out).await
    }

    async fn send(&self, out: &mut Vec<u8>) -> Result<(), Gone> {
        if out.is_empty() {
            return Ok(());
        }
        self.outgoing.send(std::mem::take(out)).await.map_err(|_| Gone)
    }

    fn command(&mut self, command: Command, out: &mut Vec<u8>) {
        match command {
            Command::Answer { id, outcome } => self.replies.write(&id, outcome.as_ref(), out),
            Command::Attach { handle, from, answer } => self.attach(handle, &from, answer, out),
            Command::AnswerAfter { session, seq, id, outcome } => match self.shown.find(&session) {
                Some(attached) if attached.reader.cursor() < seq && !attached.ended => {
                    attached.after.push((seq, id, outcome));
                }
                Some(_) | None => self.replies.write(&id, Ok(&outcome), out),
            },
            Command::OweTurn { handle, turn, id } => self.owe_turn(handle, turn, id, out),
            Command::Finish { session, id, outcome } => match self.shown.find(&session) {
                Some(attached) if !attached.handle.is_closed() => {
                    // Somebody opened it again in the meantime.
                    self.replies.write(&id, Ok(&outcome), out);
                }
                Some(attached) if !attached.ended => attached.finish.push((id, outcome)),
                Some(attached) => {
                    attached.updates.totals(&attached.handle.snapshot().totals, out);
                    self.replies.write(&id, Ok(&outcome), out);
                    self.shown.forget(&session);
                }
                None => self.replies.write(&id, Ok(&outcome), out),
            },
        }
    }

    fn attach(&mut self, handle: SessionHandle, from: &Start, answer: AttachAnswer, out: &mut Vec<u8>) {
        let mut seen = None;
        if let Some(before) = self.shown.find(handle.id()) {
            seen = Some(before.reader.cursor());
            // Closed and opened again before its end was seen: the new reader tells the rest.
            for (id, outcome) in before.finish.drain(..) {
                self.replies.write(&id, Ok(&outcome), out);
            }
        }
        let after = match (from, seen) {
            (Start::Now(_), Some(seen)) => seen,
            // What is on its way to the client must not be skipped.
            (Start::After(after) | Start::Missed(after), Some(seen)) => seen.min(*after),
            (Start::After(after) | Start::Missed(after) | Start::Now(after), None) => *after,
        };
        let updates = Updates::new(self.debts.client(), &handle);
        let reader = handle.read(after);
        let mut replay = None;
        let mut missed = Vec::new();
        match answer {
            AttachAnswer::First { id, outcome } => {
                missed = handle.snapshot().asks.iter().copied().filter(|seq| *seq <= after).collect();
                self.replies.write(&id, Ok(&outcome), out);
                updates.commands(&self.slash_commands, out);
                if seen.is_none() && matches!(from, Start::Missed(_)) && after < reader.head() {
                    replay = Some(Replay::until(reader.head()));
                }
            }
            AttachAnswer::AfterReplay { id, rules } => {
                replay = Some(Replay { answers: vec![(id, rules)], ..Replay::until(reader.head()) });
            }
        }
        self.shown.show(handle, reader, updates, replay).missed.extend(missed);
    }

    fn owe_turn(&mut self, handle: SessionHandle, turn: TurnId, id: RpcId, out: &mut Vec<u8>) {
        let client = self.debts.client();
        let Some(attached) = self.shown.find(handle.id()) else {
            let closed = Fault::Internal("the session was closed while the prompt was accepted".into());
            self.debts.prompt_answered(&id);
            return self.replies.write(&id, Err(&closed), out);
        };
        if let Some(at) = attached.early.iter().position(|result| result.turn == turn) {
            if let Some(result) = attached.early.remove(at) {
                self.debts.prompt_answered(&id);
                self.replies.write(&id, Ok(&result.outcome()), out);
            }
            return;
        }
        if attached.ended && attached.handle.is_same(&handle) {
            let ended = Fault::Internal("the session ended before the turn began; prompt again".into());
            self.debts.prompt_answered(&id);
            return self.replies.write(&id, Err(&ended), out);
        }
        attached.owed.insert(turn, id);
        self.shown.go_on(handle, client);
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
            self.shown.go_on(handle, self.debts.client());
        }
    }

    /// Writes the next page of a session. Says whether there may be more.
    async fn stream(&mut self, key: u64, out: &mut Vec<u8>) -> bool {
        let Some(attached) = self.shown.sessions.get_mut(&key) else { return false };
        let mut writing = Writing { replies: &self.replies, debts: &self.debts, surface: self.surface };
        for seq in std::mem::take(&mut attached.missed) {
            writing.missed(attached, seq, out).await;
        }
        match attached.reader.take(Page::USUAL).await {
            Ok(Taken::Events(events)) => {
                writing.events(attached, &events, out);
                if attached.replay.as_ref().is_some_and(|replay| attached.reader.cursor() >= replay.until) {
                    writing.end_replay(attached, &self.slash_commands, out);
                }
                writing.release(attached, out);
                true
            }
            Ok(Taken::UpToDate) => {
                writing.end_replay(attached, &self.slash_commands, out);
                writing.release(attached, out);
                false
            }
            Ok(Taken::Ended { trouble }) => {
                writing.end_replay(attached, &self.slash_commands, out);
                let id = attached.handle.id().clone();
                let finished = !attached.finish.is_empty();
                writing.end(attached, trouble.as_deref(), out);
                if finished {
                    self.shown.forget(&id);
                } else {
                    self.reopen(&id);
                }
                false
            }
            Err(error) => {
                writing.end(attached, Some(&error.to_string()), out);
                false
            }
        }
    }
}

impl Shown {
    fn find(&mut self, id: &SessionId) -> Option<&mut Attached> {
        self.keys.get(id).and_then(|key| self.sessions.get_mut(key))
    }

    fn forget(&mut self, id: &SessionId) {
        if let Some(key) = self.keys.remove(id) {
            self.sessions.remove(&key);
        }
    }

    fn any_ended(&self) -> bool {
        self.sessions.values().any(|attached| attached.ended)
    }

    /// A session left memory and came back: the same log goes on under another handle.
    fn go_on(&mut self, handle: SessionHandle, client: ClientAbilities) {
        if let Some(attached) = self.find(handle.id())
            && !attached.handle.is_same(&handle)
            && (attached.ended || !handle.is_closed())
        {
            let reader = handle.read(attached.reader.cursor());
            let updates = Updates::new(client, &handle);
            self.show(handle, reader, updates, None);
        }
    }

    /// Shows the session with this reader.
    fn show(
        &mut self,
        handle: SessionHandle,
        reader: LogReader,
        updates: Updates,
        replay: Option<Replay>,
    ) -> &mut Attached {
        self.last_key += 1;
        let key = self.last_key;
        let before = self.keys.insert(handle.id().clone(), key).and_then(|old| self.sessions.remove(&old));
        let mut attached = Attached {
            handle,
            _subscription: reader.subscribe(&self.bell, key),
            reader,
            updates,
            replay,
            ended: false,
            missed: Vec::new(),
            owed: BTreeMap::new(),
            early: VecDeque::new(),
            after: Vec::new(),
            finish: Vec::new(),
            sent: BTreeMap::new(),
        };
        if let Some(before) = before {
            attached.inherit(before);
        }
        self.sessions.entry(key).insert_entry(attached).into_mut()
    }
}

impl Attached {
    /// Takes over what the client is owed from the reader that showed it the session so far.
    fn inherit(&mut self, before: Self) {
        if self.replay.is_none() && self.reader.cursor() == before.reader.cursor() {
            // The same stream goes on, and with it what was counted so far.
            self.updates = before.updates;
        }
        self.missed = before.missed;
        self.owed = before.owed;
        self.early = before.early;
        self.after = before.after;
        self.finish = before.finish;
        self.sent = before.sent;
        match (&mut self.replay, before.replay) {
            (Some(replay), Some(old)) => {
                replay.until = replay.until.max(old.until);
                replay.answers.splice(..0, old.answers);
            }
            (replay @ None, old) => *replay = old,
            (Some(_), None) => {}
        }
    }
}

/// What encoding a page needs of its connection.
struct Writing<'a> {
    replies: &'a Replies,
    debts: &'a Debts,
    surface: SurfaceId,
}

impl Writing<'_> {
    fn events(&mut self, attached: &mut Attached, events: &[Arc<Event>], out: &mut Vec<u8>) {
        let until = attached.replay.as_ref().map_or(Seq::START, |replay| replay.until);
        let (old, new) = events.split_at(events.partition_point(|event| event.seq <= until));
        self.part(attached, old, true, out);
        self.part(attached, new, false, out);
    }

    fn part(&mut self, attached: &mut Attached, mut events: &[Arc<Event>], replay: bool, out: &mut Vec<u8>) {
        while !events.is_empty() {
            let view = View { replay, own: self.surface };
            let (taken, piece) = attached.updates.encode(events, view, out);
            events = &events[taken..];
            match piece {
                Some(Piece::Asked { ask, request }) => {
                    let frame = attached.updates.ask(request);
                    match &mut attached.replay {
                        Some(replay) => drop(replay.held.insert(ask, frame)),
                        None => self.ask(attached, ask, &frame, out),
                    }
                }
                Some(Piece::Resolved { ask, call, resolution, by }) => {
                    self.resolved(attached, ask, call, resolution, by, out);
                }
                Some(Piece::TurnEnded { turn, stop, error, usage }) => {
                    self.turn_ended(attached, TurnResult { turn, stop, error, usage }, out);
                }
                None => {}
            }
        }
    }

    /// Asks what is open and was asked before the client began to see the session.
    async fn missed(&mut self, attached: &mut Attached, seq: Seq, out: &mut Vec<u8>) {
        let page = Page { count_max: 1, ..Page::USUAL };
        let found = attached.handle.read(Seq(seq.0.saturating_sub(1))).take(page).await;
        if let Ok(Taken::Events(events)) = found
            && let Some(Body::Asked { ask, request }) = events.first().map(|event| &event.body)
        {
            let frame = attached.updates.ask(request);
            self.ask(attached, *ask, &frame, out);
        }
    }

    fn ask(&mut self, attached: &mut Attached, ask: AskId, frame: &AskFrame, out: &mut Vec<u8>) {
        if attached.sent.contains_key(&ask) {
            return;
        }
        let request = self.debts.asked(attached.handle.clone(), ask);
        attached.sent.insert(ask, request);
        frame.write(request, out);
    }

    fn resolved(
        &mut self,
        attached: &mut Attached,
        ask: AskId,
        call: Option<&CallId>,
        resolution: Resolution,
        by: Option<SurfaceId>,
        out: &mut Vec<u8>,
    ) {
        if let Some(replay) = &mut attached.replay {
            replay.held.remove(&ask);
        }
        let Some(request) = attached.sent.remove(&ask) else { return };
        if self.debts.answered(request).is_some() && by != Some(self.surface) {
            write_cancel_request(out, request);
        }
        if let Some(call) = call
            && resolution.allows()
        {
            attached.updates.in_progress(call, out);
        }
    }

    fn turn_ended(&mut self, attached: &mut Attached, result: TurnResult, out: &mut Vec<u8>) {
        if let Some(id) = attached.owed.remove(&result.turn) {
            self.debts.prompt_answered(&id);
            self.replies.write(&id, Ok(&result.outcome()), out);
            return;
        }
        if attached.early.len() == EARLY_MAX {
            attached.early.pop_front();
        }
        attached.early.push_back(result);
    }

    /// The history is told: the client gets its answer, then the questions that are still open.
    fn end_replay(&mut self, attached: &mut Attached, commands: &[CommandSpec], out: &mut Vec<u8>) {
        let Some(replay) = attached.replay.take() else { return };
        attached.updates.flush(out);
        if !replay.answers.is_empty() {
            attached.updates.commands(commands, out);
        }
        let totals = attached.handle.snapshot().totals;
        if totals.context_size > 0 {
            attached.updates.totals(&totals, out);
        }
        for (id, rules) in replay.answers {
            let outcome = Outcome::Opened(SessionView::of(&attached.handle, rules));
            self.replies.write(&id, Ok(&outcome), out);
        }
        for (ask, frame) in replay.held {
            self.ask(attached, ask, &frame, out);
        }
    }

    fn release(&mut self, attached: &mut Attached, out: &mut Vec<u8>) {
        let cursor = attached.reader.cursor();
        for (_, id, outcome) in attached.after.extract_if(.., |(seq, _, _)| *seq <= cursor) {
            self.replies.write(&id, Ok(&outcome), out);
        }
    }

    /// No more will come from this log: everything still owed is answered.
    fn end(&mut self, attached: &mut Attached, trouble: Option<&str>, out: &mut Vec<u8>) {
        attached.ended = true;
        let text = trouble.unwrap_or("the session was closed before this was done");
        for (id, _) in attached.replay.take().into_iter().flat_map(|replay| replay.answers) {
            self.replies.write(&id, Err(&Fault::Internal(text.into())), out);
        }
        for (_, id) in std::mem::take(&mut attached.owed) {
            self.debts.prompt_answered(&id);
            self.replies.write(&id, Err(&Fault::Internal(text.into())), out);
        }
        for (_, id, outcome) in std::mem::take(&mut attached.after) {
            let failed = trouble.map(|text| Fault::Internal(text.into()));
            self.replies.write(&id, failed.as_ref().map_or(Ok(&outcome), Err), out);
        }
        if !attached.finish.is_empty() {
            attached.updates.totals(&attached.handle.snapshot().totals, out);
        }
        for (id, outcome) in attached.finish.drain(..) {
            self.replies.write(&id, Ok(&outcome), out);
        }
    }
}

impl TurnResult {
    fn outcome(&self) -> Outcome {
        Outcome::TurnEnded { stop: self.stop, error: self.error.clone(), usage: self.usage }
    }
}
