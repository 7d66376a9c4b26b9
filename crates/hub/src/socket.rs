//! A WebSocket as two queues: frames that came, and frames that are to go. Whoever serves it sees neither pings nor
//! sockets, so the same work is done for those who cannot have a socket (`polls`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use crate::guest::PersonId;

const PING_EVERY: Duration = Duration::from_secs(20);
/// A peer that is silent for this long, although it is asked, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long one frame may take to leave.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long the last words may take.
const FAREWELL_WAIT: Duration = Duration::from_millis(500);
/// Frames of a peer in one second, on the average, and how many may come at once. Beyond that they wait.
const FRAMES_PER_SECOND: f64 = 200.0;
const FRAMES_AT_ONCE: f64 = 1000.0;
/// Frames that came and wait. Few: each may be large.
const CAME_MAX: usize = 2;
/// Frames that wait to go.
const GO_MAX: usize = 64;

/// Reasons of a close.
pub const NORMAL: u16 = 1000;
pub const GOING_AWAY: u16 = 1001;
pub const NOT_TEXT: u16 = 1003;
pub const NOT_WELCOME: u16 = 1008;
pub const TOO_BIG: u16 = 1009;
/// Come back: the other side will tell where to go on.
pub const COME_BACK: u16 = 1012;

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

/// When the peer was last heard; nothing while a frame of it waits for whoever does the work. Then nobody reads, so it
/// cannot be told whether the peer is silent.
type Heard = Option<Instant>;

fn is_silent(heard: Heard) -> bool {
    heard.is_some_and(|at| at.elapsed() > SILENCE_MAX)
}

/// Moves frames until either side ends. What is still to go then goes.
pub async fn pump(socket: WebSocket, mouth: Mouth) {
    let Mouth { came, go } = mouth;
    let (sink, stream) = socket.split();
    let (heard, last_heard) = watch::channel(Some(Instant::now()));
    let (closing, close) = mpsc::channel(1);
    let mut writing = std::pin::pin!(write(sink, go, last_heard, close));
    let reading = read(stream, came, heard, closing);
    tokio::select! {
        () = &mut writing => return,
        () = reading => {}
    }
    // Whoever does the work sees that nothing comes any more, and ends.
    drop(tokio::time::timeout(FAREWELL_WAIT, writing).await);
}

async fn read(
    mut stream: SplitStream<WebSocket>,
    came: mpsc::Sender<Utf8Bytes>,
    heard: watch::Sender<Heard>,
    closing: mpsc::Sender<(u16, &'static str)>,
) {
    let mut pace = Pace::new(FRAMES_PER_SECOND, FRAMES_AT_ONCE);
    while let Some(message) = stream.next().await {
        heard.send_replace(Some(Instant::now()));
        let wrong = match message {
            Err(_) => (TOO_BIG, "a message was too long, or could not be read"),
            Ok(Message::Binary(_)) => (NOT_TEXT, "send text: one JSON object per frame"),
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Close(_)) => return,
            Ok(Message::Text(text)) => {
                if text.trim_ascii().is_empty() {
                    continue;
                }
                heard.send_replace(None);
                tokio::time::sleep_until(pace.next(Instant::now())).await;
                if came.send(text).await.is_err() {
                    // The work has ended; its last words go.
                    return std::future::pending().await;
                }
                heard.send_replace(Some(Instant::now()));
                continue;
            }
        };
        if closing.send(wrong).await.is_err() {
            return;
        }
        return std::future::pending().await;
    }
}

enum Wake {
    Go(Option<Go>),
    Ping,
    Close(u16, &'static str),
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut go: mpsc::Receiver<Go>,
    last_heard: watch::Receiver<Heard>,
    mut close: mpsc::Receiver<(u16, &'static str)>,
) {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wake = tokio::select! {
            biased;
            Some((code, reason)) = close.recv() => Wake::Close(code, reason),
            _ = ping.tick() => Wake::Ping,
            next = go.recv() => Wake::Go(next),
        };
        let closing = |code, reason: &str| {
            (Message::Close(Some(CloseFrame { code, reason: clipped(reason).into() })), true)
        };
        let (message, last) = match wake {
            Wake::Go(Some(Go::Text(text))) => (Message::Text(text), false),
            Wake::Go(Some(Go::Close(code, reason))) => closing(code, &reason),
            Wake::Go(None) => closing(NORMAL, ""),
            Wake::Close(code, reason) => closing(code, reason),
            Wake::Ping if is_silent(*last_heard.borrow()) => return,
            Wake::Ping => (Message::Ping("ropewalk".into()), false),
        };
        let sent = tokio::time::timeout(WRITE_WAIT, sink.send(message)).await;
        if last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// A reason has at most 123 bytes.
fn clipped(reason: &str) -> String {
    let mut end = reason.len().min(120);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default().to_owned()
}

/// So many in a second, and so many at once: one instant is a whole bucket.
pub struct Pace {
    each: Duration,
    slack: Duration,
    next: Option<Instant>,
}

impl Pace {
    pub fn new(per_second: f64, at_once: f64) -> Self {
        let each = Duration::from_secs_f64(1.0 / per_second);
        Self { each, slack: each.mul_f64(at_once), next: None }
    }

    /// When the next one may be done: now, if there were few.
    pub fn next(&mut self, now: Instant) -> Instant {
        let due = self.next.unwrap_or(now).max(now);
        self.next = Some(due + self.each);
        due.checked_sub(self.slack).unwrap_or(now).max(now)
    }
}

/// Requests of one person's machines in one second, on the average, and how many at once: all sessions of a machine
/// that was away come back together.
const REQUESTS_PER_SECOND: f64 = 500.0;
const REQUESTS_AT_ONCE: f64 = 10_000.0;
const PERSONS_MAX: usize = 4096;

/// How often each person's machines ask.
#[derive(Default)]
pub struct Paces(Mutex<HashMap<PersonId, Pace>>);

impl Paces {
    pub fn may(&self, person: &PersonId) -> bool {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if paces.len() >= PERSONS_MAX {
            paces.retain(|_, pace| pace.next.is_some_and(|next| next > now));
        }
        let new = || Pace::new(REQUESTS_PER_SECOND, REQUESTS_AT_ONCE);
        paces.entry(person.clone()).or_insert_with(new).next(now) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_at_once_are_taken_and_more_wait() {
        let (mut pace, now) = (Pace::new(10.0, 5.0), Instant::now());
        let waits: Vec<_> = (0..8).map(|_| (pace.next(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 0, 100, 200]);
        assert_eq!(pace.next(now + Duration::from_secs(9)), now + Duration::from_secs(9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_silent_when_nothing_comes_and_not_when_nobody_reads() {
        let heard = Some(Instant::now());
        tokio::time::advance(SILENCE_MAX).await;
        assert!(!is_silent(heard));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(is_silent(heard));
        assert!(!is_silent(None));
    }

    #[test]
    fn a_reason_is_cut_between_letters() {
        assert_eq!(clipped(&"ä".repeat(100)).len(), 120);
    }
}
