//! Clients over any byte streams, and what ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embed::{FunctionBackend, Server, ServerParts, SessionId, SessionLimits, Stop, TurnContext};
use engine::{Principal, Seq};
use serde_json::json;
use testkit::server::DEADLINE;
use tokio::io::AsyncWriteExt;

use crate::test_server::{check, check_agent};

/// Says a word and the number of the turn.
fn polite() -> FunctionBackend {
    FunctionBackend::new(|input, context: TurnContext| async move {
        context.text(context.new_message(), format!("hello {}", input.turn.0)).await?;
        Ok(Stop::EndTurn)
    })
}

/// Says a word, and then nothing until it is told to stop.
fn patient(told: &Arc<AtomicBool>) -> FunctionBackend {
    let told = Arc::clone(told);
    FunctionBackend::new(move |_, context: TurnContext| {
        let told = Arc::clone(&told);
        async move {
            context.text(context.new_message(), "waiting").await?;
            context.cancel.cancelled().await;
            told.store(true, Ordering::SeqCst);
            Ok(Stop::Cancelled)
        }
    })
}

/// CC1, CC5.
#[tokio::test]
async fn a_session_goes_on_when_its_connection_ends() {
    check_agent(polite(), async |test_server| {
        let mut first = test_server.client().await;
        let session = first.new_session().await;
        assert_eq!(first.prompt(&session, "hello").await, "end_turn");
        assert_eq!(first.said(), "hello 1");
        first.hang_up().await;
        test_server.all_hung_up().await;
        let mut second = test_server.client().await;
        second.load(&session).await;
        assert_eq!(second.said(), "hello 1");
        assert_eq!(second.prompt(&session, "hello again").await, "end_turn");
        assert_eq!(second.said(), "hello 1hello 2");
    })
    .await;
}

/// CC5.
#[tokio::test]
async fn what_is_kept_in_a_file_is_there_after_a_restart() {
    let kept = tempfile::tempdir().unwrap();
    let file = kept.path().join("state/sessions.db");
    let mut session = String::new();
    check(
        |home| ServerParts::new(polite(), home).kept_in(&file),
        async |test_server| {
            let mut client = test_server.client().await;
            session = client.new_session().await;
            client.prompt(&session, "hello").await;
        },
    )
    .await;
    check(
        |home| ServerParts::new(polite(), home).kept_in(&file),
        async |test_server| {
            let mut client = test_server.client().await;
            client.load(&session).await;
            assert_eq!(client.said(), "hello 1");
        },
    )
    .await;
}

/// CC8.
#[tokio::test]
async fn a_cancel_of_the_client_is_seen_by_the_running_turn() {
    let told = Arc::default();
    check_agent(patient(&told), async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "wait").await;
        client.next_update_of("agent_message_chunk").await;
        assert!(!told.load(Ordering::SeqCst));
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert!(told.load(Ordering::SeqCst));
    })
    .await;
}

/// CC5: time stands still unless everybody waits for it.
#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_keeps_no_server_from_ending() {
    let flood = FunctionBackend::new(|_, context: TurnContext| async move {
        for _ in 0..1000 {
            context.text(context.new_message(), "more and more").await?;
        }
        Ok(Stop::EndTurn)
    });
    check_agent(flood, async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        client.send_prompt(&session, "go").await;
        client.next_update_of("agent_message_chunk").await;
        test_server.server.stopping().cancel();
        test_server.all_hung_up().await;
        client.vanish();
    })
    .await;
}

/// CC5.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_idle_for_long_leaves_memory_by_itself() {
    let hasty = |home| {
        let mut parts = ServerParts::new(polite(), home);
        parts.sessions.limits = SessionLimits { idle_timeout: Duration::ZERO, ..SessionLimits::default() };
        parts
    };
    check(hasty, async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        let id = SessionId::parse(&session).unwrap();
        let handle = test_server.server.registry().open(&Principal::local(), &id).await.unwrap();
        let mut reader = handle.read(Seq::START);
        let left = async { while reader.next().await.unwrap().is_some() {} };
        tokio::time::timeout(DEADLINE, left).await.unwrap();
        assert_eq!(client.prompt(&session, "back again?").await, "end_turn");
    })
    .await;
}

/// A prompt that is in the middle of its turn when the server ends is answered all the same.
#[tokio::test]
async fn an_end_of_the_server_is_told_to_whoever_waits() {
    let told = Arc::default();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(ServerParts::new(patient(&told), folder.path()));
    let (near, far) = tokio::io::duplex(1 << 16);
    let mut client = testkit::server::Client::over(near, folder.path().to_owned());
    let (input, output) = tokio::io::split(far);
    let registry = Arc::clone(server.registry());
    let talk = async {
        client.initialize().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "wait").await;
        client.next_update_of("agent_message_chunk").await;
        registry.shutdown().await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        server.stopping().cancel();
    };
    tokio::join!(talk, server.serve_connection(input, output));
    assert!(told.load(Ordering::SeqCst));
    server.shutdown().await;
}

/// A line that never ends, a line that is no JSON: the stream goes on.
#[tokio::test]
async fn nonsense_on_a_stream_is_answered_and_the_stream_goes_on() {
    check_agent(polite(), async |test_server| {
        let mut stream = test_server.stream();
        stream.write_all(b"nonsense\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut said).await.unwrap();
        let codes: Vec<_> = said
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["error"]["code"].clone())
            .collect();
        assert_eq!(codes.len(), 2, "{said}");
        assert_eq!(codes[0], -32700);
    })
    .await;
}
