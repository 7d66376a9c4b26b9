//! `cargo xtask check`: the loop while working. Format, lints and the quick tests of what changed.
//!
//! What changed is what differs from where the branch left `origin/main` (else `main`, else from the last commit),
//! committed or not. The lints see the changed crates and those that are built on them, the tests are those of the
//! changed crates alone. `cargo xtask ci` is all of it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;
use xtask::command::{self, cargo, program};

use crate::tidy;

/// What decides about the lints of every crate.
const FOR_ALL: [&str; 3] = ["Cargo.toml", "Cargo.lock", "clippy.toml"];

pub fn run() -> anyhow::Result<()> {
    let (packages, files) = (packages()?, changed_files()?);
    let changed = changed(&packages, &files);
    tidy::run(&[])?;
    command::run(cargo().args(["fmt", "--all", "--check"]))?;
    if files.iter().any(|file| FOR_ALL.contains(&file.as_str())) {
        lint(&["--workspace"])?;
    } else if !changed.is_empty() {
        lint(&chosen(&with_dependents(&packages, &changed)))?;
    }
    if changed.is_empty() {
        println!("check: no crate changed, no test is run");
        return Ok(());
    }
    println!("check: the tests of {}", changed.iter().copied().collect::<Vec<_>>().join(", "));
    test(&chosen(&changed))
}

fn lint(chosen: &[&str]) -> anyhow::Result<()> {
    let strict = ["--all-targets", "--", "-D", "warnings"];
    command::run(cargo().args(["clippy", "--quiet"]).args(chosen).args(strict))
}

fn test(chosen: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo();
    if command::succeeds(cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--profile", "check", "--status-level", "fail"]);
    } else {
        command.args(["test", "--quiet", "--lib", "--bins", "--tests"]);
    }
    command::run(command.args(chosen))
}

fn chosen<'a>(names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["--package", name]).collect()
}

/// Paths from the root, of files that git knows or would add.
fn changed_files() -> anyhow::Result<Vec<String>> {
    let git = |arguments: &[&str]| command::output(program("git").args(arguments));
    let base = ["origin/main", "main"].iter().find_map(|main| git(&["merge-base", "HEAD", main]).ok());
    let base = base.map_or("HEAD".to_owned(), |base| base.trim().to_owned());
    let known = git(&["diff", "--name-only", &base]).context("asking git what changed")?;
    let new = git(&["ls-files", "--others", "--exclude-standard"]).context("asking git what is new")?;
    Ok(known.lines().chain(new.lines()).map(str::to_owned).collect())
}

/// A package of the workspace.
struct Package {
    name: String,
    /// From the root, with a `/` at its end.
    folder: String,
    /// All that it is built on, for whatever purpose.
    needs: Vec<String>,
}

fn packages() -> anyhow::Result<Vec<Package>> {
    let ask = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let said = command::output(cargo().args(ask))?;
    let said: Value = serde_json::from_str(&said).context("reading what cargo says of the workspace")?;
    let all = said["packages"].as_array().context("cargo names no packages")?;
    all.iter().map(|package| Package::read(package).context("a package without a name or a folder")).collect()
}

impl Package {
    fn read(package: &Value) -> Option<Self> {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        let folder = folder.strip_prefix(command::root()).ok()?;
        let needs = package["dependencies"].as_array()?.iter();
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            folder: format!("{}/", folder.to_str()?),
            needs: needs.filter_map(|need| need["name"].as_str().map(str::to_owned)).collect(),
        })
    }
}

fn changed<'a>(packages: &'a [Package], files: &[String]) -> BTreeSet<&'a str> {
    let changed =
        packages.iter().filter(|package| files.iter().any(|file| file.starts_with(&package.folder)));
    changed.map(|package| package.name.as_str()).collect()
}

fn with_dependents<'a>(packages: &'a [Package], changed: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let depends = |package: &&Package| package.needs.iter().any(|need| changed.contains(need.as_str()));
    let dependents = packages.iter().filter(depends).map(|package| package.name.as_str());
    dependents.chain(changed.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> [Package; 3] {
        let package = |name: &str, folder: &str, needs: &[&str]| Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        };
        [
            package("ropewalk-engine", "crates/engine/", &["tokio"]),
            package("ropewalk-wire", "crates/wire/", &["ropewalk-engine"]),
            package("xtask", "xtask/", &[]),
        ]
    }

    #[test]
    fn a_crate_changed_if_a_file_in_its_folder_did() {
        let check = |files: &[&str], expected: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            assert!(changed(&three(), &files).iter().eq(expected), "{files:?}");
        };
        check(&["crates/engine/src/lib.rs", "README.md"], &["ropewalk-engine"]);
        check(&["crates/engines/x.rs", "xtask/src/main.rs"], &["xtask"]);
        check(&["Cargo.lock"], &[]);
    }

    #[test]
    fn the_lints_see_what_is_built_on_a_changed_crate() {
        let three = three();
        let found = with_dependents(&three, &BTreeSet::from(["ropewalk-engine"]));
        assert!(found.iter().eq(&["ropewalk-engine", "ropewalk-wire"]));
    }

    #[test]
    fn every_crate_of_the_workspace_has_a_folder() {
        let packages = packages().unwrap();
        assert!(packages.iter().any(|package| package.name == "xtask" && package.folder == "xtask/"));
    }
}
