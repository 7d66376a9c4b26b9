//! The one place where something becomes a body for the receiver, and where a body from it is read.
//!
//! Plain bodies are the JSON itself. With a vault they are sealed here, and nothing else of the bridge has to
//! know how: what goes out is for the machine's devices, what comes in is from one of them, or refused.

use std::sync::Arc;

use access::sealed::{Heard, Replying, Vault};
use engine::{Event, SessionId};
use seal::Place;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use wire::json;
use wire::native::{CardState, Envelope, Reply, Wrong};
use wire::tunnel::{Keys, Operator};

use super::branch;
use super::trouble::Trouble;

/// What a body is about: what is sealed for one place does not pass for something else in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About<'a> {
    Event { seq: u64 },
    View { from: Option<u64>, upto: u64 },
    Card { state: CardState, asks: &'a [u64], updated_at: i64 },
}

/// What came of a body that was sent to this machine.
pub(super) enum Opened {
    Request {
        by: Operator,
        envelope: Envelope,
        closing: Closing,
    },
    /// It is answered with this, and nothing else happens.
    Answer(Box<RawValue>),
    Wrong {
        error: Wrong,
        /// Plain, if nothing was opened: there is nobody to seal it for then.
        closing: Closing,
    },
}

/// How the reply to a request becomes a body.
pub(super) struct Closing(Option<Replying>);

impl Closing {
    /// For what is said to nobody in particular.
    pub fn plain() -> Self {
        Self(None)
    }

    pub fn body(self, reply: &Reply) -> Result<Box<RawValue>, Trouble> {
        match self.0 {
            None => to_raw_value(reply).map_err(Trouble::malformed),
            Some(replying) => {
                let bytes = serde_json::to_vec(reply).map_err(Trouble::malformed)?;
                replying.seal(&bytes).map_err(Trouble::malformed)
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Bodies(Option<Arc<Vault>>);

impl Bodies {
    pub fn new(vault: Option<Arc<Vault>>) -> Self {
        Self(vault)
    }

    /// The receiver cannot read what these make.
    pub fn are_sealed(&self) -> bool {
        self.0.is_some()
    }

    pub fn body(
        &self,
        session: &SessionId,
        about: &About<'_>,
        json: &impl Serialize,
    ) -> Result<Box<RawValue>, Trouble> {
        let Some(vault) = &self.0 else { return to_raw_value(json).map_err(Trouble::malformed) };
        let bytes = serde_json::to_vec(json).map_err(Trouble::malformed)?;
        let seal = |place| vault.seal(session.as_str(), &place, &bytes).map_err(Trouble::malformed);
        match *about {
            About::Event { seq } => seal(Place::Event { seq }),
            About::View { from, upto } => seal(Place::View { from, upto }),
            About::Card { state, asks, updated_at } => {
                // As it stands beside the card, for who opens it has nothing else.
                let state = serde_json::to_value(state).map_err(Trouble::malformed)?;
                seal(Place::Card { state: state.as_str().unwrap_or_default(), asks, updated_at })
            }
        }
    }

    /// Knows an event again when a mirror says what its last one was. A receiver that must not read what it keeps learns
    /// nothing from it.
    pub fn mark(&self, session: &SessionId, event: &Event) -> Option<String> {
        let facts = branch::facts(session, event)?;
        Some(match &self.0 {
            Some(vault) => vault.mark(facts.as_bytes()),
            None => format!("plain.{}", seal::to_text(&Sha256::digest(facts)[..16])),
        })
    }

    /// Reads what somebody elsewhere wants. Who they are, a sealed body says itself.
    pub async fn open(&self, by: Operator, body: &RawValue) -> Opened {
        let Some(vault) = &self.0 else { return read(by, body.get().as_bytes(), Closing::plain()) };
        match vault.receive(&by, body).await {
            Heard::Answer(body) => Opened::Answer(body),
            Heard::Refused(error) => Opened::Wrong { error, closing: Closing::plain() },
            Heard::Call { by, envelope, replying } => read(by, &envelope, Closing(Some(replying))),
        }
    }

    /// The keys for the machine's devices, if there are any to be told.
    pub fn keys(&self) -> Result<Option<Keys>, Trouble> {
        let keys = self.0.as_ref().map(|vault| vault.keys());
        keys.transpose().map_err(Trouble::malformed)
    }

    /// Goes up whenever what is to be seen must be sealed anew.
    pub fn generation(&self) -> u64 {
        self.0.as_ref().map_or(0, |vault| vault.generation())
    }

    /// Tells when the keys are others.
    pub fn rekeyed(&self) -> Rekeyed {
        Rekeyed(self.0.as_ref().map(|vault| vault.changes()))
    }
}

/// Waits for other keys; for ever, where there are none.
pub(super) struct Rekeyed(Option<watch::Receiver<u64>>);

impl Rekeyed {
    pub async fn changed(&mut self) {
        let changed = match &mut self.0 {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }
}

fn read(by: Operator, envelope: &[u8], closing: Closing) -> Opened {
    match json::read_bytes(envelope, "the request") {
        Ok(envelope) => Opened::Request { by, envelope, closing },
        Err(error) => {
            let message = format!("this is no request: {error}");
            Opened::Wrong { error: Wrong { code: "badRequest".into(), message }, closing }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::native::Role;

    use super::*;

    #[test]
    fn what_an_operator_sends_and_is_no_request_is_answered_in_plain_words() {
        for odd in
            ["", "7", "[]", "{}", r#"{"id":1}"#, r#"{"id":1,"do":"dance"}"#, r#"{"id":-1,"do":"rules"}"#]
        {
            let by = Operator { id: "ops".into(), name: "ops".into(), role: Role::Driver };
            let Opened::Wrong { error, .. } = read(by, odd.as_bytes(), Closing::plain()) else {
                panic!("{odd} was understood")
            };
            assert!(!json::names_internals(&error.message), "{odd}: {}", error.message);
        }
    }
}
