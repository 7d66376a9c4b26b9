//! New sessions: empty ones, copies, and histories from elsewhere.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::imported_history::{self, Import};
use super::{History, NewSessionRequest, OpenError, Registry, SessionHold, SessionStart};
use crate::event::{Body, Event, NoticeLevel, Origin};
use crate::ids::{SessionId, Timestamp};
use crate::session::Effect;
use crate::session_handle::SessionHandle;
use crate::store::{Claim, NewSession, StoreError};

/// Makes an id for a session that is created at this time. A part of it is random.
pub type MakeId = fn(Timestamp) -> SessionId;

/// How often an id that is in use is replaced by another. The random part is long, so even once is rare.
const ID_ATTEMPTS_MAX: usize = 16;

impl Registry {
    /// A new session with a random id.
    pub async fn create(&self, request: NewSessionRequest) -> Result<SessionHandle, OpenError> {
        self.create_with_id(request, random_id).await
    }

    /// A new session with an id of the client's kind.
    pub async fn create_with_id(
        &self,
        request: NewSessionRequest,
        make: MakeId,
    ) -> Result<SessionHandle, OpenError> {
        self.create_held(request, Some(make)).await.map(|(handle, _hold)| handle)
    }

    /// The same for a caller that has a first prompt already: the session stays in memory while the hold
    /// exists.
    pub async fn create_held(
        &self,
        mut request: NewSessionRequest,
        make: Option<MakeId>,
    ) -> Result<(SessionHandle, SessionHold), OpenError> {
        let make = make.unwrap_or(random_id);
        let hold = SessionHold::default();
        let start = SessionStart { held: Arc::downgrade(&hold.0), ..SessionStart::created(&mut request) };
        let session = self.new_session(request, None, None);
        let slot = self.make_room().await?;
        let (_held, claim) = self.claim_new(session, make, None).await?;
        let session_id = claim.row.id.clone();
        let effects = self.ephemeral.then(not_saved).into_iter().collect();
        let created = self.start(slot, claim, SessionStart { effects, ..start }).await;
        if let Err(OpenError::Agent(_)) = &created {
            // A session whose agent never started is of no use to anybody.
            self.end(&session_id).await;
            self.store.delete(&session_id).await.ok();
        }
        created.map(|handle| (handle, hold))
    }

    /// A new session that begins with everything the source has written so far.
    pub async fn fork(
        &self,
        source: &SessionId,
        request: NewSessionRequest,
    ) -> Result<SessionHandle, OpenError> {
        self.fork_with_id(source, request, random_id).await
    }

    /// The same with an id of the client's kind.
    pub async fn fork_with_id(
        &self,
        source: &SessionId,
        mut request: NewSessionRequest,
        make: MakeId,
    ) -> Result<SessionHandle, OpenError> {
        let start = SessionStart::fresh(&mut request);
        let row = self.find(&request.owner, source).await?;
        let session = self.new_session(request, Some(row.id.clone()), row.title);
        let slot = self.make_room().await?;
        let (_held, claim) = self.claim_new(session, make, Some(&row.id)).await?;
        self.start(slot, claim, start).await
    }

    /// A new session with these events, renumbered from 1: the whole of it or none.
    pub async fn import(
        &self,
        request: NewSessionRequest,
        title: Option<Arc<str>>,
        events: Vec<Event>,
    ) -> Result<SessionHandle, OpenError> {
        self.import_from(request, title, imported_history::whole(events)).await
    }

    /// The same with events that come in pieces: few of them are in memory at once.
    pub async fn import_from(
        &self,
        request: NewSessionRequest,
        title: Option<Arc<str>>,
        history: History,
    ) -> Result<SessionHandle, OpenError> {
        self.import_new(request, |session| NewSession { title, ..session }, history).await
    }

    /// `described` fills in the details of the session.
    pub(super) async fn import_new(
        &self,
        mut request: NewSessionRequest,
        described: impl FnOnce(NewSession) -> NewSession,
        history: History,
    ) -> Result<SessionHandle, OpenError> {
        let start = SessionStart { servers: Vec::new(), ..SessionStart::fresh(&mut request) };
        let mut session = described(self.new_session(request, None, None));
        session.title = session.title.map(|title| self.title_without_secrets(title));
        let gate = self.gate(&session.id);
        let _held = gate.lock().await;
        let slot = self.make_room().await?;
        let source = Import::new(history, self.redactor.clone(), self.clock.now());
        let claim = self.store.import_from(session, Box::new(source)).await.map_err(OpenError::Store)?;
        self.start(slot, claim, start).await
    }

    /// Writes the row of a session under an unused id, with the events of `source` if there is one. Nobody
    /// else can do anything with that id while the guard is held.
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

    fn new_session(
        &self,
        request: NewSessionRequest,
        parent: Option<SessionId>,
        title: Option<Arc<str>>,
    ) -> NewSession {
        NewSession {
            id: SessionId::random(),
            owner: request.owner,
            cwd: request.cwd,
            roots: request.roots,
            parent,
            source: request.source,
            created_at: self.clock.now(),
            title: title.map(|title| self.title_without_secrets(title)),
        }
    }
}

fn random_id(_: Timestamp) -> SessionId {
    SessionId::random()
}

/// The first notice of a session where nothing is saved.
fn not_saved() -> Effect {
    let text =
        "this session is not saved: the server keeps it in memory only, and it is lost when the server stops";
    let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
    Effect::Record { origin: Origin::Engine, turn: None, event: notice.into() }
}
