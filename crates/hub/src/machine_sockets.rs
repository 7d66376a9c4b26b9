//! The machine sockets on this node: calls go out on them, answers come back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::websocket_pump::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use serde_json::value::RawValue;
use store::sql::{DbError, SqlValue, Statement};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wire::json_errors;
use wire::tunnel::{BridgeFrame, HubFrame, MachineInfo, Operator, OperatorCall, WrappedKeys};

use crate::audit::AuditEntry;
use crate::authenticator::PersonId;
use crate::hub::Hub;
use crate::ids::MachineId;
use crate::metrics::GaugeGuard;
use crate::topics;
use crate::websocket_queues::{FrameChannel, OutgoingFrame};

/// Calls to one machine that wait for an answer.
const CALLS_MAX: usize = 256;
/// How long a machine may take to send its first frame.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// How often to check whether another node has the machine, without a notification.
const POLL_EVERY: Duration = Duration::from_secs(3);
const NAME_CHARS_MAX: usize = 100;
const KEYS_MAX: usize = 64;
const KEY_CHARS_MAX: usize = 4096;
/// Machines of one person.
pub const MACHINES_MAX: u64 = 100;

#[derive(Default)]
pub struct MachineSockets(Mutex<HashMap<MachineId, Arc<MachineSocket>>>);

/// The socket of a machine that is connected to this node.
pub struct MachineSocket {
    outgoing: mpsc::Sender<OutgoingFrame>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Box<RawValue>>>>,
    next: AtomicU64,
    epoch: u64,
    closed: CancellationToken,
}

/// Why a call was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallNotSent {
    Gone,
    Full,
}

impl MachineSockets {
    pub fn get(&self, id: &MachineId) -> Option<Arc<MachineSocket>> {
        self.machines().get(id).cloned()
    }

    fn put(&self, id: &MachineId, socket: &Arc<MachineSocket>) {
        if let Some(before) = self.machines().insert(id.clone(), Arc::clone(socket)) {
            before.closed.cancel();
        }
    }

    fn remove(&self, id: &MachineId, socket: &Arc<MachineSocket>) {
        let mut machines = self.machines();
        if machines.get(id).is_some_and(|there| Arc::ptr_eq(there, socket)) {
            machines.remove(id);
        }
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<MachineId, Arc<MachineSocket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MachineSocket {
    /// Sends a call. The receiver gets the answer, or an error when the socket closes.
    pub fn call(
        &self,
        by: Operator,
        body: Box<RawValue>,
    ) -> Result<(u64, oneshot::Receiver<Box<RawValue>>), CallNotSent> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let text = serde_json::to_string(&HubFrame::Call(OperatorCall { call, by, body }))
            .map_err(|_| CallNotSent::Gone)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= CALLS_MAX {
                return Err(CallNotSent::Full);
            }
            waiting.insert(call, answer);
        }
        if let Err(error) = self.outgoing.try_send(OutgoingFrame::Text(text.into())) {
            self.waiting().remove(&call);
            return Err(match error {
                mpsc::error::TrySendError::Full(_) => CallNotSent::Full,
                mpsc::error::TrySendError::Closed(_) => CallNotSent::Gone,
            });
        }
        Ok((call, answered))
    }

    /// Nobody waits for this answer any more.
    pub fn give_up(&self, call: u64) {
        self.waiting().remove(&call);
    }

    pub fn close(&self) {
        self.closed.cancel();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Box<RawValue>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a machine with a valid token.
pub struct MachineConnection {
    pub hub: Arc<Hub>,
    pub id: MachineId,
    pub person: PersonId,
    pub address: Option<IpAddr>,
    /// Cancelled when the token is revoked or expires.
    pub revoked: CancellationToken,
}

enum Wake {
    Close(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    HungUp,
    CheckOwnership,
}

impl MachineConnection {
    pub async fn run(self, mut channel: FrameChannel) {
        let _gauge = GaugeGuard::new(&self.hub.metrics.machines);
        let (code, reason) = match self.handshake(&mut channel).await {
            Ok(socket) => {
                let close = self.serve(&mut channel, &socket).await;
                self.hub.machine_sockets.remove(&self.id, &socket);
                socket.waiting().clear();
                self.leave(socket.epoch).await;
                close
            }
            Err(close) => close,
        };
        if code == NOT_WELCOME {
            self.hub.metrics.hostile.inc();
        }
        // Fails if the machine has hung up.
        drop(channel.outgoing.send(OutgoingFrame::Close(code, reason)).await);
    }

    /// Reads the first frame, which names the machine, and registers its socket.
    async fn handshake(&self, channel: &mut FrameChannel) -> Result<Arc<MachineSocket>, (u16, String)> {
        let first = tokio::time::timeout(HANDSHAKE_TIMEOUT, channel.incoming.recv()).await;
        let text = first
            .ok()
            .flatten()
            .ok_or((NOT_WELCOME, "the first frame of a machine must name it".to_owned()))?;
        let bad = |why: &str| (NOT_WELCOME, why.to_owned());
        let mut machine = match json_errors::read(&text, "the frame") {
            Ok(BridgeFrame::Machine(machine)) if machine.id == self.id.as_str() => machine,
            Ok(BridgeFrame::Machine(_)) => return Err(bad("the machine's id is not the one of its address")),
            Ok(_) => return Err(bad("the first frame of a machine must name it")),
            Err(error) => return Err((NOT_WELCOME, format!("invalid frame of a machine: {error}"))),
        };
        if machine.name.chars().count() > NAME_CHARS_MAX || machine.version.len() > NAME_CHARS_MAX {
            return Err(bad("the machine's name is too long"));
        }
        // Hidden characters could make two names look the same.
        machine.name.retain(|c| !engine::is_hidden(c));
        let epoch = match self.claim(&machine).await {
            Ok(Some(epoch)) => epoch,
            Ok(None) => return Err(bad("this machine id is already in use; choose another")),
            Err(_) => {
                return Err((COME_BACK, "the hub's database is not reachable; reconnect later".to_owned()));
            }
        };
        let socket = Arc::new(MachineSocket {
            outgoing: channel.outgoing.clone(),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            epoch,
            closed: CancellationToken::new(),
        });
        self.hub.machine_sockets.put(&self.id, &socket);
        Ok(socket)
    }

    /// Claims the machine for this node. `None` if its id belongs to another person, or the person has too many machines.
    async fn claim(&self, machine: &MachineInfo) -> Result<Option<u64>, DbError> {
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
        let entry =
            AuditEntry::new("machine.attached", Some(person)).about(self.id.as_str()).from(self.address);
        let entry = entry.statement(now, Some(hub.node.as_str()));
        let topics = vec![topics::person(person), topics::machine(self.id.as_str())];
        match hub.run(vec![take.must_change(1), entry], topics).await {
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
        let entry =
            AuditEntry::new("machine.detached", Some(person)).about(self.id.as_str()).from(self.address);
        let work = vec![away, entry.statement(now, Some(self.hub.node.as_str()))];
        self.hub.report_disconnect(work, topics::person(person)).await;
    }

    async fn serve(&self, channel: &mut FrameChannel, socket: &MachineSocket) -> (u16, String) {
        let mut wakeups = self.hub.topics.listen(&topics::machine(self.id.as_str()));
        wakeups.mark_unchanged();
        let every = topics::jittered(POLL_EVERY);
        let mut checks = tokio::time::interval_at(Instant::now() + every, every);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => Wake::Close(GOING_AWAY, "this node of the hub is stopping; reconnect"),
                () = self.revoked.cancelled() => Wake::Close(NOT_WELCOME, "this token is no longer valid"),
                () = socket.closed.cancelled() => Wake::Close(COME_BACK, "this machine has opened another connection"),
                frame = channel.incoming.recv() => frame.map_or(Wake::HungUp, Wake::Frame),
                Ok(()) = wakeups.changed() => Wake::CheckOwnership,
                _ = checks.tick() => Wake::CheckOwnership,
            };
            let done = match wake {
                Wake::Close(code, reason) => Err((code, reason.to_owned())),
                Wake::HungUp => Err((NORMAL, String::new())),
                Wake::Frame(text) => self.handle_frame(socket, &text).await,
                Wake::CheckOwnership => self.check_ownership(socket).await,
            };
            if let Err(close) = done {
                return close;
            }
        }
    }

    /// Closes the socket if another node has the machine by now.
    async fn check_ownership(&self, socket: &MachineSocket) -> Result<(), (u16, String)> {
        let question = Statement::new("SELECT epoch FROM machines WHERE id = $1", [self.id.as_str().into()]);
        match self.hub.rows(question).await {
            Ok(rows)
                if rows.first().is_none_or(|row| row.count(0).is_ok_and(|epoch| epoch != socket.epoch)) =>
            {
                let reason = if rows.is_empty() {
                    "this machine was forgotten"
                } else {
                    "this machine has opened another connection"
                };
                Err((COME_BACK, reason.to_owned()))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn handle_frame(&self, socket: &MachineSocket, text: &str) -> Result<(), (u16, String)> {
        match json_errors::read(text, "the frame") {
            Ok(BridgeFrame::Answer(answer)) => {
                if let Some(waiting) = socket.waiting().remove(&answer.call) {
                    // The caller may be gone.
                    drop(waiting.send(answer.body));
                }
                Ok(())
            }
            Ok(BridgeFrame::Keys(keys)) => self.store_keys(&keys).await,
            Ok(BridgeFrame::Machine(_) | BridgeFrame::Batch(_) | BridgeFrame::Branch(_)) => {
                Err((NOT_WELCOME, "this does not belong on a machine's socket".to_owned()))
            }
            Err(error) => Err((NOT_WELCOME, format!("invalid frame of a machine: {error}"))),
        }
    }

    async fn store_keys(&self, keys: &WrappedKeys) -> Result<(), (u16, String)> {
        let long = |key: &wire::tunnel::WrappedKey| {
            key.key.len() > KEY_CHARS_MAX || key.device.len() > NAME_CHARS_MAX
        };
        if keys.wrapped.len() > KEYS_MAX || keys.wrapped.iter().any(long) {
            return Err((NOT_WELCOME, "too many keys".to_owned()));
        }
        let text = serde_json::to_string(keys).unwrap_or_default();
        let update = Statement::new(
            "UPDATE machines SET keys = $2 WHERE id = $1",
            [SqlValue::from(self.id.as_str()), text.into()],
        );
        match self.hub.run(vec![update], vec![topics::person(&self.person.0)]).await {
            Ok(_) => Ok(()),
            // The machine sends them again when it reconnects.
            Err(_) => Err((COME_BACK, "the hub's database is not reachable; reconnect later".to_owned())),
        }
    }
}
