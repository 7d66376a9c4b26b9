use engine::Timestamp;

use super::*;
use crate::model::{Price, Thinking, catalog};

fn request(bytes: usize) -> ModelRequest {
    ModelRequest {
        model: "a:b".into(),
        system: "x".repeat(bytes).into(),
        messages: Vec::new(),
        tools: Arc::default(),
        output_tokens_max: None,
        thinking: Thinking::Off,
        temperature: None,
        conversation: "c".into(),
    }
}

fn model(price: Option<Price>) -> ModelInfo {
    ModelInfo { price, ..catalog::describe("a", "b") }
}

/// A dollar a million tokens, whoever says them.
fn dollar() -> ModelInfo {
    model(Some(Price { input: 1.0, output: 1.0, cache_read: 1.0, cache_write: 1.0, above: None }))
}

fn spent(usd: f64) -> Usage {
    Usage { cost_usd: usd, ..Usage::default() }
}

fn stopped(verdict: &SpendDecision) -> &str {
    match verdict {
        SpendDecision::Stop(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_stops_before_the_call_that_goes_beyond_its_budget() {
    let budget = Budget { session_usd: Some(1.0), ..Budget::default() };
    let ledger = Ledger::default();
    ledger.begin(&Totals { cost_usd: 0.5, ..Totals::default() }, None);
    assert_eq!(ledger.decide(&budget, &dollar(), &request(40)).await, SpendDecision::Go);
    ledger.add(&budget, &spent(0.4)).await;
    assert_eq!(ledger.decide(&budget, &dollar(), &request(40)).await, SpendDecision::Go);
    // 200,000 tokens are 20 cents.
    let verdict = ledger.decide(&budget, &dollar(), &request(800_000)).await;
    assert!(stopped(&verdict).contains("costs at least $0.2000"), "{verdict:?}");
    ledger.add(&budget, &spent(0.4)).await;
    let verdict = ledger.decide(&budget, &dollar(), &request(40)).await;
    assert!(
        stopped(&verdict).contains("this session is used up: $1.3000 of $1.0000; raise session_usd"),
        "{verdict:?}"
    );
    // Another turn is no way around it.
    ledger.begin(&Totals { cost_usd: 1.3, ..Totals::default() }, None);
    stopped(&ledger.decide(&budget, &dollar(), &request(40)).await);
}

#[tokio::test]
async fn a_prompt_has_a_budget_of_its_own_and_nothing_may_be_spent_of_none() {
    let budget = Budget { turn_usd: Some(0.1), ..Budget::default() };
    let ledger = Ledger::default();
    ledger.add(&budget, &spent(0.2)).await;
    stopped(&ledger.decide(&budget, &dollar(), &request(4)).await);
    ledger.begin(&Totals { cost_usd: 0.2, ..Totals::default() }, None);
    assert_eq!(ledger.decide(&budget, &dollar(), &request(4)).await, SpendDecision::Go);
    let none = Budget { turn_usd: Some(0.0), ..Budget::default() };
    stopped(&ledger.decide(&none, &dollar(), &request(400)).await);
    assert_eq!(ledger.decide(&none, &model(Some(Price::FREE)), &request(400)).await, SpendDecision::Go);
}

#[tokio::test]
async fn a_day_is_counted_over_all_sessions() {
    struct Noon;
    impl engine::Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp(43_200_000)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let spending = || Some(Arc::new(DailySpending::new(folder.path().to_owned(), Arc::new(Noon))));
    let budget = || Budget { day_usd: Some(1.0), spending: spending(), ..Budget::default() };
    let (one, other) = (Ledger::default(), Ledger::default());
    one.add(&budget(), &spent(0.6)).await;
    assert_eq!(other.decide(&budget(), &dollar(), &request(4)).await, SpendDecision::Go);
    other.add(&budget(), &spent(0.6)).await;
    let verdict = one.decide(&budget(), &dollar(), &request(4)).await;
    assert!(stopped(&verdict).contains("today is used up: $1.2000 of $1.0000"), "{verdict:?}");
    // What cannot be read is not taken for nothing.
    std::fs::remove_file(folder.path().join("0")).unwrap();
    std::fs::create_dir(folder.path().join("0")).unwrap();
    let verdict = one.decide(&budget(), &dollar(), &request(4)).await;
    assert!(stopped(&verdict).contains("could not read"), "{verdict:?}");
}

#[tokio::test]
async fn an_unknown_price_is_said_once_or_refused() {
    let budget = Budget { session_usd: Some(1.0), ..Budget::default() };
    let ledger = Ledger::default();
    let verdict = ledger.decide(&budget, &model(None), &request(4)).await;
    assert_eq!(
        verdict,
        SpendDecision::Warn("the price of a:b is not known, so the budget cannot limit it".into())
    );
    assert_eq!(ledger.decide(&budget, &model(None), &request(4)).await, SpendDecision::Go);
    let strict = Budget { refuse_unknown: true, ..budget };
    assert!(stopped(&ledger.decide(&strict, &model(None), &request(4)).await).contains("is not known"));
    // Without a budget nobody asks.
    let free = Budget { refuse_unknown: true, ..Budget::default() };
    assert_eq!(ledger.decide(&free, &model(None), &request(4)).await, SpendDecision::Go);
}

#[tokio::test]
async fn an_estimate_is_said_and_nothing_is_asked() {
    let budget = Budget { estimate_only: true, ..Budget::default() };
    let verdict = Ledger::default().decide(&budget, &dollar(), &request(4_000_000)).await;
    assert!(stopped(&verdict).contains("1000000 tokens would be sent to a:b: $1.0000"), "{verdict:?}");
    let verdict = Ledger::default().decide(&budget, &model(None), &request(4)).await;
    assert!(stopped(&verdict).contains("cost unknown"), "{verdict:?}");
}
