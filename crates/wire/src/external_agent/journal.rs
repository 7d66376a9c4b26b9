//! The journal of an external agent: everything it sent, frame by frame, in a form that can be checked
//! later.
//!
//! One line of JSON per frame, in order of arrival: a [`Step`]. `sha256` is the hash of the frame as stored,
//! which is without secrets; `fault` says how the frame violates the protocol; `heard` is what the decoder
//! of live sessions makes of it. `chain` binds the step to all steps before it, so a line that was changed,
//! removed, inserted or moved is detected, and the error names the first such step.
//!
//! The chain has no key: it detects accidents and careless edits, but not somebody who rewrites the whole
//! rest of the file. To detect that as well, keep the last link elsewhere ([`JournalSummary::chain`]).
//!
//! **Invariant:** [`JournalReplay`] accepts exactly what a [`JournalWriter`] wrote, byte for byte, and
//! nothing else.

mod compare_journals;
mod frame_interpreter;
#[cfg(test)]
mod tests;

use std::fmt;

use engine::Redactor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use compare_journals::JournalComparison;
use frame_interpreter::{FrameInterpreter, FrameMeaning};

/// The journal format that a [`JournalWriter`] writes.
const VERSION: u32 = 1;
/// How many faulty steps a summary lists.
const FAULTS_TOLD: usize = 20;

/// One frame from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Starts at 1, without gaps.
    pub step: u64,
    /// Which process of the agent sent it, counted from 1 in the order of their starts.
    pub process: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<JournaledRequest>,
    /// The frame's length when it arrived.
    pub bytes: u64,
    /// The hash of the frame as stored, or of all its bytes if it is not stored.
    pub sha256: String,
    /// `None` if the frame is too long or not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// How the frame violates the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The kind of each event that the frame was translated to, with a digest of it.
    #[serde(rename = "heard")]
    pub events: Vec<String>,
    chain: String,
}

/// The request of ours that a frame responds to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournaledRequest {
    pub method: String,
    /// The agent's own session id, if the request was about a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// A frame as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawAgentFrame {
    Line(Vec<u8>),
    TooLong { bytes: u64, sha256: String },
}

/// Where a journal differs from what was recorded, or from another journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct JournalDivergence {
    /// The first step that differs; 0 is the head of the file.
    pub step: u64,
    pub what: String,
}

impl fmt::Display for JournalDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            0 => write!(f, "the head of the journal: {}", self.what),
            step => write!(f, "step {step}: {}", self.what),
        }
    }
}

/// The result of reading a journal that is intact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSummary {
    pub agent: String,
    pub steps: u64,
    /// The writer closed the file. If not, steps may be missing at its end.
    pub ended: bool,
    /// The last link of the chain.
    pub chain: String,
    pub faults: u64,
    /// The first steps that violate the protocol, and how.
    pub faulty: Vec<(u64, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalHead {
    journal: u32,
    agent: String,
    /// The version of the program that wrote the journal: another version may translate differently.
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalEnd {
    end: u64,
    chain: String,
}

/// Writes a journal. All lines are returned without line ends.
pub struct JournalWriter {
    steps: u64,
    chain: String,
    interpreter: FrameInterpreter,
}

impl JournalWriter {
    /// Returns the first line, the head.
    pub fn begin(agent: &str) -> (Self, String) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let head = json(&JournalHead { journal: VERSION, agent: agent.to_owned(), version });
        (Self { steps: 0, chain: link("", &head), interpreter: FrameInterpreter::default() }, head)
    }

    /// The line for a frame. The frame is checked as it is stored: without its secrets.
    pub fn record(
        &mut self,
        process: u32,
        frame: RawAgentFrame,
        answers: Option<JournaledRequest>,
        redactor: &dyn Redactor,
    ) -> String {
        let (bytes, sha256, frame, meaning) = match frame {
            RawAgentFrame::TooLong { bytes, sha256 } => {
                (bytes, sha256, None, FrameMeaning::fault("it is too long"))
            }
            RawAgentFrame::Line(line) => match String::from_utf8(line) {
                Err(error) => {
                    let line = error.as_bytes();
                    (line.len() as u64, hex(line), None, FrameMeaning::fault("it is not text"))
                }
                Ok(text) => {
                    let bytes = text.len() as u64;
                    let kept = redactor.redact_json(&text).unwrap_or(text);
                    let meaning = self.interpreter.interpret(process, &kept, answers.as_ref());
                    (bytes, hex(kept.as_bytes()), Some(kept), meaning)
                }
            },
        };
        self.steps += 1;
        let FrameMeaning { fault, events } = meaning;
        let chain = String::new();
        let step = Step { step: self.steps, process, answers, bytes, sha256, frame, fault, events, chain };
        let open = json(&step);
        self.chain = link(&self.chain, &open);
        closed(&open, &self.chain)
    }

    /// The last line.
    pub fn end(self) -> String {
        let open = json(&JournalEnd { end: self.steps, chain: String::new() });
        closed(&open, &link(&self.chain, &open))
    }
}

/// Reads a journal line by line and translates every frame again.
#[derive(Default)]
pub struct JournalReplay {
    agent: Option<String>,
    steps: u64,
    chain: String,
    ended: bool,
    interpreter: FrameInterpreter,
    faults: u64,
    faulty: Vec<(u64, String)>,
}

impl JournalReplay {
    /// Reads a line without its line end. Returns the step, if the line is one.
    pub fn read(&mut self, line: &[u8]) -> Result<Option<Step>, JournalDivergence> {
        if self.agent.is_none() {
            return self.head(line).map(|()| None);
        }
        if self.ended {
            return Err(self.here("there is data after the end of the journal"));
        }
        if let Ok(end) = serde_json::from_slice::<JournalEnd>(line) {
            return self.end(line, end).map(|()| None);
        }
        let mut step: Step =
            serde_json::from_slice(line).map_err(|_| self.here("its line is not a journal entry"))?;
        self.in_order(step.step)?;
        if let Some(frame) = &step.frame
            && hex(frame.as_bytes()) != step.sha256
        {
            return Err(self.here("its frame was changed: the hash does not match"));
        }
        let told = std::mem::take(&mut step.chain);
        let open = json(&step);
        self.chain = self.linked(line, &open, &told)?;
        step.chain = told;
        self.interpret(&step)?;
        self.steps += 1;
        if let Some(fault) = &step.fault {
            self.faults += 1;
            if self.faulty.len() < FAULTS_TOLD {
                self.faulty.push((step.step, fault.clone()));
            }
        }
        Ok(Some(step))
    }

    /// Call after the last line.
    pub fn finish(self) -> Result<JournalSummary, JournalDivergence> {
        let Self { agent, steps, chain, ended, faults, faulty, .. } = self;
        let nothing = || JournalDivergence { step: 0, what: "there is none".into() };
        Ok(JournalSummary { agent: agent.ok_or_else(nothing)?, steps, ended, chain, faults, faulty })
    }

    fn head(&mut self, line: &[u8]) -> Result<(), JournalDivergence> {
        let wrong = |what: String| JournalDivergence { step: 0, what };
        let head: JournalHead =
            serde_json::from_slice(line).map_err(|_| wrong("the file does not start with one".into()))?;
        if head.journal != VERSION {
            return Err(wrong(format!("it has format {}, but this version reads {VERSION}", head.journal)));
        }
        // The head is hashed as it is in the file, so that the first step detects a changed head.
        self.chain = link("", &String::from_utf8_lossy(line));
        self.agent = Some(head.agent);
        Ok(())
    }

    fn end(&mut self, line: &[u8], end: JournalEnd) -> Result<(), JournalDivergence> {
        if end.end != self.steps {
            return Err(self.here(&format!("it is missing: the journal was closed after step {}", end.end)));
        }
        let open = json(&JournalEnd { end: end.end, chain: String::new() });
        self.chain = self.linked(line, &open, &end.chain)?;
        self.ended = true;
        Ok(())
    }

    fn in_order(&self, found: u64) -> Result<(), JournalDivergence> {
        let expected = self.steps + 1;
        match found.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => {
                Err(self.here(&format!("it is missing: step {found} is in its place")))
            }
            std::cmp::Ordering::Less => Err(self.here(&format!("step {found} is repeated in its place"))),
        }
    }

    /// The next link, if the line follows the step before it.
    fn linked(&self, line: &[u8], open: &str, told: &str) -> Result<String, JournalDivergence> {
        let chain = link(&self.chain, open);
        if told != chain {
            return Err(self.here(match self.steps {
                0 => "it does not match the head: one of the two was changed",
                _ => "it was changed: it does not match the step before it",
            }));
        }
        if line != closed(open, &chain).as_bytes() {
            return Err(self.here("it was changed: its spelling is not that of a journal"));
        }
        Ok(chain)
    }

    fn interpret(&mut self, step: &Step) -> Result<(), JournalDivergence> {
        let Some(frame) = &step.frame else { return Ok(()) };
        let FrameMeaning { fault, events } =
            self.interpreter.interpret(step.process, frame, step.answers.as_ref());
        if events != step.events {
            let list =
                |events: &[String]| if events.is_empty() { "nothing".into() } else { events.join(", ") };
            let (events, recorded) = (list(&events), list(&step.events));
            return Err(self.here(&format!("it was translated to {recorded}, but now to {events}")));
        }
        match (&step.fault, fault) {
            (Some(was), None) => Err(self.here(&format!("it was invalid and is now valid: {was}"))),
            (None, Some(is)) => Err(self.here(&format!("it was valid and is now invalid: {is}"))),
            // The text of a fault may differ from version to version.
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    fn here(&self, what: &str) -> JournalDivergence {
        JournalDivergence { step: self.steps + 1, what: what.into() }
    }
}

/// The line with its link, from the line without a link.
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
    // Only texts and numbers: everything here can be expressed in JSON.
    serde_json::to_string(value).unwrap_or_default()
}
