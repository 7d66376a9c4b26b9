//! Splits a byte stream into newline-delimited frames, under a size limit.
//!
//! A frame over the limit is dropped as it arrives, so memory stays flat however long it is, and the next
//! frame is read as usual.

mod truncated_message;

use sha2::{Digest, Sha256};

use crate::rpc::RpcId;

pub use self::truncated_message::{TruncatedMessage, read_truncated};

/// The default size limit: an image of 20 MiB in base64, and the rest of its message.
pub const LINE_FRAME_BYTES_MAX: usize = 32 << 20;
/// A buffer that grew beyond this for one large frame is released afterwards.
const KEEP_BYTES_MAX: usize = 256 << 10;
/// How much of a dropped frame's beginning and end is kept, to find its id.
const HEAD_BYTES: usize = 1 << 10;
const TAIL_BYTES: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// One line without its line end. Never blank.
    Line(Vec<u8>),
    /// A frame was dropped because it was longer than the limit. The id is that of the request, if the
    /// beginning or the end of the frame shows it.
    TooLong { limit_bytes: usize, id: Option<RpcId> },
}

/// What is known about a dropped frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedFrame {
    pub bytes: u64,
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// The hash of the whole frame, if enabled: see [`FrameBuffer::hashing`].
    pub sha256: Option<[u8; 32]>,
}

impl DroppedFrame {
    fn append(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
    }
}

pub struct FrameBuffer {
    limit_bytes: usize,
    bytes: Vec<u8>,
    /// Where the next frame begins in `bytes`.
    start: usize,
    /// Everything before this was already searched for a line end.
    searched: usize,
    skipping: bool,
    dropped: DroppedFrame,
    /// Dropped frames are hashed.
    hashes: bool,
    hasher: Option<Sha256>,
}

impl FrameBuffer {
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            skipping: false,
            dropped: DroppedFrame::default(),
            hashes: false,
            hasher: None,
        }
    }

    /// Enables hashing of dropped frames.
    pub fn hashing(self) -> Self {
        Self { hashes: true, ..self }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEEP_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame of the pushed bytes.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &self.bytes[self.searched..]) else {
                self.searched = self.bytes.len();
                self.skip_if_too_long();
                return None;
            };
            let end = self.searched + at;
            let line = &self.bytes[self.start..end];
            let too_long = self.skipping || line.len() > self.limit_bytes;
            let frame = if too_long { None } else { clean(line).map(Frame::Line) };
            if too_long {
                self.drop_bytes(end);
                self.drop_whole();
            }
            self.start = end + 1;
            self.searched = self.start;
            self.skipping = false;
            if too_long {
                return Some(self.too_long());
            }
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// The last frame, if the stream ends without a line end.
    pub fn finish(&mut self) -> Option<Frame> {
        let rest = clean(&self.bytes[self.start..]).map(Frame::Line);
        self.drop_whole();
        let skipped = self.skipping.then(|| self.too_long());
        self.bytes.clear();
        (self.start, self.searched, self.skipping) = (0, 0, false);
        skipped.or(rest)
    }

    fn too_long(&self) -> Frame {
        let TruncatedMessage { id, answers, .. } = read_truncated(&self.dropped.head, &self.dropped.tail);
        Frame::TooLong { limit_bytes: self.limit_bytes, id: id.filter(|_| !answers) }
    }

    /// What is known about the last frame that was too long.
    pub fn dropped(&self) -> &DroppedFrame {
        &self.dropped
    }

    /// Records that everything up to `end` is about to be dropped.
    fn drop_bytes(&mut self, end: usize) {
        if !self.skipping {
            self.dropped = DroppedFrame::default();
            self.hasher = self.hashes.then(Sha256::new);
        }
        let bytes = &self.bytes[self.start..end];
        self.dropped.append(bytes);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }

    /// A dropped frame has ended.
    fn drop_whole(&mut self) {
        if let Some(hasher) = self.hasher.take() {
            self.dropped.sha256 = Some(hasher.finalize().into());
        }
    }

    fn skip_if_too_long(&mut self) {
        if self.skipping || self.bytes.len() - self.start > self.limit_bytes {
            self.drop_bytes(self.bytes.len());
            self.skipping = true;
            self.bytes = Vec::new();
            (self.start, self.searched) = (0, 0);
        }
    }
}

/// The line without a carriage return; `None` if it is blank.
fn clean(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let blank = line.iter().all(u8::is_ascii_whitespace);
    (!blank).then(|| line.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(limit: usize, pieces: &[&[u8]]) -> Vec<Frame> {
        let mut buffer = FrameBuffer::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            buffer.push(piece);
            out.extend(std::iter::from_fn(|| buffer.next_frame()));
        }
        out.extend(buffer.finish());
        out
    }

    fn too_long(limit_bytes: usize) -> Frame {
        Frame::TooLong { limit_bytes, id: None }
    }

    fn line(text: &str) -> Frame {
        Frame::Line(text.into())
    }

    #[test]
    fn lines_are_cut_at_newlines_and_the_last_needs_none() {
        assert_eq!(frames(9, &[b"ab\r\n\n  \ncd", b"e\nf"]), [line("ab"), line("cde"), line("f")]);
    }

    #[test]
    fn a_frame_over_the_limit_is_reported_and_the_next_one_works() {
        let long = vec![b'x'; 1000];
        let expected = [too_long(10), line("ok")];
        assert_eq!(frames(10, &[&long, &long, b"tail\nok\n"]), expected);
        assert_eq!(frames(10, &[&long]), [too_long(10)]);
    }

    #[test]
    fn a_request_that_is_too_long_keeps_its_id_and_an_answer_does_not() {
        let long = "x".repeat(5000);
        let dropped = |line: String, id: Option<&str>| {
            let frame = Frame::TooLong { limit_bytes: 10, id: id.and_then(RpcId::from_json) };
            assert_eq!(frames(10, &[line.as_bytes(), b"\n"]), [frame], "{id:?}");
        };
        dropped(
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":["{long}"]}}"#),
            Some("7"),
        );
        dropped(
            format!(r#"{{"jsonrpc":"2.0","method":"session/prompt","params":["{long}"],"id":"a"}}"#),
            Some("\"a\""),
        );
        dropped(format!(r#"{{"jsonrpc":"2.0","id":7,"result":["{long}"]}}"#), None);
    }

    #[test]
    fn how_a_dropped_frame_began_and_ended_and_how_long_it_was_is_known() {
        for piece in [1, 7, 4096, 1 << 20] {
            let mut buffer = FrameBuffer::new(10);
            let line = [b"{begin".as_slice(), &[b'x'; 5000], b"end}\n"].concat();
            for part in line.chunks(piece) {
                buffer.push(part);
                if let Some(frame) = buffer.next_frame() {
                    assert_eq!(frame, too_long(10));
                }
            }
            let dropped = buffer.dropped();
            assert_eq!(dropped.bytes, 5010);
            assert_eq!((dropped.head.len(), dropped.tail.len()), (HEAD_BYTES, TAIL_BYTES));
            assert!(dropped.head.starts_with(b"{beginx") && dropped.tail.ends_with(b"xend}"), "{piece}");
        }
    }

    #[test]
    fn a_dropped_frame_is_known_by_its_hash_if_that_is_wanted() {
        let line = [b'x'; 5000];
        for (piece, end) in [(1, true), (7, false), (4096, true), (1 << 20, false)] {
            let mut buffer = FrameBuffer::new(10).hashing();
            for part in line.chunks(piece) {
                buffer.push(part);
                assert_eq!(buffer.next_frame(), None);
            }
            buffer.push(if end { b"\n" } else { b"" });
            let frame = if end { buffer.next_frame() } else { buffer.finish() };
            assert_eq!(frame, Some(too_long(10)));
            assert_eq!(buffer.dropped().sha256, Some(Sha256::digest(line).into()), "{piece}");
        }
        let mut buffer = FrameBuffer::new(10);
        buffer.push(&[b'x'; 20]);
        assert_eq!((buffer.next_frame(), buffer.finish().is_some()), (None, true));
        assert_eq!(buffer.dropped().sha256, None);
    }

    #[test]
    fn the_limit_is_exact() {
        assert_eq!(frames(3, &[b"abc\nabcd\n"]), [line("abc"), too_long(3)]);
    }

    #[test]
    fn memory_stays_flat_while_a_frame_is_too_long() {
        let mut buffer = FrameBuffer::new(1 << 16);
        for _ in 0..1000 {
            buffer.push(&[b'x'; 4096]);
            assert_eq!(buffer.next_frame(), None);
            assert!(buffer.bytes.capacity() <= 1 << 18);
        }
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_into_reads_does_not_matter(
            lines in proptest::collection::vec("[a-z]{0,20}", 0..20), cuts in proptest::collection::vec(1usize..30, 1..40),
        ) {
            let whole = lines.join("\n").into_bytes();
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut rest: &[u8] = &whole;
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(head);
                rest = tail;
            }
            prop_assert_eq!(frames(12, &pieces), frames(12, &[&whole]));
        }
    }
}
