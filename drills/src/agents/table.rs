//! What a run found, as the table of `docs/agents.md`.
//!
//! Rows of agents that did not run stay as they are, so that one agent can be looked at anew. The list of
//! allowed differences is printed from the file that the comparison reads, so the page cannot say other than
//! what is checked.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;
use serde_json::Value;

use super::drive::{Report, StepResult};
use super::kills::Kills;
use super::scenario;
use xtask::command;

const PAGE: &str = "docs/agents.md";
const TABLE: [&str; 2] = ["<!-- agents:begin -->", "<!-- agents:end -->"];
const REASONS: [&str; 2] = ["<!-- reasons:begin -->", "<!-- reasons:end -->"];
const DIFFERENCES: [&str; 2] = ["<!-- differences:begin -->", "<!-- differences:end -->"];

/// Columns, and the step that each is found by.
const COLUMNS: [(&str, &str); 14] = [
    ("turn", "write"),
    ("permission", "refuse"),
    ("cancel", "cancel"),
    ("modes", "mode"),
    ("options", "option"),
    ("list", "list"),
    ("load", "load"),
    ("resume", "resume"),
    ("fork", "fork"),
    ("MCP", "mcp"),
    ("pictures", "picture"),
    ("files of the editor", "write"),
    ("terminals of the editor", "allow"),
    ("without an editor's files", "bare write"),
];

/// One agent's row.
pub struct Row {
    pub name: String,
    pub version: String,
    cells: Vec<String>,
    /// Why it cannot what it cannot.
    reasons: Vec<String>,
}

pub fn row(name: &str, direct: &Report, through: &Report, kills: Option<&Kills>) -> Row {
    let mut cells = vec![format!("{} ({})", through.start.as_millis(), direct.start.as_millis())];
    cells.extend(COLUMNS.iter().map(|column| cell(*column, direct, through)));
    cells.push(kills.map_or("not tried".to_owned(), Kills::shown));
    let reasons = through.found.iter().filter_map(|(step, verdict)| match verdict {
        StepResult::Lacks(reason) => Some(format!("- {name}, {step}: {reason}.")),
        StepResult::Works(_) | StepResult::Fails(_) => None,
    });
    let version = direct.initialize["agentInfo"]["version"].as_str().unwrap_or_default().to_owned();
    Row { name: name.to_owned(), version, cells, reasons: reasons.collect() }
}

/// What comes through, and in brackets what the agent does alone where that is something else.
fn cell((column, step): (&str, &str), direct: &Report, through: &Report) -> String {
    let of = |report: &Report| {
        let found = report.found.iter().find(|(name, _)| name == step);
        match found.map(|(_, verdict)| verdict) {
            // Whether an editor's files and terminals are used shows in what it was asked.
            Some(StepResult::Works(called)) if column.starts_with("files") => used(called, "fs/"),
            Some(StepResult::Works(called)) if column.starts_with("terminals") => used(called, "terminal/"),
            Some(StepResult::Works(_)) => "yes",
            Some(StepResult::Lacks(_)) => "no",
            Some(StepResult::Fails(_)) => "fails",
            None => "-",
        }
    };
    let (alone, together) = (of(direct), of(through));
    if alone == together { together.to_owned() } else { format!("{together} ({alone})") }
}

fn used(called: &str, prefix: &str) -> &'static str {
    if called.split(' ').any(|method| method.starts_with(prefix)) { "yes" } else { "not used" }
}

/// Puts rows into the page, with the reasons and the list of allowed differences.
pub fn write(rows: &[Row]) -> anyhow::Result<()> {
    let path = command::root().join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {PAGE}"))?;
    let text = with_rows(&text, rows)?;
    let text = replaced(&text, DIFFERENCES, &differences(&scenario::read("differences.json")?)?)?;
    fs::write(path, text).with_context(|| format!("writing {PAGE}"))
}

fn with_rows(text: &str, rows: &[Row]) -> anyhow::Result<String> {
    let head: Vec<&str> = ["agent", "start, ms"].into_iter().chain(COLUMNS.map(|(name, _)| name)).collect();
    let mut lines = vec![
        format!("| {} | after a kill |", head.join(" | ")),
        format!("|---|{}", "--:|".to_owned() + &"---|".repeat(COLUMNS.len() + 1)),
    ];
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for line in between(text, TABLE)?.lines().skip(2).filter(|line| line.starts_with("| ")) {
        known.insert(agent_of(line).to_owned(), line.to_owned());
    }
    for row in rows {
        let line = format!("| {} {} | {} |", row.name, row.version, row.cells.join(" | "));
        known.insert(row.name.clone(), line);
    }
    lines.extend(known.into_values());
    let mut reasons: Vec<String> = between(text, REASONS)?
        .lines()
        .filter(|line| {
            line.starts_with("- ") && !rows.iter().any(|row| line.starts_with(&format!("- {},", row.name)))
        })
        .map(str::to_owned)
        .collect();
    reasons.extend(rows.iter().flat_map(|row| row.reasons.clone()));
    reasons.sort();
    let text = replaced(text, TABLE, &lines.join("\n"))?;
    replaced(&text, REASONS, &reasons.join("\n"))
}

/// The agent of a row: its first cell but for the version.
fn agent_of(line: &str) -> &str {
    let cell = line.trim_start_matches("| ").split(" |").next().unwrap_or_default();
    match cell.rsplit_once(' ') {
        Some((name, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => name,
        _ => cell.trim_end(),
    }
}

fn differences(list: &Value) -> anyhow::Result<String> {
    let entry = |entry: &Value| {
        let names = ["frames", "fields", "steps"].iter().find_map(|key| entry[key].as_array());
        let names: Vec<String> =
            names.into_iter().flatten().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
        let reason = entry["reason"].as_str().unwrap_or_default();
        format!("| {} | {} | {reason} |", entry["rule"].as_str().unwrap_or_default(), names.join(", "))
    };
    let rows = list.as_array().context("the differences are a list")?.iter().map(entry);
    let head = ["| rule | of | why |".to_owned(), "|---|---|---|".to_owned()];
    Ok(head.into_iter().chain(rows).collect::<Vec<_>>().join("\n"))
}

fn between<'a>(text: &'a str, [begin, end]: [&str; 2]) -> anyhow::Result<&'a str> {
    let rest = text.split_once(begin).with_context(|| format!("{PAGE} has lost its mark {begin}"))?.1;
    Ok(rest.split_once(end).with_context(|| format!("{PAGE} has lost its mark {end}"))?.0)
}

fn replaced(text: &str, marks: [&str; 2], with: &str) -> anyhow::Result<String> {
    let old = between(text, marks)?;
    let [begin, end] = marks;
    Ok(text.replacen(&format!("{begin}{old}{end}"), &format!("{begin}\n{with}\n{end}"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cell: &str) -> Row {
        let reasons = vec![format!("- {name}, fork: it offers no fork.")];
        Row { name: name.into(), version: "1.2.3".into(), cells: vec![cell.into()], reasons }
    }

    #[test]
    fn a_row_is_replaced_by_its_agent_and_others_stay() {
        let page = include_str!("../../../docs/agents.md");
        let one = with_rows(page, &[row("goose", "old"), row("codex-acp (Zed's)", "kept")]).unwrap();
        let two = with_rows(&one, &[row("goose", "new")]).unwrap();
        assert!(two.contains("| goose 1.2.3 | new |") && !two.contains("old |"), "{two}");
        assert!(two.contains("| codex-acp (Zed's) 1.2.3 | kept |"), "{two}");
        assert_eq!(two.matches("- goose, fork: it offers no fork.").count(), 1, "{two}");
    }

    #[test]
    fn the_page_has_the_list_that_is_checked() {
        let page = include_str!("../../../docs/agents.md");
        let list = differences(&scenario::read("differences.json").unwrap()).unwrap();
        assert!(page.contains(&list), "run `cargo xtask agents --write`; the list is now:\n{list}");
    }
}
