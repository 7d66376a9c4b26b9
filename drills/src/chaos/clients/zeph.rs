//! zeph's shape of the transport: frames are numbered per connection, and a client that was cut off
//! goes on with `GET /acp` and `Last-Event-ID`. A connection that is not there any more is begun again,
//! with a load.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::super::http_client::{HttpClient, HttpResponse, NextEvent, SseEvents};
use super::super::view::View;
use super::{Follower, QUIET_MAX, RETRY, Shared, request};

const LOADED_MAX: Duration = Duration::from_secs(10);
/// How long the answer to a load is waited for before it is asked for again.
const LOAD_WAIT: Duration = Duration::from_secs(2);

struct Client {
    web: HttpClient,
    session: String,
    cwd: Value,
    shared: Shared,
    connection: Option<Connection>,
}

struct Connection {
    web: HttpClient,
    last: u64,
    since: Instant,
    /// The load was sent, whether it arrived or not.
    asked: bool,
}

enum Read {
    GoOn,
    /// The server does not have this connection, or not so much of it.
    BeginAgain,
}

pub fn follow(web: &HttpClient, session: &str, cwd: &Path) -> anyhow::Result<Follower> {
    let shared = Shared::default();
    let mut client = Client {
        web: web.with("accept", "text/event-stream"),
        session: session.to_owned(),
        cwd: json!(cwd),
        shared: shared.clone(),
        connection: None,
    };
    let thread = std::thread::spawn(move || {
        while !client.shared.stopped() {
            if let Err(error) = client.go_on() {
                client.shared.fault(format!("{error:#}"));
                return;
            }
            std::thread::sleep(RETRY);
        }
    });
    let deadline = Instant::now() + LOADED_MAX;
    while !loaded(&shared) && Instant::now() < deadline {
        std::thread::sleep(RETRY);
    }
    Ok(Follower::new("zeph", &shared, vec![thread]))
}

fn loaded(shared: &Shared) -> bool {
    shared.lock().view.answers.contains_key("2")
}

impl Client {
    fn go_on(&mut self) -> anyhow::Result<()> {
        let Some(connection) = &mut self.connection else { return self.begin() };
        // The answer to the first call is there: what is posted from here on is answered from here on.
        if connection.last > 0 && !connection.asked {
            connection.asked = true;
            return self.load();
        }
        let web = connection.web.with("last-event-id", &connection.last.to_string());
        let Ok(answer) = web.get("/acp") else { return Ok(()) };
        match answer.status {
            200 => {
                if let Read::BeginAgain = self.read(answer)? {
                    self.begin_again();
                }
            }
            404 | 409 => self.begin_again(),
            503 => {}
            status => anyhow::bail!("the stream was refused with {status}: {:?}", answer.text()),
        }
        Ok(())
    }

    fn begin_again(&mut self) {
        self.connection = None;
        self.shared.lock().restarts += 1;
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.shared.lock().view = View::default();
        let hello = request(1, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let Ok(answer) = self.web.post("/acp", &hello) else { return Ok(()) };
        if answer.status != 200 {
            return Ok(());
        }
        let name = answer.header("acp-session-id").context("no Acp-Session-Id")?;
        let web = self.web.with("acp-session-id", name);
        self.connection = Some(Connection { web, last: 0, since: Instant::now(), asked: false });
        self.read(answer).map(drop)
    }

    fn load(&mut self) -> anyhow::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let place = json!({"sessionId": self.session, "cwd": self.cwd, "mcpServers": []});
        // Whether it arrived or not, what comes of it comes on the stream.
        if let Ok(answer) = connection.web.post("/acp", &request(2, "session/load", &place))
            && answer.status == 200
        {
            self.read(answer)?;
        }
        Ok(())
    }

    fn read(&mut self, answer: HttpResponse) -> anyhow::Result<Read> {
        let Some(connection) = &mut self.connection else { return Ok(Read::BeginAgain) };
        self.shared.lock().connections += 1;
        let mut events = SseEvents::of(answer);
        let mut heard = Instant::now();
        while !self.shared.stopped() {
            if !loaded(&self.shared) && connection.since.elapsed() > LOAD_WAIT {
                return Ok(Read::BeginAgain);
            }
            match events.next()? {
                NextEvent::Event(event) => {
                    heard = Instant::now();
                    let number: u64 = event.id.as_deref().context("an event without an id")?.parse()?;
                    ensure!(
                        number == connection.last + 1,
                        "event {number} came after event {}",
                        connection.last
                    );
                    connection.last = number;
                    self.shared.take(&event.json());
                }
                NextEvent::Quiet if heard.elapsed() > QUIET_MAX => return Ok(Read::GoOn),
                NextEvent::Quiet => {}
                NextEvent::Over => return Ok(Read::GoOn),
            }
        }
        Ok(Read::GoOn)
    }
}
