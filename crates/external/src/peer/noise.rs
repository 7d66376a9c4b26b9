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

/// What can be found out about a message of which only the ends are there, or which breaks the rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) id: Option<RpcId>,
    pub(super) method: Option<String>,
    /// It is an answer, or was one.
    pub(super) answers: bool,
}

/// Looks at the fields that come before the long one, and at an id that comes last.
pub(super) fn remains(head: &[u8], tail: &[u8]) -> Remains {
    let mut remains = Remains::default();
    let head = String::from_utf8_lossy(head);
    let mut rest = match head.trim_start().strip_prefix('{') {
        Some(rest) => rest,
        None => return remains,
    };
    let mut asks = false;
    while let Some((key, after)) = field(rest) {
        match key {
            "id" => remains.id = scalar(after).and_then(RpcId::from_json),
            "method" => remains.method = scalar(after).and_then(|text| serde_json::from_str(text).ok()),
            "result" | "error" => remains.answers = true,
            _ => {}
        }
        asks |= matches!(key, "method" | "params");
        match skip_value(after) {
            Some(next) => rest = next,
            None => break,
        }
    }
    remains.answers &= !asks;
    remains.method = remains.method.map(|method| excerpt(&method));
    if remains.id.is_none() {
        remains.id = last_id(tail);
    }
    remains
}

/// The next key, and what follows its colon.
fn field(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().trim_start_matches(',').trim_start();
    let key = text.strip_prefix('"')?;
    let (key, rest) = key.split_once('"')?;
    Some((key, rest.trim_start().strip_prefix(':')?.trim_start()))
}

/// A value that is a text, a number or a word, if all of it is there.
fn scalar(text: &str) -> Option<&str> {
    if matches!(text.as_bytes().first()?, b'{' | b'[') {
        return None;
    }
    let rest = skip_value(text)?;
    Some(text[..text.len() - rest.len()].trim_end())
}

/// What follows a value, if all of it is there.
fn skip_value(text: &str) -> Option<&str> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b',' | b'}' | b']' if depth == 0 => return Some(&text[at..]),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The id of a message that says it at its end.
fn last_id(tail: &[u8]) -> Option<RpcId> {
    let tail = String::from_utf8_lossy(tail);
    let (_, after) = tail.rsplit_once("\"id\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim();
    let value = value.strip_suffix('}')?.trim_end();
    let plain = !value.is_empty() && !value.contains(['{', '}', '[', ']', ',']);
    if plain { RpcId::from_json(value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, id: Option<&str>, method: Option<&str>, answers: bool) {
        let found = remains(
            &text.as_bytes()[..text.len().min(100)],
            &text.as_bytes()[text.len().saturating_sub(60)..],
        );
        let expected = Remains { id: id.and_then(RpcId::from_json), method: method.map(Into::into), answers };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn whose_a_long_message_was_is_found_at_its_ends() {
        let long = "x".repeat(500);
        check(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{long}"}}}}"#), Some("7"), None, true);
        check(&format!(r#"{{"jsonrpc":"2.0","result":{{"a":"{long}"}},"id":7}}"#), Some("7"), None, true);
        check(&format!(r#"{{"id":"a\"b","error":{{"a":"{long}"}}}}"#), Some(r#""a\"b""#), None, true);
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":3,"method":"fs/write_text_file","params":{{"a":"{long}"}}}}"#);
        check(&request, Some("3"), Some("fs/write_text_file"), false);
        let update =
            format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"id":4,"a":"{long}"}}}}"#);
        check(&update, None, Some("session/update"), false);
        for nonsense in ["", "{", "[1,2", "{\"id\":", "{\"id\":{}", "no json", "{\"id\":1.5,\"result\":1}"] {
            let found = remains(nonsense.as_bytes(), nonsense.as_bytes());
            assert_eq!(found.id, None, "{nonsense}");
        }
    }

    #[test]
    fn what_is_shown_of_a_line_is_short_and_harmless() {
        assert_eq!(excerpt("a\u{1b}[31m\tb"), "a [31m b");
        assert_eq!(excerpt(&"é".repeat(5000)).chars().count(), EXCERPT_CHARS_MAX + 1);
    }
}
