//! A turn: the prompt is either one of our slash commands, or it starts the next round of the conversation
//! with the model.

use std::sync::Arc;

use engine::{Body, MODEL, NoticeLevel, Stop, TurnContext, TurnError, TurnInput};

use crate::agent::AgentSession;
use crate::commands::{self, PromptMeaning, SlashCommand};
use crate::context::{Memory, TurnOpening};
use crate::title::{self, TitleRequest};
use crate::turn_loop::{LoopError, TurnLoop, unless_cancelled};
use crate::{editor_reveal_hints, image_fallback, injection_markers, linked_pages, tools};

pub(crate) async fn run(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
) -> Result<Stop, TurnError> {
    // The session gets a title however the turn ends. Until the prompt is parsed, its first words are the
    // title.
    let mut title = title::of_content(&input.content).filter(|_| !input.titled);
    let ended = begin(session, memory, input, context.clone(), &mut title).await;
    if let (Err(_), Some(title)) = (&ended, title) {
        // If the session is gone, it needs no title.
        context.emit(Body::Title { title: title.into() }).await.ok();
    }
    match ended {
        Ok(stop) => Ok(stop),
        Err(LoopError::Cancelled) => Ok(Stop::Cancelled),
        Err(LoopError::Failed(reason) | LoopError::TooLong(reason)) => Err(TurnError(reason)),
    }
}

async fn begin(
    session: &Arc<AgentSession>,
    memory: &mut Memory,
    input: TurnInput,
    context: TurnContext,
    title: &mut Option<String>,
) -> Result<Stop, LoopError> {
    let opened = unless_cancelled(&context, session.workspace(context.cwd().as_ref().clone())).await?;
    let workspace = opened.map_err(LoopError::Failed)?;
    let learned = unless_cancelled(&context, session.reload_knowledge(workspace.cwd.clone())).await?;
    let knowledge = learned.map_err(LoopError::Failed)?;
    let catch_up = memory.catch_up(&context.history, input.turn, &workspace, &knowledge);
    let caught_up = unless_cancelled(&context, catch_up).await?;
    caught_up.map_err(|error| LoopError::Failed(error.to_string()))?;
    // An unattended prompt may come from anybody, so the limit applies to it all the same.
    let forced = context.attended() && commands::spending_limit::forced(&input.content).is_some();
    session.ledger.begin(&memory.costs.total, memory.limits.current().filter(|_| !forced));

    let meaning =
        unless_cancelled(&context, commands::interpret(&input.content, &workspace, &knowledge)).await?;
    let (mut prompt, role) = match meaning {
        PromptMeaning::Prompt { prompt, role } => (prompt, role),
        PromptMeaning::Command(SlashCommand::Compact) => {
            let mut conversation = memory.past.clone();
            conversation.open(input.turn, TurnOpening::Local);
            let session = Arc::clone(session);
            TurnLoop { session, context, workspace, conversation, role: None }.compact_as_asked().await?;
            return Ok(Stop::EndTurn);
        }
        PromptMeaning::Command(SlashCommand::Undo(command)) => {
            let said = commands::undo::answer(command, &session.undo, &workspace, &context).await?;
            context.text(context.new_message(), said).await?;
            return Ok(Stop::EndTurn);
        }
        PromptMeaning::Command(SlashCommand::Changes(command)) => {
            let said = commands::keep_revert::answer(command, &session.undo, &workspace, &context).await?;
            context.text(context.new_message(), said).await?;
            return Ok(Stop::EndTurn);
        }
        PromptMeaning::Command(slash) => {
            commands::answer(slash, memory, session, &workspace, &context).await?;
            return Ok(Stop::EndTurn);
        }
    };
    injection_markers::note(&session.spec.id, &prompt.text);
    if !prompt.images.is_empty() && is_blind(session, &context) {
        prompt.warnings.push(image_fallback::WARNING.into());
    }
    for warning in &prompt.warnings {
        context.emit(Body::Notice { level: NoticeLevel::Warning, text: warning.as_str().into() }).await?;
    }
    memory.last_prompt = Some((input.turn, prompt.clone()));
    let mut conversation = memory.past.clone();
    conversation.open(input.turn, TurnOpening::Prompt(prompt));
    *title = title::of_prompt(&conversation).filter(|_| !input.titled);
    linked_pages::read(session, &input.content, &context, &mut conversation).await?;

    let mut turn_loop = TurnLoop { session: Arc::clone(session), context, workspace, conversation, role };
    let naming = (!input.titled).then(|| TitleRequest::begin(&turn_loop));
    let stop = turn_loop.run().await?;
    point(&turn_loop).await?;
    if let Some(naming) = naming {
        naming.finish(&mut turn_loop).await?;
    }
    Ok(stop)
}

/// Suggests to the editor to reveal the line that the answer names.
async fn point(turn_loop: &TurnLoop) -> Result<(), LoopError> {
    let (turn, workspace) = (turn_loop.context.turn(), turn_loop.workspace.clone());
    let Some(said) = turn_loop.conversation.last_said() else { return Ok(()) };
    let named =
        tools::blocking(move || editor_reveal_hints::named_in(&said, &workspace)).await.ok().flatten();
    if let Some(location) = named.and_then(|named| turn_loop.session.reveal_hints.admit(turn, named)) {
        turn_loop.context.emit(Body::FileShown { location }).await?;
    }
    Ok(())
}

/// Whether the session's model cannot look at images.
fn is_blind(session: &AgentSession, context: &TurnContext) -> bool {
    session.shared.model(context.settings().get(MODEL)).is_some_and(|(_, info)| !info.images)
}
