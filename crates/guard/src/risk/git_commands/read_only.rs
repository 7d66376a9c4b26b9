//! git subcommands that only show something, with one list of allowed options for each.
//!
//! An option that is not on the list of its own subcommand counts as unknown, and so does an abbreviation, which git
//! would accept. Options that write (`--output`), run programs (`--ext-diff`, `--textconv`, `--show-signature`,
//! `--open-files-in-pager`) or read files outside the repository (`--contents`, `--ignore-revs-file`, `--no-index`)
//! are on none of the lists.

use super::super::command_options::{ReadOnlyOptions, operands, texts};
use super::{is_steered, subcommand};
use crate::shell::Word;

/// Whether a git command only shows something, without any option that writes or runs programs.
pub(in super::super) fn only_reads(arguments: &[Word]) -> bool {
    if is_steered(arguments) {
        return matches!(arguments, [only] if only.text() == "--version");
    }
    let Some((name, rest)) = subcommand(arguments) else { return false };
    // Signatures are checked by a program that the repository's settings name.
    if texts(rest).any(|text| text.contains("%G") || text.contains("signature")) {
        return false;
    }
    match name {
        "branch" => LISTING.admits(rest) && (operands(rest).next().is_none() || begins_listing(rest)),
        "tag" => LISTING.admits(rest) && (rest.is_empty() || begins_listing(rest)),
        "remote" => {
            rest.is_empty() || matches!(rest, [verbose] if matches!(verbose.text(), "-v" | "--verbose"))
        }
        "stash" => matches!(rest, [list, rest @ ..] if list.text() == "list" && LOG.admits(rest)),
        "worktree" => matches!(rest, [list, rest @ ..] if list.text() == "list" && WORKTREES.admits(rest)),
        "config" => {
            matches!(rest, [get, name] if get.text() == "--get" && !name.text().starts_with('-'))
                || matches!(rest, [list] if matches!(list.text(), "-l" | "--list"))
        }
        "reflog" => reflog(rest),
        _ => table(name).is_some_and(|options| options.admits(rest)),
    }
}

/// Only the first word counts: a later one may be the value of an option before it, and then what
/// follows is the name of a branch to make.
fn begins_listing(rest: &[Word]) -> bool {
    let first = rest.first().map(Word::text).unwrap_or_default();
    matches!(
        first.split_once('=').map_or(first, |(name, _)| name),
        "--list" | "-l" | "--contains" | "--no-contains" | "--merged" | "--no-merged" | "--points-at"
    )
}

/// Without the word `show` only if nothing but options follows, which must not name another subcommand.
fn reflog(rest: &[Word]) -> bool {
    match rest.first().map(Word::text) {
        None => true,
        Some("show") => LOG.admits(&rest[1..]),
        Some(option) if option.starts_with('-') => operands(rest).next().is_none() && LOG.admits(rest),
        Some(_) => false,
    }
}

/// The options of a subcommand that shows something whatever else it is given.
fn table(name: &str) -> Option<&'static ReadOnlyOptions> {
    let table = match name {
        "log" | "show" | "whatchanged" | "rev-list" => &LOG,
        "shortlog" => &SHORTLOG,
        "diff" => &DIFF,
        "diff-tree" => &DIFF_TREE,
        "status" => &STATUS,
        "rev-parse" => &REV_PARSE,
        "ls-files" => &LS_FILES,
        "ls-tree" => &LS_TREE,
        "blame" => &BLAME,
        "describe" => &DESCRIBE,
        "merge-base" => &MERGE_BASE,
        "cat-file" => &CAT_FILE,
        "name-rev" => &NAME_REV,
        "show-ref" => &SHOW_REF,
        "for-each-ref" => &FOR_EACH_REF,
        "count-objects" => &COUNT_OBJECTS,
        "grep" => &GREP,
        "check-ignore" => &CHECK_IGNORE,
        "version" => &VERSION,
        _ => return None,
    };
    Some(table)
}

/// How differences are shown.
const DIFFERENCES: &str = "patch no-patch stat shortstat numstat dirstat cumulative summary \
    compact-summary name-only name-status raw patch-with-stat patch-with-raw unified inter-hunk-context \
    function-context word-diff word-diff-regex color no-color color-words color-moved no-color-moved \
    color-moved-ws minimal patience histogram anchored diff-algorithm indent-heuristic \
    no-indent-heuristic ignore-all-space ignore-space-change ignore-space-at-eol ignore-cr-at-eol \
    ignore-blank-lines ignore-matching-lines ignore-submodules ws-error-highlight diff-filter \
    find-renames find-copies find-copies-harder no-renames rename-empty no-rename-empty break-rewrites \
    irreversible-delete full-index binary text abbrev no-abbrev relative no-relative no-ext-diff \
    no-textconv no-prefix default-prefix src-prefix dst-prefix line-prefix output-indicator-new \
    output-indicator-old output-indicator-context skip-to rotate-to pickaxe-regex pickaxe-all \
    find-object check exit-code quiet";

/// Which commits are shown, and how. Neither `--remerge-diff` nor `--diff-merges`, which write objects.
const COMMITS: &str = "oneline graph all decorate no-decorate decorate-refs decorate-refs-exclude \
    clear-decorations abbrev-commit no-abbrev-commit author committer since until after before \
    since-as-filter grep grep-reflog all-match invert-grep regexp-ignore-case basic-regexp \
    extended-regexp fixed-strings perl-regexp format pretty date relative-date reverse merges no-merges \
    min-parents max-parents no-min-parents no-max-parents first-parent exclude-first-parent-only follow \
    max-count skip branches tags remotes glob exclude reflog not merge boundary left-right left-only \
    right-only cherry-mark cherry-pick cherry walk-reflogs topo-order date-order author-date-order \
    no-walk do-walk simplify-by-decoration simplify-merges full-history dense sparse show-pulls \
    ancestry-path parents children objects source log-size mailmap no-mailmap use-mailmap notes \
    no-notes encoding expand-tabs no-expand-tabs root full-diff remove-empty no-diff-merges \
    combined-all-paths cc stdin show-linear-break count";

const ANY: usize = usize::MAX;

const LOG: ReadOnlyOptions = ReadOnlyOptions {
    short: "pusbwzaWRrtcmgiEFPqD0123456789",
    valued: "nLUSGBMCIl",
    long: &[COMMITS, DIFFERENCES],
    operands_max: ANY,
};

const SHORTLOG: ReadOnlyOptions = ReadOnlyOptions {
    short: "snecEFPi0123456789",
    valued: "w",
    long: &[COMMITS, "summary numbered email committer group"],
    operands_max: ANY,
};

const DIFF: ReadOnlyOptions = ReadOnlyOptions {
    short: "pusbwzaWRrtcqD0123456789",
    valued: "USGBMCIl",
    long: &[DIFFERENCES, "cached staged merge-base base ours theirs cc"],
    operands_max: ANY,
};

const DIFF_TREE: ReadOnlyOptions = ReadOnlyOptions {
    short: "pusbwzaWRrtcmvqD0123456789",
    valued: "USGBMCIl",
    long: &[DIFFERENCES, "stdin root no-commit-id cc always pretty format merge-base"],
    operands_max: ANY,
};

const STATUS: ReadOnlyOptions = ReadOnlyOptions {
    short: "sbvz",
    valued: "u",
    long: &[
        "short branch show-stash porcelain long verbose untracked-files ignored ignore-submodules column \
             no-column ahead-behind no-ahead-behind renames no-renames find-renames",
    ],
    operands_max: ANY,
};

const REV_PARSE: ReadOnlyOptions = ReadOnlyOptions {
    short: "q",
    valued: "",
    long: &["verify quiet short symbolic symbolic-full-name abbrev-ref all branches tags remotes glob not \
             show-toplevel show-prefix show-cdup git-dir absolute-git-dir git-common-dir git-path \
             path-format is-inside-git-dir is-inside-work-tree is-bare-repository is-shallow-repository \
             revs-only no-revs flags no-flags default since until after before show-object-format \
             disambiguate"],
    operands_max: ANY,
};

const LS_FILES: ReadOnlyOptions = ReadOnlyOptions {
    short: "cdomiskutvfz",
    valued: "x",
    long: &["cached deleted others ignored stage unmerged killed modified directory no-empty-directory eol \
             deduplicate exclude exclude-standard error-unmatch full-name abbrev format"],
    operands_max: ANY,
};

const LS_TREE: ReadOnlyOptions = ReadOnlyOptions {
    short: "drtlz",
    valued: "",
    long: &["name-only name-status object-only full-name full-tree long abbrev format"],
    operands_max: ANY,
};

const BLAME: ReadOnlyOptions = ReadOnlyOptions {
    short: "bcltsfnewp",
    valued: "LMC",
    long: &["root show-stats porcelain line-porcelain incremental date since show-name show-number \
             show-email minimal abbrev first-parent reverse color-lines color-by-age no-progress ignore-rev"],
    operands_max: ANY,
};

const DESCRIBE: ReadOnlyOptions = ReadOnlyOptions {
    short: "",
    valued: "",
    long: &["all tags contains abbrev candidates exact-match long match exclude always first-parent"],
    operands_max: ANY,
};

const MERGE_BASE: ReadOnlyOptions = ReadOnlyOptions {
    short: "a",
    valued: "",
    long: &["all octopus independent is-ancestor fork-point"],
    operands_max: ANY,
};

const CAT_FILE: ReadOnlyOptions =
    ReadOnlyOptions { short: "ptse", valued: "", long: &["batch batch-check"], operands_max: ANY };

const NAME_REV: ReadOnlyOptions = ReadOnlyOptions {
    short: "",
    valued: "",
    long: &["tags refs exclude all name-only always no-undefined"],
    operands_max: ANY,
};

const SHOW_REF: ReadOnlyOptions = ReadOnlyOptions {
    short: "dqsh",
    valued: "",
    long: &["head heads tags branches dereference hash verify exists quiet abbrev"],
    operands_max: ANY,
};

const FOR_EACH_REF: ReadOnlyOptions = ReadOnlyOptions {
    short: "",
    valued: "",
    long: &["count sort format points-at merged no-merged contains no-contains ignore-case exclude \
             omit-empty color"],
    operands_max: ANY,
};

const COUNT_OBJECTS: ReadOnlyOptions =
    ReadOnlyOptions { short: "vH", valued: "", long: &["verbose human-readable"], operands_max: 0 };

const WORKTREES: ReadOnlyOptions =
    ReadOnlyOptions { short: "vz", valued: "", long: &["verbose porcelain"], operands_max: 0 };

const CHECK_IGNORE: ReadOnlyOptions = ReadOnlyOptions {
    short: "qvzn",
    valued: "",
    long: &["quiet verbose stdin non-matching"],
    operands_max: ANY,
};

const VERSION: ReadOnlyOptions =
    ReadOnlyOptions { short: "", valued: "", long: &["build-options"], operands_max: 0 };

const LISTING: ReadOnlyOptions = ReadOnlyOptions {
    short: "avrlni",
    valued: "",
    long: &["all list remotes verbose show-current contains no-contains merged no-merged sort format \
             points-at column no-column color no-color ignore-case abbrev no-abbrev omit-empty"],
    operands_max: ANY,
};

const GREP: ReadOnlyOptions = ReadOnlyOptions {
    short: "nilLwvcoqhHEFGPIWpzar0123456789",
    valued: "ABCem",
    long: &["line-number no-line-number ignore-case files-with-matches files-without-match name-only \
             word-regexp invert-match count cached untracked text extended-regexp basic-regexp \
             fixed-strings perl-regexp heading break column only-matching full-name max-depth max-count \
             recursive no-recursive context after-context before-context show-function function-context \
             and or not all-match color no-color null quiet no-textconv"],
    operands_max: ANY,
};
