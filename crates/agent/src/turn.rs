//! A turn: the model speaks, its tool calls are carried out, it is told what came of them, and so on
//! until it calls no more.
//!
//! **Invariant:** the turn stops at the next await after a cancel; what was said before stays said,
//! and every tool call that was started has its end in the log.
//! **Invariant:** each reply of the model is followed by its usage, even if the model gave none:
//! that is how the log tells one reply from the next.

use std::sync::Arc;

use engine::{
    Body, CallId, MODEL, MessageId, NoticeLevel, SessionGone, Stop, ToolClass, TurnContext, TurnError,
    TurnInput, Usage,
};
use tokio::task::JoinSet;

use crate::agent::AgentSession;
use crate::commands::{self, Slash};
use crate::context::{Conversation, Memory, Opening};
use crate::guard::{Guard, Ran, Wanted};
use crate::model::{ModelEvent, ModelRequest, ModelStop, ModelStream};
use crate::place::Place;
use crate::prompt::{self, Prompt};
use crate::{rules, summary, tools};

/// Why a turn cannot go on.
enum Broken {
    Cancelled,
    Failed(String),
}

impl From<SessionGone> for Broken {
    fn from(gone: SessionGone) -> Self {
        Self::Failed(gone.to_string())
    }
}

pub(crate) async fn run(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
) -> Result<Stop, TurnError> {
    match begin(session, memory, input, context).await {
        Ok(stop) => Ok(stop),
        Err(Broken::Cancelled) => Ok(Stop::Cancelled),
        Err(Broken::Failed(reason)) => Err(TurnError(reason)),
    }
}

async fn begin(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
) -> Result<Stop, Broken> {
    let opened = unless_cancelled(&context, session.place(context.cwd().as_ref().clone())).await?;
    let place = opened.map_err(Broken::Failed)?;
    let caught_up = unless_cancelled(&context, memory.catch_up(&context.history, input.turn, &place)).await?;
    caught_up.map_err(|error| Broken::Failed(error.to_string()))?;

    let (prompt, only_reading) = match commands::parse(&input.content) {
        None => (unless_cancelled(&context, prompt::render(&input.content, &place)).await?, false),
        Some(Slash::Review(Ok(path))) => (Prompt::text(commands::review_prompt(path.as_deref())), true),
        Some(slash) => {
            commands::answer(slash, &memory.past, &session.shared, place.mode(), &context).await?;
            return Ok(Stop::EndTurn);
        }
    };
    for warning in &prompt.warnings {
        context.emit(Body::Notice { level: NoticeLevel::Warning, text: warning.as_str().into() }).await?;
    }
    memory.last_prompt = Some((input.turn, prompt.clone()));
    let mut live = memory.past.clone();
    live.open(input.turn, Opening::Prompt(prompt));

    let mut turn = Turn { session: Arc::clone(session), context, place, live, only_reading, messages: 0 };
    let stop = turn.think().await?;
    if !input.titled && !turn.context.cancel.is_cancelled() {
        turn.name_session().await?;
    }
    Ok(stop)
}

async fn unless_cancelled<T>(context: &TurnContext, work: impl Future<Output = T>) -> Result<T, Broken> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(Broken::Cancelled),
        outcome = work => Ok(outcome),
    }
}

struct Turn {
    session: Arc<AgentSession>,
    context: TurnContext,
    place: Place,
    /// What the model remembers, this turn included.
    live: Conversation,
    only_reading: bool,
    /// Messages said so far.
    messages: u64,
}

/// What the model wants done after it has spoken.
struct Reply {
    calls: Vec<Wanted>,
    stop: ModelStop,
}

impl Turn {
    async fn think(&mut self) -> Result<Stop, Broken> {
        for _ in 0..self.session.shared.config.steps_max {
            let reply = self.ask_model().await?;
            match reply.stop {
                ModelStop::MaxTokens => return Ok(Stop::MaxTokens),
                ModelStop::Refusal => return Ok(Stop::Refusal),
                ModelStop::Finished if reply.calls.is_empty() => return Ok(Stop::EndTurn),
                ModelStop::Finished => self.use_tools(reply.calls).await?,
            }
        }
        Ok(Stop::MaxTurnRequests)
    }

    async fn ask_model(&mut self) -> Result<Reply, Broken> {
        let settings = self.context.settings();
        let id = settings.get(MODEL).to_owned();
        let (source, info) = self
            .session
            .shared
            .model(&id)
            .ok_or_else(|| Broken::Failed(format!("there is no model {id:?}")))?;
        let (cwd, shared) = (self.context.cwd(), Arc::clone(&self.session.shared));
        let system = tokio::task::spawn_blocking(move || {
            rules::system_prompt(&cwd, &shared.config.reach.hidden, &settings)
        });
        let system = unless_cancelled(&self.context, system).await?;
        let request = ModelRequest {
            model: Arc::clone(&info.id),
            system: system.map_err(|error| Broken::Failed(error.to_string()))?.into(),
            messages: self.live.messages(),
            tools: tools::specs(self.only_reading),
            output_tokens_max: self.session.shared.config.output_tokens_max,
        };
        let mut stream = source.stream(request);
        let (reply, usage) = self.listen(stream.as_mut()).await?;
        let unknown = Usage { context_size: info.context_tokens, ..Usage::default() };
        self.say(Body::Usage(usage.unwrap_or(unknown))).await?;
        Ok(reply)
    }

    /// Passes on what the model says until it is done.
    async fn listen(&mut self, stream: &mut dyn ModelStream) -> Result<(Reply, Option<Usage>), Broken> {
        let mut calls = Vec::new();
        let mut usage = None;
        let mut speaking = None;
        loop {
            let event = unless_cancelled(&self.context, stream.next()).await?;
            match event.map_err(|error| Broken::Failed(error.to_string()))? {
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
                ModelEvent::Usage(reported) => usage = Some(reported),
                ModelEvent::Done { stop } => return Ok((Reply { calls, stop }, usage)),
            }
        }
    }

    /// The message that the next words belong to: a new one whenever the voice changes.
    fn message(&mut self, speaking: &mut Option<(Voice, MessageId)>, voice: Voice) -> MessageId {
        match speaking {
            Some((same, message)) if *same == voice => *message,
            _ => {
                let message = self.context.message(self.messages);
                self.messages += 1;
                *speaking = Some((voice, message));
                message
            }
        }
    }

    async fn say(&mut self, body: Body) -> Result<(), Broken> {
        self.live.apply(Some(self.context.turn()), &body);
        Ok(self.context.emit(body).await?)
    }

    /// Neighbouring calls that only read run side by side, all others one after the other: a model
    /// that writes and then runs means that order.
    async fn use_tools(&mut self, calls: Vec<Wanted>) -> Result<(), Broken> {
        for group in grouped(calls) {
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
            let guard = Guard::new(&self.session, &self.context, &self.place, self.only_reading);
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

    async fn name_session(&self) -> Result<(), Broken> {
        if let Some(title) = self.live.opener().and_then(|text| summary::title(text)) {
            self.context.emit(Body::Title { title: title.into() }).await?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Voice {
    Aloud,
    Silent,
}

fn grouped(calls: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut groups: Vec<(bool, Vec<Wanted>)> = Vec::new();
    for wanted in calls {
        let reads = tools::find(&wanted.tool).is_some_and(|tool| tool.class == ToolClass::Read);
        match groups.last_mut() {
            Some((true, group)) if reads => group.push(wanted),
            _ => groups.push((reads, vec![wanted])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
