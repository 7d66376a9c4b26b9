//! What a person can choose per session: mode, model, approval preset and everything else the backend
//! offers. All settings work the same way: a list of choices and the current value of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::content::Opaque;
use crate::session::Refusal;

/// The warning that is shown wherever the loosest approval is chosen.
pub const FULL_APPROVAL: &str = "approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox";

/// The setting that decides what the tools may do (ask, code, architect).
pub const MODE: &str = "mode";
/// The setting that decides which model thinks.
pub const MODEL: &str = "model";
/// The setting that decides what is asked, allowed and refused (read-only, strict, suggest,
/// auto, full).
pub const APPROVAL: &str = "approval";

/// The setting that decides how long a model thinks.
pub const THINKING: &str = "thinking";
/// The setting that decides how freely a model chooses its words.
pub const TEMPERATURE: &str = "temperature";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingSpec {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub category: Category,
    pub choices: Vec<Choice>,
    pub default: Arc<str>,
    /// The external agent's own form of this setting; only the value changes in it.
    pub words: Option<Opaque>,
}

impl SettingSpec {
    pub(crate) fn weight(&self) -> usize {
        let choice = |choice: &Choice| choice.value.len() + choice.name.len() + choice.description.len() + 64;
        self.name.len() + self.description.len() + self.choices.iter().map(choice).sum::<usize>() + 64
    }

    /// Without the choices after this one, which are looser.
    pub(crate) fn cap(&mut self, max: &Arc<str>) {
        if let Some(at) = self.choices.iter().position(|choice| choice.value == *max) {
            self.choices.truncate(at + 1);
            if !self.offers(&self.default) {
                self.default = Arc::clone(max);
            }
        }
    }

    /// Why this cannot be chosen, if it cannot.
    pub fn refuses(&self, value: &Arc<str>) -> Option<Refusal> {
        if self.offers(value) {
            return None;
        }
        let (id, value) = (Arc::clone(&self.id), Arc::clone(value));
        if *id == *APPROVAL
            && approval_spec().offers(&value)
            && let Some(max) = self.choices.last()
        {
            return Some(Refusal::TooLoose { value, max: Arc::clone(&max.value) });
        }
        let choices: Vec<_> = self.choices.iter().map(|choice| choice.value.as_ref()).collect();
        Some(Refusal::UnknownChoice { id, value, choices: choices.join(", ") })
    }

    pub fn offers(&self, value: &str) -> bool {
        self.choices.iter().any(|choice| *choice.value == *value)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub value: Arc<str>,
    pub name: Arc<str>,
    pub description: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    Mode,
    Model,
    ModelConfig,
    /// How long the model thinks.
    ThoughtLevel,
    Other,
}

/// The current value of every setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(BTreeMap<Arc<str>, Arc<str>>);

impl Settings {
    pub fn defaults(specs: &[SettingSpec]) -> Self {
        Self(specs.iter().map(|spec| (Arc::clone(&spec.id), Arc::clone(&spec.default))).collect())
    }

    pub fn get(&self, id: &str) -> &str {
        self.0.get(id).map_or("", |value| value)
    }

    pub fn set(&mut self, id: Arc<str>, value: Arc<str>) {
        self.0.insert(id, value);
    }
}

/// Zeph's name of the approval.
const AUTO_APPROVE: &str = "auto_approve";

/// The setting that is meant by a name that others have for it.
pub fn full_id(id: Arc<str>) -> Arc<str> {
    if *id == *AUTO_APPROVE { APPROVAL.into() } else { id }
}

/// The value that zeph's switch chooses. The approval itself takes no switch: "approval: true" could mean
/// either.
pub(crate) fn of_switch(id: &str, value: Arc<str>) -> Arc<str> {
    match (id, value.as_ref()) {
        (AUTO_APPROVE, "true") => "full".into(),
        (AUTO_APPROVE, "false") => "suggest".into(),
        _ => value,
    }
}

/// The name of a choice that is also known by others: the presets and agents of other programs.
pub fn full_name(id: &str, value: Arc<str>) -> Arc<str> {
    if id == MODE {
        return match value.as_ref() {
            "build" | "general" => "code".into(),
            "plan" => "architect".into(),
            "explore" | "review" => "ask".into(),
            _ => value,
        };
    }
    if id == THINKING && *value == *"on" {
        return "medium".into();
    }
    if id != APPROVAL {
        return value;
    }
    let folded = value.to_lowercase().replace('_', "-");
    match folded.as_str() {
        "readonly" | "read-only" => "read-only".into(),
        "manual" | "ask" | "default" | "suggest" => "suggest".into(),
        "auto-edit" | "accept-edits" | "acceptedits" | "auto" => "auto".into(),
        "yolo" | "full-auto" | "bypass-permissions" | "bypasspermissions" | "danger-full-access" | "full" => {
            "full".into()
        }
        "strict" => "strict".into(),
        _ => value,
    }
}

/// The approval presets, the same for every backend.
pub fn approval_spec() -> SettingSpec {
    let choice = |value: &str, name: &str, description: &str| Choice {
        value: value.into(),
        name: name.into(),
        description: description.into(),
    };
    SettingSpec {
        id: APPROVAL.into(),
        name: "Approval".into(),
        description: "What the agent may do without asking".into(),
        category: Category::Other,
        choices: vec![
            choice("read-only", "Read only", "Reading is allowed; everything else is refused without asking"),
            choice("strict", "Strict", "Everything needs permission, even reading"),
            choice("suggest", "Suggest", "Reading is allowed; edits and commands need permission"),
            choice(
                "auto",
                "Auto",
                "Reading, edits in the workspace and read-only commands are allowed; the rest needs permission",
            ),
            choice(
                "full",
                "Full access",
                "Everything is allowed, except what rules say to ask, programs that a project configures and commands outside the sandbox",
            ),
        ],
        default: "auto".into(),
        words: None,
    }
}

/// Whether a prompt is a slash command that sets the approval: `/approval PRESET` or `/yolo`. Callers that
/// may not set it may not send these either.
pub fn sets_approval(prompt: &str) -> bool {
    let Some(line) = prompt.trim().strip_prefix('/') else { return false };
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "approval" => !rest.trim().is_empty(),
        "yolo" => true,
        _ => false,
    }
}
