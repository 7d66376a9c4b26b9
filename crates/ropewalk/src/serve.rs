//! `ropewalk serve`: one editor on standard input and output, until it hangs up.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Principal, Registry};
use net::{Connection, ConnectionParts, Greeted, Rules};
use sandbox::Mode;
use store::audit::Audit;
use tokio::signal::unix::{SignalKind, signal};
use wire::acp::Identity;

use crate::cli::ServeOptions;
use crate::guards::Guards;
use crate::metrics::Meters;
use crate::trouble::Trouble;
use crate::{audit, editors, paths, run, server};

/// How long the last bytes may take to leave.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

pub fn run(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    let prepared = match prepare(options) {
        Ok(prepared) => prepared,
        Err(trouble) => return Ok(trouble.report(false)),
    };
    if std::io::stdin().is_terminal() {
        welcome();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(options, prepared))?;
    // The thread that reads standard input may be stuck in a read for ever; nothing needs it.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Everything that serving needs.
struct Prepared {
    registry: Arc<Registry>,
    audit: Option<Arc<Audit>>,
    meters: Meters,
    rules: Rules,
    mode: Mode,
}

/// What can be wrong with the options is said before an editor is listened to.
fn prepare(options: &ServeOptions) -> Result<Prepared, Trouble> {
    let guards = Guards::of(&options.guard)?;
    guards.must_hold(&options.guard)?;
    let allowed = options.allow_dir.iter().map(|dir| run::folder(Some(dir)));
    let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
    let limits = Limits {
        sessions_max: usize::try_from(options.max_sessions).unwrap_or(usize::MAX),
        idle_timeout: Duration::from_secs(options.idle_timeout),
        ask_timeout: options.ask_timeout.or(guards.config.ask_timeout).map(Duration::from_secs),
        attended: true,
    };
    let rules = Rules {
        allowed_dirs: (!allowed.is_empty()).then_some(allowed),
        list_max: options.max_history,
        ..Rules::default()
    };
    let meters = Meters::new(options.otlp.as_deref())?;
    let (registry, audit) = server::metered(limits, &guards, &meters)?;
    Ok(Prepared { registry, audit, meters, rules, mode: guards.reach.mode })
}

async fn serve(options: &ServeOptions, prepared: Prepared) -> anyhow::Result<()> {
    let Prepared { registry, audit, mut meters, rules, mode } = prepared;
    let started = registry.clock().now();
    registry.start_reaper();
    meters.start();
    let catching_up = audit.clone().map(|audit| {
        registry.tracker().spawn(async move { audit.catch_up(Principal::local(), started).await })
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (link, written) = net::stdio::open()?;
    let mut connection = Connection::start(
        ConnectionParts {
            registry: registry.clone(),
            principal: Principal::local(),
            rules,
            identity: Identity {
                name: options.agent_name.clone(),
                title: "Ropewalk".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                sandbox: mode.name().into(),
            },
            greeted: audit.as_ref().map(|audit| greeted(&registry, audit)),
        },
        link,
    );
    tokio::select! {
        () = connection.input_ended() => tracing::info!("the client hung up"),
        _ = terminate.recv() => tracing::info!("asked to stop"),
        _ = interrupt.recv() => tracing::info!("interrupted"),
    }
    connection.stop_reading();
    // What it has not come to is there at the next start.
    if let Some(catching_up) = catching_up {
        catching_up.abort();
    }
    registry.shutdown().await;
    connection.finish().await;
    meters.finish().await;
    if tokio::time::timeout(OUTPUT_GRACE, written).await.is_err() {
        tracing::info!("the client did not take the last bytes");
    }
    Ok(())
}

/// Every client that says who it is stands in the audit.
fn greeted(registry: &Registry, audit: &Arc<Audit>) -> Greeted {
    let (clock, audit) = (Arc::clone(registry.clock()), Arc::clone(audit));
    Arc::new(move |hello| audit.post(audit::initialized(clock.now(), hello)))
}

/// A person started this by hand: say what it is for.
fn welcome() {
    eprintln!("ropewalk {} waits for an editor on standard input.\n", env!("CARGO_PKG_VERSION"));
    if let Ok(sessions) = paths::sessions() {
        eprintln!("Sessions are kept in {}.", sessions.display());
    }
    eprintln!("No model key is needed to try it: the offline model answers.\n");
    eprintln!("{}", editors::all());
    eprintln!("Press Ctrl-D to end.");
}
