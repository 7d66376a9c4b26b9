//! Splits the bytes of a reply into events: server-sent events, or one JSON value per line.
//!
//! Bytes may be split anywhere, also inside a character, so splitting works on bytes and examines each of
//! them once. What a provider sends is not trusted: lines, events and replies have a maximum size.
//!
//! Some servers answer a request for a stream with one plain JSON value, errors among them. A body that
//! starts with `{` is therefore one event, whatever its content type is.

use std::collections::VecDeque;

/// An event may contain a whole image; nothing useful is longer.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
const REPLY_BYTES_MAX: u64 = 128 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `text/event-stream`.
    Events,
    /// `application/x-ndjson`.
    Lines,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) name: Option<String>,
    pub(super) data: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("an event is longer than {EVENT_BYTES_MAX} bytes")]
    EventTooLong,
    #[error("the reply is longer than {REPLY_BYTES_MAX} bytes")]
    ReplyTooLong,
}

pub(super) struct Frames {
    framing: Framing,
    buffer: Vec<u8>,
    /// Up to this position the buffer has no line end.
    searched: usize,
    started: bool,
    is_plain_json: bool,
    total_bytes: u64,
    name: Option<String>,
    data: Option<String>,
    ready: VecDeque<Event>,
}

impl Frames {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            framing,
            buffer: Vec::new(),
            searched: 0,
            started: false,
            is_plain_json: false,
            total_bytes: 0,
            name: None,
            data: None,
            ready: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.total_bytes += bytes.len() as u64;
        if self.total_bytes > REPLY_BYTES_MAX {
            return Err(FrameError::ReplyTooLong);
        }
        self.buffer.extend_from_slice(bytes);
        self.begin();
        if self.started && !self.is_plain_json {
            self.cut_lines()?;
        }
        let pending = self.buffer.len() + self.data.as_ref().map_or(0, String::len);
        if pending > EVENT_BYTES_MAX { Err(FrameError::EventTooLong) } else { Ok(()) }
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Called at the end of the bytes. An event without the final empty line counts, because some servers
    /// omit it.
    pub(super) fn finish(&mut self) {
        let rest = std::mem::take(&mut self.buffer);
        self.searched = 0;
        if self.is_plain_json {
            self.data = Some(String::from_utf8_lossy(&rest).into_owned());
        } else if !rest.is_empty() {
            self.line(rest.strip_suffix(b"\r").unwrap_or(&rest));
        }
        self.dispatch();
    }

    /// Examines the first bytes, when they have arrived.
    fn begin(&mut self) {
        if self.started {
            return;
        }
        const MARK: &[u8] = b"\xEF\xBB\xBF";
        if self.buffer.len() < MARK.len() && MARK.starts_with(&self.buffer) {
            return;
        }
        if self.buffer.starts_with(MARK) {
            self.buffer.drain(..MARK.len());
        }
        // Empty lines are keep-alives; collecting them would mean examining them again and again.
        let blank = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.buffer.drain(..blank);
        if let Some(first) = self.buffer.first() {
            self.started = true;
            self.is_plain_json = self.framing == Framing::Events && *first == b'{';
        }
    }

    fn cut_lines(&mut self) -> Result<(), FrameError> {
        let buffer = std::mem::take(&mut self.buffer);
        let (mut start, mut at) = (0, self.searched);
        while at < buffer.len() {
            let end = at;
            match buffer[at] {
                b'\n' => at += 1,
                // A following line feed may not have arrived yet.
                b'\r' if at + 1 == buffer.len() => break,
                b'\r' if buffer[at + 1] == b'\n' => at += 2,
                b'\r' => at += 1,
                _ => {
                    at += 1;
                    continue;
                }
            }
            self.line(&buffer[start..end]);
            start = at;
            if self.data.as_ref().is_some_and(|data| data.len() > EVENT_BYTES_MAX) {
                return Err(FrameError::EventTooLong);
            }
        }
        self.searched = at - start;
        self.buffer = buffer;
        self.buffer.drain(..start);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        match self.framing {
            Framing::Lines if line.trim().is_empty() => {}
            Framing::Lines => self.ready.push_back(Event { name: None, data: line.into_owned() }),
            Framing::Events if line.is_empty() => self.dispatch(),
            Framing::Events => {
                let (field, value) = line.split_once(':').unwrap_or((&line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match (field, &mut self.data) {
                    ("data", Some(data)) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    ("data", none) => *none = Some(value.to_owned()),
                    ("event", _) => self.name = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
    }

    fn dispatch(&mut self) {
        let name = self.name.take();
        if let Some(data) = self.data.take() {
            self.ready.push_back(Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests;
