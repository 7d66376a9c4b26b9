//! `cargo xtask ci`: all that CI runs, in the order in which a failure is cheapest to find.
//!
//! A failed check does not stop the others, so that one run tells everything. Only when there is
//! nothing to test (no tools, no binary) the rest is left out. The summary comes last.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::command::{self, cargo};
use crate::{agents, bridge_contract, chaos, children, crash, escape, faults, rigs, setup, tidy, web};

/// Kills in the short form; `cargo xtask crash --rounds N` is the long one.
const CRASH_ROUNDS: &str = "200";
/// Kills of commands in the short form; `cargo xtask faults --long` is the long one.
const FAULT_KILLS: &str = "20";
/// Cuts in the short form; `cargo xtask chaos` is the long one.
const CHAOS_CUTS: &str = "150";
/// Turns in the short form, in each mode; `cargo xtask children --turns N` is the long one.
const CHILDREN_TURNS: &str = "60";
pub fn run() -> anyhow::Result<()> {
    let mut report = Report::default();
    let ready = report.step("setup", setup::run);
    report.step("tidy", tidy::run);
    if ready {
        report.step("web app", || web::run(&["--check"]));
    }
    report.step("fmt", || {
        command::run(cargo().args(["fmt", "--all", "--check"]))?;
        command::run(cargo().args(["fmt", "--manifest-path", "tests/clients/rust/Cargo.toml", "--check"]))
    });
    report.step("clippy", || {
        let strict =
            ["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        command::run(cargo().args(strict))
    });
    if command::succeeds(cargo().args(["deny", "--version"])) {
        report.step("deny", deny);
    }
    let built = report.step("build", || command::run(cargo().args(["build", "--workspace", "--locked"])));
    if built {
        report.step("test", test);
        report.step("doctest", || {
            command::run(cargo().args(["test", "--quiet", "--workspace", "--locked", "--doc"]))
        });
    }
    if built {
        report.step("crash", || crash::run(&["--rounds".into(), CRASH_ROUNDS.into()]));
        report.step("faults", || faults::run(&["--kills".into(), FAULT_KILLS.into()]));
        report.step("chaos", || chaos::run(&["--cuts".into(), CHAOS_CUTS.into()]));
        report.step("bridge contract", || bridge_contract::run(&[]));
        report.step("escape", || escape::run(&["--short".into()]));
        report.step("children", || children::run(&["--turns".into(), CHILDREN_TURNS.into()]));
    }
    if built && ready {
        for rig in rigs::RIGS {
            report.step(rig.name, || rig.run());
        }
        report.step("agents", || agents::run(&["--short"]));
    }
    report.finish()
}

/// Licences, crates and sources; known vulnerabilities too where there is a copy of the advisory database.
/// It is not fetched here: a check must not fail because of the network.
fn deny() -> anyhow::Result<()> {
    let check = ["deny", "--log-level", "error", "check"];
    command::run(cargo().args(check).args(["bans", "licenses", "sources"]))?;
    let home = command::variable("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if home.is_some_and(|home| home.join("advisory-dbs").is_dir()) {
        command::run(cargo().args(check).args(["--disable-fetch", "advisories"]))?;
    } else {
        println!("deny: advisories were not checked: `cargo deny fetch` gets the advisory database");
    }
    Ok(())
}

/// All tests, the slow ones too.
fn test() -> anyhow::Result<()> {
    let mut command = cargo();
    if command::succeeds(cargo().args(["nextest", "--version"])) {
        command.args([
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--status-level",
            "slow",
        ]);
    } else {
        command.args([
            "test",
            "--quiet",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
        ]);
    }
    command::run(command.env("SLOW", "1"))
}

#[derive(Default)]
struct Report {
    steps: Vec<(&'static str, Duration, Option<String>)>,
}

impl Report {
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<()>) -> bool {
        println!("==> {name}");
        let start = Instant::now();
        let failure = work().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            println!("==> {name} failed: {failure}");
        }
        let passed = failure.is_none();
        self.steps.push((name, start.elapsed(), failure));
        passed
    }

    fn finish(self) -> anyhow::Result<()> {
        println!("\n==> summary");
        for (name, time, failure) in &self.steps {
            let outcome = failure.as_ref().map_or("ok", |_| "FAILED");
            println!("{:>7.1} s  {outcome:6}  {name}", time.as_secs_f64());
        }
        let total: Duration = self.steps.iter().map(|(_, time, _)| *time).sum();
        println!("{:>7.1} s  in all", total.as_secs_f64());
        let failed: Vec<&str> =
            self.steps.iter().filter(|(_, _, failure)| failure.is_some()).map(|(name, _, _)| *name).collect();
        println!("steps: {} passed, {} failed", self.steps.len() - failed.len(), failed.len());
        if failed.is_empty() { Ok(()) } else { anyhow::bail!("failed: {}", failed.join(", ")) }
    }
}
