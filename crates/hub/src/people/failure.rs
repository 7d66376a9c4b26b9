//! Why something about people is not done, and in which words it is told: on a line, or over HTTP.

use access::Refusal;
use axum::http::StatusCode;
use store::sql::DbError;
use wire::native::Wrong;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the hub's database cannot be used")]
    Db(#[from] DbError),
    #[error("there are no random bytes")]
    NoRandom(#[source] std::io::Error),
    #[error("{message}")]
    Refused { why: Why, message: String },
}

/// The kinds of refusal that somebody may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    NotFound,
    Forbidden,
    BadRequest,
    SignedOut,
    /// The cookie is right, and its proof is not.
    SignInAgain,
    CodeUnknown,
    CodeUsed,
    CodeExpired,
    /// A passkey, or what was signed with it, is not as it must be.
    Passkey,
    TooMany,
}

impl Failure {
    pub(super) fn new(why: Why, message: impl Into<String>) -> Self {
        Self::Refused { why, message: message.into() }
    }

    /// For our own clients, on their line.
    pub fn wrong(self) -> Wrong {
        let (code, message) = match self {
            Self::Db(error) => {
                tracing::warn!(%error, "people cannot be looked up");
                ("busy", "the hub's database is away; try again in a few seconds".to_owned())
            }
            Self::NoRandom(error) => {
                tracing::error!(%error, "there are no random bytes");
                ("failed", "there are no random bytes to make a secret of; try again later".to_owned())
            }
            Self::Refused { why, message } => (why.word(), message),
        };
        Wrong { code: code.into(), message }
    }

    /// For a request.
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

impl Why {
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
