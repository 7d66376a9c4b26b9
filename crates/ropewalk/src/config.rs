//! The person's settings file. A project may have one too, which may only narrow.
//!
//! A file that cannot be read is an error and not an empty file: it may have been meant to narrow.

mod acp;
mod agents;
mod codex;
mod models;
mod servers;
mod show;
mod source;
mod wrong;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ::bridge::Answers;
use agent::ProjectServer;
use sandbox::Mode;
use toml_edit::{Document, Item, Table, TableLike};

use crate::trouble::Trouble;
use crate::{paths, trust};

pub use acp::{AcpSettings, TransportChoice};
pub use agents::{AgentEntry, OURS};
pub use codex::CodexDefaults;
pub use models::{ModelEntry, ModelSettings, ProviderEntry};
pub use servers::{McpSettings, ServerEntry};
pub use show::{ServerSettings, run};
pub use source::{Setting, Source, Sources};
use wrong::{Wrong, each};

/// A larger file is not a settings file.
const BYTES_MAX: u64 = 1 << 20;
const PROJECT_FILE: &str = ".ropewalk/config.toml";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    pub sandbox: Option<Mode>,
    pub approval: Option<String>,
    /// The loosest preset that a session may have. Only the person's own file is asked.
    pub approval_max: Option<String>,
    pub ask_timeout: Option<u64>,
    /// How many seconds a command may run; 0 is as long as it takes.
    pub command_timeout: Option<u64>,
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands run in the terminal of an editor that offers one.
    pub editor_terminal: Option<bool>,
    /// Further variables that commands may see.
    pub environment: Vec<String>,
    /// Who else may come in over HTTP. Only the person's own file is asked.
    pub clients: Vec<ClientEntry>,
    /// Whether everybody may ask over HTTP what the server is.
    pub discovery_enabled: Option<bool>,
    /// Whom push services may write to. Only the person's own file is asked.
    pub push_contact: Option<String>,
    /// Only the person's own file is asked.
    pub models: ModelSettings,
    /// Tool servers for every session.
    pub mcp: McpSettings,
    /// Where people are who drive from elsewhere. Only the person's own file is asked.
    pub bridge: BridgeSettings,
    /// Where sessions are kept. Only the person's own file is asked.
    pub store: StoreSettings,
    /// The agent that works, if not our own. Only the person's own file is asked.
    pub agent: Option<String>,
    /// Agents that are other programs. Only the person's own file is asked.
    pub agents: Vec<AgentEntry>,
    /// What clients of the protocol are offered and how they come in. Only the person's own file is asked.
    pub acp: AcpSettings,
    /// What the person, and the project within limits, said to other agents.
    pub codex: CodexDefaults,
    /// Where each key was set.
    pub sources: Sources,
    /// What in the file means nothing here.
    pub unknown: Vec<String>,
    /// What else is not used, and why.
    pub warnings: Vec<String>,
}

/// What the command line says about settings files: the same for the whole process.
#[derive(Debug, Default)]
pub struct Choice {
    /// In place of the person's settings file and of those of other agents.
    pub file: Option<PathBuf>,
    /// Laid over the rest of the file.
    pub profile: Option<String>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Before anybody reads settings. Only the first choice counts.
pub fn choose(choice: Choice) {
    drop(CHOICE.set(choice));
}

/// What the command line says about settings files.
pub fn choice() -> Option<&'static Choice> {
    CHOICE.get()
}

/// The settings file that the command line names.
pub fn named_file() -> Option<&'static Path> {
    CHOICE.get()?.file.as_deref()
}

/// `[bridge]`. A token is never taken from a file: those are copied, shared and kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeSettings {
    pub remote_url: Option<String>,
    pub replay_window: Option<u64>,
    pub answers: Option<Answers>,
    /// The hub reads nothing.
    pub e2e: bool,
    /// Somebody wrote one there.
    pub has_token: bool,
}

/// `[store]`. An address with a password stands in a file of its own, or in a variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreSettings {
    pub url: Option<String>,
    pub file: Option<PathBuf>,
}

/// One of `[[clients]]`, as it stands there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientEntry {
    pub id: String,
    pub token_sha256: Option<String>,
    pub token: Option<String>,
}

/// The token is nobody's business.
impl std::fmt::Debug for ClientEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientEntry").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The person's own settings, with what variables and the files of other agents say.
pub fn user() -> Result<Config, Trouble> {
    let profile = CHOICE.get().and_then(|choice| choice.profile.as_deref());
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

/// How far a project lets its sessions reach, if it says so. A session below the project's folder is
/// one of its sessions: what is around it counts, up to the repository.
pub fn project_mode(workspace: &Path) -> Option<Mode> {
    project_folders(workspace)
        .flat_map(|folder| [mode_of(folder), codex::project_mode(folder)])
        .flatten()
        .min()
}

/// What each of the files says that decide about that: the mode, or why the file cannot be read.
pub fn project_modes(workspace: &Path) -> Vec<(PathBuf, Result<Mode, String>)> {
    let said = |folder: &Path| {
        let file = folder.join(PROJECT_FILE);
        let mode =
            read(&file).map_err(|trouble| trouble.in_short()).map(|config| config.sandbox).transpose()?;
        Some((file, mode))
    };
    project_folders(workspace).filter_map(said).collect()
}

/// The tool servers that a project names. The nearest file that names one decides.
pub fn project_entries(workspace: &Path) -> Result<Vec<ServerEntry>, String> {
    let mut entries: Vec<ServerEntry> = Vec::new();
    for folder in project_folders(workspace) {
        let path = folder.join(PROJECT_FILE);
        let config = read(&path).map_err(|trouble| trouble.in_short())?;
        for entry in config.mcp.servers {
            if entries.iter().all(|known| known.server.name != entry.server.name) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

/// The same for a session: what is enabled, as it is written. `${NAME}` stays as it is: whoever wrote the
/// project must not read the variables of whoever runs the agent.
pub fn project_servers(workspace: &Path) -> Result<Vec<ProjectServer>, String> {
    let entries = project_entries(workspace)?.into_iter().filter(|entry| entry.enabled);
    let server = |entry: ServerEntry| {
        let news = trust::news(workspace, &entry);
        ProjectServer { shown: entry.shown(), server: entry.server, news }
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
        Err(trouble) => {
            tracing::warn!(?trouble, "the project's settings cannot be read, so its sessions only read");
            Some(Mode::ReadOnly)
        }
    }
}

fn read(path: &Path) -> Result<Config, Trouble> {
    read_profile(path, None)
}

fn read_profile(path: &Path, profile: Option<&str>) -> Result<Config, Trouble> {
    let unusable = |reason: String| {
        Trouble::failed(format!("the settings in {} cannot be read", path.display()))
            .because(reason)
            .fix("fix the file or move it aside")
    };
    let text = text(path).map_err(unusable)?;
    let is_named = |named: &Path| std::path::absolute(named).is_ok_and(|named| named == path);
    if text.is_none() && named_file().is_some_and(is_named) {
        return Err(Trouble::usage(format!("there is no file {}", path.display()))
            .fix("name the settings file after --config, or leave --config out"));
    }
    let text = text.unwrap_or_default();
    let document = Document::parse(text.as_str()).map_err(|error| unusable(error.to_string()))?;
    // A copy, because a document that can be changed forgets where its values stood.
    let mut table = document.as_table().clone();
    let mut sources = Sources::of_file(path, &table);
    if let Some(name) = profile {
        lay_over(&mut table, name, &mut sources).map_err(|known| no_profile(name, &known, path))?;
    }
    settings_of(&table, sources).map_err(|wrong| unusable(wrong.told(&text)))
}

/// The text of a settings file, if it is there.
fn text(path: &Path) -> Result<Option<String>, String> {
    // A link that leads nowhere may be to settings that are stricter.
    let Some(file) = store::open_regular(path).map_err(|error| error.to_string())? else { return Ok(None) };
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err("it is too large".into());
    }
    Ok(Some(text))
}

/// Lays `[profiles.NAME]` over the file. If there is no such profile, names those that there are.
fn lay_over(table: &mut Table, name: &str, sources: &mut Sources) -> Result<(), Vec<String>> {
    let profiles = table.get("profiles").and_then(Item::as_table_like);
    let known = || profiles.map(|table| table.iter().map(|(name, _)| name.to_owned()).collect());
    let Some(profile) = profiles.and_then(|table| table.get(name)).and_then(Item::as_table_like) else {
        return Err(known().unwrap_or_default());
    };
    sources.walk("", profile, &Source::Profile(name.to_owned()));
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

fn no_profile(name: &str, known: &[String], path: &Path) -> Trouble {
    let fix = match known {
        [] => format!("write it as [profiles.{name}] in {}", path.display()),
        known => format!("one of {}", known.join(", ")),
    };
    Trouble::usage(format!("there is no profile {name:?}")).fix(fix)
}

#[cfg(test)]
fn parse(text: &str) -> Result<Config, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    settings_of(document.as_table(), Sources::default()).map_err(|wrong| wrong.told(text))
}

fn settings_of(table: &Table, sources: Sources) -> Result<Config, Wrong> {
    let mut config = Config { sources, ..Config::default() };
    each(table, |key, item| {
        match key {
            "sandbox" => config.sandbox = Some(text_of(key, item)?.parse().map_err(|e| format!("{e}"))?),
            "approval" => config.approval = Some(text_of(key, item)?.to_owned()),
            "approval_max" => config.approval_max = Some(text_of(key, item)?.to_owned()),
            "ask_timeout" => config.ask_timeout = Some(seconds_of(key, item)?),
            "command_timeout" => config.command_timeout = Some(seconds_of(key, item)?),
            "add_dirs" => config.add_dirs = list_of(key, item)?.into_iter().map(PathBuf::from).collect(),
            "terminal" => config.editor_terminal = Some(terminal_of(key, item)?),
            "environment" => config.environment = list_of(key, item)?,
            "clients" => config.clients = clients_of(item)?,
            "mcp" => config.mcp = servers::parse(item)?,
            "bridge" => config.bridge = bridge_of(item, &mut config.unknown)?,
            "store" => config.store = store_of(item)?,
            "agent" => config.agent = Some(text_of(key, item)?.to_owned()),
            "agents" => config.agents = agents::parse(item)?,
            "discovery_enabled" => config.discovery_enabled = Some(bool_of(key, item)?),
            "push_contact" => config.push_contact = Some(contact_of(key, item)?),
            // After everything else, and only where `--profile` names one.
            "acp" | "profiles" => {}
            _ if config.models.take(key, item)? => {}
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
    item.as_str().ok_or_else(|| format!("{key} must be a text in quotes"))
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
    let wrong = || format!("{key} must be a list of texts in quotes");
    let list = item.as_array().ok_or_else(wrong)?;
    list.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn pairs_of(key: &str, item: &Item) -> Result<Vec<(String, String)>, String> {
    let wrong = || format!("{key} must be a table of texts in quotes");
    let table = item.as_table_like().ok_or_else(wrong)?;
    table
        .iter()
        .map(|(name, item)| Ok((name.to_owned(), item.as_str().ok_or_else(wrong)?.to_owned())))
        .collect()
}

fn bridge_of(item: &Item, unknown: &mut Vec<String>) -> Result<BridgeSettings, Wrong> {
    let table = item.as_table_like().ok_or("bridge is written as [bridge], with a remote_url")?;
    let mut bridge = BridgeSettings::default();
    each(table, |key, item| {
        match key {
            "remote_url" => bridge.remote_url = Some(text_of(key, item)?.to_owned()),
            "replay_window" => {
                let number = item.as_integer().and_then(|number| u64::try_from(number).ok());
                bridge.replay_window = Some(number.ok_or("replay_window must be a number of events")?);
            }
            "answers" => {
                let wrong = || "answers must be \"anyone\", \"approver\" or \"local-only\"".to_owned();
                bridge.answers = Some(Answers::parse(text_of(key, item)?).ok_or_else(wrong)?);
            }
            "e2e" => bridge.e2e = item.as_bool().ok_or("e2e must be true or false")?,
            "auth_token" | "bridge_token" | "token" => bridge.has_token = true,
            other => unknown.push(format!("bridge.{other}")),
        }
        Ok(())
    })?;
    Ok(bridge)
}

fn store_of(item: &Item) -> Result<StoreSettings, Wrong> {
    let table = item.as_table_like().ok_or("store is written as [store], with a file or a url")?;
    let mut store = StoreSettings::default();
    each(table, |key, item| {
        match key {
            "url" => store.url = Some(text_of(key, item)?.to_owned()),
            "file" => store.file = Some(paths::below_home(text_of(key, item)?)),
            // A misspelt word would send sessions elsewhere.
            _ => return Err(format!("a store has a file or a url, not {key}").into()),
        }
        Ok(())
    })?;
    Ok(store)
}

fn clients_of(item: &Item) -> Result<Vec<ClientEntry>, Wrong> {
    let tables = item.as_array_of_tables().ok_or("clients are written as [[clients]], each with an id")?;
    tables.iter().map(client_of).collect()
}

fn client_of(table: &Table) -> Result<ClientEntry, Wrong> {
    let mut client = ClientEntry::default();
    each(table, |key, item| {
        match key {
            "id" => client.id = text_of(key, item)?.to_owned(),
            "token_sha256" => client.token_sha256 = Some(text_of(key, item)?.to_owned()),
            "token" => client.token = Some(text_of(key, item)?.to_owned()),
            // A misspelt word here may have been meant to keep somebody out.
            _ => return Err(format!("a client has id and token_sha256, not {key}").into()),
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
        assert_eq!((config.bridge.replay_window, config.bridge.answers), (Some(9), Some(Answers::LocalOnly)));
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
            let mut sources = Sources::of_file(Path::new("/c"), &table);
            lay_over(&mut table, name, &mut sources)?;
            Ok::<_, Vec<String>>(settings_of(&table, sources).unwrap())
        };
        let config = laid("work").unwrap();
        assert_eq!(config.approval.as_deref(), Some("strict"));
        assert_eq!((config.bridge.remote_url.as_deref(), config.bridge.e2e), (Some("https://b"), true));
        assert_eq!(config.sources.of("approval"), Source::Profile("work".into()));
        assert_eq!(config.sources.of("bridge.e2e"), Source::File("/c".into()));
        assert!(config.unknown.is_empty());
        assert_eq!(laid("home").unwrap_err(), ["work"]);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_never_taken_for_nothing() {
        for (text, said) in [
            ("[acp]\nmax_sessions = 0", "from 1 on"),
            ("[acp]\npermission_file = \"rules.toml\"", "a whole path"),
            ("[acp]\ntransport = \"pigeon\"", "\"stdio\", \"http\" or \"both\""),
            ("[acp]\ndisable = [\"session/new\"]", "not \"session/new\""),
            ("[acp.timeouts]\nterminal_secs = -1", "a number of seconds"),
            ("sandbox = \"wide\"", "is not a sandbox mode"),
            ("sandbox = 1", "sandbox must be a text"),
            ("sandbox = ", "expected"),
            ("ask_timeout = -1", "a number of seconds"),
            ("add_dirs = [1]", "a list of texts"),
            ("terminal = \"mine\"", "\"editor\" or \"own\""),
            ("clients = 1", "[[clients]]"),
            ("discovery_enabled = 0", "true or false"),
            ("push_contact = \"ops@example.com\"", "a mailto: or https: address"),
            ("[[clients]]\nid = 1", "id must be a text"),
            ("[[clients]]\nid = \"a\"\ntokn = \"b\"", "not tokn"),
            ("[[providers]]\nname = \"a\"\nkey = \"b\"", "name that as key_env"),
            ("[[providers]]\nname = \"A b\"", "small letters"),
            ("[[providers]]\nname = \"a\"\nwire = \"smoke\"", "wire is"),
            ("[[providers]]\nname = \"a\"\nbase_url = \"ftp://a\"", "https://"),
            ("[[models]]\nid = \"a\"", "provider:model"),
            ("[[models]]\nid = \"a:b\"\nprice = { input = 1 }", "needs input and output"),
            ("[budget]\nday_usd = -1", "an amount of US dollars"),
            ("[budget]\nday = 1", "not day"),
            ("max_turns = 0", "from 1 on"),
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
                "line 7, column 16: acp.max_sessions: max_sessions must be a number from 1 on",
            ),
            ("timeouts = { mcp_secs = \"ü\", x = 1 }", "line 7, column 25: acp.timeouts.mcp_secs: "),
            (
                "[[providers]]\nname = \"a\"\nwire = \"x\"",
                "line 9, column 8: providers.wire: wire is anthropic",
            ),
            ("[mcp.servers.git]\nargs = 1", "line 8, column 8: mcp.servers.git.args: args must be a list"),
            ("[mcp.servers.git]\nargs = []", "line 7, column 1: mcp.servers.git: it needs command"),
            ("[agents.me]\nsandbox = \"wide\"", "line 8, column 11: agents.me.sandbox: "),
            ("[[models]]\nid = \"a:b\"\nprice = { input = -1 }", "line 9, column 19: models.price.input: "),
            ("[store]\nfiel = \"x\"", "line 8, column 8: store.fiel: a store has a file or a url, not fiel"),
        ] {
            let error = parse(&format!("{file}{more}\n")).unwrap_err();
            assert!(error.starts_with(told), "{more}: {error}");
        }
        // A profile stands in the same file.
        let text = "[profiles.work]\nsandbox = \"wide\"\n";
        let mut table = Document::parse(text).unwrap().as_table().clone();
        lay_over(&mut table, "work", &mut Sources::default()).unwrap();
        let error = settings_of(&table, Sources::default()).unwrap_err().told(text);
        assert!(error.starts_with("line 2, column 11: sandbox: "), "{error}");
    }
}
