//! Errors of requests about people, and their form on a `native` connection and over HTTP.

use access::Refusal;
use axum::http::StatusCode;
use store::sql::DbError;
use wire::native::ReplyError;

#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    #[error("could not use the hub's database")]
    Db(#[from] DbError),
    #[error("the operating system's random generator failed")]
    NoRandom(#[source] std::io::Error),
    #[error("{message}")]
    Refused { why: RefusalKind, message: String },
}

/// The kinds of refusal that clients tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    NotFound,
    Forbidden,
    BadRequest,
    SignedOut,
    /// The cookie is valid, but its proof is missing or wrong.
    SignInAgain,
    CodeUnknown,
    CodeUsed,
    CodeExpired,
    /// A passkey, or its signature, is invalid.
    Passkey,
    TooMany,
}

impl PeopleError {
    pub(super) fn new(why: RefusalKind, message: impl Into<String>) -> Self {
        Self::Refused { why, message: message.into() }
    }

    /// The error for our own clients, on their connection.
    pub fn wrong(self) -> ReplyError {
        let (code, message) = match self {
            Self::Db(error) => {
                tracing::warn!(%error, "people cannot be looked up");
                ("busy", "the hub's database is offline; try again in a few seconds".to_owned())
            }
            Self::NoRandom(error) => {
                tracing::error!(%error, "the operating system's random generator failed");
                ("failed", "the operating system's random generator failed; try again later".to_owned())
            }
            Self::Refused { why, message } => (why.word(), message),
        };
        ReplyError { code: code.into(), message }
    }

    /// The error for an HTTP request.
    pub fn refusal(self) -> Refusal {
        let why = match &self {
            Self::Refused { why, .. } => *why,
            Self::Db(_) => {
                let message = self.wrong().message;
                return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "database_away", message);
            }
            Self::NoRandom(_) => {
                let message = self.wrong().message;
                return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message);
            }
        };
        let (status, code) = why.http();
        Refusal::new(status, code, self.to_string())
    }
}

impl RefusalKind {
    fn word(self) -> &'static str {
        match self {
            Self::NotFound => "notFound",
            Self::Forbidden | Self::SignedOut | Self::SignInAgain => "forbidden",
            Self::BadRequest | Self::CodeUnknown | Self::Passkey | Self::TooMany => "badRequest",
            Self::CodeUsed | Self::CodeExpired => "stale",
        }
    }

    fn http(self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            Self::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::SignedOut => (StatusCode::UNAUTHORIZED, "signed_out"),
            Self::SignInAgain => (StatusCode::UNAUTHORIZED, "sign_in_again"),
            Self::CodeUnknown => (StatusCode::FORBIDDEN, "code_unknown"),
            Self::CodeUsed => (StatusCode::GONE, "code_used"),
            Self::CodeExpired => (StatusCode::GONE, "code_expired"),
            Self::Passkey => (StatusCode::FORBIDDEN, "passkey_refused"),
            Self::TooMany => (StatusCode::CONFLICT, "too_many"),
        }
    }
}
