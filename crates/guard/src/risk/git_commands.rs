//! git: which of its subcommands lose work, and which make it run other programs.

use engine::Risk;

use super::Finding;
use super::command_options::{has, has_abbreviated, names, operands, texts};
use crate::shell::Word;

mod read_only;

pub(super) use read_only::only_reads;

/// The subcommand and what follows it, behind options for git itself.
pub(crate) fn subcommand(arguments: &[Word]) -> Option<(&str, &[Word])> {
    let mut rest = arguments;
    loop {
        let (first, after) = rest.split_first()?;
        match first.literal()? {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path" | "--config-env" => {
                rest = after.get(1..).unwrap_or_default();
            }
            option if option.starts_with('-') => rest = after,
            name => return Some((name, after)),
        }
    }
}

/// Whether there are options for git itself; some of them make it run anything (`-c core.pager=..`).
pub(super) fn is_steered(arguments: &[Word]) -> bool {
    let first =
        arguments.iter().find(|word| !matches!(word.text(), "--no-pager" | "-P" | "--no-optional-locks"));
    first.is_some_and(|word| word.text().starts_with('-'))
}

/// The danger of git commands that cannot be undone or that others see.
pub(super) fn danger(words: &[Word], arguments: &[Word]) -> Option<Finding> {
    let found = |risk, what| Some(Finding::new(risk, what, words));
    if runs_settings(arguments) {
        return found(Risk::High, "makes git run another program");
    }
    let (name, rest) = subcommand(arguments)?;
    let connects = matches!(
        name,
        "push" | "fetch" | "pull" | "clone" | "ls-remote" | "archive" | "grep" | "difftool" | "mergetool"
    );
    if connects && crate::program_launchers::launched("git", arguments).is_some() {
        return found(Risk::High, "makes git run another program");
    }
    let first = rest.first().map(Word::text).unwrap_or_default();
    match name {
        "push"
            if has_abbreviated(rest, "f", &["force", "force-with-lease", "mirror", "delete", "prune"])
                || has(rest, "d", &[]) =>
        {
            found(Risk::High, "overwrites what others may have on the server")
        }
        "push" if operands(rest).any(|word| word.text().starts_with(['+', ':'])) => {
            found(Risk::High, "overwrites what others may have on the server")
        }
        "push" => found(Risk::Medium, "sends commits to a server"),
        "reset" if has_abbreviated(rest, "", &["hard", "merge", "keep"]) => {
            found(Risk::High, "discards changes")
        }
        "clean" if has_abbreviated(rest, "fdxX", &["force"]) && !has(rest, "n", &["dry-run"]) => {
            found(Risk::High, "removes files that git does not know")
        }
        "checkout" | "restore" if discards(name, rest) => found(Risk::High, "discards changes"),
        "switch" if has(rest, "fC", &["force", "discard-changes", "force-create"]) => {
            found(Risk::High, "discards changes")
        }
        "stash" if matches!(first, "drop" | "clear") => found(Risk::High, "discards changes"),
        "branch" if has_abbreviated(rest, "DMCf", &["force"]) => {
            found(Risk::High, "removes a branch with its commits")
        }
        "filter-branch" | "filter-repo" => found(Risk::High, "rewrites the history"),
        "reflog" if matches!(first, "expire" | "delete") => {
            found(Risk::High, "removes the reflog, which can restore lost commits")
        }
        "gc" if names(rest, &["--prune"]) => {
            found(Risk::High, "removes the reflog, which can restore lost commits")
        }
        "update-ref" | "replace" if has(rest, "d", &["delete"]) => {
            found(Risk::High, "removes a branch with its commits")
        }
        "rebase" if has(rest, "x", &["exec"]) => found(Risk::High, "makes git run another program"),
        "bisect" if first == "run" => found(Risk::Medium, "makes git run another program"),
        "submodule" if first == "foreach" => found(Risk::Medium, "makes git run another program"),
        "difftool" | "mergetool" if has(rest, "x", &["extcmd"]) => {
            found(Risk::High, "makes git run another program")
        }
        "config"
            if texts(rest).any(|text| text == "--global" || text == "--system") && !only_reads(arguments) =>
        {
            found(Risk::High, "changes git's global settings")
        }
        "config" if texts(rest).any(steers) => found(Risk::High, "makes git run another program"),
        _ => None,
    }
}

fn discards(name: &str, rest: &[Word]) -> bool {
    has(rest, "f", &["force"])
        || texts(rest).any(|text| text == "--")
        || texts(rest).any(|text| text == ".")
        || (name == "restore" && !has(rest, "S", &["staged"]))
}

/// `-c` with a setting that names a program, and the like.
fn runs_settings(arguments: &[Word]) -> bool {
    let own = arguments
        .windows(2)
        .any(|pair| matches!(pair[0].text(), "-c" | "--config-env") && steers(pair[1].text()));
    own || texts(arguments).any(|text| {
        text.starts_with("--exec-path=")
            || text.starts_with("--upload-pack")
            || text.starts_with("--receive-pack")
            || text.starts_with("--open-files-in-pager")
            || text.starts_with("ext::")
    })
}

/// Whether git runs the value of this setting.
pub(crate) fn setting_runs(key: &str) -> bool {
    steers(key)
}

fn steers(setting: &str) -> bool {
    let name = setting.split_once('=').map_or(setting, |(name, _)| name).to_lowercase();
    [
        "alias.",
        "pager.",
        "core.pager",
        "core.editor",
        "core.sshcommand",
        "core.fsmonitor",
        "core.hookspath",
        "core.gitproxy",
        "diff.external",
        "credential.",
        "filter.",
        "gpg.",
        "protocol.",
        "sequence.editor",
        "include",
        "http.proxy",
        "core.askpass",
        "uploadpack.packobjectshook",
    ]
    .iter()
    .any(|known| name.starts_with(known))
        || (name.starts_with("diff.")
            || name.starts_with("merge.")
            || name.starts_with("remote.")
            || name.starts_with("url."))
}
