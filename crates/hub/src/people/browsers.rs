//! Browsers that are signed in: as a person, or by a link to one session.
//!
//! A browser has a key in a cookie that no script can read, and a proof that its page shows beside it, because a cookie
//! goes to every port of its host (`access::Proofs`). Both are good for as long as they are shown once in thirty
//! days, and for a browser that came by a link until the link ends.

use std::sync::Arc;

use access::devices::{Seat, plain_name};
use access::{Digest, Proofs, random, url_safe};
use axum::http::HeaderMap;
use engine::Timestamp;
use store::sql::{Row, Statement, Value};
use wire::native::{Device, Role, Subscription};

use super::ends::{IDS_AT_ONCE, Stay, among};
use super::place::Jar;
use super::shares::role_of;
use super::{Address, Failure, Note, People, Why, new_id};
use crate::guest::{Guest, PersonId, Who};

/// A browser that was not seen for this long has to sign in again.
pub(super) const ABSENCE_MAX_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How exactly it is known when a browser was here last.
const SEEN_EVERY_MS: i64 = 60 * 1000;
/// Browsers of one person, or of one link; the one that was away for longest makes room.
const BROWSERS_MAX: u64 = 64;
/// A key is 43 characters; what is longer was not made here.
const KEY_BYTES_MAX: usize = 128;
/// For how long another node is believed that somebody looks at a browser.
pub(super) const LOOK_LIFE_MS: i64 = 30 * 1000;

/// Whom a browser is signed in as.
#[derive(Debug, Clone, Copy)]
pub(super) enum As<'a> {
    Person(&'a PersonId),
    Share(&'a str),
}

/// A key and its proof that were just made, and what keeps them.
pub(super) struct Fresh {
    pub key: String,
    pub proof: String,
    pub id: Arc<str>,
    pub work: Vec<Statement>,
}

/// What is read of a browser to know who it is. A link is good while the session is that of who made it.
const WHO: &str = "SELECT browsers.id, browsers.seen_at, people.id, people.name, people.admin,
        shares.id, shares.session, shares.role, shares.until, shares.person, browsers.proof
    FROM browsers
    LEFT JOIN people ON people.id = browsers.person
    LEFT JOIN shares ON shares.id = browsers.share AND EXISTS
        (SELECT 1 FROM mirrors WHERE mirrors.session = shares.session AND mirrors.person = shares.person)
    WHERE browsers.key = $1";

/// Whose key it is.
enum Arrived {
    Guest(Guest),
    /// The key is right and came without its proof.
    Unproven,
    Nobody,
}

impl People {
    /// Who shows a cookie and its proof. A link to a session comes before the sign-in, for as long as it is good.
    pub(super) async fn arrival(&self, headers: &HeaderMap) -> Result<Guest, Failure> {
        let mut unproven = false;
        if self.place.trusts_cookies_of(headers) {
            let proofs = Proofs::read(headers);
            for jar in [Jar::Share, Jar::Person] {
                let Some(key) = self.place.key(headers, jar) else { continue };
                match self.by_key(&key, &proofs).await? {
                    Arrived::Guest(guest) => return Ok(guest),
                    Arrived::Unproven => unproven = true,
                    Arrived::Nobody => {}
                }
            }
        }
        if unproven {
            let message = "the cookie alone signs nobody in, and the proof that the app keeps beside it is missing or \
                wrong; sign in again with a passkey or a link";
            return Err(Failure::new(Why::SignInAgain, message));
        }
        Err(Failure::new(Why::SignedOut, "this browser is not signed in; sign in with a passkey or a link"))
    }

    async fn by_key(&self, key: &str, proofs: &Proofs) -> Result<Arrived, Failure> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(Arrived::Nobody);
        }
        let found = self.read(Statement::new(WHO, [Digest::of(key).hex().into()])).await?;
        let Some(row) = found.rows.first() else { return Ok(Arrived::Nobody) };
        let (now, seen) = (self.now(), row.int(1)?);
        let Some((who, until)) = who(row)? else { return Ok(Arrived::Nobody) };
        if now.0 - seen > ABSENCE_MAX_MS || until.is_some_and(|until| until <= now) {
            return Ok(Arrived::Nobody);
        }
        let proof = row.maybe_text(10)?.and_then(|digest| Digest::parse(&digest));
        if !proofs.show(proof.as_ref()) {
            return Ok(Arrived::Unproven);
        }
        let device = row.text(0)?;
        if now.0 - seen >= SEEN_EVERY_MS {
            self.was_seen(&device, &who).await;
        }
        let ended = self.ends.of(Stay::Browser(Arc::clone(&device)), until);
        Ok(Arrived::Guest(Guest { who, device, ended }))
    }

    /// That it was not written down keeps nobody out.
    async fn was_seen(&self, device: &Arc<str>, who: &Who) {
        let now = Value::from(self.now().0);
        let browser = "UPDATE browsers SET seen_at = $2 WHERE id = $1";
        let mut work = vec![Statement::new(browser, [Arc::clone(device).into(), now.clone()])];
        if let Who::Person { id, .. } = who {
            let person = "UPDATE people SET seen_at = $2 WHERE id = $1";
            work.push(Statement::new(person, [Arc::clone(&id.0).into(), now]));
        }
        if let Err(error) = self.db.run(work, Vec::new()).await {
            tracing::warn!(%error, "it was not written down that a browser was here");
        }
    }

    /// A key and a proof for a browser. The statements are for the transaction in which it is let in.
    pub(super) fn new_browser(&self, signed_in: As<'_>, name: &str) -> Result<Fresh, Failure> {
        let secret = || random().map(|bytes| url_safe(&bytes)).map_err(Failure::NoRandom);
        let (key, proof) = (secret()?, secret()?);
        let (id, now) = (new_id('b')?, self.now().0);
        let name = plain_name(name).unwrap_or_else(|| "a browser".to_owned());
        let (column, owner) = match signed_in {
            As::Person(id) => ("person", Arc::clone(&id.0)),
            As::Share(id) => ("share", Arc::from(id)),
        };
        let oldest = format!(
            "DELETE FROM browsers WHERE {column} = $1 AND id NOT IN
             (SELECT id FROM browsers WHERE {column} = $1 ORDER BY seen_at DESC, id LIMIT $2)"
        );
        let room = Statement::new(oldest, [Arc::clone(&owner).into(), Value::from(BROWSERS_MAX - 1)]);
        let insert = format!(
            "INSERT INTO browsers (id, key, {column}, name, created_at, seen_at, proof)
             VALUES ($1, $2, $3, $4, $5, $5, $6)"
        );
        let digest = |secret: &str| Value::from(Digest::of(secret).hex());
        let values: [Value; 6] =
            [Arc::clone(&id).into(), digest(&key), owner.into(), name.into(), now.into(), digest(&proof)];
        Ok(Fresh { key, proof, id, work: vec![room, Statement::new(insert, values)] })
    }

    /// The browser whose key this is gives way to a new one of the same person: it signed in again.
    pub(super) fn replaces(&self, headers: &HeaderMap, jar: Jar) -> Option<Statement> {
        let key = self.place.key(headers, jar).filter(|key| key.len() <= KEY_BYTES_MAX)?;
        let trusted = self.place.trusts_cookies_of(headers);
        trusted
            .then(|| Statement::new("DELETE FROM browsers WHERE key = $1", [Digest::of(&key).hex().into()]))
    }

    /// The browsers that are signed in as this person, for `native::Request::Devices`.
    pub async fn devices(&self, guest: &Guest) -> Result<Vec<Device>, Failure> {
        let member = self.person(guest).await?;
        let sql = "SELECT id, name, created_at, seen_at, endpoint, muted_until FROM browsers
                   WHERE person = $1 AND seen_at >= $2 ORDER BY created_at, id";
        let since = self.now().0 - ABSENCE_MAX_MS;
        let found = self.read(Statement::new(sql, [member.id.0.into(), since.into()])).await?;
        let now = self.now().0;
        let device = |row: &Row| {
            Ok(Device {
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
    pub async fn revoke(&self, guest: &Guest, device: &str) -> Result<(), Failure> {
        let member = self.person(guest).await?;
        let sql = "DELETE FROM browsers WHERE id = $1 AND person = $2";
        let delete = Statement::new(sql, [device.into(), Arc::clone(&member.id.0).into()]).must_change(1);
        let note = Note { person: Some(&member.id), what: "browser.revoked", about: device, from: None };
        if self.change(vec![delete, self.noted(note)]).await?.is_none() {
            return Err(Failure::new(Why::NotFound, "you have no such browser; look at the list again"));
        }
        self.look().await;
        Ok(())
    }

    /// Signs this browser out, whoever it belongs to.
    pub(super) async fn leave(&self, guest: &Guest, from: Address) -> Result<Jar, Failure> {
        let delete = Statement::new("DELETE FROM browsers WHERE id = $1", [Arc::clone(&guest.device).into()]);
        let (jar, person) = match &guest.who {
            Who::Person { id, .. } => (Jar::Person, Some(id)),
            Who::Bearer { .. } => (Jar::Share, None),
        };
        let note = Note { person, what: "browser.left", about: &guest.device, from: Some(from) };
        self.change(vec![delete, self.noted(note)]).await?;
        self.look().await;
        Ok(jar)
    }

    /// A place for one line of a guest, for as long as it lasts: who looks at a session needs no push.
    pub fn seat(&self, guest: &Guest) -> Seat {
        self.presence.seat(Some(Arc::clone(&guest.device)), guest.ended.clone())
    }

    /// Somebody looks at this browser, or nobody. Other nodes learn of it too.
    pub async fn looks(&self, seat: &Seat, guest: &Guest, visible: bool) {
        seat.look(visible);
        let at = visible.then(|| self.now().0);
        let sql = "UPDATE browsers SET looked_at = $2 WHERE id = $1";
        let update = Statement::new(sql, [Arc::clone(&guest.device).into(), at.into()]);
        if let Err(error) = self.db.run(vec![update], Vec::new()).await {
            tracing::debug!(%error, "other nodes do not know who looks");
        }
    }

    pub(super) async fn tell_who_looks(&self) {
        let seated = self.presence.seated();
        for some in seated.chunks(IDS_AT_ONCE) {
            let sql = "UPDATE browsers SET looked_at = $1 WHERE id IN";
            let update = among(sql, vec![self.now().0.into()], some);
            if let Err(error) = self.db.run(vec![update], Vec::new()).await {
                tracing::debug!(%error, "other nodes do not know who looks");
            }
        }
    }

    /// For `native::Request::Mute`.
    pub async fn mute(&self, guest: &Guest, until: Option<Timestamp>) -> Result<(), Failure> {
        self.person(guest).await?;
        let sql = "UPDATE browsers SET muted_until = $2 WHERE id = $1";
        let until = until.map(|until| until.0);
        self.read(Statement::new(sql, [Arc::clone(&guest.device).into(), until.into()])).await?;
        Ok(())
    }

    pub(super) async fn keep_subscription(
        &self,
        device: &Arc<str>,
        subscription: Option<Subscription>,
    ) -> Result<(), Failure> {
        let (endpoint, p256dh, auth) = match subscription {
            Some(Subscription { endpoint, p256dh, auth }) => (Some(endpoint), Some(p256dh), Some(auth)),
            None => (None, None, None),
        };
        let sql = "UPDATE browsers SET endpoint = $2, p256dh = $3, auth = $4 WHERE id = $1";
        let values: [Value; 4] = [Arc::clone(device).into(), endpoint.into(), p256dh.into(), auth.into()];
        self.read(Statement::new(sql, values)).await?;
        Ok(())
    }
}

/// Nobody, if the person or the link is gone.
fn who(row: &Row) -> Result<Option<(Who, Option<Timestamp>)>, Failure> {
    if let Some(person) = row.maybe_text(2)? {
        let who = Who::Person { id: PersonId(person), name: row.text(3)?, admin: row.int(4)? != 0 };
        return Ok(Some((who, None)));
    }
    let Some(share) = row.maybe_text(5)? else { return Ok(None) };
    let Some(role) = role_of(&row.text(7)?) else { return Ok(None) };
    let until = Timestamp(row.int(8)?);
    let (session, owner) = (row.text(6)?, PersonId(row.text(9)?));
    Ok(Some((Who::Bearer { share, session, owner, role, until }, Some(until))))
}
