//! The permission rules that a person can read and edit, and the answers that were given once and for all.
//!
//! They are stored in files: one of the person, one of the project, and those of zeph and chimera for people who come
//! from there. A project's file may only narrow what is allowed: the author of a project is not the person who runs the
//! agent.
//!
//! **Invariant:** nothing in a workspace allows anything.
//! **Invariant:** a rule that cannot be read or understood allows nothing, and a warning reports it. Where it may deny
//! something, everything is asked until it is repaired.

mod cached_file;
mod chimera;
mod command_line;
mod evaluate;
mod glob;
mod hypothetical_request;
mod option_spellings;
mod request_to_match;
mod rule;
mod rule_file_parser;
mod rule_file_text;
mod rule_writer;
mod salvage;
mod started_programs;
#[cfg(test)]
mod tests;
mod tool_names;
mod trusted_servers;
mod unsandboxed_commands;
mod zeph;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use engine::{
    AskRequest, BoxFuture, ConsentKind, Opaque, PermissionRules, RememberedAnswer, RuleEffect, RuleHit,
    RuleScope,
};

pub use self::hypothetical_request::hypothetical_request;
pub use self::rule_writer::lock_folder;
pub use self::trusted_servers::{TrustedServer, trusted_file};
pub use self::unsandboxed_commands::{UnsandboxedCommand, assess_unsandboxed, editor_terminal_digest};

use self::cached_file::CachedFile;
use self::chimera::ChimeraFile;
use self::evaluate::{ActiveRule, EffectiveRules};
use self::rule::Rule;
use self::rule_file_parser::{Entry, FileOwner, RuleFile};
use self::rule_writer::{RuleEdit, RuleEditOutcome};
use self::zeph::ZephFile;

/// Workspaces whose rules are cached; for more of them the cache is cleared.
const WORKSPACES_MAX: usize = 64;
/// An "always" answer about a longer command holds until the server stops; it is not written as a rule, which nobody
/// could read.
const RULE_BYTES_MAX: usize = 8 << 10;

const PROJECT_FILE: &str = ".ropewalk/permissions.toml";

/// The paths of the rule files.
#[derive(Debug, Clone, Default)]
pub struct RulePaths {
    /// The person's own file.
    pub user: PathBuf,
    /// zeph's `acp-permissions.toml`, which is only read.
    pub zeph: Option<PathBuf>,
    /// chimera's `permissions.json`, which is only read.
    pub chimera: Option<PathBuf>,
    /// What `~/` stands for.
    pub home: Option<PathBuf>,
}

/// All rules of a person, for every folder. A changed file is read again within a second.
pub struct Rulebook {
    inner: Arc<Inner>,
}

/// Where a rule applies, and which file it is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleLocation {
    /// In every folder: the person's file.
    Everywhere,
    /// In this folder: the person's file.
    Folder(PathBuf),
    /// In this folder, for everybody who works there: the project's file.
    ProjectFile(PathBuf),
}

/// A rule that was added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// `None` if it was removed.
    pub effect: Option<RuleEffect>,
    pub rule: Arc<str>,
    /// The only folder that it applies in.
    pub folder: Option<PathBuf>,
    pub file: PathBuf,
}

/// The result of adding or removing a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEditResult {
    /// The file that holds the rule.
    pub file: PathBuf,
    /// The file already was as requested, so nothing changed.
    pub unchanged: bool,
    /// The effect that the rule had in that file before.
    pub previous: Option<RuleEffect>,
}

/// A source of rules as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    /// Its name: user, project, zeph, chimera, answers.
    pub name: &'static str,
    pub path: Option<PathBuf>,
    pub exists: bool,
    pub warnings: Vec<String>,
    pub rules: Vec<ListedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRule {
    /// As it takes effect, which may be less than was written.
    pub effect: RuleEffect,
    pub rule: Arc<str>,
    /// The folder that it applies in, if not in all of them.
    pub folder: Option<PathBuf>,
    pub line: Option<usize>,
    /// It has no effect; a warning explains why.
    pub ignored: bool,
}

/// A rule file that cannot be read completely. Everything is asked until it is repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDamage {
    pub path: PathBuf,
    /// What is wrong, and in which line.
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The text is not a rule; the message says what to write.
    #[error("{0}")]
    Malformed(String),
    /// Such a rule must not be in that file.
    #[error("{0}")]
    Refused(String),
    /// The file cannot be changed.
    #[error("{0}")]
    File(String),
}

struct Inner {
    paths: RulePaths,
    state: Mutex<State>,
    /// Answers are written one after the other, in the order in which they were given.
    writing: Mutex<()>,
    /// Called with every rule that is added or removed.
    listener: OnceLock<Box<dyn Fn(RuleChange) + Send + Sync>>,
}

struct State {
    user: CachedFile<RuleFile>,
    zeph: CachedFile<ZephFile>,
    chimera: CachedFile<ChimeraFile>,
    workspaces: HashMap<PathBuf, WorkspaceRules>,
    /// Answers that were given and are not yet in the file.
    answers: Vec<PendingAnswer>,
    answers_given: u64,
}

/// The cached rules of one workspace.
struct WorkspaceRules {
    real: PathBuf,
    file: CachedFile<RuleFile>,
    view: Option<Arc<EffectiveRules>>,
}

#[derive(Clone)]
struct PendingAnswer {
    number: u64,
    workspace: PathBuf,
    effect: RuleEffect,
    rule: Rule,
}

impl Rulebook {
    pub fn new(paths: RulePaths) -> Self {
        let state = State {
            user: CachedFile::new(paths.user.clone(), |path, text| {
                RuleFile::new(path, text, FileOwner::User)
            }),
            zeph: CachedFile::new(paths.zeph.clone().unwrap_or_default(), ZephFile::new),
            chimera: CachedFile::new(paths.chimera.clone().unwrap_or_default(), ChimeraFile::new),
            workspaces: HashMap::new(),
            answers: Vec::new(),
            answers_given: 0,
        };
        let (state, writing) = (Mutex::new(state), Mutex::new(()));
        Self { inner: Arc::new(Inner { paths, state, writing, listener: OnceLock::new() }) }
    }

    /// Calls `listener` with every rule that is added or removed from now on. Only the first listener is kept.
    pub fn on_change(&self, listener: impl Fn(RuleChange) + Send + Sync + 'static) {
        self.inner.listener.get_or_init(|| Box::new(listener));
    }

    /// Every rule that matches a request; [`PermissionRules::find`] returns the one that decides.
    pub fn matching(&self, workspace: &Path, request: &AskRequest) -> Vec<RuleHit> {
        self.inner.effective_rules(workspace).all(request)
    }

    /// Every source of rules for this folder, whether it exists or not.
    pub fn sources(&self, workspace: &Path) -> Vec<RuleSource> {
        self.inner.expire();
        drop(self.inner.effective_rules(workspace));
        self.inner.sources(workspace)
    }

    /// The rule files that cannot be read: the person's, and those of every folder that was asked for.
    pub fn damage(&self) -> Vec<RuleDamage> {
        self.inner.damage()
    }

    /// Adds a rule. The same rule with another effect is replaced.
    pub fn add(
        &self,
        location: &RuleLocation,
        effect: RuleEffect,
        rule: &str,
    ) -> Result<RuleEditResult, RuleError> {
        if effect == RuleEffect::Allow && matches!(location, RuleLocation::ProjectFile(_)) {
            return Err(RuleError::Refused(
                "a project can only deny and ask, not allow, because its authors are not the person who runs the agent"
                    .into(),
            ));
        }
        let rule = parse(rule, effect)?;
        self.change(location, &RuleEdit::Add(effect, rule))
    }

    /// Removes a rule, whatever its effect was. `unchanged` is true if it was not there.
    pub fn remove(&self, location: &RuleLocation, rule: &str) -> Result<RuleEditResult, RuleError> {
        let rule = parse(rule, RuleEffect::Deny)?;
        self.change(location, &RuleEdit::Remove(rule))
    }

    fn change(&self, location: &RuleLocation, change: &RuleEdit) -> Result<RuleEditResult, RuleError> {
        let (file, owner, folder) = match location {
            RuleLocation::Everywhere => (self.inner.paths.user.clone(), FileOwner::User, None),
            RuleLocation::Folder(folder) => {
                (self.inner.paths.user.clone(), FileOwner::User, Some(real(folder)))
            }
            RuleLocation::ProjectFile(folder) => (project_file(&real(folder))?, FileOwner::Project, None),
        };
        let done = rule_writer::change(&file, owner, folder.as_deref(), change).map_err(RuleError::File)?;
        self.inner.expire();
        let RuleEditOutcome { changed, previous } = done;
        if changed {
            let (effect, rule) = match change {
                RuleEdit::Add(effect, rule) => (Some(*effect), Arc::clone(&rule.text)),
                RuleEdit::Remove(rule) => (None, Arc::clone(&rule.text)),
            };
            self.inner.announce(RuleChange { effect, rule, folder, file: file.clone() });
        }
        Ok(RuleEditResult { file, unchanged: !changed, previous })
    }
}

impl PermissionRules for Rulebook {
    fn find(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit> {
        let hit = self.inner.effective_rules(workspace).find(request);
        if !request.is_consent() {
            return hit;
        }
        // A rule may still deny it; only consent to exactly this program or command allows it.
        let narrowing = hit.filter(|hit| hit.effect != RuleEffect::Allow);
        let consent = self.inner.consent(workspace, request);
        narrowing.into_iter().chain(consent).max_by_key(|hit| hit.effect)
    }

    fn damage(&self) -> Option<String> {
        let first = self.inner.damage().into_iter().next()?;
        Some(format!("{}: {}", first.path.display(), first.reason))
    }

    fn rule_of(&self, workspace: &Path, request: &AskRequest) -> Option<Arc<str>> {
        let workspace = &self.inner.effective_rules(workspace).workspace;
        let rule = Rule::of_answer(&request.tool, &request.subject, &RuleScope::Shown, workspace)?;
        (rule.text.len() <= RULE_BYTES_MAX).then_some(rule.text)
    }

    fn arguments_key(&self, tool: &str, subject: &str, input: &Opaque) -> String {
        rule::arguments_key(tool, subject, input)
    }

    fn remember(&self, answer: RememberedAnswer) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let workspace = real(&answer.workspace);
        let kind = ConsentKind::of(&answer.tool, answer.consent.as_deref());
        match (kind, answer.consent) {
            (Some(ConsentKind::LeaveFence), Some(digest)) => {
                return self.inner.answered_outside(workspace, &answer.subject, &digest, answer.allow);
            }
            (Some(ConsentKind::ProjectProgram), Some(digest)) if answer.allow => {
                return self.inner.consented(workspace, &answer.subject, &digest);
            }
            _ => {}
        }
        let Some(rule) = Rule::of_answer(&answer.tool, &answer.subject, &answer.scope, &workspace) else {
            let problem = format!("no rule can be written for this use of {}", answer.tool);
            return Box::pin(std::future::ready(Err(problem)));
        };
        let text = Arc::clone(&rule.text);
        let effect = if answer.allow { RuleEffect::Allow } else { RuleEffect::Deny };
        let number = self.inner.add_pending_answer(workspace, effect, rule);
        if text.len() > RULE_BYTES_MAX {
            return Box::pin(std::future::ready(Err("the command is too long for a rule".into())));
        }
        let inner = Arc::clone(&self.inner);
        let change = RuleChange {
            effect: Some(effect),
            rule: Arc::clone(&text),
            folder: Some(real(&answer.workspace)),
            file: self.inner.paths.user.clone(),
        };
        Box::pin(async move {
            let write = move || inner.write_answers(number).inspect(|()| inner.announce(change));
            let written = tokio::task::spawn_blocking(write).await;
            written
                .map_err(|_| "saving the rule failed unexpectedly; this is a bug".to_owned())?
                .map(|()| text)
        })
    }
}

impl Inner {
    fn announce(&self, change: RuleChange) {
        if let Some(listener) = self.listener.get() {
            listener(change);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that apply in a folder. Files that changed are read again, after a second at most.
    fn effective_rules(&self, workspace: &Path) -> Arc<EffectiveRules> {
        let mut state = self.state();
        let mut fresh = state.user.refresh(|file| &file.warnings);
        fresh |= state.zeph.refresh(|file| &file.warnings);
        fresh |= state.chimera.refresh(|file| &file.warnings);
        if fresh {
            state.workspaces.values_mut().for_each(|workspace_rules| workspace_rules.view = None);
        }
        if !state.workspaces.contains_key(workspace) {
            if state.workspaces.len() >= WORKSPACES_MAX {
                state.workspaces.clear();
            }
            state.workspaces.insert(workspace.to_owned(), WorkspaceRules::new(workspace));
        }
        let State { user, zeph, chimera, workspaces, answers, .. } = &mut *state;
        let Some(workspace_rules) = workspaces.get_mut(workspace) else {
            return Arc::new(self.build(&WorkspaceRules::new(workspace), user, zeph, chimera, answers));
        };
        if workspace_rules.file.refresh(|file| &file.warnings) {
            workspace_rules.view = None;
        }
        if let Some(view) = &workspace_rules.view {
            return Arc::clone(view);
        }
        let view = Arc::new(self.build(workspace_rules, user, zeph, chimera, answers));
        workspace_rules.view = Some(Arc::clone(&view));
        view
    }

    fn build(
        &self,
        workspace_rules: &WorkspaceRules,
        user: &CachedFile<RuleFile>,
        zeph: &CachedFile<ZephFile>,
        chimera: &CachedFile<ChimeraFile>,
        answers: &[PendingAnswer],
    ) -> EffectiveRules {
        let here: Vec<&PendingAnswer> =
            answers.iter().filter(|answer| answer.workspace == workspace_rules.real).collect();
        let answered = |entry: &Entry| {
            entry.project.is_some() && here.iter().any(|answer| entry.rule.as_deref() == Some(&answer.rule))
        };
        let entries = user.value().entries.iter().filter(|entry| !answered(entry));
        let mut rules: Vec<ActiveRule> =
            entries.filter_map(|entry| self.active_rule(entry, workspace_rules, &user.path)).collect();
        let narrowing = workspace_rules.file.value().entries.iter();
        rules.extend(
            narrowing
                .filter_map(|entry| self.active_rule(entry, workspace_rules, &workspace_rules.file.path)),
        );
        rules.extend(here.iter().map(|answer| ActiveRule {
            effect: answer.effect,
            rule: Arc::new(answer.rule.clone()),
            source: "an earlier answer".into(),
            base: workspace_rules.real.as_path().into(),
        }));
        EffectiveRules {
            workspace: workspace_rules.real.clone(),
            home: self.paths.home.clone(),
            rules,
            zeph: (Arc::clone(zeph.value()), self.display_path(&zeph.path).into()),
            chimera: (Arc::clone(chimera.value()), self.display_path(&chimera.path).into()),
            damage: damaged_files(user, zeph, chimera, [&workspace_rules.file])
                .map(|RuleDamage { path, reason }| format!("{}: {reason}", self.display_path(&path)).into())
                .collect(),
        }
    }

    fn damage(&self) -> Vec<RuleDamage> {
        let mut state = self.state();
        state.user.refresh(|file| &file.warnings);
        state.zeph.refresh(|file| &file.warnings);
        state.chimera.refresh(|file| &file.warnings);
        for workspace_rules in state.workspaces.values_mut() {
            workspace_rules.file.refresh(|file| &file.warnings);
            workspace_rules.view = None;
        }
        let State { user, zeph, chimera, workspaces, .. } = &*state;
        damaged_files(user, zeph, chimera, workspaces.values().map(|workspace_rules| &workspace_rules.file))
            .collect()
    }

    /// The rule of an entry as it applies in a folder; `None` if it does not apply there.
    fn active_rule(
        &self,
        entry: &Entry,
        workspace_rules: &WorkspaceRules,
        file: &Path,
    ) -> Option<ActiveRule> {
        let base = match &entry.project {
            None => workspace_rules.real.clone(),
            Some(folder) => {
                let folder = real(folder);
                let holds = match entry.effect {
                    RuleEffect::Allow => workspace_rules.real == folder,
                    RuleEffect::Ask | RuleEffect::Deny => workspace_rules.real.starts_with(&folder),
                };
                holds.then_some(folder)?
            }
        };
        Some(ActiveRule {
            effect: entry.effect,
            rule: Arc::clone(entry.rule.as_ref()?),
            source: format!("{} line {}", self.display_path(file), entry.line).into(),
            base: base.into(),
        })
    }

    fn display_path(&self, path: &Path) -> String {
        let home = self.paths.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
        home.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
    }

    /// Makes the next access check every file again at once.
    fn expire(&self) {
        let mut state = self.state();
        state.user.expire();
        state.zeph.expire();
        state.chimera.expire();
        state.workspaces.values_mut().for_each(|workspace_rules| workspace_rules.file.expire());
    }

    fn add_pending_answer(&self, workspace: PathBuf, effect: RuleEffect, rule: Rule) -> u64 {
        let mut state = self.state();
        state.answers.retain(|answer| answer.workspace != workspace || answer.rule != rule);
        state.answers_given += 1;
        let number = state.answers_given;
        state.answers.push(PendingAnswer { number, workspace, effect, rule });
        state.workspaces.values_mut().for_each(|workspace_rules| workspace_rules.view = None);
        number
    }

    /// Writes all pending answers up to this one. Another call may have written it already.
    fn write_answers(&self, number: u64) -> Result<(), String> {
        let _order = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: Vec<PendingAnswer> =
            self.state().answers.iter().filter(|answer| answer.number <= number).cloned().collect();
        let mut outcome = Ok(());
        for answer in waiting.into_iter().filter(|answer| answer.rule.text.len() <= RULE_BYTES_MAX) {
            let change = RuleEdit::Add(answer.effect, answer.rule);
            let written =
                rule_writer::change(&self.paths.user, FileOwner::User, Some(&answer.workspace), &change);
            match written {
                Ok(_) => {
                    let mut state = self.state();
                    state.answers.retain(|other| other.number != answer.number);
                    state.user.expire();
                    state.workspaces.values_mut().for_each(|workspace_rules| workspace_rules.view = None);
                }
                Err(error) if answer.number == number => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }

    fn sources(&self, workspace: &Path) -> Vec<RuleSource> {
        let state = self.state();
        let workspace_rules = state.workspaces.get(workspace);
        let foreign =
            |name, path: &Path, exists, warnings: &[String], lines: Vec<(RuleEffect, String)>| RuleSource {
                name,
                path: Some(path.to_owned()),
                exists,
                warnings: warnings.to_vec(),
                rules: lines
                    .into_iter()
                    .map(|(effect, rule)| ListedRule::plain(effect, rule.into()))
                    .collect(),
            };
        let mut sources = vec![file_source("user", &state.user)];
        sources.extend(workspace_rules.map(|workspace_rules| file_source("project", &workspace_rules.file)));
        if self.paths.zeph.is_some() {
            let file = state.zeph.value();
            sources.push(foreign("zeph", &state.zeph.path, file.exists, &file.warnings, file.lines()));
        }
        if self.paths.chimera.is_some() {
            let file = state.chimera.value();
            sources.push(foreign("chimera", &state.chimera.path, file.exists, &file.warnings, file.lines()));
        }
        let here = |answer: &&PendingAnswer| {
            workspace_rules.is_some_and(|workspace_rules| workspace_rules.real == answer.workspace)
        };
        let answers: Vec<ListedRule> = state.answers.iter().filter(here).map(ListedRule::answer).collect();
        if !answers.is_empty() {
            let source = RuleSource {
                name: "answers",
                path: None,
                exists: true,
                warnings: Vec::new(),
                rules: answers,
            };
            sources.push(source);
        }
        sources
    }
}

impl WorkspaceRules {
    fn new(workspace: &Path) -> Self {
        let real = real(workspace);
        // The rules of a project also apply to a session in a folder below it: they only narrow.
        let above = project_folders(&real).find(|folder| may_exist(&folder.join(PROJECT_FILE)));
        let path = above.unwrap_or(&real).join(PROJECT_FILE);
        let file = CachedFile::new(path, |path, text| RuleFile::new(path, text, FileOwner::Project));
        Self { real, file, view: None }
    }
}

impl ListedRule {
    fn plain(effect: RuleEffect, rule: Arc<str>) -> Self {
        Self { effect, rule, folder: None, line: None, ignored: false }
    }

    fn answer(answer: &PendingAnswer) -> Self {
        Self {
            folder: Some(answer.workspace.clone()),
            ..Self::plain(answer.effect, Arc::clone(&answer.rule.text))
        }
    }
}

fn damaged_files<'a>(
    user: &'a CachedFile<RuleFile>,
    zeph: &'a CachedFile<ZephFile>,
    chimera: &'a CachedFile<ChimeraFile>,
    projects: impl IntoIterator<Item = &'a CachedFile<RuleFile>>,
) -> impl Iterator<Item = RuleDamage> {
    let own = [
        (&user.path, &user.value().damage),
        (&zeph.path, &zeph.value().damage),
        (&chimera.path, &chimera.value().damage),
    ];
    let projects = projects.into_iter().map(|file| (&file.path, &file.value().damage));
    own.into_iter()
        .chain(projects)
        .filter_map(|(path, damage)| Some(RuleDamage { path: path.clone(), reason: damage.clone()? }))
}

/// Whether a file exists at this path, or may exist for all that can be found out.
fn may_exist(path: &Path) -> bool {
    let absent = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
    };
    !std::fs::symlink_metadata(path).is_err_and(|error| absent(&error))
}

fn file_source(name: &'static str, file: &CachedFile<RuleFile>) -> RuleSource {
    let rule = |entry: &Entry| ListedRule {
        effect: entry.effect,
        rule: Arc::clone(&entry.text),
        folder: entry.project.as_deref().map(Path::to_owned),
        line: Some(entry.line),
        ignored: entry.rule.is_none(),
    };
    RuleSource {
        name,
        path: Some(file.path.clone()),
        exists: file.value().exists,
        warnings: file.value().warnings.clone(),
        rules: file.value().entries.iter().map(rule).collect(),
    }
}

fn parse(text: &str, effect: RuleEffect) -> Result<Rule, RuleError> {
    Rule::parse(text, effect)
        .map_err(|malformed| RuleError::Malformed(format!("{text}: {}", malformed.reason)))
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A folder and its parents, up to the root of the repository.
fn project_folders(workspace: &Path) -> impl Iterator<Item = &Path> {
    let repository = workspace.ancestors().find(|folder| folder.join(".git").exists());
    let last = repository.unwrap_or(workspace);
    workspace.ancestors().take_while(move |folder| folder.starts_with(last))
}

/// The path of the project's file, unless a link in the project leads elsewhere.
fn project_file(folder: &Path) -> Result<PathBuf, RuleError> {
    let file = folder.join(PROJECT_FILE);
    let led_away = |path: &Path| path.canonicalize().is_ok_and(|real| real != path);
    if led_away(&file) || file.parent().is_some_and(led_away) {
        return Err(RuleError::Refused(format!(
            "{} is a link, and rules are not written through links",
            file.display()
        )));
    }
    Ok(file)
}
