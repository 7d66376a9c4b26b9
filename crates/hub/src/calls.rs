//! The way of a person's request to the machine that answers it: by its socket, if this node has it, or by mail to the
//! node that has.
//!
//! A letter is taken once, by the node it is for. Whether it was answered is seen by who wrote it, who waits so long
//! and no longer; what is asked may be done all the same, as with everything that is sent over a line that breaks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::sql::{DbError, Row, Statement, Value};
use tokio::sync::oneshot;
use wire::native::Wrong;
use wire::tunnel::Operator;

use crate::hub::{Hub, NODE_SILENCE_MS, away, wrong};
use crate::ids::{MachineId, NodeId};
use crate::machines::{Held, NotSent};
use crate::topics;

/// How long a machine may take for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Whether the node that was written to still has the machine is looked at this often.
const LOOK_FOR_NODE_EVERY: Duration = Duration::from_secs(2);
/// Mail is looked for untold this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Letters that are taken at once.
const LETTERS: u64 = 64;
/// Letters of this node that wait for their answers.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub struct Calls {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

/// What a node writes to another.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Letter {
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
    /// For the bridge of a session that is relayed frame by frame.
    Frame {
        session: String,
        text: String,
    },
}

/// Nothing, if the machine went away.
type Answer = Option<Box<RawValue>>;

/// A request on its way.
pub struct Pending {
    hub: Arc<Hub>,
    held: Option<(Arc<Held>, u64)>,
    letter: Option<u64>,
    answered: Answered,
    began: tokio::time::Instant,
}

enum Answered {
    Here(oneshot::Receiver<Box<RawValue>>),
    ByMail(ByMail),
}

struct ByMail {
    answered: oneshot::Receiver<Answer>,
    machine: MachineId,
    /// Where it was when it was written to.
    node: NodeId,
}

impl ByMail {
    /// A node that is dead answers nothing, and need not be waited for.
    async fn answer(&mut self, hub: &Arc<Hub>) -> Answer {
        loop {
            if let Ok(answer) = tokio::time::timeout(LOOK_FOR_NODE_EVERY, &mut self.answered).await {
                return answer.ok().flatten();
            }
            // A database that is away says nothing about it.
            if let Ok(false) = hub.is_at(&self.machine, &self.node).await {
                // Its last words may lie here unread.
                drop(hub.take_mail().await);
                return self.answered.try_recv().ok().flatten();
            }
        }
    }
}

impl Pending {
    /// The machine's answer: a `native` reply, or a sealed one.
    pub async fn answer(mut self) -> Result<Box<RawValue>, Wrong> {
        let waiting = async {
            match &mut self.answered {
                Answered::Here(answered) => answered.await.ok(),
                Answered::ByMail(mail) => mail.answer(&self.hub).await,
            }
        };
        let answer = tokio::time::timeout(ANSWER_WAIT, waiting).await;
        let metrics = &self.hub.metrics;
        metrics.call_seconds.observe(self.began.elapsed().as_secs_f64());
        match answer {
            Ok(Some(body)) => {
                metrics.call("answered");
                Ok(body)
            }
            Ok(None) => {
                metrics.call("cut");
                Err(wrong(
                    "busy",
                    "the machine went away before it answered; look whether it was done, then try again",
                ))
            }
            Err(_) => {
                metrics.call("late");
                let message = format!(
                    "the machine did not answer within {} s; it may do it still",
                    ANSWER_WAIT.as_secs()
                );
                Err(wrong("busy", message))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((held, call)) = &self.held {
            held.give_up(*call);
        }
        if let Some(number) = self.letter {
            self.hub.calls.waiting().remove(&number);
        }
    }
}

impl Calls {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Sends a request to a machine. Requests of one caller leave in the order in which this is called.
    pub(crate) async fn call(
        self: &Arc<Self>,
        machine: &MachineId,
        by: Operator,
        body: Box<RawValue>,
    ) -> Result<Pending, Wrong> {
        let began = tokio::time::Instant::now();
        if let Some(held) = self.machines.held(machine) {
            let (call, answered) = held.call(by, body).map_err(|error| not_sent(self, error))?;
            let held = Some((held, call));
            return Ok(Pending {
                hub: Arc::clone(self),
                held,
                letter: None,
                answered: Answered::Here(answered),
                began,
            });
        }
        let node = self.node_of(machine).await?;
        let number = self.calls.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.calls.waiting();
            if waiting.len() >= WAITING_MAX {
                return Err(wrong("busy", "the hub has too much to do; try again in a moment"));
            }
            waiting.insert(number, answer);
        }
        let pending = Pending {
            hub: Arc::clone(self),
            held: None,
            letter: Some(number),
            answered: Answered::ByMail(ByMail { answered, machine: machine.clone(), node: node.clone() }),
            began,
        };
        let from = self.node.to_string();
        let letter = Letter::Call { from, number, machine: machine.to_string(), by, body };
        self.post(&node, &letter).await.map_err(|error| away(&error))?;
        Ok(pending)
    }

    /// The node that holds a machine's socket, if it lives.
    async fn node_of(&self, machine: &MachineId) -> Result<NodeId, Wrong> {
        let question = Statement::new(
            "SELECT machines.node, machines.seen_at, nodes.seen_at FROM machines
             LEFT JOIN nodes ON nodes.id = machines.node WHERE machines.id = $1",
            [machine.as_str().into()],
        );
        let rows = self.rows(question).await.map_err(|error| away(&error))?;
        let read = |row: &Row| Ok::<_, DbError>((row.maybe_text(0)?, row.int(1)?, row.maybe_int(2)?));
        let (node, seen_at, beat) =
            rows.first().map(read).transpose().map_err(|error| away(&error))?.unwrap_or_default();
        let alive = beat.is_some_and(|beat| beat > self.now().0 - NODE_SILENCE_MS);
        match node.filter(|node| alive && **node != *self.node.as_str()) {
            Some(node) => Ok(NodeId::named(node)),
            None => {
                self.metrics.call("away");
                Err(machine_away(seen_at.max(beat.unwrap_or_default()), self.now().0))
            }
        }
    }

    /// Whether this node holds the machine's socket, and lives.
    async fn is_at(&self, machine: &MachineId, node: &NodeId) -> Result<bool, DbError> {
        let question = Statement::new(
            "SELECT 1 FROM machines JOIN nodes ON nodes.id = machines.node
             WHERE machines.id = $1 AND machines.node = $2 AND nodes.seen_at > $3",
            [machine.as_str().into(), node.as_str().into(), (self.now().0 - NODE_SILENCE_MS).into()],
        );
        Ok(!self.rows(question).await?.is_empty())
    }

    async fn post(&self, node: &NodeId, letter: &Letter) -> Result<(), DbError> {
        let body = serde_json::to_string(letter).unwrap_or_default();
        let put = Statement::new(
            "INSERT INTO mail (node, at, body) VALUES ($1, $2, $3)",
            [Value::from(node.as_str()), self.now().0.into(), body.into()],
        );
        self.run(vec![put], vec![topics::node(node.as_str())]).await.map(drop)
    }

    /// A frame for a session's bridge, which another node holds.
    pub(crate) async fn post_frame(&self, node: &NodeId, session: &str, text: &str) -> Result<(), DbError> {
        self.post(node, &Letter::Frame { session: session.to_owned(), text: text.to_owned() }).await
    }

    /// Takes this node's mail, for as long as it lives.
    pub(crate) async fn read_mail(self: &Arc<Self>) {
        let mut ear = self.topics.listen(&topics::node(self.node.as_str()));
        loop {
            ear.mark_unchanged();
            match self.take_mail().await {
                Ok(letters) if letters == LETTERS => continue,
                // Tried again the next time.
                Ok(_) | Err(_) => {}
            }
            topics::heard_or(&mut ear, LOOK_EVERY).await;
        }
    }

    async fn take_mail(self: &Arc<Self>) -> Result<u64, DbError> {
        let take = Statement::new(
            "DELETE FROM mail WHERE number IN (SELECT number FROM mail WHERE node = $1 ORDER BY number LIMIT $2)
             RETURNING number, body",
            [self.node.as_str().into(), LETTERS.into()],
        );
        let mut rows = self.rows(take).await?;
        rows.sort_by_key(|row| row.int(0).unwrap_or_default());
        for row in &rows {
            match serde_json::from_str(&row.text(1)?) {
                Ok(letter) => self.open_letter(letter),
                Err(error) => tracing::warn!(%error, "a letter of another node cannot be read"),
            }
        }
        Ok(rows.len() as u64)
    }

    fn open_letter(self: &Arc<Self>, letter: Letter) {
        match letter {
            Letter::Answer { number, body } => {
                if let Some(waiting) = self.calls.waiting().remove(&number) {
                    // Who asked may be gone.
                    drop(waiting.send(body));
                }
            }
            Letter::Frame { session, text } => self.relays.to_bridge(&session, text),
            Letter::Call { from, number, machine, by, body } => {
                let held = MachineId::parse(&machine).and_then(|machine| self.machines.held(&machine));
                let sent = held.ok_or(NotSent::Gone).and_then(|held| Ok((held.call(by, body)?, held)));
                let (hub, from) = (Arc::clone(self), NodeId::named(from.into()));
                self.start(async move {
                    let body = match sent {
                        Ok(((call, answered), held)) => {
                            let answer = tokio::time::timeout(ANSWER_WAIT, answered).await;
                            held.give_up(call);
                            answer.ok().and_then(Result::ok)
                        }
                        Err(_) => None,
                    };
                    // Who waits gives up by itself.
                    drop(hub.post(&from, &Letter::Answer { number, body }).await);
                });
            }
        }
    }
}

fn not_sent(hub: &Hub, error: NotSent) -> Wrong {
    match error {
        NotSent::Gone => {
            hub.metrics.call("away");
            wrong("busy", "the machine went away in this moment; try again when it is back")
        }
        NotSent::Full => {
            hub.metrics.call("full");
            wrong("busy", "the machine has more requests than it can take; try again in a moment")
        }
    }
}

/// Says since when: a clock time would be the hub's, and not the reader's.
fn machine_away(seen_at: i64, now: i64) -> Wrong {
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
    wrong("busy", format!("the machine is away since {ago}; what is asked of it can be sent when it is back"))
}

pub(crate) fn not_connected() -> Wrong {
    wrong("busy", "this session's machine is not connected to the hub; start `ropewalk up --bridge` there")
}
