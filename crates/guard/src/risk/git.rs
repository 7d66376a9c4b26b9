//! git: which of its commands only read, and which lose work.

use engine::Risk;

use super::Finding;
use super::options::{Harmless, has, names, operands, texts};
use crate::shell::Word;

/// The subcommand and what follows it, behind options for git itself.
pub(super) fn subcommand(arguments: &[Word]) -> Option<(&str, &[Word])> {
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

/// Whether a git command only shows something, without any option that writes or runs programs.
pub(super) fn only_reads(arguments: &[Word]) -> bool {
    if is_steered(arguments) {
        return matches!(arguments, [only] if only.text() == "--version");
    }
    let Some((name, rest)) = subcommand(arguments) else { return false };
    match name {
        "branch" => branch_lists(rest),
        "tag" => {
            rest.is_empty()
                || matches!(rest, [list, ..] if matches!(list.text(), "-l" | "--list"))
                    && LISTING.admits(rest)
        }
        "remote" => {
            rest.is_empty() || matches!(rest, [verbose] if matches!(verbose.text(), "-v" | "--verbose"))
        }
        "stash" => matches!(rest, [list] if list.text() == "list"),
        "worktree" => matches!(rest, [list] if list.text() == "list"),
        "config" => {
            matches!(rest, [get, _] if get.text() == "--get")
                || matches!(rest, [list] if matches!(list.text(), "-l" | "--list"))
        }
        "reflog" => rest.is_empty() || matches!(rest, [show, ..] if show.text() == "show"),
        "status" | "log" | "diff" | "show" | "shortlog" | "rev-parse" | "rev-list" | "ls-files"
        | "ls-tree" | "blame" | "describe" | "merge-base" | "cat-file" | "name-rev" | "show-ref"
        | "for-each-ref" | "whatchanged" | "diff-tree" | "count-objects" | "grep" | "check-ignore"
        | "version" => name != "grep" && SHOWING.admits(rest) || name == "grep" && GREP.admits(rest),
        _ => false,
    }
}

fn branch_lists(rest: &[Word]) -> bool {
    let listing = names(
        rest,
        &["--list", "-l", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"],
    );
    LISTING.admits(rest) && (listing || operands(rest).count() == 0)
}

const LISTING: Harmless = Harmless {
    short: "avrlni",
    valued: "",
    long: &[
        "all",
        "list",
        "remotes",
        "verbose",
        "show-current",
        "contains",
        "no-contains",
        "merged",
        "no-merged",
        "sort",
        "format",
        "points-at",
        "column",
        "no-column",
        "color",
        "no-color",
        "ignore-case",
    ],
    operands_max: usize::MAX,
};

const GREP: Harmless = Harmless {
    short: "nilLwvcoqhHEFGPI",
    valued: "ABCe",
    long: &[
        "line-number",
        "ignore-case",
        "files-with-matches",
        "name-only",
        "word-regexp",
        "count",
        "cached",
        "untracked",
        "extended-regexp",
        "fixed-strings",
        "heading",
        "break",
        "column",
        "max-depth",
        "and",
        "or",
        "not",
    ],
    operands_max: usize::MAX,
};

/// Neither `--output`, `--ext-diff`, `--textconv`, `--exec` nor anything that is not known.
const SHOWING: Harmless = Harmless {
    short: "pusbwzaqnMCDRrtc0123456789vEFPil",
    valued: "nLUSGBOX",
    long: &[
        "oneline",
        "stat",
        "shortstat",
        "numstat",
        "dirstat",
        "summary",
        "name-only",
        "name-status",
        "patch",
        "no-patch",
        "graph",
        "all",
        "decorate",
        "no-decorate",
        "abbrev-commit",
        "no-abbrev-commit",
        "abbrev",
        "author",
        "committer",
        "since",
        "until",
        "after",
        "before",
        "grep",
        "format",
        "pretty",
        "date",
        "reverse",
        "merges",
        "no-merges",
        "first-parent",
        "follow",
        "max-count",
        "skip",
        "branches",
        "tags",
        "remotes",
        "cached",
        "staged",
        "word-diff",
        "color",
        "no-color",
        "color-words",
        "ignore-all-space",
        "ignore-space-change",
        "ignore-blank-lines",
        "unified",
        "diff-filter",
        "find-renames",
        "find-copies",
        "no-renames",
        "raw",
        "minimal",
        "patience",
        "histogram",
        "check",
        "exit-code",
        "quiet",
        "relative",
        "no-ext-diff",
        "no-textconv",
        "short",
        "porcelain",
        "branch",
        "untracked-files",
        "ignored",
        "long",
        "verbose",
        "show-toplevel",
        "git-dir",
        "is-inside-work-tree",
        "abbrev-ref",
        "verify",
        "symbolic-full-name",
        "show-prefix",
        "show-cdup",
        "absolute-git-dir",
        "git-common-dir",
        "others",
        "modified",
        "deleted",
        "exclude-standard",
        "stage",
        "full-name",
        "error-unmatch",
        "directory",
        "count",
        "left-right",
        "cherry-pick",
        "cherry",
        "topo-order",
        "date-order",
        "simplify-by-decoration",
        "parents",
        "children",
        "objects",
        "no-walk",
        "heads",
        "dereference",
        "always",
        "dirty",
        "long",
        "match",
        "contains",
        "exact-match",
        "sort",
        "numbered",
        "email",
        "root",
        "no-commit-id",
        "line-porcelain",
        "incremental",
        "show-stash",
        "ahead-behind",
        "no-ahead-behind",
        "full-history",
        "full-index",
        "stdin",
        "is-ancestor",
        "fork-point",
        "merge",
        "no-index",
        "pickaxe-regex",
        "pickaxe-all",
        "no-prefix",
        "points-at",
        "no-column",
        "column",
        "refs",
    ],
    operands_max: usize::MAX,
};

/// What git commands do that cannot be taken back, or is seen by others.
pub(super) fn danger(words: &[Word], arguments: &[Word]) -> Option<Finding> {
    let found = |risk, what| Some(Finding::new(risk, what, words));
    if runs_settings(arguments) {
        return found(Risk::High, "makes git run another program");
    }
    let (name, rest) = subcommand(arguments)?;
    let first = rest.first().map(Word::text).unwrap_or_default();
    match name {
        "push"
            if has(rest, "f", &["force", "force-with-lease", "mirror", "delete", "prune"])
                || has(rest, "d", &[]) =>
        {
            found(Risk::High, "overwrites what others may have on the server")
        }
        "push" if operands(rest).any(|word| word.text().starts_with(['+', ':'])) => {
            found(Risk::High, "overwrites what others may have on the server")
        }
        "push" => found(Risk::Medium, "sends commits to a server"),
        "reset" if names(rest, &["--hard", "--merge", "--keep"]) => found(Risk::High, "discards changes"),
        "clean" if has(rest, "fdxX", &["force"]) && !has(rest, "n", &["dry-run"]) => {
            found(Risk::High, "removes files that git does not know")
        }
        "checkout" | "restore" if discards(name, rest) => found(Risk::High, "discards changes"),
        "switch" if has(rest, "fC", &["force", "discard-changes", "force-create"]) => {
            found(Risk::High, "discards changes")
        }
        "stash" if matches!(first, "drop" | "clear") => found(Risk::High, "discards changes"),
        "branch"
            if has(rest, "DMC", &["force"])
                || (has(rest, "d", &["delete"]) && has(rest, "f", &["force"])) =>
        {
            found(Risk::High, "removes a branch with its commits")
        }
        "filter-branch" | "filter-repo" => found(Risk::High, "rewrites the history"),
        "reflog" if matches!(first, "expire" | "delete") => {
            found(Risk::High, "removes the way back to lost commits")
        }
        "gc" if names(rest, &["--prune"]) => found(Risk::High, "removes the way back to lost commits"),
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
            found(Risk::High, "changes git's settings for everything")
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
    ]
    .iter()
    .any(|known| name.starts_with(known))
        || (name.starts_with("diff.")
            || name.starts_with("merge.")
            || name.starts_with("remote.")
            || name.starts_with("url."))
}
