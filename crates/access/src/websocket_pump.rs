//! The pump of a WebSocket: texts in, texts out, pings, silence, and the close frame. Every socket that a server or a hub
//! accepts is moved by it; what a text means is the business of the surface behind it.
//!
//! Surfaces differ in a few numbers and texts, which are data ([`SocketRules`]). Reading and writing are two futures of one
//! task, so a frame costs no task and no queue besides those that the surface has anyway: it is read into a
//! [`TextReceiver`], and written from the surface's own queue, whose items know how they are written ([`SocketItem`]).
//!
//! The sockets that we dial ourselves (`bridge/src/tunnel_pipe/websocket.rs`, `ropewalk/src/chat/server_socket.rs`) have loops of their own,
//! and say why.
//!
//! **Invariant:** after a close frame nothing is written.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use wire::native;

/// How long what leaves together may take to leave.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long the last words may take.
const FAREWELL_WAIT: Duration = Duration::from_millis(500);
/// What the peer's client sends back to show that it lives.
const PING: &[u8] = b"ropewalk";
/// Bytes of a reason: a control frame has room for 125, two of which are the code.
const REASON_BYTES_MAX: usize = 120;

/// Codes of a close: all is well, the server stops, no text, not welcome (any more), too long, come back: the other side
/// will tell where to go on.
pub const NORMAL: u16 = 1000;
pub const GOING_AWAY: u16 = 1001;
pub const NOT_TEXT: u16 = 1003;
pub const NOT_WELCOME: u16 = 1008;
pub const TOO_BIG: u16 = 1009;
pub const COME_BACK: u16 = 1012;

/// What differs between the surfaces that accept WebSockets.
#[derive(Debug, Clone, Copy)]
pub struct SocketRules {
    pub ping_every: Duration,
    /// A peer that is silent for this long, although it is asked, is gone.
    pub silence_max: Duration,
    /// Whether a peer counts as silent while a text of it waits to be taken. Nobody reads then, so its pongs are not seen.
    pub waiting_is_silence: bool,
    /// Why a binary frame ends the socket. Without a reason it is passed over.
    pub not_text: Option<&'static str>,
    /// Why a message ends the socket that is too long or cannot be read.
    pub unreadable: &'static str,
    /// The rate limit of incoming texts.
    pub pace: Option<RateLimit>,
    /// The close frame when nothing more will be sent.
    pub over: Option<(u16, &'static str)>,
}

/// So many in a second on the average, and so many at once. Beyond that they wait.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    pub per_second: f64,
    pub at_once: f64,
}

/// The receiver of the texts takes no more.
#[derive(Debug)]
pub struct TextReceiverClosed;

/// Takes the texts of a socket. The next one is not read before this one was taken.
pub trait TextReceiver: Send {
    /// The text is not empty, but may have space around it.
    fn take(&mut self, text: Utf8Bytes) -> impl Future<Output = Result<(), TextReceiverClosed>> + Send;
}

/// An item that a surface sends over a WebSocket.
pub trait SocketItem: Send {
    fn into_output(self) -> SocketOutput<impl Iterator<Item = Utf8Bytes> + Send>;
}

/// How an item is written to the socket.
#[derive(Debug)]
pub enum SocketOutput<Texts> {
    /// A frame for each, and one flush for all.
    Texts(Texts),
    Close(CloseFrame),
    /// It cannot be encoded: the socket ends without a close frame.
    Broken,
}

impl SocketItem for native::ServerFrame {
    fn into_output(self) -> SocketOutput<impl Iterator<Item = Utf8Bytes> + Send> {
        match serde_json::to_string(&self) {
            Ok(text) => SocketOutput::Texts(std::iter::once(text.into())),
            Err(error) => {
                tracing::error!(%error, "could not encode a frame");
                SocketOutput::Broken
            }
        }
    }
}

/// A close frame; a reason that is too long is cut.
pub fn close(code: u16, reason: &str) -> CloseFrame {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    CloseFrame { code, reason: reason.get(..end).unwrap_or_default().into() }
}

/// Moves texts until the peer or the surface ends, or `stop` gives the reason of the end.
///
/// A surface that takes no more texts may still send some: the socket ends when its queue does.
pub async fn pump<S, E, T, L>(
    socket: S,
    rules: &SocketRules,
    mut receiver: T,
    items: mpsc::Receiver<L>,
    stop: impl Future<Output = CloseFrame>,
) where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Send,
    T: TextReceiver,
    L: SocketItem,
{
    let (sink, stream) = socket.split();
    let (heard, last_heard) = watch::channel(Some(Instant::now()));
    let (closing, close_asked) = mpsc::channel(1);
    let writer = Writer { sink, rules, last_heard, close_asked };
    let mut writing = std::pin::pin!(writer.run(items));
    let reader = Reader { rules, heard, closing: closing.clone() };
    let last = tokio::select! {
        biased;
        reason = stop => reason,
        () = reader.run(stream, &mut receiver) => close(NORMAL, ""),
        () = &mut writing => return,
    };
    // A writer that is closing for another reason has written its close frame already.
    drop(closing.try_send(last));
    drop(tokio::time::timeout(FAREWELL_WAIT, writing).await);
}

/// When the peer was last heard; nothing while it cannot be heard.
type LastHeard = Option<Instant>;

struct Reader<'a> {
    rules: &'a SocketRules,
    heard: watch::Sender<LastHeard>,
    closing: mpsc::Sender<CloseFrame>,
}

impl Reader<'_> {
    /// Ends when the peer has said that it ends.
    async fn run<S, E>(self, mut stream: SplitStream<S>, receiver: &mut impl TextReceiver)
    where
        S: Stream<Item = Result<Message, E>>,
    {
        let mut pace = self.rules.pace.map(TokenBucket::new);
        while let Some(message) = stream.next().await {
            self.heard.send_replace(Some(Instant::now()));
            let text = match message {
                Ok(Message::Text(text)) => text,
                Ok(Message::Binary(_)) => match self.rules.not_text {
                    Some(reason) => return self.close(NOT_TEXT, reason).await,
                    None => continue,
                },
                Ok(Message::Ping(_) | Message::Pong(_)) => continue,
                Ok(Message::Close(_)) => return,
                // Too long, or not of the WebSocket protocol. Either way the peer gets a close frame.
                Err(_) => return self.close(TOO_BIG, self.rules.unreadable).await,
            };
            // Some clients send empty messages to keep the connection open.
            if text.trim_ascii().is_empty() {
                continue;
            }
            if !self.rules.waiting_is_silence {
                self.heard.send_replace(None);
            }
            if let Some(pace) = &mut pace {
                tokio::time::sleep_until(pace.next(Instant::now())).await;
            }
            if receiver.take(text).await.is_err() {
                // The door has ended, and its last words go: the writer sees the end of its queue.
                return std::future::pending().await;
            }
            if !self.rules.waiting_is_silence {
                self.heard.send_replace(Some(Instant::now()));
            }
        }
    }

    /// The writer closes the socket, and this ends with it.
    async fn close(&self, code: u16, reason: &str) {
        drop(self.closing.send(close(code, reason)).await);
        std::future::pending().await
    }
}

enum Wake<L> {
    SocketItem(Option<L>),
    Ping,
    Close(CloseFrame),
}

struct Writer<'a, S> {
    sink: SplitSink<S, Message>,
    rules: &'a SocketRules,
    last_heard: watch::Receiver<LastHeard>,
    close_asked: mpsc::Receiver<CloseFrame>,
}

/// The socket is closed, or has to be.
struct SocketEnded;

impl<S: Sink<Message>> Writer<'_, S> {
    async fn run<L: SocketItem>(mut self, mut items: mpsc::Receiver<L>) {
        let every = self.rules.ping_every;
        let mut ping = tokio::time::interval_at(Instant::now() + every, every);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                biased;
                Some(reason) = self.close_asked.recv() => Wake::Close(reason),
                _ = ping.tick() => Wake::Ping,
                next = items.recv() => Wake::SocketItem(next),
            };
            if let Err(SocketEnded) = self.woken(wake).await {
                return;
            }
        }
    }

    async fn woken<L: SocketItem>(&mut self, wake: Wake<L>) -> Result<(), SocketEnded> {
        match wake {
            Wake::SocketItem(Some(item)) => match item.into_output() {
                SocketOutput::Texts(texts) => self.send(texts.map(Message::Text)).await,
                SocketOutput::Close(frame) => self.close(Some(frame)).await,
                SocketOutput::Broken => Err(SocketEnded),
            },
            Wake::SocketItem(None) => {
                self.close(self.rules.over.map(|(code, reason)| close(code, reason))).await
            }
            Wake::Close(frame) => self.close(Some(frame)).await,
            Wake::Ping if self.is_silent() => Err(SocketEnded),
            Wake::Ping => self.send([Message::Ping(PING.into())]).await,
        }
    }

    fn is_silent(&self) -> bool {
        self.last_heard.borrow().is_some_and(|at| at.elapsed() > self.rules.silence_max)
    }

    async fn close(&mut self, frame: Option<CloseFrame>) -> Result<(), SocketEnded> {
        // The peer may be gone already.
        drop(self.send([Message::Close(frame)]).await);
        Err(SocketEnded)
    }

    async fn send(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<(), SocketEnded> {
        let sending = async {
            for message in messages {
                self.sink.feed(message).await?;
            }
            self.sink.flush().await
        };
        match tokio::time::timeout(WRITE_WAIT, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(SocketEnded),
        }
    }
}

/// A token bucket in one instant: when the next action may be done.
#[derive(Debug)]
pub struct TokenBucket {
    each: Duration,
    slack: Duration,
    next: Option<Instant>,
}

impl TokenBucket {
    pub fn new(limit: RateLimit) -> Self {
        let each = Duration::from_secs_f64(1.0 / limit.per_second);
        Self { each, slack: each.mul_f64(limit.at_once), next: None }
    }

    /// When the next action may be done: now, if there were few.
    pub fn next(&mut self, now: Instant) -> Instant {
        let due = self.next.unwrap_or(now).max(now);
        self.next = Some(due + self.each);
        due.checked_sub(self.slack).unwrap_or(now).max(now)
    }

    /// Whether its state differs from that of a new bucket.
    pub fn is_in_use(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next > now)
    }
}

#[cfg(test)]
mod tests;
