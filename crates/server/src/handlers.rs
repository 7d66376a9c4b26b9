//! Calls of the JSON-RPC dialects, carried out by the service, and their outcomes given to the writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, Act, AskId, Body, Content, Event, Input, InputReceipt, ListQuery, MODE, MakeId, Opaque,
    OpenError, PermissionAnswer, Refusal, SendError, Sender, Seq, SessionHandle, SessionId, Stop, StoreError,
    Timestamp, TurnId, full_name,
};
use metrics::shortened;
use service::{
    Caller, LIST_MAX, NewSessionOptions, OTTER, Service, ServiceError, ServiceRules, UpdateNumbers,
};
use wire::session_export_writer::WHOLE_BYTES_MAX;
use wire::{
    ClientRequest, Cursor, Dialect, RequestError, RequestOutcome, RpcId, SessionView, SettingReply, TurnText,
    UpdateStart, WorkspaceParams,
};

use crate::bernstein_ask_deadline;
use crate::host_calls::Editor;
use crate::pending_replies::PendingReplies;
use crate::writer::{AttachAnswer, AttachFrom, WriterCommand};
use crate::writer_command_sender::CommandSender;

/// A prompt's request id is stored in the log.
const REQUEST_ID_BYTES_MAX: usize = 256;
/// A page of sessions for dialects whose documents know no further pages, where nobody chose how long it is.
const LIST_WITHOUT_CURSORS_MAX: usize = 1000;

#[derive(Clone)]
pub(crate) struct Handlers {
    pub(crate) editor: Arc<Editor>,
    pub(crate) service: Service,
    pub(crate) caller: Caller,
    pub(crate) pending_replies: Arc<PendingReplies>,
    pub(crate) commands: CommandSender,
}

/// The result of a handler: an outcome for the writer, or nothing because a command carries it.
pub(crate) type HandlerResult = Result<Option<RequestOutcome>, RequestError>;

impl Handlers {
    /// Whether the call may take long, so that others must not wait for it.
    pub(crate) fn is_slow(&self, call: &ClientRequest) -> bool {
        match call {
            // Quick, unless the session must be loaded into memory first.
            ClientRequest::Prompt { id, .. }
            | ClientRequest::Message { id, .. }
            | ClientRequest::Change { id, .. } => !self.is_live(id),
            ClientRequest::Answer { id, .. }
            | ClientRequest::Sandbox { id, .. }
            | ClientRequest::Bridge { id } => {
                let meant = id.clone().or_else(|| self.pending_replies.only_session());
                meant.is_some_and(|id| !self.is_live(&id))
            }
            ClientRequest::Cancel { .. }
            | ClientRequest::CancelRequest { .. }
            | ClientRequest::Initialize(_)
            | ClientRequest::Logout
            | ClientRequest::Ignore => false,
            // An external agent may open a browser for it.
            ClientRequest::Authenticate { .. }
            | ClientRequest::Extension { .. }
            | ClientRequest::New(_)
            | ClientRequest::Task { .. }
            | ClientRequest::Stop { .. }
            | ClientRequest::Replay { .. }
            | ClientRequest::Load { .. }
            | ClientRequest::Resume { .. }
            | ClientRequest::Fork { .. }
            | ClientRequest::List { .. }
            | ClientRequest::Close { .. }
            | ClientRequest::Delete { .. }
            | ClientRequest::ListAll
            | ClientRequest::Get { .. }
            | ClientRequest::Export { .. }
            | ClientRequest::Import { .. }
            | ClientRequest::Remove { .. }
            | ClientRequest::Tools { .. }
            | ClientRequest::Servers { .. }
            | ClientRequest::AddServer { .. }
            | ClientRequest::RemoveServer { .. }
            | ClientRequest::Move { .. } => true,
        }
    }

    fn is_live(&self, id: &SessionId) -> bool {
        self.service.registry().live(&self.caller.principal, id).is_some()
    }

    pub(crate) async fn handle(&self, id: &RpcId, call: ClientRequest) -> HandlerResult {
        match call {
            ClientRequest::Initialize(hello) => {
                let greeting = self.service.registry().backend().greeting().await;
                Ok(Some(RequestOutcome::Initialized { greeting, version: hello.version }))
            }
            ClientRequest::Authenticate { method } => self.authenticate(&method).await,
            ClientRequest::Logout => Ok(Some(RequestOutcome::Done)),
            ClientRequest::New(place) => self.create(id, place).await,
            ClientRequest::Load { id: session, workspace } => self.load(id, &session, workspace).await,
            ClientRequest::Resume { id: session, workspace, cursor } => {
                self.resume(id, &session, workspace, cursor).await
            }
            ClientRequest::Fork { id: session, workspace } => self.fork(id, &session, workspace).await,
            ClientRequest::List { cwd, cursor } => self.list(cwd, cursor).await,
            ClientRequest::Close { id: session } => self.close(id, &session).await,
            ClientRequest::Delete { id: session } => self.delete(id, &session, RequestOutcome::Done).await,
            ClientRequest::Prompt { id: session, content } => {
                // The log has the request id that the end of the turn answers.
                self.prompt(id, &session, content, true).await?;
                Ok(None)
            }
            ClientRequest::Message { id: session, content } => self.message(id, &session, content).await,
            ClientRequest::Replay { id: session, since } => self.replay(id, &session, since).await,
            ClientRequest::Task { cwd, role, approval, content } => {
                self.task(id, cwd, role, approval, content).await
            }
            ClientRequest::Stop { id: session, reason } => self.stop(id, &session, reason).await,
            ClientRequest::Answer { id: session, ask, answer } => {
                self.decide(id, &self.named_or_only(session)?, ask, answer).await
            }
            ClientRequest::Sandbox { id: session, wanted } => {
                if let Some(session) = session {
                    self.session(&session).await?;
                }
                Ok(Some(RequestOutcome::Sandbox { wanted }))
            }
            ClientRequest::Bridge { id: session } => self.bridge_status(session).await,
            ClientRequest::Cancel { id: session } => self.cancel(&session).await,
            ClientRequest::CancelRequest { request } => self.cancel_request(&request).await,
            ClientRequest::Change { id: session, setting, value, answer } => {
                self.change(id, &session, (setting, value, answer)).await
            }
            ClientRequest::ListAll => self.list_all().await,
            ClientRequest::Get { id: session, range } => {
                let part = self.service.part(&self.caller, &session, range).await;
                let (session, events) = part.map_err(fault)?;
                Ok(Some(RequestOutcome::SessionEvents { session, events }))
            }
            ClientRequest::Export { id: session, range } => {
                let part = self.service.part(&self.caller, &session, range).await;
                let (session, events) = part.map_err(fault)?;
                let at = self.service.registry().clock().now();
                Ok(Some(RequestOutcome::Exported { session, events, at }))
            }
            ClientRequest::Import { events } => self.import(events).await,
            ClientRequest::Remove { id: session } => self.remove(id, &session).await,
            ClientRequest::Tools { id: session } => self.list_tools(session).await,
            ClientRequest::Servers { id: session } => self.list_servers(session).await,
            ClientRequest::AddServer { id: session, server } => self.add_server(session, server).await,
            ClientRequest::RemoveServer { id: session, name } => self.remove_server(session, name).await,
            ClientRequest::Move { id: session, path } => self.relocate(id, &session, &path).await,
            ClientRequest::Extension { id, method, params, notice } => {
                self.extend(id, method, params, notice).await
            }
            ClientRequest::Ignore => Ok(None),
        }
    }

    async fn list_all(&self) -> HandlerResult {
        let query = ListQuery::all(self.caller.principal.clone());
        let listed = self.service.list(&self.caller, query, self.folder_prefix()).await;
        Ok(Some(RequestOutcome::ListedAll(listed.map_err(fault)?)))
    }

    async fn change(
        &self,
        id: &RpcId,
        session: &SessionId,
        (setting, value, answer): (Arc<str>, Arc<str>, SettingReply),
    ) -> HandlerResult {
        if *setting == *MODE {
            tracing::debug!(session_id = %session, mode_id = shortened(&value), "a mode is chosen");
        }
        self.must_be_open(session)?;
        let changed = self.service.change(&self.caller, session, &setting, &value, self.offers());
        let (handle, accepted) = changed.await.map_err(about(session))?;
        self.changed(id, handle, accepted.seq, (setting, value, answer)).await
    }

    /// How a session is bridged; without one, the only one that the client has open, or all that it has open together.
    async fn bridge_status(&self, session: Option<SessionId>) -> HandlerResult {
        let bridges = &self.rules().bridges;
        let status = match session.or_else(|| self.pending_replies.only_session()) {
            Some(session) => {
                self.session(&session).await?;
                bridges.status(&session)
            }
            None => bridges.status_of_all(&self.pending_replies.open_sessions()),
        };
        Ok(Some(RequestOutcome::Bridge(status)))
    }

    /// Passes an extension method to the agent, which alone may understand it.
    async fn extend(
        &self,
        id: Option<SessionId>,
        method: Arc<str>,
        params: Opaque,
        notice: bool,
    ) -> HandlerResult {
        self.service.check(&self.caller, Act::Extension, id.as_ref()).map_err(fault)?;
        let way = match id {
            Some(id) => self.session(&id).await.ok().and_then(|handle| handle.extensions().cloned()),
            None => self.service.registry().backend().extensions(),
        };
        match way {
            Some(way) if notice => {
                way.notify(method, params);
                Ok(None)
            }
            None if notice => Ok(None),
            Some(way) => {
                let answer = self.service.registry().answer_without_secrets(way.call(method, params).await);
                Ok(Some(RequestOutcome::ExtensionAnswer(answer.map_err(RequestError::Foreign)?)))
            }
            None => Err(RequestError::UnknownMethod(method.to_string())),
        }
    }

    async fn authenticate(&self, method: &str) -> HandlerResult {
        if self.service.registry().backend().greeting().await.foreign.is_none() {
            return authenticate(method);
        }
        let refused = |error| RequestError::Foreign(self.service.registry().error_without_secrets(error));
        self.service.registry().backend().authenticate(method).await.map_err(refused)?;
        Ok(Some(RequestOutcome::Done))
    }

    async fn create(&self, id: &RpcId, place: WorkspaceParams) -> HandlerResult {
        let created = self.service.create(&self.caller, self.new_session(place)).await;
        self.begin(id, created.map_err(fault)?, Seq::START).await
    }

    async fn load(&self, id: &RpcId, session: &SessionId, place: Option<WorkspaceParams>) -> HandlerResult {
        let handle = self.open(session, place).await?;
        let rules = self.project_rules(&handle);
        let answer = AttachAnswer::AfterReplay { id: id.clone(), rules, outcome: None };
        let from = handle.snapshot().replay_from;
        let counted = self.counted(&handle, from).await?;
        self.attach(handle, AttachFrom::After(from), counted, answer).await
    }

    async fn replay(&self, id: &RpcId, session: &SessionId, since: u64) -> HandlerResult {
        let handle = self.open(session, None).await?;
        let (numbers, kept) = (&self.rules().numbers, self.rules().history_max);
        let found = numbers.find(&handle, OTTER, since, kept).await.map_err(unreadable)?;
        // How much is replayed, and up to where, is known when it was replayed.
        let outcome = RequestOutcome::Replayed {
            id: session.clone(),
            replayed: 0,
            last: found.since.max(found.from.updates),
            truncated: found.truncated,
        };
        let answer = AttachAnswer::AfterReplay { id: id.clone(), rules: Vec::new(), outcome: Some(outcome) };
        let start = UpdateNumbers::start(&handle, found.from, found.since).await.map_err(unreadable)?;
        self.attach(handle, AttachFrom::After(found.from.seq), start, answer).await
    }

    /// What the client's dialect has counted up to a position, if it counts.
    async fn counted(&self, handle: &SessionHandle, seq: Seq) -> Result<UpdateStart, RequestError> {
        if !self.pending_replies.client().dialect.is_numbered() {
            return Ok(UpdateStart::default());
        }
        let counted = self.rules().numbers.at(handle, OTTER, seq).await.map_err(unreadable)?;
        UpdateNumbers::start(handle, counted, 0).await.map_err(unreadable)
    }

    async fn task(
        &self,
        id: &RpcId,
        cwd: Option<PathBuf>,
        role: String,
        approval: Arc<str>,
        content: Vec<Content>,
    ) -> HandlerResult {
        // A relative folder is relative to the server's own.
        let cwd = cwd.map(|cwd| self.rules().home_dir.join(cwd));
        let new = NewSessionOptions { cwd, ..NewSessionOptions::default() };
        let (handle, hold) = self.service.create_held(&self.caller, new).await.map_err(fault)?;
        self.pending_replies.opened(handle.id());
        let patience = bernstein_ask_deadline::expire_unanswered_asks(handle.clone());
        drop(self.service.registry().tracker().spawn(patience));
        let by = &self.caller.sender;
        let change = Input::Change { by: by.clone(), id: APPROVAL.into(), value: Arc::clone(&approval) };
        handle.send(change).await.map_err(|error| refused(handle.id(), error))?;
        let prompt = Input::Prompt { by: by.clone(), content };
        let accepted = handle.send_durably(prompt).await.map_err(|error| refused(handle.id(), error))?;
        drop(hold);
        self.count_at_its_end(id, &handle, accepted);
        let cwd = (*handle.snapshot().cwd).clone();
        let outcome = RequestOutcome::TaskStarted { id: handle.id().clone(), cwd, role, approval };
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        self.attach(handle, AttachFrom::After(Seq::START), UpdateStart::default(), answer).await
    }

    /// The prompt is answered at once. Its outcome is counted at the turn's end, as in the dialects that answer then.
    fn count_at_its_end(&self, id: &RpcId, handle: &SessionHandle, accepted: InputReceipt) {
        let (Some(deferred), Some(turn)) = (self.pending_replies.deferred(id), accepted.turn) else { return };
        let handle = handle.clone();
        drop(self.service.registry().tracker().spawn(async move {
            // If the session is gone, its end is not known.
            let stop = how_it_ended(&handle, turn).await.unwrap_or(Stop::Interrupted);
            deferred.ended(stop);
        }));
    }

    async fn stop(&self, id: &RpcId, session: &SessionId, reason: Option<String>) -> HandlerResult {
        let was_there = self.service.stop(&self.caller, session, reason.as_deref()).await.map_err(fault)?;
        self.pending_replies.closed(session);
        if !was_there {
            return Err(RequestError::NoSuchSession { id: session.to_string() });
        }
        let outcome = RequestOutcome::Stopped { id: session.clone(), reason };
        self.write(WriterCommand::Finish { session: session.clone(), id: id.clone(), outcome }).await
    }

    async fn decide(
        &self,
        id: &RpcId,
        session: &SessionId,
        ask: AskId,
        answer: PermissionAnswer,
    ) -> HandlerResult {
        let (seq, outcome) = self.settle(session, ask, answer).await?;
        let Some(seq) = seq else { return Ok(Some(outcome)) };
        self.write(WriterCommand::AnswerAfter { session: session.clone(), seq, id: id.clone(), outcome })
            .await
    }

    /// The same for a client that sent it as a notification, and gets no reply.
    pub(crate) async fn decide_quietly(
        &self,
        session: Option<SessionId>,
        ask: AskId,
        answer: PermissionAnswer,
    ) -> HandlerResult {
        self.settle(&self.named_or_only(session)?, ask, answer).await?;
        Ok(None)
    }

    /// Answers an ask; gives the position of the answer in the log, if the ask was open.
    async fn settle(
        &self,
        session: &SessionId,
        ask: AskId,
        answer: PermissionAnswer,
    ) -> Result<(Option<Seq>, RequestOutcome), RequestError> {
        let handle = self.session(session).await?;
        let allowed = matches!(
            answer,
            PermissionAnswer::AllowOnce
                | PermissionAnswer::AllowAlways
                | PermissionAnswer::AllowExactly
                | PermissionAnswer::Reply(_)
        );
        let outcome = |applied| RequestOutcome::Answered { id: session.clone(), ask, applied, allowed };
        // Before it is written: the client that answers gets no update that the ask is settled.
        self.pending_replies.answers(session, ask);
        match self.service.answer(&self.caller, &handle, ask, answer).await {
            Ok(accepted) => Ok((Some(accepted.seq), outcome(true))),
            Err(error) => {
                self.pending_replies.was_answering(session, ask);
                match error {
                    ServiceError::Send(SendError::Refused(Refusal::UnknownAsk(_))) => {
                        Ok((None, outcome(false)))
                    }
                    error => Err(about(session)(error)),
                }
            }
        }
    }

    async fn resume(
        &self,
        id: &RpcId,
        session: &SessionId,
        place: WorkspaceParams,
        cursor: Option<String>,
    ) -> HandlerResult {
        let handle = self.open(session, Some(place)).await?;
        let head = handle.read(Seq::START).head();
        let from = match cursor {
            None => AttachFrom::Now(head),
            Some(text) => {
                let served = Cursor::parse(&text).filter(|cursor| !cursor.is_beyond(head));
                let served = served.map(|cursor| cursor.not_before(handle.snapshot().replay_from));
                AttachFrom::Missed(served.ok_or_else(|| {
                    RequestError::InvalidParams(format!(
                        "unknown cursor {text:?}; use session/load for the whole history"
                    ))
                })?)
            }
        };
        let outcome = RequestOutcome::Opened(SessionView::of(&handle, self.project_rules(&handle)));
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        self.attach(handle, from, UpdateStart::default(), answer).await
    }

    async fn fork(&self, id: &RpcId, source: &SessionId, place: WorkspaceParams) -> HandlerResult {
        let forked = self.service.fork(&self.caller, source, self.new_session(place)).await;
        let handle = forked.map_err(fault)?;
        let head = handle.read(Seq::START).head();
        self.begin(id, handle, head).await
    }

    /// Replies with a new session's id, then streams its updates.
    async fn begin(&self, id: &RpcId, handle: SessionHandle, after: Seq) -> HandlerResult {
        let outcome = RequestOutcome::Created(SessionView::of(&handle, self.project_rules(&handle)));
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        let counted = self.counted(&handle, after).await?;
        self.attach(handle, AttachFrom::After(after), counted, answer).await
    }

    /// The session counts as open only when the writer has the command: a prompt that follows finds it attached.
    async fn attach(
        &self,
        handle: SessionHandle,
        from: AttachFrom,
        counted: UpdateStart,
        answer: AttachAnswer,
    ) -> HandlerResult {
        let session = handle.id().clone();
        self.editor.offer(&handle, false);
        let queued = self.write(WriterCommand::Attach { handle, from, counted, answer }).await;
        self.pending_replies.opened(&session);
        queued
    }

    async fn list(&self, cwd: Option<PathBuf>, cursor: Option<String>) -> HandlerResult {
        let before = cursor.as_deref().map(parse_cursor).transpose()?;
        let list_max = self.rules().list_max;
        let page = match (list_max, self.pending_replies.client().dialect) {
            (0, _) => usize::MAX - 1,
            (LIST_MAX, Dialect::Ferret | Dialect::Otter) => LIST_WITHOUT_CURSORS_MAX,
            (chosen, _) => chosen,
        };
        let query = ListQuery { owner: self.caller.principal.clone(), cwd, before, limit: page + 1 };
        let listed = self.service.list(&self.caller, query, self.folder_prefix()).await;
        let mut sessions = listed.map_err(fault)?;
        let more = sessions.len() > page;
        sessions.truncate(page);
        let last = sessions.last().filter(|_| more);
        let next = last.map(|last| format!("{}.{}", last.row.updated_at.0, last.row.id));
        Ok(Some(RequestOutcome::Listed { sessions, next }))
    }

    async fn close(&self, id: &RpcId, session: &SessionId) -> HandlerResult {
        self.service.close(&self.caller, session).await.map_err(fault)?;
        self.pending_replies.closed(session);
        self.write(WriterCommand::Finish {
            session: session.clone(),
            id: id.clone(),
            outcome: RequestOutcome::Done,
        })
        .await
    }

    async fn remove(&self, id: &RpcId, session: &SessionId) -> HandlerResult {
        let existed = self.service.row(&self.caller, session).await.is_ok();
        self.delete(id, session, RequestOutcome::Removed(existed)).await
    }

    async fn delete(&self, id: &RpcId, session: &SessionId, outcome: RequestOutcome) -> HandlerResult {
        self.service.delete(&self.caller, session).await.map_err(fault)?;
        self.pending_replies.closed(session);
        self.write(WriterCommand::Finish { session: session.clone(), id: id.clone(), outcome }).await
    }

    async fn prompt(
        &self,
        id: &RpcId,
        session: &SessionId,
        content: Vec<Content>,
        answered_at_its_end: bool,
    ) -> Result<(SessionHandle, TurnId, Seq), RequestError> {
        if id.as_json().len() > REQUEST_ID_BYTES_MAX {
            return Err(RequestError::InvalidRequest(format!(
                "the id is longer than {REQUEST_ID_BYTES_MAX} bytes"
            )));
        }
        let request = answered_at_its_end.then(|| id.as_json().into());
        let by = Sender { request, ..self.caller.sender.clone() };
        self.must_be_open(session)?;
        let sent = self.service.prompt(&self.caller, session, &by, content, self.offers()).await;
        let (handle, accepted, turn) = sent.map_err(about(session))?;
        self.pending_replies.add_prompt(id.clone(), handle.clone(), turn);
        Ok((handle, turn, accepted.seq))
    }

    /// Offers the editor's files and terminals to a session that gets a prompt or a setting.
    fn offers(&self) -> impl Fn(&SessionHandle) {
        |handle| self.editor.offer(handle, true)
    }

    /// The turn's text is read back from the log by a reader of its own, so the reply holds exactly
    /// what was streamed and blocks nothing.
    async fn message(&self, id: &RpcId, session: &SessionId, content: Vec<Content>) -> HandlerResult {
        let (handle, turn, seq) = self.prompt(id, session, content, false).await?;
        let (this, id) = (self.clone(), id.clone());
        drop(self.service.registry().tracker().spawn(async move {
            let outcome = said(&handle, turn, seq).await;
            this.pending_replies.prompt_answered(&id);
            let command = match outcome {
                Ok((seq, outcome)) => {
                    WriterCommand::AnswerAfter { session: handle.id().clone(), seq, id, outcome }
                }
                Err(fault) => WriterCommand::Answer { id, outcome: Err(fault) },
            };
            this.commands.send(command).await;
        }));
        Ok(None)
    }

    async fn cancel(&self, session: &SessionId) -> HandlerResult {
        self.must_be_open(session)?;
        let was_busy = self.service.cancel(&self.caller, session, None).await.map_err(about(session))?;
        Ok(Some(RequestOutcome::Cancelled { id: session.clone(), was_busy }))
    }

    /// Only prompts can be cancelled. Most other requests are answered at once; an agent that got an extension
    /// request goes on with it.
    async fn cancel_request(&self, request: &RpcId) -> HandlerResult {
        if let Some((handle, turn)) = self.pending_replies.prompt(request) {
            let cancelled = self.service.cancel(&self.caller, handle.id(), Some(turn)).await;
            cancelled.map_err(about(handle.id()))?;
        }
        Ok(None)
    }

    async fn changed(
        &self,
        id: &RpcId,
        handle: SessionHandle,
        seq: Seq,
        (setting, sent, answer): (Arc<str>, Arc<str>, SettingReply),
    ) -> HandlerResult {
        let session = handle.id().clone();
        let outcome = match answer {
            SettingReply::Nothing => RequestOutcome::Done,
            SettingReply::Value | SettingReply::Word => {
                let value: Arc<str> = handle.snapshot().settings.get(&setting).into();
                let is_its_name =
                    answer == SettingReply::Word && full_name(&setting, Arc::clone(&sent)) == value;
                RequestOutcome::SettingValue {
                    id: session.clone(),
                    setting,
                    value: if is_its_name { sent } else { value },
                }
            }
            SettingReply::AllSettings => RequestOutcome::Settings(SessionView::of(&handle, Vec::new())),
        };
        self.write(WriterCommand::AnswerAfter { session, seq, id: id.clone(), outcome }).await
    }

    async fn import(&self, events: Vec<Event>) -> HandlerResult {
        let handle = self.service.import(&self.caller, events).await.map_err(fault)?;
        Ok(Some(RequestOutcome::Imported { id: handle.id().clone() }))
    }

    async fn relocate(&self, id: &RpcId, session: &SessionId, path: &Path) -> HandlerResult {
        let moved = self.service.move_to(&self.caller, session, path).await;
        let (_, accepted, cwd) = moved.map_err(about(session))?;
        let outcome = RequestOutcome::Moved { id: session.clone(), cwd };
        let (session, seq, id) = (session.clone(), accepted.seq, id.clone());
        self.write(WriterCommand::AnswerAfter { session, seq, id, outcome }).await
    }

    /// A session that this client has open, loaded into memory again if it left.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<SessionHandle, RequestError> {
        self.must_be_open(id)?;
        // A Bernstein client cannot open a session again: for it, a session that has left memory is gone.
        if self.pending_replies.client().dialect == Dialect::Bernstein {
            let live = self.service.live(&self.caller, Act::Open, id).await.map_err(fault)?;
            return live.ok_or_else(|| RequestError::NoSuchSession { id: id.to_string() });
        }
        self.service.open(&self.caller, id).await.map_err(fault)
    }

    /// A client may only name sessions that it has opened on this connection.
    fn must_be_open(&self, id: &SessionId) -> Result<(), RequestError> {
        if self.pending_replies.has_open(id) {
            Ok(())
        } else {
            Err(RequestError::NotOpen { id: id.to_string() })
        }
    }

    async fn open(
        &self,
        id: &SessionId,
        place: Option<WorkspaceParams>,
    ) -> Result<SessionHandle, RequestError> {
        self.service.load(&self.caller, id, place).await.map_err(about(id))
    }

    fn new_session(&self, place: WorkspaceParams) -> NewSessionOptions {
        let WorkspaceParams { cwd, roots, servers } = place;
        NewSessionOptions { cwd, roots, servers, make_id: Some(self.make_id()) }
    }

    /// Makes the ids of this client's new sessions.
    fn make_id(&self) -> MakeId {
        self.pending_replies.client().dialect.make_id()
    }

    /// The prefix of the ids of sessions in another program's folders that this client lists.
    fn folder_prefix(&self) -> Option<&'static str> {
        self.pending_replies.client().dialect.id_prefix()
    }

    fn rules(&self) -> &ServiceRules {
        self.service.rules()
    }

    fn project_rules(&self, handle: &SessionHandle) -> Vec<String> {
        self.service.registry().project_rules(&handle.snapshot().cwd)
    }

    async fn write(&self, command: WriterCommand) -> HandlerResult {
        self.commands.send(command).await;
        Ok(None)
    }
}

async fn how_it_ended(handle: &SessionHandle, turn: TurnId) -> Option<Stop> {
    let mut reader = handle.read(Seq::START);
    while let Some(events) = reader.next().await.ok()? {
        for event in events.iter().filter(|event| event.turn == Some(turn)) {
            if let Body::TurnEnded { stop, .. } = &event.body {
                return Some(*stop);
            }
        }
    }
    None
}

/// Reads a turn to its end: the position of the end, and the turn's text.
async fn said(
    handle: &SessionHandle,
    turn: TurnId,
    from: Seq,
) -> Result<(Seq, RequestOutcome), RequestError> {
    let mut reader = handle.read(from);
    let mut said = TurnText::default();
    while let Some(events) = reader.next().await.map_err(|error| RequestError::Internal(error.to_string()))? {
        for event in events.iter().filter(|event| event.turn == Some(turn)) {
            // The reply is one frame: text that does not fit into it is in the log.
            said.observe(event, WHOLE_BYTES_MAX);
            if let Body::TurnEnded { stop, error } = &event.body {
                let (stop, error) = (*stop, error.clone());
                return Ok((
                    event.seq,
                    RequestOutcome::MessageAnswer { id: handle.id().clone(), stop, error, said },
                ));
            }
        }
    }
    Err(RequestError::Internal("the session was closed before the turn ended".into()))
}

fn refused(session: &SessionId, error: SendError) -> RequestError {
    match error {
        SendError::Closed => RequestError::NoSuchSession { id: session.to_string() },
        SendError::Refused(
            refusal
            @ (Refusal::UnknownSetting(..) | Refusal::UnknownChoice { .. } | Refusal::TooLoose { .. }),
        ) => RequestError::UnknownChoice(refusal.to_string()),
        SendError::Refused(refusal) => RequestError::InvalidRequest(refusal.to_string()),
    }
}

fn unreadable(error: StoreError) -> RequestError {
    RequestError::Internal(error.to_string())
}

fn authenticate(method: &str) -> HandlerResult {
    if method == wire::acp::AUTH_METHOD {
        return Ok(Some(RequestOutcome::Done));
    }
    Err(RequestError::InvalidParams(format!(
        "unknown authentication method {method:?}; use {:?}",
        wire::acp::AUTH_METHOD
    )))
}

fn parse_cursor(text: &str) -> Result<(Timestamp, SessionId), RequestError> {
    let parse = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), SessionId::parse(id).ok()?))
    };
    parse().ok_or_else(|| {
        RequestError::InvalidParams("invalid cursor: use one that session/list returned".into())
    })
}

/// A service error, for clients of the JSON-RPC dialects.
pub(crate) fn fault(error: ServiceError) -> RequestError {
    match error {
        ServiceError::Forbidden(why) => RequestError::InvalidRequest(why.to_string()),
        ServiceError::FolderNotOpen(cwd) => RequestError::InvalidParams(format!(
            "{} or another folder of the session is not among the folders that this server allows; its owner can add it with --allow-dir",
            cwd.display()
        )),
        ServiceError::CwdNotAFolder(_) => RequestError::InvalidParams(format!("cwd {error}")),
        ServiceError::NotAFolder(_) | ServiceError::OutsideSession(_) => {
            RequestError::InvalidParams(error.to_string())
        }
        ServiceError::RootNotAllowed(_) => RequestError::InvalidParams(format!("{error} (--allow-dir)")),
        ServiceError::ParentInPath => RequestError::InvalidRequest(error.to_string()),
        ServiceError::Open(error) => unopened(error),
        ServiceError::Send(SendError::Refused(refusal)) => RequestError::InvalidRequest(refusal.to_string()),
        ServiceError::TooLong(id) => RequestError::InvalidRequest(too_long(&id)),
        ServiceError::ToolServer(why) => RequestError::InvalidParams(why),
        ServiceError::Store(_)
        | ServiceError::Send(SendError::Closed)
        | ServiceError::NoToolServers
        | ServiceError::Internal => RequestError::Internal(error.to_string()),
    }
}

/// The same for a command to one session.
fn about(session: &SessionId) -> impl Fn(ServiceError) -> RequestError {
    move |error| match error {
        ServiceError::Send(error) => refused(session, error),
        error => fault(error),
    }
}

fn unopened(error: OpenError) -> RequestError {
    match error {
        OpenError::NotFound(id) => RequestError::NoSuchSession { id: id.to_string() },
        OpenError::Store(StoreError::BusyElsewhere) => RequestError::InvalidRequest(
            "the session is running a turn in another ropewalk process; wait for it or cancel it there"
                .into(),
        ),
        OpenError::Agent(error) => RequestError::Foreign(error),
        OpenError::Stopping | OpenError::LimitReached(_) | OpenError::Store(_) => {
            RequestError::Internal(error.to_string())
        }
    }
}

/// The message for a session that does not fit into one reply.
fn too_long(id: &SessionId) -> String {
    format!(
        "the session is too long for one response ({} MiB); read it in parts: send `limit` (a number of \
         events), then the reply's `next` as `after`, until there is no `next`; or run `ropewalk sessions \
         export {id}`",
        WHOLE_BYTES_MAX >> 20
    )
}
