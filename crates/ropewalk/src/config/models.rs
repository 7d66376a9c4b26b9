//! Settings about models: providers, prices and budgets.
//!
//! Read only from the person's own file: a project that could name a provider could read every prompt.

use std::time::Duration;

use agent::{Price, ProviderConfig, Wire};
use external::OutputLimits;
use toml_edit::{Item, TableLike};

use super::error::{ConfigError, each_entry};
use super::{bool_of, keys, list_of, text_of};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// The model of new sessions.
    pub model: Option<String>,
    /// If not empty, only these models are offered.
    pub available: Vec<String>,
    pub providers: Vec<ProviderEntry>,
    pub models: Vec<ModelEntry>,
    /// Whether to look for model servers on this machine.
    pub probe: Option<bool>,
    pub max_turns: Option<usize>,
    pub session_usd: Option<f64>,
    pub day_usd: Option<f64>,
    pub refuse_unknown: bool,
    pub limits: ModelLimits,
}

/// `[limits]`: how long to wait for a model, and how much it may answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelLimits {
    pub first_byte_timeout: Option<u64>,
    pub idle_timeout: Option<u64>,
    pub give_up_after: Option<u64>,
    pub retry_after_max: Option<u64>,
    pub answer_bytes_max: Option<usize>,
    pub turn_bytes_max: Option<usize>,
}

impl ModelLimits {
    fn read(item: &Item) -> Result<Self, ConfigError> {
        let table = item.as_table_like().ok_or("limits must be a table: [limits]")?;
        let mut limits = Self::default();
        each_entry(table, |key, item| {
            let number = || count_of(key, item);
            let seconds = || number().map(|seconds| Some(seconds as u64));
            match keys::known("limits", key) {
                Some("first_byte_timeout") => limits.first_byte_timeout = seconds()?,
                Some("idle_timeout") => limits.idle_timeout = seconds()?,
                Some("give_up_after") => limits.give_up_after = seconds()?,
                Some("retry_after_max") => limits.retry_after_max = seconds()?,
                Some("answer_bytes_max") => limits.answer_bytes_max = Some(number()?),
                Some("turn_bytes_max") => limits.turn_bytes_max = Some(number()?),
                _ => {
                    return Err(format!(
                        "unknown key {key}; limits has first_byte_timeout, idle_timeout, give_up_after, retry_after_max, \
                         answer_bytes_max and turn_bytes_max"
                    )
                    .into());
                }
            }
            Ok(())
        })?;
        Ok(limits)
    }

    /// The output limits of an external agent.
    pub fn output(self) -> OutputLimits {
        let usual = OutputLimits::default();
        OutputLimits {
            message_bytes_max: self.answer_bytes_max.unwrap_or(usual.message_bytes_max),
            turn_bytes_max: self.turn_bytes_max.unwrap_or(usual.turn_bytes_max),
        }
    }

    /// Applies the limits that are set.
    pub fn apply(self, config: &mut ProviderConfig) {
        let set = |place: &mut Duration, seconds: Option<u64>| {
            *place = seconds.map_or(*place, Duration::from_secs);
        };
        set(&mut config.timeouts.answer, self.first_byte_timeout);
        set(&mut config.timeouts.idle, self.idle_timeout);
        set(&mut config.timeouts.give_up, self.give_up_after);
        set(&mut config.timeouts.retry_after_max, self.retry_after_max);
        config.answer_bytes_max = self.answer_bytes_max.unwrap_or(config.answer_bytes_max);
    }
}

/// One of `[[providers]]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProviderEntry {
    pub name: String,
    pub wire: Option<Wire>,
    pub base_url: Option<String>,
    pub models: Vec<String>,
    /// The variable that holds the key.
    pub key_env: Option<String>,
    /// Header names, and the variables that hold their values.
    pub headers_env: Vec<(String, String)>,
}

/// One of `[[models]]`: corrections to the built-in table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelEntry {
    pub id: String,
    pub context: Option<u64>,
    pub output: Option<u64>,
    pub images: Option<bool>,
    pub price: Option<Price>,
}

impl ModelSettings {
    /// Reads a key of the settings file. Returns whether it is one of these.
    pub fn take(&mut self, key: &str, item: &Item) -> Result<bool, ConfigError> {
        match key {
            "model" => self.model = Some(text_of(key, item)?.to_owned()),
            "available_models" => self.available = list_of(key, item)?,
            "probe_local_models" => self.probe = Some(bool_of(key, item)?),
            "max_turns" => self.max_turns = Some(count_of(key, item)?),
            "providers" => {
                self.providers = tables(key, item)?.into_iter().map(provider).collect::<Result<_, _>>()?
            }
            "models" => self.models = tables(key, item)?.into_iter().map(model).collect::<Result<_, _>>()?,
            "budget" => self.budget(item)?,
            "limits" => self.limits = ModelLimits::read(item)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn budget(&mut self, item: &Item) -> Result<(), ConfigError> {
        let table = item.as_table_like().ok_or("budget must be a table: [budget]")?;
        each_entry(table, |key, item| {
            match keys::known("budget", key) {
                Some("session_usd") => self.session_usd = Some(dollars_of(key, item)?),
                Some("day_usd") => self.day_usd = Some(dollars_of(key, item)?),
                Some("unknown") => {
                    self.refuse_unknown = match text_of(key, item)? {
                        "allow" => false,
                        "refuse" => true,
                        other => {
                            return Err(
                                format!("unknown must be \"allow\" or \"refuse\", not {other:?}").into()
                            );
                        }
                    }
                }
                // A misspelled key may have been meant to limit costs.
                _ => {
                    return Err(
                        format!("unknown key {key}; a budget has session_usd, day_usd and unknown").into()
                    );
                }
            }
            Ok(())
        })
    }
}

fn provider(table: &dyn TableLike) -> Result<ProviderEntry, ConfigError> {
    let mut entry = ProviderEntry::default();
    each_entry(table, |key, item| {
        match keys::known("providers", key) {
            Some("name") => entry.name = text_of(key, item)?.to_owned(),
            Some("wire") => entry.wire = Some(wire(text_of(key, item)?)?),
            Some("base_url") => entry.base_url = Some(text_of(key, item)?.to_owned()),
            Some("models") => entry.models = list_of(key, item)?,
            Some("key_env") => entry.key_env = Some(text_of(key, item)?.to_owned()),
            Some("headers_env") => {
                let headers = item
                    .as_table_like()
                    .ok_or("headers_env must be a table of header names and variables")?;
                each_entry(headers, |name, item| {
                    entry.headers_env.push((name.to_owned(), text_of(name, item)?.to_owned()));
                    Ok(())
                })?;
            }
            Some("key" | "api_key") => {
                return Err(
                    "do not put a key into a file: put it into a variable and set key_env to its name".into(),
                );
            }
            _ => {
                return Err(format!(
                    "unknown key {key}; a provider has name, wire, base_url, models, key_env and headers_env"
                )
                .into());
            }
        }
        Ok(())
    })?;
    let good = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-' || char == '_';
    if entry.name.is_empty() || !entry.name.chars().all(good) {
        return Err(format!(
            "invalid provider name {:?}: use lowercase letters, digits, - and _",
            entry.name
        )
        .into());
    }
    if let Some(url) = &entry.base_url
        && !url.starts_with("https://")
        && !url.starts_with("http://")
    {
        return Err(format!("the base_url of {} must begin with https:// or http://", entry.name).into());
    }
    Ok(entry)
}

fn wire(word: &str) -> Result<Wire, String> {
    Ok(match word {
        "anthropic" => Wire::Anthropic,
        "responses" => Wire::Responses,
        "chat" | "openai" => Wire::Chat,
        "gemini" => Wire::Gemini,
        "ollama" => Wire::Ollama,
        _ => return Err(format!("wire must be anthropic, responses, chat, gemini or ollama, not {word:?}")),
    })
}

fn model(table: &dyn TableLike) -> Result<ModelEntry, ConfigError> {
    let mut entry = ModelEntry::default();
    each_entry(table, |key, item| {
        match keys::known("models", key) {
            Some("id") => entry.id = text_of(key, item)?.to_owned(),
            Some("context") => entry.context = Some(tokens_of(key, item)?),
            Some("output") => entry.output = Some(tokens_of(key, item)?),
            Some("images") => entry.images = Some(bool_of(key, item)?),
            Some("price") => entry.price = Some(price(item)?),
            _ => {
                return Err(
                    format!("unknown key {key}; a model has id, context, output, images and price").into()
                );
            }
        }
        Ok(())
    })?;
    if !entry.id.contains(':') {
        return Err(format!("a model id must be PROVIDER:MODEL, not {:?}", entry.id).into());
    }
    Ok(entry)
}

fn price(item: &Item) -> Result<Price, ConfigError> {
    let table = item
        .as_table_like()
        .ok_or("a price must be a table: { input = .., output = .. } per million tokens")?;
    let (mut price, mut read, mut write) = (Price::FREE, None, None);
    each_entry(table, |key, item| {
        let amount = dollars_of(key, item)?;
        match keys::known("models.price", key) {
            Some("input") => price.input = amount,
            Some("output") => price.output = amount,
            Some("cache_read") => read = Some(amount),
            Some("cache_write") => write = Some(amount),
            _ => {
                return Err(format!(
                    "unknown key {key}; a price has input, output, cache_read and cache_write"
                )
                .into());
            }
        }
        Ok(())
    })?;
    if table.get("input").is_none() || table.get("output").is_none() {
        return Err("a price needs input and output".into());
    }
    Ok(Price { cache_read: read.unwrap_or(price.input), cache_write: write.unwrap_or(price.input), ..price })
}

fn tables<'a>(key: &str, item: &'a Item) -> Result<Vec<&'a dyn TableLike>, String> {
    let tables =
        item.as_array_of_tables().ok_or_else(|| format!("{key} must be an array of tables: [[{key}]]"))?;
    Ok(tables.iter().map(|table| table as &dyn TableLike).collect())
}

fn tokens_of(key: &str, item: &Item) -> Result<u64, String> {
    let number = item.as_integer().and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| format!("{key} must be a number of tokens"))
}

fn count_of(key: &str, item: &Item) -> Result<usize, String> {
    let number = item.as_integer().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| format!("{key} must be a number of at least 1"))
}

fn dollars_of(key: &str, item: &Item) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "nobody spends more dollars than fit")]
    let amount = item.as_float().or_else(|| item.as_integer().map(|number| number as f64));
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| format!("{key} must be an amount of US dollars"))
}
