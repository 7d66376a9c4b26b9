//! A reader of the REST stream, and what it must get again whatever happened to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::machine::{Fault, Tally};
use super::state_folder::StateFolder;
use crate::chaos::http_client::{HttpClient, NextEvent, SseEvents};
use crate::random::Random;

const TOKEN: &str = "the-token-of-the-faults-run";
const START_MAX: Duration = Duration::from_secs(20);
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Nothing for so long means that all of it has come.
const QUIET: Duration = Duration::from_millis(300);
/// A session is left alone before reading it makes rounds slow.
const ROUNDS_PER_SESSION: u64 = 12;

/// A server over HTTP.
pub struct HttpServer {
    child: Child,
    web: HttpClient,
}

impl HttpServer {
    pub fn start(world: &StateFolder, address: SocketAddr, log: &Path) -> anyhow::Result<Self> {
        let stderr = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = world.command(&["serve", "--http", &address.to_string()]);
        command.env("ROPEWALK_SERVER_TOKEN", TOKEN).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().context("starting the server")?;
        let headers = vec![("authorization".to_owned(), format!("Bearer {TOKEN}"))];
        let mut door = Self { child, web: HttpClient { address, host: address, headers } };
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline {
            if let Some(status) = door.child.try_wait()? {
                bail!("the server ended with {status}; see {}", log.display());
            }
            if TcpStream::connect(address).is_ok()
                && door.web.get("/ready").is_ok_and(|answer| answer.status == 200)
            {
                return Ok(door);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not begin to serve in time")
    }

    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop).context("waiting for the server")
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port that was free a moment ago.
pub fn address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// What a client knows of one session.
#[derive(Default)]
pub struct RestChecker {
    session: Option<String>,
    rounds: u64,
    frames: BTreeMap<u64, String>,
    /// Frames that a power cut took back. Their numbers may not come again for something else.
    gone: BTreeMap<u64, String>,
    /// The last frame of a turn that was seen to its end.
    ended: u64,
    /// The ids of prompts that were accepted.
    accepted: BTreeSet<String>,
}

impl RestChecker {
    /// Prompts, and reads what comes of it until the time is over. Says whether the turn has ended by then.
    pub fn work(
        &mut self,
        door: &HttpServer,
        round: u64,
        time: Duration,
        tally: &mut Tally,
    ) -> anyhow::Result<bool> {
        if self.rounds.is_multiple_of(ROUNDS_PER_SESSION) {
            *self = Self::default();
            let made = json_of(door.web.post("/session", &json!({}))?.text()?)?;
            self.session = made["session_id"].as_str().map(str::to_owned);
        }
        self.rounds += 1;
        let Some(session) = self.session.clone() else { bail!("no session was made") };
        let mut events = self.follow(door, &session)?;
        // The pauses leave room to hit what was said and is not yet settled.
        let words = format!("stream 60 {0} && then sleep 25 && then stream 60 {0}", 60 + round);
        let id = self.prompt(door, &session, &words, tally)?;
        let end = Instant::now() + time;
        self.read(&mut events, end, &id, tally)
    }

    /// After a start: everything that counts is there as it was, and the reader can go on.
    pub fn verify(
        &mut self,
        door: &HttpServer,
        round: u64,
        power_cut: bool,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let Some(all) = all(door, &session)? else {
            tally.fault(Fault::Lost, "a session whose prompts were accepted");
            *self = Self::default();
            return Ok(());
        };
        for (id, frame) in self.frames.iter().chain(&self.gone) {
            match all.get(id) {
                None if self.gone.contains_key(id) => {}
                Some(now) if now != frame => {
                    tally.fault(Fault::Reused, format!("frame {id} was {frame}, and is {now}"));
                }
                None if !power_cut || *id <= self.ended => {
                    tally.fault(Fault::Lost, format!("frame {id} of {}: {frame}", self.frames.len()));
                }
                Some(_) | None => {}
            }
        }
        let (there, gone) =
            std::mem::take(&mut self.frames).into_iter().partition(|(id, _)| all.contains_key(id));
        self.frames = there;
        self.gone.extend::<BTreeMap<_, _>>(gone);
        for prompt in &self.accepted {
            if !all.values().any(|frame| frame.contains(prompt.as_str())) {
                tally.fault(Fault::Lost, format!("the accepted prompt {prompt}"));
            }
        }
        let mut results = BTreeMap::<String, u64>::new();
        for frame in all.values().filter(|frame| frame.starts_with("result ")) {
            *results.entry(message_id(frame)).or_default() += 1;
        }
        for (id, count) in results.iter().filter(|(_, count)| **count > 1) {
            tally.fault(Fault::Doubled, format!("{count} ends of {id}"));
        }
        let mut events = self.follow(door, &session)?;
        let id = self.prompt(door, &session, &format!("stream 2 {}", 60 + round), tally)?;
        if !self.read(&mut events, Instant::now() + ANSWER_MAX, &id, tally)? {
            tally.fault(Fault::Lost, format!("a reader that came back after the fault did not see {id}"));
        }
        Ok(())
    }

    fn prompt(
        &mut self,
        door: &HttpServer,
        session: &str,
        text: &str,
        tally: &mut Tally,
    ) -> anyhow::Result<String> {
        let answer = door.web.post(&format!("/sessions/{session}/prompt"), &json!({ "prompt": text }))?;
        ensure!(answer.status == 202, "a prompt was refused with {}", answer.status);
        let made = json_of(answer.text()?)?;
        let id = made["message_id"].as_str().context("a message id")?.to_owned();
        if !self.accepted.insert(id.clone()) {
            tally.fault(Fault::Reused, format!("the message id {id}"));
        }
        Ok(id)
    }

    /// The last frame that the client has seen, whatever became of it.
    fn last(&self) -> u64 {
        let last = |frames: &BTreeMap<u64, String>| frames.keys().next_back().copied();
        last(&self.frames).max(last(&self.gone)).unwrap_or(0)
    }

    fn follow(&self, door: &HttpServer, session: &str) -> anyhow::Result<SseEvents> {
        let web = match self.last() {
            0 => door.web.clone(),
            last => door.web.with("last-event-id", &last.to_string()),
        };
        let answer = web.get(&format!("/session/{session}/events"))?;
        ensure!(answer.status == 200, "the events were refused with {}", answer.status);
        Ok(SseEvents::of(answer))
    }

    /// Says whether the end of this prompt's turn has come.
    fn read(
        &mut self,
        events: &mut SseEvents,
        end: Instant,
        prompt: &str,
        tally: &mut Tally,
    ) -> anyhow::Result<bool> {
        while Instant::now() < end {
            let event = match events.next()? {
                NextEvent::Event(event) => event,
                NextEvent::Quiet => continue,
                NextEvent::Over => return Ok(false),
            };
            let id: u64 = event.id.as_deref().context("an event without an id")?.parse()?;
            let frame = format!("{} {}", event.event.unwrap_or_default(), event.data);
            let last = self.last();
            if id <= last {
                tally.fault(Fault::Doubled, format!("frame {id} came after {last}"));
            }
            let ended = frame.starts_with("result ");
            if ended {
                self.ended = id;
            }
            let ours = ended && message_id(&frame) == prompt;
            self.frames.insert(id, frame);
            if ours {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Every frame that there is; nothing if there is no such session.
fn all(door: &HttpServer, session: &str) -> anyhow::Result<Option<BTreeMap<u64, String>>> {
    let answer = door.web.get(&format!("/session/{session}/events"))?;
    if answer.status == 404 {
        return Ok(None);
    }
    ensure!(answer.status == 200, "the events were refused with {}", answer.status);
    let (mut events, mut frames, mut heard) = (SseEvents::of(answer), BTreeMap::new(), Instant::now());
    while heard.elapsed() < QUIET {
        if let NextEvent::Event(event) = events.next()? {
            heard = Instant::now();
            let id: u64 = event.id.as_deref().context("an event without an id")?.parse()?;
            frames.insert(id, format!("{} {}", event.event.unwrap_or_default(), event.data));
        }
    }
    Ok(Some(frames))
}

fn message_id(frame: &str) -> String {
    let data = frame.split_once(' ').map_or("", |(_, data)| data);
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    data["message_id"].as_str().unwrap_or_default().to_owned()
}

fn json_of(text: String) -> anyhow::Result<Value> {
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

/// `kill -9` of a server over HTTP, in turns, with a reader of the stream.
pub fn kills(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Tally> {
    let (world, address) = (StateFolder::new(home)?, address()?);
    let mut tally = Tally::new("`kill -9` of `serve --http` in a turn, with a REST reader");
    let mut witness = RestChecker::default();
    for round in 0..count {
        let log = home.join("stderr.log");
        let door = HttpServer::start(&world, address, &log)?;
        let context = || format!("round {round}");
        witness.verify(&door, round, false, &mut tally).with_context(context)?;
        let time = random.moment_within(Duration::from_millis(80));
        let ended = witness.work(&door, round, time, &mut tally).with_context(context)?;
        door.kill()?;
        tally.runs += 1;
        tally.hit += u64::from(!ended);
    }
    Ok(tally)
}

/// A store of devices is left alone before it is full.
const ROUNDS_PER_HOME: u64 = 20;

/// `kill -9` of a server while a browser signs in: a device that was let in stays known, once.
pub fn pairing(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Tally> {
    let mut tally = Tally::new("`kill -9` of `serve --http` while a device is paired");
    let address = address()?;
    let (mut world, mut known) = (StateFolder::new(&home.join("0"))?, BTreeSet::new());
    for round in 0..count {
        if round % ROUNDS_PER_HOME == 0 {
            (world, known) = (StateFolder::new(&home.join(round.to_string()))?, BTreeSet::new());
        }
        let log = world.home.join("stderr.log");
        let door = HttpServer::start(&world, address, &log)?;
        let name = format!("device-{round}");
        let link = json_of(door.web.post("/ui/link", &json!({}))?.text()?)?;
        let code = link["url"].as_str().and_then(|url| url.split_once('#')).context("a link with a code")?;
        let body = json!({ "code": code.1, "name": name });
        let stranger =
            HttpClient { headers: vec![("origin".into(), format!("http://{address}"))], ..door.web.clone() };
        let entering =
            std::thread::spawn(move || stranger.post("/ui/enter", &body).map(|answer| answer.status));
        std::thread::sleep(random.moment_within(Duration::from_millis(12)));
        door.kill()?;
        let answered = entering.join().ok().and_then(Result::ok);
        tally.runs += 1;
        tally.hit += u64::from(answered.is_none());
        ensure!(answered.is_none_or(|status| status == 200), "signing in was refused with {answered:?}");
        let door = HttpServer::start(&world, address, &log)?;
        let listed = devices(&world)?;
        door.kill()?;
        let there: BTreeSet<_> = listed.iter().cloned().collect();
        if there.len() < listed.len() {
            tally.fault(Fault::Doubled, format!("{listed:?}"));
        }
        for gone in known.difference(&there) {
            tally.fault(Fault::Lost, gone.clone());
        }
        if answered.is_some() && !there.contains(&name) {
            tally.fault(Fault::Lost, name);
        }
        known = there;
    }
    Ok(tally)
}

fn devices(world: &StateFolder) -> anyhow::Result<Vec<String>> {
    let mut list = world.command(&["devices", "list", "--json"]);
    let output = list.env("ROPEWALK_SERVER_TOKEN", TOKEN).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "devices list: {}", error.trim());
    let listed = json_of(String::from_utf8(output.stdout)?)?;
    let devices = listed["devices"].as_array().context("a list of devices")?;
    Ok(devices.iter().filter_map(|device| device["name"].as_str().map(str::to_owned)).collect())
}
