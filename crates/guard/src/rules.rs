//! The rules that a person can read and edit, and the answers that were given once and for all.
//!
//! They are kept in files: one of the person, one of the project, and those of zeph and chimera for
//! people who come from there. What a project says may only narrow what is allowed: whoever wrote the
//! project is not whoever runs the agent.
//!
//! **Invariant:** nothing in a workspace allows anything.
//! **Invariant:** what cannot be read or understood allows nothing, and a warning says so. Where it
//! may deny something, everything is asked until it is repaired.

mod chimera;
mod file;
mod glob;
mod imagined;
mod judge;
mod kept;
mod line;
mod outside;
mod rule;
mod salvage;
mod spellings;
mod starts;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod tool;
mod trust;
mod wish;
mod zeph;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use engine::{AskRequest, BoxFuture, ConsentKind, Opaque, Remembered, RuleEffect, RuleHit, RuleScope, Rules};

pub use self::imagined::imagined;
pub use self::outside::{OutsideCommand, assess_outside, outside_digest};
pub use self::store::lock_folder;
pub use self::trust::{TrustedServer, trusted_file};

use self::chimera::ChimeraFile;
use self::file::{Entry, Owner, RuleFile};
use self::judge::{Held, View};
use self::kept::Kept;
use self::rule::Rule;
use self::store::{Change, Done};
use self::zeph::ZephFile;

/// Folders whose rules are kept ready; more are read anew.
const PLACES_MAX: usize = 64;
/// A longer command is allowed until the server stops, but makes no rule that anybody could read.
const RULE_BYTES_MAX: usize = 8 << 10;

const PROJECT_FILE: &str = ".ropewalk/permissions.toml";

/// Where rules are kept.
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

/// All rules of a person, for every folder. It notices within a second that a file has changed.
pub struct Rulebook {
    inner: Arc<Inner>,
}

/// Where a rule is to hold, and which file says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// In every folder: the person's file.
    Everywhere,
    /// In this folder: the person's file.
    Folder(PathBuf),
    /// In this folder, for everybody who works there: the project's file.
    ProjectFile(PathBuf),
}

/// A rule that was written or taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// None if it was taken out.
    pub effect: Option<RuleEffect>,
    pub rule: Arc<str>,
    /// The only folder that it holds in.
    pub folder: Option<PathBuf>,
    pub file: PathBuf,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The file that holds the rule.
    pub file: PathBuf,
    /// Nothing was to be done.
    pub already: bool,
    /// The effect that the rule had there before.
    pub before: Option<RuleEffect>,
}

/// A file of rules as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    /// What it is: user, project, zeph, chimera, answers.
    pub name: &'static str,
    pub path: Option<PathBuf>,
    pub exists: bool,
    pub warnings: Vec<String>,
    pub rules: Vec<ListedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRule {
    /// As it counts.
    pub effect: RuleEffect,
    pub rule: Arc<str>,
    /// The folder that it holds in, if not in all of them.
    pub folder: Option<PathBuf>,
    pub line: Option<usize>,
    /// It has no effect; a warning says why.
    pub ignored: bool,
}

/// A file of rules that cannot be read, or not as a whole. Everything is asked until it is repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDamage {
    pub path: PathBuf,
    /// What is wrong, and in which line.
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The text is no rule; this says what to write.
    #[error("{0}")]
    Malformed(String),
    /// It must not stand there.
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
    /// Who is told of changes.
    told: OnceLock<Box<dyn Fn(RuleChange) + Send + Sync>>,
}

struct State {
    user: Kept<RuleFile>,
    zeph: Kept<ZephFile>,
    chimera: Kept<ChimeraFile>,
    places: HashMap<PathBuf, Place>,
    /// Given here and not yet in the file.
    answers: Vec<Given>,
    answers_given: u64,
}

/// What is known of one workspace.
struct Place {
    real: PathBuf,
    file: Kept<RuleFile>,
    view: Option<Arc<View>>,
}

#[derive(Clone)]
struct Given {
    number: u64,
    workspace: PathBuf,
    effect: RuleEffect,
    rule: Rule,
}

impl Rulebook {
    pub fn new(paths: RulePaths) -> Self {
        let state = State {
            user: Kept::new(paths.user.clone(), |path, text| RuleFile::new(path, text, Owner::User)),
            zeph: Kept::new(paths.zeph.clone().unwrap_or_default(), ZephFile::new),
            chimera: Kept::new(paths.chimera.clone().unwrap_or_default(), ChimeraFile::new),
            places: HashMap::new(),
            answers: Vec::new(),
            answers_given: 0,
        };
        let (state, writing) = (Mutex::new(state), Mutex::new(()));
        Self { inner: Arc::new(Inner { paths, state, writing, told: OnceLock::new() }) }
    }

    /// Has somebody told of every rule that is written or taken out from here on. The first one counts.
    pub fn tell(&self, told: impl Fn(RuleChange) + Send + Sync + 'static) {
        self.inner.told.get_or_init(|| Box::new(told));
    }

    /// Every rule that has something to say of a wish; [`Rules::find`] gives the one that decides.
    pub fn matching(&self, workspace: &Path, request: &AskRequest) -> Vec<RuleHit> {
        self.inner.view(workspace).all(request)
    }

    /// Every source of rules for this folder, whether it exists or not.
    pub fn sources(&self, workspace: &Path) -> Vec<RuleSource> {
        self.inner.look_again();
        drop(self.inner.view(workspace));
        self.inner.sources(workspace)
    }

    /// The files of rules that cannot be read: the person's, and those of every folder that was asked for.
    /// Empty if all is well.
    pub fn damage(&self) -> Vec<RuleDamage> {
        self.inner.damage()
    }

    /// Writes a rule down. The same rule with another effect is replaced.
    pub fn add(&self, place: &Where, effect: RuleEffect, rule: &str) -> Result<Changed, RuleError> {
        if effect == RuleEffect::Allow && matches!(place, Where::ProjectFile(_)) {
            return Err(RuleError::Refused(
                "a project may deny and ask, not allow: whoever wrote it is not whoever runs the agent"
                    .into(),
            ));
        }
        let rule = parse(rule, effect)?;
        self.change(place, &Change::Put(effect, rule))
    }

    /// Takes a rule out, whatever its effect was. `already` is true if it was not there.
    pub fn remove(&self, place: &Where, rule: &str) -> Result<Changed, RuleError> {
        let rule = parse(rule, RuleEffect::Deny)?;
        self.change(place, &Change::Take(rule))
    }

    fn change(&self, place: &Where, change: &Change) -> Result<Changed, RuleError> {
        let (file, owner, folder) = match place {
            Where::Everywhere => (self.inner.paths.user.clone(), Owner::User, None),
            Where::Folder(folder) => (self.inner.paths.user.clone(), Owner::User, Some(real(folder))),
            Where::ProjectFile(folder) => (project_file(&real(folder))?, Owner::Project, None),
        };
        let done = store::change(&file, owner, folder.as_deref(), change).map_err(RuleError::File)?;
        self.inner.look_again();
        let Done { changed, before } = done;
        if changed {
            let (effect, rule) = match change {
                Change::Put(effect, rule) => (Some(*effect), Arc::clone(&rule.text)),
                Change::Take(rule) => (None, Arc::clone(&rule.text)),
            };
            self.inner.announce(RuleChange { effect, rule, folder, file: file.clone() });
        }
        Ok(Changed { file, already: !changed, before })
    }
}

impl Rules for Rulebook {
    fn find(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit> {
        let hit = self.inner.view(workspace).find(request);
        if !request.is_consent() {
            return hit;
        }
        // A rule may still refuse it; only consent to this very thing allows it.
        let narrowing = hit.filter(|hit| hit.effect != RuleEffect::Allow);
        let consent = self.inner.consent(workspace, request);
        narrowing.into_iter().chain(consent).max_by_key(|hit| hit.effect)
    }

    fn damage(&self) -> Option<String> {
        let first = self.inner.damage().into_iter().next()?;
        Some(format!("{}: {}", first.path.display(), first.reason))
    }

    fn rule_of(&self, workspace: &Path, request: &AskRequest) -> Option<Arc<str>> {
        let workspace = &self.inner.view(workspace).workspace;
        let rule = Rule::of_answer(&request.tool, &request.subject, &RuleScope::Shown, workspace)?;
        (rule.text.len() <= RULE_BYTES_MAX).then_some(rule.text)
    }

    fn arguments_key(&self, tool: &str, subject: &str, input: &Opaque) -> String {
        rule::arguments_key(tool, subject, input)
    }

    fn remember(&self, answer: Remembered) -> BoxFuture<'static, Result<Arc<str>, String>> {
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
        let number = self.inner.give(workspace, effect, rule);
        if text.len() > RULE_BYTES_MAX {
            return Box::pin(std::future::ready(Err("the command is too long to be kept as a rule".into())));
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
            written.map_err(|_| "writing the rule broke; this is a bug".to_owned())?.map(|()| text)
        })
    }
}

impl Inner {
    fn announce(&self, change: RuleChange) {
        if let Some(told) = self.told.get() {
            told(change);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that hold in a folder. Files that changed are read again, after a second at most.
    fn view(&self, workspace: &Path) -> Arc<View> {
        let mut state = self.state();
        let mut fresh = state.user.refresh(|file| &file.warnings);
        fresh |= state.zeph.refresh(|file| &file.warnings);
        fresh |= state.chimera.refresh(|file| &file.warnings);
        if fresh {
            state.places.values_mut().for_each(|place| place.view = None);
        }
        if !state.places.contains_key(workspace) {
            if state.places.len() >= PLACES_MAX {
                state.places.clear();
            }
            state.places.insert(workspace.to_owned(), Place::new(workspace));
        }
        let State { user, zeph, chimera, places, answers, .. } = &mut *state;
        let Some(place) = places.get_mut(workspace) else {
            return Arc::new(self.build(&Place::new(workspace), user, zeph, chimera, answers));
        };
        if place.file.refresh(|file| &file.warnings) {
            place.view = None;
        }
        if let Some(view) = &place.view {
            return Arc::clone(view);
        }
        let view = Arc::new(self.build(place, user, zeph, chimera, answers));
        place.view = Some(Arc::clone(&view));
        view
    }

    fn build(
        &self,
        place: &Place,
        user: &Kept<RuleFile>,
        zeph: &Kept<ZephFile>,
        chimera: &Kept<ChimeraFile>,
        answers: &[Given],
    ) -> View {
        let here: Vec<&Given> = answers.iter().filter(|given| given.workspace == place.real).collect();
        let answered = |entry: &Entry| {
            entry.project.is_some() && here.iter().any(|given| entry.rule.as_deref() == Some(&given.rule))
        };
        let entries = user.value().entries.iter().filter(|entry| !answered(entry));
        let mut rules: Vec<Held> = entries.filter_map(|entry| self.held(entry, place, &user.path)).collect();
        let narrowing = place.file.value().entries.iter();
        rules.extend(narrowing.filter_map(|entry| self.held(entry, place, &place.file.path)));
        rules.extend(here.iter().map(|given| Held {
            effect: given.effect,
            rule: Arc::new(given.rule.clone()),
            source: "an earlier answer".into(),
            base: place.real.as_path().into(),
        }));
        View {
            workspace: place.real.clone(),
            home: self.paths.home.clone(),
            rules,
            zeph: (Arc::clone(zeph.value()), self.shown(&zeph.path).into()),
            chimera: (Arc::clone(chimera.value()), self.shown(&chimera.path).into()),
            damage: damaged(user, zeph, chimera, [&place.file])
                .map(|RuleDamage { path, reason }| format!("{}: {reason}", self.shown(&path)).into())
                .collect(),
        }
    }

    fn damage(&self) -> Vec<RuleDamage> {
        let mut state = self.state();
        state.user.refresh(|file| &file.warnings);
        state.zeph.refresh(|file| &file.warnings);
        state.chimera.refresh(|file| &file.warnings);
        for place in state.places.values_mut() {
            place.file.refresh(|file| &file.warnings);
            place.view = None;
        }
        let State { user, zeph, chimera, places, .. } = &*state;
        damaged(user, zeph, chimera, places.values().map(|place| &place.file)).collect()
    }

    /// An entry as it holds in a folder; nothing if it does not.
    fn held(&self, entry: &Entry, place: &Place, file: &Path) -> Option<Held> {
        let base = match &entry.project {
            None => place.real.clone(),
            Some(folder) => {
                let folder = real(folder);
                let holds = match entry.effect {
                    RuleEffect::Allow => place.real == folder,
                    RuleEffect::Ask | RuleEffect::Deny => place.real.starts_with(&folder),
                };
                holds.then_some(folder)?
            }
        };
        Some(Held {
            effect: entry.effect,
            rule: Arc::clone(entry.rule.as_ref()?),
            source: format!("{} line {}", self.shown(file), entry.line).into(),
            base: base.into(),
        })
    }

    fn shown(&self, path: &Path) -> String {
        let home = self.paths.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
        home.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
    }

    /// The next look at a file is not put off.
    fn look_again(&self) {
        let mut state = self.state();
        state.user.look_again();
        state.zeph.look_again();
        state.chimera.look_again();
        state.places.values_mut().for_each(|place| place.file.look_again());
    }

    fn give(&self, workspace: PathBuf, effect: RuleEffect, rule: Rule) -> u64 {
        let mut state = self.state();
        state.answers.retain(|given| given.workspace != workspace || given.rule != rule);
        state.answers_given += 1;
        let number = state.answers_given;
        state.answers.push(Given { number, workspace, effect, rule });
        state.places.values_mut().for_each(|place| place.view = None);
        number
    }

    /// Writes all answers that wait, up to this one. Another call may have written it already.
    fn write_answers(&self, number: u64) -> Result<(), String> {
        let _order = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: Vec<Given> =
            self.state().answers.iter().filter(|given| given.number <= number).cloned().collect();
        let mut outcome = Ok(());
        for given in waiting.into_iter().filter(|given| given.rule.text.len() <= RULE_BYTES_MAX) {
            let change = Change::Put(given.effect, given.rule);
            let written = store::change(&self.paths.user, Owner::User, Some(&given.workspace), &change);
            match written {
                Ok(_) => {
                    let mut state = self.state();
                    state.answers.retain(|other| other.number != given.number);
                    state.user.look_again();
                    state.places.values_mut().for_each(|place| place.view = None);
                }
                Err(error) if given.number == number => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }

    fn sources(&self, workspace: &Path) -> Vec<RuleSource> {
        let state = self.state();
        let place = state.places.get(workspace);
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
        let mut sources = vec![listed("user", &state.user)];
        sources.extend(place.map(|place| listed("project", &place.file)));
        if self.paths.zeph.is_some() {
            let file = state.zeph.value();
            sources.push(foreign("zeph", &state.zeph.path, file.exists, &file.warnings, file.lines()));
        }
        if self.paths.chimera.is_some() {
            let file = state.chimera.value();
            sources.push(foreign("chimera", &state.chimera.path, file.exists, &file.warnings, file.lines()));
        }
        let here = |given: &&Given| place.is_some_and(|place| place.real == given.workspace);
        let answers: Vec<ListedRule> = state.answers.iter().filter(here).map(ListedRule::given).collect();
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

impl Place {
    fn new(workspace: &Path) -> Self {
        let real = real(workspace);
        // A session below the project's folder has its rules too: they only narrow.
        let above = project_folders(&real).find(|folder| may_exist(&folder.join(PROJECT_FILE)));
        let path = above.unwrap_or(&real).join(PROJECT_FILE);
        let file = Kept::new(path, |path, text| RuleFile::new(path, text, Owner::Project));
        Self { real, file, view: None }
    }
}

impl ListedRule {
    fn plain(effect: RuleEffect, rule: Arc<str>) -> Self {
        Self { effect, rule, folder: None, line: None, ignored: false }
    }

    fn given(given: &Given) -> Self {
        Self {
            folder: Some(given.workspace.clone()),
            ..Self::plain(given.effect, Arc::clone(&given.rule.text))
        }
    }
}

fn damaged<'a>(
    user: &'a Kept<RuleFile>,
    zeph: &'a Kept<ZephFile>,
    chimera: &'a Kept<ChimeraFile>,
    projects: impl IntoIterator<Item = &'a Kept<RuleFile>>,
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

/// Whether anything is under this name, or cannot be told not to be.
fn may_exist(path: &Path) -> bool {
    let absent = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
    };
    !std::fs::symlink_metadata(path).is_err_and(|error| absent(&error))
}

fn listed(name: &'static str, file: &Kept<RuleFile>) -> RuleSource {
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

/// A folder and those around it, up to the one that is a repository.
fn project_folders(workspace: &Path) -> impl Iterator<Item = &Path> {
    let repository = workspace.ancestors().find(|folder| folder.join(".git").exists());
    let last = repository.unwrap_or(workspace);
    workspace.ancestors().take_while(move |folder| folder.starts_with(last))
}

/// The project's file, unless something in the project leads its writer elsewhere.
fn project_file(folder: &Path) -> Result<PathBuf, RuleError> {
    let file = folder.join(PROJECT_FILE);
    let led_away = |path: &Path| path.canonicalize().is_ok_and(|real| real != path);
    if led_away(&file) || file.parent().is_some_and(led_away) {
        return Err(RuleError::Refused(format!(
            "{} is a link; rules are not written through it",
            file.display()
        )));
    }
    Ok(file)
}
