//! The documents that Ropewalk was built from, executed: one file for each, every command, frame, header, endpoint and
//! number in the document's own order, with the program's name as the only change. Where Ropewalk differs on purpose, the
//! difference is a test in that file whose name begins with `differs_`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bernstein;
mod bridge;
mod bridge_process;
mod eventlog;
mod ferret;
mod otter;
mod program;
mod receiver;
mod settings;
mod zeph;

/// The names in a text that begin as those of tests of a difference do.
fn differences(text: &str) -> std::collections::BTreeSet<String> {
    let named = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    named
        .filter(|word| word.starts_with("differs_") && word.len() > "differs_".len())
        .map(str::to_owned)
        .collect()
}

/// What stays different is a test, a line at the head of its file and one on the page, and nothing is listed that is no test.
#[test]
fn every_difference_is_a_test_and_stands_at_the_head_and_on_the_page() {
    let eventlog = include_str!("seeds/eventlog.rs");
    for (files, page) in [
        (
            &[
                include_str!("seeds/ferret.rs"),
                include_str!("seeds/ferret/answers.rs"),
                include_str!("seeds/ferret/edits.rs"),
                include_str!("seeds/ferret/kinds.rs"),
                eventlog,
            ][..],
            include_str!("../../../../docs/dialects/ferret.md"),
        ),
        (
            &[include_str!("seeds/otter.rs"), include_str!("seeds/otter/resume.rs"), eventlog],
            include_str!("../../../../docs/dialects/otter.md"),
        ),
        (&[include_str!("seeds/bridge.rs")], include_str!("../../../../docs/bridge.md")),
    ] {
        let is_head = |line: &&str| line.starts_with("//!");
        let head: String = files[0].lines().take_while(is_head).map(|line| line.to_owned() + "\n").collect();
        let tests: std::collections::BTreeSet<_> = files
            .iter()
            .flat_map(|file| file.lines())
            .filter_map(|line| line.trim_start_matches("async ").strip_prefix("fn "))
            .flat_map(differences)
            .collect();
        assert_eq!(differences(&head), tests, "at the head");
        assert_eq!(differences(page), tests, "on the page");
    }
}
