//! The closed sets of label values.

use wire::RequestError;
use wire::method_names::METHODS;

/// Methods that no dialect has: a client can send any name, but only one of them is remembered.
pub(super) const UNKNOWN: &str = "unknown";
/// A person answered through a door that is not known.
pub(super) const BY_DOOR_UNKNOWN: &str = "surface";

/// The method, if it may be a label value.
pub(super) fn method(name: &str) -> &'static str {
    METHODS.binary_search(&name).ok().and_then(|at| METHODS.get(at)).copied().unwrap_or(UNKNOWN)
}

/// The door that a client used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorLabel {
    Stdio,
    /// Requests that are answered one by one, whichever dialect they are in.
    Http,
    /// A stream of events that is read for as long as the client likes.
    Sse,
    WebSocket,
}

impl DoorLabel {
    pub const ALL: [Self; 4] = [Self::Stdio, Self::Http, Self::Sse, Self::WebSocket];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }
}

/// Why input was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    NoToken,
    BadToken,
    /// A token that does not reach what was asked for.
    Forbidden,
    /// A token where it would end up in logs.
    TokenInUrl,
    BadHost,
    BadOrigin,
    MediaType,
    TooLarge,
    /// The head or the body did not come in time.
    TooSlow,
    /// No room for one more connection.
    Connections,
    Rate,
    /// No JSON, or no JSON-RPC.
    Malformed,
    UnknownMethod,
    BadParams,
    UnknownSession,
    /// A sound request that cannot be carried out as things are.
    Refused,
}

impl RejectReason {
    pub const ALL: [Self; 16] = [
        Self::NoToken,
        Self::BadToken,
        Self::Forbidden,
        Self::TokenInUrl,
        Self::BadHost,
        Self::BadOrigin,
        Self::MediaType,
        Self::TooLarge,
        Self::TooSlow,
        Self::Connections,
        Self::Rate,
        Self::Malformed,
        Self::UnknownMethod,
        Self::BadParams,
        Self::UnknownSession,
        Self::Refused,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::BadToken => "bad_token",
            Self::Forbidden => "forbidden",
            Self::TokenInUrl => "token_in_url",
            Self::BadHost => "bad_host",
            Self::BadOrigin => "bad_origin",
            Self::MediaType => "media_type",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Connections => "connections",
            Self::Rate => "rate",
            Self::Malformed => "malformed",
            Self::UnknownMethod => "unknown_method",
            Self::BadParams => "bad_params",
            Self::UnknownSession => "unknown_session",
            Self::Refused => "refused",
        }
    }

    /// Why a call was refused; nothing if the fault is ours.
    pub fn of(fault: &RequestError) -> Option<Self> {
        match fault {
            RequestError::Parse(_) => Some(Self::Malformed),
            RequestError::FrameTooLong { .. } => Some(Self::TooLarge),
            RequestError::InvalidRequest(_)
            | RequestError::NotInitialized { .. }
            | RequestError::NoSuchAsk { .. } => Some(Self::Refused),
            RequestError::UnknownMethod(_) => Some(Self::UnknownMethod),
            RequestError::InvalidParams(_) | RequestError::UnknownChoice(_) => Some(Self::BadParams),
            RequestError::NoSuchSession { .. } | RequestError::NotOpen { .. } => Some(Self::UnknownSession),
            RequestError::Internal(_) | RequestError::Foreign(_) => None,
        }
    }
}

/// The state of a session in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStateLabel {
    Idle,
    Running,
    /// The turn was cancelled and has not ended yet.
    Cancelled,
}

impl SessionStateLabel {
    pub const ALL: [Self; 3] = [Self::Idle, Self::Running, Self::Cancelled];

    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What happened to trace spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanFate {
    Sent,
    /// The queue was full, or the collector did not take them.
    Dropped,
}

impl SpanFate {
    pub const ALL: [Self; 2] = [Self::Sent, Self::Dropped];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
        }
    }
}

pub(super) const KINDS: [&str; 5] = ["input", "output", "cache_read", "cache_write", "reasoning"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_found_under_its_own_name() {
        assert!(METHODS.is_sorted());
        for name in METHODS {
            assert_eq!(method(name), name);
        }
        for name in ["", "session", "Session/new", "session/new ", "zzz"] {
            assert_eq!(method(name), UNKNOWN, "{name:?}");
        }
    }
}
