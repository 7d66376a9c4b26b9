//! What an "always" answer may cover, and whether a rule about a program covers a line.
//!
//! A rule is a list of words such as `git status`. It covers a line only if every command of the line begins with these
//! words and nothing about the line is in doubt. So a rule cannot be stretched by chaining, substituting, redirecting
//! or wrapping. For denials the question is the other way around: there a rule applies to a line if any command anywhere
//! in it, behind any wrapper, begins with the words (`rules::command_line`).

use std::path::Path;

use engine::Risk;

use super::wrapper_programs::{is_assignment, is_shell};
use super::{Workplace, assess_command, dangerous_programs, git_commands, plain_name};
use crate::program_launchers;
use crate::shell::{self, RedirectKind, SimpleCommand, Word};

/// What an "always" answer may cover for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandScope {
    /// Every command that begins with these words.
    Program(Vec<String>),
    /// Exactly this line.
    Exact,
}

/// Variables that only change the output of a program.
const OUTPUT_VARIABLES: [&str; 14] = [
    "RUST_LOG",
    "RUST_BACKTRACE",
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "COLUMNS",
    "LINES",
    "TERM",
    "TZ",
    "LANG",
    "LC_ALL",
    "CARGO_TERM_COLOR",
    "PYTHONUNBUFFERED",
];

/// What "always allow" on this line may cover.
pub fn scope_of_always(line: &str) -> CommandScope {
    let script = shell::read(line);
    let place = Workplace { cwd: Path::new("/somewhere"), roots: &[], home: None };
    if assess_command(line, &place).risk >= Risk::High {
        return CommandScope::Exact;
    }
    let mut scopes = script.commands.iter().map(prefix);
    let Some(Some(first)) = scopes.next() else { return CommandScope::Exact };
    let same = scopes.all(|scope| scope.as_ref() == Some(&first));
    if same && covers(&first, line) { CommandScope::Program(first) } else { CommandScope::Exact }
}

/// Whether a rule that allows commands beginning with these words allows the whole line.
pub fn covers(scope_tokens: &[String], line: &str) -> bool {
    let script = shell::read(line);
    !scope_tokens.is_empty()
        && script.doubts.is_empty()
        && !script.commands.is_empty()
        && script.commands.iter().all(|command| covered(scope_tokens, command))
}

/// Whether one command begins with these words, and does nothing besides.
pub(crate) fn covered(tokens: &[String], command: &SimpleCommand) -> bool {
    let quiet = command
        .assignments
        .iter()
        .all(|(name, value)| OUTPUT_VARIABLES.contains(&name.as_str()) && value.literal().is_some());
    let dry = command
        .redirects
        .iter()
        .all(|redirect| redirect.kind != RedirectKind::InlineText && !redirect.writes());
    let Some(words) = unwrapped(&command.argv) else { return false };
    let Some(program) = words.first().and_then(Word::literal).and_then(plain_name) else { return false };
    if program == "git"
        && tokens.first().is_some_and(|first| first == "git")
        && git_commands::is_steered(&words[1..])
    {
        return false;
    }
    quiet && dry && begins(tokens, program, words) && !runs_others(program, words, tokens)
}

/// Without the wrappers that an allowance may look through: those that change nothing.
fn unwrapped(argv: &[Word]) -> Option<&[Word]> {
    let mut rest = argv;
    while let Some((first, arguments)) = rest.split_first() {
        match first.literal()? {
            "command" | "exec" | "nohup" | "time" | "nice" => rest = arguments,
            "env" => {
                let talks = |word: &&Word| {
                    word.literal()
                        .and_then(|text| text.split_once('='))
                        .is_some_and(|(name, _)| OUTPUT_VARIABLES.contains(&name))
                };
                let count = arguments.iter().take_while(talks).count();
                rest = &arguments[count..];
            }
            text if text.starts_with('-') || is_assignment(text) => return None,
            _ => return Some(rest),
        }
    }
    None
}

fn begins(tokens: &[String], program: &str, words: &[Word]) -> bool {
    let rest = words[1..].iter().map(Word::literal);
    let mut said = std::iter::once(Some(program)).chain(rest);
    tokens.iter().all(|token| said.next() == Some(Some(token)))
}

/// Options that make an otherwise ordinary program run another one, or write somewhere else, are never
/// covered by its name. A rule that names the option itself says so.
const NEVER_COVERED: &[(&str, &str)] = &[
    ("find gfind", "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls"),
    ("fd fdfind", "-x -X --exec --exec-batch"),
    ("rg", "--pre --hostname-bin"),
    ("sort gsort", "-o --output --compress-program"),
    (
        "git",
        "--output --ext-diff --textconv --upload-pack --receive-pack --exec --open-files-in-pager --extcmd",
    ),
    ("tree", "-o --output"),
    (
        "tar bsdtar gtar",
        "-I -F --to-command --checkpoint-action --use-compress-program --rsh-command --info-script --new-volume-script",
    ),
    ("rsync", "-e --rsh --rsync-path"),
    ("scp sftp", "-S -o"),
    ("split", "--filter"),
    ("man", "-P -H --pager --html"),
    ("less more", "-o -O --log-file --LOG-FILE"),
    ("make gmake", "--eval"),
    ("go", "-exec -toolexec -vettool -overlay"),
    ("cargo", "--config -Z"),
    ("npm pnpm yarn", "--script-shell --node-options"),
    ("curl", "-o -O -K --output --output-dir --remote-name --config"),
    ("wget", "-O -P --output-document --directory-prefix --use-askpass --config"),
    ("date", "-s --set"),
    ("sed gsed", "-i --in-place"),
    ("yq", "-i --inplace"),
    ("zip", "-TT --unzip-command"),
    ("gcc g++ cc clang", "-wrapper -fplugin"),
    ("xxd", "-r -revert"),
    ("file", "-C --compile"),
    ("journalctl", "--vacuum-size --vacuum-time --vacuum-files --rotate --flush"),
    ("pytest", "-p --rootdir --confcutdir"),
    ("eslint", "--rulesdir --resolve-plugins-relative-to"),
    ("prettier", "--plugin --plugin-search-dir"),
];

fn runs_others(program: &str, words: &[Word], tokens: &[String]) -> bool {
    let arguments = &words[1..];
    let options = NEVER_COVERED.iter().filter(|(names, _)| program_launchers::is_listed(names, program));
    let is_one = |text: &str| {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        options.clone().flat_map(|(_, options)| options.split_ascii_whitespace()).any(|known| {
            match known.strip_prefix("--") {
                // Long options may be abbreviated.
                Some(_) => name.len() >= 3 && known.starts_with(name),
                None if known.len() == 2 => {
                    text.starts_with('-') && !text.starts_with("--") && text[1..].contains(&known[1..])
                }
                None => name == known,
            }
        })
    };
    let runs = arguments
        .iter()
        .map(Word::text)
        .any(|text| !tokens.iter().any(|token| token == text) && is_one(text));
    // Words of git that run what follows are in the rule itself if they are meant.
    let meant = tokens.iter().any(|token| {
        matches!(token.as_str(), "run" | "foreach" | "config" | "filter-branch" | "difftool" | "mergetool")
    });
    runs || (program == "git" && !meant && program_launchers::launched("git", arguments).is_some())
}

/// The words that say what kind of command this is.
fn prefix(command: &SimpleCommand) -> Option<Vec<String>> {
    let words = unwrapped(&command.argv)?;
    let program = words.first()?.literal().and_then(plain_name)?;
    if is_shell(program) || never_by_name(program) || program_launchers::starts_anything(program) {
        return None;
    }
    let arguments: Vec<&str> = words[1..].iter().map_while(Word::literal).collect();
    if reaches_others(program, &arguments) {
        return None;
    }
    // `bundle exec rspec` and `uv run pytest` are kinds of commands, `uv run bash` is any command.
    let runs_another =
        arguments.first().is_some_and(|verb| program_launchers::is_starting_verb(program, verb));
    let another = arguments.get(1).copied().unwrap_or_default();
    if runs_another
        && (is_shell(another)
            || dangerous_programs::interprets(another)
            || program_launchers::starts_anything(another))
    {
        return None;
    }
    let mut scope = vec![program.to_owned()];
    if dangerous_programs::interprets(program) {
        let ["-m", module, ..] = arguments.as_slice() else { return None };
        if program_launchers::is_listed(OPEN_MODULES, module) {
            return None;
        }
        scope.extend(["-m".to_owned(), (*module).to_owned()]);
        return Some(scope);
    }
    for token in arguments.iter().take(arity(program, &arguments) - 1) {
        if token.starts_with('-') {
            return None;
        }
        scope.push((*token).to_owned());
    }
    (scope.len() == arity(program, &arguments)).then_some(scope)
}

/// Verbs that change something outside this machine, or bring programs to it: where to and which is in the rest
/// of the line, so that one is never a kind of all.
const REACH_OTHERS: &[(&str, &str)] = &[
    ("git", "push send-email request-pull svn p4"),
    ("hg jj sl", "push"),
    ("cargo", "publish yank owner login logout install add"),
    ("npm pnpm yarn bun", "publish unpublish deprecate dist-tag access owner login add install i update"),
    ("pip pip3 uv poetry pipx pdm", "install add publish upload sync tool"),
    ("gem bundle", "push install add yank"),
    ("go", "get install"),
    ("brew apt apt-get dnf yum pacman apk snap", "install remove upgrade update"),
    ("gh glab", "create merge close delete edit release api secret auth comment review rerun upload"),
    ("aws gcloud az", "s3 s3api storage iam ec2 lambda cp rm mv sync create delete update deploy"),
    ("terraform tofu pulumi", "apply destroy import state up"),
    ("helm", "install upgrade uninstall rollback push"),
    ("systemctl", "start stop restart reload enable disable mask edit"),
    ("rustup", "install update toolchain component target"),
    ("mvn gradle", "deploy publish release"),
    ("dotnet", "nuget publish add"),
    ("composer mix deno", "require install publish hex.publish deploy"),
];

/// Modules of Python's that run any file or install any package.
const OPEN_MODULES: &str =
    "pip pipx uv twine ensurepip venv virtualenv http.server runpy timeit pdb trace cProfile profile code";

fn reaches_others(program: &str, arguments: &[&str]) -> bool {
    // These have a noun before the verb.
    let words = if program_launchers::is_listed("gh glab aws gcloud az", program) { 2 } else { 1 };
    let verbs = REACH_OTHERS.iter().filter(|(names, _)| program_launchers::is_listed(names, program));
    verbs
        .flat_map(|(_, verbs)| verbs.split_ascii_whitespace())
        .any(|verb| arguments.iter().take(words).any(|said| *said == verb))
}

/// Programs whose name says nothing about what they will do.
fn never_by_name(program: &str) -> bool {
    matches!(
        program,
        "eval"
            | "source"
            | "."
            | "sudo"
            | "doas"
            | "su"
            | "ssh"
            | "xargs"
            | "parallel"
            | "watch"
            | "env"
            | "rm"
            | "rmdir"
            | "unlink"
            | "shred"
            | "truncate"
            | "sed"
            | "gsed"
            | "ed"
            | "dd"
            | "chmod"
            | "chown"
            | "kill"
            | "docker"
            | "podman"
            | "kubectl"
            | "npx"
            | "bunx"
            | "curl"
            | "wget"
            | "nc"
            | "psql"
            | "mysql"
            | "export"
            | "alias"
            | "trap"
            | "set"
            | "tar"
            | "rsync"
            | "scp"
            | "find"
            | "timeout"
            | "stdbuf"
            | "setsid"
            | "strace"
            | "tee"
            | "cp"
            | "mv"
            | "ln"
    )
}

/// How many words name what a command does.
fn arity(program: &str, arguments: &[&str]) -> usize {
    match (program, arguments.first().copied()) {
        ("npm" | "pnpm" | "yarn" | "bun" | "uv" | "poetry", Some("run")) => 3,
        (program, Some(verb)) if program_launchers::is_starting_verb(program, verb) => 3,
        ("git", Some("remote" | "stash" | "worktree" | "submodule" | "config" | "bisect")) => {
            arguments.len().min(2) + 1
        }
        ("gh" | "aws" | "gcloud", Some(_)) => arguments.len().min(2) + 1,
        (
            "git" | "cargo" | "npm" | "pnpm" | "yarn" | "bun" | "go" | "pip" | "pip3" | "uv" | "poetry"
            | "make" | "just" | "rustup" | "brew" | "apt" | "apt-get" | "systemctl" | "terraform" | "helm"
            | "mvn" | "gradle" | "bundle" | "gem" | "dotnet" | "deno" | "composer" | "mix",
            Some(_),
        ) => 2,
        _ => 1,
    }
}
