//! Glob patterns as in the shell: `*`, `?`, `[a-z]`, `**`, and `\` before a character that is meant literally.
//!
//! **Invariant:** the time for one match grows with pattern times text, never faster: the author of a pattern cannot
//! make the guard hang.

use std::fmt::Write;

/// What a `*` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum GlobKind {
    /// Anything.
    Text,
    /// Anything within one name; `**` also crosses folders.
    Path,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    One {
        slash: bool,
    },
    CharClass {
        not: bool,
        ranges: Vec<(char, char)>,
        slash: bool,
    },
    /// Any characters but a slash.
    Name,
    /// Any characters.
    Anything,
    /// `**/`: any number of folders, also none.
    Folders,
}

impl Glob {
    pub(super) fn new(source: &str, kind: GlobKind) -> Self {
        let mut glob = Self { parts: Vec::new() };
        let mut rest = source;
        while let Some(next) = rest.chars().next() {
            let after = &rest[next.len_utf8()..];
            rest = match next {
                '\\' => {
                    let escaped = after.chars().next();
                    glob.literal(escaped.map_or('\\', unescaped));
                    escaped.map_or(after, |c| &after[c.len_utf8()..])
                }
                '?' => {
                    glob.parts.push(Part::One { slash: kind == GlobKind::Text });
                    after
                }
                '*' => glob.star(after, kind),
                '[' => match class(after) {
                    Some((CharClass { not, ranges }, after)) => {
                        glob.parts.push(Part::CharClass { not, ranges, slash: kind == GlobKind::Text });
                        after
                    }
                    None => {
                        glob.literal('[');
                        after
                    }
                },
                plain => {
                    glob.literal(plain);
                    after
                }
            };
        }
        glob
    }

    /// The one text that it matches, if it has no wildcards.
    pub(super) fn exact(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether a text that begins with this word could match: quickly rules out most texts.
    pub(super) fn may_begin(&self, word: &str) -> bool {
        match self.parts.first() {
            Some(Part::Literal(text)) => text.starts_with(word) || word.starts_with(text.as_str()),
            _ => true,
        }
    }

    /// It matches every text.
    pub(super) fn is_everything(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| *part == Part::Anything)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to go on when what follows the last wildcard does not match. A wildcard that crosses
        // folders makes every earlier choice irrelevant; one that does not, only those in its name.
        let mut within_name: Option<(usize, usize)> = None;
        let mut across: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                None if at == text.len() => return true,
                Some(Part::Name) => {
                    part += 1;
                    within_name = Some((part, at));
                    continue;
                }
                Some(Part::Anything | Part::Folders) => {
                    part += 1;
                    (across, within_name) = (Some((part, at)), None);
                    continue;
                }
                Some(single) => {
                    if let Some(taken) = single.take(&text[at..]) {
                        (part, at) = (part + 1, at + taken);
                        continue;
                    }
                }
                None => {}
            }
            if let Some((resume, from)) = within_name.and_then(|(resume, from)| step(text, resume, from)) {
                within_name = Some((resume, from));
                (part, at) = (resume, from);
            } else if let Some((resume, from)) = across.and_then(|choice| self.stride(text, choice)) {
                (across, within_name) = (Some((resume, from)), None);
                (part, at) = (resume, from);
            } else {
                return false;
            }
        }
    }

    /// Lets a wildcard that crosses folders take more.
    fn stride(&self, text: &str, (resume, from): (usize, usize)) -> Option<(usize, usize)> {
        let rest = &text[from..];
        match self.parts.get(resume.checked_sub(1)?)? {
            Part::Folders => rest.find('/').map(|slash| (resume, from + slash + 1)),
            _ => rest.chars().next().map(|c| (resume, from + c.len_utf8())),
        }
    }

    fn literal(&mut self, c: char) {
        match self.parts.last_mut() {
            Some(Part::Literal(text)) => text.push(c),
            _ => self.parts.push(Part::Literal(c.into())),
        }
    }

    fn star<'a>(&mut self, after: &'a str, kind: GlobKind) -> &'a str {
        let Some(rest) = after.strip_prefix('*') else {
            self.parts.push(if kind == GlobKind::Text { Part::Anything } else { Part::Name });
            return after;
        };
        let rest = rest.trim_start_matches('*');
        let begins_name = match self.parts.last() {
            None => true,
            Some(Part::Literal(text)) => text.ends_with('/'),
            Some(Part::Folders) => true,
            Some(_) => false,
        };
        if kind == GlobKind::Path
            && begins_name
            && let Some(rest) = rest.strip_prefix('/')
        {
            self.parts.push(Part::Folders);
            return rest;
        }
        self.parts.push(Part::Anything);
        rest
    }
}

impl Part {
    /// How many bytes of the text it takes; nothing if it does not match there.
    fn take(&self, text: &str) -> Option<usize> {
        match self {
            Self::Literal(literal) => text.starts_with(literal.as_str()).then_some(literal.len()),
            Self::One { slash } => {
                let c = text.chars().next().filter(|c| *slash || *c != '/')?;
                Some(c.len_utf8())
            }
            Self::CharClass { not, ranges, slash } => {
                let c = text.chars().next().filter(|c| *slash || *c != '/')?;
                let inside = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                (inside != *not).then_some(c.len_utf8())
            }
            Self::Name | Self::Anything | Self::Folders => None,
        }
    }
}

/// Lets a wildcard take one more character of a name.
fn step(text: &str, resume: usize, from: usize) -> Option<(usize, usize)> {
    let c = text[from..].chars().next().filter(|c| *c != '/')?;
    Some((resume, from + c.len_utf8()))
}

struct CharClass {
    not: bool,
    ranges: Vec<(char, char)>,
}

/// Parses a character class behind its `[`; returns it and the rest.
fn class(source: &str) -> Option<(CharClass, &str)> {
    let (not, body) = match source.strip_prefix(['!', '^']) {
        Some(body) => (true, body),
        None => (false, source),
    };
    let mut chars = body.char_indices().peekable();
    let mut ranges = Vec::new();
    while let Some((at, c)) = chars.next() {
        if c == ']' && !ranges.is_empty() {
            return Some((CharClass { not, ranges }, &body[at + 1..]));
        }
        let from = if c == '\\' { unescaped(chars.next()?.1) } else { c };
        let mut ahead = chars.clone();
        let dash = ahead.next().is_some_and(|(_, c)| c == '-');
        match ahead.next() {
            Some((_, to)) if dash && to != ']' => {
                chars = ahead;
                ranges.push((from, if to == '\\' { unescaped(chars.next()?.1) } else { to }));
            }
            _ => ranges.push((from, from)),
        }
    }
    None
}

fn unescaped(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        other => other,
    }
}

/// The pattern that matches exactly this text, on one line.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '*' | '?' | '[' => {
                write!(out, "\\{c}").ok();
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            plain => out.push(plain),
        }
    }
    out
}

/// The first offset of this character without a `\` before it.
pub(super) fn find_plain(source: &str, wanted: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in source.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == wanted {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(kind: GlobKind, pattern: &str, yes: &[&str], no: &[&str]) {
        let glob = Glob::new(pattern, kind);
        for text in yes {
            assert!(glob.matches(text), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!glob.matches(text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn wildcards_mean_what_they_mean_in_a_shell() {
        check(
            GlobKind::Text,
            "npm run *",
            &["npm run x", "npm run a/b c", "npm run "],
            &["npm run", "xnpm run x"],
        );
        check(GlobKind::Text, "a?c", &["abc", "a/c", "aéc"], &["ac", "abbc"]);
        check(GlobKind::Text, "[a-c]x[!0-9]", &["ax!", "cxz"], &["dxz", "ax3", "ax"]);
        check(GlobKind::Text, "*a*b*", &["ab", "xaxbx", "aab"], &["ba", "a"]);
        check(GlobKind::Text, "[", &["["], &["x"]);
        check(GlobKind::Text, "[]a]", &["]", "a"], &["b"]);
        check(GlobKind::Text, r"\*\?\[\\", &[r"*?[\"], &["xxx"]);
        check(GlobKind::Text, r"a\nb", &["a\nb"], &["anb"]);
        check(GlobKind::Path, "src/*.rs", &["src/a.rs", "src/.rs"], &["src/a/b.rs", "src/a.rs/x", "a.rs"]);
        check(GlobKind::Path, "src/**", &["src/a", "src/a/b.rs"], &["src", "srcx/a"]);
        check(GlobKind::Path, "**/x.rs", &["x.rs", "a/x.rs", "a/b/x.rs"], &["ax.rs", "a/x.rs/b"]);
        check(GlobKind::Path, "a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/xb", "a/x/y/c"]);
        check(GlobKind::Path, "a/**/*.md", &["a/x.md", "a/b/c/x.md"], &["b/x.md", "a/x.md/y"]);
        check(GlobKind::Path, "a?b", &["axb"], &["a/b"]);
        check(GlobKind::Path, "a[!x]b", &["ayb"], &["a/b"]);
    }

    #[test]
    fn a_hostile_pattern_takes_no_long_time() {
        let glob = Glob::new(&"*a".repeat(500), GlobKind::Text);
        assert!(!glob.matches(&"a".repeat(400)));
        assert!(!Glob::new(&format!("{}b", "**/*a".repeat(200)), GlobKind::Path).matches(&"a/".repeat(2000)));
    }

    proptest! {
        #[test]
        fn an_escaped_text_matches_itself_and_nothing_else(text in ".*", other in ".*") {
            for kind in [GlobKind::Text, GlobKind::Path] {
                let glob = Glob::new(&escape(&text), kind);
                prop_assert_eq!(glob.exact(), Some(text.as_str()));
                prop_assert!(glob.matches(&text));
                prop_assert_eq!(glob.matches(&other), text == other);
            }
        }

        /// The quick matcher agrees with the obvious one.
        #[test]
        fn a_match_is_what_trying_every_way_finds(pattern in "[ab/*?]{0,8}", text in "[ab/]{0,8}") {
            for kind in [GlobKind::Text, GlobKind::Path] {
                let glob = Glob::new(&pattern, kind);
                prop_assert_eq!(glob.matches(&text), slow(&glob.parts, &text), "{:?}", glob);
            }
        }
    }

    fn slow(parts: &[Part], text: &str) -> bool {
        let Some((first, rest)) = parts.split_first() else { return text.is_empty() };
        let ends = |allowed: &dyn Fn(&str) -> bool| {
            (0..=text.len()).any(|end| allowed(&text[..end]) && slow(rest, &text[end..]))
        };
        match first {
            Part::Name => ends(&|taken| !taken.contains('/')),
            Part::Anything => ends(&|_| true),
            Part::Folders => ends(&|taken| taken.is_empty() || taken.ends_with('/')),
            single => single.take(text).is_some_and(|taken| slow(rest, &text[taken..])),
        }
    }
}
