//! Commands of other programs, as their users type them: `ferret serve`, `otter serve --acp`, `acp serve --stdio`.
//!
//! Each maps to one of our commands with the same options. When serving, it prefers the dialect of that program, so an
//! editor configuration written for the program works after only its name is changed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Subcommand};
use wire::Dialect;

use super::{
    BridgeOptions, Cli, CliCommand, GlobalStoreOptions, ListOptions, ServeArguments, ServeOptions,
    SessionsArguments, SessionsCommand,
};

/// The port that Bernstein's clients connect to.
const BERNSTEIN_PORT: u16 = 8062;
const BERNSTEIN_HTTP_HELP: &str =
    "Serve over HTTP at PORT, :PORT or HOST:PORT; without a value, 127.0.0.1:8062";

const ACP_HELP: &str =
    "Serve an editor on standard input and output, also together with --http; the same as --stdio";

/// A command of ours or of another program.
#[derive(Debug, Clone, Subcommand)]
pub enum TypedCommand {
    #[command(flatten)]
    Ours(CliCommand),
    /// Commands of ferret; servers prefer its dialect
    #[command(subcommand, hide = true)]
    Ferret(ChimeraCommand),
    /// Commands of otter; servers prefer its dialect
    #[command(subcommand, hide = true)]
    Otter(ChimeraCommand),
    /// Commands of Bernstein and zeph
    #[command(hide = true)]
    Acp(Box<AcpOptions>),
}

/// The commands that ferret and otter have in common with us.
#[derive(Debug, Clone, Subcommand)]
pub enum ChimeraCommand {
    /// Serve editors over standard input and output, or HTTP
    #[command(mut_arg("acp", |acp| acp.hide(false).help(ACP_HELP)))]
    Serve(Box<ServeOptions>),
    /// Connect a session on this machine to a hub, so people can steer it from elsewhere
    Bridge(Box<BridgeOptions>),
    /// List, read, copy and delete sessions
    Sessions(ChimeraSessions),
}

/// `sessions`; without a subcommand, it lists.
#[derive(Debug, Clone, Args)]
pub struct ChimeraSessions {
    #[command(subcommand)]
    command: Option<SessionsCommand>,

    #[command(flatten)]
    store: GlobalStoreOptions,
}

/// `acp`, or `acp serve` as Bernstein's users type it: both are `serve`. Zeph's `acp run-agent` is `run`.
#[derive(Debug, Clone, Args)]
pub struct AcpOptions {
    #[command(subcommand)]
    command: Option<AcpCommand>,

    #[command(flatten)]
    serve: ServeOptions,
}

#[derive(Debug, Clone, Subcommand)]
enum AcpCommand {
    /// Serve editors over standard input and output, or HTTP
    #[command(mut_arg("http", |http| http.help(BERNSTEIN_HTTP_HELP)))]
    Serve(Box<ServeOptions>),
    /// Send another agent one prompt and wait for its answer
    RunAgent(RunAgentOptions),
}

#[derive(Debug, Clone, Args)]
struct RunAgentOptions {
    #[arg(long)]
    command: String,
    #[arg(long, allow_hyphen_values = true)]
    prompt: String,
    #[arg(short = 'C', long)]
    cwd: Option<PathBuf>,
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

impl TypedCommand {
    /// Converts it to our command.
    pub fn into_command(self) -> Result<CliCommand, clap::Error> {
        match self {
            Self::Ours(command) => Ok(command),
            Self::Ferret(command) => command.into_command(Dialect::Ferret),
            Self::Otter(command) => command.into_command(Dialect::Otter),
            Self::Acp(options) => options.into_command(),
        }
    }
}

impl ChimeraCommand {
    fn into_command(self, dialect: Dialect) -> Result<CliCommand, clap::Error> {
        match self {
            Self::Serve(options) => Ok(serve(*options, Some(dialect))),
            Self::Bridge(options) => Ok(CliCommand::Bridge(Box::new(BridgeOptions { dialect, ..*options }))),
            Self::Sessions(ChimeraSessions { command, store }) => {
                let mut command = command.map_or_else(list, Ok)?;
                if let SessionsCommand::List(list) = &mut command {
                    list.folders_of = dialect.id_prefix();
                }
                Ok(CliCommand::Sessions(SessionsArguments { command, store }))
            }
        }
    }
}

impl AcpOptions {
    fn into_command(self) -> Result<CliCommand, clap::Error> {
        match self.command {
            Some(AcpCommand::Serve(mut options)) => {
                options.http.default_port = Some(BERNSTEIN_PORT);
                Ok(serve(*options, Some(Dialect::Bernstein)))
            }
            Some(AcpCommand::RunAgent(options)) => options.into_command(),
            None => Ok(serve(self.serve, None)),
        }
    }
}

impl RunAgentOptions {
    fn into_command(self) -> Result<CliCommand, clap::Error> {
        let mut words: Vec<OsString> = ["run", "--command"].map(OsString::from).into();
        words.push(self.command.into());
        words.extend([OsString::from("--timeout"), self.timeout.to_string().into()]);
        if let Some(cwd) = self.cwd {
            words.extend([OsString::from("--cwd"), cwd.into()]);
        }
        words.extend([OsString::from("--"), self.prompt.into()]);
        in_our_words(words)
    }
}

fn serve(options: ServeOptions, preferred: Option<Dialect>) -> CliCommand {
    let options = ServeOptions { preferred, ..options };
    CliCommand::Serve(Box::new(ServeArguments { command: None, options }))
}

/// `sessions` without a subcommand.
fn list() -> Result<SessionsCommand, clap::Error> {
    let command = ListOptions::augment_args(clap::Command::new("list"));
    let matches = command.try_get_matches_from(["list"])?;
    Ok(SessionsCommand::List(ListOptions::from_arg_matches(&matches)?))
}

fn in_our_words(words: impl IntoIterator<Item = OsString>) -> Result<CliCommand, clap::Error> {
    let line = std::iter::once(OsString::from("ropewalk")).chain(words);
    Cli::of(&<Cli as CommandFactory>::command().try_get_matches_from(line)?)?.command(false)
}

#[cfg(test)]
mod tests {
    use wire::DialectSelection;

    use super::*;

    fn check(line: &str) -> Result<Cli, String> {
        Cli::from_words(line.split(' ')).map_err(|error| error.to_string())
    }

    fn served(line: &str) -> ServeOptions {
        match check(line).unwrap().command(false).unwrap() {
            CliCommand::Serve(arguments) => arguments.options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_command_of_another_program_prefers_its_dialect_and_an_option_fixes_it() {
        for (line, spoken) in [
            ("ropewalk serve", DialectSelection::Detected),
            ("ropewalk acp", DialectSelection::Detected),
            ("ropewalk ferret serve", DialectSelection::Preferred(Dialect::Ferret)),
            (
                "chimera ferret serve --sandbox workspace-write --approval auto",
                DialectSelection::Preferred(Dialect::Ferret),
            ),
            (
                "chimera otter serve --acp --allowed-tools Read,Grep,Bash",
                DialectSelection::Preferred(Dialect::Otter),
            ),
            ("bernstein acp serve --stdio", DialectSelection::Preferred(Dialect::Bernstein)),
            ("ropewalk ferret serve --dialect auto", DialectSelection::Preferred(Dialect::Ferret)),
            ("ropewalk ferret serve --dialect otter", DialectSelection::Only(Dialect::Otter)),
            ("ropewalk serve --dialect bernstein", DialectSelection::Only(Dialect::Bernstein)),
        ] {
            assert_eq!(served(line).spoken(), spoken, "{line}");
        }
    }

    #[test]
    fn each_command_listens_where_its_clients_look() {
        for (line, port) in [
            ("ropewalk serve --http", 5173),
            ("chimera ferret serve --http", 5173),
            ("chimera ferret serve --http --port 5173", 5173),
            ("chimera otter serve --http", 5173),
            ("bernstein acp serve --http :8062", 8062),
            ("bernstein acp serve --http", 8062),
            ("bernstein acp serve --http 127.0.0.1", 8062),
            ("bernstein acp serve --http --port 9", 9),
        ] {
            assert_eq!(served(line).http.address().unwrap().unwrap().port(), port, "{line}");
        }
        for (line, said, other) in [
            ("ropewalk serve --help", "127.0.0.1:5173", "127.0.0.1:8062"),
            ("chimera ferret serve --help", "127.0.0.1:5173", "127.0.0.1:8062"),
            ("bernstein acp serve --help", "127.0.0.1:8062", "127.0.0.1:5173"),
        ] {
            let help = check(line).unwrap_err();
            assert!(help.contains(said) && !help.contains(other), "{line}: {help}");
        }
    }

    #[test]
    fn chimeras_other_commands_are_ours() {
        let meant = |line: &str| check(line).unwrap().command(false).unwrap();
        let CliCommand::Bridge(bridge) = meant("chimera ferret bridge --remote-url https://h --auth-token t")
        else {
            panic!("it is bridge")
        };
        assert_eq!(
            (bridge.remote_url.as_deref(), bridge.auth_token.as_deref()),
            (Some("https://h"), Some("t"))
        );
        for line in ["chimera otter sessions", "chimera otter sessions list", "chimera ferret sessions"] {
            let CliCommand::Sessions(SessionsArguments { command: SessionsCommand::List(list), .. }) =
                meant(line)
            else {
                panic!("{line} lists")
            };
            let prefix = if line.contains("otter") { "otter-" } else { "ferret-" };
            assert_eq!((list.limit, list.folders_of), (20, Some(prefix)), "{line}");
        }
    }

    #[test]
    fn the_store_that_is_named_is_the_one_that_is_listed() {
        for line in
            ["chimera otter sessions --store postgres", "chimera otter sessions list --store postgres"]
        {
            let command = check(line).unwrap().command(false).unwrap();
            assert_eq!(command.store().store.as_deref(), Some("postgres"), "{line}");
        }
    }

    #[test]
    fn other_programs_are_named_only_to_those_who_type_their_names() {
        let help = |line: &str| check(line).unwrap_err();
        let own = help("ropewalk --help");
        assert!(!own.contains("ferret ") && !own.contains("otter ") && !own.contains("acp "), "{own}");
        for name in ["ferret", "otter"] {
            let theirs = help(&format!("ropewalk {name} --help"));
            assert!(
                theirs.contains("serve") && theirs.contains("bridge") && theirs.contains("sessions"),
                "{theirs}"
            );
        }
    }
}
