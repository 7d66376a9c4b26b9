//! `cargo xtask escape`: attempts to leave the sandbox of the built binary, in every mode, as root and
//! as an ordinary user.
//!
//! `escape [--mode MODE] [--user root|user] [--only N,..] [--short] [--markdown]`
//!
//! The attempts, what is expected of each and how its effect is seen from outside are in
//! `tests/escape/`. Here is what goes around it: which bouts there are, two at a time, and one table of
//! all of them. A bout is one mode as one user, with a scratch world of its own.
//!
//! An ordinary user is tried by root only: root can become one, nobody can become root.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::flags;
use xtask::command::{self, program};

const MODES: [&str; 4] = ["read-only", "workspace-write", "workspace-write-network", "off"];
/// Belongs to nobody on any distribution, so that nothing of the machine is in its reach.
const ORDINARY_UID: &str = "64123";
/// The tests of the machine that share it must not be starved.
const BOUTS_AT_ONCE: usize = 2;

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(args)?;
    let start = Instant::now();
    let cases = options.cases()?;
    let queue = Mutex::new(cases.iter().enumerate());
    let results: Mutex<BTreeMap<usize, anyhow::Result<Vec<AttemptResult>>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..BOUTS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((at, case)) = queue.lock().ok().and_then(|mut queue| queue.next()) else {
                        return;
                    };
                    let outcome = case.run(&options);
                    if let Ok(mut results) = results.lock() {
                        results.insert(at, outcome);
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut columns = Vec::new();
    for (at, outcome) in results {
        let case = &cases[at];
        columns.push((case, outcome.with_context(|| format!("the bout {}", case.name()))?));
    }
    print_table(&columns, options.markdown);
    let surprises = print_surprises(&columns);
    let attempts: usize = columns.iter().map(|(_, lines)| lines.len()).sum();
    println!(
        "escape: {attempts} attempts in {} bouts, {surprises} surprises, {:.1} s",
        columns.len(),
        start.elapsed().as_secs_f64()
    );
    if surprises > 0 {
        bail!("{surprises} attempts ended otherwise than tests/escape/table.py says")
    } else {
        Ok(())
    }
}

#[derive(Default)]
struct Options {
    mode: Option<String>,
    user: Option<String>,
    only: Option<String>,
    /// Without the bouts that differ least from others.
    short: bool,
    markdown: bool,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        flags::read("escape", args, |flag, value| {
            match flag {
                "--mode" => options.mode = Some(value()?),
                "--user" => options.user = Some(value()?),
                "--only" => options.only = Some(value()?),
                "--short" => options.short = true,
                "--markdown" => options.markdown = true,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }

    fn cases(&self) -> anyhow::Result<Vec<SandboxCase>> {
        let is_root = command::output(program("id").arg("-u"))?.trim() == "0";
        let users: &[(&'static str, Option<&'static str>)] =
            if is_root { &[("root", None), ("user", Some(ORDINARY_UID))] } else { &[("user", None)] };
        let wanted =
            |chosen: &Option<String>, name: &str| chosen.as_ref().is_none_or(|chosen| chosen == name);
        let mut cases = Vec::new();
        for mode in MODES.into_iter().filter(|mode| wanted(&self.mode, mode)) {
            for (user, uid) in users.iter().filter(|(user, _)| wanted(&self.user, user)) {
                if self.short && *user == "root" && ["read-only", "workspace-write-network"].contains(&mode) {
                    continue;
                }
                cases.push(SandboxCase { mode, user, uid: *uid });
            }
        }
        if cases.is_empty() {
            bail!("there is no such bout; the modes are {}, the users root and user", MODES.join(", "));
        }
        Ok(cases)
    }
}

/// One mode, tried by one user.
struct SandboxCase {
    mode: &'static str,
    user: &'static str,
    uid: Option<&'static str>,
}

impl SandboxCase {
    fn name(&self) -> String {
        format!("{} as {}", self.mode, self.user)
    }

    fn command(&self, options: &Options) -> anyhow::Result<Command> {
        let mut command = program("/usr/bin/python3");
        command.args(["-B", "tests/escape/run.py", "--mode", self.mode, "--binary"]).arg(command::server()?);
        command.env("ESCAPE_SCRATCH", command::target_folder()?);
        if let Some(uid) = self.uid {
            command.args(["--uid", uid]);
        }
        if let Some(only) = &options.only {
            command.args(["--only", only]);
        }
        Ok(command)
    }

    fn run(&self, options: &Options) -> anyhow::Result<Vec<AttemptResult>> {
        let ended = self.command(options)?.output().context("starting /usr/bin/python3")?;
        let shown = String::from_utf8_lossy(&ended.stdout);
        let lines: Vec<AttemptResult> = shown.lines().filter_map(AttemptResult::read).collect();
        // The runner ends with 1 when it was surprised, and says so line by line; anything else broke it.
        let told = lines.iter().any(|line| line.surprise.is_some());
        if lines.is_empty() || (!ended.status.success() && !told) {
            bail!("{}\n{}", ended.status, String::from_utf8_lossy(&ended.stderr).trim_end());
        }
        Ok(lines)
    }
}

/// How one attempt ended.
struct AttemptResult {
    key: String,
    name: String,
    outcome: String,
    events: u64,
    detail: String,
    surprise: Option<String>,
}

impl AttemptResult {
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Self {
            key: word("n")?,
            name: word("name")?,
            outcome: word("outcome")?,
            events: value["events"].as_u64()?,
            detail: word("detail").unwrap_or_default(),
            surprise: word("surprise"),
        })
    }

    /// One letter, a star if a refusal is in the log, and a mark if nobody expected it.
    fn shown(&self) -> String {
        let letter = match self.outcome.as_str() {
            "succeeded" => "S",
            "refused" => "R",
            "impossible" => "-",
            other => other,
        };
        let seen = if self.events > 0 { "*" } else { "" };
        let mark = if self.surprise.is_some() { "!" } else { "" };
        format!("{letter}{seen}{mark}")
    }
}

/// One row per attempt, one column per bout.
fn print_table<'a>(columns: &'a [(&SandboxCase, Vec<AttemptResult>)], markdown: bool) {
    let separator = if markdown { " | " } else { "  " };
    let width = |text: String| if markdown { text } else { format!("{text:4}") };
    let heads: Vec<String> = columns.iter().map(|(case, _)| case.name()).collect();
    if markdown {
        println!("| # | attempt | {} |\n|---|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    } else {
        println!("S succeeded, R refused, * it is in the log, - impossible here, ! not as expected");
        println!("columns: {}", heads.join(", "));
    }
    for line in rows(columns) {
        let of = |lines: &'a [AttemptResult]| lines.iter().find(|other| other.key == line.key);
        let outcomes =
            columns.iter().map(|(_, lines)| width(of(lines).map(AttemptResult::shown).unwrap_or_default()));
        let row = outcomes.collect::<Vec<_>>().join(separator);
        if markdown {
            println!("| {} | {} | {row} |", line.key, line.name);
        } else {
            println!("{:>4}  {row}  {}", line.key, line.name);
        }
    }
}

/// Every attempt once; some run in some bouts only.
fn rows<'a>(columns: &'a [(&SandboxCase, Vec<AttemptResult>)]) -> Vec<&'a AttemptResult> {
    let mut rows: Vec<&AttemptResult> = Vec::new();
    for line in columns.iter().flat_map(|(_, lines)| lines) {
        if rows.iter().all(|known| known.key != line.key) {
            rows.push(line);
        }
    }
    rows
}

fn print_surprises(columns: &[(&SandboxCase, Vec<AttemptResult>)]) -> usize {
    let mut count = 0;
    for (case, lines) in columns {
        for line in lines {
            let Some(surprise) = &line.surprise else { continue };
            count += 1;
            println!("surprise: {} ({}), {}: {surprise} [{}]", line.key, line.name, case.name(), line.detail);
        }
    }
    count
}
