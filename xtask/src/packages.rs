//! `cargo xtask packages`: whether the crates that are for others can be published.
//!
//! Their documentation is made without a warning, each is packed as `cargo publish` would pack it, and the packed crates are
//! compiled together, from what is in the packages alone. Cargo's own check compiles each package by itself, and with it what
//! it is built on, once per set of features: ten minutes where this takes one.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::Context;

use xtask::command::{self, cargo, program};

/// Where cargo puts what a dry run would have uploaded.
const PACKED: &str = "package/tmp-crate";

pub fn run() -> anyhow::Result<()> {
    let documented = ["doc", "--workspace", "--lib", "--no-deps", "--locked"];
    command::run(cargo().args(documented).env("RUSTDOCFLAGS", "-Dwarnings"))?;
    // What is not committed is packed too: somebody is at work on it.
    let packed = ["publish", "--workspace", "--dry-run", "--no-verify", "--locked", "--allow-dirty"];
    command::run(cargo().args(packed))?;
    compile_packed(&command::target_folder()?)
}

fn compile_packed(target: &Path) -> anyhow::Result<()> {
    let folder = target.join("packed");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the packages of the last run")?;
    }
    fs::create_dir_all(&folder).context("making a folder for the packages")?;
    let mut patches = String::new();
    for entry in fs::read_dir(target.join(PACKED)).context("listing what was packed")? {
        let path = entry.context("listing what was packed")?.path();
        if path.extension() != Some(OsStr::new("crate")) {
            continue;
        }
        command::run(program("tar").arg("-xzf").arg(&path).arg("-C").arg(&folder))?;
        let unpacked = path.file_stem().and_then(OsStr::to_str).context("the name of a package")?;
        let (name, _version) = unpacked.rsplit_once('-').context("the version of a package")?;
        patches.push_str(&format!("{name} = {{ path = \"{unpacked}\" }}\n"));
    }
    anyhow::ensure!(!patches.is_empty(), "nothing was packed");
    let workspace =
        format!("[workspace]\nresolver = \"3\"\nmembers = [\"*-*\"]\n\n[patch.crates-io]\n{patches}");
    fs::write(folder.join("Cargo.toml"), workspace).context("writing the packages' workspace")?;
    // The same versions of what others made, so that nothing is compiled that was compiled before.
    fs::copy(command::root().join("Cargo.lock"), folder.join("Cargo.lock")).context("copying Cargo.lock")?;
    let compiled = ["check", "--workspace", "--lib", "--offline", "--target-dir"];
    command::run(cargo().args(compiled).arg(target).current_dir(&folder))
}
