//! The binary: reads the command line and the environment, wires the crates together, runs.

mod agents;
mod audit;
mod backends;
mod backup;
mod bridge;
mod browser;
mod chat;
mod cli;
mod client;
mod config;
mod devices;
mod doctor;
mod doors;
mod editors;
mod environment;
mod eventlog;
mod external;
mod guards;
mod hidden;
mod hub;
mod lan;
mod logging;
mod mcp;
mod metrics;
mod models;
mod pair;
mod paths;
mod permissions;
mod pushes;
mod restore;
mod run;
mod running;
mod sandboxed;
mod sealed;
mod secrets;
mod serve;
mod server;
mod session_store;
mod sessions;
mod shelf;
mod state_lock;
mod terminal;
mod tokens;
mod traces;
mod trouble;
mod trust;
mod up;

use std::io::IsTerminal;
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit};

use crate::cli::{Cli, Command};
use crate::trouble::Trouble;

fn main() -> ExitCode {
    // Before anything else: the helper must be a single thread, and quick.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sandbox::HELPER_ARGUMENT) {
        return sandbox::helper_main();
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return trouble::bad_usage(&error),
    };
    if let Err(trouble) = enough_files() {
        return trouble.report(false);
    }
    config::choose(config::Choice { file: cli.config.clone(), profile: cli.profile.clone() });
    let verbose = cli.verbose.max(u8::from(logging::wants_requests()));
    let command = match cli.command(std::io::stdin().is_terminal()) {
        Ok(command) => command,
        Err(error) => return trouble::bad_usage(&error),
    };
    session_store::choose(command.store());
    if !command.draws() || !std::io::stderr().is_terminal() {
        logging::start(verbose, command.serves());
    }
    // Held until the command has ended.
    let _state = match &command {
        // It wants the state folder for itself.
        Command::Restore(_) => None,
        other => match restore::enter_state(other.makes_state()) {
            Ok(lock) => lock,
            Err(trouble) => return trouble.report(false),
        },
    };
    match carry_out(command) {
        Ok(code) => code,
        Err(error) => {
            // The chain in full: the last cause usually names what to do.
            terminal::say(&format!("ropewalk: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// With fewer, the runtime itself fails before anything can say what is wrong.
const OPEN_FILES_MIN: u64 = 16;

fn enough_files() -> Result<(), Trouble> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => {
            Err(Trouble::failed(format!("only {limit} files may be open at once"))
                .because(format!("ropewalk needs at least {OPEN_FILES_MIN}"))
                .fix("raise the limit of open files: ulimit -n 1024"))
        }
        _ => Ok(()),
    }
}

fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(options) => up::run(&options),
        Command::Chat(options) => chat::run(&options),
        Command::Attach(options) => chat::attach(&options.chat()),
        Command::Bridge(options) => bridge::run(&options),
        Command::Link(options) => Ok(up::link(&options)),
        Command::Pair(options) => Ok(pair::run(&options)),
        Command::Devices(command) => Ok(devices::run(&command)),
        Command::Serve(arguments) => match &arguments.command {
            Some(command) => Ok(running::run(command)),
            None => serve::run(&arguments.options),
        },
        Command::Hub(arguments) => hub::run(&arguments),
        Command::Run(options) => run::run(&options),
        Command::Sessions(arguments) => sessions::run(arguments.command),
        Command::Models(command) => models::run(&command),
        Command::Doctor(options) => doctor::run(&options),
        Command::Backup(options) => Ok(backup::run(&options)),
        Command::Restore(options) => Ok(restore::run(&options)),
        Command::Permissions(command) => Ok(permissions::run(&command)),
        Command::Mcp(command) => Ok(mcp::run(&command)),
        Command::Sandbox(command) => sandboxed::run(command),
        Command::Audit(command) => audit::run(command),
        Command::Agents(command) => Ok(agents::run(&command)),
        Command::Editors(options) => editors::run(&options),
        Command::Config(command) => Ok(config::run(&command)),
    }
}
