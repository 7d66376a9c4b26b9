//! Measures what the guards cost and prints the result as JSON.
//!
//! `guards --helper PROGRAM --scratch DIR [--quick] [--rounds N]`
//!
//! `PROGRAM` is the product's release binary, which builds the fences. What is a goal and whether it is
//! met is not decided here.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use ropewalk_bench::guard_path::{self, GuardPath};
use ropewalk_bench::rounds::Options;
use ropewalk_bench::starts::{self, Kind, Measured, Place};
use ropewalk_bench::stats::Samples;
use ropewalk_bench::workspace::Workspace;
use sandbox::Mode;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

/// Turns this program into what opens files, inside a fence or not.
const PROBE: &str = "--probe-open";
const PROBES: usize = 5;
const OPENS_PER_PROBE: usize = 200;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file, count] = arguments.as_slice()
        && flag == PROBE
    {
        return starts::probe_open(Path::new(file), count.parse()?);
    }
    let options = Options::parse(arguments.into_iter(), "--helper", [20, 100])?;
    let report = measure(&options)?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    std::fs::remove_dir_all(&options.scratch).context("removing the workspace of the measurement")
}

fn measure(options: &Options) -> anyhow::Result<Value> {
    // As the product has it: several threads, of which one waits for what the children do.
    let runtime = Runtime::new()?;
    let workspace = Workspace::create(&options.scratch)?;
    let helper = options.program.canonicalize().context("the helper cannot be found")?;
    let place = Place { workspace: &workspace, helper, runtime: &runtime };
    eprintln!("starts, {} rounds", options.rounds);
    let started = starts::measure(&place, options.rounds)?;
    eprintln!("opening files for writing");
    let opens = opens(&place, &started)?;
    eprintln!("guard path, {} rounds", options.rounds);
    let path = GuardPath::new(&workspace)?;
    let parts = path.measure(options.rounds)?;
    let hand_over = guard_path::hand_over(&runtime, options.rounds * 20)?;
    let redaction = guard_path::redaction(options.rounds * 10)?;
    Ok(json!({
        "quick": options.quick, "rounds": options.rounds, "rules": guard_path::RULES,
        "commands": path.commands(), "calls": parts.calls, "calls_with_a_rule": parts.hits,
        "chunk_bytes": guard_path::CHUNK_BYTES,
        "start_ms": started.iter().map(started_entry).collect::<Map<_, _>>(),
        "open_us": opens,
        "path_us": {
            "whole": summary(&parts.whole), "find_file": summary(&parts.find_file),
            "assess": summary(&parts.assess), "rules": summary(&parts.rules),
            "decide": summary(&parts.decide), "hand_over": summary(&hand_over),
        },
        "redaction_ns": summary(&redaction),
    }))
}

/// Processes of both kinds take turns; each opens the same file many times.
fn opens(place: &Place<'_>, started: &[Measured]) -> anyhow::Result<Map<String, Value>> {
    let file = place.workspace.files.first().context("the workspace has no files")?;
    let probe: Vec<OsString> =
        vec![std::env::current_exe()?.into(), PROBE.into(), file.into(), OPENS_PER_PROBE.to_string().into()];
    let stands = |kind| started.iter().any(|one| one.kind == kind && one.ms.is_ok());
    let kinds = [Kind::Unfenced, Kind::Fenced(Mode::WorkspaceWrite)];
    let mut all: Vec<(Kind, Samples)> =
        kinds.into_iter().filter(|kind| stands(*kind)).map(|kind| (kind, Samples::default())).collect();
    for _ in 0..PROBES {
        for (kind, samples) in &mut all {
            samples.extend(starts::open_for_writing(place, *kind, &probe)?);
        }
    }
    Ok(all.iter().map(|(kind, samples)| (kind.name().to_owned(), summary(samples))).collect())
}

fn started_entry(measured: &Measured) -> (String, Value) {
    let value = match &measured.ms {
        Ok(samples) => summary(samples),
        Err(reason) => json!({ "unavailable": reason }),
    };
    (measured.kind.name().to_owned(), value)
}

fn summary(samples: &Samples) -> Value {
    json!({
        "p50": samples.median(), "p95": samples.percentile(95.0), "p99": samples.percentile(99.0),
    })
}
