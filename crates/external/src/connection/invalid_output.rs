//! Agent output that is not a message: log lines, truncated lines, overlong lines. Each is a value; the first
//! few are reported and the rest are counted.

use std::time::Duration;

use tokio::time::Instant;
use wire::{RequestError, RpcId};

/// How much of a line is reported.
const EXCERPT_CHARS_MAX: usize = 200;
/// At most this many reports in each time window.
const REPORTED_MAX: u32 = 8;
const WINDOW: Duration = Duration::from_secs(10);

/// Agent output that is not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidOutput {
    /// A line that was discarded. The request that it belongs to has failed, if that could be found out.
    TooLong {
        bytes: u64,
        limit: u64,
        method: Option<String>,
    },
    NotUtf8 {
        bytes: u64,
    },
    /// Usually a log line that belongs on standard error.
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
    PartialLine {
        bytes: u64,
    },
}

impl std::fmt::Display for InvalidOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { bytes, limit, method } => {
                let what = method.as_deref().unwrap_or("message");
                write!(f, "a {what} of {bytes} bytes was dropped: the limit is {limit} bytes")
            }
            Self::NotUtf8 { bytes } => write!(f, "a line of {bytes} bytes is not text"),
            Self::NotJson { line } => write!(f, "a line is not a message: {line}"),
            Self::NotAMessage { why, line } => write!(f, "a line is not a message ({why}): {line}"),
            Self::StrayAnswer { id } => write!(f, "an answer to an unknown request: {}", id.as_json()),
            Self::PartialLine { bytes } => {
                write!(f, "the output ended in the middle of a line of {bytes} bytes")
            }
        }
    }
}

/// Classifies a line that could not be parsed.
pub(super) fn of(line: &[u8], fault: RequestError) -> InvalidOutput {
    let Ok(text) = std::str::from_utf8(line) else {
        return InvalidOutput::NotUtf8 { bytes: line.len() as u64 };
    };
    match fault {
        RequestError::InvalidRequest(why) => {
            InvalidOutput::NotAMessage { why: excerpt(&why), line: excerpt(text) }
        }
        _ => InvalidOutput::NotJson { line: excerpt(text) },
    }
}

/// The beginning of a text, on one line and without control characters.
pub(super) fn excerpt(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = shown.take(EXCERPT_CHARS_MAX + 1).collect();
    if let Some((end, _)) = shown.char_indices().nth(EXCERPT_CHARS_MAX) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// Limits how often invalid output is reported.
#[derive(Default)]
pub(super) struct ReportLimiter {
    since: Option<Instant>,
    reported: u32,
    omitted: u64,
}

impl ReportLimiter {
    /// `Some` if one more is reported, with the number that were not since the last report.
    pub(super) fn admit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= WINDOW) {
            (self.since, self.reported) = (Some(now), 0);
        }
        if self.reported >= REPORTED_MAX {
            self.omitted += 1;
            return None;
        }
        self.reported += 1;
        Some(std::mem::take(&mut self.omitted))
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
