//! Instruction files: how a project, and its person, want things to be done.
//!
//! From the project's root down to the working folder, each folder's own file: `AGENTS.override.md`, else
//! `AGENTS.md`, else `CLAUDE.md`. Then the rule files of other agents, in the root and the working folder.
//! The model gets the general before the specific; where there is too much, the specific is kept.

use std::path::Path;

use super::{FrontMatter, TextFolder, places};

/// The first that exists is used for its folder.
const FILES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];
/// How much of one file the model gets.
const FILE_CHARS_MAX: usize = 10_000;
/// How much of all of them together.
const BYTES_MAX: usize = 32 << 10;
/// Folders from the working folder up to the root that are read.
const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// As they are shown: relative to the project's root, or prefixed by the person's folder.
    pub(crate) names: Vec<String>,
    /// For the model, with a heading for each file.
    pub(crate) text: String,
}

pub(super) fn read(
    project: &TextFolder,
    person: Option<&TextFolder>,
    root: &Path,
    cwd: &Path,
) -> Instructions {
    let mut found: Vec<(String, String)> = Vec::new();
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    for place in places(root, cwd) {
        for text_file in
            project.text_files(&place.join(".cursor/rules"), "mdc", FILE_CHARS_MAX).into_iter().rev()
        {
            found.push((shown(&text_file.path), cursor_rule(&text_file.text)));
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
    combined(found)
}

/// Selects from the specific to the general, as much as fits, and combines them in the opposite order.
fn combined(found: Vec<(String, String)>) -> Instructions {
    let (mut rules, mut room) = (Instructions::default(), BYTES_MAX);
    let mut parts = Vec::new();
    for (name, text) in found.into_iter().filter(|(_, text)| !text.trim().is_empty()) {
        let kept = &text[..text.floor_char_boundary(room)];
        if kept.is_empty() {
            tracing::warn!(name, "the project has more rules than the model is given; these are left out");
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

/// A Cursor rule, with the files that it applies to according to its front matter.
fn cursor_rule(text: &str) -> String {
    let (front_matter, body) = FrontMatter::split(text);
    match front_matter.text("globs").filter(|_| !front_matter.is_true("alwaysapply")) {
        Some(globs) => format!("(for files like {globs})\n{body}"),
        None => body.to_owned(),
    }
}
