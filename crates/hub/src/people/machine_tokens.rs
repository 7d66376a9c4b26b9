//! Tokens: with one, a machine acts for a person.
//!
//! A token is 64 hexadecimal digits of 256 random bits, shown once. Wrong, revoked and expired tokens get the same answer
//! after the same look-up; `routes::throttle` limits how many wrong ones an address may send.

use std::sync::Arc;

use access::devices::plain_name;
use access::{Digest, Refusal, random};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use engine::Timestamp;
use store::sql::{Row, SqlValue, Statement};
use wire::native::hub_requests::{HubReplyBody, TokenView};

use super::revocation::Credential;
use super::{People, PeopleAuditEntry, PeopleError, RefusalKind, new_id};
use crate::authenticator::{HubVisitor, MachineToken, PersonId};

/// Tokens of one person.
const TOKENS_MAX: u64 = 256;
/// How often the time of a token's last use is written.
const USED_EVERY_MS: i64 = 60 * 1000;
const SECRET_CHARS: usize = 64;

impl People {
    pub(super) async fn machine_token(&self, headers: &HeaderMap) -> Result<MachineToken, Refusal> {
        let wrong = || {
            let message = "this token is not valid here; create one in the hub's settings, under Tokens";
            Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
        };
        let token = token_of(headers).ok_or_else(wrong)?;
        self.by_token(token).await.map_err(PeopleError::refusal)?.ok_or_else(wrong)
    }

    async fn by_token(&self, token: &str) -> Result<Option<MachineToken>, PeopleError> {
        let sql = "SELECT tokens.id, people.id, tokens.until, tokens.used_at FROM tokens
                   JOIN people ON people.id = tokens.person WHERE tokens.digest = $1";
        let found = self.read(Statement::new(sql, [Digest::of(token).hex().into()])).await?;
        let Some(row) = found.rows.first() else { return Ok(None) };
        let (now, until) = (self.now(), row.maybe_int(2)?.map(Timestamp));
        if until.is_some_and(|until| until <= now) {
            return Ok(None);
        }
        let machine_token = MachineToken { person: PersonId(row.text(1)?), token: row.text(0)? };
        if row.maybe_int(3)?.is_none_or(|used| now.0 - used >= USED_EVERY_MS) {
            let sql = "UPDATE tokens SET used_at = $2 WHERE id = $1";
            let used = Statement::new(sql, [Arc::clone(&machine_token.token).into(), now.0.into()]);
            if let Err(error) = self.read(used).await {
                tracing::warn!(%error, "could not record that a token was used");
            }
        }
        // Registered, so that its revocation and expiry are noticed.
        drop(self.revocations.register(Credential::Token(Arc::clone(&machine_token.token)), until));
        Ok(Some(machine_token))
    }

    pub(super) async fn tokens(&self, visitor: &HubVisitor) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        self.tokens_of(&member.id).await
    }

    async fn tokens_of(&self, person: &PersonId) -> Result<HubReplyBody, PeopleError> {
        let sql = "SELECT id, name, created_at, until, used_at FROM tokens WHERE person = $1
                   ORDER BY created_at, id";
        let found = self.read(Statement::new(sql, [Arc::clone(&person.0).into()])).await?;
        let tokens = found.rows.iter().map(view).collect::<Result<_, _>>()?;
        Ok(HubReplyBody::Tokens { tokens })
    }

    pub(super) async fn make_token(
        &self,
        visitor: &HubVisitor,
        name: &str,
        until: Option<Timestamp>,
    ) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        let (secret, token) = self.new_token(&member.id, name, until).await?;
        Ok(HubReplyBody::Token { secret, token })
    }

    /// A token for the person of this name, made on the hub's own machine.
    pub async fn token_for(
        &self,
        person: &str,
        name: &str,
        until: Option<Timestamp>,
    ) -> Result<String, PeopleError> {
        let person = self.person_by_name(person).await?;
        Ok(self.new_token(&person, name, until).await?.0)
    }

    async fn new_token(
        &self,
        person: &PersonId,
        name: &str,
        until: Option<Timestamp>,
    ) -> Result<(String, TokenView), PeopleError> {
        let now = self.now();
        if until.is_some_and(|until| until <= now) {
            return Err(PeopleError::new(
                RefusalKind::BadRequest,
                "a token cannot expire in the past; choose a later date",
            ));
        }
        let name = plain_name(name).ok_or_else(|| {
            PeopleError::new(RefusalKind::BadRequest, "give the token a name, such as that of its machine")
        })?;
        let count = "SELECT COUNT(*) FROM tokens WHERE person = $1";
        let found = self.read(Statement::new(count, [Arc::clone(&person.0).into()])).await?;
        if found.rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default() >= TOKENS_MAX {
            return Err(PeopleError::new(
                RefusalKind::TooMany,
                "you have the maximum number of tokens; revoke one first",
            ));
        }
        let secret = hex(&random().map_err(PeopleError::NoRandom)?);
        let id = new_id('t')?;
        let values: [SqlValue; 6] = [
            Arc::clone(&id).into(),
            Digest::of(&secret).hex().into(),
            Arc::clone(&person.0).into(),
            name.clone().into(),
            now.0.into(),
            until.map(|until| until.0).into(),
        ];
        let sql = "INSERT INTO tokens (id, digest, person, name, created_at, until) VALUES ($1, $2, $3, $4, $5, $6)";
        let entry = PeopleAuditEntry { person: Some(person), what: "token.made", about: &name, from: None };
        self.change(vec![Statement::new(sql, values), self.audit_statement(entry)]).await?;
        let token = TokenView {
            id: id.to_string(),
            name,
            created_at: now.0,
            until: until.map(|until| until.0),
            used_at: None,
        };
        Ok((secret, token))
    }

    pub(super) async fn drop_token(
        &self,
        visitor: &HubVisitor,
        token: &str,
    ) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        let sql = "DELETE FROM tokens WHERE id = $1 AND person = $2";
        let delete = Statement::new(sql, [token.into(), Arc::clone(&member.id.0).into()]).must_change(1);
        let entry =
            PeopleAuditEntry { person: Some(&member.id), what: "token.revoked", about: token, from: None };
        if self.change(vec![delete, self.audit_statement(entry)]).await?.is_none() {
            return Err(PeopleError::new(RefusalKind::NotFound, "no such token; reload the list"));
        }
        self.check_revocations().await;
        self.tokens_of(&member.id).await
    }
}

/// The token of a request, if it has exactly one of the right form.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (values.next()?, values.next());
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let good = second.is_none() && scheme.eq_ignore_ascii_case("bearer") && token.len() == SECRET_CHARS;
    (good && token.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(token)
}

fn view(row: &Row) -> Result<TokenView, PeopleError> {
    Ok(TokenView {
        id: row.text(0)?.to_string(),
        name: row.text(1)?.to_string(),
        created_at: row.int(2)?,
        until: row.maybe_int(3)?,
        used_at: row.maybe_int(4)?,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
