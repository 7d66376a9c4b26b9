//! Sessions as runs, and their costs.

use std::collections::BTreeMap;

use engine::{Body, Content, Event, MODEL, SessionRow, Stop, Timestamp, Totals};
use serde_json::{Value, json};

use super::event_data::tokens;
use crate::ferret_otter_common::prompt_text;
use crate::money;
use crate::timestamp::rfc3339;

/// Only the beginning of a prompt is shown.
const PROMPT_CHARS_MAX: usize = 200;

/// Summary of one session's work.
#[derive(Debug, Clone)]
pub struct RunSummary {
    row: SessionRow,
    model: String,
    prompt: String,
    /// How the latest turn ended.
    last: Option<Stop>,
    totals: Totals,
    steps: u64,
    tool_calls: u64,
}

/// Filter for runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFilter {
    /// As the client wrote it.
    pub since: Option<String>,
    pub since_at: Option<Timestamp>,
    pub model: Option<String>,
    pub limit: Option<usize>,
}

impl RunFilter {
    /// Whether the run's model matches: a substring of its name.
    pub fn admits(&self, run: &RunSummary) -> bool {
        let wanted = self.model.as_ref().filter(|model| !model.eq_ignore_ascii_case("all"));
        wanted.is_none_or(|wanted| run.model.to_lowercase().contains(&wanted.to_lowercase()))
    }
}

impl RunSummary {
    /// `model` is the default for a session that chose none.
    pub fn new(row: SessionRow, model: &str) -> Self {
        Self {
            row,
            model: model.to_owned(),
            prompt: String::new(),
            last: None,
            totals: Totals::default(),
            steps: 0,
            tool_calls: 0,
        }
    }

    /// Adds the next event. Chunks of streams are not needed.
    pub fn observe(&mut self, event: &Event) {
        if let Body::UserMessage { content } = &event.body
            && self.prompt.is_empty()
        {
            self.prompt = beginning(content);
        } else if let Body::SettingChanged { id, value } = &event.body
            && **id == *MODEL
        {
            self.model = value.to_string();
        } else if let Body::ToolStarted(_) = &event.body {
            self.tool_calls += 1;
        } else if let Body::Usage(usage) = &event.body {
            self.steps += 1;
            self.totals.add(usage);
        } else if let Body::TurnEnded { stop, .. } = &event.body {
            self.last = Some(*stop);
        }
    }

    fn success(&self) -> bool {
        self.last == Some(Stop::EndTurn)
    }

    fn cache_tokens(&self) -> u64 {
        self.totals.cache_read.saturating_add(self.totals.cache_write)
    }

    fn summary(&self) -> Value {
        let summary = json!({
            "run_id": self.row.id.as_str(),
            "started_at": rfc3339(self.row.created_at),
            "ended_at": rfc3339(self.row.updated_at),
            "model": self.model,
            "prompt": self.prompt,
            "success": self.success(),
            "cost_usd": self.totals.known_usd(),
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "source": self.row.source.as_ref(),
        });
        money::mark(summary, "cost_unknown", self.totals.unpriced)
    }

    fn cost(&self) -> Value {
        let cost = json!({
            "run_id": self.row.id.as_str(),
            "started_at": rfc3339(self.row.created_at),
            "model": self.model,
            "cost_usd": self.totals.known_usd(),
            "total_tokens": tokens(&self.totals),
            "input_tokens": self.totals.input,
            "output_tokens": self.totals.output,
            "cache_tokens": self.cache_tokens(),
            "success": self.success(),
            "steps": self.steps,
            "source": self.row.source.as_ref(),
        });
        money::mark(cost, "cost_unknown", self.totals.unpriced)
    }
}

/// The response to `GET /runs`.
pub fn list(runs: &[RunSummary]) -> Value {
    json!({ "total_runs": runs.len(), "runs": runs.iter().map(RunSummary::summary).collect::<Vec<_>>() })
}

/// The response to `GET /runs/cost`.
pub fn cost(runs: &[RunSummary], filter: &RunFilter) -> Value {
    let sum = |part: fn(&RunSummary) -> u64| runs.iter().map(part).fold(0u64, u64::saturating_add);
    // Unknown costs would make the other runs look cheaper than they were.
    let mut costs: Vec<f64> = runs.iter().filter_map(|run| run.totals.known_usd()).collect();
    let unknown = runs.iter().filter(|run| run.totals.unpriced).count();
    costs.sort_by(f64::total_cmp);
    let (total_cost, total_tokens) = (costs.iter().sum::<f64>(), sum(|run| tokens(&run.totals)));
    let successful = runs.iter().filter(|run| run.success()).count();
    json!({
        "total_runs": runs.len(),
        "total_cost": total_cost,
        "total_tokens": total_tokens,
        "by_model": by_model(runs),
        "by_run": runs.iter().map(RunSummary::cost).collect::<Vec<_>>(),
        "totals": {
            "runs": runs.len(),
            "successful_runs": successful,
            "failed_runs": runs.len() - successful,
            "cost_usd": total_cost,
            "tokens": total_tokens,
            "input_tokens": sum(|run| run.totals.input),
            "output_tokens": sum(|run| run.totals.output),
            "cache_tokens": sum(RunSummary::cache_tokens),
            "unpriced_runs": unknown,
            "avg_cost_usd": average(total_cost, costs.len()),
            "p50_cost_usd": percentile(&costs, 50),
            "p95_cost_usd": percentile(&costs, 95),
        },
        "filters": { "since": filter.since, "model": filter.model },
    })
}

fn by_model(runs: &[RunSummary]) -> Value {
    let mut models: BTreeMap<&str, (u64, Totals, u64)> = BTreeMap::new();
    for run in runs {
        let (count, cost, spent) = models.entry(&run.model).or_default();
        *count += 1;
        cost.cost_usd += run.totals.cost_usd;
        cost.unpriced |= run.totals.unpriced;
        *spent = spent.saturating_add(tokens(&run.totals));
    }
    let row = |(runs, cost, tokens): (u64, Totals, u64)| {
        let row = json!({ "runs": runs, "cost_usd": cost.known_usd(), "tokens": tokens });
        money::mark(row, "cost_unknown", cost.unpriced)
    };
    Value::Object(models.into_iter().map(|(model, sums)| (model.to_owned(), row(sums))).collect())
}

fn average(total: f64, count: usize) -> f64 {
    u32::try_from(count).ok().filter(|count| *count > 0).map_or(0.0, |count| total / f64::from(count))
}

/// The smallest value that `percent` of a hundred values do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn beginning(content: &[Content]) -> String {
    prompt_text(content).chars().take(PROMPT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let costs = [0.01, 0.02, 0.03, 0.04];
        assert_eq!([50, 95, 100, 1].map(|percent| percentile(&costs, percent)), [0.02, 0.04, 0.04, 0.01]);
        assert_eq!(percentile(&[], 95), 0.0);
        assert_eq!(percentile(&[0.5], 50), 0.5);
    }
}
