//! Folds events into everything about a session that is not a row.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    APPROVAL, AskId, Body, CallId, CommandSpec, ContextEvent, Event, Family, PermissionEvent, PlanEntry,
    SessionId, SettingSpec, Settings, SetupEvent, StepStatus, Timestamp, ToolEvent, Totals, TurnEvent,
    TurnId,
};

use super::ask_view::ask_view;
use super::row_text::{head, name_of, prompt};
use crate::native::{
    AskView, INPUT_BYTES_MAX, PlanStepState, PlanStepView, PlanView, QueuedPrompt, SessionState,
    SettingChoice, SettingView, SlashCommand,
};

/// The session's state before its first event.
#[derive(Debug, Clone)]
pub struct InitialState {
    pub session: SessionId,
    pub title: Option<Arc<str>>,
    pub folder: PathBuf,
    pub specs: Arc<[SettingSpec]>,
    pub commands: Arc<[CommandSpec]>,
}

#[derive(Debug)]
pub struct SessionStateFold {
    session: SessionId,
    title: Option<Arc<str>>,
    folder: PathBuf,
    specs: Arc<[SettingSpec]>,
    settings: Settings,
    commands: Vec<SlashCommand>,
    running: Option<(TurnId, Timestamp)>,
    queue: BTreeMap<TurnId, QueuedPrompt>,
    asks: BTreeMap<AskId, (Option<TurnId>, AskView)>,
    /// The rows of the running turn's calls.
    calls: HashMap<CallId, (u64, Option<TurnId>)>,
    plan: Option<PlanView>,
    totals: Totals,
    compacting: bool,
}

impl SessionStateFold {
    pub fn new(begin: InitialState) -> Self {
        Self {
            session: begin.session,
            title: begin.title,
            folder: begin.folder,
            settings: Settings::defaults(&begin.specs),
            specs: begin.specs,
            commands: begin.commands.iter().map(slash_command).collect(),
            running: None,
            queue: BTreeMap::new(),
            asks: BTreeMap::new(),
            calls: HashMap::new(),
            plan: None,
            totals: Totals::default(),
            compacting: false,
        }
    }

    /// Returns whether [`view`](Self::view) changed.
    pub fn observe(&mut self, event: &Event) -> bool {
        match event.body.family() {
            Family::Turn(turn) => return self.turn(event, turn),
            Family::Tool(ToolEvent::Started(start)) => {
                self.calls.insert(start.call.clone(), (event.seq.0, event.turn));
                return false;
            }
            Family::Permission(PermissionEvent::Asked { ask, request }) => {
                let row = match &request.question {
                    Some(_) => Some(event.seq.0),
                    None => request.call.as_ref().and_then(|call| self.calls.get(call)).map(|(row, _)| *row),
                };
                let view = ask_view(&self.session, (ask, event.at), &self.folder, row, request);
                self.asks.insert(ask, (event.turn, view));
            }
            Family::Permission(PermissionEvent::Resolved { ask, .. }) => {
                return self.asks.remove(&ask).is_some();
            }
            Family::Usage(usage) => self.totals.add_from(&event.origin, usage),
            Family::Setup(setup) => return self.set_up(setup),
            Family::Context(ContextEvent::Cleared) => self.plan = None,
            Family::Context(ContextEvent::Compacting { given_up }) => self.compacting = !given_up,
            Family::Context(ContextEvent::Compacted { .. }) => self.compacting = false,
            Family::Other => {
                let Body::Plan { entries } = &event.body else { return false };
                self.plan = Some(plan_of(entries));
            }
            Family::Speech(_) | Family::Tool(ToolEvent::Changed(_) | ToolEvent::Ended(_)) => return false,
        }
        true
    }

    fn turn(&mut self, event: &Event, turn: TurnEvent<'_>) -> bool {
        match turn {
            TurnEvent::Queued { content } => {
                let (from, text) = (name_of(&event.origin), prompt(content).0);
                let text = head(&text, INPUT_BYTES_MAX).0.to_owned();
                self.queue.extend(event.turn.map(|turn| (turn, QueuedPrompt { turn: turn.0, from, text })));
            }
            TurnEvent::Started => {
                self.running = event.turn.map(|turn| (turn, event.at));
                self.queue.retain(|turn, _| Some(*turn) != event.turn);
                self.plan = None;
            }
            TurnEvent::Ended { .. } => self.end_turn(event.turn),
            TurnEvent::UserMessage { .. } | TurnEvent::CancelRequested { .. } => return false,
        }
        true
    }

    fn set_up(&mut self, setup: SetupEvent<'_>) -> bool {
        match setup {
            SetupEvent::Setting { id, value } => self.settings.set(Arc::clone(id), Arc::clone(value)),
            SetupEvent::Offered { settings } => self.replace_offered(settings),
            SetupEvent::Commands { commands } => {
                self.commands = commands.iter().map(slash_command).collect();
            }
            SetupEvent::Title { title } => self.title = Some(Arc::clone(title)),
            SetupEvent::Moved { cwd, .. } => cwd.clone_into(&mut self.folder),
            SetupEvent::Joined { .. } => return false,
        }
        true
    }

    /// The settings that an external agent offers replace those it offered before.
    fn replace_offered(&mut self, settings: &[SettingSpec]) {
        let ours = self.specs.iter().filter(|spec| *spec.id == *APPROVAL).cloned();
        self.specs = settings.iter().cloned().chain(ours).collect();
    }

    fn end_turn(&mut self, turn: Option<TurnId>) {
        self.queue.retain(|waiting, _| Some(*waiting) != turn);
        self.calls.retain(|_, (_, of)| *of != turn);
        self.asks.retain(|_, (of, _)| *of != turn);
        if self.running.map(|(running, _)| running) == turn {
            self.running = None;
            self.compacting = false;
        }
    }

    /// The state as clients see it; the log does not know who else is watching.
    pub fn view(&self) -> SessionState {
        SessionState {
            title: self.title.as_ref().map(ToString::to_string),
            folder: self.folder.display().to_string(),
            busy: self.running.is_some(),
            turn: self.running.map(|(turn, _)| turn.0),
            turn_at: self.running.map(|(_, at)| at.0),
            queue: self.queue.values().cloned().collect(),
            asks: self.asks.values().map(|(_, view)| view.clone()).collect(),
            plan: self.plan.clone(),
            settings: settings(&self.specs, &self.settings),
            commands: self.commands.clone(),
            context_used: self.totals.context_used,
            context_size: self.totals.context_size,
            cost_usd: self.totals.known_usd().filter(|cost| *cost > 0.0),
            unpriced: self.totals.unpriced,
            compacting: self.compacting,
            others: Vec::new(),
        }
    }
}

/// The settings with their choices and current values.
pub fn settings(specs: &[SettingSpec], chosen: &Settings) -> Vec<SettingView> {
    let setting = |spec: &SettingSpec| SettingView {
        id: spec.id.to_string(),
        name: spec.name.to_string(),
        description: spec.description.to_string(),
        value: chosen.get(&spec.id).to_owned(),
        choices: spec
            .choices
            .iter()
            .map(|choice| SettingChoice {
                value: choice.value.to_string(),
                name: choice.name.to_string(),
                description: choice.description.to_string(),
            })
            .collect(),
    };
    specs.iter().map(setting).collect()
}

pub fn slash_command(spec: &CommandSpec) -> SlashCommand {
    SlashCommand {
        name: spec.name.to_string(),
        description: spec.description.to_string(),
        hint: spec.hint.as_ref().map(ToString::to_string),
    }
}

pub(super) fn plan_of(entries: &[PlanEntry]) -> PlanView {
    let step = |entry: &PlanEntry| PlanStepView {
        text: entry.content.to_string(),
        state: match entry.status {
            StepStatus::Pending => PlanStepState::Pending,
            StepStatus::InProgress => PlanStepState::Running,
            StepStatus::Completed => PlanStepState::Done,
        },
    };
    PlanView { steps: entries.iter().map(step).collect() }
}
