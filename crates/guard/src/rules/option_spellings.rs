//! Options of well-known programs that mean the same: `-R` and `--recursive`.
//!
//! Only rules that deny or ask use this: another spelling must not evade them. A rule that allows means exactly what it
//! says.

/// One option: its letters and its long names, without dashes.
pub(super) type OptionSpelling = (&'static str, &'static str);

const RECURSIVE: OptionSpelling = ("rR", "recursive");
const FORCE: OptionSpelling = ("f", "force");

/// Programs (for git with the subcommand) and their options.
const PROGRAMS: &[(&str, &[OptionSpelling])] = &[
    ("rm|grm", &[RECURSIVE, FORCE, ("d", "dir"), ("i", "interactive"), ("v", "verbose")]),
    (
        "cp|gcp",
        &[RECURSIVE, FORCE, ("a", "archive"), ("p", "preserve"), ("l", "link"), ("s", "symbolic-link")],
    ),
    ("mv|gmv", &[FORCE, ("n", "no-clobber"), ("i", "interactive")]),
    ("ln|gln", &[FORCE, ("s", "symbolic"), ("n", "no-dereference")]),
    ("chmod|chown|chgrp", &[("R", "recursive"), ("f", "silent quiet"), ("v", "verbose")]),
    ("mkdir", &[("p", "parents"), ("m", "mode")]),
    ("sed|gsed", &[("i", "in-place"), ("n", "quiet silent"), ("Er", "regexp-extended")]),
    (
        "curl",
        &[
            ("o", "output"),
            ("O", "remote-name"),
            ("X", "request"),
            ("d", "data data-raw data-binary data-ascii data-urlencode"),
            ("F", "form"),
            ("T", "upload-file"),
            ("k", "insecure"),
            ("u", "user"),
            ("H", "header"),
            ("L", "location"),
        ],
    ),
    ("wget", &[("O", "output-document"), ("r", "recursive"), ("m", "mirror")]),
    ("rsync", &[("r", "recursive"), ("a", "archive"), ("e", "rsh"), ("n", "dry-run")]),
    ("npm", &[("g", "global"), FORCE]),
    ("docker run|docker exec", &[("v", "volume"), ("e", "env"), ("u", "user"), ("p", "publish")]),
    ("git push", &[FORCE, ("d", "delete"), ("u", "set-upstream"), ("n", "dry-run")]),
    ("git commit", &[("n", "no-verify"), ("a", "all"), ("m", "message")]),
    ("git add", &[("A", "all no-ignore-removal"), FORCE, ("u", "update")]),
    (
        "git clean|git checkout|git switch|git rm|git mv|git fetch|git tag",
        &[FORCE, ("n", "dry-run"), ("d", "delete")],
    ),
    ("git branch", &[FORCE, ("d", "delete"), ("m", "move"), ("c", "copy")]),
    ("git rebase", &[("i", "interactive"), ("x", "exec")]),
    ("git stash", &[("u", "include-untracked"), ("a", "all")]),
];

/// The options of the program that a rule is about, as far as they are known here.
pub(super) fn of(program: &str, rest: &[String]) -> &'static [OptionSpelling] {
    let verb = rest.iter().find(|word| !word.starts_with('-')).map(String::as_str).unwrap_or_default();
    let with_verb = format!("{program} {verb}");
    let known =
        PROGRAMS.iter().find(|(names, _)| names.split('|').any(|name| name == program || name == with_verb));
    known.map_or(&[], |(_, spellings)| spellings)
}

/// Whether words have an option, by a letter or by a long name that may be abbreviated.
pub(super) fn has<'w>(words: impl Iterator<Item = &'w str> + Clone, letters: &str, names: &str) -> bool {
    let by_letter = words
        .clone()
        .filter_map(super::command_line::short)
        .any(|word| word.contains(|c| letters.contains(c)));
    by_letter || names.split_ascii_whitespace().any(|name| has_long(words.clone(), name))
}

/// A long name without its dashes; `--name=value` and an abbreviation count.
pub(super) fn has_long<'w>(mut words: impl Iterator<Item = &'w str>, wanted: &str) -> bool {
    words.any(|word| {
        let Some(name) = word.strip_prefix("--") else { return false };
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        !name.is_empty() && wanted.starts_with(name)
    })
}
