//! What servers of tests need to be started side by side.

use std::net::TcpListener;

/// A port that nobody has. Until the server has it another one may take it, which fails visibly.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
