//! What is found in projects, and what is left alone.

use std::path::Path;

use super::*;
use crate::agent::AgentConfig;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn shared(person: Option<&Path>) -> Shared {
    let mut config = AgentConfig::offline();
    config.knowledge.person = person.map(Path::to_owned);
    Shared::new(config)
}

fn system(cwd: &Path, shared: &Shared) -> String {
    system_prompt(cwd, &Knowledge::read(cwd, shared), &role::built_in()[0])
}

#[test]
fn rules_come_from_the_root_of_the_project_down_to_the_working_folder() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("repo");
    for (path, text) in [
        ("repo/.git/HEAD", ""),
        ("AGENTS.md", "OUTSIDE"),
        ("repo/AGENTS.md", "ROOT"),
        ("repo/CLAUDE.md", "NOT READ"),
        ("repo/a/CLAUDE.md", "MIDDLE"),
        ("repo/a/b/AGENTS.md", "REPLACED"),
        ("repo/a/b/AGENTS.override.md", "OWN"),
        ("repo/.cursor/rules/ts.mdc", "---\nglobs: \"*.ts\"\n---\nTS"),
        ("repo/a/b/.opencode/rules.md", "OPEN"),
        ("repo/a/b/c/AGENTS.md", "BELOW"),
    ] {
        write(dir.path(), path, text);
    }
    let cwd = root.join("a/b");
    let names = rule_names(&cwd, &shared(None));
    assert_eq!(
        names,
        [
            "AGENTS.md",
            "a/CLAUDE.md",
            "a/b/AGENTS.override.md",
            ".cursor/rules/ts.mdc",
            "a/b/.opencode/rules.md"
        ]
    );
    let system = system(&cwd, &shared(None));
    let at = |text: &str| system.find(text).unwrap_or_else(|| panic!("{text} is not in {system}"));
    assert!(
        at("ROOT") < at("MIDDLE") && at("MIDDLE") < at("OWN") && at("OWN") < at("(for files like *.ts)\nTS")
    );
    for absent in ["OUTSIDE", "NOT READ", "REPLACED", "BELOW"] {
        assert!(!system.contains(absent), "{absent}");
    }
}

#[test]
fn rules_are_capped_each_and_together_and_the_nearest_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ".git/HEAD", "");
    let mut cwd = dir.path().to_owned();
    for depth in 0..5 {
        write(&cwd, "AGENTS.md", &format!("Level {depth}.{}END", "x".repeat(10_000)));
        cwd = cwd.join("d");
    }
    let cwd = cwd.parent().unwrap().to_owned();
    let system = system(&cwd, &shared(None));
    assert!(system.len() < (32 << 10) + 2_000 && !system.contains("END"));
    assert!(system.contains("Level 4.") && system.contains("Level 2.") && !system.contains("Level 0."));
    let mut off = shared(None);
    off.config.knowledge.no_rules = true;
    assert!(rule_names(&cwd, &off).is_empty());
    assert!(
        !super::system_prompt(&cwd, &Knowledge::read(&cwd, &off), &role::built_in()[0]).contains("Level")
    );
}

#[test]
fn nothing_is_read_through_a_link_out_of_the_project() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let skill = "---\nname: s\ndescription: SECRET\n---\nSECRET";
    write(elsewhere.path(), "secret", "SECRET");
    write(elsewhere.path(), "agents/spy.md", "SECRET");
    write(elsewhere.path(), "skills/s/SKILL.md", skill);
    let link = |to: &str, from: &str| {
        let from = dir.path().join(from);
        std::fs::create_dir_all(from.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join(to), from).unwrap();
    };
    link("secret", "AGENTS.md");
    link("secret", ".ropewalk/commands/spy.md");
    link("agents", ".ropewalk/agents");
    link("skills", ".agents/skills");
    let knowledge = Knowledge::read(dir.path(), &shared(None));
    assert!(
        knowledge.instructions.names.is_empty()
            && knowledge.commands.is_empty()
            && knowledge.skills.is_empty()
    );
    assert_eq!(knowledge.roles, role::built_in());
    // A link within is as good as a file.
    write(dir.path(), "rules", "Use tabs.");
    std::os::unix::fs::symlink("rules", dir.path().join("CLAUDE.md")).unwrap();
    assert_eq!(rule_names(dir.path(), &shared(None)), ["CLAUDE.md"]);
    // The person may keep their files wherever they like.
    let person = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("skills"), person.path().join("skills")).unwrap();
    assert_eq!(Knowledge::read(dir.path(), &shared(Some(person.path()))).skills.len(), 1);
}

#[test]
fn a_persons_command_and_skill_go_before_the_projects() {
    let (dir, person) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(person.path(), "commands/ship.md", "Ship mine.");
    write(person.path(), "commands/own.md", "Own.");
    write(dir.path(), ".ropewalk/commands/ship.md", "Ship theirs.");
    write(dir.path(), ".claude/commands/test.md", "Test theirs.");
    write(dir.path(), ".ropewalk/commands/test.md", "Test ours.");
    write(dir.path(), ".opencode/command/open.md", "Open.");
    let skill = |text: &str| format!("---\nname: pdf\ndescription: {text}\n---\nHow to.");
    write(person.path(), "skills/pdf/SKILL.md", &skill("Mine"));
    write(dir.path(), ".claude/skills/pdf/SKILL.md", &skill("Theirs"));
    write(dir.path(), ".agents/skills/bad/SKILL.md", "no front matter");
    let shared = shared(Some(person.path()));
    let knowledge = Knowledge::read(dir.path(), &shared);
    let commands: Vec<_> =
        knowledge.commands.iter().map(|c| format!("{} {}", c.name, c.expand(""))).collect();
    assert_eq!(commands, ["own Own.", "ship Ship mine.", "test Test ours.", "open Open."]);
    let skills: Vec<_> = knowledge.skills.iter().map(|s| (s.name.as_ref(), s.description.as_ref())).collect();
    assert_eq!(skills, [("pdf", "Mine")]);
    assert_eq!(knowledge.skills[0].body(&[]).as_deref(), Some("How to."));
    assert!(system(dir.path(), &shared).contains("- pdf: Mine\n"));
}
