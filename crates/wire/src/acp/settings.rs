//! Settings in the protocol's two forms: modes, and the complete list of config options.

use agent_client_protocol_schema::v1 as schema;
use engine::{Category, MODE, SettingSpec, Settings};

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

pub(super) fn options(specs: &[SettingSpec], settings: &Settings) -> Vec<schema::SessionConfigOption> {
    specs.iter().map(|spec| option(spec, settings)).collect()
}

fn option(spec: &SettingSpec, settings: &Settings) -> schema::SessionConfigOption {
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
    let category = match spec.category {
        Category::Mode => schema::SessionConfigOptionCategory::Mode,
        Category::Model => schema::SessionConfigOptionCategory::Model,
        Category::ModelConfig => schema::SessionConfigOptionCategory::ModelConfig,
        Category::Other => schema::SessionConfigOptionCategory::Other("other".into()),
    };
    schema::SessionConfigOption::select(
        schema::SessionConfigId::new(spec.id.clone()),
        spec.name.to_string(),
        schema::SessionConfigValueId::new(settings.get(&spec.id)),
        choices,
    )
    .description(spec.description.to_string())
    .category(category)
}
