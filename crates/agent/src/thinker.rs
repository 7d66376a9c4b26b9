//! A model at work on one conversation: it speaks, its tool calls are carried out, it is told what
//! came of them, and so on until it calls no more.
//!
//! A turn is one such conversation; a sub-agent is another, within a call of the first.
//!
//! **Invariant:** the work stops at the next await after a cancel; what was said before stays said,
//! and every tool call that was started has its end in the log.
//! **Invariant:** each reply of the model is followed by its usage, even if the model gave none:
//! that is how the log tells one reply from the next.

use std::sync::Arc;

use engine::{
    Body, CallId, MODE, MODEL, MessageId, NoticeLevel, SessionGone, Settings, Stop, TEMPERATURE, THINKING,
    ToolClass, TurnContext, Usage,
};
use tokio::task::JoinSet;

use crate::agent::AgentSession;
use crate::budget::Verdict;
use crate::context::Conversation;
use crate::guard::{Guard, Ran, Wanted};
use crate::model::{
    Message, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream,
    Thinking,
};
use crate::place::Place;
use crate::role::{self, Role};
use crate::tools::Toolbox;
use crate::{knowledge, sight};

/// Why the work cannot go on.
pub(crate) enum Broken {
    Cancelled,
    Failed(String),
    /// The conversation is longer than the model can take.
    TooLong(String),
}

impl From<ModelError> for Broken {
    fn from(error: ModelError) -> Self {
        match error.kind {
            ModelErrorKind::TooLong => Self::TooLong(error.text),
            ModelErrorKind::Passing { .. } | ModelErrorKind::Lasting => Self::Failed(error.text),
        }
    }
}

impl From<SessionGone> for Broken {
    fn from(gone: SessionGone) -> Self {
        Self::Failed(gone.to_string())
    }
}

pub(crate) async fn unless_cancelled<T>(
    context: &TurnContext,
    work: impl Future<Output = T>,
) -> Result<T, Broken> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(Broken::Cancelled),
        outcome = work => Ok(outcome),
    }
}

pub(crate) struct Thinker {
    pub(crate) session: Arc<AgentSession>,
    pub(crate) context: TurnContext,
    pub(crate) place: Place,
    /// What the model remembers, this turn included.
    pub(crate) live: Conversation,
    /// Who it is, whatever the session's mode.
    pub(crate) role: Option<Arc<Role>>,
}

/// The tools that whoever has this context can have, whatever its role takes away.
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

/// What the model wants done after it has spoken.
struct Reply {
    calls: Vec<Wanted>,
    stop: ModelStop,
}

impl Thinker {
    pub(crate) async fn think(&mut self) -> Result<Stop, Broken> {
        for _ in 0..self.session.shared.config.steps_max {
            // A budget that is spent ends the turn like too many steps do.
            let Some(reply) = self.ask_model().await? else { return Ok(Stop::MaxTurnRequests) };
            match reply.stop {
                ModelStop::MaxTokens => return Ok(Stop::MaxTokens),
                ModelStop::Refusal => return Ok(Stop::Refusal),
                ModelStop::Finished if reply.calls.is_empty() => return Ok(Stop::EndTurn),
                ModelStop::Finished => self.use_tools(reply.calls).await?,
            }
        }
        Ok(Stop::MaxTurnRequests)
    }

    /// As it is at this moment: a person may change the mode while a turn runs.
    fn role(&self) -> Arc<Role> {
        let (settings, knowledge) = (self.context.settings(), self.session.knowledge());
        let mode = settings.get(MODE);
        let mode = || knowledge.mode(mode).cloned().unwrap_or_else(|| role::lost(mode));
        match &self.role {
            None => Arc::new(mode()),
            // A sub-agent may be somebody else, but never do more than the session may.
            Some(role) if self.context.works_for().is_some() => Arc::new(role.within(&mode())),
            Some(role) => Arc::clone(role),
        }
    }

    /// Nothing, if it may not be asked any more.
    async fn ask_model(&mut self) -> Result<Option<Reply>, Broken> {
        let (settings, role) = (self.context.settings(), self.role());
        let id = role.thinks_with(settings.get(MODEL));
        let (source, info) = self
            .session
            .shared
            .model(&id)
            .ok_or_else(|| {
                Broken::Failed(format!(
                    "there is no model {id:?} here; choose another, or see `ropewalk models list` for what it needs"
                ))
            })?;
        if self.context.cancel.is_cancelled() {
            return Err(Broken::Cancelled);
        }
        self.session.servers.prepare(&self.context, role.only_reading, self.session.fence()).await?;
        let mut request = self.request(&info, &role, &settings);
        if self.make_room(&source, &info, &request).await? {
            request.messages = self.messages(&info);
        }
        if !self.affords(&info, &request).await? {
            return Ok(None);
        }
        let mut stream = source.stream(request.clone());
        let heard = match self.listen(stream.as_mut()).await {
            // The model knows better than we how much it can take. Once: then it is told.
            Err(Broken::TooLong(_)) if self.compact(&source, &info).await? => {
                request.messages = self.messages(&info);
                stream = source.stream(request);
                self.listen(stream.as_mut()).await
            }
            heard => heard,
        };
        let (reply, usage) = heard?;
        self.say(Body::Usage(counted(usage, &info))).await?;
        Ok(Some(reply))
    }

    /// Whether the budget lets a call be made. If not, the person is told why.
    pub(crate) async fn affords(&mut self, info: &ModelInfo, request: &ModelRequest) -> Result<bool, Broken> {
        let session = Arc::clone(&self.session);
        let judged = session.ledger.judge(&session.shared.config.budget, info, request).await;
        let (text, goes) = match judged {
            Verdict::Go => return Ok(true),
            Verdict::Warn(text) => (text, true),
            Verdict::Stop(text) => (text, false),
        };
        self.say(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
        Ok(goes)
    }

    fn messages(&self, info: &ModelInfo) -> Vec<Message> {
        let messages = self.live.messages();
        if info.images { messages } else { sight::without_images(messages) }
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

    /// Passes on what the model says until it is done.
    async fn listen(&mut self, stream: &mut dyn ModelStream) -> Result<(Reply, Option<Usage>), Broken> {
        let mut calls = Vec::new();
        let mut usage = None;
        let mut speaking = None;
        loop {
            let event = unless_cancelled(&self.context, stream.next()).await?;
            match event.map_err(|error| self.without_answer(error))? {
                ModelEvent::Text(text) => {
                    let message = self.message(&mut speaking, Voice::Aloud);
                    self.say(Body::Text { message, text: text.into() }).await?;
                }
                ModelEvent::Thinking(text) => {
                    let message = self.message(&mut speaking, Voice::Silent);
                    self.say(Body::Thought { message, text: text.into() }).await?;
                }
                ModelEvent::ToolCall { name, arguments, .. } => {
                    calls.push(Wanted { call: CallId::random(), tool: name, arguments });
                }
                ModelEvent::Native(native) => self.live.remember_native(native),
                ModelEvent::Notice(text) => {
                    self.say(Body::Notice { level: NoticeLevel::Info, text: text.into() }).await?;
                }
                ModelEvent::Usage(reported) => usage = Some(reported),
                ModelEvent::Done { stop } => return Ok((Reply { calls, stop }, usage)),
            }
        }
    }

    /// A provider that wants to be left alone for long is told together with who else could be asked.
    fn without_answer(&self, mut error: ModelError) -> Broken {
        if matches!(error.kind, ModelErrorKind::Passing { retry_after: Some(_) }) {
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

    /// The message that the next words belong to: a new one whenever the voice changes.
    fn message(&self, speaking: &mut Option<(Voice, MessageId)>, voice: Voice) -> MessageId {
        match speaking {
            Some((same, message)) if *same == voice => *message,
            _ => {
                let message = self.context.new_message();
                *speaking = Some((voice, message));
                message
            }
        }
    }

    /// Takes part in the conversation, and in the log. What was used is counted here and nowhere else.
    pub(crate) async fn say(&mut self, body: Body) -> Result<(), Broken> {
        if let Body::Usage(usage) = &body {
            self.session.ledger.add(&self.session.shared.config.budget, usage).await;
        }
        self.live.apply(Some(self.context.turn()), &body);
        Ok(self.context.emit(body).await?)
    }

    /// Neighbouring calls that only read run side by side, all others one after the other: a model
    /// that writes and then runs means that order.
    async fn use_tools(&mut self, calls: Vec<Wanted>) -> Result<(), Broken> {
        for group in grouped(calls, &tools(&self.session, &self.context)) {
            if self.context.cancel.is_cancelled() {
                return Err(Broken::Cancelled);
            }
            self.follow_cwd().await?;
            for ran in self.run_side_by_side(group).await? {
                let turn = Some(self.context.turn());
                self.live.apply(turn, &Body::ToolStarted(Box::new(ran.start)));
                self.live.apply(turn, &Body::ToolEnded(Box::new(ran.end)));
            }
        }
        Ok(())
    }

    /// The working folder may move, and what could not be opened may be there by now.
    async fn follow_cwd(&mut self) -> Result<(), Broken> {
        let cwd = self.context.cwd();
        if self.place.cwd != *cwd || self.place.files().is_err() {
            let opened = unless_cancelled(&self.context, self.session.place(cwd.as_ref().clone())).await?;
            self.place = opened.map_err(Broken::Failed)?;
        }
        Ok(())
    }

    async fn run_side_by_side(&self, calls: Vec<Wanted>) -> Result<Vec<Ran>, Broken> {
        let mut running = JoinSet::new();
        for (at, wanted) in calls.into_iter().enumerate() {
            let guard = Guard {
                session: Arc::clone(&self.session),
                context: self.context.clone(),
                place: self.place.clone(),
                tools: tools(&self.session, &self.context),
                role: self.role(),
            };
            running.spawn(async move { (at, guard.perform(wanted).await) });
        }
        let mut done = Vec::new();
        while let Some(joined) = running.join_next().await {
            let (at, ran) = joined.map_err(|_| Broken::Failed("a tool broke; this is a bug".into()))?;
            done.push((at, ran?));
        }
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, ran)| ran).collect())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Voice {
    Aloud,
    Silent,
}

fn grouped(calls: Vec<Wanted>, tools: &Toolbox) -> Vec<Vec<Wanted>> {
    let mut groups: Vec<(bool, Vec<Wanted>)> = Vec::new();
    for wanted in calls {
        let reads = tools.find(&wanted.tool).is_some_and(|tool| tool.class == ToolClass::Read);
        match groups.last_mut() {
            Some((true, group)) if reads => group.push(wanted),
            _ => groups.push((reads, vec![wanted])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// What a call cost, where its provider did not say and its price is known.
pub(crate) fn counted(usage: Option<Usage>, info: &ModelInfo) -> Usage {
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
