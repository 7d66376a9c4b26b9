//! The official SDKs in their oldest and newest versions (`tests/clients/versions`), as clients of the built binary.
//!
//! `versions.json` there lists them, oldest first, and lock files beside it hold their checksums. CI runs the oldest and
//! the newest of TypeScript and Python; `cargo xtask rigs --every-version` runs all, and those of Rust, which have to be
//! compiled. Everything is installed in the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use xtask::command::{self, cargo, program};
use xtask::setup;

const FOLDER: &str = "tests/clients/versions";
/// How clients are built with the Rust crate: since which version (major, minor), the feature of `Cargo.toml.in` for it,
/// and the features of the crate that it takes.
const RUST_AGES: [((u32, u32), &str, &str); 4] = [
    ((5, 0), "v1", "\"process\""),
    ((3, 0), "builder", "\"process\""),
    ((0, 4), "boxed", ""),
    ((0, 0), "plain", ""),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    OldestAndNewest,
    Every,
}

pub fn typescript(versions: Versions) -> anyhow::Result<Command> {
    let installed = installed("typescript")?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(command::root().join(FOLDER).join(file), installed.join(file))
            .with_context(|| format!("copying {file}"))?;
    }
    setup::install_npm(&installed)?;
    let mut command = program("node");
    command.arg(format!("{FOLDER}/typescript.test.mjs")).arg(installed);
    command.args(listed("typescript", versions)?);
    Ok(command)
}

pub fn python(versions: Versions) -> anyhow::Result<Command> {
    let installed = installed("python")?;
    let wanted = listed("python", versions)?;
    let locked = fs::read_to_string(command::root().join(FOLDER).join("python.txt")).context("python.txt")?;
    for version in &wanted {
        install_python(&installed, version, &locked).with_context(|| format!("installing {version}"))?;
    }
    let mut command = program(setup::python());
    command.arg(format!("{FOLDER}/python.py")).arg(installed).args(wanted);
    Ok(command)
}

/// One build for each version, by its name: two of one major version cannot stand in one lock file.
pub fn rust() -> anyhow::Result<Vec<(String, Command)>> {
    let named = |version: &String| Ok((format!("rust-{version}"), rust_version(version)?));
    listed("rust", Versions::Every)?.iter().map(named).collect()
}

fn rust_version(version: &str) -> anyhow::Result<Command> {
    let sources = command::root().join(FOLDER).join("rust");
    let folder = installed("rust")?.join(version);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let since = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let age = RUST_AGES.iter().find(|(first, ..)| since >= *first);
    let (_, age, features) = age.with_context(|| format!("{version} is no version"))?;
    let manifest = fs::read_to_string(sources.join("Cargo.toml.in")).context("reading Cargo.toml.in")?;
    let manifest = manifest
        .replace("{version}", version)
        .replace("{age}", age)
        .replace("{features}", features)
        .replace("{sources}", &sources.display().to_string());
    fs::write(folder.join("Cargo.toml"), manifest).context("writing Cargo.toml")?;
    // The versions of everything below the SDK are those of the rig of one version, as far as they fit.
    if !folder.join("Cargo.lock").exists() {
        fs::copy(command::root().join("tests/clients/rust/Cargo.lock"), folder.join("Cargo.lock"))
            .context("copying Cargo.lock")?;
    }
    let mut command = cargo();
    command.args(["run", "--quiet", "--manifest-path"]).arg(folder.join("Cargo.toml")).args(["--", version]);
    command.arg(command::root().join("tests/clients/tap.py"));
    command.env("CARGO_TARGET_DIR", installed("rust")?.join("target"));
    Ok(command)
}

fn install_python(folder: &Path, version: &str, locked: &str) -> anyhow::Result<()> {
    let wanted = format!("agent-client-protocol=={version} ");
    let Some(line) = locked.lines().find(|line| line.starts_with(&wanted)) else {
        bail!("python.txt has no checksum of it; run lock.py");
    };
    let list = folder.join(format!("{version}.txt"));
    if fs::read_to_string(&list).is_ok_and(|installed| installed == line) {
        return Ok(());
    }
    let unchecked = folder.join(format!("{version}.new"));
    fs::write(&unchecked, line).context("writing its list")?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let mut pip = program(setup::python());
    pip.args(install).args(["--require-hashes", "--upgrade", "--target"]).arg(folder.join(version));
    command::run(pip.arg("-r").arg(&unchecked))?;
    fs::rename(unchecked, list).context("noting what is installed")
}

fn listed(language: &str, versions: Versions) -> anyhow::Result<Vec<String>> {
    let list =
        fs::read_to_string(command::root().join(FOLDER).join("versions.json")).context("versions.json")?;
    let list: Value = serde_json::from_str(&list).context("reading versions.json")?;
    let all: Vec<String> = list[language]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|version| version.as_str().map(str::to_owned))
        .collect();
    match (versions, all.as_slice()) {
        (_, []) => bail!("versions.json lists nothing for {language}"),
        (Versions::OldestAndNewest, [oldest, .., newest]) => Ok(vec![oldest.clone(), newest.clone()]),
        (Versions::OldestAndNewest | Versions::Every, _) => Ok(all),
    }
}

fn installed(language: &str) -> anyhow::Result<PathBuf> {
    let folder = command::target_folder()?.join("sdk-versions").join(language);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}
