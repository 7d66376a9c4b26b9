//! Reads what is left of a message that was too long: its beginning and its end.

use crate::rpc::RpcId;

/// What can be found out about a message that is truncated or malformed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TruncatedMessage {
    pub id: Option<RpcId>,
    pub method: Option<String>,
    /// It is, or was, a response.
    pub answers: bool,
}

/// Reads the members before the long one, and an id at the end.
pub fn read_truncated(head: &[u8], tail: &[u8]) -> TruncatedMessage {
    let mut message = TruncatedMessage::default();
    let head = String::from_utf8_lossy(head);
    let mut rest = match head.trim_start().strip_prefix('{') {
        Some(rest) => rest,
        None => return message,
    };
    let mut asks = false;
    while let Some((key, after)) = field(rest) {
        match key {
            "id" => message.id = scalar(after).and_then(RpcId::from_json),
            "method" => message.method = scalar(after).and_then(|text| serde_json::from_str(text).ok()),
            "result" | "error" => message.answers = true,
            _ => {}
        }
        asks |= matches!(key, "method" | "params");
        match skip_value(after) {
            Some(next) => rest = next,
            None => break,
        }
    }
    message.answers &= !asks;
    if message.id.is_none() {
        message.id = last_id(tail);
    }
    message
}

/// The next key, and the text after its colon.
fn field(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().trim_start_matches(',').trim_start();
    let key = text.strip_prefix('"')?;
    let (key, rest) = key.split_once('"')?;
    Some((key, rest.trim_start().strip_prefix(':')?.trim_start()))
}

/// A string, a number or a literal, if it is complete.
fn scalar(text: &str) -> Option<&str> {
    if matches!(text.as_bytes().first()?, b'{' | b'[') {
        return None;
    }
    let rest = skip_value(text)?;
    Some(text[..text.len() - rest.len()].trim_end())
}

/// The text after a value, if the value is complete.
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

/// The id of a message that has it at the end.
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
        let found = read_truncated(
            &text.as_bytes()[..text.len().min(100)],
            &text.as_bytes()[text.len().saturating_sub(60)..],
        );
        let expected =
            TruncatedMessage { id: id.and_then(RpcId::from_json), method: method.map(Into::into), answers };
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
            let found = read_truncated(nonsense.as_bytes(), nonsense.as_bytes());
            assert_eq!(found.id, None, "{nonsense}");
        }
    }
}
