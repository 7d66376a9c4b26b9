//! Who sends a request, as the routes are told.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::{Principal, SessionId};
use wire::native::Role;

use super::cookie;
use crate::hall::Visitor;
use crate::http::tokens::Holder;

/// Who sent a request. Every request that passed the gate has one in its extensions, but for the
/// public routes.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Principal,
    /// `local` for the master token, else the client's id.
    pub name: Arc<str>,
    pub scope: Scope,
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
        }
    }
}

/// Somebody at the entrance: not known, but countable.
#[derive(Clone)]
pub(in crate::http) struct Guest {
    pub address: IpAddr,
    /// The key of the cookie they have, if they have one.
    pub key: Option<String>,
}

/// How the cookie is sent on this connection.
#[derive(Debug, Clone)]
pub(in crate::http) struct Jar {
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

pub(super) fn by_device(visitor: Visitor) -> Caller {
    Caller {
        principal: visitor.principal.clone(),
        name: Arc::clone(&visitor.name),
        scope: Scope::All,
        device: Some(Arc::new(visitor)),
    }
}

pub(super) fn by_token(holder: Holder) -> Caller {
    let device = None;
    match holder {
        Holder::Master => {
            let principal = Principal::local();
            Caller { name: Arc::clone(&principal.0), principal, scope: Scope::All, device }
        }
        Holder::Client(id) => {
            Caller { principal: Principal(Arc::clone(&id)), name: id, scope: Scope::All, device }
        }
        Holder::Session(owner, id) => {
            Caller { name: Arc::clone(&owner.0), principal: owner, scope: Scope::Session(id), device }
        }
    }
}
