//! Reads a peer's JSON and explains errors in a sentence: which field, what was expected, what was found.
//!
//! The parser's own messages name our types, give columns of a frame that the person does not see, and
//! repeat the peer's input. So they are parsed and rewritten. An unrecognised message is passed on only if
//! it names nothing internal, and replaced by a general sentence otherwise.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Names of fields and values are repeated up to this length.
const NAME_CHARS_MAX: usize = 64;
/// How many of the possible names are listed.
const NAMES_MAX: usize = 16;

/// Why something could not be read, for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonError {
    /// The text is not JSON at all.
    pub is_syntax: bool,
    text: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for JsonError {}

/// Reads a text. `whole` names it in errors that are not about a field: "the parameters".
pub fn read<'a, T: Deserialize<'a>>(text: &'a str, whole: &str) -> Result<T, JsonError> {
    // The error's position is found by reading again, so valid input costs nothing.
    serde_json::from_str(text).map_err(|error| {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let found = serde_path_to_error::deserialize::<_, T>(deserializer).err();
        found.map_or_else(
            || explain(&[], &error, whole),
            |found| explain(&fields(found.path()), found.inner(), whole),
        )
    })
}

/// The same from bytes.
pub fn read_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8], whole: &str) -> Result<T, JsonError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => read(text, whole),
        Err(_) => Err(JsonError { is_syntax: true, text: "not valid JSON: it is not UTF-8".into() }),
    }
}

/// The same from a value, which is the field `within` of something else, or the whole if that is empty.
pub fn read_value<T: DeserializeOwned>(value: Value, within: &str, whole: &str) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(value).map_err(|found| {
        let mut path = fields(found.path());
        if !within.is_empty() {
            path.insert(0, within.to_owned());
        }
        explain(&path, found.inner(), whole)
    })
}

/// Explains a parser error from elsewhere.
pub fn in_words(error: &serde_json::Error, whole: &str) -> JsonError {
    explain(&[], error, whole)
}

/// The name of a value's type, for errors.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether a text mentions our types, or positions in a frame. No message to a person does; tests check
/// that.
#[doc(hidden)]
pub fn names_internals(text: &str) -> bool {
    ["untagged", "variant", "struct ", "enum ", "::", " column "].iter().any(|word| text.contains(word))
}

/// The path to a field, as far as its names can be repeated.
fn fields(path: &Path) -> Vec<String> {
    let mut fields = Vec::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => fields.push(format!("[{index}]")),
            Segment::Map { key: name } | Segment::Enum { variant: name } if is_plain(name) => {
                fields.push(name.clone());
            }
            Segment::Map { .. } | Segment::Enum { .. } => break,
            Segment::Unknown => {}
        }
    }
    fields
}

fn dotted_path(path: &[String]) -> Option<String> {
    let mut text = String::new();
    for part in path {
        if !text.is_empty() && !part.starts_with('[') {
            text.push('.');
        }
        text.push_str(part);
    }
    (!text.is_empty()).then(|| format!("`{text}`"))
}

fn explain(path: &[String], error: &serde_json::Error, whole: &str) -> JsonError {
    let (line, column) = (error.line(), error.column());
    let shown = error.to_string();
    let said = shown.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&shown);
    let said = if said == "expected ident" { "expected true, false or null" } else { said };
    let is_syntax = !error.is_data();
    let text = if error.is_eof() {
        "not valid JSON: it ends too early".to_owned()
    } else if is_syntax && line > 1 {
        format!("not valid JSON: {said}, at line {line}, position {column}")
    } else if is_syntax {
        format!("not valid JSON: {said}, at position {column}")
    } else {
        sentence(path, said, whole)
    };
    JsonError { is_syntax, text }
}

/// Rewrites the parser's message about a field of the wrong type.
fn sentence(path: &[String], said: &str, whole: &str) -> String {
    let subject = dotted_path(path).unwrap_or_else(|| whole.to_owned());
    let member = |name: &str| {
        let mut path = path.to_vec();
        path.push(name.to_owned());
        dotted_path(&path).unwrap_or_default()
    };
    if let Some(name) = between(said, "missing field `") {
        return format!("{} is missing", member(name));
    }
    if let Some(name) = between(said, "duplicate field `") {
        return format!("{} is given twice", member(name));
    }
    if let Some(rest) = said.strip_prefix("unknown field `") {
        let name = rest.split('`').next().filter(|name| is_plain(name));
        return name.map_or_else(
            || format!("{subject} must not have unknown fields"),
            // The path leads to the field itself.
            |name| match path.last() {
                Some(last) if last == name => format!("{subject} is not known here"),
                Some(_) | None => format!("{} is not known here", member(name)),
            },
        );
    }
    if let Some(rest) = said.strip_prefix("unknown variant `") {
        return unknown_name(&subject, rest);
    }
    let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|words| said.strip_prefix(words));
    if let Some((came, wanted)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        let (wanted, came) = (expected(wanted), unexpected(came));
        if said.starts_with("invalid value: ") && came == "a string" {
            return format!("{subject} must be {wanted}");
        }
        return format!("{subject} must be {wanted}, not {came}");
    }
    if let Some((count, wanted)) =
        said.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected "))
    {
        return match expected(wanted).as_str() {
            "an object" => format!("{subject} must be an object, not a list"),
            wanted => format!("{subject} must be {wanted} and cannot have the length {count}"),
        };
    }
    if !said.is_empty() && !names_internals(said) {
        return format!("{subject}: {said}");
    }
    format!("{subject} has an unsupported form")
}

/// `x`, expected one of `a`, `b`
fn unknown_name(subject: &str, rest: &str) -> String {
    let known =
        rest.rsplit_once("`, expected ").map(|(came, known)| (came, known.split('`').skip(1).step_by(2)));
    let Some((came, known)) = known else { return format!("{subject} has an unsupported form") };
    let names: Vec<_> = known.collect();
    let mut listed = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        listed.push_str(", ...");
    }
    let one_of = if names.len() == 1 { "" } else { "one of " };
    let not = if is_plain(came) { format!(", not `{came}`") } else { String::new() };
    format!("{subject} must be {one_of}{listed}{not}")
}

fn expected(words: &str) -> String {
    let said = match words {
        "a string" | "string" | "str" | "a borrowed string" | "a character" | "field identifier"
        | "variant identifier" => "a string",
        "path string" => "a path",
        "a boolean" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "unit" => "null",
        "a map" | "map" => "an object",
        "a sequence" | "sequence" => "a list",
        "string or map" => "a string or an object",
        words if words.starts_with("a tuple") || words.starts_with("an array") => "a list",
        words if words.starts_with("enum ") => "a string or an object",
        words if words.contains("struct") || words.contains("tagged enum") => "an object",
        words if !names_internals(words) => words,
        _ => "something else",
    };
    said.to_owned()
}

fn unexpected(words: &str) -> String {
    let number = words.strip_prefix("integer `").or_else(|| words.strip_prefix("floating point `"));
    let exact = number.or_else(|| words.strip_prefix("boolean `")).and_then(|rest| rest.strip_suffix('`'));
    if let Some(exact) = exact {
        return exact.to_owned();
    }
    let said = match words {
        "map" => "an object",
        "sequence" => "a list",
        "null" | "unit value" | "Option value" => "null",
        words if words.starts_with("string") || words.starts_with("character") => "a string",
        _ => "something else",
    };
    said.to_owned()
}

/// The name after these words, which ends the message.
fn between<'a>(said: &'a str, words: &str) -> Option<&'a str> {
    said.strip_prefix(words)?.strip_suffix('`').filter(|name| is_plain(name))
}

/// A name without special characters.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '$');
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(plain)
}

#[cfg(test)]
mod tests;
