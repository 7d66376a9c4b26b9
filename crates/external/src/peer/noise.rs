//! What an agent says that is no message: log lines, halves, too much. Each is a value, told a few times
//! and then counted.

use std::time::Duration;

use tokio::time::Instant;
use wire::{Fault, RpcId};

/// What is told of a line.
const EXCERPT_CHARS_MAX: usize = 200;
/// So much noise is told in so much time.
const TOLD_MAX: u32 = 8;
const WINDOW: Duration = Duration::from_secs(10);

/// Something that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noise {
    /// A line that was thrown away. Who asked or waits for it has been told, where that could be found out.
    TooLong {
        bytes: u64,
        limit: u64,
        method: Option<String>,
    },
    NotUtf8 {
        bytes: u64,
    },
    /// Mostly a line for people that belongs on standard error.
    NotJson {
        line: String,
    },
    NotAMessage {
        why: String,
        line: String,
    },
    /// An answer to a request that nobody made.
    StrayAnswer {
        id: RpcId,
    },
    /// The output ended in the middle of a line.
    HalfALine {
        bytes: u64,
    },
}

impl std::fmt::Display for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { bytes, limit, method } => {
                let what = method.as_deref().unwrap_or("message");
                write!(f, "a {what} of {bytes} bytes was dropped: {limit} bytes are taken at most")
            }
            Self::NotUtf8 { bytes } => write!(f, "a line of {bytes} bytes is not text"),
            Self::NotJson { line } => write!(f, "a line is no message: {line}"),
            Self::NotAMessage { why, line } => write!(f, "a line is no message ({why}): {line}"),
            Self::StrayAnswer { id } => write!(f, "an answer to no request: {}", id.as_json()),
            Self::HalfALine { bytes } => {
                write!(f, "the output ended in the middle of a line of {bytes} bytes")
            }
        }
    }
}

/// What a line is that could not be parsed.
pub(super) fn of(line: &[u8], fault: Fault) -> Noise {
    let Ok(text) = std::str::from_utf8(line) else { return Noise::NotUtf8 { bytes: line.len() as u64 } };
    match fault {
        Fault::InvalidRequest(why) => Noise::NotAMessage { why: excerpt(&why), line: excerpt(text) },
        _ => Noise::NotJson { line: excerpt(text) },
    }
}

/// The beginning of a text, on one line and without what a terminal would obey.
pub(super) fn excerpt(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = shown.take(EXCERPT_CHARS_MAX + 1).collect();
    if let Some((end, _)) = shown.char_indices().nth(EXCERPT_CHARS_MAX) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// Decides what of the noise is told.
#[derive(Default)]
pub(super) struct Quiet {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Quiet {
    /// Whether one more is told, and how many were not since the last that was.
    pub(super) fn admit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= WINDOW) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told >= TOLD_MAX {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_line_is_short_and_harmless() {
        assert_eq!(excerpt("a\u{1b}[31m\tb"), "a [31m b");
        assert_eq!(excerpt(&"é".repeat(5000)).chars().count(), EXCERPT_CHARS_MAX + 1);
    }
}
