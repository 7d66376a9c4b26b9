//! Derives the providers, in order of preference, from settings, environment and local model servers. No I/O.

use std::sync::Arc;

use agent::{Model, ModelInfo, Offline, ProviderConfig, Secret, Wire, catalog};

use super::bare;
use super::known_providers::{KNOWN, KnownProvider, known};
use super::local_servers::LocalServer;
use crate::cli_error::CliError;
use crate::config::{ModelEntry, ModelSettings, ProviderEntry};

/// The available providers, and the missing ones with the reason.
#[derive(Debug, Default)]
pub struct AvailableModels {
    pub providers: Vec<AvailableProvider>,
    pub missing: Vec<MissingProvider>,
    pub warnings: Vec<String>,
    /// The offline models on offer.
    pub offline: Vec<ModelInfo>,
}

#[derive(Debug)]
pub struct AvailableProvider {
    pub config: ProviderConfig,
    /// Where it comes from.
    pub from: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MissingProvider {
    pub name: String,
    pub why: String,
    pub fix: String,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `wish` is a model to offer even if it is in no list.
pub fn find(
    settings: &ModelSettings,
    variables: Variables<'_>,
    local: &[LocalServer],
    wish: Option<&str>,
    offline_only: bool,
) -> AvailableModels {
    let mut found = AvailableModels { offline: Offline.offers(), ..AvailableModels::default() };
    if offline_only {
        found.narrow_offline(&settings.available);
        return found;
    }
    for entry in &settings.providers {
        found.configured(entry, variables, local);
    }
    for known in &KNOWN {
        if !found.has(known.name) {
            found.in_environment(known, variables);
        }
    }
    for server in local {
        if !found.has(server.name) {
            found.listening(server);
        }
    }
    for name in LocalServer::NAMES {
        if !found.has(name) && !found.missing.iter().any(|missing| missing.name == name) {
            found.missing.push(LocalServer::missing(name));
        }
    }
    if let Some(wish) = wish {
        found.add(wish);
    }
    for entry in &settings.models {
        found.correct(entry);
    }
    found.narrow(&settings.available);
    for provider in &mut found.providers {
        settings.limits.apply(&mut provider.config);
    }
    found
}

impl AvailableModels {
    fn has(&self, name: &str) -> bool {
        self.providers.iter().any(|provider| *provider.config.name == *name)
    }

    fn miss(&mut self, name: &str, why: impl Into<String>, fix: impl Into<String>) {
        self.missing.push(MissingProvider { name: name.to_owned(), why: why.into(), fix: fix.into() });
    }

    /// One of `[[providers]]`.
    fn configured(&mut self, entry: &ProviderEntry, variables: Variables<'_>, local: &[LocalServer]) {
        let usual = known(&entry.name);
        let wire = entry.wire.or_else(|| usual.map(|known| known.wire));
        let wire = wire.or_else(|| (entry.name == "ollama").then_some(Wire::Ollama));
        let Some(wire) = wire else {
            return self.miss(
                &entry.name,
                "its `wire` is not set in your settings",
                "add wire = \"chat\" or another API",
            );
        };
        let base_url = entry.base_url.clone().or_else(|| usual.map(|known| known.base_url.to_owned()));
        let base_url = base_url.unwrap_or_else(|| wire.default_base_url().to_owned());
        let key_name = entry.key_env.clone().or_else(|| usual.map(|known| known.keys[0].to_owned()));
        let key = key_name.as_ref().and_then(|name| variables(name));
        if let (Some(name), None, None) = (&key_name, &key, &entry.base_url) {
            return self.miss(&entry.name, format!("{name} is not set"), format!("export {name}=..."));
        }
        let at_home = usual.is_some_and(|known| same_place(known.base_url, &base_url));
        let models = match &entry.models[..] {
            [] if at_home => catalog::models_of(&entry.name),
            [] => local
                .iter()
                .find(|server| same_place(&server.base_url, &base_url))
                .map_or_else(Vec::new, |server| {
                    described(&entry.name, &server.models, own(&entry.name, wire, &base_url))
                }),
            named => named
                .iter()
                .map(|model| info(&entry.name, model, at_home, own(&entry.name, wire, &base_url)))
                .collect(),
        };
        if models.is_empty() {
            let why = "your settings list no models for it, and no server was found at its URL";
            return self.miss(&entry.name, why, "add models = [\"...\"]");
        }
        let mut config = ProviderConfig::new(entry.name.as_str(), wire);
        config.headers = entry
            .headers_env
            .iter()
            .filter_map(|(name, variable)| Some((name.clone(), Secret::new(variables(variable)?))))
            .collect();
        config.base_url = base_url;
        config.key = key.map(Secret::new);
        config.key_name = key_name.map(Into::into);
        config.models = models;
        self.providers.push(AvailableProvider { config, from: "the settings".into() });
    }

    fn in_environment(&mut self, known: &'static KnownProvider, variables: Variables<'_>) {
        let elsewhere = known.base_env.and_then(|name| Some((name, variables(name)?)));
        let key = known.keys.iter().find_map(|name| Some((*name, variables(name)?)));
        let from = match (&key, &elsewhere) {
            (Some((name, _)), None) => (*name).to_owned(),
            (Some((key, _)), Some((base, _))) => format!("{key} and {base}"),
            (None, Some((base, _))) => (*base).to_owned(),
            (None, None) => {
                let name = known.keys[0];
                return self.miss(known.name, format!("{name} is not set"), format!("export {name}=..."));
            }
        };
        let base_url = elsewhere.map_or_else(|| known.base_url.to_owned(), |(_, url)| led_to(known, &url));
        let at_home = same_place(known.base_url, &base_url);
        // Servers that imitate OpenAI support at least the older API.
        let wire = if known.wire == Wire::Responses && !at_home { Wire::Chat } else { known.wire };
        let mut models = catalog::models_of(known.name);
        if !at_home {
            for model in &mut models {
                model.price = None;
                model.description = catalog::description(known.name, None);
            }
        }
        let mut config = ProviderConfig::new(known.name, wire);
        config.base_url = base_url;
        config.key_name = Some(key.as_ref().map_or(known.keys[0], |(name, _)| *name).into());
        config.key = key.map(|(_, key)| Secret::new(key));
        config.models = models;
        self.providers.push(AvailableProvider { config, from });
    }

    /// A model server on this machine.
    fn listening(&mut self, server: &LocalServer) {
        let mut config = ProviderConfig::new(server.name, server.wire());
        config.base_url = server.base_url.clone();
        config.models =
            described(server.name, &server.models, own(server.name, server.wire(), &server.base_url));
        let from = format!("server at {}", server.address());
        if config.models.is_empty() {
            let why = format!("the {from} has no model");
            return self.miss(server.name, why, "load one, e.g. `ollama pull qwen3`");
        }
        self.providers.push(AvailableProvider { config, from });
    }

    /// Adds a model that is in no list, if its provider is available.
    fn add(&mut self, wish: &str) {
        if wish.starts_with("offline:") || self.find(wish).is_some() {
            return;
        }
        let named = wish.split_once(':').filter(|(name, _)| self.has(name));
        let (provider, model) = match named {
            Some((name, model)) => (self.providers.iter_mut().find(|it| *it.config.name == *name), model),
            None if wish.contains(':') => return,
            None => (self.providers.first_mut(), wish),
        };
        if let Some(AvailableProvider { config, .. }) = provider {
            let at_home =
                known(&config.name).is_some_and(|known| same_place(known.base_url, &config.base_url));
            let added = info(&config.name, model, at_home, own(&config.name, config.wire, &config.base_url));
            config.models.push(added);
        }
    }

    /// Applies what the settings say about a model.
    fn correct(&mut self, entry: &ModelEntry) {
        let models = self.providers.iter_mut().flat_map(|provider| &mut provider.config.models);
        let Some(model) = models.into_iter().find(|model| *model.id == *entry.id) else {
            self.warnings
                .push(format!("your settings describe the model {:?}, which no provider offers", entry.id));
            return;
        };
        model.context_tokens = entry.context.unwrap_or(model.context_tokens);
        model.output_tokens_max = entry.output.or(model.output_tokens_max);
        model.images = entry.images.unwrap_or(model.images);
        model.price = entry.price.or(model.price);
        let provider = model.id.split(':').next().unwrap_or_default().to_owned();
        model.description = catalog::description(&provider, model.price.as_ref());
    }

    fn narrow(&mut self, available: &[String]) {
        if available.is_empty() {
            return;
        }
        for AvailableProvider { config, .. } in &mut self.providers {
            config.models.retain(|model| place_in(available, model).is_some());
            // In the order of the list: its first is the default.
            config.models.sort_by_key(|model| place_in(available, model));
        }
        let any_left = self.providers.iter().any(|provider| !provider.config.models.is_empty());
        let any_offline = self.narrow_offline(available);
        if any_left && !any_offline {
            self.offline.clear();
        }
        if !any_left && !any_offline {
            self.warnings
                .push("no provider offers any of available_models; only the offline models remain".into());
        }
    }

    /// Keeps the listed offline models, or all if none is listed. Returns whether any is listed.
    fn narrow_offline(&mut self, available: &[String]) -> bool {
        let any = self.offline.iter().any(|model| place_in(available, model).is_some());
        if any {
            self.offline.retain(|model| place_in(available, model).is_some());
            self.offline.sort_by_key(|model| place_in(available, model));
        }
        any
    }

    fn find(&self, wish: &str) -> Option<&ModelInfo> {
        let all = || self.providers.iter().flat_map(|provider| &provider.config.models);
        all().find(|model| *model.id == *wish).or_else(|| all().find(|model| bare(model) == wish))
    }

    /// The full id of a model.
    pub fn resolve(&self, wish: &str) -> Result<Arc<str>, CliError> {
        if let Some(model) = self.find(wish) {
            return Ok(Arc::clone(&model.id));
        }
        if let Some(model) = self.offline.iter().find(|model| *model.id == *wish || bare(model) == wish) {
            return Ok(Arc::clone(&model.id));
        }
        let error = CliError::usage(format!("model {wish:?} is not available"));
        let name = wish.split(':').next().unwrap_or(wish);
        let why = self.missing.iter().find(|missing| missing.name == name);
        Err(match why {
            Some(missing) => error.because(format!("{name}: {}", missing.why)).fix(missing.fix.clone()),
            None => error.fix("ropewalk models list"),
        })
    }
}

fn info(provider: &str, model: &str, at_home: bool, own: bool) -> ModelInfo {
    let known = at_home.then(|| catalog::find(provider, model)).flatten();
    let mut info = known.unwrap_or_else(|| catalog::describe(provider, model));
    // Ollama forwards models with this suffix to a paid service.
    if own && !model.ends_with("cloud") {
        info.price = Some(agent::Price::FREE);
        info.description = catalog::description(provider, info.price.as_ref());
    }
    info
}

fn described(provider: &str, models: &[String], own: bool) -> Vec<ModelInfo> {
    models.iter().map(|model| info(provider, model, false, own)).collect()
}

/// Whether the models run on this machine and so cost nothing. Other local servers may forward prompts to a paid
/// service.
fn own(name: &str, wire: Wire, base_url: &str) -> bool {
    super::local_servers::is_here(base_url) && (wire == Wire::Ollama || LocalServer::NAMES.contains(&name))
}

/// The base URL from a variable, with the API version added if it is missing.
fn led_to(known: &KnownProvider, url: &str) -> String {
    let url = url.trim_end_matches('/');
    if known.wire == Wire::Anthropic && !url.ends_with("/v1") { format!("{url}/v1") } else { url.to_owned() }
}

fn same_place(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The position in `available_models`, by full id or by bare name for any provider.
fn place_in(available: &[String], model: &ModelInfo) -> Option<usize> {
    available.iter().position(|listed| **listed == *model.id || listed == bare(model))
}

#[cfg(test)]
mod tests;
