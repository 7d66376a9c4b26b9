//! `ropewalk agents list`: the known agents, which of them are installed, and in which version.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use sandbox::{ChildCommand, CommandLimits, Fence, Mode, Output, Policy, Program, StdStream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::AgentsListOptions;
use crate::cli_error::CliError;
use crate::external_agents::{self, Entry};
use crate::output::{self, cut, one_line};
use crate::{config, guard_settings, hidden_paths, paths};

/// How long to wait for the version of an agent.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How many agents are asked at once.
const ASKED_AT_ONCE: usize = 4;
/// How much output is searched for the version.
const ANSWER_BYTES_MAX: usize = 4096;
const VERSION_CHARS_MAX: usize = 32;

/// An agent, its program if installed, and the version that it reports.
struct Row {
    entry: Entry,
    program: Option<PathBuf>,
    version: Option<String>,
}

pub async fn run(options: &AgentsListOptions) -> Result<ExitCode, CliError> {
    let config = config::user()?;
    let usual = config.agent.clone();
    let entries = external_agents::all(&config)?;
    let rows = stream::iter(entries).map(inspect).buffered(ASKED_AT_ONCE).collect::<Vec<Row>>().await;
    let shown = |row: &&Row| !options.installed || row.program.is_some();
    let rows: Vec<&Row> = rows.iter().filter(shown).collect();
    if options.json {
        let agents: Vec<Value> = rows.into_iter().map(as_json).collect();
        output::put_json(&json!({ "agents": agents, "default": usual }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::put(&as_text(&rows, usual.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

async fn inspect(entry: Entry) -> Row {
    let program = entry.program();
    let version = match &program {
        Some(program) if entry.says_version => version(program, &entry).await,
        Some(_) | None => None,
    };
    Row { entry, program, version }
}

/// The version that the program reports, run in the sandbox with only its own folders.
async fn version(program: &Path, entry: &Entry) -> Option<String> {
    let own = external_agents::own_folders(entry).into_iter().filter(|folder| folder.is_dir());
    let homes = hidden_paths::homes().ok()?;
    let policy = Policy {
        mode: Mode::WorkspaceWrite,
        roots: own.filter_map(|folder| folder.canonicalize().ok()).collect(),
        locked: external_agents::own_settings(entry),
        hidden: hidden_paths::paths(&homes),
        homes,
        within: None,
    };
    let command = ChildCommand {
        program: Program::Exec { program: program.to_owned(), arguments: vec!["--version".into()] },
        cwd: "/".into(),
        environment: paths::for_agent(&[], &entry.environment),
        limits: CommandLimits { wall: VERSION_WAIT, ..CommandLimits::default() },
        fence: Some(Fence { policy, helper: guard_settings::helper().ok()? }),
    };
    let (sender, mut receiver) = mpsc::channel(16);
    let mut answer = Vec::new();
    let listen = async {
        while let Some(output) = receiver.recv().await {
            if let Output::Chunk(chunk) = output
                && chunk.stream == StdStream::Stdout
                && answer.len() < ANSWER_BYTES_MAX
            {
                answer.extend_from_slice(&chunk.bytes);
            }
        }
    };
    let ended = tokio::join!(sandbox::run(command, CancellationToken::new(), sender), listen).0;
    let well = ended.is_ok_and(|ended| ended.code == Some(0));
    well.then(|| version_in(&String::from_utf8_lossy(&answer))).flatten()
}

/// The first word that looks like a version.
fn version_in(answer: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let digits =
            |part: Option<&str>| part.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        digits(parts.next()) && digits(parts.next())
    };
    let plain = |word: &'_ str| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    let words = answer
        .split_whitespace()
        .map(plain)
        .map(|word| word.strip_prefix('v').map_or(word.clone(), str::to_owned));
    words
        .into_iter()
        .find(|word| is_version(&word.as_str()))
        .map(|word| cut(&one_line(&word), VERSION_CHARS_MAX))
}

fn as_json(row: &Row) -> Value {
    let Row { entry, program, version } = row;
    json!({
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "aliases": entry.aliases,
        "from": if entry.yours { "settings" } else { "table" },
        "installed": program.is_some(),
        "program": program,
        "version": version,
        "commands": entry.commands,
        "arguments": entry.arguments,
        "pass": entry.pass,
        "own_folders": entry.own_folders,
        "own_settings": entry.own_settings,
        "sandbox": entry.sandbox.map(Mode::name),
        "install": entry.install,
        "source": entry.source,
        "repository": entry.repository,
        "known_version": entry.known_version,
    })
}

fn as_text(rows: &[&Row], usual: Option<&str>) -> String {
    let width = rows.iter().map(|row| row.entry.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for Row { entry, program, version } in rows {
        let here = match (program, version) {
            (Some(_), Some(version)) => version.clone(),
            (Some(_), None) => "installed".into(),
            (None, _) => "-".into(),
        };
        let mut told = format!("{}: {}", entry.title, entry.description);
        if !entry.aliases.is_empty() {
            told.push_str(&format!(" (also: {})", entry.aliases.join(", ")));
        }
        if entry.yours && !told.contains("your settings") {
            told.push_str(" (changed in your settings)");
        }
        if usual == Some(entry.name.as_str()) {
            told.push_str(" (default)");
        }
        writeln!(out, "{:<width$}  {:<12} {}", one_line(&entry.name), here, one_line(&told)).ok();
    }
    if rows.is_empty() {
        out.push_str("No known agent is installed.\n");
    }
    out.push_str(
        "\nTo use an agent: ropewalk serve --agent NAME\nTo install one: ropewalk agents install-hint NAME\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_among_other_words() {
        for (answer, version) in [
            ("1.18.33\n", Some("1.18.33")),
            ("codex-acp 2.6.0", Some("2.6.0")),
            ("v0.61.0 (build 3)", Some("0.61.0")),
            (" goose  1.50.1-rc.2\n", Some("1.50.1-rc.2")),
            ("GitHub Copilot CLI 1.0.80.\nRun update", Some("1.0.80")),
            ("{\"jsonrpc\":\"2.0\"}", None),
            ("no version here", None),
            ("", None),
        ] {
            assert_eq!(version_in(answer).as_deref(), version, "{answer}");
        }
    }
}
