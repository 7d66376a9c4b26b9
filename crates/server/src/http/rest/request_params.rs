//! The parameters of a request besides its body: the session in its path, and the query string.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use engine::SessionId;
use serde_json::{Map, Value};

use super::rest_context::{RestContext, no_session};
use crate::http::{HttpState, Refusal};

/// The session that the path names, as far as the caller may reach it. Whether it exists is not known.
pub(super) struct SessionPath {
    pub context: RestContext,
    pub id: SessionId,
}

impl FromRequestParts<Arc<HttpState>> for SessionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<HttpState>) -> Result<Self, Refusal> {
        let context = RestContext::from_request_parts(parts, state).await?;
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|path| SessionId::parse(path.get("id")?).ok()).ok_or_else(no_session)?;
        match &context.caller.session {
            Some(own) if *own != id => Err(no_session()),
            Some(_) | None => Ok(Self { context, id }),
        }
    }
}

/// The query string.
pub(super) struct QueryParams(HashMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for QueryParams {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let Query(params) =
            query.map_err(|_| bad_query("the part of the URL after ? must consist of name=value"))?;
        Ok(Self(params))
    }
}

impl QueryParams {
    /// An empty value counts as missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|word| !word.is_empty())
    }

    pub fn number(&self, name: &str) -> Result<Option<usize>, Refusal> {
        let number = |word: &str| word.parse().map_err(|_| bad_query(&format!("{name} must be a number")));
        self.get(name).map(number).transpose()
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "yes"))
    }
}

pub(super) fn bad_query(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_query", message)
}

pub(super) fn bad_field(code: &'static str, message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, code, message)
}

/// A field that is a string, if it is there; `null` is not.
pub(super) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Refusal> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad_field("invalid_field", &format!("{name} must be a string"))),
    }
}

/// The first of these fields that holds more than blanks.
pub(super) fn some_text<'a>(
    fields: &'a Map<String, Value>,
    names: &[&str],
) -> Result<Option<&'a str>, Refusal> {
    for name in names {
        if let Some(found) = text(fields, name)?.filter(|text| !text.trim().is_empty()) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
