//! `[acp]` of the settings file, and the variables that take precedence over it. The names are those of zeph, so that its
//! users can keep their settings. Settings that also have a name of ours (`command_timeout`, `available_models`,
//! `discovery_enabled`) are stored under that.

use std::path::PathBuf;

use toml_edit::{Item, TableLike};

use super::error::{ConfigError, each_entry};
use super::setting_source::SettingSource;
use super::{Config, bool_of, keys, list_of, seconds_of, text_of};
use crate::cli_error::CliError;
use crate::paths;

/// How clients connect unless the command line says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChoice {
    Stdio,
    Http,
    Both,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcpSettings {
    pub max_sessions: Option<u32>,
    pub session_idle_timeout_secs: Option<u64>,
    /// The file of rules that zeph wrote.
    pub permission_file: Option<PathBuf>,
    pub agent_name: Option<String>,
    pub transport: Option<TransportChoice>,
    pub http_bind: Option<String>,
    /// Further folders that sessions may work in.
    pub additional_directories: Vec<PathBuf>,
    /// Optional methods that are not offered to clients.
    pub disable: Vec<String>,
}

/// Reads the table. A key with the same meaning at the top of the file takes precedence.
pub fn parse(item: &Item, config: &mut Config) -> Result<(), ConfigError> {
    let table = item.as_table_like().ok_or("acp must be a table: [acp]")?;
    let acp = &mut config.acp;
    each_entry(table, |key, item| {
        match keys::known("acp", key) {
            Some("max_sessions") => acp.max_sessions = Some(sessions_of(key, item)?),
            Some("session_idle_timeout_secs") => acp.session_idle_timeout_secs = Some(seconds_of(key, item)?),
            Some("permission_file") => acp.permission_file = Some(file_of(key, item)?),
            Some("agent_name") => acp.agent_name = Some(text_of(key, item)?.to_owned()),
            Some("transport") => acp.transport = Some(transport_of(key, item)?),
            Some("http_bind") => acp.http_bind = Some(text_of(key, item)?.to_owned()),
            Some("additional_directories") => {
                let folders = list_of(key, item)?;
                acp.additional_directories = folders.iter().map(|text| paths::below_home(text)).collect();
            }
            Some("disable") => acp.disable = methods_of(key, item)?,
            Some("terminal_timeout_secs" | "available_models" | "discovery_enabled" | "timeouts") => {}
            Some("auth_token") => config.warnings.push(
                "ignoring the token in [acp] of the settings file, because such files get copied and shared; set ROPEWALK_SERVER_TOKEN instead"
                    .to_owned(),
            ),
            _ => config.unknown.push(format!("acp.{key}")),
        }
        Ok(())
    })?;
    shared_names(table, config)
}

/// Settings that also have a name at the top of the file.
fn shared_names(table: &dyn TableLike, config: &mut Config) -> Result<(), ConfigError> {
    // The newer name takes precedence over the older one, in any order.
    if let Some(item) = table.get("timeouts") {
        timeouts(item, config).map_err(|wrong| wrong.within("timeouts", item))?;
    }
    each_entry(table, |key, item| shared_name(key, item, config))
}

fn shared_name(key: &str, item: &Item, config: &mut Config) -> Result<(), ConfigError> {
    match keys::known("acp", key) {
        Some("terminal_timeout_secs") => {
            let seconds = seconds_of(key, item)?;
            if config.command_timeout.is_none() {
                config.command_timeout = Some(seconds);
                config.sources.also("command_timeout", "acp.terminal_timeout_secs");
            }
        }
        Some("available_models") => {
            let models = list_of(key, item)?;
            if config.models.available.is_empty() {
                config.models.available = models;
                config.sources.also("available_models", "acp.available_models");
            }
        }
        Some("discovery_enabled") => {
            let enabled = bool_of(key, item)?;
            if config.discovery_enabled.is_none() {
                config.discovery_enabled = Some(enabled);
                config.sources.also("discovery_enabled", "acp.discovery_enabled");
            }
        }
        _ => {}
    }
    Ok(())
}

fn timeouts(item: &Item, config: &mut Config) -> Result<(), ConfigError> {
    let timeouts = item.as_table_like().ok_or("timeouts must be a table: [acp.timeouts]")?;
    each_entry(timeouts, |key, item| {
        let (path, place) = match keys::known("acp.timeouts", key) {
            Some("terminal_secs") => ("command_timeout", &mut config.command_timeout),
            Some("elicitation_secs") => ("ask_timeout", &mut config.ask_timeout),
            Some("mcp_secs") => ("mcp.call_timeout", &mut config.mcp.call_timeout),
            _ => {
                config.unknown.push(format!("acp.timeouts.{key}"));
                return Ok(());
            }
        };
        let seconds = seconds_of(key, item)?;
        if place.is_none() {
            *place = Some(seconds);
            config.sources.also(path, &format!("acp.timeouts.{key}"));
        }
        Ok(())
    })
}

/// Zeph's variables take precedence over its settings file, and so over ours.
pub fn variables(config: &mut Config) -> Result<(), CliError> {
    if let Some(number) = number("ZEPH_ACP_MAX_SESSIONS")? {
        let sessions = u32::try_from(number).ok().filter(|sessions| *sessions > 0);
        let wrong = || unusable("ZEPH_ACP_MAX_SESSIONS", "a number of at least 1");
        config.acp.max_sessions = Some(sessions.ok_or_else(wrong)?);
        config.sources.set("acp.max_sessions", SettingSource::Variable("ZEPH_ACP_MAX_SESSIONS"));
    }
    if let Some(seconds) = number("ZEPH_ACP_SESSION_IDLE_TIMEOUT_SECS")? {
        config.acp.session_idle_timeout_secs = Some(seconds);
        let source = SettingSource::Variable("ZEPH_ACP_SESSION_IDLE_TIMEOUT_SECS");
        config.sources.set("acp.session_idle_timeout_secs", source);
    }
    if let Some(seconds) = number("ZEPH_ACP_TERMINAL_TIMEOUT_SECS")? {
        config.command_timeout = Some(seconds);
        config.sources.set("command_timeout", SettingSource::Variable("ZEPH_ACP_TERMINAL_TIMEOUT_SECS"));
    }
    if let Some(file) = paths::variable("ZEPH_ACP_PERMISSION_FILE") {
        config.acp.permission_file = std::path::absolute(file).ok();
        config.sources.set("acp.permission_file", SettingSource::Variable("ZEPH_ACP_PERMISSION_FILE"));
    }
    if let Some(word) = paths::variable("ZEPH_ACP_DISCOVERY_ENABLED") {
        let word = word.to_string_lossy().to_lowercase();
        config.discovery_enabled = Some(!matches!(word.as_str(), "false" | "0" | "no" | "off"));
        config.sources.set("discovery_enabled", SettingSource::Variable("ZEPH_ACP_DISCOVERY_ENABLED"));
    }
    Ok(())
}

fn number(name: &'static str) -> Result<Option<u64>, CliError> {
    let Some(value) = paths::variable(name) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| unusable(name, "a number"))
}

fn unusable(name: &str, wanted: &str) -> CliError {
    CliError::usage(format!("{name} must be {wanted}")).fix(format!("set {name} to {wanted}, or unset it"))
}

/// Must not be relative: a project could provide such a file.
fn file_of(key: &str, item: &Item) -> Result<PathBuf, String> {
    let path = paths::below_home(text_of(key, item)?);
    let wrong = || format!("{key} must be an absolute path or start with ~/");
    path.is_absolute().then_some(path).ok_or_else(wrong)
}

fn sessions_of(key: &str, item: &Item) -> Result<u32, String> {
    let number = item.as_integer().and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| format!("{key} must be a number of at least 1"))
}

fn transport_of(key: &str, item: &Item) -> Result<TransportChoice, String> {
    match text_of(key, item)? {
        "stdio" => Ok(TransportChoice::Stdio),
        "http" => Ok(TransportChoice::Http),
        "both" => Ok(TransportChoice::Both),
        other => Err(format!("{key} must be \"stdio\", \"http\" or \"both\", not {other:?}")),
    }
}

fn methods_of(key: &str, item: &Item) -> Result<Vec<String>, String> {
    let methods = list_of(key, item)?;
    match methods.iter().find(|method| !wire::OPTIONAL_METHODS.contains(&method.as_str())) {
        None => Ok(methods),
        Some(other) => Err(format!(
            "{key} must list optional methods ({}), not {other:?}",
            wire::OPTIONAL_METHODS.join(", ")
        )),
    }
}
