//! What `sed` runs: its command `e`, and the flag `e` of its command `s`.
//!
//! A script is read as GNU sed reads it, as far as needed to know which letters are commands. A script that cannot be
//! read this way counts as running something that its arguments do not say.

use super::LaunchedPrograms;
use crate::shell::Word;

/// What a command of sed starts. Nothing for most of them.
pub(super) fn launched(arguments: &[Word]) -> Option<LaunchedPrograms<'_>> {
    let mut launched = LaunchedPrograms::default();
    for script in scripts(arguments) {
        let mut reader = Reader { rest: script, launched: &mut launched };
        if reader.script().is_none() {
            launched.unknown = true;
        }
    }
    (launched.unknown || !launched.lines.is_empty()).then_some(launched)
}

/// The values of `-e`, or else the first operand. Where this is ambiguous, both.
fn scripts(arguments: &[Word]) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut takes_next, mut in_file) = (false, false);
    let mut operand = None;
    for word in arguments {
        let text = word.text();
        if std::mem::take(&mut takes_next) {
            found.extend((!in_file).then(|| word.literal()).flatten());
            continue;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let is_script = !name.is_empty() && "expression".starts_with(name);
            let is_file = name.starts_with("fi") && "file".starts_with(name);
            found.extend(value.filter(|_| is_script));
            takes_next = (is_script || is_file) && value.is_none();
            in_file = is_file;
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // The value of `-i` is in the same word.
            let end = letters.find(['e', 'f', 'i', 'l']).unwrap_or(letters.len());
            let (letter, value) = (letters[end..].chars().next(), letters.get(end + 1..).unwrap_or_default());
            in_file = letter != Some('e');
            takes_next = matches!(letter, Some('e' | 'f' | 'l')) && value.is_empty();
            found.extend(Some(value).filter(|value| letter == Some('e') && !value.is_empty()));
        } else if operand.is_none() {
            operand = Some(word.literal());
        }
    }
    if found.is_empty() {
        found.extend(operand.flatten());
    }
    found
}

struct Reader<'s, 'l, 'w> {
    rest: &'s str,
    launched: &'l mut LaunchedPrograms<'w>,
}

impl<'s> Reader<'s, '_, '_> {
    /// Reads every command of a script; `None` if one is unknown.
    fn script(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start_matches([';', '}', ' ', '\t', '\n']);
            self.addresses()?;
            let Some(command) = self.take() else { return Some(()) };
            match command {
                '{' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {}
                's' => self.substitute()?,
                'y' => {
                    let delimiter = self.take()?;
                    self.until(delimiter, false)?;
                    self.until(delimiter, false)?;
                }
                'e' => {
                    let line = self.line().trim();
                    self.launched.unknown |= line.is_empty();
                    self.launched.lines.extend((!line.is_empty()).then(|| line.to_owned()));
                }
                'a' | 'i' | 'c' => self.text(),
                'r' | 'R' | 'w' | 'W' | '#' => {
                    self.line();
                }
                ':' | 'b' | 't' | 'T' | 'q' | 'Q' | 'l' | 'L' | 'v' => {
                    let end = self.rest.find([';', '\n', '}']).unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                _ => return None,
            }
        }
    }

    /// `1,5`, `/a/,+3`, `$!`, `0~4`, `\%a%I`
    fn addresses(&mut self) -> Option<()> {
        loop {
            let next = self.rest.chars().next();
            match next {
                Some('/') => {
                    self.take();
                    self.until('/', true)?;
                    self.rest = self.rest.trim_start_matches(['I', 'M']);
                }
                Some('\\') => {
                    self.take();
                    let delimiter = self.take()?;
                    self.until(delimiter, true)?;
                    self.rest = self.rest.trim_start_matches(['I', 'M']);
                }
                Some('0'..='9' | ',' | '~' | '+' | '$' | '!' | ' ' | '\t') => {
                    self.take();
                }
                _ => return Some(()),
            }
        }
    }

    fn substitute(&mut self) -> Option<()> {
        let delimiter = self.take()?;
        self.until(delimiter, true)?;
        let replacement = self.until(delimiter, false)?;
        let end = self.rest.find([';', '\n', '}', '#']).unwrap_or(self.rest.len());
        let flags = &self.rest[..end];
        // What follows `w` is the name of a file.
        if flags.split('w').next().unwrap_or_default().contains('e') {
            self.launched.unknown = true;
            self.launched.lines.push(replacement.to_owned());
        }
        if flags.contains('w') {
            self.line();
        } else {
            self.rest = &self.rest[end..]
        }
        Some(())
    }

    /// Reads up to the next delimiter that is not escaped by a backslash.
    fn until(&mut self, delimiter: char, is_pattern: bool) -> Option<&'s str> {
        let mut escaped = false;
        // Inside of brackets a delimiter is a character like any other.
        let mut brackets_end = 0;
        for (at, c) in self.rest.char_indices() {
            if at < brackets_end {
                continue;
            }
            if is_pattern && c == '[' && !escaped {
                brackets_end = after_brackets(self.rest, at).unwrap_or(0);
            }
            if c == delimiter && !escaped {
                let (inner, rest) = (&self.rest[..at], &self.rest[at + c.len_utf8()..]);
                self.rest = rest;
                return Some(inner);
            }
            escaped = c == '\\' && !escaped;
        }
        None
    }

    /// The text of `a`, `i` and `c` goes on behind a backslash at the end of a line.
    fn text(&mut self) {
        while self.line().ends_with('\\') && !self.rest.is_empty() {}
    }

    fn line(&mut self) -> &'s str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }
}

/// What follows `[^]a-z]`: a `]` that comes first is a member.
fn after_brackets(text: &str, from: usize) -> Option<usize> {
    let members = text.get(from + 1..)?;
    let first = members.strip_prefix('^').unwrap_or(members);
    let first = first.strip_prefix(']').unwrap_or(first);
    let skipped = members.len() - first.len();
    first.find(']').map(|end| from + 1 + skipped + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str) -> Option<(Vec<String>, bool)> {
        let words = [Word::Literal(script.to_owned()), Word::Literal("file".to_owned())];
        launched(&words).map(|launched| (launched.lines, launched.unknown))
    }

    #[test]
    fn ordinary_scripts_run_nothing() {
        for script in [
            "s/a/b/",
            "s/a/b/g;s|c|d|",
            "1,5p",
            "/start/,/end/d",
            "$!N;s/\\n/ /;P;D",
            "/^#/d;/^$/d",
            "s/e/e/gp",
            "1i\\\\\nheader e",
            "a some text; e ls",
            "$a\\end",
            "\\,a,d",
            ":a;N;$!ba;s/\\n/ /g",
            "/a/{s/b/c/;p}",
            "2q",
            "10,20!d",
            "0~4p",
            "/re/I,+3p",
            "y/abc/def/",
            "r other-file",
            "s/a/b/w out-e",
            "",
            "n;d",
            "s/[/]/x/",
            "s/[^]/]*$/x/;p",
            "/[/e]/d",
            "# e ls",
        ] {
            assert_eq!(check(script), None, "{script:?}");
        }
    }

    #[test]
    fn what_a_script_runs_is_found() {
        for (script, line) in [
            ("1e ls -l", "ls -l"),
            ("s/.*/ls/e", "ls"),
            ("p;s,a,ls,ge", "ls"),
            ("/a/{eid\n}", "id"),
            ("s/.*/ls/ eg", "ls"),
        ] {
            assert_eq!(check(script).unwrap().0, [line], "{script:?}");
        }
        for script in ["e", "s/a/b/e", "k", "s/a"] {
            assert!(check(script).unwrap().1, "{script:?}");
        }
    }
}
