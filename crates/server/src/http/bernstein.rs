//! `POST /acp` in the Bernstein dialect: one message, and its answer as JSON or as the first event of a
//! stream that goes on with what happens in the session it opened.
//!
//! Each request is a connection of its own that ends with the answer or with the stream. The session
//! does not: it works on, and later requests name it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::{LogReader, Seq};
use metrics::Door;
use service::Rules;
use tokio::sync::mpsc;
use wire::bernstein::FRAME_BYTES_MAX;
use wire::sse::write_event;
use wire::{Dialect, Frame, OwnedMessage, Spoken};

use super::acp::Post;
use super::sse::{EventStream, accepts_events};
use super::{Caller, Doors, Refusal};
use crate::batch::Batch;
use crate::connection::{Arrival, Connection, ConnectionParts};
use crate::link::OUTGOING_MAX;

/// Events that may wait for the client to read them.
const EVENTS_MAX: usize = 16;
/// How long a client may take to read the rest when its session has ended.
const REST_GRACE: Duration = Duration::from_secs(60);

pub(super) async fn post(
    doors: &Arc<Doors>,
    caller: &Caller,
    headers: &HeaderMap,
    post: Post<'_>,
) -> Response {
    let stream = accepts_events(headers);
    let must_answer = post.body.len() > FRAME_BYTES_MAX || expects_answer(&post);
    let mut talk = Talk::begin(doors, caller, post);
    let answer = tokio::select! {
        biased;
        answer = talk.answer(must_answer) => answer,
        () = doors.stop.cancelled() => return stopping(),
    };
    let Some(answer) = answer else {
        talk.end().await;
        return if must_answer { stopping() } else { StatusCode::ACCEPTED.into_response() };
    };
    if !stream {
        talk.end().await;
        return ([(CONTENT_TYPE, "application/json")], answer).into_response();
    }
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    // What was said in this session so far is told by the connection; only its end is waited for here.
    let session = wire::bernstein::opened(&answer);
    let session = session.and_then(|id| doors.registry.live(&caller.principal, &id));
    let log = session.map(|handle| handle.read(Seq::START));
    doors.tasks.spawn(Telling { events }.run(talk, answer, log));
    let encode = |(name, frame): Told| {
        let mut text = Vec::new();
        write_event(&mut text, None, Some(name), &frame);
        text.into()
    };
    EventStream::new(receiver, &doors.stop, encode).into_response()
}

fn stopping() -> Response {
    let message = "the server is stopping; try again when it is back";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message).into_response()
}

/// Requests are answered, and so is what cannot be read. The rest is answered only if it is wrong.
fn expects_answer(post: &Post<'_>) -> bool {
    !matches!(post.message(), Ok(OwnedMessage::Notification { .. } | OwnedMessage::Response { .. }))
}

/// One request's connection.
struct Talk {
    /// Nothing, once it was ended.
    connection: Option<Connection>,
    batches: mpsc::Receiver<Batch>,
    frames: VecDeque<Bytes>,
}

impl Talk {
    fn begin(doors: &Doors, caller: &Caller, post: Post<'_>) -> Self {
        let (incoming, arrivals) = mpsc::channel::<Arrival>(1);
        let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
        let arrival = if post.body.len() > FRAME_BYTES_MAX {
            Frame::TooLong { limit_bytes: FRAME_BYTES_MAX, id: None }.into()
        } else {
            post.into_posted().into()
        };
        // There is room for the one, and there is no other.
        drop(incoming.try_send(arrival));
        let parts = ConnectionParts {
            registry: Arc::clone(&doors.registry),
            principal: caller.principal.clone(),
            kind: caller.kind(),
            local_answers: false,
            rules: Rules { source: "acp".into(), ..doors.rules.clone() },
            identity: doors.identity.clone(),
            dialect: Spoken::Only(Dialect::Bernstein),
            client: None,
            name: Arc::clone(&caller.name),
            zeph: false,
            any_session: true,
            metrics: Some((Arc::clone(&doors.metrics), Door::Sse)),
            greeted: doors.greeted.clone(),
        };
        Self {
            connection: Some(Connection::start_at(parts, arrivals, outgoing)),
            batches,
            frames: VecDeque::new(),
        }
    }

    /// The answer to the one message, if there is one. It comes before everything about its session.
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

    /// Nobody reads on.
    async fn end(self) {
        drop(self.batches);
        if let Some(connection) = self.connection {
            connection.finish().await;
        }
    }
}

/// An answer as a stream of events, until the session ends or nobody reads.
struct Telling {
    events: mpsc::Sender<Told>,
}

/// The name of an event, and the frame in it.
type Told = (&'static str, Bytes);

/// Whoever read the stream is gone.
struct Gone;

enum Wake {
    Frame(Option<Bytes>),
    SessionEnded,
    Gone,
}

impl Telling {
    async fn run(self, mut talk: Talk, answer: Bytes, log: Option<LogReader>) {
        if self.send(("response", answer)).await.is_err() {
            return talk.end().await;
        }
        let Some(log) = log else { return self.rest(talk).await };
        match self.follow(&mut talk, log).await {
            Ok(()) => self.rest(talk).await,
            Err(Gone) => talk.end().await,
        }
    }

    /// Tells what happens until the session ends.
    async fn follow(&self, talk: &mut Talk, mut log: LogReader) -> Result<(), Gone> {
        loop {
            let wake = tokio::select! {
                biased;
                () = self.events.closed() => Wake::Gone,
                frame = talk.next() => Wake::Frame(frame),
                () = end_of(&mut log) => Wake::SessionEnded,
            };
            match wake {
                Wake::Frame(Some(frame)) => self.send(("notification", frame)).await?,
                Wake::Frame(None) | Wake::SessionEnded => return Ok(()),
                Wake::Gone => return Err(Gone),
            }
        }
    }

    /// The connection ends, and what it still has to tell is told.
    async fn rest(&self, mut talk: Talk) {
        let connection = talk.connection.take();
        let ended = async {
            if let Some(connection) = connection {
                connection.finish_within(REST_GRACE).await;
            }
        };
        let told = async move {
            while let Some(frame) = talk.next().await {
                if self.send(("notification", frame)).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(ended, told);
    }

    /// Waits for as long as the client reads: the stream that it reads from ends when the server stops.
    async fn send(&self, told: Told) -> Result<(), Gone> {
        self.events.send(told).await.map_err(|_| Gone)
    }
}

async fn end_of(log: &mut LogReader) {
    while let Ok(Some(_)) = log.next().await {}
}
