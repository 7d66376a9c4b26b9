//! The embedded server: the sessions of a program's agent, and the ways to connect to them.
//!
//! A connection that ends leaves its sessions alone: they stay in memory until they are idle for long, and in the store
//! after that. Everything ends when the only client disconnects ([`Server::serve_stdio`]) or when the program
//! calls [`Server::shutdown`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{Backend, CallerKind, MemoryStore, Principal, Registry, RegistryParts, SystemClock, Timestamp};
use metrics::Metrics;
use server::http::HttpState;
use server::{ConnectionParts, FlushedConnection, Link};
use service::ServiceRules;
use store::SqliteStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Dialect, Identity, SandboxBackends};

use crate::http_router::{HttpDoor, HttpDoorOptions};

/// How long the last bytes of all connections may take to leave.
const FINISH_GRACE: Duration = Duration::from_secs(2);

/// The parts of a server. All have defaults except the agent and its folder.
pub struct ServerParts {
    /// The agent, the store of its sessions, their limits, and the permission rules.
    pub sessions: RegistryParts,
    /// What clients may do: the folders, and how many updates they can get again (`history_max`).
    pub rules: ServiceRules,
    /// The agent's name, for programs and people.
    pub name: String,
    pub version: String,
    /// The only dialect that is spoken; without one, a client's first words decide.
    pub dialect: Option<Dialect>,
}

impl ServerParts {
    /// Sessions live as long as the process. Sessions whose client names no folder work in `home_dir`.
    pub fn new(backend: impl Backend, home_dir: impl Into<PathBuf>) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::default()), Arc::new(SystemClock));
        Self {
            sessions: RegistryParts::new(store, Arc::new(backend), clock),
            rules: ServiceRules { home_dir: home_dir.into(), ..ServiceRules::default() },
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

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("could not use standard input and output")]
    Stdio(#[source] io::Error),
    #[error("could not create the keys of the HTTP door: the operating system's random generator failed")]
    Random(#[source] io::Error),
}

/// A running server. If it is dropped without [`Server::shutdown`], its tasks are left to the runtime.
pub struct Server {
    pub(crate) registry: Arc<Registry>,
    pub(crate) rules: ServiceRules,
    pub(crate) identity: Identity,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started: Timestamp,
    pub(crate) stop: CancellationToken,
    /// Streams are read and written here.
    tasks: TaskTracker,
    doors: Mutex<Vec<Arc<HttpState>>>,
}

impl Server {
    /// Takes sessions up, and puts those that are idle for long out of memory from here on. Needs a runtime.
    pub fn start(parts: ServerParts) -> Self {
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
                // We do not sandbox what the agent does by itself.
                sandbox: "off".into(),
                sandbox_backends: SandboxBackends::default(),
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

    /// Serves the client on standard input and output until it hangs up, or [`Server::stopping`] is
    /// cancelled. Then everything is stopped, after the client's pending requests are answered.
    pub async fn serve_stdio(self) -> Result<(), ServeError> {
        let mut served = self.connect(server::stdio::open().map_err(ServeError::Stdio)?);
        self.until_hung_up(&mut served).await;
        served.stop_reading();
        self.registry.shutdown().await;
        served.finish().await;
        self.shutdown().await;
        Ok(())
    }

    /// Serves one client over any pair of byte streams until it hangs up, or [`Server::stopping`] is
    /// cancelled. Its sessions continue.
    pub async fn serve_connection(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) {
        let mut served = self.connect(server::byte_stream::over(input, output, &self.tasks));
        self.until_hung_up(&mut served).await;
        served.finish().await;
    }

    /// An HTTP door for the program's own listener. It is closed until [`HttpDoor::open`].
    pub fn door(&self, http: HttpDoorOptions) -> Result<HttpDoor, ServeError> {
        let (doors, door) = HttpDoor::new(self, http).map_err(ServeError::Random)?;
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).push(doors);
        Ok(door)
    }

    /// Cancel it to end all connections.
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

    fn connect(&self, link: (Link, oneshot::Receiver<()>)) -> FlushedConnection {
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
            metrics: Some((Arc::clone(&self.metrics), metrics::DoorLabel::Stdio)),
            on_initialize: None,
        };
        FlushedConnection::start(parts, link)
    }

    async fn until_hung_up(&self, served: &mut FlushedConnection) {
        tokio::select! {
            () = served.input_ended() => tracing::debug!("a client closed the connection"),
            () = self.stop.cancelled() => {}
        }
    }
}
