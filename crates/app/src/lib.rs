//! The server side of our own clients: the web app over a WebSocket, the terminal client in the same process.
//!
//! A client holds an [`AppConnection`]: it sends requests and receives frames, in the types of `wire::native`.
//! All connections share one [`AppServer`]: the board with the cards of all sessions, and one
//! feed for every session that somebody watches. A client is a position on the board and one in each
//! feed, so a slow client costs nothing but itself, and one that reconnects names its position.

mod board;
mod board_updates;
mod connection;
mod error_replies;
mod feed;
mod file_search;
mod health;
mod history_reader;
mod mirror_source;
mod requests;
mod role_check;
mod session_watch;

use std::sync::{Arc, OnceLock};

use access::devices::{Devices, Visitor};
use engine::{Follower, Registry, SurfaceId};
use service::{Service, ServiceRules};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Identity;
use wire::native::{RequestEnvelope, RuleView, ServerFrame};

pub use mirror_source::MirrorSource;

use board::Board;
use feed::Feeds;
use health::HealthReports;
use requests::PromptLocks;

/// Requests of one client that may wait.
const REQUESTS_MAX: usize = 8;
/// Frames that may wait for the client to take them.
const FRAMES_MAX: usize = 64;

/// One client's connection, as the client has it.
pub struct AppConnection {
    pub requests: mpsc::Sender<RequestEnvelope>,
    /// Ends when the client's device is revoked, or the server stops.
    pub frames: mpsc::Receiver<ServerFrame>,
}

/// The permission rules that earlier answers created, where there are any.
pub trait RuleStore: Send + Sync + 'static {
    /// Reads files: called off the async threads.
    fn list(&self) -> Vec<RuleView>;

    /// The error is for a person. Writes files: called off the async threads.
    fn forget(&self, id: &str) -> Result<(), String>;
}

/// What only the program that starts the server knows.
#[derive(Clone, Default)]
pub struct AppServerExtras {
    /// The name of the machine.
    pub host: String,
    pub rule_store: Option<Arc<dyn RuleStore>>,
}

pub struct AppServerParts {
    pub registry: Arc<Registry>,
    pub rules: ServiceRules,
    pub identity: Identity,
    pub devices: Arc<Devices>,
    pub extras: AppServerExtras,
    /// All connections run here.
    pub tasks: TaskTracker,
    /// All connections end when this is cancelled.
    pub stop: CancellationToken,
}

/// What all connections of our own clients share.
pub struct AppServer {
    service: Service,
    board: Arc<Board>,
    identity: Identity,
    devices: Arc<Devices>,
    extras: AppServerExtras,
    tasks: TaskTracker,
    stop: CancellationToken,
    feeds: Feeds,
    health: HealthReports,
    prompt_locks: PromptLocks,
}

impl AppServer {
    /// Follows the registry's sessions from here on.
    pub fn new(parts: AppServerParts) -> Arc<Self> {
        let board = Arc::new(Board::default());
        parts.registry.join(Arc::clone(&board) as Arc<dyn Follower>);
        Arc::new(Self {
            service: Service::new(parts.registry, parts.rules),
            board,
            identity: parts.identity,
            devices: parts.devices,
            extras: parts.extras,
            tasks: parts.tasks,
            stop: parts.stop,
            feeds: Feeds::default(),
            health: HealthReports::default(),
            prompt_locks: PromptLocks::default(),
        })
    }
}

/// An [`AppServer`] that is made when it is first needed: without clients of ours it would follow all sessions for nobody.
#[derive(Default)]
pub struct AppServerSlot {
    extras: AppServerExtras,
    app: OnceLock<Arc<AppServer>>,
}

impl AppServerSlot {
    pub fn new(extras: AppServerExtras) -> Self {
        Self { extras, app: OnceLock::new() }
    }

    pub fn get(&self, parts: impl FnOnce(AppServerExtras) -> AppServerParts) -> &Arc<AppServer> {
        self.app.get_or_init(|| AppServer::new(parts(self.extras.clone())))
    }
}

/// Opens a connection for a visitor. It ends when the client drops it, when the server stops, or when the
/// visitor's device is revoked.
pub fn open(app: &Arc<AppServer>, visitor: Visitor) -> AppConnection {
    let (line, _frames) = open_with(app, visitor);
    line
}

/// The same, with a sender of further frames to the client.
pub fn open_with(app: &Arc<AppServer>, visitor: Visitor) -> (AppConnection, mpsc::WeakSender<ServerFrame>) {
    let (requests, asked) = mpsc::channel(REQUESTS_MAX);
    let (told, frames) = mpsc::channel(FRAMES_MAX);
    let weak = told.downgrade();
    let connection = connection::ConnectionTask::new(Arc::clone(app), visitor, told);
    drop(app.tasks.spawn(connection.run(asked)));
    (AppConnection { requests, frames }, weak)
}

/// All connections of one visitor are one surface, also after a reconnect: the visitor can cancel its queued prompts,
/// and a prompt that it sends again is recognised.
fn surface(visitor: &Visitor) -> SurfaceId {
    let mut hash = Sha256::new();
    hash.update(b"native\0");
    hash.update(visitor.principal.0.as_bytes());
    hash.update(b"\0");
    let own = visitor.device.as_ref().unwrap_or(&visitor.name);
    match &visitor.remote {
        Some(remote) => {
            hash.update(b"bridge\0");
            hash.update(remote.id.as_bytes());
        }
        None => hash.update(own.as_bytes()),
    }
    let digest: [u8; 32] = hash.finalize().into();
    SurfaceId(digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
