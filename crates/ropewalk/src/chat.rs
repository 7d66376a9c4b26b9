//! `ropewalk chat` and `ropewalk attach`: the terminal client, and the server that it connects to.
//!
//! If a server of this person runs for the folder, the terminal connects to it, so that a phone, a browser and the terminal
//! share the session. Otherwise the engine runs in this process, and the client uses the same protocol.

pub mod in_process_server;
mod server_socket;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use ::terminal::{
    Dial, FullScreenOptions, LineModeExit, LineModeOptions, OpenFailure, ScreenExit, StartOptions, Theme,
    WhichSession, full_screen, line_mode,
};
use access::random;
use engine::{APPROVAL, MODE, MODEL, SessionId, full_name};
use tokio::sync::watch;

use self::in_process_server::InProcessServer;
use self::server_socket::ServerSocket;
use crate::cli::{ChatOptions, GuardOptions, OsSandbox, StoreOptions};
use crate::cli_error::CliError;
use crate::running_servers::{self, RunningServer};
use crate::{chimera_event_log, hidden_paths, output, run};

/// `chat`: a new session, or one to continue.
pub fn run(options: &ChatOptions) -> anyhow::Result<ExitCode> {
    let start = match (&options.session.resume, options.session.newest) {
        (Some(id), _) => WhichSession::Named(id.clone()),
        (None, true) => WhichSession::Newest,
        (None, false) => WhichSession::New,
    };
    begin(options, start)
}

/// `attach`: an existing session.
pub fn attach(options: &ChatOptions) -> anyhow::Result<ExitCode> {
    let start = options.session.resume.clone().map_or(WhichSession::Any, WhichSession::Named);
    begin(options, start)
}

fn begin(options: &ChatOptions, start: WhichSession) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(talk(options, start));
    // The threads that read the terminal or standard input may block forever; nothing needs them.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|error| error.report(false)))
}

async fn talk(options: &ChatOptions, start: WhichSession) -> Result<ExitCode, CliError> {
    if let WhichSession::Named(id) = &start {
        SessionId::parse(id).map_err(|error| {
            CliError::usage(format!("{id:?} is not a session id"))
                .because(error)
                .fix("ropewalk sessions list")
        })?;
    }
    let folder = run::folder(options.session.cwd.as_deref())?;
    if let WhichSession::Named(id) = &start
        && !options.guard.ephemeral
    {
        chimera_event_log::import_named(id, &folder).await?;
    }
    let wish = StartOptions {
        folder: folder.display().to_string(),
        settings: settings(options),
        prompt: options.prompt.clone().filter(|prompt| !prompt.trim().is_empty()),
        session: start,
    };
    match server(options, &wish.session, &folder)? {
        Some(found) => {
            let socket = ServerSocket::new(found.port);
            let context =
                ClientContext { address: Some(found.address().to_owned()), ..ClientContext::default() };
            let outcome = show(options, wish, &socket, context).await;
            socket.finish().await;
            outcome
        }
        None => {
            let in_process = InProcessServer::start(options, &folder, &wish.session).await?;
            let outcome = show(options, wish, &in_process, ClientContext::default()).await;
            in_process.finish().await;
            outcome
        }
    }
}

/// The session settings of the command line, in the engine's names.
pub fn settings(options: &ChatOptions) -> BTreeMap<String, String> {
    let approval =
        options.guard.approval.as_deref().map(|named| full_name(APPROVAL, named.into()).to_string());
    let wanted = [(MODEL, options.session.model.clone()), (MODE, options.mode.clone()), (APPROVAL, approval)];
    wanted.into_iter().filter_map(|(id, value)| Some((id.to_owned(), value?))).collect()
}

/// The running server to use, if there is a suitable one.
fn server(
    options: &ChatOptions,
    start: &WhichSession,
    folder: &Path,
) -> Result<Option<RunningServer>, CliError> {
    if options.alone
        || options.agent.agent.is_some()
        || has_own_guards(&options.guard)
        || has_own_budget(options)
    {
        return Ok(None);
    }
    // Any server can show an existing session; a new one works only in the folder of its server.
    let any = matches!(start, WhichSession::Named(_) | WhichSession::Any);
    let will_do = |server: &RunningServer| any || server.folder().is_some_and(|its| folder.starts_with(its));
    let mut servers = running_servers::all()?;
    servers.retain(will_do);
    Ok(servers.into_iter().next())
}

/// Options that apply to a whole process cannot be requested of a running server.
fn has_own_guards(guard: &GuardOptions) -> bool {
    guard.sandbox.is_some()
        || !guard.add_dir.is_empty()
        || guard.allowed_tools.is_some()
        || guard.no_rules
        || guard.ephemeral
        || guard.eventlog.is_some()
        || guard.store != StoreOptions::default()
        || guard.os_sandbox != OsSandbox::Auto
        || guard.permission_mode.is_some()
        || guard.full_auto
        || guard.yolo
}

fn has_own_budget(options: &ChatOptions) -> bool {
    options.budget.max_cost.is_some() || options.budget.max_turns.is_some()
}

/// The context that the terminal client runs in.
#[derive(Default)]
pub struct ClientContext {
    /// The URL of the server, if it is another process.
    pub address: Option<String>,
    /// Warnings that a full screen keeps showing. In plain mode, they were printed before.
    pub warnings: Vec<String>,
    /// See [`FullScreenOptions::interrupt_ends`].
    pub interrupt_ends: bool,
    /// Status lines for a full screen, as they change.
    pub status: Option<watch::Receiver<Vec<String>>>,
}

pub async fn show(
    options: &ChatOptions,
    wish: StartOptions,
    dial: &dyn Dial,
    context: ClientContext,
) -> Result<ExitCode, CliError> {
    let (reads, writes) = (io::stdin().is_terminal(), io::stdout().is_terminal());
    let colour = output::wants_colour();
    let seed = random()
        .map_err(|error| CliError::failed("the operating system's random generator failed").because(error))?;
    let seed = seed.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    if options.plain || !reads || !writes {
        let paint = io::stderr().is_terminal();
        let manner = LineModeOptions {
            attended: reads,
            screen: writes,
            one_screen: writes && paint,
            colour: colour && paint,
            seed,
        };
        return line_by_line(wish, manner, dial).await;
    }
    let ClientContext { address, warnings, interrupt_ends, status } = context;
    let shared = address.is_some();
    let home = hidden_paths::homes()
        .ok()
        .and_then(|homes| homes.into_iter().next())
        .map(|home| home.display().to_string());
    let manner =
        FullScreenOptions { theme: Theme { colour }, shared, home, address, seed, warnings, interrupt_ends };
    let unusable = |error: io::Error| {
        CliError::failed("could not use the terminal").because(error).fix("try again with --plain")
    };
    match full_screen(wish, manner, dial, status).await.map_err(unusable)? {
        ScreenExit::Left { words } => {
            if let Some(words) = words {
                let agent = options.agent.agent.as_ref().map(|agent| format!(" --agent {agent}"));
                output::say(&(words + &agent.unwrap_or_default()));
            }
            Ok(ExitCode::SUCCESS)
        }
        ScreenExit::Failed(failure) => Err(cli_error(failure)),
    }
}

async fn line_by_line(
    wish: StartOptions,
    manner: LineModeOptions,
    dial: &dyn Dial,
) -> Result<ExitCode, CliError> {
    let unusable = |error: io::Error| CliError::failed("could not install signal handlers").because(error);
    match line_mode(wish, manner, dial).await.map_err(unusable)? {
        LineModeExit::Code(code) => Ok(ExitCode::from(code)),
        LineModeExit::Failed(failure) => Err(cli_error(failure)),
        LineModeExit::Gone(why) => Err(CliError::failed("could not open the session").because(why)),
    }
}

fn cli_error(failure: OpenFailure) -> CliError {
    match failure {
        OpenFailure::NotFound { what, fix } => CliError::not_found(what).fix(fix),
        OpenFailure::Unclear { what, candidates } => {
            let named = |(id, title): (String, String)| Some((SessionId::parse(&id).ok()?, title));
            CliError::usage(what)
                .candidates(candidates.into_iter().filter_map(named).collect())
                .fix("use more characters of the id")
        }
        OpenFailure::Refused(message) => CliError::failed(message),
    }
}
