//! Who the agent is at the moment: what it is told of itself, and which tools it may use.
//!
//! A mode is a role that a person chooses for a session; a sub-agent has a role of its own. What a role
//! may not use is not offered to the model, and refused if it is called all the same. Roles are built in
//! or written down in Markdown files.
//!
//! **Invariant:** a written role has at most the tools that everybody has, and none replaces a built-in
//! one.

mod written;

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Category, Choice, MODE, SettingSpec, ToolClass};

use crate::tools::Tool;

pub(crate) use written::{ours as our_tools, written};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) name: Arc<str>,
    /// For the person who chooses, or the model that gives it work.
    pub(crate) description: Arc<str>,
    /// Added to what the model is told before anything else.
    pub(crate) instructions: Arc<str>,
    /// Thinks with this model, whatever the session's is. One that is offered.
    pub(crate) model: Option<Arc<str>>,
    /// The model that its file names, on offer or not.
    pub(crate) model_named: Option<Arc<str>>,
    /// Nothing that changes the world.
    pub(crate) only_reading: bool,
    /// Only tools of these names, if there is a list.
    pub(crate) tools: Option<Vec<Arc<str>>>,
    /// None of these.
    pub(crate) without: Vec<Arc<str>>,
    /// A session can be in it.
    pub(crate) primary: bool,
    /// A sub-agent can have it.
    pub(crate) sub_agent: bool,
    /// It works, but is not shown among the choices.
    pub(crate) hidden: bool,
    /// The file it was written in; built in without.
    pub(crate) file: Option<PathBuf>,
    /// That file belongs to the project, and so to whomever it comes from.
    pub(crate) of_project: bool,
}

impl Role {
    pub(crate) fn may_use(&self, tool: &Tool) -> bool {
        let harmless = match tool.class {
            ToolClass::Read => true,
            ToolClass::Edit | ToolClass::Execute | ToolClass::Network => !self.only_reading,
        };
        harmless && self.allows_name(&tool.name)
    }

    pub(crate) fn allows_name(&self, name: &str) -> bool {
        let listed = |names: &[Arc<str>]| names.iter().any(|known| **known == *name);
        self.tools.as_deref().is_none_or(listed) && !listed(&self.without)
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
        let without = self.without.iter().chain(&other.without).cloned().collect();
        Self { only_reading: self.only_reading || other.only_reading, tools, without, ..self.clone() }
    }

    /// Who thinks, where the session's model is `chosen`. A project's file may choose among the models of
    /// the same provider: it does not decide who is told what, and who is paid.
    pub(crate) fn thinks_with(&self, chosen: &str) -> Arc<str> {
        let provider = |id: &str| id.split(':').next().map(str::to_owned);
        let own = self.model.clone().filter(|own| !self.of_project || provider(own) == provider(chosen));
        own.unwrap_or_else(|| chosen.into())
    }

    /// Whether people are shown it as a mode.
    pub(crate) fn is_choice(&self) -> bool {
        self.primary && !self.hidden
    }

    fn built_in(name: &str, description: &str, instructions: &str, only_reading: bool) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            instructions: instructions.into(),
            model: None,
            model_named: None,
            only_reading,
            tools: None,
            without: Vec::new(),
            primary: true,
            sub_agent: false,
            hidden: false,
            file: None,
            of_project: false,
        }
    }

    fn helper(self) -> Self {
        Self { primary: false, sub_agent: true, ..self }
    }
}

/// A role as it is shown to people who ask which agents there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    pub name: Arc<str>,
    pub description: Arc<str>,
    pub instructions: Arc<str>,
    /// The model that it asks for.
    pub model: Option<Arc<str>>,
    /// It has only these tools.
    pub tools: Option<Vec<Arc<str>>>,
    /// It has none of these.
    pub without: Vec<Arc<str>>,
    /// A session can be in it, as its mode.
    pub primary: bool,
    /// The agent can send it off with a piece of work.
    pub sub_agent: bool,
    pub hidden: bool,
    pub only_reading: bool,
    /// Built in without.
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
            without: role.without,
            primary: role.primary,
            sub_agent: role.sub_agent,
            hidden: role.hidden,
            only_reading: role.only_reading,
            file: role.file,
        }
    }
}

/// The roles that are always there. The first is the usual mode.
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
        .helper(),
        Role::built_in(
            "explore",
            "Looks around and answers, changes nothing",
            "You find things out for another agent: you may read, but change and run nothing. End with an answer that names files and lines. Only your last message is handed on.",
            true,
        )
        .helper(),
    ]
}

/// Whether a mode is one of ours, which no file can replace.
pub(crate) fn is_built_in_mode(name: &str) -> bool {
    ["code", "ask", "architect"].contains(&name)
}

/// For a review: whatever the mode is, nothing is changed.
pub(crate) fn reviewer() -> Role {
    Role::built_in("review", "Reviews", "You review: you may read, but change and run nothing.", true)
}

/// In place of a mode whose file is gone: until a person chooses another, nothing is changed.
pub(crate) fn lost(name: &str) -> Role {
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
        choices: roles.iter().filter(|role| role.is_choice()).map(choice).collect(),
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
