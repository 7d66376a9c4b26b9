//! Carries calls out on sessions. One method per kind of call, the same for every door.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, Accepted, Answer, AskId, Body, Content, Event, Input, ListQuery, Listed, Opaque, OpenError,
    Principal, Refusal, Registry, SendError, Sender, Seq, SessionHandle, SessionId, StoreError, Timestamp,
    TurnId, Wish,
};
use wire::document::WHOLE_BYTES_MAX;
use wire::{
    Call, ChangeAnswer, Dialect, EventRange, EventsPart, Fault, Outcome, Place, RpcId, SessionView, TurnText,
    UpdateStart,
};

use crate::batch::Position;
use crate::bridge::Bridges;
use crate::debts::Debts;
use crate::host::Editor;
use crate::numbers::{Numbers, OTTER};
use crate::outlet::Outlet;
use crate::patience;
use crate::servers::connect;
use crate::session_text::{Part, read_part, too_long};
use crate::writer::{AttachAnswer, Command, Start};

/// A prompt's id stands in the log.
const REQUEST_ID_BYTES_MAX: usize = 256;
/// As many updates as otter keeps.
const HISTORY_MAX: u64 = 1024;

/// What this server allows its clients.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Where sessions work whose client names no folder.
    pub home_dir: PathBuf,
    /// The folders in or below which a session must work; without a list, any folder the client names.
    pub places: Option<Vec<PathBuf>>,
    /// Further folders that sessions may work in; without a list, any folder the client names.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// Sessions on one page of a listing; 0 lists all.
    pub list_max: usize,
    /// The door, as it stands in listings.
    pub source: Arc<str>,
    /// Everybody may ask what this server is.
    pub discovery: bool,
    /// Updates that a client of a dialect with numbers can still be told again.
    pub history_max: u64,
    /// Shared by all connections of a server.
    pub numbers: Numbers,
    /// How sessions are seen elsewhere; shared likewise.
    pub bridges: Bridges,
}

impl Rules {
    /// Whether sessions may work there. The path is as the file system knows it.
    pub(crate) fn opens(&self, real: &Path) -> bool {
        let inside = |place: &PathBuf| place.canonicalize().is_ok_and(|place| real.starts_with(place));
        self.places.as_ref().is_none_or(|places| places.iter().any(inside))
    }

    /// The same list, for whoever opens folders.
    pub(crate) fn within(&self) -> Option<Arc<[PathBuf]>> {
        self.places.as_deref().map(Into::into)
    }

    /// Whether this caller may open a session that works there. A folder that was open to a client may have become
    /// a way to another one since; the owner's sessions work wherever they do.
    pub(crate) fn still_opens(&self, caller: &Principal, session: &SessionHandle) -> bool {
        let opens = |path: &PathBuf| self.opens(&path.canonicalize().unwrap_or_else(|_| path.clone()));
        *caller == Principal::local() || opens(&session.snapshot().cwd) && session.roots().iter().all(opens)
    }
}

/// Why a folder cannot be worked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// Where nothing may be learned of, not even whether it is there, there is only one answer.
    NotOpen,
    NotAFolder,
}

impl Rules {
    /// The same for whoever comes from elsewhere: they work below the server's own folder, or in one that its
    /// owner opened.
    pub fn confined(&self) -> Self {
        let allowed = self.allowed_dirs.clone().unwrap_or_default();
        let places: Vec<_> = std::iter::once(self.home_dir.clone()).chain(allowed).collect();
        Self { allowed_dirs: Some(places.clone()), places: Some(places), ..self.clone() }
    }

    /// The folder for a new session: one that this server opens to its clients.
    pub(crate) fn place(&self, wanted: Option<&str>) -> Result<PathBuf, Misplaced> {
        let Some(wanted) = wanted else { return Ok(self.home_dir.clone()) };
        let path = Path::new(wanted);
        match path.canonicalize() {
            Ok(real) if !path.is_absolute() || !self.opens(&real) => Err(Misplaced::NotOpen),
            Ok(real) if real.is_dir() => Ok(real),
            Err(_) if !path.is_absolute() || !self.opens(path) => Err(Misplaced::NotOpen),
            Ok(_) | Err(_) => Err(Misplaced::NotAFolder),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            home_dir: "/".into(),
            places: None,
            allowed_dirs: None,
            list_max: 100,
            source: "acp".into(),
            discovery: true,
            history_max: HISTORY_MAX,
            numbers: Numbers::default(),
            bridges: Bridges::default(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Handlers {
    pub(crate) editor: Arc<Editor>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) principal: Principal,
    pub(crate) sender: Sender,
    pub(crate) rules: Arc<Rules>,
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
            Call::Prompt { id, .. }
            | Call::Message { id, .. }
            | Call::Change { id, .. }
            | Call::Answer { id, .. }
            | Call::Sandbox { id, .. }
            | Call::Bridge { id } => self.registry.live(&self.principal, id).is_none(),
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

    pub(crate) async fn handle(&self, id: &RpcId, call: Call) -> Handled {
        match call {
            Call::Initialize(hello) => {
                let greeting = self.registry.backend().greeting().await;
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
            Call::Answer { id: session, ask, answer } => self.decide(id, &session, ask, answer).await,
            Call::Sandbox { id: session, wanted } => {
                self.session(&session).await?;
                Ok(Some(Outcome::Sandbox { wanted }))
            }
            Call::Bridge { id: session } => {
                self.session(&session).await?;
                Ok(Some(Outcome::Bridge(self.rules.bridges.status(&session))))
            }
            Call::Cancel { id: session } => self.cancel(&session).await,
            Call::CancelRequest { request } => self.cancel_request(&request).await,
            Call::Change { id: session, setting, value, answer } => {
                let change = || Input::Change {
                    by: self.sender.clone(),
                    id: Arc::clone(&setting),
                    value: Arc::clone(&value),
                };
                let (handle, accepted) = self.deliver(&session, change).await?;
                self.changed(id, handle, accepted.seq, (&setting, answer)).await
            }
            Call::ListAll => {
                Ok(Some(Outcome::ListedAll(self.listed(ListQuery::all(self.principal.clone())).await?)))
            }
            Call::Get { id: session, range } => {
                let (session, events) = self.stored(&session, range).await?;
                Ok(Some(Outcome::Got { session, events }))
            }
            Call::Export { id: session, range } => {
                let (session, events) = self.stored(&session, range).await?;
                Ok(Some(Outcome::Exported { session, events, at: self.registry.clock().now() }))
            }
            Call::Import { events } => self.import(events).await,
            Call::Remove { id: session } => self.remove(id, &session).await,
            Call::Tools { id: session } => {
                self.registry.row(&self.principal, &session).await.map_err(fault)?;
                Ok(Some(Outcome::Tools(self.tools(&session))))
            }
            Call::Servers { id: session } => self.list_servers(session).await,
            Call::AddServer { id: session, server } => self.add_server(session, server).await,
            Call::RemoveServer { id: session, name } => self.remove_server(session, name).await,
            Call::Move { id: session, path } => self.relocate(id, &session, &path).await,
            Call::Extension { id, method, params, notice } => self.extend(id, method, params, notice).await,
            Call::Ignore => Ok(None),
        }
    }

    /// Gives the agent what only it may understand.
    async fn extend(&self, id: Option<SessionId>, method: Arc<str>, params: Opaque, notice: bool) -> Handled {
        let way = match id {
            Some(id) => self.session(&id).await.ok().and_then(|handle| handle.extensions().cloned()),
            None => self.registry.backend().extensions(),
        };
        match way {
            Some(way) if notice => {
                way.notify(method, params);
                Ok(None)
            }
            None if notice => Ok(None),
            Some(way) => {
                let answer = self.registry.answer_without_secrets(way.call(method, params).await);
                Ok(Some(Outcome::Extended(answer.map_err(Fault::Foreign)?)))
            }
            None => Err(Fault::UnknownMethod(method.to_string())),
        }
    }

    async fn authenticate(&self, method: &str) -> Handled {
        if self.registry.backend().greeting().await.foreign.is_none() {
            return authenticate(method);
        }
        let refused = |error| Fault::Foreign(self.registry.error_without_secrets(error));
        self.registry.backend().authenticate(method).await.map_err(refused)?;
        Ok(Some(Outcome::Done))
    }

    async fn create(&self, id: &RpcId, place: Place) -> Handled {
        let created = self.registry.create_with_id(self.wish(place)?, self.make_id()).await;
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
        let (numbers, kept) = (&self.rules.numbers, self.rules.history_max);
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
        let counted = self.rules.numbers.at(handle, OTTER, seq).await.map_err(unreadable)?;
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
        let cwd = cwd.map(|cwd| self.rules.home_dir.join(cwd));
        let place = Place { cwd, roots: Vec::new(), servers: Vec::new() };
        let handle = self.registry.create(self.wish(place)?).await.map_err(fault)?;
        self.debts.opened(handle.id());
        let patience = patience::refuse_in_time(handle.clone());
        drop(self.registry.tracker().spawn(patience));
        let change =
            Input::Change { by: self.sender.clone(), id: APPROVAL.into(), value: Arc::clone(&approval) };
        self.send(&handle, change).await?;
        let prompt = Input::Prompt { by: self.sender.clone(), content };
        offer(&handle, prompt).await.map_err(|error| refused(&handle, error))?;
        let cwd = (*handle.snapshot().cwd).clone();
        let outcome = Outcome::Tasked { id: handle.id().clone(), cwd, role, approval };
        let answer = AttachAnswer::First { id: id.clone(), outcome };
        self.attach(handle, Start::After(Seq::START), UpdateStart::default(), answer).await
    }

    async fn stop(&self, id: &RpcId, session: &SessionId, reason: String) -> Handled {
        let was_there = self.registry.close(&self.principal, session).await.map_err(fault)?;
        self.debts.closed(session);
        if !was_there {
            return Err(Fault::NoSuchSession { id: session.to_string() });
        }
        let outcome = Outcome::Stopped { id: session.clone(), reason };
        self.write(Command::Finish { session: session.clone(), id: id.clone(), outcome }).await
    }

    async fn decide(&self, id: &RpcId, session: &SessionId, ask: AskId, answer: Answer) -> Handled {
        let handle = self.session(session).await?;
        let allowed = matches!(
            answer,
            Answer::AllowOnce | Answer::AllowAlways | Answer::AllowExactly | Answer::Reply(_)
        );
        let outcome = |applied| Outcome::Answered { id: session.clone(), ask, applied, allowed };
        let input = Input::Answer { by: self.sender.clone(), ask, answer };
        // Before it is written: who answers is not told that the question is settled.
        self.debts.answers(session, ask);
        match handle.send(input).await {
            Ok(accepted) => {
                let outcome = outcome(true);
                let (session, id) = (session.clone(), id.clone());
                handle.written(accepted.seq).await;
                self.write(Command::AnswerAfter { session, seq: accepted.seq, id, outcome }).await
            }
            Err(error) => {
                self.debts.was_answering(session, ask);
                match error {
                    SendError::Refused(Refusal::UnknownAsk(_)) => Ok(Some(outcome(false))),
                    error => Err(refused(&handle, error)),
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
                let served = Position::parse(&text).filter(|position| position.seq <= head);
                // What was cleared is not told again.
                let served = served.map(|at| at.max(Position::after(handle.snapshot().replay_from)));
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

    async fn fork(&self, id: &RpcId, source: &SessionId, mut place: Place) -> Handled {
        let row = self.row(source).await?;
        place.cwd = place.cwd.or(Some(row.cwd));
        let forked = self.registry.fork_with_id(source, self.wish(place)?, self.make_id()).await;
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
        let page = if self.rules.list_max == 0 { usize::MAX - 1 } else { self.rules.list_max };
        let query = ListQuery { owner: self.principal.clone(), cwd, before, limit: page + 1 };
        let mut sessions = self.listed(query).await?;
        let more = sessions.len() > page;
        sessions.truncate(page);
        let last = sessions.last().filter(|_| more);
        let next = last.map(|last| format!("{}.{}", last.row.updated_at.0, last.row.id));
        Ok(Some(Outcome::Listed { sessions, next }))
    }

    /// The list of a client that knows one session.
    pub(crate) async fn list_one(&self, id: &SessionId, cwd: Option<PathBuf>) -> Result<Outcome, Fault> {
        let row = self.registry.row(&self.principal, id).await.map_err(fault)?;
        let live = self.registry.live(&self.principal, id).is_some();
        let elsewhere = cwd.is_some_and(|cwd| cwd != row.cwd);
        let sessions = if elsewhere { Vec::new() } else { vec![Listed { row, live }] };
        Ok(Outcome::Listed { sessions, next: None })
    }

    async fn close(&self, id: &RpcId, session: &SessionId) -> Handled {
        self.registry.close(&self.principal, session).await.map_err(fault)?;
        self.debts.closed(session);
        self.write(Command::Finish { session: session.clone(), id: id.clone(), outcome: Outcome::Done }).await
    }

    async fn remove(&self, id: &RpcId, session: &SessionId) -> Handled {
        let existed = self.registry.row(&self.principal, session).await.is_ok();
        self.delete(id, session, Outcome::Removed(existed)).await
    }

    async fn delete(&self, id: &RpcId, session: &SessionId, outcome: Outcome) -> Handled {
        self.registry.delete(&self.principal, session).await.map_err(fault)?;
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
        let by = Sender { request, ..self.sender.clone() };
        let prompt = || Input::Prompt { by: by.clone(), content: content.clone() };
        let (handle, accepted) = self.deliver(session, prompt).await?;
        let Some(turn) = accepted.turn else { return Err(Fault::Internal("the prompt has no turn".into())) };
        self.debts.owe_prompt(id.clone(), handle.clone(), turn);
        Ok((handle, turn, accepted.seq))
    }

    /// Hands an input to its session and waits until it is in the log. A session that left memory in
    /// this very moment, or that another process took over while it was idle, is opened again: nothing
    /// of the input was seen by anybody.
    async fn deliver(
        &self,
        session: &SessionId,
        input: impl Fn() -> Input,
    ) -> Result<(SessionHandle, Accepted), Fault> {
        let mut handle = self.session(session).await?;
        self.editor.offer(&handle, true);
        let mut sent = offer(&handle, input()).await;
        if matches!(sent, Err(SendError::Closed | SendError::Refused(Refusal::Closing))) {
            handle = self.session(session).await?;
            self.editor.offer(&handle, true);
            sent = offer(&handle, input()).await;
        }
        match sent {
            Ok(accepted) => Ok((handle, accepted)),
            Err(error) => Err(refused(&handle, error)),
        }
    }

    /// The turn's text is read back from the log by a reader of its own, so the answer holds exactly
    /// what was streamed and waits for nobody.
    async fn message(&self, id: &RpcId, session: &SessionId, content: Vec<Content>) -> Handled {
        let (handle, turn, seq) = self.prompt(id, session, content, false).await?;
        let (this, id) = (self.clone(), id.clone());
        drop(self.registry.tracker().spawn(async move {
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
        if !self.debts.has_open(session) {
            return Err(Fault::NoSuchSession { id: session.to_string() });
        }
        // A session that is not in memory has nothing to cancel.
        let mut was_busy = false;
        if let Some(handle) = self.registry.live(&self.principal, session) {
            let snapshot = handle.snapshot();
            was_busy = snapshot.busy || snapshot.waiting > 0;
            self.send(&handle, Input::Cancel { by: self.sender.clone(), only: None }).await?;
        }
        Ok(Some(Outcome::Cancelled { id: session.clone(), was_busy }))
    }

    /// Only prompts are given up. Most other requests are answered at once; an agent that was asked something in
    /// words of its own goes on with it.
    async fn cancel_request(&self, request: &RpcId) -> Handled {
        if let Some((handle, turn)) = self.debts.prompt(request) {
            self.send(&handle, Input::Cancel { by: self.sender.clone(), only: Some(turn) }).await?;
        }
        Ok(None)
    }

    async fn changed(
        &self,
        id: &RpcId,
        handle: SessionHandle,
        seq: Seq,
        (setting, answer): (&Arc<str>, ChangeAnswer),
    ) -> Handled {
        let session = handle.id().clone();
        let outcome = match answer {
            ChangeAnswer::Nothing => Outcome::Done,
            ChangeAnswer::Value => Outcome::Set {
                id: session.clone(),
                setting: Arc::clone(setting),
                value: handle.snapshot().settings.get(setting).into(),
            },
            ChangeAnswer::AllSettings => Outcome::Settings(SessionView::of(&handle, Vec::new())),
        };
        self.write(Command::AnswerAfter { session, seq, id: id.clone(), outcome }).await
    }

    async fn import(&self, events: Vec<Event>) -> Handled {
        // What a file says of folders is another machine's business.
        let place = Place { cwd: None, roots: Vec::new(), servers: Vec::new() };
        let wish = Wish { source: "import".into(), ..self.wish(place)? };
        let handle = self.registry.import(wish, None, events).await.map_err(fault)?;
        Ok(Some(Outcome::Imported { id: handle.id().clone() }))
    }

    async fn relocate(&self, id: &RpcId, session: &SessionId, path: &Path) -> Handled {
        let handle = self.registry.open(&self.principal, session).await.map_err(fault)?;
        self.check_still(&handle)?;
        let cwd = self.check_move(&handle, path)?;
        let moved = Input::Move { by: self.sender.clone(), cwd: cwd.clone() };
        let accepted = self.send(&handle, moved).await?;
        handle.written(accepted.seq).await;
        let outcome = Outcome::Moved { id: session.clone(), cwd };
        self.write(Command::AnswerAfter {
            session: session.clone(),
            seq: accepted.seq,
            id: id.clone(),
            outcome,
        })
        .await
    }

    fn check_move(&self, handle: &SessionHandle, path: &Path) -> Result<PathBuf, Fault> {
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(Fault::InvalidRequest("the path must not contain \"..\"".into()));
        }
        let here = Arc::clone(&handle.snapshot().cwd);
        let target = canonical(&here.join(path))?;
        let allowed = self.rules.allowed_dirs.iter().flatten();
        let inside = |root: &Path| root.canonicalize().is_ok_and(|root| target.starts_with(root));
        if inside(&here) || handle.roots().iter().chain(allowed).any(|root| inside(root)) {
            return Ok(target);
        }
        Err(Fault::InvalidParams(format!("{} is outside the folders of this session", target.display())))
    }

    /// A session that this client has open, brought back to memory if it left.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<SessionHandle, Fault> {
        if !self.debts.has_open(id) {
            return Err(Fault::NoSuchSession { id: id.to_string() });
        }
        // A Bernstein client cannot open a session again: for it, one that has ended is gone.
        if self.debts.client().dialect == Dialect::Bernstein {
            let live = self.registry.live(&self.principal, id);
            let handle = live.ok_or_else(|| Fault::NoSuchSession { id: id.to_string() })?;
            self.check_still(&handle)?;
            return Ok(handle);
        }
        let handle = self.registry.open(&self.principal, id).await.map_err(fault)?;
        self.check_still(&handle)?;
        Ok(handle)
    }

    async fn open(&self, id: &SessionId, place: Option<Place>) -> Result<SessionHandle, Fault> {
        if let Some(place) = &place {
            self.check_roots(place)?;
        }
        let handle = self.opened(id).await?;
        self.check_still(&handle)?;
        let here = Arc::clone(&handle.snapshot().cwd);
        let (cwd, servers) = place.map_or((None, Vec::new()), |place| (place.cwd, place.servers));
        connect(&handle, self.own_servers(servers)?)?;
        let target = cwd.filter(|cwd| *cwd != *here && cwd.is_dir());
        if let Some(cwd) = target {
            self.check_place(&cwd)?;
            let input = Input::Move { by: self.sender.clone(), cwd };
            let accepted = self.send(&handle, input).await?;
            handle.written(accepted.seq).await;
        }
        Ok(handle)
    }

    pub(crate) fn wish(&self, place: Place) -> Result<Wish, Fault> {
        self.check_roots(&place)?;
        let cwd = place.cwd.unwrap_or_else(|| self.rules.home_dir.clone());
        if !cwd.is_dir() {
            return Err(Fault::InvalidParams(format!("cwd {} is not a folder", cwd.display())));
        }
        self.check_place(&cwd)?;
        let servers = self.own_servers(place.servers)?;
        let source = Arc::clone(&self.rules.source);
        let within = self.rules.within();
        Ok(Wish { owner: self.principal.clone(), cwd, roots: place.roots, within, servers, source })
    }

    /// A folder that was open to a client may have become a way to another one since.
    fn check_still(&self, handle: &SessionHandle) -> Result<(), Fault> {
        match self.rules.still_opens(&self.principal, handle) {
            true => Ok(()),
            false => Err(not_open(&handle.snapshot().cwd)),
        }
    }

    fn check_place(&self, cwd: &Path) -> Result<(), Fault> {
        if self.rules.opens(&canonical(cwd)?) { Ok(()) } else { Err(not_open(cwd)) }
    }

    fn check_roots(&self, place: &Place) -> Result<(), Fault> {
        for root in &place.roots {
            let real = canonical(root)?;
            let Some(allowed) = &self.rules.allowed_dirs else { continue };
            let inside = |dir: &PathBuf| dir.canonicalize().is_ok_and(|dir| real.starts_with(dir));
            if !allowed.iter().any(inside) {
                return Err(Fault::InvalidParams(format!(
                    "{} is not one of the additional folders this server allows (--allow-dir)",
                    root.display()
                )));
            }
        }
        Ok(())
    }

    fn project_rules(&self, handle: &SessionHandle) -> Vec<String> {
        self.registry.project_rules(&handle.snapshot().cwd)
    }

    async fn stored(&self, id: &SessionId, range: EventRange) -> Result<(Listed, EventsPart), Fault> {
        let row = self.registry.row(&self.principal, id).await.map_err(fault)?;
        let part = read_part(&self.registry, &self.principal, id, range, WHOLE_BYTES_MAX).await;
        match part.map_err(fault)? {
            Part::Events(events) => Ok((Listed { row, live: false }, events)),
            Part::TooLong => Err(Fault::InvalidRequest(too_long(id))),
        }
    }

    async fn send(&self, handle: &SessionHandle, input: Input) -> Result<Accepted, Fault> {
        handle.send(input).await.map_err(|error| refused(handle, error))
    }

    async fn write(&self, command: Command) -> Handled {
        self.commands.send(command).await;
        Ok(None)
    }
}

/// Reads a turn to its end: where it ended, and what was said in it.
async fn said(handle: &SessionHandle, turn: TurnId, from: Seq) -> Result<(Seq, Outcome), Fault> {
    let mut reader = handle.read(from);
    let mut output = TurnText::default();
    while let Some(events) = reader.next().await.map_err(|error| Fault::Internal(error.to_string()))? {
        for event in events.iter().filter(|event| event.turn == Some(turn)) {
            // The answer is one frame: what does not fit into it stands in the log.
            output.take(event, WHOLE_BYTES_MAX);
            if let Body::TurnEnded { stop, error } = &event.body {
                let (stop, error, output) = (*stop, error.clone(), output.text);
                return Ok((event.seq, Outcome::Said { id: handle.id().clone(), stop, error, output }));
            }
        }
    }
    Err(Fault::Internal("the session was closed before the turn ended".into()))
}

/// A log that ended without the input has not taken it.
pub(crate) async fn offer(handle: &SessionHandle, input: Input) -> Result<Accepted, SendError> {
    let accepted = handle.send(input).await?;
    handle.written(accepted.seq).await;
    let taken = handle.read(accepted.seq).head() >= accepted.seq;
    if taken { Ok(accepted) } else { Err(SendError::Closed) }
}

fn refused(handle: &SessionHandle, error: SendError) -> Fault {
    match error {
        SendError::Closed => Fault::NoSuchSession { id: handle.id().to_string() },
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

fn not_open(cwd: &Path) -> Fault {
    Fault::InvalidParams(format!(
        "{} or another folder of the session is not in those that this server opens to others; its owner can add it with --allow-dir",
        cwd.display()
    ))
}

fn canonical(path: &Path) -> Result<PathBuf, Fault> {
    match path.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) | Err(_) => Err(Fault::InvalidParams(format!("{} is not a folder", path.display()))),
    }
}

fn parse_cursor(text: &str) -> Result<(Timestamp, SessionId), Fault> {
    let parse = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp(at.parse().ok()?), SessionId::parse(id).ok()?))
    };
    parse().ok_or_else(|| Fault::InvalidParams("the cursor is not one that session/list gave".into()))
}

pub(crate) fn fault(error: OpenError) -> Fault {
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
