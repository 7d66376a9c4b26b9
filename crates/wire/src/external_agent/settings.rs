//! The settings of an agent's session, and the requests that change them.
//!
//! The protocol has three generations of settings: models, modes, and config options that cover both. Agents
//! send several at once. Here they are one list: options under their own ids, and modes and models where no
//! option replaces them.

use std::sync::Arc;

use engine::{APPROVAL, Category, Choice, MODE, MODEL, Opaque, SettingSpec};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::raw_json::{Fields, shortened};

const OPTIONS_MAX: usize = 64;
const CHOICES_MAX: usize = 1024;
/// A setting with a longer id is not offered: a shortened id would be another id.
const ID_BYTES_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 1 << 10;
/// Limit for keeping an option's original JSON.
const WORDS_BYTES_MAX: usize = 128 << 10;

/// How the agent is told about a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingMethod {
    Mode,
    Model,
    /// By the agent's own id.
    Option {
        id: Arc<str>,
        boolean: bool,
    },
}

/// The settings that an agent offers in one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingOffers {
    options: Vec<OfferedSetting>,
    mode: Option<OfferedSetting>,
    model: Option<OfferedSetting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OfferedSetting {
    /// The spec's default is the value at the time of the offer.
    spec: SettingSpec,
    method: SettingMethod,
    value: Arc<str>,
}

impl SettingOffers {
    /// From the response to `session/new`, `session/load`, `session/resume` or `session/fork`.
    pub fn of(result: &RawValue) -> Self {
        Fields::of(result).map(|fields| Self::read(&fields)).unwrap_or_default()
    }

    pub(super) fn read(fields: &Fields<'_>) -> Self {
        let modes = fields.object("modes");
        let models = fields.object("models");
        Self {
            options: options(fields).unwrap_or_default(),
            mode: modes.and_then(|modes| {
                older(&modes, ("availableModes", "id", "currentModeId"), SettingMethod::Mode)
            }),
            model: models.and_then(|models| {
                older(&models, ("availableModels", "modelId", "currentModelId"), SettingMethod::Model)
            }),
        }
    }

    /// The settings, in the agent's order.
    pub fn specs(&self) -> Vec<SettingSpec> {
        self.all().map(|offer| offer.spec.clone()).collect()
    }

    /// The current values.
    pub fn values(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.all().map(|offer| (&offer.spec.id, &offer.value))
    }

    pub fn value(&self, id: &str) -> Option<&Arc<str>> {
        self.values().find(|(own, _)| ***own == *id).map(|(_, value)| value)
    }

    pub fn method(&self, id: &str) -> Option<&SettingMethod> {
        self.all().find(|offer| *offer.spec.id == *id).map(|offer| &offer.method)
    }

    /// The id of the setting that is the session's mode.
    pub fn mode_id(&self) -> Option<&Arc<str>> {
        self.all().find(|offer| offer.spec.category == Category::Mode).map(|offer| &offer.spec.id)
    }

    /// Records a choice. Returns whether it changed anything.
    pub fn choose(&mut self, id: &str, value: &Arc<str>) -> bool {
        let all = self.options.iter_mut().chain(self.mode.as_mut()).chain(self.model.as_mut());
        let mut changed = false;
        for offer in all.filter(|offer| *offer.spec.id == *id) {
            changed |= offer.value != *value;
            offer.value = Arc::clone(value);
        }
        changed
    }

    /// Applies the complete list of options that an agent sent later.
    pub(super) fn replace(&self, fields: &Fields<'_>) -> Option<Self> {
        Some(Self { options: options(fields)?, ..self.clone() })
    }

    /// Whether the same settings and choices are offered, whatever their values.
    pub(super) fn offers_same(&self, other: &Self) -> bool {
        // The original JSON contains the value.
        let plain =
            |offer: &OfferedSetting| SettingSpec { default: "".into(), words: None, ..offer.spec.clone() };
        self.all().map(plain).eq(other.all().map(plain))
    }

    /// Whether the agent's own JSON can be shown to our clients: it must use our id for every setting.
    pub(super) fn in_own_words(&self) -> bool {
        let own = |offer: &OfferedSetting| match &offer.method {
            SettingMethod::Mode | SettingMethod::Model => true,
            SettingMethod::Option { id, boolean } => *id == offer.spec.id && !boolean,
        };
        self.all().all(own)
    }

    fn all(&self) -> impl Iterator<Item = &OfferedSetting> {
        let stands_for = |id: &str, category: Category| {
            self.options.iter().any(|offer| offer.spec.category == category || *offer.spec.id == *id)
        };
        let mode = self.mode.iter().filter(move |_| !stands_for(MODE, Category::Mode));
        let model = self.model.iter().filter(move |_| !stands_for(MODEL, Category::Model));
        self.options.iter().chain(mode).chain(model)
    }
}

/// The request that tells the agent about a choice, if the agent offers it.
pub fn setting_request(
    offers: &SettingOffers,
    session: &str,
    id: &str,
    value: &str,
) -> Option<(&'static str, Value)> {
    Some(match offers.method(id)? {
        SettingMethod::Mode => ("session/set_mode", json!({ "sessionId": session, "modeId": value })),
        SettingMethod::Model => ("session/set_model", json!({ "sessionId": session, "modelId": value })),
        SettingMethod::Option { id, boolean: false } => (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": id.as_ref(), "value": value }),
        ),
        SettingMethod::Option { id, boolean: true } => {
            let value = value == "true";
            let params =
                json!({ "sessionId": session, "configId": id.as_ref(), "type": "boolean", "value": value });
            ("session/set_config_option", params)
        }
    })
}

/// Modes and models from before config options existed.
fn older(
    listed: &Fields<'_>,
    (list, id, current): (&str, &str, &str),
    method: SettingMethod,
) -> Option<OfferedSetting> {
    let choices = choices(listed.list(list, CHOICES_MAX)?, id);
    let (setting, name, category) = match method {
        SettingMethod::Mode => (MODE, "Mode", Category::Mode),
        SettingMethod::Model | SettingMethod::Option { .. } => (MODEL, "Model", Category::Model),
    };
    let value = listed.text(current).map(Arc::from).or_else(|| Some(Arc::clone(&choices.first()?.value)))?;
    let spec = SettingSpec {
        id: setting.into(),
        name: name.into(),
        description: "".into(),
        category,
        choices,
        default: "".into(),
        words: None,
    };
    offer(spec, method, value)
}

fn options(fields: &Fields<'_>) -> Option<Vec<OfferedSetting>> {
    let mut options: Vec<OfferedSetting> = Vec::new();
    for option in fields.list("configOptions", OPTIONS_MAX)?.into_iter().filter_map(option) {
        if !options.iter().any(|other| other.spec.id == option.spec.id) {
            options.push(option);
        }
    }
    Some(options)
}

fn option(raw: &RawValue) -> Option<OfferedSetting> {
    let fields = Fields::of(raw)?;
    let own: Arc<str> = fields.text("id").filter(|id| fits(id))?.into();
    // This id is reserved: the approval setting decides what the agent may do, so the agent must not define
    // it.
    let id = if *own == *APPROVAL { "agent-approval".into() } else { Arc::clone(&own) };
    let boolean = fields.text("type").as_deref() == Some("boolean");
    let (value, choices): (Arc<str>, _) = if boolean {
        let value = fields.number::<bool>("currentValue").unwrap_or_default();
        (value.to_string().into(), vec![switch("true", "On"), switch("false", "Off")])
    } else {
        let choices = grouped(fields.list("options", CHOICES_MAX)?);
        (fields.text("currentValue")?.into(), choices)
    };
    let category = match fields.text("category").as_deref() {
        Some("mode") => Category::Mode,
        Some("model") => Category::Model,
        Some("model_config" | "thought_level") => Category::ModelConfig,
        None if *id == *MODE => Category::Mode,
        None if *id == *MODEL => Category::Model,
        _ => Category::Other,
    };
    let spec = SettingSpec {
        name: shortened(fields.text("name").unwrap_or_else(|| id.to_string()), NAME_BYTES_MAX),
        id,
        description: shortened(fields.text("description").unwrap_or_default(), DESCRIPTION_BYTES_MAX),
        category,
        choices,
        default: "".into(),
        words: None,
    };
    let verbatim = *own == *spec.id && !boolean && raw.get().len() <= WORDS_BYTES_MAX;
    let spec = SettingSpec { words: verbatim.then(|| Opaque(raw.get().into())), ..spec };
    offer(spec, SettingMethod::Option { id: own, boolean }, value)
}

/// The current value is always among the choices.
fn offer(mut spec: SettingSpec, method: SettingMethod, value: Arc<str>) -> Option<OfferedSetting> {
    if !fits(&value) {
        return None;
    }
    if !spec.offers(&value) {
        spec.choices.push(Choice {
            value: Arc::clone(&value),
            name: Arc::clone(&value),
            description: "".into(),
        });
    }
    spec.default = Arc::clone(&value);
    Some(OfferedSetting { spec, method, value })
}

/// Choices come as a list, or in groups.
fn grouped(listed: Vec<&RawValue>) -> Vec<Choice> {
    let flat = listed.into_iter().flat_map(|item| members(item).unwrap_or_else(|| vec![item]));
    choices(flat.take(CHOICES_MAX).collect(), "value")
}

fn members(group: &RawValue) -> Option<Vec<&RawValue>> {
    Fields::of(group)?.list("options", CHOICES_MAX)
}

fn choices(listed: Vec<&RawValue>, id: &str) -> Vec<Choice> {
    let choice = |raw: &RawValue| {
        let fields = Fields::of(raw)?;
        let value: Arc<str> = fields.text(id).filter(|value| fits(value))?.into();
        let name = shortened(fields.text("name").unwrap_or_else(|| value.to_string()), NAME_BYTES_MAX);
        let description = shortened(fields.text("description").unwrap_or_default(), DESCRIPTION_BYTES_MAX);
        Some(Choice { value, name, description })
    };
    listed.into_iter().filter_map(choice).collect()
}

fn switch(value: &str, name: &str) -> Choice {
    Choice { value: value.into(), name: name.into(), description: "".into() }
}

fn fits(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES_MAX
}
