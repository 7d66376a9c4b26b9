//! A person elsewhere (an operator), as one more client of ours: an app connection with a visitor, and where each reply goes.
//!
//! Several browsers of one person share the connection, so each request gets a number of its own on it. The connection
//! is closed when nothing was requested for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::devices::{RemoteUser, Visitor};
use engine::{Principal, Standing};
use service::remote_name;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use wire::native::{ReplyError, Request, RequestEnvelope, RequestReply, Role, ServerFrame};

use super::body_codec::ReplyEncoder;
use super::machine_connection::MachineCallOutcome;
use super::{Shared, locked};
use app::AppConnection;

/// Requests of one person that may wait.
const WAITING_MAX: usize = 32;
const IDLE_MAX: Duration = Duration::from_secs(600);

/// Where the reply to a request goes.
pub(super) struct ReplyTarget {
    pub call: u64,
    /// The id that the operator's client gave its request.
    pub id: u64,
    pub encoder: ReplyEncoder,
    /// The session that it is a prompt for.
    pub prompted: Option<String>,
    pub answers: mpsc::Sender<MachineCallOutcome>,
    pub room: OwnedSemaphorePermit,
}

impl ReplyTarget {
    pub fn answer(self, reply: RequestReply) {
        let Self { call, encoder, prompted, answers, room, id } = self;
        let reply = RequestReply { re: id, ..reply };
        // The connection that it came by may be gone, and with it the waiting client.
        drop(answers.try_send(MachineCallOutcome { call, encoder, prompted, reply, _room: room }));
    }
}

pub(super) struct OperatorRequest {
    pub request: Request,
    pub reply_to: ReplyTarget,
}

pub(super) struct OperatorConnection {
    pub role: Role,
    pub user: Arc<str>,
    asked: mpsc::Sender<OperatorRequest>,
    used: Mutex<Instant>,
}

impl OperatorConnection {
    pub fn open(shared: &Arc<Shared>, id: Arc<str>, user: Arc<str>, role: Role) -> Self {
        let (asked, receiver) = mpsc::channel(WAITING_MAX);
        let remote = RemoteUser { id, user: Arc::clone(&user), answers_here: shared.answers.are_local() };
        let visitor = Visitor {
            principal: Principal::local(),
            name: remote_name(&user),
            role,
            device: None,
            remote: Some(remote),
            standing: Standing::Other,
        };
        let connection = app::open(&shared.app, visitor);
        let stop = shared.stop.clone();
        drop(shared.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = OperatorTask { connection, pending: HashMap::new(), last: 0 }.run(receiver) => {}
            }
        }));
        Self { role, user, asked, used: Mutex::new(Instant::now()) }
    }

    pub fn is_open(&self) -> bool {
        !self.asked.is_closed()
    }

    pub fn used(&self) -> Instant {
        *locked(&self.used)
    }

    /// Sends a request, or gives it back if too many wait.
    pub fn ask(&self, asked: OperatorRequest) -> Result<(), Box<OperatorRequest>> {
        *locked(&self.used) = Instant::now();
        self.asked.try_send(asked).map_err(|full| Box::new(full.into_inner()))
    }
}

struct OperatorTask {
    connection: AppConnection,
    pending: HashMap<u64, ReplyTarget>,
    last: u64,
}

enum Wake {
    Asked(Option<OperatorRequest>),
    Room,
    Told(Option<ServerFrame>),
    Idle,
}

impl OperatorTask {
    /// Answers every request, also those that were not handled when the connection ended.
    async fn run(mut self, mut asked: mpsc::Receiver<OperatorRequest>) {
        self.serve(&mut asked).await;
        asked.close();
        while let Ok(OperatorRequest { reply_to, .. }) = asked.try_recv() {
            self.last += 1;
            self.pending.insert(self.last, reply_to);
        }
        for (_, reply_to) in self.pending {
            let message =
                "the machine stopped before this was done; check whether it took effect, then try again";
            let error = ReplyError { code: "busy".into(), message: message.into() };
            reply_to.answer(RequestReply { re: 0, ok: None, error: Some(error) });
        }
    }

    async fn serve(&mut self, asked: &mut mpsc::Receiver<OperatorRequest>) {
        let mut next: Option<RequestEnvelope> = None;
        loop {
            let quiet = self.pending.is_empty() && next.is_none();
            let wake = tokio::select! {
                biased;
                frame = self.connection.frames.recv() => Wake::Told(frame),
                permit = self.connection.requests.reserve(), if next.is_some() => {
                    if let (Ok(permit), Some(envelope)) = (permit, next.take()) {
                        permit.send(envelope);
                    }
                    Wake::Room
                }
                asked = asked.recv(), if next.is_none() => Wake::Asked(asked),
                () = tokio::time::sleep(IDLE_MAX), if quiet => Wake::Idle,
            };
            match wake {
                Wake::Asked(Some(OperatorRequest { request, reply_to })) => {
                    self.last += 1;
                    self.pending.insert(self.last, reply_to);
                    next = Some(RequestEnvelope { id: self.last, request });
                }
                Wake::Told(Some(ServerFrame::Reply(reply))) => {
                    if let Some(reply_to) = self.pending.remove(&reply.re) {
                        reply_to.answer(reply);
                    }
                }
                // Updates reach the operator by way of the mirror.
                Wake::Told(Some(ServerFrame::Notification(_))) | Wake::Room => {}
                // There are no more requests; pending ones are answered.
                Wake::Asked(None) if self.pending.is_empty() => return,
                Wake::Asked(None) => return self.answer_pending().await,
                Wake::Idle => return,
                Wake::Told(None) => return,
            }
        }
    }

    async fn answer_pending(&mut self) {
        while !self.pending.is_empty() {
            match self.connection.frames.recv().await {
                Some(ServerFrame::Reply(reply)) => {
                    if let Some(reply_to) = self.pending.remove(&reply.re) {
                        reply_to.answer(reply);
                    }
                }
                Some(ServerFrame::Notification(_)) => {}
                None => return,
            }
        }
    }
}
