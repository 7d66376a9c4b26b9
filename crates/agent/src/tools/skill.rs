//! `skill`: gives the model the instructions of a skill.

use std::sync::Arc;

use engine::{BoxFuture, Risk};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments, file_work};

pub(crate) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "description": "the skill, as it is listed"}},
        "required": ["name"],
        "additionalProperties": false
    });
    ToolDefinition::reads(
        "skill",
        "Reads the instructions of a skill. Use it before you do the kind of work that the skill is for.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    name: String,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let wanted: Arguments = arguments(text)?;
    Ok(Intent {
        title: format!("Skill {}", wanted.name),
        path: None,
        line: None,
        subject: Some(wanted.name.clone()),
        risk: Risk::Low,
        reason: "reads instructions",
        work: Box::new(wanted),
    })
}

impl ToolWork for Arguments {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let knowledge = job.session.knowledge();
            let Some(skill) = knowledge.skill(&self.name) else {
                let names: Vec<_> = knowledge.skills.iter().map(|skill| skill.name.as_ref()).collect();
                return Err(format!(
                    "there is no skill {:?}; the skills are {}",
                    self.name,
                    names.join(", ")
                )
                .into());
            };
            let body = skill.body(&job.session.shared.config.reach.hidden);
            let body = body.ok_or("the skill is not there any more")?;
            Ok(ToolOutcome::text(format!(
                "The folder of this skill is {}.\n\n{body}",
                skill.folder.display()
            )))
        })
    }
}
