//! What a program holds: the sessions of its agent, and the ways in to them.
//!
//! A connection that ends takes nothing with it: its sessions stay until they are idle for long, and in the store
//! after that. What ends everything is the end of the only client ([`Server::serve_stdio`]) or the program's own
//! word ([`Server::shutdown`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{Backend, CallerKind, MemoryStore, Principal, Registry, RegistryParts, SystemClock, Timestamp};
use metrics::Metrics;
use server::http::Doors;
use server::{ConnectionParts, Link, Served};
use service::Rules;
use store::SqliteStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Backends, Dialect, Identity};

use crate::door::{Door, Http};

/// How long the last bytes of all connections may take to leave.
const FINISH_GRACE: Duration = Duration::from_secs(2);

/// What a server is made of. Everything has a usual value but the agent and its folder.
pub struct Parts {
    /// The agent, where its sessions are kept, how many there may be, what is allowed without asking.
    pub sessions: RegistryParts,
    /// What clients may do: the folders, and how much is told again (`history_max`).
    pub rules: Rules,
    /// What the agent is called, by programs and by people.
    pub name: String,
    pub version: String,
    /// The only dialect that is spoken; without one, a client's first words decide.
    pub dialect: Option<Dialect>,
}

impl Parts {
    /// Sessions live as long as the process does. Those whose client names no folder work in `home_dir`.
    pub fn new(backend: impl Backend, home_dir: impl Into<PathBuf>) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::default()), Arc::new(SystemClock));
        Self {
            sessions: RegistryParts::new(store, Arc::new(backend), clock),
            rules: Rules { home_dir: home_dir.into(), ..Rules::default() },
            name: "agent".into(),
            version: "0".into(),
            dialect: None,
        }
    }

    /// The same with sessions that outlive the process, in an SQLite file.
    pub fn kept_in(mut self, file: &Path) -> Self {
        let options = store::Options { warm: true, ..store::Options::default() };
        self.sessions.store = Arc::new(SqliteStore::open(file.to_owned(), options));
        self
    }

    pub fn named(self, name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), ..self }
    }
}

/// Why a way in could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("standard input and output cannot be used")]
    Stdio(#[source] io::Error),
    #[error("there are no random bytes for the keys of the HTTP door")]
    Random(#[source] io::Error),
}

/// A server that runs. Dropped without [`Server::shutdown`], it leaves what is under way to its runtime.
pub struct Server {
    pub(crate) registry: Arc<Registry>,
    pub(crate) rules: Rules,
    pub(crate) identity: Identity,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started: Timestamp,
    pub(crate) stop: CancellationToken,
    /// Streams are read and written here.
    tasks: TaskTracker,
    doors: Mutex<Vec<Arc<Doors>>>,
}

impl Server {
    /// Takes sessions up, and puts those that are idle for long out of memory from here on. Needs a runtime.
    pub fn start(parts: Parts) -> Self {
        let started = parts.sessions.clock.now();
        let registry = Registry::new(parts.sessions);
        registry.start_reaper();
        Self {
            registry,
            rules: parts.rules,
            identity: Identity {
                title: parts.name.clone(),
                adapters: vec![parts.name.clone()],
                name: parts.name,
                version: parts.version,
                // What the agent does by itself is not held in by us.
                sandbox: "off".into(),
                sandbox_backends: Backends::default(),
                disabled: Vec::new(),
            },
            dialect: parts.dialect,
            metrics: Metrics::new(env!("CARGO_PKG_VERSION"), started),
            started,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            doors: Mutex::default(),
        }
    }

    /// Serves the client on standard input and output until it hangs up, or somebody cancels [`Server::stopping`];
    /// then ends everything, and what the client still waits for is answered first.
    pub async fn serve_stdio(self) -> Result<(), ServeError> {
        let mut served = self.connect(server::stdio::open().map_err(ServeError::Stdio)?);
        self.until_hung_up(&mut served).await;
        served.stop_reading();
        self.registry.shutdown().await;
        served.finish().await;
        self.shutdown().await;
        Ok(())
    }

    /// Serves one client over any pair of byte streams until it hangs up, or somebody cancels
    /// [`Server::stopping`]. Its sessions go on.
    pub async fn serve_connection(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) {
        let mut served = self.connect(server::stream::over(input, output, &self.tasks));
        self.until_hung_up(&mut served).await;
        served.finish().await;
    }

    /// An HTTP door for the program's own listener. It is closed until [`Door::open`].
    pub fn door(&self, http: Http) -> Result<Door, ServeError> {
        let (doors, door) = Door::new(self, http).map_err(ServeError::Random)?;
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).push(doors);
        Ok(door)
    }

    /// Cancelled by whoever wants all connections to end.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// The sessions themselves, behind the clients' backs.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Ends the turns, then the doors and connections, in good order.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.registry.shutdown().await;
        let doors = std::mem::take(&mut *self.doors.lock().unwrap_or_else(PoisonError::into_inner));
        for doors in doors {
            doors.finish().await;
        }
        self.tasks.close();
        if tokio::time::timeout(FINISH_GRACE, self.tasks.wait()).await.is_err() {
            tracing::info!("some connections did not end in time");
        }
    }

    fn connect(&self, link: (Link, oneshot::Receiver<()>)) -> Served {
        let parts = ConnectionParts {
            registry: Arc::clone(&self.registry),
            principal: Principal::local(),
            kind: CallerKind::Owner,
            local_answers: false,
            rules: self.rules.clone(),
            identity: self.identity.clone(),
            dialect: self.dialect.into(),
            client: None,
            name: "client".into(),
            zeph: false,
            any_session: false,
            metrics: Some((Arc::clone(&self.metrics), metrics::Door::Stdio)),
            greeted: None,
        };
        Served::start(parts, link)
    }

    async fn until_hung_up(&self, served: &mut Served) {
        tokio::select! {
            () = served.input_ended() => tracing::debug!("a client hung up"),
            () = self.stop.cancelled() => {}
        }
    }
}
