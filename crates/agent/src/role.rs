//! Who the agent is at the moment: what it is told of itself, and which tools it may use.
//!
//! A mode is a role that a person chooses for a session; a sub-agent has a role of its own. What a role
//! may not use is not offered to the model, and refused if it is called all the same.

use std::sync::Arc;

use engine::{Category, Choice, MODE, SettingSpec, Settings, ToolClass};

use crate::tools::Tool;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) name: Arc<str>,
    /// For the person who chooses, or the model that gives it work.
    pub(crate) description: Arc<str>,
    /// Added to what the model is told before anything else.
    pub(crate) instructions: Arc<str>,
    /// Thinks with this model, whatever the session's is.
    pub(crate) model: Option<Arc<str>>,
    /// Nothing that changes the world.
    pub(crate) only_reading: bool,
    /// Only tools of these names, if there is a list.
    pub(crate) tools: Option<Vec<Arc<str>>>,
}

impl Role {
    pub(crate) fn may_use(&self, tool: &Tool) -> bool {
        let harmless = match tool.class {
            ToolClass::Read | ToolClass::Network => true,
            ToolClass::Edit | ToolClass::Execute => !self.only_reading,
        };
        harmless && self.lists(tool)
    }

    /// Whether the tool is one that the role names, if it names any.
    pub(crate) fn lists(&self, tool: &Tool) -> bool {
        self.tools.as_ref().is_none_or(|names| names.contains(&tool.name))
    }

    /// What the model is told when it calls what it may not use.
    pub(crate) fn refusal(&self, tool: &Tool) -> String {
        let name = &self.name;
        if self.only_reading {
            format!("{name} only reads, and {} does more", tool.name)
        } else {
            format!("{} is not one of the tools of {name}", tool.name)
        }
    }

    /// The same role, but with no more rights than another has.
    pub(crate) fn within(&self, other: &Self) -> Self {
        let tools = match (&self.tools, &other.tools) {
            (Some(own), Some(others)) => {
                Some(own.iter().filter(|name| others.contains(name)).cloned().collect())
            }
            (own, others) => own.clone().or_else(|| others.clone()),
        };
        Self { only_reading: self.only_reading || other.only_reading, tools, ..self.clone() }
    }

    fn built_in(name: &str, description: &str, instructions: &str, only_reading: bool) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            instructions: instructions.into(),
            model: None,
            only_reading,
            tools: None,
        }
    }
}

/// The roles that every session offers. The first is the default.
pub(crate) fn built_in() -> Vec<Role> {
    vec![
        Role::built_in("code", "Reads, edits and runs", "", false),
        Role::built_in(
            "ask",
            "Reads and answers, changes nothing",
            "The session is in ask mode: you answer questions. You may read, but change and run nothing.",
            true,
        ),
        Role::built_in(
            "architect",
            "Reads and plans, changes nothing",
            "The session is in architect mode: you make plans. You may read, but change and run nothing. End with a plan that somebody else can carry out.",
            true,
        ),
    ]
}

/// The roles that a sub-agent can have. The first is the default.
pub(crate) fn sub_agents() -> Vec<Role> {
    vec![
        Role::built_in(
            "general",
            "Reads, edits and runs",
            "You work on one task for another agent. Nobody can answer questions: do what you can, and end with a report of what you found or did. Only your last message is handed on.",
            false,
        ),
        Role::built_in(
            "explore",
            "Looks around and answers, changes nothing",
            "You find things out for another agent: you may read, but change and run nothing. End with an answer that names files and lines. Only your last message is handed on.",
            true,
        ),
    ]
}

/// The role that a session's settings name.
pub(crate) fn of(settings: &Settings) -> Role {
    let mut roles = built_in();
    let at = roles.iter().position(|role| role.name.as_ref() == settings.get(MODE)).unwrap_or(0);
    roles.swap_remove(at)
}

/// For a review: whatever the mode is, nothing is changed.
pub(crate) fn reviewer() -> Role {
    Role::built_in("review", "Reviews", "You review: you may read, but change and run nothing.", true)
}

pub(crate) fn mode_spec() -> SettingSpec {
    let choice = |role: Role| Choice {
        name: capitalised(&role.name).into(),
        value: role.name,
        description: role.description,
    };
    SettingSpec {
        id: MODE.into(),
        name: "Mode".into(),
        description: "What the agent works on".into(),
        category: Category::Mode,
        choices: built_in().into_iter().map(choice).collect(),
        default: "code".into(),
    }
}

fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}
