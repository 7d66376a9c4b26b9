//! `ropewalk models`: the available models, where they come from, and what is missing.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agent::{Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, Provider, Thinking, catalog};
use serde_json::{Value, json};

use super::available_providers::AvailableProvider;
use super::{AvailableModels, look_everywhere};
use crate::cli::ModelsCommand;
use crate::cli_error::CliError;
use crate::output;

/// How long one short answer may take.
const CHECK_PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(command: &ModelsCommand) -> Result<ExitCode, CliError> {
    let (_, found) = look_everywhere().await?;
    match command {
        ModelsCommand::List(options) => list(&found, options.json).map(|()| ExitCode::SUCCESS),
        ModelsCommand::Check(options) => check(found, options.json).await,
    }
}

fn list(found: &AvailableModels, as_json: bool) -> Result<(), CliError> {
    let default = found.providers.iter().flat_map(|provider| &provider.config.models).next();
    let wish = super::chosen(&crate::config::user()?).map(|chosen| chosen.value);
    let default = match wish {
        Some(wish) => found.resolve(&wish).ok(),
        None => default.map(|model| Arc::clone(&model.id)),
    };
    let offline = found.offline.first().map(|model| Arc::clone(&model.id));
    let default = default.or(offline).unwrap_or_else(|| "none".into());
    let offline = &found.offline;
    if as_json {
        let providers: Vec<_> = found.providers.iter().map(provider_json).collect();
        let missing: Vec<_> = found
            .missing
            .iter()
            .map(|missing| json!({ "provider": missing.name, "reason": missing.why, "fix": missing.fix }))
            .collect();
        return output::put_json(&json!({
            "default": default,
            "providers": providers,
            "offline": offline.iter().map(model_json).collect::<Vec<_>>(),
            "not_found": missing,
            "warnings": found.warnings,
            "prices_of": catalog::date(),
        }));
    }
    let mut out = String::new();
    for AvailableProvider { config, from } in &found.providers {
        out.push_str(&format!("{} (from {from})\n", config.name));
        out.push_str(&models(&config.models, &default));
    }
    if !offline.is_empty() {
        out.push_str("offline (no network, no key)\n");
        out.push_str(&models(offline, &default));
    }
    if !found.missing.is_empty() {
        out.push_str("\nNot available:\n");
        let width = found.missing.iter().map(|missing| missing.name.len()).max().unwrap_or(0);
        for missing in &found.missing {
            out.push_str(&format!("  {:width$}  {}; {}\n", missing.name, missing.why, missing.fix));
        }
    }
    for warning in &found.warnings {
        out.push_str(&format!("\nwarning: {warning}\n"));
    }
    out.push_str(&format!(
        "\n* marks the default; change it with --model or ROPEWALK_MODEL. Prices as of {}.\n",
        catalog::date()
    ));
    output::put(&out)
}

fn models(models: &[ModelInfo], default: &str) -> String {
    let width = models.iter().map(|model| model.id.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for model in models {
        let mark = if *model.id == *default { '*' } else { ' ' };
        let price = model.description.split_once("; ").map_or(&*model.description, |(_, price)| price);
        out.push_str(&format!(
            "{mark} {:width$}  {}k tokens; {price}\n",
            model.id,
            model.context_tokens / 1000
        ));
    }
    out
}

fn provider_json(AvailableProvider { config, from }: &AvailableProvider) -> Value {
    json!({
        "provider": config.name,
        "from": from,
        "base_url": config.base_url,
        "key": config.key.is_some(),
        "models": config.models.iter().map(model_json).collect::<Vec<_>>(),
    })
}

fn model_json(model: &ModelInfo) -> Value {
    let price = model.price.map(|price| {
        json!({
            "input": price.input,
            "output": price.output,
            "cache_read": price.cache_read,
            "cache_write": price.cache_write,
        })
    });
    json!({
        "id": model.id,
        "name": model.name,
        "context_tokens": model.context_tokens,
        "output_tokens_max": model.output_tokens_max,
        "images": model.images,
        "usd_per_million_tokens": price,
    })
}

/// Sends one short prompt to the first model of every provider.
async fn check(found: AvailableModels, as_json: bool) -> Result<ExitCode, CliError> {
    let mut rows = Vec::new();
    for AvailableProvider { config, .. } in found.providers {
        let (name, Some(model)) = (config.name.clone(), config.models.first().cloned()) else { continue };
        let answer = tokio::time::timeout(CHECK_PATIENCE, question(&Provider::new(config), &model)).await;
        let outcome = match answer {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(error.text),
            Err(_) => Err("no answer in time".to_owned()),
        };
        rows.push((name, model.id, outcome));
    }
    let well = rows.iter().all(|(_, _, outcome)| outcome.is_ok());
    if as_json {
        let row = |(name, model, outcome): &(Arc<str>, Arc<str>, Result<String, String>)| json!({ "provider": name, "model": model, "ok": outcome.is_ok(), "error": outcome.as_ref().err() });
        output::put_json(&json!({ "ok": well, "providers": rows.iter().map(row).collect::<Vec<_>>() }))?;
    } else if rows.is_empty() {
        output::say("No provider is available. To see what is missing: ropewalk models list");
    } else {
        let line = |(_, model, outcome): &(_, Arc<str>, Result<String, String>)| match outcome {
            Ok(_) => format!("ok      {model}\n"),
            Err(error) => format!("failed  {model}: {}\n", output::one_line(error)),
        };
        output::put(&rows.iter().map(line).collect::<String>())?;
    }
    Ok(if well && !rows.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn question(provider: &Provider, model: &ModelInfo) -> Result<String, ModelError> {
    let mut stream = provider.stream(ModelRequest {
        model: Arc::clone(&model.id),
        system: "Answer in one word.".into(),
        messages: vec![Message::User { text: "Say ok.".into(), images: Vec::new() }],
        tools: Arc::default(),
        output_tokens_max: Some(256),
        thinking: Thinking::Off,
        temperature: None,
        conversation: "check".into(),
    });
    let mut text = String::new();
    loop {
        match stream.next().await? {
            ModelEvent::Text(more) => text.push_str(&more),
            ModelEvent::Done { .. } => return Ok(text),
            _ => {}
        }
    }
}
