//! The session's invariants hold for every order of prompts, answers, cancels, closes, reports and deadlines.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;

use super::test_script::{ScriptRunner, action, ended, new_session, rule, sender, started};
use super::{Effect, Input, PermissionAnswer, Session, TurnReport};
use crate::content::{Content, OutputStream};
use crate::event::{Body, Origin, Stop, ToolClass, Usage};
use crate::ids::{AskId, CallId, MessageId, Timestamp, TurnId};

/// One step. The numbers are small, so that they often, but not always, refer to something.
#[derive(Debug, Clone)]
enum Step {
    Prompt(&'static str),
    Cancel(&'static str, Option<u64>),
    Answer(&'static str, u64, PermissionAnswer),
    Change(&'static str, &'static str),
    ApprovalChosen(&'static str),
    Rename(&'static str),
    Move(&'static str),
    Close,
    Retire,
    Expire(u64),
    /// By the running turn, or by the one with this number.
    Report(Option<u64>, TurnAction),
}

#[derive(Debug, Clone)]
enum TurnAction {
    Text,
    Start(&'static str),
    Output(&'static str),
    End(&'static str),
    Ask(ToolClass, Option<bool>),
    Change(&'static str),
    Usage(u64),
    Over(Stop, bool),
    NotItsBusiness,
}

fn step() -> impl Strategy<Value = Step> {
    use PermissionAnswer::{
        AllowAlways, AllowExactly, AllowOnce, CancelTurn, DenyAlways, DenyBecause, DenyOnce, Reply,
    };
    use PermissionAnswer::{DenyExactly, Withdraw};
    let who = || select(vec!["editor", "phone", "bot"]);
    let words = [DenyBecause("not today".into()), Reply("red".into())];
    let plain =
        [AllowOnce, AllowAlways, AllowExactly, DenyOnce, DenyAlways, DenyExactly, Withdraw, CancelTurn];
    let answer = select(plain.into_iter().chain(words).collect::<Vec<_>>());
    let setting = select(vec![
        ("mode", "ask"),
        ("mode", "code"),
        ("mode", "sleep"),
        ("approval", "read-only"),
        ("approval", "auto"),
        ("approval", "full"),
        ("colour", "blue"),
    ]);
    prop_oneof![
        6 => who().prop_map(Step::Prompt),
        2 => (who(), proptest::option::of(1..8u64)).prop_map(|(who, turn)| Step::Cancel(who, turn)),
        4 => (who(), 1..8u64, answer).prop_map(|(who, ask, answer)| Step::Answer(who, ask, answer)),
        2 => setting.prop_map(|(id, value)| Step::Change(id, value)),
        1 => who().prop_map(Step::ApprovalChosen),
        1 => who().prop_map(Step::Rename),
        1 => select(vec!["/a", "/b"]).prop_map(Step::Move),
        1 => select(vec![Step::Close, Step::Retire, Step::Retire, Step::Retire]),
        1 => (1..8u64).prop_map(Step::Expire),
        20 => (proptest::option::weighted(0.1, 1..8u64), said()).prop_map(|(turn, said)| Step::Report(turn, said)),
    ]
}

fn said() -> impl Strategy<Value = TurnAction> {
    let call = || select(vec!["one", "two", "three"]);
    let class = select(vec![ToolClass::Read, ToolClass::Edit, ToolClass::Execute, ToolClass::Network]);
    let remembered = select(vec![None, None, None, Some(true), Some(false)]);
    let stop = select(vec![Stop::EndTurn, Stop::MaxTokens, Stop::Failed, Stop::Cancelled]);
    prop_oneof![
        2 => Just(TurnAction::Text),
        3 => call().prop_map(TurnAction::Start),
        1 => call().prop_map(TurnAction::Output),
        2 => call().prop_map(TurnAction::End),
        4 => (class, remembered).prop_map(|(class, remembered)| TurnAction::Ask(class, remembered)),
        1 => select(vec!["code", "ask", "sleep"]).prop_map(TurnAction::Change),
        1 => any::<u64>().prop_map(TurnAction::Usage),
        3 => (stop, any::<bool>()).prop_map(|(stop, error)| TurnAction::Over(stop, error)),
        1 => Just(TurnAction::NotItsBusiness),
    ]
}

fn input(step: Step, running: Option<TurnId>) -> Input {
    match step {
        Step::Prompt(who) => Input::Prompt { by: sender(who), content: vec![Content::text("go")] },
        Step::Cancel(who, only) => Input::Cancel { by: sender(who), only: only.map(TurnId) },
        Step::Answer(who, ask, answer) => Input::Answer { by: sender(who), ask: AskId(ask), answer },
        Step::Change(id, value) => Input::Change { by: sender("editor"), id: id.into(), value: value.into() },
        Step::ApprovalChosen(who) => Input::ApprovalChosen { by: sender(who), hits: BTreeMap::new() },
        Step::Rename(who) => Input::Rename { by: sender(who), title: who.into() },
        Step::Move(cwd) => Input::Move { by: sender("editor"), cwd: cwd.into() },
        Step::Close => Input::Close { by: None, reason: None },
        Step::Retire => Input::Retire,
        Step::Expire(ask) => Input::AskExpired { ask: AskId(ask) },
        Step::Report(turn, said) => {
            let turn = turn.map(TurnId).or(running).unwrap_or(TurnId(1));
            Input::FromTurn { turn, within: None, report: report(said) }
        }
    }
}

fn report(said: TurnAction) -> TurnReport {
    match said {
        TurnAction::Text => emit(Body::Text { message: MessageId(1), text: "…".into() }),
        TurnAction::Start(call) => emit(started(call)),
        TurnAction::Output(call) => {
            let call = CallId(call.into());
            emit(Body::ToolOutput { call, stream: OutputStream::Stdout, text: "…".into() })
        }
        TurnAction::End(call) => emit(ended(call)),
        TurnAction::Ask(class, remembered) => {
            let hit = remembered.map(rule);
            TurnReport::Ask { request: Box::new(action("tool", "subject", class)), hit }
        }
        TurnAction::Change(mode) => TurnReport::Change { id: "mode".into(), value: mode.into() },
        TurnAction::Usage(input) => {
            emit(Body::Usage(Usage { input, cost_usd: f64::MAX, ..Usage::default() }))
        }
        TurnAction::Over(stop, error) => TurnReport::Ended { stop, error: error.then(|| "why".into()) },
        TurnAction::NotItsBusiness => emit(Body::TurnStarted),
    }
}

/// Everything of the state that the log must be able to bring back.
fn remembered(session: &Session) -> String {
    let asks: Vec<_> = session.open_asks.iter().map(|(ask, open)| (ask, open.turn, &open.request)).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {asks:?} {} {}",
        session.settings,
        session.title,
        session.cwd,
        session.totals,
        session.open_turns,
        session.open_calls,
        session.next_turn,
        session.next_ask
    )
}

/// The rest, which only a living session has.
fn living(session: &Session) -> String {
    let running = session.running.as_ref().map(|running| (running.turn, running.cancelling));
    let queue: Vec<_> = session.queue.iter().map(|queued| queued.turn).collect();
    format!("{running:?} {queue:?} {}", session.closing)
}

fn replayed(record: &[(Option<TurnId>, Body)]) -> Session {
    let mut session = new_session(false);
    for (turn, body) in record {
        session.observe(&Origin::Engine, *turn, body);
    }
    session
}

/// What a run showed, beside the recorded events.
#[derive(Default)]
struct RunRecord {
    accepted: BTreeSet<TurnId>,
    started: BTreeSet<TurnId>,
    waits: BTreeMap<AskId, u32>,
    wakes: BTreeMap<AskId, u32>,
    stopped: bool,
}

impl RunRecord {
    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Accepted { turn } => assert!(self.accepted.insert(*turn), "{turn:?} accepted twice"),
                Effect::StartTurn { turn, .. } => {
                    assert!(self.started.insert(*turn), "{turn:?} started twice");
                }
                Effect::Wait { ask } => *self.waits.entry(*ask).or_default() += 1,
                Effect::Wake { ask, .. } => *self.wakes.entry(*ask).or_default() += 1,
                Effect::Stop => self.stopped = true,
                Effect::Record { .. }
                | Effect::GoOnAfter { .. }
                | Effect::CancelTurn { .. }
                | Effect::Settle { .. }
                | Effect::Remember { .. } => {}
            }
        }
    }
}

/// Applies an input and looks whether the state is what its record says.
fn apply(stage: &mut ScriptRunner, seen: &mut RunRecord, input: Input) {
    let before = (remembered(&stage.session), living(&stage.session));
    let running = stage.session.running();
    match stage.session.apply(Timestamp(0), input) {
        Err(_) => assert_eq!((remembered(&stage.session), living(&stage.session)), before),
        Ok(effects) => {
            seen.note(&effects);
            for effect in effects {
                if let Effect::StartTurn { turn, .. } = &effect {
                    // Only one at a time: the turn before is over when the next one starts.
                    let over =
                        |running| stage.record.iter().any(|(of, body)| *of == Some(running) && is_end(body));
                    assert!(running.is_none_or(over), "{turn:?} starts while {running:?} runs");
                }
                if let Effect::Record { turn, event: crate::backend::NewEvent { body, .. }, .. } = effect {
                    stage.record.push((turn, body));
                }
            }
        }
    }
    assert_eq!(remembered(&stage.session), remembered(&replayed(&stage.record)));
}

fn is_end(body: &Body) -> bool {
    matches!(body, Body::TurnEnded { .. })
}

/// Looks at a whole record: everything that began has ended, once, and in good order.
fn check_record(record: &[(Option<TurnId>, Body)]) {
    let mut turns = BTreeMap::new();
    let mut asked = BTreeSet::new();
    let mut resolved = BTreeSet::new();
    let mut calls = BTreeSet::new();
    for (turn, body) in record {
        if let Some(turn) = turn {
            let ended = turns.entry(*turn).or_insert(false);
            assert!(!*ended, "{body:?} of {turn:?} after its end");
            *ended = is_end(body);
        }
        if let Body::Asked { ask, .. } = body {
            assert!(asked.insert(*ask) && !resolved.contains(ask), "{ask:?} asked again");
        } else if let Body::Resolved { ask, .. } = body {
            assert!(resolved.insert(*ask), "{ask:?} resolved again");
        } else if let Body::ToolStarted(start) = body {
            assert!(calls.insert(start.call.clone()), "{:?} started again", start.call);
        } else if let Body::ToolEnded(end) = body {
            assert!(calls.remove(&end.call), "{:?} ended again", end.call);
        }
    }
    assert!(turns.values().all(|ended| *ended), "some turn did not end: {turns:?}");
    assert!(asked.is_subset(&resolved), "some ask was not resolved");
    assert!(calls.is_empty(), "some call did not end: {calls:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_turn_ask_and_call_ends_exactly_once(steps in proptest::collection::vec(step(), 0..80)) {
        let mut stage = ScriptRunner::new(false);
        let mut seen = RunRecord::default();
        for step in steps {
            let input = input(step, stage.session.running());
            apply(&mut stage, &mut seen, input);
        }
        while let Some(turn) = stage.session.running() {
            let report = TurnReport::Ended { stop: Stop::EndTurn, error: None };
            apply(&mut stage, &mut seen, Input::FromTurn { turn, within: None, report });
        }
        check_record(&stage.record);
        let of: BTreeSet<_> = stage.record.iter().filter_map(|(turn, _)| *turn).collect();
        prop_assert_eq!(&of, &seen.accepted);
        prop_assert_eq!(&seen.waits, &seen.wakes);
        prop_assert!(seen.waits.values().all(|times| *times == 1));
        prop_assert_eq!(seen.stopped, stage.session.closing);
    }

    #[test]
    fn a_server_that_died_anywhere_leaves_nothing_open(steps in proptest::collection::vec(step(), 0..60)) {
        let mut stage = ScriptRunner::new(false);
        let mut seen = RunRecord::default();
        for step in steps {
            let input = input(step, stage.session.running());
            apply(&mut stage, &mut seen, input);
        }
        for cut in 0..=stage.record.len() {
            let mut record = stage.record[..cut].to_vec();
            let mut session = replayed(&record);
            for effect in session.recover() {
                if let Effect::Record { turn, event: crate::backend::NewEvent { body, .. }, .. } = effect {
                    record.push((turn, body));
                }
            }
            check_record(&record);
            prop_assert!(session.recover().is_empty());
            prop_assert_eq!(remembered(&session), remembered(&replayed(&record)));
        }
    }

    #[test]
    fn a_history_from_elsewhere_leaves_nothing_open_either(
        events in proptest::collection::vec((proptest::option::of(1..4u64), stray()), 0..30),
    ) {
        let record: Vec<_> = events.into_iter().map(|(turn, body)| (turn.map(TurnId), body)).collect();
        let mut session = replayed(&record);
        session.recover();
        prop_assert!(session.open_turns.is_empty() && session.open_calls.is_empty() && session.open_asks.is_empty());
    }
}

/// Events that may be anywhere in a record that we did not write.
fn stray() -> impl Strategy<Value = Body> {
    let numbers = select(vec![1, 2, u64::MAX]);
    let asked =
        move |ask| Body::Asked { ask: AskId(ask), request: Box::new(action("tool", "x", ToolClass::Read)) };
    prop_oneof![
        Just(Body::TurnStarted),
        Just(Body::TurnEnded { stop: Stop::EndTurn, error: None }),
        numbers.prop_map(asked),
        select(vec!["one", "two"]).prop_map(started),
        select(vec!["one", "two"]).prop_map(ended),
        Just(Body::Usage(Usage {
            input: u64::MAX,
            output: u64::MAX,
            cost_usd: f64::MAX,
            ..Usage::default()
        })),
    ]
}

fn emit(body: Body) -> TurnReport {
    TurnReport::Emit(body.into())
}
