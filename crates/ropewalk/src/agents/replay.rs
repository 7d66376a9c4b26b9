//! `ropewalk agents replay`: a journal is read and heard again, alone or beside another one.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use wire::upstream::journal::{Against, Divergence, Replay, Sound, Step};

use crate::cli::AgentsReplayOptions;
use crate::terminal::{self, one_line};
use crate::trouble::Trouble;

/// The longest line: a frame as long as one may be, each byte of it written as six.
const LINE_BYTES_MAX: u64 = 6 * wire::FRAME_BYTES_MAX as u64 + (1 << 20);

/// What came of it.
enum Outcome {
    Same(Sound),
    Differs { of: String, divergence: Divergence },
}

pub fn run(options: &AgentsReplayOptions) -> Result<ExitCode, Trouble> {
    let outcome = match &options.against {
        None => alone(&options.file)?,
        Some(other) => beside(&options.file, other)?,
    };
    match options.json {
        true => terminal::put_json(&as_json(&outcome, options))?,
        false => terminal::put(&as_text(&outcome, options.against.is_some()))?,
    }
    Ok(match outcome {
        Outcome::Same(_) => ExitCode::SUCCESS,
        Outcome::Differs { .. } => ExitCode::FAILURE,
    })
}

fn alone(file: &Path) -> Result<Outcome, Trouble> {
    let mut journal = Journal::open(file)?;
    loop {
        match journal.next()? {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(journal.finish()),
            Err(divergence) => return Ok(journal.differs(divergence)),
        }
    }
}

/// Each must be sound for itself, and both the same.
fn beside(file: &Path, other: &Path) -> Result<Outcome, Trouble> {
    let (mut here, mut there) = (Journal::open(file)?, Journal::open(other)?);
    let mut against = Against::default();
    let mut steps = 0;
    loop {
        let (ours, theirs) = match (here.next()?, there.next()?) {
            (Err(divergence), _) => return Ok(here.differs(divergence)),
            (_, Err(divergence)) => return Ok(there.differs(divergence)),
            (Ok(ours), Ok(theirs)) => (ours, theirs),
        };
        steps += 1;
        let what = match (ours, theirs) {
            (None, None) => return Ok(here.finish()),
            (Some(ours), Some(theirs)) => against.differ(&ours, &theirs),
            (Some(_), None) => Some(format!("it is not in {}", there.name)),
            (None, Some(_)) => Some(format!("it is not in {}", here.name)),
        };
        if let Some(what) = what {
            return Ok(here.differs(Divergence { step: steps, what }));
        }
    }
}

/// A journal that is being read.
struct Journal {
    name: String,
    lines: BufReader<File>,
    replay: Replay,
}

impl Journal {
    fn open(file: &Path) -> Result<Self, Trouble> {
        let name = one_line(&file.display().to_string());
        let lines = File::open(file).map(BufReader::new).map_err(|error| unreadable(&name, &error))?;
        Ok(Self { name, lines, replay: Replay::default() })
    }

    /// The next step, or nothing at the end.
    fn next(&mut self) -> Result<Result<Option<Step>, Divergence>, Trouble> {
        loop {
            let mut line = Vec::new();
            let read = self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| unreadable(&self.name, &error))? == 0 {
                return Ok(Ok(None));
            }
            match self.replay.read(line.strip_suffix(b"\n").unwrap_or(&line)) {
                Ok(None) => {}
                step => return Ok(step),
            }
        }
    }

    fn finish(self) -> Outcome {
        match self.replay.finish() {
            Ok(sound) => Outcome::Same(sound),
            Err(divergence) => Outcome::Differs { of: self.name, divergence },
        }
    }

    fn differs(self, divergence: Divergence) -> Outcome {
        Outcome::Differs { of: self.name, divergence }
    }
}

fn unreadable(name: &str, error: &io::Error) -> Trouble {
    let what = format!("the journal {name} cannot be read");
    match error.kind() {
        io::ErrorKind::NotFound => Trouble::not_found(what).because("there is no such file"),
        _ => Trouble::failed(what).because(error),
    }
}

fn as_json(outcome: &Outcome, options: &AgentsReplayOptions) -> Value {
    let compared = options.against.as_ref().map(|other| other.display().to_string());
    match outcome {
        Outcome::Same(sound) => json!({
            "same": true,
            "against": compared,
            "agent": sound.agent,
            "steps": sound.steps,
            "ended": sound.ended,
            "chain": sound.chain,
            "faults": sound.faults,
            "faulty": sound.faulty.iter().map(|(step, why)| json!({ "step": step, "why": why })).collect::<Vec<_>>(),
        }),
        Outcome::Differs { of, divergence } => json!({
            "same": false,
            "against": compared,
            "file": of,
            "step": divergence.step,
            "what": divergence.what,
        }),
    }
}

fn as_text(outcome: &Outcome, compared: bool) -> String {
    let sound = match outcome {
        Outcome::Same(sound) => sound,
        Outcome::Differs { of, divergence } => return one_line(&format!("{of}: {divergence}")) + "\n",
    };
    let Sound { agent, steps, ended, chain, faults, faulty } = sound;
    let same = if compared { "are the same in both" } else { "are as they were recorded" };
    let mut out = format!("{steps} steps of {} {same}\n", one_line(agent));
    let mut line = |text: &str| writeln!(out, "{}", one_line(text)).ok();
    line(&format!("chain {chain}"));
    if !ended {
        line("the journal was not closed: whoever wrote it was ended, or steps are missing at its end");
    }
    for (step, why) in faulty {
        line(&format!("step {step} is not what the protocol says: {why}"));
    }
    let untold = faults.saturating_sub(faulty.len() as u64);
    if untold > 0 {
        line(&format!("and so are {untold} more"));
    }
    out
}
