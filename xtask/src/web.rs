//! `cargo xtask web [--check|--pictures]`: the web app, from its sources to what the binary carries.
//!
//! `crates/access/web` is committed, so that nobody needs Node to build the binary. What is committed can be stale:
//! `--check`, which CI runs, builds the app anew beside it and compares every byte. It also keeps the first
//! load small, because a phone on a bad line waits for all of it.
//!
//! **Invariant:** only building writes to `crates/access/web`, and to the list of its files that the binary has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use xtask::command::{self, program};
use xtask::setup;

const FOLDER: &str = "web";
/// What is made of it, inside the crate that embeds it: a published crate has its files.
const DIST: &str = "crates/access/web";
/// JavaScript of the first load, compressed.
const FIRST_LOAD_BYTES_MAX: u64 = 60 * 1024;

/// Where the binary's list of the app's files is, and how it begins.
const TABLE: &str = "crates/access/src/web_app/embedded_files.rs";
const TABLE_HEAD: &str =
    "//! The files of the app. Made by `cargo xtask web`.\n\nuse super::File;\n\n#[rustfmt::skip]\n";

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        [] => make(),
        ["--check"] => check(),
        ["--pictures"] => pictures(),
        [other, ..] => bail!("web knows --check and --pictures, not {other}"),
    }
}

/// Types, unit tests, and a new `crates/access/web`.
fn make() -> anyhow::Result<()> {
    install()?;
    npm(&["run", "check"])?;
    npm(&["test"])?;
    npm(&["run", "build"])?;
    let dist = command::root().join(DIST);
    write_table(&dist)?;
    say_sizes(&dist)
}

/// The list of files that the binary embeds. Made here because the crate that has it cannot be compiled, nor
/// its tests, while a file of the list is missing.
fn write_table(dist: &Path) -> anyhow::Result<()> {
    let names: Vec<String> = files(dist)?.into_keys().collect();
    let mut text = format!("{TABLE_HEAD}pub(super) static FILES: [File; {}] = [\n", names.len());
    for name in names {
        text.push_str(&format!("    File::new({name:?}, include_bytes!(\"../../web/{name}\")),\n"));
    }
    text.push_str("];\n");
    fs::write(command::root().join(TABLE), text).with_context(|| format!("writing {TABLE}"))
}

/// Types, unit tests, and whether `crates/access/web` is what the sources make.
fn check() -> anyhow::Result<()> {
    install()?;
    npm(&["run", "check"])?;
    npm(&["test"])?;
    let fresh = command::target_folder()?.join("web-check");
    let place = fresh.to_str().context("the build's folder has a name that is no UTF-8")?;
    npm(&["run", "build", "--", "--outDir", place, "--emptyOutDir", "--logLevel", "warn"])?;
    let differing = differences(&command::root().join(DIST), &fresh)?;
    ensure!(
        differing.is_empty(),
        "{DIST} is not what the sources make; run `cargo xtask web` and commit {DIST} ({})",
        differing.join(", ")
    );
    say_sizes(&fresh)
}

/// The pictures of `docs/images`, made anew by the browser tests' own harness.
fn pictures() -> anyhow::Result<()> {
    setup::run()?;
    command::run(program("node").arg("tests/web/pictures.mjs").env("ROPEWALK_BIN", command::server()?))
}

fn install() -> anyhow::Result<()> {
    setup::check_node()?;
    setup::install_npm(&command::root().join(FOLDER)).with_context(|| format!("installing {FOLDER}"))
}

fn npm(arguments: &[&str]) -> anyhow::Result<()> {
    command::run(program("npm").args(arguments).current_dir(command::root().join(FOLDER)))
}

/// Names of files that one folder has and the other has not, or not alike.
fn differences(committed: &Path, fresh: &Path) -> anyhow::Result<Vec<String>> {
    let (committed, fresh) = (files(committed)?, files(fresh)?);
    let mut names: Vec<&String> = committed.keys().chain(fresh.keys()).collect();
    names.sort();
    names.dedup();
    Ok(names.into_iter().filter(|name| committed.get(*name) != fresh.get(*name)).cloned().collect())
}

/// All files below a folder, by their path in it.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// Prints what is loaded at first, and what later; fails if the first is too much.
fn say_sizes(dist: &Path) -> anyhow::Result<()> {
    let sizes = sizes(dist)?;
    let files = sizes["files"].as_array().context("the sizes have no files")?;
    for file in files {
        let bytes = |name: &str| file[name].as_u64().unwrap_or(0);
        let when = if file["first"] == true { "first load" } else { "later" };
        let name = file["name"].as_str().unwrap_or_default();
        println!("{:>9} bytes, {:>8} compressed  {when:10}  {name}", bytes("bytes"), bytes("gzip"));
    }
    let first = sizes["firstScriptsGzip"].as_u64().context("the sizes have no sum")?;
    println!("JavaScript of the first load: {first} bytes compressed, at most {FIRST_LOAD_BYTES_MAX}");
    ensure!(
        first <= FIRST_LOAD_BYTES_MAX,
        "the first load has {first} bytes of compressed JavaScript, {FIRST_LOAD_BYTES_MAX} are allowed: load something later"
    );
    Ok(())
}

/// What `tests/web/sizes.mjs` says of a built app.
pub fn sizes(dist: &Path) -> anyhow::Result<Value> {
    let said = command::output(program("node").arg("tests/web/sizes.mjs").arg(dist))?;
    serde_json::from_str(&said).context("reading the sizes")
}
