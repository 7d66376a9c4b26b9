//! Ropewalk as a library: a program brings its own agent and gets sessions and doors for it.
//!
//! The agent is a [`Backend`], or one function ([`FunctionBackend`]). A [`Server`] keeps its sessions and accepts clients: on
//! standard input and output, over any pair of byte streams, over HTTP. The `ropewalk` binary is made of the same parts;
//! nothing here decides anything.

mod http_router;
mod models;
mod server;

pub use http_router::{HttpDoor, HttpDoorOptions};
pub use models::Models;
pub use server::{ServeError, Server, ServerParts};

pub use access::{AcceptedTokens, BoundListener, Client, Digest, HostName, Origin, ServerNames};
pub use engine::{
    Abilities, AskRequest, Backend, BackendSession, Body, BoxFuture, Content, FunctionBackend, Host,
    HostAbilities, HostError, HostLink, MemoryRules, MemoryStore, OpenError, PermissionOutcome, Registry,
    RegistryParts, Resolution, Risk, SendError, ServerTransport, SessionContext, SessionGone, SessionHandle,
    SessionId, SessionLimits, SessionSpec, SettingSpec, Stop, Store, StoreError, SystemClock, ToolClass,
    ToolServer, TurnContext, TurnError, TurnInput, approval_spec,
};
pub use service::ServiceRules;
pub use store::SqliteStore;
pub use wire::Dialect;

/// The code on the page is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;
