//! Recovers rules from a file that is not valid TOML any more, a truncated one for example.
//!
//! Only rules that deny or ask are recovered. With too many of them, too much is asked; with too few, the damaged file
//! still makes everything asked. No rule that allows is recovered.

use std::path::PathBuf;

use engine::RuleEffect;
use toml_edit::DocumentMut;

use super::rule_file_parser::LISTS;

/// A rule recovered from a damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SalvagedRule {
    pub(super) effect: RuleEffect,
    pub(super) text: String,
    /// The only folder that it applied in. If the folder cannot be read it applies everywhere.
    pub(super) project: Option<PathBuf>,
    pub(super) line: usize,
}

/// The rules that deny or ask, line by line.
pub(super) fn salvage(text: &str) -> Vec<SalvagedRule> {
    let mut found = Vec::new();
    let mut list = None;
    let mut project: Option<PathBuf> = None;
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("[[") && list.is_none() {
            project = None;
            continue;
        }
        let (key, body) = keyed(line).map_or((None, line), |(key, body)| (Some(key), body));
        let mut ends_with_line = false;
        if let Some(key) = key {
            list = LISTS.iter().find(|(name, _)| *name == key).map(|(_, effect)| *effect);
            ends_with_line = !body.trim_start().starts_with('[');
            if key == "path" {
                project = strings(body).0.first().map(PathBuf::from).filter(|path| path.is_absolute());
            }
        }
        let (texts, closed) = strings(body);
        if let Some(effect) = list.filter(|effect| *effect != RuleEffect::Allow) {
            found.extend(texts.into_iter().map(|text| SalvagedRule {
                effect,
                text,
                project: project.clone(),
                line: nth + 1,
            }));
        }
        if closed || ends_with_line {
            list = None;
        }
    }
    found
}

/// `key = rest`, where the key is a plain word.
fn keyed(line: &str) -> Option<(&str, &str)> {
    let (key, body) = line.split_once('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!key.is_empty() && key.chars().all(plain)).then_some((key, body))
}

/// Every whole string of a line, and whether a bracket is closed outside of them.
fn strings(body: &str) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut closed = false;
    let mut rest = body;
    while let Some(at) = rest.find(['"', '\'', '#', ']']) {
        let (sign, after) = rest[at..].split_at(1);
        rest = match sign {
            "#" => break,
            "]" => {
                closed = true;
                after
            }
            _ => {
                let Some(end) = end_of_string(sign, after) else { break };
                found.extend(decoded(&rest[at..at + end + 2]));
                &after[end + 1..]
            }
        };
    }
    (found, closed)
}

fn end_of_string(quote: &str, after: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in after.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == "\"" => escaped = true,
            c if quote.starts_with(c) => return Some(at),
            _ => {}
        }
    }
    None
}

fn decoded(token: &str) -> Option<String> {
    let document: DocumentMut = format!("x = {token}").parse().ok()?;
    document.get("x")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, usize, Option<&str>)]) {
        let found = salvage(text);
        let found: Vec<_> = found
            .iter()
            .map(|rule| {
                (rule.text.as_str(), rule.line, rule.project.as_deref().and_then(|path| path.to_str()))
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn rules_that_narrow_are_found_up_to_where_the_file_ends() {
        check(
            "deny = [\"shell(rm:*)\", 'read(.env)', \"shell(git pu",
            &[("shell(rm:*)", 1, None), ("read(.env)", 1, None)],
        );
        check(
            "allow = [\"shell(ls)\"]\ndeny = [\n    \"shell(a \\\"b\\\")\", # \"no\"\n    \"edit(x]y)\"\nask = [\"write\"]",
            &[("shell(a \"b\")", 3, None), ("edit(x]y)", 4, None), ("write", 5, None)],
        );
        check(
            "[[project]]\npath = \"/w\"\ndeny = [\"shell\"]\nallow = [\"read\"]\n[[project]]\nask = \"edit\"\n\"oops",
            &[("shell", 3, Some("/w")), ("edit", 6, None)],
        );
        check("allow = [\n\"shell(rm:*)\",\n\"shell(x", &[]);
        check("\u{0}\u{fffd}][=\"'#\n==\ndeny", &[]);
    }
}
