//! Calls of the JSON-RPC dialects, carried out by the service, and their outcomes given to the writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, Accepted, Act, Answer, AskId, Body, Content, Event, Input, ListQuery, MODE, MakeId, Opaque,
    OpenError, Refusal, SendError, Sender, Seq, SessionHandle, SessionId, Stop, StoreError, Timestamp,
    TurnId, full_name,
};
use metrics::shortened;
use service::{Caller, LIST_MAX, NewSession, Numbers, OTTER, Rules, Service, ServiceError};
use wire::document::WHOLE_BYTES_MAX;
use wire::{
    Call, ChangeAnswer, Cursor, Dialect, Fault, Outcome, Place, RpcId, SessionView, TurnText, UpdateStart,
};

use crate::debts::Debts;
use crate::host::Editor;
use crate::outlet::Outlet;
use crate::patience;
use crate::writer::{AttachAnswer, Command, Start};

/// A prompt's id stands in the log.
const REQUEST_ID_BYTES_MAX: usize = 256;
/// A page of sessions for dialects whose documents know no further pages, where nobody chose how long it is.
const LIST_WITHOUT_CURSORS_MAX: usize = 1000;

#[derive(Clone)]
pub(crate) struct Handlers {
    pub(crate) editor: Arc<Editor>,
    pub(crate) service: Service,
    pub(crate) caller: Caller,
    pub(crate) debts: Arc<Debts>,
    pub(crate) commands: Outlet,
}

/// What a handler gives back: an answer for the writer, or nothing because a command carries it.
pub(crate) type Handled = Result<Option<Outcome>, Fault>;

impl Handlers {
    /// Whether the call may take long, so that others must not wait for it.
    pub(crate) fn is_slow(&self, call: &Call) -> bool {
        match call {
            // Quick, unless the session must be brought back to memory first.
            Call::Prompt { id, .. } | Call::Message { id, .. } | Call::Change { id, .. } => !self.is_live(id),
            Call::Answer { id, .. } | Call::Sandbox { id, .. } | Call::Bridge { id } => {
                let meant = id.clone().or_else(|| self.debts.only_session());
                meant.is_some_and(|id| !self.is_live(&id))
            }
            Call::Cancel { .. }
            | Call::CancelRequest { .. }
            | Call::Initialize(_)
            | Call::Logout
            | Call::Ignore => false,
            // An external agent may open a browser for it.
            Call::Authenticate { .. }
            | Call::Extension { .. }
            | Call::New(_)
            | Call::Task { .. }
            | Call::Stop { .. }
            | Call::Replay { .. }
            | Call::Load { .. }
            | Call::Resume { .. }
            | Call::Fork { .. }
            | Call::List { .. }
            | Call::Close { .. }
            | Call::Delete { .. }
            | Call::ListAll
            | Call::Get { .. }
            | Call::Export { .. }
            | Call::Import { .. }
            | Call::Remove { .. }
            | Call::Tools { .. }
            | Call::Servers { .. }
            | Call::AddServer { .. }
            | Call::RemoveServer { .. }
            | Call::Move { .. } => true,
        }
    }

    fn is_live(&self, id: &SessionId) -> bool {
        self.service.registry().live(&self.caller.principal, id).is_some()
    }

    pub(crate) async fn handle(&self, id: &RpcId, call: Call) -> Handled {
        match call {
            Call::Initialize(hello) => {
                let greeting = self.service.registry().backend().greeting().await;
                Ok(Some(Outcome::Initialized { greeting, version: hello.version }))
            }
            Call::Authenticate { method } => self.authenticate(&method).await,
            Call::Logout => Ok(Some(Outcome::Done)),
            Call::New(place) => self.create(id, place).await,
            Call::Load { id: session, place } => self.load(id, &session, place).await,
            Call::Resume { id: session, place, cursor } => self.resume(id, &session, place, cursor).await,
            Call::Fork { id: session, place } => self.fork(id, &session, place).await,
            Call::List { cwd, cursor } => self.list(cwd, cursor).await,
            Call::Close { id: session } => self.close(id, &session).await,
            Call::Delete { id: session } => self.delete(id, &session, Outcome::Done).await,
            Call::Prompt { id: session, content } => {
                // The log says whose request the end of the turn answers.
                self.prompt(id, &session, content, true).await?;
                Ok(None)
            }
            Call::Message { id: session, content } => self.message(id, &session, content).await,
            Call::Replay { id: session, since } => self.replay(id, &session, since).await,
            Call::Task { cwd, role, approval, content } => self.task(id, cwd, role, approval, content).await,
            Call::Stop { id: session, reason } => self.stop(id, &session, reason).await,
            Call::Answer { id: session, ask, answer } => {
                self.decide(id, &self.named_or_only(session)?, ask, answer).await
            }
            Call::Sandbox { id: session, wanted } => {
                if let Some(session) = session {
                    self.session(&session).await?;
                }
                Ok(Some(Outcome::Sandbox { wanted }))
            }
            Call::Bridge { id: session } => self.bridge_status(session).await,
            Call::Cancel { id: session } => self.cancel(&session).await,
            Call::CancelRequest { request } => self.cancel_request(&request).await,
            Call::Change { id: session, setting, value, answer } => {
                self.change(id, &session, (setting, value, answer)).await
            }
            Call::ListAll => {
                let query = ListQuery::all(self.caller.principal.clone());
                let listed = self.service.list(&self.caller, query, self.folder_prefix()).await;
                Ok(Some(Outcome::ListedAll(listed.map_err(fault)?)))
            }
            Call::Get { id: session, range } => {
                let part = self.service.part(&self.caller, &session, range).await;
                let (session, events) = part.map_err(fault)?;
                Ok(Some(Outcome::Got { session, events }))
            }
            Call::Export { id: session, range } => {
                let part = self.service.part(&self.caller, &session, range).await;
                let (session, events) = part.map_err(fault)?;
                let at = self.service.registry().clock().now();
                Ok(Some(Outcome::Exported { session, events, at }))
            }
            Call::Import { events } => self.import(events).await,
            Call::Remove { id: session } => self.remove(id, &session).await,
            Call::Tools { id: session } => self.list_tools(session).await,
            Call::Servers { id: session } => self.list_servers(session).await,
            Call::AddServer { id: session, server } => self.add_server(session, server).await,
            Call::RemoveServer { id: session, name } => self.remove_server(session, name).await,
            Call::Move { id: session, path } => self.relocate(id, &session, &path).await,
            Call::Extension { id, method, params, notice } => self.extend(id, method, params, notice).await,
            Call::Ignore => Ok(None),
        }
    }

    async fn change(
        &self,
        id: &RpcId,
        session: &SessionId,
        (setting, value, answer): (Arc<str>, Arc<str>, ChangeAnswer),
    ) -> Handled {
        if *setting == *MODE {
            tracing::debug!(session_id = %session, mode_id = shortened(&value), "a mode is chosen");
        }
        self.must_be_open(session)?;
        let changed = self.service.change(&self.caller, session, &setting, &value, self.offers());
        let (handle, accepted) = changed.await.map_err(about(session))?;
        self.changed(id, handle, accepted.seq, (setting, value, answer)).await
    }

    /// How a session is bridged; without one, the only one that the client has open, or all that it has open together.
    async fn bridge_status(&self, session: Option<SessionId>) -> Handled {
        let bridges = &self.rules().bridges;
        let status = match session.or_else(|| self.debts.only_session()) {
            Some(session) => {
                self.session(&session).await?;
                bridges.status(&session)
            }
            None => bridges.status_of_all(&self.debts.open_sessions()),
        };
        Ok(Some(Outcome::Bridge(status)))
    }

    /// Gives the agent what only it may understand.
    async fn extend(&self, id: Option<SessionId>, method: Arc<str>, params: Opaque, notice: bool) -> Handled {
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
                Ok(Some(Outcome::Extended(answer.map_err(Fault::Foreign)?)))
            }
            None => Err(Fault::UnknownMethod(method.to_string())),
        }
    }

    async fn authenticate(&self, method: &str) -> Handled {
        if self.service.registry().backend().greeting().await.foreign.is_none() {
            return authenticate(method);
        }
        let refused = |error| Fault::Foreign(self.service.registry().error_without_secrets(error));
        self.service.registry().backend().authenticate(method).await.map_err(refused)?;
        Ok(Some(Outcome::Done))
    }

    async fn create(&self, id: &RpcId, place: Place) -> Handled {
        let created = self.service.create(&self.caller, self.new_session(place)).await;
        self.begin(id, created.map_err(fault)?, Seq::START).await
    }

    async fn load(&self, id: &RpcId, session: &SessionId, place: Option<Place>) -> Handled {
        let handle = self.open(session, place).await?;
        let rules = self.project_rules(&handle);
        let answer = AttachAnswer::AfterReplay { id: id.clone(), rules, outcome: None };
        let from = handle.snapshot().replay_from;
        let counted = self.counted(&handle, from).await?;
        self.attach(handle, Start::After(from), counted, answer).await
    }

    async fn replay(&self, id: &RpcId, session: &SessionId, since: u64) -> Handled {
        let handle = self.open(session, None).await?;
        let (numbers, kept) = (&self.rules().numbers, self.rules().history_max);
        let found = numbers.find(&handle, OTTER, since, kept).await.map_err(unreadable)?;
        // How much is told, and how far it goes, is known when it was told.
        let outcome = Outcome::Replayed {
            id: session.clone(),
            replayed: 0,
            last: found.since.max(found.from.updates),
            truncated: found.truncated,
        };
        let answer = AttachAnswer::AfterReplay { id: id.clone(), rules: Vec::new(), outcome: Some(outcome) };
        let start = Numbers::start(&handle, found.from, found.since).await.map_err(unreadable)?;
        self.attach(handle, Start::After(found.from.seq), start, answer).await
    }

    /// What the client's dialect has counted up to a place, if it counts.
    async fn counted(&self, handle: &SessionHandle, seq: Seq) -> Result<UpdateStart, Fault> {
        if !self.debts.client().dialect.is_numbered() {
            return Ok(UpdateStart::default());
        }
        let counted = self.rules().numbers.at(handle, OTTER, seq).await.map_err(unreadable)?;
        Numbers::start(handle, counted, 0).await.map_err(unreadable)
    }

    async fn task(
        &self,
        id: &RpcId,
        cwd: Option<PathBuf>,
        role: String,
        approval: Arc<str>,
        content: Vec<Content>,
    ) -> Handled {
        // A client that names a folder by a short way means it from the server's own.
        let cwd = cwd.map(|cwd| self.rules().home_dir.join(cwd));
        let new = NewSession { cwd, ..NewSession::default() };
        let (handle, hold) = self.service.create_held(&self.caller, new).await.map_err(fault)?;
        self.debts.opened(handle.id());
        let patience = patience::refuse_in_time(handle.clone());
        drop(self.service.registry().tracker().spawn(patience));
        let by = &self.caller.sender;
        let change = Input::Change { by: by.clone(), id: APPROVAL.into(), value: Arc::clone(&approval) };
        handle.send(change).await.map_err(|error| refused(handle.id(), error))?;
        let prompt = Input::Prompt { by: by.clone(), content };
        let accepted = handle.send_durably(prompt).await.map_err(|error| refused(handle.id(), error))?;
        drop(hold);
        self.count_at_its_end(id, &handle, accepted);
        let cwd = (*handle.snapshot().cwd).clone();
        let outcome = Outcome::Tasked { id: handle.id().clone(), cwd, role, approval };
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        self.attach(handle, Start::After(Seq::START), UpdateStart::default(), answer).await
    }

    /// The prompt is answered at once. What is counted is what comes of it, as in the dialects that answer at the end.
    fn count_at_its_end(&self, id: &RpcId, handle: &SessionHandle, accepted: Accepted) {
        let (Some(deferred), Some(turn)) = (self.debts.deferred(id), accepted.turn) else { return };
        let handle = handle.clone();
        drop(self.service.registry().tracker().spawn(async move {
            // Of a session that is gone nobody knows it.
            let stop = how_it_ended(&handle, turn).await.unwrap_or(Stop::Interrupted);
            deferred.ended(stop);
        }));
    }

    async fn stop(&self, id: &RpcId, session: &SessionId, reason: Option<String>) -> Handled {
        let was_there = self.service.stop(&self.caller, session, reason.as_deref()).await.map_err(fault)?;
        self.debts.closed(session);
        if !was_there {
            return Err(Fault::NoSuchSession { id: session.to_string() });
        }
        let outcome = Outcome::Stopped { id: session.clone(), reason };
        self.write(Command::Finish { session: session.clone(), id: id.clone(), outcome }).await
    }

    async fn decide(&self, id: &RpcId, session: &SessionId, ask: AskId, answer: Answer) -> Handled {
        let (seq, outcome) = self.settle(session, ask, answer).await?;
        let Some(seq) = seq else { return Ok(Some(outcome)) };
        self.write(Command::AnswerAfter { session: session.clone(), seq, id: id.clone(), outcome }).await
    }

    /// The same for a client that sent it as a notification, and is told nothing.
    pub(crate) async fn decide_quietly(
        &self,
        session: Option<SessionId>,
        ask: AskId,
        answer: Answer,
    ) -> Handled {
        self.settle(&self.named_or_only(session)?, ask, answer).await?;
        Ok(None)
    }

    /// Gives a question its answer; where that stands in the log, if the question was open.
    async fn settle(
        &self,
        session: &SessionId,
        ask: AskId,
        answer: Answer,
    ) -> Result<(Option<Seq>, Outcome), Fault> {
        let handle = self.session(session).await?;
        let allowed = matches!(
            answer,
            Answer::AllowOnce | Answer::AllowAlways | Answer::AllowExactly | Answer::Reply(_)
        );
        let outcome = |applied| Outcome::Answered { id: session.clone(), ask, applied, allowed };
        // Before it is written: who answers is not told that the question is settled.
        self.debts.answers(session, ask);
        match self.service.answer(&self.caller, &handle, ask, answer).await {
            Ok(accepted) => Ok((Some(accepted.seq), outcome(true))),
            Err(error) => {
                self.debts.was_answering(session, ask);
                match error {
                    ServiceError::Send(SendError::Refused(Refusal::UnknownAsk(_))) => {
                        Ok((None, outcome(false)))
                    }
                    error => Err(about(session)(error)),
                }
            }
        }
    }

    async fn resume(&self, id: &RpcId, session: &SessionId, place: Place, cursor: Option<String>) -> Handled {
        let handle = self.open(session, Some(place)).await?;
        let head = handle.read(Seq::START).head();
        let from = match cursor {
            None => Start::Now(head),
            Some(text) => {
                let served = Cursor::parse(&text).filter(|cursor| !cursor.is_beyond(head));
                let served = served.map(|cursor| cursor.not_before(handle.snapshot().replay_from));
                Start::Missed(served.ok_or_else(|| {
                    Fault::InvalidParams(format!(
                        "the cursor {text:?} cannot be served; use session/load for the whole history"
                    ))
                })?)
            }
        };
        let outcome = Outcome::Opened(SessionView::of(&handle, self.project_rules(&handle)));
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        self.attach(handle, from, UpdateStart::default(), answer).await
    }

    async fn fork(&self, id: &RpcId, source: &SessionId, place: Place) -> Handled {
        let forked = self.service.fork(&self.caller, source, self.new_session(place)).await;
        let handle = forked.map_err(fault)?;
        let head = handle.read(Seq::START).head();
        self.begin(id, handle, head).await
    }

    /// Names a new session to the client, then shows it what happens there.
    async fn begin(&self, id: &RpcId, handle: SessionHandle, after: Seq) -> Handled {
        let outcome = Outcome::Created(SessionView::of(&handle, self.project_rules(&handle)));
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        let counted = self.counted(&handle, after).await?;
        self.attach(handle, Start::After(after), counted, answer).await
    }

    /// Known to the reading half only when the writer knows it: a prompt that follows finds it shown.
    async fn attach(
        &self,
        handle: SessionHandle,
        from: Start,
        counted: UpdateStart,
        answer: AttachAnswer,
    ) -> Handled {
        let session = handle.id().clone();
        self.editor.offer(&handle, false);
        let queued = self.write(Command::Attach { handle, from, counted, answer }).await;
        self.debts.opened(&session);
        queued
    }

    async fn list(&self, cwd: Option<PathBuf>, cursor: Option<String>) -> Handled {
        let before = cursor.as_deref().map(parse_cursor).transpose()?;
        let list_max = self.rules().list_max;
        let page = match (list_max, self.debts.client().dialect) {
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
        Ok(Some(Outcome::Listed { sessions, next }))
    }

    async fn close(&self, id: &RpcId, session: &SessionId) -> Handled {
        self.service.close(&self.caller, session).await.map_err(fault)?;
        self.debts.closed(session);
        self.write(Command::Finish { session: session.clone(), id: id.clone(), outcome: Outcome::Done }).await
    }

    async fn remove(&self, id: &RpcId, session: &SessionId) -> Handled {
        let existed = self.service.row(&self.caller, session).await.is_ok();
        self.delete(id, session, Outcome::Removed(existed)).await
    }

    async fn delete(&self, id: &RpcId, session: &SessionId, outcome: Outcome) -> Handled {
        self.service.delete(&self.caller, session).await.map_err(fault)?;
        self.debts.closed(session);
        self.write(Command::Finish { session: session.clone(), id: id.clone(), outcome }).await
    }

    async fn prompt(
        &self,
        id: &RpcId,
        session: &SessionId,
        content: Vec<Content>,
        answered_at_its_end: bool,
    ) -> Result<(SessionHandle, TurnId, Seq), Fault> {
        if id.as_json().len() > REQUEST_ID_BYTES_MAX {
            return Err(Fault::InvalidRequest(format!("the id is longer than {REQUEST_ID_BYTES_MAX} bytes")));
        }
        let request = answered_at_its_end.then(|| id.as_json().into());
        let by = Sender { request, ..self.caller.sender.clone() };
        self.must_be_open(session)?;
        let sent = self.service.prompt(&self.caller, session, &by, content, self.offers()).await;
        let (handle, accepted, turn) = sent.map_err(about(session))?;
        self.debts.owe_prompt(id.clone(), handle.clone(), turn);
        Ok((handle, turn, accepted.seq))
    }

    /// Lets the editor offer its files and terminals to the session that gets something.
    fn offers(&self) -> impl Fn(&SessionHandle) {
        |handle| self.editor.offer(handle, true)
    }

    /// The turn's text is read back from the log by a reader of its own, so the answer holds exactly
    /// what was streamed and waits for nobody.
    async fn message(&self, id: &RpcId, session: &SessionId, content: Vec<Content>) -> Handled {
        let (handle, turn, seq) = self.prompt(id, session, content, false).await?;
        let (this, id) = (self.clone(), id.clone());
        drop(self.service.registry().tracker().spawn(async move {
            let outcome = said(&handle, turn, seq).await;
            this.debts.prompt_answered(&id);
            let command = match outcome {
                Ok((seq, outcome)) => Command::AnswerAfter { session: handle.id().clone(), seq, id, outcome },
                Err(fault) => Command::Answer { id, outcome: Err(fault) },
            };
            this.commands.send(command).await;
        }));
        Ok(None)
    }

    async fn cancel(&self, session: &SessionId) -> Handled {
        self.must_be_open(session)?;
        let was_busy = self.service.cancel(&self.caller, session, None).await.map_err(about(session))?;
        Ok(Some(Outcome::Cancelled { id: session.clone(), was_busy }))
    }

    /// Only prompts are given up. Most other requests are answered at once; an agent that was asked something in
    /// words of its own goes on with it.
    async fn cancel_request(&self, request: &RpcId) -> Handled {
        if let Some((handle, turn)) = self.debts.prompt(request) {
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
        (setting, sent, answer): (Arc<str>, Arc<str>, ChangeAnswer),
    ) -> Handled {
        let session = handle.id().clone();
        let outcome = match answer {
            ChangeAnswer::Nothing => Outcome::Done,
            ChangeAnswer::Value | ChangeAnswer::Word => {
                let value: Arc<str> = handle.snapshot().settings.get(&setting).into();
                let is_its_name =
                    answer == ChangeAnswer::Word && full_name(&setting, Arc::clone(&sent)) == value;
                Outcome::Set { id: session.clone(), setting, value: if is_its_name { sent } else { value } }
            }
            ChangeAnswer::AllSettings => Outcome::Settings(SessionView::of(&handle, Vec::new())),
        };
        self.write(Command::AnswerAfter { session, seq, id: id.clone(), outcome }).await
    }

    async fn import(&self, events: Vec<Event>) -> Handled {
        let handle = self.service.import(&self.caller, events).await.map_err(fault)?;
        Ok(Some(Outcome::Imported { id: handle.id().clone() }))
    }

    async fn relocate(&self, id: &RpcId, session: &SessionId, path: &Path) -> Handled {
        let moved = self.service.move_to(&self.caller, session, path).await;
        let (_, accepted, cwd) = moved.map_err(about(session))?;
        let outcome = Outcome::Moved { id: session.clone(), cwd };
        let (session, seq, id) = (session.clone(), accepted.seq, id.clone());
        self.write(Command::AnswerAfter { session, seq, id, outcome }).await
    }

    /// A session that this client has open, brought back to memory if it left.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<SessionHandle, Fault> {
        self.must_be_open(id)?;
        // A Bernstein client cannot open a session again: for it, one that has ended is gone.
        if self.debts.client().dialect == Dialect::Bernstein {
            let live = self.service.live(&self.caller, Act::Open, id).await.map_err(fault)?;
            return live.ok_or_else(|| Fault::NoSuchSession { id: id.to_string() });
        }
        self.service.open(&self.caller, id).await.map_err(fault)
    }

    /// A client names sessions that it has opened on this connection.
    fn must_be_open(&self, id: &SessionId) -> Result<(), Fault> {
        if self.debts.has_open(id) { Ok(()) } else { Err(Fault::NotOpen { id: id.to_string() }) }
    }

    async fn open(&self, id: &SessionId, place: Option<Place>) -> Result<SessionHandle, Fault> {
        self.service.load(&self.caller, id, place).await.map_err(about(id))
    }

    fn new_session(&self, place: Place) -> NewSession {
        let Place { cwd, roots, servers } = place;
        NewSession { cwd, roots, servers, make_id: Some(self.make_id()) }
    }

    /// Makes the ids of this client's new sessions.
    fn make_id(&self) -> MakeId {
        self.debts.client().dialect.make_id()
    }

    /// How the ids of sessions in another program's folders begin that this client lists.
    fn folder_prefix(&self) -> Option<&'static str> {
        self.debts.client().dialect.id_prefix()
    }

    fn rules(&self) -> &Rules {
        self.service.rules()
    }

    fn project_rules(&self, handle: &SessionHandle) -> Vec<String> {
        self.service.registry().project_rules(&handle.snapshot().cwd)
    }

    async fn write(&self, command: Command) -> Handled {
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

/// Reads a turn to its end: where it ended, and what was said in it.
async fn said(handle: &SessionHandle, turn: TurnId, from: Seq) -> Result<(Seq, Outcome), Fault> {
    let mut reader = handle.read(from);
    let mut said = TurnText::default();
    while let Some(events) = reader.next().await.map_err(|error| Fault::Internal(error.to_string()))? {
        for event in events.iter().filter(|event| event.turn == Some(turn)) {
            // The answer is one frame: what does not fit into it stands in the log.
            said.take(event, WHOLE_BYTES_MAX);
            if let Body::TurnEnded { stop, error } = &event.body {
                let (stop, error) = (*stop, error.clone());
                return Ok((event.seq, Outcome::Said { id: handle.id().clone(), stop, error, said }));
            }
        }
    }
    Err(Fault::Internal("the session was closed before the turn ended".into()))
}

fn refused(session: &SessionId, error: SendError) -> Fault {
    match error {
        SendError::Closed => Fault::NoSuchSession { id: session.to_string() },
        SendError::Refused(
            refusal
            @ (Refusal::UnknownSetting(..) | Refusal::UnknownChoice { .. } | Refusal::TooLoose { .. }),
        ) => Fault::UnknownChoice(refusal.to_string()),
        SendError::Refused(refusal) => Fault::InvalidRequest(refusal.to_string()),
    }
}

fn unreadable(error: StoreError) -> Fault {
    Fault::Internal(error.to_string())
}

fn authenticate(method: &str) -> Handled {
    if method == wire::acp::AUTH_METHOD {
        return Ok(Some(Outcome::Done));
    }
    Err(Fault::InvalidParams(format!(
        "there is no authentication method {method:?}; use {:?}",
        wire::acp::AUTH_METHOD
    )))
}

fn parse_cursor(text: &str) -> Result<(Timestamp, SessionId), Fault> {
    let parse = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), SessionId::parse(id).ok()?))
    };
    parse().ok_or_else(|| Fault::InvalidParams("the cursor is not one that session/list gave".into()))
}

/// What a client of the JSON-RPC dialects is told.
pub(crate) fn fault(error: ServiceError) -> Fault {
    match error {
        ServiceError::Forbidden(why) => Fault::InvalidRequest(why.to_string()),
        ServiceError::FolderNotOpen(cwd) => Fault::InvalidParams(format!(
            "{} or another folder of the session is not in those that this server opens to others; its owner can add it with --allow-dir",
            cwd.display()
        )),
        ServiceError::CwdNotAFolder(_) => Fault::InvalidParams(format!("cwd {error}")),
        ServiceError::NotAFolder(_) | ServiceError::OutsideSession(_) => {
            Fault::InvalidParams(error.to_string())
        }
        ServiceError::RootNotAllowed(_) => Fault::InvalidParams(format!("{error} (--allow-dir)")),
        ServiceError::ParentInPath => Fault::InvalidRequest(error.to_string()),
        ServiceError::Open(error) => unopened(error),
        ServiceError::Send(SendError::Refused(refusal)) => Fault::InvalidRequest(refusal.to_string()),
        ServiceError::TooLong(id) => Fault::InvalidRequest(too_long(&id)),
        ServiceError::ToolServer(why) => Fault::InvalidParams(why),
        ServiceError::Store(_)
        | ServiceError::Send(SendError::Closed)
        | ServiceError::NoToolServers
        | ServiceError::Internal => Fault::Internal(error.to_string()),
    }
}

/// The same for what was said to one session.
fn about(session: &SessionId) -> impl Fn(ServiceError) -> Fault {
    move |error| match error {
        ServiceError::Send(error) => refused(session, error),
        error => fault(error),
    }
}

fn unopened(error: OpenError) -> Fault {
    match error {
        OpenError::NotFound(id) => Fault::NoSuchSession { id: id.to_string() },
        OpenError::Store(StoreError::BusyElsewhere) => Fault::InvalidRequest(
            "the session is in the middle of a turn in another ropewalk; wait for it or cancel it there"
                .into(),
        ),
        OpenError::Agent(error) => Fault::Foreign(error),
        OpenError::Stopping | OpenError::LimitReached(_) | OpenError::Store(_) => {
            Fault::Internal(error.to_string())
        }
    }
}

/// What a client is told whose session does not fit into one reply.
fn too_long(id: &SessionId) -> String {
    format!(
        "the session is longer than one reply may be ({} MiB); read it in parts: send `limit` (a number of \
         events), then the reply's `next` as `after`, until there is no `next`; or run `ropewalk sessions \
         export {id}`",
        WHOLE_BYTES_MAX >> 20
    )
}
