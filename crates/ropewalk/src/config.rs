//! The person's settings file, and that of a project, which can only restrict.
//!
//! A file that cannot be read is an error, never treated as empty: it may contain restrictions.

mod acp;
mod agents;
mod codex_defaults;
mod error;
mod keys;
mod mcp_servers;
mod models;
mod setting_source;
mod show;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ::bridge::RemoteAnswers;
use agent::ProjectServer;
use sandbox::Mode;
use toml_edit::{Document, Item, Table, TableLike};

use crate::cli_error::CliError;
use crate::{mcp_trust, paths};

pub use acp::{AcpSettings, TransportChoice};
pub use agents::{AgentEntry, OURS};
pub use codex_defaults::CodexDefaults;
use error::{ConfigError, each_entry};
#[cfg(test)]
pub use keys::KEYS;
pub use mcp_servers::{McpSettings, ServerEntry};
pub use models::{ModelEntry, ModelSettings, ProviderEntry};
pub use setting_source::{ResolvedSetting, SettingSource, SettingSources};
#[cfg(test)]
pub use show::defaults;
pub use show::{ServerSettings, run};

/// A larger file is not a settings file.
const BYTES_MAX: u64 = 1 << 20;
const PROJECT_FILE: &str = ".ropewalk/config.toml";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    pub sandbox: Option<Mode>,
    pub approval: Option<String>,
    /// The loosest preset that a session may have. Read only from the person's own file.
    pub approval_max: Option<String>,
    pub ask_timeout: Option<u64>,
    /// How many seconds a command may run; 0: no limit.
    pub command_timeout: Option<u64>,
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands run in the terminal of an editor that offers one.
    pub editor_terminal: Option<bool>,
    /// Further variables that are passed on to commands.
    pub environment: Vec<String>,
    /// Further clients with access over HTTP. Read only from the person's own file.
    pub clients: Vec<ClientEntry>,
    /// Whether the discovery document is public over HTTP.
    pub discovery_enabled: Option<bool>,
    /// The contact for push services. Read only from the person's own file.
    pub push_contact: Option<String>,
    /// Read only from the person's own file.
    pub models: ModelSettings,
    /// MCP servers for every session.
    pub mcp: McpSettings,
    /// The hub of the bridge. Read only from the person's own file.
    pub bridge: BridgeSettings,
    /// The session store. Read only from the person's own file.
    pub store: StoreSettings,
    /// The agent to use instead of the built-in one. Read only from the person's own file.
    pub agent: Option<String>,
    /// External agents. Read only from the person's own file.
    pub agents: Vec<AgentEntry>,
    /// What protocol clients are offered, and how they connect. Read only from the person's own file.
    pub acp: AcpSettings,
    /// Defaults from files for Codex, of the person and, within limits, of the project.
    pub codex: CodexDefaults,
    /// Where each key was set.
    pub sources: SettingSources,
    /// Unknown keys in the file.
    pub unknown: Vec<String>,
    /// Other parts that are ignored, and why.
    pub warnings: Vec<String>,
}

/// The options of the command line about settings files, for the whole process.
#[derive(Default)]
pub struct ConfigFlags {
    /// Replaces the person's settings file and those of other agents.
    pub file: Option<PathBuf>,
    /// The profile to apply over the rest of the file.
    pub profile: Option<String>,
}

/// By hand: the digest of a server's options is made of this text (`serve::relay::options_digest`), and servers of earlier
/// versions made it so.
impl fmt::Debug for ConfigFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choice").field("file", &self.file).field("profile", &self.profile).finish()
    }
}

static FLAGS: OnceLock<ConfigFlags> = OnceLock::new();

/// Called before settings are read. Only the first call counts.
pub fn set_flags(flags: ConfigFlags) {
    drop(FLAGS.set(flags));
}

/// The options of the command line about settings files.
pub fn flags() -> Option<&'static ConfigFlags> {
    FLAGS.get()
}

/// The settings file that the command line names.
pub fn named_file() -> Option<&'static Path> {
    FLAGS.get()?.file.as_deref()
}

/// `[bridge]`. The token is never read from a file: files are copied, shared and backed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeSettings {
    pub remote_url: Option<String>,
    pub replay_window: Option<u64>,
    pub answers: Option<RemoteAnswers>,
    /// End-to-end encryption: the hub can read nothing.
    pub e2e: bool,
    /// Whether a token is there, which is ignored.
    pub has_token: bool,
}

/// `[store]`. An address with a password belongs in a separate file or in a variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreSettings {
    pub url: Option<String>,
    pub file: Option<PathBuf>,
}

/// One of `[[clients]]`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientEntry {
    pub id: String,
    pub token_sha256: Option<String>,
    pub token: Option<String>,
}

/// Without the token.
impl std::fmt::Debug for ClientEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientEntry").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The person's own settings, combined with variables and the files of other agents.
pub fn user() -> Result<Config, CliError> {
    let profile = FLAGS.get().and_then(|flags| flags.profile.as_deref());
    let mut config = match paths::config() {
        Ok(path) => read_profile(&path, profile)?,
        Err(_) => Config::default(),
    };
    if named_file().is_none() {
        config.codex = CodexDefaults::find(paths::home(), std::env::current_dir().ok());
        config.warnings.extend(config.codex.warnings.clone());
    }
    acp::variables(&mut config)?;
    Ok(config)
}

/// The sandbox mode that a project sets for its sessions, if any. Settings of all folders from the workspace up to
/// the repository root count.
pub fn project_mode(workspace: &Path) -> Option<Mode> {
    project_folders(workspace)
        .flat_map(|folder| [mode_of(folder), codex_defaults::project_mode(folder)])
        .flatten()
        .min()
}

/// The mode in each of these files, or why the file cannot be read.
pub fn project_modes(workspace: &Path) -> Vec<(PathBuf, Result<Mode, String>)> {
    let said = |folder: &Path| {
        let file = folder.join(PROJECT_FILE);
        let mode = read(&file).map_err(|error| error.summary()).map(|config| config.sandbox).transpose()?;
        Some((file, mode))
    };
    project_folders(workspace).filter_map(said).collect()
}

/// The MCP servers that a project names. For each name, the nearest file counts.
pub fn project_entries(workspace: &Path) -> Result<Vec<ServerEntry>, String> {
    let mut entries: Vec<ServerEntry> = Vec::new();
    for folder in project_folders(workspace) {
        let path = folder.join(PROJECT_FILE);
        let config = read(&path).map_err(|error| error.summary())?;
        for entry in config.mcp.servers {
            if entries.iter().all(|known| known.server.name != entry.server.name) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

/// The enabled ones, for a session. `${NAME}` is not expanded: a project must not read the variables of the person
/// who runs the agent.
pub fn project_servers(workspace: &Path) -> Result<Vec<ProjectServer>, String> {
    let entries = project_entries(workspace)?.into_iter().filter(|entry| entry.enabled);
    let server = |entry: ServerEntry| {
        let notices = mcp_trust::notices(workspace, &entry);
        ProjectServer { shown: entry.one_line(), server: entry.server, notices }
    };
    Ok(entries.map(server).collect())
}

/// A variable for `${NAME}` in an entry.
pub fn variable(name: &str) -> Option<String> {
    paths::variable(name).and_then(|value| value.into_string().ok())
}

fn project_folders(workspace: &Path) -> impl Iterator<Item = &Path> {
    let repository = workspace.ancestors().find(|folder| folder.join(".git").exists());
    let last = repository.unwrap_or(workspace);
    workspace.ancestors().take_while(move |folder| folder.starts_with(last))
}

fn mode_of(folder: &Path) -> Option<Mode> {
    match read(&folder.join(PROJECT_FILE)) {
        Ok(config) => config.sandbox,
        Err(error) => {
            tracing::warn!(trouble = ?error, "could not read the project's settings, so its sessions are read-only");
            Some(Mode::ReadOnly)
        }
    }
}

fn read(path: &Path) -> Result<Config, CliError> {
    read_profile(path, None)
}

fn read_profile(path: &Path, profile: Option<&str>) -> Result<Config, CliError> {
    let unusable = |reason: String| {
        CliError::failed(format!("could not read the settings in {}", path.display()))
            .because(reason)
            .fix("fix the file or move it aside")
    };
    let text = text(path).map_err(unusable)?;
    let is_named = |named: &Path| std::path::absolute(named).is_ok_and(|named| named == path);
    if text.is_none() && named_file().is_some_and(is_named) {
        return Err(CliError::usage(format!("file {} not found", path.display()))
            .fix("pass an existing settings file to --config, or remove --config"));
    }
    let text = text.unwrap_or_default();
    let document = Document::parse(text.as_str()).map_err(|error| unusable(error.to_string()))?;
    // A copy, because a mutable document loses the positions of its values.
    let mut table = document.as_table().clone();
    let mut sources = SettingSources::of_file(path, &table);
    if let Some(name) = profile {
        lay_over(&mut table, name, &mut sources).map_err(|known| no_profile(name, &known, path))?;
    }
    settings_of(&table, sources).map_err(|wrong| unusable(wrong.with_position(&text)))
}

/// The text of a settings file, if it is there.
fn text(path: &Path) -> Result<Option<String>, String> {
    // A dangling link is an error: it may have pointed to stricter settings.
    let Some(file) = store::open_regular(path).map_err(|error| error.to_string())? else { return Ok(None) };
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err("it is too large".into());
    }
    Ok(Some(text))
}

/// Applies `[profiles.NAME]` over the file. If the profile is missing, returns the names of those that exist.
fn lay_over(table: &mut Table, name: &str, sources: &mut SettingSources) -> Result<(), Vec<String>> {
    let profiles = table.get("profiles").and_then(Item::as_table_like);
    let known = || profiles.map(|table| table.iter().map(|(name, _)| name.to_owned()).collect());
    let Some(profile) = profiles.and_then(|table| table.get(name)).and_then(Item::as_table_like) else {
        return Err(known().unwrap_or_default());
    };
    sources.walk("", profile, &SettingSource::Profile(name.to_owned()));
    let laid: Vec<(String, Item)> =
        profile.iter().map(|(key, item)| (key.to_owned(), item.clone())).collect();
    for (key, item) in laid {
        merge(table, &key, item);
    }
    Ok(())
}

/// Tables are merged; everything else is replaced.
fn merge(table: &mut dyn TableLike, key: &str, item: Item) {
    match (table.get_mut(key).and_then(Item::as_table_like_mut), item.as_table_like()) {
        (Some(below), Some(over)) => {
            for (key, item) in over.iter() {
                merge(below, key, item.clone());
            }
        }
        _ => drop(table.insert(key, item)),
    }
}

fn no_profile(name: &str, known: &[String], path: &Path) -> CliError {
    let fix = match known {
        [] => format!("add [profiles.{name}] to {}", path.display()),
        known => format!("use one of {}", known.join(", ")),
    };
    CliError::usage(format!("profile {name:?} not found")).fix(fix)
}

/// The keys in this text that are not read.
#[cfg(test)]
pub fn unknown_keys(text: &str) -> Result<Vec<String>, String> {
    parse(text).map(|config| config.unknown)
}

#[cfg(test)]
fn parse(text: &str) -> Result<Config, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    settings_of(document.as_table(), SettingSources::default()).map_err(|wrong| wrong.with_position(text))
}

fn settings_of(table: &Table, sources: SettingSources) -> Result<Config, ConfigError> {
    let mut config = Config { sources, ..Config::default() };
    each_entry(table, |key, item| {
        match keys::known("", key) {
            Some("sandbox") => {
                config.sandbox = Some(text_of(key, item)?.parse().map_err(|e| format!("{e}"))?)
            }
            Some("approval") => config.approval = Some(text_of(key, item)?.to_owned()),
            Some("approval_max") => config.approval_max = Some(text_of(key, item)?.to_owned()),
            Some("ask_timeout") => config.ask_timeout = Some(seconds_of(key, item)?),
            Some("command_timeout") => config.command_timeout = Some(seconds_of(key, item)?),
            Some("add_dirs") => {
                config.add_dirs = list_of(key, item)?.into_iter().map(PathBuf::from).collect()
            }
            Some("terminal") => config.editor_terminal = Some(terminal_of(key, item)?),
            Some("environment") => config.environment = list_of(key, item)?,
            Some("clients") => config.clients = clients_of(item)?,
            Some("mcp") => config.mcp = mcp_servers::parse(item)?,
            Some("bridge") => config.bridge = bridge_of(item, &mut config.unknown)?,
            Some("store") => config.store = store_of(item)?,
            Some("agent") => config.agent = Some(text_of(key, item)?.to_owned()),
            Some("agents") => config.agents = agents::parse(item)?,
            Some("discovery_enabled") => config.discovery_enabled = Some(bool_of(key, item)?),
            Some("push_contact") => config.push_contact = Some(contact_of(key, item)?),
            // Read after everything else, or only with `--profile`.
            Some("acp" | "profiles") => {}
            Some(_) if config.models.take(key, item)? => {}
            _ => config.unknown.push(key.to_owned()),
        }
        Ok(())
    })?;
    if let Some(item) = table.get("acp") {
        acp::parse(item, &mut config).map_err(|wrong| wrong.within("acp", item))?;
    }
    Ok(config)
}

fn bool_of(key: &str, item: &Item) -> Result<bool, String> {
    item.as_bool().ok_or_else(|| format!("{key} must be true or false"))
}

fn text_of<'a>(key: &str, item: &'a Item) -> Result<&'a str, String> {
    item.as_str().ok_or_else(|| format!("{key} must be a string"))
}

fn terminal_of(key: &str, item: &Item) -> Result<bool, String> {
    match text_of(key, item)? {
        "editor" => Ok(true),
        "own" => Ok(false),
        other => Err(format!("{key} must be \"editor\" or \"own\", not {other:?}")),
    }
}

fn contact_of(key: &str, item: &Item) -> Result<String, String> {
    let text = text_of(key, item)?;
    let address = text.strip_prefix("mailto:").or_else(|| text.strip_prefix("https://"));
    let usable =
        address.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()));
    if usable { Ok(text.to_owned()) } else { Err(format!("{key} must be a mailto: or https: address")) }
}

fn seconds_of(key: &str, item: &Item) -> Result<u64, String> {
    item.as_integer()
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| format!("{key} must be a number of seconds"))
}

fn list_of(key: &str, item: &Item) -> Result<Vec<String>, String> {
    let wrong = || format!("{key} must be a list of strings");
    let list = item.as_array().ok_or_else(wrong)?;
    list.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn pairs_of(key: &str, item: &Item) -> Result<Vec<(String, String)>, String> {
    let wrong = || format!("{key} must be a table of strings");
    let table = item.as_table_like().ok_or_else(wrong)?;
    table
        .iter()
        .map(|(name, item)| Ok((name.to_owned(), item.as_str().ok_or_else(wrong)?.to_owned())))
        .collect()
}

fn bridge_of(item: &Item, unknown: &mut Vec<String>) -> Result<BridgeSettings, ConfigError> {
    let table = item.as_table_like().ok_or("bridge must be a table: [bridge] with remote_url")?;
    let mut bridge = BridgeSettings::default();
    each_entry(table, |key, item| {
        match keys::known("bridge", key) {
            Some("remote_url") => bridge.remote_url = Some(text_of(key, item)?.to_owned()),
            Some("replay_window") => {
                let number = item.as_integer().and_then(|number| u64::try_from(number).ok());
                bridge.replay_window = Some(number.ok_or("replay_window must be a number of events")?);
            }
            Some("answers") => {
                let wrong = || "answers must be \"anyone\", \"approver\" or \"local-only\"".to_owned();
                bridge.answers = Some(RemoteAnswers::parse(text_of(key, item)?).ok_or_else(wrong)?);
            }
            Some("e2e") => bridge.e2e = item.as_bool().ok_or("e2e must be true or false")?,
            Some("auth_token" | "bridge_token" | "token") => bridge.has_token = true,
            _ => unknown.push(format!("bridge.{key}")),
        }
        Ok(())
    })?;
    Ok(bridge)
}

fn store_of(item: &Item) -> Result<StoreSettings, ConfigError> {
    let table = item.as_table_like().ok_or("store must be a table: [store] with file or url")?;
    let mut store = StoreSettings::default();
    each_entry(table, |key, item| {
        match keys::known("store", key) {
            Some("url") => store.url = Some(text_of(key, item)?.to_owned()),
            Some("file") => store.file = Some(paths::below_home(text_of(key, item)?)),
            // A misspelled key would send sessions to the wrong store.
            _ => return Err(format!("unknown key {key}; a store has file or url").into()),
        }
        Ok(())
    })?;
    Ok(store)
}

fn clients_of(item: &Item) -> Result<Vec<ClientEntry>, ConfigError> {
    let tables = item
        .as_array_of_tables()
        .ok_or("clients must be an array of tables: [[clients]], each with an id")?;
    tables.iter().map(client_of).collect()
}

fn client_of(table: &Table) -> Result<ClientEntry, ConfigError> {
    let mut client = ClientEntry::default();
    each_entry(table, |key, item| {
        match keys::known("clients", key) {
            Some("id") => client.id = text_of(key, item)?.to_owned(),
            Some("token_sha256") => client.token_sha256 = Some(text_of(key, item)?.to_owned()),
            Some("token") => client.token = Some(text_of(key, item)?.to_owned()),
            // A misspelled key may have been meant as a restriction.
            _ => return Err(format!("unknown key {key}; a client has id and token_sha256").into()),
        }
        Ok(())
    })?;
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_what_is_unknown_is_named() {
        let config = parse(
            "sandbox = \"read-only\"\napproval = \"auto\"\napproval_max = \"auto\"\nask_timeout = 60\ncommand_timeout = 0\nadd_dirs = [\"/a\", \"/b\"]\ndiscovery_enabled = false\npush_contact = \"mailto:ops@example.com\"\nterminal = \"editor\"\nagent = \"opencode\"\nsandbocks = 1\n",
        )
        .unwrap();
        let expected = Config {
            sandbox: Some(Mode::ReadOnly),
            approval: Some("auto".into()),
            approval_max: Some("auto".into()),
            ask_timeout: Some(60),
            command_timeout: Some(0),
            add_dirs: vec!["/a".into(), "/b".into()],
            editor_terminal: Some(true),
            environment: Vec::new(),
            clients: Vec::new(),
            discovery_enabled: Some(false),
            push_contact: Some("mailto:ops@example.com".into()),
            models: ModelSettings::default(),
            mcp: McpSettings::default(),
            bridge: BridgeSettings::default(),
            agent: Some("opencode".into()),
            unknown: vec!["sandbocks".into()],
            ..Config::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn a_bridge_is_read_and_its_token_is_not() {
        let config = parse(
            "[bridge]\nremote_url = \"https://hub.example.com\"\ne2e = true\nreplay_window = 9\nanswers = \"local-only\"\nauth_token = \"hush\"\nx = 1\n",
        )
        .unwrap();
        assert_eq!(config.bridge.remote_url.as_deref(), Some("https://hub.example.com"));
        assert_eq!(
            (config.bridge.replay_window, config.bridge.answers),
            (Some(9), Some(RemoteAnswers::LocalOnly))
        );
        assert!(config.bridge.e2e);
        assert!(config.bridge.has_token && !format!("{config:?}").contains("hush"));
        assert_eq!(config.unknown, ["bridge.x"]);
    }

    #[test]
    fn clients_are_read_and_their_tokens_are_not_shown() {
        let config = parse(
            "[[clients]]\nid = \"ci\"\ntoken = \"hush\"\n[[clients]]\nid = \"bot\"\ntoken_sha256 = \"00\"\n",
        )
        .unwrap();
        let ids: Vec<&str> = config.clients.iter().map(|client| client.id.as_str()).collect();
        assert_eq!(ids, ["ci", "bot"]);
        assert_eq!(config.clients[0].token.as_deref(), Some("hush"));
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn providers_models_and_budgets_are_read() {
        let config = parse(
            "model = \"work:big\"\navailable_models = [\"work:big\"]\nmax_turns = 9\n[budget]\nsession_usd = 2\n\
             unknown = \"refuse\"\n[[providers]]\nname = \"work\"\nwire = \"chat\"\nbase_url = \"https://a/v1\"\n\
             models = [\"big\"]\nkey_env = \"WORK_KEY\"\n[[models]]\nid = \"work:big\"\nprice = { input = 1, output = 2.5 }\n",
        )
        .unwrap();
        assert!(config.unknown.is_empty());
        let models = config.models;
        assert_eq!((models.session_usd, models.refuse_unknown, models.max_turns), (Some(2.0), true, Some(9)));
        assert_eq!(models.providers[0].key_env.as_deref(), Some("WORK_KEY"));
        let price = models.models[0].price.unwrap();
        assert_eq!((price.input, price.output, price.cache_read), (1.0, 2.5, 1.0));
    }

    #[test]
    fn the_acp_table_is_read_and_its_token_is_not() {
        let config = parse(
            "ask_timeout = 9\n[acp]\nmax_sessions = 3\nsession_idle_timeout_secs = 60\npermission_file = \"/p.toml\"\n\
             terminal_timeout_secs = 0\navailable_models = [\"offline:plain\"]\nagent_name = \"zeph\"\n\
             http_bind = \"127.0.0.1:9800\"\ntransport = \"both\"\ndiscovery_enabled = false\n\
             additional_directories = [\"/more\"]\nauth_token = \"hush\"\ndisable = [\"session/fork\"]\nlsp = 1\n\
             [acp.timeouts]\nelicitation_secs = 120\nmcp_secs = 300\nnotify_ack_ms = 5000\n",
        )
        .unwrap();
        let expected = AcpSettings {
            max_sessions: Some(3),
            session_idle_timeout_secs: Some(60),
            permission_file: Some("/p.toml".into()),
            agent_name: Some("zeph".into()),
            transport: Some(TransportChoice::Both),
            http_bind: Some("127.0.0.1:9800".into()),
            additional_directories: vec!["/more".into()],
            disable: vec!["session/fork".into()],
        };
        assert_eq!(config.acp, expected);
        assert_eq!(
            (config.command_timeout, config.ask_timeout),
            (Some(0), Some(9)),
            "the top of the file wins"
        );
        assert_eq!((config.mcp.call_timeout, config.discovery_enabled), (Some(300), Some(false)));
        assert_eq!(config.models.available, ["offline:plain"]);
        assert_eq!(config.unknown, ["acp.lsp", "acp.timeouts.notify_ack_ms"]);
        assert!(config.warnings.len() == 1 && !format!("{config:?}").contains("hush"));
    }

    #[test]
    fn a_profile_is_laid_over_the_file_and_an_unknown_one_is_named() {
        let text = "approval = \"auto\"\n[bridge]\nremote_url = \"https://a\"\ne2e = true\n\
                    [profiles.work]\napproval = \"strict\"\n[profiles.work.bridge]\nremote_url = \"https://b\"\n";
        let laid = |name: &str| {
            let mut table = Document::parse(text).unwrap().as_table().clone();
            let mut sources = SettingSources::of_file(Path::new("/c"), &table);
            lay_over(&mut table, name, &mut sources)?;
            Ok::<_, Vec<String>>(settings_of(&table, sources).unwrap())
        };
        let config = laid("work").unwrap();
        assert_eq!(config.approval.as_deref(), Some("strict"));
        assert_eq!((config.bridge.remote_url.as_deref(), config.bridge.e2e), (Some("https://b"), true));
        assert_eq!(config.sources.of("approval"), SettingSource::Profile("work".into()));
        assert_eq!(config.sources.of("bridge.e2e"), SettingSource::File("/c".into()));
        assert!(config.unknown.is_empty());
        assert_eq!(laid("home").unwrap_err(), ["work"]);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_never_taken_for_nothing() {
        for (text, said) in [
            ("[acp]\nmax_sessions = 0", "at least 1"),
            ("[acp]\npermission_file = \"rules.toml\"", "an absolute path"),
            ("[acp]\ntransport = \"pigeon\"", "\"stdio\", \"http\" or \"both\""),
            ("[acp]\ndisable = [\"session/new\"]", "not \"session/new\""),
            ("[acp.timeouts]\nterminal_secs = -1", "a number of seconds"),
            ("sandbox = \"wide\"", "is not a sandbox mode"),
            ("sandbox = 1", "sandbox must be a string"),
            ("sandbox = ", "expected"),
            ("ask_timeout = -1", "a number of seconds"),
            ("add_dirs = [1]", "a list of strings"),
            ("terminal = \"mine\"", "\"editor\" or \"own\""),
            ("clients = 1", "[[clients]]"),
            ("discovery_enabled = 0", "true or false"),
            ("push_contact = \"ops@example.com\"", "a mailto: or https: address"),
            ("[[clients]]\nid = 1", "id must be a string"),
            ("[[clients]]\nid = \"a\"\ntokn = \"b\"", "unknown key tokn"),
            ("[[providers]]\nname = \"a\"\nkey = \"b\"", "set key_env"),
            ("[[providers]]\nname = \"A b\"", "lowercase letters"),
            ("[[providers]]\nname = \"a\"\nwire = \"smoke\"", "wire must be"),
            ("[[providers]]\nname = \"a\"\nbase_url = \"ftp://a\"", "https://"),
            ("[[models]]\nid = \"a\"", "PROVIDER:MODEL"),
            ("[[models]]\nid = \"a:b\"\nprice = { input = 1 }", "needs input and output"),
            ("[budget]\nday_usd = -1", "an amount of US dollars"),
            ("[budget]\nday = 1", "unknown key day"),
            ("max_turns = 0", "at least 1"),
            ("bridge = 1", "[bridge]"),
            ("[bridge]\nanswers = \"nobody\"", "local-only"),
            ("[bridge]\nreplay_window = -1", "a number of events"),
            ("[bridge]\ne2e = \"yes\"", "true or false"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place_and_its_key() {
        let file = "# ü\nask_timeout = 9\n[budget]\nday_usd = 1\n[acp]\ntransport = \"both\"\n";
        for (more, told) in [
            (
                "max_sessions = 0",
                "line 7, column 16: acp.max_sessions: max_sessions must be a number of at least 1",
            ),
            ("timeouts = { mcp_secs = \"ü\", x = 1 }", "line 7, column 25: acp.timeouts.mcp_secs: "),
            (
                "[[providers]]\nname = \"a\"\nwire = \"x\"",
                "line 9, column 8: providers.wire: wire must be anthropic",
            ),
            ("[mcp.servers.git]\nargs = 1", "line 8, column 8: mcp.servers.git.args: args must be a list"),
            ("[mcp.servers.git]\nargs = []", "line 7, column 1: mcp.servers.git: it needs command"),
            ("[agents.me]\nsandbox = \"wide\"", "line 8, column 11: agents.me.sandbox: "),
            ("[[models]]\nid = \"a:b\"\nprice = { input = -1 }", "line 9, column 19: models.price.input: "),
            (
                "[store]\nfiel = \"x\"",
                "line 8, column 8: store.fiel: unknown key fiel; a store has file or url",
            ),
        ] {
            let error = parse(&format!("{file}{more}\n")).unwrap_err();
            assert!(error.starts_with(told), "{more}: {error}");
        }
        // A profile stands in the same file.
        let text = "[profiles.work]\nsandbox = \"wide\"\n";
        let mut table = Document::parse(text).unwrap().as_table().clone();
        lay_over(&mut table, "work", &mut SettingSources::default()).unwrap();
        let error = settings_of(&table, SettingSources::default()).unwrap_err().with_position(text);
        assert!(error.starts_with("line 2, column 11: sandbox: "), "{error}");
    }
}
