//! Who sends a request, as the routes are told.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::{CallerKind, Principal, SessionId, Standing};
use wire::native::Role;

use super::cookie;
use crate::devices::Visitor;
use crate::tokens::Holder;

/// Who sent a request. Every request that passed the gate has one in its extensions, but for the
/// public routes.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Principal,
    /// `local` for the master token, else the client's id.
    pub name: Arc<str>,
    pub scope: Scope,
    /// Decided here, from the token or device and the way that the request came.
    pub standing: Standing,
    /// Who came by the cookie of a device; such a caller is on the routes of our own clients only.
    device: Option<Arc<Visitor>>,
}

impl Caller {
    /// The same as one of our own clients is known.
    pub fn visitor(&self) -> Visitor {
        if let Some(visitor) = &self.device {
            return Visitor::clone(visitor);
        }
        // Of our own clients only the one in the terminal has the server's token.
        let own = self.principal == Principal::local();
        Visitor {
            principal: self.principal.clone(),
            name: if own { "terminal".into() } else { Arc::clone(&self.name) },
            role: Role::Owner,
            device: None,
            remote: None,
            standing: self.standing,
        }
    }

    /// Who they are in the table of who may do what.
    pub fn kind(&self) -> CallerKind {
        match (&self.device, &self.scope) {
            (Some(device), _) => device.kind(),
            (None, Scope::Session(_)) => CallerKind::SessionToken,
            (None, Scope::All) if self.standing.is_owner() => CallerKind::Owner,
            (None, Scope::All) if self.principal == Principal::local() => CallerKind::OwnerElsewhere,
            (None, Scope::All) => CallerKind::NamedClient,
        }
    }

    /// Whose connections these are: somebody who is not at the machine does not go on with one that was
    /// opened there.
    pub fn connections(&self) -> Principal {
        if self.standing.is_owner() || self.principal != Principal::local() {
            return self.principal.clone();
        }
        Principal(format!("{} elsewhere", self.principal.0).into())
    }
}

/// Somebody at the entrance: not known, but countable.
#[derive(Clone)]
pub(crate) struct Guest {
    pub address: IpAddr,
    /// The key of the cookie they have, if they have one.
    pub key: Option<String>,
}

/// How the cookie is sent on this connection.
#[derive(Debug, Clone)]
pub(crate) struct Jar {
    pub(super) name: Arc<str>,
    pub(super) secure: bool,
}

impl Jar {
    /// With a key, or with nothing to forget it.
    pub fn cookie(&self, key: Option<&str>) -> Option<HeaderValue> {
        cookie::set(&self.name, key, self.secure)
    }
}

/// What a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything of its principal.
    All,
    /// One session and nothing beside it.
    Session(SessionId),
}

/// `here` says that the request comes from this machine itself.
pub(super) fn by_device(visitor: Visitor, here: bool) -> Caller {
    let owner = visitor.role == Role::Owner && visitor.principal == Principal::local();
    let standing = Standing::owner_if(owner && here);
    Caller {
        principal: visitor.principal.clone(),
        name: Arc::clone(&visitor.name),
        scope: Scope::All,
        standing,
        device: Some(Arc::new(Visitor { standing, ..visitor })),
    }
}

pub(super) fn by_token(holder: Holder, here: bool) -> Caller {
    let (standing, device) = (Standing::Other, None);
    match holder {
        Holder::Master => {
            let (principal, standing) = (Principal::local(), Standing::owner_if(here));
            Caller { name: Arc::clone(&principal.0), principal, scope: Scope::All, standing, device }
        }
        Holder::Client(id) => {
            let principal = Principal(Arc::clone(&id));
            Caller { principal, name: id, scope: Scope::All, standing, device }
        }
        Holder::Session(owner, id) => {
            let scope = Scope::Session(id);
            Caller { name: Arc::clone(&owner.0), principal: owner, scope, standing, device }
        }
    }
}
