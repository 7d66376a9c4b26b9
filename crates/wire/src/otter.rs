//! The Otter dialect.

use std::sync::Arc;

use engine::{AskId, AskRequest, Event, Resolution, SessionHandle, SessionId, Totals};
use serde_json::json;
use serde_json::value::RawValue;

use crate::acp;
use crate::call::{Call, Fault, Outcome};
use crate::dialect::{Identity, Piece, Stand, View};
use crate::rpc::RpcId;

pub(crate) fn request(method: &str, _params: Option<&RawValue>) -> Result<Call, Fault> {
    Err(Fault::UnknownMethod(method.to_owned()))
}

pub(crate) fn notification(_method: &str, _params: Option<&RawValue>) -> Result<Call, Fault> {
    Ok(Call::Ignore)
}

pub(crate) fn reply(_identity: &Identity, id: &RpcId, _outcome: &Outcome, out: &mut Vec<u8>) {
    acp::result(id, &json!({}), out);
}

pub(crate) fn fault(id: &RpcId, fault: &Fault, out: &mut Vec<u8>) {
    acp::fault(id, fault, out);
}

/// How many updates the dialect shows of an event.
pub fn updates_of(_event: &Event) -> u64 {
    0
}

pub struct Updates {
    session: SessionId,
    shown: u64,
}

impl Updates {
    pub(crate) fn new(session: &SessionId, shown: u64) -> Self {
        Self { session: session.clone(), shown }
    }

    pub(crate) fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        _stands: &mut Vec<Stand>,
        _out: &mut Vec<u8>,
    ) -> (usize, Option<Piece<'a>>) {
        let _seen = (&self.session, self.shown);
        (events.len(), None)
    }
}
