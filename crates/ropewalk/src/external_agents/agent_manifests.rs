//! The table of known agents, in the format of the official registry's manifests.
//!
//! What a manifest cannot express is under `ropewalk` in each: which program to look for, which variables belong to the agent,
//! where it keeps its files, how to install it. Nothing is ever downloaded: for an agent that is not installed, we print how
//! to get it.

use std::collections::BTreeMap;

use serde::Deserialize;

const TABLE: &str = include_str!("table.json");

#[derive(Debug, Deserialize)]
struct AgentTable {
    agents: Vec<Manifest>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    pub id: String,
    pub name: String,
    /// The version that this entry was written for.
    pub version: String,
    pub description: String,
    #[serde(default)]
    pub repository: Option<String>,
    distribution: Distribution,
    pub ropewalk: LaunchInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Distribution {
    npx: Option<Package>,
    uvx: Option<Package>,
    #[serde(default)]
    binary: BTreeMap<String, Binary>,
}

#[derive(Debug, Clone, Deserialize)]
struct Package {
    package: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Binary {
    archive: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Our additions to a manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchInfo {
    /// Other names for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Programs to look for; the first one found is used.
    pub commands: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Variables to pass on: this agent's own keys and settings only.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Folders that it writes to besides the workspace.
    #[serde(default)]
    pub own_folders: Vec<String>,
    /// Files in these folders that make it run something when it starts: settings with hooks, servers or commands,
    /// plugins, scripts. Excludes what it must write to work and what it downloads for itself.
    #[serde(default)]
    pub own_settings: Vec<String>,
    /// Files elsewhere with its credentials, which it reads.
    #[serde(default)]
    pub secret_files: Vec<String>,
    /// It fails with clients that offer file access, so it is offered none.
    #[serde(default)]
    pub own_files: bool,
    /// How to install it.
    pub install: Vec<String>,
}

impl Manifest {
    /// The arguments of the program.
    pub fn arguments(&self) -> Vec<String> {
        self.start().map(|(arguments, _)| arguments.to_vec()).unwrap_or_default()
    }

    /// The variables that are set: the publisher's, then ours.
    pub fn environment(&self) -> Vec<(String, String)> {
        let theirs = self.start().map(|(_, environment)| environment.clone()).unwrap_or_default();
        theirs.into_iter().chain(self.ropewalk.env.clone()).collect()
    }

    /// Its package or archive.
    pub fn source(&self) -> Option<&str> {
        let Distribution { npx, uvx, binary } = &self.distribution;
        let package = npx.as_ref().or(uvx.as_ref()).map(|package| package.package.as_str());
        package.or_else(|| binary.values().next().map(|binary| binary.archive.as_str()))
    }

    fn start(&self) -> Option<(&[String], &BTreeMap<String, String>)> {
        let Distribution { npx, uvx, binary } = &self.distribution;
        let package = npx.as_ref().or(uvx.as_ref()).map(|package| (&package.args[..], &package.env));
        package.or_else(|| binary.values().next().map(|binary| (&binary.args[..], &binary.env)))
    }
}

/// Every agent that is known by name.
pub fn agents() -> Result<Vec<Manifest>, serde_json::Error> {
    serde_json::from_str::<AgentTable>(TABLE).map(|registry| registry.agents)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_agent_has_a_name_of_its_own_a_program_and_a_way_to_get_it() {
        let agents = agents().unwrap();
        let ids: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
        let expected = [
            "opencode",
            "codex-acp",
            "claude-agent-acp",
            "gemini",
            "qwen",
            "kimi",
            "goose",
            "copilot",
            "cline",
            "vibe",
            "fast-agent",
            "pi",
        ];
        assert_eq!(ids, expected);
        let mut names = BTreeSet::new();
        for agent in &agents {
            let ours = &agent.ropewalk;
            for name in std::iter::once(&agent.id).chain(&ours.aliases) {
                assert!(names.insert(name.clone()), "{name} is two agents");
                let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                assert!(name.bytes().all(plain) && name.as_bytes()[0].is_ascii_lowercase(), "{name}");
            }
            let texts = [&agent.name, &agent.version, &agent.description];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", agent.id);
            assert!(agent.repository.is_some() && agent.source().is_some(), "{}", agent.id);
            assert!(!ours.commands.is_empty() && !ours.install.is_empty(), "{}", agent.id);
            assert!(ours.commands.iter().all(|command| !command.contains('/')), "{}", agent.id);
        }
    }

    #[test]
    fn what_is_installed_is_what_the_manifest_names() {
        for agent in agents().unwrap() {
            let packages = [&agent.distribution.npx, &agent.distribution.uvx];
            for package in packages.into_iter().flatten() {
                let end =
                    package.package.rfind("==").or_else(|| package.package.rfind('@').filter(|at| *at > 0));
                let bare = &package.package[..end.unwrap_or(package.package.len())];
                assert!(agent.ropewalk.install[0].contains(bare), "{}: {bare}", agent.id);
                assert!(package.package.ends_with(&agent.version), "{}", agent.id);
            }
        }
    }

    #[test]
    fn own_folders_lie_below_home_and_are_never_all_of_it() {
        for agent in agents().unwrap() {
            for folder in &agent.ropewalk.own_folders {
                let below = folder.strip_prefix("~/").unwrap_or_default();
                let depth = below.split('/').filter(|name| !name.is_empty() && *name != "..").count();
                // Folders that many programs share are never one agent's own.
                let shared = [".config", ".cache", ".local", ".local/share", ".local/state", ".npm"];
                assert!(
                    depth > 0 && !below.contains("..") && !shared.contains(&below),
                    "{}: {folder}",
                    agent.id
                );
            }
        }
    }

    /// An agent that could change them would be out of its fence as soon as the person starts it without one.
    #[test]
    fn every_agent_has_settings_that_it_does_not_change_and_they_lie_in_its_own_folders() {
        for agent in agents().unwrap() {
            let LaunchInfo { own_folders, own_settings, .. } = agent.ropewalk;
            assert!(own_settings.len() >= 3, "{}", agent.id);
            for path in own_settings {
                let inside = |folder: &String| {
                    path.strip_prefix(folder.as_str())
                        .is_some_and(|below| below.len() > 1 && below.starts_with('/'))
                };
                assert!(own_folders.iter().any(inside) && !path.contains(".."), "{}: {path}", agent.id);
                let credentials = ["auth.json", "oauth_creds.json", "credentials", "sessions", "projects"];
                assert!(
                    !credentials.iter().any(|name| path.ends_with(name)),
                    "{}: {path} must be writable",
                    agent.id
                );
            }
        }
    }

    #[test]
    fn an_agent_is_given_no_key_of_another_provider_than_its_own() {
        let agents = agents().unwrap();
        let passes = |id: &str, variable: &str| {
            let agent = agents.iter().find(|agent| agent.id == id).unwrap();
            agent.ropewalk.pass.iter().any(|name| name == variable)
        };
        assert!(passes("codex-acp", "OPENAI_API_KEY") && !passes("codex-acp", "ANTHROPIC_API_KEY"));
        assert!(passes("claude-agent-acp", "ANTHROPIC_API_KEY"));
        for agent in &agents {
            for variable in ["GITHUB_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK"] {
                assert!(!passes(&agent.id, variable), "{} {variable}", agent.id);
            }
        }
    }
}
