//! Writes rules to a file: completely or not at all, one writer at a time, and everything else in the file stays as its
//! owner wrote it.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::RuleEffect;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value};

use super::rule::Rule;
use super::rule_file_parser::{FileOwner, LISTS};
use super::rule_file_text::{self, FileText};

/// Another program holds the file for the few milliseconds of a write; longer means that it hangs.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

const HEADER: &str = "\
# What the agent may do. Deny beats ask, ask beats allow. See `ropewalk permissions --help`.
# A rule is Tool or Tool(pattern): shell(cargo test:*), edit(src/**), read(.env), mcp__server.

";

/// What is to be different in a file.
#[derive(Debug, Clone)]
pub(super) enum RuleEdit {
    /// The rule with this effect, and with no other.
    Add(RuleEffect, Rule),
    /// The rule gone, whatever its effect was.
    Remove(Rule),
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RuleEditOutcome {
    /// There is a difference.
    pub(super) changed: bool,
    /// The effect that the rule had before.
    pub(super) previous: Option<RuleEffect>,
}

/// Changes a file. `project` says which folder the rule holds in, if not in all of them.
pub(super) fn change(
    path: &Path,
    owner: FileOwner,
    project: Option<&Path>,
    change: &RuleEdit,
) -> Result<RuleEditOutcome, String> {
    let path = real(path);
    let folder = path.parent().ok_or("the file has no folder")?;
    make_folder(folder, owner).map_err(|error| format!("could not create {}: {error}", folder.display()))?;
    let _held = lock_folder(folder)?;
    let text = match rule_file_text::read(&path).1 {
        FileText::Missing if matches!(change, RuleEdit::Remove(_)) => {
            return Ok(RuleEditOutcome { changed: false, previous: None });
        }
        FileText::Missing => String::new(),
        FileText::Empty => return Err(format!("{}: {}", path.display(), rule_file_text::EMPTY)),
        FileText::Readable { text, .. } => text,
        FileText::Unusable { reason, .. } => {
            return Err(format!("{}: {reason}; fix it first", path.display()));
        }
    };
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let line = rule_file_text::line_of(&text, error.span().map_or(0, |span| span.start));
        format!("{} line {line} is not TOML; fix it first", path.display())
    })?;
    let done = apply(&mut document, project, change)?;
    if done.changed {
        let header = if text.is_empty() { HEADER } else { "" };
        replace(&path, &format!("{header}{document}"), owner)
            .map_err(|error| format!("could not write {}: {error}", path.display()))?;
    }
    Ok(done)
}

/// A file that is a link stays one: people keep such files elsewhere.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

pub(super) fn make_folder(folder: &Path, owner: FileOwner) -> io::Result<()> {
    let mode = if owner == FileOwner::User { 0o700 } else { 0o755 };
    let made: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    // A synced file in a folder that a power cut takes away is gone too.
    let around = made.into_iter().filter_map(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    for parent in around {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Waits a few seconds until nobody else changes a file in this folder, and holds others off until it is dropped.
///
/// The folder itself is locked: the file is another one after every write, and a lock file would
/// stay behind.
pub fn lock_folder(folder: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("could not lock {}: {error}", folder.display());
    let file = File::open(folder).map_err(failed)?;
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LOCK_PAUSE)
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(format!("another program has locked {}; try again", folder.display()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Called with the lock held, so the name of the new file can be fixed: one that a killed program left
/// is taken away here.
pub(super) fn replace(path: &Path, content: &str, owner: FileOwner) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if content.len() as u64 > rule_file_text::FILE_BYTES_MAX {
        return Err(io::Error::other("it would be larger than 1 MiB; remove old rules"));
    }
    let mode = if owner == FileOwner::User { 0o600 } else { 0o644 };
    let written = (|| {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        // The error that is reported is the first one.
        drop(std::fs::remove_file(&new));
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn apply(
    document: &mut DocumentMut,
    project: Option<&Path>,
    change: &RuleEdit,
) -> Result<RuleEditOutcome, String> {
    let (rule, wanted) = match change {
        RuleEdit::Add(effect, rule) => (rule, Some(*effect)),
        RuleEdit::Remove(rule) => (rule, None),
    };
    let Some(table) = table(document, project, wanted.is_some())? else {
        return Ok(RuleEditOutcome { changed: false, previous: None });
    };
    let mut done = RuleEditOutcome { changed: false, previous: None };
    let mut present = false;
    for (key, effect) in LISTS {
        let Some(list) = list(table, key)? else { continue };
        let same = |value: &Value| {
            value.as_str().is_some_and(|text| Rule::parse(text, effect).is_ok_and(|other| other == *rule))
        };
        if list.iter().any(same) {
            done.previous = done.previous.max(Some(effect));
            if Some(effect) == wanted {
                present = true;
            } else {
                list.retain(|value| !same(value));
                done.changed = true;
            }
        }
    }
    if let Some(effect) = wanted.filter(|_| !present) {
        let key = LISTS.iter().find(|(_, known)| *known == effect).map_or("ask", |(key, _)| key);
        if !table.contains_key(key) {
            table.insert(key, Item::Value(Value::Array(Array::new())));
        }
        if let Some(list) = list(table, key)? {
            push(list, &rule.text);
        }
        done.changed = true;
    }
    Ok(done)
}

/// The table that holds the lists: the document itself, or the one of a folder.
fn table<'a>(
    document: &'a mut DocumentMut,
    project: Option<&Path>,
    make: bool,
) -> Result<Option<&'a mut Table>, String> {
    let Some(project) = project else { return Ok(Some(document.as_table_mut())) };
    let project = project.to_str().ok_or("the path of this folder is not text in UTF-8")?;
    if !document.contains_key("project") {
        if !make {
            return Ok(None);
        }
        document.insert("project", Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let tables = document.get_mut("project").and_then(Item::as_array_of_tables_mut);
    let tables = tables.ok_or("`project` is written in another way; write it as [[project]] first")?;
    let same = |table: &Table| table.get("path").and_then(Item::as_str) == Some(project);
    let found = tables.iter().position(same);
    let at = match found {
        Some(at) => at,
        None if make => {
            let mut table = Table::new();
            table.insert("path", Item::Value(project.into()));
            tables.push(table);
            tables.len() - 1
        }
        None => return Ok(None),
    };
    Ok(tables.get_mut(at))
}

fn list<'a>(table: &'a mut Table, key: &str) -> Result<Option<&'a mut Array>, String> {
    let Some(item) = table.get_mut(key) else { return Ok(None) };
    // One rule without brackets is read as a list of one.
    if let Some(text) = item.as_str() {
        let mut array = Array::new();
        array.push(text);
        *item = Item::Value(Value::Array(array));
    }
    item.as_array_mut().map(Some).ok_or_else(|| format!("`{key}` is not a list; fix it first"))
}

/// Keeps the look of a list that has a rule per line, and gives it to one that grows long.
fn push(list: &mut Array, rule: &str) {
    const ONE_LINE_CHARS_MAX: usize = 80;
    let end = list.trailing().as_str().unwrap_or_default().trim_end().to_owned();
    let starts_line = |value: &Value| {
        value.decor().prefix().and_then(|raw| raw.as_str()).is_some_and(|raw| raw.contains('\n'))
    };
    let spread = list.iter().any(starts_line);
    let long = list.iter().filter_map(Value::as_str).map(|text| text.len() + 4).sum::<usize>() + rule.len();
    list.push(rule);
    if !spread && long > ONE_LINE_CHARS_MAX {
        list.iter_mut().for_each(|value| value.decor_mut().set_prefix("\n    "));
    }
    if spread || long > ONE_LINE_CHARS_MAX {
        // What stood before the closing bracket, a comment perhaps, belongs to the rule before.
        if let Some(last) = list.iter_mut().last() {
            last.decor_mut().set_prefix(format!("{end}\n    "));
        }
        list.set_trailing("\n");
    }
    list.set_trailing_comma(spread || long > ONE_LINE_CHARS_MAX);
}
