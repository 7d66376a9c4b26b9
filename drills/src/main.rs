//! `cargo drills <drill>`: stress tests of the built binary: it is killed, disconnected, attacked and measured.
//!
//! Apart from `xtask`, so that the tasks of every day do not wait until all of this is compiled; `cargo xtask <drill>`
//! leads here. One file per drill. A new drill is a module, a line in [`run`], and one in the list of `xtask`.

mod agents;
mod bench;
mod bridge_contract;
mod chaos;
mod children;
mod crash;
mod escape;
mod faults;
mod flags;
mod peer;
mod prices;
mod random;
mod real_model;

use std::process::ExitCode;

use xtask::drills::DRILLS_USAGE;
use xtask::run_with_arguments;

fn main() -> ExitCode {
    run_with_arguments("drills", run)
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["agents", rest @ ..] => agents::run(rest),
        ["bench", "agents", rest @ ..] => bench::agents::run(rest),
        ["bench", "turns", rest @ ..] => bench::turns::run(&owned(rest)),
        ["bench", "web", rest @ ..] => bench::web::run(&owned(rest)),
        ["bench", "hub", rest @ ..] => bench::hub::run(&owned(rest)),
        ["bench", rest @ ..] => bench::run(&owned(rest)),
        ["bridge-contract", rest @ ..] => bridge_contract::run(rest),
        ["real-model"] => real_model::run(),
        ["crash", rest @ ..] => crash::run(&owned(rest)),
        ["chaos", rest @ ..] => chaos::run(&owned(rest)),
        ["faults", rest @ ..] => faults::run(&owned(rest)),
        ["escape", rest @ ..] => escape::run(&owned(rest)),
        ["children", rest @ ..] => children::run(&owned(rest)),
        ["prices", rest @ ..] => prices::run(&owned(rest)),
        _ => anyhow::bail!("usage: cargo drills <drill>\n\n{DRILLS_USAGE}"),
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}
