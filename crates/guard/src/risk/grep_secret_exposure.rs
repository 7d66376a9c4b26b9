//! Searches that print lines of files that the command does not name: hidden ones, ignored ones, `.env` among them.
//!
//! Such a search is harmless if it prints names only, if it is limited to source files, or if it searches for a plain
//! word that is no part of a secret or of a secret's name. Every other search may print lines of files that would have to
//! be asked about if the command named them.

use super::command_options::{has, operands, texts};
use crate::program_launchers::is_listed;
use crate::shell::Word;

/// Extensions of source code and text files.
const SOURCE: &str = "rs py pyi js mjs cjs ts tsx jsx go c h cc cpp cxx hpp hh java kt kts scala swift m mm rb php cs fs \
    vb lua zig ex exs erl hrl hs ml mli clj cljs dart r jl pl pm vue svelte html htm css scss sass less md rst adoc \
    proto thrift graphql wgsl glsl asm s v vhd tex";
/// File types as ripgrep names them.
const TYPES: &str = "rust py python js ts typescript go c cpp java kotlin scala swift ruby php csharp lua zig elixir \
    erlang haskell ocaml clojure dart css html md markdown protobuf";
/// Parts of secrets and of their names.
const HINTS: &str = "key secret token pass pwd auth cred api priv cert akia asia ghp gho sk- xox bearer login user host url \
    dsn conn database db_ aws gcp azure smtp mail salt hash sign session cookie stripe slack github gitlab openai \
    anthropic google webhook account client license env export";
/// Letters and names of options that do not change which lines are printed.
const QUIET_LETTERS: &str = "rRniHhIswEFGoSN.up";
const QUIET_NAMES: &str = "line-number no-line-number ignore-case hidden no-ignore no-ignore-vcs word-regexp \
    fixed-strings extended-regexp color colour no-heading heading smart-case column exclude-dir exclude \
    no-messages with-filename no-filename only-matching recursive unrestricted untracked";

/// Whether a search may print lines of files that hold secrets.
pub(super) fn may_show_secrets(name: &str, arguments: &[Word]) -> bool {
    match name {
        "grep" | "egrep" | "fgrep" | "ggrep" => {
            goes_through_folders(arguments) && !is_bounded("ABCefmdD", "lLcq", arguments)
        }
        "rg" => {
            let options = Options { valued: "ABCegmtTjEMdr", arguments };
            (options.letters("u.")
                || options.names("hidden no-ignore no-ignore-vcs unrestricted")
                || options.widens())
                && !options.is_typed()
                && !is_bounded(options.valued, "lcq", arguments)
        }
        "git" => {
            let search = super::git_commands::subcommand(arguments).filter(|(verb, _)| *verb == "grep");
            search.is_some_and(|(_, rest)| {
                has(rest, "", &["untracked", "no-index"]) && !is_bounded("ABCefmO", "lLcq", rest)
            })
        }
        "diff" => {
            let options = Options { valued: "UCIxWFDSX", arguments };
            (options.letters("r") || options.names("recursive"))
                && !options.letters("q")
                && !options.names("brief")
        }
        _ => false,
    }
}

fn goes_through_folders(arguments: &[Word]) -> bool {
    let options = Options { valued: "ABCefmdD", arguments };
    options.letters("rR")
        || options.names("recursive dereference-recursive")
        || texts(arguments).any(|text| matches!(text, "recurse" | "-drecurse" | "--directories=recurse"))
}

/// Whether a search is harmless by what it prints, which files it searches, or what it searches for.
/// `naming` are the letters that make it print only names or numbers.
fn is_bounded(valued: &'static str, naming: &str, arguments: &[Word]) -> bool {
    let options = Options { valued, arguments };
    let only_names = options.letters(naming)
        || options.names("files files-with-matches files-without-match count count-matches quiet silent type-list help version");
    // These options print lines whatever the others are.
    let prints_lines = options.names("json vimgrep passthru passthrough");
    (only_names && !prints_lines) || options.includes_source() || options.looks_for_a_word()
}

struct Options<'a> {
    /// Letters that take the rest of the word as their value.
    valued: &'static str,
    arguments: &'a [Word],
}

impl Options<'_> {
    fn long(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        texts(self.arguments)
            .filter_map(|text| text.strip_prefix("--"))
            .filter(|text| !text.is_empty())
            .map(|text| text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))))
    }

    /// The letters of a cluster, without the value at its end.
    fn clusters(&self) -> impl Iterator<Item = &str> {
        texts(self.arguments)
            .filter(|text| !text.starts_with("--"))
            .filter_map(|text| text.strip_prefix('-'))
            .map(|letters| match letters.find(|letter| self.valued.contains(letter)) {
                Some(at) => &letters[..=at],
                None => letters,
            })
    }

    fn letters(&self, wanted: &str) -> bool {
        self.clusters().any(|letters| {
            letters.contains(|letter| wanted.contains(letter) && !self.valued.contains(letter))
        })
    }

    fn names(&self, wanted: &str) -> bool {
        self.long().any(|(name, _)| is_listed(wanted, name))
    }

    /// The values of an option, in the same word or the next.
    fn values(&self, short: &str, long: &[&str]) -> Vec<&str> {
        let mut found = Vec::new();
        for (at, text) in texts(self.arguments).enumerate() {
            let (name, attached) =
                text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            let next = || self.arguments.get(at + 1).map(Word::text);
            if text == short || (attached.is_none() && long.contains(&text)) {
                found.extend(next());
            } else if long.contains(&name) {
                found.extend(attached);
            } else if !text.starts_with("--") {
                found.extend(text.strip_prefix(short));
            }
        }
        found
    }

    fn globs(&self) -> Vec<&str> {
        let globs = self.values("-g", &["--glob", "--iglob"]);
        globs.into_iter().filter(|glob| !glob.starts_with('!')).collect()
    }

    /// A pattern that files must match overrides what is hidden and ignored.
    fn widens(&self) -> bool {
        !self.globs().into_iter().all(is_source)
            || self.clusters().any(|letters| letters.len() > 1 && letters.ends_with('g'))
    }

    /// Only files of source code, by their type or by a pattern.
    fn is_typed(&self) -> bool {
        let types = self.values("-t", &["--type"]);
        let globs = self.globs();
        // What a type means can be changed, and it can be taken out again.
        let changed = self.names("type-not type-add type-clear")
            || self.clusters().any(|letters| letters.contains('T'));
        (!changed && !types.is_empty() && types.into_iter().all(|kind| is_listed(TYPES, kind)))
            || (!globs.is_empty() && !self.widens())
    }

    fn includes_source(&self) -> bool {
        // If the first of these options excludes, files that match none of them are searched.
        let lists =
            |name: &str| name.starts_with("incl") || name.starts_with("excl") && name != "exclude-dir";
        if self.long().find(|(name, _)| lists(name)).is_some_and(|(name, _)| name != "include") {
            return false;
        }
        let mut includes = self.long().filter(|(name, _)| name.starts_with("incl")).peekable();
        includes.peek().is_some() && includes.all(|(_, glob)| glob.is_some_and(is_source))
    }

    fn looks_for_a_word(&self) -> bool {
        let quiet =
            self.clusters().all(|letters| letters.chars().all(|letter| QUIET_LETTERS.contains(letter)))
                && self.long().all(|(name, _)| is_listed(QUIET_NAMES, name));
        let word = operands(self.arguments).next().and_then(Word::literal);
        quiet && word.is_some_and(is_plain_word)
    }
}

fn is_source(glob: &str) -> bool {
    glob.rsplit_once('.')
        .is_some_and(|(stem, extension)| is_listed(SOURCE, extension) && !stem.contains(['{', '[']))
}

fn is_plain_word(word: &str) -> bool {
    let lower = word.to_lowercase();
    word.len() >= 3
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_ -".contains(c))
        && word.split(|c: char| !c.is_ascii_alphabetic()).any(|run| run.len() >= 3)
        && !HINTS.split_ascii_whitespace().any(|hint| lower.contains(hint))
}

/// Whether a file name pattern, as git reads it, may match a file of secrets. A pattern of only `*` is like no
/// pattern.
pub(super) fn may_match_secrets(pattern: &str) -> bool {
    const FILES: [&str; 8] = [
        ".env",
        ".env.local",
        ".env.production",
        ".envrc",
        ".netrc",
        ".npmrc",
        ".pgpass",
        ".git-credentials",
    ];
    let pattern =
        pattern.strip_prefix(":(").and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(pattern);
    let name = pattern.rsplit('/').next().unwrap_or(pattern).trim_start_matches(':').to_lowercase();
    let says_something = name.contains(|c: char| c.is_ascii_alphanumeric());
    says_something && FILES.iter().any(|file| matches(name.as_bytes(), file.as_bytes()))
}

/// `*`, `?` and `[..]`, where brackets stand for any character. Takes as many steps as both are long, multiplied.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // What stands behind the last star, and the text that the star has not taken yet.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            (pattern, again) = (rest, Some((rest, text)));
            continue;
        }
        let taken = if pattern.is_empty() { None } else { after_one(pattern, text) };
        match (taken, text, again) {
            (None, [], _) if pattern.is_empty() => return true,
            (Some(rest), [_, left @ ..], _) => (pattern, text) = (rest, left),
            (_, _, Some((behind, [_, left @ ..]))) => {
                (pattern, text, again) = (behind, left, Some((behind, left)));
            }
            _ => return false,
        }
    }
}

/// The rest of a pattern whose first part stands for the first character of a text.
fn after_one<'p>(pattern: &'p [u8], text: &[u8]) -> Option<&'p [u8]> {
    let first = text.first()?;
    match pattern {
        [b'[', rest @ ..] if rest.contains(&b']') => {
            let end = rest.iter().skip(1).position(|byte| *byte == b']').map_or(rest.len(), |end| end + 2);
            Some(&rest[end.min(rest.len())..])
        }
        [b'\\', wanted, rest @ ..] => (wanted == first).then_some(rest),
        [wanted, rest @ ..] => (*wanted == b'?' || wanted == first).then_some(rest),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_end_soon() {
        for (pattern, name) in [
            (".env", ".env"),
            (".en?", ".env"),
            (".e*", ".env"),
            ("*env", ".env"),
            ("*e*v*", ".env"),
            (".[e]nv", ".env"),
            ("\\.env", ".env"),
            ("**.env**", ".env"),
            (".*l*l", ".env.local"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [(".env", ".envrc"), (".en?", ".en"), ("*x", ".env"), ("", ".env"), ("e*", ".env")]
        {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        let stars = format!("{}x", "*".repeat(4000));
        let more = format!("{}x", "*e".repeat(2000));
        assert!(!may_match_secrets(&stars) && !may_match_secrets(&more));
    }
}
