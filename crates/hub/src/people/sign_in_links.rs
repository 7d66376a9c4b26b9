//! Signing in with a link: the setup link of the first admin, invitations, and share links to one session.
//!
//! The code follows the `#` of the link, which browsers do not send; the page sends it here, in a body. A code for a person
//! can be used once; the code of a share link is valid for everybody until it ends.

use std::sync::Arc;

use access::Digest;
use access::devices::plain_name;
use axum::http::HeaderMap;
use engine::Timestamp;
use serde::Serialize;
use store::sql::{SqlValue, Statement};
use wire::native::Role;

use super::browsers::{BrowserOwner, NewBrowser};
use super::members::FIRST_PERSON;
use super::public_url::CookieKind;
use super::share_links::role_of;
use super::{People, PeopleAuditEntry, PeopleError, RefusalKind, RemoteAddress, new_code, new_id};
use crate::authenticator::{PersonId, VisitorKind};

/// How long a link for a person can be used.
const LINK_LIFE_MS: i64 = 7 * 24 * 60 * 60 * 1000;
const CODE_BYTES_MAX: usize = 128;

/// A link for a person, and the statement that stores it.
pub(super) struct SignInLink {
    pub url: String,
    pub until: Timestamp,
    pub work: Statement,
}

/// The response to a sign-in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SignedIn {
    pub device: Arc<str>,
    /// The person's name; nothing for a visitor with a share link.
    pub person: Option<Arc<str>>,
    pub role: Role,
    /// The only session that a visitor with a share link sees.
    pub session: Option<Arc<str>>,
    pub until: Option<i64>,
    /// The person has no passkey yet, and should be asked to add one.
    pub add_passkey: bool,
    /// The proof that the page sends beside the cookie from now on; nothing, if the browser was signed in already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// The content of a new cookie.
    #[serde(skip)]
    pub key: Option<(CookieKind, String)>,
}

/// A browser that signs in.
pub(super) struct SignInAttempt<'a> {
    pub headers: &'a HeaderMap,
    pub from: RemoteAddress,
    /// The name of the browser.
    pub browser: &'a str,
    /// The name that the first admin chose.
    pub person: Option<&'a str>,
}

impl People {
    /// A link for the first admin, while there are no people yet. Each call makes another one.
    pub async fn setup_link(&self) -> Result<Option<String>, PeopleError> {
        if !self.is_empty().await? {
            return Ok(None);
        }
        let (code, until) = (new_code()?, self.now().0 + LINK_LIFE_MS);
        let sql = "INSERT INTO joins (code, until) VALUES ($1, $2)";
        self.read(Statement::new(sql, [Digest::of(&code).hex().into(), until.into()])).await?;
        Ok(Some(format!("{}/login#setup.{code}", self.public_url.url())))
    }

    /// A link that signs in the person of this name, made on the hub's own machine.
    pub async fn link_for(&self, person: &str) -> Result<String, PeopleError> {
        let id = self.person_by_name(person).await?;
        let link = self.new_link(&id)?;
        let entry = PeopleAuditEntry { person: None, what: "person.link", about: &id.0, from: None };
        self.change(vec![link.work, self.audit_statement(entry)]).await?;
        Ok(link.url)
    }

    pub(super) fn new_link(&self, person: &PersonId) -> Result<SignInLink, PeopleError> {
        let (code, until) = (new_code()?, Timestamp(self.now().0 + LINK_LIFE_MS));
        let sql = "INSERT INTO joins (code, person, until) VALUES ($1, $2, $3)";
        let values: [SqlValue; 3] =
            [Digest::of(&code).hex().into(), Arc::clone(&person.0).into(), until.0.into()];
        let url = format!("{}/login#join.{code}", self.public_url.url());
        Ok(SignInLink { url, until, work: Statement::new(sql, values) })
    }

    /// Signs a browser in with the code of a link.
    pub(super) async fn sign_in_by_code(
        &self,
        code: &str,
        attempt: SignInAttempt<'_>,
    ) -> Result<SignedIn, PeopleError> {
        let code = code.trim();
        let bare =
            ["setup.", "join.", "share."].iter().find_map(|kind| code.strip_prefix(kind)).unwrap_or(code);
        if bare.is_empty() || bare.len() > CODE_BYTES_MAX {
            return Err(unknown());
        }
        let digest = Digest::of(bare).hex();
        let sql = "SELECT person, until, used_at FROM joins WHERE code = $1";
        let found = self.read(Statement::new(sql, [digest.as_str().into()])).await?;
        let Some(row) = found.rows.first() else { return self.sign_in_by_share(&digest, attempt).await };
        if row.maybe_int(2)?.is_some() {
            return Err(used());
        }
        if row.int(1)? <= self.now().0 {
            return Err(PeopleError::new(
                RefusalKind::CodeExpired,
                "this link has expired; ask for a new one",
            ));
        }
        match row.maybe_text(0)? {
            Some(person) => {
                self.use_join_code(&digest, &PersonId(person), attempt, Vec::new(), "person.entered").await
            }
            None => self.set_up(&digest, attempt).await,
        }
    }

    /// Makes the first admin. Of two attempts at the same moment, only one succeeds.
    async fn set_up(&self, digest: &str, attempt: SignInAttempt<'_>) -> Result<SignedIn, PeopleError> {
        let name = attempt.person.and_then(plain_name).unwrap_or_else(|| "admin".to_owned());
        let person = PersonId(new_id('p')?);
        let first = "INSERT INTO hub_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
        let work = vec![
            Statement::new(first, [FIRST_PERSON.into(), "there".into()]).must_change(1),
            self.new_person(&person, &name, true),
        ];
        self.use_join_code(digest, &person, attempt, work, "hub.set_up").await
    }

    async fn use_join_code(
        &self,
        digest: &str,
        person: &PersonId,
        attempt: SignInAttempt<'_>,
        before: Vec<Statement>,
        what: &'static str,
    ) -> Result<SignedIn, PeopleError> {
        let now = self.now();
        let take = "UPDATE joins SET used_at = $2 WHERE code = $1 AND used_at IS NULL AND until > $2";
        let mut work = vec![Statement::new(take, [digest.into(), now.0.into()]).must_change(1)];
        work.extend(before);
        let mut fresh = self.new_browser(BrowserOwner::Person(person), attempt.browser)?;
        work.extend(self.replaced_browser(attempt.headers, CookieKind::Person));
        work.append(&mut fresh.work);
        let seen = "UPDATE people SET seen_at = $2 WHERE id = $1";
        work.push(Statement::new(seen, [Arc::clone(&person.0).into(), now.0.into()]).must_change(1));
        let entry =
            PeopleAuditEntry { person: Some(person), what, about: &fresh.id, from: Some(attempt.from) };
        work.push(self.audit_statement(entry));
        if self.change(work).await?.is_none() {
            return Err(used());
        }
        self.check_revocations().await;
        self.signed_in(person, fresh).await
    }

    /// The response for a person who was just signed in.
    pub(super) async fn signed_in(
        &self,
        person: &PersonId,
        fresh: NewBrowser,
    ) -> Result<SignedIn, PeopleError> {
        let sql = "SELECT name, (SELECT COUNT(*) FROM passkeys WHERE person = $1) FROM people WHERE id = $1";
        let found = self.read(Statement::new(sql, [Arc::clone(&person.0).into()])).await?;
        let row = found.rows.first().ok_or_else(used)?;
        Ok(SignedIn {
            device: fresh.id,
            person: Some(row.text(0)?),
            role: Role::Owner,
            session: None,
            until: None,
            add_passkey: row.count(1)? == 0 && self.public_url.relying_party().is_some(),
            proof: Some(fresh.proof),
            key: Some((CookieKind::Person, fresh.key)),
        })
    }

    async fn sign_in_by_share(
        &self,
        digest: &str,
        attempt: SignInAttempt<'_>,
    ) -> Result<SignedIn, PeopleError> {
        let sql = "SELECT id, session, person, role, until FROM shares WHERE code = $1 AND EXISTS
            (SELECT 1 FROM mirrors WHERE mirrors.session = shares.session AND mirrors.person = shares.person)";
        let found = self.read(Statement::new(sql, [digest.into()])).await?;
        let Some(row) = found.rows.first() else { return Err(unknown()) };
        let (share, session, owner) = (row.text(0)?, row.text(1)?, PersonId(row.text(2)?));
        let (role, until) = (role_of(&row.text(3)?).unwrap_or(Role::Viewer), Timestamp(row.int(4)?));
        if until <= self.now() {
            return Err(PeopleError::new(
                RefusalKind::CodeExpired,
                "this link has expired or was revoked; ask whoever sent it for a new one",
            ));
        }
        if let Some(entered) = self.already_signed_in(&attempt, &share, &owner, &session).await? {
            return Ok(entered);
        }
        let fresh = self.new_browser(BrowserOwner::Share(&share), attempt.browser)?;
        let uses = "UPDATE shares SET uses = uses + 1 WHERE id = $1 AND until > $2";
        let values: [SqlValue; 2] = [Arc::clone(&share).into(), self.now().0.into()];
        let mut work = vec![Statement::new(uses, values).must_change(1)];
        work.extend(self.replaced_browser(attempt.headers, CookieKind::Share));
        work.extend(fresh.work);
        let entry = PeopleAuditEntry {
            person: Some(&owner),
            what: "share.used",
            about: &share,
            from: Some(attempt.from),
        };
        work.push(self.audit_statement(entry));
        if self.change(work).await?.is_none() {
            return Err(unknown());
        }
        Ok(SignedIn {
            device: fresh.id,
            person: None,
            role,
            session: Some(session),
            until: Some(until.0),
            add_passkey: false,
            proof: Some(fresh.proof),
            key: Some((CookieKind::Share, fresh.key)),
        })
    }

    /// The response for a browser that needs no new key: the session's owner, or a visitor who used this link before.
    async fn already_signed_in(
        &self,
        attempt: &SignInAttempt<'_>,
        share: &Arc<str>,
        owner: &PersonId,
        session: &Arc<str>,
    ) -> Result<Option<SignedIn>, PeopleError> {
        let visitor = match self.visitor_by_cookie(attempt.headers).await {
            Ok(visitor) => visitor,
            Err(PeopleError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let entered = |person, role, until| SignedIn {
            device: Arc::clone(&visitor.device),
            person,
            role,
            session: Some(Arc::clone(session)),
            until,
            add_passkey: false,
            proof: None,
            key: None,
        };
        Ok(match &visitor.kind {
            VisitorKind::Person { id, name, .. } if id == owner => {
                Some(entered(Some(Arc::clone(name)), Role::Owner, None))
            }
            VisitorKind::ShareLink { share: known, role, until, .. } if known == share => {
                Some(entered(None, *role, Some(until.0)))
            }
            VisitorKind::Person { .. } | VisitorKind::ShareLink { .. } => None,
        })
    }
}

fn unknown() -> PeopleError {
    let message = "this link is not valid here; check that it is for this hub, or ask for a new one";
    PeopleError::new(RefusalKind::CodeUnknown, message)
}

fn used() -> PeopleError {
    PeopleError::new(RefusalKind::CodeUsed, "this link has already been used; ask for a new one")
}
