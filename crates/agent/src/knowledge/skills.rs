//! Skills: instructions for a kind of work, of which the model first sees only the name and what it is for.
//!
//! A skill is a folder with a `SKILL.md`, as agentskills.io describes it. Its body is read when the model
//! asks for it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Front, Shelf, plain_name};
use crate::summary::{cut, one_line};

pub(crate) const TOOL: &str = "skill";
const FILE: &str = "SKILL.md";
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// How much is read to learn what a skill is for.
const HEAD_CHARS_MAX: usize = 4_000;
const BODY_CHARS_MAX: usize = 40_000;
/// Skills that the model is told of. Each costs it something in every call.
const SKILLS_MAX: usize = 64;
const FOLDERS: [&str; 3] = [".ropewalk/skills", ".agents/skills", ".claude/skills"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: Arc<str>,
    pub(crate) description: Arc<str>,
    pub(crate) folder: PathBuf,
    /// The project that it is part of, if it is not the person's.
    project: Option<PathBuf>,
}

impl Skill {
    /// The instructions as they are at this moment. Touches the disk.
    pub(crate) fn body(&self, hidden: &[PathBuf]) -> Option<String> {
        let shelf = match &self.project {
            Some(root) => Shelf::project(root, hidden),
            None => Shelf::person(&self.folder),
        };
        let text = shelf.read(&self.folder.join(FILE), BODY_CHARS_MAX)?;
        Some(Front::split(&text).1.to_owned())
    }
}

/// The person's skills first: a project cannot put others in their place.
pub(super) fn find(
    project: &Shelf,
    places: &[&Path],
    person: Option<&Shelf>,
    more: &[PathBuf],
) -> Vec<Skill> {
    let mut skills = Vec::new();
    if let Some(person) = person {
        collect(person, &person.root().join("skills"), &mut skills);
    }
    for folder in more {
        collect(&Shelf::person(folder), folder, &mut skills);
    }
    for place in places {
        for folder in FOLDERS {
            collect(project, &place.join(folder), &mut skills);
        }
    }
    skills
}

fn collect(shelf: &Shelf, folder: &Path, skills: &mut Vec<Skill>) {
    for name in shelf.names(folder) {
        let folder = folder.join(&name);
        let Some(text) = shelf.read(&folder.join(FILE), HEAD_CHARS_MAX) else { continue };
        let (front, _) = Front::split(&text);
        let named = plain_name(front.text("name").unwrap_or(&name));
        let (Some(name), Some(description)) = (named, front.text("description")) else {
            tracing::warn!(folder = %folder.display(), "a skill needs a plain name and a description");
            continue;
        };
        if skills.len() < SKILLS_MAX && skills.iter().all(|known: &Skill| known.name != name) {
            let description = cut(&one_line(description), DESCRIPTION_CHARS_MAX).into();
            let project = shelf.is_project().then(|| shelf.root().to_owned());
            skills.push(Skill { name, description, folder, project });
        }
    }
}

/// What the model is told of them from the start.
pub(super) fn listing(skills: &[Skill]) -> String {
    let mut text = String::new();
    if skills.is_empty() {
        return text;
    }
    writeln!(text, "\nSkills are instructions for a kind of work. Before you do such work, read the skill with the tool `{TOOL}`:").ok();
    for skill in skills {
        writeln!(text, "- {}: {}", skill.name, skill.description).ok();
    }
    text
}
