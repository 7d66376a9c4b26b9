//! A provider of models that is reached over HTTP: its address, its wire, and its models.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::model_call::{ModelCall, bare_model};
use super::provider_error::{ErrorReply, ProviderIdentity};
use super::wire::{Omit, Wire};
use super::{Model, ModelError, ModelInfo, ModelRequest, ModelStream, http};

const OMISSIONS_MAX: usize = 256;
/// Many times the output limit of any model.
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
    /// For connecting.
    pub connect: Duration,
    /// Until the first bytes of an answer: a local model may have to be loaded first.
    pub answer: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// Without any output, whatever else arrives and however often the request is retried.
    pub give_up: Duration,
    /// The longest wait demanded by a provider after which the request is retried.
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
    /// Without the path of the wire: see [`Wire::default_base_url`].
    pub base_url: String,
    pub key: Option<Secret>,
    /// What a person sets to give a key, for error texts: `ANTHROPIC_API_KEY`.
    pub key_name: Option<Arc<str>>,
    /// Additional headers.
    pub headers: Vec<(String, Secret)>,
    pub models: Vec<ModelInfo>,
    pub timeouts: Timeouts,
    /// The maximum of text, thoughts and arguments of one answer, which is ended there.
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
    /// Created when first needed, because that reads the system's certificates.
    client: OnceLock<Result<reqwest::Client, String>>,
    /// The request settings that models have refused, by model.
    omissions: Mutex<BTreeMap<Arc<str>, Omit>>,
}

impl Provider {
    pub fn new(config: ProviderConfig) -> Self {
        Self { inner: Arc::new(Inner { config, client: OnceLock::new(), omissions: Mutex::default() }) }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.inner.config.name
    }

    /// The error for an error response to a request to `model`.
    pub fn explain(&self, model: &str, status: u16, body: &str) -> ModelError {
        let refused = ErrorReply { status, body: body.to_owned(), ..ErrorReply::default() };
        refused.explain(&self.inner.identity(model))
    }
}

impl Inner {
    pub(super) fn client(&self) -> Result<&reqwest::Client, ModelError> {
        let made = self.client.get_or_init(|| http::client(&self.config.base_url, self.config.timeouts));
        made.as_ref().map_err(|error| {
            ModelError::permanent(format!("{} cannot be reached: {error}", self.config.name))
        })
    }

    pub(super) fn identity<'a>(&'a self, model: &'a str) -> ProviderIdentity<'a> {
        let config = &self.config;
        let secrets = config.key.iter().chain(config.headers.iter().map(|(_, value)| value));
        ProviderIdentity {
            name: &config.name,
            model: bare_model(model),
            key_name: config.key_name.as_deref(),
            keyless: config.key.is_none(),
            secrets: secrets.map(Secret::reveal).collect(),
        }
    }

    pub(super) fn omissions(&self, id: &str) -> Omit {
        let omissions = self.omissions.lock().unwrap_or_else(PoisonError::into_inner);
        omissions.get(id).copied().unwrap_or_default()
    }

    pub(super) fn add_omission(&self, id: &Arc<str>, omit: Omit) {
        let mut omissions = self.omissions.lock().unwrap_or_else(PoisonError::into_inner);
        if omissions.len() < OMISSIONS_MAX {
            omissions.insert(Arc::clone(id), omit);
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
        Box::new(ModelCall::new(Arc::clone(&self.inner), request))
    }
}
