//! What the server says of itself, on standard error only: standard output belongs to the protocol.

use tracing_subscriber::filter::LevelFilter;

/// A command that ends tells its own troubles; without being asked, only a server logs besides.
pub fn start(verbose: u8, serving: bool) {
    let level = match verbose {
        0 if serving => LevelFilter::WARN,
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}
