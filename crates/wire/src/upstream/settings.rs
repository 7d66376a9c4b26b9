//! What a person can choose in a session of an agent, and how the agent is told.
//!
//! The protocol has three generations of it: models, modes, and config options that cover both. Agents send
//! several at once. Here they are one list: options under their own names, and modes and models where no
//! option stands for them.

use std::sync::Arc;

use engine::{APPROVAL, Category, Choice, MODE, MODEL, Opaque, SettingSpec};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::raw::{Fields, cut};

const OPTIONS_MAX: usize = 64;
const CHOICES_MAX: usize = 1024;
/// What has a longer name cannot be chosen: it would not be the same name if it were cut.
const ID_BYTES_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 1 << 10;
/// What an option says of itself is kept whole up to here.
const WORDS_BYTES_MAX: usize = 128 << 10;

/// How the agent is told what was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Mode,
    Model,
    /// By the agent's own name for it.
    Option {
        id: Arc<str>,
        boolean: bool,
    },
}

/// What an agent lets a person choose in one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    options: Vec<Offer>,
    mode: Option<Offer>,
    model: Option<Offer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    /// Its default is the value that it had when it was offered.
    spec: SettingSpec,
    how: How,
    value: Arc<str>,
}

impl Offers {
    /// From the answer to `session/new`, `session/load`, `session/resume` or `session/fork`.
    pub fn of(result: &RawValue) -> Self {
        Fields::of(result).map(|fields| Self::read(&fields)).unwrap_or_default()
    }

    pub(super) fn read(fields: &Fields<'_>) -> Self {
        let modes = fields.object("modes");
        let models = fields.object("models");
        Self {
            options: options(fields).unwrap_or_default(),
            mode: modes.and_then(|modes| older(&modes, ("availableModes", "id", "currentModeId"), How::Mode)),
            model: models.and_then(|models| {
                older(&models, ("availableModels", "modelId", "currentModelId"), How::Model)
            }),
        }
    }

    /// What can be chosen, in the agent's order.
    pub fn specs(&self) -> Vec<SettingSpec> {
        self.all().map(|offer| offer.spec.clone()).collect()
    }

    /// What is chosen.
    pub fn values(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.all().map(|offer| (&offer.spec.id, &offer.value))
    }

    pub fn value(&self, id: &str) -> Option<&Arc<str>> {
        self.values().find(|(own, _)| ***own == *id).map(|(_, value)| value)
    }

    pub fn how(&self, id: &str) -> Option<&How> {
        self.all().find(|offer| *offer.spec.id == *id).map(|offer| &offer.how)
    }

    /// The setting that is the session's mode, whatever it is called.
    pub fn mode_id(&self) -> Option<&Arc<str>> {
        self.all().find(|offer| offer.spec.category == Category::Mode).map(|offer| &offer.spec.id)
    }

    /// Takes note of a choice. Says whether it is another than before.
    pub fn choose(&mut self, id: &str, value: &Arc<str>) -> bool {
        let all = self.options.iter_mut().chain(self.mode.as_mut()).chain(self.model.as_mut());
        let mut changed = false;
        for offer in all.filter(|offer| *offer.spec.id == *id) {
            changed |= offer.value != *value;
            offer.value = Arc::clone(value);
        }
        changed
    }

    /// Takes the complete list of options that an agent sent later.
    pub(super) fn replace(&self, fields: &Fields<'_>) -> Option<Self> {
        Some(Self { options: options(fields)?, ..self.clone() })
    }

    /// Whether the same can be chosen, whatever is.
    pub(super) fn offers_same(&self, other: &Self) -> bool {
        // The words have the value in them.
        let plain = |offer: &Offer| SettingSpec { default: "".into(), words: None, ..offer.spec.clone() };
        self.all().map(plain).eq(other.all().map(plain))
    }

    /// Whether the agent's own words can be shown to clients of ours: they name all settings as we do.
    pub(super) fn in_own_words(&self) -> bool {
        let own = |offer: &Offer| match &offer.how {
            How::Mode | How::Model => true,
            How::Option { id, boolean } => *id == offer.spec.id && !boolean,
        };
        self.all().all(own)
    }

    fn all(&self) -> impl Iterator<Item = &Offer> {
        let stands_for = |id: &str, category: Category| {
            self.options.iter().any(|offer| offer.spec.category == category || *offer.spec.id == *id)
        };
        let mode = self.mode.iter().filter(move |_| !stands_for(MODE, Category::Mode));
        let model = self.model.iter().filter(move |_| !stands_for(MODEL, Category::Model));
        self.options.iter().chain(mode).chain(model)
    }
}

/// The request that tells the agent what was chosen, if it is something that the agent offers.
pub fn set(offers: &Offers, session: &str, id: &str, value: &str) -> Option<(&'static str, Value)> {
    Some(match offers.how(id)? {
        How::Mode => ("session/set_mode", json!({ "sessionId": session, "modeId": value })),
        How::Model => ("session/set_model", json!({ "sessionId": session, "modelId": value })),
        How::Option { id, boolean: false } => (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": id.as_ref(), "value": value }),
        ),
        How::Option { id, boolean: true } => {
            let value = value == "true";
            let params =
                json!({ "sessionId": session, "configId": id.as_ref(), "type": "boolean", "value": value });
            ("session/set_config_option", params)
        }
    })
}

/// Modes and models as they were before there were options.
fn older(listed: &Fields<'_>, (list, id, current): (&str, &str, &str), how: How) -> Option<Offer> {
    let choices = choices(listed.list(list, CHOICES_MAX)?, id);
    let (setting, name, category) = match how {
        How::Mode => (MODE, "Mode", Category::Mode),
        How::Model | How::Option { .. } => (MODEL, "Model", Category::Model),
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
    offer(spec, how, value)
}

fn options(fields: &Fields<'_>) -> Option<Vec<Offer>> {
    let mut options: Vec<Offer> = Vec::new();
    for option in fields.list("configOptions", OPTIONS_MAX)?.into_iter().filter_map(option) {
        if !options.iter().any(|other| other.spec.id == option.spec.id) {
            options.push(option);
        }
    }
    Some(options)
}

fn option(raw: &RawValue) -> Option<Offer> {
    let fields = Fields::of(raw)?;
    let own: Arc<str> = fields.text("id").filter(|id| fits(id))?.into();
    // That name is taken: by it the person decides what the agent may do, and the agent must not.
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
        name: cut(fields.text("name").unwrap_or_else(|| id.to_string()), NAME_BYTES_MAX),
        id,
        description: cut(fields.text("description").unwrap_or_default(), DESCRIPTION_BYTES_MAX),
        category,
        choices,
        default: "".into(),
        words: None,
    };
    let verbatim = *own == *spec.id && !boolean && raw.get().len() <= WORDS_BYTES_MAX;
    let spec = SettingSpec { words: verbatim.then(|| Opaque(raw.get().into())), ..spec };
    offer(spec, How::Option { id: own, boolean }, value)
}

/// What is chosen can always be chosen again.
fn offer(mut spec: SettingSpec, how: How, value: Arc<str>) -> Option<Offer> {
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
    Some(Offer { spec, how, value })
}

/// Choices stand in a list, or in groups of lists.
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
        let name = cut(fields.text("name").unwrap_or_else(|| value.to_string()), NAME_BYTES_MAX);
        let description = cut(fields.text("description").unwrap_or_default(), DESCRIPTION_BYTES_MAX);
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
