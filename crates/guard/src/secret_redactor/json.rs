//! Redacts secrets in JSON: each string is judged by its decoded value, not by its escaped source, and the result is
//! JSON again. Everything between the strings stays byte for byte.

use engine::Redactor;

use super::named_values::{SecretKind, is_quoted_secret};
use super::secret_indicators::{MARKS, SecretMark};
use super::{REDACTED, SecretRedactor};

pub(super) fn redact(secrets: &SecretRedactor, json: &str) -> Option<String> {
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    // The kind of secret that the string before named, if it did.
    let mut named: Option<SecretKind> = None;
    while let Some(start) = json[at..].find('"').map(|found| at + found) {
        let Some(end) = string_end(json, start) else { return secrets.redact(json) };
        let Ok(text) = serde_json::from_str::<String>(&json[start..end]) else { return secrets.redact(json) };
        let is_value_of = named.take();
        if json[end..].trim_ascii_start().starts_with(':') {
            named = key_of(&text);
        }
        let clean = match is_value_of {
            Some(key) if is_quoted_secret(key, &text) => Some(REDACTED.to_owned()),
            _ => secrets.redact(&text),
        };
        if let Some(clean) = clean {
            let out = out.get_or_insert_default();
            out.push_str(&json[copied..start]);
            out.push_str(&serde_json::Value::from(clean).to_string());
            copied = end;
        }
        at = end;
    }
    out.map(|out| out + &json[copied..])
}

/// Behind the closing quote of the string that begins here.
fn string_end(json: &str, start: usize) -> Option<usize> {
    let mut escaped = false;
    for (offset, byte) in json.bytes().enumerate().skip(start + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// The names of objects are short: what this one ends with is compared with each mark.
fn key_of(name: &str) -> Option<SecretKind> {
    let name = name.to_ascii_lowercase();
    let stem = name.strip_suffix("key").map_or("", |stem| stem.trim_end_matches(['_', '-']));
    MARKS.iter().find_map(|(text, mark)| match mark {
        SecretMark::NamedValue(key) if name.ends_with(text) || stem.ends_with(text) => Some(*key),
        _ => None,
    })
}
