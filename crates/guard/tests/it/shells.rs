//! The reader against real shells: whatever it says it understands, they run exactly so.
//!
//! bash runs every line with all builtins switched off and nothing on its path, so that every command
//! is "not found", and its hook for that writes down the words. sh has no such hook: it gets a folder
//! of small programs that write down their words.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guard::shell::{self, RedirectKind};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use crate::table::{bypasses, low_commands};

/// Programs that sh can be given; none of them is built into it.
const PROGRAMS: [&str; 12] =
    ["a", "bc", "ls", "cat", "grep", "head", "tail", "wc", "git", "find", "sort", "uniq"];
const LINES: usize = 800;
/// Enough of the lines must be understood for the test to mean anything.
const UNDERSTOOD_MIN: usize = 150;

enum Kind {
    Bash,
    Sh,
}

struct Shell {
    kind: Kind,
    program: PathBuf,
    folder: TempDir,
}

impl Shell {
    /// Nothing if this machine has no such shell, which is said.
    fn new(kind: Kind) -> Option<Self> {
        let name = if matches!(kind, Kind::Bash) { "bash" } else { "sh" };
        let found = ["/bin", "/usr/bin", "/usr/local/bin"].map(|folder| Path::new(folder).join(name));
        let Some(program) = found.into_iter().find(|path| path.exists()) else {
            eprintln!("SKIPPED: there is no {name} on this machine to compare with");
            return None;
        };
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for inner in ["programs", "here"] {
            fs::create_dir(path(inner)).unwrap();
        }
        let log = path("log");
        let writes = format!("/usr/bin/printf '%s\\0' \"$#\" \"$@\" >>'{}'", log.display());
        let hook = format!("command_not_found_handle() {{ {writes}; }}\nenable -n $(compgen -b)\n");
        fs::write(path("hook"), hook).unwrap();
        for program in PROGRAMS {
            let script = format!("#!/bin/sh\nset -- \"${{0##*/}}\" \"$@\"\n{writes}\n");
            fs::write(path("programs").join(program), script).unwrap();
            fs::set_permissions(path("programs").join(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { kind, program, folder })
    }

    /// The words of every program that the shell started, in any order.
    #[expect(clippy::disallowed_methods, reason = "a real shell is what the reader is compared with")]
    fn run(&self, line: &str) -> Vec<Vec<String>> {
        let path = |name: &str| self.folder.path().join(name);
        fs::write(path("log"), "").unwrap();
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(line).current_dir(path("here")).env_clear();
        command.env("LC_ALL", "C.UTF-8").env("HOME", path("here"));
        match self.kind {
            Kind::Bash => command.env("BASH_ENV", path("hook")).env("PATH", path("nothing")),
            Kind::Sh => command.env("PATH", path("programs")),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let log = String::from_utf8(fs::read(path("log")).unwrap()).unwrap();
        let mut fields = log.split_terminator('\0').map(str::to_owned);
        let mut ran = Vec::new();
        while let Some(count) = fields.next() {
            ran.push(fields.by_ref().take(count.parse().unwrap()).collect());
        }
        ran
    }

    fn can_run(&self, said: &[Vec<String>]) -> bool {
        match self.kind {
            // A path is started as it is, without the hook.
            Kind::Bash => said.iter().all(|argv| !argv[0].contains('/') && !argv[0].is_empty()),
            Kind::Sh => said.iter().all(|argv| PROGRAMS.contains(&argv[0].as_str())),
        }
    }

    /// Compares, if the reader understood the line and the shell can be asked about it.
    fn check(&self, line: &str) -> bool {
        let Some(mut said) = understood(line) else { return false };
        if !self.can_run(&said) {
            return false;
        }
        let mut ran = self.run(line);
        said.sort();
        ran.sort();
        // What is behind `||` is not run, since everything succeeds; nor what follows a `!`.
        let partly = line.contains("||") || line.contains('!');
        let agrees = if partly { is_part(&ran, &said) } else { ran == said };
        assert!(agrees, "{line:?}\n  was read as {said:?}\n  but {} ran {ran:?}", self.program.display());
        true
    }
}

/// The commands of a line that the reader claims to understand to the last word.
fn understood(line: &str) -> Option<Vec<Vec<String>>> {
    let script = shell::read(line);
    let mut said = Vec::new();
    for command in &script.commands {
        let harmless = command.redirects.iter().all(|redirect| {
            redirect.kind == RedirectKind::Duplicate
                || (redirect.kind == RedirectKind::Write && !redirect.writes())
        });
        if !harmless || !command.assignments.is_empty() {
            return None;
        }
        let words = command.argv.iter().map(|word| word.literal().map(str::to_owned));
        let mut words: Vec<String> = words.collect::<Option<_>>()?;
        // bash takes this word for itself.
        if words.first().is_some_and(|first| first == "time") {
            words.remove(0);
            words.drain(..usize::from(words.first().is_some_and(|option| option == "-p")));
        }
        if !words.is_empty() {
            said.push(words);
        }
    }
    script.doubts.is_empty().then_some(said)
}

fn is_part(part: &[Vec<String>], whole: &[Vec<String>]) -> bool {
    let mut rest = whole.to_vec();
    part.iter().all(|argv| match rest.iter().position(|other| other == argv) {
        Some(at) => {
            rest.swap_remove(at);
            true
        }
        None => false,
    })
}

/// Words, and pieces of words.
const WORDS: &[&str] = &[
    "a",
    "bc",
    "ls",
    "git",
    "-x",
    "--long=v",
    "1",
    "22",
    "'q r'",
    "\"s t\"",
    "\"\\$u\"",
    "\"\\n\"",
    "\"a\\\nb\"",
    "\\ ",
    "\\'",
    "\\\"",
    "\\\\",
    "\\n",
    "''",
    "\"\"",
    "=",
    "a=b",
    ":",
    "a#",
    "%",
    "@",
    "+",
    ",",
    ".",
    "..",
    "/",
    "^",
    "{}",
    "{a}",
    "{",
    "}",
    "]",
    "[",
    "$",
    "\"$\"",
    "\"a$ b\"",
    "'$x'",
    "a~",
    "é",
    "'*'",
    "\\*",
    "\\$x",
    "\"'\"",
    "'\"'",
    "==",
    "=~",
    "-eq",
    "0x1",
    "2#1",
    "a]b",
    "\\;",
    "x'y'\"z\"",
];
/// What stands between words and between commands.
const JOINTS: &[&str] = &[
    ";",
    " ; ",
    "&&",
    " && ",
    "|",
    " | ",
    "\n",
    " \n ",
    "\\\n",
    " \\\n ",
    "&&\n",
    "|\n",
    " # x",
    " #'y\n",
    "#z",
    ">/dev/null",
    " >/dev/null ",
    "2>&1",
    " 2>&1",
    " 2>/dev/null",
    "1>&2 ",
    ">&2",
    " 2>&- ",
    "||",
    "! ",
    "(",
    ")",
    "{ ",
    "; }",
    " > /dev/null a",
    "\t",
];
/// What is rarely understood, or not at all.
const ODD: &[&str] = &[
    "~",
    "*",
    "?",
    "\"",
    "'",
    "\\",
    "`",
    "$x",
    "$(",
    "<",
    ">",
    "&",
    "!",
    "#",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    " in ",
    "case ",
    "esac",
    "function ",
    "coproc ",
    "[[ ",
    " ]]",
    "test ",
    "export ",
    "unset ",
    "declare ",
    "[ ",
    " ]",
    "((",
    "))",
    "{a,b}",
    "{1..2}",
    "$'a'",
    "$\"a\"",
    "\r",
    "\u{a0}",
    "<<E",
    "<<<a",
    "&>/dev/null",
    "|&",
    ";;",
    "a=(",
    "a[0]=1",
    "a+=1",
];

/// Pieces of shell that are put together at random: what matters is where they touch.
fn line() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        12 => prop::sample::select(WORDS).prop_map(|word| format!(" {word}")),
        4 => prop::sample::select(WORDS).prop_map(str::to_owned),
        4 => prop::sample::select(JOINTS).prop_map(str::to_owned),
        1 => prop::sample::select(ODD).prop_map(str::to_owned),
    ];
    let rest = prop::collection::vec(piece, 0..9);
    (prop::sample::select(&["a", "ls", "git", "bc", "", "(", "{ ", "! ", "'a'"][..]), rest)
        .prop_map(|(first, rest)| format!("{first}{}", rest.concat()))
}

fn compare_random_lines(kind: Kind) {
    let Some(shell) = Shell::new(kind) else { return };
    let mut runner = TestRunner::deterministic();
    let strategy = line();
    let mut compared = 0;
    for _ in 0..LINES {
        let line = strategy.new_tree(&mut runner).unwrap().current();
        compared += usize::from(shell.check(&line));
    }
    assert!(compared >= UNDERSTOOD_MIN, "only {compared} of {LINES} lines were understood and compared");
}

#[test]
fn bash_runs_random_lines_as_they_were_read() {
    compare_random_lines(Kind::Bash);
}

#[test]
fn sh_runs_random_lines_as_they_were_read() {
    compare_random_lines(Kind::Sh);
}

#[test]
fn bash_runs_harmless_commands_as_they_were_read() {
    let Some(shell) = Shell::new(Kind::Bash) else { return };
    let lines = low_commands();
    let compared = lines.iter().filter(|line| shell.check(line)).count();
    assert!(compared + 5 >= lines.len(), "only {compared} of {} were compared", lines.len());
}

#[test]
fn bash_runs_what_was_read_of_known_bypasses() {
    let Some(shell) = Shell::new(Kind::Bash) else { return };
    // Those with a NUL cannot even be handed to it.
    let compared = bypasses().iter().filter(|line| !line.contains('\0') && shell.check(line)).count();
    assert!(compared >= 100, "only {compared} were compared");
}

#[test]
fn a_shell_that_runs_something_else_is_noticed() {
    let Some(shell) = Shell::new(Kind::Bash) else { return };
    assert_eq!(shell.run("a 'b c' $((1+1))"), [["a", "b c", "2"]]);
    assert_eq!(shell.run("echo x; cd y").len(), 2, "builtins are seen too");
    assert_eq!(shell.run("{a,b}"), [["a", "b"]]);
}
