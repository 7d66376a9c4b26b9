//! The file tools, as a model uses them in a turn.

use std::fs;

use engine::{Body, Content, ToolContent};
use expect_test::{Expect, expect};
use testkit::{Line, Script, call};

use crate::house::House;

async fn check(files: &[(&str, &str)], calls: Vec<Line>, expected: Expect) -> House {
    let mut house = House::with(Script::new([calls, vec![]])).await;
    for (path, text) in files {
        house.write(path, text);
    }
    let events = house.prompt("go").await;
    expected.assert_eq(&house.lines(&events));
    house
}

fn patch(text: &str) -> Line {
    call(
        "apply_patch",
        serde_json::json!({ "patch": format!("*** Begin Patch\n{text}*** End Patch") }).to_string(),
    )
}

#[tokio::test]
async fn an_image_is_given_to_the_model_and_other_bytes_are_refused() {
    let mut house = House::with(Script::new([
        vec![call("read", r#"{"path":"a.png"}"#), call("read", r#"{"path":"a.bin"}"#)],
        vec![],
    ]))
    .await;
    fs::write(house.dir.join("a.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    fs::write(house.dir.join("a.bin"), b"\x7fELF\0\0").unwrap();
    let events = house.prompt("go").await;
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::ToolEnded(end) => Some(end),
            _ => None,
        })
        .collect();
    let image = ends.iter().flat_map(|end| &end.content).find_map(|content| match content {
        ToolContent::Block(Content::Image { mime, data, .. }) => Some((mime.as_ref(), data.as_ref())),
        _ => None,
    });
    assert_eq!(image, Some(("image/png", "iVBORw0KGgo=")));
    assert_eq!(ends.iter().filter(|end| end.failed).count(), 1);
}

#[tokio::test]
async fn several_edits_are_all_made_or_none() {
    let house = check(
        &[("a", "one\ntwo\nthree\n")],
        vec![
            call("edit", r#"{"path":"a","edits":[{"old":"one","new":"1"},{"old":"nope","new":"2"}]}"#),
            call("edit", r#"{"path":"a","edits":[{"old":"one","new":"1"},{"old":"three","new":"3"}]}"#),
            call("edit", r#"{"path":"a"}"#),
        ],
        expect![[r#"
        "#]],
    )
    .await;
    assert_eq!(house.read("a"), "1\ntwo\n3\n");
}

#[tokio::test]
async fn a_patch_changes_all_of_its_files_or_none() {
    let house = check(
        &[("a", "one\n"), ("b", "two\n")],
        vec![
            patch("*** Update File: a\n-one\n+1\n*** Update File: b\n-nope\n+2\n"),
            patch("*** Update File: a\n-one\n+1\n*** Update File: ../out\n-x\n+y\n"),
            patch("*** Update File: a\n-one\n+1\n*** Add File: .git/hooks/post-commit\n+x\n"),
            patch("*** Update File: a\n-one\n+1\n*** Delete File: ./a\n"),
            patch("*** Update File: a\n-one\n+1\n*** Update File: b\n*** Move to: c/d\n-two\n+2\n"),
        ],
        expect![[r#"
        "#]],
    )
    .await;
    assert_eq!((house.read("a"), house.read("c/d")), ("1\n".into(), "2\n".into()));
    assert!(!house.dir.join("b").exists());
}

#[tokio::test]
async fn files_are_found_by_name_newest_first() {
    let mut house = House::with(Script::new([
        vec![
            call("glob", r#"{"pattern":"*.rs"}"#),
            call("glob", r#"{"pattern":"src/*.rs"}"#),
            call("glob", r#"{"pattern":"*.rs","path":"src/deep"}"#),
            call("glob", r#"{"pattern":"*.py"}"#),
            call("glob", r#"{"pattern":"["}"#),
        ],
        vec![],
    ]))
    .await;
    for (age, path) in
        ["old.rs", "src/deep/b.rs", "src/new.rs", "target/x.rs", ".env.rs", "id_rsa.rs"].iter().enumerate()
    {
        house.write(path, "");
        let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + age as u64);
        fs::File::options().write(true).open(house.dir.join(path)).unwrap().set_modified(when).unwrap();
    }
    house.write(".gitignore", "target\n");
    let events = house.prompt("go").await;
    expect![[r#"
    "#]]
    .assert_eq(&house.lines(&events));
}

#[tokio::test]
async fn a_search_can_be_narrowed_and_shown_in_several_ways() {
    check(
        &[
            ("a.rs", "fn one() {\n    two();\n}\n\nfn Two() {}\n"),
            ("b/c.rs", "two\ntwo\n"),
            ("b/d.txt", "two and a.b\n"),
            ("bin", "two\0"),
            (".env", "two\n"),
        ],
        vec![
            call("search", r#"{"text":"two"}"#),
            call("search", r#"{"text":"two","ignore_case":true,"files":"*.rs","output":"count"}"#),
            call("search", r#"{"text":"TWO","ignore_case":true,"output":"files","path":"b"}"#),
            call("search", r#"{"text":"two","files":"a.rs","context":1}"#),
            call("search", r#"{"text":"a.b"}"#),
            call("search", r#"{"text":"^fn \\w+\\(\\) \\{$","regex":true}"#),
            call("search", r#"{"text":"two\\n","regex":true}"#),
            call("search", r#"{"text":"two\\ntwo","regex":true,"multiline":true}"#),
            call("search", r#"{"text":"two","limit":1,"path":"b"}"#),
            call("search", r#"{"text":"two","path":"bin"}"#),
            call("search", r#"{"text":"two","path":".env"}"#),
            call("search", r#"{"text":"(","regex":true}"#),
        ],
        expect![[r#"
        "#]],
    )
    .await;
}
