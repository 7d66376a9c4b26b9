//! Access control: who may connect, over which transport, and with which role.
//!
//! Tokens, devices and their proofs, the gate before every HTTP route, rate and connection limits, and
//! the HTTP listener and the pump of WebSockets. A server and a hub use the same ones. This crate does not know what a request means
//! once it has passed.

mod auth_rate_limit;
mod browser_proof;
mod connection_limit;
pub mod devices;
pub mod document_upload;
mod gate;
mod hosts_and_origins;
mod listen;
mod refusal;
mod request_body;
pub mod request_checks;
mod request_headers;
pub mod required_acts;
pub mod sealed;
mod secret_file;
pub mod sign_in;
mod stream_with_slot;
mod tls;
mod tokens;
pub mod web_app;
pub mod websocket_pump;

pub use auth_rate_limit::AuthRateLimit;
pub use browser_proof::{PROOF_HEADER, Proofs};
pub use gate::{
    Gate, GateParts, GateState, HttpCaller, TokenScope, UI_PROTOCOL, WS_PROTOCOL, cookie_of, pass,
};
pub use hosts_and_origins::{BadName, HostName, Origin, PageOrigin, ServerNames};
pub use listen::{BoundListener, Peer};
pub use refusal::Refusal;
pub use request_body::{BodyBytes, JsonFields, REST_BYTES_MAX, RPC_BYTES_MAX};
pub use secret_file::{create_secret_file, read_secret_file};
pub use tls::{Tls, TlsError};
pub use tokens::{AcceptedTokens, Client, Digest, random, url_safe};
