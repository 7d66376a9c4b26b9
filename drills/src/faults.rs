//! `cargo xtask faults [--count N] [--seed S]`: three hubs, PostgreSQL, NATS, a machine and browsers, of which one after
//! the other is killed, stopped, cut or stalled while somebody works.
//!
//! The test itself is `crates/ropewalk/tests/it/hubs/faults.rs`; CI runs its short form with the other tests.
//!
//! `cargo xtask faults --long`, or with any of `--kills N`, `--cuts N`, `--damage N`, `--full N`: one machine whose commands
//! are killed, whose power is cut, whose files are damaged and whose disk is full ([`machine`]).

mod backup_commands;
mod cli;
mod cuts;
mod damage;
mod disk_full;
mod machine;
mod otter;
mod rest;
mod state_folder;

use anyhow::{Context, bail};

use xtask::command::{self, cargo};
use xtask::setup;

const COUNT_DEFAULT: &str = "200";

pub fn run(args: &[String]) -> anyhow::Result<()> {
    if args.iter().any(|flag| machine::FLAGS.contains(&flag.as_str())) {
        return machine::run(args);
    }
    let (mut count, mut seed) = (COUNT_DEFAULT.to_owned(), "7".to_owned());
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--count" => count = value()?,
            "--seed" => seed = value()?,
            _ => bail!("faults does not know the argument {flag}"),
        }
    }
    setup::run()?;
    let mut test = cargo();
    test.args([
        "test",
        "--quiet",
        "--package",
        "ropewalk",
        "--test",
        "it",
        "--",
        "--nocapture",
        "hubs::faults::random_faults",
    ]);
    command::run(test.env("FAULTS", count).env("SEED", seed))
}
