//! `ropewalk mcp`: lists, changes and checks the MCP servers of the settings.

mod serve;

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use agent::{McpConfig, consent_digest};
use engine::{ServerState, ServerStatus, ServerTransport, ToolServer};
use guard::Rulebook;
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use crate::cli::{McpAddOptions, McpCheckOptions, McpCommand, McpListOptions, McpRemoveOptions};
use crate::cli_error::CliError;
use crate::config::{self, Config, ServerEntry};
use crate::output::{self, one_line};
use crate::{guard_settings, mcp_trust, paths, run, secrets_to_redact};

const NAME_CHARS_MAX: usize = 64;

/// The MCP configuration of the agent. An invalid server causes a warning and is left out.
pub fn settings(config: &Config) -> McpConfig {
    let usual = McpConfig::default();
    let seconds =
        |named: Option<u64>, usual: Duration| named.map_or(usual, |s| Duration::from_secs(s.max(1)));
    McpConfig {
        servers: servers(config),
        project: Some(config::project_servers),
        start_timeout: seconds(config.mcp.start_timeout, usual.start_timeout),
        call_timeout: seconds(config.mcp.call_timeout, usual.call_timeout),
        ..usual
    }
}

fn servers(config: &Config) -> Vec<ToolServer> {
    let usable = |entry: &ServerEntry| match entry.expanded(&config::variable) {
        Ok(server) => {
            hide(&server);
            Some(server)
        }
        Err(reason) => {
            guard_settings::warn(&format!("skipping the MCP server {}: {reason}", entry.server.name));
            None
        }
    };
    config.mcp.servers.iter().filter(|entry| entry.enabled).filter_map(usable).collect()
}

/// Redacts the credentials that a server is given.
fn hide(server: &ToolServer) {
    let secret = |name: &str| {
        let name = name.to_uppercase();
        ["KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL", "AUTH", "COOKIE"]
            .iter()
            .any(|word| name.contains(word))
    };
    let given = match &server.transport {
        ServerTransport::Child { environment, .. } => environment,
        ServerTransport::Http { headers, .. } => headers,
    };
    for (_, value) in given.iter().filter(|(name, value)| value.len() >= 8 && secret(name)) {
        secrets_to_redact::add(value);
    }
}

pub fn run(command: &McpCommand) -> ExitCode {
    let (outcome, as_json) = match command {
        McpCommand::List(options) => (list(options).map(|()| ExitCode::SUCCESS), options.json),
        McpCommand::Add(options) => (add(options).map(|()| ExitCode::SUCCESS), options.json),
        McpCommand::Remove(options) => (remove(options).map(|()| ExitCode::SUCCESS), options.json),
        McpCommand::Check(options) => (check(options), options.json),
        McpCommand::Trust(options) => (mcp_trust::trust(options).map(|()| ExitCode::SUCCESS), options.json),
        McpCommand::Untrust(options) => {
            (mcp_trust::untrust(options).map(|()| ExitCode::SUCCESS), options.json)
        }
        McpCommand::Serve(options) => (serve::run(options), false),
    };
    outcome.unwrap_or_else(|error| error.report(as_json))
}

fn list(options: &McpListOptions) -> Result<(), CliError> {
    let folder = run::folder(options.cwd.as_deref())?;
    let yours = config::user()?.mcp.servers;
    let theirs = config::project_entries(&folder)
        .map_err(|reason| CliError::failed("could not read the project's settings").because(reason))?;
    if options.json {
        let entry = |entry: &ServerEntry, from: &str| {
            json!({
                "name": entry.server.name.as_ref(), "from": from, "enabled": entry.enabled,
                "server": entry.without_values(),
            })
        };
        let all =
            yours.iter().map(|one| entry(one, "user")).chain(theirs.iter().map(|one| entry(one, "project")));
        return output::put_json(&json!({ "servers": all.collect::<Vec<Value>>() }));
    }
    if yours.is_empty() && theirs.is_empty() {
        return output::put("No MCP servers. To add one: ropewalk mcp add NAME -- COMMAND\n");
    }
    let mut out = String::new();
    let book = Rulebook::new(paths::rules()?);
    let from_project = |entry: &ServerEntry| match book.trusts(&folder, &consent_digest(&entry.server)) {
        true => "  (from this project: trusted)",
        false => "  (from this project: you are asked before it starts)",
    };
    let all = yours.iter().map(|entry| (entry, "")).chain(theirs.iter().map(|one| (one, from_project(one))));
    for (entry, note) in all {
        let off = if entry.enabled { "" } else { "  (disabled)" };
        let (name, way) = (one_line(&entry.server.name), one_line(&entry.without_values()));
        writeln!(out, "{name}  {way}{off}{note}").ok();
    }
    output::put(&out)
}

fn add(options: &McpAddOptions) -> Result<(), CliError> {
    let name = options.name.trim();
    let allowed = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || !name.chars().all(allowed) {
        return Err(CliError::usage(format!("invalid server name {name:?}"))
            .fix(format!("use letters, digits, - and _, at most {NAME_CHARS_MAX}")));
    }
    let mut entry = Table::new();
    match (&options.url, &options.command[..]) {
        (Some(url), _) => {
            entry.insert("url", value(url.as_str()));
            put_pairs(&mut entry, "headers", &options.header, ':')?;
        }
        (None, [program, arguments @ ..]) => {
            entry.insert("command", value(program.as_str()));
            if !arguments.is_empty() {
                entry.insert("args", value(arguments.iter().map(String::as_str).collect::<Array>()));
            }
            put_pairs(&mut entry, "env", &options.env, '=')?;
        }
        (None, []) => return Err(CliError::usage("neither a command nor a URL given")),
    }
    let replaced = change(|servers| servers.insert(name, Item::Table(entry)).is_some())?;
    if options.json {
        return output::put_json(&json!({ "added": name, "replaced": replaced }));
    }
    let how = if replaced { "Replaced" } else { "Added" };
    output::put(&format!("{how} {}. To check it: ropewalk mcp check {}\n", one_line(name), one_line(name)))
}

fn put_pairs(entry: &mut Table, key: &str, pairs: &[String], mark: char) -> Result<(), CliError> {
    let mut table = InlineTable::new();
    for pair in pairs {
        let Some((name, text)) = pair.split_once(mark).filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(CliError::usage(format!("invalid {key}: use NAME{mark}VALUE")));
        };
        table.insert(name.trim(), text.trim_start().into());
    }
    if !table.is_empty() {
        entry.insert(key, value(table));
    }
    Ok(())
}

fn remove(options: &McpRemoveOptions) -> Result<(), CliError> {
    let name = options.name.as_str();
    if !change(|servers| servers.remove(name).is_some())? {
        return Err(CliError::not_found(format!("MCP server {name:?} not found in your settings"))
            .fix("ropewalk mcp list"));
    }
    if options.json {
        return output::put_json(&json!({ "removed": name }));
    }
    output::put(&format!("Removed {}.\n", one_line(name)))
}

/// Changes `[mcp.servers]` in the person's file and keeps the rest unchanged.
fn change(edit: impl FnOnce(&mut Table) -> bool) -> Result<bool, CliError> {
    let named = paths::config()?;
    // Never overwrites a file that cannot be read.
    config::user()?;
    // Links are followed: people keep their settings in repositories.
    let path = named.canonicalize().unwrap_or(named);
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| write_error(&path, error))?;
    // Held until the file is replaced: concurrent changes would be lost.
    let _held = guard::lock_folder(folder).map_err(|error| write_error(&path, error))?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(write_error(&path, error)),
    };
    let mut document: DocumentMut = text.parse().map_err(|error| write_error(&path, error))?;
    let done = {
        let mcp = hidden_table(document.as_table_mut(), "mcp").ok_or_else(|| one_line_table(&path))?;
        edit(hidden_table(mcp, "servers").ok_or_else(|| one_line_table(&path))?)
    };
    write(&path, &document.to_string()).map_err(|error| write_error(&path, error))?;
    Ok(done)
}

/// A subtable, created if missing. It gets no header line of its own while it has only subtables.
fn hidden_table<'a>(table: &'a mut Table, key: &str) -> Option<&'a mut Table> {
    let item = table.entry(key).or_insert_with(|| {
        let mut made = Table::new();
        made.set_implicit(true);
        Item::Table(made)
    });
    item.as_table_mut()
}

fn one_line_table(path: &Path) -> CliError {
    CliError::failed(format!("could not change {}", path.display()))
        .because("mcp is an inline table there")
        .fix("rewrite it as [mcp.servers.NAME], or edit it by hand")
}

fn write_error(path: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("could not change {}", path.display())).because(error)
}

/// Writes the file atomically and private: it may contain keys. Called with the folder locked, so the temporary name can be
/// fixed.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("toml.new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    // An empty file would look like one that lost its content.
    let text = if text.trim().is_empty() { "# There are no settings.\n" } else { text };
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn check(options: &McpCheckOptions) -> Result<ExitCode, CliError> {
    let config = config::user()?;
    let mut wanted = settings(&config);
    if let Some(name) = &options.name {
        wanted.servers.retain(|server| *server.name == **name);
        if wanted.servers.is_empty() {
            return Err(CliError::not_found(format!("no usable MCP server {name:?} in your settings"))
                .fix("ropewalk mcp list"));
        }
    }
    let environment = paths::passed_on(&config.environment);
    let folder = run::folder(None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed("could not start the async runtime").because(error))?;
    let views = runtime.block_on(agent::check_servers(&wanted, &environment, &folder));
    let well = views.iter().all(|view| view.state == ServerState::Ready);
    if options.json {
        output::put_json(&json!({ "servers": views.iter().map(view_json).collect::<Vec<_>>() }))?;
    } else {
        output::put(&views.iter().map(view_text).collect::<String>())?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failure(view: &ServerStatus) -> Option<&str> {
    match &view.state {
        ServerState::Failed { reason } => Some(reason),
        ServerState::Ready => None,
        ServerState::Idle | ServerState::Starting | ServerState::Refused => Some("it was not started"),
    }
}

fn view_json(view: &ServerStatus) -> Value {
    let tools: Vec<&str> = view.tools.iter().map(|tool| tool.name.as_ref()).collect();
    json!({ "name": view.name.as_ref(), "ok": failure(view).is_none(), "error": failure(view), "tools": tools })
}

fn view_text(view: &ServerStatus) -> String {
    let name = one_line(&view.name);
    match failure(view) {
        Some(reason) => format!("{name}  failed: {}\n", one_line(reason)),
        None => {
            let tools = view.tools.iter().map(|tool| format!("  {}\n", one_line(&tool.name)));
            format!("{name}  ok, {} tools\n{}", view.tools.len(), tools.collect::<String>())
        }
    }
}
