//! A state folder, and commands of the built binary that work on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use xtask::command;

pub struct StateFolder {
    pub binary: PathBuf,
    pub home: PathBuf,
    /// What names the machine's boot, where it is not the real one: the program sees it in a mount namespace of
    /// its own.
    pub boot: Option<PathBuf>,
}

/// How a command ended that was to be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    Killed,
    Done,
    Failed,
}

impl StateFolder {
    pub fn new(home: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(home.join("workspace"))?;
        Ok(Self { binary: command::server()?, home: home.to_owned(), boot: None })
    }

    pub fn state(&self) -> PathBuf {
        self.home.join("state")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let words = self.words(args);
        let mut command = command::program(&words[0]);
        command.args(&words[1..]).current_dir(self.home.join("workspace")).stdin(Stdio::null());
        command.env("ROPEWALK_HOME", self.state()).env("ROPEWALK_OFFLINE", "1");
        command
    }

    /// The program and its arguments.
    pub fn words(&self, args: &[&str]) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(boot) = &self.boot {
            let script = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
            words.extend(["unshare", "--mount", "sh", "-c", script].map(str::to_owned));
            words.push(boot.to_string_lossy().into_owned());
        }
        words.push(self.binary.to_string_lossy().into_owned());
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        words
    }

    pub fn output(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.command(args).output().with_context(|| format!("starting {args:?}"))
    }

    /// What a command says that has to succeed.
    pub fn said(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.output(args)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{args:?}: {}: {}", output.status, error.trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The same of one that answers in JSON.
    pub fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        serde_json::from_str(&self.said(args)?).with_context(|| format!("{args:?} gave no JSON"))
    }

    /// Starts a command and kills it after this long.
    pub fn killed(&self, args: &[&str], after: Duration) -> anyhow::Result<CommandEnd> {
        let mut child = self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let end = Instant::now() + after;
        while Instant::now() < end {
            if let Some(status) = child.try_wait()? {
                return Ok(if status.success() { CommandEnd::Done } else { CommandEnd::Failed });
            }
            std::thread::sleep(Duration::from_micros(200).min(after));
        }
        kill(&mut child)
    }

    pub fn sessions(&self) -> anyhow::Result<Vec<Value>> {
        let listed = self.json(&["sessions", "list", "--all", "--json"])?;
        Ok(listed["sessions"].as_array().context("a list of sessions")?.clone())
    }

    /// The texts of a session, in order; nothing if there is no such session.
    pub fn texts(&self, id: &str) -> anyhow::Result<Option<Vec<String>>> {
        let output = self.output(&["sessions", "export", id, "--format", "json"])?;
        if !output.status.success() {
            let there = self.sessions()?.iter().any(|session| session["id"] == id);
            ensure!(!there, "{id} is listed and cannot be read");
            return Ok(None);
        }
        let export: Value = serde_json::from_slice(&output.stdout)?;
        let events = export["events"].as_array().context("events")?;
        let text = |event: &Value| event["payload"]["text"].as_str().map(str::to_owned);
        Ok(Some(events.iter().filter_map(text).collect()))
    }

    /// Writes a session of so many texts to a file that can be imported.
    pub fn archive(&self, name: &str, count: usize) -> anyhow::Result<(PathBuf, Vec<String>)> {
        let texts: Vec<_> = (0..count).map(|at| format!("{name}, text {at} {}", "x".repeat(40))).collect();
        let event = |(at, text): (usize, &String)| json!({ "event_type": "text", "seq": at + 1, "turn": 1, "payload": { "message": at, "text": text } });
        let events: Vec<_> = texts.iter().enumerate().map(event).collect();
        let archive =
            json!({ "schema": "ropewalk.session/1", "session": { "title": name }, "events": events });
        let path = self.home.join(format!("{name}.json"));
        std::fs::write(&path, archive.to_string())?;
        Ok((path, texts))
    }
}

fn kill(child: &mut Child) -> anyhow::Result<CommandEnd> {
    child.kill()?;
    let status = child.wait()?;
    // It may have ended in the moment before.
    Ok(match status.code() {
        Some(0) => CommandEnd::Done,
        Some(_) => CommandEnd::Failed,
        None => CommandEnd::Killed,
    })
}
