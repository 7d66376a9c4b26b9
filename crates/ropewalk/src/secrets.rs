//! The secrets of this process: made once from its environment, used by the log, the store and the
//! screen alike.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Redactor;
use guard::{Secrets, known_secrets};

use crate::paths;
use crate::trouble::Trouble;

static SECRETS: Mutex<Known> = Mutex::new(Known { more: Vec::new(), made: None });

struct Known {
    /// Values that are secret whatever their variables are called.
    more: Vec<String>,
    made: Option<Result<Arc<Secrets>, String>>,
}

fn secrets() -> Result<Arc<Secrets>, String> {
    let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    let Known { more, made } = &mut *known;
    let make = || Secrets::new(known_secrets(paths::variables()).into_iter().chain(more.iter().cloned()));
    made.get_or_insert_with(|| make().map(Arc::new)).clone()
}

/// From here on this value is a secret too. What was handed out before does not know it.
pub fn also(value: &str) {
    let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.more.iter().any(|more| more == value) {
        known.more.push(value.to_owned());
        known.made = None;
    }
}

/// What takes the secrets out of every session.
pub fn redactor() -> Result<Arc<dyn Redactor>, Trouble> {
    match secrets() {
        Ok(secrets) => Ok(secrets),
        Err(reason) => Err(Trouble::failed("secrets cannot be looked for").because(reason)),
    }
}

/// A text for people or logs, without its secrets.
pub fn without(text: &str) -> Cow<'_, str> {
    match secrets() {
        Ok(secrets) => secrets.redact(text).map_or(Cow::Borrowed(text), Cow::Owned),
        // Nobody can say what is in it.
        Err(_) => Cow::Borrowed("(left out: secrets cannot be looked for)\n"),
    }
}
