//! Spending limits: a model call that would exceed a budget is not made.
//!
//! The budget is checked before every model call, including those of sub-agents. The size of the request is
//! known then, the size of the answer is not. So the last call before the limit may exceed it, and no call
//! after it is made. If several processes share a budget, each of them may make that last call.

mod daily_spending;
mod session_limit;
mod turn_costs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Totals, Usage};

use crate::model::{Message, ModelInfo, ModelRequest};
use crate::tools;

pub use daily_spending::DailySpending;
pub(crate) use session_limit::{Limit, SessionLimit};
pub use turn_costs::TurnCosts;
pub(crate) use turn_costs::money;

/// A token is about four bytes of English or code.
const BYTES_PER_TOKEN: u64 = 4;

/// Spending limits, in US dollars.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    pub turn_usd: Option<f64>,
    pub session_usd: Option<f64>,
    /// For all sessions of a day (UTC).
    pub day_usd: Option<f64>,
    /// With a budget, a model without a known price is not called.
    pub refuse_unknown: bool,
    /// No model is called; the estimated cost is reported instead.
    pub estimate_only: bool,
    /// What was spent today. Without it, that is not counted.
    pub spending: Option<Arc<DailySpending>>,
}

impl Budget {
    fn is_set(&self) -> bool {
        self.turn_usd.is_some() || self.session_usd.is_some() || self.day_usd.is_some()
    }
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpendDecision {
    Go,
    /// Make the call, with this warning.
    Warn(String),
    /// Do not make the call.
    Stop(String),
}

/// What a session has spent.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    spent: Mutex<SpentTotals>,
}

#[derive(Debug, Default)]
struct SpentTotals {
    session_usd: f64,
    turn_usd: f64,
    /// The limit of this turn in addition to the budget.
    limit: Option<Limit>,
    /// The warning about an unknown cost was given.
    warned: bool,
}

impl Ledger {
    /// Starts a turn, with the cost of all earlier turns and the limit that applies in addition to the budget.
    pub(crate) fn begin(&self, before: &Totals, limit: Option<Limit>) {
        let mut spent = self.lock();
        spent.session_usd = before.cost_usd;
        spent.turn_usd = 0.0;
        spent.limit = limit;
    }

    /// Counts a call that was made.
    pub(crate) async fn add(&self, budget: &Budget, usage: &Usage) {
        if usage.cost_usd.is_nan() || usage.cost_usd <= 0.0 {
            return;
        }
        {
            let mut spent = self.lock();
            spent.session_usd += usage.cost_usd;
            spent.turn_usd += usage.cost_usd;
        }
        if let Some(spending) = budget.spending.clone() {
            let usd = usage.cost_usd;
            let written = tools::blocking(move || spending.add(usd)).await;
            if let Err(error) | Ok(Err(error)) = written.map(|done| done.map_err(|error| error.to_string())) {
                tracing::error!(error, "could not record what was spent today");
            }
        }
    }

    /// Whether the next call may be made.
    pub(crate) async fn decide(
        &self,
        budget: &Budget,
        info: &ModelInfo,
        request: &ModelRequest,
    ) -> SpendDecision {
        let tokens = tokens_of(request);
        if budget.estimate_only {
            return SpendDecision::Stop(estimate(info, tokens));
        }
        if !self.is_held_to(budget) {
            return SpendDecision::Go;
        }
        let Some(price) = &info.price else { return self.unknown(budget, info) };
        // The least cost: all input may be cached, and the answer may be short.
        let least = tokens as f64 * price.input.min(price.cache_read) / 1e6;
        let (turn, session, limit) = {
            let spent = self.lock();
            (spent.turn_usd, spent.session_usd, spent.limit)
        };
        let own = [
            (
                limit.map(|limit| limit.usd),
                limit.map_or(0.0, |limit| limit.spent(session)),
                "/max-cost",
                "raise it with `/max-cost AMOUNT`, or send one prompt despite it with `/force-send TEXT`",
            ),
            (budget.turn_usd, turn, "this prompt", "raise --max-cost"),
            (
                budget.session_usd,
                session,
                "this session",
                "raise session_usd under [budget] in the settings, or start another session",
            ),
        ];
        if let Some(stop) =
            own.into_iter().find_map(|(max, spent, whose, fix)| exceeded(max, spent, least, whose, fix))
        {
            return SpendDecision::Stop(stop);
        }
        match (budget.day_usd, budget.spending.clone()) {
            (Some(max), Some(spending)) => check_day(max, spending, least).await,
            _ => SpendDecision::Go,
        }
    }

    /// The same for an optional call, without a warning.
    pub(crate) async fn allows(&self, budget: &Budget, info: &ModelInfo, request: &ModelRequest) -> bool {
        match info.price {
            None if self.is_held_to(budget) => !budget.refuse_unknown && !budget.estimate_only,
            _ => self.decide(budget, info, request).await == SpendDecision::Go,
        }
    }

    fn is_held_to(&self, budget: &Budget) -> bool {
        budget.is_set() || self.lock().limit.is_some()
    }

    fn unknown(&self, budget: &Budget, info: &ModelInfo) -> SpendDecision {
        if budget.refuse_unknown {
            return SpendDecision::Stop(format!(
                "the price of {} is not known, and [budget] has unknown = \"refuse\"; set its price under [[models]] in the settings, or choose another model",
                info.id
            ));
        }
        if std::mem::replace(&mut self.lock().warned, true) {
            return SpendDecision::Go;
        }
        SpendDecision::Warn(format!("the price of {} is not known, so the budget cannot limit it", info.id))
    }

    fn lock(&self) -> MutexGuard<'_, SpentTotals> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn check_day(max: f64, spending: Arc<DailySpending>, least: f64) -> SpendDecision {
    let spent = tools::blocking(move || spending.today()).await;
    match spent.map(|spent| spent.map_err(|error| error.to_string())) {
        Ok(Ok(spent)) => {
            let fix = "raise day_usd under [budget] in the settings, or wait for tomorrow (in UTC)";
            exceeded(Some(max), spent, least, "today", fix).map_or(SpendDecision::Go, SpendDecision::Stop)
        }
        // If the spending cannot be read, the budget must not count as unspent.
        Err(error) | Ok(Err(error)) => SpendDecision::Stop(format!(
            "could not read what was spent today, which is limited by a budget: {error}"
        )),
    }
}

fn exceeded(max: Option<f64>, spent: f64, least: f64, whose: &str, fix: &str) -> Option<String> {
    let max = max?;
    if spent >= max && spent > 0.0 {
        return Some(format!("the budget of {whose} is used up: ${spent:.4} of ${max:.4}; {fix}"));
    }
    (spent + least > max).then(|| {
        format!(
            "the next call costs at least ${least:.4}, but the budget of {whose} has only ${:.4} left; {fix}",
            max - spent
        )
    })
}

fn estimate(info: &ModelInfo, tokens: u64) -> String {
    match &info.price {
        Some(price) => format!(
            "about {tokens} tokens would be sent to {}: ${:.4}, plus ${} per million tokens of the answer; nothing was sent",
            info.id,
            price.of_input(tokens),
            price.output
        ),
        None => format!("about {tokens} tokens would be sent to {}: cost unknown; nothing was sent", info.id),
    }
}

/// The approximate input tokens of a request, without its images.
fn tokens_of(request: &ModelRequest) -> u64 {
    let tools: usize =
        request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    let messages: usize = request.messages.iter().map(bytes_of).sum();
    let bytes = request.system.len().saturating_add(tools).saturating_add(messages);
    u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_TOKEN
}

fn bytes_of(message: &Message) -> usize {
    match message {
        Message::Summary(text) | Message::User { text, .. } | Message::ToolResult { text, .. } => text.len(),
        Message::Assistant { text, calls, .. } => {
            text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
