//! `ropewalk agents modes`: the modes and subagents of the built-in agent, including those from files.

use std::fmt::Write;
use std::path::Path;

use agent::{Agent, AgentConfig, AgentInfo};
use serde_json::{Value, json};

use crate::cli::AgentsModesOptions;
use crate::cli_error::CliError;
use crate::output::{self, harmless, one_line};
use crate::{paths, run};

pub fn run(options: &AgentsModesOptions) -> Result<(), CliError> {
    let agents = agents(options.cwd.as_deref())?;
    match &options.name {
        Some(name) => show(&agents, name, options.json),
        None => list(&agents, options.json),
    }
}

fn agents(cwd: Option<&Path>) -> Result<Vec<AgentInfo>, CliError> {
    let mut config = AgentConfig::offline();
    config.knowledge = paths::knowledge(false);
    Ok(Agent::new(config).agents(&run::folder(cwd)?))
}

fn list(agents: &[AgentInfo], json: bool) -> Result<(), CliError> {
    if json {
        return output::put_json(&json!({ "agents": agents.iter().map(as_json).collect::<Vec<_>>() }));
    }
    let mut out = String::new();
    for agent in agents.iter().filter(|agent| !agent.hidden) {
        let from = agent.file.as_deref().map_or_else(|| "built in".into(), |file| file.display().to_string());
        let told = one_line(&format!("{} ({from})", agent.description));
        writeln!(out, "{:<16} {:<9} {told}", one_line(&agent.name), kind(agent)).ok();
    }
    output::put(&out)
}

fn show(agents: &[AgentInfo], name: &str, json: bool) -> Result<(), CliError> {
    let Some(agent) = agents.iter().find(|agent| *agent.name == *name) else {
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_ref()).collect();
        return Err(CliError::not_found(format!("mode or subagent {name:?} not found"))
            .fix(format!("use one of {}", names.join(", "))));
    };
    if json {
        return output::put_json(&as_json(agent));
    }
    let mut out = String::new();
    let mut field = |name: &str, value: &str| writeln!(out, "{name}: {}", one_line(value)).ok();
    field("name", &agent.name);
    field("description", &agent.description);
    field("mode", kind(agent));
    field("model", agent.model.as_deref().unwrap_or("the session's"));
    let tools = agent.tools.as_ref().map(|tools| tools.join(", "));
    let all = if agent.read_only { "read-only tools" } else { "all" };
    field("tools", tools.as_deref().unwrap_or(all));
    if !agent.excluded_tools.is_empty() {
        field("without", &agent.excluded_tools.join(", "));
    }
    let file = agent.file.as_deref().map(|file| file.display().to_string());
    field("file", file.as_deref().unwrap_or("built in"));
    if !agent.instructions.is_empty() {
        writeln!(out, "\n{}", harmless(&agent.instructions)).ok();
    }
    output::put(&out)
}

fn kind(agent: &AgentInfo) -> &'static str {
    match (agent.primary, agent.sub_agent) {
        (true, true) => "all",
        (true, false) => "primary",
        (false, _) => "subagent",
    }
}

fn as_json(agent: &AgentInfo) -> Value {
    let names =
        |names: &[std::sync::Arc<str>]| names.iter().map(|name| Value::from(&**name)).collect::<Vec<_>>();
    json!({
        "name": &*agent.name,
        "description": &*agent.description,
        "mode": kind(agent),
        "model": agent.model.as_deref(),
        "tools": agent.tools.as_deref().map(names),
        "without": names(&agent.excluded_tools),
        "read_only": agent.read_only,
        "hidden": agent.hidden,
        "file": agent.file,
        "instructions": &*agent.instructions,
    })
}
