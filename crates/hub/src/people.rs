//! The people of a hub, their browsers, and the machines and guests that they let in.
//!
//! ```text
//! setup link, invitation ──┐
//! passkey ─────────────────┼──> browser (a cookie) ──> Guest: a person, or the bearer of a link to one session
//! link to a session ───────┘
//! token of a person ──────────> Bearer: a machine
//! ```
//!
//! Everything is in the hub's database, so that every node knows the same, and nothing that opens a door is in it
//! but as a digest. Whoever is let in learns when that is over (`ends`). Another way to sign in, by somebody
//! else's identities for example, would end where the others do: in `browsers::new_browser`.

mod browsers;
mod ends;
mod entrance;
mod failure;
mod layout;
mod members;
mod passkeys;
mod place;
mod push;
mod routes;
mod shares;
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex};

use access::devices::Presence;
use access::devices::push::{KeyError, Office, Push, Reach};
use access::{BadName, Refusal, WrongTokens, random, url_safe};
use axum::http::HeaderMap;
use engine::{BoxFuture, Clock, Timestamp};
use store::sql::{Db, DbError, Found, Statement, migrate};
use tokio_util::sync::CancellationToken;
use wire::native::Wrong;
use wire::native::hub::{HubAnswered, HubRequest};

use self::ends::{Ends, Stay};
use self::passkeys::Challenges;
use self::place::Place;
use crate::audit;
use crate::guest::{Bearer, Doorkeeper, Guest, PersonId, Who};

pub(crate) use ends::TOPIC;
pub use failure::{Failure, Why};
pub use push::News;
pub use routes::{Address, routes, slow_down};

/// What else has to go when a person does, in the same transaction.
pub type Forgets = fn(&PersonId) -> Vec<Statement>;

pub struct PeopleOptions {
    /// Where browsers find the hub, as in `https://hub.example.org`.
    pub public_url: String,
    /// A proxy stands before the hub, and says in `X-Forwarded-For` for whom it speaks.
    pub behind_proxy: bool,
    pub clock: Arc<dyn Clock>,
    /// The name of this node, for the audit.
    pub node: Arc<str>,
    pub forgets: Forgets,
    /// No notifications without.
    pub push: Option<PushOptions>,
}

pub struct PushOptions {
    /// Where pushes may go.
    pub reach: Reach,
    /// A `mailto:` or `https:` address that push services may write to.
    pub contact: String,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the public address is not one such as https://hub.example.org")]
    Address(#[source] BadName),
    #[error("the people of this hub cannot be read")]
    Unread(#[source] Failure),
    #[error("there is no key for pushes")]
    Key(#[source] KeyError),
}

/// Knows everybody at this hub.
pub struct People {
    db: Arc<dyn Db>,
    clock: Arc<dyn Clock>,
    node: Arc<str>,
    place: Place,
    behind_proxy: bool,
    forgets: Forgets,
    ends: Ends,
    presence: Presence,
    wrong: Mutex<WrongTokens>,
    challenges: Challenges,
    push: Option<Arc<Push>>,
    /// Until somebody runs it.
    office: Mutex<Option<Office>>,
}

/// Makes the tables of people, if they are not there yet.
pub(crate) async fn lay_out(db: &dyn Db) -> Result<(), DbError> {
    migrate(db, "people", &layout::STEPS).await
}

impl People {
    pub async fn open(db: Arc<dyn Db>, options: PeopleOptions) -> Result<Arc<Self>, OpenError> {
        let place = Place::parse(&options.public_url).map_err(OpenError::Address)?;
        lay_out(&*db).await.map_err(|error| OpenError::Unread(error.into()))?;
        let fresh = url_safe(&random().map_err(|error| OpenError::Unread(Failure::NoRandom(error)))?);
        let key = secret(&*db, "challenges", fresh).await.map_err(OpenError::Unread)?;
        let pushes = match options.push {
            Some(given) => Some(push::open(&*db, given, Arc::clone(&options.clock)).await?),
            None => None,
        };
        let (push, office) = pushes.unzip();
        Ok(Arc::new(Self {
            db,
            clock: options.clock,
            node: options.node,
            place,
            behind_proxy: options.behind_proxy,
            forgets: options.forgets,
            ends: Ends::default(),
            presence: Presence::default(),
            wrong: Mutex::default(),
            challenges: Challenges::new(key.as_bytes()),
            push,
            office: Mutex::new(office),
        }))
    }

    /// One statement that only reads.
    async fn read(&self, statement: Statement) -> Result<Found, Failure> {
        let found = self.db.run(vec![statement], Vec::new()).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// Several statements, of which every node hears. Nothing, if one of them did not find what it must.
    async fn change(&self, work: Vec<Statement>) -> Result<Option<Vec<Found>>, Failure> {
        let done = match self.db.run(work, vec![TOPIC.to_owned()]).await {
            Ok(found) => Some(found),
            Err(DbError::Refused { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(done)
    }

    /// Who a guest is at this moment. A request may have been on its way while they were signed out.
    async fn person(&self, guest: &Guest) -> Result<Member, Failure> {
        if let Who::Bearer { .. } = &guest.who {
            let message = "this link shows one session; sign in for anything else";
            return Err(Failure::new(Why::Forbidden, message));
        }
        let sql = "SELECT people.id, people.name, people.admin FROM browsers
                   JOIN people ON people.id = browsers.person WHERE browsers.id = $1";
        let found = self.read(Statement::new(sql, [Arc::clone(&guest.device).into()])).await?;
        let Some(row) = found.rows.first().filter(|_| !guest.ended.is_cancelled()) else {
            return Err(Failure::new(Why::SignedOut, "this browser was signed out; sign in again"));
        };
        Ok(Member { id: PersonId(row.text(0)?), name: row.text(1)?, admin: row.int(2)? != 0 })
    }

    async fn admin(&self, guest: &Guest) -> Result<Member, Failure> {
        let member = self.person(guest).await?;
        if member.admin {
            return Ok(member);
        }
        Err(Failure::new(Why::Forbidden, "this takes an admin of this hub; ask one"))
    }

    /// A row of the hub's audit, for the same transaction as what it is about.
    fn noted(&self, note: Note<'_>) -> Statement {
        let person = note.person.map(|person| &*person.0);
        let noted = audit::Note::new(note.what, person).about(note.about);
        noted.from(note.from.map(|from| from.0)).statement(self.now(), Some(&self.node))
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Somebody who was looked up just now.
struct Member {
    id: PersonId,
    name: Arc<str>,
    admin: bool,
}

/// Something that belongs in the audit.
struct Note<'a> {
    person: Option<&'a PersonId>,
    what: &'static str,
    about: &'a str,
    from: Option<Address>,
}

impl Doorkeeper for People {
    fn guest<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Guest, Refusal>> {
        Box::pin(async move { self.arrival(headers).await.map_err(Failure::refusal) })
    }

    fn machine<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Bearer, Refusal>> {
        Box::pin(async move { self.bearer(headers).await })
    }

    fn ended(&self, bearer: &Bearer) -> CancellationToken {
        self.ends.again(&Stay::Token(Arc::clone(&bearer.token)))
    }

    fn answer<'a>(
        &'a self,
        guest: &'a Guest,
        request: HubRequest,
    ) -> BoxFuture<'a, Result<Result<HubAnswered, Wrong>, HubRequest>> {
        Box::pin(async move {
            let answered = match request {
                HubRequest::Share { session, role, until } => {
                    self.share(guest, &session, role, Timestamp(until)).await
                }
                HubRequest::Shares { session } => self.shares(guest, &session).await,
                HubRequest::Unshare { share } => self.unshare(guest, &share).await,
                HubRequest::Tokens => self.tokens(guest).await,
                HubRequest::MakeToken { name, until } => {
                    self.make_token(guest, &name, until.map(Timestamp)).await
                }
                HubRequest::DropToken { token } => self.drop_token(guest, &token).await,
                HubRequest::People => self.people(guest).await,
                HubRequest::InvitePerson { name, admin } => self.invite(guest, &name, admin).await,
                HubRequest::RemovePerson { person } => self.remove(guest, &person).await,
                HubRequest::Passkeys => self.passkeys(guest).await,
                HubRequest::DropPasskey { passkey } => self.drop_passkey(guest, &passkey).await,
                HubRequest::At { .. }
                | HubRequest::Sealed { .. }
                | HubRequest::Machines
                | HubRequest::ForgetMachine { .. } => return Err(request),
            };
            Ok(answered.map_err(Failure::wrong))
        })
    }
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("People").field("place", &self.place).finish_non_exhaustive()
    }
}

/// A secret that all nodes share: whoever comes first makes it.
async fn secret(db: &dyn Db, name: &'static str, fresh: String) -> Result<Arc<str>, Failure> {
    let make = "INSERT INTO hub_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    let read = "SELECT secret FROM hub_secrets WHERE name = $1";
    let work = vec![Statement::new(make, [name.into(), fresh.into()]), Statement::new(read, [name.into()])];
    let found = db.run(work, Vec::new()).await?;
    let row = found.get(1).and_then(|found| found.rows.first());
    let missing = || DbError::Failed { reason: format!("the secret {name} cannot be kept") };
    Ok(row.ok_or_else(missing)?.text(0)?)
}

/// Short, because people see it. The first character is a letter, so that an id is never an option of a command.
fn new_id(letter: char) -> Result<Arc<str>, Failure> {
    let bytes = random().map_err(Failure::NoRandom)?;
    Ok(format!("{letter}{}", url_safe(&bytes[..12]).replace(['-', '_'], "x")).into())
}

/// Random bytes for a link.
fn new_code() -> Result<String, Failure> {
    Ok(url_safe(&random().map_err(Failure::NoRandom)?[..24]))
}
