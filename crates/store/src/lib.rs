//! Where sessions are kept: one engine per module, all held to the same conformance suite.

pub mod audit;
pub mod sql;
pub mod sqlite;

pub use sqlite::{Options, SqliteStore};
