//! The agents that are known by name: those of the table and those of the person's settings, which take precedence.

use std::path::PathBuf;

use sandbox::Mode;

use super::agent_manifests::{self, Manifest};
use super::command_line::on_path;
use crate::cli_error::CliError;
use crate::config::{AgentEntry, Config, OURS};
use crate::paths;

/// Names that differ in at most this many letters are suggested.
pub const TYPOS_MAX: usize = 2;

/// An agent that is known by name, installed or not.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    /// The name that its publisher uses.
    pub title: String,
    pub description: String,
    /// Whether the person's settings mention it.
    pub yours: bool,
    pub aliases: Vec<String>,
    /// Programs to look for; the first one found is used.
    pub commands: Vec<String>,
    pub arguments: Vec<String>,
    /// Variables that are set.
    pub environment: Vec<(String, String)>,
    pub pass: Vec<String>,
    pub own_folders: Vec<String>,
    /// Files in them that make the agent run something when it starts.
    pub own_settings: Vec<String>,
    /// Files elsewhere with its credentials.
    pub secret_files: Vec<String>,
    /// Whether it can use the file access of its client.
    pub files: bool,
    pub sandbox: Option<Mode>,
    /// How to install it.
    pub install: Vec<String>,
    /// Its package or archive, in the version that the table was written for.
    pub source: Option<String>,
    pub repository: Option<String>,
    pub known_version: Option<String>,
    /// Whether its program is the one of the table, which supports `--version`.
    pub says_version: bool,
}

impl Entry {
    /// The path of its program, if it is installed.
    pub fn program(&self) -> Option<PathBuf> {
        let path = paths::variable("PATH").unwrap_or_default();
        self.commands.iter().find_map(|command| on_path(&path, command))
    }

    /// The path of its program, or an error with how to install it.
    pub fn installed(&self) -> Result<PathBuf, CliError> {
        self.program().ok_or_else(|| {
            let commands = self.commands.join(" or ");
            CliError::failed(format!("{} is not installed", self.name))
                .because(format!("there is no {commands} on your PATH"))
                .fix(self.install.join(", then "))
        })
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Applies the person's settings over the table.
    fn with(mut self, yours: &AgentEntry) -> Self {
        if let Some(command) = &yours.command {
            self.commands = vec![command.clone()];
            self.says_version = false;
            self.install.insert(0, your_program(command));
        }
        if let Some(arguments) = &yours.arguments {
            self.arguments.clone_from(arguments);
        }
        self.environment.extend(yours.environment.iter().cloned());
        self.pass.extend(yours.pass.iter().cloned());
        self.own_folders.extend(yours.own_folders.iter().cloned());
        self.own_settings.extend(yours.own_settings.iter().cloned());
        Self { yours: true, sandbox: yours.sandbox.or(self.sandbox), ..self }
    }
}

impl From<Manifest> for Entry {
    fn from(manifest: Manifest) -> Self {
        let (arguments, environment) = (manifest.arguments(), manifest.environment());
        let source = manifest.source().map(str::to_owned);
        let ours = manifest.ropewalk;
        Self {
            name: manifest.id,
            title: manifest.name,
            description: manifest.description,
            yours: false,
            aliases: ours.aliases,
            commands: ours.commands,
            arguments,
            environment,
            pass: ours.pass,
            own_folders: ours.own_folders,
            own_settings: ours.own_settings,
            secret_files: ours.secret_files,
            files: !ours.own_files,
            sandbox: None,
            install: ours.install,
            source,
            repository: manifest.repository,
            known_version: Some(manifest.version),
            says_version: true,
        }
    }
}

impl From<&AgentEntry> for Entry {
    fn from(yours: &AgentEntry) -> Self {
        Self {
            name: yours.name.clone(),
            title: yours.name.clone(),
            description: "from your settings".into(),
            yours: true,
            aliases: Vec::new(),
            commands: yours.command.iter().cloned().collect(),
            arguments: yours.arguments.clone().unwrap_or_default(),
            environment: yours.environment.clone(),
            pass: yours.pass.clone(),
            own_folders: yours.own_folders.clone(),
            own_settings: yours.own_settings.clone(),
            secret_files: Vec::new(),
            files: true,
            sandbox: yours.sandbox,
            install: yours.command.iter().map(|command| your_program(command)).collect(),
            source: None,
            repository: None,
            known_version: None,
            says_version: false,
        }
    }
}

fn your_program(command: &str) -> String {
    format!("install {command}, or set its full path as command in your settings")
}

/// Every agent that is known by name.
pub fn all(config: &Config) -> Result<Vec<Entry>, CliError> {
    let table = agent_manifests::agents()
        .map_err(|error| CliError::failed("the table of agents is broken; this is a bug").because(error))?;
    let mut entries: Vec<Entry> = table.into_iter().map(Entry::from).collect();
    for yours in &config.agents {
        match entries.iter_mut().find(|entry| entry.is_called(&yours.name)) {
            Some(known) => *known = known.clone().with(yours),
            None if yours.command.is_some() => entries.push(Entry::from(yours)),
            None => {
                return Err(CliError::usage(format!(
                    "[agents.{}] in your settings has no command",
                    yours.name
                ))
                .because("it is not a known agent, so a command is required")
                .fix("add command = \"...\", or use a name from ropewalk agents list"));
            }
        }
    }
    Ok(entries)
}

pub fn named(config: &Config, name: &str) -> Result<Entry, CliError> {
    let entries = all(config)?;
    if let Some(entry) = entries.iter().find(|entry| entry.is_called(name)) {
        return Ok(entry.clone());
    }
    if name == OURS {
        return Err(CliError::usage(format!("{OURS} is Ropewalk's built-in agent"))
            .because("it needs no installation and no check")
            .fix("ropewalk models list"));
    }
    let near = nearest(&entries, name);
    let fix = match near.is_empty() {
        true => "list known agents with `ropewalk agents list`, or start another one with `ropewalk serve -- COMMAND`".into(),
        false => format!("did you mean {}? List known agents with `ropewalk agents list`", near.join(" or ")),
    };
    Err(CliError::not_found(format!("agent {name:?} not found")).fix(fix))
}

/// The known agent that a command starts, by the label of the command: `npx -y @google/gemini-cli@1` starts gemini.
pub fn running(config: &Config, label: &str) -> Result<Option<Entry>, CliError> {
    let name = label.split('@').next().unwrap_or(label);
    let is_started =
        |entry: &Entry| entry.is_called(name) || entry.commands.iter().any(|command| command == name);
    Ok(all(config)?.into_iter().find(is_started))
}

/// Similar names to suggest, the nearest first.
fn nearest<'a>(entries: &'a [Entry], wanted: &str) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let distance = |entry: &Entry| {
        let names = std::iter::once(&entry.name).chain(&entry.aliases);
        let of = |name: &String| match wanted.len() > 2
            && (name.contains(&wanted) || wanted.contains(name.as_str()))
        {
            true => 1,
            false => typos(name, &wanted),
        };
        names.map(of).min().unwrap_or(usize::MAX)
    };
    let mut near: Vec<_> = entries.iter().map(|entry| (distance(entry), entry.name.as_str())).collect();
    near.push((typos(OURS, &wanted), OURS));
    near.retain(|(distance, _)| *distance <= TYPOS_MAX);
    near.sort();
    near.into_iter().map(|(_, name)| name).collect()
}

/// The edit distance: letters to insert, remove or change to turn one into the other.
pub fn typos(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut before = line;
        row[0] = line + 1;
        for (column, theirs) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *theirs);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(agents: Vec<AgentEntry>) -> Config {
        Config { agents, ..Config::default() }
    }

    #[test]
    fn what_the_person_wrote_goes_before_the_table() {
        let yours = AgentEntry {
            name: "opencode".into(),
            environment: vec![("A".into(), "b".into())],
            pass: vec!["OPENROUTER_API_KEY".into()],
            sandbox: Some(Mode::ReadOnly),
            ..AgentEntry::default()
        };
        let entry = named(&config(vec![yours.clone()]), "opencode").unwrap();
        assert_eq!(
            (&entry.commands[..], &entry.arguments[..]),
            (&["opencode".to_owned()][..], &["acp".to_owned()][..])
        );
        assert!(entry.yours && entry.says_version && entry.sandbox == Some(Mode::ReadOnly));
        assert!(
            ["OPENCODE_API_KEY", "OPENROUTER_API_KEY"]
                .iter()
                .all(|name| entry.pass.iter().any(|pass| pass == name))
        );
        assert!(entry.environment.contains(&("A".into(), "b".into())));
        let other = AgentEntry { command: Some("/opt/opencode".into()), ..yours };
        let entry = named(&config(vec![other]), "opencode").unwrap();
        assert_eq!((&entry.commands[..], entry.arguments.len()), (&["/opt/opencode".to_owned()][..], 1));
        assert!(!entry.says_version);
    }

    #[test]
    fn an_agent_of_the_settings_needs_a_command_unless_the_table_has_one() {
        let mine = AgentEntry { name: "mine".into(), ..AgentEntry::default() };
        assert!(all(&config(vec![mine.clone()])).unwrap_err().text().contains("no command"));
        let mine = AgentEntry { command: Some("mine".into()), ..mine };
        assert_eq!(named(&config(vec![mine]), "mine").unwrap().commands, ["mine"]);
    }

    #[test]
    fn agents_have_other_names_and_what_is_mistyped_is_guessed() {
        let config = config(Vec::new());
        assert_eq!(named(&config, "claude").unwrap().name, "claude-agent-acp");
        let entries = all(&config).unwrap();
        assert_eq!(nearest(&entries, "opncode"), ["opencode"]);
        assert_eq!(nearest(&entries, "geminy"), ["gemini"]);
        assert_eq!(nearest(&entries, "Claude-Code2"), ["claude-agent-acp"]);
        assert_eq!(nearest(&entries, "ropwalk"), ["ropewalk"]);
        assert!(nearest(&entries, "something-else").is_empty());
        assert!(named(&config, "nobody").is_err());
    }

    #[test]
    fn letters_are_counted() {
        for (one, other, typed) in
            [("", "ab", 2), ("goose", "goose", 0), ("goose", "gose", 1), ("kimi", "kmi2", 2)]
        {
            assert_eq!(typos(one, other), typed, "{one} {other}");
        }
    }
}
