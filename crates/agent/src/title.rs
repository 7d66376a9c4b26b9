//! The title of a session: requested from the model while it works on the first prompt.
//!
//! The end of a turn answers its prompt, and the title must be in the log before that. So the title is
//! requested when the turn begins, concurrently with the work, and waited for only a moment when the work is
//! done: a model that is slow to name a session does not delay the answer. Without a title from the model,
//! and where the turn is cancelled or fails, the first words of the prompt are the title.

use std::sync::Arc;
use std::time::Duration;

use engine::{Body, Content, MODEL, Usage, first_words};
use tokio::task::JoinSet;

use crate::compaction::ask_once;
use crate::context::Conversation;
use crate::model::{ModelRequest, Thinking, is_offline};
use crate::summary_without_model::cut;
use crate::turn_loop::{LoopError, TurnLoop, usage_with_cost};

const GRACE: Duration = Duration::from_secs(1);
const PROMPT_CHARS_MAX: usize = 2_000;
const OUTPUT_TOKENS_MAX: u64 = 64;
const INSTRUCTIONS: &str = "You name conversations. Answer with a title for the conversation that begins with the \
    user's message: at most 50 characters, one line, in the user's language, without quotes or a full stop. \
    Do not answer the message itself.";

pub(crate) struct TitleRequest {
    /// Dropping it cancels the request.
    task: JoinSet<Option<(String, Usage)>>,
}

impl TitleRequest {
    /// Starts to request a title, if there is a model for it.
    pub(crate) fn begin(turn_loop: &TurnLoop) -> Self {
        let mut task = JoinSet::new();
        let shared = &turn_loop.session.shared;
        let id = turn_loop.context.settings().get(MODEL).to_owned();
        let found = shared.model(&id).filter(|_| {
            shared.config.titles_by_model && !shared.config.budget.estimate_only && !is_offline(&id)
        });
        if let (Some((source, info)), Some(opener)) = (found, turn_loop.conversation.opener()) {
            let request = ModelRequest {
                model: info.id.clone(),
                system: INSTRUCTIONS.into(),
                messages: vec![crate::model::Message::User {
                    text: cut(opener, PROMPT_CHARS_MAX).into(),
                    images: Vec::new(),
                }],
                tools: Vec::new().into(),
                output_tokens_max: Some(OUTPUT_TOKENS_MAX),
                thinking: Thinking::Off,
                temperature: None,
                conversation: format!("{}-title", turn_loop.session.spec.id).into(),
            };
            let session = Arc::clone(&turn_loop.session);
            task.spawn(async move {
                if !session.ledger.allows(&session.shared.config.budget, &info, &request).await {
                    return None;
                }
                let (text, usage) = ask_once(source.as_ref(), request).await.ok()?;
                Some((text, usage_with_cost(usage, &info)))
            });
        }
        Self { task }
    }

    /// Sets the title: the model's, if it has arrived in time.
    pub(crate) async fn finish(mut self, turn_loop: &mut TurnLoop) -> Result<(), LoopError> {
        let mut title = None;
        // A slow or failing model must not leave the session without a title. After a cancel there is no
        // waiting.
        let grace = if turn_loop.context.cancel.is_cancelled() { Duration::ZERO } else { GRACE };
        if let Ok(Some(Ok(Some((text, usage))))) = tokio::time::timeout(grace, self.task.join_next()).await {
            turn_loop.record(Body::Usage(without_context_size(usage, &turn_loop.conversation))).await?;
            title = without_decoration(&text);
        }
        if let Some(title) = title.or_else(|| of_prompt(&turn_loop.conversation)) {
            turn_loop.context.emit(Body::Title { title: title.into() }).await?;
        }
        Ok(())
    }
}

/// The title without a model: the first words of the prompt.
pub(crate) fn of_prompt(conversation: &Conversation) -> Option<String> {
    conversation.opener().and_then(|text| first_words(text))
}

/// The same for a prompt's content, unless it is a command: most of these start no conversation.
pub(crate) fn of_content(content: &[Content]) -> Option<String> {
    let text =
        content.iter().find_map(|piece| if let Content::Text(text) = piece { Some(text) } else { None })?;
    first_words(text).filter(|words| !words.starts_with('/'))
}

/// Usage of a request outside of the conversation, which must not change the conversation's context size.
fn without_context_size(usage: Usage, conversation: &Conversation) -> Usage {
    Usage { context_used: conversation.measured().unwrap_or(0), ..usage }
}

/// Removes the decoration that models add.
fn without_decoration(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line =
        line.trim_start_matches('#').trim().strip_prefix("Title:").unwrap_or(line.trim_start_matches('#'));
    first_words(line.trim().trim_matches(['"', '\'', '*', '`', '“', '”']).trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::without_decoration;

    #[test]
    fn a_title_is_one_plain_line() {
        for (said, title) in [
            ("Fix the parser", Some("Fix the parser")),
            ("\n# Title: \"Fix the parser.\"\nmore", Some("Fix the parser")),
            ("**Fix it**", Some("Fix it")),
            (" \n", None),
        ] {
            assert_eq!(without_decoration(said).as_deref(), title, "{said:?}");
        }
        assert!(without_decoration(&"word ".repeat(50)).unwrap().chars().count() <= 60);
    }
}
