//! What `xtask` and `drills` share: how they begin and end, starting programs, and installing what they need.

pub mod command;
pub mod drills;
pub mod setup;

use std::process::ExitCode;

/// Runs a program of ours with what it was started with, and says why it failed.
pub fn run_with_arguments(program: &str, run: fn(&[&str]) -> anyhow::Result<()>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
