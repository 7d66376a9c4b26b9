//! What it costs to stand between a client and an agent: `cargo xtask bench agents [--quick] [--write]`.
//!
//! The same turns with and without the server, in the same run: a scripted agent that says when it sent each
//! update, and a real one that thinks with a provider on this machine. The driver (`bench/src/bin/through.rs`)
//! only measures; what is a goal is decided here.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{build, measured_json, number, write_table};
use crate::agents::{self, AGENTS, AgentWorkspace};
use xtask::command;

const TABLE_BEGIN: &str = "<!-- through:begin -->";
const TABLE_END: &str = "<!-- through:end -->";
/// The quickest of the real ones: with a slow one, what is added would drown in its own noise.
const REAL: &str = "goose";
/// Pieces of the model's answer.
const PIECES: usize = 2000;

/// What may be added, and what must be left.
const LATENCY_P50_US_MAX: f64 = 200.0;
const LATENCY_P99_US_MAX: f64 = 2000.0;
const RATE_MIN: f64 = 0.8;
const MEMORY_MB_MAX: f64 = 15.0;
const SESSION_KB_MAX: f64 = 200.0;

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let (mut quick, mut write) = (false, false);
    for argument in arguments {
        match *argument {
            "--quick" => quick = true,
            "--write" => write = true,
            other => bail!("bench agents does not know the argument {other}"),
        }
    }
    let root = command::root();
    let product = match command::variable("ROPEWALK_BIN") {
        Some(built) => PathBuf::from(built),
        None => build(&root, &["--package", "ropewalk"], "ropewalk")?,
    };
    let driver = build(&root.join("bench"), &["--bins"], "through")?;
    // Beside the build, not in the temporary folder: that one may be memory, where a sync costs nothing.
    let scratch = driver.with_file_name("through-scratch");
    std::fs::create_dir_all(&scratch)?;
    let model = Model::start(&scratch)?;
    let subjects = [scripted(&driver, &product, &scratch)?, real(&model, &product, &scratch)?];
    let (rounds, updates, stream, sessions) =
        if quick { (1, 500, 20_000, 20) } else { (3, 3_000, 200_000, 100) };
    let plan = json!({"rounds": rounds, "updates": updates, "stream": stream, "sessions": sessions, "subjects": subjects});
    let file = scratch.join("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let mut measure = command::program(&driver);
    measure.arg("--plan").arg(&file).arg("--scratch").arg(&scratch);
    let table = render(&measured_json(&mut measure, &scratch)?);
    println!("{table}");
    if write {
        write_table(&root.join("bench/README.md"), [TABLE_BEGIN, TABLE_END], &table)?;
    }
    Ok(())
}

fn scripted(driver: &Path, product: &Path, scratch: &Path) -> anyhow::Result<Value> {
    let workspace = agents::workspace(scratch, "scripted-place", "")?;
    let agent = command::program(driver.with_file_name("echo_agent"));
    subject("scripted", &agent, &workspace, product)
}

fn real(model: &Model, product: &Path, scratch: &Path) -> anyhow::Result<Value> {
    let workspace = agents::workspace(scratch, &format!("{REAL}-place"), &model.address)?;
    let agent = AGENTS.iter().find(|agent| agent.name == REAL).context("the real agent is not known")?;
    let mut subject = subject(REAL, &agent.prepared(&workspace)?, &workspace, product)?;
    subject["updates"] = PIECES.into();
    subject["text_bytes"] = text().trim_end().len().into();
    Ok(subject)
}

fn subject(name: &str, agent: &Command, workspace: &AgentWorkspace, product: &Path) -> anyhow::Result<Value> {
    let through = agents::behind(agent, workspace, product)?;
    Ok(json!({
        "name": name,
        "scripted": name != REAL,
        "direct": words(agent, workspace)?,
        "through": words(&through, workspace)?,
    }))
}

/// A command in words, with the environment that it is given and nothing else. The state is the driver's to place.
fn words(command: &Command, workspace: &AgentWorkspace) -> anyhow::Result<Vec<String>> {
    let text = |word: &std::ffi::OsStr| word.to_str().map(str::to_owned).context("a word that is no text");
    let mut words = vec!["env".to_owned(), "-i".to_owned(), format!("HOME={}", workspace.home.display())];
    words.extend(command::variable("PATH").map(|path| format!("PATH={path}")));
    for (name, value) in command.get_envs() {
        words.push(format!("{}={}", text(name)?, text(value.unwrap_or_default())?));
    }
    words.push(text(command.get_program())?);
    for argument in command.get_args() {
        words.push(text(argument)?);
    }
    Ok(words)
}

/// The provider that the real agent thinks with.
struct Model {
    child: Child,
    address: String,
}

impl Model {
    fn start(scratch: &Path) -> anyhow::Result<Self> {
        let (file, bin) = (scratch.join("model.json"), ["--package", "testkit", "--bin", "mock-provider"]);
        let program = build(&command::root(), &bin, "mock-provider")?;
        let mut reply: Vec<Value> = (0..PIECES).map(|n| json!({"text": piece(n)})).collect();
        reply.push(json!({"usage": {"input": 100, "output": PIECES}}));
        std::fs::write(&file, json!([reply]).to_string())?;
        let mut command = command::program(program);
        command.arg("--script").arg(&file).arg("--repeat").stdout(Stdio::piped());
        let mut child = command.spawn().context("the provider cannot be started")?;
        let mut line = String::new();
        let output = child.stdout.take().context("the provider has no output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
        let address = line.trim().rsplit("//").next().unwrap_or_default().to_owned();
        Ok(Self { child, address })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn piece(n: usize) -> String {
    format!("piece {n} of it, ")
}

fn text() -> String {
    (0..PIECES).map(piece).collect()
}

/// How the added or the remaining is judged.
enum Goal {
    None,
    AddsAtMost(f64),
    KeepsAtLeast(f64),
}

fn render(report: &Value) -> String {
    let mut lines = vec![
        format!("{} rounds; the driver's own client at both ends.", report["rounds"]),
        String::new(),
        "| | unit | alone | behind ropewalk | | goal | |".to_owned(),
        "|---|---|--:|--:|--:|--:|---|".to_owned(),
    ];
    for (name, found) in report["subjects"].as_object().into_iter().flatten() {
        let mut row = |what: &str, unit: &str, key: &str, scale: f64, goal: &Goal| {
            let of = |way: &str| found[way][key].as_f64().map(|value| value * scale);
            if let (Some(alone), Some(behind)) = (of("direct"), of("through")) {
                lines.push(line(&format!("{name}: {what}"), unit, alone, behind, goal));
            }
        };
        row("an update on its way, p50", "µs", "latency_p50_us", 1.0, &Goal::AddsAtMost(LATENCY_P50_US_MAX));
        row("an update on its way, p99", "µs", "latency_p99_us", 1.0, &Goal::AddsAtMost(LATENCY_P99_US_MAX));
        row("updates", "1/s", "updates_per_s", 1.0, &Goal::KeepsAtLeast(RATE_MIN));
        row("a short turn, p50", "µs", "turn_p50_us", 1.0, &Goal::None);
        row("a short turn, p99", "µs", "turn_p99_us", 1.0, &Goal::None);
        // What the client started is, behind the server, the server alone; so all of it is added.
        let kb = |key: &str| found["through"][key].as_f64();
        let whole = |what: &str, unit: &str, value: Option<f64>, most: Option<f64>| {
            let verdict = |value: f64, most: f64| {
                format!("<= {} | {}", number(most), if value <= most { "hit" } else { "MISS" })
            };
            value.map(|value| {
                let verdict = most.map_or_else(|| " | ".to_owned(), |most| verdict(value, most));
                format!("| {name}: {what} | {unit} | - | {0} | {0} added | {verdict} |", number(value))
            })
        };
        lines.extend(whole(
            "memory of the server, 1 session",
            "MB",
            kb("memory_kb").map(|kb| kb / 1000.0),
            Some(MEMORY_MB_MAX),
        ));
        lines.extend(whole(
            "of that not the program's own file",
            "MB",
            kb("own_kb").map(|kb| kb / 1000.0),
            None,
        ));
        lines.extend(whole(
            "memory of the server, each further session",
            "KB",
            kb("session_kb"),
            Some(SESSION_KB_MAX),
        ));
    }
    lines.join("\n")
}

fn line(what: &str, unit: &str, alone: f64, behind: f64, goal: &Goal) -> String {
    let verdict = |met: bool| if met { "hit" } else { "MISS" };
    let (added, ratio) = (behind - alone, behind / alone);
    let (shown, goal, verdict) = match goal {
        Goal::None => (format!("{ratio:.2}x"), String::new(), ""),
        Goal::AddsAtMost(most) => (
            format!("{} added", number(added.max(0.0))),
            format!("<= {}", number(*most)),
            verdict(added <= *most),
        ),
        Goal::KeepsAtLeast(least) => {
            (format!("{ratio:.2}x"), format!(">= {least}x"), verdict(ratio >= *least))
        }
    };
    format!("| {what} | {unit} | {} | {} | {shown} | {goal} | {verdict} |", number(alone), number(behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_judged_and_what_was_not_measured_is_left_out() {
        let report = json!({"rounds": 1, "subjects": {"scripted": {
            "direct": {"latency_p50_us": 50.0, "latency_p99_us": 100.0, "updates_per_s": 1000.0, "memory_kb": 2000.0},
            "through": {"latency_p50_us": 150.0, "latency_p99_us": 2500.0, "updates_per_s": 850.0, "memory_kb": 16_000.0},
        }}});
        let text = render(&report);
        let wanted = [
            "| scripted: an update on its way, p50 | µs | 50 | 150 | 100 added | <= 200 | hit |",
            "| scripted: an update on its way, p99 | µs | 100 | 2,500 | 2,400 added | <= 2,000 | MISS |",
            "| scripted: updates | 1/s | 1,000 | 850 | 0.85x | >= 0.8x | hit |",
            "| scripted: memory of the server, 1 session | MB | - | 16 | 16 added | <= 15 | MISS |",
        ];
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains("turn"), "{text}");
    }

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let page = include_str!("../../../bench/README.md");
        assert!(page.contains(TABLE_BEGIN) && page.contains(TABLE_END));
    }
}
