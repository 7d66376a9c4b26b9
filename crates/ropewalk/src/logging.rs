//! What the server says of itself, on standard error only: standard output belongs to the protocol.

use std::io::IsTerminal;

use tracing::Level;

pub fn start(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::TRACE,
    };
    let colour = std::io::stderr().is_terminal() && crate::paths::variable("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .without_time()
        .init();
}
