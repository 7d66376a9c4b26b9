//! The task that owns a session: it feeds inputs to the state machine and carries out the effects.
//!
//! One task per open session holds the state, the log's writing end and the running turn. Events go
//! to the store in batches, one batch at a time; events that arrive meanwhile form the next batch. Only
//! stored events become visible, and only then do turns start and tools continue. So nothing that
//! anybody saw, and nothing that a tool did, can be missing from the log after a crash.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authority::Standing;
use crate::backend::{
    BackendReport, BackendSession, BoxFuture, NewEvent, PermissionOutcome, ReportKind, SessionContext,
    TurnContext, TurnError, TurnInput,
};
use crate::client_host::Hosts;
use crate::content::{CommandSpec, Content};
use crate::event::{AskRequest, Body, Event, NoticeLevel, Origin, Resolution, Stop};
use crate::event_log::{EventLog, RingLimits};
use crate::event_redaction::Redaction;
use crate::ids::{AskId, CallId, Clock, Epoch, Principal, Seq, SessionId, Timestamp, TurnId};
use crate::redactor_trait::Redactor;
use crate::review::without_secrets;
use crate::session::{Effect, Input, Refusal, Sender, Session, TurnReport};
use crate::session_handle::{
    HandleInner, InputEnvelope, InputReceipt, SendError, SessionHandle, SessionOrigin, Snapshot,
};
use crate::session_title::plain_title;
use crate::settings::Settings;
use crate::store::{EventBatch, Store, StoreError};
use crate::stored_rules::{MemoryRules, PermissionRules, RememberedAnswer, RuleEffect, RuleHit, RuleScope};

/// Inputs from surfaces that may wait for the task. More wait in their connections.
const MAILBOX_MAX: usize = 64;
/// Reports of the running turn that may wait; a full queue slows the turn down.
const REPORTS_MAX: usize = 256;
/// Reports handled between two checks of the mailbox.
const REPORTS_PER_WAKE: usize = 64;
/// How long a cancelled turn may take to end by itself.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long what a session has running besides its turns may take to end.
const BACKEND_CLOSE: Duration = Duration::from_secs(6);
/// Message ids of one turn; more messages than this in a turn would share ids with the next.
const MESSAGES_PER_TURN: u64 = 1 << 20;

/// Everything that can wake the session task. Closed on purpose: adding a source means adding a
/// variant, and the compiler then asks what to do with it.
enum Wake {
    Command(InputEnvelope),
    Reports,
    Stored(WriteOutcome),
    Deadline,
}

/// The parts of a session task.
pub(crate) struct SessionTaskParts {
    pub id: SessionId,
    pub owner: Principal,
    pub roots: Vec<PathBuf>,
    pub origin: SessionOrigin,
    pub epoch: Epoch,
    pub next_seq: Seq,
    pub replay_from: Seq,
    pub updated_at: Timestamp,
    pub session: Session,
    pub commands: Arc<[CommandSpec]>,
    pub store: Arc<dyn Store>,
    pub backend: Box<dyn FnOnce(SessionContext) -> Arc<dyn BackendSession> + Send>,
    pub clock: Arc<dyn Clock>,
    pub rules: Arc<dyn PermissionRules>,
    pub redactor: Option<Arc<dyn Redactor>>,
    pub tracker: TaskTracker,
    pub ask_timeout: Option<Duration>,
}

pub(crate) struct SessionTask {
    id: SessionId,
    epoch: Epoch,
    session: Session,
    log: EventLog,
    store: Arc<dyn Store>,
    backend: Arc<dyn BackendSession>,
    clock: Arc<dyn Clock>,
    rules: Arc<dyn PermissionRules>,
    /// Answers about actions with a secret in them, which are written nowhere.
    unwritten: MemoryRules,
    redaction: Option<Redaction>,
    tracker: TaskTracker,
    ask_timeout: Option<Duration>,
    mailbox: mpsc::Receiver<InputEnvelope>,
    reports: mpsc::Receiver<BackendReport>,
    reports_in: mpsc::Sender<BackendReport>,
    /// Reused between wakes.
    taken: Vec<BackendReport>,
    writing: Option<PendingWrite>,
    /// Rules that answers make. Each is written before the events of its answer are.
    unwritten_rules: Vec<BoxFuture<'static, Result<Arc<str>, String>>>,
    /// Work that waits until the store has an event.
    after_write: VecDeque<(Seq, AfterWrite)>,
    /// Tools that wait for a person.
    waiting: HashMap<AskId, oneshot::Sender<PermissionOutcome>>,
    /// The positions of the open requests in the log.
    asked_at: BTreeMap<AskId, Seq>,
    deadlines: BTreeMap<AskId, Instant>,
    turn: Option<ActiveTurn>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    hosts: Arc<Hosts>,
    settings: watch::Sender<Arc<Settings>>,
    place: watch::Sender<Arc<PathBuf>>,
    replay_from: Seq,
    updated_at: Timestamp,
    last_seq: Seq,
    stopping: bool,
}

struct PendingWrite {
    events: Vec<Arc<Event>>,
    sync: bool,
    /// Since when it waits for another process's lock, and which process that is.
    blocked: Option<(Instant, String)>,
    /// Why rules could not be saved, as far as it was tried.
    unsaved: Vec<String>,
    /// The session as it is after exactly these events.
    snapshot: Snapshot,
    done: BoxFuture<'static, WriteOutcome>,
}

/// The result of writing a batch.
struct WriteOutcome {
    /// Why rules could not be saved.
    unsaved: Vec<String>,
    outcome: Result<(), StoreError>,
}

enum AfterWrite {
    StartTurn { turn: TurnId, content: Vec<Content>, standing: Standing },
    Tell { reply: oneshot::Sender<PermissionOutcome>, verdict: PermissionOutcome },
}

struct ActiveTurn {
    cancel: CancellationToken,
    abort: AbortHandle,
    /// When a cancelled turn that does not end is ended by force.
    abort_at: Option<Instant>,
}

impl SessionTask {
    /// Makes the task and the handle to it. `effects` are what recovery found to do.
    pub(crate) fn new(parts: SessionTaskParts, effects: Vec<Effect>) -> (Self, SessionHandle) {
        let (mailbox_in, mailbox) = mpsc::channel(MAILBOX_MAX);
        let (reports_in, reports) = mpsc::channel(REPORTS_MAX);
        let log =
            EventLog::new(parts.id.clone(), Arc::clone(&parts.store), parts.next_seq, RingLimits::default());
        let settings = Arc::new(parts.session.settings().clone());
        let place = Arc::new(parts.session.cwd().clone());
        let first = snapshot_of(&parts.session, &settings, &place, parts.replay_from, parts.updated_at);
        let (snapshot, snapshot_out) = watch::channel(Arc::new(first));
        let hosts = Hosts::new(parts.id.clone());
        let settings = watch::Sender::new(settings);
        let backend = (parts.backend)(SessionContext {
            reports: reports_in.clone(),
            settings: settings.subscribe(),
            hosts: Arc::clone(&hosts),
            tracker: parts.tracker.clone(),
            clock: Arc::clone(&parts.clock),
            history: log.shared().reader(Seq::START),
        });
        let handle = SessionHandle {
            inner: Arc::new(HandleInner {
                id: parts.id.clone(),
                owner: parts.owner,
                roots: parts.roots,
                origin: parts.origin,
                commands: parts.commands,
                servers: backend.servers(),
                review: without_secrets(backend.review(), parts.redactor.as_ref()),
                extensions: backend.extensions(),
                mailbox: mailbox_in,
                log: log.shared(),
                snapshot: snapshot_out,
                hosts: Arc::clone(&hosts),
            }),
        };
        let mut task = Self {
            id: parts.id,
            epoch: parts.epoch,
            session: parts.session,
            log,
            store: parts.store,
            backend,
            clock: parts.clock,
            rules: parts.rules,
            unwritten: MemoryRules::default(),
            redaction: parts.redactor.map(Redaction::new),
            tracker: parts.tracker,
            ask_timeout: parts.ask_timeout,
            mailbox,
            reports,
            reports_in,
            taken: Vec::new(),
            writing: None,
            unwritten_rules: Vec::new(),
            after_write: VecDeque::new(),
            waiting: HashMap::new(),
            asked_at: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            turn: None,
            snapshot,
            hosts,
            settings,
            place: watch::Sender::new(place),
            replay_from: parts.replay_from,
            updated_at: parts.updated_at,
            last_seq: Seq(parts.next_seq.0.saturating_sub(1)),
            stopping: false,
        };
        task.carry_out(effects, None);
        (task, handle)
    }

    pub(crate) fn backend(&self) -> Arc<dyn BackendSession> {
        Arc::clone(&self.backend)
    }

    /// The last position that was assigned.
    pub(crate) fn last_seq(&self) -> Seq {
        self.last_seq
    }

    pub(crate) async fn run(mut self) {
        self.flush();
        while !(self.stopping && self.writing.is_none()) {
            match self.next_wake().await {
                Wake::Command(InputEnvelope { input, reply }) => {
                    let outcome = self.command(input);
                    // The caller may have hung up; the session has already moved on.
                    drop(reply.send(outcome));
                }
                Wake::Reports => self.take_reports(),
                Wake::Stored(WriteOutcome { unsaved, outcome: Ok(()) }) => self.written(unsaved),
                Wake::Stored(WriteOutcome { unsaved, outcome: Err(StoreError::Busy { reason }) })
                    if self.must_not_be_lost() =>
                {
                    self.write_again(reason, unsaved);
                }
                Wake::Stored(WriteOutcome { outcome: Err(error), .. }) => return self.give_up(&error).await,
                Wake::Deadline => self.deadline(),
            }
            self.flush();
        }
        self.wind_down().await;
    }

    /// Commands go before agent output: a cancel must not queue behind the flood it wants to stop.
    async fn next_wake(&mut self) -> Wake {
        let deadline = self.next_deadline();
        let take_reports = !self.log.is_full();
        tokio::select! {
            biased;
            Some(envelope) = self.mailbox.recv(), if !self.stopping => Wake::Command(envelope),
            outcome = stored(&mut self.writing) => Wake::Stored(outcome),
            _ = self.reports.recv_many(&mut self.taken, REPORTS_PER_WAKE), if take_reports => Wake::Reports,
            () = at(deadline) => Wake::Deadline,
        }
    }

    fn command(&mut self, input: Input) -> Result<InputReceipt, SendError> {
        let input = if let Input::Rename { by, title } = input {
            // The title is shown from the state, not only from the log.
            Input::Rename { by, title: self.plain_title(title) }
        } else {
            input
        };
        if let Input::ApprovalChosen { by, .. } = input {
            self.allow_unasked(by);
            return Ok(InputReceipt { turn: None, seq: self.last_seq });
        }
        let chooser = input.chooses_approval().cloned();
        let effects = self.session.apply(self.clock.now(), input).map_err(SendError::Refused)?;
        let turn = self.carry_out(effects, None);
        if let Some(by) = chooser {
            self.allow_unasked(by);
        }
        Ok(InputReceipt { turn, seq: self.last_seq })
    }

    /// Judges the waiting requests again, by the current rules and the approval that was just chosen.
    fn allow_unasked(&mut self, by: Sender) {
        let waiting = self.session.open_requests();
        let hits = waiting.filter_map(|(ask, action)| Some((ask, self.rule_for(action)?))).collect();
        let chosen = Input::ApprovalChosen { by, hits };
        match self.session.apply(self.clock.now(), chosen) {
            Ok(effects) => drop(self.carry_out(effects, None)),
            Err(refusal) => tracing::error!(session = %self.id, %refusal, "a chosen approval was refused"),
        }
    }

    fn take_reports(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        for BackendReport { turn, within, kind } in taken.drain(..) {
            let (report, reply) = match kind {
                ReportKind::Emit(NewEvent { body: Body::Title { title }, relayed }) => {
                    let title = self.plain_title(title);
                    (TurnReport::Emit(NewEvent { body: Body::Title { title }, relayed }), ReplyTo::None)
                }
                ReportKind::Emit(event) => (TurnReport::Emit(event), ReplyTo::None),
                ReportKind::Ask { request, reply } => {
                    let hit = self.rule_for(&request);
                    (TurnReport::Ask { request, hit }, ReplyTo::Verdict(reply))
                }
                ReportKind::Change { id, value, reply } => {
                    (TurnReport::Change { id, value }, ReplyTo::Change(reply))
                }
                ReportKind::Mark { reply } => {
                    // The turn may have ended meanwhile.
                    reply.send(self.last_seq).ok();
                    continue;
                }
                ReportKind::Ended { stop, error } => {
                    self.turn = None;
                    (TurnReport::Ended { stop, error }, ReplyTo::None)
                }
            };
            self.report(turn, within, report, reply);
        }
        self.taken = taken;
    }

    fn report(&mut self, turn: Option<TurnId>, within: Option<CallId>, report: TurnReport, reply: ReplyTo) {
        let input = match (turn, report) {
            (Some(turn), report) => Input::FromTurn { turn, within, report },
            (None, TurnReport::Emit(event)) => Input::FromAgent { event },
            // Only a turn can send these.
            (None, TurnReport::Ask { .. } | TurnReport::Change { .. } | TurnReport::Ended { .. }) => return,
        };
        let outcome = self.session.apply(self.clock.now(), input);
        match (outcome, reply) {
            (Ok(effects), ReplyTo::None) => drop(self.carry_out(effects, None)),
            (Ok(effects), ReplyTo::Verdict(reply)) => drop(self.carry_out(effects, Some(reply))),
            (Ok(effects), ReplyTo::Change(reply)) => {
                self.carry_out(effects, None);
                // The turn may have ended; the change stands all the same.
                drop(reply.send(Ok(())));
            }
            (Err(refusal), ReplyTo::Change(reply)) => drop(reply.send(Err(refusal.to_string()))),
            (Err(Refusal::StaleTurn(_)), ReplyTo::None | ReplyTo::Verdict(_)) => {}
            (Err(refusal), ReplyTo::None | ReplyTo::Verdict(_)) => {
                tracing::error!(session = %self.id, %refusal, "the agent broke the turn contract");
            }
        }
    }

    /// Carries out effects in order. `asking` replies to the tool whose request these effects are about.
    fn carry_out(
        &mut self,
        effects: Vec<Effect>,
        mut asking: Option<oneshot::Sender<PermissionOutcome>>,
    ) -> Option<TurnId> {
        let mut accepted = None;
        for effect in effects {
            match effect {
                Effect::Record { origin, turn, mut event } => {
                    if let Body::Asked { request, .. } = &mut event.body {
                        request.rule = self.rule_of(request);
                    }
                    self.record(origin, turn, event);
                }
                Effect::GoOnAfter { seen } => self.log.go_on_after(seen),
                Effect::StartTurn { turn, content, standing } => {
                    let start = AfterWrite::StartTurn { turn, content, standing };
                    self.after_write.push_back((self.last_seq, start));
                }
                Effect::CancelTurn { .. } => self.cancel_turn(),
                Effect::Wait { ask } => {
                    self.deadlines.extend(self.ask_timeout.map(|timeout| (ask, Instant::now() + timeout)));
                    self.waiting.extend(asking.take().map(|reply| (ask, reply)));
                }
                Effect::Settle { resolution, reason } => {
                    self.tell(asking.take(), (resolution, reason), None);
                }
                Effect::Wake { ask, resolution, reason, said } => {
                    self.deadlines.remove(&ask);
                    let reply = self.waiting.remove(&ask);
                    self.tell(reply, (resolution, reason), said);
                }
                Effect::Remember { tool, subject, consent, scope, allow } => {
                    let workspace = self.session.cwd().clone();
                    self.remember(RememberedAnswer { workspace, tool, subject, consent, scope, allow });
                }
                Effect::Accepted { turn } => accepted = Some(turn),
                Effect::Stop => self.stopping = true,
            }
        }
        accepted
    }

    /// Takes an event into the log, without its secrets and after what was held before it.
    fn record(&mut self, origin: Origin, turn: Option<TurnId>, event: impl Into<NewEvent>) {
        let event = event.into();
        if let (Body::SettingChanged { id, value }, false) = (&event.body, origin == Origin::Agent) {
            self.backend.chosen(id, value);
        }
        let Some(redaction) = &mut self.redaction else { return self.append(origin, turn, event) };
        let (held, clean) = if event.relayed.is_some() {
            let (held, event) = redaction.relayed(event);
            (held, Some(event))
        } else {
            let held = redaction.before(&origin, turn, &event.body);
            (held, redaction.clean(&origin, turn, event.body).map(NewEvent::from))
        };
        for record in held {
            self.append(record.origin, record.turn, record.body);
        }
        if let Some(event) = clean {
            self.append(origin, turn, event);
        }
    }

    fn append(&mut self, origin: Origin, turn: Option<TurnId>, event: impl Into<NewEvent>) {
        let NewEvent { body, relayed } = event.into();
        let cleared = matches!(body, Body::Cleared);
        let asked = if let Body::Asked { ask, .. } = &body { Some(*ask) } else { None };
        if let Body::Resolved { ask, .. } = &body {
            self.asked_at.remove(ask);
        }
        self.updated_at = self.clock.now();
        self.last_seq = self.log.push(self.updated_at, origin, turn, NewEvent { body, relayed });
        self.asked_at.extend(asked.map(|ask| (ask, self.last_seq)));
        if cleared {
            self.replay_from = self.last_seq;
        }
    }

    fn tell(
        &mut self,
        reply: Option<oneshot::Sender<PermissionOutcome>>,
        (resolution, reason): (Resolution, Arc<str>),
        said: Option<Arc<str>>,
    ) {
        let verdict = match said {
            Some(said) => PermissionOutcome::Replied(said),
            None if resolution.allows() => PermissionOutcome::Allowed,
            None => PermissionOutcome::Denied { resolution, reason },
        };
        self.after_write.extend(reply.map(|reply| (self.last_seq, AfterWrite::Tell { reply, verdict })));
    }

    /// A title without invisible characters, which could also split a secret, and without secrets.
    fn plain_title(&self, title: Arc<str>) -> Arc<str> {
        self.without_secrets(plain_title(title))
    }

    fn without_secrets(&self, text: Arc<str>) -> Arc<str> {
        match &self.redaction {
            Some(redaction) => redaction.text(text),
            None => text,
        }
    }

    /// The rules' decision about an action: on several files, the strictest decision about any of them.
    fn rule_for(&self, request: &AskRequest) -> Option<RuleHit> {
        let hits: Vec<_> = request.by_file().iter().map(|action| self.rule_for_one(action)).collect();
        let narrowing = hits.iter().flatten().filter(|hit| hit.effect > RuleEffect::Allow);
        let strongest = narrowing.max_by_key(|hit| hit.effect).cloned();
        strongest
            .or_else(|| hits.into_iter().collect::<Option<Vec<_>>>()?.into_iter().min_by_key(|hit| hit.exact))
    }

    /// The decision of the rules, and of the answers that are only kept here.
    fn rule_for_one(&self, request: &AskRequest) -> Option<RuleHit> {
        let workspace = self.session.cwd();
        let hits = [
            self.unwritten.find(workspace, request),
            self.session.granted(request, &*self.rules),
            self.rules.find(workspace, request),
        ];
        hits.into_iter().flatten().max_by_key(|hit| (hit.effect, hit.consent))
    }

    /// The rule that a remembered answer to this request would write.
    fn rule_of(&self, request: &AskRequest) -> Option<Arc<str>> {
        let writes =
            request.question.is_none() && !request.is_consent() && !self.has_secret(&request.subject);
        writes.then(|| self.rules.rule_of(self.session.cwd(), request)).flatten()
    }

    fn has_secret(&self, text: &str) -> bool {
        self.redaction.as_ref().is_some_and(|redaction| redaction.has_secret(text))
    }

    fn remember(&mut self, answer: RememberedAnswer) {
        let in_arguments = matches!(&answer.scope, RuleScope::Arguments(input) if self.has_secret(&input.0));
        if in_arguments || self.has_secret(&answer.subject) {
            // A rule without the secret would mean other actions too, and one with it would be a leak.
            drop(self.unwritten.remember(answer));
            let text = "this contains a secret, so the answer is not saved: it applies until the session is unloaded";
            let notice = Body::Notice { level: NoticeLevel::Info, text: text.into() };
            return self.record(Origin::Engine, self.session.running(), notice);
        }
        self.unwritten_rules.push(self.rules.remember(answer));
    }

    fn cancel_turn(&mut self) {
        // A turn that waits for the store to start is dropped before it begins.
        let before = self.after_write.len();
        self.after_write.retain(|(_, work)| !matches!(work, AfterWrite::StartTurn { .. }));
        if let Some(turn) = &mut self.turn {
            turn.cancel.cancel();
            // A close after a cancel does not restart the grace period.
            turn.abort_at.get_or_insert_with(|| Instant::now() + CANCEL_GRACE);
        } else if self.after_write.len() < before {
            self.end_unstarted();
        }
    }

    /// A turn that was cancelled before its backend saw it ends here.
    fn end_unstarted(&mut self) {
        if let Some(turn) = self.session.running() {
            self.report(
                Some(turn),
                None,
                TurnReport::Ended { stop: Stop::Cancelled, error: None },
                ReplyTo::None,
            );
        }
    }

    fn flush(&mut self) {
        if self.writing.is_none() && self.log.has_pending() {
            let events = self.log.take_pending();
            let sync = events.iter().any(|event| event.body.must_sync());
            let rules = std::mem::take(&mut self.unwritten_rules);
            let done = self.append_to_store(rules, events.clone(), sync);
            let (blocked, unsaved) = (None, Vec::new());
            self.writing =
                Some(PendingWrite { events, sync, blocked, unsaved, snapshot: self.take_snapshot(), done });
        }
    }

    fn append_to_store(
        &self,
        rules: Vec<BoxFuture<'static, Result<Arc<str>, String>>>,
        events: Vec<Arc<Event>>,
        sync: bool,
    ) -> BoxFuture<'static, WriteOutcome> {
        let batch = EventBatch { session: self.id.clone(), epoch: self.epoch, events, sync };
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            // Anybody who sees a remembered answer can rely on its rule, also after a crash. A rule for an
            // answer that nobody saw still does what the person wanted.
            let unsaved = save(rules).await;
            WriteOutcome { unsaved, outcome: store.append(batch).await }
        })
    }

    /// Whether the waiting events already happened: an agent said or did something. A prompt that did not
    /// become a turn has had no effect yet, and its sender gets an error.
    fn must_not_be_lost(&self) -> bool {
        let happened = |event: &Arc<Event>| {
            event.origin == Origin::Agent
                || matches!(event.body, Body::TurnEnded { .. } | Body::Resolved { .. })
        };
        let writing = self.writing.iter().flat_map(|writing| &writing.events);
        self.turn.is_some() || writing.chain(self.log.pending()).any(happened)
    }

    /// Another process holds the store's lock: the same events are tried again, for as long as it takes.
    fn write_again(&mut self, reason: String, unsaved: Vec<String>) {
        let Some(mut writing) = self.writing.take() else { return };
        writing.unsaved.extend(unsaved);
        if writing.blocked.is_none() {
            tracing::warn!(session = %self.id, reason, "a turn waits for the session store");
        }
        let since = writing.blocked.take().map_or_else(Instant::now, |(since, _)| since);
        let done = self.append_to_store(Vec::new(), writing.events.clone(), writing.sync);
        self.writing = Some(PendingWrite { blocked: Some((since, reason)), done, ..writing });
    }

    fn written(&mut self, unsaved: Vec<String>) {
        let Some(PendingWrite { events, snapshot, blocked, unsaved: before, .. }) = self.writing.take()
        else {
            return;
        };
        if let Some((since, reason)) = blocked {
            let text = format!(
                "the turn waited another {} s for the session store: {reason}",
                since.elapsed().as_secs()
            );
            let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
            self.record(Origin::Engine, self.session.running(), notice);
        }
        self.publish_snapshot(snapshot);
        self.log.publish(&events);
        let reached = events.last().map_or(Seq::START, |event| event.seq);
        while self.after_write.front().is_some_and(|(seq, _)| *seq <= reached) {
            match self.after_write.pop_front() {
                Some((_, AfterWrite::StartTurn { turn, content, standing })) => {
                    self.start_turn(turn, content, standing);
                }
                // The tool may have been cancelled while it waited.
                Some((_, AfterWrite::Tell { reply, verdict })) => drop(reply.send(verdict)),
                None => {}
            }
        }
        for reason in before.into_iter().chain(unsaved) {
            let text = format!(
                "the answer applies only until this server stops, because its rule could not be saved: {reason}"
            );
            let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
            self.record(Origin::Engine, self.session.running(), notice);
        }
    }

    /// Settings and place are shared with the last snapshot as long as they are the same.
    fn take_snapshot(&self) -> Snapshot {
        let last = self.snapshot.borrow();
        let settings = self.session.settings();
        let settings =
            if *last.settings == *settings { Arc::clone(&last.settings) } else { Arc::new(settings.clone()) };
        let cwd = self.session.cwd();
        let cwd = if *last.cwd == *cwd { Arc::clone(&last.cwd) } else { Arc::new(cwd.clone()) };
        let asks = self.asked_at.values().copied().collect();
        Snapshot { asks, ..snapshot_of(&self.session, &settings, &cwd, self.replay_from, self.updated_at) }
    }

    fn publish_snapshot(&mut self, next: Snapshot) {
        if !Arc::ptr_eq(&self.settings.borrow(), &next.settings) {
            self.settings.send_replace(Arc::clone(&next.settings));
        }
        if !Arc::ptr_eq(&self.place.borrow(), &next.cwd) {
            self.place.send_replace(Arc::clone(&next.cwd));
        }
        self.snapshot.send_replace(Arc::new(next));
    }

    fn start_turn(&mut self, turn: TurnId, content: Vec<Content>, standing: Standing) {
        let (cancel, over) = (CancellationToken::new(), CancellationToken::new());
        let told = over.clone().drop_guard();
        let context = TurnContext {
            turn,
            reports: self.reports_in.clone(),
            settings: self.settings.subscribe(),
            place: self.place.subscribe(),
            attended: !self.session.unattended(),
            standing,
            within: None,
            messages: Arc::default(),
            hosts: Arc::clone(&self.hosts),
            message_base: turn.0.saturating_mul(MESSAGES_PER_TURN),
            cancel: cancel.clone(),
            over,
            history: self.log.shared().reader(Seq::START),
        };
        let input = TurnInput { turn, content, titled: self.session.title().is_some() };
        let backend = Arc::clone(&self.backend);
        // Called within the task: a backend that panics at once must not take the session with it.
        let work = self.tracker.spawn(async move { backend.turn(input, context).await });
        let abort = work.abort_handle();
        let reports = self.reports_in.clone();
        self.tracker.spawn(async move {
            let (stop, error) = match work.await {
                Ok(Ok(stop)) => (stop, None),
                Ok(Err(TurnError(text))) => (Stop::Failed, Some(text.into())),
                Err(join) if join.is_cancelled() => (Stop::Cancelled, None),
                Err(_) => (
                    Stop::Failed,
                    Some("the agent failed unexpectedly; send another prompt to continue".into()),
                ),
            };
            // A closed queue means the session is gone, and with it everybody who would want to know.
            let kind = ReportKind::Ended { stop, error };
            drop(reports.send(BackendReport { turn: Some(turn), within: None, kind }).await);
            drop(told);
        });
        self.turn = Some(ActiveTurn { cancel, abort, abort_at: None });
    }

    fn next_deadline(&self) -> Option<Instant> {
        let abort = self.turn.as_ref().and_then(|turn| turn.abort_at);
        self.deadlines.values().copied().chain(abort).min()
    }

    fn deadline(&mut self) {
        let now = Instant::now();
        if let Some(turn) = &mut self.turn
            && turn.abort_at.is_some_and(|at| at <= now)
        {
            turn.abort.abort();
            turn.abort_at = None;
        }
        let due: Vec<_> = self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(ask, _)| *ask).collect();
        for ask in due {
            self.deadlines.remove(&ask);
            if let Ok(effects) = self.session.apply(self.clock.now(), Input::AskExpired { ask }) {
                self.carry_out(effects, None);
            }
        }
    }

    /// The log cannot be written any more, so nothing more may be shown. Reopening starts from the store.
    async fn give_up(mut self, error: &StoreError) {
        if matches!(error, StoreError::Fenced) {
            tracing::info!(session = %self.id, "another process took over the session");
        } else {
            tracing::error!(session = %self.id, %error, "could not write the session's log");
        }
        // A client that learns of the end from the log must not be sent back to this task.
        self.mailbox.close();
        if let Some(turn) = &self.turn {
            turn.cancel.cancel();
            turn.abort.abort();
        }
        self.log.close(Some(error.to_string().into()));
        close_backend(Arc::clone(&self.backend), self.tracker.clone(), self.id.clone()).await;
    }

    async fn wind_down(self) {
        close_backend(Arc::clone(&self.backend), self.tracker.clone(), self.id.clone()).await;
        self.log.close(None);
        if let Err(error) = self.store.release(&self.id, self.epoch).await {
            tracing::warn!(session = %self.id, %error, "could not release the session");
        }
    }
}

/// Ends what the backend has running for a session, and waits for it a while.
async fn close_backend(backend: Arc<dyn BackendSession>, tracker: TaskTracker, id: SessionId) {
    let closing = tracker.spawn(backend.close());
    if tokio::time::timeout(BACKEND_CLOSE, closing).await.is_err() {
        tracing::warn!(session = %id, "background work of the session did not end in time");
    }
}

enum ReplyTo {
    None,
    Verdict(oneshot::Sender<PermissionOutcome>),
    Change(oneshot::Sender<Result<(), String>>),
}

fn snapshot_of(
    session: &Session,
    settings: &Arc<Settings>,
    place: &Arc<PathBuf>,
    replay_from: Seq,
    updated_at: Timestamp,
) -> Snapshot {
    Snapshot {
        settings: Arc::clone(settings),
        specs: Arc::clone(session.specs()),
        title: session.title().cloned(),
        cwd: Arc::clone(place),
        folders: Arc::clone(session.folders()),
        totals: session.totals(),
        busy: session.busy(),
        cancelling: session.cancelling(),
        waiting: session.waiting(),
        replay_from,
        asks: Vec::new(),
        prompts: Arc::clone(session.prompts()),
        extra: session.extra().cloned(),
        updated_at,
    }
}

/// Writes the rules one after the other; answers with why some could not be written.
async fn save(rules: Vec<BoxFuture<'static, Result<Arc<str>, String>>>) -> Vec<String> {
    let mut unsaved = Vec::new();
    for rule in rules {
        match rule.await {
            Ok(rule) => tracing::info!(%rule, "an answer is remembered as a rule"),
            Err(error) => {
                tracing::warn!(%error, "the answer applies only until this server stops");
                unsaved.push(error);
            }
        }
    }
    unsaved
}

async fn stored(writing: &mut Option<PendingWrite>) -> WriteOutcome {
    match writing {
        Some(writing) => writing.done.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
