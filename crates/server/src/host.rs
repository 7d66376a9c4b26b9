//! The client's own program as the agent may use it: requests of ours, and the answers to them.
//!
//! A call goes out at most once. A stream that its client comes back to does not tell it again, unlike
//! everything else: a file that was written once would be written twice, perhaps over something newer.
//!
//! **Invariant:** every call ends: answered, refused, given up by whoever made it, or with the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    BoxFuture, Host, HostAbilities, HostCall, HostError, HostReply, Seq, SessionHandle, SessionId, SurfaceId,
    TerminalId,
};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use wire::acp::{HostAnswer, host_reply, write_cancel_request, write_host_call};
use wire::{Dialect, RpcId};

use crate::debts::Debts;
use crate::outlet::Outlet;
use crate::writer::Command;

/// Calls of one client that wait for an answer.
const CALLS_MAX: usize = 64;

pub(crate) struct Editor {
    shared: Arc<Shared>,
}

struct Shared {
    surface: SurfaceId,
    debts: Arc<Debts>,
    /// Tells the calls of this process from those of an earlier one.
    nonce: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The way to the client; none when it is gone.
    outlet: Option<Outlet>,
    waiting: HashMap<RpcId, Waiting>,
    last: u64,
}

struct Waiting {
    session: SessionId,
    wanted: HostAnswer,
    /// Nobody, where it only matters that the client was asked, or whoever asked has given up.
    reply: Option<oneshot::Sender<Result<HostReply, HostError>>>,
}

impl Editor {
    pub(crate) fn new(surface: SurfaceId, debts: Arc<Debts>, outlet: Outlet) -> Arc<Self> {
        let inner = Inner { outlet: Some(outlet), waiting: HashMap::new(), last: 0 };
        let nonce = SurfaceId::random().0;
        Arc::new(Self { shared: Arc::new(Shared { surface, debts, nonce, inner: Mutex::new(inner) }) })
    }

    /// Offers to a session what the client can do. One of the official protocol can at least be asked what only
    /// an external agent and its client understand.
    pub(crate) fn offer(self: &Arc<Self>, session: &SessionHandle, at_work: bool) {
        let official = self.shared.debts.client().dialect == Dialect::Acp;
        if official || self.abilities().any() {
            let host: Arc<dyn Host> = Arc::clone(self) as Arc<dyn Host>;
            session.offer_host(&host, at_work);
        }
    }

    /// Takes an answer, if it is one to a call. One that comes too late is nobody's, but a terminal that was opened
    /// for somebody who has given up is given back: its command would run on.
    pub(crate) fn answered(&self, id: &RpcId, result: Result<&RawValue, &RawValue>) -> bool {
        let Some(Waiting { session, wanted, reply }) = self.shared.lock().waiting.remove(id) else {
            return false;
        };
        let answer = host_reply(wanted, result);
        let unread = match reply {
            Some(reply) => reply.send(answer).err(),
            None => Some(answer),
        };
        if let Some(Ok(HostReply::Terminal(terminal))) = unread {
            self.tell(&session, HostCall::ReleaseTerminal(terminal), Seq::START);
        }
        true
    }

    /// The client can answer no more.
    pub(crate) fn close(&self) {
        let mut inner = self.shared.lock();
        inner.outlet = None;
        // Dropping the senders is what tells those who wait.
        inner.waiting.clear();
    }
}

impl Host for Editor {
    fn surface(&self) -> SurfaceId {
        self.shared.surface
    }

    fn abilities(&self) -> HostAbilities {
        let client = self.shared.debts.client();
        let here = self.shared.lock().outlet.is_some();
        if here && client.dialect == Dialect::Acp { client.abilities.host } else { HostAbilities::default() }
    }

    fn call(
        &self,
        session: &SessionId,
        call: HostCall,
        after: Seq,
    ) -> BoxFuture<'static, Result<HostReply, HostError>> {
        let (reply, answer) = oneshot::channel();
        let (session, shared) = (session.clone(), Arc::clone(&self.shared));
        Box::pin(async move {
            let (outlet, id, frame) = shared.ask(&session, &call, Some(reply))?;
            // The text of a large file is not needed while somebody saves it.
            drop(call);
            let _given_up = GivenUp { shared: Arc::clone(&shared), session: session.clone(), id };
            outlet.send(Command::Host { session, after, frame, releases: None }).await;
            // The outlet must not outlive the connection in somebody's hands.
            drop(outlet);
            answer.await.unwrap_or(Err(HostError::Gone))
        })
    }

    fn tell(&self, session: &SessionId, call: HostCall, after: Seq) {
        match self.shared.ask(session, &call, None) {
            Ok((outlet, _, frame)) => {
                let releases = released(&call);
                outlet.send_now(Command::Host { session: session.clone(), after, frame, releases });
            }
            Err(error) => tracing::debug!(%error, "the client was not told"),
        }
    }
}

fn released(call: &HostCall) -> Option<TerminalId> {
    match call {
        HostCall::ReleaseTerminal(terminal) => Some(terminal.clone()),
        HostCall::ReadText { .. }
        | HostCall::WriteText { .. }
        | HostCall::CreateTerminal(_)
        | HostCall::TerminalOutput(_)
        | HostCall::WaitForExit(_)
        | HostCall::KillTerminal(_)
        | HostCall::TypeInto { .. }
        | HostCall::Extension { .. } => None,
    }
}

impl Shared {
    /// Notes a call that is about to go out, and makes its frame.
    fn ask(
        &self,
        session: &SessionId,
        call: &HostCall,
        reply: Option<oneshot::Sender<Result<HostReply, HostError>>>,
    ) -> Result<(Outlet, RpcId, Vec<u8>), HostError> {
        let outlet = self.lock().outlet.clone().ok_or(HostError::Away)?;
        if !outlet.reaches(session) {
            return Err(HostError::Away);
        }
        let id = self.next_id(&outlet);
        let mut frame = Vec::new();
        let wanted = write_host_call(&id, session, call, &mut frame);
        let mut inner = self.lock();
        if inner.outlet.is_none() {
            return Err(HostError::Away);
        }
        match (inner.waiting.len() >= CALLS_MAX, reply) {
            (true, Some(_)) => return Err(HostError::Busy),
            // Its answer will be one to no question of ours.
            (true, None) => {}
            (false, reply) => {
                drop(inner.waiting.insert(id.clone(), Waiting { session: session.clone(), wanted, reply }));
            }
        }
        Ok((outlet, id, frame))
    }

    /// A client that comes back after a restart may answer what another process asked.
    fn next_id(&self, outlet: &Outlet) -> RpcId {
        match outlet {
            Outlet::One(_) => self.debts.next_request(),
            Outlet::Many(_) => {
                let mut inner = self.lock();
                inner.last += 1;
                RpcId::text(&format!("host/{:x}/{}", self.nonce, inner.last))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that somebody waits for. Dropped before the answer, the client is told not to bother.
struct GivenUp {
    shared: Arc<Shared>,
    session: SessionId,
    id: RpcId,
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        match inner.waiting.remove(&self.id) {
            None => return,
            // The client may open it all the same, and only its answer says under which name.
            Some(Waiting { session, wanted: HostAnswer::Terminal, .. }) => {
                let nobody = Waiting { session, wanted: HostAnswer::Terminal, reply: None };
                inner.waiting.insert(self.id.clone(), nobody);
            }
            Some(_) => {}
        }
        let outlet = inner.outlet.clone();
        drop(inner);
        if let Some(outlet) = outlet {
            let mut frame = Vec::new();
            write_cancel_request(&mut frame, &self.id);
            let (session, after) = (self.session.clone(), Seq::START);
            outlet.send_now(Command::Host { session, after, frame, releases: None });
        }
    }
}
