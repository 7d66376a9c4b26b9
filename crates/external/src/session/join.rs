//! Joining a session at the agent: the one that the log names if the agent can restore it, otherwise a new one.
//!
//! A forked session starts with the log of its origin, but the origin's session at the agent is not its own.
//! It gets its own: forked by the agent if the agent can do that, which is only possible at the moment of the
//! fork because the origin continues; otherwise a new one.

use std::sync::Arc;

use engine::{APPROVAL, Body, ForeignError, LogRead, NewEvent, NoticeLevel, Opaque, PageRequest};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::external_agent::{self, OpenedSession};

use super::{ExternalSession, JoinedSession, RequestOptions, UpdateTranslator, foreign};
use crate::agent_process::{AgentProcess, Inbox, SessionMessage};
use crate::backend::{Folders, failed};
use crate::connection::RpcError;

/// Updates that are kept until the session has been opened.
const EARLY_MAX: usize = 64;

/// Why a session is joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinReason {
    /// A client has just opened it.
    Opened,
    /// A prompt is to be processed.
    Prompted,
}

/// A session at the agent that has just been opened.
struct AttachedSession {
    id: Arc<str>,
    result: Box<RawValue>,
    inbox: Inbox,
    /// Updates that it sent before its answer.
    early: Vec<Box<RawValue>>,
}

/// What the log says about the session at the agent.
#[derive(Default)]
struct LoggedSession {
    session: Option<Arc<str>>,
    /// The one of the session that this session was forked from.
    origin: Option<Arc<str>>,
    /// There is a conversation that the agent should know.
    has_history: bool,
    /// The cost of the agent's session so far.
    cost_usd: f64,
}

impl ExternalSession {
    /// The agent's session, joined if necessary. Joining is not interrupted when the caller stops waiting: a
    /// half-joined session would not receive its messages.
    pub(super) async fn join(self: &Arc<Self>, when: JoinReason) -> Result<Arc<JoinedSession>, ForeignError> {
        let (sender, joining) = oneshot::channel();
        let session = Arc::clone(self);
        self.context.spawn(async move { drop(sender.send(session.join_here(when).await)) });
        joining.await.unwrap_or_else(|_| Err(failed("the session is closed".into())))
    }

    async fn join_here(self: &Arc<Self>, when: JoinReason) -> Result<Arc<JoinedSession>, ForeignError> {
        let _held = self.joining.lock().await;
        if let Some(joined) = self.joined() {
            return Ok(joined);
        }
        let process = self.shared.process(Folders::of(&self.spec)).await?;
        let LoggedSession { session, origin, has_history, cost_usd } = self.read_log().await;
        let back = match (&session, &origin) {
            (Some(id), _) => self.bring_back(&process, id).await,
            (None, Some(id)) if when == JoinReason::Opened => self.fork(&process, id).await,
            (None, _) => None,
        };
        let is_new = back.is_none();
        if is_new && session.is_some() && (process.can().resume || process.can().load) {
            let text = format!(
                "{} could not restore its session; it gets the conversation so far instead",
                self.name()
            );
            self.notice(NoticeLevel::Info, text).await;
        }
        let AttachedSession { id, result, inbox, early } = match back {
            Some(begun) => begun,
            None => self.open_new(&process).await?,
        };
        let opened = external_agent::session_response(&result);
        let joined =
            Arc::new(JoinedSession { process: Arc::clone(&process), id, drained: CancellationToken::new() });
        let restored = session.is_some() || has_history;
        {
            let mut state = self.state();
            state.needs_history = has_history && is_new;
            state.hearing = UpdateTranslator::new(opened.offers.clone());
            if !is_new {
                state.hearing.start_from(cost_usd);
            }
            state.joined = Some(Arc::clone(&joined));
        }
        self.log_joined(&joined, &opened, restored).await?;
        for update in early {
            self.update(&update).await;
        }
        let listening = Arc::clone(self).receive(Arc::clone(&joined), inbox);
        self.context.spawn(listening);
        if restored {
            self.restore_settings(&joined, &opened).await;
        }
        Ok(joined)
    }

    /// Reads the agent's id of the session from the log, if there is one, and whether there was a conversation.
    async fn read_log(&self) -> LoggedSession {
        let mut reader = self.context.history.clone();
        let head = reader.head();
        let mut known = LoggedSession::default();
        while reader.cursor() < head {
            let Ok(LogRead::Events(events)) = reader.take(PageRequest::OUTLINE).await else { break };
            for event in events {
                match &event.body {
                    Body::Joined { agent, session, of, .. } => {
                        let session = (**agent == **self.name()).then(|| Arc::clone(session));
                        if session != known.session {
                            known.cost_usd = 0.0;
                        }
                        (known.session, known.origin) =
                            if *of == self.spec.id { (session, None) } else { (None, session) };
                    }
                    // The prompt that this is joined for does not count: it has not been processed.
                    Body::TurnEnded { .. } => known.has_history = true,
                    Body::Usage(usage) => known.cost_usd += usage.cost_usd,
                    Body::Cleared => known = LoggedSession::default(),
                    _ => {}
                }
            }
        }
        known
    }

    fn request_options(&self, session: Option<&Arc<str>>) -> RequestOptions {
        RequestOptions { deadline: Some(self.shared.config.timeouts.handshake), session: session.cloned() }
    }

    /// The agent restores its session. The history that it sends is already in our log.
    async fn bring_back(&self, process: &Arc<AgentProcess>, id: &Arc<str>) -> Option<AttachedSession> {
        let can = process.can();
        let (method, params) = if can.resume {
            ("session/resume", external_agent::resume(&self.spec, id, can))
        } else if can.load {
            ("session/load", external_agent::load(&self.spec, id, can))
        } else {
            return None;
        };
        let Some(mut inbox) = process.attach(id) else {
            tracing::info!(agent = %self.name(), "the agent's session is open elsewhere");
            return None;
        };
        let mut answer = process.connection().request(method, &params, self.request_options(Some(id)));
        let mut early = Vec::new();
        // Joining may also be abandoned; then nothing is logged.
        let answer = loop {
            tokio::select! {
                biased;
                Some((message, _space)) = inbox.recv() => match message {
                    SessionMessage::Request { id, method, .. } => {
                        let error = RpcError::new(-32600, format!("{method}: the session is not open yet"));
                        // An agent that is gone does not wait for an answer.
                        process.connection().refuse(&id, &error).await.ok();
                    }
                    SessionMessage::Update(params) if early.len() < EARLY_MAX && external_agent::is_lasting(&params) => {
                        early.push(params);
                    }
                    SessionMessage::Update(_) | SessionMessage::Extension { .. } | SessionMessage::Reply(_) | SessionMessage::InvalidOutput(_) => {}
                },
                answer = &mut answer => break answer,
            }
        };
        match answer {
            Ok(result) => Some(AttachedSession { id: Arc::clone(id), result, inbox, early }),
            Err(error) => {
                process.detach(id);
                tracing::info!(agent = %self.name(), %error, "could not restore the agent's session");
                None
            }
        }
    }

    /// Forks the origin's session at the agent.
    async fn fork(&self, process: &Arc<AgentProcess>, origin: &str) -> Option<AttachedSession> {
        let can = process.can();
        if !can.fork {
            return None;
        }
        let params = external_agent::fork(&self.spec, origin, can);
        let answer = process.connection().request("session/fork", &params, self.request_options(None)).await;
        let forked = answer.map_err(|error| foreign(self.name(), &error).message.to_string());
        match forked.map(|result| (external_agent::session_response(&result).session, result)) {
            Ok((Some(id), result)) if *id != *origin => {
                Some(AttachedSession { inbox: process.attach(&id)?, id, result, early: Vec::new() })
            }
            Ok(_) => None,
            Err(error) => {
                tracing::info!(agent = %self.name(), error, "could not fork the agent's session");
                None
            }
        }
    }

    async fn open_new(&self, process: &Arc<AgentProcess>) -> Result<AttachedSession, ForeignError> {
        let params = external_agent::new_session(&self.spec, process.can());
        let result = process.connection().request("session/new", &params, self.request_options(None)).await;
        let result = result.map_err(|error| foreign(self.name(), &error))?;
        let Some(id) = external_agent::session_response(&result).session else {
            return Err(failed(format!("{} answered session/new without a session", self.name())));
        };
        // If two of our sessions shared one of the agent's, each would receive only a part of its messages.
        let taken =
            || failed(format!("{} gave a new session the id of one that is already open", self.name()));
        let inbox = process.attach(&id).ok_or_else(taken)?;
        Ok(AttachedSession { id, result, inbox, early: Vec::new() })
    }

    /// Logs what is known of the session now: the next process needs it.
    async fn log_joined(
        &self,
        joined: &JoinedSession,
        opened: &OpenedSession,
        restored: bool,
    ) -> Result<(), ForeignError> {
        let gone = |gone: engine::SessionGone| failed(gone.to_string());
        let body = Body::Joined {
            agent: Arc::clone(self.name()),
            session: Arc::clone(&joined.id),
            of: self.spec.id.clone(),
            extra: opened.extra.clone(),
        };
        self.context.emit(body).await.map_err(gone)?;
        let settings = opened.offers.specs();
        if !settings.is_empty() {
            // A client that opens a new session gets them with the answer, so they are not relayed again.
            let relayed = (!restored).then(|| Opaque("".into()));
            let said = NewEvent { body: Body::Offered { settings }, relayed };
            self.context.emit(said).await.map_err(gone)?;
        }
        self.context.settled().await.map_err(gone)
    }

    /// Sends the chosen settings again where the restored session differs.
    async fn restore_settings(&self, joined: &JoinedSession, opened: &OpenedSession) {
        let settings = self.context.settings();
        for (id, now) in opened.offers.values() {
            let chosen: Arc<str> = settings.get(id).into();
            if chosen.is_empty() || *chosen == **now || id.as_ref() == APPROVAL {
                continue;
            }
            let set = external_agent::setting_request(&opened.offers, &joined.id, id, &chosen);
            let Some((method, params)) = set else { continue };
            let session = Some(&joined.id);
            if let Err(error) =
                joined.process.connection().request(method, &params, self.request_options(session)).await
            {
                let text = format!("{} did not accept {id} {chosen} again: {error}", self.name());
                self.notice(NoticeLevel::Warning, text).await;
            }
        }
    }
}
