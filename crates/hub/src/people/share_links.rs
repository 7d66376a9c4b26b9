//! Share links to one session, for people without an account here.
//!
//! Only the owner of a session makes one, with a role below their own and an end. Visitors with the link are signed out at
//! the moment when it ends or is revoked.

use std::sync::Arc;

use access::Digest;
use engine::{SessionId, Timestamp};
use store::sql::{Row, SqlValue, Statement};
use wire::native::Role;
use wire::native::hub_requests::{HubReplyBody, ShareView};

use super::{People, PeopleAuditEntry, PeopleError, RefusalKind, new_code, new_id};
use crate::authenticator::{HubVisitor, PersonId};

/// Valid links to one session.
const SHARES_MAX: usize = 64;
/// The longest life of a link. For longer access, invite the person.
const LIFE_MAX_MS: i64 = 365 * 24 * 60 * 60 * 1000;

impl People {
    pub(super) async fn share(
        &self,
        visitor: &HubVisitor,
        session: &str,
        role: Role,
        until: Timestamp,
    ) -> Result<HubReplyBody, PeopleError> {
        let owner = self.owner(visitor, session).await?;
        let now = self.now();
        if role > Role::Driver {
            return Err(PeopleError::new(
                RefusalKind::BadRequest,
                "a link cannot give the owner role; choose another one",
            ));
        }
        if until <= now || until.0.saturating_sub(now.0) > LIFE_MAX_MS {
            return Err(PeopleError::new(
                RefusalKind::BadRequest,
                "a link must expire within a year; choose an earlier date",
            ));
        }
        if self.shares_of(session, &owner).await?.len() >= SHARES_MAX {
            return Err(PeopleError::new(
                RefusalKind::TooMany,
                "this session has the maximum number of links; revoke one first",
            ));
        }
        let (id, code) = (new_id('s')?, new_code()?);
        let share = ShareView {
            id: id.to_string(),
            session: session.to_owned(),
            role,
            created_at: now.0,
            until: until.0,
            uses: 0,
        };
        let values: [SqlValue; 7] = [
            id.into(),
            Digest::of(&code).hex().into(),
            session.into(),
            Arc::clone(&owner.0).into(),
            role_word(role).into(),
            now.0.into(),
            until.0.into(),
        ];
        let sql = "INSERT INTO shares (id, code, session, person, role, created_at, until, uses)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, 0)";
        let entry = PeopleAuditEntry { person: Some(&owner), what: "share.made", about: session, from: None };
        self.change(vec![Statement::new(sql, values), self.audit_statement(entry)]).await?;
        // The code follows the `#`, which browsers do not send, so it is in nobody's log.
        Ok(HubReplyBody::Shared { url: format!("{}/s/{session}#share.{code}", self.public_url.url()), share })
    }

    pub(super) async fn shares(
        &self,
        visitor: &HubVisitor,
        session: &str,
    ) -> Result<HubReplyBody, PeopleError> {
        let owner = self.owner(visitor, session).await?;
        Ok(HubReplyBody::Shares { shares: self.shares_of(session, &owner).await? })
    }

    pub(super) async fn unshare(
        &self,
        visitor: &HubVisitor,
        share: &str,
    ) -> Result<HubReplyBody, PeopleError> {
        let member = self.person(visitor).await?;
        let sql = "SELECT session FROM shares WHERE id = $1 AND person = $2";
        let values: [SqlValue; 2] = [share.into(), Arc::clone(&member.id.0).into()];
        let found = self.read(Statement::new(sql, values)).await?;
        let Some(row) = found.rows.first() else {
            return Err(PeopleError::new(RefusalKind::NotFound, "no such link; reload the list"));
        };
        let session = row.text(0)?;
        let entry =
            PeopleAuditEntry { person: Some(&member.id), what: "share.ended", about: share, from: None };
        let work = vec![
            Statement::new("DELETE FROM shares WHERE id = $1", [share.into()]),
            Statement::new("DELETE FROM browsers WHERE share = $1", [share.into()]),
            self.audit_statement(entry),
        ];
        self.change(work).await?;
        self.check_revocations().await;
        Ok(HubReplyBody::Shares { shares: self.shares_of(&session, &member.id).await? })
    }

    /// The visitor's id, if the session is theirs. For others the answer is the same whether the session exists or not.
    async fn owner(&self, visitor: &HubVisitor, session: &str) -> Result<PersonId, PeopleError> {
        let member = self.person(visitor).await?;
        let unknown = || PeopleError::new(RefusalKind::NotFound, "no such session");
        SessionId::parse(session).map_err(|_| unknown())?;
        let sql = "SELECT session FROM mirrors WHERE session = $1 AND person = $2";
        let values: [SqlValue; 2] = [session.into(), Arc::clone(&member.id.0).into()];
        let found = self.read(Statement::new(sql, values)).await?;
        if found.rows.is_empty() { Err(unknown()) } else { Ok(member.id) }
    }

    async fn shares_of(&self, session: &str, owner: &PersonId) -> Result<Vec<ShareView>, PeopleError> {
        let sql = "SELECT id, session, role, created_at, until, uses FROM shares
                   WHERE session = $1 AND person = $2 AND until > $3 ORDER BY created_at, id";
        let values: [SqlValue; 3] = [session.into(), Arc::clone(&owner.0).into(), self.now().0.into()];
        let found = self.read(Statement::new(sql, values)).await?;
        found.rows.iter().map(view).collect()
    }
}

fn view(row: &Row) -> Result<ShareView, PeopleError> {
    Ok(ShareView {
        id: row.text(0)?.to_string(),
        session: row.text(1)?.to_string(),
        // An unknown role gets the fewest rights.
        role: role_of(&row.text(2)?).unwrap_or(Role::Viewer),
        created_at: row.int(3)?,
        until: row.int(4)?,
        uses: row.count(5)?,
    })
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Approver => "approver",
        Role::Driver | Role::Owner => "driver",
    }
}

/// The role of a word. None is `Owner`.
pub(super) fn role_of(word: &str) -> Option<Role> {
    match word {
        "viewer" => Some(Role::Viewer),
        "approver" => Some(Role::Approver),
        "driver" => Some(Role::Driver),
        _ => None,
    }
}
