//! External agents: which one a command uses, and how it is started.
//!
//! This is decided once, when the process starts, from the command line, the person's settings and the table of known agents.
//! A project's settings are not read: naming a program here starts it.

mod agent_manifests;
mod command_line;
mod journal_file;
mod known_agents;

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::ToolAccess;
use engine::Backend;
use external::{AgentTimeouts, ExternalBackend, ExternalConfig, Folders};
use guard::is_secret_name;
use sandbox::{CommandLimits, Mode, Policy};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use crate::cli::{AgentOptions, BudgetOptions, GuardOptions};
use crate::cli_error::CliError;
use crate::config::OURS;
use crate::guard_settings::{self, Guards};
use crate::{hidden_paths, paths, secrets_to_redact};

pub use command_line::{on_path, split};
pub use known_agents::{Entry, TYPOS_MAX, all, named, typos};

/// An agent runs whole toolchains, and for as long as its sessions.
const LIMITS: CommandLimits = CommandLimits {
    wall: Duration::ZERO,
    forward_bytes_max: u64::MAX,
    output_bytes_max: u64::MAX,
    grace: Duration::from_millis(500),
    processes_max: 4096,
    memory_bytes_max: 16 << 30,
    file_bytes_max: 16 << 30,
};
/// How long the remaining tasks of the agent may take to end.
const END_WAIT: Duration = Duration::from_secs(5);
/// Shorter secrets would match in every text.
const SECRET_CHARS_MIN: usize = 8;

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AgentLaunch {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables that are set.
    pub environment: Vec<(String, String)>,
    pub pass: Vec<String>,
    pub own_folders: Vec<PathBuf>,
    /// Files in them that make the agent run something when it starts.
    pub own_settings: Vec<PathBuf>,
    /// Files outside these folders with its credentials, which it reads.
    pub secret_files: Vec<PathBuf>,
    /// Whether it can use the file access of its client.
    pub files: bool,
    pub sandbox: Option<Mode>,
    /// The file that records every frame from it.
    pub journal: Option<PathBuf>,
    /// The name under which its greeting is cached.
    cache_name: String,
}

impl AgentLaunch {
    /// The launch of a named agent, if it is installed.
    pub fn of(entry: &Entry) -> Result<Self, CliError> {
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
            cache_name: entry.name.clone(),
        })
    }

    /// The launch of an agent that was given as a command.
    pub fn command(command: &[OsString]) -> Result<Self, CliError> {
        let [program, arguments @ ..] = command else {
            return Err(CliError::usage("no command given").fix("ropewalk serve -- COMMAND ARGUMENTS"));
        };
        let path = paths::variable("PATH").unwrap_or_default();
        let found = program.to_str().and_then(|program| on_path(&path, program)).ok_or_else(|| {
            CliError::failed(format!("program {} not found", program.to_string_lossy()))
                .because("it is not on your PATH and not an executable file")
                .fix("install it, or pass its full path")
        })?;
        let digest = Sha256::digest(command.join(OsString::from("\0").as_os_str()).as_encoded_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            name: command_line::label(command),
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
            cache_name: format!("command-{digest}"),
        })
    }

    /// Adds what is known about the program: it keeps its files in the same places however it is started.
    fn with_known(self, known: Option<&Entry>) -> Self {
        let Some(entry) = known else { return self };
        let (environment, pass) = (entry.environment.clone(), entry.pass.clone());
        let (own_settings, secret_files) =
            (below_homes(&entry.own_settings), below_homes(&entry.secret_files));
        let own_folders = own_folders(entry);
        Self { environment, pass, own_folders, own_settings, secret_files, files: entry.files, ..self }
    }

    /// This agent's own credentials among the hidden ones of all agents, including those that a variable moves
    /// elsewhere.
    fn own_secrets(&self, homes: &[PathBuf]) -> Vec<PathBuf> {
        let own = |(name, path): &(PathBuf, PathBuf)| {
            let lies_in = |own: &PathBuf| {
                let real = own.canonicalize().unwrap_or_else(|_| own.clone());
                let named = |home: &PathBuf| own.strip_prefix(home).is_ok_and(|own| name.starts_with(own));
                path.starts_with(real) || homes.iter().any(named)
            };
            self.own_folders.iter().chain(&self.secret_files).any(lies_in)
        };
        hidden_paths::of_agents(homes).into_iter().filter(own).map(|(_, path)| path).collect()
    }

    /// The agent that the command line or the settings choose. `None`: the built-in agent.
    fn wanted(
        options: &AgentOptions,
        command: &[OsString],
        guards: &Guards,
    ) -> Result<Option<Self>, CliError> {
        if !command.is_empty() {
            let known = known_agents::running(&guards.config, &command_line::label(command))?;
            return Self::command(command).map(|chosen| Some(chosen.with_known(known.as_ref())));
        }
        let name = options.agent.as_deref().or(guards.config.agent.as_deref()).filter(|name| *name != OURS);
        name.map(|name| named(&guards.config, name).and_then(|entry| Self::of(&entry))).transpose()
    }

    /// The agent, not started yet. `home` is the folder of sessions whose client names none.
    pub fn backend(&self, guards: &Guards, home: &Path) -> Result<ExternalAgent, CliError> {
        let secret =
            |(name, value): &&(String, String)| is_secret_name(name) && value.len() >= SECRET_CHARS_MIN;
        for (_, value) in self.environment.iter().filter(secret) {
            secrets_to_redact::add(value);
        }
        let journal =
            self.journal.as_deref().map(|file| journal_file::begin(&self.name, file)).transpose()?;
        let config = ExternalConfig {
            name: self.name.as_str().into(),
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: paths::for_agent(&self.pass, &self.environment),
            own_folders: self.own_folders.iter().filter(|folder| create_folder(folder)).cloned().collect(),
            own_settings: real_settings(&self.own_settings, &self.own_folders),
            own_secrets: self.own_secrets(&guards.reach.homes),
            files: self.files,
            policy_factory: policy_of(guards.reach.clone()),
            helper: guards.reach.helper.clone(),
            command_environment: paths::passed_on(&guards.config.environment),
            limits: LIMITS,
            editor_terminal: guards.reach.editor_terminal,
            home: home.to_owned(),
            greeting_file: Some(paths::agents()?.join(format!("{}.json", self.cache_name))),
            journal: journal.map(Arc::new),
            timeouts: AgentTimeouts::default(),
            output: guards.config.models.limits.output(),
        };
        let tasks = TaskTracker::new();
        let external = Arc::new(ExternalBackend::new(config, tasks.clone()));
        Ok(ExternalAgent { name: self.name.as_str().into(), external, tasks })
    }
}

/// An external agent, ready to be started.
#[derive(Clone)]
pub struct ExternalAgent {
    pub name: Arc<str>,
    external: Arc<ExternalBackend>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for ExternalAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAgent").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ExternalAgent {
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.external) as Arc<dyn Backend>
    }

    /// Starts the program before it is needed.
    pub fn warm(&self) {
        self.external.warm();
    }

    /// Starts the program and returns its unchanged answer.
    pub async fn check(&self) -> Result<Arc<str>, engine::ForeignError> {
        self.external.check().await
    }

    /// Ends the program and all its children, after its sessions have ended.
    pub async fn end(&self) {
        self.external.end().await;
        self.tasks.close();
        if tokio::time::timeout(END_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(agent = %self.name, "a task of the agent did not end in time");
        }
    }
}

/// Options that only the built-in agent supports.
pub struct OwnAgentOptions<'a> {
    pub budget: &'a BudgetOptions,
    pub guard: &'a GuardOptions,
    /// The model for sessions of other clients: an external agent has its own models.
    pub model: Option<&'a str>,
    pub estimate: bool,
}

impl OwnAgentOptions<'_> {
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

/// Chooses the agent. Refuses options that the chosen agent would not honour.
pub fn choose(
    guards: &mut Guards,
    options: &AgentOptions,
    command: &[OsString],
    own_options: &OwnAgentOptions<'_>,
    home: &Path,
) -> Result<(), CliError> {
    let Some(mut chosen) = AgentLaunch::wanted(options, command, guards)? else {
        let theirs =
            [("--agent-env", !options.agent_env.is_empty()), ("--journal", options.journal.is_some())];
        return match theirs.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((option, _)) => Err(CliError::usage(format!("{option} works only with an external agent"))
                .fix("choose one with --agent")),
        };
    };
    if let Some(option) = own_options.first() {
        return Err(CliError::usage(format!("{option} does not work with {}", chosen.name))
            .because("only Ropewalk's built-in agent supports it")
            .fix(format!("remove it, or use --agent {OURS}")));
    }
    chosen.pass.extend(options.agent_env.iter().cloned());
    chosen.journal = options.journal.clone();
    if let Some(mode) = chosen.sandbox.filter(|_| own_options.guard.sandbox.is_none()) {
        if mode == Mode::Off && guards.reach.mode != Mode::Off {
            guard_settings::warn(&format!(
                "the sandbox is off for {}: it can access everything that you can",
                chosen.name
            ));
        }
        guards.reach.mode = mode;
    }
    guards.external_agent = Some(chosen.backend(guards, home)?);
    Ok(())
}

/// The sandbox policy of a session: the same for external agents as for the built-in one.
fn policy_of(reach: ToolAccess) -> external::PolicyFactory {
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

/// The folders that belong to an agent, whether they exist or not.
pub fn own_folders(entry: &Entry) -> Vec<PathBuf> {
    below_homes(&entry.own_folders)
}

/// The real paths of what an agent must not change in its own folders.
pub fn own_settings(entry: &Entry) -> Vec<PathBuf> {
    real_settings(&below_homes(&entry.own_settings), &own_folders(entry))
}

/// Resolves the folders but not the last names, which may be links.
fn real_settings(settings: &[PathBuf], folders: &[PathBuf]) -> Vec<PathBuf> {
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

/// The folder that `~` stands for.
fn home() -> Option<PathBuf> {
    hidden_paths::homes().ok()?.into_iter().next()
}

/// Resolves a folder as people write it: absolute, or starting with `~/`.
fn below_home(folder: &str) -> Option<PathBuf> {
    match folder.strip_prefix("~/") {
        Some(below) => home().map(|home| home.join(below)),
        None => Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute()),
    }
}

/// Programs and scripts directly in a folder, which settings may run for a status line, a notification or a hook.
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

/// Creates a folder of the agent: the sandbox can only allow folders that exist.
fn create_folder(folder: &Path) -> bool {
    let create_folder = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    if let Err(error) = &create_folder {
        tracing::info!(folder = %folder.display(), %error, "could not create a folder of the agent");
    }
    create_folder.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_an_external_agent_reaches_as_far_as_one_of_our_own() {
        let reach = ToolAccess {
            mode: Mode::WorkspaceWriteNetwork,
            add_dirs: vec!["/more".into()],
            hidden: vec!["/secret".into()],
            project: Some(|folder| (folder == Path::new("/narrow")).then_some(Mode::ReadOnly)),
            homes: vec!["/home/me".into()],
            ..ToolAccess::default()
        };
        let policy_of = policy_of(reach);
        let policy = policy_of(Folders { cwd: Path::new("/work"), roots: &["/root".into()], within: None });
        assert_eq!(policy.mode, Mode::WorkspaceWriteNetwork);
        assert_eq!(policy.roots, ["/work", "/root", "/more"].map(PathBuf::from));
        assert_eq!(policy.hidden, [PathBuf::from("/secret")]);
        assert_eq!(policy.homes, [PathBuf::from("/home/me")]);
        let narrow = Folders { cwd: Path::new("/narrow"), roots: &[], within: Some(&["/work".into()]) };
        assert_eq!(policy_of(narrow).mode, Mode::ReadOnly);
        assert_eq!(policy_of(narrow).within, Some(vec!["/work".into(), "/more".into()]));
    }

    #[test]
    fn an_agent_sees_its_own_credentials_and_no_other_ones() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let agent = |own: &[&str], files: &[&str]| {
            let below = |names: &[&str]| names.iter().map(|name| home.join(name)).collect::<Vec<_>>();
            let chosen = AgentLaunch::command(&split("/bin/sh").unwrap()).unwrap();
            let chosen = AgentLaunch { own_folders: below(own), secret_files: below(files), ..chosen };
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
        let command = |line: &str| AgentLaunch::command(&split(line).unwrap()).unwrap().cache_name;
        assert_ne!(command("/bin/sh a b"), command("/bin/sh 'a b'"));
        assert_eq!(command("/bin/sh a"), command("/bin/sh a"));
        assert!(
            AgentLaunch::command(&[]).is_err() && AgentLaunch::command(&["/no/such/program".into()]).is_err()
        );
    }
}
