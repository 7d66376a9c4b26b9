//! Prompts, turns, connections and leaving.

use serde_json::{Value, json};

use super::harness::{Harness, SESSION, card, prompt, row, said, state, tool};
use crate::app::{Effect, Input};
use crate::{OpenFailure, WhichSession};

const OTHER: &str = "5e551011-ffff-4000-8000-000000000002";

#[test]
fn a_prompt_is_sent_once_under_one_key_however_often_the_line_breaks() {
    let mut harness = Harness::open();
    harness.write("weave");
    harness.keys("enter");
    let first = harness.last();
    assert_eq!((&first["do"], &first["text"]), (&"prompt".into(), &"weave".into()));
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    assert!(harness.screen(60, 12).contains("Reconnecting…"));
    harness.sent.clear();
    harness.greet(json!([]));
    let sent: Vec<Value> =
        harness.requests().iter().map(|request| serde_json::to_value(request).unwrap()).collect();
    assert_eq!(sent, [json!({"do": "watch", "session": SESSION, "after": 10}), first]);
    harness.reply(&json!({"is": "taken", "turn": 1}));
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    harness.sent.clear();
    harness.greet(json!([]));
    assert_eq!(harness.requests().len(), 1, "what was taken is not sent again");
}

#[test]
fn what_is_written_without_a_connection_waits_for_one() {
    let mut harness = Harness::open();
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    harness.write("weave");
    harness.keys("enter");
    assert!(harness.requests().is_empty());
    assert!(harness.screen(60, 12).contains("sending: weave"));
    harness.greet(json!([]));
    assert_eq!(harness.last()["text"], "weave");
}

#[test]
fn a_refused_prompt_comes_back_to_be_mended() {
    let mut harness = Harness::open();
    harness.write("weave");
    harness.keys("enter");
    harness.refuse("busy", "the queue is full");
    assert_eq!(harness.app.composer.text(), "weave");
    assert!(harness.screen(60, 12).contains("the queue is full"));
}

#[test]
fn a_running_turn_is_stopped_and_nothing_else() {
    for keys in ["esc esc", "ctrl-c"] {
        let mut harness = Harness::open();
        harness.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
        harness.keys(keys);
        assert_eq!(harness.last(), json!({"do": "cancel", "session": SESSION, "turn": null}), "{keys}");
        assert!(harness.effects.is_empty());
    }
    let mut harness = Harness::open();
    harness.view(false, json!([]), state(&json!({"busy": true, "turn": 1})));
    harness.keys("esc");
    harness.now += 2_000;
    harness.keys("esc");
    assert!(harness.requests().is_empty(), "one slow press after another is no stop");
}

#[test]
fn the_last_prompt_that_waits_can_be_taken_back() {
    let mut harness = Harness::open();
    let queue = json!([{"turn": 2, "from": "terminal", "text": "two"}, {"turn": 3, "from": "terminal", "text": "three"}]);
    harness.view(false, json!([]), state(&json!({"busy": true, "turn": 1, "queue": queue})));
    harness.keys("ctrl-x");
    assert_eq!(harness.last(), json!({"do": "cancel", "session": SESSION, "turn": 3}));
    assert_eq!(harness.app.composer.text(), "three");
}

#[test]
fn leaving_takes_two_keys_or_one_that_means_it() {
    let mut harness = Harness::open();
    harness.keys("ctrl-c");
    assert!(harness.effects.is_empty());
    harness.write("x");
    harness.keys("ctrl-c ctrl-c");
    assert!(harness.effects.is_empty(), "the field is emptied first, and the question is asked anew");
    harness.keys("ctrl-c");
    assert_eq!(harness.effects, [Effect::Leave]);
    let mut harness = Harness::open();
    harness.keys("ctrl-d");
    assert_eq!(harness.effects, [Effect::Leave]);
}

#[test]
fn a_turn_is_never_ended_unsaid() {
    let busy = |shared: bool| {
        let mut harness = Harness::open();
        harness.app.options.shared = shared;
        harness.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
        harness.keys("ctrl-d");
        harness
    };
    let harness = busy(true);
    assert_eq!(harness.effects, [Effect::Leave]);
    assert_eq!(
        harness.app.last_words().unwrap(),
        "the turn continues; to follow it: ropewalk attach 5e551011"
    );
    let mut harness = busy(false);
    assert!(harness.effects.is_empty());
    assert!(harness.screen(90, 12).contains("A turn is running and would stop"));
    harness.keys("ctrl-d");
    assert_eq!(harness.effects, [Effect::Leave]);
}

#[test]
fn a_setting_is_changed_by_its_command() {
    let mut harness = Harness::open();
    harness.write("/model offline-terse");
    harness.keys("enter");
    assert_eq!(
        harness.last(),
        json!({"do": "set", "session": SESSION, "setting": "model", "value": "offline-terse"})
    );
    harness.write("/model nobody");
    harness.keys("esc enter");
    assert_eq!(harness.requests().len(), 1);
    assert!(
        harness
            .screen(90, 12)
            .contains("is not a valid value for model; choose one of offline, offline-terse")
    );
}

#[test]
fn a_new_session_takes_the_place_of_this_one() {
    let mut harness = Harness::open();
    harness.write("/new");
    harness.keys("esc enter");
    assert_eq!(harness.last(), json!({"do": "open", "folder": "/home/dev/loom", "settings": {}}));
    harness.reply(&json!({"is": "opened", "session": OTHER}));
    assert_eq!(harness.app.session.as_deref(), Some(OTHER));
    let asked: Vec<Value> =
        harness.requests().iter().map(|request| serde_json::to_value(request).unwrap()).collect();
    assert!(asked.contains(&json!({"do": "unwatch", "session": SESSION})), "{asked:?}");
    assert!(asked.contains(&json!({"do": "watch", "session": OTHER, "after": null})), "{asked:?}");
    harness.write("/new");
    harness.keys("esc enter");
    harness.refuse("forbidden", "only a driver opens sessions");
    assert_eq!(harness.app.session.as_deref(), Some(OTHER));
}

#[test]
fn the_last_answer_goes_to_the_clipboard() {
    let mut harness = Harness::open();
    let copy = |harness: &mut Harness| {
        harness.effects.clear();
        harness.write("/copy");
        harness.keys("esc enter");
        std::mem::take(&mut harness.effects)
    };
    assert_eq!(copy(&mut harness), []);
    harness.view(
        false,
        json!([said(1, "first"), prompt(2, "go"), said(3, "the *answer*")]),
        state(&json!({})),
    );
    assert_eq!(copy(&mut harness), [Effect::Copy("the *answer*".into())]);
    harness.view(false, json!([row(4, json!({"is": "said", "text": "long", "more": 9}))]), state(&json!({})));
    assert_eq!(copy(&mut harness), [], "half of an answer is none");
    assert!(harness.requests().is_empty());
}

/// H18: what is not here is a command of the session, which the server offers.
#[test]
fn the_commands_of_the_screen_are_offered_and_leave() {
    let mut harness = Harness::open();
    for name in ["help", "sessions", "new", "copy", "link", "exit", "quit"] {
        harness.write(&format!("/{name}"));
        assert!(harness.screen(80, 20).contains(&format!("/{name}")), "{name}");
        harness.keys("esc");
        harness.app.composer.set("");
    }
    harness.write("/exit");
    harness.keys("esc enter");
    assert_eq!(harness.effects, [Effect::Leave]);
}

#[test]
fn files_are_found_while_they_are_named() {
    let mut harness = Harness::open();
    harness.write("see @ne");
    assert_eq!(harness.last(), json!({"do": "find", "session": SESSION, "text": "ne"}));
    harness.reply(&json!({"is": "files", "files": [{"path": "src/net.rs"}, {"path": "docs/net.md"}]}));
    assert!(harness.screen(60, 14).contains("src/net.rs"));
    harness.keys("down tab");
    assert_eq!(harness.app.composer.text(), "see @docs/net.md ");
}

#[test]
fn an_answer_about_files_that_nobody_wants_any_more_is_dropped() {
    let mut harness = Harness::open();
    harness.write("@ne");
    harness.keys("back back back");
    harness.reply(&json!({"is": "files", "files": [{"path": "src/net.rs"}]}));
    assert!(!harness.app.completions.is_open());
}

#[test]
fn the_line_that_is_read_does_not_move_while_more_comes() {
    let mut harness = Harness::open();
    let text: Vec<String> = (0..60).map(|number| format!("line {number}")).collect();
    harness.view(false, json!([prompt(1, "go"), said(2, &text.join("\n"))]), state(&json!({"busy": true})));
    harness.screen(60, 20);
    harness.keys("pgup");
    let before = harness.screen(60, 20);
    harness.append(2, "\nmore\nand more\n");
    let after = harness.screen(60, 20);
    let lines = |screen: &str| screen.lines().skip(2).take(12).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&before), lines(&after));
    assert!(after.contains("below"));
    harness.keys("ctrl-end");
    assert!(harness.screen(60, 20).contains("and more"));
}

#[test]
fn what_came_before_is_fetched_at_the_top() {
    let mut harness = Harness::open();
    let text: Vec<String> = (0..60).map(|number| format!("line {number}")).collect();
    harness.told(json!({"on": "view", "session": SESSION, "upto": 99, "reset": true, "earlier": true,
        "rows": [said(50, &text.join("\n"))], "appends": [], "state": null}));
    harness.screen(60, 20);
    harness.keys("ctrl-home");
    assert_eq!(harness.last(), json!({"do": "earlier", "session": SESSION, "before": 50}));
    let top = harness.screen(60, 20);
    assert!(top.contains("loading earlier entries"));
    harness.reply(&json!({"is": "rows", "rows": [said(40, "long ago")], "earlier": false}));
    let screen = harness.screen(60, 20);
    assert!(screen.contains("line 0") && !screen.contains("long ago"), "{screen}");
    harness.keys("ctrl-home");
    assert!(harness.screen(60, 20).contains("long ago"));
    assert_eq!(harness.requests().len(), 1);
}

#[test]
fn rows_unfold_and_long_ones_are_fetched_whole() {
    let mut harness = Harness::open();
    harness.view(false, json!([tool(4, &json!({"output": "the end", "more": 5_000}))]), state(&json!({})));
    assert!(!harness.screen(60, 14).contains("the end"));
    harness.keys("tab e");
    let screen = harness.screen(60, 14);
    assert!(screen.contains("the end") && screen.contains("4 KB more (w shows all)"), "{screen}");
    harness.keys("w");
    assert_eq!(harness.last(), json!({"do": "whole", "session": SESSION, "row": 4}));
    harness.reply(&json!({"is": "rows", "rows": [tool(4, &json!({"output": "the beginning\nthe end"}))], "earlier": false}));
    assert!(harness.screen(60, 14).contains("the beginning"));
}

#[test]
fn the_session_that_is_meant_is_found() {
    let cards = json!([
        card(SESSION, "Weave", "/home/dev/loom", "done", 5),
        card(OTHER, "Elsewhere", "/home/dev/sail", "done", 9),
    ]);
    let watched = |start: WhichSession| {
        let mut harness = Harness::new(start, true);
        harness.greet(cards.clone());
        harness
    };
    for (start, session) in [
        (WhichSession::Newest, SESSION),
        (WhichSession::Any, OTHER),
        (WhichSession::Named("5e551011-f".into()), OTHER),
        (WhichSession::Named(SESSION.into()), SESSION),
    ] {
        let harness = watched(start.clone());
        assert_eq!(harness.last(), json!({"do": "watch", "session": session, "after": null}), "{start:?}");
    }
    let failed = |start| match watched(start).effects.pop() {
        Some(Effect::Fail(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert!(matches!(failed(WhichSession::Named("zz".into())), OpenFailure::NotFound { .. }));
    assert!(
        matches!(failed(WhichSession::Named("5e".into())), OpenFailure::Unclear { candidates, .. } if candidates.len() == 2)
    );
}

#[test]
fn an_id_is_looked_for_on_every_page() {
    let mut harness = Harness::new(WhichSession::Named("abc".into()), true);
    harness.input(Input::Connected);
    harness.told(
        json!({"on": "cards", "cards": [card(SESSION, "a", "/", "done", 9)], "gone": [], "older": "p2"}),
    );
    assert_eq!(harness.last(), json!({"do": "sessions", "before": "p2", "search": null}));
    harness.reply(&json!({"is": "sessions", "cards": [card("abcdef", "b", "/", "done", 1)], "older": null}));
    assert_eq!(harness.last(), json!({"do": "watch", "session": "abcdef", "after": null}));
}

#[test]
fn news_about_cards_opens_no_second_session() {
    let mut harness = Harness::new(WhichSession::New, true);
    harness.greet(json!([]));
    let news = json!({"on": "cards", "cards": [card(OTHER, "b", "/", "done", 1)], "gone": [], "older": null});
    harness.told(news);
    assert_eq!(harness.requests().len(), 1, "{:?}", harness.requests());
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    harness.sent.clear();
    harness.greet(json!([]));
    assert_eq!(harness.last()["do"], "open", "what was not answered is asked again");
}

#[test]
fn news_about_cards_decide_nothing_while_pages_are_looked_through() {
    let news = |older: Value| json!({"on": "cards", "cards": [card("abcdef", "b", "/", "done", 9)], "gone": [], "older": older});
    let mut harness = Harness::new(WhichSession::Named("abc".into()), true);
    harness.input(Input::Connected);
    harness.told(news("p2".into()));
    harness.told(news(Value::Null));
    assert_eq!(harness.last()["do"], "sessions", "another one on the second page may begin so too");
    // The second page has it once more, because it changed in between.
    harness.reply(&json!({"is": "sessions", "cards": [card("abcdef", "b", "/", "done", 9)], "older": null}));
    assert!(harness.effects.is_empty(), "{:?}", harness.effects);
    assert_eq!(harness.last(), json!({"do": "watch", "session": "abcdef", "after": null}));
}

#[test]
fn late_answers_of_one_session_do_not_reach_the_next() {
    let mut harness = Harness::open();
    harness.told(json!({"on": "cards", "cards": [card(OTHER, "Elsewhere", "/", "done", 9)], "gone": [], "older": null}));
    harness.told(json!({"on": "view", "session": SESSION, "upto": 99, "reset": true, "earlier": true,
        "rows": [said(50, "here")], "appends": [], "state": null}));
    harness.screen(60, 20);
    harness.keys("ctrl-home");
    assert_eq!(harness.last()["do"], "earlier");
    let earlier = harness.sent.last().unwrap().id;
    harness.write("/sessions");
    harness.keys("esc enter enter");
    assert_eq!(harness.app.session.as_deref(), Some(OTHER));
    harness.told(json!({"on": "view", "session": OTHER, "upto": 5, "reset": true, "earlier": false,
        "rows": [said(2, "there")], "appends": [], "state": state(&json!({}))}));
    harness
        .frame(json!({"re": earlier, "ok": {"is": "rows", "rows": [said(1, "long ago")], "earlier": false}}));
    let screen = harness.screen(60, 20);
    assert!(screen.contains("there") && !screen.contains("long ago"), "{screen}");
}

#[test]
fn a_session_that_is_gone_says_so() {
    let mut harness = Harness::open();
    harness.told(json!({"on": "over", "session": SESSION, "message": "it was deleted"}));
    assert!(harness.screen(70, 12).contains("was closed: it was deleted"));
}

#[test]
fn what_was_unfolded_stays_so_when_everything_is_told_anew() {
    let mut harness = Harness::open();
    let rows = json!([tool(4, &json!({"output": "inside"})), row(5, json!({"is": "note", "text": "x"}))]);
    harness.view(true, rows.clone(), state(&json!({})));
    harness.screen(60, 14);
    harness.keys("ctrl-o");
    harness.view(true, rows, state(&json!({})));
    assert!(harness.screen(60, 14).contains("inside"));
}

/// As a bridge shows it, which Ctrl-C ends.
#[test]
fn where_an_interrupt_ends_more_than_the_client_one_is_enough_unless_a_turn_runs() {
    let open = || {
        let mut harness = Harness::open();
        harness.app.options.interrupt_ends = true;
        harness
    };
    for before in ["", "half a prompt", "/"] {
        let mut harness = open();
        harness.write(before);
        harness.keys("ctrl-c");
        assert_eq!(harness.effects, [Effect::Leave], "{before:?}");
    }
    let mut harness = open();
    harness.keys("f1 ctrl-c");
    assert_eq!(harness.effects, [Effect::Leave]);
    let mut harness = open();
    harness.view(false, json!([prompt(1, "go")]), state(&json!({"busy": true, "turn": 1})));
    harness.keys("ctrl-c");
    assert_eq!(harness.last()["do"], "cancel");
    assert!(harness.effects.is_empty());
    harness.keys("ctrl-c");
    assert_eq!(harness.effects, [Effect::Leave]);
}

#[test]
fn what_has_to_be_seen_stands_on_every_screen_for_good() {
    let mut harness = Harness::open();
    harness.app.options.warnings = vec!["INSECURE: any certificate is accepted".into()];
    harness.view(false, json!([prompt(1, "go")]), state(&json!({})));
    harness.told(json!({"on": "faults", "faults": ["a", "b", "c", "d", "e", "f"]}));
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    harness.greet(json!([]));
    for keys in ["tab", "f1", "f1"] {
        harness.keys(keys);
        harness.now += 60_000;
        for (width, height) in [(60, 20), (40, 8)] {
            let screen = harness.screen(width, height);
            assert!(screen.contains("! INSECURE: any certificate"), "{screen}");
        }
    }
}

/// As a bridge says that it is connected, and that it is not.
#[test]
fn the_last_that_was_said_of_the_state_stands_on_every_screen() {
    let mut harness = Harness::open();
    let connected = "bridge connected: https://hub.example.com";
    harness.input(Input::Status(vec![connected.into(), "people see it at\n\x1b[2Jhttps://x".into()]));
    let screen = harness.screen(60, 20);
    assert!(screen.contains(connected) && screen.contains("people see it at"), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
    harness.input(Input::Status(vec!["bridge: WS closed (code=1006). Trying again in 5 s".into()]));
    for keys in ["tab", "f1"] {
        harness.keys(keys);
        harness.now += 60_000;
        let screen = harness.screen(60, 20);
        assert!(screen.contains("WS closed (code=1006)") && !screen.contains(connected), "{screen}");
    }
    harness.input(Input::Status(Vec::new()));
    assert!(!harness.screen(60, 20).contains("WS closed"));
}

#[test]
fn what_is_wrong_with_the_machine_stands_on_every_screen_until_it_is_over() {
    let fault =
        "Permission rules cannot be read, so every action is asked: rules.toml. Run `ropewalk doctor`.";
    let mut harness = Harness::open();
    harness.view(false, json!([prompt(1, "go")]), state(&json!({})));
    harness.told(json!({"on": "faults", "faults": [fault]}));
    for keys in ["tab", "f1"] {
        harness.keys(keys);
        let screen = harness.screen(60, 20);
        assert!(screen.contains("! Permission rules cannot be read"), "{screen}");
        assert!(screen.contains("ropewalk doctor"), "{screen}");
    }
    harness.told(json!({"on": "faults", "faults": []}));
    assert!(!harness.screen(60, 20).contains("cannot be read"));
    // A server that is back says again what is wrong.
    harness.told(json!({"on": "faults", "faults": [fault]}));
    harness.input(Input::Disconnected { why: "gone".into(), retry_ms: 500 });
    harness.greet(json!([]));
    assert!(!harness.screen(60, 20).contains("cannot be read"));
}
