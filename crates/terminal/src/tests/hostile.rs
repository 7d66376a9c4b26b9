//! Whatever text a session contains, no control sequence reaches the terminal.

use proptest::prelude::*;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use serde_json::{Value, json};

use super::harness::{Harness, ask, diff, prompt, row, said, state, tool};
use crate::draw::draw;
use crate::sanitize::is_harmful;

/// Sequences that move cursors, rename windows, fill clipboards or answer for people.
const ATTACKS: [&str; 16] = [
    "\u{1b}[2J\u{1b}[H",
    "\u{1b}]0;owned\u{7}",
    "\u{1b}]52;c;cm0gLXJmIH4=\u{7}",
    "\u{1b}]8;;https://evil.example\u{1b}\\click\u{1b}]8;;\u{1b}\\",
    "\u{1b}P+q544e\u{1b}\\",
    "\u{1b}[6n\u{1b}[c\u{1b}[>q",
    "\u{1b}[?1049l\u{1b}[?25l",
    "\u{9b}31m\u{9d}0;x\u{9c}",
    "\u{1b}_Gf=100;AAAA\u{1b}\\",
    "safe\rrm -rf ~",
    "a\u{8}\u{8}\u{8}b\u{b}\u{c}\u{7}\u{0}\u{7f}",
    "allow \u{202e}ylppa\u{202c} \u{2066}x\u{2069}",
    "in\u{200b}visi\u{2060}ble\u{feff}\u{e0041}\u{ad}",
    "\u{2028}new\u{2029}line\u{85}",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
    "\u{1b}",
];

/// The attack in every place where foreign text is shown.
fn everywhere(attack: &str) -> Vec<Harness> {
    let mut change = diff();
    change["path"] = attack.into();
    change["hunks"][0]["lines"] = json!([format!("+{attack}"), attack, format!("-{attack}")]);
    let mut permission = ask(9, attack, attack);
    for field in ["tool", "title", "reason", "folder", "text"] {
        permission[field] = attack.into();
    }
    permission["diffs"] = json!([change]);
    let mut question = permission.clone();
    question["question"] = json!({"text": attack, "choices": [attack], "freeText": true});
    let plan = json!({"steps": [{"text": attack, "state": "running"}]});
    let rows = json!([
        prompt(1, attack),
        row(2, json!({"is": "prompt", "from": attack, "text": "x", "more": 1, "attached": [attack]})),
        said(
            3,
            &format!(
                "# {attack}\n- {attack}\n> {attack}\n```{attack}\n{attack}\n```\n| {attack} | b |\n|---|---|\n[{attack}]({attack}) `{attack}`"
            )
        ),
        row(4, json!({"is": "thought", "text": attack, "more": 0})),
        tool(
            5,
            &json!({"title": attack, "kind": attack, "state": "failed", "signal": attack, "decided": attack,
            "input": attack, "output": attack, "reason": attack})
        ),
        tool(6, &json!({"title": attack, "state": "refused", "reason": attack})),
        tool(7, &json!({"title": attack, "diffs": [change]})),
        row(8, json!({"is": "plan", "steps": [{"text": attack, "state": "done"}]})),
        row(9, json!({"is": "question", "text": attack, "reply": attack, "by": attack})),
        row(10, json!({"is": "notice", "level": "error", "text": attack})),
        row(11, json!({"is": "note", "text": attack})),
        row(
            12,
            json!({"is": "ended", "stop": attack, "error": attack, "elapsedMs": 1, "tools": 0, "files": 0, "costUsd": null})
        ),
    ]);
    let of = |asks: Value| {
        let mut harness = Harness::open();
        let different = json!({"busy": true, "title": attack, "folder": attack, "plan": plan, "asks": asks,
            "others": [attack], "queue": [{"turn": 3, "from": attack, "text": attack}],
            "commands": [{"name": attack, "description": attack, "hint": attack}]});
        harness.view(true, rows.clone(), state(&different));
        harness
    };
    let mut offered = of(json!([]));
    offered.write("/");
    let mut refused = of(json!([]));
    refused.write("x");
    refused.keys("enter");
    refused.refuse("failed", attack);
    vec![of(json!([permission])), of(json!([question])), offered, refused]
}

fn check(harness: &mut Harness) {
    harness.screen(80, 24);
    for (width, height) in [(80, 24), (40, 20), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        harness.app.prepare(width, height);
        let drawn = terminal
            .draw(|frame| assert!(draw(&harness.app, frame.buffer_mut()).is_none_or(|(x, _)| x < width)));
        drawn.unwrap();
        for cell in &terminal.backend().buffer().content {
            assert!(!cell.symbol().chars().any(is_harmful), "{:?}", cell.symbol());
        }
        for entry in harness.app.transcript.visible().into_iter().flatten() {
            assert!(!entry.line.to_string().chars().any(is_harmful), "{}", entry.line);
        }
    }
    for effect in &harness.effects {
        assert!(!format!("{effect:?}").chars().any(is_harmful));
    }
}

#[test]
fn no_attack_reaches_the_terminal_from_anywhere() {
    for attack in ATTACKS {
        for mut harness in everywhere(attack) {
            harness.keys("ctrl-o ctrl-p");
            check(&mut harness);
        }
    }
}

#[test]
fn a_command_cannot_look_like_another_one() {
    let mut harness = Harness::open();
    let asks = json!([ask(9, "low", "echo safe\r\u{1b}[2Krm -rf ~ # \u{202e}efas")]);
    harness.view(false, json!([]), state(&json!({"busy": true, "asks": asks})));
    let screen = harness.screen(80, 24);
    assert!(screen.contains("echo safe␍␛[2Krm -rf ~ # \u{fffd}efas"), "{screen}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_text_is_only_shown(text in any::<String>(), width in 10u16..90, height in 4u16..30) {
        for mut harness in everywhere(&text) {
            harness.screen(width, height);
            check(&mut harness);
        }
    }

    #[test]
    fn any_keys_at_any_size_break_nothing(keys in proptest::collection::vec(0usize..20, 0..60), width in 1u16..90, height in 1u16..30) {
        let names = ["a", "y", "enter", "tab", "esc", "up", "down", "pgup", "pgdn", "/", "@", "ctrl-o", "ctrl-p", "e", "back", "home", "end", "ctrl-x", "?", "D"];
        for mut harness in everywhere("x\u{1b}[31m y") {
            for key in &keys {
                harness.now += 300;
                harness.keys(names[*key]);
                harness.screen(width, height);
            }
        }
    }
}
