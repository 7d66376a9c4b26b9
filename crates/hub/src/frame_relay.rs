//! Sessions whose bridge sends frames instead of a mirror: the frames are stored unchanged, numbered by arrival, and sent
//! unchanged to visitors who may see the session. Their frames go back to the bridge, unchanged but for the newline that
//! ends a frame on a bridge's socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::websocket_pump::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use engine::SessionId;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::sql::{DbError, SqlValue, Statement, log};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::method_names::ANSWERS;
use wire::native::Role;

use crate::authenticator::PersonId;
use crate::hub::Hub;
use crate::hub_tables::frames_log;
use crate::ids::NodeId;
use crate::metrics::GaugeGuard;
use crate::topics;
use crate::websocket_queues::{FrameChannel, OutgoingFrame};

/// Waiting frames that are stored in one transaction.
const FRAMES_AT_ONCE: usize = 32;
/// How many frames a new viewer gets first: as many as the bridge itself repeats after a disconnect.
const REPLAY: u64 = 50;
const POLL_EVERY: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
const PAGE: usize = 128;

/// The connected bridges of this node that send frames.
#[derive(Default)]
pub struct FrameRelays(Mutex<HashMap<String, mpsc::Sender<OutgoingFrame>>>);

impl FrameRelays {
    /// Sends a frame to a session's bridge, if it is connected here and its queue has room. Adds the newline that ends a frame.
    pub fn to_bridge(&self, session: &str, mut text: String) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(outgoing) = self.bridges().get(session)
            && outgoing.try_send(OutgoingFrame::Text(text.into())).is_err()
        {
            tracing::info!(session, "a bridge does not keep up with its frames");
        }
    }

    fn is_here(&self, session: &str) -> bool {
        self.bridges().contains_key(session)
    }

    fn bridges(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<OutgoingFrame>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a bridge that sends frames.
pub struct RelayBridge {
    hub: Arc<Hub>,
    session: SessionId,
    person: PersonId,
    epoch: u64,
    head: u64,
}

impl RelayBridge {
    /// Claims the session's log of frames. `None` if the session is not this person's.
    pub async fn attach(
        hub: &Arc<Hub>,
        session: SessionId,
        person: PersonId,
    ) -> Result<Option<Self>, DbError> {
        let log = frames_log(&session);
        let claim = Statement::new(
            "UPDATE mirrors SET node = $3, heard_at = $4, changed_at = $4, detached = 0,
             epoch = (SELECT logs.epoch FROM logs WHERE logs.id = $5)
             WHERE session = $1 AND person = $2 AND branch_of IS NULL",
            [
                session.as_str().into(),
                person.0.as_ref().into(),
                hub.node.as_str().into(),
                hub.now().0.into(),
                log.as_str().into(),
            ],
        );
        let news = vec![topics::person(&person.0)];
        let found = match hub.run(vec![log::take(&log), claim.must_change(1)], news).await {
            Ok(found) => found,
            Err(DbError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(row) = found.first().and_then(|found| found.rows.first()) else { return Ok(None) };
        let (epoch, head) = (row.count(0)?, row.count(1)?);
        Ok(Some(Self { hub: Arc::clone(hub), session, person, epoch, head }))
    }

    pub async fn run(mut self, mut channel: FrameChannel, revoked: CancellationToken) {
        let _gauge = GaugeGuard::new(&self.hub.metrics.bridges);
        let id = self.session.to_string();
        self.hub.frame_relays.bridges().insert(id.clone(), channel.outgoing.clone());
        let (code, reason) = self.serve(&mut channel, &revoked).await;
        {
            let mut bridges = self.hub.frame_relays.bridges();
            if bridges.get(&id).is_some_and(|there| there.same_channel(&channel.outgoing)) {
                bridges.remove(&id);
            }
        }
        drop(channel.outgoing.send(OutgoingFrame::Close(code, reason)).await);
        let leave = Statement::new(
            "UPDATE mirrors SET node = NULL, heard_at = $3, changed_at = $3 WHERE session = $1 AND epoch = $2",
            [id.into(), self.epoch.into(), self.hub.now().0.into()],
        );
        self.hub.report_disconnect(vec![leave], topics::person(&self.person.0)).await;
    }

    async fn serve(&mut self, channel: &mut FrameChannel, revoked: &CancellationToken) -> (u16, String) {
        loop {
            let first = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => return (GOING_AWAY, "this node of the hub is stopping".into()),
                () = revoked.cancelled() => return (NOT_WELCOME, "this token is no longer valid".into()),
                frame = channel.incoming.recv() => match frame {
                    Some(frame) => frame,
                    None => return (NORMAL, String::new()),
                },
            };
            let mut frames = vec![first];
            while frames.len() < FRAMES_AT_ONCE
                && let Ok(next) = channel.incoming.try_recv()
            {
                frames.push(next);
            }
            if !frames.iter().all(|frame| is_json(frame)) {
                self.hub.metrics.hostile.inc();
                return (NOT_WELCOME, "a frame must be JSON: one message or several lines".into());
            }
            let entries: Vec<_> = frames
                .iter()
                .zip(self.head + 1..)
                .map(|(frame, seq)| log::LogEntry { seq, kind: Some("frame"), body: frame.to_string() })
                .collect();
            if let Err(close) = self.store(entries, revoked).await {
                return close;
            }
        }
    }

    /// Stores frames, however long it takes: the bridge waits meanwhile.
    async fn store(
        &mut self,
        entries: Vec<log::LogEntry>,
        revoked: &CancellationToken,
    ) -> Result<(), (u16, String)> {
        let (count, log) = (entries.len() as u64, frames_log(&self.session));
        loop {
            let mut work = log::append(&log, self.epoch, self.head, entries.clone());
            work.push(Statement::new(
                "UPDATE mirrors SET heard_at = $2, updated_at = $2 WHERE session = $1",
                [self.session.as_str().into(), self.hub.now().0.into()],
            ));
            match self.hub.run(work, vec![topics::frames(self.session.as_str())]).await {
                Ok(_) => break,
                Err(DbError::Unavailable { .. }) => {
                    tokio::select! {
                        () = revoked.cancelled() => return Err((NOT_WELCOME, "this token is no longer valid".into())),
                        () = self.hub.stop.cancelled() => return Err((GOING_AWAY, String::new())),
                        () = tokio::time::sleep(topics::jittered(RETRY)) => {}
                    }
                    if self.was_stored(&log, count).await {
                        break;
                    }
                }
                Err(_) => return Err((COME_BACK, "another bridge has taken over this session".into())),
            }
        }
        self.head += count;
        self.hub.metrics.frames.inc_by(count);
        Ok(())
    }

    /// Whether a write whose answer was lost was done.
    async fn was_stored(&self, log: &str, count: u64) -> bool {
        let question = Statement::new("SELECT epoch, head FROM logs WHERE id = $1", [SqlValue::from(log)]);
        let rows = self.hub.rows(question).await.unwrap_or_default();
        let read = |row: &store::sql::Row| Some((row.count(0).ok()?, row.count(1).ok()?));
        rows.first().and_then(read) == Some((self.epoch, self.head + count))
    }
}

/// One JSON value, or several with white space between them.
fn is_json(text: &str) -> bool {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.all(|value| value.is_ok())
}

/// The connection of a browser that shows frames.
pub struct RelayViewer {
    pub hub: Arc<Hub>,
    pub session: SessionId,
    pub role: Role,
    pub after: Option<u64>,
    pub revoked: CancellationToken,
}

enum Wake {
    Close(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    HungUp,
    Look,
}

impl RelayViewer {
    pub async fn run(self, mut channel: FrameChannel) {
        let _gauge = GaugeGuard::new(&self.hub.metrics.browsers);
        let (code, reason) = self.serve(&mut channel).await;
        drop(channel.outgoing.send(OutgoingFrame::Close(code, reason.to_owned())).await);
    }

    async fn serve(&self, channel: &mut FrameChannel) -> (u16, &'static str) {
        let mut wakeups = self.hub.topics.listen(&topics::frames(self.session.as_str()));
        let mut at = match self.first_position().await {
            Ok(at) => at,
            Err(_) => return (COME_BACK, "the hub's database is not reachable; reconnect later"),
        };
        let log = frames_log(&self.session);
        loop {
            wakeups.mark_unchanged();
            // A failed read is tried again next time.
            let rows = self.hub.rows(log::read(&log, at, PAGE)).await.unwrap_or_default();
            for row in &rows {
                let (Ok(seq), Ok(text)) = (row.count(0), row.text(1)) else { continue };
                if channel.outgoing.send(OutgoingFrame::Text(text.as_ref().into())).await.is_err() {
                    return (NORMAL, "");
                }
                at = seq;
            }
            if rows.len() == PAGE {
                continue;
            }
            let wake = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => Wake::Close(GOING_AWAY, "this node of the hub is stopping; reconnect"),
                () = self.revoked.cancelled() => Wake::Close(NOT_WELCOME, "you no longer have access"),
                frame = channel.incoming.recv() => frame.map_or(Wake::HungUp, Wake::Frame),
                () = topics::wait_or_timeout(&mut wakeups, POLL_EVERY) => Wake::Look,
            };
            match wake {
                Wake::Close(code, reason) => return (code, reason),
                Wake::HungUp => return (NORMAL, ""),
                Wake::Look => {}
                Wake::Frame(text) if !is_json(&text) => {
                    return (NOT_WELCOME, "send JSON-RPC, one message per frame");
                }
                Wake::Frame(text) if !self.role_allows(&text) => {
                    return (NOT_WELCOME, "your role does not allow this message");
                }
                Wake::Frame(text) => self.send_to_bridge(&text).await,
            }
        }
    }

    /// The position after which to start.
    async fn first_position(&self) -> Result<u64, DbError> {
        if let Some(after) = self.after {
            return Ok(after);
        }
        let question = Statement::new(
            "SELECT head FROM logs WHERE id = $1",
            [SqlValue::from(frames_log(&self.session))],
        );
        let rows = self.hub.rows(question).await?;
        let head = rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default();
        Ok(head.saturating_sub(REPLAY))
    }

    /// Whether the viewer's role allows this frame.
    fn role_allows(&self, text: &str) -> bool {
        #[derive(Deserialize)]
        struct MethodName {
            method: Option<String>,
        }
        let method = serde_json::from_str::<MethodName>(text).ok().and_then(|named| named.method);
        match self.role {
            Role::Viewer => false,
            Role::Approver => method.is_some_and(|method| ANSWERS.contains(&method.as_str())),
            Role::Driver | Role::Owner => true,
        }
    }

    /// Sends a frame to the bridge, on whichever node its socket is. Without a socket the frame is lost, as on a connection that breaks.
    async fn send_to_bridge(&self, text: &str) {
        let session = self.session.as_str();
        if self.hub.frame_relays.is_here(session) {
            return self.hub.frame_relays.to_bridge(session, text.to_owned());
        }
        let question = Statement::new("SELECT node FROM mirrors WHERE session = $1", [session.into()]);
        let rows = self.hub.rows(question).await.unwrap_or_default();
        let node = rows.first().and_then(|row| row.maybe_text(0).ok().flatten());
        if let Some(node) = node
            && let Err(error) = self.hub.post_frame(&NodeId::named(node), session, text).await
        {
            tracing::info!(%error, "could not deliver a frame to its bridge");
        }
    }
}
