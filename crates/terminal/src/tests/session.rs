//! Prompts, turns, connections and leaving.

use serde_json::{Value, json};

use super::stage::{SESSION, Stage, card, prompt, row, said, state, tool};
use crate::app::{Effect, Input};
use crate::{Failure, Start};

const OTHER: &str = "5e551011-ffff-4000-8000-000000000002";

#[test]
fn a_prompt_is_sent_once_under_one_key_however_often_the_line_breaks() {
    let mut stage = Stage::open();
    stage.write("weave");
    stage.keys("enter");
    let first = stage.last();
    assert_eq!((&first["do"], &first["text"]), (&"prompt".into(), &"weave".into()));
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    assert!(stage.screen(60, 12).contains("Reconnecting…"));
    stage.sent.clear();
    stage.greet(json!([]));
    let sent: Vec<Value> =
        stage.requests().iter().map(|request| serde_json::to_value(request).unwrap()).collect();
    assert_eq!(sent, [json!({"do": "watch", "session": SESSION, "after": 10}), first]);
    stage.reply(&json!({"is": "taken", "turn": 1}));
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    stage.sent.clear();
    stage.greet(json!([]));
    assert_eq!(stage.requests().len(), 1, "what was taken is not sent again");
}

#[test]
fn what_is_written_without_a_connection_waits_for_one() {
    let mut stage = Stage::open();
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    stage.write("weave");
    stage.keys("enter");
    assert!(stage.requests().is_empty());
    assert!(stage.screen(60, 12).contains("sending: weave"));
    stage.greet(json!([]));
    assert_eq!(stage.last()["text"], "weave");
}

#[test]
fn a_refused_prompt_comes_back_to_be_mended() {
    let mut stage = Stage::open();
    stage.write("weave");
    stage.keys("enter");
    stage.refuse("busy", "the queue is full");
    assert_eq!(stage.app.composer.text(), "weave");
    assert!(stage.screen(60, 12).contains("the queue is full"));
}

#[test]
fn a_running_turn_is_stopped_and_nothing_else() {
    for keys in ["esc esc", "ctrl-c"] {
        let mut stage = Stage::open();
        stage.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
        stage.keys(keys);
        assert_eq!(stage.last(), json!({"do": "cancel", "session": SESSION, "turn": null}), "{keys}");
        assert!(stage.effects.is_empty());
    }
    let mut stage = Stage::open();
    stage.view(false, json!([]), state(&json!({"busy": true, "turn": 1})));
    stage.keys("esc");
    stage.now += 2_000;
    stage.keys("esc");
    assert!(stage.requests().is_empty(), "one slow press after another is no stop");
}

#[test]
fn the_last_prompt_that_waits_can_be_taken_back() {
    let mut stage = Stage::open();
    let queue = json!([{"turn": 2, "from": "terminal", "text": "two"}, {"turn": 3, "from": "terminal", "text": "three"}]);
    stage.view(false, json!([]), state(&json!({"busy": true, "turn": 1, "queue": queue})));
    stage.keys("ctrl-x");
    assert_eq!(stage.last(), json!({"do": "cancel", "session": SESSION, "turn": 3}));
    assert_eq!(stage.app.composer.text(), "three");
}

#[test]
fn leaving_takes_two_keys_or_one_that_means_it() {
    let mut stage = Stage::open();
    stage.keys("ctrl-c");
    assert!(stage.effects.is_empty());
    stage.write("x");
    stage.keys("ctrl-c ctrl-c");
    assert!(stage.effects.is_empty(), "the field is emptied first, and the question is asked anew");
    stage.keys("ctrl-c");
    assert_eq!(stage.effects, [Effect::Leave]);
    let mut stage = Stage::open();
    stage.keys("ctrl-d");
    assert_eq!(stage.effects, [Effect::Leave]);
}

#[test]
fn a_turn_is_never_ended_unsaid() {
    let busy = |shared: bool| {
        let mut stage = Stage::open();
        stage.app.manner.shared = shared;
        stage.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
        stage.keys("ctrl-d");
        stage
    };
    let stage = busy(true);
    assert_eq!(stage.effects, [Effect::Leave]);
    assert_eq!(stage.app.last_words().unwrap(), "the turn goes on; ropewalk attach 5e551011");
    let mut stage = busy(false);
    assert!(stage.effects.is_empty());
    assert!(stage.screen(90, 12).contains("would end with it"));
    stage.keys("ctrl-d");
    assert_eq!(stage.effects, [Effect::Leave]);
}

#[test]
fn a_setting_is_changed_by_its_command() {
    let mut stage = Stage::open();
    stage.write("/model offline-terse");
    stage.keys("enter");
    assert_eq!(
        stage.last(),
        json!({"do": "set", "session": SESSION, "setting": "model", "value": "offline-terse"})
    );
    stage.write("/model nobody");
    stage.keys("esc enter");
    assert_eq!(stage.requests().len(), 1);
    assert!(stage.screen(90, 12).contains("is not a choice for model: offline, offline-terse"));
}

#[test]
fn a_new_session_takes_the_place_of_this_one() {
    let mut stage = Stage::open();
    stage.write("/new");
    stage.keys("esc enter");
    assert_eq!(stage.last(), json!({"do": "open", "folder": "/home/dev/loom", "settings": {}}));
    stage.reply(&json!({"is": "opened", "session": OTHER}));
    assert_eq!(stage.app.session.as_deref(), Some(OTHER));
    let asked: Vec<Value> =
        stage.requests().iter().map(|request| serde_json::to_value(request).unwrap()).collect();
    assert!(asked.contains(&json!({"do": "unwatch", "session": SESSION})), "{asked:?}");
    assert!(asked.contains(&json!({"do": "watch", "session": OTHER, "after": null})), "{asked:?}");
    stage.write("/new");
    stage.keys("esc enter");
    stage.refuse("forbidden", "only a driver opens sessions");
    assert_eq!(stage.app.session.as_deref(), Some(OTHER));
}

#[test]
fn the_last_answer_goes_to_the_clipboard() {
    let mut stage = Stage::open();
    let copy = |stage: &mut Stage| {
        stage.effects.clear();
        stage.write("/copy");
        stage.keys("esc enter");
        std::mem::take(&mut stage.effects)
    };
    assert_eq!(copy(&mut stage), []);
    stage.view(false, json!([said(1, "first"), prompt(2, "go"), said(3, "the *answer*")]), state(&json!({})));
    assert_eq!(copy(&mut stage), [Effect::Copy("the *answer*".into())]);
    stage.view(false, json!([row(4, json!({"is": "said", "text": "long", "more": 9}))]), state(&json!({})));
    assert_eq!(copy(&mut stage), [], "half of an answer is none");
    assert!(stage.requests().is_empty());
}

/// H18: what is not here is a command of the session, which the server offers.
#[test]
fn the_commands_of_the_screen_are_offered_and_leave() {
    let mut stage = Stage::open();
    for name in ["help", "sessions", "new", "copy", "link", "exit", "quit"] {
        stage.write(&format!("/{name}"));
        assert!(stage.screen(80, 20).contains(&format!("/{name}")), "{name}");
        stage.keys("esc");
        stage.app.composer.set("");
    }
    stage.write("/exit");
    stage.keys("esc enter");
    assert_eq!(stage.effects, [Effect::Leave]);
}

#[test]
fn files_are_found_while_they_are_named() {
    let mut stage = Stage::open();
    stage.write("see @ne");
    assert_eq!(stage.last(), json!({"do": "find", "session": SESSION, "text": "ne"}));
    stage.reply(&json!({"is": "files", "files": [{"path": "src/net.rs"}, {"path": "docs/net.md"}]}));
    assert!(stage.screen(60, 14).contains("src/net.rs"));
    stage.keys("down tab");
    assert_eq!(stage.app.composer.text(), "see @docs/net.md ");
}

#[test]
fn an_answer_about_files_that_nobody_wants_any_more_is_dropped() {
    let mut stage = Stage::open();
    stage.write("@ne");
    stage.keys("back back back");
    stage.reply(&json!({"is": "files", "files": [{"path": "src/net.rs"}]}));
    assert!(!stage.app.offers.is_open());
}

#[test]
fn the_line_that_is_read_does_not_move_while_more_comes() {
    let mut stage = Stage::open();
    let text: Vec<String> = (0..60).map(|number| format!("line {number}")).collect();
    stage.view(false, json!([prompt(1, "go"), said(2, &text.join("\n"))]), state(&json!({"busy": true})));
    stage.screen(60, 20);
    stage.keys("pgup");
    let before = stage.screen(60, 20);
    stage.append(2, "\nmore\nand more\n");
    let after = stage.screen(60, 20);
    let lines = |screen: &str| screen.lines().skip(2).take(12).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&before), lines(&after));
    assert!(after.contains("below"));
    stage.keys("ctrl-end");
    assert!(stage.screen(60, 20).contains("and more"));
}

#[test]
fn what_came_before_is_fetched_at_the_top() {
    let mut stage = Stage::open();
    let text: Vec<String> = (0..60).map(|number| format!("line {number}")).collect();
    stage.told(json!({"on": "view", "session": SESSION, "upto": 99, "reset": true, "earlier": true,
        "rows": [said(50, &text.join("\n"))], "appends": [], "state": null}));
    stage.screen(60, 20);
    stage.keys("ctrl-home");
    assert_eq!(stage.last(), json!({"do": "earlier", "session": SESSION, "before": 50}));
    let top = stage.screen(60, 20);
    assert!(top.contains("loading what came before"));
    stage.reply(&json!({"is": "rows", "rows": [said(40, "long ago")], "earlier": false}));
    let screen = stage.screen(60, 20);
    assert!(screen.contains("line 0") && !screen.contains("long ago"), "{screen}");
    stage.keys("ctrl-home");
    assert!(stage.screen(60, 20).contains("long ago"));
    assert_eq!(stage.requests().len(), 1);
}

#[test]
fn rows_unfold_and_long_ones_are_fetched_whole() {
    let mut stage = Stage::open();
    stage.view(false, json!([tool(4, &json!({"output": "the end", "more": 5_000}))]), state(&json!({})));
    assert!(!stage.screen(60, 14).contains("the end"));
    stage.keys("tab e");
    let screen = stage.screen(60, 14);
    assert!(screen.contains("the end") && screen.contains("4 KB more (w shows all)"), "{screen}");
    stage.keys("w");
    assert_eq!(stage.last(), json!({"do": "whole", "session": SESSION, "row": 4}));
    stage.reply(&json!({"is": "rows", "rows": [tool(4, &json!({"output": "the beginning\nthe end"}))], "earlier": false}));
    assert!(stage.screen(60, 14).contains("the beginning"));
}

#[test]
fn the_session_that_is_meant_is_found() {
    let cards = json!([
        card(SESSION, "Weave", "/home/dev/loom", "done", 5),
        card(OTHER, "Elsewhere", "/home/dev/sail", "done", 9),
    ]);
    let watched = |start: Start| {
        let mut stage = Stage::new(start, true);
        stage.greet(cards.clone());
        stage
    };
    for (start, session) in [
        (Start::Newest, SESSION),
        (Start::Any, OTHER),
        (Start::Named("5e551011-f".into()), OTHER),
        (Start::Named(SESSION.into()), SESSION),
    ] {
        let stage = watched(start.clone());
        assert_eq!(stage.last(), json!({"do": "watch", "session": session, "after": null}), "{start:?}");
    }
    let failed = |start| match watched(start).effects.pop() {
        Some(Effect::Fail(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert!(matches!(failed(Start::Named("zz".into())), Failure::NotFound { .. }));
    assert!(
        matches!(failed(Start::Named("5e".into())), Failure::Unclear { candidates, .. } if candidates.len() == 2)
    );
}

#[test]
fn an_id_is_looked_for_on_every_page() {
    let mut stage = Stage::new(Start::Named("abc".into()), true);
    stage.input(Input::Connected);
    stage.told(
        json!({"on": "cards", "cards": [card(SESSION, "a", "/", "done", 9)], "gone": [], "older": "p2"}),
    );
    assert_eq!(stage.last(), json!({"do": "sessions", "before": "p2", "search": null}));
    stage.reply(&json!({"is": "sessions", "cards": [card("abcdef", "b", "/", "done", 1)], "older": null}));
    assert_eq!(stage.last(), json!({"do": "watch", "session": "abcdef", "after": null}));
}

#[test]
fn news_about_cards_opens_no_second_session() {
    let mut stage = Stage::new(Start::New, true);
    stage.greet(json!([]));
    let news = json!({"on": "cards", "cards": [card(OTHER, "b", "/", "done", 1)], "gone": [], "older": null});
    stage.told(news);
    assert_eq!(stage.requests().len(), 1, "{:?}", stage.requests());
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    stage.sent.clear();
    stage.greet(json!([]));
    assert_eq!(stage.last()["do"], "open", "what was not answered is asked again");
}

#[test]
fn news_about_cards_decide_nothing_while_pages_are_looked_through() {
    let news = |older: Value| json!({"on": "cards", "cards": [card("abcdef", "b", "/", "done", 9)], "gone": [], "older": older});
    let mut stage = Stage::new(Start::Named("abc".into()), true);
    stage.input(Input::Connected);
    stage.told(news("p2".into()));
    stage.told(news(Value::Null));
    assert_eq!(stage.last()["do"], "sessions", "another one on the second page may begin so too");
    // The second page has it once more, because it changed in between.
    stage.reply(&json!({"is": "sessions", "cards": [card("abcdef", "b", "/", "done", 9)], "older": null}));
    assert!(stage.effects.is_empty(), "{:?}", stage.effects);
    assert_eq!(stage.last(), json!({"do": "watch", "session": "abcdef", "after": null}));
}

#[test]
fn late_answers_of_one_session_do_not_reach_the_next() {
    let mut stage = Stage::open();
    stage.told(json!({"on": "cards", "cards": [card(OTHER, "Elsewhere", "/", "done", 9)], "gone": [], "older": null}));
    stage.told(json!({"on": "view", "session": SESSION, "upto": 99, "reset": true, "earlier": true,
        "rows": [said(50, "here")], "appends": [], "state": null}));
    stage.screen(60, 20);
    stage.keys("ctrl-home");
    assert_eq!(stage.last()["do"], "earlier");
    let earlier = stage.sent.last().unwrap().id;
    stage.write("/sessions");
    stage.keys("esc enter enter");
    assert_eq!(stage.app.session.as_deref(), Some(OTHER));
    stage.told(json!({"on": "view", "session": OTHER, "upto": 5, "reset": true, "earlier": false,
        "rows": [said(2, "there")], "appends": [], "state": state(&json!({}))}));
    stage
        .frame(json!({"re": earlier, "ok": {"is": "rows", "rows": [said(1, "long ago")], "earlier": false}}));
    let screen = stage.screen(60, 20);
    assert!(screen.contains("there") && !screen.contains("long ago"), "{screen}");
}

#[test]
fn a_session_that_is_gone_says_so() {
    let mut stage = Stage::open();
    stage.told(json!({"on": "over", "session": SESSION, "message": "it was deleted"}));
    assert!(stage.screen(70, 12).contains("cannot be shown on: it was deleted"));
}

#[test]
fn what_was_unfolded_stays_so_when_everything_is_told_anew() {
    let mut stage = Stage::open();
    let rows = json!([tool(4, &json!({"output": "inside"})), row(5, json!({"is": "note", "text": "x"}))]);
    stage.view(true, rows.clone(), state(&json!({})));
    stage.screen(60, 14);
    stage.keys("ctrl-o");
    stage.view(true, rows, state(&json!({})));
    assert!(stage.screen(60, 14).contains("inside"));
}

/// As a bridge shows it, which Ctrl-C ends.
#[test]
fn where_an_interrupt_ends_more_than_the_client_one_is_enough_unless_a_turn_runs() {
    let open = || {
        let mut stage = Stage::open();
        stage.app.manner.interrupt_ends = true;
        stage
    };
    for before in ["", "half a prompt", "/"] {
        let mut stage = open();
        stage.write(before);
        stage.keys("ctrl-c");
        assert_eq!(stage.effects, [Effect::Leave], "{before:?}");
    }
    let mut stage = open();
    stage.keys("f1 ctrl-c");
    assert_eq!(stage.effects, [Effect::Leave]);
    let mut stage = open();
    stage.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
    stage.keys("ctrl-c");
    assert_eq!(stage.last()["do"], "cancel");
    assert!(stage.effects.is_empty());
    stage.keys("ctrl-c");
    assert_eq!(stage.effects, [Effect::Leave]);
}

#[test]
fn what_has_to_be_seen_stands_on_every_screen_for_good() {
    let mut stage = Stage::open();
    stage.app.manner.warnings = vec!["INSECURE: any certificate is accepted".into()];
    stage.view(false, json!([prompt(1, "go")]), state(&json!({})));
    stage.told(json!({"on": "faults", "faults": ["a", "b", "c", "d", "e", "f"]}));
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    stage.greet(json!([]));
    for keys in ["tab", "f1", "f1"] {
        stage.keys(keys);
        stage.now += 60_000;
        for (width, height) in [(60, 20), (40, 8)] {
            let screen = stage.screen(width, height);
            assert!(screen.contains("! INSECURE: any certificate"), "{screen}");
        }
    }
}

/// As a bridge says that it is connected, and that it is not.
#[test]
fn the_last_that_was_said_of_the_state_stands_on_every_screen() {
    let mut stage = Stage::open();
    let connected = "bridge connected: https://hub.example.com";
    stage.input(Input::Status(vec![connected.into(), "people see it at\n\x1b[2Jhttps://x".into()]));
    let screen = stage.screen(60, 20);
    assert!(screen.contains(connected) && screen.contains("people see it at"), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
    stage.input(Input::Status(vec!["bridge: WS closed (code=1006). Trying again in 5 s".into()]));
    for keys in ["tab", "f1"] {
        stage.keys(keys);
        stage.now += 60_000;
        let screen = stage.screen(60, 20);
        assert!(screen.contains("WS closed (code=1006)") && !screen.contains(connected), "{screen}");
    }
    stage.input(Input::Status(Vec::new()));
    assert!(!stage.screen(60, 20).contains("WS closed"));
}

#[test]
fn what_is_wrong_with_the_machine_stands_on_every_screen_until_it_is_over() {
    let fault =
        "Permission rules cannot be read, so every action is asked: rules.toml. Run `ropewalk doctor`.";
    let mut stage = Stage::open();
    stage.view(false, json!([prompt(1, "go")]), state(&json!({})));
    stage.told(json!({"on": "faults", "faults": [fault]}));
    for keys in ["tab", "f1"] {
        stage.keys(keys);
        let screen = stage.screen(60, 20);
        assert!(screen.contains("! Permission rules cannot be read"), "{screen}");
        assert!(screen.contains("ropewalk doctor"), "{screen}");
    }
    stage.told(json!({"on": "faults", "faults": []}));
    assert!(!stage.screen(60, 20).contains("cannot be read"));
    // A server that is back says again what is wrong.
    stage.told(json!({"on": "faults", "faults": [fault]}));
    stage.input(Input::Cut { why: "gone".into(), retry_ms: 500 });
    stage.greet(json!([]));
    assert!(!stage.screen(60, 20).contains("cannot be read"));
}
