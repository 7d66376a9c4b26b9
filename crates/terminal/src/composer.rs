//! The text field for prompts: several lines, a cursor that moves by graphemes, and the history of sent prompts.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::sanitize::{TAB, sanitize_keep_tabs};

/// Longer pastes are refused: they belong in a file.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const HISTORY_MAX: usize = 200;

#[derive(Debug, Default, Clone)]
pub struct Composer {
    text: String,
    /// A byte offset, between two graphemes.
    cursor: usize,
    /// Sent prompts, the oldest first.
    history: Vec<String>,
    /// The index of the one that is shown.
    recalled: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    Up,
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erase {
    Left,
    Right,
    WordLeft,
    ToLineStart,
    ToLineEnd,
}

/// The text in lines of the screen, and the position of the cursor in them.
pub struct WrappedText {
    pub lines: Vec<String>,
    pub row: usize,
    pub column: usize,
}

impl Composer {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cursor(&self) -> usize {
        self.cursor
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn set(&mut self, text: &str) {
        self.text = sanitize_keep_tabs(text).into_owned();
        self.cursor = self.text.len();
    }

    /// Takes the text out, and adds it to the history.
    pub fn send(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.remember(&text);
        self.cursor = 0;
        text
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.cursor = 0;
        self.recalled = None;
    }

    pub fn remember(&mut self, text: &str) {
        self.recalled = None;
        if text.trim().is_empty() || self.history.last().is_some_and(|last| last == text) {
            return;
        }
        self.history.push(text.to_owned());
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }

    /// Adds a prompt that was sent before this client started.
    pub fn remember_earlier(&mut self, text: &str) {
        if !self.history.iter().any(|known| known == text) && self.recalled.is_none() {
            self.remember(&sanitize_keep_tabs(text));
        }
    }

    /// False if there is no room for it.
    pub fn insert(&mut self, text: &str) -> bool {
        let text = sanitize_keep_tabs(text);
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return false;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        self.recalled = None;
        true
    }

    /// Adds a text below what is written.
    pub fn append(&mut self, text: &str) {
        self.cursor = self.text.len();
        let gap = if self.text.is_empty() || text.is_empty() { "" } else { "\n" };
        self.insert(&format!("{gap}{text}"));
    }

    /// Replaces the text between this offset and the cursor.
    pub fn complete(&mut self, from: usize, text: &str) {
        if self.text.is_char_boundary(from) && from <= self.cursor {
            self.text.replace_range(from..self.cursor, "");
            self.cursor = from;
            self.insert(text);
        }
    }

    pub fn go(&mut self, to: Move) {
        self.cursor = match to {
            Move::Left => self.left(),
            Move::Right => self.right(),
            Move::WordLeft => self.word_left(),
            Move::WordRight => self.word_right(),
            Move::LineStart => self.line_start(),
            Move::LineEnd => self.line_end(),
            Move::Up => self.line_up(),
            Move::Down => self.line_down(),
        };
    }

    pub fn erase(&mut self, what: Erase) {
        let range = match what {
            Erase::Left => self.left()..self.cursor,
            Erase::Right => self.cursor..self.right(),
            Erase::WordLeft => self.word_left()..self.cursor,
            Erase::ToLineStart => self.line_start()..self.cursor,
            Erase::ToLineEnd if self.line_end() == self.cursor => self.cursor..self.right(),
            Erase::ToLineEnd => self.cursor..self.line_end(),
        };
        self.cursor = range.start;
        self.text.replace_range(range, "");
        self.recalled = None;
    }

    pub fn is_on_first_line(&self) -> bool {
        self.line_start() == 0
    }

    pub fn is_on_last_line(&self) -> bool {
        self.line_end() == self.text.len()
    }

    /// Whether the text is an earlier prompt, unchanged.
    pub fn is_recalled(&self) -> bool {
        self.recalled.is_some()
    }

    pub fn recall(&mut self, older: bool) {
        let at = match (self.recalled, older) {
            (None, true) => self.history.len().checked_sub(1),
            (Some(at), true) => Some(at.saturating_sub(1)),
            (Some(at), false) if at + 1 < self.history.len() => Some(at + 1),
            (_, false) => None,
        };
        let text = at.and_then(|at| self.history.get(at)).cloned();
        match text {
            Some(text) => self.set(&text),
            None if self.recalled.is_some() => self.clear(),
            None => {}
        }
        self.recalled = at;
    }

    /// Broken into lines of this width.
    pub fn wrapped(&self, width: usize) -> WrappedText {
        let width = width.max(2);
        let mut wrapped = WrappedText { lines: vec![String::new()], row: 0, column: 0 };
        let mut cells = 0;
        let mut at = 0;
        for grapheme in self.text.graphemes(true) {
            if at == self.cursor {
                (wrapped.row, wrapped.column) = (wrapped.lines.len() - 1, cells);
            }
            at += grapheme.len();
            if grapheme == "\n" {
                wrapped.lines.push(String::new());
                cells = 0;
                continue;
            }
            let shown = if grapheme == "\t" { &TAB[..TAB.len().min(width - 1)] } else { grapheme };
            if cells + shown.width() >= width {
                wrapped.lines.push(String::new());
                cells = 0;
                if at - grapheme.len() == self.cursor {
                    (wrapped.row, wrapped.column) = (wrapped.lines.len() - 1, 0);
                }
            }
            cells += shown.width();
            if let Some(line) = wrapped.lines.last_mut() {
                line.push_str(shown);
            }
        }
        if self.cursor >= self.text.len() {
            (wrapped.row, wrapped.column) = (wrapped.lines.len() - 1, cells);
        }
        wrapped
    }

    fn left(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn word_left(&self) -> usize {
        let mut words = self.text[..self.cursor].unicode_word_indices();
        words.next_back().map_or(0, |(at, _)| at)
    }

    fn word_right(&self) -> usize {
        let next = self.text[self.cursor..].unicode_word_indices().next();
        next.map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn line_up(&self) -> usize {
        let start = self.line_start();
        let Some(above_end) = start.checked_sub(1) else { return 0 };
        let above_start = self.text[..above_end].rfind('\n').map_or(0, |at| at + 1);
        self.column_in(above_start, above_end, self.cursor - start)
    }

    fn line_down(&self) -> usize {
        let end = self.line_end();
        if end == self.text.len() {
            return end;
        }
        let below_end = self.text[end + 1..].find('\n').map_or(self.text.len(), |at| end + 1 + at);
        self.column_in(end + 1, below_end, self.cursor - self.line_start())
    }

    /// The offset in a line that is this many bytes from its start, or the grapheme boundary before it.
    fn column_in(&self, start: usize, end: usize, bytes: usize) -> usize {
        let line = &self.text[start..end];
        let places = line.grapheme_indices(true).map(|(at, _)| at).chain([line.len()]);
        start + places.take_while(|at| *at <= bytes).last().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(text: &str) -> Composer {
        let mut composer = Composer::default();
        composer.insert(text);
        composer
    }

    #[test]
    fn the_cursor_moves_by_what_people_see() {
        let mut composer = with("a 👩‍👩‍👧b");
        composer.go(Move::Left);
        composer.erase(Erase::Left);
        assert_eq!(composer.text(), "a b");
        composer.go(Move::LineStart);
        composer.go(Move::WordRight);
        composer.insert("!");
        assert_eq!(composer.text(), "a! b");
        composer.erase(Erase::ToLineEnd);
        assert_eq!(composer.text(), "a!");
    }

    #[test]
    fn lines_are_walked_up_and_down() {
        let mut composer = with("long line\nx\nlast");
        composer.go(Move::Up);
        composer.insert("y");
        composer.go(Move::Up);
        composer.go(Move::LineEnd);
        composer.insert("!");
        composer.go(Move::Down);
        composer.insert("?");
        assert_eq!(composer.text(), "long line!\nxy?\nlast");
    }

    #[test]
    fn what_was_sent_comes_back() {
        let mut composer = with("one");
        composer.send();
        composer.insert("two");
        composer.send();
        let mut seen = Vec::new();
        for older in [true, true, true, false, false] {
            composer.recall(older);
            seen.push(composer.text().to_owned());
        }
        assert_eq!(seen, ["two", "one", "one", "two", ""]);
    }

    #[test]
    fn a_paste_brings_text_and_nothing_else() {
        let composer = with("a\x1b[201~\r\nb\tc");
        assert_eq!(composer.text(), "a␛[201~\nb\tc");
        assert_eq!(composer.wrapped(20).lines, ["a␛[201~", "b    c"]);
        assert_eq!((composer.wrapped(20).row, composer.wrapped(20).column), (1, 6));
        assert!(!with("x").insert(&"x".repeat(TEXT_BYTES_MAX)));
    }

    #[test]
    fn long_lines_are_broken_and_the_cursor_is_found() {
        let wrapped = with("abcdefgh\nij").wrapped(5);
        assert_eq!(wrapped.lines, ["abcd", "efgh", "ij"]);
        assert_eq!((wrapped.row, wrapped.column), (2, 2));
    }

    proptest! {
        #[test]
        fn any_keys_leave_the_cursor_in_the_text(text in any::<String>(), keys in proptest::collection::vec(0usize..13, 0..40)) {
            let mut composer = with(&text);
            for key in keys {
                match key {
                    0 => composer.go(Move::Left),
                    1 => composer.go(Move::Right),
                    2 => composer.go(Move::WordLeft),
                    3 => composer.go(Move::WordRight),
                    4 => composer.go(Move::Up),
                    5 => composer.go(Move::Down),
                    6 => composer.go(Move::LineStart),
                    7 => composer.go(Move::LineEnd),
                    8 => composer.erase(Erase::Left),
                    9 => composer.erase(Erase::Right),
                    10 => composer.erase(Erase::WordLeft),
                    11 => composer.erase(Erase::ToLineStart),
                    _ => composer.erase(Erase::ToLineEnd),
                }
                prop_assert!(composer.text().is_char_boundary(composer.cursor()));
                let wrapped = composer.wrapped(7);
                prop_assert!(wrapped.row < wrapped.lines.len() && wrapped.column < 8);
            }
        }
    }
}
