//! Text that a terminal only shows.
//!
//! Whatever a session holds was written by models, tools, files and other people. Its control
//! characters could move the cursor, rename the window or answer in our place; characters that turn the
//! direction of text, or that nobody sees, could make a command look like another one. Here they become
//! visible. Every text that is drawn passes [`clean`] or [`crate::ansi`], and [`scrub`] looks once more
//! at the finished screen.

use std::borrow::Cow;

use ratatui_core::buffer::Buffer;

/// What a tab is shown as.
pub const TAB: &str = "    ";
/// What stands for a character that cannot be shown.
const INSTEAD: char = '\u{fffd}';

/// The text with its line ends, and with nothing that a terminal would obey.
pub fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text, TAB)
}

/// The same with its tabs: where a terminal sets them, or where they are part of what somebody writes.
pub fn clean_but_tabs(text: &str) -> Cow<'_, str> {
    cleaned(text, "\t")
}

fn cleaned<'a>(text: &'a str, tab: &str) -> Cow<'a, str> {
    if !text.chars().any(|c| c != '\n' && is_harmful(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str(tab),
            '\r' if rest.peek() == Some(&'\n') => {}
            c if is_harmful(c) => out.push(visible(c)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same on one line.
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands for this character where it must not reach the terminal.
pub fn visible(c: char) -> char {
    match c {
        '\u{7f}' => '\u{2421}',
        // Unicode has a picture for each of the first control characters.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(INSTEAD),
        _ => INSTEAD,
    }
}

/// Control characters, those that turn the direction of text, and those that nobody sees. The joiners
/// of emoji and of Indic and Persian words are no such thing.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The last look: no cell of a finished screen holds what a terminal would obey.
pub fn scrub(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().chars().any(is_harmful) {
            let seen: String = cell.symbol().chars().filter(|c| !is_harmful(*c)).collect();
            let instead = if seen.is_empty() { INSTEAD.to_string() } else { seen };
            cell.set_symbol(&instead);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_becomes_visible() {
        for (text, expected) in [
            ("plain ü 👩‍👩‍👧\nnext", "plain ü 👩‍👩‍👧\nnext"),
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("\u{9b}31m", "\u{fffd}31m"),
            ("a\tb\r\nc\rd\x7f", "a    b\nc␍d␡"),
            ("rm \u{202e}cod\u{2069} x\u{200b}y", "rm \u{fffd}cod\u{fffd} x\u{fffd}y"),
            ("\u{e0041}\u{feff}", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        assert_eq!(one_line(" a\n\tb\x1b "), "a b␛");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_of_any_text(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(|c| c != '\n' && is_harmful(c)));
        }
    }
}
