//! The output of commands as text: bytes are decoded, lines are rendered as a terminal would show them, and
//! of long output only the beginning and the end are given.
//!
//! The log has what was written, including colours, because a client may show it in a terminal. The model
//! gets what was visible in the end: a progress bar that was drawn a hundred times is one line.

/// The beginning and the end of an output that are given to the model.
const HEAD_BYTES_MAX: usize = 12 << 10;
const TAIL_BYTES_MAX: usize = 20 << 10;
/// A longer line is passed on unrendered.
const LINE_CHARS_MAX: usize = 16 << 10;
/// A longer control sequence is treated as text.
const SEQUENCE_CHARS_MAX: usize = 4 << 10;

/// Decodes bytes to text; the bytes may end in the middle of a character.
#[derive(Default)]
pub(crate) struct Decoder {
    incomplete: Vec<u8>,
}

impl Decoder {
    /// The rest of an incomplete character at the end.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.incomplete);
        (!held.is_empty()).then(|| String::from_utf8_lossy(&held).into_owned())
    }

    pub(crate) fn decode(&mut self, bytes: Vec<u8>) -> String {
        self.incomplete.extend(bytes);
        let unfinished = match std::str::from_utf8(&self.incomplete) {
            // A character has at most four bytes; an earlier error is a real one.
            Err(error) if error.error_len().is_none() => self.incomplete.len() - error.valid_up_to(),
            _ => unfinished_at_end(&self.incomplete),
        };
        let rest = self.incomplete.split_off(self.incomplete.len() - unfinished);
        let text = String::from_utf8_lossy(&self.incomplete).into_owned();
        self.incomplete = rest;
        text
    }
}

/// How many bytes at the end are an incomplete character.
fn unfinished_at_end(bytes: &[u8]) -> usize {
    let tail = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] & 0b1100_0000 != 0b1000_0000);
    let Some(back) = tail else { return 0 };
    let needs = match bytes[bytes.len() - back] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if needs > back { back } else { 0 }
}

/// Renders lines as a terminal does, including overwriting.
#[derive(Default)]
pub(crate) struct RenderedLines {
    line: Vec<char>,
    at: usize,
    escape: Escape,
}

/// The state inside a control sequence.
#[derive(Default, Clone, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    /// After `ESC [`, with the parameters so far.
    Control(String),
    /// An operating system command, such as a title, with its length so far. It ends with BEL or `ESC \`.
    Message(usize),
    MessageEnding,
    /// One more character belongs to the sequence.
    One,
}

impl RenderedLines {
    /// Processes output, and returns the finished lines.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut finished = String::new();
        for c in text.chars() {
            self.take(c, &mut finished);
        }
        finished
    }

    /// The current, unfinished line.
    pub(crate) fn rest(&mut self) -> String {
        self.at = 0;
        self.line.drain(..).collect()
    }

    fn take(&mut self, c: char, finished: &mut String) {
        match std::mem::take(&mut self.escape) {
            Escape::None => self.write(c, finished),
            Escape::Begun => {
                self.escape = match c {
                    '[' => Escape::Control(String::new()),
                    ']' | 'P' | 'X' | '^' | '_' => Escape::Message(0),
                    ' '..='/' => Escape::One,
                    _ => Escape::None,
                }
            }
            Escape::Control(sequence) if ('@'..='~').contains(&c) => self.control(&sequence, c),
            Escape::Control(mut sequence) => {
                if sequence.len() < SEQUENCE_CHARS_MAX && !c.is_control() {
                    sequence.push(c);
                    self.escape = Escape::Control(sequence);
                }
            }
            Escape::Message(_) if c == '\u{7}' => {}
            Escape::Message(_) if c == '\u{1b}' => self.escape = Escape::MessageEnding,
            Escape::Message(length) if length < SEQUENCE_CHARS_MAX => {
                self.escape = Escape::Message(length + 1);
            }
            Escape::MessageEnding if c != '\\' => self.escape = Escape::Message(0),
            Escape::Message(_) | Escape::MessageEnding | Escape::One => {}
        }
    }

    fn write(&mut self, c: char, finished: &mut String) {
        match c {
            '\n' => {
                finished.extend(self.line.drain(..));
                finished.push('\n');
                self.at = 0;
            }
            '\r' => self.at = 0,
            '\u{8}' => self.at = self.at.saturating_sub(1),
            '\u{1b}' => self.escape = Escape::Begun,
            c if c.is_control() && c != '\t' => {}
            c => {
                match self.line.get_mut(self.at) {
                    Some(place) => *place = c,
                    None => self.line.push(c),
                }
                self.at += 1;
                if self.line.len() >= LINE_CHARS_MAX {
                    finished.push_str(&self.rest());
                }
            }
        }
    }

    /// Only sequences that change the line are executed; others are colours and cursor positions.
    fn control(&mut self, sequence: &str, last: char) {
        let number = || sequence.parse().unwrap_or(1).clamp(1, LINE_CHARS_MAX);
        match (last, sequence) {
            ('K', "" | "0") | ('J', "" | "0") => self.line.truncate(self.at),
            ('K', "2") | ('J', "2" | "3") => self.line.clear(),
            ('D', _) => self.at = self.at.saturating_sub(number()),
            ('C', _) => self.at = (self.at + number()).min(self.line.len()),
            ('G', _) => self.at = (number() - 1).min(self.line.len()),
            _ => {}
        }
        self.at = self.at.min(self.line.len());
    }
}

/// The beginning and the end of a text.
#[derive(Default)]
pub(crate) struct Excerpt {
    head: String,
    tail: String,
    left_out: usize,
}

impl Excerpt {
    pub(crate) fn push(&mut self, text: &str) {
        let room = HEAD_BYTES_MAX.saturating_sub(self.head.len());
        let (head, rest) =
            text.split_at(text.floor_char_boundary(if self.tail.is_empty() { room } else { 0 }));
        self.head.push_str(head);
        self.tail.push_str(rest);
        if self.tail.len() > 2 * TAIL_BYTES_MAX {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let from = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(TAIL_BYTES_MAX));
        self.left_out += from;
        self.tail.drain(..from);
    }

    pub(crate) fn text(mut self) -> String {
        self.trim();
        match self.left_out {
            0 => self.head + &self.tail,
            bytes => format!("{}\n[{bytes} bytes left out]\n{}", self.head, self.tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> String {
        let mut lines = RenderedLines::default();
        // Wherever it is cut.
        let mut seen: String = text.chars().map(|c| lines.push(&c.to_string())).collect();
        seen.push_str(&lines.rest());
        let mut whole = RenderedLines::default();
        assert_eq!(seen, whole.push(text) + &whole.rest());
        seen
    }

    #[test]
    fn characters_split_between_chunks_stay_whole() {
        let text = "aä€😀z\u{fffd}";
        for size in 1..5 {
            let mut decoder = Decoder::default();
            let joined: String =
                text.as_bytes().chunks(size).map(|bytes| decoder.decode(bytes.to_vec())).collect();
            assert_eq!(joined, text, "in pieces of {size}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(vec![0xff, b'a', 0xe2]), "\u{fffd}a");
        assert_eq!(decoder.decode(vec![0x82, 0xac]), "€");
        assert_eq!((decoder.decode(vec![0xe2]), decoder.rest()), (String::new(), Some("\u{fffd}".into())));
    }

    #[test]
    fn what_was_drawn_is_told_as_it_stood_in_the_end() {
        for (written, told) in [
            ("one\ntwo", "one\ntwo"),
            ("a\tb\r\nc\r\n", "a\tb\nc\n"),
            ("\u{1b}[1;31mred\u{1b}[0m\u{1b}(B\u{1b}[?25l\u{1b}=!\n", "red!\n"),
            ("\u{1b}]0;a title\u{7}x\u{1b}]8;;http://y\u{1b}\\link\u{1b}]8;;\u{1b}\\\n", "xlink\n"),
            ("  1%\r 50%\r100%\ndone\n", "100%\ndone\n"),
            ("Compiling long name\r\u{1b}[KFinished\n", "Finished\n"),
            ("12345\rab\n", "ab345\n"),
            ("12345\u{8}\u{8}x\n", "123x5\n"),
            ("spin |\u{8}/\u{8}-\u{1b}[2K\rready\n", "ready\n"),
            ("abc\u{1b}[2Dx\u{1b}[1Gy\u{1b}[9999999999999Cz\n", "yxcz\n"),
            ("bell\u{7} null\0\n", "bell null\n"),
            ("unfinished \u{1b}[12;", "unfinished "),
        ] {
            assert_eq!(seen(written), told, "{written:?}");
        }
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let mut lines = RenderedLines::default();
        let long = "x".repeat(3 * LINE_CHARS_MAX);
        assert_eq!(lines.push(&long) + &lines.rest(), long);
        assert!(lines.line.len() < LINE_CHARS_MAX);
        for start in ["\u{1b}[", "\u{1b}]"] {
            let mut lines = RenderedLines::default();
            let text = lines.push(&format!("{start}{}", "0".repeat(2 * SEQUENCE_CHARS_MAX))) + &lines.rest();
            assert!(text.len() <= SEQUENCE_CHARS_MAX, "the text after it is seen again");
        }
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut output = Excerpt::default();
        for number in 0..20_000 {
            output.push(&format!("line {number}\n"));
        }
        let text = output.text();
        assert!(text.len() < 34 << 10);
        assert!(
            text.starts_with("line 0\n")
                && text.ends_with("line 19999\n")
                && text.contains("bytes left out]")
        );
        let mut short = Excerpt::default();
        short.push("hello\n");
        assert_eq!(short.text(), "hello\n");
    }
}
