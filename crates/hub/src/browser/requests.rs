//! What people ask for: who answers it, and whether they may ask.

use std::collections::HashMap;
use std::sync::Arc;

use engine::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use store::sql::Statement;
use wire::json::{self, JsonError};
use wire::native::hub::{HubAnswered, HubRequest};
use wire::native::{Answered, Envelope, Request, Role, Wrong};

use super::handing::{check, is_done, operator, pass_on, session_of, word_of};
use super::table::{drawn, page, sees, views};
use super::watching::{Watch, Watching};
use super::{HubReply, Hung, Line, WATCHES_MAX};
use crate::audit::Note;
use crate::calls::not_connected;
use crate::feed::Shape;
use crate::guest::{PersonId, Who};
use crate::hub::{Hub, away, wrong};
use crate::ids::MachineId;
use crate::metrics::Counted;
use crate::people;
use crate::schema;
use crate::shelf::Mirrored;
use crate::topics;

/// What is searched for is this short.
const SEARCH_BYTES_MAX: usize = 256;

/// A mirror, for who asks about it.
pub(super) struct Mirror {
    pub owner: PersonId,
    /// What it was registered with: a name to show, and no more than that.
    pub named: Option<Arc<str>>,
    /// The same, while it is a machine of the mirror's owner. Whoever asks is let through to this one only: an id that
    /// was named while it was free may be somebody else's machine by now.
    pub machine: Option<Arc<str>>,
    pub sealed: bool,
    /// The session that this is kept of.
    pub branch_of: Option<Arc<str>>,
}

pub(super) async fn owner(hub: &Hub, session: &str) -> Result<Option<Mirror>, Wrong> {
    let question = Statement::new(
        "SELECT mirrors.person, mirrors.machine, machines.id, mirrors.sealed, mirrors.branch_of FROM mirrors
         LEFT JOIN machines ON machines.id = mirrors.machine AND machines.person = mirrors.person
         WHERE mirrors.session = $1",
        [session.into()],
    );
    let rows = hub.rows(question).await.map_err(|error| away(&error))?;
    let read = |row: &store::sql::Row| {
        let (owner, sealed) = (PersonId(row.text(0)?), row.int(3)? != 0);
        let (named, machine, branch_of) = (row.maybe_text(1)?, row.maybe_text(2)?, row.maybe_text(4)?);
        Ok(Mirror { owner, named, machine, sealed, branch_of })
    };
    rows.first().map(read).transpose().map_err(|error| away(&error))
}

fn not_found() -> Wrong {
    wrong(
        "notFound",
        "there is no such session here; it may have been forgotten, or it is not shared with you",
    )
}

fn is_kept(of: &str) -> Wrong {
    let message = format!(
        "this is a read-only copy from before the machine's state was put back; continue in session {of}"
    );
    wrong("kept", message)
}

fn bad(message: impl Into<String>) -> Wrong {
    wrong("badRequest", message)
}

/// Who answers a request about a session.
enum Asking {
    Machine {
        machine: MachineId,
        role: Role,
        deletes: Option<(SessionId, PersonId)>,
    },
    /// The hub itself: no machine has it.
    Kept {
        session: SessionId,
        owner: PersonId,
        of: Arc<str>,
    },
}

/// What is sent to a machine.
struct Sent<'a> {
    /// What the record calls it.
    word: &'static str,
    session: Option<&'a str>,
    /// The session that is gone when it is done, and whose it was.
    deletes: Option<(SessionId, PersonId)>,
}

/// What can be read of anything that is sent.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    id: u64,
    #[serde(rename = "do")]
    word: Option<String>,
}

/// An envelope with what only a hub is asked.
#[derive(Deserialize)]
struct HubEnvelope {
    #[serde(flatten)]
    request: HubRequest,
}

/// Requests that a hub answers itself, or hands on in its own way.
const HUB_WORDS: [&str; 15] = [
    "at",
    "sealed",
    "machines",
    "forgetMachine",
    "share",
    "shares",
    "unshare",
    "tokens",
    "makeToken",
    "dropToken",
    "people",
    "invitePerson",
    "removePerson",
    "passkeys",
    "dropPasskey",
];

impl Line {
    /// Answers a request, or sees to it that it will be.
    pub(super) async fn take(&mut self, text: &str) -> Result<(), Hung> {
        let head: Head = serde_json::from_str(text).unwrap_or(Head { id: 0, word: None });
        let unknown = |error: JsonError| {
            bad(format!("this is no request that this hub knows: {error}; reload the page"))
        };
        if head.word.as_deref().is_some_and(|word| HUB_WORDS.contains(&word)) {
            return match json::read::<HubEnvelope>(text, "the request") {
                Ok(HubEnvelope { request }) => self.hub_request(head.id, request).await,
                Err(error) => self.reply(head.id, Err(unknown(error))).await,
            };
        }
        match json::read::<Envelope>(text, "the request") {
            Ok(Envelope { id, request }) => self.request(id, request).await,
            Err(error) => self.reply(head.id, Err(unknown(error))).await,
        }
    }

    async fn request(&mut self, id: u64, request: Request) -> Result<(), Hung> {
        match request {
            Request::Sessions { before, search } => {
                let answer = self.sessions(id, before.as_deref(), search.as_deref()).await;
                match answer {
                    Ok(()) => Ok(()),
                    Err(Ok(wrong)) => self.reply(id, Err(wrong)).await,
                    Err(Err(hung)) => Err(hung),
                }
            }
            Request::Watch { session, after } => match self.watch(id, &session, after).await {
                Ok(()) => Ok(()),
                Err(wrong) => self.reply(id, Err(wrong)).await,
            },
            Request::Unwatch { session } => {
                if let Some(watch) = SessionId::parse(&session).ok().and_then(|id| self.watches.remove(&id)) {
                    watch.over.cancel();
                }
                self.reply(id, Ok(Answered::Done)).await
            }
            Request::Looking { visible, .. } => {
                self.hub.door.looks(self.seat.as_ref(), &self.guest, visible).await;
                self.reply(id, Ok(Answered::Done)).await
            }
            about_browsers @ (Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::Push { .. }
            | Request::Mute { .. }
            | Request::TryPush) => {
                let answer = self.hub.door.answer(&self.guest, about_browsers).await;
                self.reply(id, answer).await
            }
            request => match session_of(&request).map(str::to_owned) {
                Some(session) => self.ask_about(id, &session, request).await,
                None => {
                    let message = "name the machine that this is asked of";
                    self.reply(id, Err(bad(message))).await
                }
            },
        }
    }

    async fn hub_request(&mut self, id: u64, request: HubRequest) -> Result<(), Hung> {
        let answered = self.hub.door.keeper.answer(&self.guest, request).await;
        let request = match answered {
            Ok(answer) => return self.hub_reply(id, answer).await,
            Err(request) => request,
        };
        match request {
            HubRequest::Machines => {
                let machines = self.machines();
                self.hub_reply(id, Ok(HubAnswered::Machines { machines })).await
            }
            HubRequest::ForgetMachine { machine } => {
                let answer = self.forget(&machine).await;
                self.reply(id, answer.map(|()| Answered::Done)).await
            }
            HubRequest::At { machine, request } => self.ask_machine(id, &machine, *request).await,
            HubRequest::Sealed { machine, session, sealed } => {
                self.ask_sealed(id, &machine, session.as_deref(), sealed).await
            }
            // The doorkeeper answers all others.
            _ => self.reply(id, Err(bad("this hub does not do this"))).await,
        }
    }

    async fn hub_reply(&self, id: u64, answer: Result<HubAnswered, Wrong>) -> Result<(), Hung> {
        match answer {
            Ok(answered) => self.tell(&HubReply { re: id, ok: &answered }).await,
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    fn machines(&self) -> Vec<wire::native::hub::MachineView> {
        let news = self.shelf.as_ref().and_then(|shelf| shelf.after(0));
        let Some(news) = news else { return Vec::new() };
        let seen = news.cards.iter().filter(|card| sees(&self.guest, card));
        let places: HashMap<_, _> = seen
            .filter_map(|card| Some((Arc::clone(&card.session), Arc::clone(card.machine.as_ref()?))))
            .collect();
        views(&self.guest, &news.machines, &places)
    }

    /// A page of cards. Sealed ones are told before the answer, each for itself.
    async fn sessions(
        &self,
        id: u64,
        before: Option<&str>,
        search: Option<&str>,
    ) -> Result<(), Result<Wrong, Hung>> {
        #[derive(Serialize)]
        struct Page {
            is: &'static str,
            cards: Vec<Box<RawValue>>,
            older: Option<String>,
        }
        #[derive(Serialize)]
        struct PageReply {
            re: u64,
            ok: Page,
        }
        let words: Vec<String> = match search {
            Some(search) if search.len() > SEARCH_BYTES_MAX => return Err(Ok(bad("search for fewer words"))),
            Some(search) => search.to_lowercase().split_whitespace().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let place = before.map(|before| {
            let (at, session) = before.split_once('.')?;
            Some((at.parse::<i64>().ok()?, session))
        });
        let place = match place {
            Some(None) => return Err(Ok(bad("`before` is not what a page of sessions ended with"))),
            Some(Some(place)) => Some(place),
            None => None,
        };
        let news = self.shelf.as_ref().and_then(|shelf| shelf.after(0));
        let mut cards: Vec<Arc<Mirrored>> = news.map(|news| news.cards).unwrap_or_default();
        cards.retain(|card| {
            let older = place.is_none_or(|place| (card.updated_at, card.session.as_ref()) < place);
            older && sees(&self.guest, card) && card.has(&words)
        });
        let older = page(&mut cards);
        let (cards, closed) = drawn(&cards);
        for card in closed {
            self.tell(&card).await.map_err(Err)?;
        }
        let ok = Page { is: "sessions", cards, older };
        self.tell(&PageReply { re: id, ok }).await.map_err(Err)
    }

    /// The mirror of a session, and what this guest may do with it.
    async fn seen(&self, session: &str) -> Result<(SessionId, Mirror, Role), Wrong> {
        let id = SessionId::parse(session).map_err(|_| not_found())?;
        let mirror = owner(&self.hub, session).await?.ok_or_else(not_found)?;
        let role = self.guest.role(&mirror.owner, Some(session)).ok_or_else(not_found)?;
        Ok((id, mirror, role))
    }

    async fn watch(&mut self, id: u64, session: &str, after: Option<u64>) -> Result<(), Wrong> {
        let (session, mirror, _) = self.seen(session).await?;
        self.watches.retain(|_, watch| !watch.task.is_finished());
        let before = self.watches.remove(&session);
        if before.is_none() && self.watches.len() >= WATCHES_MAX {
            let message = format!("a browser watches at most {WATCHES_MAX} sessions; leave one");
            return Err(wrong("busy", message));
        }
        let Mirror { named: machine, sealed, branch_of: of, .. } = mirror;
        let shape = Shape { session: session.clone(), machine, sealed, of };
        let watching = Watching {
            feed: self.hub.feeds.of(&self.hub, &shape),
            session: session.clone(),
            after,
            go: self.go.clone(),
            _counted: Counted::new(&self.hub.metrics.watches),
        };
        let over = self.over.child_token();
        let leaves = over.clone();
        let task = self.hub.tasks.spawn(async move {
            if let Some(before) = before {
                // What it has in hand must not come after the first view of this one.
                before.over.cancel();
                drop(before.task.await);
            }
            tokio::select! {
                biased;
                () = leaves.cancelled() => {}
                () = watching.run(id) => {}
            }
        });
        self.watches.insert(session, Watch { over, task });
        Ok(())
    }

    /// A request about a session goes to its machine.
    async fn ask_about(&mut self, id: u64, session: &str, request: Request) -> Result<(), Hung> {
        let ready = async {
            let (session, mirror, role) = self.seen(session).await?;
            check(role, &request)?;
            if let Some(of) = &mirror.branch_of {
                return Ok(Asking::Kept { session, owner: mirror.owner, of: Arc::clone(of) });
            }
            if mirror.sealed {
                return Err(bad(
                    "this session is sealed: only a device that is paired with its machine can ask",
                ));
            }
            let machine = mirror.machine.as_deref().and_then(MachineId::parse);
            let machine = machine.ok_or_else(|| match mirror.named {
                Some(_) => not_connected(),
                None => bad("this session's bridge takes frames only, at /ws/ID"),
            })?;
            let deletes = matches!(request, Request::Delete { .. });
            Ok(Asking::Machine { machine, role, deletes: deletes.then_some((session, mirror.owner)) })
        };
        match ready.await {
            Ok(Asking::Kept { session, owner, of }) => {
                let answer = self.ask_kept(&session, &owner, &of, &request).await;
                self.reply(id, answer).await
            }
            Ok(Asking::Machine { machine, role, deletes }) => {
                let what = Sent { word: word_of(&request), session: Some(session), deletes };
                self.call(id, &machine, role, &Envelope { id, request }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    /// What is kept of a session is on no machine: it can be looked at and deleted.
    async fn ask_kept(
        &self,
        session: &SessionId,
        owner: &PersonId,
        of: &str,
        request: &Request,
    ) -> Result<Answered, Wrong> {
        if !matches!(request, Request::Delete { .. }) {
            return Err(is_kept(of));
        }
        self.hub.forget(session, owner, self.address, i64::MAX).await.map_err(|error| away(&error))?;
        Ok(Answered::Done)
    }

    /// A request that names no session goes to the machine that was named, if it is the asker's own.
    async fn ask_machine(&mut self, id: u64, machine: &str, request: Request) -> Result<(), Hung> {
        if let Some(session) = session_of(&request).map(str::to_owned) {
            return self.ask_about(id, &session, request).await;
        }
        let ready = async {
            let (machine, sealed) = self.own_machine(machine).await?;
            if sealed {
                return Err(bad("this machine is sealed: only a device that is paired with it can ask"));
            }
            check(Role::Owner, &request)?;
            Ok(machine)
        };
        match ready.await {
            Ok(machine) => {
                let what = Sent { word: word_of(&request), session: None, deletes: None };
                self.call(id, &machine, Role::Owner, &Envelope { id, request }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    async fn own_machine(&self, machine: &str) -> Result<(MachineId, bool), Wrong> {
        let unknown = || wrong("notFound", "you have no such machine");
        let id = MachineId::parse(machine).ok_or_else(unknown)?;
        let question =
            Statement::new("SELECT person, sealed FROM machines WHERE id = $1", [id.as_str().into()]);
        let rows = self.hub.rows(question).await.map_err(|error| away(&error))?;
        let row = rows.first().ok_or_else(unknown)?;
        let owner = PersonId(row.text(0).map_err(|error| away(&error))?);
        self.guest.role(&owner, None).ok_or_else(unknown)?;
        Ok((id, row.int(1).map_err(|error| away(&error))? != 0))
    }

    /// What the hub cannot read: it knows who asks, and of which machine.
    async fn ask_sealed(
        &mut self,
        id: u64,
        machine: &str,
        session: Option<&str>,
        text: String,
    ) -> Result<(), Hung> {
        let ready = async {
            match session {
                Some(session) => {
                    let (_, mirror, role) = self.seen(session).await?;
                    if let Some(of) = &mirror.branch_of {
                        return Err(is_kept(of));
                    }
                    let its = mirror.machine.as_deref().and_then(MachineId::parse);
                    let its = its.filter(|its| its.as_str() == machine).ok_or_else(not_found)?;
                    Ok((its, role))
                }
                None => Ok((self.own_machine(machine).await?.0, Role::Owner)),
            }
        };
        #[derive(Serialize)]
        struct Sealed {
            sealed: String,
        }
        match ready.await {
            Ok((machine, role)) => {
                // Whether this deletes something only the machine knows; its bridge says so.
                let what = Sent { word: "sealed", session, deletes: None };
                self.call(id, &machine, role, &Sealed { sealed: text }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    /// Sends a request off, and sees to it that the answer comes back.
    async fn call(
        &mut self,
        id: u64,
        machine: &MachineId,
        role: Role,
        body: &impl Serialize,
        what: Sent<'_>,
    ) -> Result<(), Hung> {
        // Never closed. Who waits for too much reads no further.
        let place = Arc::clone(&self.waiting).acquire_owned().await.map_err(|_| Hung)?;
        let Ok(body) = to_raw_value(body) else {
            return self.reply(id, Err(bad("this cannot be sent"))).await;
        };
        let Sent { word, session, deletes } = what;
        let about = session.map_or_else(|| machine.to_string(), str::to_owned);
        let (person, by) = match &self.guest.who {
            Who::Person { id, .. } => (Some(id.0.as_ref()), String::new()),
            Who::Bearer { share, .. } => (None, format!(" by share {share}")),
        };
        let note = Note::new("call.relayed", person).about(format!("{word} {about}{by}")).from(self.address);
        match self.hub.call(machine, operator(&self.guest, role), body).await {
            Ok(pending) => {
                self.hub.note(note);
                let (go, hub, address) = (self.go.clone(), Arc::clone(&self.hub), self.address);
                self.start(async move {
                    let answer = pending.answer().await;
                    drop(place);
                    if let (Some((session, owner)), Ok(body)) = (deletes, &answer)
                        && is_done(body)
                        && let Err(error) = hub.forget(&session, &owner, address, i64::MAX).await
                    {
                        // Its bridge says the same, and may have been first.
                        tracing::debug!(%session, %error, "a deleted session was not forgotten by its deletion");
                    }
                    // The browser may be gone.
                    drop(pass_on(&go, id, answer).await);
                });
                Ok(())
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    async fn forget(&self, machine: &str) -> Result<(), Wrong> {
        let (id, _) = self.own_machine(machine).await?;
        let Who::Person { id: person, .. } = &self.guest.who else { return Err(not_found()) };
        let mut work = schema::forget_machine(id.as_str());
        let note = Note::new("machine.forgotten", Some(&person.0)).about(id.as_str()).from(self.address);
        work.push(note.statement(self.hub.now(), Some(self.hub.node.as_str())));
        let news = vec![topics::person(&person.0), topics::machine(id.as_str()), people::TOPIC.to_owned()];
        self.hub.run(work, news).await.map_err(|error| away(&error))?;
        if let Some(held) = self.hub.machines.held(&id) {
            held.end();
        }
        Ok(())
    }
}
