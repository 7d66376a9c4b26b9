//! An agent that is another program, as a backend: what people and editors see of it before and beside its
//! sessions.
//!
//! What it says of itself is kept in a file, so an editor is greeted at once; when the program is up, the
//! file is brought up to date for the next time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{
    Abilities, Backend, BackendSession, BoxFuture, Extensions, ForeignError, Greeting, Opaque,
    SessionContext, SessionSpec, approval_spec,
};
use sandbox::{Helper, Limits, Policy};
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;
use wire::upstream;

use super::crew::Held;
use super::journal::Journal;
use super::peer::{PeerError, Terms};
use super::pool::Pool;
use super::seat::{OutputLimits, Seat};

/// What a policy is made from: the working folder and further ones.
pub type Place = Arc<dyn Fn(Folders<'_>) -> Policy + Send + Sync>;

/// The folders of a session, as whoever opened it named them.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    pub cwd: &'a Path,
    pub roots: &'a [PathBuf],
    /// What none of them may lead out of, if there is such.
    pub within: Option<&'a [PathBuf]>,
}

impl<'a> Folders<'a> {
    pub(super) fn of(spec: &'a SessionSpec) -> Self {
        Self { cwd: &spec.cwd, roots: &spec.roots, within: spec.within.as_deref() }
    }
}

/// Which program it is, and how far it and its sessions reach.
#[derive(Clone)]
pub struct ExternalConfig {
    /// What people call the agent.
    pub name: Arc<str>,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// All that the program is told: see [`super::environment()`].
    pub environment: Vec<(OsString, OsString)>,
    /// Folders of the agent's own, which it may write to besides where it works.
    pub own_folders: Vec<PathBuf>,
    /// What in these folders makes the agent run something when it is started: read-only for it where it is
    /// there, and told where it comes.
    pub own_settings: Vec<PathBuf>,
    /// Hidden paths that hold the agent's own credentials: hidden from commands, and not from its program.
    pub own_secrets: Vec<PathBuf>,
    /// The agent is offered files by its client.
    pub files: bool,
    pub place: Place,
    /// Who builds the fences. Without, the program has the rights of this process.
    pub helper: Option<Helper>,
    /// What commands are told that the agent has run by us.
    pub command_environment: Vec<(OsString, OsString)>,
    pub limits: Limits,
    pub editor_terminal: bool,
    /// Where sessions work whose client names no folder.
    pub home: PathBuf,
    /// Where its greeting is kept.
    pub greeting_file: Option<PathBuf>,
    /// Where everything that it says is noted.
    pub journal: Option<Arc<Journal>>,
    pub patience: Patience,
    /// How much it may say.
    pub output: OutputLimits,
}

/// How long the agent is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it has greeted, opened or closed a session.
    pub handshake: Duration,
    /// Without a word from it while it works on a prompt.
    pub silence: Duration,
    /// After its last session has gone.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(30),
            silence: Duration::from_secs(600),
            idle: Duration::from_secs(60),
        }
    }
}

pub struct External {
    shared: Arc<Shared>,
    abilities: Abilities,
}

pub(super) struct Shared {
    pub(super) config: ExternalConfig,
    pub(super) pool: Pool,
    pub(super) tasks: TaskTracker,
    /// What the agent answered when it was greeted last.
    greeting: Mutex<Option<Arc<str>>>,
}

impl External {
    pub fn new(config: ExternalConfig, tasks: TaskTracker) -> Self {
        let kept = config.greeting_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let greeting = Mutex::new(kept.filter(|text| is_object(text)).map(Into::into));
        let shared = Shared { config, pool: Pool::default(), tasks, greeting };
        let abilities = Abilities {
            settings: vec![approval_spec()],
            images: true,
            servers: true,
            ..Abilities::default()
        };
        Self { shared: Arc::new(shared), abilities }
    }

    /// Starts the program before anybody needs it.
    pub fn warm(&self) {
        let shared = Arc::clone(&self.shared);
        drop(self.shared.tasks.spawn(async move {
            if let Err(error) = shared.crew_at_home().await {
                tracing::warn!(agent = %shared.config.name, %error, "the agent cannot be started");
            }
        }));
    }

    /// Ends every program that runs, and waits until they have.
    pub async fn end(&self) {
        self.shared.pool.end().await;
        if let Some(journal) = &self.shared.config.journal {
            journal.close();
        }
    }

    /// Starts the program and says what it answers, word for word.
    pub async fn check(&self) -> Result<Arc<str>, ForeignError> {
        Ok(Arc::clone(self.shared.crew_at_home().await?.greeting()))
    }
}

impl Shared {
    /// The program that works in this folder, started if it does not run.
    pub(super) async fn crew(self: &Arc<Self>, folders: Folders<'_>) -> Result<Held, ForeignError> {
        let crew = self.pool.crew(self, folders).await?;
        self.keep_greeting(crew.greeting());
        Ok(crew)
    }

    async fn crew_at_home(self: &Arc<Self>) -> Result<Held, ForeignError> {
        self.crew(Folders { cwd: &self.config.home, roots: &[], within: None }).await
    }

    fn keep_greeting(&self, text: &Arc<str>) {
        let mut kept = self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref() == Some(text) {
            return;
        }
        *kept = Some(Arc::clone(text));
        let Some(file) = self.config.greeting_file.clone() else { return };
        let text = Arc::clone(text);
        drop(self.tasks.spawn_blocking(move || {
            let folder = file.parent().map(std::fs::create_dir_all);
            let written = folder.unwrap_or(Ok(())).and_then(|()| std::fs::write(&file, text.as_bytes()));
            if let Err(error) = written {
                tracing::debug!(%error, "the agent's greeting is not kept: the next start waits for it");
            }
        }));
    }

    fn greeting(&self) -> Option<Arc<str>> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend for External {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession> {
        Seat::new(Arc::clone(&self.shared), spec, context)
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }

    fn greeting(&self) -> BoxFuture<'_, Greeting> {
        Box::pin(async {
            if self.shared.greeting().is_none()
                && let Err(error) = self.shared.crew_at_home().await
            {
                tracing::warn!(agent = %self.shared.config.name, %error, "the agent cannot be greeted");
            }
            let text = self.shared.greeting();
            let result = text.as_deref().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
            let read = result.and_then(|result| upstream::greeted(result).ok());
            read.map_or_else(Greeting::default, |(greeting, _)| greeting)
        })
    }

    fn authenticate<'a>(&'a self, method: &'a str) -> BoxFuture<'a, Result<(), ForeignError>> {
        Box::pin(async move {
            let crew = self.shared.crew_at_home().await?;
            let params = serde_json::json!({ "methodId": method });
            // A person may have to sign in somewhere first.
            let answered = crew.peer().request("authenticate", &params, Terms::default()).await;
            answered.map(drop).map_err(|error| foreign(&self.shared.config.name, &error))
        })
    }

    fn extensions(&self) -> Option<Arc<dyn Extensions>> {
        Some(Arc::new(Beside(Arc::clone(&self.shared))))
    }
}

/// The way to the agent outside its sessions.
struct Beside(Arc<Shared>);

impl Extensions for Beside {
    fn call(&self, method: Arc<str>, params: Opaque) -> BoxFuture<'static, Result<Opaque, ForeignError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let crew = shared.crew_at_home().await?;
            let params = raw(&params.0);
            let answered = crew.peer().request(&method, &params, Terms::default()).await;
            let answer = answered.map_err(|error| foreign(&shared.config.name, &error))?;
            Ok(Opaque(answer.get().into()))
        })
    }

    fn notify(&self, method: Arc<str>, params: Opaque) {
        let shared = Arc::clone(&self.0);
        drop(self.0.tasks.spawn(async move {
            if let Ok(crew) = shared.crew_at_home().await {
                // One that cannot be told at the moment is not told.
                crew.peer().notify(&method, &raw(&params.0)).ok();
            }
        }));
    }
}

/// Text that was JSON when it came in.
pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.replace(['\n', '\r'], " ")).unwrap_or_default()
}

/// Why the agent did not do it, for whoever asked.
pub(super) fn foreign(agent: &str, error: &PeerError) -> ForeignError {
    match error {
        PeerError::Remote(remote) => ForeignError {
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
