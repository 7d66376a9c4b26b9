//! What a session is called: asked of the model while it works on the first prompt.
//!
//! A turn's end answers its prompt, and a title must be in the log before that. So it is asked for when
//! the turn begins, side by side with the work, and waited for only a moment when the work is done: a
//! model that is slow to name a session does not hold the answer up. Without a title from the model the
//! first words of the prompt are one; so they are where the turn is cancelled or fails.

use std::sync::Arc;
use std::time::Duration;

use engine::{Body, Content, MODEL, Usage, first_words};
use tokio::task::JoinSet;

use crate::compaction::aside;
use crate::context::Conversation;
use crate::model::{ModelRequest, Thinking, is_offline};
use crate::summary::cut;
use crate::thinker::{Broken, Thinker, counted};

const GRACE: Duration = Duration::from_secs(1);
const PROMPT_CHARS_MAX: usize = 2_000;
const OUTPUT_TOKENS_MAX: u64 = 64;
const INSTRUCTIONS: &str = "You name conversations. Answer with a title for the conversation that begins with the \
    user's message: at most 50 characters, one line, in the user's language, without quotes or a full stop. \
    Do not answer the message itself.";

pub(crate) struct Naming {
    /// Dropped, it is given up.
    asked: JoinSet<Option<(String, Usage)>>,
}

impl Naming {
    /// Begins to ask for a title, if there is anybody to ask.
    pub(crate) fn begin(thinker: &Thinker) -> Self {
        let mut asked = JoinSet::new();
        let shared = &thinker.session.shared;
        let id = thinker.context.settings().get(MODEL).to_owned();
        let found = shared.model(&id).filter(|_| {
            shared.config.titles_by_model && !shared.config.budget.estimate_only && !is_offline(&id)
        });
        if let (Some((source, info)), Some(opener)) = (found, thinker.live.opener()) {
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
                conversation: format!("{}-title", thinker.session.spec.id).into(),
            };
            let session = Arc::clone(&thinker.session);
            asked.spawn(async move {
                if !session.ledger.allows(&session.shared.config.budget, &info, &request).await {
                    return None;
                }
                let (text, usage) = aside(source.as_ref(), request).await.ok()?;
                Some((text, counted(usage, &info)))
            });
        }
        Self { asked }
    }

    /// Names the session, by what came of it in time.
    pub(crate) async fn finish(mut self, thinker: &mut Thinker) -> Result<(), Broken> {
        let mut title = None;
        // Neither a model that is slow nor one that breaks is a reason to have no title. Whoever cancels does not wait.
        let grace = if thinker.context.cancel.is_cancelled() { Duration::ZERO } else { GRACE };
        if let Ok(Some(Ok(Some((text, usage))))) = tokio::time::timeout(grace, self.asked.join_next()).await {
            thinker.say(Body::Usage(beside(usage, &thinker.live))).await?;
            title = clean(&text);
        }
        if let Some(title) = title.or_else(|| of_prompt(&thinker.live)) {
            thinker.context.emit(Body::Title { title: title.into() }).await?;
        }
        Ok(())
    }
}

/// What the session is called where no model names it.
pub(crate) fn of_prompt(live: &Conversation) -> Option<String> {
    live.opener().and_then(|text| first_words(text))
}

/// The same of what was sent, unless that is a command: most of those are no conversation.
pub(crate) fn of_content(content: &[Content]) -> Option<String> {
    let text =
        content.iter().find_map(|piece| if let Content::Text(text) = piece { Some(text) } else { None })?;
    first_words(text).filter(|words| !words.starts_with('/'))
}

/// A call beside the conversation says nothing about how full that is.
fn beside(usage: Usage, live: &Conversation) -> Usage {
    Usage { context_used: live.measured().unwrap_or(0), ..usage }
}

/// Models like to decorate.
fn clean(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line =
        line.trim_start_matches('#').trim().strip_prefix("Title:").unwrap_or(line.trim_start_matches('#'));
    first_words(line.trim().trim_matches(['"', '\'', '*', '`', '“', '”']).trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_title_is_one_plain_line() {
        for (said, title) in [
            ("Fix the parser", Some("Fix the parser")),
            ("\n# Title: \"Fix the parser.\"\nmore", Some("Fix the parser")),
            ("**Fix it**", Some("Fix it")),
            (" \n", None),
        ] {
            assert_eq!(clean(said).as_deref(), title, "{said:?}");
        }
        assert!(clean(&"word ".repeat(50)).unwrap().chars().count() <= 60);
    }
}
