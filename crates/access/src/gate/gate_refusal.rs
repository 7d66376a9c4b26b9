//! The refusal of a request by the gate.

use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::RejectReason;

use super::with_cookie;
use crate::refusal::Refusal;

/// A refusal, the reason it is counted as, and how long to wait before the next try.
#[derive(Debug)]
pub(super) struct GateRefusal {
    pub refusal: Refusal,
    pub reason: RejectReason,
    wait: Option<Duration>,
    cookie: Option<HeaderValue>,
}

impl GateRefusal {
    /// For `map_err`.
    pub fn by(reason: RejectReason) -> impl FnOnce(Refusal) -> Self {
        move |refusal| Self { refusal, reason, wait: None, cookie: None }
    }

    /// With a cookie in the answer.
    pub fn with(self, cookie: Option<HeaderValue>) -> Self {
        Self { cookie, ..self }
    }

    pub fn unauthorized(reason: RejectReason, message: &str) -> Self {
        Self::by(reason)(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message))
    }

    pub fn too_often(wait: Duration) -> Self {
        let message = "too many wrong tokens from this address; wait, then try again with the right one";
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_tokens", message);
        Self { wait: Some(wait), ..Self::by(RejectReason::Rate)(refusal) }
    }
}

impl IntoResponse for GateRefusal {
    fn into_response(self) -> Response {
        let mut response = self.refusal.into_response();
        if let Some(wait) = self.wait {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        with_cookie(response, self.cookie)
    }
}
