//! New sessions: empty ones, copies, and histories from elsewhere.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::history::{self, Import};
use super::{History, OpenError, Registry, SessionHold, Start, Wish};
use crate::event::{Body, Event, NoticeLevel, Origin};
use crate::handle::SessionHandle;
use crate::ids::{SessionId, Timestamp};
use crate::session::Effect;
use crate::store::{Claim, NewSession, StoreError};

/// Makes an id for a session that begins at this time. A part of it is random.
pub type MakeId = fn(Timestamp) -> SessionId;

/// How often an id that is taken is replaced by another. The random part is long, so once is rare.
const ID_ATTEMPTS_MAX: usize = 16;

impl Registry {
    /// A new session with a random id.
    pub async fn create(&self, wish: Wish) -> Result<SessionHandle, OpenError> {
        self.create_with_id(wish, random_id).await
    }

    /// A new session with an id of the client's kind.
    pub async fn create_with_id(&self, wish: Wish, make: MakeId) -> Result<SessionHandle, OpenError> {
        self.create_held(wish, Some(make)).await.map(|(handle, _hold)| handle)
    }

    /// The same for whoever has its first prompt already: nobody takes it out of memory while they hold it.
    pub async fn create_held(
        &self,
        mut wish: Wish,
        make: Option<MakeId>,
    ) -> Result<(SessionHandle, SessionHold), OpenError> {
        let make = make.unwrap_or(random_id);
        let hold = SessionHold::default();
        let start = Start { held: Arc::downgrade(&hold.0), ..Start::created(&mut wish) };
        let session = self.new_session(wish, None, None);
        let seat = self.make_room().await?;
        let (_held, claim) = self.claim_new(session, make, None).await?;
        let session_id = claim.row.id.clone();
        let effects = self.ephemeral.then(not_saved).into_iter().collect();
        let created = self.start(seat, claim, Start { effects, ..start }).await;
        if let Err(OpenError::Agent(_)) = &created {
            // A session whose agent never was there is nothing to come back to.
            self.end(&session_id).await;
            self.store.delete(&session_id).await.ok();
        }
        created.map(|handle| (handle, hold))
    }

    /// A new session that begins with everything the source has written so far.
    pub async fn fork(&self, source: &SessionId, wish: Wish) -> Result<SessionHandle, OpenError> {
        self.fork_with_id(source, wish, random_id).await
    }

    /// The same with an id of the client's kind.
    pub async fn fork_with_id(
        &self,
        source: &SessionId,
        mut wish: Wish,
        make: MakeId,
    ) -> Result<SessionHandle, OpenError> {
        let start = Start::fresh(&mut wish);
        let row = self.find(&wish.owner, source).await?;
        let session = self.new_session(wish, Some(row.id.clone()), row.title);
        let seat = self.make_room().await?;
        let (_held, claim) = self.claim_new(session, make, Some(&row.id)).await?;
        self.start(seat, claim, start).await
    }

    /// A new session with these events, renumbered from 1: the whole of it or none.
    pub async fn import(
        &self,
        wish: Wish,
        title: Option<Arc<str>>,
        events: Vec<Event>,
    ) -> Result<SessionHandle, OpenError> {
        self.import_from(wish, title, history::whole(events)).await
    }

    /// The same with events that come in pieces: few of them are in memory at once.
    pub async fn import_from(
        &self,
        wish: Wish,
        title: Option<Arc<str>>,
        history: History,
    ) -> Result<SessionHandle, OpenError> {
        self.import_new(wish, |session| NewSession { title, ..session }, history).await
    }

    /// `described` completes what is known of the session.
    pub(super) async fn import_new(
        &self,
        mut wish: Wish,
        described: impl FnOnce(NewSession) -> NewSession,
        history: History,
    ) -> Result<SessionHandle, OpenError> {
        let start = Start { servers: Vec::new(), ..Start::fresh(&mut wish) };
        let mut session = described(self.new_session(wish, None, None));
        session.title = session.title.map(|title| self.title_without_secrets(title));
        let gate = self.gate(&session.id);
        let _held = gate.lock().await;
        let seat = self.make_room().await?;
        let source = Import::new(history, self.redactor.clone(), self.clock.now());
        let claim = self.store.import_from(session, Box::new(source)).await.map_err(OpenError::Store)?;
        self.start(seat, claim, start).await
    }

    /// Writes the row of a session under an id that nobody has or had, with the events of `source` if there is one.
    /// Nobody else can do anything with that id while the guard is held.
    async fn claim_new(
        &self,
        session: NewSession,
        make: MakeId,
        source: Option<&SessionId>,
    ) -> Result<(OwnedMutexGuard<()>, Claim), OpenError> {
        for _ in 0..ID_ATTEMPTS_MAX {
            let id = make(session.created_at);
            if self.has_folder(&id).await {
                continue;
            }
            let held = self.gate(&id).lock_owned().await;
            let session = NewSession { id, ..session.clone() };
            let claimed = match source {
                Some(source) => self.store.fork(source, session).await,
                None => self.store.create(session).await,
            };
            match claimed {
                Err(StoreError::Exists) => {}
                Ok(claim) => return Ok((held, claim)),
                Err(error) => return Err(OpenError::Store(error)),
            }
        }
        Err(OpenError::Store(StoreError::Exists))
    }

    fn new_session(&self, wish: Wish, parent: Option<SessionId>, title: Option<Arc<str>>) -> NewSession {
        NewSession {
            id: SessionId::random(),
            owner: wish.owner,
            cwd: wish.cwd,
            roots: wish.roots,
            parent,
            source: wish.source,
            created_at: self.clock.now(),
            title: title.map(|title| self.title_without_secrets(title)),
        }
    }
}

fn random_id(_: Timestamp) -> SessionId {
    SessionId::random()
}

/// What a session begins with where nothing is saved.
fn not_saved() -> Effect {
    let text = "this session is not saved: the server keeps everything in memory, and it is gone when the server stops";
    let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
    Effect::Record { origin: Origin::Engine, turn: None, said: notice.into() }
}
