//! What a turn does, seen from the log: scripted models, real tools, a real registry.

use agent::{Message, ModelStop};
use engine::{Body, Content, PermissionAnswer, ResourceLink};
use expect_test::{Expect, expect};
use testkit::Line::{self, Hang, Stop};
use testkit::{Script, call, fail, say, think};

use crate::harness::Harness;

/// One prompt in a folder with two files; answers every ask alike.
async fn check(replies: Vec<Vec<Line>>, answer: PermissionAnswer, expected: Expect) -> Harness {
    let mut harness = Harness::with(Script::new(replies)).await;
    harness.answer = answer;
    harness.write("a.txt", "one\ntwo\n");
    harness.write("src/b.txt", "b\n");
    let events = harness.prompt("go").await;
    expected.assert_eq(&harness.lines(&events));
    harness
}

#[tokio::test]
async fn the_model_speaks_uses_tools_and_is_told_what_came_of_them() {
    let harness = check(
        vec![
            vec![think("hm"), say("I "), say("look."), call("read", r#"{"path":"a.txt"}"#)],
            vec![call("edit", r#"{"path":"a.txt","old":"two","new":"2"}"#)],
            vec![call("shell", r#"{"command":"cat a.txt; exit 3"}"#)],
            vec![say("Done.")],
        ],
        PermissionAnswer::AllowOnce,
        expect![[r#"
            think hm
            say I look.
            1 starts: Read a.txt (Read)
            1 ends: one|two|
            2 starts: Edit a.txt (Edit)
            file DIR/a.txt Some("one|two|") -> Some("one|2|")
            2 ends:  told "edited a.txt at line 2"
            3 starts: cat a.txt; exit 3 (Execute)
            asks Execute Medium cat a.txt; exit 3
            3 Stdout: one|2|
            3 fails: one|2| exit Some(3) None
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("a.txt"), "one\n2\n");
}

#[tokio::test]
async fn a_refusal_is_told_to_the_model_and_the_turn_goes_on() {
    check(
        vec![vec![call("shell", r#"{"command":"touch x"}"#)], vec![say("Then not.")]],
        PermissionAnswer::DenyOnce,
        expect![[r#"
            1 starts: touch x (Execute)
            asks Execute Medium touch x
            1 fails: not allowed: the user refused it
            say Then not.
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn why_a_person_refuses_is_told_to_the_model() {
    check(
        vec![vec![call("shell", r#"{"command":"touch x"}"#)], vec![say("Then so.")]],
        PermissionAnswer::DenyBecause("use the write tool".into()),
        expect![[r#"
            1 starts: touch x (Execute)
            asks Execute Medium touch x
            1 fails: not allowed: the user refused it: use the write tool
            say Then so.
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_touched() {
    let harness = check(
        vec![vec![
            call("read", r#"{"path":"/etc/passwd"}"#),
            call("write", r#"{"path":"../out.txt","text":"x"}"#),
            call("nonsense", "{}"),
            call("read", "not json"),
        ]],
        PermissionAnswer::AllowOnce,
        expect![[r#"
            1 starts: Read /etc/passwd (Read)
            blocked read /etc/passwd workspace-write
            1 fails: /etc/passwd is outside the workspace; to work there too, start with --add-dir and its folder
            2 starts: Write ../out.txt (Edit)
            blocked write TOP/out.txt workspace-write
            2 fails: TOP/out.txt is outside the workspace; to work there too, start with --add-dir and its folder
            3 starts: nonsense (Other)
            3 fails: there is no tool "nonsense"; the tools are read, list, glob, search, edit, write, apply_patch, shell, jobs, job_input, update_plan, fetch, ask_user, task
            4 starts: read (Read)
            4 fails: invalid arguments: expected ident at line 1 column 2
            say the script is over
            title go
            EndTurn
        "#]],
    )
    .await;
    assert!(!harness.dir.join("../out.txt").exists());
}

#[tokio::test]
async fn a_mode_that_only_reads_refuses_the_rest_without_asking() {
    let script = Script::new([
        vec![call("write", r#"{"path":"new","text":"x"}"#), call("list", "{}")],
        vec![say("ok")],
    ]);
    let mut harness = Harness::with(script).await;
    harness.write("a.txt", "");
    let events = harness.prompt("/mode ask").await;
    expect![[r#"
        mode = ask
        say The mode is now ask.
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    let events = harness.prompt("go").await;
    expect![[r#"
        1 starts: Write new (Edit)
        blocked write DIR/new ask
        1 fails: not allowed: the session is in ask mode: only reading is allowed; switch to code mode
        2 starts: List . (Read)
        2 ends: a.txt|
        say ok
        title go
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    assert!(!harness.dir.join("new").exists());
}

#[tokio::test]
async fn a_file_that_somebody_else_changed_is_not_overwritten() {
    let edit = || vec![call("edit", r#"{"path":"a.txt","old":"one","new":"1"}"#)];
    let script = Script::new([vec![call("read", r#"{"path":"a.txt"}"#)], vec![], edit(), vec![]]);
    let mut harness = Harness::with(script).await;
    harness.write("a.txt", "one\n");
    harness.prompt("read").await;
    harness.write("a.txt", "one\nmore\n");
    let events = harness.prompt("edit").await;
    expect![[r#"
        1 starts: Edit a.txt (Edit)
        1 fails: the file changed since it was read; read it again first
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    assert_eq!(harness.read("a.txt"), "one\nmore\n");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_leaves_no_draft() {
    use std::os::unix::fs::PermissionsExt;
    let script = Script::new([vec![
        call("write", r#"{"path":"run.sh","text":"new"}"#),
        call("write", r#"{"path":"deep/er/f","text":"f"}"#),
    ]]);
    let mut harness = Harness::with(script).await;
    harness.write("run.sh", "old");
    let path = harness.dir.join("run.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let events = harness.prompt("go").await;
    expect![[r#"
        1 starts: Write run.sh (Edit)
        file DIR/run.sh Some("old") -> Some("new")
        1 ends:  told "replaced run.sh (1 line)"
        2 starts: Write deep/er/f (Edit)
        file DIR/deep/er/f None -> Some("f")
        2 ends:  told "created deep/er/f (1 line)"
        say the script is over
        title go
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(std::fs::read_dir(&harness.dir).unwrap().count(), 2);
}

#[tokio::test]
async fn search_leaves_out_what_git_ignores() {
    let script = Script::new([vec![
        call("search", r#"{"text":"needle"}"#),
        call("search", r#"{"text":"n.+e$","regex":true,"path":"src"}"#),
        call("search", r#"{"text":"(","regex":true}"#),
    ]]);
    let mut harness = Harness::with(script).await;
    harness.write(".gitignore", "target\n");
    harness.write("target/x", "needle\n");
    harness.write("src/a", "hay\na needle here\n");
    harness.write("src/b", "needle\n");
    harness.write(".hidden", "needle\n");
    harness.write("binary", "needle\0");
    let events = harness.prompt("go").await;
    let ends: Vec<_> =
        harness.lines(&events).lines().filter(|line| !line.contains("starts")).map(str::to_owned).collect();
    assert!(
        ends.contains(&"1 ends: .hidden:1: needle|src/a:2: a needle here|src/b:1: needle|".to_owned()),
        "{ends:?}"
    );
    assert!(ends.contains(&"2 ends: src/a:2: a needle here|src/b:1: needle|".to_owned()), "{ends:?}");
    assert!(
        ends.iter().any(|line| line.starts_with("3 fails: the regular expression cannot be used")),
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_cancel_stops_the_model_and_keeps_what_it_said() {
    let script = Script::new([vec![say("part of an ans"), Hang], vec![say("hi")]]);
    let mut harness = Harness::with(script.clone()).await;
    harness.send(vec![Content::text("go")]).await;
    harness.until(|body| matches!(body, Body::Text { .. })).await;
    harness.cancel().await;
    let events = harness.turn().await;
    // It is listed like any other, so it has a name too.
    assert_eq!(harness.lines(&events), "title go\nCancelled\n");

    harness.prompt("again").await;
    let user = |text: &str| Message::User { text: text.into(), images: vec![] };
    let said = Message::Assistant { text: "part of an ans".into(), calls: vec![], native: None };
    assert_eq!(script.requests()[1].messages, [user("go"), said, user("again")]);
}

#[tokio::test]
async fn a_cancel_ends_the_running_command_and_its_children() {
    let script = Script::new([vec![call("shell", r#"{"command":"sleep 300 & echo $!; wait"}"#)]]);
    let mut harness = Harness::with(script.clone()).await;
    harness.send(vec![Content::text("go")]).await;
    let events = harness.until(|body| matches!(body, Body::ToolOutput { .. })).await;
    let Some(Body::ToolOutput { text: pid, .. }) = events.last().map(|event| &event.body) else { panic!() };
    let process = format!("/proc/{}/stat", pid.trim());
    let runs = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    harness.cancel().await;
    let events = harness.turn().await;
    let end = events.iter().find_map(|event| match &event.body {
        Body::ToolEnded(end) => Some(end),
        _ => None,
    });
    let end = end.unwrap();
    assert!(end.failed);
    assert_eq!(end.exit.as_ref().unwrap().signal.as_deref(), Some("SIGTERM"));
    assert!(matches!(events.last().unwrap().body, Body::TurnEnded { stop: engine::Stop::Cancelled, .. }));
    while runs() {
        tokio::task::yield_now().await;
    }
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn limits_and_failures_end_the_turn_for_the_right_reason() {
    let forever = std::iter::repeat_with(|| vec![call("list", "{}")]).take(12);
    let mut harness = Harness::with(Script::new(forever)).await;
    let events = harness.prompt("go").await;
    assert!(
        harness.lines(&events).ends_with("12 ends: |\ntitle go\nMaxTurnRequests\n".replace("|", "").as_str())
    );

    let script = Script::new([
        vec![say("long"), Stop(ModelStop::MaxTokens)],
        vec![Stop(ModelStop::Refusal)],
        vec![say("half"), fail("the model is overloaded")],
        vec![say("well")],
    ]);
    let mut harness = Harness::with(script).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.extend(harness.prompt("go").await);
    }
    expect![[r#"
        say long
        title go
        MaxTokens
        Refusal
        say half
        Error: the model is overloaded
        Failed
        say well
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&all));
}

#[tokio::test]
async fn a_restart_changes_nothing_for_the_model() {
    let script = Script::new([
        vec![
            think("x"),
            say("a"),
            call("read", r#"{"path":"a.txt"}"#),
            call("write", r#"{"path":"b.txt","text":"b"}"#),
            call("shell", r#"{"command":"echo hi; exit 2"}"#),
        ],
        vec![call("list", "{}")],
        vec![say("done")],
        vec![say("live")],
        vec![say("restarted")],
    ]);
    let mut harness = Harness::with(script.clone()).await;
    harness.write("a.txt", "one\n");
    harness.prompt("first").await;
    harness.prompt("/help").await;
    harness.prompt("second").await;
    harness.restart().await;
    harness.prompt("second").await;
    let requests = script.requests();
    let (live, restarted) = (&requests[3].messages, &requests[4].messages);
    assert_eq!(live.len(), 9, "{live:#?}");
    assert_eq!(live[..], restarted[..9]);
    // Within the turn the model was told the same as afterwards.
    assert_eq!(requests[2].messages[..], live[..requests[2].messages.len()]);
}

#[tokio::test]
async fn links_and_images_reach_the_model_and_the_rest_is_warned_about() {
    let script = Script::new([vec![say("seen")], vec![say("again")]]);
    let mut harness = Harness::with(script.clone()).await;
    harness.write("a.txt", "one\n");
    let link = |uri: String| Content::Link(ResourceLink::new(uri, "n"));
    let uri = format!("file://{}/a.txt", harness.dir.display());
    let image = |mime: &str| Content::Image { mime: mime.into(), data: "AAAA".into(), uri: None };
    let blocks = vec![
        Content::text("look"),
        link(uri.clone()),
        link("ftp://x/y".into()),
        image("image/png"),
        image("image/bmp"),
    ];
    harness.send(blocks).await;
    let events = harness.turn().await;
    expect![[r#"
        Warning: ftp://x/y was left out: only file://, http:// and https:// links are read
        Warning: an image was left out: image/bmp is not one of jpeg, png, gif and webp
        say seen
        title look
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    harness.write("a.txt", "changed\n");
    harness.prompt("and now?").await;
    let requests = script.requests();
    let Message::User { text, images } = &requests[0].messages[0] else { panic!() };
    let expected = format!(
        "look\n<resource uri=\"{uri}\">one\n</resource>\n\
         <resource uri=\"ftp://x/y\" name=\"n\" unread=\"only file://, http:// and https:// links are read\"/>\n\
         <resource kind=\"image/bmp\" unread=\"image/bmp is not one of jpeg, png, gif and webp\"/>"
    );
    assert_eq!(text.as_ref(), expected);
    assert_eq!(images.len(), 1);
    assert_eq!(requests[1].messages[0], requests[0].messages[0], "a prompt stays what it was");
}
