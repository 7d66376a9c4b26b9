//! What a session changed is reviewed: kept or taken back, by file and by hunk, against the bytes that are
//! there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use agent::Message;
use engine::ChangedFile;
use expect_test::{Expect, expect};
use sandbox::Mode;
use testkit::{Line, Script, call, say};

use crate::harness::Harness;

fn write(path: &str, text: &str) -> Line {
    call("write", serde_json::json!({ "path": path, "text": text }).to_string())
}

/// A house in which each prompt is one reply of the model with these calls.
async fn harness(turns: Vec<Vec<Line>>) -> (Harness, Script) {
    let script = Script::new(turns.into_iter().flat_map(|calls| [calls, vec![say("ok")]]));
    (Harness::with(script.clone()).await, script)
}

async fn changes(harness: &Harness) -> Vec<ChangedFile> {
    harness.session.review().unwrap().changes().await.unwrap()
}

async fn keep(harness: &Harness, path: &str, hunk: Option<&str>) -> Result<(), String> {
    harness.session.review().unwrap().keep(path.into(), hunk.map(Into::into)).await
}

/// Each file, with its hunks as far as they change something.
async fn shown(harness: &Harness) -> String {
    let mut lines = String::new();
    for changed in changes(harness).await {
        let path = changed.path.strip_prefix(&harness.dir).unwrap().display().to_string();
        let hunk = |hunk: &engine::ChangedHunk| {
            let changed = hunk.lines.iter().filter(|line| !line.starts_with(' '));
            format!(" {}[{}]", hunk.new, changed.map(AsRef::as_ref).collect::<Vec<_>>().join(" "))
        };
        let opaque = if changed.opaque { " opaque" } else { "" };
        lines.push_str(&format!("{path}{opaque}{}\n", changed.hunks.iter().map(hunk).collect::<String>()));
    }
    lines
}

async fn ids(harness: &Harness) -> Vec<Arc<str>> {
    changes(harness)
        .await
        .iter()
        .flat_map(|changed| &changed.hunks)
        .map(|hunk| Arc::clone(&hunk.id))
        .collect()
}

async fn said(harness: &mut Harness, prompt: &str, expected: Expect) {
    let events = harness.prompt(prompt).await;
    expected.assert_eq(&harness.lines(&events));
}

fn numbers(changed: &[usize]) -> String {
    (1..=40).map(|n| if changed.contains(&n) { format!("new {n}\n") } else { format!("{n}\n") }).collect()
}

#[tokio::test]
async fn hunks_are_kept_and_taken_back_one_by_one() {
    let (mut harness, script) = harness(vec![vec![write("a.rs", &numbers(&[5, 20, 35]))], vec![]]).await;
    harness.write("a.rs", &numbers(&[]));
    harness.prompt("go").await;
    assert_eq!(shown(&harness).await, "a.rs 2[-5 +new 5] 17[-20 +new 20] 32[-35 +new 35]\n");
    let all = ids(&harness).await;
    let path = harness.dir.join("a.rs");
    keep(&harness, path.to_str().unwrap(), Some(&all[0])).await.unwrap();
    assert_eq!(ids(&harness).await, all[1..], "the others have their names still");
    // Whoever is late is told, and nothing else is taken for it.
    let stale = keep(&harness, "a.rs", Some(&all[0])).await.unwrap_err();
    assert!(stale.contains("look at the changes again"), "{stale}");
    said(
        &mut harness,
        &format!("/revert a.rs {}", all[0]),
        expect![[r#"
            say No file was changed: this change no longer exists, or was merged with another; look at the changes again.
            EndTurn
        "#]],
    )
    .await;
    harness.prompt(&format!("/revert a.rs {}", all[1])).await;
    assert_eq!(harness.read("a.rs"), numbers(&[5, 35]));
    assert_eq!(shown(&harness).await, "a.rs 32[-35 +new 35]\n");
    harness.restart().await;
    assert_eq!(ids(&harness).await, all[2..], "and after a restart");
    // Taking back is a change like every other.
    harness.prompt("/undo").await;
    assert_eq!(harness.read("a.rs"), numbers(&[5, 20, 35]));
    assert_eq!(ids(&harness).await, all[1..]);
    harness.prompt("/redo").await;
    assert_eq!(ids(&harness).await, all[2..]);
    keep(&harness, "a.rs", Some(&all[2])).await.unwrap();
    assert_eq!(shown(&harness).await, "");
    harness.prompt("next").await;
    let requests = script.requests();
    let heard = requests.last().unwrap().messages.iter().rev().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let heard = heard.unwrap();
    assert!(heard.contains("was told: Undone: the change of a.rs at line 20. Read"), "{heard}");
    assert!(!heard.contains("no longer exists"), "{heard}");
}

#[tokio::test]
async fn a_file_as_a_whole_comes_and_goes() {
    let calls =
        vec![write("new.txt", "n\n"), write("a.txt", "2\n"), call("shell", r#"{"command":"rm gone.sh"}"#)];
    let (mut harness, _) = harness(vec![calls]).await;
    harness.write("a.txt", "1\n");
    harness.write("gone.sh", "x\n");
    fs::set_permissions(harness.dir.join("gone.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    harness.prompt("go").await;
    assert_eq!(shown(&harness).await, "new.txt 1[+n]\na.txt 1[-1 +2]\ngone.sh 1[-x]\n");
    let sides: Vec<_> =
        changes(&harness).await.iter().map(|c| (c.before.is_some(), c.after.is_some())).collect();
    assert_eq!(sides, [(false, true), (true, true), (true, false)]);
    said(
        &mut harness,
        "/revert new.txt",
        expect![[r#"
            file DIR/new.txt Some("n|") -> None
            say Undone: all changes of new.txt.
            EndTurn
        "#]],
    )
    .await;
    // The only hunk of a file that was removed is all of it.
    let hunk = ids(&harness).await[1].to_string();
    harness.prompt(&format!("/revert gone.sh {hunk}")).await;
    let mode = fs::metadata(harness.dir.join("gone.sh")).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (harness.read("gone.sh"), mode, harness.dir.join("new.txt").exists()),
        ("x\n".into(), 0o750, false)
    );
    said(
        &mut harness,
        "/keep a.txt",
        expect![[r#"
            say Kept: a.txt, as it is now.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!((shown(&harness).await, harness.read("a.txt")), (String::new(), "2\n".into()));
    said(
        &mut harness,
        "/revert a.txt",
        expect![[r#"
            say No file was changed: this session has no unreviewed changes in DIR/a.txt.
            EndTurn
        "#]],
    )
    .await;
    said(
        &mut harness,
        "/revert",
        expect![[r#"
            say No file was changed: this session has no unreviewed changes.
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn the_list_is_right_whoever_changes_the_files() {
    let (mut harness, _) = harness(vec![vec![write("a", "2\n")], vec![write("a", "3\n")]]).await;
    harness.write("a", "1\n");
    harness.prompt("one").await;
    harness.prompt("/undo").await;
    assert_eq!(shown(&harness).await, "");
    harness.prompt("/redo").await;
    assert_eq!(shown(&harness).await, "a 1[-1 +2]\n");
    harness.write("a", "2\nmine\n");
    assert_eq!(shown(&harness).await, "a 1[-1 +2 +mine]\n");
    harness.write("a", "1\n");
    assert_eq!(shown(&harness).await, "");
    harness.write("a", "2\n");
    keep(&harness, "a", None).await.unwrap();
    // What was kept is what the next change is compared with.
    harness.prompt("two").await;
    assert_eq!(shown(&harness).await, "a 1[-2 +3]\n");
    harness.prompt("/revert a").await;
    assert_eq!(harness.read("a"), "2\n");
}

#[tokio::test]
async fn what_is_not_text_is_reviewed_as_a_whole() {
    let command = "printf 'x\\000y' > binary && cat large large > t && mv t large";
    let (mut harness, _) =
        harness(vec![vec![call("shell", serde_json::json!({ "command": command }).to_string())]]).await;
    let large = "0123456789\n".repeat(100_000);
    harness.write("large", &large);
    fs::write(harness.dir.join("binary"), [0xff, 0, 1]).unwrap();
    harness.prompt("go").await;
    assert_eq!(shown(&harness).await, "binary opaque\nlarge opaque\n");
    let refused = keep(&harness, "binary", Some("0f")).await.unwrap_err();
    assert!(refused.contains("only be kept or undone as a whole"), "{refused}");
    harness.prompt("/revert large").await;
    assert_eq!(harness.read("large"), large);
    keep(&harness, "binary", None).await.unwrap();
    assert_eq!(shown(&harness).await, "");
    assert_eq!(fs::read(harness.dir.join("binary")).unwrap(), b"x\0y");
}

#[tokio::test]
async fn names_are_only_names() {
    let names = ["a b.rs", "q\"uote\\.rs", "line\nfeed", "--force", "-", "é\u{202e}", "$(touch x)"];
    let (mut harness, _) = harness(vec![names.iter().map(|name| write(name, "new\n")).collect()]).await;
    harness.prompt("go").await;
    let found = changes(&harness).await;
    assert_eq!(found.len(), names.len());
    for changed in found {
        let prompt = engine::revert_prompt(&changed.path, Some(&changed.hunks[0].id));
        harness.prompt(&prompt).await;
        assert!(!changed.path.exists(), "{prompt}");
    }
    assert_eq!(shown(&harness).await, "");
    for outside in ["/etc/passwd", "../undo", "\"\"", "a b c", "\"x"] {
        let events = harness.prompt(&format!("/revert {outside}")).await;
        assert!(harness.lines(&events).starts_with("say No file was changed: "), "{outside}");
    }
}

#[tokio::test]
async fn links_and_fences_hold_for_it_too() {
    let (mut harness, _) = harness(vec![vec![write("a", "agent"), write("b", "agent")]]).await;
    harness.write("a", "a");
    harness.write("b", "b");
    harness.write("c", "agent");
    harness.prompt("go").await;
    fs::remove_file(harness.dir.join("a")).unwrap();
    std::os::unix::fs::symlink("c", harness.dir.join("a")).unwrap();
    assert_eq!(shown(&harness).await, "a opaque\nb 1[-b +agent]\n");
    said(
        &mut harness,
        "/revert a",
        expect![[r#"
            say No file was changed: DIR/a is a link now, and files are not restored through links.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("c"), "agent");
    harness.reach.mode = Mode::ReadOnly;
    harness.restart().await;
    assert_eq!(shown(&harness).await, "a opaque\nb 1[-b +agent]\n");
    said(
        &mut harness,
        "/revert b",
        expect![[r#"
            say No file was changed: DIR/b cannot be changed: the sandbox is read-only; to allow changes, restart with --sandbox workspace-write.
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("b"), "agent");
}

#[tokio::test]
async fn it_is_the_persons_own_act_in_every_mode() {
    let (mut harness, _) = harness(vec![vec![write("a", "2\n")]]).await;
    harness.write("a", "1\n");
    harness.prompt("go").await;
    harness.change("mode", "ask").await;
    harness.change("approval", "read-only").await;
    let hunk = ids(&harness).await[0].to_string();
    let events = harness.prompt("/keep").await;
    let listed = harness.lines(&events).replace(&hunk, "HUNK");
    assert!(
        listed.ends_with("choose one with `/keep PATH [HUNK]`:|- a: `HUNK` at line 1|\nEndTurn\n"),
        "{listed}"
    );
    harness.prompt("/revert a").await;
    assert_eq!(harness.read("a"), "1\n");
}

#[tokio::test]
async fn nobody_sees_secrets_in_a_review_and_they_come_back_all_the_same() {
    let token = |letter: &str| format!("key = sk-ant-api03-{}\n", letter.repeat(32));
    let (mut harness, _) = harness(vec![vec![write("a", &token("B"))]]).await;
    harness.redactor = Some(Arc::new(guard::SecretRedactor::new([]).unwrap()));
    harness.restart().await;
    harness.write("a", &token("A"));
    harness.prompt("go").await;
    let seen = format!("{:?}", changes(&harness).await);
    assert!(seen.contains("-key = ") && seen.contains("REDACTED"), "{seen}");
    assert!(!seen.contains("AAAA") && !seen.contains("BBBB"), "{seen}");
    let hunk = ids(&harness).await[0].to_string();
    harness.prompt(&format!("/revert a {hunk}")).await;
    assert_eq!(harness.read("a"), token("A"));
}
