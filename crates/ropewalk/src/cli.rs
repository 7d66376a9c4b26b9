//! The command line: commands, options and their help texts. Old spellings still work but are hidden.

mod agents;
mod audit;
mod bridge;
mod chat;
mod config;
mod environment_variables;
mod http;
mod hub;
mod mcp;
mod models;
mod other_programs;
mod permissions;
mod run;
mod share;
mod store;
mod up;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use sandbox::Mode;
use wire::{Dialect, DialectSelection};

use other_programs::TypedCommand;

use crate::external_agents::{TYPOS_MAX, typos};
use crate::sessions::PastTime;

pub use agents::{
    AgentOptions, AgentsCheckOptions, AgentsCommand, AgentsInstallHintOptions, AgentsListOptions,
    AgentsModesOptions, AgentsReplayOptions,
};
pub use audit::{
    AuditAcknowledgeOptions, AuditArchiveOptions, AuditCommand, AuditExportOptions, AuditFormat,
    AuditQueryOptions, AuditSealOptions, AuditShowOptions, AuditVerifyOptions,
};
pub use bridge::{BridgeOptions, ServeBridgeOptions};
pub use chat::{AttachOptions, ChatOptions, SessionChoice};
pub use config::{ConfigCommand, ConfigShowOptions};
pub use http::{HttpOptions, ServeCommand, StatusOptions, StopOptions};
pub use hub::{
    HubArguments, HubAuditOptions, HubCommand, HubExportOptions, HubLinkOptions, HubOptions,
    HubSessionsOptions, HubStatusOptions, HubStoreOptions, HubTokenOptions,
};
pub use mcp::{
    McpAddOptions, McpCheckOptions, McpCommand, McpListOptions, McpRemoveOptions, McpServeOptions,
    McpTrustOptions, McpUntrustOptions,
};
pub use models::{BudgetOptions, CostOptions, ModelsCommand};
pub use permissions::{
    EffectArg, PermissionsAddOptions, PermissionsCommand, PermissionsListOptions, PermissionsRemoveOptions,
    PermissionsWhyOptions, RuleLocationArgs,
};
pub use run::{RunFormat, RunOptions};
pub use share::ShareOptions;
pub use store::{BackupOptions, DoctorOptions, GlobalStoreOptions, RestoreOptions};
pub use store::{SalvageOptions, StoreOptions};
pub use up::{DevicesCommand, DevicesListOptions, DevicesRevokeOptions};
pub use up::{LinkOptions, PairOptions, ServerChoice, UpOptions};

const HISTORY_MAX: usize = 100;

const AFTER_HELP: &str = "\
Without a command, `ropewalk` runs `ropewalk up` on a terminal. Started by another program, it serves
the Agent Client Protocol on standard input and output.

Environment:
  ROPEWALK_HOME            Folder for all state (default: ropewalk in $XDG_STATE_HOME or ~/.local/state)
  ROPEWALK_PERMISSIONS     File with your permission rules (default: permissions.toml in
                           $ROPEWALK_HOME, $XDG_CONFIG_HOME/ropewalk or ~/.config/ropewalk)
  ROPEWALK_STORE_URL       PostgreSQL database for sessions, as postgres://USER:PASSWORD@HOST/NAME
                           (default: sessions.db in the state folder)
  ROPEWALK_BRIDGE_TOKEN    Token for `bridge` and --bridge
  ROPEWALK_SERVER_TOKEN    Token for `serve --http` (default: generated and kept in http.token)
  ROPEWALK_AUDIT_KEY_PATH  File with the audit key (default: audit.key in the state folder)
  ROPEWALK_MODEL           Model for new sessions; see `ropewalk models list`
  ROPEWALK_OFFLINE         Set to any value to offer only the offline model
  ROPEWALK_SHARE_URL       Where `sessions share` uploads to; ROPEWALK_SHARE_TOKEN is its token
  OTEL_EXPORTER_OTLP_ENDPOINT  OpenTelemetry collector for traces; --otlp takes precedence
  NO_COLOR                 Set to any value to turn colours off

Variables of other programs that Ropewalk also reads: docs/guide/coming-from.md";

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Agent server for coding sessions that survive restarts, served to any editor, browser or phone",
    after_help = AFTER_HELP
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<TypedCommand>,

    #[command(flatten)]
    serve: ServeOptions,

    /// Log more to standard error; use twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Settings file to use instead of your own and those in .codex folders
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Apply [profiles.NAME] of the settings file over the rest of it
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,

    /// True if only the program name was typed.
    #[arg(skip)]
    bare: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub enum CliCommand {
    /// Start here: serve the web app on this machine and open it
    Up(Box<UpOptions>),
    /// Talk to the agent in this terminal
    Chat(Box<ChatOptions>),
    /// Join a session in this terminal
    Attach(AttachOptions),
    /// Connect a session on this machine to a hub, so people can steer it from elsewhere
    Bridge(Box<BridgeOptions>),
    /// Print a link that signs a browser in to the running server
    Link(LinkOptions),
    /// Pair a phone or another computer with a QR code
    Pair(PairOptions),
    /// List and revoke paired devices
    #[command(subcommand, alias = "device")]
    Devices(DevicesCommand),
    /// Serve editors over standard input and output, or HTTP
    Serve(Box<ServeArguments>),
    /// Run a hub: one place to see and steer the sessions of many machines
    Hub(Box<HubArguments>),
    /// Send the agent one prompt and wait for its answer
    Run(Box<RunOptions>),
    /// List, read, copy and delete sessions
    #[command(alias = "session")]
    Sessions(SessionsArguments),
    /// Show which models are available, and what others need
    #[command(subcommand, alias = "model")]
    Models(ModelsCommand),
    /// Check the sandbox, the settings and the stored data on this machine
    Doctor(DoctorOptions),
    /// Back up sessions, audit, rules, settings and devices to one file, even while servers run
    Backup(BackupOptions),
    /// Restore a backup
    Restore(RestoreOptions),
    /// Show, change and explain permission rules
    #[command(subcommand, alias = "permission")]
    Permissions(PermissionsCommand),
    /// Manage the MCP servers that provide tools to every session
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Run a command in the sandbox
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List and check agents, and show the modes of the built-in one
    #[command(subcommand, alias = "agent")]
    Agents(AgentsCommand),
    /// Print the configuration for Zed, JetBrains, Neovim, Emacs or VS Code
    Editors(EditorOptions),
    /// Show the effective settings and where each comes from
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `serve`, or one of its subcommands about running servers.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServeArguments {
    #[command(subcommand)]
    pub command: Option<ServeCommand>,

    #[command(flatten)]
    pub options: ServeOptions,
}

#[derive(Debug, Clone, Args)]
pub struct ServeOptions {
    /// Maximum number of sessions in memory (default: 16); the one idle longest makes room
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,

    /// Seconds until an idle session leaves memory (default: 1800, 0: never). It stays on disk
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Seconds until an unanswered permission request is refused (default: no limit)
    #[arg(long, value_name = "SECONDS")]
    pub ask_timeout: Option<u64>,

    /// Sessions per page of a listing; 0 lists all
    #[arg(long, value_name = "N", default_value_t = HISTORY_MAX)]
    pub max_history: usize,

    /// Allow sessions to work in this folder too; repeatable. Default: any folder the editor names; over
    /// HTTP, only the server's own
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// Folder for sessions whose client names none (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Dialect of the clients: auto (detect it from their first message), acp, ferret, otter, bernstein
    #[arg(long, value_enum, value_name = "DIALECT", default_value_t = DialectChoice::Auto)]
    pub dialect: DialectChoice,

    /// The dialect to prefer, if the command of another program was typed.
    #[arg(skip)]
    pub preferred: Option<Dialect>,

    /// Model for new sessions
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// Name that the agent gives the editor (default: ropewalk)
    #[arg(long, value_name = "NAME")]
    pub agent_name: Option<String>,

    /// Send a trace of every turn to this OpenTelemetry collector, e.g. http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,

    #[command(flatten)]
    pub guard: GuardOptions,

    #[command(flatten)]
    pub http: HttpOptions,

    #[command(flatten)]
    pub bridge: ServeBridgeOptions,

    /// Serve an editor on standard input and output (the default without --http). With --http, join your
    /// server if it already runs at that address
    #[arg(long)]
    pub stdio: bool,

    #[arg(long, hide = true)]
    pub acp: bool,

    /// Command of an agent that speaks the Agent Client Protocol, after --
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "agent")]
    pub command: Vec<OsString>,
}

/// What the agent may do, the same for every door.
#[derive(Debug, Clone, Default, Args)]
pub struct GuardOptions {
    /// Sandbox mode for the agent's tools and commands: read-only, workspace-write (default),
    /// workspace-write-network, off
    #[arg(long, value_name = "MODE")]
    pub sandbox: Option<Mode>,

    /// What the agent may do without asking: read-only, strict, suggest, auto (default), full.
    /// With `run`, it applies to that run only
    #[arg(long, value_name = "PRESET")]
    pub approval: Option<String>,

    /// Loosest approval preset that anyone may choose for a session here (default: full)
    #[arg(long, value_name = "PRESET")]
    pub approval_max: Option<String>,

    /// Let the agent write to this folder too; repeatable
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,

    /// Offer only these tools, separated by commas, such as Read,Edit,Bash
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub allowed_tools: Option<Vec<String>>,

    /// Ignore the project's instruction files (AGENTS.md and the like)
    #[arg(long)]
    pub no_rules: bool,

    /// What to do if the operating system cannot enforce the sandbox. on: do not start; auto: start, but
    /// refuse commands
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = OsSandbox::Auto)]
    pub os_sandbox: OsSandbox,

    /// Keep everything in memory: nothing is saved or audited, and sessions are gone when this process exits
    #[arg(long, alias = "no-save")]
    pub ephemeral: bool,

    /// Also write every session to this folder, in chimera's event log format
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub eventlog: Option<PathBuf>,

    #[command(flatten)]
    pub store: StoreOptions,

    #[arg(long, value_name = "PRESET", hide = true)]
    pub permission_mode: Option<String>,
    #[arg(long, hide = true)]
    pub full_auto: bool,
    #[arg(long, hide = true)]
    pub yolo: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OsSandbox {
    #[default]
    Auto,
    On,
    #[value(hide = true)]
    Off,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DialectChoice {
    #[default]
    Auto,
    Acp,
    Ferret,
    Otter,
    Bernstein,
}

impl ServeOptions {
    pub fn spoken(&self) -> DialectSelection {
        match self.dialect {
            DialectChoice::Auto => {
                self.preferred.map_or(DialectSelection::Detected, DialectSelection::Preferred)
            }
            DialectChoice::Acp => DialectSelection::Only(Dialect::Acp),
            DialectChoice::Ferret => DialectSelection::Only(Dialect::Ferret),
            DialectChoice::Otter => DialectSelection::Only(Dialect::Otter),
            DialectChoice::Bernstein => DialectSelection::Only(Dialect::Bernstein),
        }
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum SandboxCommand {
    /// Run a command in the sandbox, as the agent would
    Run(SandboxRunOptions),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Refusals are printed to standard error. The exit code is that of the command,\n\
    125 if the sandbox could not be set up, or 128 plus the signal number if a signal ended it.\n\n\
    Example: ropewalk sandbox run workspace-write -- sh -c 'echo x > /etc/x'")]
pub struct SandboxRunOptions {
    /// read-only, workspace-write, workspace-write-network, off
    pub mode: Mode,

    /// Folder to work in (default: the current folder)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Make this folder writable too; repeatable
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,

    /// Seconds until the command is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub timeout: u64,

    /// Print refusals as JSON to standard error, one object per line
    #[arg(long)]
    pub json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub struct SessionsArguments {
    #[command(subcommand)]
    pub command: SessionsCommand,

    #[command(flatten)]
    pub store: GlobalStoreOptions,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// List sessions, latest first
    #[command(alias = "ls")]
    List(ListOptions),
    /// Print the conversation of a session
    Show(ShowOptions),
    /// Show costs by turn, session and model
    Cost(CostOptions),
    /// Export a session to a file
    Export(ExportOptions),
    /// Upload a session and print its address
    Share(ShareOptions),
    /// Import an exported session
    Import(ImportOptions),
    /// Copy a session to continue it separately
    Fork(ForkOptions),
    /// Rename a session
    Rename(RenameOptions),
    /// Delete sessions permanently
    #[command(alias = "rm")]
    Delete(DeleteOptions),
    /// Recover what is readable in a damaged session file into a new one
    Salvage(SalvageOptions),
}

#[derive(Debug, Clone, Args)]
pub struct ListOptions {
    /// Only sessions in this folder
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Maximum number to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, conflicts_with = "all")]
    pub limit: usize,

    /// List all, including sessions that were never prompted
    #[arg(short, long)]
    pub all: bool,

    /// Only sessions active since: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = PastTime::parse)]
    pub since: Option<PastTime>,

    /// Only sessions that chose this model; part of its name is enough
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Also list the sessions in ~/.chimera/eventlog
    #[arg(long)]
    pub all_clis: bool,

    /// The id prefix of the program whose command was typed: lists its event-log sessions.
    #[arg(skip)]
    pub folders_of: Option<&'static str>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ShowOptions {
    /// Session id, or a unique prefix of it
    pub id: String,

    /// Show long tool output in full
    #[arg(long)]
    pub full: bool,

    /// Print every event as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ExportOptions {
    /// Session id, or a unique prefix of it
    pub id: String,

    /// json and chimera can be imported again; markdown and html are for reading.
    /// Default: by the file extension, otherwise json
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub format: Option<ExportFormat>,

    /// File to write to (default: standard output). For chimera, the folder to put the session in
    #[arg(short, long, value_name = "FILE|DIR")]
    pub output: Option<PathBuf>,

    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Json,
    #[value(alias = "md")]
    Markdown,
    Html,
    Chimera,
}

#[derive(Debug, Clone, Args)]
pub struct ImportOptions {
    /// Exported file, event-log folder of chimera, or `-` for standard input
    #[arg(value_name = "FILE|DIR")]
    pub source: PathBuf,

    /// Folder for the imported session to work in (default: the one it had)
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Key for a sealed hub export: sealed.json of the machine that sealed it (default: this machine's)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ForkOptions {
    /// Session id, or a unique prefix of it
    #[arg(required_unless_present = "last", conflicts_with = "last")]
    pub id: Option<String>,

    /// Use the session that was active last, in any folder
    #[arg(long)]
    pub last: bool,

    /// With --last, in every folder, which is the default.
    #[arg(long, hide = true, requires = "last")]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RenameOptions {
    /// Session id, or a unique prefix of it
    pub id: String,

    /// New title
    pub title: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct DeleteOptions {
    /// Session ids, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,

    /// Delete without asking
    #[arg(short, long)]
    pub yes: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct EditorOptions {
    /// Only this editor
    #[arg(value_parser = crate::editor_snippets::NAMES)]
    pub editor: Option<String>,
}

impl Cli {
    pub fn read() -> Result<Self, clap::Error> {
        Self::from_words(std::env::args_os())
    }

    fn from_words(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut command = environment_variables::without_empty(<Self as CommandFactory>::command());
        let matches = command.try_get_matches_from_mut(words).map_err(|error| {
            let error = environment_variables::name_variable(&command, error);
            explain_typo(&mut command, error)
        })?;
        Self::of(&matches)
    }

    /// Refuses options of `serve` before another command. If clap did that, it would refuse `-v` there too.
    fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut command = <Self as CommandFactory>::command();
        let given = |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let known = |id: &clap::Id| {
            command.get_arguments().find(|argument| argument.get_id() == id && !argument.is_global_set())
        };
        // The ids include global options of subcommands, which this command does not define.
        let misplaced = matches.ids().find_map(|id| known(id).filter(|_| given(id)));
        let Some(name) = matches.subcommand_name() else {
            return Ok(Self { bare: misplaced.is_none(), ..Self::from_arg_matches(matches)? });
        };
        if let Some(option) = misplaced.and_then(|argument| argument.get_long()) {
            let message = format!("--{option} is an option of `serve`; it cannot come before `{name}`");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Self::from_arg_matches(matches)
    }

    /// The command to carry out. Typing only the program name on a terminal means `up`; editors start it
    /// without a terminal and mean `serve`.
    pub fn command(self, terminal: bool) -> Result<CliCommand, clap::Error> {
        match self.command {
            Some(command) => command.into_command(),
            None if terminal && self.bare => Ok(CliCommand::Up(Box::default())),
            None => Ok(CliCommand::Serve(Box::new(ServeArguments { command: None, options: self.serve }))),
        }
    }
}

impl CliCommand {
    /// Whether the command may draw a full screen, so that nothing else may be written there.
    pub fn draws(&self) -> bool {
        match self {
            Self::Chat(options) => !options.plain,
            Self::Attach(options) => !options.plain,
            Self::Bridge(options) => !options.plain,
            _ => false,
        }
    }

    /// Whether the command creates the state folder if it is missing.
    pub fn makes_state(&self) -> bool {
        match self {
            Self::Chat(_) | Self::Run(_) => true,
            Self::Sessions(arguments) => matches!(arguments.command, SessionsCommand::Import(_)),
            _ => self.serves(),
        }
    }

    /// The options of the command that choose the session store.
    pub fn store(&self) -> StoreOptions {
        match self {
            Self::Up(options) => options.guard.store.clone(),
            Self::Chat(options) => options.guard.store.clone(),
            Self::Bridge(options) => options.guard.store.clone(),
            Self::Serve(arguments) => arguments.options.guard.store.clone(),
            Self::Run(options) => options.guard.store.clone(),
            Self::Mcp(McpCommand::Serve(options)) => options.guard.store.clone(),
            Self::Sessions(arguments) => arguments.store.clone().into(),
            _ => StoreOptions::default(),
        }
    }

    pub fn serves(&self) -> bool {
        match self {
            Self::Up(_) | Self::Bridge(_) => true,
            Self::Serve(arguments) => arguments.command.is_none(),
            Self::Hub(arguments) => arguments.command.is_none(),
            _ => false,
        }
    }
}

/// Reports an unknown subcommand as such. Because a command may follow `--`, clap takes it for an unexpected argument.
fn explain_typo(command: &mut clap::Command, mut error: clap::Error) -> clap::Error {
    // For a wrong value, clap names the placeholder and not the word.
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    // Clap's tip to put an unknown option after `--` would start a program with that name.
    error.remove(ContextKind::Suggested);
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let names = command.get_subcommands().map(|known| known.get_name().to_owned());
    let near: Vec<String> = names.filter(|name| typos(name, &word) <= TYPOS_MAX).collect();
    let tip = match near.is_empty() {
        true => String::new(),
        false => format!("\n\n  tip: a similar subcommand exists: '{}'", near.join("', '")),
    };
    command.error(ErrorKind::InvalidSubcommand, format!("unrecognized subcommand '{word}'{tip}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Cli, String> {
        Cli::from_words(line.split(' ')).map_err(|error| error.to_string())
    }

    #[test]
    fn a_wrong_value_is_told_with_the_right_ones() {
        for (line, told) in [
            ("ropewalk permissions add maybe shell", "[possible values: allow, ask, deny]"),
            ("ropewalk permissions add maybe shell", "'maybe'"),
            ("ropewalk sesions list", "a similar subcommand exists: 'sessions'"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains(told) && !error.contains("subcommand '<"), "{line}: {error}");
        }
    }

    #[test]
    fn every_spelling_of_serve_serves() {
        for line in [
            "ropewalk",
            "ropewalk --acp",
            "ropewalk --stdio",
            "ropewalk serve --acp",
            "ropewalk acp",
            "ropewalk acp --stdio",
            "ropewalk acp serve --stdio",
            "ropewalk -v acp serve",
            "ropewalk serve --http",
            "ropewalk --http :0 --stdio",
            "ropewalk acp serve --http 8062",
        ] {
            assert!(check(line).unwrap().command(false).unwrap().serves(), "{line}");
        }
    }

    #[test]
    fn the_bare_name_is_up_for_people_and_serve_for_programs() {
        let is_up =
            |line: &str, terminal| matches!(check(line).unwrap().command(terminal), Ok(CliCommand::Up(_)));
        assert!(is_up("ropewalk", true) && is_up("ropewalk -v", true));
        assert!(!is_up("ropewalk", false));
        for line in ["ropewalk --acp", "ropewalk --http :0", "ropewalk serve", "ropewalk --model x"] {
            assert!(!is_up(line, true), "{line}");
        }
    }

    #[test]
    fn asking_about_a_server_does_not_serve() {
        for line in ["ropewalk serve status", "ropewalk serve stop --all", "ropewalk serve status --json"] {
            assert!(!check(line).unwrap().command(false).unwrap().serves(), "{line}");
        }
    }

    #[test]
    fn the_option_for_more_logs_stands_anywhere() {
        for line in ["ropewalk -v sessions list", "ropewalk sessions -v list", "ropewalk sessions list -v"] {
            assert_eq!(check(line).unwrap().verbose, 1, "{line}");
        }
    }

    #[test]
    fn an_agent_is_named_or_written_out_after_two_dashes() {
        let serve = |line: &str| match check(line).map(|cli| cli.command(true).unwrap()) {
            Ok(CliCommand::Serve(arguments)) => Ok(arguments.options),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(
            serve("ropewalk serve --agent opencode").unwrap().agent.agent.as_deref(),
            Some("opencode")
        );
        for line in
            ["ropewalk serve --http :0 -- my-agent --http x", "ropewalk --http :0 -- my-agent --http x"]
        {
            assert_eq!(serve(line).unwrap().command, ["my-agent", "--http", "x"], "{line}");
        }
        assert_eq!(serve("ropewalk serve -- status --json").unwrap().command, ["status", "--json"]);
        assert!(serve("ropewalk serve --agent a -- b").unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn zephs_way_to_run_an_agent_is_run() {
        let cli = check("ropewalk acp run-agent --command opencode --prompt --hello --cwd /tmp --timeout 9");
        let CliCommand::Run(run) = cli.unwrap().command(false).unwrap() else { panic!("it is run") };
        assert_eq!(
            (run.prompt.as_str(), run.command.as_deref(), run.timeout),
            ("--hello", Some("opencode"), Some(9))
        );
        assert_eq!(run.session.cwd, Some("/tmp".into()));
    }

    #[test]
    fn nobody_is_told_to_write_an_unknown_option_where_a_program_is_started() {
        for line in [
            "ropewalk serve --tls",
            "ropewalk otter serve --acp --tls",
            "ropewalk otter serve --pure",
            "ropewalk --x",
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains("unexpected argument") && !error.contains("-- --"), "{line}: {error}");
        }
        let error = check("ropewalk otter serve --htp").unwrap_err();
        assert!(error.contains("'--http'"), "what was meant is still named: {error}");
    }

    #[test]
    fn what_is_mistyped_is_said() {
        let error = check("ropewalk sesions").unwrap_err();
        assert!(error.contains("unrecognized subcommand") && error.contains("'sessions'"), "{error}");
        let error = check("ropewalk --max-sessions 3 sessions list").unwrap_err();
        assert!(
            error.contains("--max-sessions is an option of `serve`; it cannot come before `sessions`"),
            "{error}"
        );
    }
}
