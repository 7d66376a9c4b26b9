//! From settings, environment and what listens here to providers, in the order of preference: a value in,
//! a value out.

use std::sync::Arc;

use agent::{Model, ModelInfo, Offline, ProviderConfig, Secret, Wire, catalog};

use super::bare;
use super::known::{KNOWN, Known, known};
use super::local::Local;
use crate::config::{ModelEntry, ModelSettings, ProviderEntry};
use crate::trouble::Trouble;

/// What is offered, and what is not and why.
#[derive(Debug, Default)]
pub struct Found {
    pub providers: Vec<FoundProvider>,
    pub missing: Vec<Missing>,
    pub warnings: Vec<String>,
    /// The offline models that are offered as well.
    pub offline: Vec<ModelInfo>,
}

#[derive(Debug)]
pub struct FoundProvider {
    pub config: ProviderConfig,
    /// Where it was found.
    pub from: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub name: String,
    pub why: String,
    pub fix: String,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `wish` is a model that is to be offered whether or not it is in a list.
pub fn find(
    settings: &ModelSettings,
    variables: Variables<'_>,
    local: &[Local],
    wish: Option<&str>,
    offline_only: bool,
) -> Found {
    let mut found = Found { offline: Offline.offers(), ..Found::default() };
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
    for name in Local::NAMES {
        if !found.has(name) && !found.missing.iter().any(|missing| missing.name == name) {
            found.missing.push(Local::missing(name));
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

impl Found {
    fn has(&self, name: &str) -> bool {
        self.providers.iter().any(|provider| *provider.config.name == *name)
    }

    fn miss(&mut self, name: &str, why: impl Into<String>, fix: impl Into<String>) {
        self.missing.push(Missing { name: name.to_owned(), why: why.into(), fix: fix.into() });
    }

    /// One of `[[providers]]`.
    fn configured(&mut self, entry: &ProviderEntry, variables: Variables<'_>, local: &[Local]) {
        let usual = known(&entry.name);
        let wire = entry.wire.or_else(|| usual.map(|known| known.wire));
        let wire = wire.or_else(|| (entry.name == "ollama").then_some(Wire::Ollama));
        let Some(wire) = wire else {
            return self.miss(
                &entry.name,
                "the settings do not say its wire",
                "add wire = \"chat\" or another",
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
            let why = "the settings name no models of it, and nothing that listens there was seen";
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
        self.providers.push(FoundProvider { config, from: "the settings".into() });
    }

    fn in_environment(&mut self, known: &'static Known, variables: Variables<'_>) {
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
        // Whoever imitates OpenAI knows the older language at least.
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
        self.providers.push(FoundProvider { config, from });
    }

    /// Something on this machine.
    fn listening(&mut self, server: &Local) {
        let mut config = ProviderConfig::new(server.name, server.wire());
        config.base_url = server.base_url.clone();
        config.models =
            described(server.name, &server.models, own(server.name, server.wire(), &server.base_url));
        let from = format!("it listens at {}", server.address());
        if config.models.is_empty() {
            let why = format!("{from}, but has no model");
            return self.miss(server.name, why, "load one, as in `ollama pull qwen3`");
        }
        self.providers.push(FoundProvider { config, from });
    }

    /// Offers a model that is in no list, if its provider is there.
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
        if let Some(FoundProvider { config, .. }) = provider {
            let at_home =
                known(&config.name).is_some_and(|known| same_place(known.base_url, &config.base_url));
            let added = info(&config.name, model, at_home, own(&config.name, config.wire, &config.base_url));
            config.models.push(added);
        }
    }

    /// What the settings say about a model is right.
    fn correct(&mut self, entry: &ModelEntry) {
        let models = self.providers.iter_mut().flat_map(|provider| &mut provider.config.models);
        let Some(model) = models.into_iter().find(|model| *model.id == *entry.id) else {
            self.warnings.push(format!("the settings describe {:?}, which nobody offers", entry.id));
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
        for FoundProvider { config, .. } in &mut self.providers {
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
            self.warnings.push(
                "none of available_models is offered by anybody: only the offline models are left".into(),
            );
        }
    }

    /// Leaves the offline models that are listed, or all of them if none is. Says whether any is listed.
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

    /// The id of the model that is meant.
    pub fn resolve(&self, wish: &str) -> Result<Arc<str>, Trouble> {
        if let Some(model) = self.find(wish) {
            return Ok(Arc::clone(&model.id));
        }
        if let Some(model) = self.offline.iter().find(|model| *model.id == *wish || bare(model) == wish) {
            return Ok(Arc::clone(&model.id));
        }
        let trouble = Trouble::usage(format!("there is no model {wish:?} here"));
        let name = wish.split(':').next().unwrap_or(wish);
        let why = self.missing.iter().find(|missing| missing.name == name);
        Err(match why {
            Some(missing) => trouble.because(format!("{name}: {}", missing.why)).fix(missing.fix.clone()),
            None => trouble.fix("ropewalk models list says which there are"),
        })
    }
}

fn info(provider: &str, model: &str, at_home: bool, own: bool) -> ModelInfo {
    let known = at_home.then(|| catalog::find(provider, model)).flatten();
    let mut info = known.unwrap_or_else(|| catalog::describe(provider, model));
    // Ollama passes some on to others, and names them so.
    if own && !model.ends_with("cloud") {
        info.price = Some(agent::Price::FREE);
        info.description = catalog::description(provider, info.price.as_ref());
    }
    info
}

fn described(provider: &str, models: &[String], own: bool) -> Vec<ModelInfo> {
    models.iter().map(|model| info(provider, model, false, own)).collect()
}

/// Whether models run on this machine itself, and so cost nothing. Whatever else listens here may pass
/// prompts on to somebody who wants money for it.
fn own(name: &str, wire: Wire, base_url: &str) -> bool {
    super::local::is_here(base_url) && (wire == Wire::Ollama || Local::NAMES.contains(&name))
}

/// What people set leads to the provider, with or without the version that our paths begin with.
fn led_to(known: &Known, url: &str) -> String {
    let url = url.trim_end_matches('/');
    if known.wire == Wire::Anthropic && !url.ends_with("/v1") { format!("{url}/v1") } else { url.to_owned() }
}

fn same_place(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Where it stands in `available_models`, by its whole id or, for any provider, by its bare name.
fn place_in(available: &[String], model: &ModelInfo) -> Option<usize> {
    available.iter().position(|listed| **listed == *model.id || listed == bare(model))
}

#[cfg(test)]
mod tests;
