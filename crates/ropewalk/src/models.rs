//! The available models: from the settings, the environment and model servers on this machine.
//!
//! They are determined once, when the process starts, without waiting: local model servers are remembered from the last
//! probe. Only if nothing else is found, this machine is probed at once.

mod available_providers;
mod known_providers;
mod local_servers;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agent::{Budget, DailySpending, Model, ModelInfo, ModelRequest, ModelStream, Offline, Provider, Secret};
use engine::SystemClock;

use crate::cli::{BudgetOptions, ModelsCommand};
use crate::cli_error::CliError;
use crate::config::{self, Config, ModelSettings, ResolvedSetting, SettingSource};
use crate::{paths, secrets_to_redact};

pub use available_providers::{AvailableModels, MissingProvider};
use local_servers::LocalServer;

/// The offline models that the settings allow.
struct OfflineModels(Vec<ModelInfo>);

impl Model for OfflineModels {
    fn offers(&self) -> Vec<ModelInfo> {
        self.0.clone()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        Offline.stream(request)
    }
}

/// The models, and the limits of what they may cost.
#[derive(Clone)]
pub struct Models {
    pub sources: Vec<Arc<dyn Model>>,
    pub model: Option<Arc<str>>,
    pub budget: Budget,
    pub steps_max: Option<usize>,
    /// Whether to probe this machine for model servers.
    pub probe: bool,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Models").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Models {
    /// For commands that call no model.
    pub fn offline() -> Self {
        let sources: Vec<Arc<dyn Model>> = vec![Arc::new(Offline)];
        Self { sources, model: None, budget: Budget::default(), steps_max: None, probe: false }
    }

    /// `wish` is the model of the command line.
    pub async fn find(config: &Config, wish: Option<&str>) -> Result<Self, CliError> {
        let wish = wish.map(str::to_owned).or_else(|| chosen(config).map(|chosen| chosen.value));
        let (found, probe) = find_without_waiting(&config.models, wish.as_deref()).await?;
        for warning in &found.warnings {
            crate::guard_settings::warn(warning);
        }
        let model = match wish {
            Some(wish) => Some(found.resolve(&wish)?),
            // A default for another program: used only if the model is available.
            None => config.codex.model.as_ref().and_then(|model| found.resolve(&model.value).ok()),
        };
        let mut sources: Vec<Arc<dyn Model>> = Vec::new();
        for provider in found.providers {
            if !provider.config.models.is_empty() {
                sources.push(Arc::new(Provider::new(provider.config)));
            }
        }
        if !found.offline.is_empty() {
            sources.push(Arc::new(OfflineModels(found.offline)));
        }
        let budget = Budget {
            session_usd: config.models.session_usd,
            day_usd: config.models.day_usd,
            refuse_unknown: config.models.refuse_unknown,
            spending: Some(Arc::new(DailySpending::new(spending()?, Arc::new(SystemClock)))),
            ..Budget::default()
        };
        Ok(Self { sources, model, budget, steps_max: config.models.max_turns, probe })
    }

    /// The model of new sessions: the chosen one, or the first available one.
    pub fn first(&self) -> Option<Arc<str>> {
        let offered = || self.sources.iter().flat_map(|source| source.offers()).next();
        self.model.clone().or_else(|| offered().map(|model| model.id))
    }

    /// Applies the limits of the command line over those of the settings.
    pub fn limit(&mut self, options: &BudgetOptions) {
        self.steps_max = options.max_turns.map(std::num::NonZeroUsize::get).or(self.steps_max);
    }

    /// Probes this machine, for the next start.
    pub async fn refresh_local() {
        let found = local_servers::refresh().await;
        tracing::debug!(servers = found.len(), "looked for model servers on this machine");
    }
}

pub fn run(command: &ModelsCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(match runtime.block_on(show::run(command)) {
        Ok(code) => code,
        Err(error) => error.report(command.json()),
    })
}

/// Everything that is available, with a probe of this machine.
async fn look_everywhere() -> Result<(Config, AvailableModels), CliError> {
    let config = config::user()?;
    let local = if probes(&config.models) { local_servers::refresh().await } else { Vec::new() };
    let wish = chosen(&config).map(|chosen| chosen.value);
    let found = find_all(&config.models, &local, wish.as_deref());
    Ok((config, found))
}

/// What is available without waiting, and whether to probe this machine later.
async fn find_without_waiting(
    settings: &ModelSettings,
    wish: Option<&str>,
) -> Result<(AvailableModels, bool), CliError> {
    if !probes(settings) {
        return Ok((find_all(settings, &[], wish), false));
    }
    let remembered = local_servers::remembered();
    let first = find_all(settings, remembered.as_deref().unwrap_or_default(), wish);
    let wants_local = wish.is_some_and(|wish| local_servers::names(wish) && first.resolve(wish).is_err());
    if !wants_local && (remembered.is_some() || !first.providers.is_empty()) {
        return Ok((first, true));
    }
    let local = local_servers::refresh().await;
    Ok((find_all(settings, &local, wish), false))
}

fn find_all(settings: &ModelSettings, local: &[LocalServer], wish: Option<&str>) -> AvailableModels {
    let variable = |name: &str| paths::variable(name).and_then(|value| value.into_string().ok());
    let offline_only = variable("ROPEWALK_OFFLINE").is_some();
    let found = available_providers::find(settings, &variable, local, wish, offline_only);
    for provider in &found.providers {
        let headers = provider.config.headers.iter().map(|(_, value)| value);
        for secret in provider.config.key.iter().chain(headers) {
            secrets_to_redact::add(Secret::reveal(secret));
        }
    }
    found
}

fn probes(settings: &ModelSettings) -> bool {
    settings.probe.unwrap_or(true) && paths::variable("ROPEWALK_OFFLINE").is_none()
}

/// The model that a variable or the settings choose, if any.
pub fn chosen(config: &Config) -> Option<ResolvedSetting<String>> {
    let named = |name: &'static str| {
        let value = paths::variable(name)?.into_string().ok()?;
        Some(ResolvedSetting::new(value, SettingSource::Variable(name)))
    };
    let variable = ["ROPEWALK_MODEL", "FERRET_MODEL", "OTTER_MODEL"].into_iter().find_map(named);
    let in_file = || Some(ResolvedSetting::new(config.models.model.clone()?, config.sources.of("model")));
    variable.or_else(in_file)
}

/// The folder with the record of spending.
fn spending() -> Result<PathBuf, CliError> {
    Ok(paths::state()?.join("spending"))
}

/// The model name without the provider prefix.
fn bare(info: &ModelInfo) -> &str {
    info.id.split_once(':').map_or(&info.id, |(_, model)| model)
}
