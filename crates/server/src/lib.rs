//! The doors of a server: a link or an HTTP route brings calls in, a connection gives them to sessions and writes back
//! what becomes of them.
//!
//! Nothing here knows what a method means or how a permission is decided.

mod batch;
mod connection;
mod debts;
mod handlers;
mod host;
pub mod http;
mod link;
mod order;
mod outlet;
mod panics;
mod patience;
mod served;
mod servers;
mod writer;

pub use batch::{At, Batch, Mark, Placed};
pub use connection::{Connection, ConnectionParts, Greeted, Unasked};
pub use link::{Incoming, Link, memory, stdio, stream};
pub use served::Served;
