//! `cargo xtask bridge-contract [--minutes N] [--table FILE]`: the built binary's bridge against `tests/bridge/receiver.py`, a
//! receiver that was written from the public contract alone.
//!
//! Without minutes it takes about 40 seconds. With them, everything is repeated for so long, and the whole back-off is
//! measured; 30 is the long form.

use xtask::command::{self, program};

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let mut driver = program("python3");
    driver.arg("tests/bridge/run.py").arg("--binary").arg(command::server()?).args(arguments);
    command::run(driver.env("PYTHONDONTWRITEBYTECODE", "1"))
}
