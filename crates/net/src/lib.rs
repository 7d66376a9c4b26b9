//! Moving frames: a link brings them in and out, a connection gives them to sessions.
//!
//! Nothing here knows what a method means or how a permission is decided.

mod along;
mod batch;
pub mod bridge;
mod connection;
mod debts;
mod folders;
pub mod hall;
mod handlers;
mod host;
pub mod http;
mod link;
pub mod metrics;
pub mod native;
mod numbers;
mod outlet;
mod panics;
mod patience;
mod remote;
pub mod sealed;
mod served;
mod servers;
mod session_text;
pub mod upload;
pub mod upstream;
mod writer;

pub use along::read_along;
pub use batch::{At, Batch, Mark, More, Placed, Position};
pub use connection::{Connection, ConnectionParts, Greeted};
pub use handlers::Rules;
pub use link::{Incoming, Link, memory, stdio, stream};
pub use metrics::Metrics;
pub use numbers::Numbers;
pub use served::Served;
pub use session_text::{SessionText, SessionTextError};
