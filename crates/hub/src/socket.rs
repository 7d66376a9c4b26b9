//! A WebSocket as two queues: frames that came, and frames that are to go. Whoever serves it sees neither pings nor
//! sockets, so the same work is done for those who cannot have a socket (`polls`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use access::websocket::{self, Hung, Leave, Leaving, NORMAL, Pace, PaceLimit, SocketRules, TakesText};
use axum::extract::ws::{Utf8Bytes, WebSocket};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::guest::PersonId;

const RULES: SocketRules = SocketRules {
    ping_every: Duration::from_secs(20),
    silence_max: Duration::from_secs(60),
    waiting_is_silence: false,
    not_text: Some("send text: one JSON object per frame"),
    unreadable: "a message was too long, or could not be read",
    pace: Some(PaceLimit { per_second: 200.0, at_once: 1000.0 }),
    over: Some((NORMAL, "")),
};
/// Frames that came and wait. Few: each may be large.
const CAME_MAX: usize = 2;
/// Frames that wait to go.
const GO_MAX: usize = 64;

/// What is to go.
#[derive(Debug, Clone)]
pub enum Go {
    Text(Utf8Bytes),
    Close(u16, String),
}

/// The end of a connection that does the work.
pub struct Pipe {
    pub came: mpsc::Receiver<Utf8Bytes>,
    pub go: mpsc::Sender<Go>,
}

/// The other end, which has the peer.
pub struct Mouth {
    pub came: mpsc::Sender<Utf8Bytes>,
    pub go: mpsc::Receiver<Go>,
}

pub fn pipe() -> (Pipe, Mouth) {
    let (came, came_here) = mpsc::channel(CAME_MAX);
    let (go, go_here) = mpsc::channel(GO_MAX);
    (Pipe { came: came_here, go }, Mouth { came, go: go_here })
}

/// Moves frames until either side ends. What is still to go then goes.
pub async fn pump(socket: WebSocket, mouth: Mouth) {
    let Mouth { came, go } = mouth;
    // Whoever does the work says itself when the hub stops.
    websocket::pump(socket, &RULES, Came(came), go, std::future::pending()).await;
}

struct Came(mpsc::Sender<Utf8Bytes>);

impl TakesText for Came {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), Hung> {
        self.0.send(text).await.map_err(|_| Hung)
    }
}

impl Leaving for Go {
    fn leave(self) -> Leave<impl Iterator<Item = Utf8Bytes> + Send> {
        match self {
            Self::Text(text) => Leave::Texts(std::iter::once(text)),
            Self::Close(code, reason) => Leave::Close(websocket::close(code, &reason)),
        }
    }
}

/// Requests of one person's machines in one second, on the average, and how many at once: all sessions of a machine
/// that was away come back together.
const REQUESTS: PaceLimit = PaceLimit { per_second: 500.0, at_once: 10_000.0 };
const PERSONS_MAX: usize = 4096;

/// How often each person's machines ask.
#[derive(Default)]
pub struct Paces(Mutex<HashMap<PersonId, Pace>>);

impl Paces {
    pub fn may(&self, person: &PersonId) -> bool {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if paces.len() >= PERSONS_MAX {
            paces.retain(|_, pace| pace.is_in_use(now));
        }
        paces.entry(person.clone()).or_insert_with(|| Pace::new(REQUESTS)).next(now) <= now
    }
}
