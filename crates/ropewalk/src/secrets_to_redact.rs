//! The secrets of this process, collected from its environment, to redact them in logs, stored sessions and output.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Redactor;
use guard::{SecretRedactor, known_secrets};

use crate::cli_error::CliError;
use crate::paths;

static SECRETS: Mutex<SecretValues> = Mutex::new(SecretValues { more: Vec::new(), made: None });

struct SecretValues {
    /// Further secret values.
    more: Vec<String>,
    made: Option<Result<Arc<SecretRedactor>, String>>,
}

fn secrets() -> Result<Arc<SecretRedactor>, String> {
    let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    let SecretValues { more, made } = &mut *known;
    let make =
        || SecretRedactor::new(known_secrets(paths::variables()).into_iter().chain(more.iter().cloned()));
    made.get_or_insert_with(|| make().map(Arc::new)).clone()
}

/// Adds a secret value. Redactors that were created before do not know it.
pub fn add(value: &str) {
    let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.more.iter().any(|more| more == value) {
        known.more.push(value.to_owned());
        known.made = None;
    }
}

/// The redactor for sessions.
pub fn redactor() -> Result<Arc<dyn Redactor>, CliError> {
    match secrets() {
        Ok(secrets) => Ok(secrets),
        Err(reason) => Err(CliError::failed("could not prepare the redaction of secrets").because(reason)),
    }
}

/// A text for people or logs, with its secrets redacted.
pub fn redacted(text: &str) -> Cow<'_, str> {
    match secrets() {
        Ok(secrets) => secrets.redact(text).map_or(Cow::Borrowed(text), Cow::Owned),
        // The text may contain secrets, so drop it.
        Err(_) => Cow::Borrowed("(omitted: secrets could not be redacted)\n"),
    }
}
