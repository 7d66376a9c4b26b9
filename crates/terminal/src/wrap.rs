//! Wraps styled text into lines of a width in cells: wide characters take two.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// One grapheme with its style.
#[derive(Clone, Copy)]
struct StyledGrapheme<'a> {
    text: &'a str,
    cells: usize,
    style: Style,
}

/// The margin before the first line, and before the others.
#[derive(Debug, Clone, Default)]
pub struct Margin {
    pub first: Vec<Span<'static>>,
    pub rest: Vec<Span<'static>>,
}

impl Margin {
    pub fn none() -> Self {
        Self::default()
    }

    /// The mark before the first line, and blanks of its width before the others.
    pub fn hanging(mark: Span<'static>) -> Self {
        let rest = vec![Span::raw(" ".repeat(mark.width()))];
        Self { first: vec![mark], rest }
    }

    /// The same mark before every line.
    pub fn every(mark: Span<'static>) -> Self {
        Self { first: vec![mark.clone()], rest: vec![mark] }
    }
}

/// Wraps between words, and within words that are longer than a line.
pub fn wrap(spans: &[Span<'_>], width: usize, margin: &Margin) -> Vec<Line<'static>> {
    fill(spans, width, margin, true)
}

/// Wraps wherever a line is full and keeps all blanks: for code and output.
pub fn wrap_chars(spans: &[Span<'_>], width: usize, margin: &Margin) -> Vec<Line<'static>> {
    fill(spans, width, margin, false)
}

/// Truncates a text to this many cells, with `…` at the end.
pub fn cut(text: &str, cells_max: usize) -> String {
    if text.width() <= cells_max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut cells = 0;
    for grapheme in text.graphemes(true) {
        cells += grapheme.width();
        if cells + 1 > cells_max {
            break;
        }
        out.push_str(grapheme);
    }
    if cells_max > 0 {
        out.push('…');
    }
    out
}

fn fill(spans: &[Span<'_>], width: usize, margin: &Margin, by_word: bool) -> Vec<Line<'static>> {
    let pieces: Vec<StyledGrapheme<'_>> = spans
        .iter()
        .flat_map(|span| {
            let style = span.style;
            span.content.graphemes(true).map(move |text| StyledGrapheme { text, cells: text.width(), style })
        })
        .collect();
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let before = if lines.is_empty() { &margin.first } else { &margin.rest };
        let taken: usize = before.iter().map(Span::width).sum();
        let room = width.saturating_sub(taken).max(1);
        let end = line_end(&pieces, at, room, by_word);
        let mut shown = &pieces[at..end];
        if by_word {
            while let [rest @ .., last] = shown
                && last.text == " "
            {
                shown = rest;
            }
        }
        lines.push(line_of(before, shown));
        at = end;
        if by_word {
            while pieces.get(at).is_some_and(|piece| piece.text == " ") {
                at += 1;
            }
        }
        if at >= pieces.len() {
            return lines;
        }
    }
}

/// Where the line that begins here ends.
fn line_end(pieces: &[StyledGrapheme<'_>], start: usize, room: usize, by_word: bool) -> usize {
    let mut cells = 0;
    let mut blank = None;
    for (at, piece) in pieces.iter().enumerate().skip(start) {
        cells += piece.cells;
        if by_word && piece.text == " " {
            blank = Some(at + 1);
        }
        if cells > room {
            // A blank at the end of a line takes no room.
            let at_word = blank.filter(|blank| *blank > start && by_word);
            return at_word.unwrap_or(at).max(start + 1);
        }
    }
    pieces.len()
}

fn line_of(before: &[Span<'static>], pieces: &[StyledGrapheme<'_>]) -> Line<'static> {
    let mut spans = before.to_vec();
    let mut text = String::new();
    let mut style = Style::new();
    for piece in pieces {
        if piece.style != style && !text.is_empty() {
            spans.push(Span::styled(std::mem::take(&mut text), style));
        }
        style = piece.style;
        text.push_str(piece.text);
    }
    if !text.is_empty() {
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, width: usize, margin: &Margin, expected: &[&str]) {
        let lines = wrap(&[Span::raw(text.to_owned())], width, margin);
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn lines_are_broken_between_words_where_that_is_possible() {
        check("one two three", 8, &Margin::none(), &["one two", "three"]);
        check("one two three", 7, &Margin::none(), &["one two", "three"]);
        check("abcdefghij kl", 4, &Margin::none(), &["abcd", "efgh", "ij", "kl"]);
        check("日本語です", 4, &Margin::none(), &["日本", "語で", "す"]);
        check("a b c d", 5, &Margin::hanging(Span::raw("- ")), &["- a b", "  c d"]);
        check("", 5, &Margin::none(), &[""]);
    }

    #[test]
    fn a_cut_is_marked_and_fits() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked_and_nothing_is_lost(text in "[a-z 日é]{0,80}", width in 2usize..20) {
            let lines = wrap_chars(&[Span::raw(text.clone())], width, &Margin::none());
            prop_assert!(lines.iter().all(|line| line.width() <= width));
            prop_assert_eq!(lines.iter().map(ToString::to_string).collect::<String>(), text.clone());
            let words = wrap(&[Span::raw(text.clone())], width, &Margin::none());
            prop_assert!(words.iter().all(|line| line.width() <= width));
            let kept: String = words.iter().map(ToString::to_string).collect();
            prop_assert_eq!(kept.replace(' ', ""), text.replace(' ', ""));
        }
    }
}
