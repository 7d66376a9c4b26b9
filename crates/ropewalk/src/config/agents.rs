//! `[agents.NAME]` in the person's settings file: external agents.
//!
//! Never read from a project's file: naming a program here starts it.

use sandbox::Mode;
use toml_edit::Item;

use super::error::{ConfigError, each_entry};
use super::{keys, list_of, pairs_of, text_of};

const NAME_CHARS_MAX: usize = 64;
/// The reserved name of the built-in agent.
pub const OURS: &str = "ropewalk";

/// One entry. The table of known agents may provide what it leaves out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AgentEntry {
    pub name: String,
    pub command: Option<String>,
    pub arguments: Option<Vec<String>>,
    /// Variables that are set.
    pub environment: Vec<(String, String)>,
    /// Names of variables that are passed on.
    pub pass: Vec<String>,
    pub own_folders: Vec<String>,
    /// Files in them that only the person may change.
    pub own_settings: Vec<String>,
    pub sandbox: Option<Mode>,
}

/// Without the variables, which may be secret.
impl std::fmt::Debug for AgentEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentEntry")
            .field("name", &self.name)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

pub(super) fn parse(item: &Item) -> Result<Vec<AgentEntry>, ConfigError> {
    let table = item.as_table_like().ok_or("agents must be a table: [agents.NAME]")?;
    let mut agents = Vec::new();
    each_entry(table, |name, item| {
        agents.push(entry(name, item)?);
        Ok(())
    })?;
    Ok(agents)
}

fn entry(name: &str, item: &Item) -> Result<AgentEntry, ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let usable = name.chars().all(plain) && !name.starts_with(['.', '-']);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !usable {
        return Err(format!("invalid name: use letters, digits, - and _, at most {NAME_CHARS_MAX}").into());
    }
    if name == OURS {
        return Err("this name is reserved for the built-in agent; choose another name".into());
    }
    let table = item.as_table_like().ok_or("it must be a table with command")?;
    let mut entry = AgentEntry { name: name.to_owned(), ..AgentEntry::default() };
    each_entry(table, |key, item| {
        match keys::known("agents", key) {
            Some("command") => {
                entry.command = Some(text_of(key, item)?.to_owned()).filter(|text| !text.is_empty())
            }
            Some("args") => entry.arguments = Some(list_of(key, item)?),
            Some("env") => entry.environment = pairs_of(key, item)?,
            Some("pass") => entry.pass = list_of(key, item)?,
            Some("own_folders") => entry.own_folders = list_of(key, item)?,
            Some("own_settings") => entry.own_settings = list_of(key, item)?,
            Some("sandbox") => {
                entry.sandbox = Some(text_of(key, item)?.parse().map_err(|error| format!("{error}"))?)
            }
            // A misspelled key may have been meant as a restriction.
            _ => {
                return Err(format!(
                    "unknown key {key}; an agent has command, args, env, pass, own_folders, own_settings and sandbox"
                )
                .into());
            }
        }
        Ok(())
    })?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(text: &str) -> Result<Vec<AgentEntry>, String> {
        let document: toml_edit::DocumentMut = text.parse().unwrap();
        parse(&document["agents"]).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn an_agent_is_read_and_what_is_set_for_it_is_not_shown() {
        let read = agents(
            "[agents.mine]\ncommand = \"/opt/mine\"\nargs = [\"acp\", \"a b\"]\nenv = { KEY = \"hush\" }\n\
             pass = [\"MINE_API_KEY\"]\nown_folders = [\"~/.mine\"]\nown_settings = [\"~/.mine/hooks\"]\nsandbox = \"workspace-write-network\"\n",
        )
        .unwrap();
        let expected = AgentEntry {
            name: "mine".into(),
            command: Some("/opt/mine".into()),
            arguments: Some(vec!["acp".into(), "a b".into()]),
            environment: vec![("KEY".into(), "hush".into())],
            pass: vec!["MINE_API_KEY".into()],
            own_folders: vec!["~/.mine".into()],
            own_settings: vec!["~/.mine/hooks".into()],
            sandbox: Some(Mode::WorkspaceWriteNetwork),
        };
        assert_eq!(read, [expected]);
        assert!(!format!("{read:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, said) in [
            ("agents = 1", "agents must be a table"),
            ("[agents]\na = 1", "a table with command"),
            ("[agents.a]\ncomand = \"x\"", "unknown key comand"),
            ("[agents.a]\nargs = \"x\"", "args must be a list"),
            ("[agents.a]\nenv = [\"A=b\"]", "a table of strings"),
            ("[agents.a]\nsandbox = \"wide\"", "is not a sandbox mode"),
            ("[agents.\"../a\"]\ncommand = \"x\"", "invalid name"),
            ("[agents.\"\"]\ncommand = \"x\"", "invalid name"),
            ("[agents.ropewalk]\ncommand = \"x\"", "choose another name"),
        ] {
            let error = agents(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
