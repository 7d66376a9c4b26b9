//! Commands about existing sessions: read, prompt, change, close, delete.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, Act, AskId, Content, Event, Input, InputReceipt, ListQuery, ListedSession, OpenError,
    PageRequest, PermissionAnswer, Refusal, Registry, SendError, Sender, Seq, SessionHandle, SessionId,
    SessionRow, TurnId, full_id,
};
use wire::session_export_writer::{DocumentFormat, WHOLE_BYTES_MAX};
use wire::{EventPage, EventRange};

use crate::session_text::{Part, read_part};
use crate::{Caller, ServiceError, ServiceRules, SessionText, SessionTextError};

pub use crate::new_sessions::NewSessionOptions;

/// The longest reason for a cancel that is stored.
const REASON_CHARS_MAX: usize = 200;

/// The sessions of a server, and the rules for its callers. Clones share both.
#[derive(Clone)]
pub struct Service {
    registry: Arc<Registry>,
    rules: Arc<ServiceRules>,
}

impl Service {
    pub fn new(registry: Arc<Registry>, rules: ServiceRules) -> Self {
        Self { registry, rules: Arc::new(rules) }
    }

    /// For what is about no session: the agent's abilities, the clock, the tasks.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub fn rules(&self) -> &Arc<ServiceRules> {
        &self.rules
    }

    /// Whether the caller may do this, and to this session.
    pub fn check(&self, caller: &Caller, act: Act, session: Option<&SessionId>) -> Result<(), ServiceError> {
        caller.may(act)?;
        match session {
            Some(session) if !caller.reaches(act, session) => Err(ServiceError::not_found(session)),
            Some(_) | None => Ok(()),
        }
    }

    /// The session, brought back to memory if it left.
    pub async fn open(&self, caller: &Caller, id: &SessionId) -> Result<SessionHandle, ServiceError> {
        self.open_for(caller, Act::Open, id).await
    }

    pub(crate) async fn open_for(
        &self,
        caller: &Caller,
        act: Act,
        id: &SessionId,
    ) -> Result<SessionHandle, ServiceError> {
        self.check(caller, act, Some(id))?;
        let handle = self.registry.open(&caller.principal, id).await?;
        self.check_still_open(caller, &handle).await?;
        Ok(handle)
    }

    /// The session if it is in memory.
    pub async fn live(
        &self,
        caller: &Caller,
        act: Act,
        id: &SessionId,
    ) -> Result<Option<SessionHandle>, ServiceError> {
        self.check(caller, act, Some(id))?;
        let Some(handle) = self.registry.live(&caller.principal, id) else { return Ok(None) };
        self.check_still_open(caller, &handle).await?;
        Ok(Some(handle))
    }

    /// A session's row, without opening the session. Reading it counts as a use.
    pub async fn row(&self, caller: &Caller, id: &SessionId) -> Result<SessionRow, ServiceError> {
        self.check(caller, Act::Read, Some(id))?;
        self.registry.touch(&caller.principal, id);
        Ok(self.registry.row(&caller.principal, id).await?)
    }

    /// A page of the caller's sessions, those left out that were never used. With a prefix of ids, those of the owner
    /// in another program's folders too.
    pub async fn list(
        &self,
        caller: &Caller,
        mut query: ListQuery,
        prefix: Option<&str>,
    ) -> Result<Vec<ListedSession>, ServiceError> {
        self.check(caller, Act::List, None)?;
        query.owner = caller.principal.clone();
        if caller.kind.is_for_one_session(Act::List) {
            return self.list_one(caller, query.cwd.as_deref()).await;
        }
        Ok(match prefix.filter(|_| caller.is_owner()) {
            Some(prefix) => self.registry.list_with_folders(query, prefix).await?,
            None => self.registry.list_used(query).await?,
        })
    }

    /// The listing for a caller that has access to one session.
    async fn list_one(
        &self,
        caller: &Caller,
        cwd: Option<&Path>,
    ) -> Result<Vec<ListedSession>, ServiceError> {
        let Some(id) = &caller.session else { return Ok(Vec::new()) };
        let row = self.registry.row(&caller.principal, id).await?;
        let live = self.registry.live(&caller.principal, id);
        let cancelling = live.as_ref().is_some_and(|handle| handle.snapshot().cancelling);
        let elsewhere = cwd.is_some_and(|cwd| cwd != row.cwd);
        Ok(if elsewhere { Vec::new() } else { vec![ListedSession { row, live: live.is_some(), cancelling }] })
    }

    /// Stored events after a position, without opening the session.
    pub async fn read(
        &self,
        caller: &Caller,
        id: &SessionId,
        after: Seq,
        page: PageRequest,
    ) -> Result<Vec<Arc<Event>>, ServiceError> {
        self.check(caller, Act::Read, Some(id))?;
        Ok(self.registry.read(&caller.principal, id, after, page).await?)
    }

    /// A session in one of its forms, piece after piece.
    pub async fn text(
        &self,
        caller: &Caller,
        row: SessionRow,
        form: DocumentFormat,
    ) -> Result<SessionText, SessionTextError> {
        if let Err(error) = self.check(caller, Act::Read, Some(&row.id)) {
            tracing::debug!(%error, "a session's text was refused");
            return Err(SessionTextError::Open(OpenError::NotFound(row.id)));
        }
        SessionText::open(&self.registry, &caller.principal, row, form).await
    }

    /// The events of a range, as far as they fit into one answer.
    pub async fn part(
        &self,
        caller: &Caller,
        id: &SessionId,
        range: EventRange,
    ) -> Result<(ListedSession, EventPage), ServiceError> {
        self.check(caller, Act::Read, Some(id))?;
        let row = self.registry.row(&caller.principal, id).await?;
        match read_part(&self.registry, &caller.principal, id, range, WHOLE_BYTES_MAX).await? {
            Part::Events(events) => Ok((ListedSession { row, live: false, cancelling: false }, events)),
            Part::TooLong => Err(ServiceError::TooLong(id.clone())),
        }
    }

    /// Sends a prompt with this sender: the caller, or the caller with the name of a request.
    pub async fn prompt(
        &self,
        caller: &Caller,
        id: &SessionId,
        by: &Sender,
        content: Vec<Content>,
        prepare: impl Fn(&SessionHandle),
    ) -> Result<(SessionHandle, InputReceipt, TurnId), ServiceError> {
        self.check(caller, Act::Prompt, Some(id))?;
        if let Some(Content::Text(text)) = content.first() {
            caller.may_prompt(text)?;
        }
        let prompt = || Input::Prompt { by: by.clone(), content: content.clone() };
        let (handle, accepted) = self.deliver(caller, (Act::Prompt, id), prompt, prepare).await?;
        let turn = accepted.turn.ok_or(ServiceError::Internal)?;
        Ok((handle, accepted, turn))
    }

    /// Ends the running turn, or only this one, and what this caller has waiting. Says whether there was anything. A
    /// session that is not in memory has nothing to cancel, but it has to be there.
    pub async fn cancel(
        &self,
        caller: &Caller,
        id: &SessionId,
        only: Option<TurnId>,
    ) -> Result<bool, ServiceError> {
        self.check(caller, Act::Cancel, Some(id))?;
        let Some(handle) = self.registry.live(&caller.principal, id) else {
            self.registry.row(&caller.principal, id).await?;
            return Ok(false);
        };
        let snapshot = handle.snapshot();
        let was_busy = snapshot.busy || snapshot.waiting > 0;
        match handle.send(Input::Cancel { by: caller.sender.clone(), only }).await {
            Ok(_) | Err(SendError::Closed | SendError::Refused(Refusal::Closing)) => Ok(was_busy),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers what the agent asks. The first answer wins; a later one finds no question.
    pub async fn answer(
        &self,
        caller: &Caller,
        handle: &SessionHandle,
        ask: AskId,
        answer: PermissionAnswer,
    ) -> Result<InputReceipt, ServiceError> {
        let act = match &answer {
            PermissionAnswer::AllowOnce
            | PermissionAnswer::AllowAlways
            | PermissionAnswer::AllowExactly
            | PermissionAnswer::Reply(_)
            | PermissionAnswer::Choose(_) => Act::Allow,
            PermissionAnswer::DenyOnce
            | PermissionAnswer::DenyBecause(_)
            | PermissionAnswer::DenyAlways
            | PermissionAnswer::DenyExactly
            | PermissionAnswer::Withdraw
            | PermissionAnswer::CancelTurn => Act::Deny,
        };
        self.check(caller, act, Some(handle.id()))?;
        Ok(handle.send_durably(Input::Answer { by: caller.sender.clone(), ask, answer }).await?)
    }

    /// Changes a setting, the approval among them.
    pub async fn change(
        &self,
        caller: &Caller,
        id: &SessionId,
        setting: &Arc<str>,
        value: &Arc<str>,
        prepare: impl Fn(&SessionHandle),
    ) -> Result<(SessionHandle, InputReceipt), ServiceError> {
        // Which has another name besides.
        let is_approval = *full_id(Arc::clone(setting)) == *APPROVAL;
        let act = if is_approval { Act::SetApproval } else { Act::ChangeSetting };
        let by = &caller.sender;
        let change = || Input::Change { by: by.clone(), id: Arc::clone(setting), value: Arc::clone(value) };
        self.deliver(caller, (act, id), change, prepare).await
    }

    pub async fn rename(&self, caller: &Caller, id: &SessionId, title: &str) -> Result<(), ServiceError> {
        self.check(caller, Act::Rename, Some(id))?;
        Ok(self.registry.rename(caller.sender.clone(), &caller.principal, id, title).await?)
    }

    /// Lets a session work in another folder, named from its own.
    pub async fn move_to(
        &self,
        caller: &Caller,
        id: &SessionId,
        path: &Path,
    ) -> Result<(SessionHandle, InputReceipt, PathBuf), ServiceError> {
        let handle = self.open_for(caller, Act::Move, id).await?;
        let (rules, session, path) = (Arc::clone(&self.rules), handle.clone(), path.to_owned());
        let who = caller.clone();
        let cwd = blocking(move || rules.move_target(&who, &session, &path)).await??;
        let accepted = self.moved(caller, &handle, cwd.clone()).await?;
        Ok((handle, accepted, cwd))
    }

    pub(crate) async fn moved(
        &self,
        caller: &Caller,
        handle: &SessionHandle,
        cwd: PathBuf,
    ) -> Result<InputReceipt, ServiceError> {
        Ok(handle.send_durably(Input::Move { by: caller.sender.clone(), cwd }).await?)
    }

    /// Takes a session out of memory. Returns whether it was there.
    pub async fn close(&self, caller: &Caller, id: &SessionId) -> Result<bool, ServiceError> {
        self.check(caller, Act::Close, Some(id))?;
        let by = Some(caller.sender.clone());
        Ok(self.registry.close_by(&caller.principal, id, by, None).await?)
    }

    /// The same for a client that calls it a cancel, and says why.
    pub async fn stop(
        &self,
        caller: &Caller,
        id: &SessionId,
        reason: Option<&str>,
    ) -> Result<bool, ServiceError> {
        self.check(caller, Act::Close, Some(id))?;
        let by = Some(caller.sender.clone());
        let reason = reason.map(|reason| reason.chars().take(REASON_CHARS_MAX).collect::<String>().into());
        Ok(self.registry.close_by(&caller.principal, id, by, reason).await?)
    }

    /// Deletes a session for good, and its token with it. Returns whether it existed. It runs to its end
    /// even if the caller hangs up: half a deletion would be worse than a whole one.
    pub async fn delete(&self, caller: &Caller, id: &SessionId) -> Result<bool, ServiceError> {
        self.check(caller, Act::Delete, Some(id))?;
        let (registry, owner, id) = (Arc::clone(&self.registry), caller.principal.clone(), id.clone());
        let deleted = self.registry.tracker().spawn(async move { registry.delete(&owner, &id).await });
        Ok(deleted.await.map_err(|_| ServiceError::Internal)??)
    }

    /// Hands an input to its session and waits until it is in the log. A session that left memory in this very
    /// moment, or that another process took over while it was idle, is opened again: nothing of the input was seen by
    /// anybody. `prepare` is called with the session that gets it.
    async fn deliver(
        &self,
        caller: &Caller,
        (act, id): (Act, &SessionId),
        input: impl Fn() -> Input,
        prepare: impl Fn(&SessionHandle),
    ) -> Result<(SessionHandle, InputReceipt), ServiceError> {
        let mut handle = self.open_for(caller, act, id).await?;
        prepare(&handle);
        let mut sent = handle.send_durably(input()).await;
        if matches!(sent, Err(SendError::Closed | SendError::Refused(Refusal::Closing))) {
            handle = self.open_for(caller, act, id).await?;
            prepare(&handle);
            sent = handle.send_durably(input()).await;
        }
        Ok((handle, sent?))
    }

    async fn check_still_open(&self, caller: &Caller, handle: &SessionHandle) -> Result<(), ServiceError> {
        if caller.principal == engine::Principal::local() {
            return Ok(());
        }
        let (rules, caller, handle) = (Arc::clone(&self.rules), caller.clone(), handle.clone());
        blocking(move || rules.check_still_open(&caller, &handle)).await?
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServiceError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ServiceError::Internal)
}
