//! Roles that somebody wrote: a Markdown file, its front matter and the instructions after it.
//!
//! The files of other programs are understood: their names for tools are ours, and a word that means
//! nothing here takes nothing away and gives nothing.

use std::path::Path;
use std::sync::Arc;

use engine::ToolClass;

use super::Role;
use crate::agent::Shared;
use crate::knowledge::{Front, Page, Shelf, Value, plain_name};
use crate::summary::{cut, one_line};
use crate::tools::Toolbox;

const CHARS_MAX: usize = 20_000;
const DESCRIPTION_CHARS_MAX: usize = 500;
const ROLES_MAX: usize = 64;
/// Built in and used by name: a file cannot take them over.
const RESERVED: [&str; 1] = ["review"];

/// Adds the roles of a folder to those that are known. `helpers`: a file that does not say so is for a
/// sub-agent only.
pub(crate) fn written(shelf: &Shelf, folder: &Path, helpers: bool, shared: &Shared, roles: &mut Vec<Role>) {
    for page in shelf.pages(folder, "md", CHARS_MAX) {
        let Some(role) = role_of(&page, helpers, shared) else {
            tracing::warn!(file = %page.path.display(), "the agent needs a plain name; it is left out");
            continue;
        };
        let known =
            roles.iter().any(|known| known.name == role.name) || RESERVED.contains(&role.name.as_ref());
        if known || roles.len() >= ROLES_MAX {
            tracing::warn!(file = %page.path.display(), "there is an agent of this name already; this one is left out");
        } else {
            roles.push(role);
        }
    }
}

fn role_of(page: &Page, helpers: bool, shared: &Shared) -> Option<Role> {
    let (front, body) = Front::split(&page.text);
    let name = plain_name(front.text("name").unwrap_or(&page.stem))?;
    let (primary, sub_agent) = match front.text("mode") {
        Some("primary") => (true, false),
        Some("subagent") => (false, true),
        Some("all") => (true, true),
        _ => (!helpers, true),
    };
    let described = front.text("description").or_else(|| body.lines().find(|line| !line.trim().is_empty()));
    let (tools, without) = tools_of(&front);
    Some(Role {
        description: cut(&one_line(described.unwrap_or_default()), DESCRIPTION_CHARS_MAX).into(),
        instructions: body.trim().into(),
        model_named: front.text("model").map(Into::into),
        model: front.text("model").and_then(|wanted| model_of(wanted, &name, shared)),
        only_reading: tools.as_deref().is_some_and(only_read),
        tools,
        without,
        primary,
        sub_agent,
        hidden: front.is_true("hidden"),
        file: Some(page.path.clone()),
        of_project: false,
        name,
    })
}

/// The tools that are named, and those that are taken away.
fn tools_of(front: &Front) -> (Option<Vec<Arc<str>>>, Vec<Arc<str>>) {
    let mut without = Vec::new();
    let mut named = None;
    if let Some(Value::Map(tools)) = front.get("tools") {
        without.extend(tools.iter().filter(|(_, on)| on == "false").flat_map(|(tool, _)| ours(tool)));
    } else if let Some(tools) = front.list("tools").filter(|tools| !tools.iter().any(|tool| tool == "*")) {
        named = Some(tools.iter().flat_map(|tool| ours(tool)).collect());
    }
    for key in ["disallowedtools", "disallowed-tools"] {
        without.extend(front.list(key).unwrap_or_default().iter().flat_map(|tool| ours(tool)));
    }
    // What a file would allow, the guard decides. What it denies is not even offered.
    if let Some(Value::Map(permission)) = front.get("permission") {
        without.extend(permission.iter().filter(|(_, what)| what == "deny").flat_map(|(tool, _)| ours(tool)));
    }
    (named, without)
}

/// Our tools for a name that another program has for them.
pub(crate) fn ours(tool: &str) -> Vec<Arc<str>> {
    // `Bash(git *)` narrows further than we can: then it is not given at all.
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

/// Whether none of these can change anything. What is not known may.
fn only_read(names: &[Arc<str>]) -> bool {
    let tools = Toolbox::built_in();
    let reads = |name: &Arc<str>| {
        let known = tools.find(name).map(|tool| matches!(tool.class, ToolClass::Read | ToolClass::Network));
        known.unwrap_or(matches!(name.as_ref(), "glob" | "fetch" | "skill" | "ask_user"))
    };
    names.iter().all(reads)
}

/// The one model on offer that is meant; another program's name for a model means the session's.
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
            tracing::warn!(role, wanted, "the agent's model is not on offer; it thinks with the session's");
            None
        }
    }
}
