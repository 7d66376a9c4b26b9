//! Sockets and requests to a hub.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

pub type Socket = WebSocketStream<TcpStream>;

/// As whom a request is made.
#[derive(Debug, Clone)]
pub enum Key {
    Nobody,
    Browser { cookie: String, proof: String },
    Bearer(String),
}

pub struct Answer {
    pub status: u16,
    pub cookie: Option<String>,
    pub body: Value,
}

pub async fn post(
    hub: SocketAddr,
    public: &str,
    path: &str,
    key: &Key,
    body: &Value,
) -> anyhow::Result<Answer> {
    let body = body.to_string();
    let host = public.split("//").nth(1).unwrap_or(public);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\norigin: {public}\r\nsec-fetch-site: same-origin\r\n{}\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        header(key),
        body.len()
    );
    let mut stream = TcpStream::connect(hub).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no status")?;
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .and_then(|line| line.split(';').next());
    // A body in chunks has sizes around it; ours are one chunk.
    let json = body.find('{').zip(body.rfind('}')).map(|(begin, end)| &body[begin..=end]);
    let body = json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    Ok(Answer { status, cookie: cookie.map(str::to_owned), body })
}

fn header(key: &Key) -> String {
    match key {
        Key::Nobody => String::new(),
        Key::Browser { cookie, proof } => format!("cookie: {cookie}\r\nx-ropewalk-proof: {proof}\r\n"),
        Key::Bearer(token) => format!("authorization: Bearer {token}\r\n"),
    }
}

pub async fn socket(
    hub: SocketAddr,
    public: &str,
    path: &str,
    protocol: &str,
    key: &Key,
) -> anyhow::Result<Socket> {
    let host = public.split("//").nth(1).unwrap_or(public);
    let mut request = format!("ws://{host}{path}").into_client_request()?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", protocol.parse()?);
    match key {
        Key::Nobody => {}
        Key::Browser { cookie, proof } => {
            headers.insert("cookie", cookie.parse()?);
            headers.insert("x-ropewalk-proof", proof.parse()?);
            headers.insert("origin", public.parse()?);
        }
        Key::Bearer(token) => {
            headers.insert("authorization", format!("Bearer {token}").parse()?);
        }
    }
    let stream = TcpStream::connect(hub).await?;
    stream.set_nodelay(true)?;
    let opened =
        tokio::time::timeout(Duration::from_secs(30), tokio_tungstenite::client_async(request, stream));
    let (socket, _) =
        opened.await.context("no handshake in time")?.with_context(|| format!("opening {path}"))?;
    Ok(socket)
}

/// The next text, or an error when there will be none.
pub async fn next(socket: &mut Socket) -> anyhow::Result<String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(frame))) => bail!("closed: {frame:?}"),
            Some(Ok(other)) => bail!("unexpected: {other:?}"),
            Some(Err(error)) => return Err(error.into()),
            None => bail!("the other end hung up"),
        }
    }
}

pub async fn send(socket: &mut Socket, value: &Value) -> anyhow::Result<()> {
    Ok(socket.send(Message::text(value.to_string())).await?)
}

/// Asks over a browser's socket.
pub async fn ask(socket: &mut Socket, id: u64, mut request: Value) -> anyhow::Result<Value> {
    request["id"] = id.into();
    send(socket, &request).await?;
    loop {
        let frame: Value = serde_json::from_str(&next(socket).await?)?;
        if frame["re"] == id {
            ensure!(!frame["ok"].is_null(), "{request} was refused: {frame}");
            return Ok(frame["ok"].clone());
        }
    }
}
