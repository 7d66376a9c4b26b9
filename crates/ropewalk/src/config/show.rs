//! `ropewalk config show`: every effective setting of a server, and where it comes from.
//!
//! The values come from the same functions that `serve` uses.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::bridge::REPLAY_WINDOW;
use serde_json::{Value, json};

use super::{Config, ResolvedSetting, SettingSource, TransportChoice};
use crate::cli::{ConfigCommand, ConfigShowOptions, ServeOptions};
use crate::cli_error::CliError;
use crate::{guard_settings, models, output, paths, session_store};

/// Sessions in memory at once.
const SESSIONS_MAX: u32 = 16;
/// How long an idle session stays in memory.
const IDLE_SECONDS: u64 = 1800;
const AGENT_NAME: &str = "ropewalk";

/// Settings of a server from the command line, variables and the settings file.
pub struct ServerSettings {
    pub max_sessions: ResolvedSetting<u32>,
    pub idle_timeout: ResolvedSetting<u64>,
    pub ask_timeout: ResolvedSetting<Option<u64>>,
    pub agent_name: ResolvedSetting<String>,
}

impl ServerSettings {
    pub fn of(options: &ServeOptions, config: &Config) -> Self {
        let acp = &config.acp;
        let pick = Picker { config };
        Self {
            max_sessions: pick.one(
                ("max-sessions", options.max_sessions),
                ("acp.max_sessions", acp.max_sessions),
                SESSIONS_MAX,
            ),
            idle_timeout: pick.one(
                ("idle-timeout", options.idle_timeout),
                ("acp.session_idle_timeout_secs", acp.session_idle_timeout_secs),
                IDLE_SECONDS,
            ),
            ask_timeout: pick.one(
                ("ask-timeout", options.ask_timeout.map(Some)),
                ("ask_timeout", config.ask_timeout.map(Some)),
                None,
            ),
            agent_name: pick.one(
                ("agent-name", options.agent_name.clone()),
                ("acp.agent_name", acp.agent_name.clone()),
                AGENT_NAME.to_owned(),
            ),
        }
    }
}

/// The precedence of most settings: command line, settings file, default.
struct Picker<'a> {
    config: &'a Config,
}

impl Picker<'_> {
    fn one<T>(
        &self,
        flag: (&'static str, Option<T>),
        read: (&str, Option<T>),
        usual: T,
    ) -> ResolvedSetting<T> {
        match (flag.1, read.1) {
            (Some(value), _) => ResolvedSetting::new(value, SettingSource::Flag(flag.0)),
            (None, Some(value)) => ResolvedSetting::new(value, self.config.sources.of(read.0)),
            (None, None) => ResolvedSetting::new(usual, SettingSource::Default),
        }
    }
}

pub fn run(command: &ConfigCommand) -> ExitCode {
    let ConfigCommand::Show(options) = command;
    show(options).unwrap_or_else(|error| error.report(options.json))
}

fn show(options: &ConfigShowOptions) -> Result<ExitCode, CliError> {
    let config = super::user()?;
    let rows = rows(&options.serve, &config)?;
    if options.json {
        let settings: Vec<Value> = rows.iter().map(Row::json).collect();
        let file = paths::config().ok().map(|path| path.display().to_string());
        output::put_json(&json!({ "settings": settings, "file": file, "warnings": config.warnings }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = |text: fn(&Row) -> usize| rows.iter().map(text).max().unwrap_or_default();
    let (names, values) = (width(|row| row.name.len()), width(|row| row.text().chars().count()));
    for row in &rows {
        let text = row.text();
        let line = format!("{:names$}  {text:values$}  {}", row.name, row.source);
        output::put(&format!("{}\n", line.trim_end()))?;
    }
    for warning in &config.warnings {
        guard_settings::warn(warning);
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings that nothing sets, each with its default.
#[cfg(test)]
pub fn defaults(options: &ServeOptions) -> Vec<(&'static str, String)> {
    let rows = rows(options, &Config::default()).unwrap_or_else(|error| panic!("{error:?}"));
    let unset = rows.into_iter().filter(|row| row.source == SettingSource::Default);
    unset.map(|row| (row.name, row.text())).collect()
}

/// One setting, under the name that it has in the settings file.
struct Row {
    name: &'static str,
    value: Value,
    source: SettingSource,
}

impl Row {
    fn new(name: &'static str, setting: ResolvedSetting<impl Into<Value>>) -> Self {
        Self { name, value: setting.value.into(), source: setting.source }
    }

    fn text(&self) -> String {
        match &self.value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(items) if items.is_empty() => "-".to_owned(),
            Value::Array(items) => {
                let words =
                    items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        }
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "value": self.value, "source": self.source.kind(), "where": self.source.name() })
    }
}

fn rows(options: &ServeOptions, config: &Config) -> Result<Vec<Row>, CliError> {
    let pick = Picker { config };
    let server = ServerSettings::of(options, config);
    let text = |setting: ResolvedSetting<Option<Arc<str>>>, usual: &str| {
        let value = setting.value.map_or_else(|| usual.to_owned(), |value| value.to_string());
        ResolvedSetting::new(value, setting.source)
    };
    let guard = &options.guard;
    let sandbox = guard_settings::mode(guard, config)?;
    let command_seconds = sandbox::CommandLimits::default().wall.as_secs();
    let mut rows = vec![
        Row::new("model", model(options, config)),
        Row::new("sandbox", ResolvedSetting::new(sandbox.value.name(), sandbox.source)),
        Row::new("approval", text(guard_settings::approval(guard, config)?, "auto")),
        Row::new("approval_max", text(guard_settings::loosest(guard, config)?, "full")),
        Row::new("ask_timeout", server.ask_timeout),
        Row::new(
            "command_timeout",
            pick.one(("", None), ("command_timeout", config.command_timeout), command_seconds),
        ),
        Row::new("permissions", rules_file()?),
        Row::new("acp.max_sessions", server.max_sessions),
        Row::new("acp.session_idle_timeout_secs", server.idle_timeout),
        Row::new("acp.permission_file", permission_file(config)?),
        Row::new("acp.agent_name", server.agent_name),
    ];
    rows.extend(doors(options, config, &pick)?);
    let store = session_store::setting(&guard.store, config)?;
    rows.push(Row::new("store", ResolvedSetting::new(store.value.location(), store.source)));
    rows.push(Row::new("bridge.remote_url", remote_url(options, config)));
    let usual = config.codex.replay_window.clone();
    let usual = usual.unwrap_or_else(|| ResolvedSetting::new(REPLAY_WINDOW, SettingSource::Default));
    rows.push(Row::new(
        "bridge.replay_window",
        match (options.bridge.replay_window, config.bridge.replay_window) {
            (None, None) => usual,
            (flag, read) => {
                let (flag, read) = (("replay-window", flag), ("bridge.replay_window", read));
                pick.one(flag, read, REPLAY_WINDOW)
            }
        },
    ));
    Ok(rows)
}

/// How clients connect and what they are offered.
fn doors(options: &ServeOptions, config: &Config, pick: &Picker<'_>) -> Result<Vec<Row>, CliError> {
    let acp = &config.acp;
    let texts = |items: &[String]| (!items.is_empty()).then(|| items.to_vec());
    let folders = |folders: &[std::path::PathBuf]| {
        let shown: Vec<String> = folders.iter().map(shown).collect();
        texts(&shown)
    };
    let flag = (options.stdio || options.acp || options.http.http.is_some()).then_some(());
    let with = options.clone().with_transport(config)?;
    let transport = match (with.http.http.is_some(), with.stdio) {
        (true, true) => "both",
        (true, false) => "http",
        (false, _) => "stdio",
    };
    let source = match (flag, acp.transport) {
        (Some(()), _) => SettingSource::Flag(if options.http.http.is_some() { "http" } else { "stdio" }),
        (None, Some(_)) => config.sources.of("acp.transport"),
        (None, None) => SettingSource::Default,
    };
    let address = with.http.address().map_err(CliError::usage)?.map(|address| address.to_string());
    // Without an HTTP door: the address that --http without a value would use.
    let address =
        address.or_else(|| acp.http_bind.clone()).unwrap_or_else(|| with.http.usual_address().to_string());
    let address_source = match &acp.http_bind {
        Some(bind) if address == *bind => config.sources.of("acp.http_bind"),
        _ if options.http.http.is_some() => SettingSource::Flag("http"),
        _ => SettingSource::Default,
    };
    Ok(vec![
        Row::new("acp.transport", ResolvedSetting::new(transport, source)),
        Row::new("acp.http_bind", ResolvedSetting::new(address, address_source)),
        Row::new(
            "acp.additional_directories",
            pick.one(
                ("allow-dir", folders(&options.allow_dir)),
                ("acp.additional_directories", folders(&acp.additional_directories)),
                Vec::new(),
            ),
        ),
        Row::new("acp.disable", pick.one(("", None), ("acp.disable", texts(&acp.disable)), Vec::new())),
        Row::new(
            "discovery_enabled",
            pick.one(("", None), ("discovery_enabled", config.discovery_enabled), true),
        ),
        Row::new(
            "available_models",
            pick.one(("", None), ("available_models", texts(&config.models.available)), Vec::new()),
        ),
    ])
}

fn model(options: &ServeOptions, config: &Config) -> ResolvedSetting<Option<String>> {
    let flag = options.model.clone().map(|model| ResolvedSetting::new(model, SettingSource::Flag("model")));
    let chosen = flag.or_else(|| models::chosen(config)).or_else(|| config.codex.model.clone());
    match chosen {
        Some(ResolvedSetting { value, source }) => ResolvedSetting::new(Some(value), source),
        None => ResolvedSetting::new(None, SettingSource::Default),
    }
}

/// The file for permanent permission answers. It is not a setting, so it is named after its command.
fn rules_file() -> Result<ResolvedSetting<String>, CliError> {
    let source = if paths::names_rules() {
        SettingSource::Variable("ROPEWALK_PERMISSIONS")
    } else {
        SettingSource::Default
    };
    Ok(ResolvedSetting::new(shown(paths::rules()?.user), source))
}

/// Zeph's permission file, which is only read.
fn permission_file(config: &Config) -> Result<ResolvedSetting<Option<String>>, CliError> {
    let file = paths::rules()?.zeph.as_deref().map(shown);
    let source = config.acp.permission_file.as_ref().map(|_| config.sources.of("acp.permission_file"));
    Ok(ResolvedSetting::new(file, source.unwrap_or_default()))
}

fn remote_url(options: &ServeOptions, config: &Config) -> ResolvedSetting<Option<String>> {
    let flag = options.bridge.bridge.clone().filter(|url| !url.is_empty());
    let file = || Some((config.bridge.remote_url.clone()?, config.sources.of("bridge.remote_url")));
    let other = || config.codex.remote_url.clone().map(|setting| (setting.value, setting.source));
    match flag.map(|url| (url, SettingSource::Flag("bridge"))).or_else(file).or_else(other) {
        Some((url, source)) => ResolvedSetting::new(Some(url), source),
        None => ResolvedSetting::new(None, SettingSource::Default),
    }
}

fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

impl ServeOptions {
    /// Adds how clients connect from the settings, unless the command line says it.
    pub fn with_transport(mut self, config: &Config) -> Result<Self, CliError> {
        let acp = &config.acp;
        // Otter's name for the same option.
        self.stdio |= self.acp;
        if self.http.http.is_none() && !self.stdio {
            match acp.transport {
                Some(TransportChoice::Http) => self.http.http = "".parse().ok(),
                Some(TransportChoice::Both) => {
                    self.http.http = "".parse().ok();
                    self.stdio = true;
                }
                Some(TransportChoice::Stdio) | None => {}
            }
        }
        if let (Some(bind), Some(named)) = (&acp.http_bind, self.http.http)
            && named.is_usual()
            && self.http.port.is_none()
        {
            let unusable = |error: String| wrong_bind(bind, error);
            self.http.http = Some(bind.parse().map_err(unusable)?);
        }
        if self.allow_dir.is_empty() {
            self.allow_dir.clone_from(&acp.additional_directories);
        }
        Ok(self)
    }
}

fn wrong_bind(bind: &str, error: impl Display) -> CliError {
    CliError::usage(format!("invalid http_bind {bind:?} in [acp] of the settings")).because(error)
}
