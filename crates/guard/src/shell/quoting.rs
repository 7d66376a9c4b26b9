//! Removes the quotes from the source text of one word.
//!
//! **Invariant:** a text is returned only if `sh` and `bash` would both pass exactly this text to the program, as one
//! argument.

/// The text that the shell makes of a word, or `None` if the shell computes any part of it.
pub(super) fn decode(source: &str) -> Option<String> {
    let mut word =
        Decoder { rest: source, out: String::with_capacity(source.len()), braces: Braces::default() };
    while let Some(next) = word.take() {
        word.unquoted(next)?;
    }
    (!word.braces.expand()).then_some(word.out)
}

struct Decoder<'a> {
    rest: &'a str,
    out: String,
    braces: Braces,
}

/// `{a,b}` and `{1..3}` are several words in bash and one in sh.
#[derive(Default)]
struct Braces {
    open: bool,
    separated: bool,
}

impl Braces {
    fn expand(&self) -> bool {
        self.open && self.separated
    }
}

impl Decoder<'_> {
    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn unquoted(&mut self, next: char) -> Option<()> {
        match next {
            '\'' => {
                let (text, rest) = self.rest.split_once('\'')?;
                self.out.push_str(text);
                self.rest = rest;
            }
            '"' => self.quoted()?,
            '\\' => match self.take()? {
                '\n' => {}
                escaped => self.out.push(escaped),
            },
            // A lone dollar at the end is itself.
            '$' if self.rest.is_empty() => self.out.push('$'),
            '~' if self.may_be_home() => return None,
            '#' if self.out.is_empty() => return None,
            '[' if self.rest.is_empty() && self.out.is_empty() => self.out.push('['),
            '{' => {
                self.braces.open = true;
                self.out.push('{');
            }
            ',' => {
                self.braces.separated = true;
                self.out.push(',');
            }
            '.' => {
                self.braces.separated |= self.rest.starts_with(['.', '\'', '"', '\\']);
                self.out.push('.');
            }
            '$' | '`' | '*' | '?' | '[' | '|' | '&' | ';' | '(' | ')' | '<' | '>' | ' ' | '\t' | '\n' => {
                return None;
            }
            plain if plain.is_whitespace() || plain.is_control() => return None,
            plain => self.out.push(plain),
        }
        Some(())
    }

    /// bash also looks for home folders after `=` and `:`.
    fn may_be_home(&self) -> bool {
        self.out.is_empty() || self.out.ends_with(['=', ':'])
    }

    fn quoted(&mut self) -> Option<()> {
        loop {
            match self.take()? {
                '"' => return Some(()),
                '\\' => match self.take()? {
                    '\n' => {}
                    escaped @ ('$' | '`' | '"' | '\\') => self.out.push(escaped),
                    other => {
                        self.out.push('\\');
                        self.out.push(other);
                    }
                },
                '$' if self.rest.starts_with(['"', ' ', '|', '/', '.', ',', '%', ')']) => self.out.push('$'),
                '$' | '`' => return None,
                plain => self.out.push(plain),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    fn check(source: &str, expected: Option<&str>) {
        assert_eq!(decode(source).as_deref(), expected, "{source}");
    }

    #[test]
    fn quotes_are_taken_off_as_the_shell_does() {
        check("plain-1.2/x@y%z+=^:", Some("plain-1.2/x@y%z+=^:"));
        check(r#"'a b'"c d"e\ f"#, Some("a bc de f"));
        check(r#""\$a \"b\" \\ \n""#, Some(r#"$a "b" \ \n"#));
        check(r"'it'\''s'", Some("it's"));
        check("HEAD~1", Some("HEAD~1"));
        check("stash@{0}", Some("stash@{0}"));
        check("{}", Some("{}"));
        check("'*'", Some("*"));
        check(r#""^a$""#, Some("^a$"));
        check("a\\\nb", Some("ab"));
        check("r\\m", Some("rm"));
    }

    #[test]
    fn what_the_shell_computes_is_not_known() {
        for source in [
            "$x",
            "\"$x\"",
            "`x`",
            "*.rs",
            "a?",
            "[ab]",
            "~",
            "~/x",
            "a=~/x",
            "{a,b}",
            "{1..3}",
            "{1.'.'3}",
            "$'a'",
            "$\"a\"",
            "\"a",
            "'a",
            "a\\",
            "#a",
            "a b",
            "a>b",
            "${x}",
            "$((1))",
            "$[1]",
            "\"$(x)\"",
            "{a\\,b,c}",
        ] {
            check(source, None);
        }
    }
}
