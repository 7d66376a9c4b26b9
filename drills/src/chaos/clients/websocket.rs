//! The official protocol on a WebSocket: whoever was cut off opens another one and names its cursor.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::http_client::HttpClient;
use super::super::socket::{SocketEvent, WebSocketClient};
use super::{Follower, QUIET_MAX, RETRY, Shared, request};

const LOADED_MAX: Duration = Duration::from_secs(10);

struct Client {
    web: HttpClient,
    session: String,
    cwd: Value,
    shared: Shared,
    cursor: Option<String>,
}

pub fn follow(web: &HttpClient, session: &str, cwd: &Path) -> anyhow::Result<Follower> {
    let shared = Shared::default();
    let mut client = Client {
        web: web.clone(),
        session: session.to_owned(),
        cwd: json!(cwd),
        shared: shared.clone(),
        cursor: None,
    };
    let thread = std::thread::spawn(move || {
        while !client.shared.stopped() {
            if let Err(error) = client.talk() {
                client.shared.fault(format!("{error:#}"));
                return;
            }
            std::thread::sleep(RETRY);
        }
    });
    let deadline = Instant::now() + LOADED_MAX;
    while shared.lock().view.answers.is_empty() && Instant::now() < deadline {
        std::thread::sleep(RETRY);
    }
    Ok(Follower::new("websocket", &shared, vec![thread]))
}

impl Client {
    /// One connection, from its beginning to its end.
    fn talk(&mut self) -> anyhow::Result<()> {
        let Ok(mut socket) = WebSocketClient::open(&self.web, "/acp") else { return Ok(()) };
        self.shared.lock().connections += 1;
        let abilities = json!({"_meta": {"acp/cursor": true}});
        let hello = request(1, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": abilities}));
        let mut place = json!({"sessionId": self.session, "cwd": self.cwd, "mcpServers": []});
        let open = match &self.cursor {
            None => {
                // Nothing of the load before is kept: it did not come as far as the first cursor.
                self.shared.lock().view = super::super::view::View::default();
                request(2, "session/load", &place)
            }
            Some(cursor) => {
                place["_meta"] = json!({"acp/cursor": cursor});
                request(2, "session/resume", &place)
            }
        };
        if socket.send(&hello).is_err() || socket.send(&open).is_err() {
            return Ok(());
        }
        let mut heard = Instant::now();
        while !self.shared.stopped() {
            match socket.next()? {
                SocketEvent::Message(message) => {
                    heard = Instant::now();
                    self.take(&message)?;
                }
                SocketEvent::Quiet if heard.elapsed() > QUIET_MAX => return Ok(()),
                SocketEvent::Quiet => {}
                SocketEvent::Over => return Ok(()),
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Value) -> anyhow::Result<()> {
        ensure!(message["error"].is_null(), "a call was refused: {message}");
        if let Some(cursor) = message["params"]["_meta"]["acp/cursor"].as_str() {
            if let Some(last) = &self.cursor {
                ensure!(place(last)? < place(cursor)?, "cursor {cursor} came after cursor {last}");
            }
            self.cursor = Some(cursor.to_owned());
        }
        self.shared.take(message);
        Ok(())
    }
}

/// A cursor is the place of an event, or of a frame of the event that follows.
fn place(cursor: &str) -> anyhow::Result<(u64, u64)> {
    Ok(match cursor.split_once('.') {
        Some((event, frame)) => (event.parse()?, frame.parse()?),
        None => (cursor.parse()?, 0),
    })
}
