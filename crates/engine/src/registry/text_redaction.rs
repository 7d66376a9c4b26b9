//! Redaction of texts that pass through the registry and not through a session's task.

use std::sync::Arc;

use super::Registry;
use crate::backend::ForeignError;
use crate::content::Opaque;
use crate::session_title::plain_title;

impl Registry {
    /// Also removes invisible characters.
    pub(super) fn title_without_secrets(&self, title: Arc<str>) -> Arc<str> {
        let title = plain_title(title);
        let clean = self.redactor.as_ref().and_then(|redactor| redactor.redact(&title));
        clean.map_or(title, Into::into)
    }

    /// The agent's answer to a request outside the protocol. It does not go through the log, and is redacted
    /// all the same.
    pub fn answer_without_secrets(
        &self,
        answer: Result<Opaque, ForeignError>,
    ) -> Result<Opaque, ForeignError> {
        answer
            .map(|answer| self.json_without_secrets(answer))
            .map_err(|error| self.error_without_secrets(error))
    }

    /// Why an agent did not do something, for people to see.
    pub fn error_without_secrets(&self, error: ForeignError) -> ForeignError {
        let ForeignError { code, message, data } = error;
        let clean = self.redactor.as_ref().and_then(|redactor| redactor.redact(&message));
        let data = data.map(|data| self.json_without_secrets(data));
        ForeignError { code, message: clean.map_or(message, Into::into), data }
    }

    fn json_without_secrets(&self, json: Opaque) -> Opaque {
        let clean = self.redactor.as_ref().and_then(|redactor| redactor.redact_json(&json.0));
        clean.map_or(json, |clean| Opaque(clean.into()))
    }
}
