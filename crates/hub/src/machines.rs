//! The sockets of machines that this node holds: calls go out on them, answers come back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::websocket::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use serde_json::value::RawValue;
use store::sql::{DbError, Statement, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::json;
use wire::tunnel::{Call, Down, Keys, Machine, Operator, Up};

use crate::audit::Note;
use crate::guest::PersonId;
use crate::hub::Hub;
use crate::ids::MachineId;
use crate::metrics::Counted;
use crate::socket::{Go, Pipe};
use crate::topics;

/// Calls of one machine that wait for their answers.
const CALLS_MAX: usize = 256;
/// How long a machine may take to say its name.
const FIRST_WORDS: Duration = Duration::from_secs(15);
/// Whether another node holds the machine is looked at untold this often.
const LOOK_EVERY: Duration = Duration::from_secs(3);
const NAME_CHARS_MAX: usize = 100;
const KEYS_MAX: usize = 64;
const KEY_CHARS_MAX: usize = 4096;
/// Machines of one person.
pub const MACHINES_MAX: u64 = 100;

#[derive(Default)]
pub struct Machines(Mutex<HashMap<MachineId, Arc<Held>>>);

/// A machine whose socket is here.
pub struct Held {
    go: mpsc::Sender<Go>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Box<RawValue>>>>,
    next: AtomicU64,
    epoch: u64,
    over: CancellationToken,
}

/// Why a call did not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    Gone,
    Full,
}

impl Machines {
    pub fn held(&self, id: &MachineId) -> Option<Arc<Held>> {
        self.machines().get(id).cloned()
    }

    fn put(&self, id: &MachineId, held: &Arc<Held>) {
        if let Some(before) = self.machines().insert(id.clone(), Arc::clone(held)) {
            before.over.cancel();
        }
    }

    fn remove(&self, id: &MachineId, held: &Arc<Held>) {
        let mut machines = self.machines();
        if machines.get(id).is_some_and(|there| Arc::ptr_eq(there, held)) {
            machines.remove(id);
        }
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<MachineId, Arc<Held>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Sends a call. What is waited for comes, or is dropped with the socket.
    pub fn call(
        &self,
        by: Operator,
        body: Box<RawValue>,
    ) -> Result<(u64, oneshot::Receiver<Box<RawValue>>), NotSent> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let text = serde_json::to_string(&Down::Call(Call { call, by, body })).map_err(|_| NotSent::Gone)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= CALLS_MAX {
                return Err(NotSent::Full);
            }
            waiting.insert(call, answer);
        }
        if let Err(error) = self.go.try_send(Go::Text(text.into())) {
            self.waiting().remove(&call);
            return Err(match error {
                mpsc::error::TrySendError::Full(_) => NotSent::Full,
                mpsc::error::TrySendError::Closed(_) => NotSent::Gone,
            });
        }
        Ok((call, answered))
    }

    /// Nobody waits for this answer any more.
    pub fn give_up(&self, call: u64) {
        self.waiting().remove(&call);
    }

    pub fn end(&self) {
        self.over.cancel();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Box<RawValue>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine that has shown a good token, and its socket.
pub struct Arriving {
    pub hub: Arc<Hub>,
    pub id: MachineId,
    pub person: PersonId,
    pub address: Option<IpAddr>,
    /// Cancelled when the token is not good any more.
    pub ended: CancellationToken,
}

enum Wake {
    Over(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    Hung,
    Heard,
}

impl Arriving {
    pub async fn run(self, mut pipe: Pipe) {
        let _counted = Counted::new(&self.hub.metrics.machines);
        let (code, reason) = match self.greet(&mut pipe).await {
            Ok(held) => {
                let over = self.serve(&mut pipe, &held).await;
                self.hub.machines.remove(&self.id, &held);
                held.waiting().clear();
                self.leave(held.epoch).await;
                over
            }
            Err(over) => over,
        };
        if code == NOT_WELCOME {
            self.hub.metrics.hostile.inc();
        }
        // A machine that hung up hears nothing more.
        drop(pipe.go.send(Go::Close(code, reason)).await);
    }

    /// The first frame says who it is.
    async fn greet(&self, pipe: &mut Pipe) -> Result<Arc<Held>, (u16, String)> {
        let first = tokio::time::timeout(FIRST_WORDS, pipe.came.recv()).await;
        let text = first.ok().flatten().ok_or((NOT_WELCOME, "a machine says its name first".to_owned()))?;
        let bad = |why: &str| (NOT_WELCOME, why.to_owned());
        let mut machine = match json::read(&text, "the frame") {
            Ok(Up::Machine(machine)) if machine.id == self.id.as_str() => machine,
            Ok(Up::Machine(_)) => return Err(bad("the machine's id is not the one of its address")),
            Ok(_) => return Err(bad("a machine says its name first")),
            Err(error) => return Err((NOT_WELCOME, format!("this is no frame of a machine: {error}"))),
        };
        if machine.name.chars().count() > NAME_CHARS_MAX || machine.version.len() > NAME_CHARS_MAX {
            return Err(bad("the machine's name is too long"));
        }
        // People tell machines apart by their names.
        machine.name.retain(|c| !engine::is_hidden(c));
        let epoch = match self.hold(&machine).await {
            Ok(Some(epoch)) => epoch,
            Ok(None) => return Err(bad("this machine's id is not free; choose another")),
            Err(_) => return Err((COME_BACK, "the hub's database is away; come back".to_owned())),
        };
        let held = Arc::new(Held {
            go: pipe.go.clone(),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            epoch,
            over: CancellationToken::new(),
        });
        self.hub.machines.put(&self.id, &held);
        Ok(held)
    }

    /// Takes the machine for this node. Nothing, if it is somebody else's.
    async fn hold(&self, machine: &Machine) -> Result<Option<u64>, DbError> {
        let (hub, now) = (&self.hub, self.hub.now());
        let person: &str = &self.person.0;
        let count = Statement::new(
            "SELECT COUNT(*) FROM machines WHERE person = $1 AND id <> $2",
            [person.into(), self.id.as_str().into()],
        );
        let others = hub.rows(count).await?.first().map(|row| row.count(0)).transpose()?.unwrap_or_default();
        if others >= MACHINES_MAX {
            return Ok(None);
        }
        let take = Statement::new(
            "INSERT INTO machines (id, person, name, version, sealed, node, epoch, seen_at, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version,
             sealed = excluded.sealed, node = excluded.node, epoch = machines.epoch + 1,
             seen_at = excluded.seen_at WHERE machines.person = excluded.person
             RETURNING epoch",
            [
                self.id.as_str().into(),
                person.into(),
                machine.name.as_str().into(),
                machine.version.as_str().into(),
                machine.sealed.into(),
                hub.node.as_str().into(),
                now.0.into(),
            ],
        );
        let note = Note::new("machine.attached", Some(person)).about(self.id.as_str()).from(self.address);
        let note = note.statement(now, Some(hub.node.as_str()));
        let news = vec![topics::person(person), topics::machine(self.id.as_str())];
        match hub.run(vec![take.must_change(1), note], news).await {
            Ok(found) => {
                found.first().and_then(|found| found.rows.first()).map(|row| row.count(0)).transpose()
            }
            Err(DbError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn leave(&self, epoch: u64) {
        let (now, person) = (self.hub.now(), self.person.0.as_ref());
        let away = Statement::new(
            "UPDATE machines SET node = NULL, seen_at = $3 WHERE id = $1 AND epoch = $2",
            [self.id.as_str().into(), epoch.into(), now.0.into()],
        );
        let note = Note::new("machine.detached", Some(person)).about(self.id.as_str()).from(self.address);
        let work = vec![away, note.statement(now, Some(self.hub.node.as_str()))];
        self.hub.take_leave(work, topics::person(person)).await;
    }

    async fn serve(&self, pipe: &mut Pipe, held: &Held) -> (u16, String) {
        let mut ear = self.hub.topics.listen(&topics::machine(self.id.as_str()));
        ear.mark_unchanged();
        let every = topics::about(LOOK_EVERY);
        let mut looks = tokio::time::interval_at(Instant::now() + every, every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => Wake::Over(GOING_AWAY, "this node of the hub is stopping; come back"),
                () = self.ended.cancelled() => Wake::Over(NOT_WELCOME, "this token is not good any more"),
                () = held.over.cancelled() => Wake::Over(COME_BACK, "this machine has another socket"),
                frame = pipe.came.recv() => frame.map_or(Wake::Hung, Wake::Frame),
                Ok(()) = ear.changed() => Wake::Heard,
                _ = looks.tick() => Wake::Heard,
            };
            let done = match wake {
                Wake::Over(code, reason) => Err((code, reason.to_owned())),
                Wake::Hung => Err((NORMAL, String::new())),
                Wake::Frame(text) => self.frame(held, &text).await,
                Wake::Heard => self.is_still_here(held).await,
            };
            if let Err(over) = done {
                return over;
            }
        }
    }

    /// Another node may hold the machine by now.
    async fn is_still_here(&self, held: &Held) -> Result<(), (u16, String)> {
        let question = Statement::new("SELECT epoch FROM machines WHERE id = $1", [self.id.as_str().into()]);
        match self.hub.rows(question).await {
            Ok(rows)
                if rows.first().is_none_or(|row| row.count(0).is_ok_and(|epoch| epoch != held.epoch)) =>
            {
                let reason = if rows.is_empty() {
                    "this machine was forgotten"
                } else {
                    "this machine has another socket"
                };
                Err((COME_BACK, reason.to_owned()))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn frame(&self, held: &Held, text: &str) -> Result<(), (u16, String)> {
        match json::read(text, "the frame") {
            Ok(Up::Answer(answer)) => {
                if let Some(waiting) = held.waiting().remove(&answer.call) {
                    // Who asked may be gone.
                    drop(waiting.send(answer.body));
                }
                Ok(())
            }
            Ok(Up::Keys(keys)) => self.keys(&keys).await,
            Ok(Up::Machine(_) | Up::Batch(_) | Up::Branch(_)) => {
                Err((NOT_WELCOME, "this does not belong on a machine's socket".to_owned()))
            }
            Err(error) => Err((NOT_WELCOME, format!("this is no frame of a machine: {error}"))),
        }
    }

    async fn keys(&self, keys: &Keys) -> Result<(), (u16, String)> {
        let long = |key: &wire::tunnel::WrappedKey| {
            key.key.len() > KEY_CHARS_MAX || key.device.len() > NAME_CHARS_MAX
        };
        if keys.wrapped.len() > KEYS_MAX || keys.wrapped.iter().any(long) {
            return Err((NOT_WELCOME, "these are too many keys".to_owned()));
        }
        let text = serde_json::to_string(keys).unwrap_or_default();
        let keep = Statement::new(
            "UPDATE machines SET keys = $2 WHERE id = $1",
            [Value::from(self.id.as_str()), text.into()],
        );
        match self.hub.run(vec![keep], vec![topics::person(&self.person.0)]).await {
            Ok(_) => Ok(()),
            // It sends them again when it comes back.
            Err(_) => Err((COME_BACK, "the hub's database is away; come back".to_owned())),
        }
    }
}
