//! Requests of a browser: who answers each of them, and whether the visitor may ask.

use std::collections::HashMap;
use std::sync::Arc;

use engine::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use store::sql::Statement;
use wire::json_errors::{self, JsonError};
use wire::native::hub_requests::{HubReplyBody, HubRequest};
use wire::native::{ReplyBody, ReplyError, Request, RequestEnvelope, Role};

use super::card_updates::{can_see, cut_page, encode_cards, views};
use super::forward::{audit_word, check_role, forward_reply, is_done, operator, session_of};
use super::session_watch::{WatchHandle, WatchTask};
use super::{BrowserConnection, BrowserGone, HubReply, WATCHES_MAX};
use crate::audit::AuditEntry;
use crate::authenticator::{PersonId, VisitorKind};
use crate::hub::{Hub, database_error, wrong};
use crate::hub_tables;
use crate::ids::MachineId;
use crate::machine_calls::not_connected;
use crate::metrics::GaugeGuard;
use crate::people;
use crate::session_list::ListedSession;
use crate::topics;
use crate::view_feed::ViewFraming;

/// Bytes of a search text.
const SEARCH_BYTES_MAX: usize = 256;

/// What is known of a mirror when somebody asks about its session.
pub(super) struct MirrorInfo {
    pub owner: PersonId,
    /// The machine that it was registered with: only for display.
    pub named: Option<Arc<str>>,
    /// The same id, if it is a machine of the mirror's owner. Requests are forwarded to this one only: an id that was free
    /// when the session was registered may be somebody else's machine by now.
    pub machine: Option<Arc<str>>,
    pub sealed: bool,
    /// The session that this is a branch of.
    pub branch_of: Option<Arc<str>>,
}

pub(super) async fn mirror_info(hub: &Hub, session: &str) -> Result<Option<MirrorInfo>, ReplyError> {
    let question = Statement::new(
        "SELECT mirrors.person, mirrors.machine, machines.id, mirrors.sealed, mirrors.branch_of FROM mirrors
         LEFT JOIN machines ON machines.id = mirrors.machine AND machines.person = mirrors.person
         WHERE mirrors.session = $1",
        [session.into()],
    );
    let rows = hub.rows(question).await.map_err(|error| database_error(&error))?;
    let read = |row: &store::sql::Row| {
        let (owner, sealed) = (PersonId(row.text(0)?), row.int(3)? != 0);
        let (named, machine, branch_of) = (row.maybe_text(1)?, row.maybe_text(2)?, row.maybe_text(4)?);
        Ok(MirrorInfo { owner, named, machine, sealed, branch_of })
    };
    rows.first().map(read).transpose().map_err(|error| database_error(&error))
}

fn not_found() -> ReplyError {
    wrong("notFound", "no such session here; it was removed, or it is not shared with you")
}

fn read_only_copy(of: &str) -> ReplyError {
    let message =
        format!("this is a read-only copy from before the machine was restored; continue in session {of}");
    wrong("kept", message)
}

fn bad_request(message: impl Into<String>) -> ReplyError {
    wrong("badRequest", message)
}

/// Who answers a request about a session.
enum RequestTarget {
    Machine {
        machine: MachineId,
        role: Role,
        deletes: Option<(SessionId, PersonId)>,
    },
    /// The hub itself: a branch is on no machine.
    BranchCopy {
        session: SessionId,
        owner: PersonId,
        of: Arc<str>,
    },
}

/// A request that is forwarded to a machine.
struct ForwardedRequest<'a> {
    /// Its name in the audit.
    word: &'static str,
    session: Option<&'a str>,
    /// The session that it deletes, and its owner.
    deletes: Option<(SessionId, PersonId)>,
}

/// The members that every request has, read before the request itself.
#[derive(Deserialize)]
struct RequestHead {
    #[serde(default)]
    id: u64,
    #[serde(rename = "do")]
    word: Option<String>,
}

/// The envelope of a request that only hubs answer.
#[derive(Deserialize)]
struct HubEnvelope {
    #[serde(flatten)]
    request: HubRequest,
}

/// The requests that only hubs answer, or forward in their own way.
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

impl BrowserConnection {
    /// Handles a request: answers it, or starts a task that does.
    pub(super) async fn handle_text(&mut self, text: &str) -> Result<(), BrowserGone> {
        let head: RequestHead = serde_json::from_str(text).unwrap_or(RequestHead { id: 0, word: None });
        let unknown = |error: JsonError| {
            bad_request(format!("this hub does not know this request: {error}; reload the page"))
        };
        if head.word.as_deref().is_some_and(|word| HUB_WORDS.contains(&word)) {
            return match json_errors::read::<HubEnvelope>(text, "the request") {
                Ok(HubEnvelope { request }) => self.hub_request(head.id, request).await,
                Err(error) => self.reply(head.id, Err(unknown(error))).await,
            };
        }
        match json_errors::read::<RequestEnvelope>(text, "the request") {
            Ok(RequestEnvelope { id, request }) => self.request(id, request).await,
            Err(error) => self.reply(head.id, Err(unknown(error))).await,
        }
    }

    async fn request(&mut self, id: u64, request: Request) -> Result<(), BrowserGone> {
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
                    watch.cancel.cancel();
                }
                self.reply(id, Ok(ReplyBody::Done)).await
            }
            Request::Presence { visible, .. } => {
                self.hub.people_api.looks(self.seat.as_ref(), &self.visitor, visible).await;
                self.reply(id, Ok(ReplyBody::Done)).await
            }
            about_browsers @ (Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::Push { .. }
            | Request::Mute { .. }
            | Request::TestPush) => {
                let answer = self.hub.people_api.answer(&self.visitor, about_browsers).await;
                self.reply(id, answer).await
            }
            request => match session_of(&request).map(str::to_owned) {
                Some(session) => self.ask_about(id, &session, request).await,
                None => {
                    let message = "choose a machine for this request";
                    self.reply(id, Err(bad_request(message))).await
                }
            },
        }
    }

    async fn hub_request(&mut self, id: u64, request: HubRequest) -> Result<(), BrowserGone> {
        let answered = self.hub.people_api.accounts.answer(&self.visitor, request).await;
        let request = match answered {
            Ok(answer) => return self.hub_reply(id, answer).await,
            Err(request) => request,
        };
        match request {
            HubRequest::Machines => {
                let machines = self.machines();
                self.hub_reply(id, Ok(HubReplyBody::Machines { machines })).await
            }
            HubRequest::ForgetMachine { machine } => {
                let answer = self.forget(&machine).await;
                self.reply(id, answer.map(|()| ReplyBody::Done)).await
            }
            HubRequest::ToMachine { machine, request } => self.ask_machine(id, &machine, *request).await,
            HubRequest::Sealed { machine, session, sealed } => {
                self.ask_sealed(id, &machine, session.as_deref(), sealed).await
            }
            // All others were answered by `accounts`.
            _ => self.reply(id, Err(bad_request("this hub cannot do this"))).await,
        }
    }

    async fn hub_reply(&self, id: u64, answer: Result<HubReplyBody, ReplyError>) -> Result<(), BrowserGone> {
        match answer {
            Ok(answered) => self.send(&HubReply { re: id, ok: &answered }).await,
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    fn machines(&self) -> Vec<wire::native::hub_requests::MachineView> {
        let changes = self.session_list.as_ref().and_then(|session_list| session_list.after(0));
        let Some(changes) = changes else { return Vec::new() };
        let seen = changes.cards.iter().filter(|card| can_see(&self.visitor, card));
        let machine_of: HashMap<_, _> = seen
            .filter_map(|card| Some((Arc::clone(&card.session), Arc::clone(card.machine.as_ref()?))))
            .collect();
        views(&self.visitor, &changes.machines, &machine_of)
    }

    /// Sends a page of cards. Sealed cards are sent before the reply, each in a frame of its own.
    async fn sessions(
        &self,
        id: u64,
        before: Option<&str>,
        search: Option<&str>,
    ) -> Result<(), Result<ReplyError, BrowserGone>> {
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
            Some(search) if search.len() > SEARCH_BYTES_MAX => {
                return Err(Ok(bad_request("the search text is too long; use fewer words")));
            }
            Some(search) => search.to_lowercase().split_whitespace().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let position = before.map(|before| {
            let (at, session) = before.split_once('.')?;
            Some((at.parse::<i64>().ok()?, session))
        });
        let position = match position {
            Some(None) => {
                return Err(Ok(bad_request(
                    "`before` is not the end of a page of sessions; reload the list",
                )));
            }
            Some(Some(position)) => Some(position),
            None => None,
        };
        let changes = self.session_list.as_ref().and_then(|session_list| session_list.after(0));
        let mut cards: Vec<Arc<ListedSession>> = changes.map(|changes| changes.cards).unwrap_or_default();
        cards.retain(|card| {
            let older = position.is_none_or(|position| (card.updated_at, card.session.as_ref()) < position);
            older && can_see(&self.visitor, card) && card.matches(&words)
        });
        let older = cut_page(&mut cards);
        let (cards, sealed_cards) = encode_cards(&cards);
        for card in sealed_cards {
            self.send(&card).await.map_err(Err)?;
        }
        let ok = Page { is: "sessions", cards, older };
        self.send(&PageReply { re: id, ok }).await.map_err(Err)
    }

    /// The mirror of a session, and the visitor's role in it.
    async fn visible_mirror(&self, session: &str) -> Result<(SessionId, MirrorInfo, Role), ReplyError> {
        let id = SessionId::parse(session).map_err(|_| not_found())?;
        let mirror = mirror_info(&self.hub, session).await?.ok_or_else(not_found)?;
        let role = self.visitor.role(&mirror.owner, Some(session)).ok_or_else(not_found)?;
        Ok((id, mirror, role))
    }

    async fn watch(&mut self, id: u64, session: &str, after: Option<u64>) -> Result<(), ReplyError> {
        let (session, mirror, _) = self.visible_mirror(session).await?;
        self.watches.retain(|_, watch| !watch.task.is_finished());
        let before = self.watches.remove(&session);
        if before.is_none() && self.watches.len() >= WATCHES_MAX {
            let message = format!("a browser can watch at most {WATCHES_MAX} sessions; close one first");
            return Err(wrong("busy", message));
        }
        let MirrorInfo { named: machine, sealed, branch_of: of, .. } = mirror;
        let framing = ViewFraming { session: session.clone(), machine, sealed, of };
        let watch_task = WatchTask {
            feed: self.hub.feeds.of(&self.hub, &framing),
            session: session.clone(),
            after,
            outgoing: self.outgoing.clone(),
            _gauge: GaugeGuard::new(&self.hub.metrics.watches),
        };
        let cancel = self.cancel.child_token();
        let leaves = cancel.clone();
        let task = self.hub.tasks.spawn(async move {
            if let Some(before) = before {
                // A frame of the old watch must not follow the first view of the new one.
                before.cancel.cancel();
                drop(before.task.await);
            }
            tokio::select! {
                biased;
                () = leaves.cancelled() => {}
                () = watch_task.run(id) => {}
            }
        });
        self.watches.insert(session, WatchHandle { cancel, task });
        Ok(())
    }

    /// Forwards a request about a session to its machine.
    async fn ask_about(&mut self, id: u64, session: &str, request: Request) -> Result<(), BrowserGone> {
        let ready = async {
            let (session, mirror, role) = self.visible_mirror(session).await?;
            check_role(role, &request)?;
            if let Some(of) = &mirror.branch_of {
                return Ok(RequestTarget::BranchCopy { session, owner: mirror.owner, of: Arc::clone(of) });
            }
            if mirror.sealed {
                return Err(bad_request("this session is sealed: pair this device with its machine first"));
            }
            let machine = mirror.machine.as_deref().and_then(MachineId::parse);
            let machine = machine.ok_or_else(|| match mirror.named {
                Some(_) => not_connected(),
                None => bad_request("this session's bridge accepts only frames, at /ws/ID"),
            })?;
            let deletes = matches!(request, Request::Delete { .. });
            Ok(RequestTarget::Machine { machine, role, deletes: deletes.then_some((session, mirror.owner)) })
        };
        match ready.await {
            Ok(RequestTarget::BranchCopy { session, owner, of }) => {
                let answer = self.ask_branch_copy(&session, &owner, &of, &request).await;
                self.reply(id, answer).await
            }
            Ok(RequestTarget::Machine { machine, role, deletes }) => {
                let what = ForwardedRequest { word: audit_word(&request), session: Some(session), deletes };
                self.call(id, &machine, role, &RequestEnvelope { id, request }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    /// A branch is on no machine: it can be viewed and deleted.
    async fn ask_branch_copy(
        &self,
        session: &SessionId,
        owner: &PersonId,
        of: &str,
        request: &Request,
    ) -> Result<ReplyBody, ReplyError> {
        if !matches!(request, Request::Delete { .. }) {
            return Err(read_only_copy(of));
        }
        self.hub
            .forget(session, owner, self.address, i64::MAX)
            .await
            .map_err(|error| database_error(&error))?;
        Ok(ReplyBody::Done)
    }

    /// Forwards a request without a session to the machine that it names, if that is the visitor's own.
    async fn ask_machine(&mut self, id: u64, machine: &str, request: Request) -> Result<(), BrowserGone> {
        if let Some(session) = session_of(&request).map(str::to_owned) {
            return self.ask_about(id, &session, request).await;
        }
        let ready = async {
            let (machine, sealed) = self.own_machine(machine).await?;
            if sealed {
                return Err(bad_request("this machine is sealed: pair this device with it first"));
            }
            check_role(Role::Owner, &request)?;
            Ok(machine)
        };
        match ready.await {
            Ok(machine) => {
                let what = ForwardedRequest { word: audit_word(&request), session: None, deletes: None };
                self.call(id, &machine, Role::Owner, &RequestEnvelope { id, request }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    async fn own_machine(&self, machine: &str) -> Result<(MachineId, bool), ReplyError> {
        let unknown = || wrong("notFound", "no such machine");
        let id = MachineId::parse(machine).ok_or_else(unknown)?;
        let question =
            Statement::new("SELECT person, sealed FROM machines WHERE id = $1", [id.as_str().into()]);
        let rows = self.hub.rows(question).await.map_err(|error| database_error(&error))?;
        let row = rows.first().ok_or_else(unknown)?;
        let owner = PersonId(row.text(0).map_err(|error| database_error(&error))?);
        self.visitor.role(&owner, None).ok_or_else(unknown)?;
        Ok((id, row.int(1).map_err(|error| database_error(&error))? != 0))
    }

    /// Forwards a sealed request, which the hub cannot read: it knows only the visitor and the machine.
    async fn ask_sealed(
        &mut self,
        id: u64,
        machine: &str,
        session: Option<&str>,
        text: String,
    ) -> Result<(), BrowserGone> {
        let ready = async {
            match session {
                Some(session) => {
                    let (_, mirror, role) = self.visible_mirror(session).await?;
                    if let Some(of) = &mirror.branch_of {
                        return Err(read_only_copy(of));
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
                // Only the machine knows whether this deletes a session; its bridge reports it.
                let what = ForwardedRequest { word: "sealed", session, deletes: None };
                self.call(id, &machine, role, &Sealed { sealed: text }, what).await
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    /// Forwards a request, and starts a task that returns the answer.
    async fn call(
        &mut self,
        id: u64,
        machine: &MachineId,
        role: Role,
        body: &impl Serialize,
        what: ForwardedRequest<'_>,
    ) -> Result<(), BrowserGone> {
        // The semaphore is never closed. A browser with too many open requests is not read further.
        let permit = Arc::clone(&self.waiting).acquire_owned().await.map_err(|_| BrowserGone)?;
        let Ok(body) = to_raw_value(body) else {
            return self.reply(id, Err(bad_request("this request cannot be sent to a machine"))).await;
        };
        let ForwardedRequest { word, session, deletes } = what;
        let about = session.map_or_else(|| machine.to_string(), str::to_owned);
        let (person, by) = match &self.visitor.kind {
            VisitorKind::Person { id, .. } => (Some(id.0.as_ref()), String::new()),
            VisitorKind::ShareLink { share, .. } => (None, format!(" by share {share}")),
        };
        let entry =
            AuditEntry::new("call.relayed", person).about(format!("{word} {about}{by}")).from(self.address);
        match self.hub.call(machine, operator(&self.visitor, role), body).await {
            Ok(pending) => {
                self.hub.record(entry);
                let (outgoing, hub, address) = (self.outgoing.clone(), Arc::clone(&self.hub), self.address);
                self.start(async move {
                    let answer = pending.answer().await;
                    drop(permit);
                    if let (Some((session, owner)), Ok(body)) = (deletes, &answer)
                        && is_done(body)
                        && let Err(error) = hub.forget(&session, &owner, address, i64::MAX).await
                    {
                        // Its bridge reports the deletion too, and may have been first.
                        tracing::debug!(%session, %error, "a deleted session was not forgotten by its deletion");
                    }
                    // The browser may be gone.
                    drop(forward_reply(&outgoing, id, answer).await);
                });
                Ok(())
            }
            Err(wrong) => self.reply(id, Err(wrong)).await,
        }
    }

    async fn forget(&self, machine: &str) -> Result<(), ReplyError> {
        let (id, _) = self.own_machine(machine).await?;
        let VisitorKind::Person { id: person, .. } = &self.visitor.kind else { return Err(not_found()) };
        let mut work = hub_tables::forget_machine(id.as_str());
        let entry =
            AuditEntry::new("machine.forgotten", Some(&person.0)).about(id.as_str()).from(self.address);
        work.push(entry.statement(self.hub.now(), Some(self.hub.node.as_str())));
        let topics = vec![topics::person(&person.0), topics::machine(id.as_str()), people::TOPIC.to_owned()];
        self.hub.run(work, topics).await.map_err(|error| database_error(&error))?;
        if let Some(socket) = self.hub.machine_sockets.get(&id) {
            socket.close();
        }
        Ok(())
    }
}
