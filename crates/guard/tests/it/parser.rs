//! The complete result of parsing a line.

use std::fmt::Write as _;

use guard::shell::{self, Nesting, RedirectKind, Word};

/// One line per command: where it stands, its assignments, words and redirections; then the doubts.
fn check(line: &str, expected: &[&str]) {
    let script = shell::read(line);
    let mut said = Vec::new();
    for command in &script.commands {
        let mut out = match command.position.nesting {
            Nesting::Line => String::new(),
            Nesting::Group => "group: ".to_owned(),
            Nesting::Substitution(of) => format!("in {}: ", of.map_or("?".into(), |of| of.to_string())),
            Nesting::Doubtful => "doubtful: ".to_owned(),
        };
        if let Some(pipe) = command.position.pipe {
            write!(out, "pipe {}.{}: ", pipe.number, pipe.stage).unwrap();
        }
        for (name, value) in &command.assignments {
            write!(out, "{name}={} ", shown(value)).unwrap();
        }
        out.push_str(&command.argv.iter().map(shown).collect::<Vec<_>>().join(" "));
        for redirect in &command.redirects {
            let way = match redirect.kind {
                RedirectKind::Read => "<",
                RedirectKind::Write => ">",
                RedirectKind::Duplicate => "&",
                RedirectKind::InlineText => "<<",
            };
            write!(out, " {way}{}", shown(&redirect.target)).unwrap();
        }
        said.push(out);
    }
    said.extend(script.doubts.iter().map(|doubt| format!("? {}", doubt.reason)));
    assert_eq!(said, expected, "{line:?}");
}

/// Literal words are in brackets, unknown ones in braces.
fn shown(word: &Word) -> String {
    match word {
        Word::Literal(text) => format!("[{text}]"),
        Word::Unknown(text) => format!("{{{text}}}"),
    }
}

#[test]
fn commands_of_lists_pipes_and_groups_are_listed_in_order() {
    check("a && b || c; d\ne", &["[a]", "[b]", "[c]", "[d]", "[e]"]);
    check(
        "a | b -x | c; d | e",
        &["pipe 1.0: [a]", "pipe 1.1: [b] [-x]", "pipe 1.2: [c]", "pipe 2.0: [d]", "pipe 2.1: [e]"],
    );
    check("(a; b) && { c; }", &["group: [a]", "group: [b]", "group: [c]"]);
    check("! a", &["[a]"]);
    check("", &[]);
    check("# only this", &[]);
}

#[test]
fn words_are_what_the_program_gets() {
    check(r#"r\m 'a b' "c\"d" e'f'"g" ''"#, &[r#"[rm] [a b] [c"d] [efg] []"#]);
    check("a $x *.rs ~ {b,c}", &["[a] {$x} {*.rs} {~} {{b,c}}"]);
    check("[ -f x ]", &["[[] [-f] [x] []]"]);
}

#[test]
fn assignments_and_redirections_belong_to_their_command() {
    check("A=1 B='x y' c d", &["A=[1] B=[x y] [c] [d]"]);
    check("A=1", &["A=[1] "]);
    check("a >x 2>&1 b <y", &["[a] [b] >[x] &[1] <[y]"]);
    check("> x", &[" >[x]"]);
}

#[test]
fn commands_inside_words_are_listed_after_the_command_of_the_word() {
    check(
        "a; b $(c `d`)",
        &[
            "[a]",
            "[b] {$(c `d`)}",
            "in 1: [c] {`d`}",
            "in 2: [d]",
            "? it uses the output of another command",
            "? it uses the output of another command",
            "? it uses the output of another command",
        ],
    );
    check("X=$(a) b", &["X={$(a)} [b]", "in 0: [a]", "? it uses the output of another command"]);
}

#[test]
fn commands_inside_what_is_not_understood_are_listed_too() {
    check("if a; then b; fi", &["doubtful: [a]", "doubtful: [b]", "? it has a condition"]);
    check("for i in x; do b $i; done", &["doubtful: [b] {$i}", "? it has a loop"]);
    check("f() { a; }", &["doubtful: [a]", "? it defines a function"]);
    check("a &", &["[a]", "? it leaves a process running"]);
}
