//! A turn: a prompt is a command of ours, or opens the next round of the conversation with the model.

use std::sync::Arc;

use engine::{Body, MODEL, NoticeLevel, Stop, TurnContext, TurnError, TurnInput};

use crate::agent::AgentSession;
use crate::commands::{self, Heard, Slash};
use crate::context::{Memory, Opening};
use crate::thinker::{Broken, Thinker, unless_cancelled};
use crate::title::{self, Naming};
use crate::{links, pointing, sight, suspicion, tools};

pub(crate) async fn run(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
) -> Result<Stop, TurnError> {
    // However the turn ends, the session is listed. Until it is known what a prompt means, it is called by its words.
    let mut title = title::of_content(&input.content).filter(|_| !input.titled);
    let ended = begin(session, memory, input, context.clone(), &mut title).await;
    if let (Err(_), Some(title)) = (&ended, title) {
        // A session that is gone needs no name.
        context.emit(Body::Title { title: title.into() }).await.ok();
    }
    match ended {
        Ok(stop) => Ok(stop),
        Err(Broken::Cancelled) => Ok(Stop::Cancelled),
        Err(Broken::Failed(reason) | Broken::TooLong(reason)) => Err(TurnError(reason)),
    }
}

async fn begin(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
    title: &mut Option<String>,
) -> Result<Stop, Broken> {
    let opened = unless_cancelled(&context, session.place(context.cwd().as_ref().clone())).await?;
    let place = opened.map_err(Broken::Failed)?;
    let learned = unless_cancelled(&context, session.learn(place.cwd.clone())).await?;
    let knowledge = learned.map_err(Broken::Failed)?;
    let catch_up = memory.catch_up(&context.history, input.turn, &place, &knowledge);
    let caught_up = unless_cancelled(&context, catch_up).await?;
    caught_up.map_err(|error| Broken::Failed(error.to_string()))?;
    // A prompt that nobody watches may come from anybody: it is held to the limit all the same.
    let forced = context.attended() && commands::max_cost::forced(&input.content).is_some();
    session.ledger.begin(&memory.costs.total, memory.limits.current().filter(|_| !forced));

    let heard = unless_cancelled(&context, commands::heard(&input.content, &place, &knowledge)).await?;
    let (mut prompt, role) = match heard {
        Heard::Prompt { prompt, role } => (prompt, role),
        Heard::Command(Slash::Compact) => {
            let mut live = memory.past.clone();
            live.open(input.turn, Opening::Local);
            let session = Arc::clone(session);
            Thinker { session, context, place, live, role: None }.compact_as_asked().await?;
            return Ok(Stop::EndTurn);
        }
        Heard::Command(Slash::Undo(order)) => {
            let said = commands::undo::answer(order, &session.undo, &place, &context).await?;
            context.text(context.new_message(), said).await?;
            return Ok(Stop::EndTurn);
        }
        Heard::Command(Slash::Changes(order)) => {
            let said = commands::review::answer(order, &session.undo, &place, &context).await?;
            context.text(context.new_message(), said).await?;
            return Ok(Stop::EndTurn);
        }
        Heard::Command(slash) => {
            commands::answer(slash, memory, session, &place, &context).await?;
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
    *title = title::of_prompt(&live).filter(|_| !input.titled);
    links::read(session, &input.content, &context, &mut live).await?;

    let mut thinker = Thinker { session: Arc::clone(session), context, place, live, role };
    let naming = (!input.titled).then(|| Naming::begin(&thinker));
    let stop = thinker.think().await?;
    point(&thinker).await?;
    if let Some(naming) = naming {
        naming.finish(&mut thinker).await?;
    }
    Ok(stop)
}

/// An editor may reveal the line that the answer names.
async fn point(thinker: &Thinker) -> Result<(), Broken> {
    let (turn, place) = (thinker.context.turn(), thinker.place.clone());
    let Some(said) = thinker.live.last_said() else { return Ok(()) };
    let named = tools::blocking(move || pointing::named_in(&said, &place)).await.ok().flatten();
    if let Some(location) = named.and_then(|named| thinker.session.pointing.admit(turn, named)) {
        thinker.context.emit(Body::FileShown { location }).await?;
    }
    Ok(())
}

/// Whether the model that the session has chosen cannot look at images.
fn is_blind(session: &AgentSession, context: &TurnContext) -> bool {
    session.shared.model(context.settings().get(MODEL)).is_some_and(|(_, info)| !info.images)
}
