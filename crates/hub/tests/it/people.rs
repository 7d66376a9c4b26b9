//! Who comes to a hub, by which door, and how that ends: one process, the real routes, a database in a file.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod authenticator;
mod entrance;
mod house;
mod members;
mod passkeys;
mod postgres;
mod push;
mod shares;
mod tokens;
