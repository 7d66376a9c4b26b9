//! The Ferret dialect.

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

pub struct Updates {
    session: SessionId,
}

impl Updates {
    pub(crate) fn new(session: &SessionHandle) -> Self {
        Self { session: session.id().clone() }
    }

    pub(crate) fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        _view: View,
        _stands: &mut Vec<Stand>,
        _out: &mut Vec<u8>,
    ) -> (usize, Option<Piece<'a>>) {
        tracing_free(&self.session);
        (events.len(), None)
    }

    pub(crate) fn totals(&self, _totals: &Totals, _out: &mut Vec<u8>) {}

    pub(crate) fn ask(&self, _ask: AskId, _request: &AskRequest) -> Vec<u8> {
        Vec::new()
    }

    pub(crate) fn withdraw(&self, _ask: AskId, _resolution: Resolution, _out: &mut Vec<u8>) {}
}

fn tracing_free(_session: &SessionId) {}
