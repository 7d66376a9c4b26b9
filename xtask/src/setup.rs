//! `cargo xtask setup`: installs what the tests need on a fresh machine with Rust and Node.
//!
//! Idempotent and quick when there is nothing to do: each product keeps a copy of the list it was
//! installed from, and is installed again only when that list differs. Everything lands inside the
//! repository (`.setup/`, `node_modules`), except for Debian packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::command::{self, program};

/// Folders with a `package-lock.json`.
const NPM_FOLDERS: [&str; 5] =
    ["tests/clients/ts", "tests/clients/acpx", "tests/servers", "tests/web", "web"];

/// Lists of Python packages, and the folders they are installed in: what one needs, another may not bear.
const PYTHON_LISTS: [(&str, &str); 3] = [
    ("tests/clients/requirements.txt", ".setup/venv"),
    ("tests/servers/requirements.txt", ".setup/mcp"),
    ("tests/bus/requirements.txt", ".setup/bus"),
];

const NODE_MAJOR_MIN: u32 = 20;

/// A Debian package, and a command that fails while it is missing.
struct Package {
    name: &'static str,
    probe: &'static [&'static str],
}

const PACKAGES: [Package; 7] = [
    Package { name: "chromium", probe: &["chromium", "--version"] },
    Package { name: "gcc", probe: &["cc", "--version"] },
    Package { name: "git", probe: &["git", "--version"] },
    // Debian keeps the server's programs off the path, and a directory per version.
    Package {
        name: "postgresql",
        probe: &["sh", "-c", "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres"],
    },
    Package { name: "python3-venv", probe: &["python3", "-c", "import venv, ensurepip"] },
    // What a command that is called harmless really does.
    Package { name: "strace", probe: &["strace", "-V"] },
    Package { name: "tmux", probe: &["tmux", "-V"] },
];

pub fn run() -> anyhow::Result<()> {
    install_packages()?;
    check_node()?;
    for folder in NPM_FOLDERS {
        install_npm(&command::root().join(folder)).with_context(|| format!("installing {folder}"))?;
    }
    for (list, folder) in PYTHON_LISTS {
        install_python(list, folder).with_context(|| format!("installing {list}"))?;
    }
    Ok(())
}

/// The Python with the test tools in it.
pub fn python() -> PathBuf {
    command::root().join(".setup/venv/bin/python")
}

fn install_packages() -> anyhow::Result<()> {
    let present = |package: &Package| {
        let (name, arguments) = (package.probe[0], &package.probe[1..]);
        command::succeeds(program(name).args(arguments))
    };
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|package| !present(package)).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if command::output(program("id").arg("-u"))?.trim() != "0" {
        bail!("these Debian packages are missing; as root, run: {by_hand}");
    }
    println!("setup: installing {}", missing.join(", "));
    command::run(program("apt-get").args(["update", "-q"]))?;
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    command::run(program("apt-get").args(install).args(&missing).env("DEBIAN_FRONTEND", "noninteractive"))
}

pub fn check_node() -> anyhow::Result<()> {
    let version = command::output(program("node").arg("--version"))
        .with_context(|| format!("node {NODE_MAJOR_MIN} or newer is needed"))?;
    let number = version.trim().trim_start_matches('v').split('.').next().unwrap_or_default();
    match number.parse::<u32>() {
        Ok(found) if found >= NODE_MAJOR_MIN => Ok(()),
        _ => bail!("node {NODE_MAJOR_MIN} or newer is needed, this is {}", version.trim()),
    }
}

pub fn install_npm(folder: &Path) -> anyhow::Result<()> {
    let list = fs::read_to_string(folder.join("package-lock.json")).context("reading package-lock.json")?;
    let stamp = folder.join("node_modules").join(".installed-from");
    if is_current(&stamp, &list) {
        return Ok(());
    }
    println!("setup: npm packages of {}", folder.display());
    // Not `npm ci`: it refuses a lock file that lacks optional packages of platforms which the registry
    // at hand did not have when the lock was written. The versions and checksums of the lock hold all the same.
    let quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
    let install = ["install", "--no-save", "--ignore-scripts"];
    command::run(program("npm").args(install).args(quiet).current_dir(folder))?;
    fs::write(&stamp, list).context("noting what is installed")
}

fn install_python(list: &str, folder: &str) -> anyhow::Result<()> {
    let requirements = command::root().join(list);
    let list = fs::read_to_string(&requirements).with_context(|| format!("reading {list}"))?;
    let folder = command::root().join(folder);
    let python = folder.join("bin/python");
    let stamp = folder.join("installed-from");
    if is_current(&stamp, &list) && command::succeeds(program(&python).arg("--version")) {
        return Ok(());
    }
    println!("setup: Python packages in {}", folder.display());
    command::run(program("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"];
    command::run(program(&python).args(install).arg(&requirements))?;
    fs::write(&stamp, list).context("noting what is installed")
}

fn is_current(stamp: &Path, list: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|installed| installed == list)
}
