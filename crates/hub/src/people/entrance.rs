//! How somebody comes in by a link: the first admin, who was invited, and who holds a link to one session.
//!
//! The code stands after the `#` of the link, which browsers do not send; the page sends it here, in a body. A code
//! for a person is used up by the first who comes; that of a session is good for everybody until it ends.

use std::sync::Arc;

use access::Digest;
use access::devices::plain_name;
use axum::http::HeaderMap;
use engine::Timestamp;
use serde::Serialize;
use store::sql::{Statement, Value};
use wire::native::Role;

use super::browsers::{As, Fresh};
use super::members::FIRST;
use super::place::Jar;
use super::shares::role_of;
use super::{Address, Failure, Note, People, Why, new_code, new_id};
use crate::guest::{PersonId, Who};

/// How long a link for a person can be used.
const LINK_LIFE_MS: i64 = 7 * 24 * 60 * 60 * 1000;
const CODE_BYTES_MAX: usize = 128;

/// A link for a person, and what keeps it.
pub(super) struct Link {
    pub url: String,
    pub until: Timestamp,
    pub work: Statement,
}

/// Somebody came in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entered {
    pub device: Arc<str>,
    /// Who they are: their own name, or nothing for who came by a link to one session.
    pub person: Option<Arc<str>>,
    pub role: Role,
    /// The only session that they see.
    pub session: Option<Arc<str>>,
    pub until: Option<i64>,
    /// They have none yet, and should be asked to add one.
    pub add_passkey: bool,
    /// What their page shows beside the cookie from here on; nothing, if they were here already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// What their cookie holds, if it is a new one.
    #[serde(skip)]
    pub key: Option<(Jar, String)>,
}

/// What somebody who comes says of themselves.
pub(super) struct Arriving<'a> {
    pub headers: &'a HeaderMap,
    pub from: Address,
    /// What the browser calls itself.
    pub browser: &'a str,
    /// What the first admin wants to be called.
    pub person: Option<&'a str>,
}

impl People {
    /// A link for the first admin, for as long as there is nobody. Each call makes another.
    pub async fn setup_link(&self) -> Result<Option<String>, Failure> {
        if !self.is_empty().await? {
            return Ok(None);
        }
        let (code, until) = (new_code()?, self.now().0 + LINK_LIFE_MS);
        let sql = "INSERT INTO joins (code, until) VALUES ($1, $2)";
        self.read(Statement::new(sql, [Digest::of(&code).hex().into(), until.into()])).await?;
        Ok(Some(format!("{}/login#setup.{code}", self.place.url())))
    }

    /// A link that signs somebody in by their name, made on the hub's own machine.
    pub async fn link_for(&self, person: &str) -> Result<String, Failure> {
        let id = self.called(person).await?;
        let link = self.new_link(&id)?;
        let note = Note { person: None, what: "person.link", about: &id.0, from: None };
        self.change(vec![link.work, self.noted(note)]).await?;
        Ok(link.url)
    }

    pub(super) fn new_link(&self, person: &PersonId) -> Result<Link, Failure> {
        let (code, until) = (new_code()?, Timestamp(self.now().0 + LINK_LIFE_MS));
        let sql = "INSERT INTO joins (code, person, until) VALUES ($1, $2, $3)";
        let values: [Value; 3] =
            [Digest::of(&code).hex().into(), Arc::clone(&person.0).into(), until.0.into()];
        let url = format!("{}/login#join.{code}", self.place.url());
        Ok(Link { url, until, work: Statement::new(sql, values) })
    }

    /// Somebody comes with a code.
    pub(super) async fn enter(&self, code: &str, arriving: Arriving<'_>) -> Result<Entered, Failure> {
        let code = code.trim();
        let bare =
            ["setup.", "join.", "share."].iter().find_map(|kind| code.strip_prefix(kind)).unwrap_or(code);
        if bare.is_empty() || bare.len() > CODE_BYTES_MAX {
            return Err(unknown());
        }
        let digest = Digest::of(bare).hex();
        let sql = "SELECT person, until, used_at FROM joins WHERE code = $1";
        let found = self.read(Statement::new(sql, [digest.as_str().into()])).await?;
        let Some(row) = found.rows.first() else { return self.enter_by_share(&digest, arriving).await };
        if row.maybe_int(2)?.is_some() {
            return Err(used());
        }
        if row.int(1)? <= self.now().0 {
            return Err(Failure::new(Why::CodeExpired, "this link has expired; ask for a new one"));
        }
        match row.maybe_text(0)? {
            Some(person) => {
                self.join(&digest, &PersonId(person), arriving, Vec::new(), "person.entered").await
            }
            None => self.set_up(&digest, arriving).await,
        }
    }

    /// The first admin. Of two who come at the same moment one is the first.
    async fn set_up(&self, digest: &str, arriving: Arriving<'_>) -> Result<Entered, Failure> {
        let name = arriving.person.and_then(plain_name).unwrap_or_else(|| "admin".to_owned());
        let person = PersonId(new_id('p')?);
        let first = "INSERT INTO hub_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
        let work = vec![
            Statement::new(first, [FIRST.into(), "there".into()]).must_change(1),
            self.new_person(&person, &name, true),
        ];
        self.join(digest, &person, arriving, work, "hub.set_up").await
    }

    async fn join(
        &self,
        digest: &str,
        person: &PersonId,
        arriving: Arriving<'_>,
        before: Vec<Statement>,
        what: &'static str,
    ) -> Result<Entered, Failure> {
        let now = self.now();
        let take = "UPDATE joins SET used_at = $2 WHERE code = $1 AND used_at IS NULL AND until > $2";
        let mut work = vec![Statement::new(take, [digest.into(), now.0.into()]).must_change(1)];
        work.extend(before);
        let mut fresh = self.new_browser(As::Person(person), arriving.browser)?;
        work.extend(self.replaces(arriving.headers, Jar::Person));
        work.append(&mut fresh.work);
        let seen = "UPDATE people SET seen_at = $2 WHERE id = $1";
        work.push(Statement::new(seen, [Arc::clone(&person.0).into(), now.0.into()]).must_change(1));
        let note = Note { person: Some(person), what, about: &fresh.id, from: Some(arriving.from) };
        work.push(self.noted(note));
        if self.change(work).await?.is_none() {
            return Err(used());
        }
        self.look().await;
        self.entered(person, fresh).await
    }

    /// What a person who was just let in is told.
    pub(super) async fn entered(&self, person: &PersonId, fresh: Fresh) -> Result<Entered, Failure> {
        let sql = "SELECT name, (SELECT COUNT(*) FROM passkeys WHERE person = $1) FROM people WHERE id = $1";
        let found = self.read(Statement::new(sql, [Arc::clone(&person.0).into()])).await?;
        let row = found.rows.first().ok_or_else(used)?;
        Ok(Entered {
            device: fresh.id,
            person: Some(row.text(0)?),
            role: Role::Owner,
            session: None,
            until: None,
            add_passkey: row.count(1)? == 0 && self.place.relying_party().is_some(),
            proof: Some(fresh.proof),
            key: Some((Jar::Person, fresh.key)),
        })
    }

    async fn enter_by_share(&self, digest: &str, arriving: Arriving<'_>) -> Result<Entered, Failure> {
        let sql = "SELECT id, session, person, role, until FROM shares WHERE code = $1 AND EXISTS
            (SELECT 1 FROM mirrors WHERE mirrors.session = shares.session AND mirrors.person = shares.person)";
        let found = self.read(Statement::new(sql, [digest.into()])).await?;
        let Some(row) = found.rows.first() else { return Err(unknown()) };
        let (share, session, owner) = (row.text(0)?, row.text(1)?, PersonId(row.text(2)?));
        let (role, until) = (role_of(&row.text(3)?).unwrap_or(Role::Viewer), Timestamp(row.int(4)?));
        if until <= self.now() {
            return Err(Failure::new(Why::CodeExpired, "this link has ended; ask who sent it for a new one"));
        }
        if let Some(entered) = self.needs_no_link(&arriving, &share, &owner, &session).await? {
            return Ok(entered);
        }
        let fresh = self.new_browser(As::Share(&share), arriving.browser)?;
        let uses = "UPDATE shares SET uses = uses + 1 WHERE id = $1 AND until > $2";
        let values: [Value; 2] = [Arc::clone(&share).into(), self.now().0.into()];
        let mut work = vec![Statement::new(uses, values).must_change(1)];
        work.extend(self.replaces(arriving.headers, Jar::Share));
        work.extend(fresh.work);
        let note =
            Note { person: Some(&owner), what: "share.used", about: &share, from: Some(arriving.from) };
        work.push(self.noted(note));
        if self.change(work).await?.is_none() {
            return Err(unknown());
        }
        Ok(Entered {
            device: fresh.id,
            person: None,
            role,
            session: Some(session),
            until: Some(until.0),
            add_passkey: false,
            proof: Some(fresh.proof),
            key: Some((Jar::Share, fresh.key)),
        })
    }

    /// Who owns the session stays who they are, and who came by this link before is here already.
    async fn needs_no_link(
        &self,
        arriving: &Arriving<'_>,
        share: &Arc<str>,
        owner: &PersonId,
        session: &Arc<str>,
    ) -> Result<Option<Entered>, Failure> {
        let guest = match self.arrival(arriving.headers).await {
            Ok(guest) => guest,
            Err(Failure::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let entered = |person, role, until| Entered {
            device: Arc::clone(&guest.device),
            person,
            role,
            session: Some(Arc::clone(session)),
            until,
            add_passkey: false,
            proof: None,
            key: None,
        };
        Ok(match &guest.who {
            Who::Person { id, name, .. } if id == owner => {
                Some(entered(Some(Arc::clone(name)), Role::Owner, None))
            }
            Who::Bearer { share: known, role, until, .. } if known == share => {
                Some(entered(None, *role, Some(until.0)))
            }
            Who::Person { .. } | Who::Bearer { .. } => None,
        })
    }
}

fn unknown() -> Failure {
    let message = "this link opens nothing here; ask for a new one, and check that it is for this hub";
    Failure::new(Why::CodeUnknown, message)
}

fn used() -> Failure {
    Failure::new(Why::CodeUsed, "this link was used already; ask for a new one")
}
