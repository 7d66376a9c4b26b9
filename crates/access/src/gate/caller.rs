//! The caller of a request, as the routes get it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::{CallerKind, Principal, SessionId, Standing};
use wire::native::Role;

use super::cookie;
use crate::devices::Visitor;
use crate::tokens::TokenHolder;

/// Who sent a request. Every request that passed the gate has one in its extensions, except on the
/// public routes.
#[derive(Debug, Clone)]
pub struct HttpCaller {
    pub principal: Principal,
    /// `local` for the master token, else the client's id.
    pub name: Arc<str>,
    pub scope: TokenScope,
    /// Decided here, from the token or device and the transport of the request.
    pub standing: Standing,
    /// The visitor, if the caller has the cookie of a device; such a caller is on the routes of our own clients only.
    device: Option<Arc<Visitor>>,
}

impl HttpCaller {
    /// The caller as a visitor with one of our own clients.
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

    /// The kind of caller in the table of who may do what.
    pub fn kind(&self) -> CallerKind {
        match (&self.device, &self.scope) {
            (Some(device), _) => device.kind(),
            (None, TokenScope::Session(_)) => CallerKind::SessionToken,
            (None, TokenScope::All) if self.standing.is_owner() => CallerKind::Owner,
            (None, TokenScope::All) if self.principal == Principal::local() => CallerKind::OwnerElsewhere,
            (None, TokenScope::All) => CallerKind::NamedClient,
        }
    }

    /// The owner of the caller's connections: a caller elsewhere cannot resume a connection that was
    /// opened at the machine.
    pub fn connections(&self) -> Principal {
        if self.standing.is_owner() || self.principal != Principal::local() {
            return self.principal.clone();
        }
        Principal(format!("{} elsewhere", self.principal.0).into())
    }
}

/// A client on the sign-in route: not identified, but its address can be counted.
#[derive(Clone)]
pub(crate) struct SignInClient {
    pub address: IpAddr,
    /// The key in its cookie, if it has one.
    pub key: Option<String>,
}

/// How the cookie is sent on this connection.
#[derive(Debug, Clone)]
pub(crate) struct CookieSettings {
    pub(super) name: Arc<str>,
    pub(super) secure: bool,
}

impl CookieSettings {
    /// With a key, or without one to delete the cookie.
    pub fn cookie(&self, key: Option<&str>) -> Option<HeaderValue> {
        cookie::set(&self.name, key, self.secure)
    }
}

/// What a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenScope {
    /// Everything of its principal.
    All,
    /// One session and nothing beside it.
    Session(SessionId),
}

/// `here` says that the request comes from this machine itself.
pub(super) fn by_device(visitor: Visitor, here: bool) -> HttpCaller {
    let owner = visitor.role == Role::Owner && visitor.principal == Principal::local();
    let standing = Standing::owner_if(owner && here);
    HttpCaller {
        principal: visitor.principal.clone(),
        name: Arc::clone(&visitor.name),
        scope: TokenScope::All,
        standing,
        device: Some(Arc::new(Visitor { standing, ..visitor })),
    }
}

pub(super) fn by_token(holder: TokenHolder, here: bool) -> HttpCaller {
    let (standing, device) = (Standing::Other, None);
    match holder {
        TokenHolder::Master => {
            let (principal, standing) = (Principal::local(), Standing::owner_if(here));
            HttpCaller { name: Arc::clone(&principal.0), principal, scope: TokenScope::All, standing, device }
        }
        TokenHolder::Client(id) => {
            let principal = Principal(Arc::clone(&id));
            HttpCaller { principal, name: id, scope: TokenScope::All, standing, device }
        }
        TokenHolder::Session(owner, id) => {
            let scope = TokenScope::Session(id);
            HttpCaller { name: Arc::clone(&owner.0), principal: owner, scope, standing, device }
        }
    }
}
