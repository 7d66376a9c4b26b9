//! The loop of one conversation with a model: the model answers, its tool calls are run, it gets their
//! results, and so on until it calls no more tools.
//!
//! A turn is one such conversation; a sub-agent is another one, inside a tool call of the first.
//!
//! **Invariant:** after a cancel, the loop stops at the next await. What was logged before stays logged, and
//! every tool call that was started has its end in the log.
//! **Invariant:** each reply of the model is followed by its usage, even if the provider gave none. That is
//! how the log separates one reply from the next.

use std::sync::Arc;

use engine::{
    Body, CallId, MODE, MODEL, MessageId, NoticeLevel, SessionGone, Settings, Stop, TEMPERATURE, THINKING,
    ToolClass, TurnContext, Usage,
};
use tokio::task::JoinSet;

use crate::agent::AgentSession;
use crate::budget::SpendDecision;
use crate::context::Conversation;
use crate::model::{
    Message, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream,
    Thinking,
};
use crate::role::{self, Role};
use crate::tool_guard::{FinishedCall, ToolCallRequest, ToolGuard};
use crate::tools::Toolbox;
use crate::workspace::Workspace;
use crate::{image_fallback, knowledge};

/// Why the loop cannot continue.
pub(crate) enum LoopError {
    Cancelled,
    Failed(String),
    /// The conversation is longer than the model's context.
    TooLong(String),
}

impl From<ModelError> for LoopError {
    fn from(error: ModelError) -> Self {
        match error.kind {
            ModelErrorKind::TooLong => Self::TooLong(error.text),
            ModelErrorKind::Transient { .. } | ModelErrorKind::Permanent => Self::Failed(error.text),
        }
    }
}

impl From<SessionGone> for LoopError {
    fn from(gone: SessionGone) -> Self {
        Self::Failed(gone.to_string())
    }
}

pub(crate) async fn unless_cancelled<T>(
    context: &TurnContext,
    work: impl Future<Output = T>,
) -> Result<T, LoopError> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(LoopError::Cancelled),
        outcome = work => Ok(outcome),
    }
}

pub(crate) struct TurnLoop {
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    pub(crate) workspace: Workspace,
    /// The conversation including this turn.
    pub(crate) conversation: Conversation,
    /// A role that overrides the session's mode.
    pub(crate) role: Option<Arc<Role>>,
}

/// All tools that are available in this context, before the role restricts them.
pub(crate) fn tools(session: &AgentSession, context: &TurnContext) -> Toolbox {
    let knowledge = session.knowledge();
    let tools = Toolbox::built_in().with(session.servers.tools());
    let tools = if knowledge.skills.is_empty() { tools } else { tools.with_skills() };
    let tools = match context.works_for() {
        Some(_) => tools.of_sub_agent(),
        None => tools.with_tasks(&knowledge.roles),
    };
    tools.only(session.shared.config.allowed_tools.as_deref())
}

/// A complete reply: the tool calls in it, and why it stopped.
struct ModelReply {
    calls: Vec<ToolCallRequest>,
    stop: ModelStop,
}

impl TurnLoop {
    pub(crate) async fn run(&mut self) -> Result<Stop, LoopError> {
        for _ in 0..self.session.shared.config.steps_max {
            // A spent budget ends the turn like too many steps do.
            let Some(reply) = self.ask_model().await? else { return Ok(Stop::MaxTurnRequests) };
            match reply.stop {
                ModelStop::MaxTokens => return Ok(Stop::MaxTokens),
                ModelStop::Refusal => return Ok(Stop::Refusal),
                ModelStop::Finished if reply.calls.is_empty() => return Ok(Stop::EndTurn),
                ModelStop::Finished => self.run_tools(reply.calls).await?,
            }
        }
        Ok(Stop::MaxTurnRequests)
    }

    /// The current role: a person may change the mode while a turn runs.
    fn role(&self) -> Arc<Role> {
        let (settings, knowledge) = (self.context.settings(), self.session.knowledge());
        let mode = settings.get(MODE);
        let mode = || knowledge.mode(mode).cloned().unwrap_or_else(|| role::missing(mode));
        match &self.role {
            None => Arc::new(mode()),
            // A sub-agent may have another role, but never more rights than the session.
            Some(role) if self.context.works_for().is_some() => Arc::new(role.within(&mode())),
            Some(role) => Arc::clone(role),
        }
    }

    /// `None` if the budget does not allow another call.
    async fn ask_model(&mut self) -> Result<Option<ModelReply>, LoopError> {
        let (settings, role) = (self.context.settings(), self.role());
        let id = role.model_for(settings.get(MODEL));
        let (source, info) = self.session.shared.model(&id).ok_or_else(|| {
            LoopError::Failed(format!(
                "model {id:?} not found; choose another, or run `ropewalk models list` to see what it needs"
            ))
        })?;
        if self.context.cancel.is_cancelled() {
            return Err(LoopError::Cancelled);
        }
        self.session.servers.prepare(&self.context, role.read_only, self.session.fence()).await?;
        let mut request = self.request(&info, &role, &settings);
        if self.make_room(&source, &info, &request).await? {
            request.messages = self.messages(&info);
        }
        if !self.within_budget(&info, &request).await? {
            return Ok(None);
        }
        let mut stream = source.stream(request.clone());
        let heard = match self.read_reply(stream.as_mut()).await {
            // The model knows its context size better than we do. This is tried once; after that the error is
            // reported.
            Err(LoopError::TooLong(_)) if self.compact(&source, &info).await? => {
                request.messages = self.messages(&info);
                stream = source.stream(request);
                self.read_reply(stream.as_mut()).await
            }
            heard => heard,
        };
        let (reply, usage) = heard?;
        self.record(Body::Usage(usage_with_cost(usage, &info))).await?;
        Ok(Some(reply))
    }

    /// Whether the budget allows a call. If not, the person is told why.
    pub(crate) async fn within_budget(
        &mut self,
        info: &ModelInfo,
        request: &ModelRequest,
    ) -> Result<bool, LoopError> {
        let session = Arc::clone(&self.session);
        let judged = session.ledger.decide(&session.shared.config.budget, info, request).await;
        let (text, goes) = match judged {
            SpendDecision::Go => return Ok(true),
            SpendDecision::Warn(text) => (text, true),
            SpendDecision::Stop(text) => (text, false),
        };
        self.record(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
        Ok(goes)
    }

    fn messages(&self, info: &ModelInfo) -> Vec<Message> {
        let messages = self.conversation.messages();
        if info.images { messages } else { image_fallback::without_images(messages) }
    }

    fn request(&self, info: &ModelInfo, role: &Role, settings: &Settings) -> ModelRequest {
        let system = knowledge::system_prompt(&self.context.cwd(), &self.session.knowledge(), role);
        ModelRequest {
            model: Arc::clone(&info.id),
            system: system.into(),
            messages: self.messages(info),
            tools: tools(&self.session, &self.context).of_role(role).specs(),
            output_tokens_max: self.session.shared.config.output_tokens_max,
            thinking: thinking(settings),
            temperature: temperature(settings),
            conversation: match self.context.works_for() {
                Some(call) => Arc::clone(&call.0),
                None => self.session.spec.id.as_str().into(),
            },
        }
    }

    /// Reads the reply to its end and records it.
    async fn read_reply(
        &mut self,
        stream: &mut dyn ModelStream,
    ) -> Result<(ModelReply, Option<Usage>), LoopError> {
        let mut calls = Vec::new();
        let mut usage = None;
        let mut speaking = None;
        loop {
            let event = unless_cancelled(&self.context, stream.next()).await?;
            match event.map_err(|error| self.model_failure(error))? {
                ModelEvent::Text(text) => {
                    let message = self.message(&mut speaking, TextKind::Answer);
                    self.record(Body::Text { message, text: text.into() }).await?;
                }
                ModelEvent::Thinking(text) => {
                    let message = self.message(&mut speaking, TextKind::Thinking);
                    self.record(Body::Thought { message, text: text.into() }).await?;
                }
                ModelEvent::ToolCall { name, arguments, .. } => {
                    calls.push(ToolCallRequest { call: CallId::random(), tool: name, arguments });
                }
                ModelEvent::Native(native) => self.conversation.remember_native(native),
                ModelEvent::Notice(text) => {
                    self.record(Body::Notice { level: NoticeLevel::Info, text: text.into() }).await?;
                }
                ModelEvent::Usage(reported) => usage = Some(reported),
                ModelEvent::Done { stop } => return Ok((ModelReply { calls, stop }, usage)),
            }
        }
    }

    /// The error of a failed call. If the provider demands a long wait, it also names other models to choose.
    fn model_failure(&self, mut error: ModelError) -> LoopError {
        if matches!(error.kind, ModelErrorKind::Transient { retry_after: Some(_) }) {
            let sources = &self.session.shared.config.sources;
            let provider = |id: &str| id.split_once(':').map(|(provider, _)| provider.to_owned());
            let settings = self.context.settings();
            let busy = provider(settings.get(MODEL));
            let others = sources.iter().flat_map(|source| source.offers()).map(|info| info.id);
            let mut others = others.filter(|id| provider(id) != busy && !id.starts_with("offline:"));
            if let Some(other) = others.next() {
                error.text.push_str(&format!("; {other} is configured too"));
            }
        }
        error.into()
    }

    /// The message that the next piece of text belongs to: a new one whenever its kind changes.
    fn message(&self, speaking: &mut Option<(TextKind, MessageId)>, kind: TextKind) -> MessageId {
        match speaking {
            Some((same, message)) if *same == kind => *message,
            _ => {
                let message = self.context.new_message();
                *speaking = Some((kind, message));
                message
            }
        }
    }

    /// Adds an event to the conversation and to the log. Usage is counted here and nowhere else.
    pub(crate) async fn record(&mut self, body: Body) -> Result<(), LoopError> {
        if let Body::Usage(usage) = &body {
            self.session.ledger.add(&self.session.shared.config.budget, usage).await;
        }
        self.conversation.apply(Some(self.context.turn()), &body);
        Ok(self.context.emit(body).await?)
    }

    /// Adjacent calls that only read run concurrently, all others one after the other: if a model writes and
    /// then runs a command, it means that order.
    async fn run_tools(&mut self, calls: Vec<ToolCallRequest>) -> Result<(), LoopError> {
        for group in group_calls(calls, &tools(&self.session, &self.context)) {
            if self.context.cancel.is_cancelled() {
                return Err(LoopError::Cancelled);
            }
            self.reopen_workspace().await?;
            for ran in self.run_concurrently(group).await? {
                let turn = Some(self.context.turn());
                self.conversation.apply(turn, &Body::ToolStarted(Box::new(ran.start)));
                self.conversation.apply(turn, &Body::ToolEnded(Box::new(ran.end)));
            }
        }
        Ok(())
    }

    /// Reopens the workspace: the working folder may have moved, and folders that could not be opened may
    /// exist now.
    async fn reopen_workspace(&mut self) -> Result<(), LoopError> {
        let cwd = self.context.cwd();
        if self.workspace.cwd != *cwd || self.workspace.files().is_err() {
            let opened =
                unless_cancelled(&self.context, self.session.workspace(cwd.as_ref().clone())).await?;
            self.workspace = opened.map_err(LoopError::Failed)?;
        }
        Ok(())
    }

    async fn run_concurrently(&self, calls: Vec<ToolCallRequest>) -> Result<Vec<FinishedCall>, LoopError> {
        let mut running = JoinSet::new();
        for (at, wanted) in calls.into_iter().enumerate() {
            let guard = ToolGuard {
                session: Arc::clone(&self.session),
                context: self.context.clone(),
                workspace: self.workspace.clone(),
                tools: tools(&self.session, &self.context),
                role: self.role(),
            };
            running.spawn(async move { (at, guard.perform(wanted).await) });
        }
        let mut done = Vec::new();
        while let Some(joined) = running.join_next().await {
            let (at, ran) = joined.map_err(|_| LoopError::Failed("a tool crashed; this is a bug".into()))?;
            done.push((at, ran?));
        }
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, ran)| ran).collect())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Answer,
    Thinking,
}

fn group_calls(calls: Vec<ToolCallRequest>, tools: &Toolbox) -> Vec<Vec<ToolCallRequest>> {
    let mut groups: Vec<(bool, Vec<ToolCallRequest>)> = Vec::new();
    for wanted in calls {
        let reads = tools.find(&wanted.tool).is_some_and(|tool| tool.class == ToolClass::Read);
        match groups.last_mut() {
            Some((true, group)) if reads => group.push(wanted),
            _ => groups.push((reads, vec![wanted])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The usage with its cost, computed from the model's price if the provider gave none.
pub(crate) fn usage_with_cost(usage: Option<Usage>, info: &ModelInfo) -> Usage {
    let mut usage = usage.unwrap_or_default();
    usage.context_size = if usage.context_size == 0 { info.context_tokens } else { usage.context_size };
    match &info.price {
        _ if usage.cost_usd > 0.0 => {}
        Some(price) => usage.cost_usd = price.of(&usage),
        None => usage.unpriced = true,
    }
    usage
}

fn thinking(settings: &Settings) -> Thinking {
    match settings.get(THINKING) {
        "low" => Thinking::Low,
        "medium" => Thinking::Medium,
        "high" => Thinking::High,
        _ => Thinking::Off,
    }
}

fn temperature(settings: &Settings) -> Option<f32> {
    match settings.get(TEMPERATURE) {
        "precise" => Some(0.2),
        "balanced" => Some(0.7),
        "creative" => Some(1.0),
        _ => None,
    }
}
