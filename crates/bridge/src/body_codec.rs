//! Encodes bodies for the receiver, and decodes bodies from it; nothing else in the bridge does.
//!
//! Plain bodies are the JSON itself. With a vault they are sealed here, and nothing else of the bridge has to
//! know how: outgoing bodies are for the machine's devices, incoming ones are from one of them, or refused.

use std::sync::Arc;

use access::sealed::{ReceivedBody, ReplySealer, Vault};
use engine::{Event, SessionId};
use seal::ContentPosition;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use wire::json_errors;
use wire::native::{CardState, ReplyError, RequestEnvelope, RequestReply};
use wire::tunnel::{Operator, WrappedKeys};

use super::bridge_error::BridgeError;
use super::mirror_branch;

/// The context that a body is sealed for: a body that is sealed for one context is not accepted in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyContext<'a> {
    Event { seq: u64 },
    View { from: Option<u64>, upto: u64 },
    Card { state: CardState, asks: &'a [u64], updated_at: i64 },
}

/// A body that was sent to this machine, decoded.
pub(super) enum IncomingBody {
    Request {
        by: Operator,
        envelope: RequestEnvelope,
        encoder: ReplyEncoder,
    },
    /// It is answered with this, and nothing else happens.
    Answer(Box<RawValue>),
    Wrong {
        error: ReplyError,
        /// Plain, if the body was not opened: there is no device to seal the reply for then.
        encoder: ReplyEncoder,
    },
}

/// Encodes the reply to a request as a body.
pub(super) struct ReplyEncoder(Option<ReplySealer>);

impl ReplyEncoder {
    /// Encodes without sealing.
    pub fn plain() -> Self {
        Self(None)
    }

    pub fn body(self, reply: &RequestReply) -> Result<Box<RawValue>, BridgeError> {
        match self.0 {
            None => to_raw_value(reply).map_err(BridgeError::malformed),
            Some(reply_sealer) => {
                let bytes = serde_json::to_vec(reply).map_err(BridgeError::malformed)?;
                reply_sealer.seal(&bytes).map_err(BridgeError::malformed)
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct BodyCodec(Option<Arc<Vault>>);

impl BodyCodec {
    pub fn new(vault: Option<Arc<Vault>>) -> Self {
        Self(vault)
    }

    /// Whether bodies are sealed, so that the receiver cannot read them.
    pub fn are_sealed(&self) -> bool {
        self.0.is_some()
    }

    pub fn body(
        &self,
        session: &SessionId,
        context: &BodyContext<'_>,
        json: &impl Serialize,
    ) -> Result<Box<RawValue>, BridgeError> {
        let Some(vault) = &self.0 else { return to_raw_value(json).map_err(BridgeError::malformed) };
        let bytes = serde_json::to_vec(json).map_err(BridgeError::malformed)?;
        let seal = |place| vault.seal(session.as_str(), &place, &bytes).map_err(BridgeError::malformed);
        match *context {
            BodyContext::Event { seq } => seal(ContentPosition::Event { seq }),
            BodyContext::View { from, upto } => seal(ContentPosition::View { from, upto }),
            BodyContext::Card { state, asks, updated_at } => {
                // The state as it is sent with the card: whoever opens the card has nothing else.
                let state = serde_json::to_value(state).map_err(BridgeError::malformed)?;
                seal(ContentPosition::Card { state: state.as_str().unwrap_or_default(), asks, updated_at })
            }
        }
    }

    /// A mark that recognises an event when a mirror names its last one. A receiver that must not read the events learns
    /// nothing from it.
    pub fn mark(&self, session: &SessionId, event: &Event) -> Option<String> {
        let facts = mirror_branch::facts(session, event)?;
        Some(match &self.0 {
            Some(vault) => vault.mark(facts.as_bytes()),
            None => format!("plain.{}", seal::to_text(&Sha256::digest(facts)[..16])),
        })
    }

    /// Decodes a request of an operator. In a sealed body the key identifies the operator.
    pub async fn open(&self, by: Operator, body: &RawValue) -> IncomingBody {
        let Some(vault) = &self.0 else {
            return read(by, body.get().as_bytes(), ReplyEncoder::plain());
        };
        match vault.receive(&by, body).await {
            ReceivedBody::Answer(body) => IncomingBody::Answer(body),
            ReceivedBody::Refused(error) => IncomingBody::Wrong { error, encoder: ReplyEncoder::plain() },
            ReceivedBody::Call { by, envelope, reply_sealer } => {
                read(by, &envelope, ReplyEncoder(Some(reply_sealer)))
            }
        }
    }

    /// The keys for the machine's devices, if bodies are sealed.
    pub fn keys(&self) -> Result<Option<WrappedKeys>, BridgeError> {
        let keys = self.0.as_ref().map(|vault| vault.keys());
        keys.transpose().map_err(BridgeError::malformed)
    }

    /// Goes up whenever the contents must be sealed again.
    pub fn generation(&self) -> u64 {
        self.0.as_ref().map_or(0, |vault| vault.generation())
    }

    /// Waits for changes of the keys.
    pub fn rekeyed(&self) -> KeyChanges {
        KeyChanges(self.0.as_ref().map(|vault| vault.changes()))
    }
}

/// Waits for changes of the keys; for ever, where nothing is sealed.
pub(super) struct KeyChanges(Option<watch::Receiver<u64>>);

impl KeyChanges {
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

fn read(by: Operator, envelope: &[u8], encoder: ReplyEncoder) -> IncomingBody {
    match json_errors::read_bytes(envelope, "the request") {
        Ok(envelope) => IncomingBody::Request { by, envelope, encoder },
        Err(error) => {
            let message = format!("invalid request: {error}");
            IncomingBody::Wrong { error: ReplyError { code: "badRequest".into(), message }, encoder }
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
            let IncomingBody::Wrong { error, .. } = read(by, odd.as_bytes(), ReplyEncoder::plain()) else {
                panic!("{odd} was understood")
            };
            assert!(!json_errors::names_internals(&error.message), "{odd}: {}", error.message);
        }
    }
}
