//! How risky a wish is, and why, in a sentence for the person who is asked.
//!
//! Low is earned: every command of the line is on a list of programs that only read, with options
//! that are on a list too, and every word is known. Everything else is at least medium, and what is
//! known to be destructive is more. This decides how a person is asked, or that nobody needs to be;
//! what a command can reach is the sandbox's business.
//!
//! **Invariant:** the risk of a line is that of its worst command. A command is judged through every
//! wrapper (`sudo`, `env`, `xargs`, `bash -c` ..) that it stands behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::Risk;

use crate::shell::{self, Script, Simple, Unread, Within, Word};

mod dangers;
mod deed;
mod git;
mod options;
mod paths;
mod programs;
mod readers;
mod scope;
mod searches;
mod targets;
mod wrappers;

pub(crate) use dangers::interprets;
pub use deed::{Deed, assess_deed, with_git_settings, with_steered_programs};
pub(crate) use git::{setting_runs as git_setting_runs, subcommand as git_subcommand};
pub use paths::{Want, assess_path};
pub(crate) use readers::reads_with_known_options;
pub(crate) use scope::covered;
pub use scope::{Scope, covers, scope_of_always};

/// `bash -c "bash -c .."`: deeper is not looked through.
const NESTING_MAX: usize = 8;
/// Scripts inside a line that are looked through; more of them are not harmless whatever they are.
const SCRIPTS_MAX: usize = 256;
/// In a longer line commands are not compared with each other: that takes the square of the time.
const COMPARED_MAX: usize = 256;
/// Programs behind launchers that are looked at; where each option may have a value there are many.
const LAUNCHED_MAX: usize = 512;
const QUOTE_CHARS_MAX: usize = 80;

/// What a person is told of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    pub risk: Risk,
    /// What the worst part does, with that part: "removes files with all folders: rm -rf build".
    pub reason: String,
}

/// Where a command would run.
#[derive(Debug, Clone, Copy)]
pub struct Workplace<'a> {
    pub cwd: &'a Path,
    /// The folders that may be written.
    pub roots: &'a [PathBuf],
    pub home: Option<&'a Path>,
}

/// Judges a whole line of shell.
pub fn assess_command(line: &str, place: &Workplace) -> Assessment {
    let Finding { risk, what, quote } = Judge::of(line, place).worst;
    Assessment { risk, reason: format!("{what}: {}", shown(&quote)) }
}

/// The programs that a line runs, as it names them, those behind wrappers too.
fn programs_of(line: &str, place: &Workplace) -> BTreeSet<String> {
    Judge::of(line, place).programs
}

/// One line or part of it that fits a dialog: control characters are escaped, the end is cut off.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for (nth, c) in text.trim().chars().enumerate() {
        match c {
            _ if nth >= QUOTE_CHARS_MAX => {
                out.push('…');
                break;
            }
            c if shell::is_invisible(c) || c == '\n' || c == '\t' => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// What was found out about one command.
#[derive(Debug, Clone)]
struct Finding {
    risk: Risk,
    what: &'static str,
    quote: String,
}

impl Finding {
    fn new(risk: Risk, what: &'static str, words: &[Word]) -> Self {
        let mut quote = String::new();
        for word in words {
            if !quote.is_empty() {
                quote.push(' ');
            }
            quote.push_str(word.text());
            if quote.len() > 4 * QUOTE_CHARS_MAX {
                break;
            }
        }
        Self { risk, what, quote }
    }

    fn low(what: &'static str, quote: &str) -> Self {
        Self { risk: Risk::Low, what, quote: quote.to_owned() }
    }

    fn text(risk: Risk, what: &'static str, quote: &str) -> Self {
        Self { risk, what, quote: quote.to_owned() }
    }
}

/// Looks at one line and keeps the worst of what it finds.
struct Judge<'a> {
    place: &'a Workplace<'a>,
    worst: Finding,
    nesting: usize,
    scripts: usize,
    launched: usize,
    /// What [`Around::moved`] is for the scripts inside the command that is looked at.
    moved: bool,
    programs: BTreeSet<String>,
}

impl<'a> Around<'a> {
    /// The commands of the line that this one may have to do with.
    fn others(&self) -> impl Iterator<Item = &'a Simple> {
        let commands = if self.is_crowded() { &[] } else { self.script.commands.as_slice() };
        commands.iter()
    }

    fn is_crowded(&self) -> bool {
        self.script.commands.len() > COMPARED_MAX
    }
}

/// What stands around the command that is looked at.
#[derive(Clone, Copy)]
struct Around<'a> {
    script: &'a Script,
    command: &'a Simple,
    index: usize,
    /// The line is somewhere else than where it began: a program that trusts files around it may not.
    moved: bool,
    place: &'a Workplace<'a>,
}

impl<'a> Judge<'a> {
    /// One that has looked at the whole line.
    fn of(line: &str, place: &'a Workplace<'a>) -> Self {
        let worst = Finding::low("only reads", line);
        let programs = BTreeSet::new();
        let mut judge = Self { place, worst, nesting: 0, scripts: 0, launched: 0, moved: false, programs };
        judge.line(line);
        judge
    }

    fn found(&mut self, finding: Finding) {
        if finding.risk > self.worst.risk {
            self.worst = finding;
        }
    }

    fn line(&mut self, line: &str) {
        if self.nesting >= NESTING_MAX {
            return self.found(Finding::text(
                Risk::Medium,
                "is nested too deeply to be looked through",
                line,
            ));
        }
        self.scripts += 1;
        if self.scripts > SCRIPTS_MAX {
            return self.found(Finding::text(
                Risk::High,
                "has more scripts in it than can be looked through",
                line,
            ));
        }
        self.nesting += 1;
        let script = shell::read(line);
        self.script(&script, line);
        self.nesting -= 1;
    }

    fn script(&mut self, script: &Script, line: &str) {
        let began = self.moved;
        let mut moved = began;
        for (index, command) in script.commands.iter().enumerate() {
            self.moved = moved;
            self.command(Around { script, command, index, moved, place: self.place });
            moved |= targets::moves_away(command, self.place);
        }
        self.moved = began;
        for doubt in &script.doubts {
            self.found(doubtful(doubt, line));
        }
        let unread = |doubt: &shell::Doubt| {
            matches!(doubt.reason, Unread::TooLong | Unread::TooDeep | Unread::Malformed | Unread::Invisible)
        };
        if script.doubts.iter().any(unread)
            && let Some(finding) = dangers::by_words(line)
        {
            self.found(finding);
        }
        if script.commands.is_empty()
            && script.doubts.is_empty()
            && !line.trim().is_empty()
            && !only_comments(line)
        {
            self.found(Finding::text(Risk::Medium, "could not be understood", line));
        }
    }

    /// A command as it stands in the line: assignments, redirections, and what it runs.
    fn command(&mut self, around: Around<'_>) {
        let command = around.command;
        for (name, value) in &command.assignments {
            self.found(targets::assignment(name, value));
        }
        for redirect in &command.redirects {
            if let Some(finding) = targets::redirect(redirect, self.place) {
                self.found(finding);
            }
        }
        if !command.argv.is_empty() {
            self.words(&command.argv, around);
        }
    }

    /// A program with its arguments, perhaps inside a wrapper.
    fn words(&mut self, words: &[Word], around: Around) {
        let Some((first, arguments)) = words.split_first() else { return };
        let Some(program) = first.literal() else {
            return self.found(Finding::new(Risk::Medium, "runs a program whose name is computed", words));
        };
        self.programs.insert(program.to_owned());
        let Some(name) = plain_name(program) else {
            self.found(Finding::new(Risk::Medium, "runs a program of its own", words));
            return self.named(program.rsplit('/').next().unwrap_or(program), words, arguments, around);
        };
        self.named(name, words, arguments, around);
    }

    fn named(&mut self, name: &str, words: &[Word], arguments: &[Word], around: Around) {
        if self.nesting >= 4 * NESTING_MAX {
            return self.found(Finding::new(
                Risk::Medium,
                "is nested too deeply to be looked through",
                words,
            ));
        }
        self.nesting += 1;
        if around.is_crowded() && dangers::depends_on_others(name) {
            self.found(Finding::new(
                Risk::High,
                "stands among too many commands to be looked through",
                words,
            ));
        }
        if !self.wrapper(name, words, arguments, around) {
            let worst = dangers::finding(name, words, arguments, around);
            match worst {
                Some(finding) => self.found(finding),
                None if searches::may_show_secrets(name, arguments) => {
                    self.found(Finding::new(
                        Risk::High,
                        "searches hidden or ignored files too, which may hold secrets",
                        words,
                    ));
                }
                None if readers::only_reads(name, arguments, around) => {}
                None => self.found(programs::ordinary(name, words, arguments)),
            }
        }
        self.sensitive(name, words, arguments);
        self.nesting -= 1;
    }

    /// Files that a command names, whatever it does with them.
    fn sensitive(&mut self, name: &str, words: &[Word], arguments: &[Word]) {
        for finding in targets::named_files(name, words, arguments, self.place) {
            self.found(finding);
        }
    }
}

/// The name of a program that comes from the system, and not from a path that anybody may write.
fn plain_name(program: &str) -> Option<&str> {
    const SYSTEM: [&str; 8] = [
        "/bin/",
        "/usr/bin/",
        "/sbin/",
        "/usr/sbin/",
        "/usr/local/bin/",
        "/usr/local/sbin/",
        "/opt/homebrew/bin/",
        "/usr/libexec/",
    ];
    let name = SYSTEM.iter().find_map(|folder| program.strip_prefix(folder)).unwrap_or(program);
    (!name.contains('/') && !name.is_empty()).then_some(name)
}

fn doubtful(doubt: &shell::Doubt, line: &str) -> Finding {
    let (risk, what) = match doubt.reason {
        Unread::TooLong => (Risk::Medium, "is too long to be looked through"),
        Unread::TooDeep => (Risk::Medium, "is nested too deeply to be looked through"),
        Unread::Malformed => (Risk::Medium, "could not be understood"),
        Unread::Invisible => (Risk::Medium, "has characters that cannot be seen"),
        Unread::Loop => (Risk::Medium, "has a loop"),
        Unread::Condition => (Risk::Medium, "has a condition"),
        Unread::Test => (Risk::Medium, "has a test of the shell's own kind"),
        Unread::Arithmetic => (Risk::Medium, "has arithmetic, which may run commands"),
        Unread::Function => (Risk::Medium, "defines a function"),
        Unread::ForkBomb => (Risk::Critical, "starts itself again and again"),
        Unread::Substitution => (Risk::Medium, "uses what another command prints"),
        Unread::Expansion => (Risk::Medium, "computes a value while it runs"),
        Unread::HereDocument => (Risk::Medium, "has a text of its own as input"),
        Unread::Background => (Risk::Medium, "leaves something running"),
        Unread::Other => (Risk::Medium, "has a part that is not known to be harmless"),
    };
    Finding::text(risk, what, if doubt.source.is_empty() { line } else { &doubt.source })
}

fn only_comments(line: &str) -> bool {
    line.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// Whether a command stands inside the words of this one.
fn inside(inner: &Simple, index: usize) -> bool {
    inner.place.within == Within::Substitution(Some(index))
}
