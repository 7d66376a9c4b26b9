//! Parses `permissions.toml`: the user's file, which may contain any rule, and a project's, which may only narrow.
//!
//! **Invariant:** an entry that is not understood never allows. An entry that would deny or ask and names a tool makes
//! every use of that tool asked. An entry that names none, a list with an unknown name, and a file that cannot be read
//! make everything asked, because nobody can tell what they would deny.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::RuleEffect;
use toml_edit::{Document, Item, TableLike, Value};

use super::rule::{Rule, RuleParseError};
use super::rule_file_text::{EMPTY, FileText, line_of};
use super::salvage::{SalvagedRule, salvage};

/// The lists of a file, by the name of their key.
pub(super) const LISTS: [(&str, RuleEffect); 3] =
    [("deny", RuleEffect::Deny), ("ask", RuleEffect::Ask), ("allow", RuleEffect::Allow)];

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOwner {
    User,
    Project,
}

/// A file of rules, in the order that it has.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleFile {
    pub(super) exists: bool,
    /// Why everything is asked: what could not be read may deny it.
    pub(super) damage: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// As it counts, which may be less than was written.
    pub(super) effect: RuleEffect,
    pub(super) text: Arc<str>,
    /// Nothing if the entry does not count.
    pub(super) rule: Option<Arc<Rule>>,
    /// It holds in this folder only.
    pub(super) project: Option<Arc<Path>>,
    pub(super) line: usize,
}

impl Entry {
    fn salvaged(found: SalvagedRule) -> Option<Self> {
        let (effect, rule) = match Rule::parse(&found.text, found.effect) {
            Ok(rule) => (found.effect, rule),
            Err(malformed) => (RuleEffect::Ask, *malformed.whole_tool?),
        };
        Some(Self {
            effect,
            text: found.text.into(),
            rule: Some(Arc::new(rule)),
            project: found.project.map(Into::into),
            line: found.line,
        })
    }
}

impl RuleFile {
    pub(super) fn new(path: &Path, text: FileText, owner: FileOwner) -> Self {
        let (text, others_may_write) = match text {
            FileText::Missing => return Self::default(),
            FileText::Empty => return Self::damaged(path, EMPTY.into(), ""),
            FileText::Unusable { reason, part } => return Self::damaged(path, reason, &part),
            FileText::Readable { text, others_may_write } => (text, others_may_write),
        };
        let document = match Document::parse(text.as_str()) {
            Ok(document) => document,
            Err(error) => {
                let line = line_of(&text, error.span().map_or(0, |span| span.start));
                let reason = format!("line {line} is not TOML: {}", one_line(error.message()));
                return Self::damaged(path, reason, &text);
            }
        };
        let file = Self { exists: true, ..Self::default() };
        let mut reader = Reader {
            path,
            text: &text,
            owner,
            others_may_write: others_may_write && owner == FileOwner::User,
            file,
        };
        reader.document(document.as_table());
        reader.file
    }

    /// A file that cannot be read as a whole. What denies or asks in the parts that can be read counts.
    fn damaged(path: &Path, reason: String, part: &str) -> Self {
        let entries: Vec<Entry> = salvage(part).into_iter().filter_map(Entry::salvaged).collect();
        let warning = match entries.len() {
            0 => format!("{}: {reason}. Until this is fixed, every action needs permission", path.display()),
            count => format!(
                "{}: {reason}. Until this is fixed, every action needs permission; {count} of its rules can be read and still deny or ask",
                path.display()
            ),
        };
        Self { exists: true, damage: Some(reason), warnings: vec![warning], entries }
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    owner: FileOwner,
    others_may_write: bool,
    file: RuleFile,
}

impl Reader<'_> {
    fn document(&mut self, table: &dyn TableLike) {
        if self.others_may_write {
            let path = self.path.display();
            self.file.warnings.push(format!(
                "{path}: other users may write to this file, so its allow rules are ignored. Run: chmod 600 {path}"
            ));
        }
        for (key, item) in table.iter() {
            match key {
                "project" => self.projects(item),
                _ => self.list(key, item, None),
            }
        }
    }

    fn projects(&mut self, item: &Item) {
        if self.owner == FileOwner::Project {
            return self.warn(item, "[[project]] works only in your own file and is ignored here");
        }
        if let Some(tables) = item.as_array_of_tables() {
            tables.iter().for_each(|table| self.project(item, table));
        } else if let Some(array) = item.as_array() {
            for value in array {
                match value.as_inline_table() {
                    Some(table) => self.project(item, table),
                    None => {
                        self.damage(item, "project must be an array of tables; write [[project]] with a path")
                    }
                }
            }
        } else {
            self.damage(item, "project must be an array of tables; write [[project]] with a path");
        }
    }

    fn project(&mut self, item: &Item, table: &dyn TableLike) {
        let path = table.get("path").and_then(Item::as_str).map(PathBuf::from);
        let Some(path) = path.filter(|path| path.is_absolute()) else {
            return self
                .damage(item, "a [[project]] needs the absolute path of its folder; write path = \"/..\"");
        };
        let path: Arc<Path> = path.into();
        for (key, item) in table.iter().filter(|(key, _)| *key != "path") {
            self.list(key, item, Some(&path));
        }
    }

    fn list(&mut self, key: &str, item: &Item, project: Option<&Arc<Path>>) {
        let Some((_, effect)) = LISTS.iter().find(|(name, _)| *name == key) else {
            let what = format!("unknown key {key:?}; the lists are deny, ask and allow");
            // A list of rules under a misspelled name denies nothing; other settings are none of ours.
            let holds_rules = item.is_array() || item.is_table_like() || item.is_array_of_tables();
            return if holds_rules { self.damage(item, &what) } else { self.warn(item, &what) };
        };
        match item.as_value() {
            Some(Value::Array(array)) => array.iter().for_each(|value| self.entry(*effect, value, project)),
            // One rule without brackets around it is clear enough.
            Some(value @ Value::String(_)) => self.entry(*effect, value, project),
            _ if *effect == RuleEffect::Allow => {
                self.warn(item, &format!("{key} must be a list; write {key} = [\"shell(git status:*)\"]"));
            }
            _ => self.damage(item, &format!("{key} must be a list; write {key} = [\"shell(git status:*)\"]")),
        }
    }

    fn entry(&mut self, effect: RuleEffect, value: &Value, project: Option<&Arc<Path>>) {
        let line = self.line(value.span());
        let Some(text) = value.as_str() else {
            let what = "a rule must be a string in quotes, such as \"shell(git status:*)\"";
            return match effect {
                RuleEffect::Allow => self.warn_at(line, what),
                RuleEffect::Ask | RuleEffect::Deny => self.damage_at(line, what),
            };
        };
        let mut entry = Entry { effect, text: text.into(), rule: None, project: project.cloned(), line };
        match Rule::parse(text, effect) {
            _ if effect == RuleEffect::Allow && self.owner == FileOwner::Project => {
                self.warn_at(line, &format!("{text} is ignored: a project can only deny and ask, not allow. To allow it, run: ropewalk permissions add allow --here '{text}'"));
            }
            Ok(rule) => {
                if rule.is_unknown() {
                    self.warn_at(
                        line,
                        &format!("{text}: there is no tool with this name; check the spelling"),
                    );
                }
                entry.rule = (effect != RuleEffect::Allow || !self.others_may_write).then(|| Arc::new(rule));
            }
            Err(RuleParseError { reason, whole_tool: Some(rule) }) if effect != RuleEffect::Allow => {
                entry.effect = RuleEffect::Ask;
                self.warn_at(
                    line,
                    &format!(
                        "{text}: {reason}. Until this is fixed, every use of this tool needs permission"
                    ),
                );
                entry.rule = Some(Arc::from(rule));
            }
            Err(RuleParseError { reason, .. }) if effect == RuleEffect::Allow => {
                self.warn_at(line, &format!("{text}: {reason}. Until this is fixed, it is ignored"));
            }
            Err(RuleParseError { reason, .. }) => self.damage_at(line, &format!("{text}: {reason}")),
        }
        self.file.entries.push(entry);
    }

    fn damage(&mut self, item: &Item, what: &str) {
        self.damage_at(self.line(item.span()), what);
    }

    /// Something that may deny and is not understood.
    fn damage_at(&mut self, line: usize, what: &str) {
        self.warn_at(line, &format!("{what}. Until this is fixed, every action needs permission"));
        self.file.damage.get_or_insert_with(|| format!("line {line}: {what}"));
    }

    fn warn(&mut self, item: &Item, what: &str) {
        self.warn_at(self.line(item.span()), what);
    }

    fn warn_at(&mut self, line: usize, what: &str) {
        self.file.warnings.push(format!("{} line {line}: {what}", self.path.display()));
    }

    fn line(&self, span: Option<std::ops::Range<usize>>) -> usize {
        line_of(self.text, span.map_or(0, |span| span.start))
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
