//! JSON-RPC 2.0 messages, before a dialect interprets them.
//!
//! Parameters stay raw text, so they are parsed once, by the code that knows their type. An id is kept
//! exactly as it was written, because it must be echoed exactly.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::client_request::RequestError;
use crate::json_errors::{self, JsonError};

/// The name of a frame in errors that are not about a field.
const WHOLE: &str = "the message";

/// A request's id as it was written: an integer, a string or null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RpcId(Box<str>);

impl RpcId {
    pub const NULL_TEXT: &str = "null";

    pub fn null() -> Self {
        Self(Self::NULL_TEXT.into())
    }

    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    pub fn text(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string().into())
    }

    /// The JSON text of the id.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Reads an id from JSON text that is known to be well-formed.
    pub fn from_json(text: &str) -> Option<Self> {
        let integer = text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit());
        let allowed =
            text == Self::NULL_TEXT || text.starts_with('"') || (integer && text.parse::<i64>().is_ok());
        allowed.then(|| Self(text.into()))
    }
}

#[derive(Debug)]
pub enum RpcMessage<'a> {
    Request {
        id: RpcId,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// A response to a request of ours.
    Response {
        id: RpcId,
        result: Result<&'a RawValue, &'a RawValue>,
    },
}

/// A message that owns its data, for code that handles it elsewhere and later.
#[derive(Debug)]
pub enum OwnedRpcMessage {
    Request { id: RpcId, method: String, params: Option<Box<RawValue>> },
    Notification { method: String, params: Option<Box<RawValue>> },
    Response { id: RpcId, result: Result<Box<RawValue>, Box<RawValue>> },
}

impl RpcMessage<'_> {
    pub fn into_owned(self) -> OwnedRpcMessage {
        let owned = |params: Option<&RawValue>| params.map(ToOwned::to_owned);
        match self {
            Self::Request { id, method, params } => {
                OwnedRpcMessage::Request { id, method: method.into_owned(), params: owned(params) }
            }
            Self::Notification { method, params } => {
                OwnedRpcMessage::Notification { method: method.into_owned(), params: owned(params) }
            }
            Self::Response { id, result } => OwnedRpcMessage::Response {
                id,
                result: result.map(ToOwned::to_owned).map_err(ToOwned::to_owned),
            },
        }
    }
}

impl OwnedRpcMessage {
    pub fn as_message(&self) -> RpcMessage<'_> {
        match self {
            Self::Request { id, method, params } => {
                RpcMessage::Request { id: id.clone(), method: method.into(), params: params.as_deref() }
            }
            Self::Notification { method, params } => {
                RpcMessage::Notification { method: method.into(), params: params.as_deref() }
            }
            Self::Response { id, result } => {
                RpcMessage::Response { id: id.clone(), result: result.as_deref().map_err(AsRef::as_ref) }
            }
        }
    }
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    /// Some libraries write null if there are none.
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Distinguishes `"x": null` from an absent `x`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses one frame. An error comes with the id for the error response.
pub fn parse(frame: &[u8]) -> Result<RpcMessage<'_>, (RpcId, RequestError)> {
    let text = std::str::from_utf8(frame)
        .map_err(|_| (RpcId::null(), RequestError::Parse("the frame is not valid UTF-8".into())))?;
    if text.trim_start().starts_with('[') {
        // A batch that does not even parse is a parse error, as a single message would be.
        json_errors::read::<&RawValue>(text, WHOLE).map_err(|error| unreadable(text, &error))?;
        return Err(invalid(None, "batches are not supported: send each message by itself"));
    }
    let envelope: RawMessage<'_> =
        json_errors::read(text, WHOLE).map_err(|error| unreadable(text, &error))?;
    let id = match envelope.id {
        Some(raw) => match RpcId::from_json(raw.get()) {
            Some(id) => Some(id),
            None => return Err(invalid(None, "id must be an integer, a string or null")),
        },
        None => None,
    };
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(invalid(id, "jsonrpc must be \"2.0\""));
    }
    match (envelope.method, id, envelope.result, envelope.error) {
        (Some(method), Some(id), None, None) => {
            Ok(RpcMessage::Request { id, method, params: envelope.params })
        }
        (Some(method), None, None, None) => Ok(RpcMessage::Notification { method, params: envelope.params }),
        (None, Some(id), Some(result), None) => Ok(RpcMessage::Response { id, result: Ok(result) }),
        (None, Some(id), None, Some(error)) => Ok(RpcMessage::Response { id, result: Err(error) }),
        // Some libraries write both members, with null for the one that does not count.
        (None, Some(id), Some(result), Some(error)) if error.get() == RpcId::NULL_TEXT => {
            Ok(RpcMessage::Response { id, result: Ok(result) })
        }
        (None, Some(id), Some(result), Some(error)) if result.get() == RpcId::NULL_TEXT => {
            Ok(RpcMessage::Response { id, result: Err(error) })
        }
        (Some(_), id, _, _) => Err(invalid(id, "a message has either a method, or a result or an error")),
        (None, id, _, _) => Err(invalid(id, "a message needs a method, or exactly one of result and error")),
    }
}

/// The error response needs the request's id if it can be read, or the caller waits for ever.
fn unreadable(text: &str, error: &JsonError) -> (RpcId, RequestError) {
    #[derive(Deserialize)]
    struct IdField<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    if error.is_syntax {
        return (RpcId::null(), RequestError::Parse(error.to_string()));
    }
    let field = serde_json::from_str::<IdField<'_>>(text).ok();
    let id = field.and_then(|field| RpcId::from_json(field.id.get()));
    invalid(id, &format!("not a JSON-RPC message: {error}"))
}

fn invalid(id: Option<RpcId>, why: &str) -> (RpcId, RequestError) {
    (id.unwrap_or_else(RpcId::null), RequestError::InvalidRequest(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(frame: &str, expected: Expect) {
        let read = parse(frame.as_bytes());
        let before = format!("{read:?}");
        let owned = read.map(RpcMessage::into_owned);
        let read = match &owned {
            Ok(owned) => Ok(owned.as_message()),
            Err((id, fault)) => Err((id, fault)),
        };
        assert_eq!(before, format!("{read:?}"), "owned, it says the same");
        let shown = match read {
            Ok(RpcMessage::Request { id, method, params }) => {
                format!("request {} {method} {}", id.as_json(), params.map_or("-", RawValue::get))
            }
            Ok(RpcMessage::Notification { method, params }) => {
                format!("notification {method} {}", params.map_or("-", RawValue::get))
            }
            Ok(RpcMessage::Response { id, result }) => format!("response {} {result:?}", id.as_json()),
            Err((id, fault)) => format!("! {} {fault:?}", id.as_json()),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn ids_are_echoed_as_they_were_written() {
        check(r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, expect!["request 7 m -"]);
        check(
            r#"{"jsonrpc":"2.0","id":"a\u0062c","method":"m","params":{"x":[1]}}"#,
            expect![[r#"request "a\u0062c" m {"x":[1]}"#]],
        );
        check(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, expect!["request null m -"]);
        check(
            r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
            expect![[r#"! null InvalidRequest("id must be an integer, a string or null")"#]],
        );
    }

    #[test]
    fn malformed_json_and_malformed_messages_are_told_apart() {
        check("{bad", expect![[r#"! null Parse("not valid JSON: key must be a string, at position 2")"#]]);
        check(r#"{"id":1}"#, expect![[r#"! 1 InvalidRequest("jsonrpc must be \"2.0\"")"#]]);
        check(
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            expect![[r#"! 1 InvalidRequest("jsonrpc must be \"2.0\"")"#]],
        );
        check(
            r#"{"jsonrpc":"2.0","id":1}"#,
            expect![[
                r#"! 1 InvalidRequest("a message needs a method, or exactly one of result and error")"#
            ]],
        );
        check(
            "[1]",
            expect![[r#"! null InvalidRequest("batches are not supported: send each message by itself")"#]],
        );
        check("[1", expect![[r#"! null Parse("not valid JSON: it ends too early")"#]]);
        check(
            "12",
            expect![[
                r#"! null InvalidRequest("not a JSON-RPC message: the message must be an object, not 12")"#
            ]],
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            expect![[r#"! 1 InvalidRequest("not a JSON-RPC message: `method` must be a string, not 5")"#]],
        );
    }

    #[test]
    fn answers_to_our_requests_are_recognised() {
        check(r#"{"jsonrpc":"2.0","id":3,"result":null}"#, expect!["response 3 Ok(RawValue(null))"]);
        check(
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":1}}"#,
            expect![[r#"response 3 Err(RawValue({"code":1}))"#]],
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"result":{},"error":null}"#,
            expect![[r#"response 3 Ok(RawValue({}))"#]],
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":1}}"#,
            expect![[r#"response 3 Err(RawValue({"code":1}))"#]],
        );
    }
}
