//! `cargo xtask bench`: builds the product and the bench, lets the driver measure, prints a table.
//!
//! `bench [--quick] [--rounds N] [--write] [--only guards|doors] [--serve-args "ARGS"]
//! [--agent-command "COMMAND ARGS"]`
//!
//! `--write` puts the tables into `bench/README.md`. `--only guards` measures, prints and writes only
//! what the guards cost, `--only doors` only what the HTTP door does. `--agent-command` measures any other ACP agent in the product's place, without
//! the guards and doors, which only the product has; its words are split at spaces.
//!
//! **Invariant:** what is a goal and whether it is met is decided here alone; the driver only measures.

pub mod agents;
mod doors;
mod guards;
pub mod hub;
pub mod turns;
pub mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::flags;

/// The sessions of the memory measurement must not be evicted while they are counted.
const SERVE: &str = "./ropewalk serve --max-sessions 2000";
const TABLE_BEGIN: &str = "<!-- bench:begin -->";
const TABLE_END: &str = "<!-- bench:end -->";

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(args)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("drills has no parent folder")?;
    let readme = root.join("bench/README.md");
    let product = match &options.agent_command {
        Some(_) => None,
        None => Some(build(root, &["--package", "ropewalk"], "ropewalk")?),
    };
    if options.wants("agents") {
        let driver = build(&root.join("bench"), &["--bins"], "driver")?;
        let folder = product.as_deref().map_or(Some(root), Path::parent);
        let report = measure(&driver, folder.context("the binary has no folder")?, &options)?;
        options.show(&readme, [TABLE_BEGIN, TABLE_END], &Table::new(&report).render())?;
    }
    let Some(product) = product else { return Ok(()) };
    if options.wants("guards") {
        let program = build(&root.join("bench"), &["--bin", "guards"], "guards")?;
        let report = guards::measure(&program, &product, &options)?;
        options.show(&readme, [guards::TABLE_BEGIN, guards::TABLE_END], &guards::render(&report))?;
        guards::unavailable(&report).iter().for_each(|line| eprintln!("{line}"));
    }
    if options.wants("doors") {
        let program = build(&root.join("bench"), &["--bin", "doors"], "doors")?;
        let report = doors::measure(&program, &product, &options)?;
        options.show(&readme, [doors::TABLE_BEGIN, doors::TABLE_END], &doors::render(&report))?;
    }
    Ok(())
}

#[derive(Default)]
struct Options {
    quick: bool,
    write: bool,
    /// The one table that is wanted; without it, all of them.
    only: Option<String>,
    rounds: Option<String>,
    serve_args: String,
    agent_command: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        flags::read("bench", args, |flag, value| {
            match flag {
                "--quick" => options.quick = true,
                "--write" => options.write = true,
                "--only" => match value()?.as_str() {
                    known @ ("guards" | "doors") => options.only = Some(known.to_owned()),
                    other => bail!("--only knows guards and doors, not {other}"),
                },
                "--rounds" => options.rounds = Some(value()?),
                "--serve-args" => options.serve_args = value()?,
                "--agent-command" => options.agent_command = Some(value()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        ensure!(
            options.only.is_none() || options.agent_command.is_none(),
            "--only measures the product, so leave out --agent-command"
        );
        Ok(options)
    }

    fn only(&self, table: &str) -> bool {
        self.only.as_deref() == Some(table)
    }

    fn wants(&self, table: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == table)
    }

    /// Prints a table, and puts it into the page if that is wanted.
    fn show(&self, page: &Path, marks: [&str; 2], table: &str) -> anyhow::Result<()> {
        println!("{table}\n");
        if self.write { write_table(page, marks, table) } else { Ok(()) }
    }
}

/// Builds in release mode and returns the path of the executable `name`, wherever cargo put it.
#[expect(clippy::disallowed_methods, reason = "drills runs cargo; nothing here is a sandboxed tool")]
pub fn build(workspace: &Path, selection: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["build", "--release", "--message-format=json-render-diagnostics"])
        .args(selection)
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the build in {} failed", workspace.display());
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no executable named {name}"))
}

#[expect(clippy::disallowed_methods, reason = "drills runs its own driver; nothing here is a sandboxed tool")]
fn measure(driver: &Path, folder: &Path, options: &Options) -> anyhow::Result<Value> {
    let (name, subject) = match &options.agent_command {
        Some(command) => ("agent", command.clone()),
        None => ("ropewalk", format!("{SERVE} {}", options.serve_args)),
    };
    // Beside the build, not in the temporary folder: that one may be memory, where a sync costs nothing.
    let scratch = driver.with_file_name("bench-scratch");
    let mut command = Command::new(driver);
    command.args(["--name", name, "--subject", &subject]).arg("--scratch").arg(&scratch);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(rounds) = &options.rounds {
        command.args(["--rounds", rounds]);
    }
    measured_json(command.current_dir(folder), &scratch)
}

/// Runs a program that measures; what it prints is its report.
fn measured_json(command: &mut Command, scratch: &Path) -> anyhow::Result<Value> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name} failed; what it left is in {}", scratch.display());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Puts a table between its marks and leaves everything else as it is.
fn write_table(path: &Path, marks: [&str; 2], table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    std::fs::write(path, with_table(&text, marks, table)?)?;
    Ok(())
}

fn with_table(text: &str, [begin, end]: [&str; 2], table: &str) -> anyhow::Result<String> {
    let lost = |mark: &str| format!("bench/README.md has lost its mark {mark}");
    let (before, rest) = text.split_once(begin).with_context(|| lost(begin))?;
    let (_, after) = rest.split_once(end).with_context(|| lost(end))?;
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}

/// What a measured value has to be.
#[derive(Clone, Copy)]
enum Goal {
    None,
    TimesEchoAtMost(f64),
    TimesEchoAtLeast(f64),
    AtMost(f64),
    /// The time says nothing, because not all of the text came.
    WholeText,
}

struct Row {
    what: String,
    unit: &'static str,
    subject: Option<f64>,
    echo: Option<f64>,
    synced: Option<f64>,
    sdk: Option<f64>,
    goal: Goal,
}

struct Table<'a> {
    report: &'a Value,
    subject: &'a str,
    rows: Vec<Row>,
}

impl<'a> Table<'a> {
    fn new(report: &'a Value) -> Self {
        let subject = report["subject"].as_str().unwrap_or("agent");
        let mut table = Self { report, subject, rows: Vec::new() };
        table.speed();
        table.memory();
        table.loads();
        table.kills();
        table
    }

    fn speed(&mut self) {
        let sync_us = self.report["fdatasync_p50_us"].as_f64().unwrap_or(0.0);
        let sync_ms = sync_us / 1000.0;
        self.measured("start to `initialize` reply", "ms", "initialize_ms", 1.0, Goal::TimesEchoAtMost(3.0));
        self.measured(
            "start to first streamed chunk",
            "ms",
            "first_chunk_ms",
            1.0,
            Goal::TimesEchoAtMost(4.0),
        );
        self.measured("turn, p50", "µs", "turn_p50_us", 1.0, Goal::TimesEchoAtMost(4.0));
        let what = format!("turn, p50, less one fdatasync ({sync_us:.0} µs)");
        self.less_sync(what, "µs", "turn_p50_us", sync_us);
        self.measured("turn, p99", "µs", "turn_p99_us", 1.0, Goal::None);
        let text = |agent: &str| self.value(agent, "stream_text_bytes").unwrap_or(0.0);
        // Chunks are "about" 100 bytes, so a little less is no loss.
        let whole = text(self.subject) >= text("echo") * 0.8;
        let goal = if whole { Goal::TimesEchoAtLeast(0.177) } else { Goal::WholeText };
        self.measured("streamed chunks", "1/s", "chunks_per_s", 1.0, goal);
        self.measured("text in that stream", "MB", "stream_text_bytes", 1e-6, Goal::None);
        self.measured("notifications in that stream", "", "stream_notifications", 1.0, Goal::None);
        self.measured("cancel to reply", "ms", "cancel_ms", 1.0, Goal::AtMost(2.0));
        let what = format!("cancel to reply, less one fdatasync ({sync_ms:.2} ms)");
        self.less_sync(what, "ms", "cancel_ms", sync_ms);
    }

    fn memory(&mut self) {
        self.measured("memory, peak of the stream", "MB", "stream_peak_kb", 1e-3, Goal::None);
        self.measured("memory, 1 session", "MB", "memory_1_kb", 1e-3, Goal::AtMost(15.0));
        self.measured("memory, 20 sessions", "MB", "memory_20_kb", 1e-3, Goal::AtMost(18.0));
        self.measured("memory, 1,000 sessions", "MB", "memory_1000_kb", 1e-3, Goal::None);
        let further = |agent: &str| {
            let many = self.value(agent, "memory_1000_kb")?;
            Some((many - self.value(agent, "memory_20_kb")?) / 980.0)
        };
        let row =
            Row::new("memory, each further session", "KB", Goal::AtMost(50.0)).with(self.subject, further);
        self.rows.push(row);
    }

    fn loads(&mut self) {
        let mut per_event: Vec<f64> = Vec::new();
        for load in self.report["agents"][self.subject]["load"].as_array().into_iter().flatten() {
            let (Some(events), Some(ms)) = (load["events"].as_f64(), load["ms"].as_f64()) else { continue };
            // A small session is allowed the fixed cost of any request.
            let most_ms = (events / 100.0).max(100.0);
            let goal = if load["complete"] == true { Goal::AtMost(most_ms) } else { Goal::WholeText };
            self.alone(&format!("load of {} events", grouped(events)), "ms", ms, goal);
            if events >= 100_000.0 {
                per_event.push(ms / events);
            }
        }
        if let [small, .., large] = per_event.as_slice() {
            self.alone("load, cost per event, largest to 100,000", "times", large / small, Goal::AtMost(1.5));
        }
    }

    fn kills(&mut self) {
        let kill = &self.report["agents"][self.subject]["kill"];
        if let (Some(kills), Some(received), Some(lost)) =
            (kill["kills"].as_u64(), kill["received_bytes"].as_f64(), kill["lost_bytes"].as_f64())
        {
            let what = format!("lost of {:.1} MB received, {kills} x `kill -9`", received * 1e-6);
            self.alone(&what, "bytes", lost, Goal::AtMost(0.0));
        }
    }

    fn value(&self, agent: &str, key: &str) -> Option<f64> {
        self.report["agents"][agent][key].as_f64()
    }

    fn measured(&mut self, what: &str, unit: &'static str, key: &str, scale: f64, goal: Goal) {
        let value = |agent: &str| self.value(agent, key).map(|value| value * scale);
        self.rows.push(Row::new(what, unit, goal).with(self.subject, value));
    }

    /// An estimate and therefore without a goal: two medians are subtracted, and where the sync alone
    /// takes longer than the whole, the agent did not wait for one and there is nothing to say.
    fn less_sync(&mut self, what: String, unit: &'static str, key: &str, sync: f64) {
        let mut row = Row::new(&what, unit, Goal::None);
        row.subject = self.value(self.subject, key).map(|value| value - sync).filter(|rest| *rest > 0.0);
        row.echo = self.value("echo", key);
        self.rows.push(row);
    }

    fn alone(&mut self, what: &str, unit: &'static str, value: f64, goal: Goal) {
        let mut row = Row::new(what, unit, goal);
        row.subject = Some(value);
        self.rows.push(row);
    }

    fn render(&self) -> String {
        let form = if self.report["quick"] == true { "quick" } else { "full" };
        let count = |key: &str| grouped(self.report[key].as_f64().unwrap_or(0.0));
        let mut lines = vec![
            format!(
                "Form: {form}, {} rounds, {} turns per round, streams of {} chunks. A 4 KiB append with fdatasync \
                 took {:.0} µs (p50) and {:.0} µs (p99) in the same run.",
                count("rounds"),
                count("turns_per_round"),
                count("stream_chunks"),
                self.report["fdatasync_p50_us"].as_f64().unwrap_or(0.0),
                self.report["fdatasync_p99_us"].as_f64().unwrap_or(0.0),
            ),
            String::new(),
            format!(
                "| | unit | {0} | echo | echo that syncs | sdk | {0} / echo | {0} / echo that syncs | goal | |",
                self.subject
            ),
            "|---|---|--:|--:|--:|--:|--:|--:|--:|---|".to_owned(),
        ];
        lines.extend(self.rows.iter().map(Row::render));
        lines.join("\n")
    }
}

impl Row {
    fn new(what: &str, unit: &'static str, goal: Goal) -> Self {
        Self { what: what.to_owned(), unit, subject: None, echo: None, synced: None, sdk: None, goal }
    }

    fn with(self, subject: &str, value: impl Fn(&str) -> Option<f64>) -> Self {
        Self {
            subject: value(subject),
            echo: value("echo"),
            synced: value("synced"),
            sdk: value("sdk"),
            ..self
        }
    }

    fn render(&self) -> String {
        let show = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let times =
            |reference| self.ratio_to(reference).map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
        let (goal, met) = self.judged();
        let cells = [
            self.what.clone(),
            self.unit.to_owned(),
            show(self.subject),
            show(self.echo),
            show(self.synced),
            show(self.sdk),
            times(self.echo),
            times(self.synced),
            goal,
            met.to_owned(),
        ];
        format!("| {} |", cells.join(" | "))
    }

    fn ratio_to(&self, reference: Option<f64>) -> Option<f64> {
        Some(self.subject? / reference.filter(|value| *value > 0.0)?)
    }

    fn ratio(&self) -> Option<f64> {
        self.ratio_to(self.echo)
    }

    fn judged(&self) -> (String, &'static str) {
        let (goal, met) = match self.goal {
            Goal::None => return (String::new(), ""),
            Goal::TimesEchoAtMost(times) => {
                (format!("<= {times}x"), self.ratio().map(|ratio| ratio <= times))
            }
            Goal::TimesEchoAtLeast(times) => {
                (format!(">= {times}x"), self.ratio().map(|ratio| ratio >= times))
            }
            Goal::WholeText => ("the whole text".to_owned(), self.subject.map(|_| false)),
            Goal::AtMost(most) => (format!("<= {}", number(most)), self.subject.map(|value| value <= most)),
        };
        let verdict = match met {
            Some(true) => "hit",
            Some(false) => "MISS",
            None => "not measured",
        };
        (goal, verdict)
    }
}

/// Three digits that matter, large numbers with separators.
fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => grouped(value),
        value if value >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Options, TABLE_BEGIN, TABLE_END, Table, grouped, guards, number, with_table};

    #[test]
    fn numbers_keep_three_digits_and_group_the_rest() {
        let shown: Vec<String> = [0.0, 0.123, 12.34, 123.4, 1234.5, 1_449_807.4].map(number).to_vec();
        assert_eq!(shown, ["0", "0.12", "12.3", "123", "1,234", "1,449,807"]);
        assert_eq!(grouped(100.0), "100");
    }

    #[test]
    fn a_goal_that_was_not_measured_is_neither_hit_nor_missed() {
        let report = json!({
            "subject": "ropewalk",
            "agents": {"echo": {"initialize_ms": 1.0}, "ropewalk": {"initialize_ms": 3.5}},
        });
        let text = Table::new(&report).render();
        assert!(
            text.contains(
                "| start to `initialize` reply | ms | 3.50 | 1 | - | - | 3.50x | - | <= 3x | MISS |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| memory, 1 session | MB | - | - | - | - | - | - | <= 15 | not measured |"),
            "{text}"
        );
    }

    #[test]
    fn each_table_is_replaced_without_the_other() {
        let page = include_str!("../../bench/README.md");
        let (marks, others) = ([guards::TABLE_BEGIN, guards::TABLE_END], [TABLE_BEGIN, TABLE_END]);
        let one = with_table(page, marks, "guards").unwrap();
        assert!(one.contains("<!-- guards:begin -->\nguards\n<!-- guards:end -->"), "{one}");
        let between =
            |text: &str| text.split(others[0]).nth(1).unwrap().split(others[1]).next().unwrap().to_owned();
        assert_eq!(between(&one), between(page));
        let both = with_table(&one, others, "agents").unwrap();
        assert!(both.contains("\nguards\n") && both.contains("<!-- bench:begin -->\nagents\n"), "{both}");
    }

    #[test]
    fn only_the_product_has_guards_and_doors_to_measure() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::parse(&words).map(|options| options.only).map_err(|error| error.to_string())
        };
        assert_eq!(parse(&["--only", "guards"]), Ok(Some("guards".into())));
        assert_eq!(parse(&["--only", "doors"]), Ok(Some("doors".into())));
        assert_eq!(parse(&["--only", "turns"]), Err("--only knows guards and doors, not turns".into()));
        assert!(parse(&["--only", "guards", "--agent-command", "x"]).is_err());
    }
}
