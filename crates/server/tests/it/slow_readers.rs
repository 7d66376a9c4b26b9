//! Many read one session over HTTP, and some of them stop reading: the others get everything, the
//! process holds little for those that do not read, and they too get everything when they go on.
//!
//! Alone in its file, because it measures the process.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Seq, Stop};
use serde_json::json;
use testkit::Turns;
use testkit::http_client::{HttpClient, SseEvent, SseEvents};
use testkit::server::{Door, Server, Setup, run};
use tokio_util::task::TaskTracker;

use crate::stalled_client::resident_bytes;

const READERS: usize = 50;
const STALLED: usize = 5;
const CHUNK_BYTES: usize = 1_000;
/// More than the system's own buffers between two ends of a connection take.
const CHUNKS: usize = 5_000;
/// Told while only those are left that do not read.
const MORE_CHUNKS: usize = 15_000;
/// What the process may grow by meanwhile. A queue for each that does not read would take 75 MB.
const GROWTH_BYTES_MAX: usize = 24 << 20;

/// The first turn says the first chunks, every further one many more.
fn flood() -> Setup {
    let said = Arc::new(AtomicUsize::new(0));
    let flood = Turns::new(move |_, context| {
        let said = Arc::clone(&said);
        async move {
            let from = said.load(Ordering::SeqCst);
            let until = if from == 0 { CHUNKS } else { from + MORE_CHUNKS };
            for number in from..until {
                context.text(context.message(0), chunk(number)).await.unwrap();
            }
            said.store(until, Ordering::SeqCst);
            Ok(Stop::EndTurn)
        }
    });
    Setup::new(flood).on_disk()
}

fn chunk(number: usize) -> String {
    format!("{number:0width$}", width = CHUNK_BYTES)
}

/// A client that reads one session.
struct Reader {
    web: HttpClient,
    session: String,
    events: SseEvents,
    /// Chunks that it has been told, all in order.
    chunks: usize,
}

impl Reader {
    async fn new(door: &Door, server: &Server, session: &str) -> Self {
        let web = door.web();
        let hello =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
        let answer = web.post("/acp", &hello).await;
        let web = web.with("acp-connection-id", answer.header("acp-connection-id").unwrap());
        let mut events = web.with("acp-session-id", session).events("/acp").await;
        let place = json!({ "sessionId": session, "cwd": server.workspace(), "mcpServers": [] });
        let load = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/load", "params": place });
        assert_eq!(web.post("/acp", &load).await.status, 202);
        events.reply(2).await;
        Self { web, session: session.to_owned(), events, chunks: 0 }
    }

    /// Reads until it has so many chunks.
    async fn read(&mut self, chunks: usize) {
        while self.chunks < chunks {
            let event = self.events.next().await.unwrap();
            self.take(&event);
        }
    }

    /// Reads as fast as it can, and looks only at how much there is and at the end.
    async fn skim(&mut self) {
        let last = format!("{:010}", CHUNKS - 1);
        let (mut count, mut tail) = (0, Vec::new());
        while !tail.windows(last.len()).any(|seen| seen == last.as_bytes()) {
            let bytes = self.events.raw().await.unwrap();
            count += bytes.len();
            tail.extend(bytes);
            tail.drain(..tail.len().saturating_sub(4 * CHUNK_BYTES));
        }
        let text = CHUNKS * CHUNK_BYTES;
        assert!((text..text + text / 10).contains(&count), "{count} bytes for {text} of text");
    }

    /// The chunks are digits, which need no escapes: many readers are to be fast.
    fn take(&mut self, event: &SseEvent) {
        if !event.data.contains("agent_message_chunk") {
            return;
        }
        let (_, text) = event.data.split_once(r#""text":""#).unwrap();
        let (text, _) = text.split_once('"').unwrap();
        assert!(text.len().is_multiple_of(CHUNK_BYTES), "chunks are told whole");
        for said in text.as_bytes().chunks(CHUNK_BYTES) {
            let number = &said[CHUNK_BYTES - 10..];
            assert_eq!(number, format!("{:010}", self.chunks).as_bytes(), "no gap, no double");
            self.chunks += 1;
        }
    }

    /// As a client does whose connection has gone silent. Gives that connection, still open.
    async fn come_back(&mut self) -> SseEvents {
        let last = self.events.last.clone().unwrap();
        let web = self.web.with("acp-session-id", &self.session).with("last-event-id", &last);
        std::mem::replace(&mut self.events, web.events("/acp").await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_reading_hold_nobody_up_and_cost_little() {
    run(flood(), async |server| {
        let door = server.door(0).await;
        let mut client = server.client().await;
        let session = client.new_session().await;
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            stalled.push(Reader::new(&door, server, &session).await);
        }
        let mut careful = Reader::new(&door, server, &session).await;
        let reading = TaskTracker::new();
        let mut others = Vec::new();
        for _ in STALLED + 1..READERS {
            let mut reader = Reader::new(&door, server, &session).await;
            others.push(reading.spawn(async move { reader.skim().await }));
        }
        // From here on nobody reads of those that are stalled.
        client.prompt(&session, "go").await;
        careful.read(CHUNKS).await;
        drop(careful);
        for other in others {
            other.await.unwrap();
        }
        let before = resident_bytes();
        let handle = server.handle(&session).await;
        let head = handle.read(Seq::START).head();
        let turn = client.send_prompt(&session, "go on").await;
        handle.written(Seq(head.0 + 1)).await;
        server.idle(&session).await;
        let growth = resident_bytes().saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the process grew by {growth} bytes");
        // They were only behind.
        let mut late = stalled.pop().unwrap();
        late.read(CHUNKS + MORE_CHUNKS).await;
        let mut again = stalled.pop().unwrap();
        // As a client does whose connection went silent, which the server has not heard of.
        let silent = again.come_back().await;
        again.read(CHUNKS + MORE_CHUNKS).await;
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        drop((late, again, silent, stalled, handle));
        door.close().await;
    })
    .await;
}
