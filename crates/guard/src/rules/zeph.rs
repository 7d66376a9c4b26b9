//! The answers that zeph keeps in `acp-permissions.toml`: one word per tool, and for its shell one per program. The file
//! is read and never written.
//!
//! zeph looks at the first program of a line only. Here every command of a line must be allowed, and one that is denied is
//! enough.

use std::collections::BTreeMap;
use std::path::Path;

use engine::RuleEffect;
use toml_edit::{Document, Item, TableLike};

use super::command_line::{is_interpreter, program_name};
use super::request_to_match::RuleQuery;
use super::rule_file_parser::one_line;
use super::rule_file_text::{FileText, line_of};
use super::tool_names::ToolSelector;
use crate::risk::covered;
use crate::shell::SimpleCommand;

#[derive(Debug, Clone, Default)]
pub(super) struct ZephFile {
    pub(super) exists: bool,
    /// Why everything is asked: a part that could not be read may deny it.
    pub(super) damage: Option<String>,
    pub(super) warnings: Vec<String>,
    tools: Vec<ToolAnswers>,
}

#[derive(Debug, Clone)]
struct ToolAnswers {
    name: String,
    tools: ToolSelector,
    default: Option<RuleEffect>,
    programs: BTreeMap<String, RuleEffect>,
}

impl ZephFile {
    pub(super) fn new(path: &Path, text: FileText) -> Self {
        let mut file = Self { exists: text != FileText::Missing, ..Self::default() };
        let (text, others_may_write) = match text {
            // Without any answer zeph writes an empty file.
            FileText::Missing | FileText::Empty => return file,
            FileText::Unusable { reason, .. } => {
                file.damaged(path, reason);
                return file;
            }
            FileText::Readable { text, others_may_write } => (text, others_may_write),
        };
        match Document::parse(text.as_str()) {
            Ok(document) => file.read(path, document.get("tools").and_then(Item::as_table_like)),
            Err(error) => {
                let line = line_of(&text, error.span().map_or(0, |span| span.start));
                file.damaged(path, format!("line {line} is not TOML: {}", one_line(error.message())));
            }
        }
        if others_may_write {
            file.drop_allows(path);
        }
        file
    }

    fn damaged(&mut self, path: &Path, reason: String) {
        self.warnings.push(format!(
            "{}: {reason}. Until this is fixed, every action needs permission",
            path.display()
        ));
        self.damage = Some(reason);
    }

    fn read(&mut self, path: &Path, tools: Option<&dyn TableLike>) {
        for (name, item) in tools.into_iter().flat_map(TableLike::iter) {
            let Some(tools) = ToolSelector::parse(name) else {
                self.warnings
                    .push(format!("{}: {name:?} is not the name of a tool and is ignored", path.display()));
                if item.as_str() != Some("allow") {
                    self.damage.get_or_insert_with(|| format!("{name:?} is not the name of a tool"));
                }
                continue;
            };
            let mut answers =
                ToolAnswers { name: name.to_owned(), tools, default: None, programs: BTreeMap::new() };
            match item.as_table_like() {
                None => answers.default = Some(self.word(path, name, item)),
                Some(table) => {
                    answers.default = table.get("default").map(|item| self.word(path, name, item));
                    let patterns = table.get("patterns").and_then(Item::as_table_like);
                    for (program, item) in patterns.into_iter().flat_map(TableLike::iter) {
                        let effect = self.word(path, program, item);
                        // Allowing an interpreter would allow any program, which zeph did not mean.
                        if effect == RuleEffect::Allow && is_interpreter(program) {
                            self.warnings.push(format!(
                                "{}: {program} runs any program that it is given, so this allows nothing here",
                                path.display()
                            ));
                            continue;
                        }
                        answers.programs.insert(program_name(program).to_owned(), effect);
                    }
                }
            }
            self.tools.push(answers);
        }
    }

    /// A value that is not understood counts as ask.
    fn word(&mut self, path: &Path, name: &str, item: &Item) -> RuleEffect {
        match item.as_str() {
            Some("allow") => RuleEffect::Allow,
            Some("deny" | "reject") => RuleEffect::Deny,
            Some("ask") => RuleEffect::Ask,
            _ => {
                self.warnings.push(format!(
                    "{}: {name} is neither allow, deny nor ask and is treated as ask",
                    path.display()
                ));
                RuleEffect::Ask
            }
        }
    }

    fn drop_allows(&mut self, path: &Path) {
        let path = path.display();
        self.warnings.push(format!(
            "{path}: other users may write to this file, so its allow answers are ignored. Run: chmod 600 {path}"
        ));
        for answers in &mut self.tools {
            answers.default = answers.default.filter(|effect| *effect != RuleEffect::Allow);
            answers.programs.retain(|_, effect| *effect != RuleEffect::Allow);
        }
    }

    /// The answers as lines: what they do, and to what.
    pub(super) fn lines(&self) -> Vec<(RuleEffect, String)> {
        let mut lines = Vec::new();
        for answers in &self.tools {
            let program = |(program, effect): (&String, &RuleEffect)| {
                (*effect, format!("tools.{}.patterns.{program}", answers.name))
            };
            lines.extend(answers.programs.iter().map(program));
            lines.extend(answers.default.map(|effect| (effect, format!("tools.{}", answers.name))));
        }
        lines
    }

    /// The effect of the file on a request, and the line that decides.
    pub(super) fn verdict(&self, query: &RuleQuery) -> Option<(RuleEffect, String)> {
        let said = self.tools.iter().filter_map(|answers| answers.verdict(query));
        said.max_by_key(|(effect, _)| *effect)
    }
}

impl ToolAnswers {
    fn verdict(&self, query: &RuleQuery) -> Option<(RuleEffect, String)> {
        let narrow = self.tools.include(&query.tool, true);
        let allows = self.tools.include(&query.tool, false);
        if !narrow && !allows {
            return None;
        }
        let whole = || {
            let effect = self.default.filter(|effect| allows || *effect != RuleEffect::Allow)?;
            Some((effect, format!("tools.{}", self.name)))
        };
        if !query.is_command() || self.programs.is_empty() {
            return whole();
        }
        let line = query.line();
        let named = |program: &str| {
            let effect = self.programs.get(program_name(program)).copied()?;
            Some((effect, format!("tools.{}.patterns.{}", self.name, program_name(program))))
        };
        let narrowing = line.starts.iter().filter_map(|start| {
            let (effect, text) = named(start.words.first()?)?;
            Some((start.weakened(effect), text))
        });
        let worst =
            narrowing.filter(|(effect, _)| *effect != RuleEffect::Allow).max_by_key(|(effect, _)| *effect);
        if worst.is_some() {
            return worst;
        }
        let allowed = |command: &SimpleCommand| {
            let allows = |(program, effect): &(&String, &RuleEffect)| {
                **effect == RuleEffect::Allow && covered(std::slice::from_ref(*program), command)
            };
            self.programs.iter().find(allows).map(|(program, _)| program)
        };
        let programs: Option<Vec<_>> =
            line.commands.as_ref().and_then(|all| all.iter().map(allowed).collect());
        match programs.as_deref() {
            Some([first, ..]) if allows && !line.opaque => {
                Some((RuleEffect::Allow, format!("tools.{}.patterns.{first}", self.name)))
            }
            _ => whole(),
        }
    }
}
