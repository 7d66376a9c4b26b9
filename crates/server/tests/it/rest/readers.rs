//! Slow readers cost little and hold nobody up.

use std::sync::Arc;
use std::time::Duration;

use access::BoundListener;
use engine::{MessageId, Stop};
use server::http::router;
use testkit::Turns;
use testkit::server::{Server, Setup, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rest::door::{Door, MASTER, within};

/// A turn that says this many chunks of this size.
fn flood(count: u64, bytes: usize) -> Setup {
    let text: Arc<str> = "x".repeat(bytes).into();
    Setup::new(Turns::new(move |_, context| {
        let text = Arc::clone(&text);
        async move {
            for _ in 0..count {
                context.text(MessageId(1), Arc::clone(&text)).await.ok();
            }
            Ok(Stop::EndTurn)
        }
    }))
}

async fn subscribe(address: std::net::SocketAddr, id: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /session/{id}/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {MASTER}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // The answer's head says that the stream is open.
    let mut first = [0; 12];
    socket.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    socket
}

/// Reads until these bytes come.
async fn read_until(socket: &mut TcpStream, wanted: &[u8]) {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = within(socket.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "the stream ended too early");
        seen.extend_from_slice(&buffer[..count]);
        if seen.windows(wanted.len()).any(|window| window == wanted) {
            return;
        }
        let keep = seen.len().saturating_sub(wanted.len());
        seen.drain(..keep);
    }
}

#[tokio::test]
async fn stalled_readers_hold_nobody_up() {
    run(flood(4000, 1000), async |server| {
        let listening = BoundListener::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let address = listening.local_addr();
        let door = Door::at(server, address);
        let serving = tokio::task::JoinSet::from_iter([
            listening.serve(router(Arc::clone(&door.doors)), door.doors.stop.clone())
        ]);
        let id = made(&door, address).await;
        let mut readers = Vec::new();
        for _ in 0..20 {
            readers.push(subscribe(address, &id).await);
        }
        let stalled = readers.split_off(15);
        door.doors
            .registry
            .open(&engine::Principal::local(), &engine::SessionId::parse(&id).unwrap())
            .await
            .unwrap();
        say(&door, &id).await;
        for reader in &mut readers {
            read_until(reader, b"event: result\n").await;
        }
        server.idle(&id).await;
        drop((readers, stalled));
        door.close().await;
        within(serving.join_all()).await;
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_takes_nothing_for_too_long_is_let_go() {
    let server = Server::start(flood(4000, 4000));
    let listening = BoundListener::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = listening.local_addr();
    let door = Door::at(&server, address);
    let serving = tokio::task::JoinSet::from_iter([
        listening.serve(router(Arc::clone(&door.doors)), door.doors.stop.clone())
    ]);
    let id = made(&door, address).await;
    let mut stalled = subscribe(address, &id).await;
    say(&door, &id).await;
    server.idle(&id).await;
    // Everything is in the log, far more than the sockets hold; from here only time passes.
    tokio::time::pause();
    for _ in 0..10_000 {
        if door.doors.tasks.is_empty() {
            break;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        // The store reads on a thread of its own, which has its turn here.
        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
    }
    assert!(door.doors.tasks.is_empty(), "the reader was not let go");
    tokio::time::resume();
    let (mut buffer, mut got) = (vec![0; 1 << 20], 0);
    loop {
        // A connection that was cut off may end in either way.
        match within(stalled.read(&mut buffer)).await {
            Ok(0) | Err(_) => break,
            Ok(count) => got += count,
        }
    }
    assert!(got < 16_000_000, "{got} bytes are all that was said");
    door.close().await;
    within(serving.join_all()).await;
    server.stop().await;
}

async fn made(door: &Door, address: std::net::SocketAddr) -> String {
    let made = door.post("/session", serde_json::json!({})).to(address).answer().await;
    made.is(axum::http::StatusCode::CREATED)["session_id"].as_str().unwrap().to_owned()
}

async fn say(door: &Door, id: &str) {
    let (owner, id) = (engine::Principal::local(), engine::SessionId::parse(id).unwrap());
    let handle = door.doors.registry.open(&owner, &id).await.unwrap();
    let by = engine::Sender::new(engine::SurfaceId::random(), "test");
    handle.send(engine::Input::Prompt { by, content: vec![engine::Content::text("go")] }).await.unwrap();
}
