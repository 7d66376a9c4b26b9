//! `cargo xtask prices MODELS.json DATE`: makes `crates/agent/src/model/catalog.json` anew.
//!
//! The source is the snapshot of models.dev that ships inside the crate `rig-core`
//! (`src/catalog/models.json`, MIT). Only the providers that the agent can speak to are taken, and of
//! them the models that call tools and answer in text.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

const TARGET: &str = "crates/agent/src/model/catalog.json";
const SOURCE: &str = "models.dev, as it ships in the crate rig-core 0.46.0 (src/catalog/models.json); made by cargo xtask prices";
/// Ours, theirs, and the model that somebody gets who chooses none.
const PROVIDERS: [(&str, &str, &str); 9] = [
    ("anthropic", "anthropic", "claude-sonnet-5-5"),
    ("deepseek", "deepseek", ""),
    ("gemini", "gcp.gemini", "gemini-4-argon"),
    ("groq", "groq", ""),
    ("mistral", "mistral", ""),
    ("moonshot", "moonshot", ""),
    ("openai", "openai", "gpt-6.1-sol"),
    ("openrouter", "openrouter", "anthropic/claude-sonnet-5.5"),
    ("xai", "xai", "grok-4.7"),
];
/// Of a marketplace with hundreds of models, these makers and what is not older.
const MARKET: &str = "openrouter";
const MAKERS: [&str; 9] = [
    "anthropic/",
    "deepseek/",
    "google/gemini",
    "mistralai/",
    "moonshotai/",
    "openai/",
    "qwen/",
    "x-ai/",
    "z-ai/",
];
const MARKET_SINCE: &str = "2025-06";
/// Models for something else than writing.
const NOT_FOR_CODE: [&str; 6] = ["realtime", "-live-", "-image", "deep-research", "computer-use", "audio"];

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [source, date] = arguments else { anyhow::bail!("usage: cargo xtask prices MODELS.json DATE") };
    let text = std::fs::read_to_string(source).with_context(|| format!("{source} cannot be read"))?;
    let all: Value = serde_json::from_str(&text).with_context(|| format!("{source} is no JSON"))?;
    let mut lines = vec![
        "{".to_owned(),
        format!("\"source\": {},", json!(SOURCE)),
        "\"licence\": \"MIT\",".to_owned(),
        format!("\"date\": {},", json!(date)),
        "\"prices\": \"US dollars per million tokens: input, output, cache read, cache write\",".to_owned(),
        "\"providers\": {".to_owned(),
    ];
    for (at, (ours, theirs, default)) in PROVIDERS.into_iter().enumerate() {
        let models = all[theirs]["models"].as_object().with_context(|| format!("no models of {theirs}"))?;
        let rows = rows(ours, default, models);
        let first = rows.first().with_context(|| format!("no model of {ours} is left"))?;
        if !default.is_empty() && first["id"] != *default {
            anyhow::bail!("{ours} has no {default} any more: choose another in drills/src/prices.rs");
        }
        lines.push(format!("{}: [", json!(ours)));
        lines.push(rows.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n"));
        lines.push(if at + 1 < PROVIDERS.len() { "]," } else { "]" }.to_owned());
    }
    lines.push("}\n}\n".to_owned());
    std::fs::write(Path::new(TARGET), lines.join("\n")).with_context(|| format!("{TARGET} cannot be written"))
}

/// The default first, then the newest.
fn rows(provider: &str, default: &str, models: &Map<String, Value>) -> Vec<Value> {
    let date = |model: &Value| model["release_date"].as_str().unwrap_or_default().to_owned();
    let mut kept: Vec<(&String, &Value)> =
        models.iter().filter(|(id, model)| wanted(provider, id, model)).collect();
    kept.sort_by_key(|(id, model)| (*id != default, std::cmp::Reverse(date(model)), (*id).clone()));
    kept.into_iter().map(|(id, model)| row(id, model)).collect()
}

fn wanted(provider: &str, id: &str, model: &Value) -> bool {
    let writes = model["modalities"]["output"].as_array().is_none_or(|kinds| kinds.contains(&json!("text")));
    let current = model["status"] != "deprecated";
    let for_code = NOT_FOR_CODE.iter().all(|word| !id.contains(word));
    let listed = provider != MARKET
        || MAKERS.iter().any(|maker| id.starts_with(maker))
            && !id.contains(':')
            && model["release_date"].as_str().is_some_and(|date| date >= MARKET_SINCE);
    model["tool_call"] == true && writes && current && for_code && listed
}

fn row(id: &str, model: &Value) -> Value {
    let images = model["modalities"]["input"].as_array().is_some_and(|kinds| kinds.contains(&json!("image")));
    let mut row = json!({
        "id": id,
        "name": model["name"].as_str().unwrap_or(id),
        "context": model["limit"]["context"].as_u64().unwrap_or(0),
        "output": model["limit"]["output"].as_u64().unwrap_or(0),
        "images": images,
        "thinking": model["reasoning"] == true,
    });
    if let Some(price) = price(&model["cost"]) {
        row["price"] = price;
    }
    let tier = &model["cost"]["tiers"][0];
    if let (Some(size), Some(price)) = (tier["tier"]["size"].as_u64(), price(tier)) {
        row["above"] = json!(size);
        row["price_above"] = price;
    }
    row
}

/// What is not said of the cache costs as much as any other input.
fn price(cost: &Value) -> Option<Value> {
    let (input, output) = (cost["input"].as_f64()?, cost["output"].as_f64()?);
    let or_input = |key: &str| cost[key].as_f64().unwrap_or(input);
    Some(json!([input, output, or_input("cache_read"), or_input("cache_write")]))
}
