//! Links to one session, for somebody who is nobody here.
//!
//! Only the owner of a session makes one, with a role below their own and an end. Whoever comes by it is bound to
//! the link: when it ends or is taken back, they are seen off at that moment.

use std::sync::Arc;

use access::Digest;
use engine::{SessionId, Timestamp};
use store::sql::{Row, Statement, Value};
use wire::native::Role;
use wire::native::hub::{HubAnswered, ShareView};

use super::{Failure, Note, People, Why, new_code, new_id};
use crate::guest::{Guest, PersonId};

/// Links to one session that are good at the same time.
const SHARES_MAX: usize = 64;
/// What has no end is a sign-in, and not a link.
const LIFE_MAX_MS: i64 = 365 * 24 * 60 * 60 * 1000;

impl People {
    pub(super) async fn share(
        &self,
        guest: &Guest,
        session: &str,
        role: Role,
        until: Timestamp,
    ) -> Result<HubAnswered, Failure> {
        let owner = self.owner(guest, session).await?;
        let now = self.now();
        if role > Role::Driver {
            return Err(Failure::new(Why::BadRequest, "a link makes no owners; give it another role"));
        }
        if until <= now || until.0.saturating_sub(now.0) > LIFE_MAX_MS {
            return Err(Failure::new(
                Why::BadRequest,
                "a link ends within a year from now; give it such a date",
            ));
        }
        if self.shares_of(session, &owner).await?.len() >= SHARES_MAX {
            return Err(Failure::new(
                Why::TooMany,
                "this session has as many links as may be; end one first",
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
        let values: [Value; 7] = [
            id.into(),
            Digest::of(&code).hex().into(),
            session.into(),
            Arc::clone(&owner.0).into(),
            word(role).into(),
            now.0.into(),
            until.0.into(),
        ];
        let sql = "INSERT INTO shares (id, code, session, person, role, created_at, until, uses)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, 0)";
        let note = Note { person: Some(&owner), what: "share.made", about: session, from: None };
        self.change(vec![Statement::new(sql, values), self.noted(note)]).await?;
        // The code stands after the `#`, which browsers do not send, so it is in nobody's log.
        Ok(HubAnswered::Shared { url: format!("{}/s/{session}#share.{code}", self.place.url()), share })
    }

    pub(super) async fn shares(&self, guest: &Guest, session: &str) -> Result<HubAnswered, Failure> {
        let owner = self.owner(guest, session).await?;
        Ok(HubAnswered::Shares { shares: self.shares_of(session, &owner).await? })
    }

    pub(super) async fn unshare(&self, guest: &Guest, share: &str) -> Result<HubAnswered, Failure> {
        let member = self.person(guest).await?;
        let sql = "SELECT session FROM shares WHERE id = $1 AND person = $2";
        let values: [Value; 2] = [share.into(), Arc::clone(&member.id.0).into()];
        let found = self.read(Statement::new(sql, values)).await?;
        let Some(row) = found.rows.first() else {
            return Err(Failure::new(Why::NotFound, "you have no such link; look at the list again"));
        };
        let session = row.text(0)?;
        let note = Note { person: Some(&member.id), what: "share.ended", about: share, from: None };
        let work = vec![
            Statement::new("DELETE FROM shares WHERE id = $1", [share.into()]),
            Statement::new("DELETE FROM browsers WHERE share = $1", [share.into()]),
            self.noted(note),
        ];
        self.change(work).await?;
        self.look().await;
        Ok(HubAnswered::Shares { shares: self.shares_of(&session, &member.id).await? })
    }

    /// The guest, if the session is theirs. Whether there is such a session is told to nobody else.
    async fn owner(&self, guest: &Guest, session: &str) -> Result<PersonId, Failure> {
        let member = self.person(guest).await?;
        let unknown = || Failure::new(Why::NotFound, "you have no such session");
        SessionId::parse(session).map_err(|_| unknown())?;
        let sql = "SELECT session FROM mirrors WHERE session = $1 AND person = $2";
        let values: [Value; 2] = [session.into(), Arc::clone(&member.id.0).into()];
        let found = self.read(Statement::new(sql, values)).await?;
        if found.rows.is_empty() { Err(unknown()) } else { Ok(member.id) }
    }

    async fn shares_of(&self, session: &str, owner: &PersonId) -> Result<Vec<ShareView>, Failure> {
        let sql = "SELECT id, session, role, created_at, until, uses FROM shares
                   WHERE session = $1 AND person = $2 AND until > $3 ORDER BY created_at, id";
        let values: [Value; 3] = [session.into(), Arc::clone(&owner.0).into(), self.now().0.into()];
        let found = self.read(Statement::new(sql, values)).await?;
        found.rows.iter().map(view).collect()
    }
}

fn view(row: &Row) -> Result<ShareView, Failure> {
    Ok(ShareView {
        id: row.text(0)?.to_string(),
        session: row.text(1)?.to_string(),
        // What cannot be read may do the least.
        role: role_of(&row.text(2)?).unwrap_or(Role::Viewer),
        created_at: row.int(3)?,
        until: row.int(4)?,
        uses: row.count(5)?,
    })
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Approver => "approver",
        Role::Driver | Role::Owner => "driver",
    }
}

/// No word makes an owner.
pub(super) fn role_of(word: &str) -> Option<Role> {
    match word {
        "viewer" => Some(Role::Viewer),
        "approver" => Some(Role::Approver),
        "driver" => Some(Role::Driver),
        _ => None,
    }
}
