//! `update_plan`: shows people what the agent is going to do and how far it is.

use std::sync::Arc;

use engine::{Body, BoxFuture, PlanEntry, Priority, Risk, StepStatus, ToolClass, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolJob, ToolOutcome, ToolWork, arguments};

const ENTRIES_MAX: usize = 100;

pub(super) const NAME: &str = "update_plan";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {"entries": {"type": "array", "maxItems": ENTRIES_MAX, "items": {
            "type": "object",
            "properties": {
                "content": {"type": "string"},
                "status": {"enum": ["pending", "in_progress", "completed"]},
                "priority": {"enum": ["high", "medium", "low"]}
            },
            "required": ["content", "status"]
        }}},
        "required": ["entries"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        NAME,
        "Shows the plan to the user. Send all entries each time; at most one is in_progress.",
        ToolKind::Think,
        ToolClass::Read,
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    content: String,
    status: EntryStatus,
    #[serde(default)]
    priority: Weight,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum EntryStatus {
    Pending,
    InProgress,
    Completed,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum Weight {
    High,
    #[default]
    Medium,
    Low,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let plan: Arguments = arguments(text)?;
    if plan.entries.len() > ENTRIES_MAX {
        return Err(format!("a plan has at most {ENTRIES_MAX} entries"));
    }
    let done = plan.entries.iter().filter(|entry| matches!(entry.status, EntryStatus::Completed)).count();
    Ok(Intent {
        title: format!("Plan: {done} of {} done", plan.entries.len()),
        path: None,
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "shows the plan",
        work: Box::new(plan),
    })
}

impl ToolWork for Arguments {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        let entries = self.entries.into_iter().map(Entry::into_plan).collect();
        Box::pin(async move {
            match job.context.emit(Body::Plan { entries }).await {
                Ok(()) => ToolOutcome::text("The plan is shown.".into()),
                Err(gone) => ToolOutcome::failed(gone.to_string()),
            }
        })
    }
}

impl Entry {
    fn into_plan(self) -> PlanEntry {
        PlanEntry {
            content: self.content.into(),
            priority: match self.priority {
                Weight::High => Priority::High,
                Weight::Medium => Priority::Medium,
                Weight::Low => Priority::Low,
            },
            status: match self.status {
                EntryStatus::Pending => StepStatus::Pending,
                EntryStatus::InProgress => StepStatus::InProgress,
                EntryStatus::Completed => StepStatus::Completed,
            },
        }
    }
}
