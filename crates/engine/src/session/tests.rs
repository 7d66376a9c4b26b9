//! What a session promises, each shown with one sequence of inputs.

mod approval;
mod asks;
mod external_asks;
mod outside_sandbox;
mod questions;
mod remembered_answers;
mod turns;

use expect_test::Expect;

use super::test_script::ScriptRunner;

fn check(script: &str, expected: Expect) {
    play(ScriptRunner::new(false), script, expected);
}

fn check_unattended(script: &str, expected: Expect) {
    play(ScriptRunner::new(true), script, expected);
}

/// The same in a turn that the editor began.
fn check_running(script: &str, expected: Expect) {
    let mut stage = ScriptRunner::new(false);
    stage.line("editor: prompt go");
    let begun = std::mem::take(&mut stage.shown);
    assert_eq!(begun, "> accepted 1\n1 started by editor\n1 editor says: go\n> start 1\n");
    play(stage, script, expected);
}

fn play(mut stage: ScriptRunner, script: &str, expected: Expect) {
    for line in script.lines() {
        stage.line(line.trim());
    }
    expected.assert_eq(&stage.shown);
}
