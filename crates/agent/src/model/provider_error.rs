//! What a provider's error means, and its text for people.
//!
//! Status codes alone are not enough: a wrong key is a 400 at some providers, missing credit a 429, a request
//! that can never work a 500. So the error texts are examined too. These come from outside: they are
//! shortened, put on one line, and our own secrets are removed before anybody sees them.

use std::time::Duration;

use serde_json::Value;

use super::{ModelError, ModelErrorKind};

const WORDS_CHARS_MAX: usize = 400;

/// An error response, as far as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct ErrorReply {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) request_id: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

/// The provider and model that an error is about, and the secrets to remove from texts.
pub(super) struct ProviderIdentity<'a> {
    pub(super) name: &'a str,
    pub(super) model: &'a str,
    pub(super) key_name: Option<&'a str>,
    /// No key was sent.
    pub(super) keyless: bool,
    pub(super) secrets: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorMeaning {
    TooLong,
    NoCredit,
    BadKey,
    UnknownModel,
    Busy,
    ServerError,
    WrongAddress,
    Refused,
}

/// The error for a reply that ended without a finish reason.
pub(super) fn cut_off() -> ModelError {
    ModelError::transient("the answer was cut off: the connection ended before it did")
}

pub(super) fn not_json(data: &str) -> ModelError {
    ModelError::transient(format!("the answer is malformed: {:?} is not JSON", shown(data, 80)))
}

/// The error for an error object inside a stream.
pub(super) fn stream_error(value: &Value) -> ModelError {
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let status = ["status_code", "code", "status"].iter().find_map(|key| number(error.get(*key)?));
    let status = status.and_then(|status| u16::try_from(status).ok()).filter(|status| *status >= 400);
    let (words, marks) = message_and_codes(value);
    let meaning = classify(status.unwrap_or(0), &words, &marks);
    let kind = match meaning {
        ErrorMeaning::TooLong => ModelErrorKind::TooLong,
        ErrorMeaning::Busy | ErrorMeaning::ServerError => ModelErrorKind::Transient { retry_after: None },
        _ => ModelErrorKind::Permanent,
    };
    ModelError { text: shown(&words, WORDS_CHARS_MAX), kind }
}

impl ErrorReply {
    pub(super) fn explain(&self, identity: &ProviderIdentity<'_>) -> ModelError {
        let value = serde_json::from_str(&self.body).unwrap_or_else(|_| non_json_body(&self.body));
        let (said, marks) = message_and_codes(&value);
        let meaning = classify(self.status, &said, &marks);
        let kind = match meaning {
            ErrorMeaning::TooLong => ModelErrorKind::TooLong,
            ErrorMeaning::Busy | ErrorMeaning::ServerError => {
                ModelErrorKind::Transient { retry_after: self.retry_after }
            }
            _ => ModelErrorKind::Permanent,
        };
        ModelError { text: self.message_for(meaning, &said, identity), kind }
    }

    fn message_for(&self, meaning: ErrorMeaning, said: &str, identity: &ProviderIdentity<'_>) -> String {
        let (name, model, status) = (identity.name, identity.model, self.status);
        let what = match meaning {
            ErrorMeaning::TooLong => format!("the conversation is too long for {model} ({name}, {status})"),
            ErrorMeaning::NoCredit => format!("{name} says there is no credit left ({status})"),
            ErrorMeaning::BadKey if identity.keyless => format!("{name} requires a key ({status})"),
            ErrorMeaning::BadKey if status == 403 => {
                format!("{name} does not allow this with this key ({status})")
            }
            ErrorMeaning::BadKey => format!("{name} says the key is not valid ({status})"),
            ErrorMeaning::UnknownModel => format!("{name} has no model {model:?} ({status})"),
            ErrorMeaning::Busy => format!("{name} is busy ({status})"),
            ErrorMeaning::ServerError => format!("{name} failed ({status})"),
            ErrorMeaning::WrongAddress => format!("{name} was not found at this address ({status})"),
            ErrorMeaning::Refused => format!("{name} refused the request ({status})"),
        };
        let next = match (meaning, identity.key_name) {
            (ErrorMeaning::BadKey, Some(key)) => format!("; set {key}"),
            (ErrorMeaning::BadKey, None) => "; set its key".into(),
            (ErrorMeaning::NoCredit, _) => format!("; add credit at {name} or choose another model"),
            (ErrorMeaning::UnknownModel, _) => "; list the models with `ropewalk models list`".into(),
            (ErrorMeaning::TooLong, _) => "; /compact shortens it".into(),
            (ErrorMeaning::WrongAddress, _) => "; check its base URL".into(),
            (ErrorMeaning::Busy | ErrorMeaning::ServerError | ErrorMeaning::Refused, _) => String::new(),
        };
        let said = redact(said, &identity.secrets);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let id = self.request_id.as_ref().map(|id| format!(" [request {}]", shown(id, 80)));
        format!("{what}{said}{next}{}", id.unwrap_or_default())
    }
}

/// Removes our secrets from a provider's text.
pub(super) fn redact(words: &str, secrets: &[&str]) -> String {
    let mut words = words.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
        words = words.replace(*secret, "***");
    }
    shown(&words, WORDS_CHARS_MAX)
}

/// On one line, without control characters, not too long.
pub(super) fn shown(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if !word.is_empty() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
        if line.len() > 8 * chars_max {
            break;
        }
    }
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// A body that is not JSON. Of an HTML page, only the title is used.
fn non_json_body(body: &str) -> Value {
    let page = body.trim_start().starts_with('<');
    let title = body.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    match title {
        Some((title, _)) if page => Value::String(title.to_owned()),
        _ if page => Value::Null,
        _ => Value::String(body.to_owned()),
    }
}

/// The message for people, and all error codes in lower case.
fn message_and_codes(value: &Value) -> (String, String) {
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let sentence = [error.get("message"), Some(error), value.get("message"), value.get("detail")]
        .into_iter()
        .flatten()
        .find_map(Value::as_str);
    let raw = error.pointer("/metadata/raw").and_then(Value::as_str);
    let first = value.pointer("/detail/0/msg").and_then(Value::as_str);
    let mut said = sentence.or(first).unwrap_or_default().to_owned();
    if let Some(raw) = raw.filter(|raw| !said.contains(*raw)) {
        said.push_str(" - ");
        said.push_str(raw);
    }
    let mut marks = String::new();
    for holder in [value, error] {
        for key in ["type", "code", "status"] {
            if let Some(mark) = holder.get(key).and_then(Value::as_str) {
                marks.push_str(&mark.to_ascii_lowercase());
                marks.push(' ');
            }
        }
    }
    (said, marks)
}

fn classify(status: u16, said: &str, marks: &str) -> ErrorMeaning {
    let said = said.to_lowercase();
    let says = |any: &[&str]| any.iter().any(|words| said.contains(words));
    let marked = |any: &[&str]| any.iter().any(|words| marks.contains(words));
    if marked(TOO_LONG_CODES) || status == 413 || says(TOO_LONG) {
        ErrorMeaning::TooLong
    } else if status == 402 || marked(NO_CREDIT_CODES) || says(NO_CREDIT) {
        ErrorMeaning::NoCredit
    } else if status == 401 || marked(BAD_KEY_CODES) || says(BAD_KEY) {
        ErrorMeaning::BadKey
    } else if marked(UNKNOWN_MODEL_CODES)
        || says(UNKNOWN_MODEL)
        || status == 404 && (said.starts_with("model") || says(&["model"]))
    {
        ErrorMeaning::UnknownModel
    } else if status == 403 {
        ErrorMeaning::BadKey
    } else if matches!(status, 408 | 409 | 429 | 503 | 529) || marked(BUSY_CODES) || says(BUSY) {
        ErrorMeaning::Busy
    } else if status >= 500 && says(NEVER) || matches!(status, 501 | 505) {
        ErrorMeaning::Refused
    } else if status >= 500 || marked(&["server_error", "api_error", "internal"]) {
        ErrorMeaning::ServerError
    } else if matches!(status, 300..400 | 404 | 405) {
        ErrorMeaning::WrongAddress
    } else {
        ErrorMeaning::Refused
    }
}

const TOO_LONG_CODES: &[&str] = &["context_length_exceeded", "exceed_context_size", "request_too_large"];
const TOO_LONG: &[&str] = &[
    "available context size",
    "context length",
    "context window",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "input is too long",
    "maximum context",
    "prompt is too long",
    "prompt too long",
    "reduce the length of",
    "request too large",
    "too many tokens in",
];
const NO_CREDIT_CODES: &[&str] =
    &["insufficient_quota", "billing", "insufficient_credits", "payment_required"];
const NO_CREDIT: &[&str] = &[
    "credit balance",
    "exceeded your current quota, please check your plan",
    "insufficient balance",
    "insufficient credit",
    "insufficient funds",
    "more credits",
    "no credits",
];
const BAD_KEY_CODES: &[&str] = &["invalid_api_key", "authentication_error", "unauthenticated"];
const BAD_KEY: &[&str] = &["api key not valid", "incorrect api key", "invalid api key", "api key is invalid"];
const UNKNOWN_MODEL_CODES: &[&str] = &["model_not_found", "invalid_model"];
const UNKNOWN_MODEL: &[&str] = &[
    "invalid model",
    "is not a valid model",
    "model not found",
    "supported api model names",
    "try pulling it first",
];
const BUSY_CODES: &[&str] =
    &["overloaded", "rate_limit", "resource_exhausted", "too_many_requests", "unavailable"];
const BUSY: &[&str] =
    &["overloaded", "rate limit", "rate-limit", "at capacity", "temporarily unavailable", "try again later"];
/// Texts of permanent errors that some servers send with a status for temporary ones.
const NEVER: &[&str] = &["not supported", "unsupported", "requires --", "cannot use both"];
