//! Writing to people: colour where it is wanted, and nothing that their terminal would obey.
//!
//! What a session holds was written by models, tools and files. Shown on a terminal, its control
//! characters could move the cursor, rename the window or hide what is asked; they are made visible.

use std::borrow::Cow;
use std::fs::{File, FileType};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use rustix::termios::QueueSelector;
use serde_json::Value;

use crate::paths;
use crate::secrets;
use crate::trouble::Trouble;

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub fn quiet(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

pub fn stderr_paint() -> Paint {
    Paint { on: io::stderr().is_terminal() && wants_colour() }
}

pub fn wants_colour() -> bool {
    paths::variable("NO_COLOR").is_none() && paths::variable("TERM").is_none_or(|term| term != "dumb")
}

/// Text that a terminal only shows.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c == '\r' || is_harmful(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        // Alone it would have what follows written over what was there.
        let returns = c == '\r' && rest.peek() != Some(&'\n');
        out.push(if returns || is_harmful(c) { '\u{fffd}' } else { c });
    }
    Cow::Owned(out)
}

/// Control characters, those that turn the direction of what follows, and those that nobody sees.
fn is_harmful(c: char) -> bool {
    engine::is_hidden(c) && !matches!(c, '\n' | '\t' | '\r')
}

/// Harmless text on one line.
pub fn one_line(text: &str) -> String {
    harmless(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Harmless text on one line that can be told from any other: in quotes where it has line ends, tabs or outer blanks.
pub fn exact_line(text: &str) -> String {
    let shown = harmless(text);
    match shown.contains(['\n', '\t', '\r']) || shown.trim() != shown {
        true => format!("{shown:?}"),
        false => shown.into_owned(),
    }
}

/// At most so many characters of it.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// A line on standard error, without secrets. Who closed it does not want to know.
pub fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "{}", secrets::without(line)));
}

/// Writes text for people to standard output. A pager hands on what it is given, so this does not
/// depend on whether there is a terminal.
pub fn put(text: &str) -> Result<(), Trouble> {
    put_bytes(harmless(text).as_bytes())
}

/// Writes one JSON object on a line of its own.
pub fn put_json(value: &Value) -> Result<(), Trouble> {
    put_bytes(format!("{value}\n").as_bytes())
}

pub fn put_bytes(bytes: &[u8]) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Trouble::output(&error))
}

/// What standard input is; nothing if it is closed.
pub fn input_kind() -> Option<FileType> {
    File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok().map(|input| input.file_type())
}

/// Somebody may write to standard input who is neither a person nor a file: some programs start others with sockets for pipes.
pub fn input_is_piped() -> bool {
    input_kind().is_some_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// Asks a yes-or-no question on standard error; the default is no. Only what is typed after the question is shown
/// counts: an answer that somebody gave before they knew what is asked is none.
pub fn says_yes(question: &str) -> Result<bool, Trouble> {
    let stdin = io::stdin();
    // Without a terminal nothing can be typed ahead, and nothing is dropped.
    if stdin.is_terminal() {
        rustix::termios::tcflush(&stdin, QueueSelector::IFlush)
            .map_err(|error| Trouble::failed("could not discard earlier terminal input").because(error))?;
    }
    let mut out = io::stderr().lock();
    let asked = write!(out, "{} [y/N] ", one_line(question)).and_then(|()| out.flush());
    asked.map_err(|error| Trouble::output(&error))?;
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|error| Trouble::failed("could not read the answer").because(error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_given_nothing_to_obey() {
        assert_eq!(harmless("a\tb\nü"), "a\tb\nü");
        assert_eq!(harmless("\x1b]0;x\x07 \u{9b}1m \u{202e}"), "\u{fffd}]0;x\u{fffd} \u{fffd}1m \u{fffd}");
        assert_eq!(harmless("a\r\nb\rc\r"), "a\r\nb\u{fffd}c\u{fffd}");
        assert_eq!(one_line(" a\n b\x1b "), "a b\u{fffd}");
        assert_eq!(exact_line("echo 'a  b' \\n"), "echo 'a  b' \\n");
        assert_eq!(exact_line("a\tb\n\\n "), r#""a\tb\n\\n ""#);
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
