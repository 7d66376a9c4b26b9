//! `cargo xtask <task>`: everything a developer or CI does besides plain cargo.
//!
//! One file per task. A new task is a module and a line in [`run`]. What is done to the built binary, and takes long, is in
//! `drills`.

mod check;
mod ci;
mod rigs;
mod sdk_versions;
mod tidy;
mod web;

use std::process::ExitCode;

use xtask::command::{self, cargo};
use xtask::setup;

/// What `drills` does; `cargo xtask` leads there.
const DRILLS: [&str; 10] = [
    "agents",
    "bench",
    "bridge-contract",
    "real-model",
    "crash",
    "chaos",
    "faults",
    "escape",
    "children",
    "prices",
];

const USAGE: &str = "\
usage: cargo xtask <task>

  setup          install what the tests need (idempotent)
  ci [STEP]      everything that CI runs, or one step of it
  check          format, lints, and the quick tests of the crates that changed: the loop while working
  tidy           check the rules that no compiler checks; --write: make the drawing of the crates anew
  web [..]       check, test and build the web app; --check: is what is committed current, --pictures: docs/images
  rigs [NAME..]  drive the built binary with real clients and the conformance suite
  rigs --every-version  the same with the official SDKs in all versions that are listed

what `cargo drills` does (a program of its own):

  agents [..]    have real agents, offline, do the same alone and behind the server, and compare
  bench [..]     measure against a hand-written echo agent and the official SDK
  bench turns    measure turns beside other agents, which are installed for it
  bench agents   measure what it costs to stand between a client and an agent
  bench web      measure the web app in a browser
  bench hub      measure one hub and three under load
  bridge-contract [--minutes N]  run a bridge against a receiver that knows the public contract and nothing else
  real-model     have the built binary think with a real, small model
  crash [..]     kill the server at random moments and check what comes back
  chaos [..]     cut, stall and reorder every client's connections and check what each has seen
  faults [..]    kill, stop and cut hubs, database, bus, machine and lines, and compare the logs
  faults --long  kill every command and door of one machine, cut its power, damage its store, fill its disk
  escape [..]    try to leave the sandbox in every way that is known
  children [..]  have commands leave processes behind and check that none stays
  prices [..]    make the table of models and their prices anew
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["setup"] => setup::run(),
        ["ci", rest @ ..] => ci::run(rest),
        ["check"] => check::run(),
        ["tidy", rest @ ..] => tidy::run(rest),
        ["web", rest @ ..] => web::run(rest),
        ["rigs", names @ ..] => rigs::run(names),
        [drill, ..] if DRILLS.contains(drill) => {
            command::run(cargo().args(["run", "--quiet", "--package", "drills", "--"]).args(arguments))
        }
        _ => anyhow::bail!("{USAGE}"),
    }
}
