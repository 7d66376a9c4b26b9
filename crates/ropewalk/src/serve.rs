//! `ropewalk serve`: serves an editor on standard input and output until it disconnects, or HTTP until the server is
//! stopped, or both on the same sessions.

mod stdio_relay;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::server::{ConnectionParts, FlushedConnection, OnInitialize};
use access::devices::Devices;
use engine::{CallerKind, Principal, Registry, SessionLimits, SystemClock, Timestamp};
use service::ServiceRules;
use store::audit::Audit;
use tokio::signal::unix::{SignalKind, signal};
use wire::{Dialect, DialectSelection, Identity, SandboxBackends};

use crate::bridge::{BridgeConfig, BridgedServer, RunningBridge};
use crate::cli::ServeOptions;
use crate::cli_error::CliError;
use crate::config::{self, Config, ServerSettings};
use crate::external_agents::{self, ExternalAgent, OwnAgentOptions};
use crate::guard_settings::Guards;
use crate::http_door::{HttpDoor, OpenHttpDoor, Shared};
use crate::metrics::ServerMetrics;
use crate::models::Models;
use crate::session_store::SessionStore;
use crate::up::UpSetup;
use crate::{audit, editor_snippets, output, paths, registry, run, sandbox_backends};
use stdio_relay::JoinDecision;

pub fn run(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let options = match config::user().and_then(|config| options.clone().with_transport(&config)) {
        Ok(options) => options,
        Err(error) => return Ok(error.report(false)),
    };
    let differs = match stdio_relay::find_running(&options) {
        Ok(JoinDecision::Join(found)) => return stdio_relay::run(&found, &options),
        Ok(JoinDecision::Differs(found, why)) => {
            let address = found.address();
            output::say(&format!(
                "another ropewalk already serves {address}, but {why}; serving this editor only, without HTTP"
            ));
            true
        }
        Ok(JoinDecision::NoServer) => false,
        Err(error) => return Ok(error.report(false)),
    };
    match prepare(&options) {
        Ok(prepared) if differs => finish(ServerSetup { door: None, ..prepared }),
        Ok(prepared) => finish_or_join(prepared, &options),
        Err(error) => Ok(error.report(false)),
    }
}

/// Two editors may start a server at the same time: the one that loses joins the other.
fn finish_or_join(prepared: ServerSetup, options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let Err(error) = serve_to_the_end(prepared)? else { return Ok(ExitCode::SUCCESS) };
    match stdio_relay::find_running(options) {
        Ok(JoinDecision::Join(found)) => stdio_relay::run(&found, options),
        Ok(JoinDecision::Differs(..) | JoinDecision::NoServer) | Err(_) => Ok(error.report(false)),
    }
}

/// `up`: serves a person, with the web app.
pub fn run_for_person(options: &ServeOptions, up: UpSetup) -> anyhow::Result<ExitCode> {
    match prepare(options).map(|prepared| prepared.for_person(up)) {
        Ok(prepared) => finish(prepared),
        Err(error) => Ok(error.report(false)),
    }
}

fn finish(prepared: ServerSetup) -> anyhow::Result<ExitCode> {
    Ok(match serve_to_the_end(prepared)? {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(false),
    })
}

fn serve_to_the_end(prepared: ServerSetup) -> anyhow::Result<Result<(), CliError>> {
    if prepared.stdio && std::io::stdin().is_terminal() {
        welcome();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(prepared))?;
    // The thread that reads standard input may block forever; nothing needs it.
    runtime.shutdown_background();
    Ok(ended)
}

/// A server that is ready to start.
struct ServerSetup {
    registry: Arc<Registry>,
    audit: Option<Arc<Audit>>,
    meters: ServerMetrics,
    rules: ServiceRules,
    identity: Identity,
    dialect: DialectSelection,
    stdio: bool,
    door: Option<HttpDoor>,
    /// Whether to look for model servers on this machine.
    probe: bool,
    devices: Arc<Devices>,
    idle_timeout: Duration,
    /// The model for new sessions.
    model: Option<Arc<str>>,
    /// The external agent, if it replaces the built-in one.
    external_agent: Option<ExternalAgent>,
    /// What `up` shows a person when the server is ready.
    up: Option<UpSetup>,
    /// The bridge to start, if any.
    bridge: Option<BridgeConfig>,
}

impl ServerSetup {
    fn for_person(mut self, mut up: UpSetup) -> Self {
        self.door = self.door.map(|door| up.adapt_door(door));
        self.up = Some(up);
        self
    }

    /// The line about the agent or the model in the greeting of `up`: its label and text.
    fn agent_or_model(&self) -> (&'static str, String) {
        match (&self.external_agent, self.model.as_deref()) {
            (Some(external_agent), _) => ("agent", external_agent.name.to_string()),
            (None, Some(model)) if !model.starts_with("offline:") => ("model", model.to_owned()),
            (None, _) => (
                "model",
                "offline demo model (no key needed); to use a real one: ropewalk models list".into(),
            ),
        }
    }

    /// Starts the bridge, if one is configured.
    fn bridge(&mut self, shared: &Shared) -> Result<Option<RunningBridge>, CliError> {
        let Some(wanted) = self.bridge.take() else { return Ok(None) };
        let bridged = BridgedServer {
            registry: &shared.registry,
            rules: &shared.rules,
            identity: &shared.identity,
            metrics: Some(&shared.metrics),
        };
        let teller = Arc::new(|text: &str| output::say(&output::harmless(text)));
        RunningBridge::start(wanted, &bridged, None, teller).map(Some)
    }

    /// Builds what all doors share, and opens the HTTP door if one is configured.
    async fn open(&mut self, started: Timestamp) -> Result<(Shared, Option<OpenHttpDoor>), CliError> {
        let (registry, audit) = (&self.registry, self.audit.as_ref());
        if let Some(audit) = audit {
            registry::audit_devices(&self.devices, registry, audit);
        }
        let shared = Shared {
            registry: Arc::clone(registry),
            rules: self.rules.clone(),
            identity: self.identity.clone(),
            dialect: self.dialect,
            greeted: Some(greeted(registry, audit, &self.identity.sandbox_backends)),
            metrics: Arc::clone(&self.meters.metrics),
            started,
            idle_timeout: self.idle_timeout,
            devices: Arc::clone(&self.devices),
            extras: registry::extras(registry, audit, &self.rules.home_dir)?,
        };
        let http = match self.door.take() {
            Some(door) => Some(door.open(&shared).await?),
            None => None,
        };
        Ok((shared, http))
    }
}

/// Checks all options before the first client is served.
fn prepare(options: &ServeOptions) -> Result<ServerSetup, CliError> {
    let mut guards = Guards::of(&options.guard)?;
    guards.require_sandbox(&options.guard)?;
    let home_dir = run::folder(options.cwd.as_deref())?;
    let (budget, guard) = (&options.budget, &options.guard);
    let own_options = OwnAgentOptions { budget, guard, model: options.model.as_deref(), estimate: false };
    external_agents::choose(&mut guards, &options.agent, &options.command, &own_options, &home_dir)?;
    if guards.external_agent.is_none() {
        guards.models = models(options, &guards.config)?;
    }
    let bridge = BridgeConfig::for_server(&options.bridge, &guards.config)?;
    let door = HttpDoor::prepare(&options.http, &guards.config)?;
    let door = door.map(|door| door.started_with(stdio_relay::options_digest(options)));
    let allowed = options.allow_dir.iter().map(|dir| run::folder(Some(dir)));
    let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
    let settings = ServerSettings::of(options, &guards.config);
    let idle_timeout = match settings.idle_timeout.value {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds),
    };
    let limits = SessionLimits {
        sessions_max: usize::try_from(settings.max_sessions.value).unwrap_or(usize::MAX),
        idle_timeout,
        ask_timeout: settings.ask_timeout.value.map(Duration::from_secs),
        attended: true,
    };
    let rules = ServiceRules {
        home_dir,
        allowed_dirs: (!allowed.is_empty()).then_some(allowed),
        list_max: options.max_history,
        history_max: history_max()?.unwrap_or(ServiceRules::default().history_max),
        bridges: guards.bridges.clone(),
        ..ServiceRules::default()
    };
    let identity = Identity {
        name: settings.agent_name.value,
        title: "Ropewalk".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sandbox: guards.reach.mode.name().into(),
        sandbox_backends: SandboxBackends::default(),
        adapters: vec![guards.external_agent.as_ref().map_or("ropewalk", |agent| &agent.name).to_owned()],
        disabled: guards.config.acp.disable.clone(),
    };
    let meters = ServerMetrics::new(options.otlp.as_deref())?;
    let pushes = door.as_ref().and_then(HttpDoor::follower);
    let (registry, audit) = registry::serving_registry(limits, &guards, &meters, pushes)?;
    let probe = guards.models.probe;
    let stdio = options.stdio || door.is_none() || takes_piped_input(options);
    let dialect = options.spoken();
    let devices = Arc::new(Devices::open(Some(paths::devices()?), Arc::new(SystemClock)));
    let model = guards.models.first().filter(|_| guards.external_agent.is_none());
    Ok(ServerSetup {
        registry,
        audit,
        meters,
        rules,
        identity,
        dialect,
        stdio,
        door,
        probe,
        devices,
        idle_timeout,
        model,
        external_agent: guards.external_agent,
        up: None,
        bridge,
    })
}

/// `ferret serve --http` promises that an editor plugin and an HTTP client can share one process, and has no option for it.
/// So if standard input is a pipe, it is served too. Services and background jobs have /dev/null there.
fn takes_piped_input(options: &ServeOptions) -> bool {
    options.preferred == Some(Dialect::Ferret) && output::input_is_piped()
}

/// How many updates are replayed to a client of a dialect that numbers them. The variable is otter's.
fn history_max() -> Result<Option<u64>, CliError> {
    const NAME: &str = "OTTER_ACP_DEFAULT_HISTORY_SIZE";
    let Some(text) = paths::variable(NAME) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    let wrong = || {
        CliError::usage(format!("{NAME} must be a number"))
            .fix("set it to a number such as 1024, or unset it")
    };
    number.map(Some).ok_or_else(wrong)
}

fn models(options: &ServeOptions, config: &Config) -> Result<Models, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("could not look for models").because(error))?;
    let mut models = runtime.block_on(Models::find(config, options.model.as_deref()))?;
    models.limit(&options.budget);
    models.budget.session_usd = options.budget.max_cost.or(models.budget.session_usd);
    Ok(models)
}

async fn serve(prepared: ServerSetup) -> anyhow::Result<Result<(), CliError>> {
    let external_agent = prepared.external_agent.clone();
    if let Some(external_agent) = &external_agent {
        external_agent.warm();
    }
    let served = serve_until_ended(prepared).await;
    if let Some(external_agent) = external_agent {
        external_agent.end().await;
    }
    served
}

async fn serve_until_ended(mut prepared: ServerSetup) -> anyhow::Result<Result<(), CliError>> {
    let registry = Arc::clone(&prepared.registry);
    let started = registry.clock().now();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    registry.start_reaper();
    prepared.meters.start();
    if prepared.probe {
        registry.tracker().spawn(Models::refresh_local());
    }
    let catching_up = prepared.audit.clone().map(|audit| {
        let shared = matches!(SessionStore::chosen(), Ok(SessionStore::Postgres(_)));
        registry.tracker().spawn(async move { audit.catch_up(Principal::local(), started, shared).await })
    });
    let (shared, http) = match prepared.open(started).await {
        Ok(opened) => opened,
        Err(error) => {
            registry.shutdown().await;
            return Ok(Err(error));
        }
    };
    if let (Some(up), Some(open)) = (&prepared.up, &http) {
        up.show(&shared, open, &prepared.agent_or_model()).await;
    }
    let mut bridging = match prepared.bridge(&shared) {
        Ok(bridging) => bridging,
        Err(error) => {
            registry.shutdown().await;
            return Ok(Err(error));
        }
    };
    let mut editor = if prepared.stdio { Some(self::editor(&shared)?) } else { None };
    tokio::select! {
        () = hung_up(&mut editor, http.is_some()) => tracing::info!("the client closed the connection"),
        _ = terminate.recv() => tracing::info!("asked to stop"),
        _ = interrupt.recv() => tracing::info!("interrupted"),
        () = given_up(&mut bridging) => {}
    }
    if let Some(editor) = &editor {
        editor.stop_reading();
    }
    if let Some(http) = &http {
        http.stop();
    }
    // The next start continues where it stops.
    if let Some(catching_up) = catching_up {
        catching_up.abort();
    }
    registry.shutdown().await;
    if let Some(bridging) = bridging {
        bridging.finish().await;
    }
    if let Some(http) = http {
        http.finish().await;
    }
    if let Some(editor) = editor {
        editor.finish().await;
    }
    prepared.meters.finish().await;
    Ok(Ok(()))
}

/// Reports why the bridge failed, if it does. The server continues without it.
async fn given_up(bridging: &mut Option<RunningBridge>) {
    if let Some(running) = bridging {
        let error = running.failed().await;
        // The bridge does not decide the exit code.
        let _code = error.report(false);
    }
    std::future::pending().await
}

/// The client on standard input and output.
fn editor(shared: &Shared) -> anyhow::Result<FlushedConnection> {
    let parts = ConnectionParts {
        registry: Arc::clone(&shared.registry),
        principal: Principal::local(),
        kind: CallerKind::Owner,
        local_answers: false,
        rules: shared.rules.clone(),
        identity: shared.identity.clone(),
        dialect: shared.dialect,
        client: None,
        name: "client".into(),
        zeph: false,
        any_session: false,
        metrics: Some((Arc::clone(&shared.metrics), metrics::DoorLabel::Stdio)),
        on_initialize: shared.greeted.clone(),
    };
    Ok(FlushedConnection::start(parts, ::server::stdio::open()?))
}

/// Waits until the editor has disconnected. With HTTP, there may be other clients: then this finishes the
/// editor's connection and waits forever.
async fn hung_up(editor: &mut Option<FlushedConnection>, http: bool) {
    if let Some(client) = editor {
        client.input_ended().await;
        if !http {
            return;
        }
    }
    if let Some(client) = editor.take() {
        client.finish().await;
        tracing::info!("the editor closed the connection; HTTP continues");
    }
    std::future::pending().await
}

/// Audits every client that introduces itself. Clients of the older dialects, which send no version number, are told
/// which sandbox backends work here, so those are probed before the answer.
fn greeted(registry: &Registry, audit: Option<&Arc<Audit>>, backends: &SandboxBackends) -> OnInitialize {
    let (clock, audit) = (Arc::clone(registry.clock()), audit.cloned());
    let backends = backends.clone();
    Arc::new(move |hello| {
        let audited = audit.as_ref().map(|audit| audit.post(audit::initialized(clock.now(), hello)));
        let backends = hello.version.is_none().then(|| backends.clone());
        Box::pin(async move {
            if let Some(backends) = backends {
                backends.set(sandbox_backends::names().await);
            }
            if let Some(audited) = audited {
                audited.await;
            }
        })
    })
}

/// Explains the command to a person who started it by hand on a terminal.
fn welcome() {
    eprintln!("ropewalk {} is waiting for an editor on standard input.\n", env!("CARGO_PKG_VERSION"));
    if let Ok(sessions) = SessionStore::chosen() {
        eprintln!("Sessions are stored in {}.", sessions.location());
    }
    eprintln!(
        "You can try it without a model key: the offline demo model answers. See `ropewalk models list`.\n"
    );
    // An editor should start the same command that was typed.
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    eprintln!("{}", editor_snippets::all(&words));
    eprintln!("Press Ctrl-D to stop.");
}
