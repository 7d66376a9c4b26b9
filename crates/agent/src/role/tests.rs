//! What comes of the files that people have.

use expect_test::{Expect, expect};

use super::*;
use crate::agent::{AgentConfig, Shared};
use crate::knowledge::Knowledge;

/// The roles of a project with these files, besides the built-in ones.
fn check(files: &[(&str, &str)], expected: Expect) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut config = AgentConfig::offline();
    config.knowledge.person = Some(dir.path().join("person"));
    let cwd = dir.path().join("work");
    let knowledge = Knowledge::read(&cwd, &Shared::new(config));
    let line = |role: &Role| {
        let uses = [
            (role.primary, "mode"),
            (role.sub_agent, "helper"),
            (role.hidden, "hidden"),
            (role.read_only, "reads"),
        ];
        let uses: Vec<_> = uses.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        format!(
            "{} [{}]: {} | {} | model {:?} tools {:?} without {:?}\n",
            role.name,
            uses.join(" "),
            role.description,
            role.instructions,
            role.model,
            role.tools,
            role.excluded_tools
        )
    };
    expected.assert_eq(&knowledge.roles[built_in().len()..].iter().map(line).collect::<String>());
}

#[test]
fn agents_are_read_from_the_files_of_several_programs() {
    check(
        &[
            ("person/agents/mine.md", "---\ndescription: My own\nmode: primary\nmodel: terse\n---\nBe mine."),
            (
                "work/.ropewalk/agents/docs.md",
                "---\nname: docs\ntools: [read, Edit]\nhidden: true\n---\nWrite docs.",
            ),
            (
                "work/.claude/agents/checker.md",
                "---\nname: checker\ndescription: Checks\ntools: Read, Grep, Glob\nmodel: sonnet\n---\n\nCheck.",
            ),
            (
                "work/.opencode/agent/plain.md",
                "---\ndescription: Plain\nmode: subagent\ntools:\n  write: false\npermission:\n  bash: deny\n---\nGo.",
            ),
        ],
        expect![[r#"
            mine [mode]: My own | Be mine. | model Some("offline:terse") tools None without []
            docs [mode helper hidden]: Write docs. | Write docs. | model None tools Some(["read", "edit", "write", "apply_patch"]) without []
            checker [helper reads]: Checks | Check. | model None tools Some(["read", "search", "glob", "list"]) without []
            plain [helper]: Plain | Go. | model None tools None without ["write", "shell", "jobs", "job_input"]
        "#]],
    );
}

#[test]
fn a_project_replaces_neither_what_is_built_in_nor_the_persons_own() {
    check(
        &[
            ("person/agents/mine.md", "---\ntools: [read]\n---\nOnly read."),
            ("work/.ropewalk/agents/mine.md", "Do everything."),
            ("work/.ropewalk/agents/ask.md", "Do everything."),
            ("work/.ropewalk/agents/review.md", "Do everything."),
            ("work/.ropewalk/agents/b.md", "---\nname: \"../x y\"\n---\nx"),
        ],
        expect![[r#"
            mine [mode helper reads]: Only read. | Only read. | model None tools Some(["read"]) without []
        "#]],
    );
}
