//! Slash commands: what a person can tell the agent itself.
//!
//! A command is a prompt that begins with `/word`, where the word is one of ours or of a file that the
//! project or the person wrote. Every other prompt is for the model, also if it begins with a slash.
//! Most commands are answered without the model; `/review`, `/init` and those from files go on to it as
//! prompts.

mod custom;
mod diff;
pub(crate) mod max_cost;
mod permissions;
mod report;
pub(crate) mod review;
mod show;
pub(crate) mod undo;

use std::fmt::Write;
use std::sync::Arc;

use engine::{
    APPROVAL, Act, Body, CommandSpec, Content, MODE, MODEL, SessionGone, SettingSpec, TurnContext,
    first_words, full_name, may,
};

use crate::agent::AgentSession;
use crate::context::Memory;
use crate::knowledge::Knowledge;
use crate::place::Place;
use crate::prompt::{self, Prompt};
use crate::role::{self, Role};

pub(crate) use custom::Custom;

const REVIEW_PATH_CHARS_MAX: usize = 512;
/// A prompt that nobody watches may come from anybody: an issue's title, a mail.
const UNATTENDED: &str =
    "Nobody is here to see this, so nothing is changed. Use `ropewalk permissions`, --approval or --mode.";
const EXEC_USAGE: &str = "`/exec` alone goes back to code mode, and changed nothing here; say what is to be done in a prompt after it.";
/// The mode that plans.
const PLANNER: &str = "architect";
const INIT: &str = "Write AGENTS.md for this project, for coding agents that work here later. First look: the README, the \
    build files, the tests, the CI, and how the code is laid out. If there is an AGENTS.md already, better it and keep what is \
    still true. Say how to build, test and lint, also a single test; how the code is organised where that is not plain to \
    see; and the conventions that a newcomer would get wrong. At most 60 lines. No advice that holds for every project, \
    nothing that you did not see here.";

/// Name, argument, what it does.
const COMMANDS: [(&str, Option<&str>, &str); 31] = [
    ("help", None, "Shows what can be typed here"),
    ("model", Some("[id|refresh]"), "Shows the models, or switches to one"),
    ("mode", Some("[code|ask|architect]"), "Shows the modes, or switches to one"),
    ("approval", Some("[preset]"), "Shows what is done without asking, or changes it"),
    ("sandbox", None, "Shows how far tools and commands reach"),
    ("status", None, "Shows model, mode, approval, sandbox, context and cost"),
    ("cost", None, "Shows what the session has used"),
    ("clear", None, "Forgets the conversation; the session stays"),
    ("compact", None, "Replaces the conversation by a summary, for the model"),
    ("review", Some("[path]"), "Reviews a file or the project; changes nothing"),
    ("undo", Some("[force]"), "Takes back what the last turn did to files"),
    ("redo", Some("[force]"), "Does again what was undone last"),
    ("revert", Some("[path [hunk]]"), "Takes back what was changed in a file, or one hunk of it"),
    ("keep", Some("[path [hunk]]"), "Says that what was changed in a file is as it should be"),
    ("init", None, "Has the agent write AGENTS.md for this project"),
    ("permissions", Some("[list|add|remove]"), "Shows or changes what may be done here without asking"),
    ("diff", Some("[path]"), "Shows what the session changed and nobody has reviewed"),
    ("rename", Some("<title>"), "Gives the session another title"),
    ("agent", Some("[name]"), "The same as /mode"),
    ("plan", Some("[prompt]"), "Plans without changing anything: from here on, or for one prompt"),
    ("exec", None, "Ends planning: back to code mode"),
    ("yolo", None, "Approval full: nothing is asked before it is done"),
    (
        "max-cost",
        Some("[amount|off]"),
        "Shows or sets what the session may spend from here on, in US dollars",
    ),
    ("force-send", Some("<prompt>"), "Sends one prompt although the limit of /max-cost is spent"),
    ("tools", None, "Shows the tools of the agent"),
    ("mcp", None, "Shows the MCP servers of the session"),
    ("config", None, "Shows what holds in this session, and where it comes from"),
    ("doctor", None, "Says what is wrong with the session"),
    ("audit", None, "Shows the last rows of the audit about this session; for the owner at the machine"),
    ("share", None, "Says how the session is exported and shared"),
    ("bridge", None, "Says whether and where the session is seen elsewhere, or how to bridge it"),
];

/// A command as it was typed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Slash {
    Help,
    Model(Option<String>),
    Mode(Option<String>),
    Approval(Option<String>),
    Sandbox(Option<String>),
    Status,
    Cost,
    Clear,
    Compact,
    Review(Result<Option<String>, &'static str>),
    Init,
    Permissions(permissions::Order),
    Undo(undo::Order),
    Changes(review::Order),
    Diff(Option<String>),
    Rename(Option<String>),
    /// A prompt for the architect.
    Plan(String),
    MaxCost(max_cost::Order),
    /// It was not understood; this is how it is written.
    Unclear(&'static str),
    Tools,
    Mcp,
    Config,
    Doctor,
    Audit,
    Share,
    Bridge,
    /// From a file, with its arguments in place.
    Custom(String),
}

/// What a prompt turns out to be.
pub(crate) enum Heard {
    /// For the model, as whoever it is to be for this turn.
    Prompt { prompt: Prompt, role: Option<Arc<Role>> },
    /// For us.
    Command(Slash),
}

pub(crate) fn is_built_in(name: &str) -> bool {
    COMMANDS.iter().any(|(known, ..)| *known == name)
}

pub(crate) fn specs(custom: &[Custom]) -> Vec<CommandSpec> {
    let spec = |(name, hint, description): (&str, Option<&str>, &str)| CommandSpec {
        name: name.into(),
        description: description.into(),
        hint: hint.map(Into::into),
    };
    COMMANDS.into_iter().map(spec).chain(custom.iter().map(Custom::spec)).collect()
}

/// What a prompt means here. A custom command is what its file says at this moment.
pub(crate) async fn heard(content: &[Content], place: &Place, knowledge: &Knowledge) -> Heard {
    let forced = max_cost::forced(content);
    let content = forced.as_deref().unwrap_or(content);
    match parse(content, &knowledge.commands) {
        None => Heard::Prompt { prompt: prompt::render(content, place).await, role: None },
        Some(Slash::Review(Ok(path))) => {
            let prompt = Prompt::text(review_prompt(path.as_deref()));
            Heard::Prompt { prompt, role: Some(Arc::new(role::reviewer())) }
        }
        Some(Slash::Init) => {
            let prompt = Prompt { typed: "Write AGENTS.md".into(), ..Prompt::text(INIT.into()) };
            Heard::Prompt { prompt, role: None }
        }
        Some(Slash::Plan(text)) => {
            let role = knowledge.mode(PLANNER).cloned().unwrap_or_else(|| role::lost(PLANNER));
            Heard::Prompt { prompt: instead(content, text, place).await, role: Some(Arc::new(role)) }
        }
        Some(Slash::Custom(text)) => {
            Heard::Prompt { prompt: instead(content, text, place).await, role: None }
        }
        Some(slash) => Heard::Command(slash),
    }
}

/// The prompt that a command stands for. What came attached stays attached.
async fn instead(content: &[Content], text: String, place: &Place) -> Prompt {
    let mut content = content.to_vec();
    let typed = std::mem::replace(&mut content[0], Content::text(text));
    let mut prompt = prompt::render(&content, place).await;
    if let Content::Text(typed) = typed {
        prompt.typed = typed.to_string();
    }
    prompt
}

/// The command that a prompt is, if it is one. `/home/me/x is broken` is not.
fn parse(content: &[Content], custom: &[Custom]) -> Option<Slash> {
    let Some(Content::Text(text)) = content.first() else { return None };
    let line = text.trim().strip_prefix('/')?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(str::to_owned);
    Some(match word {
        "help" => Slash::Help,
        "model" => Slash::Model(argument),
        "mode" => Slash::Mode(argument),
        "approval" => Slash::Approval(argument.map(|preset| full_name(APPROVAL, preset.into()).to_string())),
        "sandbox" => Slash::Sandbox(argument),
        "undo" => Slash::Undo(undo::Order::back(argument.as_deref())),
        "redo" => Slash::Undo(undo::Order::forth(argument.as_deref())),
        "revert" => Slash::Changes(review::Order::new(review::Act::TakeBack, argument.as_deref())),
        "keep" => Slash::Changes(review::Order::new(review::Act::Keep, argument.as_deref())),
        "status" => Slash::Status,
        "cost" => Slash::Cost,
        "clear" => Slash::Clear,
        "compact" => Slash::Compact,
        "review" => Slash::Review(review_path(argument)),
        "init" => Slash::Init,
        "permissions" => Slash::Permissions(permissions::parse(argument.as_deref())),
        "diff" => Slash::Diff(argument),
        "rename" => Slash::Rename(argument),
        "agent" => Slash::Mode(argument),
        "plan" => argument.map_or_else(|| Slash::Mode(Some(PLANNER.into())), Slash::Plan),
        "exec" if argument.is_some() => Slash::Unclear(EXEC_USAGE),
        "exec" => Slash::Mode(Some("code".into())),
        "yolo" => Slash::Approval(Some("full".into())),
        "max-cost" => Slash::MaxCost(max_cost::order(argument.as_deref())),
        "force-send" => Slash::Unclear(max_cost::FORCE_USAGE),
        "tools" => Slash::Tools,
        "mcp" => Slash::Mcp,
        "config" => Slash::Config,
        "doctor" => Slash::Doctor,
        "audit" => Slash::Audit,
        "share" => Slash::Share,
        "bridge" => Slash::Bridge,
        other => {
            let found = custom.iter().find(|command| *command.name == *other)?;
            Slash::Custom(found.filled_in(rest.trim()))
        }
    })
}

/// The path goes into a prompt, so it may hold nothing that could pass for words.
fn review_path(argument: Option<String>) -> Result<Option<String>, &'static str> {
    let Some(path) = argument else { return Ok(None) };
    if path.len() > REVIEW_PATH_CHARS_MAX {
        return Err("the path is longer than 512 characters");
    }
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-/+@".contains(c);
    if !path.chars().all(safe) || path.starts_with('-') {
        return Err("a path to review has letters, digits and . _ - / + @ only");
    }
    Ok(Some(path))
}

fn review_prompt(path: Option<&str>) -> String {
    let subject = path.map_or_else(|| "review the project".to_owned(), |path| format!("review {path}"));
    format!(
        "{subject}\nOnly read; change and run nothing. Report defects with their line numbers, worst first."
    )
}

/// Carries out a command that needs no model.
pub(crate) async fn answer(
    slash: Slash,
    memory: &Memory,
    session: &Arc<AgentSession>,
    place: &Place,
    context: &TurnContext,
) -> Result<(), SessionGone> {
    let (knowledge, mode) = (session.knowledge(), place.mode());
    let settings = &session.shared.settings(&knowledge.roles);
    let reply = match slash {
        Slash::Help => help(&knowledge.commands),
        Slash::Review(Err(reason)) => format!("Nothing was reviewed: {reason}."),
        // The turn does these itself.
        Slash::Review(Ok(_))
        | Slash::Init
        | Slash::Custom(_)
        | Slash::Plan(_)
        | Slash::Compact
        | Slash::Undo(_)
        | Slash::Changes(_) => return Ok(()),
        Slash::Model(wanted) => choose(MODEL, wanted.as_deref(), settings, context).await?,
        Slash::Approval(Some(_)) if !context.attended() => UNATTENDED.to_owned(),
        Slash::Mode(Some(mode)) if !context.attended() && !holds_back(&mode) => UNATTENDED.to_owned(),
        Slash::Permissions(order) if order.changes() && !context.attended() => UNATTENDED.to_owned(),
        Slash::Permissions(order)
            if order.changes()
                && let Err(why) = may(context.standing(), Act::ChangeRules) =>
        {
            format!("Nothing was changed: {why}.")
        }
        Slash::Mode(wanted) => choose(MODE, wanted.as_deref(), settings, context).await?,
        Slash::Approval(wanted) => choose(APPROVAL, wanted.as_deref(), settings, context).await?,
        Slash::Sandbox(wanted) => sandbox(wanted.as_deref(), mode),
        Slash::Status => report::status(&context.settings(), mode, &memory.costs, &knowledge),
        Slash::Cost => memory.costs.text(),
        Slash::Permissions(order) => {
            let cwd = context.cwd().as_ref().clone();
            permissions::answer(order, session.shared.config.rules.as_ref(), cwd).await
        }
        Slash::MaxCost(order) => {
            let (limit, spent) = (memory.limits.current(), memory.costs.total.cost_usd);
            let budget = &session.shared.config.budget;
            max_cost::answer(order, limit, spent, budget, context.attended()).await
        }
        Slash::Unclear(usage) => usage.to_owned(),
        Slash::Diff(path) => diff::answer(path, &session.undo, place).await,
        Slash::Rename(title) => rename(title, context).await?,
        Slash::Tools => show::tools(session, context),
        Slash::Mcp => show::mcp(session),
        Slash::Config => show::config(session, place, context),
        Slash::Doctor => show::doctor(session, place, context).await,
        Slash::Audit => show::audit(session, context).await,
        Slash::Share => show::share(&session.spec.id),
        Slash::Bridge => show::bridge(session),
        Slash::Clear => {
            context.emit(Body::Cleared).await?;
            "The conversation is cleared. The session goes on.".to_owned()
        }
    };
    context.text(context.new_message(), reply).await
}

async fn rename(title: Option<String>, context: &TurnContext) -> Result<String, SessionGone> {
    let Some(title) = title.as_deref().and_then(first_words) else {
        return Ok("Write `/rename TITLE`.".to_owned());
    };
    context.emit(Body::Title { title: title.as_str().into() }).await?;
    Ok(format!("The session is called {title:?} now."))
}

/// Whether a mode only reads: whoever wrote the prompt, that does no harm.
fn holds_back(mode: &str) -> bool {
    matches!(full_name(MODE, mode.into()).as_ref(), "ask" | "architect")
}

fn sandbox(wanted: Option<&str>, mode: sandbox::Mode) -> String {
    match wanted {
        None => format!("The sandbox is {mode}. It is chosen when the server starts, with --sandbox."),
        Some(_) => format!("The sandbox stays {mode}: to change it, restart the server with --sandbox."),
    }
}

fn help(custom: &[Custom]) -> String {
    let mut help = "Commands:\n".to_owned();
    for CommandSpec { name, description, hint } in specs(custom) {
        let argument = hint.map(|hint| format!(" {hint}")).unwrap_or_default();
        writeln!(help, "- `/{name}{argument}`: {description}").ok();
    }
    help.push_str("Anything else is a request to the agent.");
    help
}

/// Shows the choices of a setting, or sets it to the one choice that is meant.
async fn choose(
    id: &str,
    wanted: Option<&str>,
    settings: &[SettingSpec],
    context: &TurnContext,
) -> Result<String, SessionGone> {
    let values: Vec<&str> = settings
        .iter()
        .filter(|spec| spec.id.as_ref() == id)
        .flat_map(|spec| spec.choices.iter().map(|choice| choice.value.as_ref()))
        .collect();
    // A refresh shows what there is.
    let Some(wanted) = wanted.filter(|wanted| !(id == MODEL && *wanted == "refresh")) else {
        return Ok(listing(id, &values, context.settings().get(id)));
    };
    let known = full_name(id, wanted.into());
    let wanted = if values.contains(&wanted) { wanted } else { known.as_ref() };
    match pick(&values, wanted) {
        Ok(value) => Ok(match context.change(id, value).await? {
            Ok(()) => format!("The {id} is now {value}."),
            Err(reason) => format!("The {id} was not changed: {reason}."),
        }),
        Err(several) if several.is_empty() => Ok(format!(
            "There is no {id} {wanted:?}.\n\n{}",
            listing(id, &values, context.settings().get(id))
        )),
        Err(several) => Ok(format!("{wanted:?} could be any of {}. Say a little more.", several.join(", "))),
    }
}

/// The choice with this name, or the only one that contains it; else those that could be meant.
fn pick<'a>(values: &[&'a str], wanted: &str) -> Result<&'a str, Vec<&'a str>> {
    if let Some(exact) = values.iter().find(|value| **value == wanted) {
        return Ok(exact);
    }
    let wanted = wanted.to_lowercase();
    let meant: Vec<&str> =
        values.iter().filter(|value| value.to_lowercase().contains(&wanted)).copied().collect();
    match meant.as_slice() {
        [only] => Ok(only),
        _ => Err(meant),
    }
}

fn listing(id: &str, values: &[&str], current: &str) -> String {
    let mut listing = format!("The {id} can be:\n");
    for value in values {
        let mark = if *value == current { " (current)" } else { "" };
        writeln!(listing, "- `{value}`{mark}").ok();
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Slash> {
        parse(&[Content::text(text)], &[])
    }

    #[test]
    fn commands_are_told_from_prompts() {
        assert_eq!(parsed("/help"), Some(Slash::Help));
        assert_eq!(parsed(" /model  terse "), Some(Slash::Model(Some("terse".into()))));
        assert_eq!(parsed("/nope x"), None);
        assert_eq!(parsed("/home/me/x is broken"), None);
        assert_eq!(parsed("/"), None);
        assert_eq!(parsed("help"), None);
    }

    /// Callers who may not set the approval are refused by what the engine knows of the commands.
    #[test]
    fn the_engine_knows_every_command_that_sets_the_approval() {
        for (word, _, _) in COMMANDS {
            for text in [format!("/{word}"), format!(" /{word}  full ")] {
                let sets = matches!(parsed(&text), Some(Slash::Approval(Some(_))));
                assert_eq!(engine::sets_approval(&text), sets, "{text}");
            }
        }
    }

    #[test]
    fn a_review_path_is_short_and_plain() {
        assert_eq!(parsed("/review src/a.rs"), Some(Slash::Review(Ok(Some("src/a.rs".into())))));
        assert_eq!(parsed("/review"), Some(Slash::Review(Ok(None))));
        for bad in ["a b", "a;b", "$(x)", "-x", "a`b", &"x".repeat(513)] {
            assert!(matches!(parsed(&format!("/review {bad}")), Some(Slash::Review(Err(_)))), "{bad}");
        }
    }

    #[test]
    fn a_choice_is_picked_only_if_it_is_the_only_one_meant() {
        let values = ["offline:plain", "offline:terse"];
        assert_eq!(pick(&values, "offline:plain"), Ok("offline:plain"));
        assert_eq!(pick(&values, "TERSE"), Ok("offline:terse"));
        assert_eq!(pick(&values, "offline"), Err(vec!["offline:plain", "offline:terse"]));
        assert_eq!(pick(&values, "gpt"), Err(vec![]));
    }
}
