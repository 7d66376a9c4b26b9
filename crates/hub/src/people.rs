//! The people of a hub: their browsers, their machines' tokens, and their share links.
//!
//! ```text
//! setup link, invitation ──┐
//! passkey ─────────────────┼──> browser (a cookie) ──> Visitor: a person, or the holder of a link to one session
//! link to a session ───────┘
//! token of a person ──────────> MachineToken: a machine
//! ```
//!
//! Everything is in the hub's database, so that every node knows the same; secrets are stored as digests only. A visitor
//! or machine that was admitted learns when its access is revoked (`revocation`). Another way to sign in, with an external
//! identity provider for example, would end where the others do: in `browsers::new_browser`.

mod browsers;
mod machine_tokens;
mod members;
mod passkeys;
mod people_error;
mod people_tables;
mod public_url;
mod revocation;
mod share_links;
mod sign_in_links;
mod sign_in_routes;
mod web_push;

use std::fmt;
use std::sync::{Arc, Mutex};

use access::devices::Presence;
use access::devices::push::{Push, PushAddressPolicy, PushSender, VapidKeyError};
use access::{AuthRateLimit, BadName, Refusal, random, url_safe};
use axum::http::HeaderMap;
use engine::{BoxFuture, Clock, Timestamp};
use store::sql::{Db, DbError, Statement, StatementResult, migrate};
use tokio_util::sync::CancellationToken;
use wire::native::ReplyError;
use wire::native::hub_requests::{HubReplyBody, HubRequest};

use self::passkeys::Challenges;
use self::public_url::PublicUrl;
use self::revocation::{Credential, Revocations};
use crate::audit;
use crate::authenticator::{HubAuthenticator, HubVisitor, MachineToken, PersonId, VisitorKind};

pub use people_error::{PeopleError, RefusalKind};
pub(crate) use revocation::TOPIC;
pub use sign_in_routes::{RemoteAddress, routes, throttle};
pub use web_push::SessionNews;

/// Deletes what else belongs to a removed person, in the same transaction.
pub type ForgetPerson = fn(&PersonId) -> Vec<Statement>;

pub struct PeopleOptions {
    /// Where browsers reach the hub, as in `https://hub.example.org`.
    pub public_url: String,
    /// A proxy in front of the hub names the client in `X-Forwarded-For`.
    pub behind_proxy: bool,
    pub clock: Arc<dyn Clock>,
    /// The name of this node, for the audit.
    pub node: Arc<str>,
    pub forgets: ForgetPerson,
    /// Without it, the hub sends no notifications.
    pub push: Option<PushOptions>,
}

pub struct PushOptions {
    /// The addresses that pushes may be sent to.
    pub reach: PushAddressPolicy,
    /// A `mailto:` or `https:` address that push services may write to.
    pub contact: String,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the public address must look like https://hub.example.org")]
    Address(#[source] BadName),
    #[error("could not read the people of this hub")]
    Unread(#[source] PeopleError),
    #[error("there is no push key")]
    Key(#[source] VapidKeyError),
}

/// The accounts of a hub, kept in its database.
pub struct People {
    db: Arc<dyn Db>,
    clock: Arc<dyn Clock>,
    node: Arc<str>,
    public_url: PublicUrl,
    behind_proxy: bool,
    forgets: ForgetPerson,
    revocations: Revocations,
    presence: Presence,
    wrong: Mutex<AuthRateLimit>,
    challenges: Challenges,
    push: Option<Arc<Push>>,
    /// Taken by the task that runs it.
    office: Mutex<Option<PushSender>>,
}

/// Creates the tables of people, if they do not exist yet.
pub(crate) async fn lay_out(db: &dyn Db) -> Result<(), DbError> {
    migrate(db, "people", &people_tables::STEPS).await
}

impl People {
    pub async fn open(db: Arc<dyn Db>, options: PeopleOptions) -> Result<Arc<Self>, OpenError> {
        let public_url = PublicUrl::parse(&options.public_url).map_err(OpenError::Address)?;
        lay_out(&*db).await.map_err(|error| OpenError::Unread(error.into()))?;
        let fresh = url_safe(&random().map_err(|error| OpenError::Unread(PeopleError::NoRandom(error)))?);
        let key = secret(&*db, "challenges", fresh).await.map_err(OpenError::Unread)?;
        let pushes = match options.push {
            Some(given) => Some(web_push::open(&*db, given, Arc::clone(&options.clock)).await?),
            None => None,
        };
        let (push, office) = pushes.unzip();
        Ok(Arc::new(Self {
            db,
            clock: options.clock,
            node: options.node,
            public_url,
            behind_proxy: options.behind_proxy,
            forgets: options.forgets,
            revocations: Revocations::default(),
            presence: Presence::default(),
            wrong: Mutex::default(),
            challenges: Challenges::new(key.as_bytes()),
            push,
            office: Mutex::new(office),
        }))
    }

    /// Runs one statement.
    async fn read(&self, statement: Statement) -> Result<StatementResult, PeopleError> {
        let found = self.db.run(vec![statement], Vec::new()).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// Runs statements in one transaction and notifies all nodes. `None` if one of them did not change what it must.
    async fn change(&self, work: Vec<Statement>) -> Result<Option<Vec<StatementResult>>, PeopleError> {
        let done = match self.db.run(work, vec![TOPIC.to_owned()]).await {
            Ok(found) => Some(found),
            Err(DbError::Refused { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(done)
    }

    /// The person behind a visitor, looked up now: the visitor may have been signed out while the request was on its way.
    async fn person(&self, visitor: &HubVisitor) -> Result<Member, PeopleError> {
        if let VisitorKind::ShareLink { .. } = &visitor.kind {
            let message = "this link gives access to one session; sign in for anything else";
            return Err(PeopleError::new(RefusalKind::Forbidden, message));
        }
        let sql = "SELECT people.id, people.name, people.admin FROM browsers
                   JOIN people ON people.id = browsers.person WHERE browsers.id = $1";
        let found = self.read(Statement::new(sql, [Arc::clone(&visitor.device).into()])).await?;
        let Some(row) = found.rows.first().filter(|_| !visitor.revoked.is_cancelled()) else {
            return Err(PeopleError::new(
                RefusalKind::SignedOut,
                "this browser was signed out; sign in again",
            ));
        };
        Ok(Member { id: PersonId(row.text(0)?), name: row.text(1)?, admin: row.int(2)? != 0 })
    }

    async fn admin(&self, visitor: &HubVisitor) -> Result<Member, PeopleError> {
        let member = self.person(visitor).await?;
        if member.admin {
            return Ok(member);
        }
        Err(PeopleError::new(RefusalKind::Forbidden, "only an admin of this hub can do this; ask one"))
    }

    /// Writes an audit entry, in the same transaction as the change that it records.
    fn audit_statement(&self, entry: PeopleAuditEntry<'_>) -> Statement {
        let person = entry.person.map(|person| &*person.0);
        let statement = audit::AuditEntry::new(entry.what, person).about(entry.about);
        statement.from(entry.from.map(|from| from.0)).statement(self.now(), Some(&self.node))
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A person who was looked up just now.
struct Member {
    id: PersonId,
    name: Arc<str>,
    admin: bool,
}

/// An audit entry about people.
struct PeopleAuditEntry<'a> {
    person: Option<&'a PersonId>,
    what: &'static str,
    about: &'a str,
    from: Option<RemoteAddress>,
}

impl HubAuthenticator for People {
    fn visitor<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<HubVisitor, Refusal>> {
        Box::pin(async move { self.visitor_by_cookie(headers).await.map_err(PeopleError::refusal) })
    }

    fn machine<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<MachineToken, Refusal>> {
        Box::pin(async move { self.machine_token(headers).await })
    }

    fn revoked(&self, machine_token: &MachineToken) -> CancellationToken {
        self.revocations.existing(&Credential::Token(Arc::clone(&machine_token.token)))
    }

    fn answer<'a>(
        &'a self,
        visitor: &'a HubVisitor,
        request: HubRequest,
    ) -> BoxFuture<'a, Result<Result<HubReplyBody, ReplyError>, HubRequest>> {
        Box::pin(async move {
            let answered = match request {
                HubRequest::Share { session, role, until } => {
                    self.share(visitor, &session, role, Timestamp(until)).await
                }
                HubRequest::Shares { session } => self.shares(visitor, &session).await,
                HubRequest::Unshare { share } => self.unshare(visitor, &share).await,
                HubRequest::Tokens => self.tokens(visitor).await,
                HubRequest::MakeToken { name, until } => {
                    self.make_token(visitor, &name, until.map(Timestamp)).await
                }
                HubRequest::DropToken { token } => self.drop_token(visitor, &token).await,
                HubRequest::People => self.people(visitor).await,
                HubRequest::InvitePerson { name, admin } => self.invite(visitor, &name, admin).await,
                HubRequest::RemovePerson { person } => self.remove(visitor, &person).await,
                HubRequest::Passkeys => self.passkeys(visitor).await,
                HubRequest::DropPasskey { passkey } => self.drop_passkey(visitor, &passkey).await,
                HubRequest::ToMachine { .. }
                | HubRequest::Sealed { .. }
                | HubRequest::Machines
                | HubRequest::ForgetMachine { .. } => return Err(request),
            };
            Ok(answered.map_err(PeopleError::wrong))
        })
    }
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("People").field("place", &self.public_url).finish_non_exhaustive()
    }
}

/// A secret that all nodes share: the first node creates it.
async fn secret(db: &dyn Db, name: &'static str, fresh: String) -> Result<Arc<str>, PeopleError> {
    let make = "INSERT INTO hub_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    let read = "SELECT secret FROM hub_secrets WHERE name = $1";
    let work = vec![Statement::new(make, [name.into(), fresh.into()]), Statement::new(read, [name.into()])];
    let found = db.run(work, Vec::new()).await?;
    let row = found.get(1).and_then(|found| found.rows.first());
    let missing = || DbError::Failed { reason: format!("the secret {name} cannot be kept") };
    Ok(row.ok_or_else(missing)?.text(0)?)
}

/// Makes an id: short, because people see it. It starts with a letter, so that it never looks like a command-line option.
fn new_id(letter: char) -> Result<Arc<str>, PeopleError> {
    let bytes = random().map_err(PeopleError::NoRandom)?;
    Ok(format!("{letter}{}", url_safe(&bytes[..12]).replace(['-', '_'], "x")).into())
}

/// A random code for a link.
fn new_code() -> Result<String, PeopleError> {
    Ok(url_safe(&random().map_err(PeopleError::NoRandom)?[..24]))
}
