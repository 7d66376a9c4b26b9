//! `metrics.md`: every metric of a server and of a hub, as they are registered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ::metrics::{DoorLabel, Metrics};
use engine::Timestamp;
use hub::{HubMetrics, MachineCallOutcome};

use super::{cell, check_page};

const HEAD: &str = "\
# Metrics

Every metric at `GET /metrics`, as the program registers them. How to scrape them, alerts to begin with, and traces:
[operations](../operations-metrics.md). Labels have a closed set of values: no text of a client, a model or a tool becomes one.

A counter begins at 0 with the process. A histogram has the series `_bucket`, `_sum` and `_count`.

## A server
";

const HUB_HEAD: &str = "
## A hub

Each node has its own; [a hub](../hub.md#what-operators-use) says who may read them.
";

const TABLE: &str = "\n| metric | type | labels | meaning |\n|---|---|---|---|\n";

/// What a metric's own text does not say. Every metric has a row, so that nobody forgets to think of it.
const NOTES: [(&str, &str); 35] = [
    (
        "bernstein_acp_messages_total",
        "`method` is the name of a JSON-RPC method; `unknown` stands for every one that no dialect has. `error`: Ropewalk or the agent failed. `rejected`: malformed, unknown, or wrong parameters. `permission_denied`: the sender may not do it, or the message refused a permission.",
    ),
    ("bernstein_acp_active_sessions", ""),
    ("ropewalk_sessions", "`cancelled`: a turn was cancelled and has not ended yet."),
    ("ropewalk_turns_total", "`interrupted`: the server had stopped in the middle of the turn."),
    ("ropewalk_tokens_total", ""),
    ("ropewalk_cost_usd_total", ""),
    ("ropewalk_prompts_waiting", ""),
    ("ropewalk_asks_pending", ""),
    (
        "ropewalk_asks_answered_total",
        "`by` is who decided: `policy` (the approval preset), `rule` (a kept answer), `engine` (a deadline, a cancel, a restart), or a person at a door; `surface` if the door is not known.",
    ),
    ("ropewalk_events_appended_total", ""),
    ("ropewalk_append_seconds", "Everything that clients see waits for this."),
    ("ropewalk_append_failures_total", ""),
    ("ropewalk_connections", ""),
    ("ropewalk_readers", ""),
    (
        "ropewalk_readers_lag_events",
        "`max`: of the one furthest behind. `sum`: of all. A slow client holds nobody up.",
    ),
    (
        "ropewalk_rejected_total",
        "`forbidden`: the token does not reach that far. `connections`: no room for one more. `rate`: too many wrong tokens. `refused`: not possible as things are.",
    ),
    ("ropewalk_trace_spans_total", "`dropped`: the queue was full, or the collector did not take them."),
    ("ropewalk_build_info", "Always 1; the label is the version."),
    ("ropewalk_process_start_time_seconds", ""),
    ("ropewalk_process_resident_memory_bytes", ""),
    ("ropewalk_process_open_files", ""),
    ("ropewalk_process_threads", ""),
    ("ropewalk_hub_bridges", ""),
    ("ropewalk_hub_machines", ""),
    ("ropewalk_hub_browsers", ""),
    ("ropewalk_hub_watches", ""),
    ("ropewalk_hub_events_total", ""),
    ("ropewalk_hub_event_bytes_total", ""),
    ("ropewalk_hub_views_total", ""),
    ("ropewalk_hub_frames_total", ""),
    (
        "ropewalk_hub_calls_total",
        "`away`: the machine is offline. `cut`: its connection broke. `full`: too many requests wait for it. `late`: it did not answer in time.",
    ),
    ("ropewalk_hub_call_seconds", ""),
    ("ropewalk_hub_lag_seconds", ""),
    ("ropewalk_hub_store_errors_total", ""),
    ("ropewalk_hub_hostile_total", ""),
];

/// A metric as it is shown to scrapers.
#[derive(Default)]
struct MetricInfo {
    kind: String,
    help: String,
    /// Each label with the values that it has from the start.
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl MetricInfo {
    /// As people write it: `name{label,label}`.
    fn series(&self, name: &str) -> String {
        let labels: Vec<&str> = self.labels.keys().map(String::as_str).collect();
        if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
    }
}

/// The metrics of a page in the OpenMetrics form, in its order.
fn metrics_of(text: &str) -> Vec<(String, MetricInfo)> {
    let mut found: Vec<(String, MetricInfo)> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            let help = help.trim_end_matches('.').to_owned();
            found.push((name.to_owned(), MetricInfo { help, ..MetricInfo::default() }));
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.last_mut().unwrap().1.kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let (info, labels) = (&mut found.last_mut().unwrap().1, labels.split_once('}').unwrap().0);
            for label in labels.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                let values = info.labels.entry(name.to_owned()).or_default();
                values.insert(value.trim_end_matches('"').to_owned());
            }
        }
    }
    for (name, info) in &mut found {
        info.labels.remove("le");
        // The names of series, which is what people write in queries.
        match info.kind.as_str() {
            "counter" => name.push_str("_total"),
            "info" => name.push_str("_info"),
            _ => {}
        }
    }
    found
}

fn server_metrics() -> Vec<(String, MetricInfo)> {
    let metrics = Metrics::new("VERSION", Timestamp(0));
    // A series that begins with its first reader.
    let reader = metrics.reader();
    let mut found = metrics_of(&metrics.render());
    drop(reader);
    for (name, info) in &mut found {
        // Not every value has a series from the start.
        if name == "ropewalk_asks_answered_total" {
            let by = info.labels.entry("by".into()).or_default();
            by.extend(["policy", "rule", "engine"].map(str::to_owned));
            by.extend(DoorLabel::ALL.map(|door| door.name().to_owned()));
        }
    }
    found
}

fn hub_metrics() -> Vec<(String, MetricInfo)> {
    let metrics = HubMetrics::default();
    // Series that begin with the first request.
    MachineCallOutcome::ALL.into_iter().for_each(|outcome| metrics.call(outcome));
    metrics_of(&metrics.render())
}

fn write_table(page: &mut String, metrics: &[(String, MetricInfo)]) {
    page.push_str(TABLE);
    for (name, info) in metrics {
        let note = NOTES.iter().find(|(noted, _)| noted == name);
        let (_, note) = note.unwrap_or_else(|| panic!("{name} has no row in NOTES"));
        let labels = info.labels.iter().map(|(label, values)| {
            let values = values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
            format!("`{label}`: {values}")
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        let meaning = format!("{}. {}", info.help, note);
        writeln!(page, "| `{}` | {} | {labels} | {} |", info.series(name), info.kind, cell(meaning.trim()))
            .unwrap();
    }
}

#[test]
fn the_reference_has_every_metric() {
    let mut page = HEAD.to_owned();
    write_table(&mut page, &server_metrics());
    page.push_str(HUB_HEAD);
    write_table(&mut page, &hub_metrics());
    check_page("metrics.md", &page);
}

#[test]
fn the_references_notes_are_about_metrics_that_are_there() {
    let metrics = server_metrics().into_iter().chain(hub_metrics());
    let metrics: BTreeSet<String> = metrics.map(|(name, _)| name).collect();
    let noted: BTreeSet<String> = NOTES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(noted, metrics);
}
