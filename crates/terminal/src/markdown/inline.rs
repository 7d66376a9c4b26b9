//! Inline Markdown: bold, italic, code, strikethrough, links with their addresses.
//!
//! A mark without its closing mark is plain text. The search for a closing mark is limited, so that a line
//! of nothing but marks is parsed in linear time.

use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::Span;

use crate::theme::Theme;

/// Bytes after a mark in which its closing mark is searched.
const REACH_BYTES: usize = 2_000;
/// Nesting of marks.
const DEPTH_MAX: usize = 6;

pub fn spans(text: &str, style: Style, theme: Theme) -> Vec<Span<'static>> {
    let mut parser = InlineParser { theme, out: Vec::new(), plain: String::new() };
    parser.run(text, style, 0);
    parser.out
}

struct InlineParser {
    theme: Theme,
    out: Vec<Span<'static>>,
    plain: String,
}

impl InlineParser {
    fn run(&mut self, text: &str, style: Style, depth: usize) {
        let mut rest = text;
        let mut before = None;
        while let Some(c) = rest.chars().next() {
            let taken = if depth < DEPTH_MAX { self.marked(rest, before, style, depth) } else { None };
            let taken = taken.unwrap_or_else(|| {
                self.plain.push(c);
                c.len_utf8()
            });
            before = rest[..taken].chars().next_back();
            rest = &rest[taken..];
        }
        self.close(style);
    }

    /// Renders the marked text that begins here, if there is one. Returns how many bytes it took.
    fn marked(&mut self, rest: &str, before: Option<char>, style: Style, depth: usize) -> Option<usize> {
        let add = |modifier| style.add_modifier(modifier);
        match rest.as_bytes().first()? {
            b'\\' => {
                let escaped = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
                self.plain.push(escaped);
                Some(1 + escaped.len_utf8())
            }
            b'`' => self.code(rest, style),
            b'*' if rest.starts_with("**") => self.within(rest, "**", style, add(Modifier::BOLD), depth),
            b'*' => self.within(rest, "*", style, add(Modifier::ITALIC), depth),
            b'_' if before.is_none_or(|c| !c.is_alphanumeric()) => {
                let bold = rest.starts_with("__");
                let (mark, modifier) = if bold { ("__", Modifier::BOLD) } else { ("_", Modifier::ITALIC) };
                self.within(rest, mark, style, add(modifier), depth)
            }
            b'~' if rest.starts_with("~~") => {
                self.within(rest, "~~", style, add(Modifier::CROSSED_OUT), depth)
            }
            b'!' if rest.starts_with("![") => self.link(&rest[1..], style, depth).map(|taken| taken + 1),
            b'[' => self.link(rest, style, depth),
            b'<' => {
                let end = rest.find('>')?;
                let address = rest.get(1..end).filter(|inner| is_address(inner))?;
                self.put(address, style, self.theme.link());
                Some(end + 1)
            }
            b'h' if is_address(rest) && before.is_none_or(|c| !c.is_alphanumeric()) => {
                let end = rest.find(|c: char| c.is_whitespace() || "<>\"`)]}".contains(c));
                let address =
                    rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', ',', ';', ':', '!', '?', '*']);
                self.put(address, style, self.theme.link());
                Some(address.len())
            }
            _ => None,
        }
    }

    fn within(&mut self, rest: &str, mark: &str, outer: Style, inner: Style, depth: usize) -> Option<usize> {
        let after = &rest[mark.len()..];
        if after.starts_with(char::is_whitespace) {
            return None;
        }
        let near = near(after);
        let end = near.match_indices(mark).map(|(at, _)| at).find(|at| {
            let last = near[..*at].chars().next_back();
            let next = near[at + mark.len()..].chars().next();
            // A closing mark follows a character that is no space, and one star of `**` does not close `*`.
            last.is_some_and(|c| !c.is_whitespace() && !mark.starts_with(c))
                && next.is_none_or(|c| !mark.starts_with(c) && (mark != "_" || !c.is_alphanumeric()))
        })?;
        self.close(outer);
        self.run(&after[..end], inner, depth + 1);
        Some(mark.len() * 2 + end)
    }

    fn code(&mut self, rest: &str, style: Style) -> Option<usize> {
        let marks = rest.bytes().take_while(|b| *b == b'`').count();
        let after = &rest[marks..];
        let end = near(after).find(&rest[..marks])?;
        let inner = &after[..end];
        self.put(if inner.trim().is_empty() { inner } else { inner.trim() }, style, self.theme.code());
        Some(marks * 2 + end)
    }

    /// `[text](address)`: the address is always shown, so that no text can pretend to lead elsewhere.
    fn link(&mut self, rest: &str, style: Style, depth: usize) -> Option<usize> {
        let near = near(rest);
        let middle = near.find("](")?;
        let end = middle + near[middle..].find(')')?;
        let (text, address) = (&near[1..middle], near[middle + 2..end].trim());
        self.close(style);
        self.run(text, style, depth + 1);
        if address != text {
            self.put(" (", style, self.theme.quiet());
            self.put(address, style, self.theme.link());
            self.put(")", style, self.theme.quiet());
        }
        Some(end + 1)
    }

    /// A piece with a style of its own.
    fn put(&mut self, text: &str, around: Style, own: Style) {
        self.close(around);
        self.out.push(Span::styled(text.to_owned(), around.patch(own)));
    }

    fn close(&mut self, style: Style) {
        if !self.plain.is_empty() {
            self.out.push(Span::styled(std::mem::take(&mut self.plain), style));
        }
    }
}

fn is_address(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

/// The part of the text in which a closing mark is searched.
fn near(text: &str) -> &str {
    let mut end = text.len().min(REACH_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
