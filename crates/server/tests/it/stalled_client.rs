//! A client that stops reading costs its server a bounded amount of memory and nobody else any time.
//!
//! Alone in its file, because it measures the process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::Stop;
use testkit::Turns;
use testkit::server::{Setup, run};

const CHUNKS: usize = 200_000;
const CHUNK: &str = "a chunk of text that is about as long as a model makes them ";
/// What may be handed over to a client that does not read: two buffers of a page each.
const HELD_BYTES_MAX: usize = 1 << 20;
/// What the whole process may grow by while 12 MB of text in 200,000 events pass through it. A queue
/// of the events would take more than that.
const GROWTH_BYTES_MAX: usize = 24 << 20;

/// Memory of this process that is in use.
pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn flood() -> Setup {
    let flood = Turns::new(|_, context| async move {
        for _ in 0..CHUNKS {
            context.text(context.message(0), CHUNK).await.unwrap();
        }
        Ok(Stop::EndTurn)
    });
    Setup::new(flood).on_disk()
}

/// E35, E36, FF3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_holds_nobody_up_and_costs_little() {
    run(flood(), async |server| {
        let (mut stalled, mut watcher) = (server.client().await, server.client().await);
        let session = stalled.new_session().await;
        watcher.load(&session).await;
        let before = resident_bytes();
        // From here on `stalled` does not read.
        let turn = stalled.send_prompt(&session, "go").await;
        watcher.next_update_of("user_message_chunk").await;
        server.idle(&session).await;
        let growth = resident_bytes().saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the process grew by {growth} bytes");
        watcher.catch_up(&session).await;
        assert_eq!(watcher.said().len(), CHUNKS * CHUNK.len());
        let held = stalled.unread_bytes();
        assert!(held < HELD_BYTES_MAX, "{held} bytes were held for it");
        // It was only behind: it reads on and has everything, then the answer.
        assert_eq!(stalled.stop_reason(turn).await, "end_turn");
        assert_eq!(stalled.said().len(), CHUNKS * CHUNK.len());
    })
    .await;
}
