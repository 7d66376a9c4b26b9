//! The order of requests about one session.
//!
//! Loading a session back into memory takes a while and runs beside the reading of further requests, so that no other
//! request waits for it. Later requests about the same session do wait: they depend on its outcome.
//!
//! **Invariant:** a request waits only for requests that came before it, so no two wait for each other. Cancels and
//! answers wait for nothing, and calls that may take as long as a person takes (signing in, an agent's own requests) block nobody.

use std::collections::HashMap;

use engine::SessionId;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::ClientRequest;

/// The last pending request of each session.
#[derive(Default)]
pub(crate) struct RequestOrder {
    last: HashMap<SessionId, CancellationToken>,
}

/// A request's place in the order: it waits for `before`, and later requests wait until its `done` is dropped.
pub(crate) struct RequestSlot {
    pub before: Option<CancellationToken>,
    pub done: Option<DropGuard>,
}

impl RequestOrder {
    /// Whether an earlier request about the same session is still pending.
    pub fn must_wait(&self, call: &ClientRequest) -> bool {
        self.before(call).is_some()
    }

    /// The place of a request that runs in a task of its own.
    pub fn take(&mut self, call: &ClientRequest) -> RequestSlot {
        let before = self.before(call);
        self.last.retain(|_, done| !done.is_cancelled());
        let done = ordered(call).map(|session| {
            let done = CancellationToken::new();
            self.last.insert(session.clone(), done.clone());
            done.drop_guard()
        });
        RequestSlot { before, done }
    }

    fn before(&self, call: &ClientRequest) -> Option<CancellationToken> {
        if let ClientRequest::Cancel { .. } | ClientRequest::Answer { .. } = call {
            return None;
        }
        let done = self.last.get(call.session()?)?;
        (!done.is_cancelled()).then(|| done.clone())
    }
}

/// The session whose later requests depend on the outcome of this one.
fn ordered(call: &ClientRequest) -> Option<&SessionId> {
    match call {
        ClientRequest::Load { id, .. }
        | ClientRequest::Replay { id, .. }
        | ClientRequest::Resume { id, .. }
        | ClientRequest::Prompt { id, .. }
        | ClientRequest::Message { id, .. }
        | ClientRequest::Change { id, .. }
        | ClientRequest::Move { id, .. }
        | ClientRequest::Close { id }
        | ClientRequest::Delete { id }
        | ClientRequest::Remove { id }
        | ClientRequest::Stop { id, .. } => Some(id),
        _ => None,
    }
}
