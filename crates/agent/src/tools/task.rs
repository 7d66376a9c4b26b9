//! `task`: a sub-agent does a part of the work, with a conversation of its own.
//!
//! Everything it does is logged under the call that started it; the calling model gets only the sub-agent's
//! last message. Several run concurrently, which is their purpose. Their edits and commands pass the same
//! guard as all others, one by one.
//!
//! **Invariant:** a sub-agent may do nothing that its caller may not, and it starts no other sub-agents.

use std::sync::Arc;

use engine::{BoxFuture, Risk, Stop, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments};
use crate::context::{Conversation, TurnOpening};
use crate::role::Role;
use crate::summary_without_model::cut;
use crate::turn_loop::{LoopError, TurnLoop, unless_cancelled};
use crate::user_prompt::Prompt;

/// Sub-agents of a session that run at the same time; further ones wait.
pub(crate) const AT_ONCE_MAX: usize = 8;
const PROMPT_BYTES_MAX: usize = 256 << 10;
/// How much of a sub-agent's report the model gets. The log has all of it.
const REPORT_CHARS_MAX: usize = 32_000;

pub(super) const NAME: &str = "task";

pub(super) fn tool(roles: &Arc<[Role]>) -> ToolDefinition {
    let known = Arc::clone(roles);
    let names: Vec<&str> = roles.iter().map(|role| role.name.as_ref()).collect();
    let agents: String = roles.iter().map(|role| format!(" {}: {}.", role.name, role.description)).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "the task in three to five words"},
            "prompt": {"type": "string", "description": "everything the sub-agent needs to know; it sees nothing of this conversation"},
            "agent": {"enum": names, "default": names.first()}
        },
        "required": ["description", "prompt"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        NAME,
        &format!(
            "Has a sub-agent work on a task and returns its report. Calls in the same message run side by side. The sub-agents:{agents}"
        ),
        ToolKind::Think,
        ToolClass::Read,
        schema,
        move |text| parse_call(text, &known),
    )
}

#[derive(Deserialize)]
struct Arguments {
    description: String,
    prompt: String,
    agent: Option<String>,
}

struct SubAgentTask {
    prompt: String,
    role: Role,
}

fn parse_call(text: &str, roles: &[Role]) -> Result<Intent, String> {
    let Arguments { description, prompt, agent } = arguments(text)?;
    if prompt.trim().is_empty() {
        return Err("the prompt is empty".into());
    }
    if prompt.len() > PROMPT_BYTES_MAX {
        return Err(format!("the prompt is longer than {} KiB", PROMPT_BYTES_MAX >> 10));
    }
    let names: Vec<String> = roles.iter().map(|role| role.name.to_string()).collect();
    let at = match &agent {
        None => 0,
        Some(name) => names.iter().position(|known| known == name).ok_or_else(|| {
            format!("there is no sub-agent {name:?}; the sub-agents are {}", names.join(", "))
        })?,
    };
    let role = roles.get(at).cloned().ok_or("there is no sub-agent")?;
    let title = if description.trim().is_empty() { &prompt } else { &description };
    Ok(Intent {
        title: title.clone(),
        path: None,
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "starts a sub-agent, which asks for what it needs",
        work: Box::new(SubAgentTask { prompt, role }),
    })
}

impl ToolWork for SubAgentTask {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let room = unless_cancelled(&job.context, job.session.sub_agents.acquire()).await;
            // The semaphore is never closed, so without a permit the call was cancelled.
            let Ok(Ok(_room)) = room else { return ToolOutcome::failed("the turn was cancelled".into()) };
            let context = job.context.within(job.call.clone());
            let mut conversation = Conversation::default();
            conversation.open(context.turn(), TurnOpening::Prompt(Prompt::text(self.prompt)));
            let mut turn_loop = TurnLoop {
                session: Arc::clone(&job.session),
                context,
                workspace: job.workspace.clone(),
                conversation,
                role: Some(Arc::new(self.role.within(&job.role))),
            };
            let ended = turn_loop.run().await;
            outcome(ended, turn_loop.conversation.last_said())
        })
    }
}

fn outcome(ended: Result<Stop, LoopError>, said: Option<Arc<str>>) -> ToolOutcome {
    let failure = match ended {
        Ok(Stop::EndTurn) => None,
        Ok(Stop::MaxTurnRequests) => Some("it took too many steps".to_owned()),
        Ok(Stop::MaxTokens) => Some("its answer was longer than the model can make it".to_owned()),
        Ok(Stop::Refusal) => Some("the model refused to go on".to_owned()),
        Ok(Stop::Cancelled) | Err(LoopError::Cancelled) => Some("the turn was cancelled".to_owned()),
        Ok(Stop::Failed | Stop::Interrupted) => Some("it failed".to_owned()),
        Err(LoopError::Failed(reason) | LoopError::TooLong(reason)) => Some(reason),
    };
    let text = match (&failure, said) {
        (None, Some(said)) => said.to_string(),
        (None, None) => "The sub-agent ended without a report.".to_owned(),
        (Some(failure), Some(said)) => format!("[the sub-agent stopped early: {failure}]\n{said}"),
        (Some(failure), None) => format!("the sub-agent stopped early: {failure}"),
    };
    let model_text = (text.chars().count() > REPORT_CHARS_MAX)
        .then(|| format!("{}\n[the rest of the report is left out]", cut(&text, REPORT_CHARS_MAX)));
    ToolOutcome { failed: failure.is_some(), text: Some(text), model_text, ..ToolOutcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_whole_for_people_and_cut_for_the_model() {
        let long = "ü".repeat(REPORT_CHARS_MAX + 1);
        let outcome = outcome(Ok(Stop::EndTurn), Some(long.as_str().into()));
        assert_eq!(outcome.text.as_deref(), Some(long.as_str()));
        let told = outcome.model_text.unwrap();
        assert!(
            told.chars().count() < REPORT_CHARS_MAX + 50 && told.ends_with("left out]"),
            "{}",
            told.len()
        );
    }

    #[test]
    fn what_a_sub_agent_said_before_it_failed_is_not_lost() {
        let failed = outcome(Err(LoopError::Failed("no credit".into())), Some("half".into()));
        assert!(failed.failed);
        assert_eq!(failed.text.as_deref(), Some("[the sub-agent stopped early: no credit]\nhalf"));
    }

    #[test]
    fn a_task_needs_a_prompt_and_a_sub_agent_that_exists() {
        let mut roles = crate::role::built_in();
        roles.retain(|role| role.sub_agent);
        let refusal = |text: &str| parse_call(text, &roles).err().unwrap_or_default();
        assert_eq!(refusal(r#"{"description":"d","prompt":" "}"#), "the prompt is empty");
        assert_eq!(
            refusal(r#"{"description":"d","prompt":"p","agent":"boss"}"#),
            "there is no sub-agent \"boss\"; the sub-agents are general, explore"
        );
        assert_eq!(
            parse_call(r#"{"description":"","prompt":"p","agent":"explore"}"#, &roles).ok().unwrap().title,
            "p"
        );
    }
}
