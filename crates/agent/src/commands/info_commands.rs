//! Read-only commands: `/tools`, `/mcp`, `/config`, `/doctor`, `/audit`, `/share`, `/bridge`. For what they
//! cannot know or change from within a session, they say where to find it.

use std::fmt::Write;

use engine::{
    APPROVAL, Act, MODE, MODEL, ServerState, ServerStatus, SessionId, TEMPERATURE, THINKING, ToolServers,
    TurnContext, may,
};

use crate::agent::{AgentSession, BridgeView};
use crate::role;
use crate::summary_without_model::{cut, one_line};
use crate::tools::blocking;
use crate::turn_loop;
use crate::workspace::Workspace;

const LINE_CHARS_MAX: usize = 120;
const TOOLS_MAX: usize = 100;
const SERVERS_MAX: usize = 30;
/// Audit rows that are shown.
const AUDIT_ROWS_MAX: usize = 30;

/// The tools that the model has now.
pub(super) fn tools(session: &AgentSession, context: &TurnContext) -> String {
    let (settings, knowledge) = (context.settings(), session.knowledge());
    let mode = settings.get(MODE);
    let role = knowledge.mode(mode).cloned().unwrap_or_else(|| role::missing(mode));
    let tools = turn_loop::tools(session, context).of_role(&role);
    let mut text = format!("Tools of the agent in {mode} mode:\n");
    for tool in tools.iter().take(TOOLS_MAX) {
        let about = tool.description.split(['.', '\n']).next().unwrap_or_default();
        writeln!(text, "- `{}`: {}", tool.name, cut(&one_line(about), LINE_CHARS_MAX)).ok();
    }
    let more = tools.iter().count().saturating_sub(TOOLS_MAX);
    if more > 0 {
        writeln!(text, "- and {more} more").ok();
    }
    text
}

/// The tool servers of this session. They can only be changed at the machine.
pub(super) fn mcp(session: &AgentSession) -> String {
    let servers = session.servers.list();
    if servers.is_empty() {
        return "This session has no MCP servers. `ropewalk mcp add` at this machine adds one.".into();
    }
    let mut text = "MCP servers of this session:\n".to_owned();
    for server in servers.iter().take(SERVERS_MAX) {
        writeln!(text, "- {}", server_line(server)).ok();
    }
    let more = servers.len().saturating_sub(SERVERS_MAX);
    if more > 0 {
        writeln!(text, "- and {more} more").ok();
    }
    text.push_str("They are changed at this machine, with `ropewalk mcp add`, `remove` and `trust`.");
    text
}

fn server_line(server: &ServerStatus) -> String {
    let name = cut(&one_line(&server.name), 64);
    let state = match &server.state {
        ServerState::Idle => "starts with the next prompt".into(),
        ServerState::Starting => "starting".into(),
        ServerState::Ready => format!("ready, {} tools", server.tools.len()),
        ServerState::Failed { reason } => format!("failed: {}", cut(&one_line(reason), LINE_CHARS_MAX)),
        ServerState::Refused => {
            "configured by the project and not allowed; to allow it, run `ropewalk mcp trust` on this machine"
                .into()
        }
    };
    format!("`{name}` ({}): {state}", server.transport)
}

/// The effective settings of this session, and where they come from.
pub(super) fn config(session: &AgentSession, workspace: &Workspace, context: &TurnContext) -> String {
    let (settings, config) = (context.settings(), &session.shared.config);
    let mut text = "Chosen in this session:\n".to_owned();
    for id in [MODEL, MODE, THINKING, TEMPERATURE, APPROVAL] {
        writeln!(text, "- {id}: {}", settings.get(id)).ok();
    }
    text.push_str("\nSet when the server started, by config.toml and its flags:\n");
    writeln!(text, "- folder: `{}`", workspace.cwd.display()).ok();
    for folder in workspace.policy().map(|policy| policy.roots.as_slice()).unwrap_or_default().iter().skip(1)
    {
        writeln!(text, "- also works in: `{}`", folder.display()).ok();
    }
    writeln!(text, "- sandbox: {}", workspace.mode()).ok();
    writeln!(text, "- model calls in one turn: at most {}", config.steps_max).ok();
    if let Some(names) = &config.allowed_tools {
        writeln!(text, "- tools: only {}", names.join(", ")).ok();
    }
    text.push_str("\n`/max-cost` shows what may be spent, `/permissions` the rules, `/mcp` the servers.");
    text
}

/// Problems of this session, as far as they can be detected from within.
pub(super) async fn doctor(session: &AgentSession, workspace: &Workspace, context: &TurnContext) -> String {
    let (settings, config) = (context.settings(), &session.shared.config);
    let model = settings.get(MODEL);
    let mut good = Vec::new();
    let mut bad = Vec::new();
    match session.shared.model(model) {
        Some(_) => good.push(format!("model: {model}")),
        None => bad.push(format!("there is no model {model:?} here; choose another with `/model`")),
    }
    match workspace.files() {
        Ok(_) => good.push(format!("folder: `{}`", workspace.cwd.display())),
        Err(error) => bad.push(error.to_string()),
    }
    match session.fence() {
        Ok(Some(_)) => good.push(format!("sandbox: {}, around every command", workspace.mode())),
        Ok(None) => bad.push("commands run without a sandbox, with the rights of the server".into()),
        Err(reason) => bad.push(format!("sandbox: {reason}")),
    }
    match config.undo {
        Some(_) => good.push("undo: file changes can be undone".into()),
        None => bad.push("nothing can be undone: the server has no folder for it".into()),
    }
    if let Some(rules) = config.rules.clone() {
        let cwd = context.cwd().as_ref().clone();
        let sources = blocking(move || rules.sources(&cwd)).await.unwrap_or_default();
        let mut warnings = sources.iter().flat_map(|source| &source.warnings).peekable();
        if warnings.peek().is_none() {
            good.push("rules: readable".into());
        }
        bad.extend(warnings.map(|warning| format!("rules: {}", one_line(warning))));
    }
    let failed =
        |server: &ServerStatus| matches!(server.state, ServerState::Failed { .. } | ServerState::Refused);
    bad.extend(session.servers.list().iter().filter(|server| failed(server)).map(server_line));
    let mut text = String::new();
    for line in &bad {
        writeln!(text, "- **Problem**: {}", cut(line, 4 * LINE_CHARS_MAX)).ok();
    }
    for line in &good {
        writeln!(text, "- OK: {line}").ok();
    }
    text.push_str("\n`ropewalk doctor`, in a terminal of this machine, checks everything else.");
    text
}

/// The audit rows of this session, for the owner only: they name who did what on this machine.
pub(super) async fn audit(session: &AgentSession, context: &TurnContext) -> String {
    if let Err(why) = may(context.standing(), Act::ReadAudit) {
        return format!("Nothing is shown: {why}.");
    }
    let Some(read) = &session.shared.config.audit else { return "There is no audit log here.".into() };
    let Ok(now) = context.mark().await else { return "The session has ended.".into() };
    match read(session.spec.id.clone(), now, AUDIT_ROWS_MAX).await {
        Err(reason) => format!("The audit log could not be read: {reason}."),
        Ok(rows) if rows.is_empty() => "The audit log has no rows about this session yet.".into(),
        Ok(rows) => {
            let rows: Vec<String> = rows.iter().map(|row| row.replace('`', "'")).collect();
            format!(
                "```text\n{}\n```\n`ropewalk audit query --session {}` shows all of them.",
                rows.join("\n"),
                session.spec.id
            )
        }
    }
}

pub(super) fn share(id: &SessionId) -> String {
    format!(
        "At this machine:\n\
         - `ropewalk sessions export {id} --format html -o session.html` writes a page to send to somebody\n\
         - `ropewalk sessions share {id} --to URL` uploads it and prints where it is\n\
         Secrets are redacted in both. Nothing was sent."
    )
}

pub(super) fn bridge(session: &AgentSession) -> String {
    let id = &session.spec.id;
    match session.shared.config.bridge.as_ref().and_then(|read| read(id)) {
        Some(bridge) => bridged(&bridge),
        None => format!(
            "This session is not bridged. `ropewalk bridge --resume {id} --remote-url URL`, at this machine, lets people steer it from elsewhere. This command connects nothing."
        ),
    }
}

fn bridged(bridge: &BridgeView) -> String {
    let code = |text: &str| text.replace('`', "'");
    let mut text = format!("This session is bridged to `{}`: ", code(&bridge.url));
    text.push_str(match bridge.connected {
        true => "connected.",
        false => "not connected; reconnecting.",
    });
    if let Some(ui_url) = &bridge.ui_url {
        write!(text, "\nPeople see it at `{}`.", code(ui_url)).ok();
    }
    if bridge.queued > 0 {
        write!(text, "\nEvents that the receiver has not confirmed yet: {}.", bridge.queued).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridged_session_says_its_state_and_where_people_see_it() {
        let mut bridge = BridgeView {
            connected: true,
            url: "https://hub.example.com".into(),
            ui_url: Some("https://hub.example.com/s/s-1".into()),
            queued: 0,
        };
        assert_eq!(
            bridged(&bridge),
            "This session is bridged to `https://hub.example.com`: connected.\n\
             People see it at `https://hub.example.com/s/s-1`."
        );
        (bridge.connected, bridge.ui_url, bridge.queued) = (false, None, 3);
        assert_eq!(
            bridged(&bridge),
            "This session is bridged to `https://hub.example.com`: not connected; reconnecting.\n\
             Events that the receiver has not confirmed yet: 3."
        );
    }
}
