//! Output for people: colour if wanted, and no control characters.
//!
//! The content of a session comes from models, tools and files. On a terminal, its control characters could move the
//! cursor, rename the window or hide a question, so they are replaced by visible ones.

use std::borrow::Cow;
use std::fs::{File, FileType};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use rustix::termios::QueueSelector;
use serde_json::Value;

use crate::cli_error::CliError;
use crate::paths;
use crate::secrets_to_redact;

/// Colours, on or off.
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

/// Replaces everything that a terminal would interpret.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c == '\r' || is_harmful(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        // Without a line feed, it would overwrite the line.
        let returns = c == '\r' && rest.peek() != Some(&'\n');
        out.push(if returns || is_harmful(c) { '\u{fffd}' } else { c });
    }
    Cow::Owned(out)
}

/// Control characters, direction marks and invisible characters.
fn is_harmful(c: char) -> bool {
    engine::is_hidden(c) && !matches!(c, '\n' | '\t' | '\r')
}

/// Harmless text on one line.
pub fn one_line(text: &str) -> String {
    harmless(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Harmless text on one line, unambiguous: quoted if it has line ends, tabs or outer blanks.
pub fn exact_line(text: &str) -> String {
    let shown = harmless(text);
    match shown.contains(['\n', '\t', '\r']) || shown.trim() != shown {
        true => format!("{shown:?}"),
        false => shown.into_owned(),
    }
}

/// Cuts the text to this many characters.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// Prints a line on standard error, with secrets redacted. Ignores a closed stream.
pub fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "{}", secrets_to_redact::redacted(line)));
}

/// Writes text for people to standard output. Control characters are replaced even without a terminal: a pager would pass
/// them on.
pub fn put(text: &str) -> Result<(), CliError> {
    put_bytes(harmless(text).as_bytes())
}

/// Writes one JSON object on a line of its own.
pub fn put_json(value: &Value) -> Result<(), CliError> {
    put_bytes(format!("{value}\n").as_bytes())
}

pub fn put_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| CliError::from_output(&error))
}

/// The file type of standard input; `None` if it is closed.
pub fn input_kind() -> Option<FileType> {
    File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok().map(|input| input.file_type())
}

/// Whether standard input is a pipe or a socket. Some programs use sockets as pipes.
pub fn input_is_piped() -> bool {
    input_kind().is_some_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// Asks a yes-or-no question on standard error; the default is no. Discards what was typed before the question was
/// shown.
pub fn says_yes(question: &str) -> Result<bool, CliError> {
    let stdin = io::stdin();
    // Without a terminal, nothing can be typed ahead.
    if stdin.is_terminal() {
        rustix::termios::tcflush(&stdin, QueueSelector::IFlush)
            .map_err(|error| CliError::failed("could not discard earlier terminal input").because(error))?;
    }
    let mut out = io::stderr().lock();
    let asked = write!(out, "{} [y/N] ", one_line(question)).and_then(|()| out.flush());
    asked.map_err(|error| CliError::from_output(&error))?;
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|error| CliError::failed("could not read the answer").because(error))?;
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
