//! What git runs because its arguments say so: aliases, settings that name programs, `rebase --exec`, `bisect run`,
//! `submodule foreach`, programs for the remote side of a connection.

use super::LaunchedPrograms;
use crate::risk::git_subcommand;
use crate::shell::Word;

/// What a git command starts. Nothing for most of them.
pub(super) fn launched(arguments: &[Word]) -> Option<LaunchedPrograms<'_>> {
    let mut launched = LaunchedPrograms::default();
    for pair in arguments.windows(2).filter(|pair| pair[0].text() == "-c") {
        launched.lines.extend(pair[1].text().split_once('=').and_then(|(key, value)| setting(key, value)));
    }
    for text in arguments.iter().map(Word::text) {
        launched.lines.extend(text.strip_prefix("ext::").map(str::to_owned));
    }
    launched.unknown = reads_elsewhere(arguments);
    if let Some((name, rest)) = git_subcommand(arguments) {
        subcommand(name, rest, &mut launched);
    }
    let any = launched.unknown || !launched.lines.is_empty() || !launched.programs.is_empty();
    any.then_some(launched)
}

/// Whether git's own options name a file of settings, a folder of programs, or a variable that holds a
/// setting with a program.
fn reads_elsewhere(arguments: &[Word]) -> bool {
    let texts =
        || arguments.iter().map(Word::text).take_while(|text| text.starts_with('-') || text.contains('='));
    let apart =
        arguments.windows(2).filter(|pair| pair[0].text() == "--config-env").map(|pair| pair[1].text());
    let mut by_variable = texts().filter_map(|text| text.strip_prefix("--config-env=")).chain(apart);
    let runs =
        |setting: &str| setting.split_once('=').is_some_and(|(key, _)| crate::risk::git_setting_runs(key));
    let includes =
        |pair: &[Word]| pair[0].text() == "-c" && pair[1].text().to_lowercase().starts_with("include");
    by_variable.any(runs)
        || texts().any(|text| text.starts_with("--exec-path="))
        || arguments.windows(2).any(includes)
}

/// The lines that the variable `GIT_CONFIG_PARAMETERS` makes git run: `'name=value'` or `'name'='value'`.
pub(crate) fn parameters(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('\'').filter(|part| !part.trim().is_empty() && *part != "=").collect();
    let whole = parts.iter().filter_map(|part| part.split_once('='));
    let apart = parts.windows(2).map(|pair| (pair[0], pair[1]));
    whole.chain(apart).filter_map(|(key, value)| setting(key, value)).collect()
}

fn subcommand<'w>(name: &str, rest: &'w [Word], launched: &mut LaunchedPrograms<'w>) {
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
            let attached = rest.iter().filter_map(|word| word.text().strip_prefix("--config="));
            launched.lines.extend(
                attached
                    .filter_map(|text| text.split_once('='))
                    .filter_map(|(key, value)| setting(key, value)),
            );
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
fn values(rest: &[Word], short: &[&str], long: &str, launched: &mut LaunchedPrograms<'_>) {
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
