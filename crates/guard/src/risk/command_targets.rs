//! What a command touches: the files behind its redirections and among its words, the variables that it sets, and the
//! folder that it changes to.

use std::path::{Component, Path, PathBuf};

use engine::Risk;

use super::command_options::{operands, texts};
use super::sensitive_paths::special_in;
use super::{CommandContext, FileAccess, Finding, Workplace};
use crate::shell::{Redirect, RedirectKind, SimpleCommand, Word};

/// A longer word is not taken for a file name pattern.
const PATTERN_BYTES_MAX: usize = 64;

/// Variables that make programs load or run something else.
pub(super) fn assignment(name: &str, value: &Word) -> Finding {
    let harmless_value = matches!(value.text(), "cat" | "" | "true" | ":" | "less" | "0" | "1");
    let steers = matches!(
        name,
        "BASH_ENV"
            | "ENV"
            | "PROMPT_COMMAND"
            | "PS4"
            | "IFS"
            | "SHELLOPTS"
            | "BASHOPTS"
            | "PYTHONSTARTUP"
            | "PERL5OPT"
            | "PERL5LIB"
            | "RUBYOPT"
            | "RUBYLIB"
            | "NODE_OPTIONS"
            | "JAVA_TOOL_OPTIONS"
            | "RUSTC_WRAPPER"
            | "RUSTC"
            | "PAGER"
            | "MANPAGER"
            | "EDITOR"
            | "VISUAL"
            | "LESSOPEN"
            | "LESSCLOSE"
            | "BROWSER"
            | "SUDO_ASKPASS"
            | "SSH_ASKPASS"
            | "HISTFILE"
            | "HISTSIZE"
            | "HISTCONTROL"
    ) || ["LD_", "DYLD_", "GIT_", "BASH_FUNC_"].iter().any(|prefix| name.starts_with(prefix));
    let quote = format!("{name}={}", value.text());
    if steers && !harmless_value {
        return Finding::text(Risk::High, "changes what other programs load or run", &quote);
    }
    Finding::text(Risk::Medium, "sets a variable", &quote)
}

pub(super) fn redirect(redirect: &Redirect, place: &Workplace) -> Option<Finding> {
    match redirect.kind {
        RedirectKind::Duplicate => None,
        RedirectKind::InlineText => {
            Some(Finding::text(Risk::Medium, "has a here-document as input", redirect.target.text()))
        }
        RedirectKind::Read => {
            let reads = Finding::text(Risk::Medium, "takes a file as input", redirect.target.text());
            Some(worse(reads, touched(FileAccess::Read, &redirect.target, place)))
        }
        RedirectKind::Write if redirect.writes() => {
            let writes = Finding::text(Risk::Medium, "writes a file", redirect.target.text());
            Some(worse(writes, touched(FileAccess::Write, &redirect.target, place)))
        }
        RedirectKind::Write => None,
    }
}

fn worse(first: Finding, second: Option<Finding>) -> Finding {
    match second {
        Some(second) if second.risk >= first.risk => second,
        _ => first,
    }
}

/// The finding about a sensitive file that a word names, if it is one.
pub(super) fn touched(want: FileAccess, word: &Word, place: &Workplace) -> Option<Finding> {
    let written = word.text().trim_matches(['"', '\'']);
    if written.contains("/dev/tcp/") || written.contains("/dev/udp/") {
        return Some(Finding::text(Risk::Critical, "opens a connection to another machine", written));
    }
    let path = absolute(written, place);
    let inside = path.as_deref().is_some_and(|path| is_inside(path, place));
    let shown = path.as_deref().map_or_else(|| written.into(), Path::to_string_lossy);
    if let Some((risk, what)) = special_in(want, &shown, inside) {
        return Some(Finding::text(risk, what, written));
    }
    let elsewhere = path.is_some_and(|path| !is_inside(&path, place) && !is_scratch(&path));
    (want == FileAccess::Write && elsewhere && !is_stream(written))
        .then(|| Finding::text(Risk::High, "writes outside the workspace", written))
}

fn is_stream(path: &str) -> bool {
    matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty" | "-")
}

/// The file that a word means, as far as its text determines it.
fn absolute(written: &str, place: &Workplace) -> Option<PathBuf> {
    let home = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|prefix| written.strip_prefix(prefix));
    if let Some(rest) = home {
        return Some(clean(&place.home.unwrap_or(Path::new("/home/someone")).join(rest)));
    }
    if matches!(written, "~" | "$HOME" | "${HOME}") {
        return Some(place.home.unwrap_or(Path::new("/home/someone")).into());
    }
    (!written.contains(['$', '`'])).then(|| clean(&place.cwd.join(written)))
}

/// Without `.` and `..`, by name alone.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            other => out.push(other),
        }
    }
    out
}

/// A workspace at `/` contains nothing: the system's files still belong to the system.
fn is_inside(path: &Path, place: &Workplace) -> bool {
    let roots = std::iter::once(place.cwd).chain(place.roots.iter().map(PathBuf::as_path));
    roots.filter(|root| root.parent().is_some()).any(|root| path.starts_with(root))
}

fn is_scratch(path: &Path) -> bool {
    ["/tmp", "/private/tmp", "/var/tmp", "/var/folders"].iter().any(|folder| path.starts_with(folder))
}

/// Whether `cd` with these words goes out of the workspace, or to a folder that is not known.
pub(super) fn leaves(arguments: &[Word], context: CommandContext) -> bool {
    let [Word::Literal(target)] = arguments else { return true };
    // Where `cd -` and options lead is unknown; a relative path means something else after another `cd`.
    target.is_empty()
        || target.starts_with('-')
        || (context.moved && !target.starts_with('/'))
        || !is_inside(&clean(&context.place.cwd.join(target)), context.place)
}

/// Whether the commands that follow run neither in the folder where the line began nor at the top of a root.
pub(super) fn moves_away(command: &SimpleCommand, place: &Workplace) -> bool {
    let words = super::wrapper_programs::unwrapped_command(&command.argv);
    match words.first().map(Word::text) {
        Some("cd") => {}
        Some("pushd" | "popd") => return true,
        _ => return false,
    }
    let [_, Word::Literal(target)] = words else { return true };
    let target = clean(&place.cwd.join(target));
    target != place.cwd && !place.roots.contains(&target)
}

/// The sensitive files among the words of a command. For programs that write, the words that they write to count.
pub(super) fn named_files(name: &str, words: &[Word], arguments: &[Word], place: &Workplace) -> Vec<Finding> {
    let mut found = Vec::new();
    // Words that are only printed name no files.
    if matches!(name, "echo" | "printf" | "true" | "false" | "alias" | "export") {
        return found;
    }
    let prints_files = name == "git"
        && super::git_commands::subcommand(arguments).is_some_and(|(verb, _)| {
            matches!(verb, "grep" | "diff" | "log" | "show" | "diff-tree" | "whatchanged" | "stash")
        });
    for text in texts(arguments) {
        let value = text
            .split_once('=')
            .filter(|_| text.starts_with('-') || name == "dd")
            .map_or(text, |(_, value)| value);
        let value = value.strip_prefix('@').unwrap_or(value);
        // `git show HEAD:.env`
        let value = value.rsplit_once(':').filter(|_| name == "git").map_or(value, |(_, file)| file);
        if value.is_empty() || value.len() > 4096 || (value.contains([' ', '\n']) && !value.contains('/')) {
            continue;
        }
        if prints_files
            && value.len() <= PATTERN_BYTES_MAX
            && super::grep_secret_exposure::may_match_secrets(text)
        {
            found.push(Finding::new(Risk::High, "touches a file with secrets", words));
        }
        let word = Word::Unknown(value.to_owned());
        if let Some(finding) = touched(FileAccess::Read, &word, place) {
            found.push(Finding { quote: Finding::new(finding.risk, "", words).quote, ..finding });
        }
    }
    for target in written(name, arguments) {
        if let Some(finding) = touched(FileAccess::Write, &target, place) {
            found.push(Finding { quote: Finding::new(finding.risk, "", words).quote, ..finding });
        }
    }
    found
}

/// The words that a program writes to.
fn written(name: &str, arguments: &[Word]) -> Vec<Word> {
    let all = || operands(arguments).cloned().collect::<Vec<_>>();
    match name {
        "tee" | "touch" | "truncate" | "mkdir" | "rm" | "rmdir" | "unlink" | "shred" | "chmod" | "chown"
        | "chgrp" => all(),
        "cp" | "ln" | "install" | "rsync" | "scp" => {
            operands(arguments).last().cloned().into_iter().collect()
        }
        "mv" => all(),
        "sed" | "perl"
            if texts(arguments).any(|text| {
                text.starts_with("-i") || text.starts_with("--in-place") || text.starts_with("-pi")
            }) =>
        {
            all()
        }
        "dd" => texts(arguments)
            .filter_map(|text| text.strip_prefix("of="))
            .map(|path| Word::Unknown(path.into()))
            .collect(),
        "curl" | "wget" | "sort" | "gcc" | "cc" | "clang" | "rustc" | "go" => {
            let after = arguments
                .windows(2)
                .filter(|pair| matches!(pair[0].text(), "-o" | "-O" | "--output" | "--output-document"));
            after.map(|pair| pair[1].clone()).filter(|word| !word.text().starts_with('-')).collect()
        }
        _ => Vec::new(),
    }
}
