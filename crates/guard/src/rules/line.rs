//! A command line as rules look at it, taken apart once per wish.
//!
//! Two views, because the two kinds of rules fail in opposite directions. A rule that allows must be
//! sure, so it sees only lines that are understood to the last word. A rule that denies or asks must
//! not be talked around, so it sees everything that any part of the line could start: behind wrappers,
//! in substitutions, in the text that a shell is handed.

use std::collections::HashSet;

use crate::shell::{self, Simple, Unread, Word};

/// Deeper `bash -c "bash -c .."` is not followed, and said so.
const NESTING_MAX: usize = 4;
/// More starts than this are not looked at, and said so.
const STARTS_MAX: usize = 1024;

/// Programs that start what they are given as arguments.
const WRAPPERS: [&str; 46] = [
    "sudo",
    "doas",
    "su",
    "env",
    "command",
    "exec",
    "builtin",
    "nice",
    "nohup",
    "time",
    "timeout",
    "stdbuf",
    "setsid",
    "ionice",
    "chrt",
    "taskset",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "script",
    "strace",
    "ltrace",
    "gdb",
    "xargs",
    "parallel",
    "find",
    "fd",
    "watch",
    "entr",
    "busybox",
    "toybox",
    "ssh",
    "runuser",
    "pkexec",
    "systemd-run",
    "trap",
    "unbuffer",
    "setpriv",
    "prlimit",
    "catchsegv",
    "eatmydata",
    "fakeroot",
    "proot",
    "firejail",
    "bwrap",
];
/// Programs that take commands as text.
const SHELLS: [&str; 11] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "eval"];
/// Programs whose arguments are programs of their own.
const INTERPRETERS: [&str; 17] = [
    "python",
    "python2",
    "python3",
    "node",
    "nodejs",
    "deno",
    "bun",
    "ruby",
    "perl",
    "php",
    "lua",
    "awk",
    "gawk",
    "mawk",
    "osascript",
    "pwsh",
    "powershell",
];

pub(super) struct Line {
    pub(super) text: String,
    /// Every command, if nothing about the line is in doubt.
    pub(super) commands: Option<Vec<Simple>>,
    /// Everything that could be started, with the name of its program without folders.
    pub(super) starts: Vec<Start>,
    /// Something could be started that cannot be named.
    pub(super) opaque: bool,
}

#[derive(PartialEq, Eq, Hash, Clone)]
pub(super) struct Start {
    pub(super) words: Vec<String>,
    pub(super) joined: String,
}

impl Line {
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim();
        let script = shell::read(text);
        let sure = script.doubts.is_empty() && !script.commands.is_empty();
        let mut finder = Finder { starts: Vec::new(), known: HashSet::new(), opaque: false };
        finder.script(&script, 0);
        Self {
            text: text.to_owned(),
            commands: sure.then_some(script.commands),
            starts: finder.starts,
            opaque: finder.opaque,
        }
    }
}

/// Whether allowing this program would allow any program.
pub(super) fn is_interpreter(program: &str) -> bool {
    let name = base(program);
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    [name, versionless]
        .iter()
        .any(|name| SHELLS.contains(name) || INTERPRETERS.contains(name) || WRAPPERS.contains(name))
}

/// The words of a command whose every effect is in its words.
pub(super) fn known_words(simple: &Simple) -> Option<Vec<&str>> {
    let quiet = simple.assignments.is_empty()
        && simple.redirects.iter().all(|redirect| redirect.way != shell::Way::Here && !redirect.writes());
    if !quiet || simple.argv.is_empty() {
        return None;
    }
    simple.argv.iter().map(Word::literal).collect()
}

struct Finder {
    starts: Vec<Start>,
    known: HashSet<Start>,
    opaque: bool,
}

impl Finder {
    fn line(&mut self, text: &str, depth: usize) {
        if depth > NESTING_MAX {
            self.opaque = true;
            return;
        }
        self.script(&shell::read(text), depth);
    }

    fn script(&mut self, script: &shell::Script, depth: usize) {
        let unreadable = |reason| matches!(reason, Unread::TooLong | Unread::TooDeep | Unread::Malformed);
        self.opaque |= script.doubts.iter().any(|doubt| unreadable(doubt.reason));
        for command in &script.commands {
            if command.argv.is_empty() {
                continue;
            }
            self.start(&command.argv, depth);
            let first = base(command.argv[0].text());
            if WRAPPERS.contains(&first) {
                for from in 1..command.argv.len() {
                    self.start(&command.argv[from..], depth);
                }
            }
        }
    }

    /// One program with its arguments, and what its arguments would start.
    fn start(&mut self, words: &[Word], depth: usize) {
        let Some((first, arguments)) = words.split_first() else { return };
        if self.starts.len() >= STARTS_MAX {
            self.opaque = true;
            return;
        }
        let Some(program) = first.literal().map(base) else {
            self.opaque = true;
            return;
        };
        let mut texts: Vec<String> = words.iter().map(|word| word.text().to_owned()).collect();
        texts[0] = program.to_owned();
        let start = Start { joined: texts.join(" "), words: texts };
        if self.known.insert(start.clone()) {
            self.starts.push(start);
        }
        let is_shell = SHELLS.contains(&program);
        if !is_shell && !WRAPPERS.contains(&program) {
            return;
        }
        for argument in arguments {
            match argument.literal() {
                None => self.opaque |= is_shell,
                Some(text) if text.starts_with('-') => {}
                Some(text) if is_shell || text.contains(char::is_whitespace) => self.line(text, depth + 1),
                Some(_) => {}
            }
        }
        if program == "eval" {
            let joined = arguments.iter().map(Word::text).collect::<Vec<_>>().join(" ");
            self.line(&joined, depth + 1);
        }
        // `curl x | sh`: what it would run is not in the line.
        self.opaque |= is_shell && !arguments.iter().any(|word| !word.text().starts_with('-'));
    }
}

/// The name of a program without its folders.
pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a command begins with these words, however they are written: options may stand between
/// them, and letters of options in any order.
pub(super) fn begins(words: &[String], prefix: &[String]) -> bool {
    let (Some((program, words)), Some((wanted, prefix))) = (words.split_first(), prefix.split_first()) else {
        return false;
    };
    if program != base(wanted) {
        return false;
    }
    let mut rest = words;
    for token in prefix {
        if let Some(letters) = short(token) {
            let has = |letter| words.iter().filter_map(|word| short(word)).any(|word| word.contains(letter));
            if !letters.chars().all(has) {
                return false;
            }
        } else if token.starts_with("--") {
            let same = |word: &String| {
                word == token || word.strip_prefix(token.as_str()).is_some_and(|v| v.starts_with('='))
            };
            if !words.iter().any(same) {
                return false;
            }
        } else {
            match after_options(rest, token) {
                Some(after) => rest = after,
                None => return false,
            }
        }
    }
    true
}

/// What follows this word, if nothing but options and their values stands before it.
fn after_options<'a>(words: &'a [String], wanted: &str) -> Option<&'a [String]> {
    let mut may_be_value = false;
    for (at, word) in words.iter().enumerate() {
        if word == wanted {
            return Some(&words[at + 1..]);
        }
        let is_option = word.starts_with('-');
        if !is_option && !may_be_value {
            return None;
        }
        may_be_value = is_option;
    }
    None
}

/// The letters of `-rf`.
fn short(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(text: &str) -> Vec<String> {
        Line::new(text).starts.into_iter().map(|start| start.joined).collect()
    }

    #[test]
    fn everything_that_a_line_could_start_is_found() {
        for line in [
            "rm -rf x",
            "/bin/rm -rf x",
            "r\\m -rf x",
            "cd y && rm -rf x",
            "echo $(rm -rf x)",
            "echo `rm -rf x`",
            "(rm -rf x)",
            "true | rm -rf x",
            "A=1 rm -rf x",
            "sudo -u me rm -rf x",
            "env A=1 nice -n 5 rm -rf x",
            "bash -c 'rm -rf x'",
            "sudo bash -c 'true; rm -rf x'",
            "sh -c \"bash -c 'rm -rf x'\"",
            "find . -exec rm -rf x ';'",
            "echo a | xargs rm -rf x",
            "eval 'rm -rf x'",
            "eval rm -rf x",
            "for a in 1 2; do rm -rf x; done",
            "if true; then rm -rf x; fi",
            "f() { rm -rf x; }; f",
            "rm -rf x > log &",
            "cat <(rm -rf x)",
        ] {
            assert!(
                starts(line).iter().any(|start| start.starts_with("rm -rf x")),
                "{line}: {:?}",
                starts(line)
            );
        }
    }

    /// The grammar's scanner reads outside of its tables for these, unless they are kept from it.
    #[test]
    fn characters_of_every_kind_are_read() {
        for c in ['é', '\u{300}', '漢', '\u{1f600}', '\u{10ffff}'] {
            for line in [
                format!("echo {{{c}..3}}"),
                format!("{{{c}"),
                format!("a{c}<<{c}"),
                format!("${{{c}}} {c}=1 rm"),
            ] {
                drop(Line::new(&line));
            }
            assert_eq!(starts(&format!("rm '{c}' {c}x")), [format!("rm {c} {c}x")]);
            assert_eq!(starts(&format!("{c}=1 rm x")), [format!("{c}=1 rm x")], "not an assignment");
        }
    }

    #[test]
    fn what_cannot_be_named_is_said() {
        for line in ["$X -rf /", "bash -c \"$X\"", "curl x | sh", "echo 'a", "eval $x"] {
            assert!(Line::new(line).opaque, "{line}");
        }
        for line in ["ls", "ls *.rs", "bash -c 'ls'", "git log $X"] {
            assert!(!Line::new(line).opaque, "{line}");
        }
    }

    #[test]
    fn the_words_of_a_command_are_known_only_if_nothing_is_hidden_in_it() {
        let known = |text| {
            Line::new(text).commands.is_some_and(|all| all.iter().all(|one| known_words(one).is_some()))
        };
        for line in ["git status", "git status && ls -la | wc -l", "ls 2>&1", "ls > /dev/null"] {
            assert!(known(line), "{line}");
        }
        for line in [
            "",
            "ls > x",
            "A=1 ls",
            "ls &",
            "ls $(rm x)",
            "for a in b; do ls; done",
            "ls 'a",
            "A=1",
            "ls $X",
            "ls *",
        ] {
            assert!(!known(line), "{line}");
        }
    }

    #[test]
    fn a_prefix_is_seen_through_options() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, prefix) in [
            ("git push", "git push"),
            ("git push origin", "git push"),
            ("git -C x push", "git push"),
            ("git --no-pager -c a=b push", "git push"),
            ("rm -fr x", "rm -rf"),
            ("rm -r -f x", "rm -rf"),
            ("rm x -rvf", "rm -rf"),
            ("git push --force", "git push --force"),
            ("git push origin --force=x", "git push --force"),
            ("npm run build", "npm run build"),
        ] {
            assert!(begins(&words(line), &words(prefix)), "{line} / {prefix}");
        }
        for (line, prefix) in [
            ("git commit -m push", "git push"),
            ("git pushy", "git push"),
            ("rm -r x", "rm -rf"),
            ("gitk", "git"),
            ("npm run test", "npm run build"),
            ("git", "git push"),
        ] {
            assert!(!begins(&words(line), &words(prefix)), "{line} / {prefix}");
        }
    }
}
