//! The assessment of every command of the tables.

use std::path::{Path, PathBuf};

use engine::Risk;
use guard::{Workplace, assess_command, shell};
use proptest::prelude::*;

use crate::table::{assess, bypasses, commands, low_commands};

#[test]
fn every_command_of_the_table_has_its_level() {
    let table = commands();
    assert!(table.len() >= 350, "the table has only {} commands", table.len());
    let wrong: Vec<String> = table
        .iter()
        .map(|(expected, command)| (expected, command, assess(command)))
        .filter(|(expected, _, found)| found.risk != **expected)
        .map(|(expected, command, found)| {
            format!("{command}\n    is {expected:?} and was {:?}: {}", found.risk, found.reason)
        })
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_known_bypass_is_harmless() {
    let table = bypasses();
    assert!(table.len() >= 120, "the table has only {} lines", table.len());
    let fooled: Vec<String> = table.into_iter().filter(|line| assess(line).risk == Risk::Low).collect();
    assert!(fooled.is_empty(), "{} fooled it:\n{}", fooled.len(), fooled.join("\n"));
}

#[test]
fn the_last_of_many_commands_counts_as_much_as_the_first() {
    for operator in ["; ", " && ", " | ", "\n"] {
        for count in [60, 1_000] {
            let mut line = vec!["ls -la"; count].join(operator);
            assert_eq!(assess(&line).risk, Risk::Low, "{count} joined by {operator:?}");
            line.push_str(operator);
            line.push_str("rm -rf ~");
            assert_eq!(assess(&line).risk, Risk::Critical, "{count} joined by {operator:?}");
        }
    }
}

#[test]
fn a_line_that_is_too_long_or_too_deep_is_never_harmless() {
    let longest = format!("echo {}", "a".repeat(shell::LINE_BYTES_MAX - 5));
    assert_eq!(assess(&longest).risk, Risk::Low);
    assert_eq!(assess(&format!("{longest}a")).risk, Risk::Medium);
    assert_eq!(assess(&format!("{longest}; rm -rf x")).risk, Risk::Critical);
    let words = format!("echo{}", " a".repeat(10_000));
    assert_eq!(assess(&words).risk, Risk::Medium);
    let text = format!("cat > ~/.bashrc <<'EOF'\n{}EOF", "some more words\n".repeat(10_000));
    assert_eq!(
        assess(&text).risk,
        Risk::High,
        "the beginning of a long line is read: {}",
        assess(&text).reason
    );
    for depth in [100, 5_000] {
        let deep = format!("{}ls{}", "(".repeat(depth), ")".repeat(depth));
        assert!(assess(&deep).risk > Risk::Low);
        let deep = format!("echo {}ls{}", "$(echo ".repeat(depth), ")".repeat(depth));
        assert!(assess(&deep).risk > Risk::Low);
    }
}

#[test]
fn where_it_runs_decides_what_is_outside() {
    let at = |cwd: &str, roots: &[&str], line: &str| {
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        assess_command(line, &Workplace { cwd: Path::new(cwd), roots: &roots, home: None }).risk
    };
    assert_eq!(at("/p", &[], "echo x > y"), Risk::Medium);
    assert_eq!(at("/p", &[], "echo x > ../y"), Risk::High);
    assert_eq!(at("/p", &["/q"], "echo x > /q/y"), Risk::Medium);
    assert_eq!(at("/opt/p", &["/opt/p"], "echo x > /opt/p/y"), Risk::Medium);
    assert_eq!(at("/", &["/"], "cat /etc/passwd"), Risk::High);
    assert_eq!(at("/p", &["/q"], "cd /q && git status"), Risk::Low);
    assert_eq!(at("/p", &["/q"], "cd /q/sub && git status"), Risk::Medium);
    assert_eq!(at("/p", &[], "cd /q && ls"), Risk::Medium);
    assert_eq!(at("/p", &[], "echo x > ~/y"), Risk::High);
}

#[test]
fn the_reason_names_the_worst_part() {
    let said = |line: &str| assess(line).reason;
    assert_eq!(
        said("ls && rm -rf build && pwd"),
        "removes folders with everything in them, without asking: rm -rf build"
    );
    assert_eq!(said("cat README.md"), "only reads: cat README.md");
    assert_eq!(said("git push origin main"), "sends commits to a server: git push origin main");
    assert_eq!(
        said("rm 'a\u{1b}[2Jb'"),
        "could not be understood and contains dangerous words: rm 'a\\u{1b}[2Jb'"
    );
    assert!(said(&format!("rm {}", "x".repeat(500))).chars().count() < 120);
}

/// Everything that must be true of what is called harmless.
fn check_low(line: &str) {
    let script = shell::read(line);
    assert_eq!(script.doubts, [], "{line:?}");
    for command in &script.commands {
        assert!(command.assignments.is_empty(), "{line:?}");
        assert!(command.argv.iter().all(|word| word.literal().is_some()), "{line:?}");
        assert!(command.redirects.iter().all(|redirect| !redirect.writes()), "{line:?}");
    }
}

#[test]
fn nothing_harmless_stays_so_with_something_appended() {
    for line in low_commands() {
        check_low(&line);
        // In a comment it would stay a comment.
        let line = if line.contains('#') { format!("{line}\n") } else { line };
        for appended in [
            " ; rm -rf ~",
            " && curl x | sh",
            " | sh",
            "$(rm x)",
            "\nrm x",
            " > x",
            " & rm x",
            "`rm x`",
            " || rm x",
        ] {
            let longer = format!("{line}{appended}");
            assert!(assess(&longer).risk > Risk::Low, "{longer:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_and_what_is_harmless_is_understood(line in "[ -~\n\t\r\u{1b}é]{0,60}") {
        if assess(&line).risk == Risk::Low {
            check_low(&line);
            prop_assert!(!line.contains(['\r', '\u{1b}', '`', '$']) || line.contains(['\'', '"', '\\', '#', '$']), "{line:?}");
        }
    }

    #[test]
    fn a_harmless_command_is_not_when_a_piece_of_shell_is_put_into_it(
        line in prop::sample::select(low_commands()),
        at in any::<prop::sample::Index>(),
        piece in prop::sample::select(vec!["$(rm x)", "`rm x`", ";rm x;", "\nrm x\n", "|sh|", "&rm x&", "\r", "\0"]),
    ) {
        let mut cuts: Vec<usize> = line.char_indices().map(|(at, _)| at).collect();
        cuts.push(line.len());
        let at = cuts[at.index(cuts.len())];
        let spliced = format!("{}{piece}{}", &line[..at], &line[at..]);
        if assess(&spliced).risk == Risk::Low {
            check_low(&spliced);
            prop_assert!(!piece.contains(['\r', '\0']));
            // Then it stands in quotes or in a comment, and is one word or none.
            prop_assert!(line.contains(['\'', '"', '#', '\\']), "{spliced:?}");
        }
    }
}
