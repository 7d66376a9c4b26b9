//! Measures coding agents on stdio from the outside, all of them with the same raw client, and what
//! the product's guards cost from the inside. The HTTP door is measured beside a plain broadcast.
//!
//! The client must never be what is measured: while a clock runs it copies lines and looks at their
//! first bytes; it parses when the clock has stopped.

pub mod disk;
pub mod doors;
pub mod guard_path;
pub mod hub;
pub mod measure;
pub mod peer;
pub mod prompt;
pub mod rounds;
pub mod starts;
pub mod stats;
pub mod through;
pub mod workspace;
