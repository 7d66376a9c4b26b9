//! How far the file tools reach, seen from the log: what is refused is a failed call with its event.

use agent::ToolAccess;
use engine::{Body, Content, ResourceLink};
use expect_test::{Expect, expect};
use sandbox::Mode;
use testkit::{Line, Script, call};

use crate::harness::Harness;

/// One prompt in a folder with one file, a secret beside it, and a further folder. One call at a time,
/// so that their events do not mix.
async fn check(mode: Mode, calls: Vec<Line>, expected: Expect) -> Harness {
    let script = Script::new(calls.into_iter().map(|call| vec![call]));
    let mut harness = Harness::reaching(script, |top| {
        for folder in ["more", "out"] {
            std::fs::create_dir(top.join(folder)).unwrap();
        }
        std::fs::write(top.join("out/secret"), "needle outside\n").unwrap();
        ToolAccess {
            mode,
            add_dirs: vec![top.join("more")],
            hidden: vec![top.join("work/state")],
            ..ToolAccess::default()
        }
    })
    .await;
    harness.write("a.txt", "needle\n");
    harness.write("state/db", "needle hidden\n");
    std::os::unix::fs::symlink("../out", harness.dir.join("link")).unwrap();
    let events = harness.prompt("go").await;
    expected.assert_eq(&harness.lines(&events));
    harness
}

#[tokio::test]
async fn what_is_outside_hidden_or_protected_is_refused_and_reported() {
    let harness = check(
        Mode::WorkspaceWrite,
        vec![
            call("write", r#"{"path":"../out/secret","text":"x"}"#),
            call("edit", r#"{"path":"link/secret","old":"needle","new":"x"}"#),
            call("write", r#"{"path":".vscode/settings.json","text":"{}"}"#),
            call("read", r#"{"path":"state/db"}"#),
            call("list", r#"{"path":"state"}"#),
            call("read", r#"{"path":"/proc/self/root/etc/passwd"}"#),
            call("search", r#"{"text":"needle"}"#),
        ],
        expect![[r#"
            1 starts: Write ../out/secret (Edit)
            blocked write TOP/out/secret workspace-write
            1 fails: TOP/out/secret is outside the workspace; to work there too, start with --add-dir and its folder
            2 starts: Edit link/secret (Edit)
            blocked edit TOP/out/secret workspace-write
            2 fails: TOP/out/secret is outside the workspace; to work there too, start with --add-dir and its folder
            3 starts: Write .vscode/settings.json (Edit)
            blocked write DIR/.vscode/settings.json workspace-write
            3 fails: DIR/.vscode/settings.json is protected: it could make your editor, your shell or git run something; change it yourself
            4 starts: Read state/db (Read)
            blocked read DIR/state/db workspace-write
            4 fails: DIR/state/db is hidden from tools and commands because it holds secrets; if the agent needs something from it, copy that into the workspace yourself
            5 starts: List state (Read)
            blocked list DIR/state workspace-write
            5 fails: DIR/state is hidden from tools and commands because it holds secrets; if the agent needs something from it, copy that into the workspace yourself
            6 starts: Read /proc/self/root/etc/passwd (Read)
            blocked read /etc/passwd workspace-write
            6 fails: /etc/passwd is outside the workspace; to work there too, start with --add-dir and its folder
            7 starts: Search "needle" in . (Search)
            7 ends: a.txt:1: needle|
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert!(!harness.dir.join(".vscode").exists());
    assert_eq!(harness.read("../out/secret"), "needle outside\n");
}

#[tokio::test]
async fn a_read_only_sandbox_refuses_every_write() {
    let harness = check(
        Mode::ReadOnly,
        vec![
            call("write", r#"{"path":"new.txt","text":"x"}"#),
            call("edit", r#"{"path":"a.txt","old":"needle","new":"x"}"#),
            call("read", r#"{"path":"a.txt"}"#),
        ],
        expect![[r#"
            1 starts: Write new.txt (Edit)
            blocked write DIR/new.txt read-only
            1 fails: DIR/new.txt cannot be changed: the sandbox is read-only; to allow changes, restart with --sandbox workspace-write
            2 starts: Edit a.txt (Edit)
            blocked edit DIR/a.txt read-only
            2 fails: DIR/a.txt cannot be changed: the sandbox is read-only; to allow changes, restart with --sandbox workspace-write
            3 starts: Read a.txt (Read)
            3 ends: needle|
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert!(!harness.dir.join("new.txt").exists());
    assert_eq!(harness.read("a.txt"), "needle\n");
}

#[tokio::test]
async fn further_folders_are_worked_in_like_the_first() {
    let harness = check(
        Mode::WorkspaceWrite,
        vec![
            call("write", r#"{"path":"../more/new/b.txt","text":"needle\n"}"#),
            call("search", r#"{"text":"needle","path":"../more"}"#),
            call("write", r#"{"path":"../more/.envrc","text":"x"}"#),
        ],
        expect![[r#"
            1 starts: Write ../more/new/b.txt (Edit)
            file TOP/more/new/b.txt None -> Some("needle|")
            1 ends:  told "created TOP/more/new/b.txt (1 line)"
            2 starts: Search "needle" in ../more (Search)
            2 ends: TOP/more/new/b.txt:1: needle|
            3 starts: Write ../more/.envrc (Edit)
            blocked write TOP/more/.envrc workspace-write
            3 fails: TOP/more/.envrc is protected: it could make your editor, your shell or git run something; change it yourself
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("../more/new/b.txt"), "needle\n");
}

#[tokio::test]
async fn without_a_fence_the_tools_reach_everything_and_ask_outside_the_workspace() {
    let harness = check(
        Mode::Off,
        vec![call("write", r#"{"path":"link/secret","text":"x"}"#), call("read", r#"{"path":"state/db"}"#)],
        expect![[r#"
            1 starts: Write link/secret (Edit)
            asks Edit High TOP/out/secret
            file TOP/out/secret Some("needle outside|") -> Some("x")
            1 ends:  told "replaced TOP/out/secret (1 line)"
            2 starts: Read state/db (Read)
            2 ends: needle hidden|
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("../out/secret"), "x");
}

#[tokio::test]
async fn a_link_in_a_prompt_leads_nowhere_that_is_hidden() {
    let mut harness = Harness::reaching(Script::new([vec![]]), |top| ToolAccess {
        hidden: vec![top.join("work/state")],
        ..ToolAccess::default()
    })
    .await;
    harness.write("state/db", "hidden");
    let link = ResourceLink {
        uri: format!("file://{}/state/db", harness.dir.display()).into(),
        name: "db".into(),
        mime: None,
        title: None,
        description: None,
        size_bytes: None,
    };
    harness.send(vec![Content::text("look"), Content::Link(link)]).await;
    let events = harness.turn().await;
    expect![[r#"
        Warning: file://DIR/state/db was left out: files there are never given to a model
        title look
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
}

#[tokio::test]
async fn the_mark_of_a_secret_does_not_take_its_place() {
    let harness = check(
        Mode::WorkspaceWrite,
        vec![
            call("write", r#"{"path":"a.txt","text":"key = [REDACTED]\n"}"#),
            call("edit", r#"{"path":"a.txt","old":"needle","new":"[REDACTED]"}"#),
            call("write", r#"{"path":"new.txt","text":"[REDACTED]"}"#),
        ],
        expect![[r#"
            1 starts: Write a.txt (Edit)
            1 fails: the new text contains [REDACTED], which stands for a secret that was taken out of the log; writing it would destroy the secret. Change only the lines around it, or let the user do it
            2 starts: Edit a.txt (Edit)
            2 fails: the new text contains [REDACTED], which stands for a secret that was taken out of the log; writing it would destroy the secret. Change only the lines around it, or let the user do it
            3 starts: Write new.txt (Edit)
            3 fails: the new text contains [REDACTED], which stands for a secret that was taken out of the log; writing it would destroy the secret. Change only the lines around it, or let the user do it
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("a.txt"), "needle\n");
    assert!(!harness.dir.join("new.txt").exists());

    let edit = r#"{"path":"doc.md","old":"a says","new":"we say [REDACTED] or"}"#;
    let mut harness = Harness::with(Script::new([vec![call("edit", edit)]])).await;
    harness.write("doc.md", "a says [REDACTED]\n");
    harness.prompt("go").await;
    assert_eq!(harness.read("doc.md"), "we say [REDACTED] or [REDACTED]\n");
}

#[tokio::test]
async fn the_tools_follow_the_session_and_a_folder_that_comes_back() {
    let list = || vec![call("list", "{}")];
    let mut harness = Harness::with(Script::new([list(), vec![], list(), vec![], list(), vec![]])).await;
    harness.write("sub/b", "");
    harness.write("a", "");
    let ends = |harness: &Harness, events: &[_]| {
        let lines = harness.lines(events);
        lines
            .lines()
            .filter(|line| line.starts_with("1 ends") || line.starts_with("1 fails"))
            .collect::<String>()
    };
    harness.move_to(harness.dir.join("sub")).await;
    let events = harness.prompt("go").await;
    assert_eq!(ends(&harness, &events), "1 ends: b|");
    std::fs::rename(harness.dir.join("sub"), harness.dir.join("away")).unwrap();
    let events = harness.prompt("go").await;
    expect!["1 fails: DIR/sub cannot be used: No such file or directory (os error 2); create the folder again or start a session without it"]
        .assert_eq(&ends(&harness, &events));
    assert!(!events.iter().any(|event| matches!(event.body, Body::PolicyBlocked { .. })));
    harness.write("sub/c", "");
    let events = harness.prompt("go").await;
    assert_eq!(ends(&harness, &events), "1 ends: c|");
}
