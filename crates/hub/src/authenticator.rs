//! Who may use a hub: people who signed in, visitors with a share link to one session, machines with a token.

use std::sync::Arc;

use access::Refusal;
use axum::http::HeaderMap;
use engine::{BoxFuture, Timestamp};
use tokio_util::sync::CancellationToken;
use wire::native::hub_requests::{HubReplyBody, HubRequest};
use wire::native::{ReplyError, Role};

/// A person's id, which never changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId(pub Arc<str>);

/// Somebody who uses a browser.
#[derive(Debug, Clone)]
pub struct HubVisitor {
    pub kind: VisitorKind,
    /// The id of the browser, for pushes and for signing it out.
    pub device: Arc<str>,
    /// Cancelled when the visitor is signed out.
    pub revoked: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitorKind {
    Person {
        id: PersonId,
        name: Arc<str>,
        admin: bool,
    },
    /// Has a share link to one session.
    ShareLink {
        share: Arc<str>,
        session: Arc<str>,
        /// The person who made the link, and owned the session then.
        owner: PersonId,
        role: Role,
        until: Timestamp,
    },
}

impl HubVisitor {
    /// The visitor's role in a session of this owner, or, without a session, for anything else of this owner.
    pub fn role(&self, owner: &PersonId, session: Option<&str>) -> Option<Role> {
        match &self.kind {
            VisitorKind::Person { id, .. } => (id == owner).then_some(Role::Owner),
            VisitorKind::ShareLink { session: shared, owner: by, role, .. } => {
                (session == Some(shared) && by == owner).then_some(*role)
            }
        }
    }
}

/// A machine that showed a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineToken {
    pub person: PersonId,
    pub token: Arc<str>,
}

/// Authenticates visitors and machines for the rest of the hub.
pub trait HubAuthenticator: Send + Sync + 'static {
    /// The visitor, by the cookie of a request from one of our own pages.
    fn visitor<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<HubVisitor, Refusal>>;

    /// The machine, by `Authorization: Bearer`. Wrong, revoked and expired tokens all get the same 401.
    fn machine<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<MachineToken, Refusal>>;

    /// Cancelled when this token is revoked or expires.
    fn revoked(&self, machine_token: &MachineToken) -> CancellationToken;

    /// Answers requests about people, tokens and shares. Returns any other request to the caller.
    fn answer<'a>(
        &'a self,
        visitor: &'a HubVisitor,
        request: HubRequest,
    ) -> BoxFuture<'a, Result<Result<HubReplyBody, ReplyError>, HubRequest>>;
}
