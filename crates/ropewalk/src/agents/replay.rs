//! `ropewalk agents replay`: verifies a journal, or compares it with another one.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use wire::external_agent::journal::{
    JournalComparison, JournalDivergence, JournalReplay, JournalSummary, Step,
};

use crate::cli::AgentsReplayOptions;
use crate::cli_error::CliError;
use crate::output::{self, one_line};

/// The longest line: the longest frame, with each byte escaped as six.
const LINE_BYTES_MAX: u64 = 6 * wire::LINE_FRAME_BYTES_MAX as u64 + (1 << 20);

/// The result of a replay.
enum ReplayResult {
    Same(JournalSummary),
    Differs { of: String, divergence: JournalDivergence },
}

pub fn run(options: &AgentsReplayOptions) -> Result<ExitCode, CliError> {
    let outcome = match &options.against {
        None => alone(&options.file)?,
        Some(other) => compare(&options.file, other)?,
    };
    match options.json {
        true => output::put_json(&as_json(&outcome, options))?,
        false => output::put(&as_text(&outcome, options.against.is_some()))?,
    }
    Ok(match outcome {
        ReplayResult::Same(_) => ExitCode::SUCCESS,
        ReplayResult::Differs { .. } => ExitCode::FAILURE,
    })
}

fn alone(file: &Path) -> Result<ReplayResult, CliError> {
    let mut journal = JournalReader::open(file)?;
    loop {
        match journal.next()? {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(journal.finish()),
            Err(divergence) => return Ok(journal.differs(divergence)),
        }
    }
}

/// Verifies both journals and compares them.
fn compare(file: &Path, other: &Path) -> Result<ReplayResult, CliError> {
    let (mut here, mut there) = (JournalReader::open(file)?, JournalReader::open(other)?);
    let mut against = JournalComparison::default();
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
            (Some(_), None) => Some(format!("missing in {}", there.name)),
            (None, Some(_)) => Some(format!("missing in {}", here.name)),
        };
        if let Some(what) = what {
            return Ok(here.differs(JournalDivergence { step: steps, what }));
        }
    }
}

/// A journal that is being read.
struct JournalReader {
    name: String,
    lines: BufReader<File>,
    replay: JournalReplay,
}

impl JournalReader {
    fn open(file: &Path) -> Result<Self, CliError> {
        let name = one_line(&file.display().to_string());
        let lines = File::open(file).map(BufReader::new).map_err(|error| unreadable(&name, &error))?;
        Ok(Self { name, lines, replay: JournalReplay::default() })
    }

    /// The next step, or `None` at the end.
    fn next(&mut self) -> Result<Result<Option<Step>, JournalDivergence>, CliError> {
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

    fn finish(self) -> ReplayResult {
        match self.replay.finish() {
            Ok(sound) => ReplayResult::Same(sound),
            Err(divergence) => ReplayResult::Differs { of: self.name, divergence },
        }
    }

    fn differs(self, divergence: JournalDivergence) -> ReplayResult {
        ReplayResult::Differs { of: self.name, divergence }
    }
}

fn unreadable(name: &str, error: &io::Error) -> CliError {
    let what = format!("could not read the journal {name}");
    match error.kind() {
        io::ErrorKind::NotFound => CliError::not_found(what).because("the file does not exist"),
        _ => CliError::failed(what).because(error),
    }
}

fn as_json(outcome: &ReplayResult, options: &AgentsReplayOptions) -> Value {
    let compared = options.against.as_ref().map(|other| other.display().to_string());
    match outcome {
        ReplayResult::Same(sound) => json!({
            "same": true,
            "against": compared,
            "agent": sound.agent,
            "steps": sound.steps,
            "ended": sound.ended,
            "chain": sound.chain,
            "faults": sound.faults,
            "faulty": sound.faulty.iter().map(|(step, why)| json!({ "step": step, "why": why })).collect::<Vec<_>>(),
        }),
        ReplayResult::Differs { of, divergence } => json!({
            "same": false,
            "against": compared,
            "file": of,
            "step": divergence.step,
            "what": divergence.what,
        }),
    }
}

fn as_text(outcome: &ReplayResult, compared: bool) -> String {
    let sound = match outcome {
        ReplayResult::Same(sound) => sound,
        ReplayResult::Differs { of, divergence } => return one_line(&format!("{of}: {divergence}")) + "\n",
    };
    let JournalSummary { agent, steps, ended, chain, faults, faulty } = sound;
    let same = if compared { "are equal in both journals" } else { "match the recording" };
    let mut out = format!("{steps} steps of {} {same}\n", one_line(agent));
    let mut line = |text: &str| writeln!(out, "{}", one_line(text)).ok();
    line(&format!("chain {chain}"));
    if !ended {
        line("the journal is incomplete: its writer was killed, or steps are missing at the end");
    }
    for (step, why) in faulty {
        line(&format!("step {step} violates the protocol: {why}"));
    }
    let untold = faults.saturating_sub(faulty.len() as u64);
    if untold > 0 {
        line(&format!("{untold} more steps violate the protocol"));
    }
    out
}
