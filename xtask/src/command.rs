//! Starting other programs, and the places they work in.
//!
//! The only file of `xtask` that starts processes or reads the environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The repository's root, wherever the task was started.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Where cargo puts its products: this program is one of them.
pub fn target_folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    let profile = program.parent().context("this program has no folder")?;
    Ok(profile.parent().unwrap_or(profile).to_owned())
}

/// The server under test: `ROPEWALK_BIN`, else what the last `cargo build` made.
pub fn server() -> anyhow::Result<PathBuf> {
    let path = match variable("ROPEWALK_BIN") {
        Some(named) => PathBuf::from(named),
        None => target_folder()?.join("debug").join("ropewalk"),
    };
    if !path.exists() {
        bail!("{} does not exist; run `cargo build` first", path.display());
    }
    Ok(path)
}

#[expect(clippy::disallowed_methods, reason = "a development tool, configured by its caller's environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A program to be started in the repository's root.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "development tools run as they are, outside any sandbox")]
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Gives a program that home, its own settings and nobody's keys: what a person has in the environment is no part of
/// what is tried or measured.
pub fn at_home(command: &mut Command, home: &Path) {
    let given: Vec<_> =
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    command.env_clear().env("HOME", home);
    command.envs(variable("PATH").map(|path| ("PATH", path))).envs(given);
}

/// This very program, to be started again. By way of the kernel where that is possible: a build of the workspace may
/// have put another file in its place meanwhile.
pub fn itself() -> anyhow::Result<Command> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Ok(program(running));
    }
    Ok(program(std::env::current_exe().context("finding this program")?))
}

/// The cargo that started us, so that a chosen toolchain stays chosen. Not with what it told us of our own package:
/// build scripts look at that (ring's does), and would compile anew what a cargo started by hand has compiled.
pub fn cargo() -> Command {
    let mut command = program(variable("CARGO").unwrap_or_else(|| "cargo".to_owned()));
    let ours =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| ours.iter().any(|ours| name.starts_with(ours))) {
            command.env_remove(&name);
        }
    }
    command
}

/// That cargo's `subcommand`, with clippy in the compiler's place for our own crates: what is compiled is linted in the
/// same pass, so the lints cost no second look at anything. A warning is an error. By settings and not by variables,
/// because the tests that it starts would inherit those.
pub fn linting_cargo(subcommand: &[&str]) -> anyhow::Result<Command> {
    let sysroot = output(program("rustc").args(["--print", "sysroot"]))?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
    if !driver.exists() {
        bail!("{} is missing; run `rustup component add clippy`", driver.display());
    }
    let mut command = cargo();
    command.args(subcommand);
    command.args(["--config", &format!("build.rustc-workspace-wrapper={:?}", driver)]);
    // The way in which `cargo clippy` tells its driver.
    command.args(["--config", "env.CLIPPY_ARGS='-Dwarnings__CLIPPY_HACKERY__'"]);
    Ok(command)
}

/// Runs to the end with its output shown; fails unless the program succeeds.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = describe(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to its standard output.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = describe(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown} wrote no UTF-8"))
}

/// Whether the program is there and succeeds, without showing anything.
pub fn succeeds(command: &mut Command) -> bool {
    output(command).is_ok()
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
