//! Connections over long polls instead of a WebSocket: frames from the bridge arrive in requests, and other requests wait
//! for frames to the bridge. For bridges behind proxies that do not support WebSockets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::{Refusal, random, url_safe};
use axum::extract::ws::Utf8Bytes;
use axum::http::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::Instant;
use wire::json_errors;
use wire::tunnel::TUNNEL_FRAME_BYTES_MAX;

use crate::authenticator::PersonId;
use crate::websocket_queues::{OutgoingFrame, SocketEnd};

/// A connection without a request for this long is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long a request may wait for outgoing frames.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an incoming frame may wait for room in the queue.
const UP_WAIT_MAX: Duration = Duration::from_secs(25);
const CONNECTIONS_MAX: usize = 4096;
/// Connections of one person's machines: enough for eight machines that bridge all of their sessions.
const PERSONS_CONNECTIONS_MAX: usize = 8 * 65;
/// Frames of one response.
const FRAMES_MAX: usize = 256;

#[derive(Default)]
pub struct LongPolls(Mutex<HashMap<String, Arc<LongPoll>>>);

struct LongPoll {
    /// The path and the person that it belongs to: its id is valid for these only.
    path: String,
    person: PersonId,
    incoming: mpsc::Sender<Utf8Bytes>,
    outgoing: AsyncMutex<mpsc::Receiver<OutgoingFrame>>,
    last_seen: Mutex<Instant>,
    /// The reason, once it is closed.
    closed: Mutex<Option<String>>,
}

fn connection_gone() -> Refusal {
    Refusal::new(StatusCode::GONE, "connection_gone", "this connection has expired; open a new one")
}

impl LongPolls {
    /// Opens a connection, after dropping those that were silent for too long.
    pub fn open(&self, path: String, person: PersonId, socket_end: SocketEnd) -> Result<String, Refusal> {
        let broken = |_| {
            Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "no_random",
                "the operating system's random generator failed",
            )
        };
        let name = url_safe(&random().map_err(broken)?);
        let mut polls = self.polls();
        let now = Instant::now();
        polls.retain(|_, poll| now.duration_since(*poll.last_seen()) < SILENCE_MAX);
        if polls.len() >= CONNECTIONS_MAX {
            let message = "connection limit reached; try again in a moment";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
        }
        if polls.values().filter(|poll| poll.person == person).count() >= PERSONS_CONNECTIONS_MAX {
            let message = "connection limit of one person's machines reached; close some first";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message));
        }
        let SocketEnd { incoming, outgoing } = socket_end;
        let poll = LongPoll {
            path,
            person,
            incoming,
            outgoing: AsyncMutex::new(outgoing),
            last_seen: Mutex::new(now),
            closed: Mutex::default(),
        };
        polls.insert(name.clone(), Arc::new(poll));
        Ok(name)
    }

    pub fn close(&self, name: &str, path: &str, person: &PersonId) {
        if self.find(name, path, person).is_ok() {
            self.polls().remove(name);
        }
    }

    /// Takes an array of incoming frames, and returns the outgoing frames that wait.
    pub async fn up(
        &self,
        name: &str,
        path: &str,
        person: &PersonId,
        body: &[u8],
    ) -> Result<String, Refusal> {
        let poll = self.find(name, path, person)?;
        let bad = |error| {
            Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", format!("send an array of frames: {error}"))
        };
        let frames: Vec<&RawValue> = json_errors::read_bytes(body, "the body").map_err(bad)?;
        for frame in frames {
            let sent =
                tokio::time::timeout(UP_WAIT_MAX, poll.incoming.send(frame.get().to_owned().into())).await;
            match sent {
                Ok(Ok(())) => {}
                // Closed; `down` returns the reason.
                Ok(Err(_)) => break,
                Err(_) => {
                    let message = "the hub is too busy at the moment; open another connection later";
                    self.polls().remove(name);
                    return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message));
                }
            }
        }
        match poll.outgoing.try_lock() {
            Ok(mut outgoing) => Ok(poll.take_frames(&mut outgoing, Vec::new())),
            // Another request waits for outgoing frames already.
            Err(_) => Ok("[]".into()),
        }
    }

    /// Waits for outgoing frames.
    pub async fn down(
        &self,
        name: &str,
        path: &str,
        person: &PersonId,
        wait: Duration,
    ) -> Result<String, Refusal> {
        let poll = self.find(name, path, person)?;
        let mut outgoing = poll.outgoing.lock().await;
        let mut frames = "[]".to_owned();
        if poll.closed().is_none() {
            let first = tokio::time::timeout(wait.min(WAIT_MAX), outgoing.recv()).await;
            *poll.last_seen() = Instant::now();
            match first {
                Err(_) => return Ok(frames),
                Ok(None) => {
                    self.polls().remove(name);
                    return Err(connection_gone());
                }
                Ok(Some(first)) => frames = poll.take_frames(&mut outgoing, vec![first]),
            }
        }
        // Frames from before the close go first; the next request gets the reason.
        let closed = poll.closed().clone().filter(|_| frames == "[]");
        match closed {
            Some(reason) => {
                self.polls().remove(name);
                Err(Refusal::new(StatusCode::GONE, "closed", reason))
            }
            None => Ok(frames),
        }
    }

    fn find(&self, name: &str, path: &str, person: &PersonId) -> Result<Arc<LongPoll>, Refusal> {
        let poll = self.polls().get(name).cloned();
        let poll =
            poll.filter(|poll| poll.path == path && poll.person == *person).ok_or_else(connection_gone)?;
        *poll.last_seen() = Instant::now();
        Ok(poll)
    }

    /// Drops connections that were silent for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.polls().retain(|_, poll| now.duration_since(*poll.last_seen()) < SILENCE_MAX);
    }

    fn polls(&self) -> MutexGuard<'_, HashMap<String, Arc<LongPoll>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LongPoll {
    /// The waiting frames, as an array. The reason of a close is remembered for the next request.
    fn take_frames(
        &self,
        outgoing: &mut mpsc::Receiver<OutgoingFrame>,
        mut frames: Vec<OutgoingFrame>,
    ) -> String {
        let mut bytes = 0;
        while frames.len() < FRAMES_MAX
            && bytes < TUNNEL_FRAME_BYTES_MAX / 4
            && let Ok(next) = outgoing.try_recv()
        {
            if let OutgoingFrame::Text(text) = &next {
                bytes += text.len();
            }
            frames.push(next);
        }
        let mut texts = Vec::new();
        for frame in frames {
            match frame {
                OutgoingFrame::Text(text) => texts.push(text),
                OutgoingFrame::Close(_, reason) => *self.closed() = Some(reason),
            }
        }
        format!("[{}]", texts.iter().map(Utf8Bytes::as_str).collect::<Vec<_>>().join(","))
    }

    fn closed(&self) -> MutexGuard<'_, Option<String>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_seen(&self) -> MutexGuard<'_, Instant> {
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket_queues;

    #[tokio::test]
    async fn one_person_cannot_take_the_places_of_all_others() {
        let polls = LongPolls::default();
        let open =
            |person: &str| polls.open("s".into(), PersonId(person.into()), websocket_queues::channel().1);
        let mut last = None;
        for _ in 0..PERSONS_CONNECTIONS_MAX {
            last = open("ops").ok();
        }
        assert_eq!(open("ops").unwrap_err().0, StatusCode::TOO_MANY_REQUESTS);
        assert!(open("dev").is_ok());
        polls.close(&last.unwrap(), "s", &PersonId("ops".into()));
        assert!(open("ops").is_ok(), "a place that is left is free");
    }
}
