//! The listener on a real socket, with places for very few.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::BoundListener;
use crate::gate::GateState;
use crate::gate::pass;
use crate::gate::tests::state;

const DEADLINE: Duration = Duration::from_secs(60);

/// Listens with so many places until it is stopped.
async fn listening(
    state: &GateState,
    places: usize,
) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
    state.gate.open();
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                drop(socket.send(message).await);
            }
        })
    };
    let router = Router::new()
        .route("/ws", any(echo))
        .fallback(|| async { "hello" })
        .layer(from_fn_with_state(state.clone(), pass));
    let listening = BoundListener::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap().at_most(places);
    let listening = listening.counted(Arc::clone(&state.metrics));
    let (address, stop) = (listening.local_addr(), CancellationToken::new());
    let serving = TaskTracker::new().spawn(listening.serve(router, stop.clone()));
    (address, stop, serving)
}

/// Sends a request with these headers and answers the connection and the beginning of what came back.
async fn ask(address: std::net::SocketAddr, path: &str, headers: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The tests' gate is bound to port 80, which stands in no name.
    let text = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut some = vec![0; 4096];
    let count = tokio::time::timeout(DEADLINE, stream.read(&mut some)).await.unwrap().unwrap_or_default();
    some.truncate(count);
    (stream, String::from_utf8(some).unwrap())
}

const TOKEN: &str = "authorization: Bearer master\r\n";
const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn a_websocket_keeps_its_connections_place() {
    let state = state();
    let (address, stop, serving) = listening(&state, 1).await;
    let (mut socket, head) = ask(address, "/ws", &format!("{TOKEN}{UPGRADE}")).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    // What comes back shows that the socket is a WebSocket in earnest, and no longer a request.
    socket.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'x']).await.unwrap();
    let mut echo = [0; 3];
    tokio::time::timeout(DEADLINE, socket.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(echo, [0x81, 0x01, b'x']);
    let (_, refused) = ask(address, "/x", TOKEN).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too_many_connections"), "{refused}");
    let counted = state.metrics.render();
    assert!(counted.contains("ropewalk_rejected_total{reason=\"connections\"} 1\n"), "{counted}");
    assert!(counted.contains("ropewalk_connections{door=\"http\"} 0\n"), "{counted}");
    drop(socket);
    // The place is free as soon as the server has seen the end of the socket.
    let again = async {
        while !ask(address, "/x", TOKEN).await.1.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, again).await.unwrap();
    stop.cancel();
    tokio::time::timeout(DEADLINE, serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stranger_makes_room_for_whoever_comes() {
    let state = state();
    let (address, stop, serving) = listening(&state, 1).await;
    let (mut stranger, head) = ask(address, "/x", "").await;
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let (_known, head) = ask(address, "/x", TOKEN).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let counted = state.metrics.render();
    assert!(!counted.contains("ropewalk_connections{door=\"http\"} 0\n"), "{counted}");
    let end = tokio::time::timeout(DEADLINE, stranger.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    stop.cancel();
    tokio::time::timeout(DEADLINE, serving).await.unwrap().unwrap();
}
