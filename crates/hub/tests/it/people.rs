//! Signing in at a hub, and revocation: one process, the real routes, a database in a file.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod authenticator;
mod members;
mod passkeys;
mod postgres;
mod push;
mod shares;
mod sign_in_links;
mod test_hub;
mod tokens;
