//! The command line. Older spellings of the same thing are accepted and not shown.

mod agents;
mod audit;
mod bridge;
mod chat;
mod config;
mod http;
mod hub;
mod mcp;
mod models;
mod older;
mod permissions;
mod run;
mod share;
mod store;
mod up;
mod variables;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use sandbox::Mode;
use wire::{Dialect, Spoken};

use older::TypedCommand;

use crate::external::{TYPOS_MAX, typos};
use crate::sessions::Since;

pub use agents::{
    AgentOptions, AgentsCheckOptions, AgentsCommand, AgentsHintOptions, AgentsListOptions,
    AgentsModesOptions, AgentsReplayOptions,
};
pub use audit::{
    AuditAcknowledgeOptions, AuditArchiveOptions, AuditCommand, AuditExportOptions, AuditFormat,
    AuditQueryOptions, AuditSealOptions, AuditShowOptions, AuditVerifyOptions,
};
pub use bridge::{AlsoBridge, BridgeOptions};
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
    PermissionsAddOptions, PermissionsCommand, PermissionsListOptions, PermissionsRemoveOptions,
    PermissionsWhyOptions, RulePlace, RuleWord,
};
pub use run::{RunFormat, RunOptions};
pub use share::ShareOptions;
pub use store::{
    BackupOptions, DoctorOptions, GlobalStoreOptions, RestoreOptions, SalvageOptions, StoreOptions,
};
pub use up::{
    DevicesCommand, DevicesListOptions, DevicesRevokeOptions, LinkOptions, PairOptions, ServerChoice,
    UpOptions,
};

const HISTORY_MAX: usize = 100;

const AFTER_HELP: &str = "\
Without a command, ropewalk on a terminal is `ropewalk up`; started by a program, it serves the Agent
Client Protocol on standard input and output.

Environment:
  ROPEWALK_HOME   The folder of everything that is kept; without it, $XDG_STATE_HOME/ropewalk
  XDG_STATE_HOME  Without it, ~/.local/state
  ROPEWALK_PERMISSIONS  The file of your rules; without it, permissions.toml in $ROPEWALK_HOME,
                  else in $XDG_CONFIG_HOME/ropewalk or ~/.config/ropewalk
  ROPEWALK_STORE_URL  The PostgreSQL that keeps sessions, as postgres://USER:PASSWORD@HOST/NAME;
                  without it, sessions.db in that folder
  ROPEWALK_BRIDGE_TOKEN  The token of `bridge` and --bridge; FERRET_BRIDGE_TOKEN is looked for too
  ROPEWALK_SERVER_TOKEN  The token of `serve --http`; without it, one is made and kept in http.token
  ROPEWALK_AUDIT_KEY_PATH  The file with the audit's key; without it, audit.key in that folder
  ROPEWALK_MODEL  The model of new sessions; `ropewalk models list` says which there are and which
                  variables with keys are looked for
  ROPEWALK_OFFLINE  Set to anything, nothing but the offline model is offered
  OTEL_EXPORTER_OTLP_ENDPOINT  The collector that a server sends traces to; --otlp goes before it
  OTTER_LOG       Set to 1, a server logs every JSON-RPC message on standard error, as with -v
  OTTER_SHARE_URL  Where `sessions share` sends to; OTTER_SHARE_TOKEN is the token for it
  NO_COLOR        Set to anything, there are no colours";

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Many hands, one line: coding sessions that survive, served to any editor",
    after_help = AFTER_HELP
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<TypedCommand>,

    #[command(flatten)]
    serve: ServeOptions,

    /// Say more on standard error; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// A settings file in place of your own and of those in .codex folders
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Settings from [profiles.NAME] of the settings file go before the rest of it
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,

    /// Nothing but the program's name was typed.
    #[arg(skip)]
    bare: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Start here: serve the web app on this machine, and open it
    Up(Box<UpOptions>),
    /// Talk to the agent in this terminal
    Chat(Box<ChatOptions>),
    /// Take part in a session, in this terminal
    Attach(AttachOptions),
    /// Let people drive a session of this machine from an address elsewhere
    Bridge(Box<BridgeOptions>),
    /// Print a link that signs a browser in to the server that runs
    Link(LinkOptions),
    /// Let a phone or another computer in, by a QR code
    Pair(PairOptions),
    /// Show and shut out the devices that may come in
    #[command(subcommand, alias = "device")]
    Devices(DevicesCommand),
    /// Serve editors on standard input and output, or over HTTP
    Serve(Box<ServeArguments>),
    /// Be the remote side of bridges: sessions of many machines, for people with browsers
    Hub(Box<HubArguments>),
    /// Give the agent one prompt and wait for its answer
    Run(Box<RunOptions>),
    /// List, read, copy and remove sessions
    #[command(alias = "session")]
    Sessions(SessionsArguments),
    /// Show which models were found, and what is missing for others
    #[command(subcommand, alias = "model")]
    Models(ModelsCommand),
    /// Say what this machine can enforce, what is wrong, and whether what is stored is damaged
    Doctor(DoctorOptions),
    /// Write all sessions, the audit, rules, settings and devices to one file, also while servers run
    Backup(BackupOptions),
    /// Bring back what a backup has
    Restore(RestoreOptions),
    /// Show, change and explain the rules for what the agent may do
    #[command(subcommand, alias = "permission")]
    Permissions(PermissionsCommand),
    /// Show, change and try the MCP servers that bring tools to every session
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Try the sandbox
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Read and verify the record of who did what
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show the agents that can work behind Ropewalk, try them, and show the modes of its own
    #[command(subcommand, alias = "agent")]
    Agents(AgentsCommand),
    /// Show what to paste into Zed, JetBrains, Neovim, Emacs or VS Code
    Editors(EditorOptions),
    /// Show the settings that hold here, and where each comes from
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `serve`, or a question about a server that runs.
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
    /// Sessions kept in memory at once, 16 without it; the one idle longest makes room
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,

    /// Seconds after which an idle session leaves memory, 1800 without it; it stays on disk. 0: never
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Seconds a permission request waits before it is refused; without it, as long as it takes
    #[arg(long, value_name = "SECONDS")]
    pub ask_timeout: Option<u64>,

    /// Sessions on one page of a listing; 0 lists all
    #[arg(long, value_name = "N", default_value_t = HISTORY_MAX)]
    pub max_history: usize,

    /// A further folder that sessions may work in; repeat for more. Without it, any the editor names;
    /// over HTTP, only the server's own
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// The folder of sessions whose client names none; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// What clients speak: auto (their first words decide), acp, ferret, otter, bernstein
    #[arg(long, value_enum, value_name = "DIALECT", default_value_t = DialectChoice::Auto)]
    pub dialect: DialectChoice,

    /// The dialect of the command that was typed, if it is that of another program.
    #[arg(skip)]
    pub preferred: Option<Dialect>,

    /// The model of new sessions
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    #[command(flatten)]
    pub budget: BudgetOptions,

    #[command(flatten)]
    pub agent: AgentOptions,

    /// How the agent introduces itself to the editor; without it, ropewalk
    #[arg(long, value_name = "NAME")]
    pub agent_name: Option<String>,

    /// Send a trace of every turn to this OpenTelemetry collector, as in http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,

    #[command(flatten)]
    pub guard: GuardOptions,

    #[command(flatten)]
    pub http: HttpOptions,

    #[command(flatten)]
    pub bridge: AlsoBridge,

    /// Serve an editor on standard input and output; the default without --http. With it, a server of yours
    /// that runs there already is joined
    #[arg(long)]
    pub stdio: bool,

    #[arg(long, hide = true)]
    pub acp: bool,

    /// The agent that works, as a command that speaks the Agent Client Protocol, after --
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "agent")]
    pub command: Vec<OsString>,
}

/// What the agent may do, the same for every door.
#[derive(Debug, Clone, Default, Args)]
pub struct GuardOptions {
    /// How far its tools and commands reach: read-only, workspace-write (the default),
    /// workspace-write-network, off
    #[arg(long, value_name = "MODE")]
    pub sandbox: Option<Mode>,

    /// What it may do without asking: read-only, strict, suggest, auto (the default), full.
    /// With `run` it holds for that run alone
    #[arg(long, value_name = "PRESET")]
    pub approval: Option<String>,

    /// The loosest preset that anybody may choose for a session here; without it, full
    #[arg(long, value_name = "PRESET")]
    pub approval_max: Option<String>,

    /// A further folder that it may write; repeat for more
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,

    /// Only these tools, in a list with commas: Read,Edit,Bash or our own names
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub allowed_tools: Option<Vec<String>>,

    /// Leave the project's instruction files (AGENTS.md and the like) alone
    #[arg(long)]
    pub no_rules: bool,

    /// on: do not start where the operating system cannot enforce the sandbox; auto: refuse the
    /// commands instead
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = OsSandbox::Auto)]
    pub os_sandbox: OsSandbox,

    /// Keep everything in memory: nothing is saved or audited, and sessions are gone when this program ends
    #[arg(long, alias = "no-save")]
    pub ephemeral: bool,

    /// Write every session to this folder too, in the form of chimera's event log
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
    pub fn spoken(&self) -> Spoken {
        match self.dialect {
            DialectChoice::Auto => self.preferred.map_or(Spoken::Detected, Spoken::Preferred),
            DialectChoice::Acp => Spoken::Only(Dialect::Acp),
            DialectChoice::Ferret => Spoken::Only(Dialect::Ferret),
            DialectChoice::Otter => Spoken::Only(Dialect::Otter),
            DialectChoice::Bernstein => Spoken::Only(Dialect::Bernstein),
        }
    }
}

#[derive(Debug, Clone, Subcommand)]
pub enum SandboxCommand {
    /// Run a command in the sandbox as the agent would, in this folder
    Run(SandboxRunOptions),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "What is refused is said on standard error. The exit code is the command's own;\n\
    125 if the sandbox could not be built, 128 and the signal's number if a signal ended it.\n\n\
    Example: ropewalk sandbox run workspace-write -- sh -c 'echo x > /etc/x'")]
pub struct SandboxRunOptions {
    /// read-only, workspace-write, workspace-write-network, off
    pub mode: Mode,

    /// The folder to work in; without it, this one
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// A further folder that may be written; repeat for more
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,

    /// Seconds until it is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub timeout: u64,

    /// Say what was refused as JSON, one object a line, on standard error
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
    /// Show which sessions there are, the latest first
    #[command(alias = "ls")]
    List(ListOptions),
    /// Read what was said and done
    Show(ShowOptions),
    /// Show what sessions cost: by turn, by session, by model
    Cost(CostOptions),
    /// Write a session to a file, for keeping or for others to read
    Export(ExportOptions),
    /// Send a session to an address, for others to read, and say where it is
    Share(ShareOptions),
    /// Take in a session that was exported here or by chimera's ferret and otter
    Import(ImportOptions),
    /// Copy a session, to go on with it in another way
    Fork(ForkOptions),
    /// Give a session another title
    Rename(RenameOptions),
    /// Remove sessions for good
    #[command(alias = "rm")]
    Delete(DeleteOptions),
    /// Save what can be read of a damaged file into a new one
    Salvage(SalvageOptions),
}

#[derive(Debug, Clone, Args)]
pub struct ListOptions {
    /// Only sessions of this folder
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, conflicts_with = "all")]
    pub limit: usize,

    /// All of them, those that were never prompted too
    #[arg(short, long)]
    pub all: bool,

    /// Only what was active since then: 30m, 2h, 3d, 1w or 2026-01-31
    #[arg(long, value_name = "WHEN", value_parser = Since::parse)]
    pub since: Option<Since>,

    /// Only sessions in which this model was chosen; a part of its name is enough
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Also the sessions of chimera's ferret and otter, as they lie in ~/.chimera/eventlog
    #[arg(long)]
    pub all_clis: bool,

    /// Those among them whose ids begin so: of the program whose command was typed.
    #[arg(skip)]
    pub folders_of: Option<&'static str>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ShowOptions {
    /// The session; the beginning of its id is enough
    pub id: String,

    /// Show long outputs of tools in full
    #[arg(long)]
    pub full: bool,

    /// As JSON, every event
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ExportOptions {
    /// The session; the beginning of its id is enough
    pub id: String,

    /// json comes back whole when imported, and chimera too; markdown and html are for reading.
    /// Without it, what the name of the file ends in, else json
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub format: Option<ExportFormat>,

    /// Where to write; without it, to standard output. For chimera the folder to put the session in
    #[arg(short, long, value_name = "FILE|DIR")]
    pub output: Option<PathBuf>,

    /// Say as JSON what was written
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
    /// An exported file, a folder of chimera's event log, or `-` for standard input
    #[arg(value_name = "FILE|DIR")]
    pub source: PathBuf,

    /// The folder that the session works in here; without it, the one it had
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// For what a hub exported sealed: the sealed.json of the machine that sealed it; without it, this machine's own
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ForkOptions {
    /// The session; the beginning of its id is enough
    #[arg(required_unless_present = "last", conflicts_with = "last")]
    pub id: Option<String>,

    /// The session that was active last, in whichever folder
    #[arg(long)]
    pub last: bool,

    /// With --last, of every folder; so it is anyway
    #[arg(long, hide = true, requires = "last")]
    pub all: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RenameOptions {
    /// The session; the beginning of its id is enough
    pub id: String,

    /// The new title
    pub title: String,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct DeleteOptions {
    /// The sessions; the beginning of an id is enough
    #[arg(required = true)]
    pub ids: Vec<String>,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct EditorOptions {
    /// Only this one
    #[arg(value_parser = crate::editors::NAMES)]
    pub editor: Option<String>,
}

impl Cli {
    pub fn read() -> Result<Self, clap::Error> {
        Self::from_words(std::env::args_os())
    }

    fn from_words(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut command = variables::without_empty(<Self as CommandFactory>::command());
        let matches = command.try_get_matches_from_mut(words).map_err(|error| {
            let error = variables::named(&command, error);
            mistyped(&mut command, error)
        })?;
        Self::of(&matches)
    }

    /// Clap could refuse options of `serve` before another command by itself, but would then refuse
    /// `-v` there as well.
    fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut command = <Self as CommandFactory>::command();
        let given = |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let known = |id: &clap::Id| {
            command.get_arguments().find(|argument| argument.get_id() == id && !argument.is_global_set())
        };
        // Options of a subcommand that stand anywhere in it are among the ids, and unknown here.
        let misplaced = matches.ids().find_map(|id| known(id).filter(|_| given(id)));
        let Some(name) = matches.subcommand_name() else {
            return Ok(Self { bare: misplaced.is_none(), ..Self::from_arg_matches(matches)? });
        };
        if let Some(option) = misplaced.and_then(|argument| argument.get_long()) {
            let message = format!("--{option} cannot stand before `{name}`");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Self::from_arg_matches(matches)
    }

    /// What is to be done. Whoever types the program's name alone is a person; editors start it without
    /// a terminal.
    pub fn command(self, terminal: bool) -> Result<Command, clap::Error> {
        match self.command {
            Some(command) => command.meant(),
            None if terminal && self.bare => Ok(Command::Up(Box::default())),
            None => Ok(Command::Serve(Box::new(ServeArguments { command: None, options: self.serve }))),
        }
    }
}

impl Command {
    /// Whether it may take the whole screen, where nothing else can be written.
    pub fn draws(&self) -> bool {
        match self {
            Self::Chat(options) => !options.plain,
            Self::Attach(options) => !options.plain,
            Self::Bridge(options) => !options.plain,
            _ => false,
        }
    }

    /// Whether the command begins the state folder where there is none.
    pub fn makes_state(&self) -> bool {
        match self {
            Self::Chat(_) | Self::Run(_) => true,
            Self::Sessions(arguments) => matches!(arguments.command, SessionsCommand::Import(_)),
            _ => self.serves(),
        }
    }

    /// What it says about where sessions are kept.
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

/// Since a command may stand after `--`, clap takes a word it does not know for one of that command.
fn mistyped(command: &mut clap::Command, mut error: clap::Error) -> clap::Error {
    // A wrong value names its placeholder, not the word.
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    // Clap's tip to write an unknown option after `--` would start a program of that name.
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
            |line: &str, terminal| matches!(check(line).unwrap().command(terminal), Ok(Command::Up(_)));
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
            Ok(Command::Serve(arguments)) => Ok(arguments.options),
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
        let Command::Run(run) = cli.unwrap().command(false).unwrap() else { panic!("it is run") };
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
        assert!(error.contains("--max-sessions cannot stand before `sessions`"), "{error}");
    }
}
