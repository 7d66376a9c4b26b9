//! What the server says of itself, on standard error only: standard output belongs to the protocol.
//! Secrets are taken out of every line.

use std::io::{self, Write};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::{paths, secrets};

/// Those that log what comes of a connection, which whoever asked for it is told.
const LIBRARIES: [&str; 2] = ["async_nats", "rmcp"];

/// Whether somebody wants every request logged, by the name that editors set for the older server.
pub fn wants_requests() -> bool {
    paths::variable("OTTER_LOG").is_some_and(|value| value != "0")
}

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
        .with_writer(|| Clean(io::stderr()))
        .with_ansi(false)
        .without_time()
        .finish()
        .with(lines(level))
        .init();
}

/// Without being asked, only what we say ourselves: a library warns in words of its own of what we tell of in ours.
fn lines(level: LevelFilter) -> Targets {
    let all = Targets::new().with_default(level);
    if level > LevelFilter::WARN {
        all
    } else {
        all.with_targets(LIBRARIES.map(|name| (name, LevelFilter::OFF)))
    }
}

/// Lets everything through but secrets. A line is written at once, so it can be judged as a whole.
struct Clean<W>(W);

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(secrets::without(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Clean<Kept>;

        fn make_writer(&'a self) -> Self::Writer {
            Clean(self.clone())
        }
    }

    #[test]
    fn no_secret_gets_into_the_log_of_the_server() {
        let kept = Kept::default();
        let logger = tracing_subscriber::fmt().with_writer(kept.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(logger, || {
            let given = "ghp_4fGh7Jk2Lm9Np3Qr5St8";
            tracing::warn!(given, "refused Bearer {}", "abc123def456");
            tracing::warn!(url = "https://me:s3cr3t@host/", "password=hunter2 is wrong");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        for secret in ["4fGh7Jk2", "abc123def456", "s3cr3t", "hunter2"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("ghp_[REDACTED]") && text.contains("password=[REDACTED] is wrong"), "{text}");
    }
}
