//! What the web app costs in a browser: `cargo xtask bench web [--write] [--without-peer]`.
//!
//! `tests/web/bench.mjs` drives Chromium on the release binary and says numbers; the goals stand here.
//! Beside it stands opencode's web page with a session of the same size, where it can be installed.
//!
//! **Invariant:** the script only measures; what a goal is and whether it is met is decided here alone.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::Value;

use super::{build, number, write_table};
use crate::agents;
use xtask::command::{self, program};
use xtask::setup;

pub(super) const TABLE_BEGIN: &str = "<!-- web:begin -->";
pub(super) const TABLE_END: &str = "<!-- web:end -->";
const PEER: &str = "opencode";

/// A number of the report by its name, and the most it may be.
struct MetricGoal {
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    at_most: Option<f64>,
}

const fn wanted(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    at_most: Option<f64>,
) -> MetricGoal {
    MetricGoal { name, what, unit, at_most }
}

const ROWS: [MetricGoal; 19] = [
    wanted("first_scripts_kb", "JavaScript of the first load, compressed", "KB", Some(60.0)),
    wanted("first_kb", "all of the first load, compressed", "KB", None),
    wanted("transferred_kb", "everything that came until the session was shown", "KB", None),
    wanted("open_ms", "a session of 100,000 events, from navigation to its last row", "ms", Some(1000.0)),
    wanted("open_slow_ms", "the same with a processor four times slower", "ms", None),
    wanted("open_cpu_ms", "the same, main thread", "ms", None),
    wanted("open_nodes", "DOM nodes then", "", Some(6000.0)),
    wanted("open_heap_mb", "JavaScript heap then", "MB", None),
    wanted("scroll_gap_p50_ms", "scrolling through it: time between frames, p50", "ms", None),
    wanted("scroll_gap_p95_ms", "the same, p95", "ms", None),
    wanted("scroll_gap_max_ms", "the same, longest", "ms", None),
    wanted("stream_flush_ms", "streaming for 10 s: main thread per flush, mean", "ms", Some(8.0)),
    wanted("stream_flushes", "flushes per second", "1/s", None),
    wanted("stream_cpu_percent", "main thread busy", "%", None),
    wanted("stream_long_tasks", "long tasks (over 50 ms)", "", None),
    wanted("stream_nodes", "DOM nodes at the end", "", Some(6000.0)),
    wanted("stream_heap_mb", "JavaScript heap at the end", "MB", Some(40.0)),
    wanted("anchor_px", "the row being read moved while output arrived below", "px", Some(0.0)),
    wanted("type_ms", "a key in the composer while it streams, until it is painted, p95", "ms", None),
];

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut write, mut peer) = (false, true);
    for flag in args {
        match flag.as_str() {
            "--write" => write = true,
            "--without-peer" => peer = false,
            _ => bail!("bench web does not know the argument {flag}"),
        }
    }
    setup::run()?;
    let product = match command::variable("ROPEWALK_BIN") {
        Some(built) => PathBuf::from(built),
        None => build(&command::root(), &["--package", "ropewalk"], "ropewalk")?,
    };
    let mut measure = program("node");
    measure.arg("tests/web/bench.mjs").env("ROPEWALK_BIN", &product);
    if peer {
        match agents::executable(PEER) {
            Ok(found) => drop(measure.env("PEER_BIN", found)),
            Err(error) => eprintln!("{PEER} is not measured: {error:#}"),
        }
    }
    let said = command::output(&mut measure)?;
    let report = said.lines().last().context("the script said nothing")?;
    let report: Value = serde_json::from_str(report).context("reading what the script measured")?;
    let table = render(&report);
    println!("{table}");
    if write {
        write_table(&command::root().join("bench/README.md"), [TABLE_BEGIN, TABLE_END], &table)?;
    }
    Ok(())
}

fn render(report: &Value) -> String {
    let mut lines =
        vec![format!("| | unit | ropewalk | {PEER} | goal | |"), "|---|---|--:|--:|--:|---|".to_owned()];
    for row in &ROWS {
        let ours = report["ropewalk"][row.name].as_f64();
        let theirs = report[PEER][row.name].as_f64();
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let goal = row.at_most.map_or(String::new(), |most| format!("<= {}", number(most)));
        let verdict = match (row.at_most, ours) {
            (None, _) => "",
            (Some(_), None) => "not measured",
            (Some(most), Some(value)) if value <= most => "hit",
            (Some(_), Some(_)) => "MISS",
        };
        lines.push(format!(
            "| {} | {} | {} | {} | {goal} | {verdict} |",
            row.what,
            row.unit,
            shown(ours),
            shown(theirs)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::render;

    #[test]
    fn a_goal_is_hit_missed_or_not_measured() {
        let table = render(&json!({
            "ropewalk": {"first_scripts_kb": 60.0, "anchor_px": 1.0},
            "opencode": {"open_ms": 5000.0},
        }));
        for line in [
            "| JavaScript of the first load, compressed | KB | 60 | - | <= 60 | hit |",
            "| the row being read moved while output arrived below | px | 1 | - | <= 0 | MISS |",
            "| a session of 100,000 events, from navigation to its last row | ms | - | 5,000 | <= 1,000 | not measured |",
        ] {
            assert!(table.contains(line), "{table}");
        }
    }
}
