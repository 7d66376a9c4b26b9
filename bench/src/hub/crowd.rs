//! The bridges and the browsers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::cluster::Hubs;
use super::people::{Person, UI};
use super::wire::{Key, Socket, next, post, send, socket};
use crate::stats::Samples;

const TUNNEL: &str = "ropewalk.tunnel.v1";
/// Stands before the time in what a bridge sends.
const MARK: &str = "sent-at:";
/// Events of one batch: what an agent streams between two flushes.
const EVENTS: u64 = 3;
const TEXT: &str = "The strands are laid into one rope, and the rope holds what no strand would hold. ";

/// What is going on while it is measured.
pub struct Score {
    pub events: AtomicU64,
    pub acknowledged: AtomicU64,
    pub views: AtomicU64,
    pub lost: AtomicU64,
    pub delays_ms: Mutex<Samples>,
    /// Delays count only while this is set.
    pub counting: watch::Sender<bool>,
}

impl Default for Score {
    fn default() -> Self {
        Self {
            events: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            views: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            delays_ms: Mutex::default(),
            counting: watch::Sender::new(false),
        }
    }
}

/// Bridges and browsers are in one process, and so is their clock.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_us() -> u64 {
    u64::try_from(BEGAN.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A session at a hub, whose agent is this.
pub struct Bridge {
    socket: Socket,
    session: String,
    seq: u64,
    view: Option<u64>,
}

impl Bridge {
    pub async fn attach(hubs: &Hubs, person: &Person, number: usize) -> anyhow::Result<Self> {
        let session = format!("bench-session-{number}");
        let body = json!({
            "session_id": session, "model": "bench", "sandbox": "read-only", "approval": "auto", "cwd": "/srv/bench",
        });
        let answer = post(hubs.of(number), &hubs.public, "/api/sessions", &person.token, &body).await?;
        ensure!(answer.status < 300, "not registered: {} {}", answer.status, answer.body);
        let path = format!("/ws/{session}");
        let mut socket = socket(hubs.of(number), &hubs.public, &path, TUNNEL, &person.token).await?;
        let ready: Value = serde_json::from_str(&next(&mut socket).await?)?;
        let seq = ready["ready"]["events"].as_u64().context("not ready")?;
        let mut bridge = Self { socket, session, seq, view: None };
        bridge.say().await?;
        Ok(bridge)
    }

    /// More of the stream: events, and what changed on screens.
    async fn say(&mut self) -> anyhow::Result<()> {
        let after = self.seq;
        let events: Vec<Value> = (1..=EVENTS)
            .map(|step| {
                let seq = after + step;
                json!({ "seq": seq, "body": {
                    "event_type": "text", "version": 1, "seq": seq, "at": now_us() / 1000, "turn": 1,
                    "origin": "agent", "payload": { "message": 1, "text": TEXT },
                } })
            })
            .collect();
        self.seq += EVENTS;
        let text = format!("{TEXT}{MARK}{} ", now_us());
        let rows = match self.view {
            Some(_) => json!([]),
            None => {
                json!([{ "id": 1, "rev": 1, "at": 0, "turn": 1, "under": null, "is": "said", "text": "", "more": 0 }])
            }
        };
        let body = json!({
            "session": self.session, "upto": self.seq, "reset": self.view.is_none(), "earlier": false, "rows": rows,
            "appends": [{ "row": 1, "rev": self.seq, "text": text }], "state": null,
        });
        let view = json!({ "from": self.view, "upto": self.seq, "body": body });
        let view = match self.view {
            Some(_) => view,
            None => json!({ "upto": self.seq, "body": body }),
        };
        self.view = Some(self.seq);
        let batch = json!({ "batch": { "after": after, "events": events, "view": view } });
        send(&mut self.socket, &batch).await
    }

    /// Streams at a pace until it is told to stop.
    pub async fn run(mut self, score: Arc<Score>, mut every: watch::Receiver<Option<Duration>>) {
        let mut tick = tokio::time::interval(every.borrow().unwrap_or(Duration::from_secs(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let moved = tokio::select! {
                changed = every.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let Some(pace) = *every.borrow_and_update() else { return };
                    // Not all at the same moment.
                    let phase = pace.mul_f64((self.session.len() as f64 * 0.37 + now_us() as f64 * 1e-3).fract());
                    tick = tokio::time::interval_at(Instant::now() + phase, pace);
                    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    Ok(())
                }
                _ = tick.tick() => {
                    score.events.fetch_add(EVENTS, Ordering::Relaxed);
                    self.say().await
                }
                text = next(&mut self.socket) => text.map(|text| self.heard(&text, &score)),
            };
            if moved.is_err() {
                score.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    fn heard(&mut self, text: &str, score: &Score) {
        if text.starts_with("{\"ack\"") {
            score.acknowledged.fetch_add(1, Ordering::Relaxed);
        } else if text.contains("\"anew\":true") {
            self.view = None;
        }
    }
}

/// A browser that watches one session.
pub struct Browser {
    socket: Socket,
}

impl Browser {
    pub async fn watch(hubs: &Hubs, cookie: &Key, number: usize, session: usize) -> anyhow::Result<Self> {
        let mut socket = socket(hubs.of(number), &hubs.public, "/ui/socket", UI, cookie).await?;
        let request =
            json!({ "do": "watch", "session": format!("bench-session-{session}"), "after": null, "id": 1 });
        send(&mut socket, &request).await?;
        Ok(Self { socket })
    }

    pub async fn run(mut self, score: Arc<Score>, mut over: watch::Receiver<bool>) {
        let counting = score.counting.subscribe();
        loop {
            let text = tokio::select! {
                _ = over.changed() => return,
                text = next(&mut self.socket) => text,
            };
            let Ok(text) = text else {
                score.lost.fetch_add(1, Ordering::Relaxed);
                return;
            };
            let Some(place) = text.rfind(MARK) else { continue };
            score.views.fetch_add(1, Ordering::Relaxed);
            if !*counting.borrow() {
                continue;
            }
            let digits = text[place + MARK.len()..].split(' ').next();
            if let Some(sent) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
                let delay = now_us().saturating_sub(sent) as f64 / 1e3;
                score.delays_ms.lock().unwrap_or_else(PoisonError::into_inner).push(delay);
            }
        }
    }
}
