//! Which models there are: found in the settings, in the environment and on this machine.
//!
//! It is decided once, when the process starts, and starting waits for nobody: what listens on this
//! machine is remembered from the last time it was looked for. Where nothing else is found, a look is
//! taken at once, because there is nothing to lose.

mod find;
mod known;
mod local;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agent::{Budget, Model, ModelInfo, ModelRequest, ModelStream, Offline, Provider, Secret, Spending};
use engine::SystemClock;

use crate::cli::{BudgetOptions, ModelsCommand};
use crate::config::{self, Config, ModelSettings, Setting, Source};
use crate::trouble::Trouble;
use crate::{paths, secrets};

pub use find::{Found, Missing};
use local::Local;

/// The offline models that the settings leave.
struct OfferedOffline(Vec<ModelInfo>);

impl Model for OfferedOffline {
    fn offers(&self) -> Vec<ModelInfo> {
        self.0.clone()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        Offline.stream(request)
    }
}

/// Who thinks, and what it may cost.
#[derive(Clone)]
pub struct Models {
    pub sources: Vec<Arc<dyn Model>>,
    pub model: Option<Arc<str>>,
    pub budget: Budget,
    pub steps_max: Option<usize>,
    /// A look at this machine is worth its while.
    pub probe: bool,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Models").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Models {
    /// For commands that ask no model.
    pub fn offline() -> Self {
        let sources: Vec<Arc<dyn Model>> = vec![Arc::new(Offline)];
        Self { sources, model: None, budget: Budget::default(), steps_max: None, probe: false }
    }

    /// `wish` is what the command line says.
    pub async fn find(config: &Config, wish: Option<&str>) -> Result<Self, Trouble> {
        let wish = wish.map(str::to_owned).or_else(|| chosen(config).map(|chosen| chosen.value));
        let (found, probe) = look(&config.models, wish.as_deref()).await?;
        for warning in &found.warnings {
            crate::guards::warn(warning);
        }
        let model = match wish {
            Some(wish) => Some(found.resolve(&wish)?),
            // Said to another program: taken where it can be had.
            None => config.codex.model.as_ref().and_then(|model| found.resolve(&model.value).ok()),
        };
        let mut sources: Vec<Arc<dyn Model>> = Vec::new();
        for provider in found.providers {
            if !provider.config.models.is_empty() {
                sources.push(Arc::new(Provider::new(provider.config)));
            }
        }
        if !found.offline.is_empty() {
            sources.push(Arc::new(OfferedOffline(found.offline)));
        }
        let budget = Budget {
            session_usd: config.models.session_usd,
            day_usd: config.models.day_usd,
            refuse_unknown: config.models.refuse_unknown,
            spending: Some(Arc::new(Spending::new(spending()?, Arc::new(SystemClock)))),
            ..Budget::default()
        };
        Ok(Self { sources, model, budget, steps_max: config.models.max_turns, probe })
    }

    /// The model of new sessions: the one that was chosen, or the first that there is.
    pub fn first(&self) -> Option<Arc<str>> {
        let offered = || self.sources.iter().flat_map(|source| source.offers()).next();
        self.model.clone().or_else(|| offered().map(|model| model.id))
    }

    /// What the command line says goes before the settings.
    pub fn limit(&mut self, options: &BudgetOptions) {
        self.steps_max = options.max_turns.map(std::num::NonZeroUsize::get).or(self.steps_max);
    }

    /// Looks at this machine, for the next start.
    pub async fn refresh_local() {
        let found = local::refresh().await;
        tracing::debug!(servers = found.len(), "looked for model servers on this machine");
    }
}

pub fn run(command: &ModelsCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(match runtime.block_on(show::run(command)) {
        Ok(code) => code,
        Err(trouble) => trouble.report(command.json()),
    })
}

/// Everything that can be found, with a look at this machine.
async fn look_everywhere() -> Result<(Config, Found), Trouble> {
    let config = config::user()?;
    let local = if probes(&config.models) { local::refresh().await } else { Vec::new() };
    let wish = chosen(&config).map(|chosen| chosen.value);
    let found = found(&config.models, &local, wish.as_deref());
    Ok((config, found))
}

/// What is found without waiting, and whether this machine is worth a look later on.
async fn look(settings: &ModelSettings, wish: Option<&str>) -> Result<(Found, bool), Trouble> {
    if !probes(settings) {
        return Ok((found(settings, &[], wish), false));
    }
    let remembered = local::remembered();
    let first = found(settings, remembered.as_deref().unwrap_or_default(), wish);
    let wants_local = wish.is_some_and(|wish| local::names(wish) && first.resolve(wish).is_err());
    if !wants_local && (remembered.is_some() || !first.providers.is_empty()) {
        return Ok((first, true));
    }
    let local = local::refresh().await;
    Ok((found(settings, &local, wish), false))
}

fn found(settings: &ModelSettings, local: &[Local], wish: Option<&str>) -> Found {
    let variable = |name: &str| paths::variable(name).and_then(|value| value.into_string().ok());
    let offline_only = variable("ROPEWALK_OFFLINE").is_some();
    let found = find::find(settings, &variable, local, wish, offline_only);
    for provider in &found.providers {
        let headers = provider.config.headers.iter().map(|(_, value)| value);
        for secret in provider.config.key.iter().chain(headers) {
            secrets::also(Secret::reveal(secret));
        }
    }
    found
}

fn probes(settings: &ModelSettings) -> bool {
    settings.probe.unwrap_or(true) && paths::variable("ROPEWALK_OFFLINE").is_none()
}

/// The model that was chosen for every session, if one was.
pub fn chosen(config: &Config) -> Option<Setting<String>> {
    let named = |name: &'static str| {
        let value = paths::variable(name)?.into_string().ok()?;
        Some(Setting::new(value, Source::Variable(name)))
    };
    let variable = ["ROPEWALK_MODEL", "FERRET_MODEL", "OTTER_MODEL"].into_iter().find_map(named);
    let in_file = || Some(Setting::new(config.models.model.clone()?, config.sources.of("model")));
    variable.or_else(in_file)
}

/// The folder of what was spent.
fn spending() -> Result<PathBuf, Trouble> {
    Ok(paths::state()?.join("spending"))
}

/// The part of an id that the provider knows.
fn bare(info: &ModelInfo) -> &str {
    info.id.split_once(':').map_or(&info.id, |(_, model)| model)
}
