//! The front matter of a Markdown file: the subset of YAML that people use there.
//!
//! Strings, lists, and one level of nested keys. Anything else is ignored, because it was written for another
//! program.

use std::collections::BTreeMap;

/// Longer front matter is ignored.
const LINES_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrontMatterValue {
    Text(String),
    List(Vec<String>),
    Map(Vec<(String, String)>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    fields: BTreeMap<String, FrontMatterValue>,
}

impl FrontMatter {
    /// The front matter of a text, and the text after it.
    pub(crate) fn split(text: &str) -> (Self, &str) {
        let none = || (Self::default(), text);
        let mut rest = match text.split_once('\n') {
            Some((first, rest)) if first.trim_end() == "---" => rest,
            _ => return none(),
        };
        let mut lines = Vec::new();
        while let Some((line, after)) =
            rest.split_once('\n').or_else(|| (!rest.is_empty()).then_some((rest, "")))
        {
            rest = after;
            if matches!(line.trim_end(), "---" | "...") {
                return (Self { fields: fields(&lines) }, rest.trim_start_matches(['\n', '\r']));
            }
            if lines.len() == LINES_MAX {
                return none();
            }
            lines.push(line.trim_end());
        }
        none()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&FrontMatterValue> {
        self.fields.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            FrontMatterValue::Text(text) => Some(text).filter(|text| !text.is_empty()).map(String::as_str),
            FrontMatterValue::List(_) | FrontMatterValue::Map(_) => None,
        }
    }

    /// A list, however it is written: with brackets, with dashes, or with commas.
    pub(crate) fn list(&self, key: &str) -> Option<Vec<String>> {
        match self.get(key)? {
            FrontMatterValue::List(items) => Some(items.clone()),
            FrontMatterValue::Text(text) => {
                Some(text.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect())
            }
            FrontMatterValue::Map(_) => None,
        }
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }
}

fn fields(lines: &[&str]) -> BTreeMap<String, FrontMatterValue> {
    let mut fields = BTreeMap::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let Some((key, rest)) = line.split_once(':').filter(|_| indent(line) == 0 && !line.starts_with('#'))
        else {
            continue;
        };
        let below = lines[at..]
            .iter()
            .take_while(|line| line.is_empty() || indent(line) > 0 || line.starts_with("- "));
        let below: Vec<&str> = below.copied().collect();
        at += below.len();
        let rest = without_comment(rest.trim());
        let value = match rest {
            "" => nested(&below),
            "|" | "|-" | "|+" => FrontMatterValue::Text(block(&below).join("\n")),
            ">" | ">-" | ">+" => FrontMatterValue::Text(block(&below).join(" ")),
            _ => scalar(rest),
        };
        fields.insert(key.trim().to_lowercase(), value);
    }
    fields
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

fn block<'a>(below: &[&'a str]) -> Vec<&'a str> {
    let mut lines: Vec<&str> = below.iter().map(|line| line.trim()).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// The value below a key: a list, nested keys, or a multi-line text.
fn nested(below: &[&str]) -> FrontMatterValue {
    let lines: Vec<&str> = below.iter().copied().filter(|line| !line.is_empty()).collect();
    let depth = lines.first().map_or(0, |line| indent(line));
    let mut own = lines.iter().filter(|line| indent(line) == depth).map(|line| line.trim()).peekable();
    match own.peek() {
        Some(first) if first.starts_with('-') => {
            let item = |line: &str| {
                line.strip_prefix('-').map(|item| unquoted(item.trim().trim_start_matches("name:").trim()))
            };
            FrontMatterValue::List(own.filter_map(item).filter(|item| !item.is_empty()).collect())
        }
        Some(first) if first.contains(':') => {
            let pair = |line: &str| {
                let (key, value) = line.rsplit_once(':')?;
                Some((unquoted(key.trim()), unquoted(without_comment(value.trim()))))
            };
            FrontMatterValue::Map(own.filter_map(pair).collect())
        }
        Some(_) => FrontMatterValue::Text(own.collect::<Vec<_>>().join(" ")),
        None => FrontMatterValue::Text(String::new()),
    }
}

fn scalar(text: &str) -> FrontMatterValue {
    let listed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match listed {
        Some(items) => {
            let items = items.split(',').map(|item| unquoted(item.trim()));
            FrontMatterValue::List(items.filter(|item| !item.is_empty()).collect())
        }
        None => FrontMatterValue::Text(unquoted(text)),
    }
}

fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return if quote == '"' {
                inner.replace("\\n", "\n").replace("\\\"", "\"")
            } else {
                inner.replace("''", "'")
            };
        }
    }
    text.to_owned()
}

fn without_comment(text: &str) -> &str {
    if text.starts_with(['"', '\'']) {
        return text;
    }
    text.find(" #").map_or(text, |at| text[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_write_are_read() {
        let text = "---\nname: review  # who\ndescription: \"Looks: at \\\"code\\\"\"\ntools: Read, Grep\nargs: [file, 'depth']\n\
            more:\n  - one\n  - \"two\"\nsame:\n- three\npermission:\n  edit: deny\n  bash:\n    \"git *\": ask\n\
            long: >-\n  a\n  b\n\nexact: |\n  x\n  y\n---\n\nBody\n";
        let (front_matter, body) = FrontMatter::split(text);
        assert_eq!(body, "Body\n");
        assert_eq!(front_matter.text("name"), Some("review"));
        assert_eq!(front_matter.text("description"), Some("Looks: at \"code\""));
        assert_eq!(front_matter.list("tools").unwrap(), ["Read", "Grep"]);
        assert_eq!(front_matter.list("args").unwrap(), ["file", "depth"]);
        assert_eq!(front_matter.list("more").unwrap(), ["one", "two"]);
        assert_eq!(front_matter.list("same").unwrap(), ["three"]);
        let Some(FrontMatterValue::Map(permission)) = front_matter.get("permission") else {
            panic!("{front_matter:?}")
        };
        assert_eq!(permission[0], ("edit".into(), "deny".into()));
        assert_eq!((front_matter.text("long"), front_matter.text("exact")), (Some("a b"), Some("x\ny")));
    }

    #[test]
    fn a_text_without_front_matter_is_all_body() {
        for text in ["", "---", "---\nname: x\n", "Hello\n---\n", "--- x\n---\n"] {
            assert_eq!(FrontMatter::split(text), (FrontMatter::default(), text), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_the_body_is_the_end_of_it(text in "(---\n)?([a-z:>| \\-\\[\\]\"'#]{0,12}\n){0,8}(---\n)?.{0,20}") {
            let (_, body) = FrontMatter::split(&text);
            proptest::prop_assert!(text.ends_with(body));
        }
    }
}
