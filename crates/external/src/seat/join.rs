//! Joining a session of the agent's: the one that the log names if it can be brought back, else a new one.
//!
//! A fork begins with the log of its origin, whose session at the agent is not its own. It gets one of its own:
//! from the agent if that can fork, and only when the fork is made, since the origin goes on; else a new one.

use std::sync::Arc;

use engine::{APPROVAL, Body, ForeignError, NoticeLevel, Opaque, Page, Said, Taken};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::upstream::{self, Opened};

use super::{Hearing, Joined, Seat, Terms, foreign};
use crate::crew::{Crew, Inbox, Told};
use crate::external::{Folders, failed};
use crate::peer::Remote;

/// Updates that are kept until the session is there.
const EARLY_MAX: usize = 64;

/// What a session is joined for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Somebody has just opened it.
    Opened,
    /// A prompt is to be worked on.
    Prompted,
}

/// A session of the agent's that is there.
struct Begun {
    id: Arc<str>,
    result: Box<RawValue>,
    told: Inbox,
    /// What it said of the session before it had answered.
    early: Vec<Box<RawValue>>,
}

/// What the log knows of the agent's session.
#[derive(Default)]
struct Known {
    session: Option<Arc<str>>,
    /// That of the session which this one was forked from.
    origin: Option<Arc<str>>,
    /// Something was said that the agent should know.
    talked: bool,
    /// What the agent's session has cost so far.
    cost_usd: f64,
}

impl Seat {
    /// The agent's session, joined if it is not. What is begun is ended, whoever waits for it: half a session
    /// hears nothing.
    pub(super) async fn join(self: &Arc<Self>, when: When) -> Result<Arc<Joined>, ForeignError> {
        let (told, joining) = oneshot::channel();
        let seat = Arc::clone(self);
        self.context.spawn(async move { drop(told.send(seat.join_here(when).await)) });
        joining.await.unwrap_or_else(|_| Err(failed("the session is closed".into())))
    }

    async fn join_here(self: &Arc<Self>, when: When) -> Result<Arc<Joined>, ForeignError> {
        let _held = self.joining.lock().await;
        if let Some(joined) = self.joined() {
            return Ok(joined);
        }
        let crew = self.shared.crew(Folders::of(&self.spec)).await?;
        let Known { session, origin, talked, cost_usd } = self.known().await;
        let back = match (&session, &origin) {
            (Some(id), _) => self.bring_back(&crew, id).await,
            (None, Some(id)) if when == When::Opened => self.fork(&crew, id).await,
            (None, _) => None,
        };
        let is_new = back.is_none();
        if is_new && session.is_some() && (crew.can().resume || crew.can().load) {
            let text = format!(
                "{} could not bring its session back; it is told the conversation so far instead",
                self.name()
            );
            self.notice(NoticeLevel::Info, text).await;
        }
        let Begun { id, result, told, early } = match back {
            Some(begun) => begun,
            None => self.begin(&crew).await?,
        };
        let opened = upstream::opened(&result);
        let joined = Arc::new(Joined { crew: Arc::clone(&crew), id, heard_out: CancellationToken::new() });
        let restored = session.is_some() || talked;
        {
            let mut state = self.state();
            state.untold = talked && is_new;
            state.hearing = Hearing::new(opened.offers.clone());
            if !is_new {
                state.hearing.start_from(cost_usd);
            }
            state.joined = Some(Arc::clone(&joined));
        }
        self.tell_log(&joined, &opened, restored).await?;
        for update in early {
            self.update(&update).await;
        }
        let listening = Arc::clone(self).listen(Arc::clone(&joined), told);
        self.context.spawn(listening);
        if restored {
            self.choose_again(&joined, &opened).await;
        }
        Ok(joined)
    }

    /// The agent's own name of the session, if the log has one, and whether anything was said.
    async fn known(&self) -> Known {
        let mut reader = self.context.history.clone();
        let head = reader.head();
        let mut known = Known::default();
        while reader.cursor() < head {
            let Ok(Taken::Events(events)) = reader.take(Page::OUTLINE).await else { break };
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
                    // The prompt that this is joined for has not been worked on.
                    Body::TurnEnded { .. } => known.talked = true,
                    Body::Usage(usage) => known.cost_usd += usage.cost_usd,
                    Body::Cleared => known = Known::default(),
                    _ => {}
                }
            }
        }
        known
    }

    fn terms(&self, lane: Option<&Arc<str>>) -> Terms {
        Terms { deadline: Some(self.shared.config.patience.handshake), lane: lane.cloned() }
    }

    /// The agent takes its session up again. What it tells of the history stands in our log already.
    async fn bring_back(&self, crew: &Arc<Crew>, id: &Arc<str>) -> Option<Begun> {
        let can = crew.can();
        let (method, params) = if can.resume {
            ("session/resume", upstream::resume(&self.spec, id, can))
        } else if can.load {
            ("session/load", upstream::load(&self.spec, id, can))
        } else {
            return None;
        };
        let Some(mut told) = crew.sit(id) else {
            tracing::info!(agent = %self.name(), "the agent's session is open elsewhere");
            return None;
        };
        let mut answer = crew.peer().request(method, &params, self.terms(Some(id)));
        let mut early = Vec::new();
        // It may also be given up, and then nothing is told.
        let answer = loop {
            tokio::select! {
                biased;
                Some((told, _room)) = told.recv() => match told {
                    Told::Request { id, method, .. } => {
                        let error = Remote::new(-32600, format!("{method}: the session is not open yet"));
                        // One that is gone waits for no answer.
                        crew.peer().refuse(&id, &error).await.ok();
                    }
                    Told::Update(params) if early.len() < EARLY_MAX && upstream::is_lasting(&params) => {
                        early.push(params);
                    }
                    Told::Update(_) | Told::Extension { .. } | Told::Answered(_) | Told::Noise(_) => {}
                },
                answer = &mut answer => break answer,
            }
        };
        match answer {
            Ok(result) => Some(Begun { id: Arc::clone(id), result, told, early }),
            Err(error) => {
                crew.leave(id);
                tracing::info!(agent = %self.name(), %error, "the agent's session cannot be brought back");
                None
            }
        }
    }

    /// A session of its own that knows what the origin's knows.
    async fn fork(&self, crew: &Arc<Crew>, origin: &str) -> Option<Begun> {
        let can = crew.can();
        if !can.fork {
            return None;
        }
        let params = upstream::fork(&self.spec, origin, can);
        let answer = crew.peer().request("session/fork", &params, self.terms(None)).await;
        let forked = answer.map_err(|error| foreign(self.name(), &error).message.to_string());
        match forked.map(|result| (upstream::opened(&result).session, result)) {
            Ok((Some(id), result)) if *id != *origin => {
                Some(Begun { told: crew.sit(&id)?, id, result, early: Vec::new() })
            }
            Ok(_) => None,
            Err(error) => {
                tracing::info!(agent = %self.name(), error, "the agent's session cannot be forked");
                None
            }
        }
    }

    async fn begin(&self, crew: &Arc<Crew>) -> Result<Begun, ForeignError> {
        let params = upstream::new_session(&self.spec, crew.can());
        let result = crew.peer().request("session/new", &params, self.terms(None)).await;
        let result = result.map_err(|error| foreign(self.name(), &error))?;
        let Some(id) = upstream::opened(&result).session else {
            return Err(failed(format!("{} answered session/new without a session", self.name())));
        };
        // Two who hear one session would each hear half of it.
        let taken = || failed(format!("{} gave a new session the name of one that is open", self.name()));
        let told = crew.sit(&id).ok_or_else(taken)?;
        Ok(Begun { id, result, told, early: Vec::new() })
    }

    /// What is known of the session now stands in the log: the next process needs it.
    async fn tell_log(&self, joined: &Joined, opened: &Opened, restored: bool) -> Result<(), ForeignError> {
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
            // Whoever opens a new session learns it from the answer and need not be told again.
            let relayed = (!restored).then(|| Opaque("".into()));
            let said = Said { body: Body::Offered { settings }, relayed };
            self.context.emit(said).await.map_err(gone)?;
        }
        self.context.settled().await.map_err(gone)
    }

    /// What people chose counts again where the agent has forgotten it.
    async fn choose_again(&self, joined: &Joined, opened: &Opened) {
        let settings = self.context.settings();
        for (id, now) in opened.offers.values() {
            let chosen: Arc<str> = settings.get(id).into();
            if chosen.is_empty() || *chosen == **now || id.as_ref() == APPROVAL {
                continue;
            }
            let set = upstream::set(&opened.offers, &joined.id, id, &chosen);
            let Some((method, params)) = set else { continue };
            let lane = Some(&joined.id);
            if let Err(error) = joined.crew.peer().request(method, &params, self.terms(lane)).await {
                let text = format!("{} does not take {id} {chosen} again: {error}", self.name());
                self.notice(NoticeLevel::Warning, text).await;
            }
        }
    }
}
