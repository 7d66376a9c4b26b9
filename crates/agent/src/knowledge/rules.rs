//! Instruction files: how a project, and its person, want things to be done.
//!
//! From the project's root down to the working folder, each folder's own file: `AGENTS.override.md`, else
//! `AGENTS.md`, else `CLAUDE.md`. Then the rules of other programs, in the root and the working folder.
//! The model reads the general before the particular; where there is more than it is given, the particular
//! is kept.

use std::path::Path;

use super::{Front, Shelf, places};

/// The first that is there speaks for its folder.
const FILES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];
/// How much of one file the model is given.
const FILE_CHARS_MAX: usize = 10_000;
/// How much of all of them together.
const BYTES_MAX: usize = 32 << 10;
/// Folders between the root and the working folder that are looked at, from the latter up.
const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// As they are shown: from the project's root, or with the person's folder before them.
    pub(crate) names: Vec<String>,
    /// For the model, with a heading for each file.
    pub(crate) text: String,
}

pub(super) fn read(project: &Shelf, person: Option<&Shelf>, root: &Path, cwd: &Path) -> Rules {
    let mut found: Vec<(String, String)> = Vec::new();
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    for place in places(root, cwd) {
        for page in project.pages(&place.join(".cursor/rules"), "mdc", FILE_CHARS_MAX).into_iter().rev() {
            found.push((shown(&page.path), cursor_rule(&page.text)));
        }
        let path = place.join(".opencode/rules.md");
        found.extend(project.read(&path, FILE_CHARS_MAX).map(|text| (shown(&path), text)));
    }
    for folder in cwd.ancestors().take(DEPTH_MAX).take_while(|folder| folder.starts_with(root)) {
        let first = |name: &str| {
            let path = folder.join(name);
            project.read(&path, FILE_CHARS_MAX).map(|text| (shown(&path), text))
        };
        found.extend(FILES.into_iter().find_map(first));
    }
    if let Some(person) = person {
        let path = person.root().join("AGENTS.md");
        found.extend(person.read(&path, FILE_CHARS_MAX).map(|text| (path.display().to_string(), text)));
    }
    told(found)
}

/// From the particular to the general, as much as there is room for; told the other way round.
fn told(found: Vec<(String, String)>) -> Rules {
    let (mut rules, mut room) = (Rules::default(), BYTES_MAX);
    let mut parts = Vec::new();
    for (name, text) in found.into_iter().filter(|(_, text)| !text.trim().is_empty()) {
        let kept = &text[..text.floor_char_boundary(room)];
        if kept.is_empty() {
            tracing::warn!(name, "there are more rules than the model is given; these are left out");
            continue;
        }
        room -= kept.len();
        parts.push(format!("\nThe project's own rules, from {name}:\n\n{kept}\n"));
        rules.names.push(name);
    }
    rules.names.reverse();
    rules.text = parts.into_iter().rev().collect();
    rules
}

/// A rule of Cursor's says in its front matter which files it is for.
fn cursor_rule(text: &str) -> String {
    let (front, body) = Front::split(text);
    match front.text("globs").filter(|_| !front.is_true("alwaysapply")) {
        Some(globs) => format!("(for files like {globs})\n{body}"),
        None => body.to_owned(),
    }
}
