//! The rules that chimera's otter and ferret keep in `permissions.json`: the last one that matches counts. The file is
//! read and never written.
//!
//! There a pattern for commands is matched against the whole text, so `git *` matches `git x; rm y`. Here it is matched
//! against every command of the line: all must be allowed, one that is denied is enough.

use std::path::Path;

use engine::RuleEffect;
use serde_json::Value;

use super::command_line::known_words;
use super::glob::{Glob, GlobKind};
use super::request_to_match::RuleQuery;
use super::rule_file_text::FileText;
use super::tool_names::KnownTool;

#[derive(Debug, Clone, Default)]
pub(super) struct ChimeraFile {
    pub(super) exists: bool,
    /// Why everything is asked: a part that could not be read may deny it.
    pub(super) damage: Option<String>,
    pub(super) warnings: Vec<String>,
    default: Option<RuleEffect>,
    rules: Vec<ChimeraRule>,
}

#[derive(Debug, Clone)]
struct ChimeraRule {
    tool: Glob,
    argument: Option<(String, Glob)>,
    effect: RuleEffect,
    text: String,
}

impl ChimeraFile {
    pub(super) fn new(path: &Path, text: FileText) -> Self {
        let mut file = Self { exists: text != FileText::Missing, ..Self::default() };
        let (text, others_may_write) = match text {
            FileText::Missing => return file,
            FileText::Empty => return file.damaged(path, "it is empty, which is not JSON".into()),
            FileText::Unusable { reason, .. } => return file.damaged(path, reason),
            FileText::Readable { text, others_may_write } => (text, others_may_write),
        };
        let value: Value = match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => value,
            Ok(_) => return file.damaged(path, "it is not a JSON object".into()),
            Err(error) => return file.damaged(path, format!("it is not JSON: {error}")),
        };
        file.default = value.get("default").and_then(|default| file.action(path, "default", default));
        // Asking is the default anyway; as a rule it would override every answer given here.
        file.default = file.default.filter(|effect| *effect != RuleEffect::Ask);
        match value.get("rules") {
            None => {}
            Some(Value::Array(rules)) => {
                for (nth, rule) in rules.iter().enumerate() {
                    file.rule(path, nth, rule);
                }
            }
            Some(_) => return file.damaged(path, "rules is not a list".into()),
        }
        if others_may_write {
            file.drop_allows(path);
        }
        file
    }

    fn damaged(mut self, path: &Path, reason: String) -> Self {
        self.warnings.push(format!(
            "{}: {reason}. Until this is fixed, every action needs permission",
            path.display()
        ));
        self.damage = Some(reason);
        self
    }

    fn rule(&mut self, path: &Path, nth: usize, rule: &Value) {
        let part = |key: &str| rule.get(key).and_then(Value::as_str).map(str::trim);
        let Some(tool) = part("tool").filter(|tool| !tool.is_empty()) else {
            self.warnings.push(format!("{}: rule {nth} names no tool and is ignored", path.display()));
            if !matches!(part("action"), Some("allow" | "permit")) {
                self.damage.get_or_insert_with(|| format!("rule {nth} names no tool"));
            }
            return;
        };
        let action = rule.get("action").unwrap_or(&Value::Null);
        let effect = self.action(path, &format!("rule {nth}"), action).unwrap_or(RuleEffect::Ask);
        let argument = part("arg_key").zip(part("arg_pattern"));
        let text = match argument {
            Some((key, pattern)) => format!("{tool}({key}:{pattern})"),
            None => tool.to_owned(),
        };
        self.rules.push(ChimeraRule {
            tool: Glob::new(&tool.to_lowercase(), GlobKind::Text),
            argument: argument.map(|(key, pattern)| (key.to_owned(), fnmatch(pattern))),
            effect,
            text,
        });
    }

    fn action(&mut self, path: &Path, of: &str, action: &Value) -> Option<RuleEffect> {
        let word = action.as_str().map(|word| word.trim().to_lowercase());
        match word.as_deref() {
            Some("allow" | "permit") => Some(RuleEffect::Allow),
            Some("deny" | "block") => Some(RuleEffect::Deny),
            Some("ask" | "prompt" | "confirm") => Some(RuleEffect::Ask),
            _ => {
                self.warnings.push(format!(
                    "{}: {of} is neither allow, deny nor ask (permit, block, prompt, confirm) and is treated as ask",
                    path.display()
                ));
                None
            }
        }
    }

    fn drop_allows(&mut self, path: &Path) {
        let path = path.display();
        self.warnings.push(format!(
            "{path}: other users may write to this file, so its allow rules are ignored. Run: chmod 600 {path}"
        ));
        // An exception from a denial must not be dropped, or the denial would apply: it is asked instead.
        for rule in self.rules.iter_mut().filter(|rule| rule.effect == RuleEffect::Allow) {
            rule.effect = RuleEffect::Ask;
        }
        self.default = self.default.filter(|effect| *effect != RuleEffect::Allow);
    }

    pub(super) fn lines(&self) -> Vec<(RuleEffect, String)> {
        let default = self.default.map(|effect| (effect, "default".to_owned()));
        self.rules.iter().map(|rule| (rule.effect, rule.text.clone())).chain(default).collect()
    }

    /// The effect of the file on a request, and the rule that decides.
    pub(super) fn verdict(&self, query: &RuleQuery) -> Option<(RuleEffect, String)> {
        if !self.exists {
            return None;
        }
        if !query.is_command() {
            return self.last(query, None);
        }
        let line = query.line();
        let started = line.starts.iter().filter_map(|start| {
            let (effect, text) = self.last(query, Some(&start.joined))?;
            Some((start.weakened(effect), text))
        });
        let narrowing = started.chain(self.last(query, Some(&line.text)));
        let worst =
            narrowing.filter(|(effect, _)| *effect != RuleEffect::Allow).max_by_key(|(effect, _)| *effect);
        if worst.is_some() {
            return worst;
        }
        let mut verdict = None;
        for command in line.commands.as_ref()? {
            verdict = Some(self.last(query, Some(&known_words(command)?.join(" ")))?);
        }
        verdict.filter(|_| !line.opaque)
    }

    /// The last rule that matches, with `command` as the command.
    fn last(&self, query: &RuleQuery, command: Option<&str>) -> Option<(RuleEffect, String)> {
        let matching = self.rules.iter().rev().find(|rule| rule.matches(query, command));
        let named = matching.map(|rule| (rule.effect, rule.text.clone()));
        named.or_else(|| self.default.map(|effect| (effect, "default".to_owned())))
    }
}

impl ChimeraRule {
    fn matches(&self, query: &RuleQuery, command: Option<&str>) -> bool {
        let tool = &query.tool;
        let by_alias = |known: KnownTool| known.names().iter().any(|name| self.tool.matches(name));
        if !self.tool.matches(&tool.lower) && !tool.known.is_some_and(by_alias) {
            return false;
        }
        match (&self.argument, command) {
            (None, _) => true,
            (Some((key, glob)), Some(command)) if key == "command" => glob.matches(command),
            (Some((key, glob)), _) => query.argument(key).is_some_and(|value| glob.matches(&value)),
        }
    }
}

/// Python's fnmatch knows no `\`.
fn fnmatch(pattern: &str) -> Glob {
    Glob::new(&pattern.replace('\\', "\\\\"), GlobKind::Text)
}
