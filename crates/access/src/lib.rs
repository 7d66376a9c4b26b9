//! Access control: who may connect, over which transport, and with which role.
//!
//! Tokens, devices and their proofs, the gate before every HTTP route, rate and connection limits, and
//! the HTTP listener and the pump of WebSockets. A server and a hub use the same ones. This crate does not know what a request means
//! once it has passed.

mod auth_rate_limit;
mod body;
mod connection_limit;
mod connection_slot;
pub mod devices;
mod gate;
mod listen;
mod origins;
mod proof;
mod refusal;
mod request;
pub mod request_checks;
pub mod roles;
pub mod sealed;
mod secret_file;
pub mod sign_in;
mod tls;
mod tokens;
pub mod upload;
pub mod web;
pub mod websocket;

pub use auth_rate_limit::AuthRateLimit;
pub use body::{BodyBytes, JsonFields, REST_BYTES_MAX, RPC_BYTES_MAX};
pub use gate::{
    Gate, GateParts, GateState, HttpCaller, TokenScope, UI_PROTOCOL, WS_PROTOCOL, cookie_of, pass,
};
pub use listen::{BoundListener, Peer};
pub use origins::{BadName, HostName, Origin, PageOrigin, ServerNames};
pub use proof::{PROOF_HEADER, Proofs};
pub use refusal::Refusal;
pub use secret_file::create_secret_file;
pub use tls::{Tls, TlsError};
pub use tokens::{AcceptedTokens, Client, Digest, random, url_safe};
