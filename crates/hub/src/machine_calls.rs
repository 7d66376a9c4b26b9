//! Sends a person's request to the machine that answers it: over the machine's socket if this node has it, otherwise
//! through the `mail` table to the node that has.
//!
//! A message is taken once, by the node that it is addressed to. The sender waits for the answer for a limited time; the
//! machine may carry out the request all the same, as with any request whose connection breaks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::sql::{DbError, Row, SqlValue, Statement};
use tokio::sync::oneshot;
use wire::native::ReplyError;
use wire::tunnel::Operator;

use crate::hub::{Hub, NODE_SILENCE_MS, database_error, wrong};
use crate::ids::{MachineId, NodeId};
use crate::machine_sockets::{CallNotSent, MachineSocket};
use crate::metrics::MachineCallOutcome;
use crate::topics;

/// How long a machine may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// How often to check whether the other node still has the machine's socket.
const CHECK_NODE_EVERY: Duration = Duration::from_secs(2);
/// How often mail is read without a notification.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Messages that are taken at once.
const MESSAGES_AT_ONCE: u64 = 64;
/// Messages of this node that wait for an answer.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub struct PendingCalls {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<AnswerBody>>>,
}

/// A message from one node to another, in the `mail` table.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum NodeMessage {
    Call {
        from: String,
        number: u64,
        machine: String,
        by: Operator,
        body: Box<RawValue>,
    },
    Answer {
        number: u64,
        body: Option<Box<RawValue>>,
    },
    /// For the bridge of a session whose frames are relayed unchanged.
    Frame {
        session: String,
        text: String,
    },
}

/// `None` if the machine disconnected.
type AnswerBody = Option<Box<RawValue>>;

/// A request that was sent and is not answered yet.
pub struct PendingMachineCall {
    hub: Arc<Hub>,
    socket: Option<(Arc<MachineSocket>, u64)>,
    message_number: Option<u64>,
    answered: AnswerRoute,
    began: tokio::time::Instant,
}

enum AnswerRoute {
    ThisNode(oneshot::Receiver<Box<RawValue>>),
    OtherNode(RemoteAnswer),
}

struct RemoteAnswer {
    answered: oneshot::Receiver<AnswerBody>,
    machine: MachineId,
    /// The node that had the machine's socket when the message was sent.
    node: NodeId,
}

impl RemoteAnswer {
    /// Waits for the answer, but no longer than the other node is alive and has the machine.
    async fn answer(&mut self, hub: &Arc<Hub>) -> AnswerBody {
        loop {
            if let Ok(answer) = tokio::time::timeout(CHECK_NODE_EVERY, &mut self.answered).await {
                return answer.ok().flatten();
            }
            // An unavailable database says nothing about it.
            if let Ok(false) = hub.node_holds_machine(&self.machine, &self.node).await {
                // Its answer may have arrived and not been read yet.
                drop(hub.take_mail().await);
                return self.answered.try_recv().ok().flatten();
            }
        }
    }
}

impl PendingMachineCall {
    /// The machine's answer: a `native` reply, or a sealed one.
    pub async fn answer(mut self) -> Result<Box<RawValue>, ReplyError> {
        let waiting = async {
            match &mut self.answered {
                AnswerRoute::ThisNode(answered) => answered.await.ok(),
                AnswerRoute::OtherNode(remote) => remote.answer(&self.hub).await,
            }
        };
        let answer = tokio::time::timeout(ANSWER_WAIT, waiting).await;
        let metrics = &self.hub.metrics;
        metrics.call_seconds.observe(self.began.elapsed().as_secs_f64());
        match answer {
            Ok(Some(body)) => {
                metrics.call(MachineCallOutcome::Answered);
                Ok(body)
            }
            Ok(None) => {
                metrics.call(MachineCallOutcome::Cut);
                Err(wrong(
                    "busy",
                    "the machine disconnected before it answered; check whether it was done, then try again",
                ))
            }
            Err(_) => {
                metrics.call(MachineCallOutcome::Late);
                let message = format!(
                    "the machine did not answer within {} s; it may still do it",
                    ANSWER_WAIT.as_secs()
                );
                Err(wrong("busy", message))
            }
        }
    }
}

impl Drop for PendingMachineCall {
    fn drop(&mut self) {
        if let Some((socket, call)) = &self.socket {
            socket.give_up(*call);
        }
        if let Some(number) = self.message_number {
            self.hub.pending_calls.waiting().remove(&number);
        }
    }
}

impl PendingCalls {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<AnswerBody>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Sends a request to a machine. Requests of one caller are sent in the order of these calls.
    pub(crate) async fn call(
        self: &Arc<Self>,
        machine: &MachineId,
        by: Operator,
        body: Box<RawValue>,
    ) -> Result<PendingMachineCall, ReplyError> {
        let began = tokio::time::Instant::now();
        if let Some(socket) = self.machine_sockets.get(machine) {
            let (call, answered) = socket.call(by, body).map_err(|error| call_not_sent(self, error))?;
            let socket = Some((socket, call));
            return Ok(PendingMachineCall {
                hub: Arc::clone(self),
                socket,
                message_number: None,
                answered: AnswerRoute::ThisNode(answered),
                began,
            });
        }
        let node = self.node_of(machine).await?;
        let number = self.pending_calls.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.pending_calls.waiting();
            if waiting.len() >= WAITING_MAX {
                return Err(wrong("busy", "the hub is too busy; try again in a moment"));
            }
            waiting.insert(number, answer);
        }
        let pending = PendingMachineCall {
            hub: Arc::clone(self),
            socket: None,
            message_number: Some(number),
            answered: AnswerRoute::OtherNode(RemoteAnswer {
                answered,
                machine: machine.clone(),
                node: node.clone(),
            }),
            began,
        };
        let from = self.node.to_string();
        let message = NodeMessage::Call { from, number, machine: machine.to_string(), by, body };
        self.post(&node, &message).await.map_err(|error| database_error(&error))?;
        Ok(pending)
    }

    /// The node that has a machine's socket, if that node is alive.
    async fn node_of(&self, machine: &MachineId) -> Result<NodeId, ReplyError> {
        let question = Statement::new(
            "SELECT machines.node, machines.seen_at, nodes.seen_at FROM machines
             LEFT JOIN nodes ON nodes.id = machines.node WHERE machines.id = $1",
            [machine.as_str().into()],
        );
        let rows = self.rows(question).await.map_err(|error| database_error(&error))?;
        let read = |row: &Row| Ok::<_, DbError>((row.maybe_text(0)?, row.int(1)?, row.maybe_int(2)?));
        let (node, seen_at, beat) =
            rows.first().map(read).transpose().map_err(|error| database_error(&error))?.unwrap_or_default();
        let alive = beat.is_some_and(|beat| beat > self.now().0 - NODE_SILENCE_MS);
        match node.filter(|node| alive && **node != *self.node.as_str()) {
            Some(node) => Ok(NodeId::named(node)),
            None => {
                self.metrics.call(MachineCallOutcome::Away);
                Err(machine_away(seen_at.max(beat.unwrap_or_default()), self.now().0))
            }
        }
    }

    /// Whether this node has the machine's socket and is alive.
    async fn node_holds_machine(&self, machine: &MachineId, node: &NodeId) -> Result<bool, DbError> {
        let question = Statement::new(
            "SELECT 1 FROM machines JOIN nodes ON nodes.id = machines.node
             WHERE machines.id = $1 AND machines.node = $2 AND nodes.seen_at > $3",
            [machine.as_str().into(), node.as_str().into(), (self.now().0 - NODE_SILENCE_MS).into()],
        );
        Ok(!self.rows(question).await?.is_empty())
    }

    async fn post(&self, node: &NodeId, message: &NodeMessage) -> Result<(), DbError> {
        let body = serde_json::to_string(message).unwrap_or_default();
        let put = Statement::new(
            "INSERT INTO mail (node, at, body) VALUES ($1, $2, $3)",
            [SqlValue::from(node.as_str()), self.now().0.into(), body.into()],
        );
        self.run(vec![put], vec![topics::node(node.as_str())]).await.map(drop)
    }

    /// Sends a frame to a session's bridge whose socket is on another node.
    pub(crate) async fn post_frame(&self, node: &NodeId, session: &str, text: &str) -> Result<(), DbError> {
        self.post(node, &NodeMessage::Frame { session: session.to_owned(), text: text.to_owned() }).await
    }

    /// Handles this node's mail until the hub stops.
    pub(crate) async fn read_mail(self: &Arc<Self>) {
        let mut wakeups = self.topics.listen(&topics::node(self.node.as_str()));
        loop {
            wakeups.mark_unchanged();
            match self.take_mail().await {
                Ok(taken) if taken == MESSAGES_AT_ONCE => continue,
                // Tried again next time.
                Ok(_) | Err(_) => {}
            }
            topics::wait_or_timeout(&mut wakeups, POLL_EVERY).await;
        }
    }

    async fn take_mail(self: &Arc<Self>) -> Result<u64, DbError> {
        let take = Statement::new(
            "DELETE FROM mail WHERE number IN (SELECT number FROM mail WHERE node = $1 ORDER BY number LIMIT $2)
             RETURNING number, body",
            [self.node.as_str().into(), MESSAGES_AT_ONCE.into()],
        );
        let mut rows = self.rows(take).await?;
        rows.sort_by_key(|row| row.int(0).unwrap_or_default());
        for row in &rows {
            match serde_json::from_str(&row.text(1)?) {
                Ok(message) => self.handle_message(message),
                Err(error) => tracing::warn!(%error, "could not read a message from another node"),
            }
        }
        Ok(rows.len() as u64)
    }

    fn handle_message(self: &Arc<Self>, message: NodeMessage) {
        match message {
            NodeMessage::Answer { number, body } => {
                if let Some(waiting) = self.pending_calls.waiting().remove(&number) {
                    // The caller may be gone.
                    drop(waiting.send(body));
                }
            }
            NodeMessage::Frame { session, text } => self.frame_relays.to_bridge(&session, text),
            NodeMessage::Call { from, number, machine, by, body } => {
                let socket =
                    MachineId::parse(&machine).and_then(|machine| self.machine_sockets.get(&machine));
                let sent =
                    socket.ok_or(CallNotSent::Gone).and_then(|socket| Ok((socket.call(by, body)?, socket)));
                let (hub, from) = (Arc::clone(self), NodeId::named(from.into()));
                self.start(async move {
                    let body = match sent {
                        Ok(((call, answered), socket)) => {
                            let answer = tokio::time::timeout(ANSWER_WAIT, answered).await;
                            socket.give_up(call);
                            answer.ok().and_then(Result::ok)
                        }
                        Err(_) => None,
                    };
                    // The caller has a deadline of its own.
                    drop(hub.post(&from, &NodeMessage::Answer { number, body }).await);
                });
            }
        }
    }
}

fn call_not_sent(hub: &Hub, error: CallNotSent) -> ReplyError {
    match error {
        CallNotSent::Gone => {
            hub.metrics.call(MachineCallOutcome::Away);
            wrong("busy", "the machine has just disconnected; try again when it is back")
        }
        CallNotSent::Full => {
            hub.metrics.call(MachineCallOutcome::Full);
            wrong("busy", "the machine has too many requests; try again in a moment")
        }
    }
}

/// Says for how long it has been away: a clock time would be in the hub's time zone, not the reader's.
fn machine_away(seen_at: i64, now: i64) -> ReplyError {
    if seen_at == 0 {
        return not_connected();
    }
    let seconds = (now - seen_at).max(0) / 1000;
    let ago = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    };
    wrong("busy", format!("the machine has been offline for {ago}; try again when it is back"))
}

pub(crate) fn not_connected() -> ReplyError {
    wrong("busy", "this session's machine is not connected to the hub; start `ropewalk up --bridge` there")
}
