//! What CI runs: each step, what it needs, and what it does to the machine.
//!
//! **Invariant:** a step stands after all that it needs or waits for.

use std::path::PathBuf;

use anyhow::Context;

use xtask::command::{self, cargo, linting_cargo, program};
use xtask::setup;

use crate::{packages, rigs, tidy, web};

/// Kills in the short form; `cargo xtask crash --rounds N` is the long one.
const CRASH_ROUNDS: &str = "200";
/// Kills of commands in the short form; `cargo xtask faults --long` is the long one.
const FAULT_KILLS: &str = "20";
/// Cuts in the short form; `cargo xtask chaos` is the long one.
const CHAOS_CUTS: &str = "150";
/// Turns in the short form, in each mode; `cargo xtask children --turns N` is the long one.
const CHILDREN_TURNS: &str = "60";

pub struct Step {
    pub name: &'static str,
    /// Without these, there is nothing to try.
    pub needs: &'static [&'static str],
    /// These go first, whatever becomes of them.
    pub after: &'static [&'static str],
    pub load: Load,
    work: fn() -> anyhow::Result<()>,
}

/// What a step does to the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Compiles, or has as many processes at work as there are cores.
    AllCores,
    /// Waits most of the time.
    Waits,
    /// Judged by somebody else's clock, which a busy machine would upset.
    Alone,
}

use Load::{AllCores, Alone, Waits};

const BUILT: &[&str] = &["build"];
const BUILT_AND_SET_UP: &[&str] = &["setup", "build"];

/// The lints are no step of their own: `build` and `test` compile with clippy in the compiler's place. So a lint that is
/// broken ends the build; `cargo xtask check` says so before. What takes longest goes first.
pub const STEPS: &[Step] = &[
    step("build", &[], AllCores, build),
    step("setup", &[], Waits, setup::run),
    step("tidy", &[], Waits, || tidy::run(&[])),
    step("fmt", &[], Waits, format),
    step("deny", &[], Waits, deny),
    step("web app", &["setup"], Waits, || web::run(&["--check"])),
    step("web", BUILT_AND_SET_UP, Waits, || rig("web")),
    step("agents", BUILT_AND_SET_UP, Waits, || drill(&["agents", "--short"])),
    step("test", BUILT, AllCores, test),
    step("doctest", BUILT, AllCores, || {
        command::run(linting_cargo(&["test"])?.args(["--quiet", "--workspace", "--locked", "--doc"]))
    }),
    step("packages", BUILT, AllCores, packages::run),
    step("escape", BUILT, AllCores, || drill(&["escape", "--short"])),
    step("crash", BUILT, Waits, || drill(&["crash", "--rounds", CRASH_ROUNDS])),
    step("faults", BUILT, Waits, || drill(&["faults", "--kills", FAULT_KILLS])),
    step("chaos", BUILT, Waits, || drill(&["chaos", "--cuts", CHAOS_CUTS])),
    step("bridge contract", BUILT, Waits, || drill(&["bridge-contract"])),
    step("children", BUILT, Waits, || drill(&["children", "--turns", CHILDREN_TURNS])),
    step("conformance", BUILT_AND_SET_UP, Waits, || rig("conformance")),
    step("typescript", BUILT_AND_SET_UP, Waits, || rig("typescript")),
    step("python", BUILT_AND_SET_UP, Waits, || rig("python")),
    step("editors", BUILT_AND_SET_UP, Waits, || rig("editors")),
    step("typescript-versions", BUILT_AND_SET_UP, Waits, || rig("typescript-versions")),
    step("python-versions", BUILT_AND_SET_UP, Waits, || rig("python-versions")),
    step("rust", BUILT_AND_SET_UP, AllCores, || rig("rust")),
    // Started by cargo, which has one build at a time in a folder.
    Step { after: &["test", "doctest", "rust"], ..step("mcp", BUILT_AND_SET_UP, Waits, || rig("mcp")) },
    // It gives its servers a second to live, and failed once beside others.
    step("acpx", BUILT_AND_SET_UP, Alone, || rig("acpx")),
];

const fn step(
    name: &'static str,
    needs: &'static [&'static str],
    load: Load,
    work: fn() -> anyhow::Result<()>,
) -> Step {
    Step { name, needs, after: &[], load, work }
}

pub fn find(name: &str) -> anyhow::Result<&'static Step> {
    STEPS.iter().find(|step| step.name == name).with_context(|| {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        format!("ci has no step {name}; there are: {}", names.join(", "))
    })
}

impl Step {
    pub fn work(&self) -> anyhow::Result<()> {
        (self.work)()
    }

    /// Whether the machine has what the step is about.
    pub fn is_possible(&self) -> bool {
        self.name != "deny" || command::succeeds(cargo().args(["deny", "--version"]))
    }
}

/// As it was built, without cargo: that would wait for whatever is compiled meanwhile.
fn drill(arguments: &[&str]) -> anyhow::Result<()> {
    command::run(program(command::target_folder()?.join("debug/drills")).args(arguments))
}

fn rig(name: &str) -> anyhow::Result<()> {
    let rig =
        rigs::RIGS.iter().find(|rig| rig.name == name).with_context(|| format!("there is no rig {name}"))?;
    rig.run()
}

fn format() -> anyhow::Result<()> {
    command::run(cargo().args(["fmt", "--all", "--check"]))?;
    command::run(cargo().args(["fmt", "--manifest-path", "tests/clients/rust/Cargo.toml", "--check"]))
}

/// The binaries, with the features that tests have: examples bring those of development dependencies along. Without
/// them tokio and all that is built on it would be compiled once here and once more for the tests.
fn build() -> anyhow::Result<()> {
    let all = ["--workspace", "--locked", "--lib", "--bins", "--examples"];
    command::run(linting_cargo(&["build"])?.args(all))
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
    let with_nextest = command::succeeds(cargo().args(["nextest", "--version"]));
    let mut command = linting_cargo(if with_nextest { &["nextest", "run"] } else { &["test"] })?;
    command.args(["--workspace", "--locked", "--no-fail-fast"]);
    if with_nextest {
        command.args(["--profile", "ci", "--status-level", "slow"]);
    } else {
        command.args(["--quiet", "--lib", "--bins", "--tests", "--examples"]);
    }
    command::run(command.env("SLOW", "1"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_step_stands_after_all_that_it_waits_for() {
        let mut before = BTreeSet::new();
        for step in STEPS {
            for name in step.needs.iter().chain(step.after) {
                assert!(before.contains(name), "{} waits for {name}, which comes later", step.name);
            }
            assert!(before.insert(step.name), "{} is there twice", step.name);
        }
    }

    #[test]
    fn every_rig_is_a_step() {
        for rig in rigs::RIGS {
            assert!(find(rig.name).is_ok(), "{} is not run", rig.name);
        }
    }
}
