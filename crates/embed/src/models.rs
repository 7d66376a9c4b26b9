//! The models that an agent offers, by keys such as `acme:large`, each with the agent's own provider value.
//!
//! A client can choose only a key that the setting offers, so a key without a provider is refused before the agent
//! sees it.

use std::sync::Arc;

use engine::{Category, Choice, MODEL, SettingSpec, TurnContext};

/// The models in the order a person should see them; the first is the default.
pub struct Models<P> {
    offered: Vec<(Arc<str>, P)>,
}

impl<P> Models<P> {
    pub fn new<K: Into<Arc<str>>>(first: (K, P), others: impl IntoIterator<Item = (K, P)>) -> Self {
        let all = std::iter::once(first).chain(others);
        Self { offered: all.map(|(key, provider)| (key.into(), provider)).collect() }
    }

    /// For [`engine::Abilities::settings`].
    pub fn setting(&self) -> SettingSpec {
        let keys = self.offered.iter().map(|(key, _)| key);
        let choice =
            |key: &Arc<str>| Choice { value: Arc::clone(key), name: Arc::clone(key), description: "".into() };
        SettingSpec {
            id: MODEL.into(),
            name: "Model".into(),
            description: "Model".into(),
            category: Category::Model,
            default: keys.clone().next().cloned().unwrap_or_default(),
            choices: keys.map(choice).collect(),
            words: None,
        }
    }

    /// The provider of a key.
    pub fn get(&self, key: &str) -> Option<&P> {
        self.offered.iter().find(|(offered, _)| **offered == *key).map(|(_, provider)| provider)
    }

    /// The one that is chosen in the turn's session at this moment. A session of long ago may have chosen one that is
    /// not offered any more.
    pub fn chosen(&self, context: &TurnContext) -> Option<&P> {
        self.get(context.settings().get(MODEL))
    }
}
