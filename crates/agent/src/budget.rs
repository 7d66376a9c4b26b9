//! What may be spent, and what was: a call that would go beyond a budget is not made.
//!
//! A budget is looked at before every call of a model, also of a sub-agent's. What the call will say is
//! known then, what it will answer is not: so the last call before the end may go beyond the budget, and
//! none after it is made. Of several processes each may make that last call.

mod costs;
mod limit;
mod spending;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Totals, Usage};

use crate::model::{Message, ModelInfo, ModelRequest};
use crate::tools;

pub use costs::Costs;
pub(crate) use costs::money;
pub(crate) use limit::{Limit, Limits};
pub use spending::Spending;

/// A token is about four bytes of English or code.
const BYTES_PER_TOKEN: u64 = 4;

/// US dollars that may be spent.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    pub turn_usd: Option<f64>,
    pub session_usd: Option<f64>,
    /// By all sessions of a day, which begins at midnight in Greenwich.
    pub day_usd: Option<f64>,
    /// With a budget, a model without a price is not asked.
    pub refuse_unknown: bool,
    /// Nothing is asked; it is said what asking would cost.
    pub estimate_only: bool,
    /// What was spent today. Without, nobody counts it.
    pub spending: Option<Arc<Spending>>,
}

impl Budget {
    fn is_set(&self) -> bool {
        self.turn_usd.is_some() || self.session_usd.is_some() || self.day_usd.is_some()
    }
}

/// What is to be said before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    /// Go, and say this.
    Warn(String),
    /// Do not.
    Stop(String),
}

/// What a session has spent.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    session_usd: f64,
    turn_usd: f64,
    /// What this turn is held to besides the budget.
    limit: Option<Limit>,
    /// It was said that a cost is not known.
    warned: bool,
}

impl Ledger {
    /// A turn begins; this is what all turns before it cost, and what it is held to besides the budget.
    pub(crate) fn begin(&self, before: &Totals, limit: Option<Limit>) {
        let mut spent = self.lock();
        spent.session_usd = before.cost_usd;
        spent.turn_usd = 0.0;
        spent.limit = limit;
    }

    /// A call was made.
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
                tracing::error!(error, "what was spent today cannot be written down");
            }
        }
    }

    /// Whether the next call may be made.
    pub(crate) async fn judge(&self, budget: &Budget, info: &ModelInfo, request: &ModelRequest) -> Verdict {
        let tokens = tokens_of(request);
        if budget.estimate_only {
            return Verdict::Stop(estimate(info, tokens));
        }
        if !self.is_held_to(budget) {
            return Verdict::Go;
        }
        let Some(price) = &info.price else { return self.unknown(budget, info) };
        // All of it may be in the provider's cache, and the answer may be short.
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
                "raise it with `/max-cost AMOUNT`, or send one prompt past it with `/force-send TEXT`",
            ),
            (budget.turn_usd, turn, "this prompt", "raise --max-cost"),
            (
                budget.session_usd,
                session,
                "this session",
                "raise session_usd under [budget] in the settings, or begin another session",
            ),
        ];
        if let Some(stop) =
            own.into_iter().find_map(|(max, spent, whose, fix)| over(max, spent, least, whose, fix))
        {
            return Verdict::Stop(stop);
        }
        match (budget.day_usd, budget.spending.clone()) {
            (Some(max), Some(spending)) => today(max, spending, least).await,
            _ => Verdict::Go,
        }
    }

    /// The same for a call that the work can do without: nothing is said about it.
    pub(crate) async fn allows(&self, budget: &Budget, info: &ModelInfo, request: &ModelRequest) -> bool {
        match info.price {
            None if self.is_held_to(budget) => !budget.refuse_unknown && !budget.estimate_only,
            _ => self.judge(budget, info, request).await == Verdict::Go,
        }
    }

    fn is_held_to(&self, budget: &Budget) -> bool {
        budget.is_set() || self.lock().limit.is_some()
    }

    fn unknown(&self, budget: &Budget, info: &ModelInfo) -> Verdict {
        if budget.refuse_unknown {
            return Verdict::Stop(format!(
                "what {} costs is not known, and [budget] says unknown = \"refuse\"; give its price under [[models]] \
                 in the settings, or choose another model",
                info.id
            ));
        }
        if std::mem::replace(&mut self.lock().warned, true) {
            return Verdict::Go;
        }
        Verdict::Warn(format!("what {} costs is not known: the budget cannot stop it", info.id))
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn today(max: f64, spending: Arc<Spending>, least: f64) -> Verdict {
    let spent = tools::blocking(move || spending.today()).await;
    match spent.map(|spent| spent.map_err(|error| error.to_string())) {
        Ok(Ok(spent)) => {
            let fix = "raise day_usd under [budget] in the settings, or wait for tomorrow (in UTC)";
            over(Some(max), spent, least, "today", fix).map_or(Verdict::Go, Verdict::Stop)
        }
        // A budget that cannot be looked up must not be taken for an unspent one.
        Err(error) | Ok(Err(error)) => Verdict::Stop(format!(
            "what was spent today cannot be read, and there is a budget for it: {error}"
        )),
    }
}

fn over(max: Option<f64>, spent: f64, least: f64, whose: &str, fix: &str) -> Option<String> {
    let max = max?;
    if spent >= max && spent > 0.0 {
        return Some(format!("the budget of {whose} is spent: ${spent:.4} of ${max:.4}; {fix}"));
    }
    (spent + least > max).then(|| {
        format!(
            "the next call costs at least ${least:.4}, and of the budget of {whose} ${:.4} is left; {fix}",
            max - spent
        )
    })
}

fn estimate(info: &ModelInfo, tokens: u64) -> String {
    match &info.price {
        Some(price) => format!(
            "about {tokens} tokens would be said to {}: ${:.4}, and ${} per million tokens of the answer; nothing was sent",
            info.id,
            price.of_input(tokens),
            price.output
        ),
        None => format!("about {tokens} tokens would be said to {}: cost unknown; nothing was sent", info.id),
    }
}

/// About how many tokens a request says, without its images.
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
