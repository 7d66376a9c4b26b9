//! The engine in this process, for a client in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::terminal::{Dial, Dialing, Line, NAME, Start};
use access::devices::{Devices, Visitor};
use app::{Desk, DeskParts};
use engine::{Limits, Principal, Registry, Standing};
use service::Rules;
use store::audit::Audit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::Role;
use wire::{Backends, Identity};

use crate::cli::ChatOptions;
use crate::external::{self, OnlyOurs, Outside};
use crate::guards::Guards;
use crate::models::Models;
use crate::trouble::Trouble;
use crate::{run, server};

/// How long lines may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

pub struct Here {
    registry: Arc<Registry>,
    audit: Option<Arc<Audit>>,
    desk: Arc<Desk>,
    rules: Rules,
    identity: Identity,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Who works instead of our own agent.
    outside: Option<Outside>,
}

impl Here {
    pub async fn start(options: &ChatOptions, folder: &Path, start: &Start) -> Result<Self, Trouble> {
        let mut guards = Guards::of(&options.guard)?;
        guards.must_hold_here(&options.guard).await?;
        let only_ours =
            OnlyOurs { budget: &options.budget, guard: &options.guard, model: None, estimate: false };
        external::choose(&mut guards, &options.agent, &[], &only_ours, folder)?;
        let again = match start {
            Start::Named(id) => Some(run::Again::Named(id)),
            Start::Newest => Some(run::Again::Newest),
            Start::New | Start::Any => None,
        };
        if let Some(again) = again.filter(|_| options.agent.agent.is_none()) {
            run::must_be_theirs(again, folder, &guards).await?;
        }
        if guards.outside.is_none() {
            guards.models = Models::find(&guards.config, options.session.model.as_deref()).await?;
        }
        guards.models.limit(&options.budget);
        guards.models.budget.session_usd = options.budget.max_cost.or(guards.models.budget.session_usd);
        let ask_timeout = guards.config.ask_timeout.map(Duration::from_secs);
        let limits = Limits { ask_timeout, ..Limits::default() };
        let (registry, audit) = server::audited(limits, true, &guards)?;
        registry.start_reaper();
        let rules = Rules {
            home_dir: folder.to_owned(),
            source: NAME.into(),
            bridges: guards.bridges.clone(),
            ..Rules::default()
        };
        let identity = Identity {
            name: "ropewalk".into(),
            title: "Ropewalk".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            sandbox: guards.reach.mode.name().into(),
            sandbox_backends: Backends::default(),
            adapters: vec![guards.outside.as_ref().map_or("ropewalk", |outside| &outside.name).to_owned()],
            disabled: Vec::new(),
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let desk = Desk::new(DeskParts {
            registry: Arc::clone(&registry),
            rules: rules.clone(),
            identity: identity.clone(),
            hall: Arc::new(Devices::default()),
            extras: server::extras(&registry, audit.as_ref(), folder)?,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let outside = guards.outside;
        Ok(Self { registry, audit, desk, rules, identity, tasks, stop, outside })
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// What others may do with these sessions is made from this.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Ends what runs, and leaves nothing unwritten.
    pub async fn finish(self) {
        self.stop.cancel();
        self.registry.shutdown().await;
        if let Some(outside) = &self.outside {
            outside.end().await;
        }
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("the client's line did not end");
        }
        if let Some(audit) = self.audit {
            crate::audit::warn(&audit);
        }
    }
}

impl Dial for Here {
    fn dial(&self) -> Dialing {
        let visitor = Visitor {
            principal: Principal::local(),
            name: NAME.into(),
            role: Role::Owner,
            device: None,
            remote: None,
            standing: Standing::OwnerAtMachine,
        };
        let app::Line { requests, frames } = app::open(&self.desk, visitor);
        Box::pin(async move { Ok(Line { requests, frames }) })
    }
}
