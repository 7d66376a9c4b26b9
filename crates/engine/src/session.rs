//! The session's state machine: what may happen next, decided without I/O, clock or tasks.
//!
//! [`Session::apply`] takes one input and answers with effects in the order they must be carried
//! out, or refuses and changes nothing. Races between editors, phones and the agent become orders of
//! inputs, which a test can write down. The same [`Session::observe`] keeps the state in step while
//! the session lives and rebuilds it from the log afterwards, so the two cannot differ.
//!
//! **Invariant:** every turn that was accepted ends exactly once, every tool call and every ask too.
//! **Invariant:** no input widens the sandbox; there is none to send.

mod asks;
mod log_damage;
#[cfg(test)]
mod random_order_tests;
mod session_grants;
#[cfg(test)]
mod test_script;
#[cfg(test)]
mod tests;
mod turns;
mod working_folders;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::log_damage::NarrowedSettings;
use self::session_grants::SessionGrants;
use crate::authority::{Forbidden, Standing};
use crate::backend::NewEvent;
use crate::content::{Content, Opaque};
use crate::event::{
    AskRequest, Body, Family, NoticeLevel, Origin, PermissionEvent, Resolution, Resolver, SetupEvent, Stop,
    ToolEvent, TurnEvent, Usage,
};
use crate::ids::{AskId, CallId, Seq, SurfaceId, Timestamp, TurnId};
use crate::settings::{APPROVAL, FULL_APPROVAL, MODE, SettingSpec, Settings, full_id, full_name, of_switch};
use crate::stored_rules::{RuleHit, RuleScope};

/// Prompts that may wait behind a running turn.
pub(crate) const QUEUE_MAX: usize = 32;
/// The size of all queued prompts together: a few big images.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Prompts whose requests are remembered. A client that comes back after more than these cannot learn by its
/// request how an old one ended.
const PROMPTS_MAX: usize = 64;
/// The mode in which nothing is changed, where there is one.
const READING_MODE: &str = "ask";

/// The connection that sends an input, with the name its client gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub surface: SurfaceId,
    pub name: Arc<str>,
    /// The request this comes from, in the client's own words, if its answer is due later.
    pub request: Option<Arc<str>>,
    /// Who it is, if this comes over the bridge.
    pub remote: Option<Arc<str>>,
    /// Decided where the connection was made.
    pub standing: Standing,
}

impl Sender {
    /// A sender of whom only the name is known.
    pub fn new(surface: SurfaceId, name: impl Into<Arc<str>>) -> Self {
        Self { surface, name: name.into(), request: None, remote: None, standing: Standing::Other }
    }

    /// The owner at the machine.
    pub fn owner(surface: SurfaceId, name: impl Into<Arc<str>>) -> Self {
        Self { standing: Standing::OwnerAtMachine, ..Self::new(surface, name) }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::Surface {
            id: self.surface,
            name: Arc::clone(&self.name),
            request: self.request.clone(),
            remote: self.remote.clone(),
        }
    }

    fn resolver(&self) -> Resolver {
        Resolver::Surface {
            id: self.surface,
            name: Arc::clone(&self.name),
            remote: self.remote.clone(),
            standing: self.standing,
        }
    }
}

#[derive(Debug)]
pub enum Input {
    Prompt {
        by: Sender,
        content: Vec<Content>,
    },
    /// Ends one turn, running or queued; without `only`, the running turn and what the sender queued.
    Cancel {
        by: Sender,
        only: Option<TurnId>,
    },
    Answer {
        by: Sender,
        ask: AskId,
        answer: PermissionAnswer,
    },
    Change {
        by: Sender,
        id: Arc<str>,
        value: Arc<str>,
    },
    /// The approval was chosen: requests that it does not ask for need not wait any longer. `hits` is what
    /// the rules say now about the waiting requests; the session's task looks that up itself, for every
    /// sender.
    ApprovalChosen {
        by: Sender,
        hits: BTreeMap<AskId, RuleHit>,
    },
    Rename {
        by: Sender,
        title: Arc<str>,
    },
    Move {
        by: Sender,
        cwd: PathBuf,
    },
    /// Ends the session in good order: the running turn is cancelled first.
    Close {
        /// The client that closes it, if one does.
        by: Option<Sender>,
        /// Why, if the client calls it a cancel.
        reason: Option<Arc<str>>,
    },
    /// Ends the session unless it has work: how it leaves memory for another one.
    Retire,
    /// The external agent says something while no turn runs.
    FromAgent {
        event: NewEvent,
    },
    FromTurn {
        turn: TurnId,
        /// The call that a sub-agent works for, if one reports.
        within: Option<CallId>,
        report: TurnReport,
    },
    /// Nobody answered before the timeout.
    AskExpired {
        ask: AskId,
    },
    /// Somebody elsewhere has events up to `seen` that this log does not have, or has differently: its store
    /// was restored.
    PutBack {
        seen: Seq,
        /// The text for people.
        notice: Arc<str>,
    },
}

impl Input {
    /// Who chooses the approval with this.
    pub(crate) fn chooses_approval(&self) -> Option<&Sender> {
        if let Self::Change { by, id, .. } = self
            && *full_id(Arc::clone(id)) == *APPROVAL
        {
            return Some(by);
        }
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionAnswer {
    AllowOnce,
    AllowAlways,
    /// For good, and only for the same tool with the same arguments.
    AllowExactly,
    DenyOnce,
    /// No, and what the agent should know about it.
    DenyBecause(Arc<str>),
    DenyAlways,
    DenyExactly,
    /// The client gave the question up, or gave no answer that can be used: neither a yes nor a person's no.
    Withdraw,
    /// The person who was asked ends the turn. From anybody else than the sender of its prompt, this counts
    /// as a no.
    CancelTurn,
    /// A person's answer to a question.
    Reply(Arc<str>),
    /// One of the answers that an external agent offers, by its name.
    Choose(Arc<str>),
}

#[derive(Debug)]
pub enum TurnReport {
    Emit(NewEvent),
    /// `hit` is what the rules say of this action.
    Ask {
        request: Box<AskRequest>,
        hit: Option<RuleHit>,
    },
    Change {
        id: Arc<str>,
        value: Arc<str>,
    },
    Ended {
        stop: Stop,
        error: Option<Arc<str>>,
    },
}

/// What the task must do next, in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    Record {
        origin: Origin,
        turn: Option<TurnId>,
        event: NewEvent,
    },
    /// Positions up to this one were seen with other events, so none of them is assigned again.
    GoOnAfter {
        seen: Seq,
    },
    StartTurn {
        turn: TurnId,
        content: Vec<Content>,
        /// The standing of the sender of the prompt.
        standing: Standing,
    },
    CancelTurn {
        turn: TurnId,
    },
    /// The ask now waits for a person.
    Wait {
        ask: AskId,
    },
    /// The action that was just made was settled without anybody waiting.
    Settle {
        resolution: Resolution,
        reason: Arc<str>,
    },
    /// A waiting ask was settled.
    Wake {
        ask: AskId,
        resolution: Resolution,
        reason: Arc<str>,
        /// A person's answer to a question.
        said: Option<Arc<str>>,
    },
    Remember {
        tool: Arc<str>,
        subject: Arc<str>,
        consent: Option<Arc<str>>,
        scope: RuleScope,
        allow: bool,
    },
    /// A prompt was accepted as this turn.
    Accepted {
        turn: TurnId,
    },
    /// The session is over: release what it holds.
    Stop,
}

/// Why an input cannot be accepted right now. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("too many prompts are waiting; wait for one to finish, or cancel")]
    QueueFull,
    #[error("the session is closing")]
    Closing,
    #[error("the session is in the middle of a turn")]
    Busy,
    #[error("permission request {} is unknown or already answered", .0.0)]
    UnknownAsk(AskId),
    #[error("{} asks for permission and takes no other answer: allow or deny it", .0.0)]
    NotAQuestion(AskId),
    #[error("this is not a valid answer to question {}; choose one of {choices}", .ask.0)]
    NotAnAnswer { ask: AskId, choices: String },
    #[error("{}: {}", .0.0, .1)]
    NotTheirs(AskId, Forbidden),
    #[error("a reason can have at most {limit_bytes} bytes; shorten it, or send it as a prompt")]
    ReasonTooLong { limit_bytes: usize },
    #[error("unknown setting {0:?}; the settings are {1}")]
    UnknownSetting(Arc<str>, String),
    #[error("{value:?} is not a valid value for {id}; choose one of {choices}")]
    UnknownChoice { id: Arc<str>, value: Arc<str>, choices: String },
    #[error(
        "approval {value} is looser than {max}, the maximum that the owner of this machine allows (--approval-max)"
    )]
    TooLoose { value: Arc<str>, max: Arc<str> },
    #[error("turn {} is not running", .0.0)]
    StaleTurn(TurnId),
    #[error("a turn cannot report this")]
    NotATurnsBusiness,
}

/// Tokens and cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// The last call's view of the context.
    pub context_used: u64,
    pub context_size: u64,
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    /// The known part of the cost.
    pub cost_usd: f64,
    /// Some of it is not known.
    pub unpriced: bool,
}

impl Totals {
    /// The known part of the cost, if any.
    pub fn known_usd(&self) -> Option<f64> {
        (!self.unpriced || self.cost_usd > 0.0).then_some(self.cost_usd)
    }

    /// Adds one call. How full a sub-agent's context is says nothing about the session's.
    pub fn add_from(&mut self, origin: &Origin, usage: &Usage) {
        let (context_used, context_size) = (self.context_used, self.context_size);
        self.add(usage);
        if let Origin::Task { .. } = origin {
            (self.context_used, self.context_size) = (context_used, context_size);
        }
    }

    /// Adds one call. The numbers come from outside, so the sums saturate.
    pub fn add(&mut self, usage: &Usage) {
        self.context_used = usage.context_used;
        self.context_size = usage.context_size;
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.cache_read = self.cache_read.saturating_add(usage.cache_read);
        self.cache_write = self.cache_write.saturating_add(usage.cache_write);
        self.reasoning = self.reasoning.saturating_add(usage.reasoning);
        self.unpriced |= usage.unpriced;
        // A sum that is no number any more could not be shown to anybody.
        let cost_usd = self.cost_usd + usage.cost_usd;
        if cost_usd.is_finite() {
            self.cost_usd = cost_usd;
        }
    }
}

/// A prompt whose request is answered when its turn ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptRecord {
    pub turn: TurnId,
    pub surface: SurfaceId,
    pub request: Arc<str>,
    pub ended: bool,
    /// The usage of the turn.
    pub usage: Totals,
}

pub struct Session {
    specs: Arc<[SettingSpec]>,
    settings: Settings,
    /// Modes that may change things, besides the usual one.
    free_modes: Vec<Arc<str>>,
    /// An external agent is behind this: what can be chosen is its business too.
    joined: bool,
    /// Other fields of its agent's answer when it opened its session.
    extra: Option<Opaque>,
    title: Option<Arc<str>>,
    cwd: PathBuf,
    folders: Arc<Vec<PathBuf>>,
    totals: Totals,
    /// Nobody can answer: requests are refused instead of asked.
    unattended: bool,
    /// The session is a named client's: the owner of the machine is not shown what it asks.
    of_client: bool,
    running: Option<RunningTurn>,
    queue: VecDeque<QueuedPrompt>,
    closing: bool,
    /// Accepted and not ended, running or queued.
    open_turns: BTreeSet<TurnId>,
    open_calls: BTreeMap<CallId, TurnId>,
    open_asks: BTreeMap<AskId, OpenAsk>,
    /// How often a person refused an action (tool and subject) in this session.
    denials: BTreeMap<asks::ActionKey, u32>,
    /// Remembered answers of others than the owner at the machine: they hold in this session alone.
    grants: SessionGrants,
    /// Settings that became stricter because a part of the log is lost, and were not chosen again since.
    narrowed: NarrowedSettings,
    /// The latest prompts that were sent as requests.
    prompts: Arc<Vec<PromptRecord>>,
    next_turn: u64,
    next_ask: u64,
}

struct RunningTurn {
    turn: TurnId,
    cancelling: bool,
    /// The connection that prompted it.
    prompter: SurfaceId,
    /// The sender of the prompt, if it came over the bridge. They are recorded as the author of what the
    /// prompt changes.
    remote: Option<Sender>,
}

struct QueuedPrompt {
    turn: TurnId,
    by: Sender,
    content: Vec<Content>,
}

#[derive(Clone)]
struct OpenAsk {
    turn: Option<TurnId>,
    request: Arc<AskRequest>,
}

impl Session {
    pub fn new(specs: Arc<[SettingSpec]>, cwd: PathBuf, title: Option<Arc<str>>, unattended: bool) -> Self {
        Self {
            settings: Settings::defaults(&specs),
            specs,
            free_modes: Vec::new(),
            joined: false,
            extra: None,
            title,
            folders: Arc::new(vec![cwd.clone()]),
            cwd,
            totals: Totals::default(),
            unattended,
            of_client: false,
            running: None,
            queue: VecDeque::new(),
            closing: false,
            open_turns: BTreeSet::new(),
            open_calls: BTreeMap::new(),
            open_asks: BTreeMap::new(),
            denials: BTreeMap::new(),
            grants: SessionGrants::default(),
            narrowed: NarrowedSettings::default(),
            prompts: Arc::default(),
            next_turn: 1,
            next_ask: 1,
        }
    }

    pub fn apply(&mut self, _now: Timestamp, input: Input) -> Result<Vec<Effect>, Refusal> {
        let mut effects = Vec::new();
        match input {
            Input::Prompt { by, content } => self.prompt(by, content, &mut effects)?,
            Input::Cancel { by, only } => self.cancel(&by, only, &mut effects),
            Input::Answer { by, ask, answer } => self.answer(&by, ask, answer, &mut effects)?,
            Input::Change { by, id, value } => self.change(by.origin(), None, id, value, &mut effects)?,
            Input::ApprovalChosen { by, hits } => self.allow_unasked(&by, &hits, &mut effects),
            Input::Rename { by, title } => {
                self.record(by.origin(), None, Body::Title { title }, &mut effects)
            }
            Input::Move { by, cwd } => {
                let from = Some(self.cwd.clone());
                self.record(by.origin(), None, Body::Moved { cwd, from }, &mut effects);
            }
            Input::Close { by, reason } => self.close(by.as_ref(), reason, &mut effects),
            Input::Retire if self.busy() => return Err(Refusal::Busy),
            Input::Retire => self.close(None, None, &mut effects),
            Input::FromTurn { turn, within, report } => {
                self.turn_reported(turn, within, report, &mut effects)?
            }
            Input::FromAgent { event } => self.agent_reported(event, &mut effects)?,
            Input::AskExpired { ask } => {
                let open = self.open_asks.get(&ask).cloned().ok_or(Refusal::UnknownAsk(ask))?;
                self.resolve(ask, &open, Resolution::TimedOut.into(), Resolver::Engine, &mut effects);
            }
            Input::PutBack { seen, notice } => {
                effects.push(Effect::GoOnAfter { seen });
                let notice = Body::Notice { level: NoticeLevel::Warning, text: notice };
                self.record(Origin::Engine, self.running(), notice, &mut effects);
            }
        }
        Ok(effects)
    }

    /// Keeps the state in step with an event, new or read back from the log.
    pub fn prompts(&self) -> &Arc<Vec<PromptRecord>> {
        &self.prompts
    }

    /// Other fields of an external agent's answer when it opened its session.
    pub fn extra(&self) -> Option<&Opaque> {
        self.extra.as_ref()
    }

    pub fn observe(&mut self, origin: &Origin, turn: Option<TurnId>, body: &Body) {
        match body.family() {
            Family::Turn(event) => self.observe_turn(origin, turn, event),
            Family::Tool(ToolEvent::Started(start)) => {
                self.open_calls.extend(turn.map(|turn| (start.call.clone(), turn)));
            }
            Family::Tool(ToolEvent::Ended(end)) => drop(self.open_calls.remove(&end.call)),
            Family::Permission(PermissionEvent::Asked { ask, request }) => {
                self.open_asks.insert(ask, OpenAsk::of(turn, request));
                self.next_ask = self.next_ask.max(ask.0.saturating_add(1));
            }
            Family::Permission(PermissionEvent::Resolved { ask, resolution, by, exactly, .. }) => {
                if let Some(open) = self.open_asks.remove(&ask) {
                    self.count_denial(&open, resolution, by);
                    self.grant(&open, resolution, by, exactly);
                }
                self.next_ask = self.next_ask.max(ask.0.saturating_add(1));
            }
            Family::Usage(usage) => {
                self.totals.add_from(origin, usage);
                self.with_prompt(turn, |prompted| prompted.usage.add(usage));
            }
            Family::Setup(event) => self.observe_setup(event),
            Family::Other => {
                if let Body::Notice { level: NoticeLevel::Damage, .. } = body {
                    self.leave_out(turn);
                    self.narrow();
                }
            }
            Family::Tool(ToolEvent::Changed(_)) | Family::Speech(_) | Family::Context(_) => {}
        }
    }

    fn observe_turn(&mut self, origin: &Origin, turn: Option<TurnId>, event: TurnEvent<'_>) {
        let Some(turn) = turn else { return };
        match event {
            TurnEvent::Queued { .. } | TurnEvent::Started => {
                self.remember_prompt(origin, turn);
                self.open_turns.insert(turn);
                self.next_turn = self.next_turn.max(turn.0.saturating_add(1));
            }
            TurnEvent::Ended { .. } => {
                self.open_turns.remove(&turn);
                self.with_prompt(Some(turn), |prompted| prompted.ended = true);
            }
            TurnEvent::UserMessage { .. } | TurnEvent::CancelRequested { .. } => {}
        }
    }

    fn observe_setup(&mut self, event: SetupEvent<'_>) {
        match event {
            SetupEvent::Setting { id, value } => {
                self.narrowed.chosen(id);
                self.settings.set(Arc::clone(id), Arc::clone(value));
            }
            SetupEvent::Offered { settings } => self.offered(settings),
            SetupEvent::Joined { extra, .. } => (self.joined, self.extra) = (true, extra.cloned()),
            SetupEvent::Title { title } => self.title = Some(Arc::clone(title)),
            SetupEvent::Moved { cwd, from } => {
                self.remember_folders(from, cwd);
                cwd.clone_into(&mut self.cwd);
            }
            SetupEvent::Commands { .. } => {}
        }
    }

    /// Ends what a stopped server left open. Called once, after the whole log was observed.
    pub fn recover(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let open_turns = std::mem::take(&mut self.open_turns);
        // A history that was imported may have asks and calls outside any open turn.
        let strays: BTreeSet<_> = self
            .open_calls
            .values()
            .map(|turn| Some(*turn))
            .chain(self.open_asks.values().map(|open| open.turn))
            .filter(|turn| turn.is_none_or(|turn| !open_turns.contains(&turn)))
            .collect();
        for turn in strays.into_iter().chain(open_turns.iter().copied().map(Some)) {
            self.finish_turn(
                turn,
                Resolution::EndedByRestart,
                "the server stopped; it is not known whether this took effect",
                &mut effects,
            );
        }
        for turn in open_turns {
            let error = Some("the server stopped before the turn was finished".into());
            self.record(
                Origin::Engine,
                Some(turn),
                Body::TurnEnded { stop: Stop::Interrupted, error },
                &mut effects,
            );
        }
        effects
    }

    /// Follows the session's row where the log says something else: a copy works in its own folder, and the
    /// session may have been renamed while nobody had it open.
    pub fn align(&mut self, cwd: &Path, title: Option<&Arc<str>>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.cwd != cwd {
            self.record(Origin::Engine, None, Body::Moved { cwd: cwd.to_owned(), from: None }, &mut effects);
        }
        if let Some(title) = title
            && self.title.as_ref() != Some(title)
        {
            self.record(Origin::Engine, None, Body::Title { title: Arc::clone(title) }, &mut effects);
        }
        effects
    }

    /// The session belongs to a named client: nobody at the machine sees its requests.
    pub fn of_client(&mut self) {
        self.of_client = true;
    }

    /// These modes may change things too: the policy holds all others to reading.
    pub fn free_modes(&mut self, modes: Vec<Arc<str>>) {
        self.free_modes = modes;
    }

    /// Leaves a mode that is not offered any more, and reports it: its file is gone, or the session was
    /// brought from another machine. The mode may have limited the agent to reading, so the next one does
    /// too.
    pub fn leave_lost_mode(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let lost: Arc<str> = self.settings.get(MODE).into();
        let spec = self.specs.iter().find(|spec| *spec.id == *MODE);
        let Some(spec) = spec.filter(|spec| !spec.offers(&lost)) else { return effects };
        let next = if spec.offers(READING_MODE) { READING_MODE.into() } else { Arc::clone(&spec.default) };
        let text = format!("the mode {lost:?} no longer exists here; the session continues in {next} mode");
        let changed = Body::SettingChanged { id: MODE.into(), value: next };
        self.record(Origin::Engine, None, changed, &mut effects);
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        self.record(Origin::Engine, None, notice, &mut effects);
        effects
    }

    /// Holds an approval that was chosen under another server to what may be chosen here, and says so.
    pub fn lower_approval(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let chosen: Arc<str> = self.settings.get(APPROVAL).into();
        let spec = self.specs.iter().find(|spec| *spec.id == *APPROVAL);
        let Some(Refusal::TooLoose { value, max }) = spec.and_then(|spec| spec.refuses(&chosen)) else {
            return effects;
        };
        let changed = Body::SettingChanged { id: APPROVAL.into(), value: Arc::clone(&max) };
        self.record(Origin::Engine, None, changed, &mut effects);
        let text = format!(
            "approval was {value}, but this machine allows at most {max} (--approval-max), so it is now {max}"
        );
        let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
        self.record(Origin::Engine, None, notice, &mut effects);
        effects
    }

    /// The external agent's settings replace its earlier ones; the settings that every session has stay. Its
    /// modes are its own business: what it may do is decided action by action.
    fn offered(&mut self, settings: &[SettingSpec]) {
        let ours = self.specs.iter().filter(|spec| *spec.id == *APPROVAL);
        let theirs = settings.iter().filter(|spec| *spec.id != *APPROVAL);
        let specs: Vec<_> = theirs.chain(ours).cloned().collect();
        for spec in &specs {
            if !spec.offers(self.settings.get(&spec.id)) {
                self.settings.set(Arc::clone(&spec.id), Arc::clone(&spec.default));
            }
        }
        let modes = specs.iter().filter(|spec| *spec.id == *MODE).flat_map(|spec| &spec.choices);
        self.free_modes = modes.map(|choice| Arc::clone(&choice.value)).collect();
        self.specs = specs.into();
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn specs(&self) -> &Arc<[SettingSpec]> {
        &self.specs
    }

    pub fn title(&self) -> Option<&Arc<str>> {
        self.title.as_ref()
    }

    pub fn cwd(&self) -> &PathBuf {
        &self.cwd
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn unattended(&self) -> bool {
        self.unattended
    }

    pub fn running(&self) -> Option<TurnId> {
        self.running.as_ref().map(|running| running.turn)
    }

    pub fn busy(&self) -> bool {
        self.running.is_some()
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub fn cancelling(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.cancelling)
    }

    fn change(
        &mut self,
        origin: Origin,
        turn: Option<TurnId>,
        id: Arc<str>,
        value: Arc<str>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let value = of_switch(&id, value);
        let id = full_id(id);
        let Some(spec) = self.specs.iter().find(|spec| spec.id == id) else {
            let known: Vec<_> = self.specs.iter().map(|spec| spec.id.as_ref()).collect();
            return Err(Refusal::UnknownSetting(id, known.join(", ")));
        };
        // Values that are offered here come before synonyms from other programs.
        let value = if spec.offers(&value) { value } else { full_name(&id, value) };
        if let Some(refusal) = spec.refuses(&value) {
            return Err(refusal);
        }
        // An external agent may do something about a choice that is the same for us.
        let theirs = self.joined && *id != *APPROVAL;
        if theirs || self.settings.get(&id) != value.as_ref() {
            let unasked = *id == *APPROVAL && *value == *"full";
            self.record(origin, turn, Body::SettingChanged { id, value }, effects);
            if unasked {
                let text = FULL_APPROVAL.into();
                let banner = Body::Notice { level: NoticeLevel::Warning, text };
                self.record(Origin::Engine, turn, banner, effects);
            }
        }
        Ok(())
    }

    fn remember_prompt(&mut self, origin: &Origin, turn: TurnId) {
        let Origin::Surface { id, request: Some(request), .. } = origin else { return };
        if self.prompts.iter().any(|prompted| prompted.turn == turn) {
            return;
        }
        let prompts = Arc::make_mut(&mut self.prompts);
        if prompts.len() == PROMPTS_MAX {
            prompts.remove(0);
        }
        prompts.push(PromptRecord {
            turn,
            surface: *id,
            request: Arc::clone(request),
            ended: false,
            usage: Totals::default(),
        });
    }

    fn with_prompt(&mut self, turn: Option<TurnId>, change: impl FnOnce(&mut PromptRecord)) {
        let found = self.prompts.iter().position(|prompted| Some(prompted.turn) == turn);
        if let Some(prompted) = found.and_then(|at| Arc::make_mut(&mut self.prompts).get_mut(at)) {
            change(prompted);
        }
    }

    fn record(
        &mut self,
        origin: Origin,
        turn: Option<TurnId>,
        event: impl Into<NewEvent>,
        effects: &mut Vec<Effect>,
    ) {
        let event = event.into();
        self.observe(&origin, turn, &event.body);
        effects.push(Effect::Record { origin, turn, event });
    }
}
