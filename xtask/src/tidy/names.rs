//! Names that explain themselves, as far as a machine can tell.
//!
//! A type's name has one meaning in the product; a file is named after what it holds; sentences that nobody understood do not
//! come back. `docs/glossary.md` has the words.

use std::collections::BTreeMap;

use super::File;
use super::walls::{product_lines, product_room};

/// Names of private helper types that say enough beside the file that they are in.
const SHORT: [&str; 28] = [
    "Arguments",
    "Client",
    "Decoder",
    "Encoder",
    "Entry",
    "Error",
    "Inner",
    "Input",
    "Item",
    "Kind",
    "Options",
    "Output",
    "Params",
    "Part",
    "Reader",
    "Request",
    "Response",
    "Row",
    "Script",
    "Server",
    "Shared",
    "State",
    "Step",
    "Stream",
    "Table",
    "Updates",
    "Wake",
    "Writer",
];

/// A name that means something may be defined so often, elsewhere with another meaning.
const DEFINITIONS_MAX: usize = 2;
/// So many names may break that.
const REPEATED_MAX: usize = 0;

/// Names of files from which nobody guessed what is in them.
const RIDDLES: [&str; 54] = [
    "against",
    "along",
    "arrival",
    "bars",
    "beside",
    "book",
    "brief",
    "cage",
    "crew",
    "crowd",
    "debts",
    "desk",
    "ends",
    "entrance",
    "eyes",
    "foot",
    "given",
    "guests",
    "handing",
    "held",
    "hall",
    "hearing",
    "house",
    "inert",
    "keep",
    "keeping",
    "kept",
    "known",
    "lent",
    "look",
    "making",
    "noise",
    "office",
    "opened",
    "outlet",
    "patience",
    "rail",
    "remains",
    "said",
    "saying",
    "scene",
    "seat",
    "seen",
    "sense",
    "shelf",
    "shown",
    "siblings",
    "sight",
    "since",
    "stage",
    "suspicion",
    "taking",
    "thinker",
    "wish",
];

/// Where the web app and its tests are.
const WEB_FOLDERS: [&str; 2] = ["web/src/", "tests/web/"];

/// Sentences and labels that were read aloud and not understood, and what is said instead.
const OLD_PHRASES: [(&str, &str); 39] = [
    ("signals cannot be heard", "could not install signal handlers"),
    ("the browser cannot be led", "could not open the browser"),
    ("it was let in and did not come", "the device was approved but never connected"),
    ("it is not said where people are", "no hub URL given"),
    ("there are no random bytes", "the operating system's random generator failed"),
    ("cannot be taken apart", "could not parse"),
    ("cannot be gone on with", "could not continue the session"),
    ("nobody here to ask whether to let it in", "pairing needs a terminal to confirm it"),
    ("it leads on and on", "too many redirects"),
    ("as many connections are open as may be", "connection limit reached"),
    ("the program cannot find itself", "could not locate the ropewalk executable"),
    ("Be the remote side of bridges", "Run a hub"),
    ("Which model thinks", "Model"),
    ("Everything the tool is given", "Full tool input"),
    ("as many prompts are waiting as may wait", "too many prompts are waiting"),
    ("sockets are open as may be", "connection limit reached"),
    ("there are as many devices as may be", "device limit reached"),
    ("nobody knocks by this name", "this pairing request no longer exists"),
    ("this code opens nothing here", "unknown code"),
    ("this token opens nothing here", "unknown token"),
    ("the cookie alone signs nobody in", "the cookie is valid only together with the key"),
    ("the body stopped coming", "the body did not arrive in time"),
    ("the receiver leads elsewhere", "the receiver redirects"),
    ("did not take the last words", "could not send the last messages"),
    ("files that could be put back", "there are no file changes to undo"),
    ("tokens would be said to", "tokens would be sent to"),
    ("repeats what it is told", "only echoes its input"),
    ("agent cannot be greeted", "could not initialize the agent"),
    ("a test of the shell's own kind", "a shell test"),
    ("can be looked through", "to be checked"),
    ("runs what another machine sends", "runs code from another machine"),
    ("touches a file of secrets", "touches a file with secrets"),
    ("removes files with all folders", "removes folders with everything in them"),
    ("fence can be put around the command", "the sandbox could not be set up"),
    ("say in time that it stands", "the sandbox helper was not ready in time"),
    ("wake-ups cannot be heard", "could not listen for wake-ups"),
    ("not welcome here any more", "you no longer have access"),
    ("nobody removes themselves; another", "you cannot remove yourself"),
    ("what is asked of it can be sent", "try again when it is back"),
];
/// Pages that may quote them: they tell of the past.
const QUOTING: [&str; 2] = ["CHANGELOG.md", "docs/decisions/"];

pub fn check(files: &[File]) -> Vec<String> {
    let mut problems = repeated(files, REPEATED_MAX);
    problems.extend(files.iter().filter_map(|file| riddle(&file.path)));
    problems.extend(files.iter().flat_map(old_phrases));
    problems
}

/// Names of types that mean several things, if there are more of them than may be.
fn repeated(files: &[File], max: usize) -> Vec<String> {
    let mut places = BTreeMap::<&str, Vec<&str>>::new();
    for file in files.iter().filter(|file| product_room(&file.path).is_some()) {
        for name in product_lines(&file.text).into_iter().filter_map(defined_type) {
            places.entry(name).or_default().push(&file.path);
        }
    }
    let repeated = places
        .into_iter()
        .filter(|(name, places)| places.len() > DEFINITIONS_MAX && !SHORT.contains(name))
        .map(|(name, places)| {
            format!(
                "the type name {name} is defined {} times; say of what each is: {}",
                places.len(),
                places.join(", ")
            )
        })
        .collect::<Vec<_>>();
    if repeated.len() > max { repeated } else { Vec::new() }
}

/// The type that a line begins to define; types of a trait's implementation are no names of their own.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
    let kind = words.next()?;
    let is_definition =
        matches!(kind, "struct" | "enum" | "trait" | "union") || (kind == "type" && !line.starts_with(' '));
    let name = words.next().filter(|_| is_definition)?;
    let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
    Some(&name[..end])
}

fn riddle(path: &str) -> Option<String> {
    let (room, part) = match product_room(path) {
        Some(room) => {
            let within = path.split_once("/src/")?.1.trim_end_matches(".rs");
            (room, within.split('/').find(|part| RIDDLES.contains(part))?)
        }
        None => web_riddle(path)?,
    };
    Some(format!(
        "{path}: {part} does not say what a stranger finds there in {room}; name it after what it holds"
    ))
}

/// Files of the web app and of its tests. Their names are words with hyphens, such as `hub-list.ts`.
fn web_riddle(path: &str) -> Option<(&str, &str)> {
    WEB_FOLDERS.into_iter().find_map(|folder| {
        let within = path.strip_prefix(folder)?;
        let part = within.split(['/', '-', '.']).find(|part| RIDDLES.contains(part))?;
        Some((folder, part))
    })
}

fn old_phrases(file: &File) -> Vec<String> {
    if QUOTING.iter().any(|quoting| file.path.starts_with(quoting)) || file.path.ends_with("tidy/names.rs") {
        return Vec::new();
    }
    let found = OLD_PHRASES.iter().filter(|(old, _)| file.text.contains(old));
    found.map(|(old, new)| format!("{}: \"{old}\" is not understood; say \"{new}\"", file.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_name_with_three_meanings_is_found_and_short_ones_are_not() {
        let text = "pub(crate) struct Told {\nenum State {\n    type Told = u8;\n// struct Told\n";
        let three = ["a", "b", "c"].map(|name| file(&format!("crates/wire/src/{name}.rs"), text));
        assert_eq!(repeated(&three, 0).len(), 1);
        assert_eq!(repeated(&three, 1).len(), 0);
        assert_eq!(repeated(&three[..2], 0).len(), 0);
    }

    #[test]
    fn a_file_of_the_product_is_no_riddle() {
        assert!(riddle("crates/hub/src/shelf.rs").is_some());
        assert!(riddle("crates/sandbox/src/cage/mod.rs").is_some());
        assert!(riddle("crates/hub/src/pending_calls.rs").is_none());
        assert!(riddle("docs/shelf.md").is_none());
    }

    #[test]
    fn a_file_of_the_web_app_is_no_riddle() {
        assert!(riddle("web/src/ask/shelf.tsx").is_some());
        assert!(riddle("web/src/lib/sealed-known.test.ts").is_some());
        assert!(riddle("tests/web/hub-scene.mjs").is_some());
        assert!(riddle("web/src/ask/ask-panel.tsx").is_none());
        assert!(riddle("tests/web/hub-fixture.mjs").is_none());
    }

    #[test]
    fn old_phrases_are_quoted_where_the_past_is_told_alone() {
        let text = "it leads on and on";
        assert_eq!(old_phrases(&file("crates/agent/src/web_fetch.rs", text)).len(), 1);
        assert_eq!(old_phrases(&file("CHANGELOG.md", text)).len(), 0);
        assert_eq!(old_phrases(&file("crates/agent/src/web_fetch.rs", "too many redirects")).len(), 0);
    }
}
