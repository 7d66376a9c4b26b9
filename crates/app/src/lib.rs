//! Our own clients: the web app over a WebSocket, the terminal client in the same process.
//!
//! Both hold a [`Line`]: they send requests and are told what happens, in the types of `wire::native`.
//! Behind it is a [`Desk`], which all of them share: the board with the cards of all sessions, and one
//! feed for every session that somebody watches. A client is a position on the board and one in each
//! feed, so a slow one costs nothing but itself, and one that comes back names its position.

mod board;
mod connection;
mod faults;
mod feed;
mod files;
mod history;
mod mirroring;
mod requests;
mod roles;
mod table;
mod watching;
mod wrong;

use std::sync::{Arc, OnceLock};

use access::devices::{Devices, Visitor};
use engine::{Follower, Registry, SurfaceId};
use service::{Rules, Service};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Identity;
use wire::native::{Envelope, Frame, RuleView};

pub use mirroring::Mirroring;

use board::Board;
use faults::Faults;
use feed::Feeds;
use requests::PromptLocks;

/// Requests that may wait to be looked at.
const REQUESTS_MAX: usize = 8;
/// Frames that may wait to be taken.
const FRAMES_MAX: usize = 64;

/// One client's connection, as the client has it.
pub struct Line {
    pub requests: mpsc::Sender<Envelope>,
    /// Ends when the client is not welcome any more, or the server stops.
    pub frames: mpsc::Receiver<Frame>,
}

/// The rules that earlier answers wrote, where there are any.
pub trait RuleShelf: Send + Sync + 'static {
    /// Reads files: called off the async threads.
    fn list(&self) -> Vec<RuleView>;

    /// The error is for a person. Writes files: called off the async threads.
    fn forget(&self, id: &str) -> Result<(), String>;
}

/// What only the program knows.
#[derive(Clone, Default)]
pub struct Extras {
    /// The name of the machine.
    pub host: String,
    pub shelf: Option<Arc<dyn RuleShelf>>,
}

pub struct DeskParts {
    pub registry: Arc<Registry>,
    pub rules: Rules,
    pub identity: Identity,
    pub hall: Arc<Devices>,
    pub extras: Extras,
    /// All lines run here.
    pub tasks: TaskTracker,
    /// All lines end when this is cancelled.
    pub stop: CancellationToken,
}

/// What all of our own clients share.
pub struct Desk {
    service: Service,
    board: Arc<Board>,
    identity: Identity,
    hall: Arc<Devices>,
    extras: Extras,
    tasks: TaskTracker,
    stop: CancellationToken,
    feeds: Feeds,
    faults: Faults,
    prompting: PromptLocks,
}

impl Desk {
    /// Reads along with the registry's sessions from here on.
    pub fn new(parts: DeskParts) -> Arc<Self> {
        let board = Arc::new(Board::default());
        parts.registry.join(Arc::clone(&board) as Arc<dyn Follower>);
        Arc::new(Self {
            service: Service::new(parts.registry, parts.rules),
            board,
            identity: parts.identity,
            hall: parts.hall,
            extras: parts.extras,
            tasks: parts.tasks,
            stop: parts.stop,
            feeds: Feeds::default(),
            faults: Faults::default(),
            prompting: PromptLocks::default(),
        })
    }
}

/// A desk that is set up when it is first needed: a server without clients of ours has none to feed.
#[derive(Default)]
pub struct DeskSlot {
    extras: Extras,
    desk: OnceLock<Arc<Desk>>,
}

impl DeskSlot {
    pub fn new(extras: Extras) -> Self {
        Self { extras, desk: OnceLock::new() }
    }

    pub fn get(&self, parts: impl FnOnce(Extras) -> DeskParts) -> &Arc<Desk> {
        self.desk.get_or_init(|| Desk::new(parts(self.extras.clone())))
    }
}

/// Opens a line for a visitor. It ends when the client drops it, when the server stops, or when the
/// visitor is not welcome any more.
pub fn open(desk: &Arc<Desk>, visitor: Visitor) -> Line {
    let (line, _frames) = open_with(desk, visitor);
    line
}

/// The same, with a way to say something to the client besides.
pub fn open_with(desk: &Arc<Desk>, visitor: Visitor) -> (Line, mpsc::WeakSender<Frame>) {
    let (requests, asked) = mpsc::channel(REQUESTS_MAX);
    let (told, frames) = mpsc::channel(FRAMES_MAX);
    let weak = told.downgrade();
    let connection = connection::Connection::new(Arc::clone(desk), visitor, told);
    drop(desk.tasks.spawn(connection.run(asked)));
    (Line { requests, frames }, weak)
}

/// All lines of one visitor are one surface, also after it came back: what it has waiting, it can cancel,
/// and a prompt that it sends again is known.
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
