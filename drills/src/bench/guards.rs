//! What the guards cost: the second table of `cargo xtask bench`.

use std::path::Path;

use serde_json::Value;

use super::{Options, measured_json, number};

pub(super) const TABLE_BEGIN: &str = "<!-- guards:begin -->";
pub(super) const TABLE_END: &str = "<!-- guards:end -->";

/// Starting the whole of it with bubblewrap took 40 times as long as a plain start.
const START_TIMES_MAX: f64 = 5.0;
const PATH_US_MAX: f64 = 50.0;

/// The modes that have a fence, narrow to wide, and the one that only has its helper.
const STARTS: [(&str, &str); 4] = [
    ("read-only", "start of `true`, `read-only`"),
    ("workspace-write", "start of `true`, `workspace-write`"),
    ("workspace-write-network", "start of `true`, `workspace-write-network`"),
    ("off", "start of `true`, `off`, with its helper"),
];

const PARTS: [(&str, &str); 5] = [
    ("find_file", "its part: `Files::find` of an existing file"),
    ("assess", "its part: `assess_command`"),
    ("rules", "its part: `Rulebook::find`"),
    ("decide", "its part: `decide`"),
    ("hand_over", "not in it: a hand-over to a thread that may block, and back"),
];

/// `program` is the built `guards` and `helper` the product that builds the fences.
pub(super) fn measure(program: &Path, helper: &Path, options: &Options) -> anyhow::Result<Value> {
    // Beside the build, not in the temporary folder: a fence treats that one in its own way.
    let scratch = program.with_file_name("guards-scratch");
    let mut command = xtask::command::program(program);
    command.arg("--helper").arg(helper).arg("--scratch").arg(&scratch);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(rounds) = options.rounds.as_ref().filter(|_| options.only("guards")) {
        command.args(["--rounds", rounds]);
    }
    measured_json(&mut command, &scratch)
}

pub(super) fn render(report: &Value) -> String {
    let count = |key: &str| super::grouped(report[key].as_f64().unwrap_or(0.0));
    let form = if report["quick"] == true { "quick" } else { "full" };
    let mut lines = vec![
        format!(
            "Form: {form}, {} rounds of starts; {} commands and {} rules on the guard path, {} calls, of which a \
             rule knew {}.",
            count("rounds"),
            count("commands"),
            count("rules"),
            count("calls"),
            count("calls_with_a_rule"),
        ),
        String::new(),
        "| | unit | p50 | p95 | p99 | p50 / plain | p95 / plain | goal | |".to_owned(),
        "|---|---|--:|--:|--:|--:|--:|--:|---|".to_owned(),
    ];
    lines.extend(starts(&report["start_ms"]));
    lines.extend(path(&report["path_us"]));
    let (opens, none) = (&report["open_us"], &Value::Null);
    let open = |what, kind: &str, plain| {
        Row { what, unit: "µs", value: &opens[kind], plain, goal: Goal::None }.render()
    };
    lines.push(open("opening a file for writing, by a command without a fence", "unfenced", none));
    let what = "opening a file for writing, by a command in `workspace-write`";
    lines.push(open(what, "workspace-write", &opens["unfenced"]));
    let what = format!("looking for secrets in a chunk of {} bytes", count("chunk_bytes"));
    let value = &report["redaction_ns"];
    lines.push(Row { what: &what, unit: "ns", value, plain: none, goal: Goal::None }.render());
    lines.join("\n")
}

/// Why a mode could not be measured, for whoever runs this.
pub(super) fn unavailable(report: &Value) -> Vec<String> {
    let reason = |(mode, _): &(&str, _)| {
        let reason = report["start_ms"][*mode]["unavailable"].as_str()?;
        Some(format!("{mode} is not measured: {reason}; see `ropewalk doctor`"))
    };
    STARTS.iter().filter_map(reason).collect()
}

fn starts(report: &Value) -> Vec<String> {
    let plain = &report["plain"];
    let row = |what, value, plain, goal| Row { what, unit: "ms", value, plain, goal }.render();
    let mut lines = vec![
        row("start of `true`, plain", plain, &Value::Null, Goal::None),
        row("start of `true`, by the product without a fence", &report["unfenced"], plain, Goal::None),
    ];
    let goal = Goal::TimesPlainAtMost(START_TIMES_MAX);
    lines.extend(STARTS.iter().map(|(mode, what)| row(what, &report[*mode], plain, goal)));
    lines
}

fn path(report: &Value) -> Vec<String> {
    let row = |what, key: &str, goal| {
        Row { what, unit: "µs", value: &report[key], plain: &Value::Null, goal }.render()
    };
    let mut lines = vec![row("guard path of a tool call", "whole", Goal::AtMost(PATH_US_MAX))];
    lines.extend(PARTS.iter().map(|(key, what)| row(what, key, Goal::None)));
    lines
}

/// What a median has to be.
#[derive(Clone, Copy)]
enum Goal {
    None,
    TimesPlainAtMost(f64),
    AtMost(f64),
}

struct Row<'a> {
    what: &'a str,
    unit: &'a str,
    /// Percentiles by their names.
    value: &'a Value,
    /// The same of what it is compared with.
    plain: &'a Value,
    goal: Goal,
}

impl Row<'_> {
    fn render(&self) -> String {
        let show = |key: &str| self.value[key].as_f64().map_or("-".to_owned(), number);
        let times = |key: &str| self.times(key).map_or("-".to_owned(), |times| format!("{times:.2}x"));
        let (goal, met) = match self.goal {
            Goal::None => (String::new(), None),
            Goal::TimesPlainAtMost(most) => {
                (format!("p50 <= {most}x"), Some(self.times("p50").map(|times| times <= most)))
            }
            Goal::AtMost(most) => {
                (format!("p50 <= {most}"), Some(self.value["p50"].as_f64().map(|value| value <= most)))
            }
        };
        let verdict = match met {
            None => "",
            Some(Some(true)) => "hit",
            Some(Some(false)) => "MISS",
            Some(None) => "not measured",
        };
        let cells = [
            self.what,
            self.unit,
            &show("p50"),
            &show("p95"),
            &show("p99"),
            &times("p50"),
            &times("p95"),
            &goal,
            verdict,
        ];
        format!("| {} |", cells.join(" | "))
    }

    fn times(&self, key: &str) -> Option<f64> {
        Some(self.value[key].as_f64()? / self.plain[key].as_f64().filter(|plain| *plain > 0.0)?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{render, unavailable};

    fn report() -> Value {
        json!({
            "start_ms": {
                "plain": {"p50": 1.0, "p95": 2.0, "p99": 4.0},
                "read-only": {"p50": 5.0, "p95": 11.0, "p99": 12.0},
                "workspace-write": {"p50": 5.01, "p95": 6.0, "p99": 7.0},
                "off": {"unavailable": "no namespaces"},
            },
            "path_us": {"whole": {"p50": 50.0, "p95": 60.0, "p99": 70.0}},
        })
    }

    #[test]
    fn starts_are_judged_by_the_plain_one_and_the_path_by_its_time() {
        let text = render(&report());
        for line in [
            "| start of `true`, plain | ms | 1 | 2 | 4 | - | - |  |  |",
            "| start of `true`, `read-only` | ms | 5 | 11 | 12 | 5.00x | 5.50x | p50 <= 5x | hit |",
            "| start of `true`, `workspace-write` | ms | 5.01 | 6 | 7 | 5.01x | 3.00x | p50 <= 5x | MISS |",
            "| start of `true`, `off`, with its helper | ms | - | - | - | - | - | p50 <= 5x | not measured |",
            "| guard path of a tool call | µs | 50 | 60 | 70 | - | - | p50 <= 50 | hit |",
        ] {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
    }

    #[test]
    fn a_mode_that_cannot_be_had_is_told_with_its_reason() {
        let told = unavailable(&report());
        assert_eq!(told, ["off is not measured: no namespaces; see `ropewalk doctor`"]);
    }
}
