//! What it costs to stand between a client and an agent: the same turns with and without the server.
//!
//! The scripted agent says when it sent each update, so the time of one update on its way is measured, not
//! derived. A real agent cannot say that; of it the time of a turn with many updates is taken.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;

use crate::peer::{Peer, agent_text};
use crate::prompt::nanos;
use crate::stats::Samples;

const WARM_UP_TURNS: usize = 3;
/// As long as a person's agent takes at best between two pieces of text.
const TICK_MICROS: u64 = 1000;

/// One command and where it runs.
pub struct Way<'a> {
    pub command: &'a [String],
    pub home: &'a Path,
}

impl Way<'_> {
    fn start(&self) -> anyhow::Result<(Peer, String)> {
        let mut peer = Peer::spawn(self.command, self.home)?;
        peer.initialize()?;
        let session = peer.new_session()?;
        Ok((peer, session))
    }

    /// How long each update was on its way, in microseconds.
    pub fn latency_us(&self, updates: u64) -> anyhow::Result<Samples> {
        let (mut peer, session) = self.start()?;
        for _ in 0..WARM_UP_TURNS {
            peer.prompt(&session, "hi")?;
        }
        let id = peer.send_prompt(&session, &format!("tick {updates} {TICK_MICROS}"))?;
        let (mut samples, mut heard) = (Samples::default(), 0);
        peer.each_update(id, |update| {
            let now = nanos();
            // Where neighbours were merged, each of them has its own time.
            for sent in
                agent_text(update).unwrap_or_default().split(';').filter_map(|sent| sent.parse::<u128>().ok())
            {
                heard += 1;
                samples.push(now.saturating_sub(sent) as f64 / 1000.0);
            }
        })?;
        ensure!(heard == updates, "{heard} of {updates} updates came");
        peer.finish()?;
        Ok(samples)
    }

    /// Updates per second of one turn. `text_bytes` is what must have come.
    pub fn updates_per_s(&self, prompt: &str, updates: u64, text_bytes: usize) -> anyhow::Result<f64> {
        let (mut peer, session) = self.start()?;
        peer.prompt(&session, "hi")?;
        let start = Instant::now();
        let reply = peer.prompt(&session, prompt)?;
        let elapsed = reply.at - start;
        let came = reply.tally()?.text.len();
        ensure!(came >= text_bytes, "{came} of {text_bytes} bytes of text came");
        peer.finish()?;
        Ok(updates as f64 / elapsed.as_secs_f64())
    }

    /// One short turn, in microseconds.
    pub fn turns_us(&self, turns: usize) -> anyhow::Result<Samples> {
        let (mut peer, session) = self.start()?;
        let samples = peer.turns_us(&session, WARM_UP_TURNS, turns)?;
        peer.finish()?;
        Ok(samples)
    }

    /// Resident memory of the process that the client started: with one session, of that what is not its program's
    /// file, and with more sessions.
    pub fn memory_kb(&self, more: usize) -> anyhow::Result<[u64; 3]> {
        let (mut peer, session) = self.start()?;
        peer.prompt(&session, "hi")?;
        let (one, own) = (peer.memory("VmRSS")?, peer.memory("RssAnon")?);
        for _ in 0..more {
            let session = peer.new_session()?;
            peer.prompt(&session, "hi")?;
        }
        let many = peer.memory("VmRSS")?;
        peer.finish()?;
        Ok([one, own, many])
    }
}
