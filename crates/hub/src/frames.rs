//! Sessions whose bridge sends frames instead of a mirror: they are kept as they come, numbered by arrival, and shown
//! unchanged to whoever may see them. What those send goes back to the bridge, unchanged too but for the newline that
//! ends a frame on a bridge's socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::websocket::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use engine::SessionId;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::sql::{DbError, Statement, Value, log};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::methods::ANSWERS;
use wire::native::Role;

use crate::guest::PersonId;
use crate::hub::Hub;
use crate::ids::NodeId;
use crate::metrics::Counted;
use crate::schema::frames_log;
use crate::socket::{Go, Pipe};
use crate::topics;

/// Frames that are kept together, when they wait.
const TOGETHER_MAX: usize = 32;
/// What is shown first to who comes: as much as the bridge itself sends again after a cut.
const REPLAY: u64 = 50;
const LOOK_EVERY: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
const PAGE: usize = 128;

/// The bridges of this node that send frames.
#[derive(Default)]
pub struct Relays(Mutex<HashMap<String, mpsc::Sender<Go>>>);

impl Relays {
    /// Gives a frame to a session's bridge, if it is here and takes it. A frame ends with a newline.
    pub fn to_bridge(&self, session: &str, mut text: String) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(go) = self.bridges().get(session)
            && go.try_send(Go::Text(text.into())).is_err()
        {
            tracing::info!(session, "a bridge takes no more");
        }
    }

    fn is_here(&self, session: &str) -> bool {
        self.bridges().contains_key(session)
    }

    fn bridges(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Go>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bridge's end.
pub struct Source {
    hub: Arc<Hub>,
    session: SessionId,
    person: PersonId,
    epoch: u64,
    head: u64,
}

impl Source {
    /// Takes the session's log of frames. Nothing, if the session is not this person's.
    pub async fn attach(
        hub: &Arc<Hub>,
        session: SessionId,
        person: PersonId,
    ) -> Result<Option<Self>, DbError> {
        let log = frames_log(&session);
        let hold = Statement::new(
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
        let found = match hub.run(vec![log::take(&log), hold.must_change(1)], news).await {
            Ok(found) => found,
            Err(DbError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(row) = found.first().and_then(|found| found.rows.first()) else { return Ok(None) };
        let (epoch, head) = (row.count(0)?, row.count(1)?);
        Ok(Some(Self { hub: Arc::clone(hub), session, person, epoch, head }))
    }

    pub async fn run(mut self, mut pipe: Pipe, ended: CancellationToken) {
        let _counted = Counted::new(&self.hub.metrics.bridges);
        let id = self.session.to_string();
        self.hub.relays.bridges().insert(id.clone(), pipe.go.clone());
        let (code, reason) = self.serve(&mut pipe, &ended).await;
        {
            let mut bridges = self.hub.relays.bridges();
            if bridges.get(&id).is_some_and(|there| there.same_channel(&pipe.go)) {
                bridges.remove(&id);
            }
        }
        drop(pipe.go.send(Go::Close(code, reason)).await);
        let leave = Statement::new(
            "UPDATE mirrors SET node = NULL, heard_at = $3, changed_at = $3 WHERE session = $1 AND epoch = $2",
            [id.into(), self.epoch.into(), self.hub.now().0.into()],
        );
        self.hub.take_leave(vec![leave], topics::person(&self.person.0)).await;
    }

    async fn serve(&mut self, pipe: &mut Pipe, ended: &CancellationToken) -> (u16, String) {
        loop {
            let first = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => return (GOING_AWAY, "this node of the hub is stopping".into()),
                () = ended.cancelled() => return (NOT_WELCOME, "this token is not good any more".into()),
                frame = pipe.came.recv() => match frame {
                    Some(frame) => frame,
                    None => return (NORMAL, String::new()),
                },
            };
            let mut frames = vec![first];
            while frames.len() < TOGETHER_MAX
                && let Ok(next) = pipe.came.try_recv()
            {
                frames.push(next);
            }
            if !frames.iter().all(|frame| is_json(frame)) {
                self.hub.metrics.hostile.inc();
                return (NOT_WELCOME, "a frame is JSON, one message or several lines".into());
            }
            let entries: Vec<_> = frames
                .iter()
                .zip(self.head + 1..)
                .map(|(frame, seq)| log::Entry { seq, kind: Some("frame"), body: frame.to_string() })
                .collect();
            if let Err(over) = self.keep(entries, ended).await {
                return over;
            }
        }
    }

    /// Keeps frames, however long it takes: the bridge waits in the meantime.
    async fn keep(
        &mut self,
        entries: Vec<log::Entry>,
        ended: &CancellationToken,
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
                        () = ended.cancelled() => return Err((NOT_WELCOME, "this token is not good any more".into())),
                        () = self.hub.stop.cancelled() => return Err((GOING_AWAY, String::new())),
                        () = tokio::time::sleep(topics::about(RETRY)) => {}
                    }
                    if self.was_kept(&log, count).await {
                        break;
                    }
                }
                Err(_) => return Err((COME_BACK, "another bridge has taken this session over".into())),
            }
        }
        self.head += count;
        self.hub.metrics.frames.inc_by(count);
        Ok(())
    }

    /// It may have been done although it was not known to be.
    async fn was_kept(&self, log: &str, count: u64) -> bool {
        let question = Statement::new("SELECT epoch, head FROM logs WHERE id = $1", [Value::from(log)]);
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

/// Somebody who looks at frames.
pub struct Sink {
    pub hub: Arc<Hub>,
    pub session: SessionId,
    pub role: Role,
    pub after: Option<u64>,
    pub ended: CancellationToken,
}

enum Wake {
    Over(u16, &'static str),
    Frame(axum::extract::ws::Utf8Bytes),
    Hung,
    Look,
}

impl Sink {
    pub async fn run(self, mut pipe: Pipe) {
        let _counted = Counted::new(&self.hub.metrics.browsers);
        let (code, reason) = self.serve(&mut pipe).await;
        drop(pipe.go.send(Go::Close(code, reason.to_owned())).await);
    }

    async fn serve(&self, pipe: &mut Pipe) -> (u16, &'static str) {
        let mut ear = self.hub.topics.listen(&topics::frames(self.session.as_str()));
        let mut at = match self.begin().await {
            Ok(at) => at,
            Err(_) => return (COME_BACK, "the hub's database is away; come back"),
        };
        let log = frames_log(&self.session);
        loop {
            ear.mark_unchanged();
            // What cannot be read is read the next time.
            let rows = self.hub.rows(log::read(&log, at, PAGE)).await.unwrap_or_default();
            for row in &rows {
                let (Ok(seq), Ok(text)) = (row.count(0), row.text(1)) else { continue };
                if pipe.go.send(Go::Text(text.as_ref().into())).await.is_err() {
                    return (NORMAL, "");
                }
                at = seq;
            }
            if rows.len() == PAGE {
                continue;
            }
            let wake = tokio::select! {
                biased;
                () = self.hub.stop.cancelled() => Wake::Over(GOING_AWAY, "this node of the hub is stopping; come back"),
                () = self.ended.cancelled() => Wake::Over(NOT_WELCOME, "you are not welcome here any more"),
                frame = pipe.came.recv() => frame.map_or(Wake::Hung, Wake::Frame),
                () = topics::heard_or(&mut ear, LOOK_EVERY) => Wake::Look,
            };
            match wake {
                Wake::Over(code, reason) => return (code, reason),
                Wake::Hung => return (NORMAL, ""),
                Wake::Look => {}
                Wake::Frame(text) if !is_json(&text) => {
                    return (NOT_WELCOME, "send JSON-RPC, one message per frame");
                }
                Wake::Frame(text) if !self.may(&text) => {
                    return (NOT_WELCOME, "your role does not let you say this");
                }
                Wake::Frame(text) => self.back(&text).await,
            }
        }
    }

    /// After which frame to begin.
    async fn begin(&self) -> Result<u64, DbError> {
        if let Some(after) = self.after {
            return Ok(after);
        }
        let question =
            Statement::new("SELECT head FROM logs WHERE id = $1", [Value::from(frames_log(&self.session))]);
        let rows = self.hub.rows(question).await?;
        let head = rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default();
        Ok(head.saturating_sub(REPLAY))
    }

    fn may(&self, text: &str) -> bool {
        #[derive(Deserialize)]
        struct Named {
            method: Option<String>,
        }
        let method = serde_json::from_str::<Named>(text).ok().and_then(|named| named.method);
        match self.role {
            Role::Viewer => false,
            Role::Approver => method.is_some_and(|method| ANSWERS.contains(&method.as_str())),
            Role::Driver | Role::Owner => true,
        }
    }

    /// To the bridge, wherever its socket is. What finds none is lost, as on a line that is cut.
    async fn back(&self, text: &str) {
        let session = self.session.as_str();
        if self.hub.relays.is_here(session) {
            return self.hub.relays.to_bridge(session, text.to_owned());
        }
        let question = Statement::new("SELECT node FROM mirrors WHERE session = $1", [session.into()]);
        let rows = self.hub.rows(question).await.unwrap_or_default();
        let node = rows.first().and_then(|row| row.maybe_text(0).ok().flatten());
        if let Some(node) = node
            && let Err(error) = self.hub.post_frame(&NodeId::named(node), session, text).await
        {
            tracing::info!(%error, "a frame did not get to its bridge");
        }
    }
}
