//! A turn: a prompt is a command of ours, or opens the next round of the conversation with the model.

use std::sync::Arc;

use engine::{Body, MODEL, NoticeLevel, Stop, TurnContext, TurnError, TurnInput};

use crate::agent::AgentSession;
use crate::commands::{self, Slash};
use crate::context::{Memory, Opening};
use crate::prompt::{self, Prompt};
use crate::thinker::{Broken, Thinker, unless_cancelled};
use crate::{links, role, sight, summary, suspicion};

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

    let (mut prompt, role) = match commands::parse(&input.content) {
        None => (unless_cancelled(&context, prompt::render(&input.content, &place)).await?, None),
        Some(Slash::Review(Ok(path))) => {
            (Prompt::text(commands::review_prompt(path.as_deref())), Some(Arc::new(role::reviewer())))
        }
        Some(Slash::Undo(order)) => {
            let said = commands::undo::answer(order, &session.undo, &place, &context).await?;
            context.text(context.new_message(), said).await?;
            return Ok(Stop::EndTurn);
        }
        Some(slash) => {
            commands::answer(slash, &memory.past, &session.shared, place.mode(), &context).await?;
            return Ok(Stop::EndTurn);
        }
    };
    suspicion::note(&session.spec.id, &prompt.text);
    if !prompt.images.is_empty() && is_blind(session, &context) {
        prompt.warnings.push(sight::WARNING.into());
    }
    for warning in &prompt.warnings {
        context.emit(Body::Notice { level: NoticeLevel::Warning, text: warning.as_str().into() }).await?;
    }
    memory.last_prompt = Some((input.turn, prompt.clone()));
    let mut live = memory.past.clone();
    live.open(input.turn, Opening::Prompt(prompt));
    links::read(session, &input.content, &context, &mut live).await?;

    let mut thinker = Thinker { session: Arc::clone(session), context, place, live, role };
    let stop = thinker.think().await?;
    if !input.titled && !thinker.context.cancel.is_cancelled() {
        name_session(&thinker).await?;
    }
    Ok(stop)
}

/// Whether the model that the session has chosen cannot look at images.
fn is_blind(session: &AgentSession, context: &TurnContext) -> bool {
    session.shared.model(context.settings().get(MODEL)).is_some_and(|(_, info)| !info.images)
}

async fn name_session(thinker: &Thinker) -> Result<(), Broken> {
    if let Some(title) = thinker.live.opener().and_then(|text| summary::title(text)) {
        thinker.context.emit(Body::Title { title: title.into() }).await?;
    }
    Ok(())
}
