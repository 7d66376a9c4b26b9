//! Everything shown of a session besides its rows: its card in the list, its state, its permission requests.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::transcript_row::{DiffView, PlanView};

/// A session in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Card"))]
#[serde(rename_all = "camelCase")]
pub struct SessionCard {
    pub session: String,
    pub title: Option<String>,
    pub folder: String,
    /// The door it first came through.
    pub source: String,
    pub created_at: i64,
    pub updated_at: i64,
    pub state: CardState,
    /// The last thing that was said, in one line.
    pub line: Option<String>,
    pub cost_usd: Option<f64>,
    /// What waits for a person, oldest first.
    pub asks: Vec<AskView>,
    /// It is what a hub keeps of another session, from before its machine's state was put back. Nobody goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub branch: Option<BranchOrigin>,
}

/// The session that a branch was kept from, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "KeptOf"))]
#[serde(rename_all = "camelCase")]
pub struct BranchOrigin {
    pub of: String,
    pub at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub enum CardState {
    /// It waits for a person.
    Waiting,
    Working,
    /// Another process on this machine works on it.
    Elsewhere,
    Done,
    /// Its last turn failed or was interrupted.
    Failed,
    /// Nothing was asked of it yet.
    Empty,
}

/// Everything about a session that is not a row. Sent in full whenever it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    pub title: Option<String>,
    pub folder: String,
    pub busy: bool,
    /// The running turn, and when it began.
    pub turn: Option<u64>,
    pub turn_at: Option<i64>,
    /// Prompts behind it.
    pub queue: Vec<QueuedPrompt>,
    pub asks: Vec<AskView>,
    pub plan: Option<PlanView>,
    pub settings: Vec<SettingView>,
    pub commands: Vec<SlashCommand>,
    pub context_used: u64,
    /// Nothing is known of it if it is 0.
    pub context_size: u64,
    pub cost_usd: Option<f64>,
    /// Some of the cost is not known.
    pub unpriced: bool,
    /// The conversation is being summed up.
    pub compacting: bool,
    /// Other clients that look at the session, by name.
    pub others: Vec<String>,
}

/// A prompt that waits for the running turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Waiting"))]
#[serde(rename_all = "camelCase")]
pub struct QueuedPrompt {
    pub turn: u64,
    pub from: String,
    pub text: String,
}

/// A permission request or question, with everything a person needs to decide it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct AskView {
    pub session: String,
    pub ask: u64,
    pub at: i64,
    /// The row of the call that it is about.
    pub row: Option<u64>,
    pub tool: String,
    pub title: String,
    pub kind: String,
    /// `low`, `medium`, `high`, `critical`.
    pub risk: String,
    /// Why it has this risk.
    pub reason: String,
    /// What exactly would be allowed: a command's text, a file's path, an address.
    pub subject: String,
    pub folder: String,
    /// JSON.
    pub input: String,
    /// What would change.
    pub diffs: Vec<DiffView>,
    /// Anything else that it shows.
    pub text: String,
    /// The rule that an answer for good would write; without one it is kept for the same file, command or arguments.
    pub rule: Option<String>,
    /// Bytes of all this that are not shown. Who decides must know.
    pub more: u64,
    /// Set if it is a question, and no permission.
    pub question: Option<QuestionView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Question"))]
#[serde(rename_all = "camelCase")]
pub struct QuestionView {
    pub text: String,
    pub choices: Vec<String>,
    /// Something else than the choices may be answered.
    pub free_text: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[cfg_attr(test, ts(rename = "Setting"))]
#[serde(rename_all = "camelCase")]
pub struct SettingView {
    pub id: String,
    pub name: String,
    pub description: String,
    pub value: String,
    pub choices: Vec<SettingChoice>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct SettingChoice {
    pub value: String,
    pub name: String,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "camelCase")]
pub struct SlashCommand {
    /// Without the slash.
    pub name: String,
    pub description: String,
    /// What can follow it.
    pub hint: Option<String>,
}
