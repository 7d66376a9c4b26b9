//! `cargo xtask bench hub [--quick] [--write] [--sessions N] [--browsers N] [--only sqlite|postgres|three|nats]`: how much one hub
//! and three bear.
//!
//! The bridges and the browsers run beside the hubs on this machine and take their share of it, so the numbers are
//! what is left. `--write` puts the tables into `bench/README.md`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::{build, grouped, measured_json, write_table};
use xtask::command::{self, cargo};
use xtask::setup;

const TABLE_BEGIN: &str = "<!-- hub:begin -->";
const TABLE_END: &str = "<!-- hub:end -->";

/// What is measured: a word for it, how many hubs, on PostgreSQL, woken by NATS.
const SCENES: [(&str, usize, bool, bool); 4] = [
    ("sqlite", 1, false, false),
    ("postgres", 1, true, false),
    ("three", 3, true, false),
    ("nats", 3, true, true),
];

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut write, mut only, mut passed) = (false, None, Vec::new());
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--write" => write = true,
            "--only" => only = Some(value()?),
            "--quick" => passed.push(flag.clone()),
            "--sessions" | "--browsers" => passed.extend([flag.clone(), value()?]),
            _ => bail!("bench hub does not know the argument {flag}"),
        }
    }
    let known = only.as_ref().is_none_or(|only| SCENES.iter().any(|(word, ..)| word == only));
    ensure!(known, "--only knows sqlite, postgres, three and nats");
    setup::run()?;
    let product = build(&command::root(), &["--package", "ropewalk"], "ropewalk")?;
    let program = build(&command::root().join("bench"), &["--bin", "hub"], "hub")?;
    let servers = Servers::start()?;
    let mut tables = Vec::new();
    let wanted = SCENES.iter().filter(|(word, ..)| only.as_ref().is_none_or(|only| only == word));
    for (number, (word, hubs, postgres, nats)) in wanted.enumerate() {
        // Beside the build, not in the temporary folder: that one may be memory, where a sync costs nothing.
        let scratch = program.with_file_name(format!("hub-scratch-{word}"));
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch).context("removing what an earlier run left")?;
        }
        let mut command = command::program(&program);
        command.arg("--product").arg(&product).arg("--scratch").arg(&scratch).args(&passed);
        command.args(["--hubs", &hubs.to_string()]);
        if *postgres {
            command.args(["--store", servers.database(number)?]);
        }
        if *nats {
            command.args(["--bus", servers.nats()?]);
        }
        let report = measured_json(&mut command, &scratch)?;
        std::fs::remove_dir_all(&scratch).context("removing what the measurement left")?;
        let table = render(*hubs, *postgres, *nats, &report);
        println!("{table}\n");
        tables.push(table);
    }
    if write {
        write_table(&command::root().join("bench/README.md"), [TABLE_BEGIN, TABLE_END], &tables.join("\n\n"))
    } else {
        Ok(())
    }
}

fn render(hubs: usize, postgres: bool, nats: bool, report: &Value) -> String {
    let number = |key: &str| report[key].as_f64().unwrap_or(0.0);
    let hubs_word = if hubs == 1 { "One hub".to_owned() } else { format!("{hubs} hubs") };
    let store = if postgres { "PostgreSQL" } else { "SQLite" };
    let bus = if nats { ", woken by NATS" } else { "" };
    let each = |more: f64, count: f64| grouped(more.max(0.0) / count.max(1.0));
    let mut lines = vec![
        format!(
            "**{hubs_word} on {store}{bus}**: {} bridged sessions (attached in {:.1} s), {} browsers; memory {} MiB empty, \
             {} KiB for each session, {} KiB for each browser; {} connections lost.",
            grouped(number("sessions")),
            number("attached_s"),
            grouped(number("browsers")),
            grouped(number("empty_kb") / 1024.0),
            each(number("bridged_kb") - number("empty_kb"), number("sessions")),
            each(number("watched_kb") - number("bridged_kb"), number("browsers")),
            grouped(number("lost")),
        ),
        String::new(),
        "| a batch per session every | events/s | views/s to browsers | delay p50 | delay p99 | cores of the hubs |".to_owned(),
        "|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    for step in report["steps"].as_array().into_iter().flatten() {
        let number = |key: &str| step[key].as_f64().unwrap_or(0.0);
        lines.push(format!(
            "| {} ms | {} | {} | {:.1} ms | {:.1} ms | {:.2} |",
            grouped(number("every_ms")),
            grouped(number("events_per_s")),
            grouped(number("views_per_s")),
            number("p50_ms"),
            number("p99_ms"),
            number("cpu"),
        ));
    }
    lines.join("\n")
}

/// PostgreSQL and NATS, for as long as this lives.
struct Servers {
    child: Child,
    places: Value,
}

impl Servers {
    fn start() -> anyhow::Result<Self> {
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", "testkit", "--bin", "servers"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting the servers")?;
        let mut line = String::new();
        let output = child.stdout.take().context("the servers have no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let places = serde_json::from_str(&line).context("the servers did not say where they are")?;
        Ok(Self { child, places })
    }

    fn database(&self, number: usize) -> anyhow::Result<&str> {
        self.places["databases"][number].as_str().context("not enough databases")
    }

    fn nats(&self) -> anyhow::Result<&str> {
        self.places["nats"].as_str().context("no NATS")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // They end by themselves when they read the end of their input.
        drop(self.child.wait());
    }
}
