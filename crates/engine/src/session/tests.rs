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

fn play(mut stage: Stage, script: &str, expected: Expect) {
    for line in script.lines() {
        stage.line(line.trim());
    }
    expected.assert_eq(&stage.shown);
}
