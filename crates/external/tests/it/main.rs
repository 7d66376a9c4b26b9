//! An agent that is another program, behind a whole server in process.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host_services;
