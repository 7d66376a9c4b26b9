//! `ropewalk bridge`, and the bridge of the commands that serve: chooses the URL, the token and the session.

mod machine_id;
mod status_lines;

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::bridge::{
    BadAddress, Bridge, BridgeError as Broken, BridgeParts, BridgeTimings, REPLAY_WINDOW, ReceiverAddress,
    RemoteAnswers, StatusPrinter, Token,
};
use ::terminal::{StartOptions, WhichSession};
use access::devices::Devices;
use agent::{BridgeView, ReadBridge};
use app::{AppServer, AppServerExtras, AppServerParts};
use engine::{ListQuery, Principal, Registry, SessionId};
use metrics::Metrics;
use service::{BridgeStatuses, ServiceRules};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Identity;

use self::machine_id::MachineClaim;
use self::status_lines::StatusLines;
use crate::chat::ClientContext;
use crate::chat::in_process_server::InProcessServer;
use crate::cli::{BridgeOptions, ServeBridgeOptions};
use crate::cli_error::CliError;
use crate::config::{self, Config};
use crate::sessions::find;
use crate::{chat, chimera_event_log, output, paths, registry, run, sealed_devices, secrets_to_redact};

/// Variables that may hold the token.
const VARIABLES: [&str; 2] = ["ROPEWALK_BRIDGE_TOKEN", "FERRET_BRIDGE_TOKEN"];
/// The source of these sessions, as listings show it.
const SOURCE: &str = "bridge";
/// How long the terminal waits for the first connection before it draws the screen.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// How long connections may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// A bridge that is ready to start: its options are checked.
pub struct BridgeConfig {
    address: ReceiverAddress,
    token: Token,
    answers: RemoteAnswers,
    replay_window: u64,
    e2e: bool,
    /// A warning that was printed, to be repeated on a full screen.
    warning: Option<String>,
}

/// The bridge options of the command line.
struct BridgeArguments<'a> {
    url: Option<&'a str>,
    token: Option<&'a str>,
    answers: Option<RemoteAnswers>,
    replay_window: Option<u64>,
    e2e: bool,
    insecure: bool,
}

impl BridgeConfig {
    /// The bridge of a command that serves; `None` without `--bridge`.
    pub fn for_server(options: &ServeBridgeOptions, config: &Config) -> Result<Option<Self>, CliError> {
        let Some(url) = &options.bridge else { return Ok(None) };
        let said = BridgeArguments {
            url: Some(url.as_str()).filter(|url| !url.is_empty()),
            token: options.bridge_token.as_deref(),
            answers: options.answers.map(|word| word.answers()),
            replay_window: options.replay_window,
            e2e: options.e2e,
            insecure: options.insecure,
        };
        Self::of(&said, config).map(Some)
    }

    fn of(said: &BridgeArguments<'_>, config: &Config) -> Result<Self, CliError> {
        if config.bridge.has_token {
            warn(
                "ignoring the token in the settings file, because such files get copied and shared; set ROPEWALK_BRIDGE_TOKEN instead",
            );
        }
        // Never read from a project's file: the token is sent there.
        let other = config.codex.remote_url.as_ref().map(|setting| setting.value.as_str());
        let url = said.url.or(config.bridge.remote_url.as_deref()).or(other).ok_or_else(|| {
            CliError::usage("no hub URL given")
                .fix("pass --remote-url, or set remote_url in [bridge] of your settings")
        })?;
        let address =
            ReceiverAddress::parse(url, said.insecure).map_err(|error| address_error(url, error))?;
        let token = match said.token {
            Some(token) => Some(token.to_owned()),
            None => {
                VARIABLES.into_iter().find_map(paths::variable).and_then(|value| value.into_string().ok())
            }
        };
        let token = token.ok_or_else(|| {
            let because = match config.codex.token_file.as_deref() {
                Some(path) => {
                    format!("the token in {} is ignored, because such files get copied and shared", path.display())
                }
                None => "without one, anyone could pose as this machine".to_owned(),
            };
            CliError::usage("a bridge needs a token")
                .because(because)
                .fix("set ROPEWALK_BRIDGE_TOKEN (or FERRET_BRIDGE_TOKEN) to a token from the hub, or set the output of `openssl rand -hex 32` on both sides")
        })?;
        secrets_to_redact::add(token.trim());
        let token = Token::new(&token).ok_or_else(|| {
            CliError::usage("the bridge token is invalid")
                .because("it is empty, too long, or contains characters that an HTTP header cannot carry")
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

fn insecure_warning(address: &ReceiverAddress, insecure: bool) -> Option<String> {
    let what = match (address.is_plain(), insecure) {
        (true, _) => format!("anyone between this machine and {address} can read the token and the session"),
        (false, true) => {
            format!("any certificate is accepted for {address}, even that of an attacker in between")
        }
        (false, false) => return None,
    };
    Some(format!("INSECURE: {what}; this is for development only"))
}

fn address_error(url: &str, error: BadAddress) -> CliError {
    // The URL may contain a secret.
    let shown = if error == BadAddress::HasSecret { "the given URL" } else { url };
    let fix = match error {
        BadAddress::Plain => "use https://, or pass --insecure for development only",
        BadAddress::NoAddress | BadAddress::HasSecret | BadAddress::HasQuery => {
            "use a URL such as https://hub.example.com"
        }
    };
    CliError::usage(format!("cannot use {shown} as a hub URL")).because(error).fix(fix)
}

fn warn(text: &str) {
    output::say(&format!("{} {text}", output::stderr_paint().warn("warning:")));
}

/// The bridge status of sessions, for the agent's command that shows it.
pub fn reader(bridges: BridgeStatuses) -> ReadBridge {
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

/// The server whose sessions a bridge carries.
pub struct BridgedServer<'a> {
    pub registry: &'a Arc<Registry>,
    pub rules: &'a ServiceRules,
    pub identity: &'a Identity,
    pub metrics: Option<&'a Arc<Metrics>>,
}

/// A running bridge and its tasks.
pub struct RunningBridge {
    bridge: Bridge,
    tasks: TaskTracker,
    stop: CancellationToken,
    _machine: MachineClaim,
}

impl RunningBridge {
    pub fn start(
        wanted: BridgeConfig,
        bridged: &BridgedServer<'_>,
        only: Option<SessionId>,
        teller: StatusPrinter,
    ) -> Result<Self, CliError> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let rules = ServiceRules { source: SOURCE.into(), ..bridged.rules.confined() };
        let host = registry::host_name();
        let machine = MachineClaim::take(&host)?;
        let app = AppServer::new(AppServerParts {
            registry: Arc::clone(bridged.registry),
            rules: rules.clone(),
            identity: bridged.identity.clone(),
            devices: Arc::new(Devices::default()),
            // The rules of this machine are not shown elsewhere.
            extras: AppServerExtras { host, rule_store: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let vault = match wanted.e2e {
            true => {
                if sealed_devices::devices()?.is_empty() {
                    teller(
                        "[ferret] bridge: encrypted end to end, but no device is paired yet; run ropewalk pair",
                    );
                }
                Some(Arc::new(sealed_devices::vault(&machine.described().id, &wanted.address.to_string())?))
            }
            false => None,
        };
        let bridge = Bridge::start(BridgeParts {
            address: wanted.address,
            token: wanted.token,
            app,
            identity: bridged.identity.clone(),
            rules,
            metrics: bridged.metrics.cloned(),
            machine: Some(machine.described()),
            vault,
            only,
            answers: wanted.answers,
            replay_window: wanted.replay_window,
            timings: BridgeTimings::default(),
            print_status: teller,
        });
        Ok(Self { bridge: bridge.map_err(|broken| cli_error(&broken))?, tasks, stop, _machine: machine })
    }

    /// Waits until the bridge fails, if it does.
    pub async fn failed(&mut self) -> CliError {
        cli_error(&self.bridge.failed().await)
    }

    /// Says goodbye to the receiver. The sessions have ended by now, so everything of them has been sent.
    pub async fn finish(self) {
        self.bridge.finish().await;
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("a connection of the bridge did not end in time");
        }
    }
}

fn cli_error(broken: &Broken) -> CliError {
    let told = match broken {
        Broken::Unauthorized | Broken::Forbidden => CliError::usage(broken.to_string()),
        _ => CliError::failed(broken.to_string()),
    };
    told.fix(broken.fix())
}

/// `ropewalk bridge`.
pub fn run(options: &BridgeOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(bridge(options));
    // The thread that reads the terminal may block forever; nothing needs it.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|error| error.report(false)))
}

async fn bridge(options: &BridgeOptions) -> Result<ExitCode, CliError> {
    let said = BridgeArguments {
        url: options.remote_url.as_deref(),
        token: options.auth_token.as_deref(),
        answers: options.answers.map(|word| word.answers()),
        replay_window: options.replay_window,
        e2e: options.e2e,
        insecure: options.insecure,
    };
    let wanted = BridgeConfig::of(&said, &config::user()?)?;
    let folder = run::folder(options.session.cwd.as_deref())?;
    let in_process =
        InProcessServer::start(&options.chat(String::new()), &folder, &WhichSession::Any).await?;
    let outcome = match session(options, in_process.registry(), &folder).await {
        Ok(session) => drive(options, wanted, &in_process, &folder, session).await,
        Err(error) => Err(error),
    };
    in_process.finish().await;
    outcome
}

/// The session to bridge: a new one, or one to continue.
async fn session(
    options: &BridgeOptions,
    registry: &Arc<Registry>,
    folder: &Path,
) -> Result<SessionId, CliError> {
    let owner = Principal::local();
    let known = match (&options.session.resume, options.session.newest) {
        (Some(_), _) | (_, true) if options.guard.ephemeral => {
            return Err(CliError::usage("--ephemeral stores no session to continue")
                .fix("remove --ephemeral, or remove --resume and --continue"));
        }
        (Some(text), _) => {
            chimera_event_log::import_named(text, folder).await?;
            Some(find::one(registry, text).await?.id)
        }
        (None, true) => {
            let query =
                ListQuery { owner: owner.clone(), cwd: Some(folder.to_owned()), before: None, limit: 1 };
            let newest = registry.list_used(query).await.map_err(CliError::from_open)?.pop();
            let none = || CliError::not_found("no session in this folder yet").fix("remove --continue");
            Some(newest.ok_or_else(none)?.row.id)
        }
        (None, false) => None,
    };
    let handle = match known {
        Some(id) => registry.open(&owner, &id).await,
        None => {
            let wish = engine::NewSessionRequest::new(owner, folder.to_owned(), SOURCE);
            registry.create_with_id(wish, options.dialect.make_id()).await
        }
    };
    Ok(handle.map_err(CliError::from_open)?.id().clone())
}

async fn drive(
    options: &BridgeOptions,
    wanted: BridgeConfig,
    in_process: &InProcessServer,
    folder: &Path,
    session: SessionId,
) -> Result<ExitCode, CliError> {
    let watched = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if let Some(why) = unread_input() {
        output::say(&format!("[ferret] bridge: {why}, so input is ignored; press Ctrl-C to end the bridge"));
    }
    let said = Arc::new(StatusLines::new(session.clone(), in_process.rules().bridges.clone()));
    let bridged = BridgedServer {
        registry: in_process.registry(),
        rules: in_process.rules(),
        identity: in_process.identity(),
        metrics: None,
    };
    // Installed before the bridge reports that it is connected: a signal after that must be handled.
    let signals = Signals::new()?;
    let context = ClientContext {
        warnings: wanted.warning.iter().cloned().collect(),
        interrupt_ends: true,
        status: Some(said.status()),
        ..ClientContext::default()
    };
    let mut bridging = RunningBridge::start(wanted, &bridged, Some(session.clone()), said.teller())?;
    let beside = async {
        if watched {
            client(options, in_process, (folder, session), signals, &said, context).await
        } else {
            signals.any().await
        }
    };
    let outcome = tokio::select! {
        error = bridging.failed() => Err(error),
        outcome = beside => outcome,
    };
    said.drawing(false);
    in_process.registry().shutdown().await;
    bridging.finish().await;
    outcome
}

/// Why input to the bridge is ignored; `None` if it is read or there can be none.
fn unread_input() -> Option<&'static str> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return (!std::io::stdout().is_terminal()).then_some("standard output is not a terminal");
    }
    // Services get /dev/null, which is not a file, pipe or socket.
    let kind = output::input_kind()?;
    (kind.is_fifo() || kind.is_socket() || kind.is_file()).then_some("standard input is not a terminal")
}

/// The signals that end the bridge.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, CliError> {
        let install = |kind| {
            signal(kind).map_err(|error| CliError::failed("could not install signal handlers").because(error))
        };
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }

    async fn any(mut self) -> Result<ExitCode, CliError> {
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

/// Runs the terminal client of `chat` next to the bridge.
async fn client(
    options: &BridgeOptions,
    in_process: &InProcessServer,
    (folder, session): (&Path, SessionId),
    mut signals: Signals,
    said: &StatusLines,
    context: ClientContext,
) -> Result<ExitCode, CliError> {
    // Leave time to read the status line before the screen is drawn.
    tokio::select! {
        () = signals.next() => return Ok(ExitCode::SUCCESS),
        _ = tokio::time::timeout(FIRST_WAIT, said.decided()) => {}
    }
    let plain = options.plain;
    said.drawing(!plain);
    let options = options.chat(session.to_string());
    let wish = StartOptions {
        folder: folder.display().to_string(),
        settings: chat::settings(&options),
        prompt: None,
        session: WhichSession::Named(session.to_string()),
    };
    // In plain mode, an interrupt first stops the turn. On a full screen, Ctrl-C is a key, so a signal comes from outside.
    let ended = async {
        if !plain {
            return signals.next().await;
        }
        signals.terminate.recv().await;
    };
    tokio::select! {
        () = ended => Ok(ExitCode::SUCCESS),
        // However the client ended, and whatever its last turn did: the bridge itself did not fail.
        outcome = chat::show(&options, wish, in_process, context) => outcome.map(|_| ExitCode::SUCCESS),
    }
}
