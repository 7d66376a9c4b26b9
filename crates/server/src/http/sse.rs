//! Server-sent events: a response body that grows for as long as somebody reads it.
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
/// The keep-alive comment, unless a dialect has its own.
const PING: &[u8] = b": ping\n\n";

/// A chunk of the stream's text; events are never split.
pub(super) struct SseChunk {
    pub bytes: Bytes,
    /// The stream ends after it.
    pub last: bool,
}

impl<B: Into<Bytes>> From<B> for SseChunk {
    fn from(bytes: B) -> Self {
        Self { bytes: bytes.into(), last: false }
    }
}

/// Encodes an incoming item as the text of events.
type EncodeChunk<T> = Box<dyn FnMut(T) -> SseChunk + Send>;

/// The body of every event stream.
pub(super) struct EventStream<T> {
    incoming: mpsc::Receiver<T>,
    encode: EncodeChunk<T>,
    keep_alive: Pin<Box<Sleep>>,
    comment: &'static [u8],
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl<T: Send + 'static> EventStream<T> {
    /// Ends when nothing more comes, and at once when it is stopped.
    pub(super) fn new(
        incoming: mpsc::Receiver<T>,
        stop: &CancellationToken,
        encode: impl FnMut(T) -> SseChunk + Send + 'static,
    ) -> Self {
        Self {
            incoming,
            encode: Box::new(encode),
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            comment: PING,
            stop: Box::pin(stop.clone().cancelled_owned()),
            ended: false,
        }
    }

    /// The same with another comment in silence.
    pub(super) fn kept_alive_by(self, comment: &'static [u8]) -> Self {
        Self { comment, ..self }
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
            if self.ended || self.stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            match self.incoming.poll_recv(context) {
                Poll::Ready(Some(item)) => {
                    let SseChunk { bytes, last } = (self.encode)(item);
                    self.ended = last;
                    if bytes.is_empty() {
                        continue;
                    }
                    self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.keep_alive.as_mut().poll(context));
                    self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.comment)))));
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

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        items: mpsc::Sender<Bytes>,
        stop: CancellationToken,
        stream: EventStream<Bytes>,
    }

    impl World {
        fn new() -> Self {
            let ((items, incoming), stop) = (mpsc::channel(4), CancellationToken::new());
            let encode = |bytes: Bytes| SseChunk { last: bytes.starts_with(b"last"), bytes };
            Self { items, stream: EventStream::new(incoming, &stop, encode), stop }
        }

        async fn next(&mut self) -> Option<String> {
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.stream).poll_frame(context)).await;
            let data = frame?.unwrap().into_data().unwrap();
            Some(String::from_utf8(data.into()).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_and_an_empty_piece_does_not_break_it() {
        let (mut world, began) = (World::new(), Instant::now());
        world.stream = world.stream.kept_alive_by(b": still here\n\n");
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.items.send(Bytes::new()).await.unwrap();
        assert_eq!(world.next().await.as_deref(), Some(": still here\n\n"));
        assert_eq!(began.elapsed().as_secs(), 15);
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.items.send("a".into()).await.unwrap();
        assert_eq!(world.next().await.as_deref(), Some("a"));
        assert_eq!(world.next().await.as_deref(), Some(": still here\n\n"));
        assert_eq!(began.elapsed().as_secs(), 40, "it is silent since the last piece");
    }

    #[tokio::test]
    async fn a_stream_ends_after_its_last_piece_and_at_once_when_it_is_stopped() {
        let mut world = World::new();
        world.items.send("last".into()).await.unwrap();
        world.items.send("more".into()).await.unwrap();
        assert_eq!(world.next().await.as_deref(), Some("last"));
        assert_eq!(world.next().await, None);

        let mut world = World::new();
        world.items.send("a".into()).await.unwrap();
        world.stop.cancel();
        assert_eq!(world.next().await, None);
    }
}
