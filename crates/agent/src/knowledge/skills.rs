//! Skills: instructions for a kind of task, of which the model at first gets only the name and the description.
//!
//! A skill is a folder with a `SKILL.md`, as described by agentskills.io. Its body is read when the model
//! asks for it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FrontMatter, TextFolder, plain_name};
use crate::summary_without_model::{cut, one_line};

pub(crate) const TOOL: &str = "skill";
const FILE: &str = "SKILL.md";
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// How much is read for the name and the description.
const HEAD_CHARS_MAX: usize = 4_000;
const BODY_CHARS_MAX: usize = 40_000;
/// Skills that are listed for the model. Each costs tokens in every call.
const SKILLS_MAX: usize = 64;
const FOLDERS: [&str; 3] = [".ropewalk/skills", ".agents/skills", ".claude/skills"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: Arc<str>,
    pub(crate) description: Arc<str>,
    pub(crate) folder: PathBuf,
    /// The project that it belongs to, if it is not the person's.
    project: Option<PathBuf>,
}

impl Skill {
    /// The current instructions. Accesses the disk.
    pub(crate) fn body(&self, hidden: &[PathBuf]) -> Option<String> {
        let text_folder = match &self.project {
            Some(root) => TextFolder::project(root, hidden),
            None => TextFolder::person(&self.folder),
        };
        let text = text_folder.read(&self.folder.join(FILE), BODY_CHARS_MAX)?;
        Some(FrontMatter::split(&text).1.to_owned())
    }
}

/// Finds all skills, the person's first: a project cannot replace them.
pub(super) fn find(
    project: &TextFolder,
    places: &[&Path],
    person: Option<&TextFolder>,
    more: &[PathBuf],
) -> Vec<Skill> {
    let mut skills = Vec::new();
    if let Some(person) = person {
        collect(person, &person.root().join("skills"), &mut skills);
    }
    for folder in more {
        collect(&TextFolder::person(folder), folder, &mut skills);
    }
    for place in places {
        for folder in FOLDERS {
            collect(project, &place.join(folder), &mut skills);
        }
    }
    skills
}

fn collect(text_folder: &TextFolder, folder: &Path, skills: &mut Vec<Skill>) {
    for name in text_folder.names(folder) {
        let folder = folder.join(&name);
        let Some(text) = text_folder.read(&folder.join(FILE), HEAD_CHARS_MAX) else { continue };
        let (front_matter, _) = FrontMatter::split(&text);
        let named = plain_name(front_matter.text("name").unwrap_or(&name));
        let (Some(name), Some(description)) = (named, front_matter.text("description")) else {
            tracing::warn!(folder = %folder.display(), "a skill needs a plain name and a description");
            continue;
        };
        if skills.len() < SKILLS_MAX && skills.iter().all(|known: &Skill| known.name != name) {
            let description = cut(&one_line(description), DESCRIPTION_CHARS_MAX).into();
            let project = text_folder.is_project().then(|| text_folder.root().to_owned());
            skills.push(Skill { name, description, folder, project });
        }
    }
}

/// The list of skills for the system prompt.
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
