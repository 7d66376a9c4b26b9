//! Logging, on standard error only: standard output belongs to the protocol. Secrets are redacted in every line.

use std::io::{self, Write};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::{paths, secrets_to_redact};

/// Libraries that log connection errors, which the caller reports anyway.
const LIBRARIES: [&str; 2] = ["async_nats", "rmcp"];

/// Whether every request is logged, by the variable that editors set for otter.
pub fn wants_requests() -> bool {
    paths::variable("OTTER_LOG").is_some_and(|value| value != "0")
}

/// By default, only a server logs: a command that ends reports its own errors.
pub fn start(verbose: u8, serving: bool) {
    let level = match verbose {
        0 if serving => LevelFilter::WARN,
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| RedactingWriter(io::stderr()))
        .with_ansi(false)
        .without_time()
        .finish()
        .with(lines(level))
        .init();
}

/// By default, only our own messages: we report what the libraries would warn of.
fn lines(level: LevelFilter) -> Targets {
    let all = Targets::new().with_default(level);
    if level > LevelFilter::WARN {
        all
    } else {
        all.with_targets(LIBRARIES.map(|name| (name, LevelFilter::OFF)))
    }
}

/// Redacts secrets. A line is written at once, so it can be redacted as a whole.
struct RedactingWriter<W>(W);

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(secrets_to_redact::redacted(&String::from_utf8_lossy(line)).as_bytes())?;
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
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Captured {
        type Writer = RedactingWriter<Captured>;

        fn make_writer(&'a self) -> Self::Writer {
            RedactingWriter(self.clone())
        }
    }

    #[test]
    fn no_secret_gets_into_the_log_of_the_server() {
        let kept = Captured::default();
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
