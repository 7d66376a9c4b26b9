//! Finds every program that a line could start: behind launchers, in substitutions, in text that is passed to a shell
//! or an interpreter, in text that is printed into a shell.
//!
//! A rule that denies must not be evaded. So this finds more than a shell would start, and marks what may not be a command
//! as not sure: then the rule asks instead of denying.

use std::collections::HashSet;

use engine::RuleEffect;

use super::command_line::program_name;
use crate::program_launchers::{self, LaunchedPrograms};
use crate::risk::interprets;
use crate::shell::{self, DoubtReason, Nesting, RedirectKind, SimpleCommand, Word};

/// Deeper `bash -c "bash -c .."` is not followed; the line then counts as opaque.
const NESTING_MAX: usize = 4;
/// More started programs than this are not examined; the line then counts as opaque.
const STARTS_MAX: usize = 1024;
/// Only this many words of a command are tried as the beginning of another; with more the line counts as opaque.
const WORDS_MAX: usize = 256;
/// How many words follow the program in a command that is found inside code.
const CODE_WORDS_MAX: usize = 64;

/// Programs that take commands as text.
const SHELLS: &str = "sh bash dash zsh ksh mksh ash fish csh tcsh rbash yash elvish nu xonsh pwsh powershell rc es \
    eval source .";
/// Programs that run code in a language of their own, given in their arguments.
const EDITORS: &str = "vim vi nvim view ex ed rview rvim gvim gview rgvim rgview vimdiff gvimdiff nvimdiff evim eview \
    vim.basic vim.tiny vim.nox vim.gtk3 elvis nvi vile kak hx red emacs emacsclient xemacs ipython texlua tex latex \
    pdftex pdflatex xelatex lualatex luatex bpftrace mariadb gdb lldb expect tclsh wish dc bc sqlite3 psql mysql m4 gnuplot \
    octave maxima gp irb ghci scala jshell R Rscript julia erl elixir iex clisp sbcl guile racket swipl";
/// Builtins that evaluate the text between the brackets of a variable's name.
const COMPUTING: &str =
    "declare typeset local readonly export let test [ [[ unset printf read mapfile readarray wait";
/// Words that code contains when it starts programs.
const RUNNING: [&str; 26] = [
    "command(",
    "program",
    "write18",
    "cmd:",
    "system",
    "exec",
    "spawn",
    "popen",
    "subprocess",
    "child_process",
    "qx",
    "getline",
    "command::",
    "process::",
    "fork",
    "eval",
    "pty",
    "`",
    "|",
    ":!",
    "!",
    "shell",
    "run(",
    "sh(",
    "open3",
    "backtick",
];

/// One program that a line may start, with its words as far as they are known.
#[derive(PartialEq, Eq, Hash, Clone, Debug)]
pub(super) struct StartedProgram {
    /// The name of the program without folders, and its words as they are written.
    pub(super) words: Vec<String>,
    /// Which of them the shell computes: each may be any number of words.
    pub(super) computed: Vec<bool>,
    pub(super) joined: String,
    /// The line starts it if it runs as written; otherwise it may only be a text that looks like a command.
    pub(super) sure: bool,
    /// It gets more words that are not in the line.
    pub(super) open: bool,
}

impl StartedProgram {
    fn new(program: &str, arguments: &[Word], sure: bool, open: bool) -> Self {
        let texts = arguments.iter().map(|word| word.text().to_owned());
        let words: Vec<String> = std::iter::once(program.to_owned()).chain(texts).collect();
        let placeholder = |word: &Word| open && word.text().contains("{}");
        let computed = std::iter::once(false)
            .chain(arguments.iter().map(|word| word.literal().is_none() || placeholder(word)))
            .collect();
        Self { joined: words.join(" "), words, computed, sure, open }
    }

    pub(super) fn is_partly_known(&self) -> bool {
        self.open || self.computed.contains(&true)
    }

    /// The effect of a rule about this program: if it may not be started at all, a person has to decide.
    pub(super) fn weakened(&self, effect: RuleEffect) -> RuleEffect {
        if self.sure { effect } else { effect.min(RuleEffect::Ask) }
    }

    #[cfg(test)]
    pub(super) fn plain(words: &[String]) -> Self {
        let words: Vec<Word> = words.iter().cloned().map(Word::Literal).collect();
        Self::new(words[0].text(), &words[1..], true, false)
    }
}

#[derive(Default)]
pub(super) struct ProgramFinder {
    pub(super) starts: Vec<StartedProgram>,
    known: HashSet<StartedProgram>,
    /// Lines that were examined, with their depth.
    lines: HashSet<(String, usize, bool)>,
    /// The line could start something that cannot be named.
    pub(super) opaque: bool,
}

impl ProgramFinder {
    fn line(&mut self, text: &str, depth: usize, sure: bool) {
        if depth > NESTING_MAX || self.starts.len() >= STARTS_MAX {
            self.opaque |= sure;
            return;
        }
        if self.lines.insert((text.to_owned(), depth, sure)) {
            self.script(&shell::read(text), depth, sure);
        }
    }

    pub(super) fn script(&mut self, script: &shell::Script, depth: usize, sure: bool) {
        let unreadable =
            |reason| matches!(reason, DoubtReason::TooLong | DoubtReason::TooDeep | DoubtReason::Malformed);
        self.opaque |= sure && script.doubts.iter().any(|doubt| unreadable(doubt.reason));
        let runs_input = script.commands.iter().any(runs_its_input);
        for command in &script.commands {
            for (name, value) in &command.assignments {
                self.assignment(name, value.text(), depth, sure);
            }
            if runs_input {
                self.printed(command, depth, sure);
            }
            if !command.argv.is_empty() {
                self.command(&command.argv, depth, sure);
            }
            let writes = command.redirects.iter().any(crate::shell::Redirect::writes);
            self.opaque |= sure && writes && command.argv.iter().skip(1).any(is_system_program);
        }
    }

    /// A variable whose value another program runs.
    fn assignment(&mut self, name: &str, value: &str, depth: usize, sure: bool) {
        self.opaque |= sure && program_launchers::names_settings(name, value);
        if program_launchers::is_run_by_others(name) {
            self.line(value.trim_start_matches(['|', '!', '-']), depth + 1, sure);
            for line in program_launchers::inner_lines(value) {
                self.line(&line, depth + 1, sure);
            }
        }
        if name.starts_with("GIT_CONFIG_VALUE_") {
            // It may be the value of an alias.
            self.line(&format!("git {value}"), depth + 1, sure);
        }
        if name == "GIT_CONFIG_PARAMETERS" {
            let text = value.trim_matches('"');
            for line in program_launchers::git_parameters(text) {
                self.line(&line, depth + 1, sure);
            }
        }
        self.subscript(value, depth, false);
        self.subscript(&name.replace(['\'', '"'], ""), depth, sure);
    }

    /// A shell evaluates the text between brackets after a name, even if it was quoted.
    fn subscript(&mut self, text: &str, depth: usize, sure: bool) {
        if text.contains("[$(") || text.contains("[`") {
            self.line(&format!("echo \"{}\"", text.replace('"', " ")), depth + 1, sure);
        }
    }

    /// What a command prints, or gets as its input, where a shell or interpreter reads that.
    fn printed(&mut self, command: &SimpleCommand, depth: usize, sure: bool) {
        for redirect in command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::InlineText)
        {
            self.input_text(redirect.target.text(), depth, sure);
        }
        if let [name, printed @ ..] = command.argv.as_slice()
            && matches!(program_name(name.text()), "echo" | "printf")
        {
            let texts: Vec<&str> =
                printed.iter().map(Word::text).skip_while(|text| text.starts_with('-')).collect();
            let text = texts.join(" ").replace("\\n", "\n");
            self.input_text(&text, depth, sure);
        }
    }

    /// A text that a program gets as its input: lines of shell, or of a language that has a command to run them.
    fn input_text(&mut self, text: &str, depth: usize, sure: bool) {
        const VERBS: [&str; 7] = ["!", "shell ", "system ", "spawn ", "exec ", "syscmd(", "program "];
        self.line(text, depth + 1, sure);
        for line in text.lines() {
            for (at, verb) in VERBS.iter().filter_map(|verb| line.find(verb).map(|at| (at, verb))) {
                let inner = line[at + verb.len()..].trim_matches([' ', '\'', '"', '`', ')', ';']);
                self.line(inner, depth + 1, sure);
            }
            // A line for cron has five fields before its command.
            let line = line.trim_matches(['\'', '"']);
            if line.starts_with(|c: char| c == '*' || c.is_ascii_digit()) {
                let command: Vec<&str> = line.split_whitespace().skip(5).collect();
                self.line(&command.join(" "), depth + 1, sure);
            }
        }
    }

    /// A command and every program that its words may start.
    fn command(&mut self, words: &[Word], depth: usize, sure: bool) {
        let Some((first, arguments)) = words.split_first() else { return };
        self.start(words, depth, sure, false);
        let Some(name) = first.literal().map(program_name) else { return };
        if words.len() > WORDS_MAX && !program_launchers::starts_nothing(name, arguments) {
            self.opaque |= sure;
            return self.command(&words[..WORDS_MAX], depth, sure);
        }
        let rest = |from: usize| &words[from..];
        if let Some(launched) = program_launchers::launched(name, arguments) {
            self.candidates(&launched, depth, sure);
            if launched.anywhere {
                for from in (1..words.len()).filter(|from| words[*from].literal().is_some()) {
                    self.start(rest(from), depth, sure, launched.open);
                }
            }
        } else if !is_shell(name) && !is_coded(name) && !program_launchers::starts_nothing(name, arguments) {
            for from in (1..words.len()).filter(|from| words[*from].literal().is_some()) {
                self.start(rest(from), depth, false, false);
            }
            for text in
                arguments.iter().filter_map(Word::literal).filter(|text| text.contains(char::is_whitespace))
            {
                self.line(text.rsplit_once('=').map_or(text, |(_, value)| value), depth + 1, false);
                self.line(program_launchers::typed(text), depth + 1, false);
                self.input_text(text, depth, false);
            }
        }
    }

    fn candidates(&mut self, launched: &LaunchedPrograms<'_>, depth: usize, sure: bool) {
        for program in launched.programs.iter().filter(|program| !program.is_empty()) {
            self.start(program, depth, sure, launched.open);
        }
    }

    /// One program with its arguments, and what these start without being programs themselves.
    fn start(&mut self, words: &[Word], depth: usize, sure: bool, open: bool) {
        let Some((first, arguments)) = words.split_first() else { return };
        if self.starts.len() >= STARTS_MAX {
            self.opaque = true;
            return;
        }
        let Some(program) = first.literal().map(program_name) else {
            self.opaque |= sure;
            return;
        };
        let start = StartedProgram::new(program, arguments, sure, open);
        if !self.known.insert(start.clone()) {
            return;
        }
        self.starts.push(start);
        // Each of git's commands is also a program of its own.
        if let Some(verb) = program.strip_prefix("git-").filter(|verb| !verb.is_empty()) {
            let words: Vec<Word> = ["git", verb].map(|word| Word::Literal(word.to_owned())).into();
            self.start(&[&words, arguments].concat(), depth, sure, open);
        }
        for text in arguments.iter().map(Word::text) {
            if let Some((name, value)) = text.split_once('=') {
                self.assignment(name, value, depth, sure);
            }
            if program_launchers::is_listed(COMPUTING, program) {
                self.subscript(text, depth, sure);
            }
        }
        self.opaque |= sure && renames_program(program, arguments);
        match program {
            // These change what a name means for the commands that follow.
            "alias" | "hash" | "enable" if !arguments.is_empty() => {
                self.renames(program, arguments, depth, sure)
            }
            _ if is_shell(program) => self.shell(program, arguments, depth, sure),
            _ if is_coded(program) => self.code(arguments, depth, sure),
            _ => {}
        }
        if let Some(launched) = program_launchers::launched(program, arguments) {
            self.opaque |= sure && launched.unknown;
            for line in &launched.lines {
                self.line(line, depth + 1, sure);
            }
            if !launched.anywhere {
                self.candidates(&launched, depth + 1, sure);
            }
        }
    }

    fn renames(&mut self, program: &str, arguments: &[Word], depth: usize, sure: bool) {
        self.opaque |= sure;
        for text in arguments.iter().map(Word::text).filter(|_| program == "alias") {
            self.line(text.split_once('=').map_or("", |(_, value)| value), depth + 1, sure);
        }
    }

    fn shell(&mut self, program: &str, arguments: &[Word], depth: usize, sure: bool) {
        let is_file = matches!(program, "source" | ".");
        for argument in arguments {
            match argument.literal() {
                None => self.opaque |= sure,
                Some(text) if text.starts_with('-') || is_file => {}
                Some(text) => self.line(text, depth + 1, sure),
            }
        }
        if program == "eval" {
            let joined = arguments.iter().map(Word::text).collect::<Vec<_>>().join(" ");
            self.line(&joined, depth + 1, sure);
        }
        // `curl x | sh`: what it would run is not in the line.
        self.opaque |= sure && !arguments.iter().any(|word| !word.text().starts_with('-'));
    }

    /// A program in another language: every word of it may be the name of a program.
    fn code(&mut self, arguments: &[Word], depth: usize, sure: bool) {
        for text in arguments.iter().map(Word::text).filter(|text| text.contains(|c: char| !is_word(c))) {
            let lower = text.replace("||", " ").to_lowercase();
            let runs = RUNNING.iter().any(|word| lower.contains(word));
            self.opaque |= sure && runs;
            let words: Vec<Word> = text
                .split(|c: char| !is_word(c))
                .filter(|word| !word.is_empty())
                .map(|word| Word::Literal(word.to_owned()))
                .collect();
            for from in 0..words.len() {
                let end = words.len().min(from + CODE_WORDS_MAX);
                let start = StartedProgram::new(
                    program_name(words[from].text()),
                    &words[from + 1..end],
                    sure && runs,
                    false,
                );
                if self.starts.len() < STARTS_MAX && self.known.insert(start.clone()) {
                    self.starts.push(start);
                }
            }
            if depth < NESTING_MAX {
                self.quoted(text, depth, sure && runs);
            }
        }
    }

    /// The strings of a program in another language.
    fn quoted(&mut self, text: &str, depth: usize, sure: bool) {
        for quote in ['"', '\'', '`'] {
            for part in text.split(quote).skip(1).step_by(2).filter(|part| part.contains(char::is_whitespace))
            {
                let before = self.opaque;
                self.line(part, depth + 1, sure);
                // A text that is not a line of shell does not make the line opaque.
                self.opaque = before;
            }
        }
    }
}

/// Whether this command gives a program another name, under which no rule knows it.
fn renames_program(program: &str, arguments: &[Word]) -> bool {
    if !matches!(program, "cp" | "ln" | "mv" | "install" | "rsync" | "dd" | "link") {
        return false;
    }
    let leads = |word: &Word| is_system_program(word);
    let operands: Vec<&Word> = arguments.iter().filter(|word| !word.text().starts_with('-')).collect();
    // The last operand is the target, unless an option gave it before.
    let option = arguments.iter().any(|word| word.text().starts_with("-t") || word.text().starts_with("--t"));
    let sources = operands.len().saturating_sub(usize::from(!option && program != "dd"));
    operands.into_iter().take(sources).any(leads)
}

/// A word that names a program of the system: `/usr/bin/git`, `if=/bin/sh`, `$(which git)`.
fn is_system_program(word: &Word) -> bool {
    const FOLDERS: [&str; 6] =
        ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/lib/git-core/"];
    let text = word.text().strip_prefix("if=").unwrap_or(word.text()).trim_matches(['"', '\'']);
    let asked = ["which ", "command -v ", "type -p ", "type -P "];
    FOLDERS.iter().any(|folder| text.starts_with(folder))
        || word.literal().is_none() && asked.iter().any(|verb| text.contains(verb))
}

pub(super) fn is_shell(name: &str) -> bool {
    program_launchers::is_listed(SHELLS, name)
}

fn is_coded(name: &str) -> bool {
    interprets(name) || program_launchers::is_listed(EDITORS, name)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_-./=@%+".contains(c)
}

/// Whether a command runs what another one of the line prints, or what it has as its input.
fn runs_its_input(command: &SimpleCommand) -> bool {
    const READERS: &str = "at batch crontab parallel xargs ssh tmux make gmake bmake just";
    let fed = command.position.pipe.is_some_and(|pipe| pipe.stage > 0)
        || command.redirects.iter().any(|redirect| redirect.kind == RedirectKind::InlineText)
        || command.argv.iter().any(|word| word.literal().is_none() && word.text().contains('('))
        || matches!(command.position.nesting, Nesting::Substitution(_));
    let runs = |(at, word): (usize, &Word)| {
        let name = program_name(word.text());
        let own = || {
            matches!(name, "sed" | "gsed")
                && program_launchers::launched(name, &command.argv[at + 1..]).is_some()
        };
        is_shell(name) || is_coded(name) || program_launchers::is_listed(READERS, name) || own()
    };
    fed && command.argv.iter().enumerate().any(runs)
}
