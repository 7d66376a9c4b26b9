//! `/max-cost`: a spending limit from here on, set by a person who drives the session.
//!
//! It is stored in the log: the command is a prompt, and our answer to it says whether it was carried out. So
//! the limit is the same after a restart and in a fork. It applies in addition to the owner's budgets and
//! never replaces them.

use engine::{Body, Event, Origin, TurnId};

use crate::commands::spending_limit::{self, MaxCostCommand};

/// A limit on what may be spent from the time it was set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) usd: f64,
    /// What the session had spent when it was set.
    pub(crate) since_usd: f64,
}

impl Limit {
    /// How much of it is spent, given the session's total.
    pub(crate) fn spent(&self, session_usd: f64) -> f64 {
        (session_usd - self.since_usd).max(0.0)
    }

    pub(crate) fn left(&self, session_usd: f64) -> f64 {
        (self.usd - self.spent(session_usd)).max(0.0)
    }
}

/// The limit of a session, read from its log.
#[derive(Debug, Default)]
pub(crate) struct SessionLimit {
    current: Option<Limit>,
    /// The command of a turn. It takes effect when its answer says so.
    requested: Option<(TurnId, MaxCostCommand)>,
}

impl SessionLimit {
    pub(crate) fn current(&self) -> Option<Limit> {
        self.current
    }

    /// Processes the next event of the log. `spent_usd` is the session's total up to there.
    pub(crate) fn observe(&mut self, event: &Event, spent_usd: f64) {
        let Some(turn) = event.turn else { return };
        if let Body::UserMessage { content } = &event.body {
            self.requested = spending_limit::parse_content(content).map(|order| (turn, order));
        } else if let (Body::Text { text, .. }, Origin::Agent) = (&event.body, &event.origin)
            && let Some((_, order)) = self.requested.take_if(|(requested, _)| *requested == turn)
            && text.starts_with(spending_limit::DONE)
        {
            match order {
                MaxCostCommand::Set(usd) => self.current = Some(Limit { usd, since_usd: spent_usd }),
                MaxCostCommand::Remove => self.current = None,
                MaxCostCommand::Show | MaxCostCommand::Unclear => {}
            }
        }
    }
}
