//! Commands that the owner of the machine always lets run outside the sandbox, or never.
//!
//! They are stored in the consent file (`trusted_servers.rs`). An entry is one command in one folder, by a digest of what would run,
//! with which arguments and variables, and in which folder. It is not a pattern, and it says nothing about the same
//! command inside the sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{BoxFuture, EDITOR_TERMINAL, NewTerminal, Risk, RuleEffect, RuleHit};
use sha2::{Digest, Sha256};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::trusted_servers::TrustFile;
use super::{Inner, RuleChange, RuleError, Rulebook, real};
use crate::Assessment;

/// The prefix of such an answer in the log and the audit.
const OUTSIDE: &str = "outside the sandbox";
/// How much of a line the file shows.
const LINE_CHARS_MAX: usize = 200;

/// An "always" or "never" answer about one command outside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsandboxedCommand {
    /// The workspace that it applies in.
    pub folder: PathBuf,
    /// What runs, for people.
    pub line: String,
    pub digest: String,
    pub allow: bool,
}

/// A digest of all that decides what a command in an editor's terminal does: the owner consents to this.
pub fn editor_terminal_digest(new: &NewTerminal) -> String {
    let NewTerminal { program, arguments, environment, cwd, output_bytes_max: _ } = new;
    let mut hash = Sha256::new();
    // Each part with its length and each list with its own, so that no two commands are the same bytes.
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(program.as_bytes());
    part(&(arguments.len() as u64).to_le_bytes());
    arguments.iter().for_each(|argument| part(argument.as_bytes()));
    part(&(environment.len() as u64).to_le_bytes());
    for (name, value) in environment {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(cwd.as_os_str().as_encoded_bytes());
    let digest = hash.finalize();
    digest.iter().fold(EDITOR_TERMINAL.to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The assessment of a command that would run outside the sandbox.
pub fn assess_unsandboxed(inside: Assessment) -> Assessment {
    let reason = "runs in the editor's terminal, outside the sandbox".to_owned();
    let reason = if inside.risk == Risk::Low { reason } else { format!("{reason}; {}", inside.reason) };
    Assessment { risk: inside.risk.max(Risk::High), reason }
}

impl Rulebook {
    /// Every "always" and "never" answer about commands outside the sandbox.
    pub fn unsandboxed_commands(&self) -> Vec<UnsandboxedCommand> {
        self.inner.trust_file().commands
    }

    /// Removes answers by their digest, in this folder or in any. Returns them.
    pub fn remove_unsandboxed(
        &self,
        digest: &str,
        folder: Option<&Path>,
    ) -> Result<Vec<UnsandboxedCommand>, RuleError> {
        let folder = folder.map(real);
        let gone = self.inner.rewrite_trust(|file, _| {
            let named = |command: &UnsandboxedCommand| {
                command.digest == digest && folder.as_ref().is_none_or(|folder| *folder == command.folder)
            };
            let (gone, kept) = std::mem::take(&mut file.commands).into_iter().partition(named);
            file.commands = kept;
            Ok(gone)
        });
        let gone: Vec<UnsandboxedCommand> = gone.map_err(RuleError::File)?;
        gone.iter().for_each(|command| self.inner.announce_outside(None, command));
        Ok(gone)
    }
}

impl Inner {
    /// Stores the owner's answer "always" or "never".
    pub(super) fn answered_outside(
        self: &Arc<Self>,
        folder: PathBuf,
        line: &str,
        digest: &str,
        allow: bool,
    ) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.chars().take(LINE_CHARS_MAX).collect();
        let command = UnsandboxedCommand { folder, line, digest: digest.into(), allow };
        let inner = Arc::clone(self);
        Box::pin(async move {
            let text: Arc<str> = shown(&command).into();
            let written = tokio::task::spawn_blocking(move || inner.keep_outside(command)).await;
            written
                .map_err(|_| "saving the answer failed unexpectedly; this is a bug".to_owned())?
                .map(|()| text)
        })
    }

    /// The answer replaces an earlier one about the same command.
    fn keep_outside(&self, command: UnsandboxedCommand) -> Result<(), String> {
        let new = self.rewrite_trust(|file, _| {
            if file.commands.contains(&command) {
                return Ok(Vec::new());
            }
            file.commands
                .retain(|known| (&known.folder, &known.digest) != (&command.folder, &command.digest));
            file.commands.push(command.clone());
            Ok(vec![command])
        })?;
        for command in &new {
            let effect = if command.allow { RuleEffect::Allow } else { RuleEffect::Deny };
            self.announce_outside(Some(effect), command);
        }
        Ok(())
    }

    fn announce_outside(&self, effect: Option<RuleEffect>, command: &UnsandboxedCommand) {
        self.announce(RuleChange {
            effect,
            rule: format!("{} ({})", shown(command), command.digest).into(),
            folder: Some(command.folder.clone()),
            file: self.trust_path(),
        });
    }
}

fn shown(command: &UnsandboxedCommand) -> String {
    format!("{OUTSIDE}: {}", command.line)
}

/// The rule hit of the stored answer about a command, if there is one.
pub(super) fn hit(file: &TrustFile, folder: &Path, digest: &str, source: &str) -> Option<RuleHit> {
    let command =
        file.commands.iter().find(|command| command.folder == folder && command.digest == digest)?;
    Some(RuleHit {
        effect: if command.allow { RuleEffect::Allow } else { RuleEffect::Deny },
        rule: shown(command).into(),
        source: source.into(),
        exact: true,
        consent: true,
    })
}

pub(super) fn commands<S: AsRef<str>>(document: &toml_edit::Document<S>) -> Vec<UnsandboxedCommand> {
    let tables = document.get("command").and_then(Item::as_array_of_tables);
    let command = |table: &Table| {
        let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
        let allow = table.get("allow").and_then(Item::as_bool)?;
        Some(UnsandboxedCommand {
            folder: text("folder")?.into(),
            line: text("line")?,
            digest: text("digest")?,
            allow,
        })
    };
    tables.into_iter().flatten().filter_map(command).collect()
}

pub(super) fn put(document: &mut DocumentMut, commands: &[UnsandboxedCommand]) -> Result<(), String> {
    if commands.is_empty() && !document.contains_key("command") {
        return Ok(());
    }
    let mut tables = ArrayOfTables::new();
    for UnsandboxedCommand { folder, line, digest, allow } in commands {
        let folder = folder.to_str().ok_or("the path of this folder is not text in UTF-8")?;
        let mut table = Table::new();
        for (key, text) in [("folder", folder), ("line", line.as_str()), ("digest", digest.as_str())] {
            table.insert(key, Item::Value(text.into()));
        }
        table.insert("allow", Item::Value((*allow).into()));
        tables.push(table);
    }
    document.insert("command", Item::ArrayOfTables(tables));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_one_command_with_its_arguments_variables_and_folder() {
        let new = |program: &str, arguments: &[&str], environment: &[(&str, &str)], cwd: &str| NewTerminal {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
            cwd: cwd.into(),
            output_bytes_max: 1,
        };
        let own = editor_terminal_digest(&new("make", &["a", "b"], &[("A", "1")], "/w"));
        assert!(own.starts_with("editor-terminal:") && own.len() == "editor-terminal:".len() + 64, "{own}");
        let more = NewTerminal { output_bytes_max: 2, ..new("make", &["a", "b"], &[("A", "1")], "/w") };
        assert_eq!(editor_terminal_digest(&more), own, "how much is kept of its output changes nothing");
        for other in [
            new("make ", &["a", "b"], &[("A", "1")], "/w"),
            new("make", &["ab"], &[("A", "1")], "/w"),
            new("make", &["a", "b", "A", "1"], &[], "/w"),
            new("make", &["a"], &[("b", "A"), ("1", "")], "/w"),
            new("make", &["a", "b"], &[("A", "2")], "/w"),
            new("make", &["a", "b"], &[("A", "1")], "/w/sub"),
        ] {
            assert_ne!(editor_terminal_digest(&other), own, "{other:?}");
        }
    }
}
