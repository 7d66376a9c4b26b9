//! A provider of models that is reached over HTTP: where it is, how it is spoken to, what it offers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::call::{Call, bare};
use super::trouble::{Refused, Speaker};
use super::wire::{Omit, Wire};
use super::{Model, ModelError, ModelInfo, ModelRequest, ModelStream, http};

const LEARNED_MAX: usize = 256;
/// Many times what any model can say at once.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A value that is sent and never shown: not in errors, logs or debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// For the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the first word of an answer: a local model may have to be loaded first.
    pub answer: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// Without a word, whatever else comes and however often it is asked again.
    pub give_up: Duration,
    /// How long a provider may ask to be left alone before it is asked again.
    pub retry_after_max: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            answer: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            give_up: Duration::from_secs(600),
            retry_after_max: Duration::from_secs(60),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The part of a model's id before the colon.
    pub name: Arc<str>,
    pub wire: Wire,
    /// Without the wire's own path: see [`Wire::default_base_url`].
    pub base_url: String,
    pub key: Option<Secret>,
    /// What a person sets to give a key, for error texts: `ANTHROPIC_API_KEY`.
    pub key_name: Option<Arc<str>>,
    /// Sent besides the wire's own.
    pub headers: Vec<(String, Secret)>,
    pub models: Vec<ModelInfo>,
    pub timeouts: Timeouts,
    /// Text, thoughts and arguments of one answer; a longer one is ended there.
    pub answer_bytes_max: usize,
}

impl ProviderConfig {
    pub fn new(name: impl Into<Arc<str>>, wire: Wire) -> Self {
        Self {
            name: name.into(),
            wire,
            base_url: wire.default_base_url().into(),
            key: None,
            key_name: None,
            headers: Vec::new(),
            models: Vec::new(),
            timeouts: Timeouts::default(),
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Provider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: ProviderConfig,
    /// Made when it is first needed: making one reads the machine's certificates.
    client: OnceLock<Result<reqwest::Client, String>>,
    /// What its models have refused to be told, by model.
    learned: Mutex<BTreeMap<Arc<str>, Omit>>,
}

impl Provider {
    pub fn new(config: ProviderConfig) -> Self {
        Self { inner: Arc::new(Inner { config, client: OnceLock::new(), learned: Mutex::default() }) }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.inner.config.name
    }

    /// What an error reply means that came instead of an answer of `model`.
    pub fn explain(&self, model: &str, status: u16, body: &str) -> ModelError {
        let refused = Refused { status, body: body.to_owned(), ..Refused::default() };
        refused.explain(&self.inner.speaker(model))
    }
}

impl Inner {
    pub(super) fn client(&self) -> Result<&reqwest::Client, ModelError> {
        let made = self.client.get_or_init(|| http::client(&self.config.base_url, self.config.timeouts));
        made.as_ref()
            .map_err(|error| ModelError::lasting(format!("{} cannot be reached: {error}", self.config.name)))
    }

    pub(super) fn speaker<'a>(&'a self, model: &'a str) -> Speaker<'a> {
        let config = &self.config;
        let secrets = config.key.iter().chain(config.headers.iter().map(|(_, value)| value));
        Speaker {
            name: &config.name,
            model: bare(model),
            key_name: config.key_name.as_deref(),
            keyless: config.key.is_none(),
            secrets: secrets.map(Secret::reveal).collect(),
        }
    }

    pub(super) fn learned(&self, id: &str) -> Omit {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.get(id).copied().unwrap_or_default()
    }

    pub(super) fn learn(&self, id: &Arc<str>, omit: Omit) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.len() < LEARNED_MAX {
            learned.insert(Arc::clone(id), omit);
        }
    }

    pub(super) fn info(&self, id: &str) -> Option<&ModelInfo> {
        self.config.models.iter().find(|info| &*info.id == id)
    }
}

impl Model for Provider {
    fn offers(&self) -> Vec<ModelInfo> {
        self.inner.config.models.clone()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        Box::new(Call::new(Arc::clone(&self.inner), request))
    }
}
