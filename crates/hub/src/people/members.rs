//! Everybody at this hub: who they are, how they are invited, and how they go.
//!
//! A person is there from the moment of their invitation, and everything that is theirs goes with them.
//!
//! **Invariant:** once there is an admin, there is one for ever: nobody removes themselves, and removals happen
//! one after the other, each checking that who removes is still an admin.

use std::sync::Arc;

use access::devices::plain_name;
use store::sql::{Row, Statement, Value};
use wire::native::hub::{HubAnswered, PersonView};

use super::{Failure, Note, People, Why, new_id};
use crate::guest::{Guest, PersonId, Who};

const PEOPLE_MAX: usize = 10_000;
/// The row that removals take turns by; it is made with the first person.
pub(super) const FIRST: &str = "first person";

const VIEW: &str = "SELECT people.id, people.name, people.admin, people.created_at, people.seen_at,
    (SELECT COUNT(*) FROM passkeys WHERE passkeys.person = people.id) FROM people";

impl People {
    /// What `HubTold::At` says of a guest: nobody, for who came by a link to one session.
    pub async fn view(&self, guest: &Guest) -> Result<Option<PersonView>, Failure> {
        let Who::Person { id, .. } = &guest.who else { return Ok(None) };
        let sql = format!("{VIEW} WHERE people.id = $1");
        let found = self.read(Statement::new(sql, [Arc::clone(&id.0).into()])).await?;
        found.rows.first().map(view).transpose()
    }

    pub(super) async fn people(&self, guest: &Guest) -> Result<HubAnswered, Failure> {
        self.admin(guest).await?;
        self.everybody().await
    }

    async fn everybody(&self) -> Result<HubAnswered, Failure> {
        let found =
            self.read(Statement::new(format!("{VIEW} ORDER BY people.created_at, people.id"), [])).await?;
        Ok(HubAnswered::People { people: found.rows.iter().map(view).collect::<Result<_, _>>()? })
    }

    /// A link for somebody new, or one more for somebody who has lost their way in.
    pub(super) async fn invite(
        &self,
        guest: &Guest,
        name: &str,
        admin: bool,
    ) -> Result<HubAnswered, Failure> {
        let by = self.admin(guest).await?;
        let name = plain_name(name).ok_or_else(|| Failure::new(Why::BadRequest, "give them a name"))?;
        let sql = "SELECT id, admin FROM people WHERE called = $1";
        let found = self.read(Statement::new(sql, [called(&name).into()])).await?;
        let (person, mut work) = match found.rows.first() {
            Some(row) if (row.int(1)? != 0) != admin => {
                let message = "there is somebody of this name who is an admin, or is none; choose another name, or remove them first";
                return Err(Failure::new(Why::BadRequest, message));
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
            self.noted(Note { person: Some(&by.id), what: "person.invited", about: &name, from: None }),
        ]);
        if self.change(work).await?.is_none() {
            return Err(Failure::new(
                Why::BadRequest,
                "somebody else invites them at this moment; try again",
            ));
        }
        Ok(HubAnswered::InvitedPerson { url: link.url, expires_at: link.until.0 })
    }

    async fn must_have_room(&self) -> Result<(), Failure> {
        let found = self.read(Statement::new("SELECT COUNT(*) FROM people", [])).await?;
        let count = found.rows.first().map(|row| row.count(0)).transpose()?.unwrap_or_default();
        if count >= PEOPLE_MAX as u64 {
            return Err(Failure::new(
                Why::TooMany,
                "there are as many people as may be; remove somebody first",
            ));
        }
        Ok(())
    }

    pub(super) fn new_person(&self, person: &PersonId, name: &str, admin: bool) -> Statement {
        let sql = "INSERT INTO people (id, name, called, admin, created_at) VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (called) DO NOTHING";
        let values: [Value; 5] = [
            Arc::clone(&person.0).into(),
            name.into(),
            called(name).into(),
            admin.into(),
            self.now().0.into(),
        ];
        Statement::new(sql, values).must_change(1)
    }

    pub(super) async fn remove(&self, guest: &Guest, person: &str) -> Result<HubAnswered, Failure> {
        let by = self.admin(guest).await?;
        if *by.id.0 == *person {
            return Err(Failure::new(Why::Forbidden, "nobody removes themselves; another admin can"));
        }
        let (id, by_id) = (Value::from(person), Value::from(Arc::clone(&by.id.0)));
        let of = |sql: &'static str| Statement::new(sql, [id.clone()]);
        let turn = "UPDATE hub_secrets SET secret = $2 WHERE name = $1";
        let delete = "DELETE FROM people WHERE id = $1
                      AND EXISTS (SELECT 1 FROM people AS others WHERE others.id = $2 AND others.admin = 1)";
        let mut work = vec![
            Statement::new(turn, [FIRST.into(), "there".into()]),
            Statement::new(delete, [id.clone(), by_id]).must_change(1),
            of("DELETE FROM joins WHERE person = $1"),
            of("DELETE FROM tokens WHERE person = $1"),
            of("DELETE FROM passkeys WHERE person = $1"),
            of("DELETE FROM browsers WHERE share IN (SELECT id FROM shares WHERE person = $1)"),
            of("DELETE FROM shares WHERE person = $1"),
            of("DELETE FROM browsers WHERE person = $1"),
        ];
        work.extend((self.forgets)(&PersonId(person.into())));
        work.push(self.noted(Note {
            person: Some(&by.id),
            what: "person.removed",
            about: person,
            from: None,
        }));
        if self.change(work).await?.is_none() {
            return Err(Failure::new(Why::NotFound, "there is nobody like this; look at the list again"));
        }
        self.look().await;
        self.everybody().await
    }

    /// The person of this name, for commands on the hub's own machine.
    pub(super) async fn called(&self, name: &str) -> Result<PersonId, Failure> {
        let found = self
            .read(Statement::new("SELECT id FROM people WHERE called = $1", [called(name).into()]))
            .await?;
        match found.rows.first() {
            Some(row) => Ok(PersonId(row.text(0)?)),
            None => Err(Failure::new(Why::NotFound, format!("there is nobody called {name:?} at this hub"))),
        }
    }

    /// Whether there is anybody yet.
    pub(super) async fn is_empty(&self) -> Result<bool, Failure> {
        let found = self.read(Statement::new("SELECT id FROM people LIMIT 1", [])).await?;
        Ok(found.rows.is_empty())
    }
}

/// Two names that look the same are the same.
fn called(name: &str) -> String {
    plain_name(name).unwrap_or_default().to_lowercase()
}

fn view(row: &Row) -> Result<PersonView, Failure> {
    Ok(PersonView {
        id: row.text(0)?.to_string(),
        name: row.text(1)?.to_string(),
        admin: row.int(2)? != 0,
        created_at: row.int(3)?,
        seen_at: row.maybe_int(4)?,
        passkeys: row.count(5)?,
    })
}
