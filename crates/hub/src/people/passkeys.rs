//! Passkeys: signing in without a link.
//!
//! The keys are discoverable: a browser names nobody before the sign-in, so nobody can find out which names exist.

mod cbor;
mod challenge;
mod webauthn;

use std::sync::Arc;

use access::devices::plain_name;
use access::{Digest, random, url_safe};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use store::sql::{Row, SqlValue, Statement};
use wire::native::hub_requests::{HubReplyBody, PasskeyView};

use self::challenge::Purpose;
use self::webauthn::{
    EDDSA, ES256, NewKey, PublicKey, RelyingParty, WebauthnError, decode, verify_assertion,
    verify_attestation, verify_client_data,
};
use super::browsers::BrowserOwner;
use super::public_url::CookieKind;
use super::sign_in_links::SignedIn;
use super::{Member, People, PeopleAuditEntry, PeopleError, RefusalKind, RemoteAddress, new_id};
use crate::authenticator::{HubVisitor, PersonId};

pub(super) use challenge::Challenges;

/// Passkeys of one person.
const PASSKEYS_MAX: usize = 32;
const TIMEOUT_MS: u32 = 300_000;

/// `PublicKeyCredential.toJSON()` of a registration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegistrationResponse {
    raw_id: String,
    response: AttestationResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttestationResponse {
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    attestation_object: String,
}

/// `PublicKeyCredential.toJSON()` of a sign-in.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationResponse {
    raw_id: String,
    response: AssertionResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AssertionResponse {
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    authenticator_data: String,
    signature: String,
    user_handle: Option<String>,
}

/// A passkey as it is stored.
struct StoredPasskey {
    id: Arc<str>,
    person: PersonId,
    key: PublicKey,
    counter: u32,
}

impl People {
    fn site(&self) -> Result<RelyingParty<'_>, PeopleError> {
        let relying_party = self.public_url.relying_party().ok_or_else(|| {
            let message = "passkeys need a public URL with a host name and https://; use a link";
            PeopleError::new(RefusalKind::BadRequest, message)
        })?;
        Ok(RelyingParty { origin: self.public_url.url(), relying_party })
    }

    fn challenge(&self, purpose: Purpose<'_>) -> Result<String, PeopleError> {
        let random = random().map_err(PeopleError::NoRandom)?;
        Ok(url_safe(&self.challenges.make(purpose, &random, self.now())))
    }

    /// The options with which a browser of a signed-in person creates a passkey.
    pub(super) async fn begin_registration(&self, visitor: &HubVisitor) -> Result<Json, PeopleError> {
        let site = self.site()?;
        let member = self.person(visitor).await?;
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

    async fn credentials(&self, member: &Member) -> Result<Vec<Arc<str>>, PeopleError> {
        let sql = "SELECT credential FROM passkeys WHERE person = $1 ORDER BY created_at, id";
        let found = self.read(Statement::new(sql, [Arc::clone(&member.id.0).into()])).await?;
        found.rows.iter().map(|row| Ok(row.text(0)?)).collect()
    }

    pub(super) async fn finish_registration(
        &self,
        visitor: &HubVisitor,
        created: &RegistrationResponse,
        name: &str,
        from: RemoteAddress,
    ) -> Result<PasskeyView, PeopleError> {
        let site = self.site()?;
        let member = self.person(visitor).await?;
        let (key, challenge) = read_created(created, site).map_err(passkey_refused)?;
        let consume = self.consume_challenge(Purpose::Add(&member.id.0), &challenge)?;
        if self.credentials(&member).await?.len() >= PASSKEYS_MAX {
            return Err(PeopleError::new(
                RefusalKind::TooMany,
                "you have the maximum number of passkeys; remove one first",
            ));
        }
        let (id, now) = (new_id('k')?, self.now().0);
        let name = plain_name(name).unwrap_or_else(|| "a passkey".to_owned());
        let values: [SqlValue; 8] = [
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
        let entry = PeopleAuditEntry {
            person: Some(&member.id),
            what: "passkey.added",
            about: &name,
            from: Some(from),
        };
        let work = vec![consume, Statement::new(sql, values).must_change(1), self.audit_statement(entry)];
        if self.change(work).await?.is_none() {
            return Err(PeopleError::new(
                RefusalKind::Passkey,
                "this passkey was already added; sign in with it",
            ));
        }
        Ok(PasskeyView { id: id.to_string(), name, created_at: now, used_at: None })
    }

    /// The options with which a browser asks its authenticator. The person is known only from the response.
    pub(super) fn begin_sign_in(&self) -> Result<Json, PeopleError> {
        let site = self.site()?;
        Ok(json!({ "publicKey": {
            "challenge": self.challenge(Purpose::SignIn)?,
            "rpId": site.relying_party,
            "allowCredentials": [],
            "userVerification": "required",
            "timeout": TIMEOUT_MS,
        } }))
    }

    pub(super) async fn finish_sign_in(
        &self,
        response: &AuthenticationResponse,
        browser: &str,
        headers: &HeaderMap,
        from: RemoteAddress,
    ) -> Result<SignedIn, PeopleError> {
        let site = self.site()?;
        let json = decode(&response.response.client_data).map_err(passkey_refused)?;
        let client = verify_client_data(&json, "webauthn.get", site).map_err(passkey_refused)?;
        let consume = self.consume_challenge(Purpose::SignIn, &client.challenge)?;
        let credential = decode(&response.raw_id).map_err(passkey_refused)?;
        let Some(stored) = self.stored_passkey(&url_safe(&credential)).await? else {
            let message = "this hub does not know this passkey; sign in with a link, then add it";
            return Err(PeopleError::new(RefusalKind::Passkey, message));
        };
        let counter = match check_assertion(&stored, response, &client, site) {
            Ok(counter) => counter,
            Err(message) => {
                self.note_refusal(&stored, from).await;
                return Err(PeopleError::new(RefusalKind::Passkey, message));
            }
        };
        let mut fresh = self.new_browser(BrowserOwner::Person(&stored.person), browser)?;
        let (now, id) = (self.now().0, SqlValue::from(Arc::clone(&stored.id)));
        let count = "UPDATE passkeys SET counter = $2, used_at = $3 WHERE id = $1 AND counter = $4";
        let values: [SqlValue; 4] =
            [id, i64::from(counter).into(), now.into(), i64::from(stored.counter).into()];
        let seen = "UPDATE people SET seen_at = $2 WHERE id = $1";
        let mut work = vec![
            consume,
            Statement::new(count, values).must_change(1),
            Statement::new(seen, [Arc::clone(&stored.person.0).into(), now.into()]).must_change(1),
        ];
        work.extend(self.replaced_browser(headers, CookieKind::Person));
        work.append(&mut fresh.work);
        let what = "passkey.entered";
        work.push(self.audit_statement(PeopleAuditEntry {
            person: Some(&stored.person),
            what,
            about: &fresh.id,
            from: Some(from),
        }));
        if self.change(work).await?.is_none() {
            return Err(PeopleError::new(
                RefusalKind::Passkey,
                "this sign-in was already used; sign in again",
            ));
        }
        self.check_revocations().await;
        self.signed_in(&stored.person, fresh).await
    }

    /// Checks a challenge, and marks it as used: it is valid once.
    fn consume_challenge(&self, purpose: Purpose<'_>, challenge: &[u8]) -> Result<Statement, PeopleError> {
        let until = self.challenges.check(purpose, challenge, self.now()).ok_or_else(|| {
            PeopleError::new(
                RefusalKind::Passkey,
                "the request timed out, or belongs to somebody else; try again",
            )
        })?;
        let sql =
            "INSERT INTO challenges_used (digest, until) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING";
        let digest = Digest::of(&url_safe(challenge)).hex();
        Ok(Statement::new(sql, [digest.into(), until.0.into()]).must_change(1))
    }

    async fn stored_passkey(&self, credential: &str) -> Result<Option<StoredPasskey>, PeopleError> {
        let sql = "SELECT id, person, algorithm, public, counter FROM passkeys WHERE credential = $1";
        let found = self.read(Statement::new(sql, [credential.into()])).await?;
        let passkey = |row: &Row| {
            Ok(StoredPasskey {
                id: row.text(0)?,
                person: PersonId(row.text(1)?),
                key: PublicKey { algorithm: row.int(2)?, bytes: row.bytes(3)?.to_vec() },
                counter: u32::try_from(row.int(4)?).unwrap_or(u32::MAX),
            })
        };
        found.rows.first().map(passkey).transpose()
    }

    async fn note_refusal(&self, stored: &StoredPasskey, from: RemoteAddress) {
        let what = "passkey.refused";
        let entry = self.audit_statement(PeopleAuditEntry {
            person: Some(&stored.person),
            what,
            about: &stored.id,
            from: Some(from),
        });
        if let Err(error) = self.db.run(vec![entry], Vec::new()).await {
            tracing::warn!(%error, "could not record that a passkey was refused");
        }
    }

    pub(super) async fn passkeys(&self, visitor: &HubVisitor) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        let sql =
            "SELECT id, name, created_at, used_at FROM passkeys WHERE person = $1 ORDER BY created_at, id";
        let found = self.read(Statement::new(sql, [Arc::clone(&member.id.0).into()])).await?;
        let view = |row: &Row| {
            Ok::<_, PeopleError>(PasskeyView {
                id: row.text(0)?.to_string(),
                name: row.text(1)?.to_string(),
                created_at: row.int(2)?,
                used_at: row.maybe_int(3)?,
            })
        };
        Ok(HubReplyBody::Passkeys { passkeys: found.rows.iter().map(view).collect::<Result<_, _>>()? })
    }

    pub(super) async fn drop_passkey(
        &self,
        visitor: &HubVisitor,
        passkey: &str,
    ) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        let sql = "DELETE FROM passkeys WHERE id = $1 AND person = $2";
        let delete = Statement::new(sql, [passkey.into(), Arc::clone(&member.id.0).into()]).must_change(1);
        let entry = PeopleAuditEntry {
            person: Some(&member.id),
            what: "passkey.dropped",
            about: passkey,
            from: None,
        };
        if self.change(vec![delete, self.audit_statement(entry)]).await?.is_none() {
            return Err(PeopleError::new(RefusalKind::NotFound, "no such passkey; reload the list"));
        }
        self.passkeys(visitor).await
    }
}

fn passkey_refused(error: WebauthnError) -> PeopleError {
    PeopleError::new(
        RefusalKind::Passkey,
        format!("could not use this passkey: {error}; try again, or use a link"),
    )
}

/// The new key of a registration, and the challenge that it answers.
fn read_created(
    created: &RegistrationResponse,
    site: RelyingParty<'_>,
) -> Result<(NewKey, Vec<u8>), WebauthnError> {
    let json = decode(&created.response.client_data)?;
    let client = verify_client_data(&json, "webauthn.create", site)?;
    let key = verify_attestation(&decode(&created.response.attestation_object)?, site)?;
    if decode(&created.raw_id)? != key.credential {
        return Err(WebauthnError::Malformed);
    }
    Ok((key, client.challenge))
}

/// The counter of a valid sign-in, or why it is refused.
fn check_assertion(
    stored: &StoredPasskey,
    response: &AuthenticationResponse,
    client: &webauthn::VerifiedClientData,
    site: RelyingParty<'_>,
) -> Result<u32, String> {
    let refusal =
        |error: WebauthnError| format!("could not use this passkey: {error}; try again, or use a link");
    let owner = decode(response.response.user_handle.as_deref().unwrap_or_default()).map_err(refusal)?;
    if owner != stored.person.0.as_bytes() {
        return Err("this passkey belongs to somebody else; use another, or a link".into());
    }
    let data = decode(&response.response.authenticator_data).map_err(refusal)?;
    let signature = decode(&response.response.signature).map_err(refusal)?;
    let counter = verify_assertion(&stored.key, &data, &signature, client, site).map_err(refusal)?;
    // Most authenticators do not count: they send 0 each time.
    if (counter, stored.counter) != (0, 0) && counter <= stored.counter {
        return Err(
            "this passkey may have been copied: its counter went back; sign in with a link, and remove it"
                .into(),
        );
    }
    Ok(counter)
}
