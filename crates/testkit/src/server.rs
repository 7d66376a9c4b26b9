//! The whole server in one process: registry, agent, store, and clients over memory links.
//!
//! [`Server::stop`] ends a test. It fails one that leaves a turn running, a task alive or, through its
//! clients, an answer or a question unread; a test cannot forget it, because dropping a server that
//! was not stopped fails too.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod byte_stream_peer;
mod client;
mod ferret_otter_client;
mod http_listener;
mod update_summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use agent::{Agent, AgentConfig};
use engine::{
    Backend, CallerKind, Clock, Follower, ListQuery, MemoryStore, Principal, Registry, RegistryParts, Seq,
    SessionFolders, SessionHandle, SessionId, SessionLimits, Store, Timestamp,
};
use server::{Connection, ConnectionParts, memory};
use service::ServiceRules;
use store::SqliteStore;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::{Dialect, DialectSelection, Identity, SandboxBackends};

use crate::Script;

pub use client::{Client, Refused};
pub use ferret_otter_client::OlderClient;
pub use http_listener::{CI, Door, MASTER};
pub use update_summary::UpdateSummary;

/// No wait of a test is longer. Generous, because test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What a server is made of.
pub struct Setup {
    pub backend: Arc<dyn Backend>,
    pub limits: SessionLimits,
    pub rules: ServiceRules,
    pub permissions: Arc<dyn engine::PermissionRules>,
    pub redactor: Option<Arc<dyn engine::Redactor>>,
    pub followers: Vec<Arc<dyn Follower>>,
    pub folders: Option<Arc<dyn SessionFolders>>,
    pub keep: Keep,
}

/// Where sessions are kept; all of them outlast a restart.
pub enum Keep {
    Memory(Arc<MemoryStore>),
    Disk,
    /// Nothing is kept, as the person wants it.
    Ephemeral(Arc<MemoryStore>),
    /// A path that no file can be made at.
    Nowhere,
}

impl Setup {
    pub fn new(backend: impl Backend) -> Self {
        Self {
            backend: Arc::new(backend),
            limits: SessionLimits::default(),
            rules: ServiceRules::default(),
            permissions: Arc::new(engine::MemoryRules::default()),
            redactor: None,
            followers: Vec::new(),
            folders: None,
            keep: Keep::Memory(Arc::default()),
        }
    }

    /// The built-in agent with the offline model.
    pub fn offline() -> Self {
        Self::new(Agent::new(AgentConfig::offline()))
    }

    /// The built-in agent with a scripted model.
    pub fn script(script: &Script) -> Self {
        Self::new(Agent::new(AgentConfig::new(vec![Arc::new(script.clone())])))
    }

    pub fn on_disk(self) -> Self {
        Self { keep: Keep::Disk, ..self }
    }
}

pub struct Server {
    setup: Setup,
    clock: Arc<TestClock>,
    folder: TempDir,
    registry: Option<Arc<Registry>>,
    connections: JoinSet<()>,
    stop: watch::Sender<bool>,
    /// Power cuts so far: the machine is up for the first time, the second, and so on.
    power_cuts: u32,
}

impl Server {
    pub fn start(setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let now = AtomicI64::new(1_700_000_000_000);
        let clock = Arc::new(TestClock { now, broken: AtomicBool::new(false) });
        let mut server = Self {
            setup,
            clock,
            folder,
            registry: None,
            connections: JoinSet::new(),
            stop: watch::Sender::new(false),
            power_cuts: 0,
        };
        std::fs::create_dir(server.workspace()).expect("a workspace");
        server.registry = Some(server.open());
        server
    }

    /// Where sessions work if a test does not say otherwise.
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the test's folder").join("workspace")
    }

    /// A folder beside the workspace.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.workspace().with_file_name(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    pub fn registry(&self) -> &Registry {
        self.registry.as_ref().expect("the server runs")
    }

    /// A client that has introduced itself.
    pub async fn client(&mut self) -> Client {
        let mut client = self.connect();
        client.initialize().await;
        client
    }

    /// A client that has said nothing so far.
    pub fn connect(&mut self) -> Client {
        self.connect_as(Principal::local())
    }

    pub fn connect_as(&mut self, principal: Principal) -> Client {
        let (link, peer) = memory::pair();
        let parts = self.connection_parts(principal);
        self.keep(Connection::start(parts, link));
        Client::new(peer, self.workspace())
    }

    /// A client of one of the older dialects that has said nothing so far.
    pub fn connect_older(&mut self, dialect: Dialect) -> OlderClient {
        let parts = self.connection_parts(Principal::local());
        self.connect_older_with(ConnectionParts { dialect: DialectSelection::Only(dialect), ..parts })
    }

    pub fn connect_older_with(&mut self, parts: ConnectionParts) -> OlderClient {
        let (link, peer) = memory::pair();
        self.keep(Connection::start(parts, link));
        OlderClient::new(peer, self.workspace())
    }

    /// A client of one of the older dialects that has introduced itself.
    pub async fn older_client(&mut self, dialect: Dialect) -> OlderClient {
        let mut client = self.connect_older(dialect);
        client.call("initialize", serde_json::json!({})).await;
        client
    }

    /// What a connection needs, for links that the test makes itself.
    pub fn connection_parts(&self, principal: Principal) -> ConnectionParts {
        ConnectionParts {
            registry: Arc::clone(self.registry.as_ref().expect("the server runs")),
            kind: if principal == Principal::local() { CallerKind::Owner } else { CallerKind::NamedClient },
            local_answers: false,
            principal,
            rules: self.setup.rules.clone(),
            identity: Identity {
                name: "ropewalk".into(),
                title: "Ropewalk".into(),
                version: "1.2.3".into(),
                sandbox: "workspace-write".into(),
                sandbox_backends: SandboxBackends::default(),
                adapters: vec!["ropewalk".into()],
                disabled: Vec::new(),
            },
            dialect: DialectSelection::default(),
            client: None,
            name: "client".into(),
            zeph: false,
            any_session: false,
            metrics: None,
            on_initialize: None,
        }
    }

    /// Opens the HTTP door, at a port of its own or at one where it was before.
    pub async fn door(&self, port: u16) -> Door {
        Door::open(self.connection_parts(Principal::local()), self.clock.now(), port).await
    }

    /// Takes charge of a connection: it ends when its client hangs up or the server stops.
    fn keep(&mut self, mut connection: Connection) {
        let mut stop = self.stop.subscribe();
        self.connections.spawn(async move {
            tokio::select! {
                () = connection.input_ended() => {}
                // The sender lives as long as the server.
                stopped = stop.wait_for(|stop| *stop) => drop(stopped),
            }
            connection.finish().await;
        });
    }

    /// The session itself, behind the clients' backs.
    pub async fn handle(&self, session: &str) -> SessionHandle {
        let id = SessionId::parse(session).expect("a session id");
        self.registry().open(&Principal::local(), &id).await.expect("the session")
    }

    /// Waits until no turn of the session runs or waits.
    pub async fn idle(&self, session: &str) {
        let handle = self.handle(session).await;
        let head = handle.read(Seq::START).head();
        let mut reader = handle.read(head);
        let quiet = async {
            while handle.snapshot().busy || handle.snapshot().waiting > 0 {
                reader.next().await.expect("the log");
            }
        };
        tokio::time::timeout(DEADLINE, quiet).await.expect("the session's turns end");
    }

    /// Ends the server in good order and starts another one on the same store.
    pub async fn restart(&mut self) {
        self.shut_down().await;
        self.registry = Some(self.open());
    }

    /// The disk as it is at this moment. What was synced before is on it, and nothing that comes later.
    pub fn disk(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder for a copy of the disk");
        copy_database(&self.state(), copy.path());
        copy
    }

    /// Cuts the power. What comes up again is this disk, with everything lost that was written after it.
    pub async fn power_cut(&mut self, disk: &TempDir) {
        self.power_cuts += 1;
        self.put_back(disk).await;
    }

    /// Puts a copy of the disk back by hand, as if nothing had happened since.
    pub async fn put_back(&mut self, disk: &TempDir) {
        self.shut_down().await;
        self.empty_state();
        copy_database(disk.path(), &self.state());
        self.registry = Some(self.open());
    }

    /// A backup, as `ropewalk backup` makes one.
    pub fn back_up(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder for a backup");
        let (database, target) = (self.state().join("sessions.db"), folder.path().join("backup"));
        store::back_up(&database, &[], &target, "today", false).expect("a backup");
        folder
    }

    /// Goes on with what a backup has, as after `ropewalk restore`.
    pub async fn restore(&mut self, backup: &TempDir) {
        self.shut_down().await;
        self.empty_state();
        let database = self.state().join("sessions.db");
        store::restore_backup(&backup.path().join("backup"), &database, |_, _| Ok(()))
            .expect("a restored store");
        self.registry = Some(self.open());
    }

    fn empty_state(&self) {
        std::fs::remove_dir_all(self.state()).expect("the state of before");
        std::fs::create_dir(self.state()).expect("a folder");
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Ends the test: fails if it left something behind.
    pub async fn stop(mut self) {
        let listed = self.registry().list(ListQuery::all(Principal::local())).await;
        let all = if matches!(self.setup.keep, Keep::Nowhere) { Vec::new() } else { listed.expect("a list") };
        let busy: Vec<_> = all.iter().filter(|listed| listed.live && listed.row.busy).collect();
        assert!(busy.is_empty(), "a turn was left running: {busy:?}");
        self.shut_down().await;
    }

    fn open(&self) -> Arc<Registry> {
        let store: Arc<dyn Store> = match &self.setup.keep {
            Keep::Memory(store) | Keep::Ephemeral(store) => Arc::clone(store) as Arc<dyn Store>,
            Keep::Disk => self.open_file(self.state().join("sessions.db")),
            Keep::Nowhere => {
                std::fs::write(self.folder.path().join("file"), "").expect("a file");
                self.open_file(self.folder.path().join("file/sessions.db"))
            }
        };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let parts = RegistryParts::new(store, Arc::clone(&self.setup.backend), clock);
        let registry = Registry::new(RegistryParts {
            limits: self.setup.limits.clone(),
            rules: Arc::clone(&self.setup.permissions),
            redactor: self.setup.redactor.clone(),
            followers: self.setup.followers.clone(),
            folders: self.setup.folders.clone(),
            ephemeral: matches!(self.setup.keep, Keep::Ephemeral(_)),
            ..parts
        });
        registry.start_reaper();
        registry
    }

    fn open_file(&self, path: PathBuf) -> Arc<dyn Store> {
        let boot = format!("boot-{}", self.power_cuts);
        let options = store::Options { boot: Some(boot.into()), ..store::Options::default() };
        Arc::new(SqliteStore::open(path, options))
    }

    async fn shut_down(&mut self) {
        let registry = self.registry.take().expect("the server runs");
        registry.shutdown().await;
        assert!(registry.tracker().is_empty(), "a session's task is still running");
        self.stop.send_replace(true);
        while let Some(ended) = self.connections.join_next().await {
            ended.expect("a connection ends in good order");
        }
        self.stop.send_replace(false);
        // Whoever holds it for longer is a task that nobody can end.
        let alone = async {
            while Arc::strong_count(&registry) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let alone = tokio::time::timeout(DEADLINE, alone).await;
        let holders = Arc::strong_count(&registry) - 1;
        alone.unwrap_or_else(|_| panic!("a connection's task is still running: {holders} hold the registry"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        assert!(self.registry.is_none() || std::thread::panicking(), "a test ends with Server::stop");
    }
}

/// Runs a test against a fresh server and ends both in good order.
pub async fn run(setup: Setup, test: impl AsyncFnOnce(&mut Server)) {
    let mut server = Server::start(setup);
    test(&mut server).await;
    server.stop().await;
}

/// The same with one client, which has greeted the server.
pub async fn run_with_client(setup: Setup, test: impl AsyncFnOnce(&mut Server, Client)) {
    run(setup, async |server| {
        let client = server.client().await;
        test(server, client).await;
    })
    .await;
}

/// The same with one client that has a session.
pub async fn run_with_session(setup: Setup, test: impl AsyncFnOnce(&mut Server, Client, String)) {
    run_with_client(setup, async |server, mut client| {
        let session = client.new_session().await;
        test(server, client, session).await;
    })
    .await;
}

/// The file and its log; the index beside them is made anew from the log.
fn copy_database(from: &Path, to: &Path) {
    for name in ["sessions.db", "sessions.db-wal"] {
        let copied = std::fs::copy(from.join(name), to.join(name));
        assert!(copied.is_ok() || name.ends_with("-wal"), "{name} cannot be copied: {copied:?}");
    }
}

/// Time that passes by looking at it, a millisecond each time, and by a test's word.
pub struct TestClock {
    now: AtomicI64,
    broken: AtomicBool,
}

impl TestClock {
    pub fn advance(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_millis()).expect("a sane time"), Ordering::SeqCst);
    }

    /// Breaks whoever asks for the time next.
    pub fn break_once(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        assert!(!self.broken.swap(false, Ordering::SeqCst), "injected: the clock is broken");
        Timestamp(self.now.fetch_add(1, Ordering::SeqCst))
    }
}

/// Writes a file for a test.
pub fn write(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).expect("a file");
}
