//! Roles: what the agent is told about itself, and which tools it may use.
//!
//! A mode is a role that a person chooses for a session; a sub-agent has a role of its own. Tools that a role
//! may not use are not offered to the model, and are refused if they are called all the same. Roles are built
//! in or defined in Markdown files.
//!
//! **Invariant:** a role from a file has at most the tools that everybody has, and cannot replace a built-in
//! role.

mod role_files;

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Category, Choice, MODE, SettingSpec, ToolClass};

use crate::tools::ToolDefinition;

pub(crate) use role_files::{add_from_folder, our_tool_names};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) name: Arc<str>,
    /// For the person who chooses it, or the model that delegates to it.
    pub(crate) description: Arc<str>,
    /// Added to the system prompt.
    pub(crate) instructions: Arc<str>,
    /// Uses this model instead of the session's. It is an offered one.
    pub(crate) model: Option<Arc<str>>,
    /// The model that its file names, offered or not.
    pub(crate) model_named: Option<Arc<str>>,
    /// Only tools that change nothing.
    pub(crate) read_only: bool,
    /// If there is a list, only tools with these names.
    pub(crate) tools: Option<Vec<Arc<str>>>,
    /// None of these.
    pub(crate) excluded_tools: Vec<Arc<str>>,
    /// A session can be in it.
    pub(crate) primary: bool,
    /// A sub-agent can have it.
    pub(crate) sub_agent: bool,
    /// It works, but is not shown among the choices.
    pub(crate) hidden: bool,
    /// The file that defines it; `None` if it is built in.
    pub(crate) file: Option<PathBuf>,
    /// The file belongs to the project, so it may come from anybody.
    pub(crate) of_project: bool,
}

impl Role {
    pub(crate) fn may_use(&self, tool: &ToolDefinition) -> bool {
        let harmless = match tool.class {
            ToolClass::Read => true,
            ToolClass::Edit | ToolClass::Execute | ToolClass::Network => !self.read_only,
        };
        harmless && self.allows_name(&tool.name)
    }

    pub(crate) fn allows_name(&self, name: &str) -> bool {
        let listed = |names: &[Arc<str>]| names.iter().any(|known| **known == *name);
        self.tools.as_deref().is_none_or(listed) && !listed(&self.excluded_tools)
    }

    /// The error for a call of a tool that the role may not use.
    pub(crate) fn refusal(&self, tool: &ToolDefinition) -> String {
        let name = &self.name;
        if self.read_only {
            format!("{name} can only read, but {} does more", tool.name)
        } else {
            format!("{} is not one of the tools of {name}", tool.name)
        }
    }

    /// The same role, but with no more rights than `other`.
    pub(crate) fn within(&self, other: &Self) -> Self {
        let tools = match (&self.tools, &other.tools) {
            (Some(own), Some(others)) => {
                Some(own.iter().filter(|name| others.contains(name)).cloned().collect())
            }
            (own, others) => own.clone().or_else(|| others.clone()),
        };
        let excluded_tools = self.excluded_tools.iter().chain(&other.excluded_tools).cloned().collect();
        Self { read_only: self.read_only || other.read_only, tools, excluded_tools, ..self.clone() }
    }

    /// The model that is used if the session's model is `chosen`. A project's file may only choose among
    /// models of the same provider: it must not decide who gets the data and who is paid.
    pub(crate) fn model_for(&self, chosen: &str) -> Arc<str> {
        let provider = |id: &str| id.split(':').next().map(str::to_owned);
        let own = self.model.clone().filter(|own| !self.of_project || provider(own) == provider(chosen));
        own.unwrap_or_else(|| chosen.into())
    }

    /// Whether people are shown it as a mode.
    pub(crate) fn is_listed(&self) -> bool {
        self.primary && !self.hidden
    }

    fn built_in(name: &str, description: &str, instructions: &str, read_only: bool) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            instructions: instructions.into(),
            model: None,
            model_named: None,
            read_only,
            tools: None,
            excluded_tools: Vec::new(),
            primary: true,
            sub_agent: false,
            hidden: false,
            file: None,
            of_project: false,
        }
    }

    fn for_sub_agents(self) -> Self {
        Self { primary: false, sub_agent: true, ..self }
    }
}

/// A role as it is listed for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub instructions: Arc<str>,
    /// The model that its file names.
    pub model: Option<Arc<str>>,
    /// It has only these tools.
    pub tools: Option<Vec<Arc<str>>>,
    /// It has none of these.
    pub excluded_tools: Vec<Arc<str>>,
    /// A session can be in it, as its mode.
    pub primary: bool,
    /// The agent can use it as a sub-agent.
    pub sub_agent: bool,
    pub hidden: bool,
    pub read_only: bool,
    /// `None` if it is built in.
    pub file: Option<PathBuf>,
}

impl From<Role> for AgentInfo {
    fn from(role: Role) -> Self {
        Self {
            name: role.name,
            description: role.description,
            instructions: role.instructions,
            model: role.model_named,
            tools: role.tools,
            excluded_tools: role.excluded_tools,
            primary: role.primary,
            sub_agent: role.sub_agent,
            hidden: role.hidden,
            read_only: role.read_only,
            file: role.file,
        }
    }
}

/// The built-in roles. The first is the default mode.
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
        Role::built_in(
            "general",
            "Reads, edits and runs",
            "You work on one task for another agent. Nobody can answer questions: do what you can, and end with a report of what you found or did. Only your last message is handed on.",
            false,
        )
        .for_sub_agents(),
        Role::built_in(
            "explore",
            "Looks around and answers, changes nothing",
            "You find things out for another agent: you may read, but change and run nothing. End with an answer that names files and lines. Only your last message is handed on.",
            true,
        )
        .for_sub_agents(),
    ]
}

/// Whether a mode is built in, so that no file can replace it.
pub(crate) fn is_built_in_mode(name: &str) -> bool {
    ["code", "ask", "architect"].contains(&name)
}

/// For a review: whatever the mode is, nothing is changed.
pub(crate) fn reviewer() -> Role {
    Role::built_in("review", "Reviews", "You review: you may read, but change and run nothing.", true)
}

/// Replaces a mode whose file is gone: read-only until a person chooses another mode.
pub(crate) fn missing(name: &str) -> Role {
    Role::built_in(
        name,
        "Gone",
        "The instructions of this mode are gone. You may read, but change and run nothing; say that another mode must be chosen.",
        true,
    )
}

pub(crate) fn mode_spec(roles: &[Role]) -> SettingSpec {
    let choice = |role: &Role| Choice {
        name: capitalised(&role.name).into(),
        value: Arc::clone(&role.name),
        description: Arc::clone(&role.description),
    };
    SettingSpec {
        id: MODE.into(),
        name: "Mode".into(),
        description: "What the agent works on".into(),
        category: Category::Mode,
        choices: roles.iter().filter(|role| role.is_listed()).map(choice).collect(),
        default: "code".into(),
        words: None,
    }
}

fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

#[cfg(test)]
mod tests;
