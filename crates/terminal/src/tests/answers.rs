//! Asks: who is asked, which keys answer, and what happens when somebody else was faster.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Value, json};

use super::harness::{Harness, SESSION, ask, prompt, state, tool};
use crate::app::{Effect, Focus, Input};

fn asked(risk: &str) -> Harness {
    let mut harness = Harness::open();
    harness.view(
        false,
        json!([prompt(1, "go")]),
        state(&json!({"busy": true, "asks": [ask(9, risk, "make install")]})),
    );
    harness.now += 1_000;
    harness
}

fn answer(decision: &str, text: Value) -> Value {
    json!({"do": "answer", "session": SESSION, "ask": 9, "decision": decision, "text": text})
}

#[test]
fn one_key_answers_what_is_harmless() {
    for (key, decision) in [("y", "allowOnce"), ("a", "allowOnce"), ("n", "denyOnce"), ("d", "denyOnce")] {
        let mut harness = asked("low");
        harness.keys(key);
        assert_eq!(harness.last(), answer(decision, Value::Null), "{key}");
        assert!(harness.screen(60, 20).contains("sent…"));
        // It is answered once, however often the key is pressed.
        harness.keys(key);
        assert_eq!(harness.requests().len(), 1);
    }
}

#[test]
fn what_is_risky_takes_the_key_twice() {
    let mut harness = asked("high");
    harness.keys("y");
    assert!(harness.requests().is_empty());
    assert!(harness.screen(80, 20).contains("press y again to allow: high risk"));
    harness.keys("y");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

#[test]
fn another_key_in_between_disarms() {
    let mut harness = asked("high");
    harness.keys("y x y");
    assert!(harness.requests().is_empty());
}

#[test]
fn what_is_critical_takes_the_word() {
    let mut harness = asked("critical");
    harness.keys("y y enter");
    assert!(harness.requests().is_empty());
    harness.keys("y y e s enter");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

#[test]
fn what_cannot_be_shown_whole_takes_the_word() {
    let mut cut = ask(9, "low", "make install");
    cut["more"] = 70_000.into();
    let mut harness = Harness::open();
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [cut]})));
    harness.now += 1_000;
    assert!(harness.screen(80, 20).contains("… 70000 bytes are not shown"));
    harness.keys("y y enter");
    assert!(harness.requests().is_empty());
    harness.keys("y y e s enter");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

#[test]
fn for_good_says_first_what_is_remembered() {
    let mut harness = asked("low");
    harness.keys("A");
    assert!(harness.requests().is_empty());
    assert!(
        harness.screen(80, 20).contains("press A again: always in this folder: exactly shell make install")
    );
    harness.keys("A");
    assert_eq!(harness.last(), answer("allowAlways", Value::Null));
    assert!(harness.screen(80, 20).contains("Always allowed in this folder"));
    let mut harness = asked("low");
    let mut family = ask(9, "low", "make install");
    family["rule"] = "shell(make install:*)".into();
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [family]})));
    harness.keys("A");
    assert!(harness.screen(80, 20).contains("press A again: always in this folder: shell(make install:*)"));
}

/// Whoever is not the owner at the machine writes no rules: the answer holds for exactly this, in this session.
#[test]
fn without_rules_always_is_for_this_session() {
    let mut family = ask(9, "low", "make install");
    family["rule"] = "shell(make install:*)".into();
    let mut harness = Harness::open();
    harness.hello(false);
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [family]})));
    harness.now += 1_000;
    assert!(harness.screen(80, 20).contains("A for this session"));
    assert!(harness.screen(45, 20).contains("A session"));
    harness.keys("A");
    assert!(
        harness.screen(80, 20).contains("press A again: always in this session: exactly shell make install")
    );
    harness.keys("A");
    assert_eq!(harness.last(), answer("allowAlways", Value::Null));
    assert!(harness.screen(80, 20).contains("Always allowed in this session"));
}

#[test]
fn a_refusal_can_have_a_reason() {
    let mut harness = asked("low");
    harness.keys("D");
    harness.write("not yet");
    harness.keys("enter");
    assert_eq!(harness.last(), answer("denyOnce", "not yet".into()));
}

#[test]
fn who_is_writing_answers_nothing() {
    let mut harness = Harness::open();
    harness.write("also ");
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    harness.now += 5_000;
    harness.write("yes, and");
    assert_eq!(harness.app.composer.text(), "also yes, and");
    assert!(harness.requests().is_empty());
    assert!(harness.screen(60, 20).contains("Tab or F2 to answer"));
    harness.keys("f2 y");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

/// Whoever begins to write something else while it is asked goes on writing it.
#[test]
fn a_command_that_is_typed_at_a_question_answers_nothing_and_is_whole() {
    for risk in ["low", "high", "critical"] {
        let mut harness = asked(risk);
        harness.write("/bridge");
        assert_eq!((harness.app.focus, harness.app.composer.text()), (Focus::Composer, "/bridge"), "{risk}");
        assert!(harness.requests().is_empty(), "{risk}: {:?}", harness.requests());
        harness.keys("enter");
        assert_eq!((&harness.last()["do"], &harness.last()["text"]), (&"prompt".into(), &"/bridge".into()));
        // The line is empty again, and what is typed next is still no answer.
        harness.write("day");
        assert_eq!((harness.requests().len(), harness.app.composer.text()), (1, "day"), "{risk}");
        harness.keys("back back back");
        harness.write("yn");
        assert_eq!((harness.requests().len(), harness.app.composer.text()), (1, "yn"), "{risk}");
    }
}

#[test]
fn a_command_is_whole_also_when_the_question_has_just_appeared() {
    let mut harness = Harness::open();
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    harness.write("/diff");
    assert_eq!(harness.app.composer.text(), "/diff");
    assert!(harness.requests().is_empty());
}

#[test]
fn text_that_begins_with_no_answer_is_written_whole() {
    let mut harness = asked("high");
    harness.keys("y");
    harness.write("wait, and do nothing yet");
    assert_eq!(harness.app.composer.text(), "wait, and do nothing yet");
    assert!(harness.requests().is_empty());
    // The first press is forgotten.
    harness.keys("f2 y");
    assert!(harness.requests().is_empty());
    let mut question = ask(9, "low", "");
    question["question"] = json!({"text": "Which rope?", "choices": ["hemp"], "freeText": true});
    let mut harness = Harness::open();
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [question]})));
    harness.now += 1_000;
    harness.write("/bridge 1");
    assert_eq!(harness.app.composer.text(), "/bridge 1");
    assert!(harness.requests().is_empty());
}

#[test]
fn what_is_pasted_at_a_question_answers_nothing() {
    for (risk, before) in [("low", ""), ("high", "y"), ("critical", "y")] {
        let mut harness = asked(risk);
        if !before.is_empty() {
            harness.keys(before);
        }
        harness.input(Input::Paste("yes".into()));
        harness.write("yan");
        assert_eq!((harness.app.focus, harness.app.composer.text()), (Focus::Composer, "yesyan"), "{risk}");
        // Nor does what was pressed before it count for the next answer.
        harness.keys("f2 y");
        assert_eq!(harness.requests().len(), usize::from(risk == "low"), "{risk}: {:?}", harness.requests());
    }
}

#[test]
fn a_key_that_was_on_its_way_answers_nothing() {
    let mut harness = Harness::open();
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    harness.keys("y");
    assert!(harness.requests().is_empty());
    assert!(harness.screen(80, 20).contains("Key ignored"));
    harness.now += 1_000;
    harness.keys("y");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

#[test]
fn a_question_is_answered_by_number_or_in_writing() {
    let question = |choices: Value, free: bool| {
        let mut ask = ask(9, "low", "");
        ask["question"] = json!({"text": "Which rope?", "choices": choices, "freeText": free});
        let mut harness = Harness::open();
        harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask]})));
        harness.now += 1_000;
        harness
    };
    let mut harness = question(json!(["hemp", "wire"]), true);
    harness.keys("3 2");
    assert_eq!(harness.last(), answer("reply", "wire".into()));
    let mut harness = question(json!([]), true);
    harness.keys("enter");
    harness.write("silk");
    harness.keys("enter");
    assert_eq!(harness.last(), answer("reply", "silk".into()));
}

#[test]
fn answered_elsewhere_it_goes_and_says_by_whom() {
    let mut harness = Harness::open();
    let mut waiting = ask(9, "low", "make");
    waiting["row"] = 4.into();
    let call = |decided: Value| tool(4, &json!({"title": "make", "state": "running", "decided": decided}));
    harness.view(false, json!([call(Value::Null)]), state(&json!({"busy": true, "asks": [waiting]})));
    assert_eq!(harness.app.focus, Focus::AskPanel);
    harness.view(false, json!([call("allowed by iPhone".into())]), state(&json!({"busy": true})));
    assert_eq!(harness.app.focus, Focus::Composer);
    let screen = harness.screen(80, 20);
    assert!(screen.contains("make: allowed by iPhone") && !screen.contains("allow once"), "{screen}");
}

/// Two asks, of which the first is shown, and then only the second waits.
fn settled_while(keys: &str, text: &str) -> Harness {
    let mut harness = Harness::open();
    let asks = json!([ask(8, "critical", "make"), ask(9, "low", "make install")]);
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": asks})));
    harness.now += 1_000;
    harness.keys(keys);
    harness.write(text);
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "make install")]})));
    harness
}

#[test]
fn a_reason_for_one_ask_is_no_answer_to_the_next() {
    let mut harness = settled_while("D", "not ");
    harness.write("a day earlier");
    harness.keys("enter");
    assert!(harness.requests().is_empty(), "{:?}", harness.requests());
    assert_eq!((harness.app.focus, harness.app.composer.text()), (Focus::Composer, "not a day earlier"));
    assert!(harness.screen(90, 20).contains("Not sent: the request was answered elsewhere"));
    harness.now += 1_000;
    harness.keys("enter");
    assert_eq!(harness.last()["text"], "not a day earlier");
}

#[test]
fn a_reason_is_not_lost_with_the_last_ask() {
    let mut harness = asked("low");
    harness.keys("D");
    harness.write("not yet");
    harness.view(false, json!([]), state(&json!({"busy": true})));
    harness.keys("enter");
    assert!(harness.requests().is_empty());
    assert_eq!(harness.app.composer.text(), "not yet");
}

#[test]
fn a_yes_for_one_ask_is_none_for_the_next() {
    let mut harness = settled_while("y", "");
    harness.keys("y e s enter");
    assert!(harness.requests().is_empty(), "{:?}", harness.requests());
    assert_eq!(harness.app.focus, Focus::Composer);
}

#[test]
fn keys_that_go_on_answer_nothing_when_another_ask_comes_into_view() {
    let mut harness = settled_while("n", "");
    assert_eq!(harness.requests().len(), 1);
    for _ in 0..20 {
        harness.now += 300;
        harness.keys("y");
    }
    assert_eq!(harness.requests().len(), 1, "each key that is not taken keeps the next from being taken");
    harness.now += 1_000;
    harness.keys("y");
    assert_eq!(harness.last(), answer("allowOnce", Value::Null));
}

#[test]
fn a_key_that_is_held_answers_nothing() {
    let mut harness = asked("low");
    let held = KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, KeyEventKind::Repeat);
    harness.input(Input::Key(held));
    assert!(harness.requests().is_empty());
}

#[test]
fn a_late_answer_is_told_so() {
    let mut harness = asked("low");
    harness.keys("y");
    harness.refuse("answered", "denied by iPhone");
    assert!(harness.screen(80, 20).contains("denied by iPhone"));
}

#[test]
fn who_looks_elsewhere_is_called() {
    let mut harness = Harness::open();
    harness.input(Input::Focus(false));
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    assert_eq!(harness.effects, [Effect::Notify("Weave the net: needs you (Run a command)".into())]);
}
