//! The binary: reads the command line and the environment, wires the crates together, runs.

mod cli;
mod clock;
mod editors;
mod logging;
mod paths;
mod serve;
mod server;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.verbose);
    let outcome = match cli.command() {
        Command::Serve(options) => serve::run(&options),
        Command::Editors(options) => editors::run(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // The chain in full: each cause on its own line, the last usually names what to do.
            eprintln!("ropewalk: {error:#}");
            ExitCode::FAILURE
        }
    }
}
