//! Makes foreign text harmless for a terminal.
//!
//! The text of a session was written by models, tools, files and other people. Its control characters could
//! move the cursor, rename the window or answer in our place; bidirectional and invisible characters could
//! make a command look like another one. Here they become visible. Every text that is drawn passes
//! [`sanitize`] or [`crate::ansi_parser`], and [`sanitize_buffer`] checks the finished screen once more.

use std::borrow::Cow;

use ratatui_core::buffer::Buffer;

/// How a tab is shown.
pub const TAB: &str = "    ";
/// Replaces a character that cannot be shown.
const INSTEAD: char = '\u{fffd}';

/// The text with its line ends, and with nothing that a terminal would interpret.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    replace_harmful(text, TAB)
}

/// The same with its tabs: for text that a terminal lays out itself, or that a person writes.
pub fn sanitize_keep_tabs(text: &str) -> Cow<'_, str> {
    replace_harmful(text, "\t")
}

fn replace_harmful<'a>(text: &'a str, tab: &str) -> Cow<'a, str> {
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
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The visible replacement of a harmful character.
pub fn visible(c: char) -> char {
    match c {
        '\u{7f}' => '\u{2421}',
        // Unicode has a picture for each of the first control characters.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(INSTEAD),
        _ => INSTEAD,
    }
}

/// Control characters, bidirectional controls and invisible characters; but not the joiners of emoji and of Indic and
/// Persian words.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The last check: no cell of a finished screen contains what a terminal would interpret.
pub fn sanitize_buffer(buffer: &mut Buffer) {
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
            assert_eq!(sanitize(text), expected, "{text:?}");
        }
        assert_eq!(one_line(" a\n\tb\x1b "), "a b␛");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_of_any_text(text in any::<String>()) {
            prop_assert!(!sanitize(&text).chars().any(|c| c != '\n' && is_harmful(c)));
        }
    }
}
