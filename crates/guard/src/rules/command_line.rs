//! A command line as rules see it, parsed once per request.
//!
//! Rules need two views of it, because the two kinds of rules fail in opposite directions. A rule that allows must be
//! sure, so it sees only lines that are understood to the last word. A rule that denies or asks must not be evaded, so it
//! sees everything that any part of the line could start: behind wrappers, in substitutions, in text that is passed to a
//! shell.

use super::option_spellings::{self, OptionSpelling};
use super::started_programs::{ProgramFinder, StartedProgram};
use crate::program_launchers;
use crate::risk::interprets;
use crate::shell::{self, SimpleCommand, Word};

pub(super) struct CommandLine {
    pub(super) text: String,
    /// Every command; `None` if anything about the line is in doubt.
    pub(super) commands: Option<Vec<SimpleCommand>>,
    /// Every program that could be started, named without its folders.
    pub(super) starts: Vec<StartedProgram>,
    /// The line could start something that cannot be named.
    pub(super) opaque: bool,
}

impl CommandLine {
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim();
        let script = shell::read(text);
        let sure = script.doubts.is_empty() && !script.commands.is_empty();
        let mut finder = ProgramFinder::default();
        finder.script(&script, 0, true);
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
    let name = program_name(program);
    super::started_programs::is_shell(name)
        || interprets(name)
        || program_launchers::starts_anything(name)
        || matches!(name, "find" | "fd")
}

/// The words of a command that has no other effect than its words say.
pub(super) fn known_words(simple: &SimpleCommand) -> Option<Vec<&str>> {
    let quiet = simple.assignments.is_empty()
        && simple
            .redirects
            .iter()
            .all(|redirect| redirect.kind != shell::RedirectKind::InlineText && !redirect.writes());
    if !quiet || simple.argv.is_empty() {
        return None;
    }
    simple.argv.iter().map(Word::literal).collect()
}

/// The name of a program without its folders.
pub(super) fn program_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// How certain it is that a command is the one that a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    No,
    /// A part of it is computed, comes from elsewhere, or may not be a command at all.
    Maybe,
    Yes,
}

/// Whether a command begins with these words, however they are written: options may stand between
/// them, letters of options in any order, and long options abbreviated. Options of well-known programs count
/// in any of their spellings.
pub(super) fn begins(start: &StartedProgram, prefix: &[String]) -> Certainty {
    let Some((wanted, prefix)) = prefix.split_first() else { return Certainty::No };
    if start.words.first().is_none_or(|program| program != program_name(wanted)) {
        return Certainty::No;
    }
    let known = option_spellings::of(program_name(wanted), prefix);
    let mut touch = Certainty::Yes;
    let mut next = 1;
    for token in prefix {
        let found = if token.starts_with('-') && token.len() > 1 {
            has_option(start, token, known)
        } else {
            let (found, after) = after_options(start, next, token);
            next = after;
            found
        };
        touch = touch.min(found);
    }
    touch
}

fn has_option(start: &StartedProgram, token: &str, known: &[OptionSpelling]) -> Certainty {
    let words = start.words.iter().skip(1).map(String::as_str);
    let found = match short(token) {
        Some(letters) => letters.chars().all(|letter| {
            let (letters, names) = known
                .iter()
                .find(|(letters, _)| letters.contains(letter))
                .map_or((String::from(letter), ""), |(letters, names)| ((*letters).to_owned(), *names));
            option_spellings::has(words.clone(), &letters, names)
        }),
        None => {
            let wanted = token.trim_start_matches('-');
            let wanted = wanted.split_once('=').map_or(wanted, |(name, _)| name);
            let (letters, names) = known
                .iter()
                .find(|(_, names)| program_launchers::is_listed(names, wanted))
                .copied()
                .unwrap_or_default();
            words.clone().any(|word| word == token)
                || option_spellings::has_long(words.clone(), token.trim_start_matches('-'))
                || option_spellings::has(words.clone(), letters, names)
        }
    };
    let found = found || is_forced_otherwise(start, token);
    // A computed word may be an option unless it begins with a character that no option begins with.
    let may_be = |(word, computed): (&String, &bool)| {
        *computed && word.starts_with(['$', '`', '"', '\'', '*', '?', '[', '{', '-', '\\'])
    };
    match found {
        true => Certainty::Yes,
        false if start.open || start.words.iter().zip(&start.computed).skip(1).any(may_be) => {
            Certainty::Maybe
        }
        false => Certainty::No,
    }
}

/// Whether git forces without an option of that name: `git push origin +main`, `git branch -D`.
fn is_forced_otherwise(start: &StartedProgram, token: &str) -> bool {
    let is_git = |verb: &str| {
        start.words.first().is_some_and(|word| word == "git") && start.words.iter().any(|word| word == verb)
    };
    match token {
        "-f" | "--force" if is_git("push") => start.words.iter().skip(2).any(|word| word.starts_with('+')),
        "-d" | "--delete" | "-f" | "--force" if is_git("branch") => {
            start.words.iter().any(|word| word == "-D")
        }
        "-D" if is_git("branch") => {
            let words = start.words.iter().skip(1).map(String::as_str);
            option_spellings::has(words.clone(), "d", "delete") && option_spellings::has(words, "f", "force")
        }
        _ => false,
    }
}

/// Whether this word comes next, behind nothing but options and their values, and the index of the word after it.
fn after_options(start: &StartedProgram, from: usize, wanted: &str) -> (Certainty, usize) {
    let mut may_be_value = false;
    for at in from..start.words.len() {
        let word = &start.words[at];
        if start.computed.get(at) == Some(&true) {
            return (Certainty::Maybe, at);
        }
        if word == wanted {
            return (Certainty::Yes, at + 1);
        }
        let is_option = word.starts_with('-');
        if !is_option && !may_be_value {
            return (Certainty::No, at);
        }
        may_be_value = is_option;
    }
    (if start.open { Certainty::Maybe } else { Certainty::No }, start.words.len())
}

/// Whether a command is exactly these words.
pub(super) fn is_same(start: &StartedProgram, words: &[String]) -> Certainty {
    let known = start.computed.iter().position(|computed| *computed).unwrap_or(start.words.len());
    let same = |nth: usize| {
        let (Some(one), Some(other)) = (start.words.get(nth), words.get(nth)) else { return false };
        if nth == 0 { one == program_name(other) } else { one == other }
    };
    let is_open = start.open || known < start.words.len();
    if !(0..known.min(words.len())).all(same) || known > words.len() {
        return Certainty::No;
    }
    match known == words.len() && start.words.len() == words.len() {
        true => Certainty::Yes,
        false if is_open => Certainty::Maybe,
        false => Certainty::No,
    }
}

/// The letters of `-rf`.
pub(super) fn short(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(text: &str) -> Vec<String> {
        CommandLine::new(text).starts.into_iter().map(|start| start.joined).collect()
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
                drop(CommandLine::new(&line));
            }
            assert_eq!(starts(&format!("rm '{c}' {c}x")), [format!("rm {c} {c}x")]);
            assert_eq!(starts(&format!("{c}=1 rm x"))[0], format!("{c}=1 rm x"), "not an assignment");
        }
    }

    #[test]
    fn what_cannot_be_named_is_said() {
        for line in ["$X -rf /", "bash -c \"$X\"", "curl x | sh", "echo 'a", "eval $x"] {
            assert!(CommandLine::new(line).opaque, "{line}");
        }
        for line in ["ls", "ls *.rs", "bash -c 'ls'", "git log $X"] {
            assert!(!CommandLine::new(line).opaque, "{line}");
        }
    }

    #[test]
    fn the_words_of_a_command_are_known_only_if_nothing_is_hidden_in_it() {
        let known = |text| {
            CommandLine::new(text)
                .commands
                .is_some_and(|all| all.iter().all(|one| known_words(one).is_some()))
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
            ("git push --forc", "git push --force"),
            ("npm run build", "npm run build"),
            ("rm -Rf x", "rm -rf"),
            ("rm -fR x", "rm -rf"),
            ("rm -R --force x", "rm -rf"),
            ("rm --recursive --force x", "rm -rf"),
            ("rm -rI --force x", "rm -rf"),
            ("rm --recurs --forc x", "rm -rf"),
            ("rm --r --f x", "rm -rf"),
            ("rm -Rf x", "rm --recursive --force"),
            ("rm -rf x", "rm -Rf"),
            ("git push -f", "git push --force"),
            ("git push --force", "git push -f"),
            ("git push origin +main", "git push --force"),
            ("git push --del origin x", "git push -d"),
            ("git branch -D x", "git branch -d"),
            ("git branch --delete --force x", "git branch -D"),
            ("git commit -n -m x", "git commit --no-verify"),
            ("git commit --no-ver", "git commit -n"),
            ("chmod --recursive 777 x", "chmod -R"),
            ("chown --rec me x", "chown -R"),
            ("cp --recursive a b", "cp -r"),
            ("curl --output x y", "curl -o"),
            ("curl --data-binary @x y", "curl -d"),
            ("npm install --global x", "npm install -g"),
            ("sed --in-place s/a/b/ x", "sed -i"),
        ] {
            assert_eq!(
                begins(&StartedProgram::plain(&words(line)), &words(prefix)),
                Certainty::Yes,
                "{line} / {prefix}"
            );
        }
        for (line, prefix) in [
            ("git commit -m push", "git push"),
            ("git pushy", "git push"),
            ("rm -r x", "rm -rf"),
            ("gitk", "git"),
            ("npm run test", "npm run build"),
            ("git", "git push"),
            ("rm -R x", "rm -rf"),
            ("rm --force x", "rm -rf"),
            ("rm -f x", "rm -r"),
            ("git push --force-with-lease", "git push --force"),
            ("git push -u origin main", "git push --force"),
            ("git branch -d x", "git branch -D"),
            ("chmod +x y", "chmod -R"),
            ("sort -R x", "sort -r"),
            ("curl -s x", "curl -o"),
        ] {
            assert_eq!(
                begins(&StartedProgram::plain(&words(line)), &words(prefix)),
                Certainty::No,
                "{line} / {prefix}"
            );
        }
    }
}
