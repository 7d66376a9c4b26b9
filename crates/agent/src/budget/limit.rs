//! `/max-cost`: what a session may spend from there on, as whoever drives it said.
//!
//! The log has it: the command is a prompt, and our answer to it says whether it was carried out. So the
//! limit is the same after a restart and in a fork. It stands beside the owner's budgets and never replaces
//! one.

use engine::{Body, Event, Origin, TurnId};

use crate::commands::max_cost::{self, Order};

/// What may be spent from a moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) usd: f64,
    /// What the session had spent when it was set.
    pub(crate) since_usd: f64,
}

impl Limit {
    /// What was spent of it, given what the session has spent in all.
    pub(crate) fn spent(&self, session_usd: f64) -> f64 {
        (session_usd - self.since_usd).max(0.0)
    }

    pub(crate) fn left(&self, session_usd: f64) -> f64 {
        (self.usd - self.spent(session_usd)).max(0.0)
    }
}

/// The limit of a session, from its log.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    current: Option<Limit>,
    /// What the command of a turn asked for. It holds once its answer says so.
    asked: Option<(TurnId, Order)>,
}

impl Limits {
    pub(crate) fn current(&self) -> Option<Limit> {
        self.current
    }

    /// Takes the next event of the log. `spent_usd` is what the session has spent up to there.
    pub(crate) fn observe(&mut self, event: &Event, spent_usd: f64) {
        let Some(turn) = event.turn else { return };
        if let Body::UserMessage { content } = &event.body {
            self.asked = max_cost::order_in(content).map(|order| (turn, order));
        } else if let (Body::Text { text, .. }, Origin::Agent) = (&event.body, &event.origin)
            && let Some((_, order)) = self.asked.take_if(|(asked, _)| *asked == turn)
            && text.starts_with(max_cost::DONE)
        {
            match order {
                Order::Set(usd) => self.current = Some(Limit { usd, since_usd: spent_usd }),
                Order::Remove => self.current = None,
                Order::Show | Order::Unclear => {}
            }
        }
    }
}
