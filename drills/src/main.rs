//! `cargo drills <drill>`: what is done to the built binary to see whether it holds: killed, cut off, attacked, measured.
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
mod peer;
mod prices;
mod random;
mod real_model;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo drills <drill>

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
            eprintln!("drills: {error:#}");
            ExitCode::FAILURE
        }
    }
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
        _ => anyhow::bail!("{USAGE}"),
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}
