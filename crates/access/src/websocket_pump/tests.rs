//! The pump over a socket in memory, with paused time: what differs from door to door, and what does not.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::*;

const RULES: SocketRules = SocketRules {
    ping_every: Duration::from_secs(10),
    silence_max: Duration::from_secs(25),
    waiting_is_silence: true,
    not_text: Some("send text"),
    unreadable: "too long",
    pace: None,
    over: Some((NOT_WELCOME, "no longer has access")),
};
const QUEUE: usize = 64;

/// The server's side of a socket.
struct Socket {
    incoming: mpsc::Receiver<Result<Message, ()>>,
    outgoing: mpsc::Sender<Sent>,
    /// A peer that does not read: what was fed never leaves.
    stuck: bool,
}

#[derive(Debug, PartialEq)]
enum Sent {
    Frame(Message),
    Flush,
}

impl Stream for Socket {
    type Item = Result<Message, ()>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.incoming.poll_recv(context)
    }
}

impl Sink<Message> for Socket {
    type Error = Infallible;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Infallible> {
        self.outgoing.try_send(Sent::Frame(message)).unwrap();
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.stuck {
            return Poll::Pending;
        }
        self.outgoing.try_send(Sent::Flush).unwrap();
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.poll_flush(context)
    }
}

struct Texts(Vec<&'static str>);

impl SocketItem for Texts {
    fn into_output(self) -> SocketOutput<impl Iterator<Item = Utf8Bytes> + Send> {
        match self.0.as_slice() {
            ["close"] => SocketOutput::Close(close(COME_BACK, "later")),
            ["broken"] => SocketOutput::Broken,
            _ => SocketOutput::Texts(self.0.into_iter().map(Utf8Bytes::from_static)),
        }
    }
}

struct Came(mpsc::Sender<String>);

impl TextReceiver for Came {
    async fn take(&mut self, text: Utf8Bytes) -> Result<(), TextReceiverClosed> {
        self.0.send(text.to_string()).await.map_err(|_| TextReceiverClosed)
    }
}

/// A pump that runs, its peer, and the door behind it.
struct World {
    peer: mpsc::Sender<Result<Message, ()>>,
    seen: mpsc::Receiver<Sent>,
    /// As long as one text: the next one waits.
    came: mpsc::Receiver<String>,
    say: mpsc::Sender<Texts>,
    stop: mpsc::Sender<CloseFrame>,
    pumping: JoinHandle<()>,
}

impl World {
    fn new(rules: SocketRules) -> Self {
        Self::with(rules, false)
    }

    fn with(rules: SocketRules, stuck: bool) -> Self {
        let (peer, incoming) = mpsc::channel(QUEUE);
        let (outgoing, seen) = mpsc::channel(QUEUE);
        let (receiver, came) = mpsc::channel(1);
        let (say, items) = mpsc::channel(QUEUE);
        let (stop, mut stopped) = mpsc::channel(1);
        let socket = Socket { incoming, outgoing, stuck };
        let pumping = TaskTracker::new().spawn(async move {
            let stopped = async {
                match stopped.recv().await {
                    Some(reason) => reason,
                    None => std::future::pending().await,
                }
            };
            pump(socket, &rules, Came(receiver), items, stopped).await;
        });
        Self { peer, seen, came, say, stop, pumping }
    }

    async fn send(&self, message: Message) {
        self.peer.send(Ok(message)).await.unwrap();
    }

    async fn text(&self, text: &'static str) {
        self.send(Message::Text(Utf8Bytes::from_static(text))).await;
    }

    async fn say(&self, texts: &[&'static str]) {
        self.say.send(Texts(texts.to_vec())).await.unwrap();
    }

    /// The next frames, and that they left together.
    async fn together(&mut self) -> Vec<Message> {
        let mut frames = Vec::new();
        while let Some(Sent::Frame(message)) = self.seen.recv().await {
            frames.push(message);
        }
        frames
    }

    async fn is_pinged(&mut self) {
        assert_eq!(self.together().await, [Message::Ping(PING.into())]);
    }

    /// Everything up to the end, which comes.
    async fn rest(mut self) -> Vec<Message> {
        tokio::time::timeout(Duration::from_secs(600), &mut self.pumping).await.unwrap().unwrap();
        let mut frames = Vec::new();
        while let Some(sent) = self.seen.recv().await {
            if let Sent::Frame(message) = sent {
                frames.push(message);
            }
        }
        frames
    }
}

fn text(text: &'static str) -> Message {
    Message::Text(Utf8Bytes::from_static(text))
}

fn closed(code: u16, reason: &str) -> Message {
    Message::Close(Some(close(code, reason)))
}

#[tokio::test(start_paused = true)]
async fn what_belongs_together_leaves_with_one_flush() {
    let mut world = World::new(RULES);
    world.say(&["a", "b"]).await;
    assert_eq!(world.together().await, [text("a"), text("b")]);
    world.say(&["c"]).await;
    assert_eq!(world.together().await, [text("c")]);
}

#[tokio::test(start_paused = true)]
async fn texts_are_taken_in_order_and_empty_ones_passed_over() {
    let mut world = World::new(RULES);
    for sent in ["one", " \r\n", "", " two\n"] {
        world.text(sent).await;
    }
    assert_eq!(world.came.recv().await.as_deref(), Some("one"));
    assert_eq!(world.came.recv().await.as_deref(), Some(" two\n"));
}

#[tokio::test(start_paused = true)]
async fn binary_frames_end_a_socket_where_there_is_a_reason_and_are_passed_over_elsewhere() {
    let world = World::new(RULES);
    world.send(Message::Binary("x".into())).await;
    assert_eq!(world.rest().await, [closed(NOT_TEXT, "send text")]);

    let mut world = World::new(SocketRules { not_text: None, ..RULES });
    world.send(Message::Binary("x".into())).await;
    world.text("one").await;
    assert_eq!(world.came.recv().await.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_ends_a_socket_with_a_word() {
    let world = World::new(RULES);
    world.peer.send(Err(())).await.unwrap();
    assert_eq!(world.rest().await, [closed(TOO_BIG, "too long")]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_door_is_said_in_its_words() {
    for (over, last) in [
        (RULES.over, closed(NOT_WELCOME, "no longer has access")),
        (Some((NORMAL, "")), closed(NORMAL, "")),
        (None, Message::Close(None)),
    ] {
        let mut world = World::new(SocketRules { over, ..RULES });
        world.say(&["last"]).await;
        world.say = mpsc::channel(1).0;
        assert_eq!(world.rest().await, [text("last"), last]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_door_closes_a_socket_with_a_code_of_its_own_and_nothing_after_it() {
    let world = World::new(RULES);
    for said in ["a", "close", "b"] {
        world.say(&[said]).await;
    }
    assert_eq!(world.rest().await, [text("a"), closed(COME_BACK, "later")]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_said_ends_a_socket_without_a_word() {
    let world = World::new(RULES);
    world.say(&["broken"]).await;
    assert_eq!(world.rest().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_says_so_before_what_waits() {
    let world = World::new(RULES);
    world.stop.send(close(GOING_AWAY, "come back")).await.unwrap();
    world.say(&["a"]).await;
    assert_eq!(world.rest().await, [closed(GOING_AWAY, "come back")]);
}

#[tokio::test(start_paused = true)]
async fn last_words_that_do_not_leave_are_not_waited_for() {
    let began = Instant::now();
    let world = World::with(RULES, true);
    world.say(&["a"]).await;
    world.stop.send(close(GOING_AWAY, "come back")).await.unwrap();
    drop(world.rest().await);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_given_up() {
    let began = Instant::now();
    let world = World::with(RULES, true);
    world.say(&["a"]).await;
    drop(world.rest().await);
    assert_eq!(began.elapsed().as_secs(), WRITE_WAIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_ends_ends_the_pump_and_its_door() {
    let mut world = World::new(RULES);
    world.send(Message::Close(None)).await;
    assert_eq!(world.came.recv().await, None);
    assert_eq!(world.rest().await, [closed(NORMAL, "")]);
}

#[tokio::test(start_paused = true)]
async fn a_door_that_takes_no_more_says_what_it_has() {
    let mut world = World::new(RULES);
    world.came.close();
    world.text("one").await;
    world.say(&["last"]).await;
    assert_eq!(world.together().await, [text("last")]);
    world.say(&["close"]).await;
    assert_eq!(world.rest().await, [closed(COME_BACK, "later")]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_pinged_and_then_gone() {
    let began = Instant::now();
    let mut world = World::new(RULES);
    world.is_pinged().await;
    world.is_pinged().await;
    assert_eq!(world.rest().await, []);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_stays() {
    let mut world = World::new(RULES);
    for _ in 0..20 {
        world.is_pinged().await;
        world.send(Message::Pong(PING.into())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whether_waiting_is_silence_is_the_doors_choice() {
    for (waiting_is_silence, pings) in [(true, 2), (false, 12)] {
        let mut world = World::new(SocketRules { waiting_is_silence, ..RULES });
        // One is in the queue and one waits for it.
        world.text("one").await;
        world.text("two").await;
        for _ in 0..pings {
            world.is_pinged().await;
        }
        if waiting_is_silence {
            assert_eq!(world.rest().await, []);
            continue;
        }
        // From here on it can be heard again.
        while world.came.try_recv().is_ok() {
            tokio::task::yield_now().await;
        }
        world.is_pinged().await;
        world.is_pinged().await;
        assert_eq!(world.rest().await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn texts_that_come_too_fast_wait() {
    let pace = Some(RateLimit { per_second: 10.0, at_once: 5.0 });
    let (began, mut world) = (Instant::now(), World::new(SocketRules { pace, ..RULES }));
    let mut waits = Vec::new();
    for _ in 0..8 {
        world.text("x").await;
        world.came.recv().await.unwrap();
        waits.push(began.elapsed().as_millis() / 100);
    }
    assert_eq!(waits, [0, 0, 0, 0, 0, 0, 1, 2]);
}

#[tokio::test]
async fn many_at_once_are_taken_and_more_wait() {
    let (mut pace, now) = (TokenBucket::new(RateLimit { per_second: 10.0, at_once: 5.0 }), Instant::now());
    let waits: Vec<_> = (0..8).map(|_| (pace.next(now) - now).as_millis()).collect();
    assert_eq!(waits, [0, 0, 0, 0, 0, 0, 100, 200]);
    assert_eq!(pace.next(now + Duration::from_secs(9)), now + Duration::from_secs(9));
    assert!(pace.is_in_use(now) && !pace.is_in_use(now + Duration::from_secs(10)));
}

#[test]
fn a_reason_is_cut_between_letters() {
    assert_eq!(close(NORMAL, &"ä".repeat(100)).reason.len(), 120);
}
