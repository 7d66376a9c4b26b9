//! What git runs because its words say so: aliases, settings that name programs, `rebase --exec`,
//! `bisect run`, `submodule foreach`, programs for the other side of a connection.

use super::Launched;
use crate::risk::git_subcommand;
use crate::shell::Word;

/// What a git command starts. Nothing for most of them.
pub(super) fn launched(arguments: &[Word]) -> Option<Launched<'_>> {
    let mut launched = Launched::default();
    for pair in arguments.windows(2).filter(|pair| pair[0].text() == "-c") {
        launched.lines.extend(pair[1].text().split_once('=').and_then(|(key, value)| setting(key, value)));
    }
    for text in arguments.iter().map(Word::text) {
        launched.lines.extend(text.strip_prefix("ext::").map(str::to_owned));
    }
    if let Some((name, rest)) = git_subcommand(arguments) {
        subcommand(name, rest, &mut launched);
    }
    (!launched.lines.is_empty() || !launched.programs.is_empty()).then_some(launched)
}

fn subcommand<'w>(name: &str, rest: &'w [Word], launched: &mut Launched<'w>) {
    match name {
        "bisect" if rest.first().is_some_and(|word| word.text() == "run") => {
            launched.programs.push(&rest[1..])
        }
        "submodule" => {
            if let Some(at) = rest.iter().position(|word| word.text() == "foreach") {
                launched.programs.extend(super::candidates(&rest[at + 1..], 0));
                launched.lines.extend(texts(&rest[at + 1..]));
            }
        }
        "for-each-repo" => launched.lines.push(format!("git {}", texts(rest).collect::<Vec<_>>().join(" "))),
        "rebase" => values(rest, &["-x"], "--exec", launched),
        "difftool" | "mergetool" => values(rest, &["-x"], "--extcmd", launched),
        "grep" => values(rest, &["-O"], "--open-files-in-pager", launched),
        "filter-branch" | "filter-repo" | "hook" => launched.lines.extend(texts(rest)),
        "config" => {
            for pair in rest.windows(2) {
                launched.lines.extend(setting(pair[0].text(), pair[1].text()));
            }
        }
        "push" | "fetch" | "pull" | "clone" | "ls-remote" | "fetch-pack" | "send-pack" | "archive" => {
            values(
                rest,
                if matches!(name, "clone" | "ls-remote") { &["-u"] } else { &[] },
                "--upload-pack",
                launched,
            );
            values(rest, &[], "--receive-pack", launched);
            values(rest, &[], "--exec", launched);
            for pair in rest.windows(2).filter(|pair| matches!(pair[0].text(), "-c" | "--config")) {
                launched
                    .lines
                    .extend(pair[1].text().split_once('=').and_then(|(key, value)| setting(key, value)));
            }
        }
        _ => {}
    }
}

fn texts(words: &[Word]) -> impl Iterator<Item = String> {
    words.iter().map(Word::text).filter(|text| !text.starts_with('-')).map(str::to_owned)
}

/// The values of an option, in the same word or the next. Long ones may be abbreviated.
fn values(rest: &[Word], short: &[&str], long: &str, launched: &mut Launched<'_>) {
    for (at, word) in rest.iter().enumerate() {
        let text = word.text();
        let (name, attached) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let is_long = name.len() > 2 && name.starts_with("--") && long.starts_with(name);
        let letters = short.iter().find_map(|short| text.strip_prefix(short));
        let value = match (is_long, attached, letters) {
            (true, Some(value), _) => Some(value),
            (true, None, _) | (false, _, Some("")) => rest.get(at + 1).map(Word::text),
            (false, _, Some(value)) => Some(value),
            (false, _, None) => None,
        };
        launched.lines.extend(value.map(str::to_owned));
    }
}

/// The line that a setting makes git run.
fn setting(key: &str, value: &str) -> Option<String> {
    let key = key.to_lowercase();
    let names_program = crate::risk::git_setting_runs(&key);
    match value.strip_prefix('!') {
        Some(line) => Some(line.to_owned()),
        None if key.starts_with("alias.") => Some(format!("git {value}")),
        None => names_program.then(|| value.to_owned()),
    }
}
