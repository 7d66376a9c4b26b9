//! The journal of an external agent: what it said, frame by frame, in a form that can be judged later.
//!
//! One line of JSON for each frame, in the order in which they came: a [`Step`]. Its `sha256` is that of the
//! frame as it stands there, which is without secrets; `fault` is why it is not what the protocol says;
//! `heard` is what the decoder of live sessions makes of it. `chain` binds the step to all before it. So a
//! line that was changed, taken out, put in or moved is found, and the first such step has a number.
//!
//! The chain has no key: it tells accidents and careless hands, not somebody who writes the whole rest of the
//! file anew. Who must know keeps the last link elsewhere ([`Sound::chain`]).
//!
//! **Invariant:** [`Replay`] takes exactly what a [`Scribe`] wrote, byte for byte, and nothing else.

mod against;
mod sense;
#[cfg(test)]
mod tests;

use std::fmt;

use engine::Redactor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use against::Against;
use sense::{Sense, Sensed};

/// The format that a [`Scribe`] writes.
const VERSION: u32 = 1;
/// Steps with a fault that are told one by one.
const FAULTS_TOLD: usize = 20;

/// One frame of the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Dense, from 1.
    pub step: u64,
    /// Which of the agent's programs said it, counted from 1 in the order of their starts.
    pub process: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Asked>,
    /// How long it was when it came.
    pub bytes: u64,
    /// Of the frame as it stands here; of all its bytes if it does not.
    pub sha256: String,
    /// None for what is too long, or no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// Why it is not what the protocol says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// What it amounts to: the kind of each event, and a digest of it.
    pub heard: Vec<String>,
    chain: String,
}

/// The request of ours that a frame answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    pub method: String,
    /// The agent's own name of the session, if the request was about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    Line(Vec<u8>),
    TooLong { bytes: u64, sha256: String },
}

/// Where a journal differs from what was recorded, or from another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Divergence {
    /// The first step that differs; 0 is the head of the file.
    pub step: u64,
    pub what: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            0 => write!(f, "the head of the journal: {}", self.what),
            step => write!(f, "step {step}: {}", self.what),
        }
    }
}

/// A journal that is as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    pub agent: String,
    pub steps: u64,
    /// The file was closed by whoever wrote it. If not, steps may be missing at its end.
    pub ended: bool,
    /// The last link of the chain.
    pub chain: String,
    pub faults: u64,
    /// The first of the steps that are not what the protocol says, and why.
    pub faulty: Vec<(u64, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    journal: u32,
    agent: String,
    /// Of the program that wrote it: another one may hear something else.
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: u64,
    chain: String,
}

/// Writes a journal. What it gives out are lines without their ends.
pub struct Scribe {
    steps: u64,
    chain: String,
    sense: Sense,
}

impl Scribe {
    /// The first line is the head.
    pub fn begin(agent: &str) -> (Self, String) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let head = json(&Head { journal: VERSION, agent: agent.to_owned(), version });
        (Self { steps: 0, chain: link("", &head), sense: Sense::default() }, head)
    }

    /// The line for a frame. It is judged as it will stand there: without its secrets.
    pub fn take(
        &mut self,
        process: u32,
        frame: Inbound,
        answers: Option<Asked>,
        redactor: &dyn Redactor,
    ) -> String {
        let (bytes, sha256, frame, sensed) = match frame {
            Inbound::TooLong { bytes, sha256 } => (bytes, sha256, None, Sensed::fault("it is too long")),
            Inbound::Line(line) => match String::from_utf8(line) {
                Err(error) => {
                    let line = error.as_bytes();
                    (line.len() as u64, hex(line), None, Sensed::fault("it is no text"))
                }
                Ok(text) => {
                    let bytes = text.len() as u64;
                    let kept = redactor.redact_json(&text).unwrap_or(text);
                    let sensed = self.sense.take(process, &kept, answers.as_ref());
                    (bytes, hex(kept.as_bytes()), Some(kept), sensed)
                }
            },
        };
        self.steps += 1;
        let Sensed { fault, heard } = sensed;
        let chain = String::new();
        let step = Step { step: self.steps, process, answers, bytes, sha256, frame, fault, heard, chain };
        let open = json(&step);
        self.chain = link(&self.chain, &open);
        closed(&open, &self.chain)
    }

    /// The last line.
    pub fn end(self) -> String {
        let open = json(&End { end: self.steps, chain: String::new() });
        closed(&open, &link(&self.chain, &open))
    }
}

/// Reads a journal, line by line, and hears all of it again.
#[derive(Default)]
pub struct Replay {
    agent: Option<String>,
    steps: u64,
    chain: String,
    ended: bool,
    sense: Sense,
    faults: u64,
    faulty: Vec<(u64, String)>,
}

impl Replay {
    /// A line without its end. Gives the step, if it is one.
    pub fn read(&mut self, line: &[u8]) -> Result<Option<Step>, Divergence> {
        if self.agent.is_none() {
            return self.head(line).map(|()| None);
        }
        if self.ended {
            return Err(self.here("something stands after the end of the journal"));
        }
        if let Ok(end) = serde_json::from_slice::<End>(line) {
            return self.end(line, end).map(|()| None);
        }
        let mut step: Step =
            serde_json::from_slice(line).map_err(|_| self.here("its line is not one of a journal"))?;
        self.in_order(step.step)?;
        if let Some(frame) = &step.frame
            && hex(frame.as_bytes()) != step.sha256
        {
            return Err(self.here("its frame is not the one that was recorded: the hash is another"));
        }
        let told = std::mem::take(&mut step.chain);
        let open = json(&step);
        self.chain = self.linked(line, &open, &told)?;
        step.chain = told;
        self.hear(&step)?;
        self.steps += 1;
        if let Some(fault) = &step.fault {
            self.faults += 1;
            if self.faulty.len() < FAULTS_TOLD {
                self.faulty.push((step.step, fault.clone()));
            }
        }
        Ok(Some(step))
    }

    /// After the last line.
    pub fn finish(self) -> Result<Sound, Divergence> {
        let Self { agent, steps, chain, ended, faults, faulty, .. } = self;
        let nothing = || Divergence { step: 0, what: "there is none".into() };
        Ok(Sound { agent: agent.ok_or_else(nothing)?, steps, ended, chain, faults, faulty })
    }

    fn head(&mut self, line: &[u8]) -> Result<(), Divergence> {
        let wrong = |what: String| Divergence { step: 0, what };
        let head: Head =
            serde_json::from_slice(line).map_err(|_| wrong("the file does not begin with one".into()))?;
        if head.journal != VERSION {
            return Err(wrong(format!("it has format {}, and {VERSION} can be read", head.journal)));
        }
        // As it was written, so that a head that was changed is found by the first step.
        self.chain = link("", &String::from_utf8_lossy(line));
        self.agent = Some(head.agent);
        Ok(())
    }

    fn end(&mut self, line: &[u8], end: End) -> Result<(), Divergence> {
        if end.end != self.steps {
            return Err(self.here(&format!("it is missing: the journal was closed after step {}", end.end)));
        }
        let open = json(&End { end: end.end, chain: String::new() });
        self.chain = self.linked(line, &open, &end.chain)?;
        self.ended = true;
        Ok(())
    }

    fn in_order(&self, found: u64) -> Result<(), Divergence> {
        let expected = self.steps + 1;
        match found.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => {
                Err(self.here(&format!("it is missing: step {found} stands in its place")))
            }
            std::cmp::Ordering::Less => {
                Err(self.here(&format!("step {found} stands in its place, once more")))
            }
        }
    }

    /// The next link, if the line is what follows here.
    fn linked(&self, line: &[u8], open: &str, told: &str) -> Result<String, Divergence> {
        let chain = link(&self.chain, open);
        if told != chain {
            return Err(self.here(match self.steps {
                0 => "it does not follow from the head: one of the two was changed",
                _ => "it was changed: it does not follow from the step before it",
            }));
        }
        if line != closed(open, &chain).as_bytes() {
            return Err(self.here("it was changed: it is not written as a journal is"));
        }
        Ok(chain)
    }

    fn hear(&mut self, step: &Step) -> Result<(), Divergence> {
        let Some(frame) = &step.frame else { return Ok(()) };
        let Sensed { fault, heard } = self.sense.take(step.process, frame, step.answers.as_ref());
        if heard != step.heard {
            let list = |heard: &[String]| if heard.is_empty() { "nothing".into() } else { heard.join(", ") };
            let (heard, recorded) = (list(&heard), list(&step.heard));
            return Err(self.here(&format!("it was heard as {recorded} and is heard as {heard}")));
        }
        match (&step.fault, fault) {
            (Some(was), None) => Err(self.here(&format!("it was not valid and is valid: {was}"))),
            (None, Some(is)) => Err(self.here(&format!("it was valid and is not valid: {is}"))),
            // How a fault is worded may differ from version to version.
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    fn here(&self, what: &str) -> Divergence {
        Divergence { step: self.steps + 1, what: what.into() }
    }
}

/// The line of something whose link is not known yet, with its link.
fn closed(open: &str, chain: &str) -> String {
    let open = open.strip_suffix("\"}").unwrap_or(open);
    format!("{open}{chain}\"}}")
}

fn link(before: &str, open: &str) -> String {
    let digest = Sha256::new_with_prefix(before).chain_update("\n").chain_update(open).finalize();
    digits(&digest)
}

fn hex(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

fn digits(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(value: &impl Serialize) -> String {
    // Texts and numbers alone: there is nothing in it that JSON cannot express.
    serde_json::to_string(value).unwrap_or_default()
}
