//! A request's body under limits: a maximum of bytes, and a maximum of silence between them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use tokio::time::Sleep;

use wire::json_errors;

use crate::refusal::Refusal;

/// The JSON-RPC door takes pictures and files inside prompts.
pub const RPC_BYTES_MAX: usize = 32 << 20;
/// Every other route takes a few fields.
pub const REST_BYTES_MAX: usize = 1 << 20;
/// How long a sender may pause within a body.
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive in time")]
    Silent,
}

/// The body that the routes see.
struct LimitedBody {
    inner: Body,
    max: usize,
    left: usize,
    silence: Pin<Box<Sleep>>,
}

/// A body that ends with an error when it is too large or stops coming.
pub(super) fn limited(inner: Body, max: usize) -> Body {
    let silence = Box::pin(tokio::time::sleep(SILENCE_MAX));
    Body::new(LimitedBody { inner, max, left: max, silence })
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            return match self.silence.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(BodyError::Silent.into()))),
                Poll::Pending => Poll::Pending,
            };
        };
        let Some(frame) = frame else { return Poll::Ready(None) };
        let frame = frame?;
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = self.left.checked_sub(length) else {
            return Poll::Ready(Some(Err(BodyError::TooLarge(self.max).into())));
        };
        self.left = left;
        let next = tokio::time::Instant::now() + SILENCE_MAX;
        self.silence.as_mut().reset(next);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// All bytes of a body, as an argument of a route. Errors are answered by our own refusals.
pub struct BodyBytes(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for BodyBytes {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        match axum::body::to_bytes(request.into_body(), usize::MAX).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(error) => Err(broken(&error)),
        }
    }
}

/// A body that must be a JSON object, as an argument of a route. No body at all is an empty object.
pub struct JsonFields(pub serde_json::Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for JsonFields {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let BodyBytes(bytes) = BodyBytes::from_request(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(serde_json::Map::new()));
        }
        let bad = |message: String| Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message);
        match json_errors::read_bytes(&bytes, "the body") {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(bad("the body must be a JSON object: {...}".into())),
            Err(error) => Err(bad(format!("the body is {error}"))),
        }
    }
}

/// The refusal for a body that could not be read to its end.
fn broken(error: &axum::Error) -> Refusal {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(this) = cause {
        match this.downcast_ref::<BodyError>() {
            Some(BodyError::TooLarge(max)) => return too_large(*max),
            Some(BodyError::Silent) => {
                let message = "the body did not arrive in time; send it again";
                return Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message);
            }
            None => cause = this.source(),
        }
    }
    Refusal::new(StatusCode::BAD_REQUEST, "broken_body", "the body ended too early; send it again")
}

pub(super) fn too_large(max: usize) -> Refusal {
    let message =
        format!("the body can have at most {max} bytes; send less, or split it into several requests");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}
