//! Removes terminal control sequences from a program's output: colours, titles, cursor movements.
//!
//! The syntax is that of ECMA-48. A sequence that is not closed ends with its line, so that it hides no more
//! than that.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';
/// ESC [, as one character.
const CONTROL_SEQUENCE: char = '\u{9b}';
/// ESC \, as one character.
const STRING_END: char = '\u{9c}';

pub(super) fn strip(text: &str) -> Cow<'_, str> {
    if !text.contains([ESCAPE, CONTROL_SEQUENCE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ESCAPE => skip_escape(&mut rest),
            CONTROL_SEQUENCE => skip_parameters(&mut rest),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn skip_escape(rest: &mut Peekable<Chars<'_>>) {
    if rest.next_if_eq(&'[').is_some() {
        skip_parameters(rest);
    } else if rest.next_if(|c| matches!(c, ']' | 'P' | 'X' | '^' | '_')).is_some() {
        skip_string(rest);
    } else {
        while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
        rest.next_if(|c| matches!(c, '0'..='~'));
    }
}

fn skip_parameters(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// Skips the text of a command such as "set window title", up to its end.
pub fn skip_string(rest: &mut Peekable<Chars<'_>>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            BELL | STRING_END => return,
            ESCAPE => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_shows_is_left() {
        for (text, expected) in [
            ("plain [31m", "plain [31m"),
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("\u{9b}31mred\u{9b}m", "red"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
            ("\x1bPq#0\u{9c}c\x1b(Bd\x1b7e", "cde"),
            ("\x1b]0;open\nnext", "\nnext"),
            ("\x1b[31\nx\x1b", "\nx"),
            ("\x1b[?25lü", "ü"),
        ] {
            assert_eq!(strip(text), expected, "{text:?}");
        }
    }
}
