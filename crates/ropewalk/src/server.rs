//! The one place where a server is put together, the same for every command and every door.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::devices::Devices;
use agent::{Agent, AgentConfig, ForgetsUndo};
use app::{Extras, RuleShelf};
use engine::{
    APPROVAL, Backend, Clock, Follower, Limits, MemoryStore, Registry, RegistryParts, Settings, Store,
    SystemClock,
};
use guard::Rulebook;
use store::audit::{Audit, AuditError, AuditParts, Key, KeyError, RETENTION_DAYS};
use tokio::runtime::Handle;

use crate::audit::StartedAudit;
use crate::eventlog::{self, EventLog};
use crate::guards::Guards;
use crate::metrics::Meters;
use crate::session_store::SessionStore;
use crate::shelf::Shelf;
use crate::trouble::Trouble;
use crate::{audit, bridge, mcp, paths, secrets, terminal};

/// A registry for looking at sessions; nothing that happens in it is audited. `warm` for servers, whose
/// first session should not wait for the disk.
pub fn registry(limits: Limits, warm: bool, guards: &Guards) -> Result<Arc<Registry>, Trouble> {
    let rules = Arc::new(Rulebook::new(paths::rules()?));
    Ok(Registry::new(parts(limits, warm, guards, &rules, &StartedAudit::default())?))
}

/// A registry that keeps nothing and audits nothing: what happens in it has happened nowhere.
pub fn passing(limits: Limits, guards: &Guards) -> Result<Arc<Registry>, Trouble> {
    let rules = Arc::new(Rulebook::new(paths::rules()?));
    let parts = parts(limits, false, guards, &rules, &StartedAudit::default())?;
    let store = Arc::new(MemoryStore::default());
    Ok(Registry::new(RegistryParts { store, ephemeral: false, ..parts }))
}

/// A registry and what audits it.
pub type Audited = (Arc<Registry>, Option<Arc<Audit>>);

/// A registry for working with sessions. Without a sound audit key there is none.
pub fn audited(limits: Limits, warm: bool, guards: &Guards) -> Result<Audited, Trouble> {
    watched(limits, warm, guards, None, None)
}

/// The same for a server that is measured, and whose devices are told.
pub fn metered(
    limits: Limits,
    guards: &Guards,
    meters: &Meters,
    pushes: Option<Arc<dyn Follower>>,
) -> Result<Audited, Trouble> {
    watched(limits, true, guards, Some(meters), pushes)
}

fn watched(
    limits: Limits,
    warm: bool,
    guards: &Guards,
    meters: Option<&Meters>,
    pushes: Option<Arc<dyn Follower>>,
) -> Result<Audited, Trouble> {
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
        .extend(guards.eventlog.clone().map(|root| Arc::new(EventLog::new(root)) as Arc<dyn Follower>));
    if guards.ephemeral {
        let text = "nothing is saved or audited (--ephemeral): sessions are gone when this program ends";
        terminal::say(&format!("{} {text}", terminal::stderr_paint().warn("warning:")));
        return Ok((Registry::new(parts), None));
    }
    parts.followers.push(Arc::new(ForgetsUndo { folder: paths::undo()? }));
    let (folder, key_path) = (paths::audit()?, paths::audit_key()?);
    let key = match Key::load_or_create(&key_path, &folder) {
        // Where no key can be made, no session can be kept either, so nothing happens that is not audited.
        // When the disk has room again, both can.
        Err(error @ KeyError::Unmade(..)) if !paths::names_audit_key() => {
            Trouble::key(error).warn("the audit cannot be written");
            None
        }
        key if paths::names_audit_key() => Some(key.map_err(Trouble::key)?.given()),
        key => Some(key.map_err(Trouble::key)?),
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

/// For a command whose row stands in no session's log: it does nothing while another process keeps the audit locked,
/// because its row could not be written later.
pub async fn audit_must_be_free(audit: Option<&Arc<Audit>>) -> Result<(), Trouble> {
    let Some(audit) = audit else { return Ok(()) };
    match audit.check().await {
        Err(error @ AuditError::Locked(_)) => Err(Trouble::failed("nothing was changed").because(error)),
        // Where nothing else can be written either, the command says so itself; the rest is warned of.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// From here on the audit has a row for every rule that is written or taken out.
pub fn audit_changes(rules: &Rulebook, registry: &Registry, audit: &Arc<Audit>) {
    let (tracker, audit) = (registry.tracker().clone(), Arc::clone(audit));
    rules.tell(move |change| match Handle::try_current() {
        Ok(runtime) => {
            let row = audit::rule_changed(SystemClock.now(), &change);
            drop(tracker.spawn_on(audit.post(row), &runtime));
        }
        Err(error) => tracing::error!(%error, "a changed rule was not audited"),
    });
}

/// What our own clients are shown of this machine and its rules.
pub fn extras(registry: &Registry, audit: Option<&Arc<Audit>>, folder: &Path) -> Result<Extras, Trouble> {
    let book = Rulebook::new(paths::rules()?);
    if let Some(audit) = audit {
        audit_changes(&book, registry, audit);
    }
    let shelf: Arc<dyn RuleShelf> = Arc::new(Shelf { book, folder: folder.to_owned() });
    Ok(Extras { host: host_name(), shelf: Some(shelf) })
}

pub fn host_name() -> String {
    let read = ["/proc/sys/kernel/hostname", "/etc/hostname"].into_iter().map(std::fs::read_to_string);
    let named = read.filter_map(Result::ok).map(|name| name.trim().to_owned()).find(|name| !name.is_empty());
    named.unwrap_or_else(|| "this machine".to_owned())
}

/// From here on the audit has a row for every device that comes in, is not let in, or is shut out.
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

/// What a session begins with, before anybody chooses something else.
fn first_settings(parts: &RegistryParts) -> Settings {
    let mut settings = Settings::defaults(&parts.backend.abilities().settings);
    if let Some(approval) = &parts.approval {
        settings.set(APPROVAL.into(), Arc::clone(approval));
    }
    settings
}

/// What every registry is made from.
fn parts(
    limits: Limits,
    warm: bool,
    guards: &Guards,
    rules: &Arc<Rulebook>,
    started: &StartedAudit,
) -> Result<RegistryParts, Trouble> {
    let store: Arc<dyn Store> =
        if guards.ephemeral { Arc::new(MemoryStore::default()) } else { SessionStore::chosen()?.open(warm) };
    let backend: Arc<dyn Backend> = match &guards.outside {
        Some(outside) => outside.backend(),
        None => Arc::new(own_agent(guards, rules, started)?),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(RegistryParts {
        limits,
        rules: Arc::clone(rules) as Arc<dyn engine::Rules>,
        approval: guards.approval.clone(),
        approval_max: guards.approval_max.clone(),
        redactor: Some(secrets::redactor()?),
        ephemeral: guards.ephemeral,
        folders: eventlog::folders(),
        ..RegistryParts::new(store, backend, clock)
    })
}

fn own_agent(guards: &Guards, rules: &Arc<Rulebook>, started: &StartedAudit) -> Result<Agent, Trouble> {
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
