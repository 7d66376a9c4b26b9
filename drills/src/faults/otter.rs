//! A client that speaks otter on standard input and output, whose updates have numbers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::machine::{Fault, Tally};
use super::state_folder::StateFolder;
use crate::peer::{Frame, Peer};

const ANSWER_MAX: Duration = Duration::from_secs(15);
const ROUNDS_PER_SESSION: u64 = 12;

/// What the client knows of one session.
#[derive(Default)]
pub struct OtterChecker {
    session: Option<String>,
    rounds: u64,
    updates: BTreeMap<u64, String>,
    /// Updates that a power cut took back. Their numbers may not come again for something else.
    gone: BTreeMap<u64, String>,
    /// The last update of a turn that was seen to its end.
    ended: u64,
}

/// Starts the server and says hello.
pub fn connect(world: &StateFolder) -> anyhow::Result<Peer> {
    let mut peer = Peer::spawn(&world.words(&["serve", "--dialect", "otter"]), &world.home)?;
    let id = peer.send("initialize", &json!({}))?;
    peer.result(id, ANSWER_MAX).context("initialize")?;
    Ok(peer)
}

impl OtterChecker {
    /// Prompts, and reads what comes of it until the time is over. Says whether the turn has ended by then.
    pub fn work(
        &mut self,
        peer: &mut Peer,
        (round, cwd): (u64, &Path),
        time: Duration,
        tally: &mut Tally,
    ) -> anyhow::Result<bool> {
        if self.rounds.is_multiple_of(ROUNDS_PER_SESSION) {
            *self = Self::default();
            let id = peer.send("session/new", &json!({ "cwd": cwd }))?;
            let made = peer.result(id, ANSWER_MAX).context("session/new")?;
            self.session = made["sessionId"].as_str().map(str::to_owned);
        }
        self.rounds += 1;
        let words = format!("stream 60 {0} && then sleep 25 && then stream 60 {0}", 60 + round);
        self.message(peer, &words, Instant::now() + time, tally)
    }

    /// After a start: everything that counts is there as it was, and what is new has new numbers.
    pub fn verify(&mut self, peer: &mut Peer, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let id = peer.send("session/load", &json!({ "sessionId": session }))?;
        let mut all = BTreeMap::new();
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            match peer.next(deadline)?.context("session/load was not answered")? {
                Frame::Update(params) => drop(all.insert(number(&params)?, params["update"].to_string())),
                Frame::Response { id: answered, error, .. } if answered == id => {
                    if let Some(error) = error {
                        // One in which nothing has happened yet may be gone: only its name was told.
                        if !self.updates.is_empty() {
                            tally.fault(Fault::Lost, format!("a session that was worked in: {error}"));
                        }
                        *self = Self::default();
                        return Ok(());
                    }
                    break;
                }
                Frame::Response { .. } | Frame::Request { .. } | Frame::Broken(_) => {}
            }
        }
        for (number, update) in self.updates.iter().chain(&self.gone) {
            match all.get(number) {
                None if self.gone.contains_key(number) => {}
                Some(now) if now != update => {
                    tally.fault(Fault::Reused, format!("update {number} was {update}, and is {now}"));
                }
                None if *number <= self.ended => {
                    tally.fault(Fault::Lost, format!("update {number}: {update}"))
                }
                Some(_) | None => {}
            }
        }
        let known = std::mem::take(&mut self.updates);
        let (there, gone) = known.into_iter().partition(|(number, _)| all.contains_key(number));
        self.updates = there;
        self.gone.extend::<BTreeMap<_, _>>(gone);
        let words = format!("stream 2 {}", 60 + round);
        if !self.message(peer, &words, Instant::now() + ANSWER_MAX, tally)? {
            tally.fault(Fault::Lost, "a prompt after the fault was not answered");
        }
        Ok(())
    }

    fn message(
        &mut self,
        peer: &mut Peer,
        text: &str,
        end: Instant,
        tally: &mut Tally,
    ) -> anyhow::Result<bool> {
        let id = peer.send("session/message", &json!({ "sessionId": self.session, "message": text }))?;
        while let Some(frame) = peer.next(end)? {
            match frame {
                Frame::Update(params) => {
                    let (number, update) = (number(&params)?, params["update"].to_string());
                    let last = |updates: &BTreeMap<u64, String>| updates.keys().next_back().copied();
                    let last = last(&self.updates).max(last(&self.gone)).unwrap_or(0);
                    match self.updates.get(&number) {
                        Some(before) if *before != update => {
                            tally.fault(Fault::Reused, format!("update {number}: {before}, then {update}"));
                        }
                        Some(_) => tally.fault(Fault::Doubled, format!("update {number} came again")),
                        None if number <= last => {
                            tally.fault(Fault::Reused, format!("update {number} came after {last}"));
                        }
                        None => {}
                    }
                    if params["update"]["sessionUpdate"] == "turn_end" {
                        self.ended = number;
                    }
                    self.updates.insert(number, update);
                }
                Frame::Response { id: answered, error, .. } if answered == id => {
                    ensure!(error.is_none(), "a message was refused: {error:?}");
                    return Ok(true);
                }
                Frame::Response { .. } | Frame::Request { .. } | Frame::Broken(_) => {}
            }
        }
        Ok(false)
    }
}

fn number(params: &Value) -> anyhow::Result<u64> {
    params["eventId"].as_u64().with_context(|| format!("an update without a number: {params}"))
}
