//! How far the file tools reach, seen from the log: what is refused is a failed call with its event.

use agent::Reach;
use engine::{Body, Content, Link};
use expect_test::{Expect, expect};
use sandbox::Mode;
use testkit::{Line, Script, call};

use crate::house::House;

/// One prompt in a folder with one file, a secret beside it, and a further folder. One call at a time,
/// so that their events do not mix.
async fn check(mode: Mode, calls: Vec<Line>, expected: Expect) -> House {
    let script = Script::new(calls.into_iter().map(|call| vec![call]));
    let mut house = House::reaching(script, |top| {
        for folder in ["more", "out"] {
            std::fs::create_dir(top.join(folder)).unwrap();
        }
        std::fs::write(top.join("out/secret"), "needle outside\n").unwrap();
        Reach {
            mode,
            add_dirs: vec![top.join("more")],
            hidden: vec![top.join("work/state")],
            ..Reach::default()
        }
    })
    .await;
    house.write("a.txt", "needle\n");
    house.write("state/db", "needle hidden\n");
    std::os::unix::fs::symlink("../out", house.dir.join("link")).unwrap();
    let events = house.prompt("go").await;
    expected.assert_eq(&house.lines(&events));
    house
}

#[tokio::test]
async fn what_is_outside_hidden_or_protected_is_refused_and_reported() {
    let house = check(
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
            4 fails: DIR/state/db is hidden from tools and commands because it holds secrets; copy what is needed into the workspace yourself
            5 starts: List state (Read)
            blocked list DIR/state workspace-write
            5 fails: DIR/state is hidden from tools and commands because it holds secrets; copy what is needed into the workspace yourself
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
    assert!(!house.dir.join(".vscode").exists());
    assert_eq!(house.read("../out/secret"), "needle outside\n");
}

#[tokio::test]
async fn a_read_only_sandbox_refuses_every_write() {
    let house = check(
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
    assert!(!house.dir.join("new.txt").exists());
    assert_eq!(house.read("a.txt"), "needle\n");
}

#[tokio::test]
async fn further_folders_are_worked_in_like_the_first() {
    let house = check(
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
    assert_eq!(house.read("../more/new/b.txt"), "needle\n");
}

#[tokio::test]
async fn without_a_fence_the_tools_reach_everything_and_ask_outside_the_workspace() {
    let house = check(
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
    assert_eq!(house.read("../out/secret"), "x");
}

#[tokio::test]
async fn a_link_in_a_prompt_leads_nowhere_that_is_hidden() {
    let mut house = House::reaching(Script::new([vec![]]), |top| Reach {
        hidden: vec![top.join("work/state")],
        ..Reach::default()
    })
    .await;
    house.write("state/db", "hidden");
    let link = Link {
        uri: format!("file://{}/state/db", house.dir.display()).into(),
        name: "db".into(),
        mime: None,
        title: None,
        description: None,
        size_bytes: None,
    };
    house.send(vec![Content::text("look"), Content::Link(link)]).await;
    let events = house.turn().await;
    expect![[r#"
        Warning: file://DIR/state/db was left out: files there are never given to a model
        title look
        EndTurn
    "#]]
    .assert_eq(&house.lines(&events));
}

#[tokio::test]
async fn the_mark_of_a_secret_does_not_take_its_place() {
    let house = check(
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
    assert_eq!(house.read("a.txt"), "needle\n");
    assert!(!house.dir.join("new.txt").exists());

    let edit = r#"{"path":"doc.md","old":"a says","new":"we say [REDACTED] or"}"#;
    let mut house = House::with(Script::new([vec![call("edit", edit)]])).await;
    house.write("doc.md", "a says [REDACTED]\n");
    house.prompt("go").await;
    assert_eq!(house.read("doc.md"), "we say [REDACTED] or [REDACTED]\n");
}

#[tokio::test]
async fn the_tools_follow_the_session_and_a_folder_that_comes_back() {
    let list = || vec![call("list", "{}")];
    let mut house = House::with(Script::new([list(), vec![], list(), vec![], list(), vec![]])).await;
    house.write("sub/b", "");
    house.write("a", "");
    let ends = |house: &House, events: &[_]| {
        let lines = house.lines(events);
        lines
            .lines()
            .filter(|line| line.starts_with("1 ends") || line.starts_with("1 fails"))
            .collect::<String>()
    };
    house.move_to(house.dir.join("sub")).await;
    let events = house.prompt("go").await;
    assert_eq!(ends(&house, &events), "1 ends: b|");
    std::fs::rename(house.dir.join("sub"), house.dir.join("away")).unwrap();
    let events = house.prompt("go").await;
    expect!["1 fails: DIR/sub cannot be used: No such file or directory (os error 2); make the folder again or start a session without it"]
        .assert_eq(&ends(&house, &events));
    assert!(!events.iter().any(|event| matches!(event.body, Body::PolicyBlocked { .. })));
    house.write("sub/c", "");
    let events = house.prompt("go").await;
    assert_eq!(ends(&house, &events), "1 ends: c|");
}
