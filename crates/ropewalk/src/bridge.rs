//! `ropewalk bridge`, and the bridge of the commands that serve: which address, which token, which session.

mod machine;
mod said;

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::bridge::{
    Address, Answers, BadAddress, Bridge, BridgeParts, Pace, REPLAY_WINDOW, Teller, Token, Trouble as Broken,
};
use ::terminal::{Start, Wish};
use access::devices::Devices;
use agent::{BridgeView, ReadBridge};
use app::{Desk, DeskParts, Extras};
use engine::{ListQuery, Principal, Registry, SessionId};
use metrics::Metrics;
use service::{Bridges, Rules};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Identity;

use self::machine::Claimed;
use self::said::Said;
use crate::chat::ClientContext;
use crate::chat::here::Here;
use crate::cli::{AlsoBridge, BridgeOptions};
use crate::config::{self, Config};
use crate::sessions::find;
use crate::trouble::Trouble;
use crate::{chat, eventlog, paths, run, sealed, secrets, server, terminal};

/// Where the token may be, besides on the command line.
const VARIABLES: [&str; 2] = ["ROPEWALK_BRIDGE_TOKEN", "FERRET_BRIDGE_TOKEN"];
/// The door, as it stands in listings.
const SOURCE: &str = "bridge";
/// How long the terminal waits for the first connection before it draws.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// How long lines may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// A bridge that can be started: everything that could be wrong with its options was looked at.
pub struct Wanted {
    address: Address,
    token: Token,
    answers: Answers,
    replay_window: u64,
    e2e: bool,
    /// Said already, and to be shown where a screen covers that.
    warning: Option<String>,
}

/// What somebody said about it on the command line.
struct Line<'a> {
    url: Option<&'a str>,
    token: Option<&'a str>,
    answers: Option<Answers>,
    replay_window: Option<u64>,
    e2e: bool,
    insecure: bool,
}

impl Wanted {
    /// Nothing, if a command that serves is not asked for one.
    pub fn also(options: &AlsoBridge, config: &Config) -> Result<Option<Self>, Trouble> {
        let Some(url) = &options.bridge else { return Ok(None) };
        let said = Line {
            url: Some(url.as_str()).filter(|url| !url.is_empty()),
            token: options.bridge_token.as_deref(),
            answers: options.answers.map(|word| word.answers()),
            replay_window: options.replay_window,
            e2e: options.e2e,
            insecure: options.insecure,
        };
        Self::of(&said, config).map(Some)
    }

    fn of(said: &Line<'_>, config: &Config) -> Result<Self, Trouble> {
        if config.bridge.has_token {
            warn(
                "the token in the settings file is not used: files are copied and shared; set ROPEWALK_BRIDGE_TOKEN",
            );
        }
        // A project's file never says it: the token goes there.
        let other = config.codex.remote_url.as_ref().map(|setting| setting.value.as_str());
        let url = said.url.or(config.bridge.remote_url.as_deref()).or(other).ok_or_else(|| {
            Trouble::usage("no hub URL given")
                .fix("name the address with --remote-url, or as remote_url in [bridge] of the settings")
        })?;
        let address = Address::parse(url, said.insecure).map_err(|error| bad_address(url, error))?;
        let token = match said.token {
            Some(token) => Some(token.to_owned()),
            None => {
                VARIABLES.into_iter().find_map(paths::variable).and_then(|value| value.into_string().ok())
            }
        };
        let token = token.ok_or_else(|| {
            let because = match config.codex.token_file.as_deref() {
                Some(path) => {
                    format!("the token in {} is not used: files are copied and shared", path.display())
                }
                None => "without one, everybody could pass for this machine".to_owned(),
            };
            Trouble::usage("a bridge needs a token")
                .because(because)
                .fix("set ROPEWALK_BRIDGE_TOKEN (or FERRET_BRIDGE_TOKEN) to one that the hub made, or to what `openssl rand -hex 32` prints, on both sides")
        })?;
        secrets::also(token.trim());
        let token = Token::new(&token).ok_or_else(|| {
            Trouble::usage("the bridge's token cannot be sent")
                .because("it is empty, too long, or has characters that no header can carry")
                .fix("set ROPEWALK_BRIDGE_TOKEN to letters and digits")
        })?;
        let warning = insecure_warning(&address, said.insecure);
        warning.iter().for_each(|text| warn(text));
        let answers = said.answers.or(config.bridge.answers).unwrap_or_default();
        let codex = config.codex.replay_window.as_ref().map(|window| window.value);
        let replay_window =
            said.replay_window.or(config.bridge.replay_window).or(codex).unwrap_or(REPLAY_WINDOW);
        let e2e = said.e2e || config.bridge.e2e;
        Ok(Self { address, token, answers, replay_window, e2e, warning })
    }
}

fn insecure_warning(address: &Address, insecure: bool) -> Option<String> {
    let what = match (address.is_plain(), insecure) {
        (true, _) => format!("everybody on the way to {address} can read the token and the session"),
        (false, true) => {
            format!("any certificate is accepted for {address}, also one of somebody in between")
        }
        (false, false) => return None,
    };
    Some(format!("INSECURE: {what}; this is for development only"))
}

fn bad_address(url: &str, error: BadAddress) -> Trouble {
    // What stands in it may be a secret.
    let shown = if error == BadAddress::HasSecret { "that address" } else { url };
    let fix = match error {
        BadAddress::Plain => "use https://; for development only, add --insecure",
        BadAddress::NoAddress | BadAddress::HasSecret | BadAddress::HasQuery => {
            "write it as in https://hub.example.com"
        }
    };
    Trouble::usage(format!("{shown} cannot be bridged to")).because(error).fix(fix)
}

fn warn(text: &str) {
    terminal::say(&format!("{} {text}", terminal::stderr_paint().warn("warning:")));
}

/// How sessions are bridged, for the agent's command that says it.
pub fn reader(bridges: Bridges) -> ReadBridge {
    Arc::new(move |session| {
        let status = bridges.status(session);
        Some(BridgeView {
            connected: status.connected,
            url: status.url?,
            ui_url: status.ui_url,
            queued: status.queued,
        })
    })
}

/// What a bridge needs of the server whose sessions it carries.
pub struct House<'a> {
    pub registry: &'a Arc<Registry>,
    pub rules: &'a Rules,
    pub identity: &'a Identity,
    pub metrics: Option<&'a Arc<Metrics>>,
}

/// A bridge that runs, and what it stands on.
pub struct Bridging {
    bridge: Bridge,
    tasks: TaskTracker,
    stop: CancellationToken,
    _machine: Claimed,
}

impl Bridging {
    pub fn start(
        wanted: Wanted,
        house: &House<'_>,
        only: Option<SessionId>,
        teller: Teller,
    ) -> Result<Self, Trouble> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let rules = Rules { source: SOURCE.into(), ..house.rules.confined() };
        let host = server::host_name();
        let machine = Claimed::take(&host)?;
        let desk = Desk::new(DeskParts {
            registry: Arc::clone(house.registry),
            rules: rules.clone(),
            identity: house.identity.clone(),
            hall: Arc::new(Devices::default()),
            // The rules of this machine are shown to nobody elsewhere.
            extras: Extras { host, shelf: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let vault = match wanted.e2e {
            true => {
                if sealed::devices()?.is_empty() {
                    teller("[ferret] bridge: sealed, and no device can read it yet: ropewalk pair");
                }
                Some(Arc::new(sealed::vault(&machine.described().id, &wanted.address.to_string())?))
            }
            false => None,
        };
        let bridge = Bridge::start(BridgeParts {
            address: wanted.address,
            token: wanted.token,
            desk,
            identity: house.identity.clone(),
            rules,
            metrics: house.metrics.cloned(),
            machine: Some(machine.described()),
            vault,
            only,
            answers: wanted.answers,
            replay_window: wanted.replay_window,
            pace: Pace::default(),
            teller,
        });
        Ok(Self { bridge: bridge.map_err(|broken| trouble(&broken))?, tasks, stop, _machine: machine })
    }

    /// Waits for what ends the bridge, if something does.
    pub async fn failed(&mut self) -> Trouble {
        trouble(&self.bridge.failed().await)
    }

    /// Takes leave of the receiver. The sessions are ended by now, so that all of them is told.
    pub async fn finish(self) {
        self.bridge.finish().await;
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("a line of the bridge did not end");
        }
    }
}

fn trouble(broken: &Broken) -> Trouble {
    let told = match broken {
        Broken::Unauthorized | Broken::Forbidden => Trouble::usage(broken.to_string()),
        _ => Trouble::failed(broken.to_string()),
    };
    told.fix(broken.fix())
}

/// `ropewalk bridge`.
pub fn run(options: &BridgeOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(bridge(options));
    // The thread that reads the terminal may be stuck in a read; nothing needs it.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|trouble| trouble.report(false)))
}

async fn bridge(options: &BridgeOptions) -> Result<ExitCode, Trouble> {
    let said = Line {
        url: options.remote_url.as_deref(),
        token: options.auth_token.as_deref(),
        answers: options.answers.map(|word| word.answers()),
        replay_window: options.replay_window,
        e2e: options.e2e,
        insecure: options.insecure,
    };
    let wanted = Wanted::of(&said, &config::user()?)?;
    let folder = run::folder(options.session.cwd.as_deref())?;
    let here = Here::start(&options.chat(String::new()), &folder, &Start::Any).await?;
    let outcome = match session(options, here.registry(), &folder).await {
        Ok(session) => drive(options, wanted, &here, &folder, session).await,
        Err(trouble) => Err(trouble),
    };
    here.finish().await;
    outcome
}

/// The session that is bridged: a new one, or one that is gone on with.
async fn session(
    options: &BridgeOptions,
    registry: &Arc<Registry>,
    folder: &Path,
) -> Result<SessionId, Trouble> {
    let owner = Principal::local();
    let known = match (&options.session.resume, options.session.newest) {
        (Some(_), _) | (_, true) if options.guard.ephemeral => {
            return Err(Trouble::usage("--ephemeral keeps no session to go on with")
                .fix("leave --ephemeral out, or --resume and --continue"));
        }
        (Some(text), _) => {
            eventlog::take_in_named(text, folder).await?;
            Some(find::one(registry, text).await?.id)
        }
        (None, true) => {
            let query =
                ListQuery { owner: owner.clone(), cwd: Some(folder.to_owned()), before: None, limit: 1 };
            let newest = registry.list_used(query).await.map_err(Trouble::open)?.pop();
            let none =
                || Trouble::not_found("there is no session in this folder yet").fix("leave --continue out");
            Some(newest.ok_or_else(none)?.row.id)
        }
        (None, false) => None,
    };
    let handle = match known {
        Some(id) => registry.open(&owner, &id).await,
        None => {
            let wish = engine::Wish::new(owner, folder.to_owned(), SOURCE);
            registry.create_with_id(wish, options.dialect.make_id()).await
        }
    };
    Ok(handle.map_err(Trouble::open)?.id().clone())
}

async fn drive(
    options: &BridgeOptions,
    wanted: Wanted,
    here: &Here,
    folder: &Path,
    session: SessionId,
) -> Result<ExitCode, Trouble> {
    let watched = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if let Some(why) = unread_input() {
        terminal::say(&format!("[ferret] bridge: {why}, so input is not read here; Ctrl-C ends the bridge"));
    }
    let said = Arc::new(Said::new(session.clone(), here.rules().bridges.clone()));
    let house =
        House { registry: here.registry(), rules: here.rules(), identity: here.identity(), metrics: None };
    // Before anybody is told that the bridge stands: whoever ends it then is to find it listening.
    let signals = Signals::new()?;
    let context = ClientContext {
        warnings: wanted.warning.iter().cloned().collect(),
        interrupt_ends: true,
        status: Some(said.status()),
        ..ClientContext::default()
    };
    let mut bridging = Bridging::start(wanted, &house, Some(session.clone()), said.teller())?;
    let beside = async {
        if watched {
            client(options, here, (folder, session), signals, &said, context).await
        } else {
            signals.any().await
        }
    };
    let outcome = tokio::select! {
        trouble = bridging.failed() => Err(trouble),
        outcome = beside => outcome,
    };
    said.drawing(false);
    here.registry().shutdown().await;
    bridging.finish().await;
    outcome
}

/// Why what somebody types or pipes into the bridge is not read. Nothing, if it is read or nothing can come.
fn unread_input() -> Option<&'static str> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return (!std::io::stdout().is_terminal()).then_some("standard output is not a terminal");
    }
    // Services get /dev/null, which is no file, pipe or socket.
    let kind = terminal::input_kind()?;
    (kind.is_fifo() || kind.is_socket() || kind.is_file()).then_some("standard input is not a terminal")
}

/// What ends the bridge from outside.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Trouble> {
        let install = |kind| {
            signal(kind).map_err(|error| Trouble::failed("could not install signal handlers").because(error))
        };
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }

    async fn any(mut self) -> Result<ExitCode, Trouble> {
        self.next().await;
        Ok(ExitCode::SUCCESS)
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The client of `chat`, at the terminal that the bridge was started from.
async fn client(
    options: &BridgeOptions,
    here: &Here,
    (folder, session): (&Path, SessionId),
    mut signals: Signals,
    said: &Said,
    context: ClientContext,
) -> Result<ExitCode, Trouble> {
    // Before the screen is drawn, there is a line to read.
    tokio::select! {
        () = signals.next() => return Ok(ExitCode::SUCCESS),
        _ = tokio::time::timeout(FIRST_WAIT, said.decided()) => {}
    }
    let plain = options.plain;
    said.drawing(!plain);
    let options = options.chat(session.to_string());
    let wish = Wish {
        folder: folder.display().to_string(),
        settings: chat::settings(&options),
        prompt: None,
        start: Start::Named(session.to_string()),
    };
    // Line by line, an interrupt stops the turn first; on a full screen it comes as a key, and as a signal only from outside.
    let ended = async {
        if !plain {
            return signals.next().await;
        }
        signals.terminate.recv().await;
    };
    tokio::select! {
        () = ended => Ok(ExitCode::SUCCESS),
        // However the client was left, and whatever became of its last turn: the bridge was ended, not broken.
        outcome = chat::show(&options, wish, here, context) => outcome.map(|_| ExitCode::SUCCESS),
    }
}
