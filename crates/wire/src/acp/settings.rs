//! Settings in the protocol's two forms: session modes, and the complete list of config options.

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{APPROVAL, Category, MODE, Opaque, SettingSpec, Settings};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

pub(super) fn modes(specs: &[SettingSpec], settings: &Settings) -> Option<schema::SessionModeState> {
    let spec = specs.iter().find(|spec| spec.id.as_ref() == MODE)?;
    let available = spec
        .choices
        .iter()
        .map(|choice| {
            schema::SessionMode::new(
                schema::SessionModeId::new(choice.value.clone()),
                choice.name.to_string(),
            )
            .description(choice.description.to_string())
        })
        .collect();
    Some(schema::SessionModeState::new(schema::SessionModeId::new(settings.get(MODE)), available))
}

/// The id under which zeph's clients know the approval setting.
const AUTO_APPROVE: &str = "auto_approve";

/// The complete list of config options. Options of an external agent keep the agent's own JSON, with the
/// current value. On zeph's transport the thinking level is a model choice, and the approval has the id
/// [`AUTO_APPROVE`].
pub(super) fn options(specs: &[SettingSpec], settings: &Settings, zeph: bool) -> Vec<Box<RawValue>> {
    let shown = |spec: &SettingSpec| match &spec.words {
        Some(words) => in_own_words(words, settings.get(&spec.id)),
        None => to_raw_value(&option(spec, settings, zeph)).ok(),
    };
    specs.iter().filter_map(shown).collect()
}

fn in_own_words(words: &Opaque, value: &str) -> Option<Box<RawValue>> {
    let mut option: Map<String, Value> = serde_json::from_str(&words.0).ok()?;
    option.insert("currentValue".to_owned(), value.into());
    to_raw_value(&option).ok()
}

fn option(spec: &SettingSpec, settings: &Settings, zeph: bool) -> schema::SessionConfigOption {
    let choices: Vec<_> = spec
        .choices
        .iter()
        .map(|choice| {
            schema::SessionConfigSelectOption::new(
                schema::SessionConfigValueId::new(choice.value.clone()),
                choice.name.to_string(),
            )
            .description(choice.description.to_string())
        })
        .collect();
    let id = if zeph && *spec.id == *APPROVAL { AUTO_APPROVE.into() } else { Arc::clone(&spec.id) };
    let category = match spec.category {
        Category::Mode => schema::SessionConfigOptionCategory::Mode,
        Category::Model => schema::SessionConfigOptionCategory::Model,
        Category::ThoughtLevel if zeph => schema::SessionConfigOptionCategory::Model,
        Category::ThoughtLevel => schema::SessionConfigOptionCategory::ThoughtLevel,
        Category::ModelConfig => schema::SessionConfigOptionCategory::ModelConfig,
        Category::Other => schema::SessionConfigOptionCategory::Other("other".into()),
    };
    schema::SessionConfigOption::select(
        schema::SessionConfigId::new(id),
        spec.name.to_string(),
        schema::SessionConfigValueId::new(settings.get(&spec.id)),
        choices,
    )
    .description(spec.description.to_string())
    .category(category)
}
