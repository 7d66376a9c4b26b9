//! Reads the tables under `tests/tables`, and sets up the workplace that they assume.

use std::path::{Path, PathBuf};

use engine::{Risk, RuleEffect};
use guard::{Assessment, Workplace, assess_command};

pub(crate) fn assess(line: &str) -> Assessment {
    let roots = [PathBuf::from("/home/me/project")];
    let place = Workplace { cwd: &roots[0], roots: &roots, home: Some(Path::new("/home/me")) };
    assess_command(line, &place)
}

fn lines(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Characters that would not survive in a text file stand for themselves by a picture.
fn unpictured(line: &str) -> String {
    line.replace('␤', "\n").replace('␍', "\r").replace('␀', "\0").replace('␛', "\u{1b}")
}

/// Every command of the table with its level.
pub(crate) fn commands() -> Vec<(Risk, String)> {
    let level = |word: &str| match word {
        "low" => Risk::Low,
        "medium" => Risk::Medium,
        "high" => Risk::High,
        "critical" => Risk::Critical,
        other => panic!("no such level: {other}"),
    };
    lines("commands.txt")
        .iter()
        .map(|line| {
            let (word, command) = line.split_once(' ').unwrap();
            (level(word), unpictured(command))
        })
        .collect()
}

pub(crate) fn low_commands() -> Vec<String> {
    commands().into_iter().filter(|(risk, _)| *risk == Risk::Low).map(|(_, command)| command).collect()
}

pub(crate) fn bypasses() -> Vec<String> {
    lines("bypasses.txt").iter().map(|line| unpictured(line)).collect()
}

/// Every way to have a command run, with what a rule that denies the command does there.
pub(crate) fn launchers() -> Vec<(RuleEffect, String)> {
    let effect = |word: &str| match word {
        "deny" | "rule" => RuleEffect::Deny,
        "ask" => RuleEffect::Ask,
        other => panic!("no such effect: {other}"),
    };
    lines("launchers.txt")
        .iter()
        .map(|line| {
            let (word, command) = line.split_once(' ').unwrap();
            (effect(word), unpictured(command))
        })
        .collect()
}

/// Those of them whose risk is that of the command.
pub(crate) fn judged_launchers() -> Vec<String> {
    lines("launchers.txt").iter().filter_map(|line| line.strip_prefix("deny ")).map(unpictured).collect()
}
