//! A test browser: a cookie, a socket, folded rows, and reconnects.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::hubs::address::{HubAddress, Stream};

pub const DEADLINE: Duration = Duration::from_secs(90);
/// A line on which nothing comes back for this long is given up, as a browser's page does.
const SUSPECT: Duration = Duration::from_secs(6);
pub const PAUSE: Duration = Duration::from_millis(100);

pub struct Browser {
    hub: HubAddress,
    cookie: String,
    proof: String,
    socket: Option<WebSocketStream<Box<dyn Stream>>>,
    next: u64,
    /// The session that it shows.
    watched: Option<String>,
    /// The request to watch that is not answered yet.
    watching: Option<u64>,
    upto: Option<u64>,
    pub rows: BTreeMap<u64, Value>,
    pub state: Value,
    pub cards: BTreeMap<String, Value>,
    pub machines: Vec<Value>,
    /// How often it had to come back.
    pub returns: u64,
}

/// The line broke before there was an answer.
#[derive(Debug)]
pub struct ConnectionLost;

impl Browser {
    /// Comes in by the code of a link.
    pub async fn enter(hub: &HubAddress, code: &str) -> Self {
        let body = json!({ "code": code, "name": "a browser" }).to_string();
        let head = [
            "POST /ui/enter HTTP/1.1".to_owned(),
            format!("host: {}", hub.host()),
            format!("origin: {}", hub.url),
            "sec-fetch-site: same-origin".to_owned(),
            "content-type: application/json".to_owned(),
            format!("content-length: {}", body.len()),
            "connection: close".to_owned(),
        ];
        let mut stream = hub.open().await.unwrap();
        stream.write_all(format!("{}\r\n\r\n{body}", head.join("\r\n")).as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut reply)).await.unwrap().unwrap();
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
        let (_, cookie) = reply.split_once("set-cookie: ").unwrap_or_else(|| panic!("no cookie: {reply}"));
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let (_, proof) = reply.split_once(r#""proof":""#).unwrap_or_else(|| panic!("no proof: {reply}"));
        Self::with(hub.clone(), cookie, proof.split('"').next().unwrap().to_owned())
    }

    fn with(hub: HubAddress, cookie: String, proof: String) -> Self {
        Self {
            hub,
            cookie,
            proof,
            socket: None,
            next: 0,
            watched: None,
            watching: None,
            upto: None,
            rows: BTreeMap::new(),
            state: Value::Null,
            cards: BTreeMap::new(),
            machines: Vec::new(),
            returns: 0,
        }
    }

    /// Another window of the same browser, which knows nothing yet.
    pub fn window(&self) -> Self {
        Self::with(self.hub.clone(), self.cookie.clone(), self.proof.clone())
    }

    /// Shows a session from here on, from its end.
    pub async fn watch(&mut self, session: &str) {
        self.watched = Some(session.to_owned());
        self.upto = None;
        self.rows.clear();
        self.socket = None;
        let watched = session.to_owned();
        self.until("the session is shown", |seen| {
            seen.upto.is_some() && seen.watched.as_ref() == Some(&watched)
        })
        .await;
    }

    /// Asks until there is an answer. What is asked must bear being asked twice.
    pub async fn ask(&mut self, request: Value) -> Result<Value, Value> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "no answer to {request}");
            match self.ask_once(request.clone()).await {
                // Whoever is away now may be back soon.
                Ok(Err(error)) if error["code"] == "busy" => self.listen(PAUSE * 3).await,
                Ok(answer) => return answer,
                Err(ConnectionLost) => {}
            }
        }
    }

    pub async fn ask_once(&mut self, mut request: Value) -> Result<Result<Value, Value>, ConnectionLost> {
        self.connect().await?;
        self.next += 1;
        let id = self.next;
        request["id"] = id.into();
        self.send(&request).await?;
        let deadline = Instant::now() + SUSPECT;
        loop {
            match self.frame(deadline).await? {
                None => {
                    self.socket = None;
                    return Err(ConnectionLost);
                }
                Some(frame) if frame["re"] == id => {
                    return Ok(match frame.get("ok") {
                        Some(ok) if !ok.is_null() => Ok(ok.clone()),
                        _ => Err(frame["error"].clone()),
                    });
                }
                Some(frame) => self.take(&frame),
            }
        }
    }

    /// Reads along until something is so.
    pub async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !so(self) {
            assert!(
                Instant::now() < deadline,
                "not so in time: {what}; {:?} {:?}",
                self.state,
                self.rows.values().last()
            );
            self.listen(PAUSE).await;
        }
    }

    /// Reads along for a while.
    pub async fn listen(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if self.connect().await.is_err() {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            match self.frame(deadline).await {
                Ok(Some(frame)) => self.take(&frame),
                Ok(None) => return,
                Err(ConnectionLost) => {}
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        self.state["busy"] == false
    }

    /// What was said by anybody, in order.
    pub fn said(&self) -> String {
        self.rows.values().filter_map(|row| row["text"].as_str()).collect::<Vec<_>>().join("\n")
    }

    async fn connect(&mut self) -> Result<(), ConnectionLost> {
        if self.socket.is_some() {
            return Ok(());
        }
        let mut request = format!("ws://{}/ui/socket", self.hub.host()).into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("cookie", self.cookie.parse().unwrap());
        headers.insert("origin", self.hub.url.parse().unwrap());
        let offered = format!("ropewalk.v1, proof.{}", self.proof);
        headers.insert("sec-websocket-protocol", offered.parse().unwrap());
        let opened = async {
            let stream = self.hub.open().await.map_err(|_| ConnectionLost)?;
            tokio_tungstenite::client_async(request, stream).await.map_err(|_| ConnectionLost)
        };
        let Ok(Ok((socket, _))) = timeout(SUSPECT, opened).await else {
            tokio::time::sleep(PAUSE).await;
            return Err(ConnectionLost);
        };
        self.socket = Some(socket);
        self.returns += 1;
        if let Some(session) = self.watched.clone() {
            self.next += 1;
            self.watching = Some(self.next);
            let watch = json!({ "id": self.next, "do": "watch", "session": session, "after": self.upto });
            self.send(&watch).await?;
        }
        Ok(())
    }

    async fn send(&mut self, value: &Value) -> Result<(), ConnectionLost> {
        let Some(socket) = &mut self.socket else { return Err(ConnectionLost) };
        let sent = timeout(SUSPECT, socket.send(Message::text(value.to_string()))).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.socket = None;
            return Err(ConnectionLost);
        }
        Ok(())
    }

    /// Nothing, if nothing came until then.
    async fn frame(&mut self, until: Instant) -> Result<Option<Value>, ConnectionLost> {
        loop {
            let Some(socket) = &mut self.socket else { return Err(ConnectionLost) };
            match tokio::time::timeout_at(until, socket.next()).await {
                Err(_) => return Ok(None),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(Some(serde_json::from_str(&text).unwrap())),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(_) => {
                    self.socket = None;
                    return Err(ConnectionLost);
                }
            }
        }
    }

    fn take(&mut self, frame: &Value) {
        if self.watching.is_some() && frame["re"].as_u64() == self.watching && !frame["error"].is_null() {
            // A session that was just opened is not known to the hub yet.
            self.socket = None;
        }
        match frame["on"].as_str() {
            Some("view") if frame["session"].as_str() == self.watched.as_deref() => self.view(frame),
            Some("cards") => {
                for card in frame["cards"].as_array().unwrap() {
                    self.cards.insert(card["session"].as_str().unwrap().to_owned(), card.clone());
                }
            }
            Some("machines") => self.machines = frame["machines"].as_array().unwrap().clone(),
            _ => {}
        }
    }

    /// As the page does it (`web/src/lib/rows.ts`).
    fn view(&mut self, view: &Value) {
        if view["reset"] == true {
            self.rows.clear();
        }
        for row in view["rows"].as_array().unwrap() {
            self.rows.insert(row["id"].as_u64().unwrap(), row.clone());
        }
        for append in view["appends"].as_array().unwrap() {
            let Some(row) = self.rows.get_mut(&append["row"].as_u64().unwrap()) else { continue };
            if append["rev"].as_u64() <= row["rev"].as_u64() {
                continue;
            }
            let member = if row["is"] == "tool" { "output" } else { "text" };
            let text =
                format!("{}{}", row[member].as_str().unwrap_or_default(), append["text"].as_str().unwrap());
            row[member] = text.into();
            row["rev"] = append["rev"].clone();
        }
        if !view["state"].is_null() {
            self.state = view["state"].clone();
        }
        self.upto = view["upto"].as_u64();
    }
}
