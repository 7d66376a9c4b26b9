//! Browsers that are signed in: as a person, or by a link to one session.
//!
//! A browser has a key in a cookie that no script can read, and a proof that its page sends beside it, because a cookie
//! is sent to every port of its host (`access::Proofs`). Both are valid while they are used once in thirty days; for a
//! browser with a share link, until the link ends.

use std::sync::Arc;

use access::devices::{PresenceHandle, plain_name};
use access::{Digest, Proofs, random, url_safe};
use axum::http::HeaderMap;
use engine::Timestamp;
use store::sql::{Row, SqlValue, Statement};
use wire::native::{DeviceView, PushSubscription, Role};

use super::public_url::CookieKind;
use super::revocation::{Credential, IDS_AT_ONCE, among};
use super::share_links::role_of;
use super::{People, PeopleAuditEntry, PeopleError, RefusalKind, RemoteAddress, new_id};
use crate::authenticator::{HubVisitor, PersonId, VisitorKind};

/// A browser that was not seen for this long has to sign in again.
pub(super) const ABSENCE_MAX_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How often the time of a browser's last visit is written.
const SEEN_EVERY_MS: i64 = 60 * 1000;
/// Browsers of one person, or of one link; beyond that, the one that was not seen for longest is signed out.
const BROWSERS_MAX: u64 = 64;
/// A key is 43 characters; what is longer was not made here.
const KEY_BYTES_MAX: usize = 128;
/// How long `looked_at`, written by another node, counts as presence.
pub(super) const LOOK_LIFE_MS: i64 = 30 * 1000;

/// What a browser is signed in as.
#[derive(Debug, Clone, Copy)]
pub(super) enum BrowserOwner<'a> {
    Person(&'a PersonId),
    Share(&'a str),
}

/// A new key and its proof, and the statements that store them.
pub(super) struct NewBrowser {
    pub key: String,
    pub proof: String,
    pub id: Arc<str>,
    pub work: Vec<Statement>,
}

/// Reads a browser by its key. A share link is valid while the session belongs to the person who made the link.
const WHO: &str = "SELECT browsers.id, browsers.seen_at, people.id, people.name, people.admin,
        shares.id, shares.session, shares.role, shares.until, shares.person, browsers.proof
    FROM browsers
    LEFT JOIN people ON people.id = browsers.person
    LEFT JOIN shares ON shares.id = browsers.share AND EXISTS
        (SELECT 1 FROM mirrors WHERE mirrors.session = shares.session AND mirrors.person = shares.person)
    WHERE browsers.key = $1";

/// The result of looking a key up.
enum KeyLookup {
    Visitor(HubVisitor),
    /// The key is valid, but its proof is missing or wrong.
    Unproven,
    Nobody,
}

impl People {
    /// The visitor with this cookie and proof. A valid share link takes precedence over the sign-in.
    pub(super) async fn visitor_by_cookie(&self, headers: &HeaderMap) -> Result<HubVisitor, PeopleError> {
        let mut unproven = false;
        if self.public_url.trusts_cookies_of(headers) {
            let proofs = Proofs::read(headers);
            for cookie_kind in [CookieKind::Share, CookieKind::Person] {
                let Some(key) = self.public_url.key(headers, cookie_kind) else { continue };
                match self.by_key(&key, &proofs).await? {
                    KeyLookup::Visitor(visitor) => return Ok(visitor),
                    KeyLookup::Unproven => unproven = true,
                    KeyLookup::Nobody => {}
                }
            }
        }
        if unproven {
            let message = "the cookie is valid only together with the key that the app stores in this browser, which is missing or wrong; sign in again with a passkey or a link";
            return Err(PeopleError::new(RefusalKind::SignInAgain, message));
        }
        Err(PeopleError::new(
            RefusalKind::SignedOut,
            "this browser is not signed in; sign in with a passkey or a link",
        ))
    }

    async fn by_key(&self, key: &str, proofs: &Proofs) -> Result<KeyLookup, PeopleError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(KeyLookup::Nobody);
        }
        let found = self.read(Statement::new(WHO, [Digest::of(key).hex().into()])).await?;
        let Some(row) = found.rows.first() else { return Ok(KeyLookup::Nobody) };
        let (now, seen) = (self.now(), row.int(1)?);
        let Some((kind, until)) = visitor_kind(row)? else { return Ok(KeyLookup::Nobody) };
        if now.0 - seen > ABSENCE_MAX_MS || until.is_some_and(|until| until <= now) {
            return Ok(KeyLookup::Nobody);
        }
        let proof = row.maybe_text(10)?.and_then(|digest| Digest::parse(&digest));
        if !proofs.show(proof.as_ref()) {
            return Ok(KeyLookup::Unproven);
        }
        let device = row.text(0)?;
        if now.0 - seen >= SEEN_EVERY_MS {
            self.record_seen(&device, &kind).await;
        }
        let revoked = self.revocations.register(Credential::Browser(Arc::clone(&device)), until);
        Ok(KeyLookup::Visitor(HubVisitor { kind, device, revoked }))
    }

    /// Writes the time of the visit. A failure signs nobody out.
    async fn record_seen(&self, device: &Arc<str>, kind: &VisitorKind) {
        let now = SqlValue::from(self.now().0);
        let browser = "UPDATE browsers SET seen_at = $2 WHERE id = $1";
        let mut work = vec![Statement::new(browser, [Arc::clone(device).into(), now.clone()])];
        if let VisitorKind::Person { id, .. } = kind {
            let person = "UPDATE people SET seen_at = $2 WHERE id = $1";
            work.push(Statement::new(person, [Arc::clone(&id.0).into(), now]));
        }
        if let Err(error) = self.db.run(work, Vec::new()).await {
            tracing::warn!(%error, "could not record when a browser was last seen");
        }
    }

    /// Makes a key and a proof for a browser. The statements belong in the transaction that signs it in.
    pub(super) fn new_browser(
        &self,
        signed_in: BrowserOwner<'_>,
        name: &str,
    ) -> Result<NewBrowser, PeopleError> {
        let secret = || random().map(|bytes| url_safe(&bytes)).map_err(PeopleError::NoRandom);
        let (key, proof) = (secret()?, secret()?);
        let (id, now) = (new_id('b')?, self.now().0);
        let name = plain_name(name).unwrap_or_else(|| "a browser".to_owned());
        let (column, owner) = match signed_in {
            BrowserOwner::Person(id) => ("person", Arc::clone(&id.0)),
            BrowserOwner::Share(id) => ("share", Arc::from(id)),
        };
        let oldest = format!(
            "DELETE FROM browsers WHERE {column} = $1 AND id NOT IN
             (SELECT id FROM browsers WHERE {column} = $1 ORDER BY seen_at DESC, id LIMIT $2)"
        );
        let room = Statement::new(oldest, [Arc::clone(&owner).into(), SqlValue::from(BROWSERS_MAX - 1)]);
        let insert = format!(
            "INSERT INTO browsers (id, key, {column}, name, created_at, seen_at, proof)
             VALUES ($1, $2, $3, $4, $5, $5, $6)"
        );
        let digest = |secret: &str| SqlValue::from(Digest::of(secret).hex());
        let values: [SqlValue; 6] =
            [Arc::clone(&id).into(), digest(&key), owner.into(), name.into(), now.into(), digest(&proof)];
        Ok(NewBrowser { key, proof, id, work: vec![room, Statement::new(insert, values)] })
    }

    /// Deletes the browser with the request's key, which a new one replaces: it signed in again.
    pub(super) fn replaced_browser(&self, headers: &HeaderMap, cookie_kind: CookieKind) -> Option<Statement> {
        let key = self.public_url.key(headers, cookie_kind).filter(|key| key.len() <= KEY_BYTES_MAX)?;
        let trusted = self.public_url.trusts_cookies_of(headers);
        trusted
            .then(|| Statement::new("DELETE FROM browsers WHERE key = $1", [Digest::of(&key).hex().into()]))
    }

    /// The browsers that are signed in as this person, for `native::Request::Devices`.
    pub async fn devices(&self, visitor: &HubVisitor) -> Result<Vec<DeviceView>, PeopleError> {
        let member = self.person(visitor).await?;
        let sql = "SELECT id, name, created_at, seen_at, endpoint, muted_until FROM browsers
                   WHERE person = $1 AND seen_at >= $2 ORDER BY created_at, id";
        let since = self.now().0 - ABSENCE_MAX_MS;
        let found = self.read(Statement::new(sql, [member.id.0.into(), since.into()])).await?;
        let now = self.now().0;
        let device = |row: &Row| {
            Ok(DeviceView {
                id: row.text(0)?.to_string(),
                name: row.text(1)?.to_string(),
                role: Role::Owner,
                created_at: row.int(2)?,
                seen_at: Some(row.int(3)?),
                push: row.maybe_text(4)?.is_some(),
                muted_until: row.maybe_int(5)?.filter(|until| *until > now),
            })
        };
        found.rows.iter().map(device).collect()
    }

    /// Signs a browser of the same person out, for `native::Request::Revoke`.
    pub async fn revoke(&self, visitor: &HubVisitor, device: &str) -> Result<(), PeopleError> {
        let member = self.person(visitor).await?;
        let sql = "DELETE FROM browsers WHERE id = $1 AND person = $2";
        let delete = Statement::new(sql, [device.into(), Arc::clone(&member.id.0).into()]).must_change(1);
        let entry =
            PeopleAuditEntry { person: Some(&member.id), what: "browser.revoked", about: device, from: None };
        if self.change(vec![delete, self.audit_statement(entry)]).await?.is_none() {
            return Err(PeopleError::new(RefusalKind::NotFound, "no such browser; reload the list"));
        }
        self.check_revocations().await;
        Ok(())
    }

    /// Signs this browser out, whoever it belongs to.
    pub(super) async fn sign_out(
        &self,
        visitor: &HubVisitor,
        from: RemoteAddress,
    ) -> Result<CookieKind, PeopleError> {
        let delete =
            Statement::new("DELETE FROM browsers WHERE id = $1", [Arc::clone(&visitor.device).into()]);
        let (cookie_kind, person) = match &visitor.kind {
            VisitorKind::Person { id, .. } => (CookieKind::Person, Some(id)),
            VisitorKind::ShareLink { .. } => (CookieKind::Share, None),
        };
        let entry =
            PeopleAuditEntry { person, what: "browser.left", about: &visitor.device, from: Some(from) };
        self.change(vec![delete, self.audit_statement(entry)]).await?;
        self.check_revocations().await;
        Ok(cookie_kind)
    }

    /// Registers a connection of a visitor in the presence table: a browser that is looked at needs no push.
    pub fn seat(&self, visitor: &HubVisitor) -> PresenceHandle {
        self.presence.open(Some(Arc::clone(&visitor.device)), visitor.revoked.clone())
    }

    /// Records whether this browser is in view. Other nodes learn of it too.
    pub async fn looks(&self, seat: &PresenceHandle, visitor: &HubVisitor, visible: bool) {
        seat.look(visible);
        let at = visible.then(|| self.now().0);
        let sql = "UPDATE browsers SET looked_at = $2 WHERE id = $1";
        let update = Statement::new(sql, [Arc::clone(&visitor.device).into(), at.into()]);
        if let Err(error) = self.db.run(vec![update], Vec::new()).await {
            tracing::debug!(%error, "could not tell other nodes who is watching");
        }
    }

    pub(super) async fn publish_presence(&self) {
        let seated = self.presence.visible_devices();
        for some in seated.chunks(IDS_AT_ONCE) {
            let sql = "UPDATE browsers SET looked_at = $1 WHERE id IN";
            let update = among(sql, vec![self.now().0.into()], some);
            if let Err(error) = self.db.run(vec![update], Vec::new()).await {
                tracing::debug!(%error, "could not tell other nodes who is watching");
            }
        }
    }

    /// For `native::Request::Mute`.
    pub async fn mute(&self, visitor: &HubVisitor, until: Option<Timestamp>) -> Result<(), PeopleError> {
        self.person(visitor).await?;
        let sql = "UPDATE browsers SET muted_until = $2 WHERE id = $1";
        let until = until.map(|until| until.0);
        self.read(Statement::new(sql, [Arc::clone(&visitor.device).into(), until.into()])).await?;
        Ok(())
    }

    pub(super) async fn keep_subscription(
        &self,
        device: &Arc<str>,
        subscription: Option<PushSubscription>,
    ) -> Result<(), PeopleError> {
        let (endpoint, p256dh, auth) = match subscription {
            Some(PushSubscription { endpoint, p256dh, auth }) => (Some(endpoint), Some(p256dh), Some(auth)),
            None => (None, None, None),
        };
        let sql = "UPDATE browsers SET endpoint = $2, p256dh = $3, auth = $4 WHERE id = $1";
        let values: [SqlValue; 4] = [Arc::clone(device).into(), endpoint.into(), p256dh.into(), auth.into()];
        self.read(Statement::new(sql, values)).await?;
        Ok(())
    }
}

/// `None` if the person or the link is gone.
fn visitor_kind(row: &Row) -> Result<Option<(VisitorKind, Option<Timestamp>)>, PeopleError> {
    if let Some(person) = row.maybe_text(2)? {
        let kind = VisitorKind::Person { id: PersonId(person), name: row.text(3)?, admin: row.int(4)? != 0 };
        return Ok(Some((kind, None)));
    }
    let Some(share) = row.maybe_text(5)? else { return Ok(None) };
    let Some(role) = role_of(&row.text(7)?) else { return Ok(None) };
    let until = Timestamp(row.int(8)?);
    let (session, owner) = (row.text(6)?, PersonId(row.text(9)?));
    Ok(Some((VisitorKind::ShareLink { share, session, owner, role, until }, Some(until))))
}
