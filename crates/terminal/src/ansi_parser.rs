//! The output of programs: colours are kept, all other terminal sequences are dropped.
//!
//! The sequences are those of ECMA-48. Only SGR (`ESC [ … m`) is interpreted. An unterminated sequence ends with
//! its line, so that it hides no more than that. Text before a lone carriage return was overwritten, as a
//! progress bar is, and is not shown.

use std::iter::Peekable;
use std::str::Chars;

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;
use wire::transcript_html::strip_ansi::skip_string;

use crate::sanitize::{is_harmful, visible};
use crate::theme::Theme;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';
const CONTROL_SEQUENCE: char = '\u{9b}';
/// More parameters than any colour takes.
const PARAMETERS_MAX: usize = 32;

/// The lines of an output.
pub fn lines(text: &str, theme: Theme) -> Vec<Vec<Span<'static>>> {
    let mut reader =
        Reader { theme, style: Style::new(), lines: Vec::new(), spans: Vec::new(), text: String::new() };
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        reader.take(c, &mut rest);
    }
    reader.close();
    if !reader.spans.is_empty() {
        reader.lines.push(reader.spans);
    }
    reader.lines
}

struct Reader {
    theme: Theme,
    style: Style,
    lines: Vec<Vec<Span<'static>>>,
    /// The spans of the line that is being read.
    spans: Vec<Span<'static>>,
    text: String,
}

impl Reader {
    fn take(&mut self, c: char, rest: &mut Peekable<Chars<'_>>) {
        match c {
            '\n' => {
                self.close();
                self.lines.push(std::mem::take(&mut self.spans));
            }
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' if rest.peek().is_some() => {
                self.text.clear();
                self.spans.clear();
            }
            '\r' => {}
            '\t' => self.text.push_str("    "),
            '\u{8}' => drop(self.text.pop()),
            ESCAPE => self.escape(rest),
            CONTROL_SEQUENCE => self.sequence(rest),
            BELL => {}
            c if is_harmful(c) => self.text.push(visible(c)),
            c => self.text.push(c),
        }
    }

    fn escape(&mut self, rest: &mut Peekable<Chars<'_>>) {
        if rest.next_if_eq(&'[').is_some() {
            self.sequence(rest);
        } else if rest.next_if(|c| matches!(c, ']' | 'P' | 'X' | '^' | '_')).is_some() {
            skip_string(rest);
        } else {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
    }

    fn sequence(&mut self, rest: &mut Peekable<Chars<'_>>) {
        let mut parameters = String::new();
        while let Some(c) = rest.next_if(|c| matches!(c, ' '..='?')) {
            parameters.push(c);
        }
        let end = rest.next_if(|c| matches!(c, '@'..='~'));
        if end == Some('m') && parameters.chars().all(|c| c.is_ascii_digit() || matches!(c, ';' | ':')) {
            self.close();
            self.style = self.theme.foreign(restyled(self.style, &parameters));
        }
    }

    fn close(&mut self) {
        if !self.text.is_empty() {
            self.spans.push(Span::styled(std::mem::take(&mut self.text), self.style));
        }
    }
}

fn restyled(mut style: Style, parameters: &str) -> Style {
    let codes: Vec<u16> =
        parameters.split([';', ':']).take(PARAMETERS_MAX).map(|code| code.parse().unwrap_or(0)).collect();
    let mut rest = codes.as_slice();
    while let [code, after @ ..] = rest {
        rest = after;
        style = match code {
            0 => Style::new(),
            1 => style.add_modifier(Modifier::BOLD),
            2 => style.add_modifier(Modifier::DIM),
            3 => style.add_modifier(Modifier::ITALIC),
            4 => style.add_modifier(Modifier::UNDERLINED),
            7 => style.add_modifier(Modifier::REVERSED),
            9 => style.add_modifier(Modifier::CROSSED_OUT),
            22 => style.remove_modifier(Modifier::BOLD | Modifier::DIM),
            23 => style.remove_modifier(Modifier::ITALIC),
            24 => style.remove_modifier(Modifier::UNDERLINED),
            27 => style.remove_modifier(Modifier::REVERSED),
            29 => style.remove_modifier(Modifier::CROSSED_OUT),
            30..=37 => style.fg(Color::Indexed(low(*code, 30))),
            40..=47 => style.bg(Color::Indexed(low(*code, 40))),
            90..=97 => style.fg(Color::Indexed(low(*code, 90) + 8)),
            100..=107 => style.bg(Color::Indexed(low(*code, 100) + 8)),
            39 => Style { fg: None, ..style },
            49 => Style { bg: None, ..style },
            38 | 48 => {
                let (colour, after) = extended(rest);
                rest = after;
                match colour {
                    Some(colour) if *code == 38 => style.fg(colour),
                    Some(colour) => style.bg(colour),
                    None => style,
                }
            }
            _ => style,
        };
    }
    style
}

fn low(code: u16, base: u16) -> u8 {
    u8::try_from(code - base).unwrap_or(0)
}

/// A colour of the 256-colour palette or an RGB colour, and the parameters that follow it.
fn extended(rest: &[u16]) -> (Option<Color>, &[u16]) {
    let byte = |code: &u16| u8::try_from(*code).unwrap_or(u8::MAX);
    match rest {
        [5, index, after @ ..] => (Some(Color::Indexed(byte(index))), after),
        [2, red, green, blue, after @ ..] => (Some(Color::Rgb(byte(red), byte(green), byte(blue))), after),
        _ => (None, &[]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let join = |spans: Vec<Span<'_>>| spans.iter().map(|span| span.content.to_string()).collect();
        lines(text, Theme { colour: true }).into_iter().map(join).collect()
    }

    #[test]
    fn only_what_programs_show_is_left() {
        for (text, expected) in [
            ("plain [31m", vec!["plain [31m"]),
            ("\x1b[1;31mred\x1b[0m", vec!["red"]),
            ("\u{9b}31mred", vec!["red"]),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", vec!["ab"]),
            ("\x1b]52;c;cm0gLXJm\x07\x1bPq#0\u{9c}c\x1b(Bd\x1b7e", vec!["cde"]),
            ("\x1b]0;open\nnext", vec!["", "next"]),
            ("\x1b[2J\x1b[H\x1b[?1049lgone\x1b[6n", vec!["gone"]),
            ("10 %\r50 %\r100 %\r\ndone\r", vec!["100 %", "done"]),
            ("a\x07b\x00\u{202e}c", vec!["ab␀\u{fffd}c"]),
            ("", vec![]),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn colours_are_kept_unless_nobody_wants_them() {
        let text = "\x1b[38;5;208ma\x1b[48;2;1;2;3mb\x1b[0;92mc";
        let colours: Vec<_> =
            lines(text, Theme { colour: true })[0].iter().map(|span| span.style.fg).collect();
        let orange = Some(Color::Indexed(208));
        assert_eq!(colours, [orange, orange, Some(Color::Indexed(10))]);
        let plain = lines(text, Theme { colour: false });
        assert!(plain[0].iter().all(|span| span.style.fg.is_none() && span.style.bg.is_none()));
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_of_any_output(text in "[\x00-\x20\x1b\u{9b}\\[\\]a-z0-9;:?\u{202e}\u{200b}]{0,60}") {
            for line in shown(&text) {
                prop_assert!(!line.chars().any(is_harmful), "{line:?}");
            }
        }
    }
}
