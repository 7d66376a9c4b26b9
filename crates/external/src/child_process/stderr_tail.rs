//! The last part of a program's standard error.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

/// What is kept.
const KEPT_BYTES_MAX: usize = 4 << 10;
const READ_BYTES: usize = 4 << 10;

#[derive(Default)]
pub(super) struct StderrTail {
    bytes: Mutex<VecDeque<u8>>,
    closed: CancellationToken,
}

impl StderrTail {
    /// The last lines, without control sequences.
    pub(super) fn shown(&self) -> String {
        let kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        drop(kept);
        let whole = bytes.len() < KEPT_BYTES_MAX;
        let text = String::from_utf8_lossy(&bytes);
        // The first line may have lost its beginning.
        let text = if whole { &text } else { text.split_once('\n').map_or(text.as_ref(), |(_, rest)| rest) };
        let mut lines = text.lines().map(plain).filter(|line| !line.trim().is_empty());
        let first = lines.next().unwrap_or_default();
        lines.fold(first, |text, line| text + "\n" + &line)
    }

    /// Waits until standard error is closed.
    pub(super) async fn complete(&self) {
        self.closed.cancelled().await;
    }

    fn put(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&bytes[bytes.len().saturating_sub(KEPT_BYTES_MAX)..]);
        let over = kept.len().saturating_sub(KEPT_BYTES_MAX);
        kept.drain(..over);
    }
}

/// Reads to the end, so that the program never blocks on writing.
pub(super) async fn listen(mut stderr: impl AsyncRead + Unpin, stderr_tail: std::sync::Arc<StderrTail>) {
    let _over = stderr_tail.closed.clone().drop_guard();
    let mut bytes = [0; READ_BYTES];
    while let Ok(count) = stderr.read(&mut bytes).await
        && count > 0
    {
        stderr_tail.put(&bytes[..count]);
    }
}

/// A line without colours and other terminal control sequences.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next_if_eq(&'[').is_some() {
            // A control sequence ends with a letter or one of a few other characters.
            while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            chars.next();
        } else if !c.is_control() || c == '\t' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_whole_and_plain() {
        let stderr_tail = std::sync::Arc::new(StderrTail::default());
        let flood = format!("{}last \u{1b}[31;1mred\u{1b}[0m word\u{7}\n\n", "a line of it\n".repeat(10_000));
        listen(flood.as_bytes(), std::sync::Arc::clone(&stderr_tail)).await;
        stderr_tail.complete().await;
        let shown = stderr_tail.shown();
        assert!(shown.len() <= KEPT_BYTES_MAX && shown.starts_with("a line of it\n"), "{shown}");
        assert!(shown.ends_with("a line of it\nlast red word"), "{shown}");
    }
}
