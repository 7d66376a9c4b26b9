//! The client without a terminal and without a server: keys and frames in, screens and requests out.

mod answers;
mod hostile;
mod screens;
mod session;
pub mod stage;
