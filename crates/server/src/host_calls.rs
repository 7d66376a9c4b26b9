//! The client's own program as the agent may use it (files, terminals, extensions): our requests to it, and its answers.
//!
//! A call is sent at most once. Unlike everything else, it is not repeated on a stream that its client resumes: a file that
//! was written once would be written twice, perhaps over something newer.
//!
//! **Invariant:** every call ends: answered, refused, given up by its caller, or with the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    BoxFuture, Host, HostAbilities, HostCall, HostError, HostReply, Seq, SessionHandle, SessionId, SurfaceId,
    TerminalId,
};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use wire::acp::{HostResultKind, host_reply, write_cancel_request, write_host_call};
use wire::{Dialect, RpcId};

use crate::pending_replies::PendingReplies;
use crate::writer::WriterCommand;
use crate::writer_command_sender::CommandSender;

/// Calls of one client that wait for an answer.
const CALLS_MAX: usize = 64;

pub(crate) struct Editor {
    shared: Arc<Shared>,
}

struct Shared {
    surface: SurfaceId,
    pending_replies: Arc<PendingReplies>,
    /// Distinguishes the calls of this process from those of an earlier one.
    nonce: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Sends to the client's writer; none when the client is gone.
    commands: Option<CommandSender>,
    pending: HashMap<RpcId, PendingHostCall>,
    last: u64,
}

struct PendingHostCall {
    session: SessionId,
    wanted: HostResultKind,
    /// None, if only the sending of the call matters, or if the caller has given up.
    reply: Option<oneshot::Sender<Result<HostReply, HostError>>>,
}

impl Editor {
    pub(crate) fn new(
        surface: SurfaceId,
        pending_replies: Arc<PendingReplies>,
        commands: CommandSender,
    ) -> Arc<Self> {
        let inner = Inner { commands: Some(commands), pending: HashMap::new(), last: 0 };
        let nonce = SurfaceId::random().0;
        Arc::new(Self {
            shared: Arc::new(Shared { surface, pending_replies, nonce, inner: Mutex::new(inner) }),
        })
    }

    /// Offers the client's capabilities to a session. A client of the official protocol can at least get extension requests
    /// that only an external agent and its client understand.
    pub(crate) fn offer(self: &Arc<Self>, session: &SessionHandle, at_work: bool) {
        let official = self.shared.pending_replies.client().dialect == Dialect::Acp;
        if official || self.abilities().any() {
            let host: Arc<dyn Host> = Arc::clone(self) as Arc<dyn Host>;
            session.offer_host(&host, at_work);
        }
    }

    /// Takes a response, if it is one to a call. A late response is dropped, but a terminal that was opened
    /// for a caller that has given up is released: its command would run on.
    pub(crate) fn answered(&self, id: &RpcId, result: Result<&RawValue, &RawValue>) -> bool {
        let Some(PendingHostCall { session, wanted, reply }) = self.shared.lock().pending.remove(id) else {
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

    /// Ends all calls: the client cannot answer any more.
    pub(crate) fn close(&self) {
        let mut inner = self.shared.lock();
        inner.commands = None;
        // Dropping the senders ends the waiting of the callers.
        inner.pending.clear();
    }
}

impl Host for Editor {
    fn surface(&self) -> SurfaceId {
        self.shared.surface
    }

    fn abilities(&self) -> HostAbilities {
        let client = self.shared.pending_replies.client();
        let connected = self.shared.lock().commands.is_some();
        if connected && client.dialect == Dialect::Acp {
            client.abilities.host
        } else {
            HostAbilities::default()
        }
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
            let (commands, id, frame) = shared.ask(&session, &call, Some(reply))?;
            // The text of a large file is not needed while the client saves it.
            drop(call);
            let _guard = CallGuard { shared: Arc::clone(&shared), session: session.clone(), id };
            commands.send(WriterCommand::Host { session, after, frame, releases: None }).await;
            // The sender must not outlive the connection while the call waits.
            drop(commands);
            answer.await.unwrap_or(Err(HostError::Gone))
        })
    }

    fn tell(&self, session: &SessionId, call: HostCall, after: Seq) {
        match self.shared.ask(session, &call, None) {
            Ok((commands, _, frame)) => {
                let releases = released(&call);
                commands.send_now(WriterCommand::Host { session: session.clone(), after, frame, releases });
            }
            Err(error) => tracing::debug!(%error, "could not tell the client"),
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
    /// Registers a call that is about to be sent, and makes its frame.
    fn ask(
        &self,
        session: &SessionId,
        call: &HostCall,
        reply: Option<oneshot::Sender<Result<HostReply, HostError>>>,
    ) -> Result<(CommandSender, RpcId, Vec<u8>), HostError> {
        let commands = self.lock().commands.clone().ok_or(HostError::Away)?;
        if !commands.reaches(session) {
            return Err(HostError::Away);
        }
        let id = self.next_id(&commands);
        let mut frame = Vec::new();
        let wanted = write_host_call(&id, session, call, &mut frame);
        let mut inner = self.lock();
        if inner.commands.is_none() {
            return Err(HostError::Away);
        }
        match (inner.pending.len() >= CALLS_MAX, reply) {
            (true, Some(_)) => return Err(HostError::Busy),
            // Its response will be ignored as one to an unknown request.
            (true, None) => {}
            (false, reply) => {
                drop(
                    inner
                        .pending
                        .insert(id.clone(), PendingHostCall { session: session.clone(), wanted, reply }),
                );
            }
        }
        Ok((commands, id, frame))
    }

    /// The id of the next call. A client that reconnects after a restart may answer a call of the earlier process.
    fn next_id(&self, commands: &CommandSender) -> RpcId {
        match commands {
            CommandSender::One(_) => self.pending_replies.next_request(),
            CommandSender::Many(_) => {
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

/// A call that its caller waits for. Dropped before the response, it cancels the call at the client.
struct CallGuard {
    shared: Arc<Shared>,
    session: SessionId,
    id: RpcId,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        match inner.pending.remove(&self.id) {
            None => return,
            // The client may open the terminal all the same, and only its response names it.
            Some(PendingHostCall { session, wanted: HostResultKind::Terminal, .. }) => {
                let nobody = PendingHostCall { session, wanted: HostResultKind::Terminal, reply: None };
                inner.pending.insert(self.id.clone(), nobody);
            }
            Some(_) => {}
        }
        let commands = inner.commands.clone();
        drop(inner);
        if let Some(commands) = commands {
            let mut frame = Vec::new();
            write_cancel_request(&mut frame, &self.id);
            let (session, after) = (self.session.clone(), Seq::START);
            commands.send_now(WriterCommand::Host { session, after, frame, releases: None });
        }
    }
}
