//! `ropewalk serve`: an editor on standard input and output until it hangs up, or HTTP until somebody
//! ends it, or both on the same sessions.

mod joined;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::server::{ConnectionParts, Greeted, Served};
use access::devices::Devices;
use engine::{CallerKind, Limits, Principal, Registry, SystemClock, Timestamp};
use service::Rules;
use store::audit::Audit;
use tokio::signal::unix::{SignalKind, signal};
use wire::{Backends, Dialect, Identity, Spoken};

use crate::bridge::{Bridging, House, Wanted};
use crate::cli::ServeOptions;
use crate::config::{self, Config, ServerSettings};
use crate::doors::{Door, Open, Shared};
use crate::external::{self, OnlyOurs, Outside};
use crate::guards::Guards;
use crate::metrics::Meters;
use crate::models::Models;
use crate::session_store::SessionStore;
use crate::trouble::Trouble;
use crate::up::Up;
use crate::{audit, backends, editors, paths, run, server, terminal};
use joined::Beside;

pub fn run(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let options = match config::user().and_then(|config| options.clone().with_transport(&config)) {
        Ok(options) => options,
        Err(trouble) => return Ok(trouble.report(false)),
    };
    let unlike = match joined::look(&options) {
        Ok(Beside::Join(found)) => return joined::run(&found, &options),
        Ok(Beside::Unlike(found, why)) => {
            let address = found.address();
            terminal::say(&format!(
                "{address} is served by another ropewalk, and {why}; this one serves its editor alone, without HTTP"
            ));
            true
        }
        Ok(Beside::Nobody) => false,
        Err(trouble) => return Ok(trouble.report(false)),
    };
    match prepare(&options) {
        Ok(prepared) if unlike => finish(Prepared { door: None, ..prepared }),
        Ok(prepared) => finish_or_join(prepared, &options),
        Err(trouble) => Ok(trouble.report(false)),
    }
}

/// Two editors may start at once: the one that comes too late joins the other.
fn finish_or_join(prepared: Prepared, options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let Err(trouble) = serve_to_the_end(prepared)? else { return Ok(ExitCode::SUCCESS) };
    match joined::look(options) {
        Ok(Beside::Join(found)) => joined::run(&found, options),
        Ok(Beside::Unlike(..) | Beside::Nobody) | Err(_) => Ok(trouble.report(false)),
    }
}

/// The same for a person, with the web app on the way.
pub fn run_for_person(options: &ServeOptions, up: Up) -> anyhow::Result<ExitCode> {
    match prepare(options).map(|prepared| prepared.with(up)) {
        Ok(prepared) => finish(prepared),
        Err(trouble) => Ok(trouble.report(false)),
    }
}

fn finish(prepared: Prepared) -> anyhow::Result<ExitCode> {
    Ok(match serve_to_the_end(prepared)? {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(false),
    })
}

fn serve_to_the_end(prepared: Prepared) -> anyhow::Result<Result<(), Trouble>> {
    if prepared.stdio && std::io::stdin().is_terminal() {
        welcome();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(prepared))?;
    // The thread that reads standard input may be stuck in a read for ever; nothing needs it.
    runtime.shutdown_background();
    Ok(ended)
}

/// Everything that serving needs.
struct Prepared {
    registry: Arc<Registry>,
    audit: Option<Arc<Audit>>,
    meters: Meters,
    rules: Rules,
    identity: Identity,
    dialect: Spoken,
    stdio: bool,
    door: Option<Door>,
    /// What else listens on this machine is worth a look.
    probe: bool,
    hall: Arc<Devices>,
    idle_timeout: Duration,
    /// The model of new sessions.
    model: Option<Arc<str>>,
    /// Who works instead of our own agent.
    outside: Option<Outside>,
    /// What a person is shown and given when all is ready.
    up: Option<Up>,
    /// Where else people drive the sessions from.
    bridge: Option<Wanted>,
}

impl Prepared {
    fn with(mut self, mut up: Up) -> Self {
        self.door = self.door.map(|door| up.fit(door));
        self.up = Some(up);
        self
    }

    /// Who answers the person, for the person.
    fn thinks(&self) -> (&'static str, String) {
        match (&self.outside, self.model.as_deref()) {
            (Some(outside), _) => ("agent", outside.name.to_string()),
            (None, Some(model)) if !model.starts_with("offline:") => ("model", model.to_owned()),
            (None, _) => (
                "model",
                "offline: it needs no key and knows little; `ropewalk models list` says how to get another"
                    .into(),
            ),
        }
    }

    /// The bridge, if there is to be one.
    fn bridge(&mut self, shared: &Shared) -> Result<Option<Bridging>, Trouble> {
        let Some(wanted) = self.bridge.take() else { return Ok(None) };
        let house = House {
            registry: &shared.registry,
            rules: &shared.rules,
            identity: &shared.identity,
            metrics: Some(&shared.metrics),
        };
        let teller = Arc::new(|text: &str| terminal::say(&terminal::harmless(text)));
        Bridging::start(wanted, &house, None, teller).map(Some)
    }

    /// What every door uses, and the HTTP door if there is to be one.
    async fn open(&mut self, started: Timestamp) -> Result<(Shared, Option<Open>), Trouble> {
        let (registry, audit) = (&self.registry, self.audit.as_ref());
        if let Some(audit) = audit {
            server::audit_devices(&self.hall, registry, audit);
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
            hall: Arc::clone(&self.hall),
            extras: server::extras(registry, audit, &self.rules.home_dir)?,
        };
        let http = match self.door.take() {
            Some(door) => Some(door.open(&shared).await?),
            None => None,
        };
        Ok((shared, http))
    }
}

/// What can be wrong with the options is said before an editor is listened to.
fn prepare(options: &ServeOptions) -> Result<Prepared, Trouble> {
    let mut guards = Guards::of(&options.guard)?;
    guards.must_hold(&options.guard)?;
    let home_dir = run::folder(options.cwd.as_deref())?;
    let (budget, guard) = (&options.budget, &options.guard);
    let only_ours = OnlyOurs { budget, guard, model: options.model.as_deref(), estimate: false };
    external::choose(&mut guards, &options.agent, &options.command, &only_ours, &home_dir)?;
    if guards.outside.is_none() {
        guards.models = models(options, &guards.config)?;
    }
    let bridge = Wanted::also(&options.bridge, &guards.config)?;
    let door = Door::prepare(&options.http, &guards.config)?;
    let door = door.map(|door| door.started_with(joined::digest(options)));
    let allowed = options.allow_dir.iter().map(|dir| run::folder(Some(dir)));
    let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
    let settings = ServerSettings::of(options, &guards.config);
    let idle_timeout = match settings.idle_timeout.value {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds),
    };
    let limits = Limits {
        sessions_max: usize::try_from(settings.max_sessions.value).unwrap_or(usize::MAX),
        idle_timeout,
        ask_timeout: settings.ask_timeout.value.map(Duration::from_secs),
        attended: true,
    };
    let rules = Rules {
        home_dir,
        allowed_dirs: (!allowed.is_empty()).then_some(allowed),
        list_max: options.max_history,
        history_max: history_max()?.unwrap_or(Rules::default().history_max),
        bridges: guards.bridges.clone(),
        ..Rules::default()
    };
    let identity = Identity {
        name: settings.agent_name.value,
        title: "Ropewalk".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sandbox: guards.reach.mode.name().into(),
        sandbox_backends: Backends::default(),
        adapters: vec![guards.outside.as_ref().map_or("ropewalk", |outside| &outside.name).to_owned()],
        disabled: guards.config.acp.disable.clone(),
    };
    let meters = Meters::new(options.otlp.as_deref())?;
    let pushes = door.as_ref().and_then(Door::follower);
    let (registry, audit) = server::metered(limits, &guards, &meters, pushes)?;
    let probe = guards.models.probe;
    let stdio = options.stdio || door.is_none() || takes_piped_input(options);
    let dialect = options.spoken();
    let hall = Arc::new(Devices::open(Some(paths::devices()?), Arc::new(SystemClock)));
    let model = guards.models.first().filter(|_| guards.outside.is_none());
    Ok(Prepared {
        registry,
        audit,
        meters,
        rules,
        identity,
        dialect,
        stdio,
        door,
        probe,
        hall,
        idle_timeout,
        model,
        outside: guards.outside,
        up: None,
        bridge,
    })
}

/// `ferret serve --http` promises that an editor's plugin and a client over HTTP use one process at the same time, and has no
/// other option for it: so whoever starts it with a pipe is served there too. Services and background jobs have /dev/null.
fn takes_piped_input(options: &ServeOptions) -> bool {
    options.preferred == Some(Dialect::Ferret) && terminal::input_is_piped()
}

/// How many updates a client of a dialect that numbers them is told again. The variable is otter's.
fn history_max() -> Result<Option<u64>, Trouble> {
    const NAME: &str = "OTTER_ACP_DEFAULT_HISTORY_SIZE";
    let Some(text) = paths::variable(NAME) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    let wrong =
        || Trouble::usage(format!("{NAME} is no number")).fix("set it to a number such as 1024, or unset it");
    number.map(Some).ok_or_else(wrong)
}

fn models(options: &ServeOptions, config: &Config) -> Result<Models, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::failed("models cannot be looked for").because(error))?;
    let mut models = runtime.block_on(Models::find(config, options.model.as_deref()))?;
    models.limit(&options.budget);
    models.budget.session_usd = options.budget.max_cost.or(models.budget.session_usd);
    Ok(models)
}

async fn serve(prepared: Prepared) -> anyhow::Result<Result<(), Trouble>> {
    let outside = prepared.outside.clone();
    if let Some(outside) = &outside {
        outside.warm();
    }
    let served = serve_until_ended(prepared).await;
    if let Some(outside) = outside {
        outside.end().await;
    }
    served
}

async fn serve_until_ended(mut prepared: Prepared) -> anyhow::Result<Result<(), Trouble>> {
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
        Err(trouble) => {
            registry.shutdown().await;
            return Ok(Err(trouble));
        }
    };
    if let (Some(up), Some(open)) = (&prepared.up, &http) {
        up.show(&shared, open, &prepared.thinks()).await;
    }
    let mut bridging = match prepared.bridge(&shared) {
        Ok(bridging) => bridging,
        Err(trouble) => {
            registry.shutdown().await;
            return Ok(Err(trouble));
        }
    };
    let mut editor = if prepared.stdio { Some(self::editor(&shared)?) } else { None };
    tokio::select! {
        () = hung_up(&mut editor, http.is_some()) => tracing::info!("the client hung up"),
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
    // What it has not come to is there at the next start.
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

/// Says what ended the bridge, if something does. The server goes on without it.
async fn given_up(bridging: &mut Option<Bridging>) {
    if let Some(running) = bridging {
        let trouble = running.failed().await;
        // How the program is to end is not decided by this.
        let _code = trouble.report(false);
    }
    std::future::pending().await
}

/// The client on standard input and output.
fn editor(shared: &Shared) -> anyhow::Result<Served> {
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
        metrics: Some((Arc::clone(&shared.metrics), metrics::Door::Stdio)),
        greeted: shared.greeted.clone(),
    };
    Ok(Served::start(parts, ::server::stdio::open()?))
}

/// Waits until the only client has hung up. With HTTP there may be others: then this one is seen off,
/// and the wait has no end.
async fn hung_up(editor: &mut Option<Served>, http: bool) {
    if let Some(client) = editor {
        client.input_ended().await;
        if !http {
            return;
        }
    }
    if let Some(client) = editor.take() {
        client.finish().await;
        tracing::info!("the editor hung up; HTTP goes on");
    }
    std::future::pending().await
}

/// Every client that says who it is stands in the audit. Those of the older dialects, which name their
/// version by no number, are told what holds commands in here, so that is looked for before the answer.
fn greeted(registry: &Registry, audit: Option<&Arc<Audit>>, backends: &Backends) -> Greeted {
    let (clock, audit) = (Arc::clone(registry.clock()), audit.cloned());
    let backends = backends.clone();
    Arc::new(move |hello| {
        let audited = audit.as_ref().map(|audit| audit.post(audit::initialized(clock.now(), hello)));
        let backends = hello.version.is_none().then(|| backends.clone());
        Box::pin(async move {
            if let Some(backends) = backends {
                backends.found(backends::names().await);
            }
            if let Some(audited) = audited {
                audited.await;
            }
        })
    })
}

/// A person started this by hand: say what it is for.
fn welcome() {
    eprintln!("ropewalk {} waits for an editor on standard input.\n", env!("CARGO_PKG_VERSION"));
    if let Ok(sessions) = SessionStore::chosen() {
        eprintln!("Sessions are kept in {}.", sessions.shown());
    }
    eprintln!(
        "No model key is needed to try it: the offline model answers. `ropewalk models list` says more.\n"
    );
    // What was typed is what an editor is to start.
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    eprintln!("{}", editors::all(&words));
    eprintln!("Press Ctrl-D to end.");
}
