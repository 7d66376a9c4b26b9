//! `POST /acp` in the Bernstein dialect: one message, and its answer as JSON or as the first event of a
//! stream that continues with the updates of the session it opened.
//!
//! Each request is a connection of its own that ends with the answer or with the stream. The session
//! does not: it goes on working, and later requests name it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::{LogReader, Seq};
use metrics::DoorLabel;
use service::ServiceRules;
use tokio::sync::mpsc;
use wire::bernstein::BERNSTEIN_FRAME_BYTES_MAX;
use wire::sse::write_event;
use wire::{Dialect, DialectSelection, Frame, OwnedRpcMessage};

use super::acp::Post;
use super::sse::{EventStream, accepts_events};
use super::{HttpCaller, HttpState, Refusal};
use crate::connection::{Connection, ConnectionParts, IncomingMessage};
use crate::frame_batch::FrameBatch;
use crate::link::OUTGOING_MAX;

/// Events that may wait for the client to read them.
const EVENTS_MAX: usize = 16;
/// How long a client may take to read the rest when its session has ended.
const REST_GRACE: Duration = Duration::from_secs(60);

pub(super) async fn post(
    state: &Arc<HttpState>,
    caller: &HttpCaller,
    headers: &HeaderMap,
    post: Post<'_>,
) -> Response {
    let stream = accepts_events(headers);
    let must_answer = post.body.len() > BERNSTEIN_FRAME_BYTES_MAX || expects_answer(&post);
    let mut exchange = Exchange::begin(state, caller, post);
    let answer = tokio::select! {
        biased;
        answer = exchange.answer(must_answer) => answer,
        () = state.stop.cancelled() => return stopping(),
    };
    let Some(answer) = answer else {
        exchange.end().await;
        return if must_answer { stopping() } else { StatusCode::ACCEPTED.into_response() };
    };
    if !stream {
        exchange.end().await;
        return ([(CONTENT_TYPE, "application/json")], answer).into_response();
    }
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    // The connection sends the session's updates from the beginning; here only the end of the log is waited for.
    let session = wire::bernstein::opened_session(&answer);
    let session = session.and_then(|id| state.registry.live(&caller.principal, &id));
    let log = session.map(|handle| handle.read(Seq::START));
    state.tasks.spawn(EventStreamTask { events }.run(exchange, answer, log));
    let encode = |(name, frame): NamedFrame| {
        let mut text = Vec::new();
        write_event(&mut text, None, Some(name), &frame);
        text.into()
    };
    EventStream::new(receiver, &state.stop, encode).into_response()
}

fn stopping() -> Response {
    let message = "the server is stopping; try again when it is back";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message).into_response()
}

/// Requests are answered, and so are messages that cannot be parsed. Others are answered only if they are wrong.
fn expects_answer(post: &Post<'_>) -> bool {
    !matches!(post.message(), Ok(OwnedRpcMessage::Notification { .. } | OwnedRpcMessage::Response { .. }))
}

/// One request's connection, and the frames of its reply.
struct Exchange {
    /// None, once it was ended.
    connection: Option<Connection>,
    batches: mpsc::Receiver<FrameBatch>,
    frames: VecDeque<Bytes>,
}

impl Exchange {
    fn begin(state: &HttpState, caller: &HttpCaller, post: Post<'_>) -> Self {
        let (incoming, arrivals) = mpsc::channel::<IncomingMessage>(1);
        let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
        let arrival = if post.body.len() > BERNSTEIN_FRAME_BYTES_MAX {
            Frame::TooLong { limit_bytes: BERNSTEIN_FRAME_BYTES_MAX, id: None }.into()
        } else {
            post.into_posted().into()
        };
        // The queue has room for this message, and there is no other.
        drop(incoming.try_send(arrival));
        let parts = ConnectionParts {
            registry: Arc::clone(&state.registry),
            principal: caller.principal.clone(),
            kind: caller.kind(),
            local_answers: false,
            rules: ServiceRules { source: "acp".into(), ..state.rules.clone() },
            identity: state.identity.clone(),
            dialect: DialectSelection::Only(Dialect::Bernstein),
            client: None,
            name: Arc::clone(&caller.name),
            zeph: false,
            any_session: true,
            metrics: Some((Arc::clone(&state.metrics), DoorLabel::Sse)),
            on_initialize: state.on_initialize.clone(),
        };
        Self {
            connection: Some(Connection::start_at(parts, arrivals, outgoing)),
            batches,
            frames: VecDeque::new(),
        }
    }

    /// The reply to the message, if there is one. It comes before everything about its session.
    async fn answer(&mut self, certain: bool) -> Option<Bytes> {
        if certain {
            return self.next().await;
        }
        // Without a certain answer, only the end of the connection says that there is none.
        let connection = self.connection.take();
        let ended = async {
            if let Some(mut connection) = connection {
                connection.input_ended().await;
                connection.finish().await;
            }
        };
        tokio::join!(ended, self.next()).1
    }

    async fn next(&mut self) -> Option<Bytes> {
        while self.frames.is_empty() {
            let batch = self.batches.recv().await?;
            self.frames.extend(batch.frames().map(Bytes::copy_from_slice));
        }
        self.frames.pop_front()
    }

    /// Nobody reads any more.
    async fn end(self) {
        drop(self.batches);
        if let Some(connection) = self.connection {
            connection.finish().await;
        }
    }
}

/// Writes a reply as a stream of events, until the session ends or nobody reads.
struct EventStreamTask {
    events: mpsc::Sender<NamedFrame>,
}

/// The name of an event, and the frame in it.
type NamedFrame = (&'static str, Bytes);

/// The reader of the stream is gone.
struct ReaderGone;

enum Wake {
    Frame(Option<Bytes>),
    SessionEnded,
    Gone,
}

impl EventStreamTask {
    async fn run(self, mut exchange: Exchange, answer: Bytes, log: Option<LogReader>) {
        if self.send(("response", answer)).await.is_err() {
            return exchange.end().await;
        }
        let Some(log) = log else { return self.rest(exchange).await };
        match self.follow(&mut exchange, log).await {
            Ok(()) => self.rest(exchange).await,
            Err(ReaderGone) => exchange.end().await,
        }
    }

    /// Sends updates until the session ends.
    async fn follow(&self, exchange: &mut Exchange, mut log: LogReader) -> Result<(), ReaderGone> {
        loop {
            let wake = tokio::select! {
                biased;
                () = self.events.closed() => Wake::Gone,
                frame = exchange.next() => Wake::Frame(frame),
                () = end_of(&mut log) => Wake::SessionEnded,
            };
            match wake {
                Wake::Frame(Some(frame)) => self.send(("notification", frame)).await?,
                Wake::Frame(None) | Wake::SessionEnded => return Ok(()),
                Wake::Gone => return Err(ReaderGone),
            }
        }
    }

    /// Ends the connection, and sends the frames that it still writes.
    async fn rest(&self, mut exchange: Exchange) {
        let connection = exchange.connection.take();
        let ended = async {
            if let Some(connection) = connection {
                connection.finish_within(REST_GRACE).await;
            }
        };
        let told = async move {
            while let Some(frame) = exchange.next().await {
                if self.send(("notification", frame)).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(ended, told);
    }

    /// Waits for as long as the client reads: the stream that it reads from ends when the server stops.
    async fn send(&self, told: NamedFrame) -> Result<(), ReaderGone> {
        self.events.send(told).await.map_err(|_| ReaderGone)
    }
}

async fn end_of(log: &mut LogReader) {
    while let Ok(Some(_)) = log.next().await {}
}
