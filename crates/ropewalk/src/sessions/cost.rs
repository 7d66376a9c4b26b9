//! `sessions cost`: costs by turn, session and model.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Body, Event, MODEL, PageRequest, Principal, Registry, Seq, SessionRow, Totals, TurnId};
use serde_json::{Value, json};
use wire::money;
use wire::transcript_text::title_of;

use super::find;
use crate::cli::CostOptions;
use crate::cli_error::CliError;
use crate::output::{self, cut, one_line};

const TITLE_CHARS_MAX: usize = 40;
/// Shown for a session without a chosen model.
const DEFAULT: &str = "(default)";

/// Calls, tokens and cost.
#[derive(Debug, Clone, Default)]
struct CostTotals {
    calls: u64,
    totals: Totals,
}

#[derive(Debug, Default)]
struct SessionCosts {
    all: CostTotals,
    /// In order, with the model at that time.
    turns: Vec<(TurnId, Arc<str>, CostTotals)>,
    models: BTreeMap<Arc<str>, CostTotals>,
}

impl CostTotals {
    fn add(&mut self, calls: u64, totals: &Totals) {
        self.calls += calls;
        let sum = &mut self.totals;
        sum.input = sum.input.saturating_add(totals.input);
        sum.output = sum.output.saturating_add(totals.output);
        sum.cache_read = sum.cache_read.saturating_add(totals.cache_read);
        sum.cache_write = sum.cache_write.saturating_add(totals.cache_write);
        sum.reasoning = sum.reasoning.saturating_add(totals.reasoning);
        sum.unpriced |= totals.unpriced;
        let usd = sum.cost_usd + totals.cost_usd;
        sum.cost_usd = if usd.is_finite() { usd } else { sum.cost_usd };
    }

    fn json(&self) -> Value {
        json!({
            "calls": self.calls,
            "input_tokens": self.totals.input,
            "output_tokens": self.totals.output,
            "cache_read_tokens": self.totals.cache_read,
            "cache_write_tokens": self.totals.cache_write,
            "reasoning_tokens": self.totals.reasoning,
            "cost_usd": self.totals.known_usd(),
            "cost_unknown": self.totals.unpriced,
        })
    }

    fn cells(&self) -> [String; 5] {
        let cache = self.totals.cache_read.saturating_add(self.totals.cache_write);
        [
            self.calls.to_string(),
            self.totals.input.to_string(),
            self.totals.output.to_string(),
            cache.to_string(),
            money::text(&self.totals).unwrap_or_else(|| "$0".into()),
        ]
    }
}

pub async fn run(registry: &Registry, options: &CostOptions) -> Result<(), CliError> {
    match &options.id {
        Some(id) => {
            let row = find::one(registry, id).await?;
            let costs = of(registry, &row).await?;
            one(&row, &costs, options.json)
        }
        None => all(registry, options).await,
    }
}

fn one(row: &SessionRow, costs: &SessionCosts, as_json: bool) -> Result<(), CliError> {
    if as_json {
        let turns: Vec<_> = costs
            .turns
            .iter()
            .map(|(turn, model, spent)| {
                let mut value = spent.json();
                value["turn"] = turn.0.into();
                value["model"] = model.as_ref().into();
                value
            })
            .collect();
        return output::put_json(&json!({
            "session_id": row.id.as_str(),
            "turns": turns,
            "models": models_json(&costs.models),
            "total": costs.all.json(),
        }));
    }
    let mut lines = vec![head("TURN", "MODEL")];
    let turn = |(at, (_, model, spent)): (usize, &(TurnId, Arc<str>, CostTotals))| {
        line((at + 1).to_string(), model, spent)
    };
    lines.extend(costs.turns.iter().enumerate().map(turn));
    lines.push(line("all".into(), "", &costs.all));
    output::put(&table(&lines))
}

async fn all(registry: &Registry, options: &CostOptions) -> Result<(), CliError> {
    let since = options.since.map(|since| since.moment(registry.clock().now()));
    let rows = find::all(registry).await?;
    let short = find::short_chars(&rows);
    let mut sessions = Vec::new();
    let (mut total, mut models) = (CostTotals::default(), BTreeMap::<Arc<str>, CostTotals>::new());
    for row in rows.iter().filter(|row| since.is_none_or(|since| row.updated_at >= since)) {
        let costs = of(registry, row).await?;
        let asked = |model: &String| costs.models.keys().any(|name| name.contains(model.as_str()));
        if costs.all.calls == 0 || !options.model.as_ref().is_none_or(asked) {
            continue;
        }
        if options.limit.is_some_and(|limit| sessions.len() >= limit) {
            break;
        }
        total.add(costs.all.calls, &costs.all.totals);
        for (model, spent) in &costs.models {
            models.entry(Arc::clone(model)).or_default().add(spent.calls, &spent.totals);
        }
        sessions.push((row, costs.all));
    }
    if options.json {
        let session = |(row, spent): &(&SessionRow, CostTotals)| {
            let mut value = spent.json();
            value["session_id"] = row.id.as_str().into();
            value["title"] = title_of(row).into();
            value
        };
        return output::put_json(&json!({
            "sessions": sessions.iter().map(session).collect::<Vec<_>>(),
            "models": models_json(&models),
            "total": total.json(),
        }));
    }
    if sessions.is_empty() {
        output::say("No session has used a model yet.");
        return Ok(());
    }
    let mut lines = vec![head("SESSION", "TITLE")];
    lines.extend(sessions.iter().map(|(row, spent)| {
        let id = find::shown(&row.id, short);
        line(id, &cut(&one_line(title_of(row)), TITLE_CHARS_MAX), spent)
    }));
    lines.push(line("all".into(), "", &total));
    let mut by_model = vec![head("", "MODEL")];
    by_model.extend(models.iter().map(|(model, spent)| line(String::new(), model, spent)));
    output::put(&format!("{}\n{}", table(&lines), table(&by_model)))
}

/// The costs of a session. A call counts for the model that the session had then, including calls of sub-agents with
/// another model.
async fn of(registry: &Registry, row: &SessionRow) -> Result<SessionCosts, CliError> {
    let mut costs = SessionCosts::default();
    let mut model: Arc<str> = DEFAULT.into();
    let mut after = Seq::START;
    loop {
        let page = registry.read(&Principal::local(), &row.id, after, PageRequest::OUTLINE).await;
        let page = page.map_err(CliError::from_open)?;
        let Some(last) = page.last() else { return Ok(costs) };
        after = last.seq;
        page.iter().for_each(|event| costs.observe(event, &mut model));
    }
}

impl SessionCosts {
    fn observe(&mut self, event: &Event, model: &mut Arc<str>) {
        match &event.body {
            Body::SettingChanged { id, value } if **id == *MODEL => *model = Arc::clone(value),
            Body::Usage(usage) => {
                let mut call = Totals::default();
                call.add(usage);
                self.all.add(1, &call);
                self.models.entry(Arc::clone(model)).or_default().add(1, &call);
                let Some(turn) = event.turn else { return };
                if self.turns.last().is_none_or(|(last, ..)| *last != turn) {
                    self.turns.push((turn, Arc::clone(model), CostTotals::default()));
                }
                if let Some((_, _, spent)) = self.turns.last_mut() {
                    spent.add(1, &call);
                }
            }
            _ => {}
        }
    }
}

fn models_json(models: &BTreeMap<Arc<str>, CostTotals>) -> Value {
    Value::Object(models.iter().map(|(model, spent)| (model.to_string(), spent.json())).collect())
}

type Cells = [String; 7];

fn head(first: &str, second: &str) -> Cells {
    [first, second, "CALLS", "IN", "OUT", "CACHE", "COST"].map(str::to_owned)
}

fn line(first: String, second: &str, spent: &CostTotals) -> Cells {
    let [calls, input, output, cache, cost] = spent.cells();
    [first, second.to_owned(), calls, input, output, cache, cost]
}

fn table(lines: &[Cells]) -> String {
    let mut widths = [0; 7];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for line in lines {
        for (at, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Numbers are right-aligned.
            let cell = if at < 2 || at == 6 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
            if width > 0 {
                out.push_str(&cell);
                out.push_str("  ");
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}
