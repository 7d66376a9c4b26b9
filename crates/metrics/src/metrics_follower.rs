//! Metrics that are counted by following each session's log.
//!
//! Only what happens while this process has the session open is counted, so counters start with the process
//! and a session that is opened again does not count twice.

use std::collections::HashSet;
use std::sync::Arc;

use engine::{
    AskId, BoxFuture, Event, Family, Follower, PermissionEvent, SessionHandle, SessionId, TurnEvent, TurnId,
    follow_log,
};

use super::{Metrics, SessionStateLabel};

/// Follows every session for the metrics.
pub struct MetricsFollower(pub Arc<Metrics>);

impl Follower for MetricsFollower {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let metrics = Arc::clone(&self.0);
        Box::pin(async move {
            let mut seen = SessionGauges::new(metrics);
            follow_log(&session, |event| seen.event(event)).await;
        })
    }

    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The share of one session in the gauges. It is subtracted when this is dropped.
struct SessionGauges {
    metrics: Arc<Metrics>,
    state: SessionStateLabel,
    queued: HashSet<TurnId>,
    asks: HashSet<AskId>,
}

impl SessionGauges {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.active_sessions.inc();
        metrics.session_is(SessionStateLabel::Idle).inc();
        Self { metrics, state: SessionStateLabel::Idle, queued: HashSet::new(), asks: HashSet::new() }
    }

    fn event(&mut self, event: &Event) {
        match event.body.family() {
            Family::Turn(TurnEvent::Queued { .. }) => {
                if event.turn.is_some_and(|turn| self.queued.insert(turn)) {
                    self.metrics.prompts_waiting.inc();
                }
            }
            Family::Turn(TurnEvent::Started) => {
                self.leaves_queue(event.turn);
                self.becomes(SessionStateLabel::Running);
            }
            Family::Turn(TurnEvent::CancelRequested { .. }) => {
                if self.state == SessionStateLabel::Running {
                    self.becomes(SessionStateLabel::Cancelled);
                }
            }
            Family::Turn(TurnEvent::Ended { stop, .. }) => {
                self.metrics.turn_ended(stop);
                // A queued turn that was cancelled ends while another one runs.
                if !self.leaves_queue(event.turn) {
                    self.becomes(SessionStateLabel::Idle);
                }
            }
            Family::Usage(usage) => self.metrics.used(usage),
            Family::Permission(PermissionEvent::Asked { ask, .. }) => {
                if self.asks.insert(ask) {
                    self.metrics.asks_pending.inc();
                }
            }
            Family::Permission(PermissionEvent::Resolved { ask, resolution, by, .. }) => {
                if self.asks.remove(&ask) {
                    self.metrics.asks_pending.dec();
                }
                self.metrics.decided(resolution, by);
            }
            Family::Turn(TurnEvent::UserMessage { .. })
            | Family::Speech(_)
            | Family::Tool(_)
            | Family::Setup(_)
            | Family::Context(_)
            | Family::Other => {}
        }
    }

    fn leaves_queue(&mut self, turn: Option<TurnId>) -> bool {
        let waited = turn.is_some_and(|turn| self.queued.remove(&turn));
        if waited {
            self.metrics.prompts_waiting.dec();
        }
        waited
    }

    fn becomes(&mut self, state: SessionStateLabel) {
        self.metrics.session_is(self.state).dec();
        self.metrics.session_is(state).inc();
        self.state = state;
    }
}

impl Drop for SessionGauges {
    fn drop(&mut self) {
        self.metrics.active_sessions.dec();
        self.metrics.session_is(self.state).dec();
        let count = |set: usize| i64::try_from(set).unwrap_or(i64::MAX);
        self.metrics.prompts_waiting.dec_by(count(self.queued.len()));
        self.metrics.asks_pending.dec_by(count(self.asks.len()));
    }
}
