//! Connections without a socket: frames come in requests, and others wait for what is to go. For bridges behind
//! proxies that know no WebSocket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::{Refusal, random, url_safe};
use axum::extract::ws::Utf8Bytes;
use axum::http::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::Instant;
use wire::json;
use wire::tunnel::FRAME_BYTES_MAX;

use crate::guest::PersonId;
use crate::socket::{Go, Mouth};

/// A connection that was not heard of for this long is forgotten.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long somebody may wait for what is to go.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long what came may wait to be taken.
const UP_WAIT: Duration = Duration::from_secs(25);
const CONNECTIONS_MAX: usize = 4096;
/// Of one person's machines: as many as eight machines have whose sessions are all bridged.
const PERSONS_CONNECTIONS_MAX: usize = 8 * 65;
/// Frames of one answer.
const FRAMES_MAX: usize = 256;

#[derive(Default)]
pub struct Polls(Mutex<HashMap<String, Arc<Poll>>>);

struct Poll {
    /// What it is a connection of, and whose it is: a connection's name opens nothing else.
    path: String,
    person: PersonId,
    came: mpsc::Sender<Utf8Bytes>,
    go: AsyncMutex<mpsc::Receiver<Go>>,
    heard: Mutex<Instant>,
    /// Why it was closed, once it is.
    closed: Mutex<Option<String>>,
}

fn forgotten() -> Refusal {
    Refusal::new(StatusCode::GONE, "connection_gone", "this connection is forgotten; open another")
}

impl Polls {
    /// A new connection. Those that were silent for too long are forgotten.
    pub fn open(&self, path: String, person: PersonId, mouth: Mouth) -> Result<String, Refusal> {
        let broken =
            |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no_random", "there are no random bytes");
        let name = url_safe(&random().map_err(broken)?);
        let mut polls = self.polls();
        let now = Instant::now();
        polls.retain(|_, poll| now.duration_since(*poll.heard()) < SILENCE_MAX);
        if polls.len() >= CONNECTIONS_MAX {
            let message = "as many connections are open as may be; try again in a moment";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message));
        }
        if polls.values().filter(|poll| poll.person == person).count() >= PERSONS_CONNECTIONS_MAX {
            let message = "one person's machines have as many connections as may be; close some first";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message));
        }
        let Mouth { came, go } = mouth;
        let poll = Poll {
            path,
            person,
            came,
            go: AsyncMutex::new(go),
            heard: Mutex::new(now),
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

    /// Takes an array of frames, and gives what is to be said at once.
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
        let frames: Vec<&RawValue> = json::read_bytes(body, "the body").map_err(bad)?;
        for frame in frames {
            let sent = tokio::time::timeout(UP_WAIT, poll.came.send(frame.get().to_owned().into())).await;
            match sent {
                Ok(Ok(())) => {}
                // It was closed; `down` says why.
                Ok(Err(_)) => break,
                Err(_) => {
                    let message = "the hub does not come to it at the moment; open another connection later";
                    self.polls().remove(name);
                    return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message));
                }
            }
        }
        match poll.go.try_lock() {
            Ok(mut go) => Ok(poll.gathered(&mut go, Vec::new())),
            // Somebody waits for it already.
            Err(_) => Ok("[]".into()),
        }
    }

    /// Waits for what is to go.
    pub async fn down(
        &self,
        name: &str,
        path: &str,
        person: &PersonId,
        wait: Duration,
    ) -> Result<String, Refusal> {
        let poll = self.find(name, path, person)?;
        let mut go = poll.go.lock().await;
        let mut frames = "[]".to_owned();
        if poll.closed().is_none() {
            let first = tokio::time::timeout(wait.min(WAIT_MAX), go.recv()).await;
            *poll.heard() = Instant::now();
            match first {
                Err(_) => return Ok(frames),
                Ok(None) => {
                    self.polls().remove(name);
                    return Err(forgotten());
                }
                Ok(Some(first)) => frames = poll.gathered(&mut go, vec![first]),
            }
        }
        // What was said before goes first; the next request learns why there is nothing more.
        let closed = poll.closed().clone().filter(|_| frames == "[]");
        match closed {
            Some(reason) => {
                self.polls().remove(name);
                Err(Refusal::new(StatusCode::GONE, "closed", reason))
            }
            None => Ok(frames),
        }
    }

    fn find(&self, name: &str, path: &str, person: &PersonId) -> Result<Arc<Poll>, Refusal> {
        let poll = self.polls().get(name).cloned();
        let poll = poll.filter(|poll| poll.path == path && poll.person == *person).ok_or_else(forgotten)?;
        *poll.heard() = Instant::now();
        Ok(poll)
    }

    /// Forgets those that were silent for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.polls().retain(|_, poll| now.duration_since(*poll.heard()) < SILENCE_MAX);
    }

    fn polls(&self) -> MutexGuard<'_, HashMap<String, Arc<Poll>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Poll {
    /// What is to be said, as an array. Why it was closed is kept for who asks next.
    fn gathered(&self, go: &mut mpsc::Receiver<Go>, mut frames: Vec<Go>) -> String {
        let mut bytes = 0;
        while frames.len() < FRAMES_MAX
            && bytes < FRAME_BYTES_MAX / 4
            && let Ok(next) = go.try_recv()
        {
            if let Go::Text(text) = &next {
                bytes += text.len();
            }
            frames.push(next);
        }
        let mut texts = Vec::new();
        for frame in frames {
            match frame {
                Go::Text(text) => texts.push(text),
                Go::Close(_, reason) => *self.closed() = Some(reason),
            }
        }
        format!("[{}]", texts.iter().map(Utf8Bytes::as_str).collect::<Vec<_>>().join(","))
    }

    fn closed(&self) -> MutexGuard<'_, Option<String>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;

    #[tokio::test]
    async fn one_person_cannot_take_the_places_of_all_others() {
        let polls = Polls::default();
        let open = |person: &str| polls.open("s".into(), PersonId(person.into()), socket::pipe().1);
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
