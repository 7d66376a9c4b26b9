//! The official remote transport: calls by POST, answers and updates on streams of events that are taken
//! up again with `Last-Event-ID`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::super::http_client::{HttpClient, NextEvent, SseEvents};
use super::{Follower, QUIET_MAX, RETRY, Shared, request};

const ANSWER_MAX: Duration = Duration::from_secs(20);

/// One connection of the transport.
pub struct Remote {
    web: HttpClient,
    pub shared: Shared,
    /// The same number that the log has for what this connection said.
    pub surface: u64,
    last: u64,
    patience: Option<Duration>,
}

/// What became of a POST.
#[derive(Debug, PartialEq, Eq)]
pub enum PostOutcome {
    Accepted,
    /// The answer says that nothing was done and that it may be tried again.
    TryAgain,
    /// Nobody knows: the connection was cut.
    Unknown,
}

impl Remote {
    /// `patience`: how long a silent stream is waited for; none: for ever.
    pub fn connect(web: &HttpClient, patience: Option<Duration>) -> anyhow::Result<Self> {
        let hello = request(1, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let answer = web.post("/acp", &hello)?;
        ensure!(answer.status == 200, "initialize was answered with {}", answer.status);
        let connection = answer.header("acp-connection-id").context("no Acp-Connection-Id")?.to_owned();
        let digits: String = connection.chars().filter(|digit| *digit != '-').take(16).collect();
        let surface = u64::from_str_radix(&digits, 16)?;
        let web = web.with("acp-connection-id", &connection);
        Ok(Self { web, shared: Shared::default(), surface, last: 1, patience })
    }

    /// Opens a session and follows it.
    pub fn open(mut self, name: &'static str, cwd: &Path) -> anyhow::Result<(Self, Follower, String)> {
        let mut threads = vec![self.follow(None)];
        let (id, _) = self.post("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
        let answer = self.wait_for(id)?;
        let session = answer["result"]["sessionId"].as_str().context("no session id")?.to_owned();
        threads.push(self.follow(Some(&session)));
        let follower = Follower { prompts: true, ..Follower::new(name, &self.shared, threads) };
        Ok((self, follower, session))
    }

    /// Loads a session and follows it.
    pub fn load(mut self, name: &'static str, session: &str, cwd: &Path) -> anyhow::Result<Follower> {
        let threads = vec![self.follow(None), self.follow(Some(session))];
        let place = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        let (id, _) = self.post("session/load", &place)?;
        self.wait_for(id)?;
        Ok(Follower::new(name, &self.shared, threads))
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> anyhow::Result<(u64, PostOutcome)> {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.post("session/prompt", &prompt)
    }

    pub fn post(&mut self, method: &str, params: &Value) -> anyhow::Result<(u64, PostOutcome)> {
        self.last += 1;
        let posted = self.send(&request(self.last, method, params))?;
        Ok((self.last, posted))
    }

    /// Says yes to everything that is asked. That is tried until it arrives: only the first answer counts.
    pub fn allow_all(&self) -> anyhow::Result<()> {
        let asked = std::mem::take(&mut self.shared.lock().asked);
        for question in asked {
            let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}});
            if self.send(&answer)? != PostOutcome::Accepted {
                self.shared.lock().asked.push(question);
            }
        }
        Ok(())
    }

    pub fn answered(&self, id: u64) -> bool {
        self.shared.lock().view.answers.contains_key(&id.to_string())
    }

    fn send(&self, message: &Value) -> anyhow::Result<PostOutcome> {
        let Ok(answer) = self.web.post("/acp", message) else { return Ok(PostOutcome::Unknown) };
        match answer.status {
            202 => Ok(PostOutcome::Accepted),
            503 => Ok(PostOutcome::TryAgain),
            status => anyhow::bail!("a POST was answered with {status}: {:?}", answer.text()),
        }
    }

    fn wait_for(&self, id: u64) -> anyhow::Result<Value> {
        let deadline = Instant::now() + ANSWER_MAX;
        while Instant::now() < deadline {
            if let Some(answers) = self.shared.lock().view.answers.get(&id.to_string()) {
                return answers.first().cloned().context("no answer");
            }
            std::thread::sleep(RETRY);
        }
        anyhow::bail!("request {id} was not answered")
    }

    /// Reads a stream for as long as the client lives.
    fn follow(&self, session: Option<&str>) -> std::thread::JoinHandle<()> {
        let mut web = self.web.with("accept", "text/event-stream");
        if let Some(session) = session {
            web = web.with("acp-session-id", session);
        }
        let (shared, patience) = (self.shared.clone(), self.patience);
        let of_session = session.is_some();
        std::thread::spawn(move || {
            let mut place = StreamPosition { last: None, of_session };
            while !shared.stopped() {
                if let Err(error) = place.read(&web, &shared, patience) {
                    shared.fault(format!("{error:#}"));
                    return;
                }
                std::thread::sleep(RETRY);
            }
        })
    }
}

/// How much of a stream the client has.
struct StreamPosition {
    last: Option<String>,
    of_session: bool,
}

impl StreamPosition {
    /// Reads until the stream ends.
    fn read(&mut self, web: &HttpClient, shared: &Shared, patience: Option<Duration>) -> anyhow::Result<()> {
        let web = match &self.last {
            Some(last) => web.with("last-event-id", last),
            None => web.clone(),
        };
        // Whatever went wrong went wrong on the way.
        let Ok(answer) = web.get("/acp") else { return Ok(()) };
        match answer.status {
            200 => {}
            503 => return Ok(()),
            // The stream that was lost is still there for the server, and the client has nothing to show.
            409 if self.last.is_none() => return Ok(()),
            status => {
                let Ok(text) = answer.text() else { return Ok(()) };
                anyhow::bail!("the stream after {:?} was refused with {status}: {text}", self.last)
            }
        }
        shared.lock().connections += 1;
        let mut events = SseEvents::of(answer);
        let mut heard = Instant::now();
        while !shared.stopped() {
            match events.next()? {
                NextEvent::Event(event) => {
                    heard = Instant::now();
                    let id = event.id.clone().context("an event without an id")?;
                    self.passes(&id)?;
                    self.last = Some(id);
                    shared.take(&event.json());
                }
                NextEvent::Quiet if patience.is_some_and(|patience| heard.elapsed() > patience) => {
                    return Ok(());
                }
                NextEvent::Quiet => {}
                NextEvent::Over => return Ok(()),
            }
        }
        Ok(())
    }

    /// Ids only ever grow.
    fn passes(&self, id: &str) -> anyhow::Result<()> {
        let Some(last) = &self.last else { return Ok(()) };
        let (before, after) =
            if self.of_session { (position(last)?, position(id)?) } else { (counted(last)?, counted(id)?) };
        ensure!(before < after, "event {id} came after event {last}");
        Ok(())
    }
}

/// Places in order: the event, then the process that counted and its count, then frames of the event
/// that follows.
type CursorOrder = (u64, u64, u64, u64);

fn position(id: &str) -> anyhow::Result<CursorOrder> {
    match (id.split_once('+'), id.split_once('.')) {
        (Some((event, extra)), _) => {
            let (_, process, count, _) = counted(extra)?;
            Ok((event.parse()?, process, count, 0))
        }
        (None, Some((event, frame))) => Ok((event.parse()?, u64::MAX, u64::MAX, frame.parse()?)),
        (None, None) => Ok((id.parse()?, 0, 0, 0)),
    }
}

/// The connection's own frames are counted, by each process anew.
fn counted(id: &str) -> anyhow::Result<CursorOrder> {
    let (process, count) = id.split_once('-').context("an id of no form")?;
    Ok((0, u64::from_str_radix(process, 16)?, count.parse()?, 0))
}

pub fn usual(web: &HttpClient) -> anyhow::Result<Remote> {
    Remote::connect(web, Some(QUIET_MAX))
}
