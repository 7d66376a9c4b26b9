//! A WebSocket as two queues: incoming and outgoing frames. The code that serves a connection sees neither pings nor the
//! socket, so it serves connections over long polls in the same way (`long_polls`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use access::websocket_pump::{
    self, NORMAL, RateLimit, SocketItem, SocketOutput, SocketRules, TextReceiver, TextReceiverClosed,
    TokenBucket,
};
use axum::extract::ws::{Utf8Bytes, WebSocket};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::authenticator::PersonId;

const RULES: SocketRules = SocketRules {
    ping_every: Duration::from_secs(20),
    silence_max: Duration::from_secs(60),
    waiting_is_silence: false,
    not_text: Some("send text: one JSON object per frame"),
    unreadable: "a message was too long, or could not be read",
    pace: Some(RateLimit { per_second: 200.0, at_once: 1000.0 }),
    over: Some((NORMAL, "")),
};
/// Incoming frames that wait. Few: each may be large.
const INCOMING_MAX: usize = 2;
/// Outgoing frames that wait.
const OUTGOING_MAX: usize = 64;

/// A frame to be sent.
#[derive(Debug, Clone)]
pub enum OutgoingFrame {
    Text(Utf8Bytes),
    Close(u16, String),
}

/// The end of a connection for the code that serves it.
pub struct FrameChannel {
    pub incoming: mpsc::Receiver<Utf8Bytes>,
    pub outgoing: mpsc::Sender<OutgoingFrame>,
}

/// The other end, for the code that has the socket or the polls.
pub struct SocketEnd {
    pub incoming: mpsc::Sender<Utf8Bytes>,
    pub outgoing: mpsc::Receiver<OutgoingFrame>,
}

pub fn channel() -> (FrameChannel, SocketEnd) {
    let (incoming, incoming_receiver) = mpsc::channel(INCOMING_MAX);
    let (outgoing, outgoing_receiver) = mpsc::channel(OUTGOING_MAX);
    (
        FrameChannel { incoming: incoming_receiver, outgoing },
        SocketEnd { incoming, outgoing: outgoing_receiver },
    )
}

/// Moves frames until either side ends. Outgoing frames that still wait are sent then.
pub async fn pump(socket: WebSocket, socket_end: SocketEnd) {
    let SocketEnd { incoming, outgoing } = socket_end;
    // The code that serves the connection closes it when the hub stops.
    websocket_pump::pump(socket, &RULES, IncomingQueue(incoming), outgoing, std::future::pending()).await;
}

struct IncomingQueue(mpsc::Sender<Utf8Bytes>);

impl TextReceiver for IncomingQueue {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), TextReceiverClosed> {
        self.0.send(text).await.map_err(|_| TextReceiverClosed)
    }
}

impl SocketItem for OutgoingFrame {
    fn into_output(self) -> SocketOutput<impl Iterator<Item = Utf8Bytes> + Send> {
        match self {
            Self::Text(text) => SocketOutput::Texts(std::iter::once(text)),
            Self::Close(code, reason) => SocketOutput::Close(websocket_pump::close(code, &reason)),
        }
    }
}

/// Requests of one person's machines per second on average, and in one burst: all sessions of a machine that was offline
/// reconnect together.
const REQUESTS: RateLimit = RateLimit { per_second: 500.0, at_once: 10_000.0 };
const PEOPLE_MAX: usize = 4096;

/// Limits the requests of each person's machines.
#[derive(Default)]
pub struct RequestRates(Mutex<HashMap<PersonId, TokenBucket>>);

impl RequestRates {
    pub fn allows(&self, person: &PersonId) -> bool {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if paces.len() >= PEOPLE_MAX {
            paces.retain(|_, pace| pace.is_in_use(now));
        }
        paces.entry(person.clone()).or_insert_with(|| TokenBucket::new(REQUESTS)).next(now) <= now
    }
}
