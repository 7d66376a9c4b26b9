//! The scenario and what is known of each agent, read from `tests/agents`.
//!
//! The files are the truth; here they are only given types, so that a slip in them is found before
//! anything is started.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::client::AskReply;
use xtask::command;

pub struct Step {
    pub name: String,
    pub action: Action,
    /// What a person says.
    pub text: String,
    /// Which kind of tool the model then calls, and what is filled into its arguments.
    pub tool: Option<String>,
    pub fill: BTreeMap<String, String>,
    pub answer: AskReply,
    /// The agent is expected to ask.
    pub asks: bool,
    /// The turn is cancelled when this file is there.
    pub cancel_at: Option<String>,
    pub picture: bool,
    pub ends: String,
    pub leaves: Vec<(String, bool)>,
    pub hears: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Open,
    Prompt,
    Mode,
    Option,
    List,
    Mcp,
    Load,
    Resume,
    Fork,
    Bare,
}

/// What is known of an agent: how it is made to ask, what its tools are called, what it cannot do.
#[derive(Default, Clone)]
pub struct Traits {
    /// Part of the short form.
    pub short: bool,
    /// Further variables, and files of the project.
    pub environment: BTreeMap<String, String>,
    pub project: BTreeMap<String, String>,
    /// Changes to its settings: the file, what stands there, what is to stand there.
    pub edits: Vec<[String; 3]>,
    /// The mode in which it asks, if that is not its first.
    pub mode: Option<String>,
    /// Its tools by kind: the name and the arguments.
    pub tools: BTreeMap<String, (String, Value)>,
    /// It can work with an editor's files.
    pub files: bool,
    /// Why nothing that it says it does is done.
    pub plays: Option<String>,
    /// Steps in which it does not ask, with the reason.
    pub never_asks: BTreeMap<String, String>,
    /// Steps that it cannot do, with the reason.
    pub lacks: BTreeMap<String, String>,
    /// How a step ends with this agent, where that differs, with the reason.
    pub ends: BTreeMap<String, (String, String)>,
    /// Where two runs of the agent alone differ, with the reason: a path into a frame, `frame KIND` whose place
    /// among the others is not fixed, or `text WORDS` after which a number stands.
    pub varies: Vec<(String, String)>,
}

pub fn steps() -> anyhow::Result<Vec<Step>> {
    let scenario = read("scenario.json")?;
    scenario["steps"].as_array().context("a scenario is a list of steps")?.iter().map(step).collect()
}

pub fn traits(agent: &str) -> anyhow::Result<Traits> {
    let known = read("agents.json")?;
    let entry = known.get(agent).with_context(|| format!("tests/agents/agents.json has no {agent}"))?;
    traits_of(entry).with_context(|| format!("{agent} in tests/agents/agents.json"))
}

pub fn read(name: &str) -> anyhow::Result<Value> {
    let path = command::root().join("tests/agents").join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

fn step(value: &Value) -> anyhow::Result<Step> {
    let mut step = Step {
        name: String::new(),
        action: Action::Open,
        text: String::new(),
        tool: None,
        fill: BTreeMap::new(),
        answer: AskReply::Allow,
        asks: false,
        cancel_at: None,
        picture: false,
        ends: "end_turn".to_owned(),
        leaves: Vec::new(),
        hears: Vec::new(),
    };
    for (key, value) in value.as_object().context("a step is an object")? {
        match key.as_str() {
            "name" => step.name = text(value)?,
            "do" => step.action = action(&text(value)?)?,
            "text" => step.text = text(value)?,
            "tool" => step.tool = Some(text(value)?),
            "fill" => step.fill = texts(value)?,
            "answer" => step.answer = answer(&text(value)?)?,
            "asks" => step.asks = value == true,
            "cancel_at" => step.cancel_at = Some(text(value)?),
            "picture" => step.picture = value == true,
            "ends" => step.ends = text(value)?,
            "leaves" => {
                let leaves = value.as_object().context("leaves is an object")?;
                step.leaves = leaves.iter().map(|(file, there)| (file.clone(), *there == true)).collect();
            }
            "hears" => step.hears = list(value)?,
            _ => bail!("a step knows no {key}"),
        }
    }
    ensure!(!step.name.is_empty(), "a step needs a name: {value}");
    Ok(step)
}

fn action(word: &str) -> anyhow::Result<Action> {
    Ok(match word {
        "open" => Action::Open,
        "prompt" => Action::Prompt,
        "mode" => Action::Mode,
        "option" => Action::Option,
        "list" => Action::List,
        "mcp" => Action::Mcp,
        "load" => Action::Load,
        "resume" => Action::Resume,
        "fork" => Action::Fork,
        "bare" => Action::Bare,
        _ => bail!("a step cannot {word}"),
    })
}

fn answer(word: &str) -> anyhow::Result<AskReply> {
    Ok(match word {
        "allow" => AskReply::Allow,
        "refuse" => AskReply::Refuse,
        _ => bail!("a question is not answered with {word}"),
    })
}

fn traits_of(value: &Value) -> anyhow::Result<Traits> {
    let mut traits = Traits { files: true, ..Traits::default() };
    for (key, value) in value.as_object().context("an agent is an object")? {
        match key.as_str() {
            "short" => traits.short = value == true,
            "environment" => traits.environment = texts(value)?,
            "project" => traits.project = texts(value)?,
            "edits" => {
                for edit in value.as_array().context("edits are a list")? {
                    let parts: [String; 3] =
                        list(edit)?.try_into().ok().context("an edit has three texts")?;
                    traits.edits.push(parts);
                }
            }
            "mode" => traits.mode = Some(text(value)?),
            "files" => traits.files = value == true,
            "tools" => {
                for (kind, tool) in value.as_object().context("tools are an object")? {
                    traits.tools.insert(kind.clone(), (text(&tool[0])?, tool[1].clone()));
                }
            }
            "plays" => traits.plays = Some(text(value)?),
            "never_asks" => traits.never_asks = texts(value)?,
            "lacks" => traits.lacks = texts(value)?,
            "ends" => {
                for (step, how) in value.as_object().context("ends is an object")? {
                    traits.ends.insert(step.clone(), (text(&how[0])?, text(&how[1])?));
                }
            }
            "varies" => traits.varies = texts(value)?.into_iter().collect(),
            _ => bail!("an agent knows no {key}"),
        }
    }
    Ok(traits)
}

fn text(value: &Value) -> anyhow::Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("a text is needed, not {value}"))
}

fn list(value: &Value) -> anyhow::Result<Vec<String>> {
    value.as_array().context("a list is needed")?.iter().map(text).collect()
}

fn texts(value: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let entries = value.as_object().context("an object of texts is needed")?;
    entries.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{AGENTS, OTHERS};
    use super::*;

    #[test]
    fn every_known_agent_but_those_that_are_only_measured_has_its_traits() {
        let steps: Vec<String> = steps().unwrap().into_iter().map(|step| step.name).collect();
        let known = read("agents.json").unwrap();
        for name in known.as_object().unwrap().keys() {
            assert!(AGENTS.iter().chain(&OTHERS).any(|agent| agent.name == name), "{name} is not installed");
            let traits = traits(name).unwrap();
            let named = traits.never_asks.keys().chain(traits.lacks.keys()).chain(traits.ends.keys());
            for step in named {
                assert!(steps.contains(step), "{name}: there is no step {step}");
            }
        }
        assert!(OTHERS.iter().all(|agent| known.get(agent.name).is_some()));
    }
}
