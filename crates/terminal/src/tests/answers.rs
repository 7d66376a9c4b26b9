//! Questions: who is asked, which keys answer, and what happens when somebody else was faster.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Value, json};

use super::stage::{SESSION, Stage, ask, prompt, state, tool};
use crate::app::{Effect, Focus, Input};

fn asked(risk: &str) -> Stage {
    let mut stage = Stage::open();
    stage.view(
        false,
        json!([prompt(1, "go")]),
        state(&json!({"busy": true, "asks": [ask(9, risk, "make install")]})),
    );
    stage.now += 1_000;
    stage
}

fn answer(decision: &str, text: Value) -> Value {
    json!({"do": "answer", "session": SESSION, "ask": 9, "decision": decision, "text": text})
}

#[test]
fn one_key_answers_what_is_harmless() {
    for (key, decision) in [("y", "allowOnce"), ("a", "allowOnce"), ("n", "denyOnce"), ("d", "denyOnce")] {
        let mut stage = asked("low");
        stage.keys(key);
        assert_eq!(stage.last(), answer(decision, Value::Null), "{key}");
        assert!(stage.screen(60, 20).contains("sent…"));
        // It is answered once, however often the key is pressed.
        stage.keys(key);
        assert_eq!(stage.requests().len(), 1);
    }
}

#[test]
fn what_is_risky_takes_the_key_twice() {
    let mut stage = asked("high");
    stage.keys("y");
    assert!(stage.requests().is_empty());
    assert!(stage.screen(80, 20).contains("y again allows it: high risk"));
    stage.keys("y");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

#[test]
fn another_key_in_between_disarms() {
    let mut stage = asked("high");
    stage.keys("y x y");
    assert!(stage.requests().is_empty());
}

#[test]
fn what_is_critical_takes_the_word() {
    let mut stage = asked("critical");
    stage.keys("y y enter");
    assert!(stage.requests().is_empty());
    stage.keys("y y e s enter");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

#[test]
fn what_cannot_be_shown_whole_takes_the_word() {
    let mut cut = ask(9, "low", "make install");
    cut["more"] = 70_000.into();
    let mut stage = Stage::open();
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [cut]})));
    stage.now += 1_000;
    assert!(stage.screen(80, 20).contains("… 70000 bytes are not shown"));
    stage.keys("y y enter");
    assert!(stage.requests().is_empty());
    stage.keys("y y e s enter");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

#[test]
fn for_good_says_first_what_is_remembered() {
    let mut stage = asked("low");
    stage.keys("A");
    assert!(stage.requests().is_empty());
    assert!(stage.screen(80, 20).contains("A again: always in this folder: exactly shell make install"));
    stage.keys("A");
    assert_eq!(stage.last(), answer("allowAlways", Value::Null));
    assert!(stage.screen(80, 20).contains("Allowed from now on in this folder"));
    let mut stage = asked("low");
    let mut family = ask(9, "low", "make install");
    family["rule"] = "shell(make install:*)".into();
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [family]})));
    stage.keys("A");
    assert!(stage.screen(80, 20).contains("A again: always in this folder: shell(make install:*)"));
}

/// Whoever is not the owner at the machine writes no rules: the answer holds for exactly this, in this session.
#[test]
fn without_rules_always_is_for_this_session() {
    let mut family = ask(9, "low", "make install");
    family["rule"] = "shell(make install:*)".into();
    let mut stage = Stage::open();
    stage.hello(false);
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [family]})));
    stage.now += 1_000;
    assert!(stage.screen(80, 20).contains("A in this session"));
    assert!(stage.screen(45, 20).contains("A session"));
    stage.keys("A");
    assert!(stage.screen(80, 20).contains("A again: always in this session: exactly shell make install"));
    stage.keys("A");
    assert_eq!(stage.last(), answer("allowAlways", Value::Null));
    assert!(stage.screen(80, 20).contains("Allowed from now on in this session"));
}

#[test]
fn a_refusal_can_have_a_reason() {
    let mut stage = asked("low");
    stage.keys("D");
    stage.write("not yet");
    stage.keys("enter");
    assert_eq!(stage.last(), answer("denyOnce", "not yet".into()));
}

#[test]
fn who_is_writing_answers_nothing() {
    let mut stage = Stage::open();
    stage.write("also ");
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    stage.now += 5_000;
    stage.write("yes, and");
    assert_eq!(stage.app.composer.text(), "also yes, and");
    assert!(stage.requests().is_empty());
    assert!(stage.screen(60, 20).contains("Tab or F2 answers the question"));
    stage.keys("f2 y");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

/// Whoever begins to write something else while it is asked goes on writing it.
#[test]
fn a_command_that_is_typed_at_a_question_answers_nothing_and_is_whole() {
    for risk in ["low", "high", "critical"] {
        let mut stage = asked(risk);
        stage.write("/bridge");
        assert_eq!((stage.app.focus, stage.app.composer.text()), (Focus::Composer, "/bridge"), "{risk}");
        assert!(stage.requests().is_empty(), "{risk}: {:?}", stage.requests());
        stage.keys("enter");
        assert_eq!((&stage.last()["do"], &stage.last()["text"]), (&"prompt".into(), &"/bridge".into()));
        // The line is empty again, and what is typed next is still no answer.
        stage.write("day");
        assert_eq!((stage.requests().len(), stage.app.composer.text()), (1, "day"), "{risk}");
        stage.keys("back back back");
        stage.write("yn");
        assert_eq!((stage.requests().len(), stage.app.composer.text()), (1, "yn"), "{risk}");
    }
}

#[test]
fn a_command_is_whole_also_when_the_question_has_just_appeared() {
    let mut stage = Stage::open();
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    stage.write("/diff");
    assert_eq!(stage.app.composer.text(), "/diff");
    assert!(stage.requests().is_empty());
}

#[test]
fn text_that_begins_with_no_answer_is_written_whole() {
    let mut stage = asked("high");
    stage.keys("y");
    stage.write("wait, and do nothing yet");
    assert_eq!(stage.app.composer.text(), "wait, and do nothing yet");
    assert!(stage.requests().is_empty());
    // The first press is forgotten.
    stage.keys("f2 y");
    assert!(stage.requests().is_empty());
    let mut question = ask(9, "low", "");
    question["question"] = json!({"text": "Which rope?", "choices": ["hemp"], "freeText": true});
    let mut stage = Stage::open();
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [question]})));
    stage.now += 1_000;
    stage.write("/bridge 1");
    assert_eq!(stage.app.composer.text(), "/bridge 1");
    assert!(stage.requests().is_empty());
}

#[test]
fn what_is_pasted_at_a_question_answers_nothing() {
    for (risk, before) in [("low", ""), ("high", "y"), ("critical", "y")] {
        let mut stage = asked(risk);
        if !before.is_empty() {
            stage.keys(before);
        }
        stage.input(Input::Paste("yes".into()));
        stage.write("yan");
        assert_eq!((stage.app.focus, stage.app.composer.text()), (Focus::Composer, "yesyan"), "{risk}");
        // Nor does what was pressed before it count for the next answer.
        stage.keys("f2 y");
        assert_eq!(stage.requests().len(), usize::from(risk == "low"), "{risk}: {:?}", stage.requests());
    }
}

#[test]
fn a_key_that_was_on_its_way_answers_nothing() {
    let mut stage = Stage::open();
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    stage.keys("y");
    assert!(stage.requests().is_empty());
    assert!(stage.screen(80, 20).contains("That key was not taken"));
    stage.now += 1_000;
    stage.keys("y");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

#[test]
fn a_question_is_answered_by_number_or_in_writing() {
    let question = |choices: Value, free: bool| {
        let mut ask = ask(9, "low", "");
        ask["question"] = json!({"text": "Which rope?", "choices": choices, "freeText": free});
        let mut stage = Stage::open();
        stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask]})));
        stage.now += 1_000;
        stage
    };
    let mut stage = question(json!(["hemp", "wire"]), true);
    stage.keys("3 2");
    assert_eq!(stage.last(), answer("reply", "wire".into()));
    let mut stage = question(json!([]), true);
    stage.keys("enter");
    stage.write("silk");
    stage.keys("enter");
    assert_eq!(stage.last(), answer("reply", "silk".into()));
}

#[test]
fn answered_elsewhere_it_goes_and_says_by_whom() {
    let mut stage = Stage::open();
    let mut waiting = ask(9, "low", "make");
    waiting["row"] = 4.into();
    let call = |decided: Value| tool(4, &json!({"title": "make", "state": "running", "decided": decided}));
    stage.view(false, json!([call(Value::Null)]), state(&json!({"busy": true, "asks": [waiting]})));
    assert_eq!(stage.app.focus, Focus::Shelf);
    stage.view(false, json!([call("allowed by iPhone".into())]), state(&json!({"busy": true})));
    assert_eq!(stage.app.focus, Focus::Composer);
    let screen = stage.screen(80, 20);
    assert!(screen.contains("make: allowed by iPhone") && !screen.contains("allow once"), "{screen}");
}

/// Two asks, of which the first is shown, and then only the second waits.
fn settled_while(keys: &str, text: &str) -> Stage {
    let mut stage = Stage::open();
    let asks = json!([ask(8, "critical", "make"), ask(9, "low", "make install")]);
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": asks})));
    stage.now += 1_000;
    stage.keys(keys);
    stage.write(text);
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "make install")]})));
    stage
}

#[test]
fn a_reason_for_one_ask_is_no_answer_to_the_next() {
    let mut stage = settled_while("D", "not ");
    stage.write("a day earlier");
    stage.keys("enter");
    assert!(stage.requests().is_empty(), "{:?}", stage.requests());
    assert_eq!((stage.app.focus, stage.app.composer.text()), (Focus::Composer, "not a day earlier"));
    assert!(stage.screen(90, 20).contains("Not sent: what was asked is settled"));
    stage.now += 1_000;
    stage.keys("enter");
    assert_eq!(stage.last()["text"], "not a day earlier");
}

#[test]
fn a_reason_is_not_lost_with_the_last_ask() {
    let mut stage = asked("low");
    stage.keys("D");
    stage.write("not yet");
    stage.view(false, json!([]), state(&json!({"busy": true})));
    stage.keys("enter");
    assert!(stage.requests().is_empty());
    assert_eq!(stage.app.composer.text(), "not yet");
}

#[test]
fn a_yes_for_one_ask_is_none_for_the_next() {
    let mut stage = settled_while("y", "");
    stage.keys("y e s enter");
    assert!(stage.requests().is_empty(), "{:?}", stage.requests());
    assert_eq!(stage.app.focus, Focus::Composer);
}

#[test]
fn keys_that_go_on_answer_nothing_when_another_ask_comes_into_view() {
    let mut stage = settled_while("n", "");
    assert_eq!(stage.requests().len(), 1);
    for _ in 0..20 {
        stage.now += 300;
        stage.keys("y");
    }
    assert_eq!(stage.requests().len(), 1, "each key that is not taken keeps the next from being taken");
    stage.now += 1_000;
    stage.keys("y");
    assert_eq!(stage.last(), answer("allowOnce", Value::Null));
}

#[test]
fn a_key_that_is_held_answers_nothing() {
    let mut stage = asked("low");
    let held = KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, KeyEventKind::Repeat);
    stage.input(Input::Key(held));
    assert!(stage.requests().is_empty());
}

#[test]
fn a_late_answer_is_told_so() {
    let mut stage = asked("low");
    stage.keys("y");
    stage.refuse("answered", "denied by iPhone");
    assert!(stage.screen(80, 20).contains("denied by iPhone"));
}

#[test]
fn who_looks_elsewhere_is_called() {
    let mut stage = Stage::open();
    stage.input(Input::Focus(false));
    stage.view(false, json!([]), state(&json!({"busy": true, "asks": [ask(9, "low", "ls")]})));
    assert_eq!(stage.effects, [Effect::Notify("Weave the net: Run a command waits for you".into())]);
}
