//! What a session promises, one order of inputs each.

mod approval;
mod asks;
mod for_good;
mod foreign;
mod outside;
mod questions;
mod turns;

use expect_test::Expect;

use super::script::Stage;

fn check(script: &str, expected: Expect) {
    play(Stage::new(false), script, expected);
}

fn check_unattended(script: &str, expected: Expect) {
    play(Stage::new(true), script, expected);
}

/// The same in a turn that the editor began.
fn check_running(script: &str, expected: Expect) {
    let mut stage = Stage::new(false);
    stage.line("editor: prompt go");
    let begun = std::mem::take(&mut stage.shown);
    assert_eq!(begun, "> accepted 1\n1 started by editor\n1 editor says: go\n> start 1\n");
    play(stage, script, expected);
}

fn play(mut stage: Stage, script: &str, expected: Expect) {
    for line in script.lines() {
        stage.line(line.trim());
    }
    expected.assert_eq(&stage.shown);
}
