//! The people of the hub: viewing, inviting and removing them.
//!
//! A person exists from the moment of their invitation. Everything that is theirs is deleted with them.
//!
//! **Invariant:** once there is an admin, there is one for ever: nobody can remove themselves, and removals run one after
//! the other, each checking that the remover is still an admin.

use std::sync::Arc;

use access::devices::plain_name;
use store::sql::{Row, SqlValue, Statement};
use wire::native::hub_requests::{HubReplyBody, PersonView};

use super::{People, PeopleAuditEntry, PeopleError, RefusalKind, new_id};
use crate::authenticator::{HubVisitor, PersonId, VisitorKind};

const PEOPLE_MAX: usize = 10_000;
/// The row that serialises removals; it is created with the first person.
pub(super) const FIRST_PERSON: &str = "first person";

const VIEW: &str = "SELECT people.id, people.name, people.admin, people.created_at, people.seen_at,
    (SELECT COUNT(*) FROM passkeys WHERE passkeys.person = people.id) FROM people";

impl People {
    /// The person in `HubNotification::Hello`; `None` for a visitor with a share link.
    pub async fn view(&self, visitor: &HubVisitor) -> Result<Option<PersonView>, PeopleError> {
        let VisitorKind::Person { id, .. } = &visitor.kind else { return Ok(None) };
        let sql = format!("{VIEW} WHERE people.id = $1");
        let found = self.read(Statement::new(sql, [Arc::clone(&id.0).into()])).await?;
        found.rows.first().map(view).transpose()
    }

    pub(super) async fn people(&self, visitor: &HubVisitor) -> Result<HubReplyBody, PeopleError> {
        self.admin(visitor).await?;
        self.everybody().await
    }

    async fn everybody(&self) -> Result<HubReplyBody, PeopleError> {
        let found =
            self.read(Statement::new(format!("{VIEW} ORDER BY people.created_at, people.id"), [])).await?;
        Ok(HubReplyBody::People { people: found.rows.iter().map(view).collect::<Result<_, _>>()? })
    }

    /// A link for a new person, or another one for a person who cannot sign in any more.
    pub(super) async fn invite(
        &self,
        visitor: &HubVisitor,
        name: &str,
        admin: bool,
    ) -> Result<HubReplyBody, PeopleError> {
        let by = self.admin(visitor).await?;
        let name = plain_name(name)
            .ok_or_else(|| PeopleError::new(RefusalKind::BadRequest, "the name is missing; enter one"))?;
        let sql = "SELECT id, admin FROM people WHERE called = $1";
        let found = self.read(Statement::new(sql, [normalized_name(&name).into()])).await?;
        let (person, mut work) = match found.rows.first() {
            Some(row) if (row.int(1)? != 0) != admin => {
                let message = "somebody with this name is already here with another role; choose another name, or remove them first";
                return Err(PeopleError::new(RefusalKind::BadRequest, message));
            }
            Some(row) => (PersonId(row.text(0)?), Vec::new()),
            None => {
                self.must_have_room().await?;
                let person = PersonId(new_id('p')?);
                let insert = self.new_person(&person, &name, admin);
                (person, vec![insert])
            }
        };
        let link = self.new_link(&person)?;
        work.extend([
            link.work,
            self.audit_statement(PeopleAuditEntry {
                person: Some(&by.id),
                what: "person.invited",
                about: &name,
                from: None,
            }),
        ]);
        if self.change(work).await?.is_none() {
            return Err(PeopleError::new(
                RefusalKind::BadRequest,
                "somebody else is inviting them right now; try again",
            ));
        }
        Ok(HubReplyBody::InvitedPerson { url: link.url, expires_at: link.until.0 })
    }

    async fn must_have_room(&self) -> Result<(), PeopleError> {
        let found = self.read(Statement::new("SELECT COUNT(*) FROM people", [])).await?;
        let count = found.rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default();
        if count >= PEOPLE_MAX as u64 {
            return Err(PeopleError::new(
                RefusalKind::TooMany,
                "this hub has the maximum number of people; remove somebody first",
            ));
        }
        Ok(())
    }

    pub(super) fn new_person(&self, person: &PersonId, name: &str, admin: bool) -> Statement {
        let sql = "INSERT INTO people (id, name, called, admin, created_at) VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (called) DO NOTHING";
        let values: [SqlValue; 5] = [
            Arc::clone(&person.0).into(),
            name.into(),
            normalized_name(name).into(),
            admin.into(),
            self.now().0.into(),
        ];
        Statement::new(sql, values).must_change(1)
    }

    pub(super) async fn remove(
        &self,
        visitor: &HubVisitor,
        person: &str,
    ) -> Result<HubReplyBody, PeopleError> {
        let by = self.admin(visitor).await?;
        if *by.id.0 == *person {
            return Err(PeopleError::new(
                RefusalKind::Forbidden,
                "you cannot remove yourself; ask another admin",
            ));
        }
        let (id, by_id) = (SqlValue::from(person), SqlValue::from(Arc::clone(&by.id.0)));
        let of = |sql: &'static str| Statement::new(sql, [id.clone()]);
        let turn = "UPDATE hub_secrets SET secret = $2 WHERE name = $1";
        let delete = "DELETE FROM people WHERE id = $1
                      AND EXISTS (SELECT 1 FROM people AS others WHERE others.id = $2 AND others.admin = 1)";
        let mut work = vec![
            Statement::new(turn, [FIRST_PERSON.into(), "there".into()]),
            Statement::new(delete, [id.clone(), by_id]).must_change(1),
            of("DELETE FROM joins WHERE person = $1"),
            of("DELETE FROM tokens WHERE person = $1"),
            of("DELETE FROM passkeys WHERE person = $1"),
            of("DELETE FROM browsers WHERE share IN (SELECT id FROM shares WHERE person = $1)"),
            of("DELETE FROM shares WHERE person = $1"),
            of("DELETE FROM browsers WHERE person = $1"),
        ];
        work.extend((self.forgets)(&PersonId(person.into())));
        work.push(self.audit_statement(PeopleAuditEntry {
            person: Some(&by.id),
            what: "person.removed",
            about: person,
            from: None,
        }));
        if self.change(work).await?.is_none() {
            return Err(PeopleError::new(RefusalKind::NotFound, "no such person; reload the list"));
        }
        self.check_revocations().await;
        self.everybody().await
    }

    /// The person of this name, for commands on the hub's own machine.
    pub(super) async fn person_by_name(&self, name: &str) -> Result<PersonId, PeopleError> {
        let found = self
            .read(Statement::new("SELECT id FROM people WHERE called = $1", [normalized_name(name).into()]))
            .await?;
        match found.rows.first() {
            Some(row) => Ok(PersonId(row.text(0)?)),
            None => Err(PeopleError::new(
                RefusalKind::NotFound,
                format!("no person is called {name:?} at this hub"),
            )),
        }
    }

    /// Whether there are no people yet.
    pub(super) async fn is_empty(&self) -> Result<bool, PeopleError> {
        let found = self.read(Statement::new("SELECT id FROM people LIMIT 1", [])).await?;
        Ok(found.rows.is_empty())
    }
}

/// The name for comparisons: two names that look the same are the same.
fn normalized_name(name: &str) -> String {
    plain_name(name).unwrap_or_default().to_lowercase()
}

fn view(row: &Row) -> Result<PersonView, PeopleError> {
    Ok(PersonView {
        id: row.text(0)?.to_string(),
        name: row.text(1)?.to_string(),
        admin: row.int(2)? != 0,
        created_at: row.int(3)?,
        seen_at: row.maybe_int(4)?,
        passkeys: row.count(5)?,
    })
}
