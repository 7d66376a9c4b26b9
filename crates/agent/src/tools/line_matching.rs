//! Compares the lines of a text as people see them: blanks at their ends are ignored, and so is whether a
//! quote, a dash or a space is the plain or the typographic one.
//!
//! Models copy what they read with plain characters. Nothing more lenient than this is done anywhere:
//! guessing by similarity has destroyed files in other agents.

use std::borrow::Cow;
use std::ops::Range;

/// Line comparisons per search. Only a malicious text needs more.
const COMPARISONS_MAX: usize = 50_000_000;

/// A line with its ending and its start position.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLine<'a> {
    pub(super) start: usize,
    pub(super) whole: &'a str,
}

impl<'a> TextLine<'a> {
    pub(super) fn text(&self) -> &'a str {
        self.whole.strip_suffix('\n').map_or(self.whole, |line| line.strip_suffix('\r').unwrap_or(line))
    }

    pub(super) fn ending(&self) -> &'a str {
        &self.whole[self.text().len()..]
    }

    pub(super) fn end(&self) -> usize {
        self.start + self.whole.len()
    }
}

pub(super) fn of(text: &str) -> Vec<TextLine<'_>> {
    let step = |start: &mut usize, whole| {
        let line = TextLine { start: *start, whole };
        *start = line.end();
        Some(line)
    };
    text.split_inclusive('\n').scan(0, step).collect()
}

/// The form of a line that is compared.
pub(super) fn plain(line: &str) -> Cow<'_, str> {
    let line = line.trim_end();
    if line.is_ascii() {
        return Cow::Borrowed(line);
    }
    let plain: String = line.chars().map(typed).collect();
    Cow::Owned(plain.trim_end().to_owned())
}

/// The keyboard character for a typographic one.
fn typed(mark: char) -> char {
    match mark {
        '\u{2018}'..='\u{201B}' => '\'',
        '\u{201C}'..='\u{201F}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{00A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// All runs of lines, from a given line on, that equal the wanted ones. They may overlap.
pub(super) fn runs<T, U>(
    lines: &[T],
    wanted: &[U],
    from: usize,
    same: impl Fn(&T, &U) -> bool,
) -> Result<Vec<Range<usize>>, String> {
    let (mut found, mut left) = (Vec::new(), COMPARISONS_MAX);
    let mut at = from;
    while !wanted.is_empty() && at + wanted.len() <= lines.len() {
        let equal = lines[at..].iter().zip(wanted).take_while(|(line, wanted)| same(line, wanted)).count();
        left = left
            .checked_sub(equal + 1)
            .ok_or("the text repeats itself too often to look for this in it; name a smaller part")?;
        if equal == wanted.len() {
            found.push(at..at + wanted.len());
        }
        at += 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_blanks_at_the_end_do_not_count() {
        for (line, expected) in [
            ("a \t\r", "a"),
            ("\u{201C}x\u{201D} \u{2013} it\u{2019}s\u{a0}", "\"x\" - it's"),
            ("  a", "  a"),
            ("ä…", "ä…"),
            ("", ""),
        ] {
            assert_eq!(plain(line), expected, "{line:?}");
        }
    }

    #[test]
    fn every_run_is_found() {
        let found = |lines: &[u8], wanted: &[u8], from| runs(lines, wanted, from, |a, b| a == b);
        assert_eq!(found(b"abcabc", b"bc", 0), Ok(vec![1..3, 4..6]));
        assert_eq!(found(b"abcabcbc", b"bc", 2), Ok(vec![4..6, 6..8]));
        assert_eq!(found(b"aaa", b"aa", 0), Ok(vec![0..2, 1..3]));
        assert_eq!(found(b"a", b"", 0), Ok(vec![]));
        assert_eq!(found(b"a", b"ab", 9), Ok(vec![]));
        assert!(found(&[b'a'; 20_000], &[[b'a'; 9_999].as_slice(), b"b"].concat(), 0).is_err());
    }

    #[test]
    fn a_line_knows_its_ending() {
        let endings: Vec<_> = of("a\r\nb\n\nc").iter().map(|line| (line.text(), line.ending())).collect();
        assert_eq!(endings, [("a", "\r\n"), ("b", "\n"), ("", "\n"), ("c", "")]);
    }
}
