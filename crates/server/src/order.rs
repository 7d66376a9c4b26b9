//! The order of requests about one session.
//!
//! To bring a session back takes a while, and nobody else waits for it: it is done beside the reading of further
//! requests. What a client sends about that session meanwhile is meant for what comes of it, so it waits.
//!
//! **Invariant:** a request waits only for requests that came before it, so no two wait for each other. Cancels and
//! answers wait for nothing, and what may take as long as a person takes (signing in, an agent's own requests) hold nobody up.

use std::collections::HashMap;

use engine::SessionId;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::Call;

/// The last request of each session that has not been carried out.
#[derive(Default)]
pub(crate) struct RequestOrder {
    last: HashMap<SessionId, CancellationToken>,
}

/// A request's place: after `before`, and before whoever comes while `done` is there.
pub(crate) struct Place {
    pub before: Option<CancellationToken>,
    pub done: Option<DropGuard>,
}

impl RequestOrder {
    /// Whether an earlier request about the same session has not been carried out.
    pub fn must_wait(&self, call: &Call) -> bool {
        self.before(call).is_some()
    }

    /// The place of a request that is carried out beside others.
    pub fn take(&mut self, call: &Call) -> Place {
        let before = self.before(call);
        self.last.retain(|_, done| !done.is_cancelled());
        let done = ordered(call).map(|session| {
            let done = CancellationToken::new();
            self.last.insert(session.clone(), done.clone());
            done.drop_guard()
        });
        Place { before, done }
    }

    fn before(&self, call: &Call) -> Option<CancellationToken> {
        if let Call::Cancel { .. } | Call::Answer { .. } = call {
            return None;
        }
        let done = self.last.get(call.session()?)?;
        (!done.is_cancelled()).then(|| done.clone())
    }
}

/// The session whose later requests depend on what comes of this one.
fn ordered(call: &Call) -> Option<&SessionId> {
    match call {
        Call::Load { id, .. }
        | Call::Replay { id, .. }
        | Call::Resume { id, .. }
        | Call::Prompt { id, .. }
        | Call::Message { id, .. }
        | Call::Change { id, .. }
        | Call::Move { id, .. }
        | Call::Close { id }
        | Call::Delete { id }
        | Call::Remove { id }
        | Call::Stop { id, .. } => Some(id),
        _ => None,
    }
}
