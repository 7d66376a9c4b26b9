//! Ropewalk as a library: a program brings its own agent and gets sessions and doors for it.
//!
//! The agent is a [`Backend`], or one function ([`Turns`]). A [`Server`] keeps its sessions and lets clients in: on
//! standard input and output, over any pair of byte streams, over HTTP. All of it is what the `ropewalk` binary is
//! made of; nothing here decides anything.

mod door;
mod models;
mod server;

pub use door::{Door, Http};
pub use models::Models;
pub use server::{Parts, ServeError, Server};

pub use access::{Client, Digest, HostName, Keys, Listening, Names, Origin};
pub use engine::{
    Abilities, AskRequest, Backend, BackendSession, Body, BoxFuture, Content, Host, HostAbilities, HostError,
    HostLink, Limits, MemoryRules, MemoryStore, OpenError, Registry, RegistryParts, Resolution, Risk,
    SendError, ServerWay, SessionContext, SessionGone, SessionHandle, SessionId, SessionSpec, SettingSpec,
    Stop, Store, StoreError, SystemClock, ToolClass, ToolServer, TurnContext, TurnError, TurnInput, Turns,
    Verdict, approval_spec,
};
pub use service::Rules;
pub use store::SqliteStore;
pub use wire::Dialect;

/// The code on the page is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;
