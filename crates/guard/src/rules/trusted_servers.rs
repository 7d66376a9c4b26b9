//! What the owner of the machine has consented to for good: `trusted_servers.toml`, beside the person's rules. Programs
//! that projects name are handled here; commands outside the sandbox, in the same file, are in `unsandboxed_commands.rs`.
//!
//! An entry is one program in one folder, by a digest of everything that starts it. A program with any other arguments is
//! a different entry.
//!
//! **Invariant:** a file that cannot be read, or that others may write, trusts nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{AskRequest, BoxFuture, ConsentKind, RuleEffect, RuleHit, SERVER_CONSENT};
use toml_edit::{Array, ArrayOfTables, Document, DocumentMut, Item, Table, Value};

use super::rule::Rule;
use super::rule_file_parser::FileOwner;
use super::rule_file_text::{self, EMPTY, FileText};
use super::unsandboxed_commands::{self, UnsandboxedCommand};
use super::{Inner, RuleChange, RuleError, Rulebook, real, rule_writer};

const FILE: &str = "trusted_servers.toml";
const HEADER: &str = "\
# What you have allowed for good, one digest for each. `server`: programs that projects name
# (`ropewalk mcp trust --list`, `ropewalk mcp untrust NAME`). `command`: what may run in the editor's terminal,
# outside the sandbox, or never may (`ropewalk permissions list`, `ropewalk permissions remove editor-terminal:DIGEST`).

";

/// A program that the owner has consented to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedServer {
    /// The only folder that it may start in.
    pub folder: PathBuf,
    pub name: String,
    pub digest: String,
}

/// The path of the consent file, which is beside the person's rule file.
pub fn trusted_file(rules: &Path) -> PathBuf {
    rules.with_file_name(FILE)
}

/// The parsed consent file.
#[derive(Debug, Clone, Default)]
pub(super) struct TrustFile {
    pub(super) warnings: Vec<String>,
    servers: Vec<TrustedServer>,
    pub(super) commands: Vec<UnsandboxedCommand>,
    /// Rules of earlier versions that became entries here, or could have: they have no effect any more.
    carried_over: Vec<String>,
}

impl TrustFile {
    pub(super) fn new(path: &Path, text: FileText) -> Self {
        let unusable = |reason: &str| {
            let warning =
                format!("{}: {reason}. Until this is fixed, nothing in it is trusted", path.display());
            Self { warnings: vec![warning], ..Self::default() }
        };
        let text = match text {
            FileText::Missing => return Self::default(),
            FileText::Empty => return unusable(EMPTY),
            FileText::Unusable { reason, .. } => return unusable(&reason),
            FileText::Readable { others_may_write: true, .. } => {
                return unusable(&format!(
                    "other users may write to this file; run: chmod 600 {}",
                    path.display()
                ));
            }
            FileText::Readable { text, others_may_write: false } => text,
        };
        let Ok(document) = Document::parse(text.as_str()) else { return unusable("it is not TOML") };
        let tables = document.get("server").and_then(Item::as_array_of_tables);
        // A rule is carried over only once, so that revoked consent stays revoked.
        let is_list = |item: &Item| item.as_array().is_some_and(|list| list.iter().all(Value::is_str));
        if document.get("carried_over").is_some_and(|item| !is_list(item)) {
            return unusable("carried_over must be a list of rules");
        }
        let carried = document.get("carried_over").and_then(Item::as_array);
        Self {
            warnings: Vec::new(),
            servers: tables.into_iter().flatten().filter_map(server).collect(),
            commands: unsandboxed_commands::commands(&document),
            carried_over: carried
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        }
    }

    fn trusts(&self, folder: &Path, digest: &str) -> Option<&TrustedServer> {
        self.servers.iter().find(|server| server.folder == folder && server.digest == digest)
    }
}

fn server(table: &Table) -> Option<TrustedServer> {
    let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
    Some(TrustedServer { folder: text("folder")?.into(), name: text("name")?, digest: text("digest")? })
}

/// A change to the servers in the file.
enum TrustChange<'a> {
    Add(&'a TrustedServer),
    /// Those with this name or digest, in this folder or in any.
    Remove {
        named: &'a str,
        folder: Option<&'a Path>,
    },
    /// A rule of an earlier version, and what it means here.
    CarryOver {
        rule: &'a str,
        server: &'a TrustedServer,
    },
}

impl Rulebook {
    /// Everything that the owner has consented to, and warnings about the file.
    pub fn trusted(&self) -> (Vec<TrustedServer>, Vec<String>) {
        let file = self.inner.trust_file();
        (file.servers.clone(), file.warnings.clone())
    }

    /// Whether this program may start in this folder.
    pub fn trusts(&self, folder: &Path, digest: &str) -> bool {
        self.inner.trust_file().trusts(&real(folder), digest).is_some()
    }

    /// Records that the owner consents to this program in this folder. Returns whether that is new.
    pub fn trust(&self, folder: &Path, name: &str, digest: &str) -> Result<bool, RuleError> {
        let server = TrustedServer { folder: real(folder), name: name.into(), digest: digest.into() };
        self.inner.trust(&server).map_err(RuleError::File)
    }

    /// Revokes consent. Returns the revoked entries.
    pub fn untrust(&self, named: &str, folder: Option<&Path>) -> Result<Vec<TrustedServer>, RuleError> {
        let folder = folder.map(real);
        let change = TrustChange::Remove { named, folder: folder.as_deref() };
        let gone = self.inner.change_trust(&change).map_err(RuleError::File)?;
        for server in &gone {
            self.inner.announce_trust(None, server);
        }
        Ok(gone)
    }

    /// Converts a rule of an earlier version, in the person's own file, that allowed exactly this program. This
    /// happens once; from then on the digest counts. Returns the rule.
    pub fn carry_over(&self, folder: &Path, name: &str, digest: &str, subject: &str) -> Option<Arc<str>> {
        let folder = real(folder);
        let rule = self.inner.exact_rule(&folder, subject)?;
        let file = self.inner.trust_file();
        if file.carried_over.iter().any(|known| **known == *rule) {
            return None;
        }
        let server = TrustedServer { folder, name: name.into(), digest: digest.into() };
        let change = TrustChange::CarryOver { rule: &rule, server: &server };
        match self.inner.change_trust(&change) {
            Ok(new) if new.is_empty() => None,
            Ok(_) => {
                self.inner.announce_trust(Some(RuleEffect::Allow), &server);
                Some(rule)
            }
            Err(error) => {
                tracing::warn!(error, "a rule for an MCP server could not be carried over");
                None
            }
        }
    }
}

impl Inner {
    /// The effect of the owner's consent on a request to start a program that a project names, or a command outside
    /// the sandbox.
    pub(super) fn consent(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit> {
        let digest = request.consent.as_ref()?;
        let file = self.trust_file();
        if request.consent_kind() == Some(ConsentKind::LeaveFence) {
            return unsandboxed_commands::hit(
                &file,
                &real(workspace),
                digest,
                &self.display_path(&self.trust_path()),
            );
        }
        file.trusts(&real(workspace), digest).map(|server| RuleHit {
            effect: RuleEffect::Allow,
            rule: format!("{SERVER_CONSENT} {}", server.name).into(),
            source: self.display_path(&self.trust_path()).into(),
            exact: true,
            consent: true,
        })
    }

    /// Stores the owner's answer "always".
    pub(super) fn consented(
        self: &Arc<Self>,
        folder: PathBuf,
        subject: &str,
        digest: &str,
    ) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let name = subject.split_once(": ").map_or(subject, |(name, _)| name).to_owned();
        let server = TrustedServer { folder, name, digest: digest.into() };
        let inner = Arc::clone(self);
        Box::pin(async move {
            let text: Arc<str> = format!("{SERVER_CONSENT} {}", server.name).into();
            let written = tokio::task::spawn_blocking(move || inner.trust(&server)).await;
            written
                .map_err(|_| "saving the consent failed unexpectedly; this is a bug".to_owned())?
                .map(|_| text)
        })
    }

    /// Returns whether it is new.
    pub(super) fn trust(&self, server: &TrustedServer) -> Result<bool, String> {
        let new = !self.change_trust(&TrustChange::Add(server))?.is_empty();
        if new {
            self.announce_trust(Some(RuleEffect::Allow), server);
        }
        Ok(new)
    }

    pub(super) fn trust_path(&self) -> PathBuf {
        trusted_file(&self.paths.user)
    }

    /// Read each time: this is asked when a session first meets a project and before a command leaves the
    /// sandbox, not with every call.
    pub(super) fn trust_file(&self) -> TrustFile {
        let path = self.trust_path();
        let file = TrustFile::new(&path, rule_file_text::read(&path).1);
        for warning in &file.warnings {
            tracing::warn!(warning, "until this is fixed, nothing that needs the owner's consent is trusted");
        }
        file
    }

    fn announce_trust(&self, effect: Option<RuleEffect>, server: &TrustedServer) {
        self.announce(RuleChange {
            effect,
            rule: format!("{SERVER_CONSENT}({} {})", server.name, server.digest).into(),
            folder: Some(server.folder.clone()),
            file: self.trust_path(),
        });
    }

    /// The rule in the person's own file that allows exactly this, if there is one.
    fn exact_rule(&self, folder: &Path, subject: &str) -> Option<Arc<str>> {
        let wanted = Rule::exact(SERVER_CONSENT, subject, folder)?;
        let mut state = self.state();
        state.user.refresh(|file| &file.warnings);
        let file = Arc::clone(state.user.value());
        drop(state);
        let holds = |project: &Option<Arc<Path>>| project.as_deref().is_none_or(|of| real(of) == *folder);
        file.entries
            .iter()
            .filter(|entry| entry.effect == RuleEffect::Allow && holds(&entry.project))
            .find(|entry| entry.rule.as_deref() == Some(&wanted))
            .map(|entry| Arc::clone(&entry.text))
    }

    /// Changes the servers. Returns the entries that were added or removed.
    fn change_trust(&self, change: &TrustChange<'_>) -> Result<Vec<TrustedServer>, String> {
        self.rewrite_trust(|file, document| {
            let mut changed = Vec::new();
            match change {
                TrustChange::Add(server) => add(&mut file.servers, server, &mut changed),
                TrustChange::Remove { named, folder } => {
                    let gone = |server: &TrustedServer| {
                        (server.name == *named || server.digest == *named)
                            && folder.is_none_or(|folder| folder == server.folder)
                    };
                    (changed, file.servers) = std::mem::take(&mut file.servers).into_iter().partition(gone);
                }
                TrustChange::CarryOver { rule, server } => {
                    if file.carried_over.iter().any(|known| known == rule) {
                        return Ok(Vec::new());
                    }
                    let carried = document.entry("carried_over").or_insert_with(|| Array::new().into());
                    carried.as_array_mut().ok_or("carried_over must be a list")?.push(*rule);
                    add(&mut file.servers, server, &mut changed);
                    changed = vec![(*server).clone()];
                }
            }
            Ok(changed)
        })
    }

    /// Changes the file completely or not at all, and not if the edit changes nothing. Returns what the edit changed.
    pub(super) fn rewrite_trust<T>(
        &self,
        edit: impl FnOnce(&mut TrustFile, &mut DocumentMut) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, String> {
        let path = self.trust_path();
        let path = path.canonicalize().unwrap_or(path);
        let folder = path.parent().ok_or("the file has no folder")?;
        rule_writer::make_folder(folder, FileOwner::User)
            .map_err(|error| format!("could not create {}: {error}", folder.display()))?;
        let _held = rule_writer::lock_folder(folder)?;
        let read = rule_file_text::read(&path).1;
        let mut file = TrustFile::new(&path, read.clone());
        if let Some(warning) = file.warnings.first() {
            return Err(warning.clone());
        }
        let text = if let FileText::Readable { text, .. } = read { text } else { String::new() };
        let mut document: DocumentMut =
            text.parse().map_err(|_| format!("{} is not TOML; fix it first", path.display()))?;
        let changed = edit(&mut file, &mut document)?;
        if changed.is_empty() {
            return Ok(changed);
        }
        put(&mut document, &file.servers)?;
        unsandboxed_commands::put(&mut document, &file.commands)?;
        // Replacing the first entry removes the comment above it, so it is written again. It also keeps the file from being
        // empty.
        let text = document.to_string();
        let header = if text.trim_start().starts_with('#') { "" } else { HEADER };
        rule_writer::replace(&path, &format!("{header}{text}"), FileOwner::User)
            .map_err(|error| format!("could not write {}: {error}", path.display()))?;
        Ok(changed)
    }
}

fn add(servers: &mut Vec<TrustedServer>, server: &TrustedServer, changed: &mut Vec<TrustedServer>) {
    if !servers.contains(server) {
        servers.push(server.clone());
        changed.push(server.clone());
    }
}

fn put(document: &mut DocumentMut, servers: &[TrustedServer]) -> Result<(), String> {
    if servers.is_empty() && !document.contains_key("server") {
        return Ok(());
    }
    let mut tables = ArrayOfTables::new();
    for server in servers {
        let folder = server.folder.to_str().ok_or("the path of this folder is not text in UTF-8")?;
        let mut table = Table::new();
        for (key, text) in
            [("folder", folder), ("name", server.name.as_str()), ("digest", server.digest.as_str())]
        {
            table.insert(key, Item::Value(text.into()));
        }
        tables.push(table);
    }
    document.insert("server", Item::ArrayOfTables(tables));
    Ok(())
}
