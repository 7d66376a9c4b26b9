//! Agents that are other programs: which one a command works with, and what it is started with.
//!
//! It is decided once, when the process starts, from the command line, the person's settings and the table
//! of known agents. A project has no say in it: whoever names a program has it started.

mod entries;
mod journal;
mod table;
mod words;

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::Reach;
use engine::Backend;
use external::{External, ExternalConfig, Folders, Patience};
use guard::is_secret_name;
use sandbox::{Limits, Mode, Policy};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use crate::cli::{AgentOptions, BudgetOptions, GuardOptions};
use crate::config::OURS;
use crate::guards::{self, Guards};
use crate::trouble::Trouble;
use crate::{hidden, paths, secrets};

pub use entries::{Entry, TYPOS_MAX, all, named, typos};
pub use words::{on_path, split};

/// An agent works with whole toolchains below it, and for as long as its sessions do.
const LIMITS: Limits = Limits {
    wall: Duration::ZERO,
    forward_bytes_max: u64::MAX,
    output_bytes_max: u64::MAX,
    grace: Duration::from_millis(500),
    processes_max: 4096,
    memory_bytes_max: 16 << 30,
    file_bytes_max: 16 << 30,
};
/// How long what the agent left running here may take to end.
const END_WAIT: Duration = Duration::from_secs(5);
/// A secret that is shorter would be found in every text.
const SECRET_CHARS_MIN: usize = 8;

/// An agent as it is started.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables that are set, and those that are passed on.
    pub environment: Vec<(String, String)>,
    pub pass: Vec<String>,
    pub own_folders: Vec<PathBuf>,
    /// What in them makes it run something when it is started.
    pub own_settings: Vec<PathBuf>,
    /// Files with its own credentials that lie in none of these; it reads them.
    pub secret_files: Vec<PathBuf>,
    /// It can work with the files of its client.
    pub files: bool,
    pub sandbox: Option<Mode>,
    /// Where everything that it says is noted.
    pub journal: Option<PathBuf>,
    /// What it said of itself is kept under this name.
    kept_as: String,
}

impl Chosen {
    /// The agent that somebody named, if it is here.
    pub fn of(entry: &Entry) -> Result<Self, Trouble> {
        Ok(Self {
            name: entry.name.clone(),
            program: entry.installed()?,
            arguments: entry.arguments.iter().map(OsString::from).collect(),
            environment: entry.environment.clone(),
            pass: entry.pass.clone(),
            own_folders: own_folders(entry),
            own_settings: below_homes(&entry.own_settings),
            secret_files: below_homes(&entry.secret_files),
            files: entry.files,
            sandbox: entry.sandbox,
            journal: None,
            kept_as: entry.name.clone(),
        })
    }

    /// A command that somebody wrote out.
    pub fn command(command: &[OsString]) -> Result<Self, Trouble> {
        let [program, arguments @ ..] = command else {
            return Err(Trouble::usage("there is no command").fix("ropewalk serve -- COMMAND ARGUMENTS"));
        };
        let path = paths::variable("PATH").unwrap_or_default();
        let found = program.to_str().and_then(|program| on_path(&path, program)).ok_or_else(|| {
            Trouble::failed(format!("there is no program {}", program.to_string_lossy()))
                .because("it is neither on your PATH nor a file that can be run")
                .fix("install it, or name it by its whole path")
        })?;
        let digest = Sha256::digest(command.join(OsString::from("\0").as_os_str()).as_encoded_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            name: words::label(command),
            program: found,
            arguments: arguments.to_vec(),
            environment: Vec::new(),
            pass: Vec::new(),
            own_folders: Vec::new(),
            own_settings: Vec::new(),
            secret_files: Vec::new(),
            files: true,
            sandbox: None,
            journal: None,
            kept_as: format!("command-{digest}"),
        })
    }

    /// A program that is known keeps its things where it always does, however it is started.
    fn with_known(self, known: Option<&Entry>) -> Self {
        let Some(entry) = known else { return self };
        let (environment, pass) = (entry.environment.clone(), entry.pass.clone());
        let (own_settings, secret_files) =
            (below_homes(&entry.own_settings), below_homes(&entry.secret_files));
        let own_folders = own_folders(entry);
        Self { environment, pass, own_folders, own_settings, secret_files, files: entry.files, ..self }
    }

    /// Those of the credentials that are hidden as other agents' which are this one's, also where a variable
    /// moves them elsewhere.
    fn own_secrets(&self, homes: &[PathBuf]) -> Vec<PathBuf> {
        let own = |(name, path): &(PathBuf, PathBuf)| {
            let lies_in = |own: &PathBuf| {
                let real = own.canonicalize().unwrap_or_else(|_| own.clone());
                let named = |home: &PathBuf| own.strip_prefix(home).is_ok_and(|own| name.starts_with(own));
                path.starts_with(real) || homes.iter().any(named)
            };
            self.own_folders.iter().chain(&self.secret_files).any(lies_in)
        };
        hidden::of_agents(homes).into_iter().filter(own).map(|(_, path)| path).collect()
    }

    /// What the command line and the settings say. Nothing: our own agent.
    fn wanted(
        options: &AgentOptions,
        command: &[OsString],
        guards: &Guards,
    ) -> Result<Option<Self>, Trouble> {
        if !command.is_empty() {
            let known = entries::running(&guards.config, &words::label(command))?;
            return Self::command(command).map(|chosen| Some(chosen.with_known(known.as_ref())));
        }
        let name = options.agent.as_deref().or(guards.config.agent.as_deref()).filter(|name| *name != OURS);
        name.map(|name| named(&guards.config, name).and_then(|entry| Self::of(&entry))).transpose()
    }

    /// The agent, not started yet. `home` is where sessions work whose client names no folder.
    pub fn backend(&self, guards: &Guards, home: &Path) -> Result<Outside, Trouble> {
        let secret =
            |(name, value): &&(String, String)| is_secret_name(name) && value.len() >= SECRET_CHARS_MIN;
        for (_, value) in self.environment.iter().filter(secret) {
            secrets::also(value);
        }
        let journal = self.journal.as_deref().map(|file| journal::begin(&self.name, file)).transpose()?;
        let config = ExternalConfig {
            name: self.name.as_str().into(),
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: paths::for_agent(&self.pass, &self.environment),
            own_folders: self.own_folders.iter().filter(|folder| made(folder)).cloned().collect(),
            own_settings: kept_settings(&self.own_settings, &self.own_folders),
            own_secrets: self.own_secrets(&guards.reach.homes),
            files: self.files,
            place: place(guards.reach.clone()),
            helper: guards.reach.helper.clone(),
            command_environment: paths::passed_on(&guards.config.environment),
            limits: LIMITS,
            editor_terminal: guards.reach.editor_terminal,
            home: home.to_owned(),
            greeting_file: Some(paths::agents()?.join(format!("{}.json", self.kept_as))),
            journal: journal.map(Arc::new),
            patience: Patience::default(),
            output: guards.config.models.limits.output(),
        };
        let tasks = TaskTracker::new();
        let external = Arc::new(External::new(config, tasks.clone()));
        Ok(Outside { name: self.name.as_str().into(), external, tasks })
    }
}

/// An agent of another program, ready to work.
#[derive(Clone)]
pub struct Outside {
    pub name: Arc<str>,
    external: Arc<External>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Outside {
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.external) as Arc<dyn Backend>
    }

    /// Starts the program before anybody needs it.
    pub fn warm(&self) {
        self.external.warm();
    }

    /// Starts the program and says what it answers, word for word.
    pub async fn check(&self) -> Result<Arc<str>, engine::ForeignError> {
        self.external.check().await
    }

    /// Ends the program and all that it started, after its sessions have ended.
    pub async fn end(&self) {
        self.external.end().await;
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(agent = %self.name, "something of the agent did not end");
        }
    }
}

/// What a command line says besides the agent's name, which means something for our own agent alone.
pub struct OnlyOurs<'a> {
    pub budget: &'a BudgetOptions,
    pub guard: &'a GuardOptions,
    /// The model of sessions that others begin: an agent of another program has models of its own.
    pub model: Option<&'a str>,
    pub estimate: bool,
}

impl OnlyOurs<'_> {
    fn first(&self) -> Option<&'static str> {
        let given = [
            ("--max-cost", self.budget.max_cost.is_some()),
            ("--max-turns", self.budget.max_turns.is_some()),
            ("--allowed-tools", self.guard.allowed_tools.is_some()),
            ("--no-rules", self.guard.no_rules),
            ("--model", self.model.is_some()),
            ("--estimate-cost", self.estimate),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// Decides who works. What would be promised and not kept is refused.
pub fn choose(
    guards: &mut Guards,
    options: &AgentOptions,
    command: &[OsString],
    only_ours: &OnlyOurs<'_>,
    home: &Path,
) -> Result<(), Trouble> {
    let Some(mut chosen) = Chosen::wanted(options, command, guards)? else {
        let theirs =
            [("--agent-env", !options.agent_env.is_empty()), ("--journal", options.journal.is_some())];
        return match theirs.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((option, _)) => Err(Trouble::usage(format!("{option} is for an agent of another program"))
                .fix("name one with --agent")),
        };
    };
    if let Some(option) = only_ours.first() {
        return Err(Trouble::usage(format!("{option} means nothing to {}", chosen.name))
            .because("it is kept by Ropewalk's own agent")
            .fix(format!("leave it out, or work with --agent {OURS}")));
    }
    chosen.pass.extend(options.agent_env.iter().cloned());
    chosen.journal = options.journal.clone();
    if let Some(mode) = chosen.sandbox.filter(|_| only_ours.guard.sandbox.is_none()) {
        if mode == Mode::Off && guards.reach.mode != Mode::Off {
            guards::warn(&format!(
                "the sandbox is off for {}: it reaches whatever you can reach",
                chosen.name
            ));
        }
        guards.reach.mode = mode;
    }
    guards.outside = Some(chosen.backend(guards, home)?);
    Ok(())
}

/// How far a session reaches: what holds for our own agent holds for others.
fn place(reach: Reach) -> external::Place {
    Arc::new(move |Folders { cwd, roots, within }| {
        let project = reach.project.and_then(|project| project(cwd));
        let further = roots.iter().chain(&reach.add_dirs).cloned();
        Policy {
            mode: project.map_or(reach.mode, |mode| mode.min(reach.mode)),
            roots: std::iter::once(cwd.to_owned()).chain(further).collect(),
            hidden: reach.hidden.clone(),
            homes: reach.homes.clone(),
            within: within.map(|within| within.iter().chain(&reach.add_dirs).cloned().collect()),
            ..Policy::default()
        }
    })
}

/// Where an agent keeps its own things, whether they are there or not.
pub fn own_folders(entry: &Entry) -> Vec<PathBuf> {
    below_homes(&entry.own_folders)
}

/// What an agent must not change of its own folders, where that really lies.
pub fn own_settings(entry: &Entry) -> Vec<PathBuf> {
    kept_settings(&below_homes(&entry.own_settings), &own_folders(entry))
}

/// The last names may be links, which stay what they are.
fn kept_settings(settings: &[PathBuf], folders: &[PathBuf]) -> Vec<PathBuf> {
    let real = |path: PathBuf| {
        let (folder, name) = (path.parent()?, path.file_name()?);
        Some(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).join(name))
    };
    let scripts = folders.iter().flat_map(|folder| scripts_in(folder));
    settings.iter().cloned().chain(scripts).filter_map(real).collect()
}

fn below_homes(written: &[String]) -> Vec<PathBuf> {
    written.iter().filter_map(|path| below_home(path)).collect()
}

/// What `~` means.
fn home() -> Option<PathBuf> {
    hidden::homes().ok()?.into_iter().next()
}

/// A folder as the person writes it.
fn below_home(folder: &str) -> Option<PathBuf> {
    match folder.strip_prefix("~/") {
        Some(below) => home().map(|home| home.join(below)),
        None => Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute()),
    }
}

/// Programs and scripts directly in a folder: settings name them, for a line of status, a notification, a hook.
fn scripts_in(folder: &Path) -> Vec<PathBuf> {
    const ENDINGS: [&str; 8] = ["sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb"];
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let runs = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let script = ending.is_some_and(|ending| ENDINGS.contains(&ending));
        path.metadata().is_ok_and(|data| data.is_file() && (script || data.permissions().mode() & 0o111 != 0))
    };
    entries.map(|entry| entry.path()).filter(runs).collect()
}

/// A fence can only let an agent into folders that are there, so its own are made before its first start.
fn made(folder: &Path) -> bool {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    if let Err(error) = &made {
        tracing::info!(folder = %folder.display(), %error, "a folder of the agent's own cannot be used");
    }
    made.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_an_external_agent_reaches_as_far_as_one_of_our_own() {
        let reach = Reach {
            mode: Mode::WorkspaceWriteNetwork,
            add_dirs: vec!["/more".into()],
            hidden: vec!["/secret".into()],
            project: Some(|folder| (folder == Path::new("/narrow")).then_some(Mode::ReadOnly)),
            homes: vec!["/home/me".into()],
            ..Reach::default()
        };
        let place = place(reach);
        let policy = place(Folders { cwd: Path::new("/work"), roots: &["/root".into()], within: None });
        assert_eq!(policy.mode, Mode::WorkspaceWriteNetwork);
        assert_eq!(policy.roots, ["/work", "/root", "/more"].map(PathBuf::from));
        assert_eq!(policy.hidden, [PathBuf::from("/secret")]);
        assert_eq!(policy.homes, [PathBuf::from("/home/me")]);
        let narrow = Folders { cwd: Path::new("/narrow"), roots: &[], within: Some(&["/work".into()]) };
        assert_eq!(place(narrow).mode, Mode::ReadOnly);
        assert_eq!(place(narrow).within, Some(vec!["/work".into(), "/more".into()]));
    }

    #[test]
    fn an_agent_sees_its_own_credentials_and_no_other_ones() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let agent = |own: &[&str], files: &[&str]| {
            let below = |names: &[&str]| names.iter().map(|name| home.join(name)).collect::<Vec<_>>();
            let chosen = Chosen::command(&split("/bin/sh").unwrap()).unwrap();
            let chosen = Chosen { own_folders: below(own), secret_files: below(files), ..chosen };
            chosen.own_secrets(std::slice::from_ref(&home))
        };
        let own = agent(&[".codex"], &[]);
        assert!(own.contains(&home.join(".codex/auth.json")) && !own.contains(&home.join(".claude.json")));
        let own = agent(&[".claude"], &[".claude.json"]);
        assert!(
            own.contains(&home.join(".claude/.credentials.json")) && own.contains(&home.join(".claude.json"))
        );
        assert!(
            own.iter().all(|path| path.starts_with(home.join(".claude")) || path.ends_with(".claude.json"))
        );
        assert_eq!(agent(&[".config/goose"], &[]), [home.join(".config/goose")]);
        assert!(agent(&[".ssh", ".mine"], &[]).is_empty(), "what is not an agent's stays hidden");
    }

    #[test]
    fn commands_that_differ_are_remembered_apart() {
        let command = |line: &str| Chosen::command(&split(line).unwrap()).unwrap().kept_as;
        assert_ne!(command("/bin/sh a b"), command("/bin/sh 'a b'"));
        assert_eq!(command("/bin/sh a"), command("/bin/sh a"));
        assert!(Chosen::command(&[]).is_err() && Chosen::command(&["/no/such/program".into()]).is_err());
    }
}
