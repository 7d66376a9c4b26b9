//! What a receiver without a mirror may have missed: the last updates of the session, and answers to its requests.
//!
//! Frames are counted from the first one of the bridge on, and a receiver confirms how many of them it has. After a
//! cut it is sent the last `window` updates again, however many of them it has, each marked as a replay with its
//! number; and, in their places among these, the answers that it has not confirmed.
//!
//! **Invariant:** at most `window` updates, [`ANSWERS_MAX`] answers and [`BYTES_MAX`] bytes are held.

use std::collections::VecDeque;

use engine::Seq;
use serde::Deserialize;

use server::FrameBatch;

/// Answers that were not confirmed. A receiver has far fewer requests under way.
const ANSWERS_MAX: usize = 256;
const BYTES_MAX: usize = 8 << 20;
/// Marks that are not confirmed yet.
const MARKS_MAX: usize = 1024;

pub(super) struct Backlog {
    window: usize,
    entries: VecDeque<Entry>,
    /// Updates and answers among the entries, and the bytes of both.
    updates_held: usize,
    answers_held: usize,
    bytes: usize,
    /// Frames and updates so far.
    frames: u64,
    updates: u64,
    /// How many of these the receiver has.
    confirmed: u64,
    confirmed_updates: u64,
    /// For each mark, the number of frames and of updates at that time.
    marks: VecDeque<(u64, u64)>,
    /// The position in the log that the frames lead to.
    seq: Seq,
}

struct Entry {
    frame: Vec<u8>,
    /// It is the so-many-th frame.
    nth: u64,
    /// It is the so-many-th update; an answer has no number.
    update: Option<u64>,
}

impl Backlog {
    pub fn new(window: u64) -> Self {
        Self {
            window: usize::try_from(window).unwrap_or(usize::MAX),
            entries: VecDeque::new(),
            updates_held: 0,
            answers_held: 0,
            bytes: 0,
            frames: 0,
            updates: 0,
            confirmed: 0,
            confirmed_updates: 0,
            marks: VecDeque::new(),
            seq: Seq::START,
        }
    }

    /// Keeps a batch of frames, and gives the mark by which the receiver confirms all of it.
    pub fn keep(&mut self, batch: &FrameBatch) -> u64 {
        batch.frames().for_each(|frame| self.push(frame));
        let seen = batch.positioned().iter().map(|placed| placed.position.seq).max();
        self.seq = self.seq.max(seen.unwrap_or(Seq::START));
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((self.frames, self.updates));
        self.frames
    }

    fn push(&mut self, frame: &[u8]) {
        self.frames += 1;
        let update = is_update(frame);
        self.updates += u64::from(update);
        self.entries.push_back(Entry {
            frame: frame.to_vec(),
            nth: self.frames,
            update: update.then_some(self.updates),
        });
        self.bytes += frame.len();
        match update {
            true => self.updates_held += 1,
            false => self.answers_held += 1,
        }
        while self.updates_held > self.window {
            self.drop_first(|entry| entry.update.is_some());
        }
        while self.answers_held > ANSWERS_MAX {
            tracing::warn!("a receiver does not confirm the answers to its requests; dropping the oldest");
            self.drop_first(|entry| entry.update.is_none());
        }
        // Updates are in the log, and session/load tells them. Nobody gives an answer twice.
        while self.bytes > BYTES_MAX && self.entries.len() > 1 {
            if self.updates_held == 0 {
                tracing::warn!(
                    "the answers that a receiver did not confirm are too large; dropping the oldest"
                );
                self.drop_first(|_| true);
            } else {
                self.drop_first(|entry| entry.update.is_some());
            }
        }
    }

    fn drop_first(&mut self, is: impl Fn(&Entry) -> bool) {
        let Some(entry) = self.entries.iter().position(is).and_then(|at| self.entries.remove(at)) else {
            return;
        };
        self.bytes -= entry.frame.len();
        match entry.update {
            Some(_) => self.updates_held -= 1,
            None => self.answers_held -= 1,
        }
    }

    /// The receiver has so many frames. Nobody has what was not said.
    pub fn confirm(&mut self, frames: u64) {
        self.confirmed = self.confirmed.max(frames.min(self.frames));
        while let Some((_, updates)) = self.marks.front().filter(|(frames, _)| *frames <= self.confirmed) {
            self.confirmed_updates = *updates;
            self.marks.pop_front();
        }
        let confirmed = self.confirmed;
        while self.answers_held > 0
            && self.entries.iter().any(|entry| entry.update.is_none() && entry.nth <= confirmed)
        {
            self.drop_first(|entry| entry.update.is_none() && entry.nth <= confirmed);
        }
    }

    /// The connection was lost: its marks will never be confirmed.
    pub fn connection_lost(&mut self) {
        self.marks.clear();
    }

    /// The receiver has forgotten the session: it has none of the updates, and waits for no answer.
    pub fn on_forgotten(&mut self) {
        self.connection_lost();
        self.confirmed_updates = 0;
        while self.answers_held > 0 {
            self.drop_first(|entry| entry.update.is_none());
        }
    }

    /// Whether the receiver missed more than is sent again.
    pub fn is_exceeded(&self) -> bool {
        let first = self.entries.iter().find_map(|entry| entry.update);
        self.confirmed_updates + 1 < first.unwrap_or(self.updates + 1)
    }

    /// The frames to send after a cut, in order; and the mark by which the receiver confirms all of them.
    pub fn replay(&mut self) -> (Vec<Vec<u8>>, u64) {
        let frames = self.entries.iter().map(|entry| match entry.update {
            Some(number) => replayed(&entry.frame, number),
            None => entry.frame.clone(),
        });
        self.marks.push_back((self.frames, self.updates));
        (frames.collect(), self.frames)
    }

    /// Updates that the receiver has not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.updates - self.confirmed_updates
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }
}

/// Whether a frame is an update: an answer has no method, and a receiver without a mirror gets nothing else.
fn is_update(frame: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct MethodOnly {
        method: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<MethodOnly>(frame).is_ok_and(|named| named.method.is_some())
}

/// The same frame, byte for byte, with two more members at the end of its parameters.
fn replayed(frame: &[u8], number: u64) -> Vec<u8> {
    let Some(inner) = frame.strip_suffix(b"}}") else { return frame.to_vec() };
    let mut marked = inner.to_vec();
    marked.extend_from_slice(format!(r#","replay":true,"replaySeq":{number}}}}}"#).as_bytes());
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"ok":true}}"#;

    fn update(text: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"text":"{text}"}}}}"#)
    }

    fn said(backlog: &mut Backlog, frames: &[&str]) -> u64 {
        let bytes = frames.iter().flat_map(|frame| format!("{frame}\n").into_bytes()).collect();
        backlog.keep(&FrameBatch { bytes, marks: Vec::new() })
    }

    fn replay(backlog: &mut Backlog) -> Vec<String> {
        backlog.replay().0.into_iter().map(|frame| String::from_utf8(frame).unwrap()).collect()
    }

    fn marked(text: &str, number: u64) -> String {
        update(text).replace("\"}}", &format!("\",\"replay\":true,\"replaySeq\":{number}}}}}"))
    }

    #[test]
    fn exactly_the_window_is_told_again_whatever_was_confirmed() {
        let mut backlog = Backlog::new(3);
        for number in 1..=5 {
            let mark = said(&mut backlog, &[&update(&number.to_string())]);
            backlog.confirm(mark);
        }
        assert!(!backlog.is_exceeded());
        assert_eq!(replay(&mut backlog), [marked("3", 3), marked("4", 4), marked("5", 5)]);
        said(&mut backlog, &[&update("6"), &update("7"), &update("8")]);
        assert!(!backlog.is_exceeded(), "as much as the window was missed");
        said(&mut backlog, &[&update("9")]);
        assert!(backlog.is_exceeded(), "one more was missed");
        assert_eq!(replay(&mut backlog), [marked("7", 7), marked("8", 8), marked("9", 9)]);
        assert_eq!(backlog.unconfirmed(), 4);
        backlog.on_forgotten();
        assert_eq!(backlog.unconfirmed(), 9);
    }

    #[test]
    fn an_answer_keeps_its_place_and_is_told_until_it_is_confirmed() {
        let mut backlog = Backlog::new(2);
        let before = said(&mut backlog, &[&update("1")]);
        said(&mut backlog, &[ANSWER, &update("2")]);
        backlog.confirm(before);
        assert_eq!(replay(&mut backlog), [marked("1", 1), ANSWER.to_owned(), marked("2", 2)]);
        let last = said(&mut backlog, &[&update("3"), &update("4")]);
        assert_eq!(replay(&mut backlog), [ANSWER.to_owned(), marked("3", 3), marked("4", 4)]);
        backlog.confirm(last);
        assert_eq!(replay(&mut backlog), [marked("3", 3), marked("4", 4)]);
        said(&mut backlog, &[ANSWER]);
        backlog.on_forgotten();
        assert_eq!(replay(&mut backlog), [marked("3", 3), marked("4", 4)], "nobody waits for it");
    }

    /// Updates are in the log, and `session/load` tells them. An answer is given by nobody else.
    #[test]
    fn where_there_is_no_room_answers_are_kept_before_updates() {
        let mut backlog = Backlog::new(u64::MAX);
        let quarter = "x".repeat(BYTES_MAX / 4);
        said(&mut backlog, &[&update("first"), ANSWER]);
        for _ in 0..10 {
            said(&mut backlog, &[&update(&quarter)]);
        }
        let kept = replay(&mut backlog);
        // The frames are too large to be shown.
        assert!(kept[0] == ANSWER, "the oldest frame that is kept, before updates that are newer");
        assert_eq!((kept.len(), backlog.is_exceeded()), (4, true));
        let large = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{quarter}"}}"#);
        for id in 1..=3 {
            said(&mut backlog, &[&large(id)]);
        }
        assert!(replay(&mut backlog) == [ANSWER.to_owned(), large(1), large(2), large(3)]);
        // Only where there is no update left to drop, the oldest answer goes.
        said(&mut backlog, &[&large(4)]);
        assert!(replay(&mut backlog) == [large(2), large(3), large(4)]);
    }

    #[test]
    fn a_receiver_that_never_confirms_costs_only_so_much() {
        let mut backlog = Backlog::new(u64::MAX);
        let large = update(&"x".repeat(BYTES_MAX / 4));
        for _ in 0..10 {
            said(&mut backlog, &[&large]);
        }
        assert!(backlog.bytes <= BYTES_MAX && backlog.is_exceeded());
        for _ in 0..2 * MARKS_MAX {
            said(&mut backlog, &[ANSWER]);
        }
        assert!(backlog.answers_held <= ANSWERS_MAX && backlog.marks.len() <= MARKS_MAX);
        backlog.confirm(u64::MAX);
        assert_eq!((backlog.answers_held, backlog.unconfirmed()), (0, 0));
    }
}
