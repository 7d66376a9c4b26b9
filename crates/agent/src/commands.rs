//! Slash commands: what a person can tell the agent itself.
//!
//! A command is a prompt that begins with `/word`, where the word is one of ours or of a file that the
//! project or the person wrote. Every other prompt is for the model, even if it begins with a slash. Most
//! commands are answered without the model; `/review`, `/init` and those from files are passed on to it as
//! prompts.

mod custom;
mod diff;
mod info_commands;
pub(crate) mod keep_revert;
mod permissions;
pub(crate) mod spending_limit;
mod status;
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
use crate::role::{self, Role};
use crate::user_prompt::{self, Prompt};
use crate::workspace::Workspace;

pub(crate) use custom::CustomCommand;

const REVIEW_PATH_CHARS_MAX: usize = 512;
/// An unattended prompt may come from anybody: an issue's title, a mail.
const UNATTENDED: &str = "No client is connected to see this, so nothing was changed. Use `ropewalk permissions`, --approval or --mode.";
const EXEC_USAGE: &str = "`/exec` alone goes back to code mode, and changed nothing here; say what is to be done in a prompt after it.";
/// The planning mode.
const PLANNER: &str = "architect";
const INIT: &str = "Write AGENTS.md for this project, for coding agents that work here later. First look: the README, the \
    build files, the tests, the CI, and how the code is laid out. If there is an AGENTS.md already, improve it and keep what is still true. Say how to build, test and lint, also a single test; how the code is organised where that is not plain to \
    see; and the conventions that a newcomer would get wrong. At most 60 lines. No advice that holds for every project, \
    nothing that you did not see here.";

/// Name, arguments, description.
const COMMANDS: [(&str, Option<&str>, &str); 31] = [
    ("help", None, "Shows the commands"),
    ("model", Some("[id|refresh]"), "Shows the models, or switches to one"),
    ("mode", Some("[code|ask|architect]"), "Shows the modes, or switches to one"),
    ("approval", Some("[preset]"), "Shows what runs without asking, or changes it"),
    ("sandbox", None, "Shows the sandbox mode of tools and commands"),
    ("status", None, "Shows model, mode, approval, sandbox, context and cost"),
    ("cost", None, "Shows what the session has used"),
    ("clear", None, "Forgets the conversation; the session stays"),
    ("compact", None, "Replaces the conversation by a summary, for the model"),
    ("review", Some("[path]"), "Reviews a file or the project; changes nothing"),
    ("undo", Some("[force]"), "Undoes what the last turn did to files"),
    ("redo", Some("[force]"), "Redoes what was undone last"),
    ("revert", Some("[path [hunk]]"), "Undoes the changes in a file, or one hunk of them"),
    ("keep", Some("[path [hunk]]"), "Accepts the changes in a file, or one hunk of them"),
    ("init", None, "Has the agent write AGENTS.md for this project"),
    ("permissions", Some("[list|add|remove]"), "Shows or changes the permission rules of this folder"),
    ("diff", Some("[path]"), "Shows the changes of the session that nobody has reviewed"),
    ("rename", Some("<title>"), "Renames the session"),
    ("agent", Some("[name]"), "The same as /mode"),
    ("plan", Some("[prompt]"), "Plans without changing anything: from here on, or for one prompt"),
    ("exec", None, "Ends planning: back to code mode"),
    ("yolo", None, "Sets the approval to full: everything runs without asking"),
    (
        "max-cost",
        Some("[amount|off]"),
        "Shows or sets what the session may spend from here on, in US dollars",
    ),
    ("force-send", Some("<prompt>"), "Sends one prompt although the limit of /max-cost is reached"),
    ("tools", None, "Shows the tools of the agent"),
    ("mcp", None, "Shows the MCP servers of the session"),
    ("config", None, "Shows the settings of this session and where they come from"),
    ("doctor", None, "Checks the session for problems"),
    (
        "audit",
        None,
        "Shows the last rows of the audit log about this session; only for the owner at the machine",
    ),
    ("share", None, "Shows how to export and share the session"),
    ("bridge", None, "Shows whether and where the session is bridged, or how to bridge it"),
];

/// A parsed command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SlashCommand {
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
    Permissions(permissions::PermissionsCommand),
    Undo(undo::UndoCommand),
    Changes(keep_revert::ReviewCommand),
    Diff(Option<String>),
    Rename(Option<String>),
    /// A prompt for the architect.
    Plan(String),
    MaxCost(spending_limit::MaxCostCommand),
    /// It could not be parsed; with the usage text.
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

/// What a prompt means.
pub(crate) enum PromptMeaning {
    /// For the model, possibly with a role for this turn.
    Prompt { prompt: Prompt, role: Option<Arc<Role>> },
    /// A command for the agent itself.
    Command(SlashCommand),
}

pub(crate) fn is_built_in(name: &str) -> bool {
    COMMANDS.iter().any(|(known, ..)| *known == name)
}

pub(crate) fn specs(custom: &[CustomCommand]) -> Vec<CommandSpec> {
    let spec = |(name, hint, description): (&str, Option<&str>, &str)| CommandSpec {
        name: name.into(),
        description: description.into(),
        hint: hint.map(Into::into),
    };
    COMMANDS.into_iter().map(spec).chain(custom.iter().map(CustomCommand::spec)).collect()
}

/// Parses a prompt. A custom command is read from its file now.
pub(crate) async fn interpret(
    content: &[Content],
    workspace: &Workspace,
    knowledge: &Knowledge,
) -> PromptMeaning {
    let forced = spending_limit::forced(content);
    let content = forced.as_deref().unwrap_or(content);
    match parse(content, &knowledge.commands) {
        None => PromptMeaning::Prompt { prompt: user_prompt::render(content, workspace).await, role: None },
        Some(SlashCommand::Review(Ok(path))) => {
            let prompt = Prompt::text(review_prompt(path.as_deref()));
            PromptMeaning::Prompt { prompt, role: Some(Arc::new(role::reviewer())) }
        }
        Some(SlashCommand::Init) => {
            let prompt = Prompt { typed: "Write AGENTS.md".into(), ..Prompt::text(INIT.into()) };
            PromptMeaning::Prompt { prompt, role: None }
        }
        Some(SlashCommand::Plan(text)) => {
            let role = knowledge.mode(PLANNER).cloned().unwrap_or_else(|| role::missing(PLANNER));
            PromptMeaning::Prompt {
                prompt: replacement_prompt(content, text, workspace).await,
                role: Some(Arc::new(role)),
            }
        }
        Some(SlashCommand::Custom(text)) => {
            PromptMeaning::Prompt { prompt: replacement_prompt(content, text, workspace).await, role: None }
        }
        Some(slash) => PromptMeaning::Command(slash),
    }
}

/// The prompt that a command stands for, with its attachments.
async fn replacement_prompt(content: &[Content], text: String, workspace: &Workspace) -> Prompt {
    let mut content = content.to_vec();
    let typed = std::mem::replace(&mut content[0], Content::text(text));
    let mut prompt = user_prompt::render(&content, workspace).await;
    if let Content::Text(typed) = typed {
        prompt.typed = typed.to_string();
    }
    prompt
}

/// The command in a prompt, if it is one. `/home/me/x is broken` is not.
fn parse(content: &[Content], custom: &[CustomCommand]) -> Option<SlashCommand> {
    let Some(Content::Text(text)) = content.first() else { return None };
    let line = text.trim().strip_prefix('/')?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(str::to_owned);
    Some(match word {
        "help" => SlashCommand::Help,
        "model" => SlashCommand::Model(argument),
        "mode" => SlashCommand::Mode(argument),
        "approval" => {
            SlashCommand::Approval(argument.map(|preset| full_name(APPROVAL, preset.into()).to_string()))
        }
        "sandbox" => SlashCommand::Sandbox(argument),
        "undo" => SlashCommand::Undo(undo::UndoCommand::back(argument.as_deref())),
        "redo" => SlashCommand::Undo(undo::UndoCommand::forth(argument.as_deref())),
        "revert" => SlashCommand::Changes(keep_revert::ReviewCommand::new(
            keep_revert::ReviewAction::TakeBack,
            argument.as_deref(),
        )),
        "keep" => SlashCommand::Changes(keep_revert::ReviewCommand::new(
            keep_revert::ReviewAction::Keep,
            argument.as_deref(),
        )),
        "status" => SlashCommand::Status,
        "cost" => SlashCommand::Cost,
        "clear" => SlashCommand::Clear,
        "compact" => SlashCommand::Compact,
        "review" => SlashCommand::Review(review_path(argument)),
        "init" => SlashCommand::Init,
        "permissions" => SlashCommand::Permissions(permissions::parse(argument.as_deref())),
        "diff" => SlashCommand::Diff(argument),
        "rename" => SlashCommand::Rename(argument),
        "agent" => SlashCommand::Mode(argument),
        "plan" => argument.map_or_else(|| SlashCommand::Mode(Some(PLANNER.into())), SlashCommand::Plan),
        "exec" if argument.is_some() => SlashCommand::Unclear(EXEC_USAGE),
        "exec" => SlashCommand::Mode(Some("code".into())),
        "yolo" => SlashCommand::Approval(Some("full".into())),
        "max-cost" => SlashCommand::MaxCost(spending_limit::parse_argument(argument.as_deref())),
        "force-send" => SlashCommand::Unclear(spending_limit::FORCE_USAGE),
        "tools" => SlashCommand::Tools,
        "mcp" => SlashCommand::Mcp,
        "config" => SlashCommand::Config,
        "doctor" => SlashCommand::Doctor,
        "audit" => SlashCommand::Audit,
        "share" => SlashCommand::Share,
        "bridge" => SlashCommand::Bridge,
        other => {
            let found = custom.iter().find(|command| *command.name == *other)?;
            SlashCommand::Custom(found.expand(rest.trim()))
        }
    })
}

/// The path is put into a prompt, so it may contain nothing that could pass for instructions.
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

/// Executes a command that needs no model.
pub(crate) async fn answer(
    slash: SlashCommand,
    memory: &Memory,
    session: &Arc<AgentSession>,
    workspace: &Workspace,
    context: &TurnContext,
) -> Result<(), SessionGone> {
    let (knowledge, mode) = (session.knowledge(), workspace.mode());
    let settings = &session.shared.settings(&knowledge.roles);
    let reply = match slash {
        SlashCommand::Help => help(&knowledge.commands),
        SlashCommand::Review(Err(reason)) => format!("Nothing was reviewed: {reason}."),
        // The turn executes these itself.
        SlashCommand::Review(Ok(_))
        | SlashCommand::Init
        | SlashCommand::Custom(_)
        | SlashCommand::Plan(_)
        | SlashCommand::Compact
        | SlashCommand::Undo(_)
        | SlashCommand::Changes(_) => return Ok(()),
        SlashCommand::Model(wanted) => choose(MODEL, wanted.as_deref(), settings, context).await?,
        SlashCommand::Approval(Some(_)) if !context.attended() => UNATTENDED.to_owned(),
        SlashCommand::Mode(Some(mode)) if !context.attended() && !is_read_only_mode(&mode) => {
            UNATTENDED.to_owned()
        }
        SlashCommand::Permissions(command) if command.changes() && !context.attended() => {
            UNATTENDED.to_owned()
        }
        SlashCommand::Permissions(command)
            if command.changes()
                && let Err(why) = may(context.standing(), Act::ChangeRules) =>
        {
            format!("Nothing was changed: {why}.")
        }
        SlashCommand::Mode(wanted) => choose(MODE, wanted.as_deref(), settings, context).await?,
        SlashCommand::Approval(wanted) => choose(APPROVAL, wanted.as_deref(), settings, context).await?,
        SlashCommand::Sandbox(wanted) => sandbox(wanted.as_deref(), mode),
        SlashCommand::Status => status::status(&context.settings(), mode, &memory.costs, &knowledge),
        SlashCommand::Cost => memory.costs.text(),
        SlashCommand::Permissions(command) => {
            let cwd = context.cwd().as_ref().clone();
            permissions::answer(command, session.shared.config.rules.as_ref(), cwd).await
        }
        SlashCommand::MaxCost(command) => {
            let (limit, spent) = (memory.limits.current(), memory.costs.total.cost_usd);
            let budget = &session.shared.config.budget;
            spending_limit::answer(command, limit, spent, budget, context.attended()).await
        }
        SlashCommand::Unclear(usage) => usage.to_owned(),
        SlashCommand::Diff(path) => diff::answer(path, &session.undo, workspace).await,
        SlashCommand::Rename(title) => rename(title, context).await?,
        SlashCommand::Tools => info_commands::tools(session, context),
        SlashCommand::Mcp => info_commands::mcp(session),
        SlashCommand::Config => info_commands::config(session, workspace, context),
        SlashCommand::Doctor => info_commands::doctor(session, workspace, context).await,
        SlashCommand::Audit => info_commands::audit(session, context).await,
        SlashCommand::Share => info_commands::share(&session.spec.id),
        SlashCommand::Bridge => info_commands::bridge(session),
        SlashCommand::Clear => {
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
    Ok(format!("The session is now called {title:?}."))
}

/// Whether a mode is read-only: switching to it is harmless, whoever wrote the prompt.
fn is_read_only_mode(mode: &str) -> bool {
    matches!(full_name(MODE, mode.into()).as_ref(), "ask" | "architect")
}

fn sandbox(wanted: Option<&str>, mode: sandbox::Mode) -> String {
    match wanted {
        None => format!("The sandbox is {mode}. It is set when the server starts, with --sandbox."),
        Some(_) => format!("The sandbox stays {mode}: to change it, restart the server with --sandbox."),
    }
}

fn help(custom: &[CustomCommand]) -> String {
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
    // Without a value, the choices are shown.
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
        Err(several) => {
            Ok(format!("{wanted:?} matches several: {}. Write more of the name.", several.join(", ")))
        }
    }
}

/// The choice with this name, or the only one that contains it; otherwise the candidates.
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

    fn parsed(text: &str) -> Option<SlashCommand> {
        parse(&[Content::text(text)], &[])
    }

    #[test]
    fn commands_are_told_from_prompts() {
        assert_eq!(parsed("/help"), Some(SlashCommand::Help));
        assert_eq!(parsed(" /model  terse "), Some(SlashCommand::Model(Some("terse".into()))));
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
                let sets = matches!(parsed(&text), Some(SlashCommand::Approval(Some(_))));
                assert_eq!(engine::sets_approval(&text), sets, "{text}");
            }
        }
    }

    #[test]
    fn a_review_path_is_short_and_plain() {
        assert_eq!(parsed("/review src/a.rs"), Some(SlashCommand::Review(Ok(Some("src/a.rs".into())))));
        assert_eq!(parsed("/review"), Some(SlashCommand::Review(Ok(None))));
        for bad in ["a b", "a;b", "$(x)", "-x", "a`b", &"x".repeat(513)] {
            assert!(matches!(parsed(&format!("/review {bad}")), Some(SlashCommand::Review(Err(_)))), "{bad}");
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
