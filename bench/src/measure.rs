//! The measurements. Each function takes one sample of one agent; the driver interleaves them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::peer::{Peer, Tally};
use crate::stats::{Samples, millis};

const WARM_UP_TURNS: usize = 20;
/// Long enough for every agent to be inside the turn that is then cancelled.
const SETTLE: Duration = Duration::from_millis(20);
/// The kill comes after so many bytes, or twice, three times ... as many: the shortest stream that is
/// killed has 2 MB of text, so even the last of the steps is well inside it.
const KILL_STEP_BYTES: usize = 200 * 1024;
const KILL_STEPS: usize = 7;

pub struct Target<'a> {
    pub command: &'a [String],
    pub home: &'a Path,
}

/// One streamed turn.
pub struct Stream {
    pub chunks_per_s: f64,
    pub notifications: u64,
    pub text_bytes: u64,
    pub peak_kb: u64,
}

/// One `session/load` after a restart.
pub struct Load {
    pub ms: f64,
    pub text_bytes: u64,
    pub notifications: u64,
    /// Whether the replayed text is, byte for byte, what was streamed.
    pub complete: bool,
}

/// One kill in the middle of a stream.
pub struct Kill {
    pub received_chunks: u64,
    pub received_bytes: u64,
    pub lost_bytes: u64,
}

impl Target<'_> {
    fn start(&self) -> anyhow::Result<Peer> {
        let mut peer = Peer::spawn(self.command, self.home)?;
        peer.initialize()?;
        Ok(peer)
    }

    pub fn initialize_ms(&self) -> anyhow::Result<f64> {
        let mut peer = Peer::spawn(self.command, self.home)?;
        let reply = peer.initialize()?;
        let elapsed = reply.at - peer.spawned;
        peer.finish()?;
        Ok(millis(elapsed))
    }

    pub fn first_chunk_ms(&self) -> anyhow::Result<f64> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        let id = peer.send_prompt(&session, "hi")?;
        let reply = peer.reply(id, true)?;
        let elapsed = reply.first_chunk.context("the turn streamed no text")? - peer.spawned;
        peer.finish()?;
        Ok(millis(elapsed))
    }

    pub fn turns_us(&self, turns: usize) -> anyhow::Result<Samples> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        let samples = peer.turns_us(&session, WARM_UP_TURNS, turns)?;
        peer.finish()?;
        Ok(samples)
    }

    pub fn stream(&self, chunks: u64) -> anyhow::Result<Stream> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        peer.prompt(&session, "hi")?;
        let start = Instant::now();
        let reply = peer.prompt(&session, &format!("stream {chunks}"))?;
        let elapsed = reply.at - start;
        let tally = reply.tally()?;
        let peak_kb = peer.memory("VmHWM")?;
        peer.finish()?;
        Ok(Stream {
            chunks_per_s: chunks as f64 / elapsed.as_secs_f64(),
            notifications: tally.notifications,
            text_bytes: tally.text.len() as u64,
            peak_kb,
        })
    }

    pub fn cancel_ms(&self) -> anyhow::Result<f64> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        let id = peer.send_prompt(&session, "sleep 10000")?;
        std::thread::sleep(SETTLE);
        let start = Instant::now();
        peer.cancel(&session)?;
        let reply = peer.turn_end(id, "cancelled")?;
        peer.finish()?;
        Ok(millis(reply.at - start))
    }

    /// Resident memory with so many sessions, each of which has had one turn.
    pub fn memory_kb(&self, counts: &[usize]) -> anyhow::Result<Vec<u64>> {
        let mut peer = self.start()?;
        let (mut open, mut memory) = (0, Vec::new());
        for &count in counts {
            while open < count {
                let session = peer.new_session()?;
                peer.prompt(&session, "hi")?;
                open += 1;
            }
            memory.push(peer.memory("VmRSS")?);
        }
        peer.finish()?;
        Ok(memory)
    }

    /// Fills a session with `events` streamed chunks, and returns its id and its whole text.
    pub fn fill(&self, events: u64, per_turn: u64) -> anyhow::Result<(String, String)> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        let (mut written, mut text) = (0, String::new());
        while written < events {
            let chunks = per_turn.min(events - written);
            text.push_str(&peer.prompt(&session, &format!("stream {chunks}"))?.tally()?.text);
            written += chunks;
        }
        peer.finish()?;
        Ok((session, text))
    }

    pub fn load(&self, session: &str, text: &str) -> anyhow::Result<Load> {
        let mut peer = self.start()?;
        let start = Instant::now();
        let reply = peer.load(session)?;
        let elapsed = reply.at - start;
        let tally = reply.tally()?;
        peer.finish()?;
        Ok(Load {
            ms: millis(elapsed),
            text_bytes: tally.text.len() as u64,
            notifications: tally.notifications,
            complete: tally.text == text,
        })
    }

    /// How many events the agent says the session has, where it can be asked.
    pub fn stored_events(&self, session: &str) -> anyhow::Result<Option<u64>> {
        let mut peer = self.start()?;
        let reply = peer.call("_session/get", &json!({"session_id": session}));
        let count =
            reply.ok().and_then(|reply| reply.result["events"].as_array().map(|events| events.len() as u64));
        peer.finish()?;
        Ok(count)
    }

    pub fn kill(&self, chunks: u64, round: usize) -> anyhow::Result<Kill> {
        let mut peer = self.start()?;
        let session = peer.new_session()?;
        peer.send_prompt(&session, &format!("stream {chunks}"))?;
        let seen = peer.kill_after(KILL_STEP_BYTES * (round % KILL_STEPS + 1))?;
        let received = Tally::of(&seen)?;
        ensure!(received.notifications > 0, "the kill came before the first chunk");
        let mut peer = self.start()?;
        let replayed = peer.load(&session)?.tally()?.text;
        peer.finish()?;
        let kept =
            received.text.bytes().zip(replayed.bytes()).take_while(|(sent, back)| sent == back).count();
        Ok(Kill {
            received_chunks: received.notifications,
            received_bytes: received.text.len() as u64,
            lost_bytes: (received.text.len() - kept) as u64,
        })
    }
}
