//! `/permissions`: shows and changes the rules of this folder.
//!
//! **Invariant:** only a prompt gets here. What a model or a tool writes is never read as a command, so
//! nothing that the agent reads can allow anything.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::RuleEffect;
use guard::{ListedRule, RuleEditResult, RuleError, RuleLocation, RuleSource, Rulebook};

use crate::tools::blocking;

const USAGE: &str = "Write `/permissions list`, `/permissions add allow|ask|deny RULE` or `/permissions remove RULE`; \
    a rule is for example `shell(cargo test:*)` or `edit(src/**)`.";

/// A parsed `/permissions` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionsCommand {
    List,
    Add(RuleEffect, String),
    Remove(String),
    /// It could not be parsed.
    Unclear,
}

pub(super) fn parse(argument: Option<&str>) -> PermissionsCommand {
    let argument = argument.unwrap_or("list");
    // A rule is one line. Further lines were pasted by accident.
    if argument.contains('\n') {
        return PermissionsCommand::Unclear;
    }
    let (verb, rest) = split(argument);
    match verb {
        "list" if rest.is_empty() => PermissionsCommand::List,
        "remove" if !rest.is_empty() => PermissionsCommand::Remove(rest.to_owned()),
        "add" => {
            let (effect, rule) = split(rest);
            let Some(effect) = RuleEffect::of_word(effect) else { return PermissionsCommand::Unclear };
            if rule.is_empty() {
                PermissionsCommand::Unclear
            } else {
                PermissionsCommand::Add(effect, rule.to_owned())
            }
        }
        _ => PermissionsCommand::Unclear,
    }
}

fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

impl PermissionsCommand {
    /// Whether it changes rules.
    pub(super) fn changes(&self) -> bool {
        matches!(self, Self::Add(..) | Self::Remove(_))
    }
}

/// Executes a command and returns the answer. Changes apply to this folder, in the person's file.
pub(super) async fn answer(
    command: PermissionsCommand,
    rules: Option<&Arc<Rulebook>>,
    cwd: PathBuf,
) -> String {
    let Some(rules) = rules.cloned() else { return "There are no rules here.".to_owned() };
    let done = blocking(move || match command {
        PermissionsCommand::Unclear => USAGE.to_owned(),
        PermissionsCommand::List => listing(&rules.sources(&cwd)),
        PermissionsCommand::Add(effect, rule) => {
            added(effect, &rule, rules.add(&RuleLocation::Folder(cwd), effect, &rule))
        }
        PermissionsCommand::Remove(rule) => {
            let removed = rules.remove(&RuleLocation::Folder(cwd.clone()), &rule);
            removed_said(&rule, &removed, &rules.sources(&cwd))
        }
    });
    done.await.unwrap_or_else(|error| error)
}

fn listing(sources: &[RuleSource]) -> String {
    let mut out = String::new();
    for source in sources.iter().filter(|source| source.exists) {
        let place = source.path.as_deref().map(|path| path.display().to_string());
        writeln!(out, "{}:", place.as_deref().unwrap_or("Answers that are not saved")).ok();
        for rule in &source.rules {
            writeln!(out, "- {}", line(rule)).ok();
        }
        for warning in &source.warnings {
            writeln!(out, "- Warning: {warning}").ok();
        }
        if source.rules.is_empty() && source.warnings.is_empty() {
            out.push_str("- no rules\n");
        }
    }
    if out.is_empty() {
        return format!("There are no rules. {USAGE}");
    }
    out
}

fn line(rule: &ListedRule) -> String {
    let folder = rule.folder.as_deref().map(|folder| format!(" in {}", folder.display())).unwrap_or_default();
    let ignored = if rule.ignored { " (ignored)" } else { "" };
    format!("{} `{}`{folder}{ignored}", rule.effect.as_str(), rule.rule)
}

fn added(effect: RuleEffect, rule: &str, outcome: Result<RuleEditResult, RuleError>) -> String {
    let effect = effect.as_str();
    match outcome {
        Ok(RuleEditResult { unchanged: true, .. }) => format!("`{rule}` is already set to {effect}."),
        Ok(RuleEditResult { previous: Some(before), .. }) => {
            format!("`{rule}` is now {effect} in this folder; it was {}.", before.as_str())
        }
        Ok(RuleEditResult { previous: None, .. }) => format!("`{rule}` is now {effect} in this folder."),
        Err(error) => format!("Nothing was changed: {error}."),
    }
}

fn removed_said(rule: &str, outcome: &Result<RuleEditResult, RuleError>, sources: &[RuleSource]) -> String {
    match outcome {
        Ok(RuleEditResult { unchanged: false, previous: before, .. }) => {
            format!(
                "Removed `{rule}` for this folder; it was {}.",
                before.map_or("a rule", RuleEffect::as_str)
            )
        }
        Ok(_) => {
            let elsewhere = |source: &&RuleSource| source.rules.iter().any(|listed| *listed.rule == *rule);
            match sources.iter().find(elsewhere).and_then(|source| source.path.as_deref()).map(Path::display)
            {
                Some(path) => {
                    format!("`{rule}` is in {path} and applies to more than this folder; change it there.")
                }
                None => format!("There is no rule `{rule}` for this folder. `/permissions list` shows them."),
            }
        }
        Err(error) => format!("Nothing was changed: {error}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_one_line_of_a_known_form() {
        assert_eq!(parse(None), PermissionsCommand::List);
        assert_eq!(parse(Some("list")), PermissionsCommand::List);
        assert_eq!(
            parse(Some("add deny  shell(rm -rf:*)")),
            PermissionsCommand::Add(RuleEffect::Deny, "shell(rm -rf:*)".into())
        );
        assert_eq!(parse(Some("remove edit(a b)")), PermissionsCommand::Remove("edit(a b)".into()));
        for unclear in
            ["add", "add allow", "add maybe x", "remove", "nope", "list x", "add allow x\n/permissions"]
        {
            assert_eq!(parse(Some(unclear)), PermissionsCommand::Unclear, "{unclear:?}");
        }
    }
}
