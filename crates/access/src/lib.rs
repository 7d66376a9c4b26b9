//! Who may come in, by which door, and as what.
//!
//! Tokens, devices and their proofs, the gate before every HTTP route, limits for those who guess or crowd, and
//! the listener and the pump of WebSockets. A server and a hub use the same ones. Nothing here knows what a request means once it is inside.

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

pub use auth_rate_limit::WrongTokens;
pub use body::{Content, Fields, REST_BYTES_MAX, RPC_BYTES_MAX};
pub use gate::{Caller, Gate, GateParts, GateState, Scope, UI_PROTOCOL, WS_PROTOCOL, cookie_of, pass};
pub use listen::{Listening, Peer};
pub use origins::{BadName, HostName, Names, Origin, Page};
pub use proof::{PROOF_HEADER, Proofs};
pub use refusal::Refusal;
pub use secret_file::create_secret_file;
pub use tls::{Tls, TlsError};
pub use tokens::{Client, Digest, Keys, random, url_safe};
