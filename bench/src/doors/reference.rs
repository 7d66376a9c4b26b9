//! The practical limit: axum, one broadcast channel, frames that were made before anybody asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::unfold;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, broadcast};

use super::LAST;
use super::served::peak_kb;
use super::wire::{Reading, request};

/// Turns the program into the reference server.
pub const ROLE: &str = "--reference";

pub struct Reference {
    child: Child,
    address: SocketAddr,
}

impl Reference {
    #[expect(clippy::disallowed_methods, reason = "the reference server is this program itself")]
    pub async fn start() -> anyhow::Result<Self> {
        let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = Command::new(std::env::current_exe()?)
            .args([ROLE, &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting the reference")?;
        let reference = Self { child, address };
        while std::net::TcpStream::connect(address).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Ok(reference)
    }

    pub async fn prepare(&self, frames: &[usize], readers: usize) -> anyhow::Result<()> {
        let body = serde_json::json!({"frames": frames, "readers": readers}).to_string();
        request(self.address, "POST", "/prepare", &[], &body).await.map(drop)
    }

    pub async fn reader(&self) -> anyhow::Result<Reading> {
        request(self.address, "GET", "/events", &[("accept", "text/event-stream")], "").await
    }

    pub async fn go(&self) -> anyhow::Result<()> {
        request(self.address, "POST", "/go", &[], "{}").await.map(drop)
    }

    pub fn peak_kb(&self) -> anyhow::Result<u64> {
        peak_kb(self.child.id())
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // It may have ended by itself; either way there is nothing left to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Shared {
    prepared: Mutex<Prepared>,
}

struct Prepared {
    frames: Vec<Bytes>,
    sender: broadcast::Sender<Bytes>,
}

/// Serves until the process is killed.
pub async fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let prepared = Prepared { frames: Vec::new(), sender: broadcast::Sender::new(1) };
    let shared = Arc::new(Shared { prepared: Mutex::new(prepared) });
    let router = Router::new()
        .route("/prepare", post(prepare))
        .route("/events", get(events))
        .route("/go", post(go))
        .with_state(shared);
    let listener = TcpListener::bind(address).await?;
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
}

#[derive(serde::Deserialize)]
struct Wanted {
    frames: Vec<usize>,
}

async fn prepare(State(shared): State<Arc<Shared>>, axum::Json(wanted): axum::Json<Wanted>) {
    let count = wanted.frames.len();
    let frame = |(number, size): (usize, usize)| {
        let marker: &[u8] = if number + 1 == count { LAST } else { b"" };
        let mut frame = [b"data: ", marker].concat();
        frame.resize(size.max(frame.len() + 2) - 2, b'x');
        frame.extend_from_slice(b"\n\n");
        Bytes::from(frame)
    };
    let frames = wanted.frames.into_iter().enumerate().map(frame).collect();
    // Room for all of them: nobody is to miss any.
    *shared.prepared.lock().await = Prepared { frames, sender: broadcast::Sender::new(count.max(1)) };
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let receiver = shared.prepared.lock().await.sender.subscribe();
    let frames = unfold(receiver, async |mut receiver| {
        let frame = receiver.recv().await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(frame), receiver))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

async fn go(State(shared): State<Arc<Shared>>) {
    let prepared = shared.prepared.lock().await;
    for frame in &prepared.frames {
        // Without readers there is nobody to send to.
        drop(prepared.sender.send(frame.clone()));
    }
}
