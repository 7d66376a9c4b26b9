//! Builds the registry and what belongs to it, the same for every command and every door.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::devices::Devices;
use agent::{Agent, AgentConfig, UndoCleanup};
use app::{AppServerExtras, RuleStore};
use engine::{
    APPROVAL, Backend, Clock, Follower, MemoryStore, Registry, RegistryParts, SessionLimits, Settings, Store,
    SystemClock,
};
use guard::Rulebook;
use store::audit::{Audit, AuditError, AuditKey, AuditKeyError, AuditParts, RETENTION_DAYS};
use tokio::runtime::Handle;

use crate::audit::StartedAudit;
use crate::chimera_event_log::{self, EventLogWriter};
use crate::cli_error::CliError;
use crate::guard_settings::Guards;
use crate::metrics::ServerMetrics;
use crate::rule_list::RuleList;
use crate::session_store::SessionStore;
use crate::{audit, bridge, mcp, output, paths, secrets_to_redact};

/// A registry for reading sessions; it does not audit. `warm` is for servers, whose first session should not wait
/// for the disk.
pub fn registry(limits: SessionLimits, warm: bool, guards: &Guards) -> Result<Arc<Registry>, CliError> {
    let rules = Arc::new(Rulebook::new(paths::rules()?));
    Ok(Registry::new(parts(limits, warm, guards, &rules, &StartedAudit::default())?))
}

/// A registry in memory only, without audit, for sessions that are thrown away.
pub fn scratch_registry(limits: SessionLimits, guards: &Guards) -> Result<Arc<Registry>, CliError> {
    let rules = Arc::new(Rulebook::new(paths::rules()?));
    let parts = parts(limits, false, guards, &rules, &StartedAudit::default())?;
    let store = Arc::new(MemoryStore::default());
    Ok(Registry::new(RegistryParts { store, ephemeral: false, ..parts }))
}

/// A registry and its audit.
pub type AuditedRegistry = (Arc<Registry>, Option<Arc<Audit>>);

/// A registry for working with sessions. Fails without a valid audit key.
pub fn audited_registry(
    limits: SessionLimits,
    warm: bool,
    guards: &Guards,
) -> Result<AuditedRegistry, CliError> {
    build_registry(limits, warm, guards, None, None)
}

/// The same for a server, with metrics and push notifications.
pub fn serving_registry(
    limits: SessionLimits,
    guards: &Guards,
    meters: &ServerMetrics,
    pushes: Option<Arc<dyn Follower>>,
) -> Result<AuditedRegistry, CliError> {
    build_registry(limits, true, guards, Some(meters), pushes)
}

fn build_registry(
    limits: SessionLimits,
    warm: bool,
    guards: &Guards,
    meters: Option<&ServerMetrics>,
    pushes: Option<Arc<dyn Follower>>,
) -> Result<AuditedRegistry, CliError> {
    let rules = Arc::new(Rulebook::new(paths::rules()?));
    let started = StartedAudit::default();
    let mut parts = parts(limits, warm, guards, &rules, &started)?;
    if let Some(meters) = meters {
        parts.followers = meters.followers();
        parts.store = meters.metrics.timed(parts.store);
    }
    parts.followers.extend(pushes);
    parts
        .followers
        .extend(guards.eventlog.clone().map(|root| Arc::new(EventLogWriter::new(root)) as Arc<dyn Follower>));
    if guards.ephemeral {
        let text = "nothing is saved or audited (--ephemeral): sessions are gone when this process exits";
        output::say(&format!("{} {text}", output::stderr_paint().warn("warning:")));
        return Ok((Registry::new(parts), None));
    }
    parts.followers.push(Arc::new(UndoCleanup { folder: paths::undo()? }));
    let (folder, key_path) = (paths::audit()?, paths::audit_key()?);
    let key = match AuditKey::load_or_create(&key_path, &folder) {
        // If no key can be created, no session can be stored either, so nothing happens unaudited. Both work again
        // when the disk has room.
        Err(error @ AuditKeyError::Unmade(..)) if !paths::names_audit_key() => {
            CliError::from_key(error).warn("could not write the audit log");
            None
        }
        key if paths::names_audit_key() => Some(key.map_err(CliError::from_key)?.given()),
        key => Some(key.map_err(CliError::from_key)?),
    };
    let audit = Audit::start(AuditParts {
        folder,
        key,
        key_path,
        store: Arc::clone(&parts.store),
        clock: Arc::clone(&parts.clock),
        settings: first_settings(&parts),
        sandbox: guards.reach.mode.name().into(),
        retention_days: RETENTION_DAYS,
    });
    started.get_or_init(|| Arc::downgrade(&audit));
    parts.followers.push(Arc::clone(&audit) as Arc<dyn Follower>);
    let registry = Registry::new(parts);
    audit_changes(&rules, &registry, &audit);
    Ok((registry, Some(audit)))
}

/// For a command whose audit row is not derived from a session's log: it must not run while another process keeps
/// the audit locked, because its row could not be added later.
pub async fn audit_must_be_free(audit: Option<&Arc<Audit>>) -> Result<(), CliError> {
    let Some(audit) = audit else { return Ok(()) };
    match audit.check().await {
        Err(error @ AuditError::Locked(_)) => Err(CliError::failed("nothing was changed").because(error)),
        // If nothing can be written at all, the command itself fails; other problems are reported as warnings.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Audits every rule that is added or removed from now on.
pub fn audit_changes(rules: &Rulebook, registry: &Registry, audit: &Arc<Audit>) {
    let (tracker, audit) = (registry.tracker().clone(), Arc::clone(audit));
    rules.on_change(move |change| match Handle::try_current() {
        Ok(runtime) => {
            let row = audit::rule_changed(SystemClock.now(), &change);
            drop(tracker.spawn_on(audit.post(row), &runtime));
        }
        Err(error) => tracing::error!(%error, "a changed rule was not audited"),
    });
}

/// What our own clients see of this machine and its rules.
pub fn extras(
    registry: &Registry,
    audit: Option<&Arc<Audit>>,
    folder: &Path,
) -> Result<AppServerExtras, CliError> {
    let book = Rulebook::new(paths::rules()?);
    if let Some(audit) = audit {
        audit_changes(&book, registry, audit);
    }
    let shelf: Arc<dyn RuleStore> = Arc::new(RuleList { book, folder: folder.to_owned() });
    Ok(AppServerExtras { host: host_name(), rule_store: Some(shelf) })
}

pub fn host_name() -> String {
    let read = ["/proc/sys/kernel/hostname", "/etc/hostname"].into_iter().map(std::fs::read_to_string);
    let named = read.filter_map(Result::ok).map(|name| name.trim().to_owned()).find(|name| !name.is_empty());
    named.unwrap_or_else(|| "this machine".to_owned())
}

/// Audits every device that is paired, declined or revoked from now on.
pub fn audit_devices(hall: &Devices, registry: &Registry, audit: &Arc<Audit>) {
    let (tracker, audit) = (registry.tracker().clone(), Arc::clone(audit));
    hall.tell(move |happened| match Handle::try_current() {
        Ok(runtime) => {
            let row = audit::device(SystemClock.now(), &happened);
            drop(tracker.spawn_on(audit.post(row), &runtime));
        }
        Err(error) => tracing::error!(%error, "a device was not audited"),
    });
}

/// The initial settings of a session.
fn first_settings(parts: &RegistryParts) -> Settings {
    let mut settings = Settings::defaults(&parts.backend.abilities().settings);
    if let Some(approval) = &parts.approval {
        settings.set(APPROVAL.into(), Arc::clone(approval));
    }
    settings
}

/// The parts of every registry.
fn parts(
    limits: SessionLimits,
    warm: bool,
    guards: &Guards,
    rules: &Arc<Rulebook>,
    started: &StartedAudit,
) -> Result<RegistryParts, CliError> {
    let store: Arc<dyn Store> =
        if guards.ephemeral { Arc::new(MemoryStore::default()) } else { SessionStore::chosen()?.open(warm) };
    let backend: Arc<dyn Backend> = match &guards.external_agent {
        Some(external_agent) => external_agent.backend(),
        None => Arc::new(own_agent(guards, rules, started)?),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(RegistryParts {
        limits,
        rules: Arc::clone(rules) as Arc<dyn engine::PermissionRules>,
        approval: guards.approval.clone(),
        approval_max: guards.approval_max.clone(),
        redactor: Some(secrets_to_redact::redactor()?),
        ephemeral: guards.ephemeral,
        folders: chimera_event_log::folders(),
        ..RegistryParts::new(store, backend, clock)
    })
}

fn own_agent(guards: &Guards, rules: &Arc<Rulebook>, started: &StartedAudit) -> Result<Agent, CliError> {
    let mut config = AgentConfig::new(guards.models.sources.clone());
    config.model = guards.models.model.clone();
    config.budget = guards.models.budget.clone();
    config.steps_max = guards.models.steps_max.unwrap_or(config.steps_max);
    config.environment = paths::passed_on(&guards.config.environment);
    config.reach = guards.reach.clone();
    if let Some(seconds) = guards.config.command_timeout {
        config.shell.wall = Duration::from_secs(seconds);
    }
    config.rules = Some(Arc::clone(rules));
    config.undo = if guards.ephemeral { None } else { Some(paths::undo()?) };
    config.knowledge = paths::knowledge(guards.no_rules);
    config.allowed_tools = guards.allowed_tools.clone();
    config.titles_by_model = true;
    config.mcp = mcp::settings(&guards.config);
    config.audit = (!guards.ephemeral).then(|| audit::reader(Arc::clone(started)));
    config.bridge = Some(bridge::reader(guards.bridges.clone()));
    Ok(Agent::new(config))
}
