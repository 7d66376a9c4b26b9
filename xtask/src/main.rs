//! `cargo xtask <task>`: everything a developer or CI does besides plain cargo.
//!
//! One file per task. A new task is a module and a line in [`run`]. What is done to the built binary, and takes long, is in
//! `drills`.

mod check;
mod ci;
mod packages;
mod rigs;
mod sdk_versions;
mod tidy;
mod web;

use std::process::ExitCode;

use xtask::command::{self, cargo};
use xtask::drills::DRILLS_USAGE;
use xtask::{run_with_arguments, setup};

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
  packages       whether the crates for others can be published: documentation, packages, what they compile from
  tidy           check the rules that no compiler checks; --write: make the drawing of the crates anew
  web [..]       check, test and build the web app; --check: is what is committed current, --pictures: docs/images
  rigs [NAME..]  drive the built binary with real clients and the conformance suite
  rigs --every-version  the same with the official SDKs in all versions that are listed

what `cargo drills` does (a program of its own):
";

fn main() -> ExitCode {
    run_with_arguments("xtask", run)
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["setup"] => setup::run(),
        ["ci", rest @ ..] => ci::run(rest),
        ["check"] => check::run(),
        ["packages"] => packages::run(),
        ["tidy", rest @ ..] => tidy::run(rest),
        ["web", rest @ ..] => web::run(rest),
        ["rigs", names @ ..] => rigs::run(names),
        [drill, ..] if DRILLS.contains(drill) => {
            command::run(cargo().args(["run", "--quiet", "--package", "drills", "--"]).args(arguments))
        }
        _ => anyhow::bail!("{USAGE}\n{DRILLS_USAGE}"),
    }
}
