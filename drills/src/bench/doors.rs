//! What the HTTP door costs: the third table of `cargo xtask bench`.

use std::path::Path;

use serde_json::Value;

use super::{Options, grouped, measured_json, number};

pub(super) const TABLE_BEGIN: &str = "<!-- doors:begin -->";
pub(super) const TABLE_END: &str = "<!-- doors:end -->";

/// Beside either broadcast; each is judged, for they answer different questions.
const TIMES_BROADCAST_MIN: f64 = 0.5;
/// The crowd that the goal is about.
const GOAL_READERS: u64 = 50;
/// Where small packets wait for acknowledgements, a turn takes 40 ms at least.
const SOCKET_TURN_US_MAX: f64 = 20_000.0;

/// `program` is the built `doors`.
pub(super) fn measure(program: &Path, product: &Path, options: &Options) -> anyhow::Result<Value> {
    // Beside the build, not in the temporary folder: that one may be memory, where a sync costs nothing.
    let scratch = program.with_file_name("doors-scratch");
    let mut command = xtask::command::program(program);
    command.arg("--product").arg(product).arg("--scratch").arg(&scratch);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(rounds) = options.rounds.as_ref().filter(|_| options.only("doors")) {
        command.args(["--rounds", rounds]);
    }
    measured_json(&mut command, &scratch)
}

pub(super) fn render(report: &Value) -> String {
    let form = if report["quick"] == true { "quick" } else { "full" };
    let count = |key: &str| grouped(report[key].as_f64().unwrap_or(0.0));
    let mut lines = vec![
        format!("Form: {form}, {} rounds.", count("rounds")),
        String::new(),
        "| | unit | ropewalk | broadcast, same frames | broadcast, a frame per event | ropewalk / same frames | \
         ropewalk / a frame per event | goal | |"
            .to_owned(),
        "|---|---|--:|--:|--:|--:|--:|--:|---|".to_owned(),
    ];
    for crowd in report["crowds"].as_array().into_iter().flatten() {
        lines.push(events(crowd));
        lines.push(memory(crowd));
    }
    let turn = &report["socket_turn_us"];
    for (key, goal) in [("p50", Some(SOCKET_TURN_US_MAX)), ("p99", None)] {
        let value = turn[key].as_f64();
        let (wanted, verdict) = match goal {
            Some(most) => (format!("<= {}", number(most)), judged(value.map(|value| value <= most))),
            None => (String::new(), ""),
        };
        let shown = shown(value, 1.0);
        lines.push(format!(
            "| turn over a WebSocket, {key} | µs | {shown} | - | - | - | - | {wanted} | {verdict} |"
        ));
    }
    lines.join("\n")
}

fn events(crowd: &Value) -> String {
    let rate = |side: &str| crowd[side]["events_per_s"].as_f64();
    let (product, same, single) = (rate("product"), rate("same"), rate("single"));
    let times = |reference: Option<f64>| Some(product? / reference.filter(|rate| *rate > 0.0)?);
    let readers = crowd["readers"].as_u64().unwrap_or(0);
    let ratio = times(same);
    let enough = |ratio: Option<f64>| judged(ratio.map(|ratio| ratio >= TIMES_BROADCAST_MIN));
    let (goal, verdict) = if readers == GOAL_READERS {
        let verdict = format!(
            "{} beside the same frames, {} beside a frame per event",
            enough(ratio),
            enough(times(single))
        );
        (format!(">= {TIMES_BROADCAST_MIN}x"), verdict)
    } else {
        (String::new(), String::new())
    };
    let shown_times = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
    format!(
        "| events told to {readers} readers ({} events in {} frames) | 1/s | {} | {} | {} | {} | {} | {goal} | {verdict} |",
        grouped(crowd["chunks"].as_f64().unwrap_or(0.0)),
        grouped(crowd["frames"].as_f64().unwrap_or(0.0)),
        shown(product, 1.0),
        shown(same, 1.0),
        shown(single, 1.0),
        shown_times(ratio),
        shown_times(times(single)),
    )
}

fn memory(crowd: &Value) -> String {
    let peak = |side: &str| shown(crowd[side]["peak_kb"].as_f64(), 1e-3);
    format!(
        "| memory, peak, {} readers | MB | {} | {} | {} | - | - |  |  |",
        crowd["readers"],
        peak("product"),
        peak("same"),
        peak("single"),
    )
}

fn shown(value: Option<f64>, scale: f64) -> String {
    value.map_or("-".to_owned(), |value| number(value * scale))
}

fn judged(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "hit",
        Some(false) => "MISS",
        None => "not measured",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::render;

    #[test]
    fn only_the_crowd_of_the_goal_is_judged() {
        let crowd = |readers: u64, product: f64| {
            json!({
                "readers": readers, "chunks": 1000, "frames": 10,
                "product": {"events_per_s": product, "peak_kb": 12_000},
                "same": {"events_per_s": 100.0, "peak_kb": 5_000},
                "single": {"events_per_s": 50.0, "peak_kb": 5_000},
            })
        };
        let report = json!({"quick": true, "rounds": 3, "crowds": [crowd(1, 10.0), crowd(50, 40.0)]});
        let text = render(&report);
        let line =
            |readers: &str| text.lines().find(|line| line.contains(readers)).unwrap_or_default().to_owned();
        assert!(line("to 1 readers").ends_with("| 10 | 100 | 50 | 0.10x | 0.20x |  |  |"), "{text}");
        let verdict =
            "| 0.40x | 0.80x | >= 0.5x | MISS beside the same frames, hit beside a frame per event |";
        assert!(line("to 50 readers").ends_with(verdict), "{text}");
        assert!(text.ends_with("| - | - | - | - | - |  |  |"), "{text}");
    }
}
