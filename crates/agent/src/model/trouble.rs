//! What a provider's error means, and how a person is told.
//!
//! Statuses alone do not say it: a wrong key is a 400 at some providers, an empty purse a 429, a
//! request that can never work a 500. So the words are looked at too. The words come from outside:
//! they are shortened, put on one line, and rid of our own secrets before anybody sees them.

use std::time::Duration;

use serde_json::Value;

use super::{ModelError, ModelErrorKind};

const WORDS_CHARS_MAX: usize = 400;

/// An error reply, as far as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) request_id: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

/// Who is spoken of.
pub(super) struct Speaker<'a> {
    pub(super) name: &'a str,
    pub(super) model: &'a str,
    pub(super) key_name: Option<&'a str>,
    /// No key was sent.
    pub(super) keyless: bool,
    pub(super) secrets: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    TooLong,
    Purse,
    Key,
    UnknownModel,
    Busy,
    Broken,
    Elsewhere,
    Refused,
}

/// The reply ended without saying why.
pub(super) fn cut() -> ModelError {
    ModelError::passing("the answer was cut off: the connection ended before it did")
}

pub(super) fn garbage(data: &str) -> ModelError {
    ModelError::passing(format!("the answer cannot be read: {:?} is no JSON", shown(data, 80)))
}

/// An error that stands inside a stream: `value` is the provider's error object.
pub(super) fn in_band(value: &Value) -> ModelError {
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let status = ["status_code", "code", "status"].iter().find_map(|key| number(error.get(*key)?));
    let status = status.and_then(|status| u16::try_from(status).ok()).filter(|status| *status >= 400);
    let (words, marks) = words(value);
    let meaning = meaning(status.unwrap_or(0), &words, &marks);
    let kind = match meaning {
        Meaning::TooLong => ModelErrorKind::TooLong,
        Meaning::Busy | Meaning::Broken => ModelErrorKind::Passing { retry_after: None },
        _ => ModelErrorKind::Lasting,
    };
    ModelError { text: shown(&words, WORDS_CHARS_MAX), kind }
}

impl Refused {
    pub(super) fn explain(&self, speaker: &Speaker<'_>) -> ModelError {
        let value = serde_json::from_str(&self.body).unwrap_or_else(|_| plain(&self.body));
        let (said, marks) = words(&value);
        let meaning = meaning(self.status, &said, &marks);
        let kind = match meaning {
            Meaning::TooLong => ModelErrorKind::TooLong,
            Meaning::Busy | Meaning::Broken => ModelErrorKind::Passing { retry_after: self.retry_after },
            _ => ModelErrorKind::Lasting,
        };
        ModelError { text: self.tell(meaning, &said, speaker), kind }
    }

    fn tell(&self, meaning: Meaning, said: &str, speaker: &Speaker<'_>) -> String {
        let (name, model, status) = (speaker.name, speaker.model, self.status);
        let what = match meaning {
            Meaning::TooLong => format!("the conversation is too long for {model} ({name}, {status})"),
            Meaning::Purse => format!("{name} says there is no credit left ({status})"),
            Meaning::Key if speaker.keyless => format!("{name} wants a key ({status})"),
            Meaning::Key if status == 403 => format!("{name} does not allow this with the key ({status})"),
            Meaning::Key => format!("{name} says the key is not valid ({status})"),
            Meaning::UnknownModel => format!("{name} has no model {model:?} ({status})"),
            Meaning::Busy => format!("{name} is busy ({status})"),
            Meaning::Broken => format!("{name} failed ({status})"),
            Meaning::Elsewhere => format!("{name} is not at this address ({status})"),
            Meaning::Refused => format!("{name} refused the request ({status})"),
        };
        let next = match (meaning, speaker.key_name) {
            (Meaning::Key, Some(key)) => format!("; set {key}"),
            (Meaning::Key, None) => "; set its key".into(),
            (Meaning::Purse, _) => format!("; add credit at {name} or choose another model"),
            (Meaning::UnknownModel, _) => "; `ropewalk models list` shows what there is".into(),
            (Meaning::TooLong, _) => "; /compact shortens it".into(),
            (Meaning::Elsewhere, _) => "; check its base URL".into(),
            (Meaning::Busy | Meaning::Broken | Meaning::Refused, _) => String::new(),
        };
        let said = clean(said, &speaker.secrets);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let id = self.request_id.as_ref().map(|id| format!(" [request {}]", shown(id, 80)));
        format!("{what}{said}{next}{}", id.unwrap_or_default())
    }
}

/// Takes our secrets out of somebody else's words.
pub(super) fn clean(words: &str, secrets: &[&str]) -> String {
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

/// A body that is no JSON. Of a page, whoever wrote it, only the title is worth showing.
fn plain(body: &str) -> Value {
    let page = body.trim_start().starts_with('<');
    let title = body.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    match title {
        Some((title, _)) if page => Value::String(title.to_owned()),
        _ if page => Value::Null,
        _ => Value::String(body.to_owned()),
    }
}

/// The sentence for people, and everything else that names the error, in lower case.
fn words(value: &Value) -> (String, String) {
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

fn meaning(status: u16, said: &str, marks: &str) -> Meaning {
    let said = said.to_lowercase();
    let says = |any: &[&str]| any.iter().any(|words| said.contains(words));
    let marked = |any: &[&str]| any.iter().any(|words| marks.contains(words));
    if marked(TOO_LONG_MARKS) || status == 413 || says(TOO_LONG) {
        Meaning::TooLong
    } else if status == 402 || marked(PURSE_MARKS) || says(PURSE) {
        Meaning::Purse
    } else if status == 401 || marked(KEY_MARKS) || says(KEY) {
        Meaning::Key
    } else if marked(MODEL_MARKS)
        || says(MODEL)
        || status == 404 && (said.starts_with("model") || says(&["model"]))
    {
        Meaning::UnknownModel
    } else if status == 403 {
        Meaning::Key
    } else if matches!(status, 408 | 409 | 429 | 503 | 529) || marked(BUSY_MARKS) || says(BUSY) {
        Meaning::Busy
    } else if status >= 500 && says(NEVER) || matches!(status, 501 | 505) {
        Meaning::Refused
    } else if status >= 500 || marked(&["server_error", "api_error", "internal"]) {
        Meaning::Broken
    } else if matches!(status, 300..400 | 404 | 405) {
        Meaning::Elsewhere
    } else {
        Meaning::Refused
    }
}

const TOO_LONG_MARKS: &[&str] = &["context_length_exceeded", "exceed_context_size", "request_too_large"];
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
const PURSE_MARKS: &[&str] = &["insufficient_quota", "billing", "insufficient_credits", "payment_required"];
const PURSE: &[&str] = &[
    "credit balance",
    "exceeded your current quota, please check your plan",
    "insufficient balance",
    "insufficient credit",
    "insufficient funds",
    "more credits",
    "no credits",
];
const KEY_MARKS: &[&str] = &["invalid_api_key", "authentication_error", "unauthenticated"];
const KEY: &[&str] = &["api key not valid", "incorrect api key", "invalid api key", "api key is invalid"];
const MODEL_MARKS: &[&str] = &["model_not_found", "invalid_model"];
const MODEL: &[&str] = &[
    "invalid model",
    "is not a valid model",
    "model not found",
    "supported api model names",
    "try pulling it first",
];
const BUSY_MARKS: &[&str] =
    &["overloaded", "rate_limit", "resource_exhausted", "too_many_requests", "unavailable"];
const BUSY: &[&str] =
    &["overloaded", "rate limit", "rate-limit", "at capacity", "temporarily unavailable", "try again later"];
/// Said with a status that means "try again" by servers that mean "never".
const NEVER: &[&str] = &["not supported", "unsupported", "requires --", "cannot use both"];
