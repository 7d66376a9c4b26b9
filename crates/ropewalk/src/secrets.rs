//! The secrets of this process: made once from its environment, used by the log, the store and the
//! screen alike.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use engine::Redactor;
use guard::{Secrets, known_secrets};

use crate::paths;
use crate::trouble::Trouble;

static SECRETS: LazyLock<Result<Arc<Secrets>, String>> =
    LazyLock::new(|| Secrets::new(known_secrets(paths::variables())).map(Arc::new));

/// What takes the secrets out of every session.
pub fn redactor() -> Result<Arc<dyn Redactor>, Trouble> {
    match &*SECRETS {
        Ok(secrets) => Ok(Arc::<Secrets>::clone(secrets)),
        Err(reason) => Err(Trouble::failed("secrets cannot be looked for").because(reason)),
    }
}

/// A text for people or logs, without its secrets.
pub fn without(text: &str) -> Cow<'_, str> {
    match &*SECRETS {
        Ok(secrets) => secrets.redact(text).map_or(Cow::Borrowed(text), Cow::Owned),
        // Nobody can say what is in it.
        Err(_) => Cow::Borrowed("(left out: secrets cannot be looked for)\n"),
    }
}
