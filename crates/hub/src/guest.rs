//! Who comes to a hub: people with a sign-in, whoever holds a link to one session, machines with a token.

use std::sync::Arc;

use access::Refusal;
use axum::http::HeaderMap;
use engine::{BoxFuture, Timestamp};
use tokio_util::sync::CancellationToken;
use wire::native::hub::{HubAnswered, HubRequest};
use wire::native::{Role, Wrong};

/// A person, for ever the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId(pub Arc<str>);

/// Somebody with a browser.
#[derive(Debug, Clone)]
pub struct Guest {
    pub who: Who,
    /// The browser: what it is told by push and what it is signed out by.
    pub device: Arc<str>,
    /// Cancelled when the guest is not welcome any more.
    pub ended: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    Person {
        id: PersonId,
        name: Arc<str>,
        admin: bool,
    },
    /// Came by a link to one session.
    Bearer {
        share: Arc<str>,
        session: Arc<str>,
        /// Who made the link, and had the session then.
        owner: PersonId,
        role: Role,
        until: Timestamp,
    },
}

impl Guest {
    /// What this guest may do with a session, or with whatever else this person has: nothing, if nothing is said.
    pub fn role(&self, owner: &PersonId, session: Option<&str>) -> Option<Role> {
        match &self.who {
            Who::Person { id, .. } => (id == owner).then_some(Role::Owner),
            Who::Bearer { session: shared, owner: by, role, .. } => {
                (session == Some(shared) && by == owner).then_some(*role)
            }
        }
    }
}

/// A machine that showed a good token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    pub person: PersonId,
    pub token: Arc<str>,
}

/// Knows everybody. The rest of the hub asks it who somebody is, and nothing else.
pub trait Doorkeeper: Send + Sync + 'static {
    /// By cookie, from a page of our own.
    fn guest<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Guest, Refusal>>;

    /// By `Authorization: Bearer`. Wrong, revoked and expired tokens are told apart by nobody: 401.
    fn machine<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Bearer, Refusal>>;

    /// Cancelled when this token is not good any more.
    fn ended(&self, bearer: &Bearer) -> CancellationToken;

    /// What concerns people, tokens and shares. Gives the request back if it concerns something else.
    fn answer<'a>(
        &'a self,
        guest: &'a Guest,
        request: HubRequest,
    ) -> BoxFuture<'a, Result<Result<HubAnswered, Wrong>, HubRequest>>;
}
