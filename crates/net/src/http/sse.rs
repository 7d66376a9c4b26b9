//! Server-sent events: a body that grows for as long as somebody reads it.
//!
//! Nothing is buffered here: what the reader has not taken is not asked for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long a stream is silent at most.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Turns what comes into the text of events. `false`: the stream ends after it.
pub(super) type Encode<T> = Box<dyn FnMut(T, &mut Vec<u8>) -> bool + Send>;

pub(super) struct EventStream<T> {
    incoming: mpsc::Receiver<T>,
    encode: Encode<T>,
    keep_alive: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    over: bool,
}

impl<T: Send + 'static> EventStream<T> {
    pub(super) fn new(incoming: mpsc::Receiver<T>, stop: &CancellationToken, encode: Encode<T>) -> Self {
        Self {
            incoming,
            encode,
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            stop: Box::pin(stop.clone().cancelled_owned()),
            over: false,
        }
    }
}

impl<T: Send + 'static> IntoResponse for EventStream<T> {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, Body::new(self)).into_response()
    }
}

impl<T> HttpBody for EventStream<T> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if self.over || self.stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            match self.incoming.poll_recv(context) {
                Poll::Ready(Some(item)) => {
                    let mut text = Vec::new();
                    self.over = !(self.encode)(item, &mut text);
                    if text.is_empty() {
                        continue;
                    }
                    self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.keep_alive.as_mut().poll(context));
                    self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": ping\n\n")))));
                }
            }
        }
    }
}

/// Whether the client takes an answer as a stream of events.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|name| name.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Appends one event. The data is one line.
pub(super) fn write_event(out: &mut Vec<u8>, id: Option<&str>, event: Option<&str>, data: &[u8]) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}
