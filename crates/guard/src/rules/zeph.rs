//! The answers that zeph keeps in `acp-permissions.toml`: one word per tool, and for its shell one per
//! program. They are read and never written.
//!
//! zeph looks at the first program of a line only. Here every command of a line must be allowed, and
//! one that is denied is enough.

use std::collections::BTreeMap;
use std::path::Path;

use engine::RuleEffect;
use toml_edit::{Document, Item, TableLike};

use super::file::one_line;
use super::line::{base, is_interpreter};
use super::text::{Text, line_of};
use super::tool::Tools;
use super::wish::Wish;
use crate::risk::covered;
use crate::shell::Simple;

#[derive(Debug, Clone, Default)]
pub(super) struct ZephFile {
    pub(super) exists: bool,
    /// Why everything is asked: what could not be read may deny it.
    pub(super) damage: Option<String>,
    pub(super) warnings: Vec<String>,
    tools: Vec<Answers>,
}

#[derive(Debug, Clone)]
struct Answers {
    name: String,
    tools: Tools,
    default: Option<RuleEffect>,
    programs: BTreeMap<String, RuleEffect>,
}

impl ZephFile {
    pub(super) fn new(path: &Path, text: Text) -> Self {
        let mut file = Self { exists: text != Text::Missing, ..Self::default() };
        let (text, loose) = match text {
            // What zeph writes without a single answer has no byte.
            Text::Missing | Text::Empty => return file,
            Text::Unusable { reason, .. } => {
                file.damaged(path, reason);
                return file;
            }
            Text::Here { text, loose } => (text, loose),
        };
        match Document::parse(text.as_str()) {
            Ok(document) => file.read(path, document.get("tools").and_then(Item::as_table_like)),
            Err(error) => {
                let line = line_of(&text, error.span().map_or(0, |span| span.start));
                file.damaged(path, format!("line {line} is not TOML: {}", one_line(error.message())));
            }
        }
        if loose {
            file.drop_allows(path);
        }
        file
    }

    fn damaged(&mut self, path: &Path, reason: String) {
        self.warnings
            .push(format!("{}: {reason}. Until that is repaired, everything is asked", path.display()));
        self.damage = Some(reason);
    }

    fn read(&mut self, path: &Path, tools: Option<&dyn TableLike>) {
        for (name, item) in tools.into_iter().flat_map(TableLike::iter) {
            let Some(tools) = Tools::parse(name) else {
                self.warnings
                    .push(format!("{}: {name:?} is not the name of a tool and is ignored", path.display()));
                if item.as_str() != Some("allow") {
                    self.damage.get_or_insert_with(|| format!("{name:?} is not the name of a tool"));
                }
                continue;
            };
            let mut answers =
                Answers { name: name.to_owned(), tools, default: None, programs: BTreeMap::new() };
            match item.as_table_like() {
                None => answers.default = Some(self.word(path, name, item)),
                Some(table) => {
                    answers.default = table.get("default").map(|item| self.word(path, name, item));
                    let patterns = table.get("patterns").and_then(Item::as_table_like);
                    for (program, item) in patterns.into_iter().flat_map(TableLike::iter) {
                        let effect = self.word(path, program, item);
                        // An interpreter is any program: what zeph meant was one text for it.
                        if effect == RuleEffect::Allow && is_interpreter(program) {
                            self.warnings.push(format!(
                                "{}: {program} runs any program that it is given, so this allows nothing here",
                                path.display()
                            ));
                            continue;
                        }
                        answers.programs.insert(base(program).to_owned(), effect);
                    }
                }
            }
            self.tools.push(answers);
        }
    }

    /// What is not understood is asked.
    fn word(&mut self, path: &Path, name: &str, item: &Item) -> RuleEffect {
        match item.as_str() {
            Some("allow") => RuleEffect::Allow,
            Some("deny" | "reject") => RuleEffect::Deny,
            Some("ask") => RuleEffect::Ask,
            _ => {
                self.warnings
                    .push(format!("{}: {name} is neither allow, deny nor ask and is asked", path.display()));
                RuleEffect::Ask
            }
        }
    }

    fn drop_allows(&mut self, path: &Path) {
        let path = path.display();
        self.warnings.push(format!(
            "{path}: others may write this file, so none of its answers allows anything. Run: chmod 600 {path}"
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

    /// What the file says of a wish, and which line of it.
    pub(super) fn verdict(&self, wish: &Wish) -> Option<(RuleEffect, String)> {
        let said = self.tools.iter().filter_map(|answers| answers.verdict(wish));
        said.max_by_key(|(effect, _)| *effect)
    }
}

impl Answers {
    fn verdict(&self, wish: &Wish) -> Option<(RuleEffect, String)> {
        let narrow = self.tools.include(&wish.tool, true);
        let allows = self.tools.include(&wish.tool, false);
        if !narrow && !allows {
            return None;
        }
        let whole = || {
            let effect = self.default.filter(|effect| allows || *effect != RuleEffect::Allow)?;
            Some((effect, format!("tools.{}", self.name)))
        };
        if !wish.is_command() || self.programs.is_empty() {
            return whole();
        }
        let line = wish.line();
        let named = |program: &str| {
            let effect = self.programs.get(base(program)).copied()?;
            Some((effect, format!("tools.{}.patterns.{}", self.name, base(program))))
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
        let allowed = |command: &Simple| {
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
