//! Tests of the client without a terminal and without a server: keys and frames in, screens and requests out.

mod answers;
pub mod harness;
mod hostile;
mod screens;
mod session;
