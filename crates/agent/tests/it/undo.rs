//! What a turn did to files is taken back and done again, whatever the files hold.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use agent::Message;
use engine::Content;
use expect_test::{Expect, expect};
use testkit::{Line, Script, call, say};

use crate::harness::Harness;

/// A harness in which each prompt is one reply of the model with these calls.
async fn harness(turns: Vec<Vec<Line>>) -> (Harness, Script) {
    let script = Script::new(turns.into_iter().flat_map(|calls| [calls, vec![say("ok")]]));
    (Harness::with(script.clone()).await, script)
}

fn shell(command: &str) -> Line {
    call("shell", serde_json::json!({ "command": command }).to_string())
}

async fn said(harness: &mut Harness, prompt: &str, expected: Expect) {
    let events = harness.prompt(prompt).await;
    expected.assert_eq(&harness.lines(&events));
}

#[tokio::test]
async fn an_edit_is_taken_back_and_done_again_to_the_byte() {
    let edit = call("edit", r#"{"path":"a.txt","old":"one","new":"1"}"#);
    let (mut harness, _) =
        harness(vec![vec![edit, call("write", r#"{"path":"new/b.txt","text":"b\n"}"#)]]).await;
    harness.write("a.txt", "\u{feff}one\r\ntwo");
    harness.prompt("go").await;
    assert_eq!(harness.read("a.txt"), "\u{feff}1\r\ntwo");
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            file DIR/a.txt Some("\u{feff}1\r|two") -> Some("\u{feff}one\r|two")
            file DIR/new/b.txt Some("b|") -> None
            say Undone: a.txt, new/b.txt.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("a.txt"), "\u{feff}one\r\ntwo");
    assert!(!harness.dir.join("new/b.txt").exists());
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            say No file was changed: there are no file changes to undo.
            EndTurn
        "#]],
    )
    .await;
    said(
        &mut harness,
        "/redo",
        expect![[r#"
            file DIR/a.txt Some("\u{feff}one\r|two") -> Some("\u{feff}1\r|two")
            file DIR/new/b.txt None -> Some("b|")
            say Redone: a.txt, new/b.txt.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!((harness.read("a.txt"), harness.read("new/b.txt")), ("\u{feff}1\r\ntwo".into(), "b\n".into()));
    said(
        &mut harness,
        "/redo",
        expect![[r#"
            say No file was changed: there is nothing to redo.
            EndTurn
        "#]],
    )
    .await;
    said(
        &mut harness,
        "/undo now",
        expect![[r#"
            say No file was changed: the only word that can follow is force.
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn the_model_hears_of_it_with_the_next_prompt_and_only_once() {
    let (mut harness, script) = harness(vec![vec![call("write", r#"{"path":"a.txt","text":"x"}"#)]]).await;
    for prompt in ["go", "/redo", "/undo", "/undo"] {
        harness.prompt(prompt).await;
    }
    harness.restart().await;
    harness.prompt("next").await;
    harness.prompt("and next").await;
    let requests = script.requests();
    let last = requests.last().unwrap();
    let prompts: Vec<_> = last
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::User { text, .. } => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    assert_eq!(prompts.len(), 3);
    assert!(
        prompts[1].contains("was told: Undone: a.txt. Read") && prompts[1].ends_with("\n\nnext"),
        "{}",
        prompts[1]
    );
    assert_eq!(prompts[2], "and next");
}

#[tokio::test]
async fn undo_goes_back_turn_by_turn_also_after_a_restart() {
    let write = |text: &str| vec![call("write", format!(r#"{{"path":"a","text":"{text}"}}"#))];
    let (mut harness, _) = harness(vec![write("1"), write("2"), write("3"), write("4")]).await;
    harness.write("a", "0");
    for prompt in ["one", "two", "three"] {
        harness.prompt(prompt).await;
    }
    harness.restart().await;
    harness.prompt("/undo").await;
    assert_eq!(harness.read("a"), "2");
    harness.restart().await;
    harness.prompt("/undo").await;
    harness.prompt("/undo").await;
    assert_eq!(harness.read("a"), "0");
    harness.prompt("/redo").await;
    assert_eq!(harness.read("a"), "1");
    harness.prompt("four").await;
    assert_eq!(harness.read("a"), "4");
    // A new change: what was undone before it is gone.
    said(
        &mut harness,
        "/redo",
        expect![[r#"
            say No file was changed: there is nothing to redo.
            EndTurn
        "#]],
    )
    .await;
    harness.prompt("/undo").await;
    assert_eq!(harness.read("a"), "1");
}

#[tokio::test]
async fn what_somebody_else_changed_is_not_overwritten() {
    let edit = |path: &str| call("write", format!(r#"{{"path":"{path}","text":"agent\n"}}"#));
    let (mut harness, _) = harness(vec![vec![edit("a"), edit("b")]]).await;
    harness.write("a", "a\n");
    harness.write("b", "b\n");
    harness.prompt("go").await;
    harness.write("a", "mine\n");
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            say No file was changed: somebody else has changed this since: DIR/a. To overwrite those changes: `/undo force`.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!((harness.read("a"), harness.read("b")), ("mine\n".into(), "agent\n".into()));
    harness.prompt("/undo force").await;
    assert_eq!((harness.read("a"), harness.read("b")), ("a\n".into(), "b\n".into()));
    // Even then nothing is lost.
    harness.prompt("/redo").await;
    assert_eq!((harness.read("a"), harness.read("b")), ("mine\n".into(), "agent\n".into()));
}

#[tokio::test]
async fn a_file_that_became_a_link_is_not_written_through() {
    let (mut harness, _) = harness(vec![vec![call("write", r#"{"path":"a","text":"agent"}"#)]]).await;
    harness.write("a", "a");
    harness.write("b", "agent");
    harness.prompt("go").await;
    fs::remove_file(harness.dir.join("a")).unwrap();
    std::os::unix::fs::symlink("b", harness.dir.join("a")).unwrap();
    said(
        &mut harness,
        "/undo force",
        expect![[r#"
            say No file was changed: DIR/a is a link now, and files are not restored through links.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("b"), "agent");
}

#[tokio::test]
async fn what_a_command_does_to_the_files_it_names_is_taken_back() {
    let command = "rm -rf gone && mv old new && chmod 755 run.sh && printf 'x' > made && cat bin.dat bin.dat > t && mv t bin.dat";
    let (mut harness, _) =
        harness(vec![vec![call("read", r#"{"path":"read.txt"}"#), shell(command)], vec![shell("./run.sh")]])
            .await;
    harness.write("gone/a", "a");
    harness.write("gone/deep/b", "b");
    harness.write("old", "token = sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAA\n");
    harness.write("run.sh", "#!/bin/sh\necho changed > read.txt\n");
    harness.write("read.txt", "read\n");
    let bytes = [0, 159, 146, 150, 255, b'\n'];
    fs::write(harness.dir.join("bin.dat"), bytes).unwrap();
    let mode =
        |harness: &Harness| fs::metadata(harness.dir.join("run.sh")).unwrap().permissions().mode() & 0o777;
    let was = mode(&harness);
    harness.prompt("one").await;
    assert!(
        !harness.dir.join("gone").exists() && harness.dir.join("new").exists() && mode(&harness) == 0o755
    );
    harness.prompt("two").await;
    assert_eq!(harness.read("read.txt"), "changed\n");

    // The second command did not name the file, but the session had read it.
    harness.prompt("/undo").await;
    assert_eq!(harness.read("read.txt"), "read\n");
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            file DIR/made Some("x") -> None
            file DIR/gone/a None -> Some("a")
            file DIR/gone/deep/b None -> Some("b")
            file DIR/old None -> Some("token = sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAA|")
            file DIR/new Some("token = sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAA|") -> None
            say Undone: made, gone/a, gone/deep/b, old, new, run.sh, bin.dat.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!((harness.read("gone/a"), harness.read("gone/deep/b")), ("a".into(), "b".into()));
    // Secrets come back as they were, whatever the log says.
    assert_eq!(harness.read("old"), "token = sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAA\n");
    assert!(!harness.dir.join("new").exists() && !harness.dir.join("made").exists());
    assert_eq!(fs::read(harness.dir.join("bin.dat")).unwrap(), bytes);
    assert_eq!(mode(&harness), was);
    harness.prompt("/redo").await;
    assert_eq!((mode(&harness), harness.dir.join("gone/a").exists()), (0o755, false));
}

#[tokio::test]
async fn a_patch_with_a_move_and_a_deletion_is_taken_back() {
    let patch = "*** Begin Patch\n*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-one\n+two\n*** Delete File: b\n*** Add File: c\n+c\n*** End Patch";
    let (mut harness, _) =
        harness(vec![vec![call("apply_patch", serde_json::json!({ "patch": patch }).to_string())]]).await;
    harness.write("run.sh", "one\n");
    fs::set_permissions(harness.dir.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    harness.write("b", "b\n");
    said(
        &mut harness,
        "go",
        expect![[r#"
            1 starts: Patch run.sh, bin/run.sh, b and 1 more (Edit)
            file DIR/bin/run.sh None -> Some("two|")
            file DIR/run.sh Some("one|") -> None
            file DIR/b Some("b|") -> None
            file DIR/c None -> Some("c|")
            1 ends:  told "moved to bin/run.sh\nremoved run.sh\ndeleted b\nadded c"
            say ok
            title go
            EndTurn
        "#]],
    )
    .await;
    let mode = |path| fs::metadata(harness.dir.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((harness.read("bin/run.sh"), mode("bin/run.sh")), ("two\n".into(), 0o750));
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            file DIR/bin/run.sh Some("two|") -> None
            file DIR/run.sh None -> Some("one|")
            file DIR/b None -> Some("b|")
            file DIR/c Some("c|") -> None
            say Undone: bin/run.sh, run.sh, b, c.
            EndTurn
        "#]],
    )
    .await;
    let mode = |path| fs::metadata(harness.dir.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (harness.read("run.sh"), mode("run.sh"), harness.read("b")),
        ("one\n".into(), 0o750, "b\n".into())
    );
    assert!(!harness.dir.join("bin/run.sh").exists() && !harness.dir.join("c").exists());
}

#[tokio::test]
async fn a_file_that_is_too_large_to_be_kept_is_named() {
    let (mut harness, _) = harness(vec![vec![shell("rm large small")]]).await;
    fs::File::create(harness.dir.join("large")).unwrap().set_len((25 << 20) + 1).unwrap();
    harness.write("small", "s");
    harness.prompt("go").await;
    said(
        &mut harness,
        "/undo",
        expect![[r#"
            say No file was changed: not everything can be restored: DIR/large: its earlier content is too large to be stored (25 MiB at most). To restore the rest: `/undo force`.
            EndTurn
        "#]],
    )
    .await;
    assert!(!harness.dir.join("small").exists());
    harness.prompt("/undo force").await;
    assert_eq!(harness.read("small"), "s");
}

#[tokio::test]
async fn what_is_kept_goes_with_its_session_and_lies_outside_the_workspace() {
    let (mut harness, _) = harness(vec![vec![call("write", r#"{"path":"a","text":"x"}"#)]]).await;
    harness.write("a", "secret");
    harness.prompt("go").await;
    let kept = harness.dir.with_file_name("undo").join(harness.session.id().as_str());
    assert!(kept.join("journal.json").is_file());
    harness.send(vec![Content::text("/undo")]).await;
    harness.turn().await;
    assert_eq!(harness.read("a"), "secret");
    harness.delete().await;
    assert!(!kept.exists());
}
