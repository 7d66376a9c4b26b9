//! What is left of a message that was too long to be kept: its beginning and its end.

use crate::rpc::RpcId;

/// What can be found out about a message of which only the ends are there, or which breaks the rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remains {
    pub id: Option<RpcId>,
    pub method: Option<String>,
    /// It is an answer, or was one.
    pub answers: bool,
}

/// Looks at the fields that come before the long one, and at an id that comes last.
pub fn remains(head: &[u8], tail: &[u8]) -> Remains {
    let mut remains = Remains::default();
    let head = String::from_utf8_lossy(head);
    let mut rest = match head.trim_start().strip_prefix('{') {
        Some(rest) => rest,
        None => return remains,
    };
    let mut asks = false;
    while let Some((key, after)) = field(rest) {
        match key {
            "id" => remains.id = scalar(after).and_then(RpcId::from_json),
            "method" => remains.method = scalar(after).and_then(|text| serde_json::from_str(text).ok()),
            "result" | "error" => remains.answers = true,
            _ => {}
        }
        asks |= matches!(key, "method" | "params");
        match skip_value(after) {
            Some(next) => rest = next,
            None => break,
        }
    }
    remains.answers &= !asks;
    if remains.id.is_none() {
        remains.id = last_id(tail);
    }
    remains
}

/// The next key, and what follows its colon.
fn field(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().trim_start_matches(',').trim_start();
    let key = text.strip_prefix('"')?;
    let (key, rest) = key.split_once('"')?;
    Some((key, rest.trim_start().strip_prefix(':')?.trim_start()))
}

/// A value that is a text, a number or a word, if all of it is there.
fn scalar(text: &str) -> Option<&str> {
    if matches!(text.as_bytes().first()?, b'{' | b'[') {
        return None;
    }
    let rest = skip_value(text)?;
    Some(text[..text.len() - rest.len()].trim_end())
}

/// What follows a value, if all of it is there.
fn skip_value(text: &str) -> Option<&str> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b',' | b'}' | b']' if depth == 0 => return Some(&text[at..]),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The id of a message that says it at its end.
fn last_id(tail: &[u8]) -> Option<RpcId> {
    let tail = String::from_utf8_lossy(tail);
    let (_, after) = tail.rsplit_once("\"id\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim();
    let value = value.strip_suffix('}')?.trim_end();
    let plain = !value.is_empty() && !value.contains(['{', '}', '[', ']', ',']);
    if plain { RpcId::from_json(value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, id: Option<&str>, method: Option<&str>, answers: bool) {
        let found = remains(
            &text.as_bytes()[..text.len().min(100)],
            &text.as_bytes()[text.len().saturating_sub(60)..],
        );
        let expected = Remains { id: id.and_then(RpcId::from_json), method: method.map(Into::into), answers };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn whose_a_long_message_was_is_found_at_its_ends() {
        let long = "x".repeat(500);
        check(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{long}"}}}}"#), Some("7"), None, true);
        check(&format!(r#"{{"jsonrpc":"2.0","result":{{"a":"{long}"}},"id":7}}"#), Some("7"), None, true);
        check(&format!(r#"{{"id":"a\"b","error":{{"a":"{long}"}}}}"#), Some(r#""a\"b""#), None, true);
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":3,"method":"fs/write_text_file","params":{{"a":"{long}"}}}}"#);
        check(&request, Some("3"), Some("fs/write_text_file"), false);
        let update =
            format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"id":4,"a":"{long}"}}}}"#);
        check(&update, None, Some("session/update"), false);
        for nonsense in ["", "{", "[1,2", "{\"id\":", "{\"id\":{}", "no json", "{\"id\":1.5,\"result\":1}"] {
            let found = remains(nonsense.as_bytes(), nonsense.as_bytes());
            assert_eq!(found.id, None, "{nonsense}");
        }
    }
}
