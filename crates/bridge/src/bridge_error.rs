//! What can go wrong between a bridge and its receiver, in words a person can act on.

use std::error::Error;

use tokio_rustls::rustls;

use super::receiver_certificate::{self, NAMELESS};

/// Of what a receiver says, in our own sentences.
const QUOTED_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    #[error("bridge: 401 Unauthorized")]
    Unauthorized,
    #[error("bridge: 403 Forbidden")]
    Forbidden,
    #[error("bridge: TLS verification failed: {reason}")]
    Certificate { reason: String },
    #[error("bridge: WS closed (code={code}){}", reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Closed { code: u16, reason: Option<String> },
    #[error("bridge: the receiver answered {what} with status {status}")]
    Answered { what: &'static str, status: u16 },
    #[error("bridge: the receiver redirects to {to}")]
    Redirected { to: String },
    #[error("bridge: the receiver's socket is at another address, {named}")]
    Elsewhere { named: String },
    #[error("bridge: could not reach the receiver: {reason}")]
    Unreachable { reason: String },
    #[error("bridge: the receiver did not answer the WebSocket upgrade")]
    Swallowed,
    #[error("bridge: the receiver does not support end-to-end encryption")]
    Unsealable,
    #[error("bridge: the receiver sent something unexpected: {what}")]
    Malformed { what: String },
    #[error("bridge: the hub's copy of this session keeps differing from the log on this machine")]
    Diverged,
    #[error("bridge: could not read the session: {reason}")]
    Unreadable { reason: String },
}

impl BridgeError {
    /// Trying again would come to the same: the bridge ends.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Unauthorized
            | Self::Forbidden
            | Self::Redirected { .. }
            | Self::Elsewhere { .. }
            | Self::Unsealable => true,
            Self::Certificate { .. }
            | Self::Closed { .. }
            | Self::Answered { .. }
            | Self::Unreachable { .. }
            | Self::Swallowed
            | Self::Malformed { .. }
            | Self::Diverged
            | Self::Unreadable { .. } => false,
        }
    }

    /// Something between here and the receiver does not let sockets through. A receiver that is not well
    /// answers with other numbers.
    pub(super) fn is_in_the_way(&self) -> bool {
        match self {
            Self::Answered { status, .. } => !matches!(status, 429 | 500 | 502..=504),
            Self::Swallowed | Self::Malformed { .. } => true,
            _ => false,
        }
    }

    /// What a person can do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Unauthorized => {
                "the receiver does not know the token; check ROPEWALK_BRIDGE_TOKEN (or FERRET_BRIDGE_TOKEN), or --bridge-token of serve and up, or --auth-token of bridge, then start it again"
            }
            Self::Forbidden => {
                "the token does not allow this; get another from the receiver's owner, then start the bridge again"
            }
            Self::Certificate { reason } if reason == NAMELESS => {
                "create a certificate that names the host of the address, for example with `openssl req -x509 -addext subjectAltName=DNS:HOST` (IP:ADDRESS for an IP address); for development only, pass --insecure"
            }
            Self::Certificate { .. } => {
                "the receiver needs a valid certificate for this address from an authority that this machine trusts; SSL_CERT_FILE can name a file with more authorities; for development only, pass --insecure"
            }
            Self::Closed { .. } => "if it keeps closing, check that WebSockets reach the receiver at /ws/",
            Self::Answered { .. } => "check that a receiver runs at this address without errors",
            Self::Redirected { .. } => {
                "if that is the receiver, pass it as --remote-url; the token is sent only to the host and port given there"
            }
            Self::Elsewhere { .. } => {
                "the token is sent only to the host and port of --remote-url; correct that URL, or fix the receiver"
            }
            Self::Unreachable { .. } => "check the address and the network",
            Self::Swallowed => {
                "a proxy on the way may block WebSockets; the bridge then continues without them"
            }
            Self::Unsealable => {
                "bridge to a hub (ropewalk hub), or remove --e2e; the receiver can then read everything"
            }
            Self::Diverged => {
                "another machine is running with a copy of this one's state; stop one of the two, then start this one again"
            }
            Self::Unreadable { .. } => "check the store with `ropewalk doctor --store`",
            Self::Malformed { .. } => "check that a receiver of a compatible version runs at this address",
        }
    }

    pub(super) fn closed() -> Self {
        Self::Closed { code: 1006, reason: None }
    }

    pub(super) fn malformed(what: impl std::fmt::Display) -> Self {
        Self::Malformed { what: quoted(&what.to_string()) }
    }

    /// What a status means, that is not the one that was hoped for.
    pub(super) fn answered(what: &'static str, status: u16, location: Option<&str>) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            300..=399 => Self::Redirected { to: quoted(location.unwrap_or("nowhere")) },
            status => Self::Answered { what, status },
        }
    }

    /// Why no request can be made at all: there is nobody whom this machine trusts, or what it trusts cannot be read.
    pub(super) fn untrusting(error: &reqwest::Error) -> Self {
        let mut cause: &(dyn Error + 'static) = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self::Certificate { reason: quoted(&cause.to_string()) }
    }

    /// Why a request was not answered.
    pub(super) fn unsent(error: &reqwest::Error) -> Self {
        let mut reason = None;
        let mut link: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(cause) = link {
            if let Some(verification) = certificate(cause) {
                return Self::Certificate { reason: verification };
            }
            reason = Some(cause.to_string());
            link = cause.source();
        }
        let reason = if error.is_timeout() { Some("it did not answer in time".to_owned()) } else { reason };
        Self::Unreachable { reason: quoted(&reason.unwrap_or_default()) }
    }
}

/// What TLS found wrong with the certificate, if that is what this is. It may be wrapped in errors of I/O, which show what they
/// hold only when they are asked.
fn certificate(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return receiver_certificate::why(error);
    }
    let inner = error.downcast_ref::<std::io::Error>()?.get_ref()?;
    certificate(inner)
}

/// A receiver's text, cleaned for use within a line of ours.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(QUOTED_CHARS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_mended_by_waiting_ends_the_bridge() {
        for (status, pipe_ends) in
            [(401, true), (403, true), (302, true), (404, false), (500, false), (503, false)]
        {
            assert_eq!(BridgeError::answered("x", status, None).is_final(), pipe_ends, "{status}");
        }
    }

    #[test]
    fn the_words_of_the_seed_are_said() {
        assert_eq!(BridgeError::closed().to_string(), "bridge: WS closed (code=1006)");
        assert_eq!(BridgeError::Unauthorized.to_string(), "bridge: 401 Unauthorized");
        let unverified = BridgeError::Certificate { reason: "expired".into() };
        assert_eq!(unverified.to_string(), "bridge: TLS verification failed: expired");
    }

    #[test]
    fn a_receivers_words_cannot_draw_on_the_terminal() {
        let to = BridgeError::answered("x", 302, Some("https://a/\u{1b}[2J\n[ferret] fake"));
        assert!(!to.to_string().contains(['\u{1b}', '\n']), "{to}");
    }
}
