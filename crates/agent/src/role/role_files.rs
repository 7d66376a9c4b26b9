//! Roles that are defined in Markdown files: front matter, followed by instructions.
//!
//! Files of other agents are understood: their tool names are mapped to ours. A name that is unknown here
//! neither grants nor removes anything.

use std::path::Path;
use std::sync::Arc;

use engine::ToolClass;

use super::Role;
use crate::agent::Shared;
use crate::knowledge::{FrontMatter, FrontMatterValue, TextFile, TextFolder, plain_name};
use crate::summary_without_model::{cut, one_line};
use crate::tools::Toolbox;

const CHARS_MAX: usize = 20_000;
const DESCRIPTION_CHARS_MAX: usize = 500;
const ROLES_MAX: usize = 64;
/// Names of built-in roles that files cannot define.
const RESERVED: [&str; 1] = ["review"];

/// Adds the roles of a folder to the known ones. `helpers`: files are for sub-agents only, unless they say
/// otherwise.
pub(crate) fn add_from_folder(
    text_folder: &TextFolder,
    folder: &Path,
    helpers: bool,
    shared: &Shared,
    roles: &mut Vec<Role>,
) {
    for text_file in text_folder.text_files(folder, "md", CHARS_MAX) {
        let Some(role) = role_of(&text_file, helpers, shared) else {
            tracing::warn!(file = %text_file.path.display(), "ignoring an agent: it needs a plain name");
            continue;
        };
        let known =
            roles.iter().any(|known| known.name == role.name) || RESERVED.contains(&role.name.as_ref());
        if known || roles.len() >= ROLES_MAX {
            tracing::warn!(file = %text_file.path.display(), "ignoring an agent: there is already one of this name");
        } else {
            roles.push(role);
        }
    }
}

fn role_of(text_file: &TextFile, helpers: bool, shared: &Shared) -> Option<Role> {
    let (front_matter, body) = FrontMatter::split(&text_file.text);
    let name = plain_name(front_matter.text("name").unwrap_or(&text_file.stem))?;
    let (primary, sub_agent) = match front_matter.text("mode") {
        Some("primary") => (true, false),
        Some("subagent") => (false, true),
        Some("all") => (true, true),
        _ => (!helpers, true),
    };
    let described =
        front_matter.text("description").or_else(|| body.lines().find(|line| !line.trim().is_empty()));
    let (tools, excluded_tools) = tools_of(&front_matter);
    Some(Role {
        description: cut(&one_line(described.unwrap_or_default()), DESCRIPTION_CHARS_MAX).into(),
        instructions: body.trim().into(),
        model_named: front_matter.text("model").map(Into::into),
        model: front_matter.text("model").and_then(|wanted| model_of(wanted, &name, shared)),
        read_only: tools.as_deref().is_some_and(only_read),
        tools,
        excluded_tools,
        primary,
        sub_agent,
        hidden: front_matter.is_true("hidden"),
        file: Some(text_file.path.clone()),
        of_project: false,
        name,
    })
}

/// The tools that are allowed, if there is a list, and those that are excluded.
fn tools_of(front_matter: &FrontMatter) -> (Option<Vec<Arc<str>>>, Vec<Arc<str>>) {
    let mut excluded_tools = Vec::new();
    let mut named = None;
    if let Some(FrontMatterValue::Map(tools)) = front_matter.get("tools") {
        excluded_tools
            .extend(tools.iter().filter(|(_, on)| on == "false").flat_map(|(tool, _)| our_tool_names(tool)));
    } else if let Some(tools) =
        front_matter.list("tools").filter(|tools| !tools.iter().any(|tool| tool == "*"))
    {
        named = Some(tools.iter().flat_map(|tool| our_tool_names(tool)).collect());
    }
    for key in ["disallowedtools", "disallowed-tools"] {
        excluded_tools
            .extend(front_matter.list(key).unwrap_or_default().iter().flat_map(|tool| our_tool_names(tool)));
    }
    // Permissions are decided by the guard. What a file denies is not even offered.
    if let Some(FrontMatterValue::Map(permission)) = front_matter.get("permission") {
        excluded_tools.extend(
            permission.iter().filter(|(_, what)| what == "deny").flat_map(|(tool, _)| our_tool_names(tool)),
        );
    }
    (named, excluded_tools)
}

/// Our tools for a tool name of another agent.
pub(crate) fn our_tool_names(tool: &str) -> Vec<Arc<str>> {
    // `Bash(git *)` restricts more than we can express, so the tool is not given at all.
    let lower = tool.to_lowercase();
    let names: &[&str] = match lower.as_str() {
        "bash" | "shell" | "execute" => &["shell", "jobs", "job_input"],
        "edit" | "multiedit" | "patch" | "apply_patch" | "edit_file" | "multi_edit" | "replace_in_file" => {
            &["edit", "write", "apply_patch"]
        }
        "write" | "write_file" => &["write"],
        "grep" | "search" => &["search"],
        "glob" => &["glob", "list"],
        "ls" | "list" | "list_files" => &["list"],
        "webfetch" | "fetch" | "web_fetch" => &["fetch"],
        "todowrite" | "todoread" | "todo" | "update_plan" => &["update_plan"],
        "agent" | "task" => &["task"],
        "askuserquestion" | "question" | "ask_user" => &["ask_user"],
        "read" | "notebookread" | "read_file" => &["read"],
        _ => return vec![if lower.starts_with("mcp__") { tool.into() } else { lower.into() }],
    };
    names.iter().map(|name| Arc::from(*name)).collect()
}

/// Whether all of these are read-only. Unknown ones are not.
fn only_read(names: &[Arc<str>]) -> bool {
    let tools = Toolbox::built_in();
    let reads = |name: &Arc<str>| {
        let known = tools.find(name).map(|tool| matches!(tool.class, ToolClass::Read | ToolClass::Network));
        known.unwrap_or(matches!(name.as_ref(), "glob" | "fetch" | "skill" | "ask_user"))
    };
    names.iter().all(reads)
}

/// The offered model that is meant; a model name of another agent means the session's model.
fn model_of(wanted: &str, role: &str, shared: &Shared) -> Option<Arc<str>> {
    if wanted == "inherit" {
        return None;
    }
    let ids = shared.model_ids();
    let lower = wanted.to_lowercase();
    let mut meant = ids.iter().filter(|id| id.to_lowercase().contains(&lower));
    let exact = ids.iter().find(|id| ***id == *wanted);
    match (exact, meant.next(), meant.next()) {
        (Some(id), _, _) | (None, Some(id), None) => Some(Arc::clone(id)),
        _ => {
            tracing::warn!(role, wanted, "the agent's model is not available; it uses the session's model");
            None
        }
    }
}
