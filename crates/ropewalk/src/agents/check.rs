//! `ropewalk agents check`: starts an agent as for a session, sends `initialize`, and stops it.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::Greeting;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::external_agent::{self, AgentAbilities};
use wire::json_errors::{self, JsonError};

use crate::cli::{AgentsCheckOptions, GuardOptions};
use crate::cli_error::CliError;
use crate::external_agents::{self, AgentLaunch, Entry};
use crate::guard_settings::Guards;
use crate::output::{self, one_line};
use crate::{config, run};

/// The protocol version; agents with another version are refused.
const PROTOCOL: u64 = 1;

/// The result for one agent.
struct CheckResult {
    name: String,
    took: Duration,
    answer: Result<AgentGreeting, String>,
}

/// The answer of an agent to `initialize`.
struct AgentGreeting {
    /// Unchanged.
    whole: Value,
    greeting: Greeting,
    can: AgentAbilities,
}

pub async fn run(options: &AgentsCheckOptions) -> Result<ExitCode, CliError> {
    let config = config::user()?;
    let entries = match &options.name {
        Some(name) => vec![external_agents::named(&config, name)?],
        None => {
            let mut entries = external_agents::all(&config)?;
            entries.retain(|entry| entry.program().is_some());
            entries
        }
    };
    if entries.is_empty() {
        return Err(CliError::failed("no known agent is installed").fix(
            "list known agents with `ropewalk agents list`; `ropewalk agents install-hint NAME` shows how to install one",
        ));
    }
    let mut outcomes = Vec::new();
    // One after the other, because the time that each takes is reported.
    for entry in &entries {
        let outcome = check(entry).await?;
        if !options.json {
            output::put(&as_text(&outcome))?;
        }
        outcomes.push(outcome);
    }
    if options.json {
        output::put_json(&json!({ "agents": outcomes.iter().map(as_json).collect::<Vec<_>>() }))?;
    }
    let well = outcomes.iter().all(|outcome| outcome.answer.is_ok());
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check(entry: &Entry) -> Result<CheckResult, CliError> {
    let chosen = AgentLaunch::of(entry)?;
    let mut guards = Guards::of(&GuardOptions::default())?;
    guards.reach.mode = entry.sandbox.unwrap_or(guards.reach.mode);
    let external_agent = chosen.backend(&guards, &run::folder(None)?)?;
    let began = Instant::now();
    let answer = external_agent.check().await;
    let took = began.elapsed();
    external_agent.end().await;
    let answer = answer.map_err(|error| error.message.to_string()).and_then(|text| read(&text));
    Ok(CheckResult { name: entry.name.clone(), took, answer })
}

fn read(text: &str) -> Result<AgentGreeting, String> {
    let wrong = |error: JsonError| error.to_string();
    let raw: &RawValue = json_errors::read(text, "its answer").map_err(wrong)?;
    let (greeting, can) = external_agent::initialize_response(raw).map_err(|error| error.to_string())?;
    Ok(AgentGreeting { whole: json_errors::read(text, "its answer").map_err(wrong)?, greeting, can })
}

impl AgentGreeting {
    /// A text field of the agent's own description.
    fn own(&self, field: &str) -> Option<String> {
        let agent = self.greeting.foreign.as_ref()?.agent.as_ref()?;
        let agent: Value = serde_json::from_str(&agent.0).ok()?;
        agent[field].as_str().map(one_line)
    }

    fn abilities(&self) -> Vec<&'static str> {
        let AgentAbilities { load, resume, fork, close, images, audio, embedded, .. } = self.can;
        let all = [
            ("load", load),
            ("resume", resume),
            ("fork", fork),
            ("close", close),
            ("images", images),
            ("audio", audio),
            ("embedded files", embedded),
        ];
        all.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect()
    }

    /// The sign-in methods: the id for `authenticate`, and the agent's description of it.
    fn sign_in(&self) -> Vec<(String, Option<String>)> {
        let methods = self.greeting.foreign.iter().flat_map(|foreign| &foreign.auth_methods);
        let named = |method: &engine::Opaque| {
            let method: Value = serde_json::from_str(&method.0).ok()?;
            let told = ["description", "name"].iter().find_map(|field| method[field].as_str());
            Some((method["id"].as_str().map(one_line)?, told.map(one_line)))
        };
        methods.filter_map(named).collect()
    }
}

fn as_json(outcome: &CheckResult) -> Value {
    let CheckResult { name, took, answer } = outcome;
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match answer {
        Ok(answer) => json!({
            "name": name,
            "ok": true,
            "milliseconds": milliseconds,
            "agent": answer.own("name"),
            "version": answer.own("version"),
            "protocol": PROTOCOL,
            "abilities": answer.abilities(),
            "sign_in": answer.sign_in().into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
            "answer": answer.whole,
        }),
        Err(error) => json!({ "name": name, "ok": false, "milliseconds": milliseconds, "error": error }),
    }
}

fn as_text(outcome: &CheckResult) -> String {
    let CheckResult { name, took, answer } = outcome;
    let name = one_line(name);
    let seconds = format!("{:.2} s", took.as_secs_f64());
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return format!("{name}  does not answer ({seconds}): {}\n", one_line(error)),
    };
    let or_none = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let mut out = format!("{name}  answers after {seconds}\n");
    let mut line = |what: &str, said: &str| writeln!(out, "  {what:9} {said}").ok();
    let agent = answer.own("title").or_else(|| answer.own("name")).unwrap_or_else(|| "(unnamed)".into());
    line("agent", &format!("{agent} {}", answer.own("version").unwrap_or_default()));
    line("protocol", &PROTOCOL.to_string());
    line("can", &or_none(answer.abilities().into_iter().map(str::to_owned).collect()));
    let sign_in = answer.sign_in().into_iter();
    let sign_in = sign_in.map(|(id, told)| told.map_or(id.clone(), |told| format!("{id} ({told})")));
    line("sign in", &or_none(sign_in.collect()));
    out
}
