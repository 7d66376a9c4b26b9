//! What came of each message, told once: to the counters and, if anybody listens, to the request log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::{Answer, Stop};
use wire::{Fault, Outcome, RpcId};

use super::{Metrics, Reason, words};

/// Requests of one client that are counted while they are open. A client that has more of them open only
/// has the further ones not counted.
const OPEN_MAX: usize = 4096;

/// Characters of a client's word that the log repeats.
const WORD_CHARS_MAX: usize = 80;

/// What came of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOutcome {
    Ok,
    /// Something failed here, or the agent did.
    Error,
    /// The message was not acceptable: malformed, unknown method or session, wrong parameters.
    Rejected,
    Cancelled,
    /// The sender may not do this, or the message refused a permission.
    PermissionDenied,
}

impl MessageOutcome {
    pub const ALL: [Self; 5] =
        [Self::Ok, Self::Error, Self::Rejected, Self::Cancelled, Self::PermissionDenied];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::PermissionDenied => "permission_denied",
        }
    }

    pub fn of(answer: Result<&Outcome, &Fault>) -> Self {
        match answer {
            Ok(Outcome::TurnEnded { stop, .. } | Outcome::Said { stop, .. }) => Self::of_stop(*stop),
            // Somebody was faster, or there is no such question.
            Ok(Outcome::Answered { applied: false, .. }) => Self::Rejected,
            Ok(Outcome::Answered { allowed: false, .. }) => Self::PermissionDenied,
            Ok(_) => Self::Ok,
            Err(fault) if Reason::of(fault).is_some() => Self::Rejected,
            Err(_) => Self::Error,
        }
    }

    fn of_stop(stop: Stop) -> Self {
        match stop {
            Stop::Cancelled => Self::Cancelled,
            Stop::Failed | Stop::Interrupted => Self::Error,
            Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal => Self::Ok,
        }
    }

    /// What a person's answer to a question comes to.
    pub fn of_permission(answer: &Answer) -> Self {
        match answer {
            Answer::AllowOnce
            | Answer::AllowAlways
            | Answer::AllowExactly
            | Answer::Reply(_)
            | Answer::Choose(_) => Self::Ok,
            Answer::DenyOnce | Answer::DenyBecause(_) | Answer::DenyAlways | Answer::DenyExactly => {
                Self::PermissionDenied
            }
            Answer::Withdraw | Answer::CancelTurn => Self::Cancelled,
        }
    }
}

/// The open requests of one connection, and under which method each is to be counted.
pub struct Tally {
    metrics: Arc<Metrics>,
    open: Mutex<HashMap<RpcId, Open>>,
}

struct Open {
    method: &'static str,
    since: Instant,
}

/// A request that was answered and whose turn still runs.
pub struct Deferred {
    tally: Arc<Tally>,
    open: Open,
}

impl Deferred {
    pub fn ended(self, stop: Stop) {
        let elapsed_ms = self.open.since.elapsed().as_millis();
        self.tally.count(self.open.method, MessageOutcome::of_stop(stop), elapsed_ms);
    }
}

impl Tally {
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { metrics, open: Mutex::default() })
    }

    /// A request came in.
    pub fn asked(&self, id: &RpcId, method: &str) {
        let known = words::method(method);
        if known == words::UNKNOWN {
            // Counted as one, whatever it is called; only the log has the name.
            tracing::info!(target: "request", name = shortened(method), "a method that is not known was called");
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < OPEN_MAX {
            open.insert(id.clone(), Open { method: known, since: Instant::now() });
        }
    }

    /// A request is being answered: every answer passes here. One that is told again, because its client
    /// came back for it, counts once; a fault without a request is what nobody could read.
    pub fn answered(&self, id: &RpcId, answer: Result<&Outcome, &Fault>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(reason) = answer.err().and_then(Reason::of) {
            self.metrics.rejected(reason);
        }
        let outcome = MessageOutcome::of(answer);
        match open {
            Some(open) => self.count(open.method, outcome, open.since.elapsed().as_millis()),
            None if answer.is_err() => self.count(words::UNKNOWN, outcome, 0),
            None => {}
        }
    }

    /// A request is answered before it is known what comes of it: its turn goes on after the answer. It is counted
    /// when that is over, and its answer is not.
    pub fn deferred(self: &Arc<Self>, id: &RpcId) -> Option<Deferred> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id)?;
        Some(Deferred { tally: Arc::clone(self), open })
    }

    /// A message that has no answer was dealt with.
    pub fn noticed(&self, method: &str, outcome: MessageOutcome) {
        let known = words::method(method);
        if known == words::UNKNOWN {
            tracing::info!(target: "request", name = shortened(method), "a notification that is not known came");
        }
        self.count(known, outcome, 0);
    }

    /// The span that everything done about a message stands in.
    pub fn span(method: &str) -> tracing::Span {
        tracing::debug_span!("call", method = words::method(method))
    }

    /// The request log has names only: what somebody typed into a method's place is not repeated.
    fn count(&self, method: &'static str, outcome: MessageOutcome, elapsed_ms: u128) {
        self.metrics.message(method, outcome);
        tracing::info!(target: "request", method, outcome = outcome.name(), elapsed_ms);
    }
}

/// The beginning of a client's word, for a log, which puts it into quotes.
pub fn shortened(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect()
}
