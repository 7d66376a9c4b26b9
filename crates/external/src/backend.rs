//! The [`Backend`] for an agent that is another program: its greeting, its extensions, and opening its
//! sessions.
//!
//! The agent's answer to `initialize` is cached in a file, so that a client is greeted before the program has
//! started. When the program has started, the file is updated for the next time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{
    Abilities, Backend, BackendSession, BoxFuture, Extensions, ForeignError, Greeting, Opaque,
    SessionContext, SessionSpec, approval_spec,
};
use sandbox::{CommandLimits, Helper, Policy};
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;
use wire::external_agent;

use super::agent_journal::AgentJournal;
use super::agent_process::ProcessKeepAlive;
use super::connection::{ConnectionError, RequestOptions};
use super::process_pool::ProcessPool;
use super::session::{ExternalSession, OutputLimits};

/// Makes the sandbox policy for the folders of a session.
pub type PolicyFactory = Arc<dyn Fn(Folders<'_>) -> Policy + Send + Sync>;

/// The folders of a session, as the client that opened it named them.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    pub cwd: &'a Path,
    pub roots: &'a [PathBuf],
    /// Folders that none of these may lead out of (through links), if there is such a limit.
    pub within: Option<&'a [PathBuf]>,
}

impl<'a> Folders<'a> {
    pub(super) fn of(spec: &'a SessionSpec) -> Self {
        Self { cwd: &spec.cwd, roots: &spec.roots, within: spec.within.as_deref() }
    }
}

/// The program of an external agent, and what it and its sessions may access.
#[derive(Clone)]
pub struct ExternalConfig {
    /// What people call the agent.
    pub name: Arc<str>,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The complete environment of the program: see [`super::environment()`].
    pub environment: Vec<(OsString, OsString)>,
    /// Folders of the agent's own, which it may write to besides where it works.
    pub own_folders: Vec<PathBuf>,
    /// Paths in these folders that make the agent run something when it is started: read-only if they exist,
    /// and reported if they appear.
    pub own_settings: Vec<PathBuf>,
    /// Hidden paths that hold the agent's own credentials: hidden from commands, but not from its program.
    pub own_secrets: Vec<PathBuf>,
    /// The agent may use `fs/*` of its client.
    pub files: bool,
    pub policy_factory: PolicyFactory,
    /// Builds the sandboxes. Without it, the program has the rights of this process.
    pub helper: Option<Helper>,
    /// The environment of commands that we run for the agent.
    pub command_environment: Vec<(OsString, OsString)>,
    pub limits: CommandLimits,
    pub editor_terminal: bool,
    /// Where sessions work whose client names no folder.
    pub home: PathBuf,
    /// Where its greeting is cached.
    pub greeting_file: Option<PathBuf>,
    /// Records everything that it sends.
    pub journal: Option<Arc<AgentJournal>>,
    pub timeouts: AgentTimeouts,
    /// Limits on its output.
    pub output: OutputLimits,
}

/// How long we wait for the agent.
#[derive(Debug, Clone, Copy)]
pub struct AgentTimeouts {
    /// For the answer to `initialize`, and to opening or closing a session.
    pub handshake: Duration,
    /// Without any message from it while it works on a prompt.
    pub silence: Duration,
    /// Until its process is ended after the last session is gone.
    pub idle: Duration,
}

impl Default for AgentTimeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(30),
            silence: Duration::from_secs(600),
            idle: Duration::from_secs(60),
        }
    }
}

pub struct ExternalBackend {
    shared: Arc<Shared>,
    abilities: Abilities,
}

pub(super) struct Shared {
    pub(super) config: ExternalConfig,
    pub(super) process_pool: ProcessPool,
    pub(super) tasks: TaskTracker,
    /// The agent's last answer to `initialize`.
    greeting: Mutex<Option<Arc<str>>>,
}

impl ExternalBackend {
    pub fn new(config: ExternalConfig, tasks: TaskTracker) -> Self {
        let cached = config.greeting_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let greeting = Mutex::new(cached.filter(|text| is_object(text)).map(Into::into));
        let shared = Shared { config, process_pool: ProcessPool::default(), tasks, greeting };
        let abilities = Abilities {
            settings: vec![approval_spec()],
            images: true,
            servers: true,
            ..Abilities::default()
        };
        Self { shared: Arc::new(shared), abilities }
    }

    /// Starts the program ahead of time.
    pub fn warm(&self) {
        let shared = Arc::clone(&self.shared);
        drop(self.shared.tasks.spawn(async move {
            if let Err(error) = shared.process_at_home().await {
                tracing::warn!(agent = %shared.config.name, %error, "could not start the agent");
            }
        }));
    }

    /// Ends all running processes, and waits until they have ended.
    pub async fn end(&self) {
        self.shared.process_pool.end().await;
        if let Some(journal) = &self.shared.config.journal {
            journal.close();
        }
    }

    /// Starts the program and returns its answer to `initialize`, verbatim.
    pub async fn check(&self) -> Result<Arc<str>, ForeignError> {
        Ok(Arc::clone(self.shared.process_at_home().await?.greeting()))
    }
}

impl Shared {
    /// The process for these folders, started if it is not running.
    pub(super) async fn process(
        self: &Arc<Self>,
        folders: Folders<'_>,
    ) -> Result<ProcessKeepAlive, ForeignError> {
        let process = self.process_pool.process(self, folders).await?;
        self.cache_greeting(process.greeting());
        Ok(process)
    }

    async fn process_at_home(self: &Arc<Self>) -> Result<ProcessKeepAlive, ForeignError> {
        self.process(Folders { cwd: &self.config.home, roots: &[], within: None }).await
    }

    fn cache_greeting(&self, text: &Arc<str>) {
        let mut cached = self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.as_ref() == Some(text) {
            return;
        }
        *cached = Some(Arc::clone(text));
        let Some(file) = self.config.greeting_file.clone() else { return };
        let text = Arc::clone(text);
        drop(self.tasks.spawn_blocking(move || {
            let folder = file.parent().map(std::fs::create_dir_all);
            let written = folder.unwrap_or(Ok(())).and_then(|()| std::fs::write(&file, text.as_bytes()));
            if let Err(error) = written {
                tracing::debug!(%error, "could not cache the agent's answer to initialize: the next start waits for it again");
            }
        }));
    }

    fn greeting(&self) -> Option<Arc<str>> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend for ExternalBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession> {
        ExternalSession::new(Arc::clone(&self.shared), spec, context)
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }

    fn greeting(&self) -> BoxFuture<'_, Greeting> {
        Box::pin(async {
            if self.shared.greeting().is_none()
                && let Err(error) = self.shared.process_at_home().await
            {
                tracing::warn!(agent = %self.shared.config.name, %error, "could not initialize the agent");
            }
            let text = self.shared.greeting();
            let result = text.as_deref().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
            let read = result.and_then(|result| external_agent::initialize_response(result).ok());
            read.map_or_else(Greeting::default, |(greeting, _)| greeting)
        })
    }

    fn authenticate<'a>(&'a self, method: &'a str) -> BoxFuture<'a, Result<(), ForeignError>> {
        Box::pin(async move {
            let process = self.shared.process_at_home().await?;
            let params = serde_json::json!({ "methodId": method });
            // A person may have to sign in somewhere first.
            let answered =
                process.connection().request("authenticate", &params, RequestOptions::default()).await;
            answered.map(drop).map_err(|error| foreign(&self.shared.config.name, &error))
        })
    }

    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        Some(Arc::new(ProcessExtensions(Arc::clone(&self.shared))))
    }
}

/// Extension methods that are sent to the agent outside of its sessions.
struct ProcessExtensions(Arc<Shared>);

impl Extensions for ProcessExtensions {
    fn call(&self, method: Arc<str>, params: Opaque) -> BoxFuture<'static, Result<Opaque, ForeignError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let process = shared.process_at_home().await?;
            let params = raw(&params.0);
            let answered = process.connection().request(&method, &params, RequestOptions::default()).await;
            let answer = answered.map_err(|error| foreign(&shared.config.name, &error))?;
            Ok(Opaque(answer.get().into()))
        })
    }

    fn notify(&self, method: Arc<str>, params: Opaque) {
        let shared = Arc::clone(&self.0);
        drop(self.0.tasks.spawn(async move {
            if let Ok(process) = shared.process_at_home().await {
                // A notification that cannot be sent now is dropped.
                process.connection().notify(&method, &raw(&params.0)).ok();
            }
        }));
    }
}

/// Turns text that was parsed as JSON before into a raw value.
pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.replace(['\n', '\r'], " ")).unwrap_or_default()
}

/// The error of a request to the agent, for the client that made the request.
pub(super) fn foreign(agent: &str, error: &ConnectionError) -> ForeignError {
    match error {
        ConnectionError::RpcError(remote) => ForeignError {
            code: remote.code,
            message: remote.message.as_str().into(),
            data: remote.data.as_ref().map(|data| Opaque(data.get().into())),
        },
        error => failed(format!("{agent}: {error}")),
    }
}

pub(super) fn failed(message: String) -> ForeignError {
    ForeignError { code: -32603, message: message.into(), data: None }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}
