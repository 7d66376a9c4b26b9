//! A server inside this process, for the terminal client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::terminal::{Dial, Dialing, NAME, ServerConnection, WhichSession};
use access::devices::{Devices, Visitor};
use app::{AppServer, AppServerParts};
use engine::{Principal, Registry, SessionLimits, Standing};
use service::ServiceRules;
use store::audit::Audit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::Role;
use wire::{Identity, SandboxBackends};

use crate::cli::ChatOptions;
use crate::cli_error::CliError;
use crate::external_agents::{self, ExternalAgent, OwnAgentOptions};
use crate::guard_settings::Guards;
use crate::models::Models;
use crate::{registry, run};

/// How long connections may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

pub struct InProcessServer {
    registry: Arc<Registry>,
    audit: Option<Arc<Audit>>,
    app: Arc<AppServer>,
    rules: ServiceRules,
    identity: Identity,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// The external agent, if it replaces the built-in one.
    external_agent: Option<ExternalAgent>,
}

impl InProcessServer {
    pub async fn start(options: &ChatOptions, folder: &Path, start: &WhichSession) -> Result<Self, CliError> {
        let mut guards = Guards::of(&options.guard)?;
        guards.require_sandbox_async(&options.guard).await?;
        let own_options =
            OwnAgentOptions { budget: &options.budget, guard: &options.guard, model: None, estimate: false };
        external_agents::choose(&mut guards, &options.agent, &[], &own_options, folder)?;
        let resumed = match start {
            WhichSession::Named(id) => Some(run::SessionToResume::Named(id)),
            WhichSession::Newest => Some(run::SessionToResume::Newest),
            WhichSession::New | WhichSession::Any => None,
        };
        if let Some(resumed) = resumed.filter(|_| options.agent.agent.is_none()) {
            run::check_session_agent(resumed, folder, &guards).await?;
        }
        if guards.external_agent.is_none() {
            guards.models = Models::find(&guards.config, options.session.model.as_deref()).await?;
        }
        guards.models.limit(&options.budget);
        guards.models.budget.session_usd = options.budget.max_cost.or(guards.models.budget.session_usd);
        let ask_timeout = guards.config.ask_timeout.map(Duration::from_secs);
        let limits = SessionLimits { ask_timeout, ..SessionLimits::default() };
        let (registry, audit) = registry::audited_registry(limits, true, &guards)?;
        registry.start_reaper();
        let rules = ServiceRules {
            home_dir: folder.to_owned(),
            source: NAME.into(),
            bridges: guards.bridges.clone(),
            ..ServiceRules::default()
        };
        let identity = Identity {
            name: "ropewalk".into(),
            title: "Ropewalk".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            sandbox: guards.reach.mode.name().into(),
            sandbox_backends: SandboxBackends::default(),
            adapters: vec![guards.external_agent.as_ref().map_or("ropewalk", |agent| &agent.name).to_owned()],
            disabled: Vec::new(),
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let app = AppServer::new(AppServerParts {
            registry: Arc::clone(&registry),
            rules: rules.clone(),
            identity: identity.clone(),
            devices: Arc::new(Devices::default()),
            extras: registry::extras(&registry, audit.as_ref(), folder)?,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let external_agent = guards.external_agent;
        Ok(Self { registry, audit, app, rules, identity, tasks, stop, external_agent })
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The rules of these sessions; a bridge derives its own from them.
    pub fn rules(&self) -> &ServiceRules {
        &self.rules
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Ends all turns and writes everything to the store.
    pub async fn finish(self) {
        self.stop.cancel();
        self.registry.shutdown().await;
        if let Some(external_agent) = &self.external_agent {
            external_agent.end().await;
        }
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("the connection of the client did not end in time");
        }
        if let Some(audit) = self.audit {
            crate::audit::warn(&audit);
        }
    }
}

impl Dial for InProcessServer {
    fn dial(&self) -> Dialing {
        let visitor = Visitor {
            principal: Principal::local(),
            name: NAME.into(),
            role: Role::Owner,
            device: None,
            remote: None,
            standing: Standing::OwnerAtMachine,
        };
        let app::AppConnection { requests, frames } = app::open(&self.app, visitor);
        Box::pin(async move { Ok(ServerConnection { requests, frames }) })
    }
}
