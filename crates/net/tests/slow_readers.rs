//! Many read one session over HTTP, and some of them stop reading: the others get everything, the
//! process holds little for those that do not read, and they too get everything when they go on.
//!
//! Alone in its file, because it measures the process.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use engine::Stop;
use serde_json::json;
use testkit::Turns;
use testkit::server::{Door, Server, Setup, run};
use testkit::web::{Event, Events, Web};

const READERS: usize = 50;
const STALLED: usize = 5;
/// More than the system's own buffers between two ends of a connection take.
const CHUNKS: usize = 6_000;
const CHUNK_BYTES: usize = 1_000;
/// What the whole process may grow by: the log in memory, a page or two for each that reads, and what
/// the test itself keeps. A copy of the text for each reader would be 300 MB.
const GROWTH_BYTES_MAX: usize = 48 << 20;

/// Memory of this process that is in use.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn flood(chunks: usize) -> Setup {
    let flood = Turns::new(move |_, context| async move {
        for number in 0..chunks {
            context.text(context.message(0), chunk(number)).await.unwrap();
        }
        Ok(Stop::EndTurn)
    });
    Setup::new(flood).on_disk()
}

fn chunk(number: usize) -> String {
    format!("{number:0width$}", width = CHUNK_BYTES)
}

/// A client that reads one session.
struct Reader {
    web: Web,
    session: String,
    events: Events,
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

    /// The chunks are digits, which need no escapes: many readers are to be fast.
    fn take(&mut self, event: &Event) {
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
    async fn come_back(&mut self) -> Events {
        let last = self.events.last.clone().unwrap();
        let web = self.web.with("acp-session-id", &self.session).with("last-event-id", &last);
        std::mem::replace(&mut self.events, web.events("/acp").await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_reading_hold_nobody_up_and_cost_little() {
    run(flood(CHUNKS), async |server| {
        let door = server.door(0).await;
        let mut client = server.client().await;
        let session = client.new_session().await;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(Reader::new(&door, server, &session).await);
        }
        let mut stalled = readers.split_off(READERS - STALLED);
        let before = resident_bytes();
        let prompt = client.send_prompt(&session, "go").await;
        // From here on nobody reads of those that are stalled.
        let reading = tokio_util::task::TaskTracker::new();
        let others: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                reading.spawn(async move {
                    reader.read(CHUNKS).await;
                    reader
                })
            })
            .collect();
        let mut done = Vec::new();
        for other in others {
            done.push(other.await.unwrap());
        }
        let growth = resident_bytes().saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the process grew by {growth} bytes");
        assert!(stalled.iter().all(|reader| reader.chunks == 0));
        for reader in &mut stalled {
            reader.read(CHUNKS).await;
        }
        assert_eq!(client.stop_reason(prompt).await, "end_turn");
        drop((stalled, done));
        door.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_stream_went_silent_takes_it_up_again_though_the_server_has_not_heard_of_it() {
    run(flood(CHUNKS), async |server| {
        let door = server.door(0).await;
        let mut client = server.client().await;
        let session = client.new_session().await;
        let mut reader = Reader::new(&door, server, &session).await;
        let prompt = client.send_prompt(&session, "go").await;
        reader.read(10).await;
        assert_eq!(client.stop_reason(prompt).await, "end_turn");
        // The connection before stays open, and nothing more of it is read: its writer waits for room.
        let silent = reader.come_back().await;
        reader.read(CHUNKS).await;
        drop((silent, reader));
        door.close().await;
    })
    .await;
}
