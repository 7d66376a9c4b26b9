//! `ropewalk chat` and `ropewalk attach`: the terminal client, and the server that it talks to.
//!
//! Where a server of this person works in the folder, the client is one more of its clients, so that a
//! phone, a browser and the terminal share the session. Otherwise the engine runs in this process and
//! the client talks to it in the same words.

pub mod here;
mod socket;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use ::terminal::{Dial, Ended, Failure, LineEnd, LineManner, Look, Manner, Start, Wish, full_screen, lines};
use access::random;
use engine::{APPROVAL, MODE, MODEL, SessionId, full_name};
use tokio::sync::watch;

use self::here::Here;
use self::socket::Socket;
use crate::cli::{ChatOptions, GuardOptions, OsSandbox, StoreOptions};
use crate::running::{self, Found};
use crate::trouble::Trouble;
use crate::{eventlog, hidden, run, terminal};

/// `chat`: a new session, or one that is gone on with.
pub fn run(options: &ChatOptions) -> anyhow::Result<ExitCode> {
    let start = match (&options.session.resume, options.session.newest) {
        (Some(id), _) => Start::Named(id.clone()),
        (None, true) => Start::Newest,
        (None, false) => Start::New,
    };
    begin(options, start)
}

/// `attach`: a session that is there.
pub fn attach(options: &ChatOptions) -> anyhow::Result<ExitCode> {
    let start = options.session.resume.clone().map_or(Start::Any, Start::Named);
    begin(options, start)
}

fn begin(options: &ChatOptions, start: Start) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(talk(options, start));
    // The threads that read the terminal or standard input may be stuck in a read; nothing needs them.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|trouble| trouble.report(false)))
}

async fn talk(options: &ChatOptions, start: Start) -> Result<ExitCode, Trouble> {
    if let Start::Named(id) = &start {
        SessionId::parse(id).map_err(|error| {
            Trouble::usage(format!("{id:?} cannot be a session")).because(error).fix("ropewalk sessions list")
        })?;
    }
    let folder = run::folder(options.session.cwd.as_deref())?;
    if let Start::Named(id) = &start
        && !options.guard.ephemeral
    {
        eventlog::take_in_named(id, &folder).await?;
    }
    let wish = Wish {
        folder: folder.display().to_string(),
        settings: settings(options),
        prompt: options.prompt.clone().filter(|prompt| !prompt.trim().is_empty()),
        start,
    };
    match server(options, &wish.start, &folder)? {
        Some(found) => {
            let socket = Socket::new(found.port);
            let context =
                ClientContext { address: Some(found.address().to_owned()), ..ClientContext::default() };
            let outcome = show(options, wish, &socket, context).await;
            socket.finish().await;
            outcome
        }
        None => {
            let here = Here::start(options, &folder, &wish.start).await?;
            let outcome = show(options, wish, &here, ClientContext::default()).await;
            here.finish().await;
            outcome
        }
    }
}

/// What is wanted of the session's settings, in the words of the engine.
pub fn settings(options: &ChatOptions) -> BTreeMap<String, String> {
    let approval =
        options.guard.approval.as_deref().map(|named| full_name(APPROVAL, named.into()).to_string());
    let wanted = [(MODEL, options.session.model.clone()), (MODE, options.mode.clone()), (APPROVAL, approval)];
    wanted.into_iter().filter_map(|(id, value)| Some((id.to_owned(), value?))).collect()
}

/// The server to use, if one runs that will do.
fn server(options: &ChatOptions, start: &Start, folder: &Path) -> Result<Option<Found>, Trouble> {
    if options.alone
        || options.agent.agent.is_some()
        || has_own_guards(&options.guard)
        || has_own_budget(options)
    {
        return Ok(None);
    }
    // What is there already can be shown by any; a new session works where the server may work.
    let any = matches!(start, Start::Named(_) | Start::Any);
    let will_do = |server: &Found| any || server.folder().is_some_and(|its| folder.starts_with(its));
    let mut servers = running::all()?;
    servers.retain(will_do);
    Ok(servers.into_iter().next())
}

/// What holds for a whole process cannot be asked of one that runs.
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

/// What the client stands in.
#[derive(Default)]
pub struct ClientContext {
    /// Where a browser finds the server, if that is another process.
    pub address: Option<String>,
    /// What a full screen shows for as long as it is there. Without one, it was said before.
    pub warnings: Vec<String>,
    /// See [`Manner::interrupt_ends`].
    pub interrupt_ends: bool,
    /// What a full screen shows of the state of the program, as it changes.
    pub status: Option<watch::Receiver<Vec<String>>>,
}

pub async fn show(
    options: &ChatOptions,
    wish: Wish,
    dial: &dyn Dial,
    context: ClientContext,
) -> Result<ExitCode, Trouble> {
    let (reads, writes) = (io::stdin().is_terminal(), io::stdout().is_terminal());
    let colour = terminal::wants_colour();
    let seed = random().map_err(|error| Trouble::failed("there are no random bytes").because(error))?;
    let seed = seed.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    if options.plain || !reads || !writes {
        let paint = io::stderr().is_terminal();
        let manner = LineManner {
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
    let home = hidden::homes()
        .ok()
        .and_then(|homes| homes.into_iter().next())
        .map(|home| home.display().to_string());
    let manner = Manner { look: Look { colour }, shared, home, address, seed, warnings, interrupt_ends };
    let unusable = |error: io::Error| {
        Trouble::failed("the terminal cannot be used").because(error).fix("the same with --plain")
    };
    match full_screen(wish, manner, dial, status).await.map_err(unusable)? {
        Ended::Left { words } => {
            if let Some(words) = words {
                let agent = options.agent.agent.as_ref().map(|agent| format!(" --agent {agent}"));
                terminal::say(&(words + &agent.unwrap_or_default()));
            }
            Ok(ExitCode::SUCCESS)
        }
        Ended::Failed(failure) => Err(trouble(failure)),
    }
}

async fn line_by_line(wish: Wish, manner: LineManner, dial: &dyn Dial) -> Result<ExitCode, Trouble> {
    let unusable = |error: io::Error| Trouble::failed("could not install signal handlers").because(error);
    match lines(wish, manner, dial).await.map_err(unusable)? {
        LineEnd::Code(code) => Ok(ExitCode::from(code)),
        LineEnd::Failed(failure) => Err(trouble(failure)),
        LineEnd::Gone(why) => Err(Trouble::failed("could not open the session").because(why)),
    }
}

fn trouble(failure: Failure) -> Trouble {
    match failure {
        Failure::NotFound { what, fix } => Trouble::not_found(what).fix(fix),
        Failure::Unclear { what, candidates } => {
            let named = |(id, title): (String, String)| Some((SessionId::parse(&id).ok()?, title));
            Trouble::usage(what)
                .candidates(candidates.into_iter().filter_map(named).collect())
                .fix("more characters of the id")
        }
        Failure::Refused(message) => Trouble::failed(message),
    }
}
