//! Assesses how risky a request is, and why, in a sentence for the person who is asked.
//!
//! A low risk has to be earned: every command of the line is on a list of programs that only read, with options that
//! are on a list too, and every word is known. Everything else is at least medium, and what is known to be destructive
//! is higher. The risk decides how a person is asked, or that nobody needs to be. What a command can reach is decided
//! by the sandbox.
//!
//! **Invariant:** the risk of a line is that of its worst command. A command is assessed through every wrapper that it
//! stands behind (`sudo`, `env`, `xargs`, `bash -c` ..).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::Risk;

use crate::shell::{self, DoubtReason, Nesting, Script, SimpleCommand, Word};

mod always_answer_scope;
mod assess_action;
mod command_options;
mod command_targets;
mod dangerous_programs;
mod git_commands;
mod grep_secret_exposure;
mod medium_risk_programs;
mod read_only_programs;
mod sensitive_paths;
mod wrapper_programs;

pub(crate) use always_answer_scope::covered;
pub use always_answer_scope::{CommandScope, covers, scope_of_always};
pub use assess_action::{ProposedAction, assess_action, with_git_settings, with_steered_programs};
pub(crate) use dangerous_programs::interprets;
pub(crate) use git_commands::{setting_runs as git_setting_runs, subcommand as git_subcommand};
pub(crate) use read_only_programs::reads_with_known_options;
pub use sensitive_paths::{FileAccess, assess_path};

/// Deeper nesting of `bash -c "bash -c .."` is not examined.
const NESTING_MAX: usize = 8;
/// Scripts inside a line that are examined; a line with more is never harmless.
const SCRIPTS_MAX: usize = 256;
/// In a line with more commands they are not compared with each other: that takes quadratic time.
const COMPARED_MAX: usize = 256;
/// Programs behind launchers that are examined; if every option may have a value there are many candidates.
const LAUNCHED_MAX: usize = 512;
const QUOTE_CHARS_MAX: usize = 80;

/// The risk of a request, and the reason that a person is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    pub risk: Risk,
    /// What the worst part does, with that part: "removes folders with everything in them: rm -rf build".
    pub reason: String,
}

/// Where a command would run: its folder, the workspace and the home folder.
#[derive(Debug, Clone, Copy)]
pub struct Workplace<'a> {
    pub cwd: &'a Path,
    /// The folders that may be written.
    pub roots: &'a [PathBuf],
    pub home: Option<&'a Path>,
}

/// Assesses a whole line of shell.
pub fn assess_command(line: &str, place: &Workplace) -> Assessment {
    let Finding { risk, what, quote } = LineAssessor::of(line, place).worst;
    Assessment { risk, reason: format!("{what}: {}", escaped_excerpt(&quote)) }
}

/// The programs that a line runs, as it names them, those behind wrappers too.
fn programs_of(line: &str, place: &Workplace) -> BTreeSet<String> {
    LineAssessor::of(line, place).programs
}

/// One line or part of it that fits a dialog: control characters are escaped, the end is cut off.
fn escaped_excerpt(text: &str) -> String {
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

/// One finding about a command.
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

/// Assesses one line and keeps the worst finding.
struct LineAssessor<'a> {
    place: &'a Workplace<'a>,
    worst: Finding,
    nesting: usize,
    scripts: usize,
    launched: usize,
    /// What [`CommandContext::moved`] is for the scripts inside the command that is assessed.
    moved: bool,
    programs: BTreeSet<String>,
}

impl<'a> CommandContext<'a> {
    /// The commands of the line that may be related to this one.
    fn others(&self) -> impl Iterator<Item = &'a SimpleCommand> {
        let commands = if self.is_crowded() { &[] } else { self.script.commands.as_slice() };
        commands.iter()
    }

    fn is_crowded(&self) -> bool {
        self.script.commands.len() > COMPARED_MAX
    }
}

/// The command that is assessed, and the line around it.
#[derive(Clone, Copy)]
struct CommandContext<'a> {
    script: &'a Script,
    command: &'a SimpleCommand,
    index: usize,
    /// The line changed to another folder before: a program there may read other files than those of the workspace.
    moved: bool,
    place: &'a Workplace<'a>,
}

impl<'a> LineAssessor<'a> {
    /// Assesses the whole line.
    fn of(line: &str, place: &'a Workplace<'a>) -> Self {
        let worst = Finding::low("only reads", line);
        let programs = BTreeSet::new();
        let mut judge = Self { place, worst, nesting: 0, scripts: 0, launched: 0, moved: false, programs };
        judge.line(line);
        judge
    }

    fn record(&mut self, finding: Finding) {
        if finding.risk > self.worst.risk {
            self.worst = finding;
        }
    }

    fn line(&mut self, line: &str) {
        if self.nesting >= NESTING_MAX {
            return self.record(Finding::text(Risk::Medium, "is nested too deeply to be checked", line));
        }
        self.scripts += 1;
        if self.scripts > SCRIPTS_MAX {
            return self.record(Finding::text(Risk::High, "contains too many scripts to be checked", line));
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
            self.command(CommandContext { script, command, index, moved, place: self.place });
            moved |= command_targets::moves_away(command, self.place);
        }
        self.moved = began;
        for doubt in &script.doubts {
            self.record(doubt_finding(doubt, line));
        }
        let unread = |doubt: &shell::Doubt| {
            matches!(
                doubt.reason,
                DoubtReason::TooLong | DoubtReason::TooDeep | DoubtReason::Malformed | DoubtReason::Invisible
            )
        };
        if script.doubts.iter().any(unread)
            && let Some(finding) = dangerous_programs::by_words(line)
        {
            self.record(finding);
        }
        if script.commands.is_empty()
            && script.doubts.is_empty()
            && !line.trim().is_empty()
            && !only_comments(line)
        {
            self.record(Finding::text(Risk::Medium, "could not be understood", line));
        }
    }

    /// A command as it stands in the line: assignments, redirections, and what it runs.
    fn command(&mut self, context: CommandContext<'_>) {
        let command = context.command;
        for (name, value) in &command.assignments {
            self.record(command_targets::assignment(name, value));
        }
        for redirect in &command.redirects {
            if let Some(finding) = command_targets::redirect(redirect, self.place) {
                self.record(finding);
            }
        }
        if !command.argv.is_empty() {
            self.words(&command.argv, context);
        }
    }

    /// A program with its arguments, perhaps inside a wrapper.
    fn words(&mut self, words: &[Word], context: CommandContext) {
        let Some((first, arguments)) = words.split_first() else { return };
        let Some(program) = first.literal() else {
            return self.record(Finding::new(
                Risk::Medium,
                "runs a program whose name is computed at run time",
                words,
            ));
        };
        self.programs.insert(program.to_owned());
        let Some(name) = plain_name(program) else {
            self.record(Finding::new(Risk::Medium, "runs a program of its own", words));
            return self.named_program(
                program.rsplit('/').next().unwrap_or(program),
                words,
                arguments,
                context,
            );
        };
        self.named_program(name, words, arguments, context);
    }

    fn named_program(&mut self, name: &str, words: &[Word], arguments: &[Word], context: CommandContext) {
        if self.nesting >= 4 * NESTING_MAX {
            return self.record(Finding::new(Risk::Medium, "is nested too deeply to be checked", words));
        }
        self.nesting += 1;
        if context.is_crowded() && dangerous_programs::depends_on_others(name) {
            self.record(Finding::new(Risk::High, "is on a line with too many commands to be checked", words));
        }
        if !self.wrapper(name, words, arguments, context) {
            let worst = dangerous_programs::finding(name, words, arguments, context);
            match worst {
                Some(finding) => self.record(finding),
                None if grep_secret_exposure::may_show_secrets(name, arguments) => {
                    self.record(Finding::new(
                        Risk::High,
                        "searches hidden or ignored files too, which may hold secrets",
                        words,
                    ));
                }
                None if read_only_programs::only_reads(name, arguments, context) => {}
                None => self.record(medium_risk_programs::ordinary(name, words, arguments)),
            }
        }
        self.sensitive_files(name, words, arguments);
        self.nesting -= 1;
    }

    /// Sensitive files that a command names, whatever it does with them.
    fn sensitive_files(&mut self, name: &str, words: &[Word], arguments: &[Word]) {
        for finding in command_targets::named_files(name, words, arguments, self.place) {
            self.record(finding);
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

fn doubt_finding(doubt: &shell::Doubt, line: &str) -> Finding {
    let (risk, what) = match doubt.reason {
        DoubtReason::TooLong => (Risk::Medium, "is too long to be checked"),
        DoubtReason::TooDeep => (Risk::Medium, "is nested too deeply to be checked"),
        DoubtReason::Malformed => (Risk::Medium, "could not be understood"),
        DoubtReason::Invisible => (Risk::Medium, "contains invisible characters"),
        DoubtReason::Loop => (Risk::Medium, "has a loop"),
        DoubtReason::Condition => (Risk::Medium, "has a condition"),
        DoubtReason::Test => (Risk::Medium, "has a shell test ([[ ]])"),
        DoubtReason::Arithmetic => (Risk::Medium, "has arithmetic, which may run commands"),
        DoubtReason::Function => (Risk::Medium, "defines a function"),
        DoubtReason::ForkBomb => (Risk::Critical, "starts itself without end"),
        DoubtReason::Substitution => (Risk::Medium, "uses the output of another command"),
        DoubtReason::Expansion => (Risk::Medium, "computes a value at run time"),
        DoubtReason::HereDocument => (Risk::Medium, "has a here-document as input"),
        DoubtReason::Background => (Risk::Medium, "leaves a process running"),
        DoubtReason::Other => (Risk::Medium, "has a part that is not known to be harmless"),
    };
    Finding::text(risk, what, if doubt.source.is_empty() { line } else { &doubt.source })
}

fn only_comments(line: &str) -> bool {
    line.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// Whether a command stands inside the words of this one.
fn inside(inner: &SimpleCommand, index: usize) -> bool {
    inner.position.nesting == Nesting::Substitution(Some(index))
}
