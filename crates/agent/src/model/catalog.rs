//! What is known about models in advance: their context size and their prices.
//!
//! The table is data that others maintain (`catalog.json` names the source and the date); `cargo xtask
//! prices` regenerates it. A model that it does not have has no price, and a model without a price is never
//! called free.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::ModelInfo;
use super::price::{LongPrice, Price};

/// The default for unknown models. Local servers often have less, and report it themselves.
const CONTEXT_TOKENS: u64 = 128_000;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("catalog.json")).unwrap_or_else(|error| {
        tracing::error!(%error, "the table of models is broken; this is a bug");
        Table::default()
    })
});

#[derive(Debug, Default, Deserialize)]
struct Table {
    date: String,
    providers: BTreeMap<String, Vec<Row>>,
}

#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    name: String,
    context: u64,
    output: u64,
    images: bool,
    price: Option<[f64; 4]>,
    above: Option<u64>,
    price_above: Option<[f64; 4]>,
}

/// The date of the table.
pub fn date() -> &'static str {
    &TABLE.date
}

/// The known models of a provider, the default first. Dated editions of another model are left out, but can
/// be used all the same.
pub fn models_of(provider: &str) -> Vec<ModelInfo> {
    let rows = TABLE.providers.get(provider).map_or(&[][..], Vec::as_slice);
    let dated = |row: &Row| rows.iter().any(|other| is_same_at_a_date(&other.id, &row.id));
    rows.iter().filter(|row| !dated(row)).map(|row| row.info(provider, &row.id)).collect()
}

/// Finds a model by its id: exactly that one, else the one with the longest id that this is an edition of.
/// `provider` is the one whose prices apply.
pub fn find(provider: &str, model: &str) -> Option<ModelInfo> {
    let rows = TABLE.providers.get(provider)?;
    Some(best(rows.iter(), model)?.info(provider, model))
}

/// A model of a provider with unknown prices: its abilities may still be known.
pub fn describe(provider: &str, model: &str) -> ModelInfo {
    // Local servers and marketplaces write `maker/model`.
    let bare_model = model.rsplit('/').next().unwrap_or(model);
    let makers = TABLE.providers.iter().filter(|(name, _)| name.as_str() != "openrouter");
    let known = best(makers.flat_map(|(_, rows)| rows), bare_model).map(|row| row.info(provider, model));
    match known {
        Some(info) => ModelInfo { price: None, ..info },
        None => ModelInfo {
            id: format!("{provider}:{model}").into(),
            name: model.into(),
            description: description(provider, None),
            context_tokens: CONTEXT_TOKENS,
            output_tokens_max: None,
            images: false,
            price: None,
        },
    }
}

fn best<'a>(rows: impl Iterator<Item = &'a Row>, model: &str) -> Option<&'a Row> {
    rows.filter(|row| row.id == model || is_same_at_a_date(&row.id, model)).max_by_key(|row| row.id.len())
}

/// Whether `edition` is `id` at a date or in a numbered edition: `gpt-5-2025-08-07`, `claude-opus-5@20260724`.
/// Any other suffix makes it another model with another price.
fn is_same_at_a_date(id: &str, edition: &str) -> bool {
    let Some(rest) = edition.strip_prefix(id) else { return false };
    let Some(rest) = rest.strip_prefix(['-', '@', ':']) else { return false };
    // One digit is a version: `claude-opus-5-5` is not an edition of `claude-opus-5`.
    let is_date = rest.len() >= 3 && rest.chars().all(|char| char.is_ascii_digit() || char == '-');
    is_date || rest == "latest"
}

impl Row {
    fn info(&self, provider: &str, model: &str) -> ModelInfo {
        let price = self.price.map(|[input, output, cache_read, cache_write]| Price {
            input,
            output,
            cache_read,
            cache_write,
            above: self.above(),
        });
        ModelInfo {
            id: format!("{provider}:{model}").into(),
            name: self.name.as_str().into(),
            description: description(provider, price.as_ref()),
            context_tokens: if self.context == 0 { CONTEXT_TOKENS } else { self.context },
            output_tokens_max: Some(self.output).filter(|tokens| *tokens > 0),
            images: self.images,
            price,
        }
    }

    fn above(&self) -> Option<LongPrice> {
        let (tokens, [input, output, cache_read, cache_write]) = (self.above?, self.price_above?);
        Some(LongPrice { tokens, input, output, cache_read, cache_write })
    }
}

/// The description in a list of models.
pub fn description(provider: &str, price: Option<&Price>) -> Arc<str> {
    match price {
        None => format!("{provider}; cost unknown").into(),
        Some(price) if *price == Price::FREE => format!("{provider}; free").into(),
        Some(price) => {
            format!("{provider}; ${} in, ${} out per million tokens", price.input, price.output).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_has_a_first_model_with_a_price() {
        assert!(!date().is_empty());
        for provider in ["anthropic", "deepseek", "gemini", "openai", "openrouter", "xai"] {
            let models = models_of(provider);
            let first = models.first().unwrap();
            assert!(first.price.is_some_and(|price| price.input > 0.0), "{first:?}");
            assert!(first.context_tokens > 0 && first.id.starts_with(provider), "{first:?}");
        }
        assert_eq!(models_of("nobody"), []);
    }

    #[test]
    fn a_model_is_found_by_its_id_or_as_an_edition_of_another_and_never_by_a_guess() {
        let price = |model: &str| find("openai", model).and_then(|info| info.price).map(|price| price.input);
        assert_eq!(price("gpt-5"), Some(1.25));
        assert_eq!(price("gpt-5-2025-08-07"), Some(1.25));
        assert_eq!(price("gpt-5-mini"), Some(0.25));
        assert_eq!(price("gpt-5-mini-2025-08-07"), Some(0.25));
        for unknown in ["gpt-5-huge", "gpt-5.99", "gpt-5-", "gpt", "", "gpt-5-9", "gpt-5mini"] {
            assert_eq!(find("openai", unknown), None, "{unknown}");
        }
        assert_eq!(find("nobody", "gpt-5"), None);
        let edition = find("anthropic", "claude-opus-5@20260724").unwrap();
        assert_eq!(&*edition.id, "anthropic:claude-opus-5@20260724");
    }

    #[test]
    fn what_a_known_model_can_do_is_known_elsewhere_but_not_what_it_costs() {
        let elsewhere = describe("work", "anthropic/claude-opus-5");
        assert_eq!((elsewhere.context_tokens, elsewhere.price), (1_000_000, None));
        assert_eq!(&*elsewhere.id, "work:anthropic/claude-opus-5");
        let unknown = describe("local", "llama-900");
        assert_eq!((unknown.context_tokens, unknown.price), (CONTEXT_TOKENS, None));
        assert_eq!(&*unknown.description, "local; cost unknown");
    }
}
