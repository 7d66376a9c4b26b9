//! Commands with a fence, tried with real ones in every mode.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod containment;
mod git;
mod service;
mod terminal;
mod termination;
mod workspace;
