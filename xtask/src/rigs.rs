//! `cargo xtask rigs [--every-version] [NAME..]`: the built binary under clients that nobody here wrote, and under the
//! conformance suite; and the agent with tool servers that nobody here wrote.
//!
//! Each client starts the server through `tests/clients/tap.py`, which records all frames; after the
//! client is done, the record is judged by the official schema. A rig passes only if both agree.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::sdk_versions::{self, Versions};
use xtask::command::{self, cargo, program};
use xtask::setup;

const EVERY_VERSION: &str = "--every-version";

#[derive(Clone, Copy)]
pub struct Rig {
    pub name: &'static str,
    command: fn() -> anyhow::Result<Command>,
    /// Started through the tap; else the rig judges the frames itself.
    tapped: bool,
}

pub const RIGS: [Rig; 10] = [
    Rig { name: "conformance", command: conformance, tapped: false },
    Rig { name: "typescript", command: typescript, tapped: true },
    Rig { name: "python", command: python, tapped: true },
    Rig { name: "rust", command: rust, tapped: true },
    Rig { name: "acpx", command: acpx, tapped: true },
    Rig { name: "editors", command: editors, tapped: true },
    Rig { name: "typescript-versions", command: typescript_versions, tapped: true },
    Rig { name: "python-versions", command: python_versions, tapped: true },
    Rig { name: "mcp", command: mcp, tapped: false },
    Rig { name: "web", command: web, tapped: false },
];

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    if arguments == [EVERY_VERSION] {
        return every_version();
    }
    let names = arguments;
    let unknown = names.iter().find(|name| RIGS.iter().all(|rig| rig.name != **name));
    if let Some(unknown) = unknown {
        let known: Vec<&str> = RIGS.iter().map(|rig| rig.name).collect();
        bail!("there is no rig {unknown}; there are: {}", known.join(", "));
    }
    setup::run()?;
    for rig in RIGS.iter().filter(|rig| names.is_empty() || names.contains(&rig.name)) {
        println!("rig {}", rig.name);
        rig.run().with_context(|| format!("rig {}", rig.name))?;
    }
    Ok(())
}

/// The official SDKs in all versions that are listed, those of Rust too.
fn every_version() -> anyhow::Result<()> {
    setup::run()?;
    let mut failed = Vec::new();
    let mut clients = vec![
        ("typescript".to_owned(), sdk_versions::typescript(Versions::Every)?),
        ("python".to_owned(), sdk_versions::python(Versions::Every)?),
    ];
    clients.extend(sdk_versions::rust()?);
    for (name, client) in clients {
        // One version that fails does not hide how the others fare.
        if let Err(error) = drive(&format!("every-version/{name}"), client, true) {
            println!("{name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

impl Rig {
    pub fn run(&self) -> anyhow::Result<()> {
        drive(self.name, (self.command)()?, self.tapped)
    }
}

fn drive(name: &str, mut client: Command, tapped: bool) -> anyhow::Result<()> {
    let records = command::target_folder()?.join("rigs").join(name);
    if records.exists() {
        fs::remove_dir_all(&records).context("removing the last record")?;
    }
    client.env("ROPEWALK_BIN", command::server()?).env("PYTHONDONTWRITEBYTECODE", "1");
    if tapped {
        client.env("ACP_TAP_DIR", &records);
    }
    command::run(&mut client)?;
    if tapped { check_schema(&records) } else { Ok(()) }
}

fn check_schema(records: &Path) -> anyhow::Result<()> {
    let mut check = program(setup::python());
    check.arg("tests/clients/schema_check.py").arg(records).env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(&mut check).context("the server sent what the official schema does not allow")
}

fn conformance() -> anyhow::Result<Command> {
    Ok(pytest("tests/conformance"))
}

fn python() -> anyhow::Result<Command> {
    Ok(pytest("tests/clients/py"))
}

fn typescript() -> anyhow::Result<Command> {
    Ok(node("tests/clients/ts/client.test.mjs"))
}

fn acpx() -> anyhow::Result<Command> {
    Ok(node("tests/clients/acpx/acpx.test.mjs"))
}

fn editors() -> anyhow::Result<Command> {
    Ok(pytest("tests/clients/editors"))
}

fn typescript_versions() -> anyhow::Result<Command> {
    sdk_versions::typescript(Versions::OldestAndNewest)
}

fn python_versions() -> anyhow::Result<Command> {
    sdk_versions::python(Versions::OldestAndNewest)
}

fn rust() -> anyhow::Result<Command> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--locked", "--manifest-path", "tests/clients/rust/Cargo.toml"]);
    // The workspace's folder: two of three packages below it are the same ones with the same features.
    command.env("CARGO_TARGET_DIR", command::target_folder()?);
    Ok(command)
}

/// Servers that nobody here wrote, used by the agent in process.
fn mcp() -> anyhow::Result<Command> {
    // As `cargo xtask ci` has compiled it.
    let mut command = command::linting_cargo(&["test"])?;
    command.args([
        "--quiet",
        "--locked",
        // Not the package alone: with other features, everything below it would be compiled once more.
        "--workspace",
        "--test",
        "it",
        "--",
        "--ignored",
        "real_",
    ]);
    Ok(command)
}

/// The web app in a real browser. What a failed test saw stays in the rig's folder.
fn web() -> anyhow::Result<Command> {
    let mut command = program("node");
    command.args(["--test", "--test-reporter=spec", "--test-concurrency=1"]);
    let mut tests: Vec<_> = fs::read_dir(command::root().join("tests/web"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".test.mjs"))
        .collect();
    tests.sort();
    command.args(tests).env("WEB_RECORDS", command::target_folder()?.join("rigs/web"));
    Ok(command)
}

fn pytest(folder: &str) -> Command {
    let mut command = program(setup::python());
    command.args(["-m", "pytest", "-q", folder]);
    command
}

fn node(file: &str) -> Command {
    let mut command = program("node");
    command.args(["--test", "--test-reporter=spec", file]);
    command
}
