//! Rows: what a session's log amounts to.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The position of its first event.
    pub id: u64,
    /// The position of its last change.
    pub rev: u64,
    /// When it began, in milliseconds since 1970.
    pub at: i64,
    pub turn: Option<u64>,
    /// The row of the tool call whose sub-agent did this.
    pub under: Option<u64>,
    #[serde(flatten)]
    pub what: RowContent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "What"))]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RowContent {
    Prompt {
        /// The name of the client it came from.
        from: String,
        text: String,
        /// Bytes of the text that are not shown.
        more: u64,
        /// What else was in it, in words: `screen.png, 12 KB`.
        attached: Vec<String>,
    },
    /// Markdown.
    #[serde(rename = "said")]
    AgentMessage {
        text: String,
        more: u64,
    },
    Thought {
        text: String,
        more: u64,
    },
    Tool(Box<ToolCallView>),
    /// A turn has one, which changes in place.
    Plan(PlanView),
    /// A question of the agent's, and what was answered.
    Question {
        text: String,
        reply: Option<String>,
        /// Who settled it, `nobody` if nobody did.
        by: Option<String>,
    },
    Notice {
        level: NoticeSeverity,
        text: String,
    },
    /// A change of the session itself.
    Note {
        text: String,
    },
    /// The end of a turn, and what it came to.
    #[serde(rename = "ended")]
    TurnEnd(TurnSummary),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Tool"))]
#[serde(rename_all = "camelCase")]
pub struct ToolCallView {
    pub call: String,
    pub tool: String,
    pub title: String,
    /// `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switchMode`, `other`.
    pub kind: String,
    pub state: ToolCallState,
    /// Why it was refused.
    pub reason: Option<String>,
    /// Who decided that it may run, where that was a person or an earlier answer of one.
    pub decided: Option<String>,
    /// JSON, shortened.
    pub input: String,
    /// The end of what it wrote; may have terminal colours in it.
    pub output: String,
    /// Bytes of the output before that.
    pub more: u64,
    pub diffs: Vec<DiffView>,
    /// `path` or `path:line`.
    pub places: Vec<String>,
    pub exit: Option<i32>,
    pub signal: Option<String>,
    pub elapsed_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "ToolState"))]
#[serde(rename_all = "camelCase")]
pub enum ToolCallState {
    Running,
    Done,
    Failed,
    Refused,
}

/// A file's change, in hunks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Diff"))]
#[serde(rename_all = "camelCase")]
pub struct DiffView {
    pub path: String,
    pub status: DiffStatus,
    pub added: u32,
    pub removed: u32,
    pub hunks: Vec<HunkView>,
    /// Lines that are not shown.
    pub more: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub enum DiffStatus {
    New,
    #[serde(rename = "gone")]
    Deleted,
    Changed,
    /// Not text, or too large: nothing is shown of it.
    Opaque,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Hunk"))]
#[serde(rename_all = "camelCase")]
pub struct HunkView {
    /// Names the hunk, where it can be kept or taken back. Another content has another id.
    pub id: Option<String>,
    /// The number of its first line, before and after; counted from 1.
    pub old: u32,
    pub new: u32,
    /// Each with ` `, `-` or `+` before it, without its end.
    pub lines: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Plan"))]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    pub steps: Vec<PlanStepView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "PlanStep"))]
#[serde(rename_all = "camelCase")]
pub struct PlanStepView {
    pub text: String,
    pub state: PlanStepState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "StepState"))]
#[serde(rename_all = "camelCase")]
pub enum PlanStepState {
    Pending,
    Running,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Level"))]
#[serde(rename_all = "camelCase")]
pub enum NoticeSeverity {
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Ended"))]
#[serde(rename_all = "camelCase")]
pub struct TurnSummary {
    /// `endTurn`, `maxTokens`, `maxTurnRequests`, `refusal`, `cancelled`, `failed`, `interrupted`.
    pub stop: String,
    pub error: Option<String>,
    pub elapsed_ms: u64,
    pub tools: u32,
    /// Files that were changed.
    pub files: u32,
    pub cost_usd: Option<f64>,
}

/// Text to append to a row: to a message, a thought, or a tool's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Append"))]
#[serde(rename_all = "camelCase")]
pub struct TextAppend {
    pub row: u64,
    pub rev: u64,
    pub text: String,
}
