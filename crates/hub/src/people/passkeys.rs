//! Passkeys: how somebody signs in without a link.
//!
//! The key is discoverable, so nobody says who they are before they are known, and nobody can ask which names exist.

mod cbor;
mod challenge;
mod webauthn;

use std::sync::Arc;

use access::devices::plain_name;
use access::{Digest, random, url_safe};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use store::sql::{Row, Statement, Value};
use wire::native::hub::{HubAnswered, PasskeyView};

use self::challenge::Purpose;
use self::webauthn::{Bad, EDDSA, ES256, NewKey, PublicKey, Site, client, decoded, new_key, signed};
use super::browsers::As;
use super::entrance::Entered;
use super::place::Jar;
use super::{Address, Failure, Member, Note, People, Why, new_id};
use crate::guest::{Guest, PersonId};

pub(super) use challenge::Challenges;

/// Passkeys of one person.
const PASSKEYS_MAX: usize = 32;
const TIMEOUT_MS: u32 = 300_000;

/// `PublicKeyCredential.toJSON()` of a new key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Created {
    raw_id: String,
    response: CreatedResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedResponse {
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    attestation_object: String,
}

/// `PublicKeyCredential.toJSON()` of a sign-in.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    raw_id: String,
    response: ShownResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownResponse {
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    authenticator_data: String,
    signature: String,
    user_handle: Option<String>,
}

/// A passkey as it is kept.
struct Kept {
    id: Arc<str>,
    person: PersonId,
    key: PublicKey,
    counter: u32,
}

impl People {
    fn site(&self) -> Result<Site<'_>, Failure> {
        let relying_party = self.place.relying_party().ok_or_else(|| {
            let message = "passkeys need a public address with a name and https://; use a link";
            Failure::new(Why::BadRequest, message)
        })?;
        Ok(Site { origin: self.place.url(), relying_party })
    }

    fn challenge(&self, purpose: Purpose<'_>) -> Result<String, Failure> {
        let random = random().map_err(Failure::NoRandom)?;
        Ok(url_safe(&self.challenges.make(purpose, &random, self.now())))
    }

    /// What a browser makes a passkey from, for who is signed in.
    pub(super) async fn begin_passkey(&self, guest: &Guest) -> Result<Json, Failure> {
        let site = self.site()?;
        let member = self.person(guest).await?;
        let known = self.credentials(&member).await?;
        let known: Vec<Json> = known.iter().map(|id| json!({ "type": "public-key", "id": id })).collect();
        let kind = |algorithm: i64| json!({ "type": "public-key", "alg": algorithm });
        Ok(json!({ "publicKey": {
            "rp": { "id": site.relying_party, "name": "Ropewalk" },
            "user": {
                "id": url_safe(member.id.0.as_bytes()),
                "name": member.name,
                "displayName": member.name,
            },
            "challenge": self.challenge(Purpose::Add(&member.id.0))?,
            "pubKeyCredParams": [kind(ES256), kind(EDDSA)],
            "timeout": TIMEOUT_MS,
            "excludeCredentials": known,
            "authenticatorSelection": {
                "residentKey": "required",
                "requireResidentKey": true,
                "userVerification": "required",
            },
            "attestation": "none",
        } }))
    }

    async fn credentials(&self, member: &Member) -> Result<Vec<Arc<str>>, Failure> {
        let sql = "SELECT credential FROM passkeys WHERE person = $1 ORDER BY created_at, id";
        let found = self.read(Statement::new(sql, [Arc::clone(&member.id.0).into()])).await?;
        found.rows.iter().map(|row| Ok(row.text(0)?)).collect()
    }

    pub(super) async fn finish_passkey(
        &self,
        guest: &Guest,
        created: &Created,
        name: &str,
        from: Address,
    ) -> Result<PasskeyView, Failure> {
        let site = self.site()?;
        let member = self.person(guest).await?;
        let (key, challenge) = read_created(created, site).map_err(bad)?;
        let used = self.used(Purpose::Add(&member.id.0), &challenge)?;
        if self.credentials(&member).await?.len() >= PASSKEYS_MAX {
            return Err(Failure::new(Why::TooMany, "you have as many passkeys as may be; remove one first"));
        }
        let (id, now) = (new_id('k')?, self.now().0);
        let name = plain_name(name).unwrap_or_else(|| "a passkey".to_owned());
        let values: [Value; 8] = [
            Arc::clone(&id).into(),
            url_safe(&key.credential).into(),
            Arc::clone(&member.id.0).into(),
            name.clone().into(),
            key.key.algorithm.into(),
            key.key.bytes.into(),
            i64::from(key.counter).into(),
            now.into(),
        ];
        let sql =
            "INSERT INTO passkeys (id, credential, person, name, algorithm, public, counter, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (credential) DO NOTHING";
        let note = Note { person: Some(&member.id), what: "passkey.added", about: &name, from: Some(from) };
        let work = vec![used, Statement::new(sql, values).must_change(1), self.noted(note)];
        if self.change(work).await?.is_none() {
            return Err(Failure::new(Why::Passkey, "this passkey is known already; sign in with it"));
        }
        Ok(PasskeyView { id: id.to_string(), name, created_at: now, used_at: None })
    }

    /// What a browser asks its authenticator with. Who it is shows afterwards.
    pub(super) fn begin_enter(&self) -> Result<Json, Failure> {
        let site = self.site()?;
        Ok(json!({ "publicKey": {
            "challenge": self.challenge(Purpose::Enter)?,
            "rpId": site.relying_party,
            "allowCredentials": [],
            "userVerification": "required",
            "timeout": TIMEOUT_MS,
        } }))
    }

    pub(super) async fn finish_enter(
        &self,
        shown: &Shown,
        browser: &str,
        headers: &HeaderMap,
        from: Address,
    ) -> Result<Entered, Failure> {
        let site = self.site()?;
        let json = decoded(&shown.response.client_data).map_err(bad)?;
        let client = client(&json, "webauthn.get", site).map_err(bad)?;
        let used = self.used(Purpose::Enter, &client.challenge)?;
        let credential = decoded(&shown.raw_id).map_err(bad)?;
        let Some(kept) = self.kept(&url_safe(&credential)).await? else {
            let message = "this passkey is not known here; sign in by a link, and add it then";
            return Err(Failure::new(Why::Passkey, message));
        };
        let counter = match judge(&kept, shown, &client, site) {
            Ok(counter) => counter,
            Err(message) => {
                self.note_refusal(&kept, from).await;
                return Err(Failure::new(Why::Passkey, message));
            }
        };
        let mut fresh = self.new_browser(As::Person(&kept.person), browser)?;
        let (now, id) = (self.now().0, Value::from(Arc::clone(&kept.id)));
        let count = "UPDATE passkeys SET counter = $2, used_at = $3 WHERE id = $1 AND counter = $4";
        let values: [Value; 4] = [id, i64::from(counter).into(), now.into(), i64::from(kept.counter).into()];
        let seen = "UPDATE people SET seen_at = $2 WHERE id = $1";
        let mut work = vec![
            used,
            Statement::new(count, values).must_change(1),
            Statement::new(seen, [Arc::clone(&kept.person.0).into(), now.into()]).must_change(1),
        ];
        work.extend(self.replaces(headers, Jar::Person));
        work.append(&mut fresh.work);
        let what = "passkey.entered";
        work.push(self.noted(Note { person: Some(&kept.person), what, about: &fresh.id, from: Some(from) }));
        if self.change(work).await?.is_none() {
            return Err(Failure::new(Why::Passkey, "this was used already; sign in again"));
        }
        self.look().await;
        self.entered(&kept.person, fresh).await
    }

    /// Takes a challenge, which is good once.
    fn used(&self, purpose: Purpose<'_>, challenge: &[u8]) -> Result<Statement, Failure> {
        let until = self.challenges.check(purpose, challenge, self.now()).ok_or_else(|| {
            Failure::new(Why::Passkey, "this took too long, or was asked for by somebody else; try again")
        })?;
        let sql =
            "INSERT INTO challenges_used (digest, until) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING";
        let digest = Digest::of(&url_safe(challenge)).hex();
        Ok(Statement::new(sql, [digest.into(), until.0.into()]).must_change(1))
    }

    async fn kept(&self, credential: &str) -> Result<Option<Kept>, Failure> {
        let sql = "SELECT id, person, algorithm, public, counter FROM passkeys WHERE credential = $1";
        let found = self.read(Statement::new(sql, [credential.into()])).await?;
        let kept = |row: &Row| {
            Ok(Kept {
                id: row.text(0)?,
                person: PersonId(row.text(1)?),
                key: PublicKey { algorithm: row.int(2)?, bytes: row.bytes(3)?.to_vec() },
                counter: u32::try_from(row.int(4)?).unwrap_or(u32::MAX),
            })
        };
        found.rows.first().map(kept).transpose()
    }

    async fn note_refusal(&self, kept: &Kept, from: Address) {
        let what = "passkey.refused";
        let note = self.noted(Note { person: Some(&kept.person), what, about: &kept.id, from: Some(from) });
        if let Err(error) = self.db.run(vec![note], Vec::new()).await {
            tracing::warn!(%error, "it was not written down that a passkey was refused");
        }
    }

    pub(super) async fn passkeys(&self, guest: &Guest) -> Result<HubAnswered, Failure> {
        let member = self.person(guest).await?;
        let sql =
            "SELECT id, name, created_at, used_at FROM passkeys WHERE person = $1 ORDER BY created_at, id";
        let found = self.read(Statement::new(sql, [Arc::clone(&member.id.0).into()])).await?;
        let view = |row: &Row| {
            Ok::<_, Failure>(PasskeyView {
                id: row.text(0)?.to_string(),
                name: row.text(1)?.to_string(),
                created_at: row.int(2)?,
                used_at: row.maybe_int(3)?,
            })
        };
        Ok(HubAnswered::Passkeys { passkeys: found.rows.iter().map(view).collect::<Result<_, _>>()? })
    }

    pub(super) async fn drop_passkey(&self, guest: &Guest, passkey: &str) -> Result<HubAnswered, Failure> {
        let member = self.person(guest).await?;
        let sql = "DELETE FROM passkeys WHERE id = $1 AND person = $2";
        let delete = Statement::new(sql, [passkey.into(), Arc::clone(&member.id.0).into()]).must_change(1);
        let note = Note { person: Some(&member.id), what: "passkey.dropped", about: passkey, from: None };
        if self.change(vec![delete, self.noted(note)]).await?.is_none() {
            return Err(Failure::new(Why::NotFound, "you have no such passkey; look at the list again"));
        }
        self.passkeys(guest).await
    }
}

fn bad(bad: Bad) -> Failure {
    Failure::new(Why::Passkey, format!("this passkey is not taken: {bad}; try again, or use a link"))
}

/// The new key, and the challenge that it answers.
fn read_created(created: &Created, site: Site<'_>) -> Result<(NewKey, Vec<u8>), Bad> {
    let json = decoded(&created.response.client_data)?;
    let client = client(&json, "webauthn.create", site)?;
    let key = new_key(&decoded(&created.response.attestation_object)?, site)?;
    if decoded(&created.raw_id)? != key.credential {
        return Err(Bad::Malformed);
    }
    Ok((key, client.challenge))
}

/// The counter of a good sign-in, or why it is none.
fn judge(kept: &Kept, shown: &Shown, client: &webauthn::Client, site: Site<'_>) -> Result<u32, String> {
    let said = |bad: Bad| format!("this passkey is not taken: {bad}; try again, or use a link");
    let owner = decoded(shown.response.user_handle.as_deref().unwrap_or_default()).map_err(said)?;
    if owner != kept.person.0.as_bytes() {
        return Err("this passkey belongs to somebody else; use another, or a link".into());
    }
    let data = decoded(&shown.response.authenticator_data).map_err(said)?;
    let signature = decoded(&shown.response.signature).map_err(said)?;
    let counter = signed(&kept.key, &data, &signature, client, site).map_err(said)?;
    // Most authenticators of today do not count: they say 0 each time.
    if (counter, kept.counter) != (0, 0) && counter <= kept.counter {
        return Err("this passkey was copied: its counter went back; sign in by a link, and remove it".into());
    }
    Ok(counter)
}
