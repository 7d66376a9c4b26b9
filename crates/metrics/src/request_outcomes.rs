//! The outcome of each message, recorded once: in the counters and, if enabled, in the request log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::{PermissionAnswer, Stop};
use wire::{RequestError, RequestOutcome, RpcId};

use super::{Metrics, RejectReason, label_values};

/// Requests of one client that are counted while they are open. A client that has more of them open only
/// has the further ones not counted.
const OPEN_MAX: usize = 4096;

/// Characters of a client's word that the log repeats.
const WORD_CHARS_MAX: usize = 80;

/// The outcome of a message.
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

    pub fn of(answer: Result<&RequestOutcome, &RequestError>) -> Self {
        match answer {
            Ok(RequestOutcome::TurnEnded { stop, .. } | RequestOutcome::MessageAnswer { stop, .. }) => {
                Self::of_stop(*stop)
            }
            // Somebody else answered first, or there is no such question.
            Ok(RequestOutcome::Answered { applied: false, .. }) => Self::Rejected,
            Ok(RequestOutcome::Answered { allowed: false, .. }) => Self::PermissionDenied,
            Ok(_) => Self::Ok,
            Err(fault) if RejectReason::of(fault).is_some() => Self::Rejected,
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

    /// The outcome of a person's answer to a permission request or question.
    pub fn of_permission(answer: &PermissionAnswer) -> Self {
        match answer {
            PermissionAnswer::AllowOnce
            | PermissionAnswer::AllowAlways
            | PermissionAnswer::AllowExactly
            | PermissionAnswer::Reply(_)
            | PermissionAnswer::Choose(_) => Self::Ok,
            PermissionAnswer::DenyOnce
            | PermissionAnswer::DenyBecause(_)
            | PermissionAnswer::DenyAlways
            | PermissionAnswer::DenyExactly => Self::PermissionDenied,
            PermissionAnswer::Withdraw | PermissionAnswer::CancelTurn => Self::Cancelled,
        }
    }
}

/// The open requests of one connection, each with the method that it is counted under.
pub struct RequestTally {
    metrics: Arc<Metrics>,
    open: Mutex<HashMap<RpcId, OpenRequest>>,
}

struct OpenRequest {
    method: &'static str,
    since: Instant,
}

/// A request that was answered while its turn still runs.
pub struct DeferredRequest {
    tally: Arc<RequestTally>,
    open: OpenRequest,
}

impl DeferredRequest {
    pub fn ended(self, stop: Stop) {
        let elapsed_ms = self.open.since.elapsed().as_millis();
        self.tally.count(self.open.method, MessageOutcome::of_stop(stop), elapsed_ms);
    }
}

impl RequestTally {
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { metrics, open: Mutex::default() })
    }

    /// A request arrived.
    pub fn asked(&self, id: &RpcId, method: &str) {
        let known = label_values::method(method);
        if known == label_values::UNKNOWN {
            // Counted as one, whatever it is called; only the log has the name.
            tracing::info!(target: "request", name = shortened(method), "an unknown method was called");
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < OPEN_MAX {
            open.insert(id.clone(), OpenRequest { method: known, since: Instant::now() });
        }
    }

    /// A request is being answered: every answer passes here. An answer that is sent again, because its
    /// client reconnected, counts once; a fault without a request was an unreadable message.
    pub fn answered(&self, id: &RpcId, answer: Result<&RequestOutcome, &RequestError>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(reason) = answer.err().and_then(RejectReason::of) {
            self.metrics.rejected(reason);
        }
        let outcome = MessageOutcome::of(answer);
        match open {
            Some(open) => self.count(open.method, outcome, open.since.elapsed().as_millis()),
            None if answer.is_err() => self.count(label_values::UNKNOWN, outcome, 0),
            None => {}
        }
    }

    /// A request is answered before its outcome is known: its turn continues after the answer. It is counted
    /// when the turn ends, and the answer is not.
    pub fn deferred(self: &Arc<Self>, id: &RpcId) -> Option<DeferredRequest> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id)?;
        Some(DeferredRequest { tally: Arc::clone(self), open })
    }

    /// A message that has no answer was dealt with.
    pub fn noticed(&self, method: &str, outcome: MessageOutcome) {
        let known = label_values::method(method);
        if known == label_values::UNKNOWN {
            tracing::info!(target: "request", name = shortened(method), "an unknown notification came");
        }
        self.count(known, outcome, 0);
    }

    /// The tracing span for handling a message.
    pub fn span(method: &str) -> tracing::Span {
        tracing::debug_span!("call", method = label_values::method(method))
    }

    /// The request log contains only known names: a client's own text in the place of a method is not
    /// repeated.
    fn count(&self, method: &'static str, outcome: MessageOutcome, elapsed_ms: u128) {
        self.metrics.message(method, outcome);
        tracing::info!(target: "request", method, outcome = outcome.name(), elapsed_ms);
    }
}

/// The beginning of a client's word, for a log, which puts it into quotes.
pub fn shortened(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect()
}
