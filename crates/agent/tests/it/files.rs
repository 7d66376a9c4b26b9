//! The file tools, as a model uses them in a turn.

use std::fs;

use engine::{Body, Content, ToolContent};
use expect_test::{Expect, expect};
use testkit::{Line, Script, call};

use crate::harness::Harness;

const SEARCHED: [(&str, &str); 5] = [
    ("a.rs", "fn one() {\n    two();\n}\n\nfn Two() {}\n"),
    ("b/c.rs", "two\ntwo\n"),
    ("b/d.txt", "two and a.b\n"),
    ("bin", "two\0"),
    (".env", "two\n"),
];

async fn check(files: &[(&str, &str)], calls: Vec<Line>, expected: Expect) -> Harness {
    // One after the other: calls that only read would run side by side and end in any order.
    let replies = calls.into_iter().map(|call| vec![call]).chain([vec![]]);
    let mut harness = Harness::with(Script::new(replies)).await;
    for (path, text) in files {
        harness.write(path, text);
    }
    let events = harness.prompt("go").await;
    expected.assert_eq(&harness.lines(&events));
    harness
}

fn patch(text: &str) -> Line {
    call(
        "apply_patch",
        serde_json::json!({ "patch": format!("*** Begin Patch\n{text}*** End Patch") }).to_string(),
    )
}

#[tokio::test]
async fn an_image_is_given_to_the_model_and_other_bytes_are_refused() {
    let mut harness = Harness::with(Script::new([
        vec![call("read", r#"{"path":"a.png"}"#), call("read", r#"{"path":"a.bin"}"#)],
        vec![],
    ]))
    .await;
    fs::write(harness.dir.join("a.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    fs::write(harness.dir.join("a.bin"), b"\x7fELF\0\0").unwrap();
    let events = harness.prompt("go").await;
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
    let harness = check(
        &[("a", "one\ntwo\nthree\n")],
        vec![
            call("edit", r#"{"path":"a","edits":[{"old":"one","new":"1"},{"old":"nope","new":"2"}]}"#),
            call("edit", r#"{"path":"a","edits":[{"old":"one","new":"1"},{"old":"three","new":"3"}]}"#),
            call("edit", r#"{"path":"a"}"#),
        ],
        expect![[r#"
            1 starts: Edit a (Edit)
            1 fails: edit 2 of 2: the old text is not in the file; read the file again and copy the text from it. Nothing was changed
            2 starts: Edit a (Edit)
            file DIR/a Some("one|two|three|") -> Some("1|two|3|")
            2 ends:  told "made 2 edits in a"
            3 starts: edit (Edit)
            3 fails: say what to replace: old and new, or a list of edits
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(harness.read("a"), "1\ntwo\n3\n");
}

#[tokio::test]
async fn a_patch_changes_all_of_its_files_or_none() {
    let harness = check(
        &[("a", "one\n"), ("b", "two\n")],
        vec![
            patch("*** Update File: a\n-one\n+1\n*** Update File: b\n-nope\n+2\n"),
            patch("*** Update File: a\n-one\n+1\n*** Update File: ../out\n-x\n+y\n"),
            patch("*** Update File: a\n-one\n+1\n*** Add File: .git/hooks/post-commit\n+x\n"),
            patch("*** Update File: a\n-one\n+1\n*** Delete File: ./a\n"),
            patch("*** Update File: a\n-one\n+1\n*** Update File: b\n*** Move to: c/d\n-two\n+2\n"),
        ],
        expect![[r#"
            1 starts: Patch a, b (Edit)
            1 fails: b: these lines are not in the file as the patch has them; read it again:|nope. Nothing was changed
            2 starts: Patch a, ../out (Edit)
            blocked apply_patch TOP/out workspace-write
            2 fails: TOP/out is outside the workspace; to work there too, start with --add-dir and its folder
            3 starts: Patch a, .git/hooks/post-commit (Edit)
            blocked apply_patch DIR/.git/hooks/post-commit workspace-write
            3 fails: DIR/.git/hooks/post-commit is protected: it could make your editor, your shell or git run something; change it yourself
            4 starts: Patch a, ./a (Edit)
            4 fails: ./a: the patch names this file twice
            5 starts: Patch a, b, c/d (Edit)
            file DIR/a Some("one|") -> Some("1|")
            file DIR/c/d None -> Some("2|")
            file DIR/b Some("two|") -> None
            5 ends:  told "updated a\nmoved to c/d\nremoved b"
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!((harness.read("a"), harness.read("c/d")), ("1\n".into(), "2\n".into()));
    assert!(!harness.dir.join("b").exists());
}

#[tokio::test]
async fn files_are_found_by_name_newest_first() {
    let mut harness = Harness::with(Script::new([
        vec![call("glob", r#"{"pattern":"*.rs"}"#)],
        vec![call("glob", r#"{"pattern":"src/*.rs"}"#)],
        vec![call("glob", r#"{"pattern":"*.rs","path":"src/deep"}"#)],
        vec![call("glob", r#"{"pattern":"*.py"}"#)],
        vec![call("glob", r#"{"pattern":"["}"#)],
        vec![],
    ]))
    .await;
    for (age, path) in
        ["old.rs", "src/deep/b.rs", "src/new.rs", "target/x.rs", ".env.rs", "id_rsa.rs"].iter().enumerate()
    {
        harness.write(path, "");
        let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + age as u64);
        fs::File::options().write(true).open(harness.dir.join(path)).unwrap().set_modified(when).unwrap();
    }
    harness.write(".gitignore", "target\n");
    let events = harness.prompt("go").await;
    expect![[r#"
        1 starts: Find *.rs in . (Search)
        1 ends: id_rsa.rs|.env.rs|src/new.rs|src/deep/b.rs|old.rs|
        2 starts: Find src/*.rs in . (Search)
        2 ends: src/new.rs|
        3 starts: Find *.rs in src/deep (Search)
        3 ends: src/deep/b.rs|
        4 starts: Find *.py in . (Search)
        4 ends: no files|
        5 starts: glob (Search)
        5 fails: the pattern cannot be used: error parsing glob '**/[': unclosed character class; missing ']'
        title go
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
}

#[tokio::test]
async fn a_search_can_be_narrowed_and_shown_in_several_ways() {
    check(
        &SEARCHED,
        vec![
            call("search", r#"{"text":"two"}"#),
            call("search", r#"{"text":"two","ignore_case":true,"files":"*.rs","output":"count"}"#),
            call("search", r#"{"text":"TWO","ignore_case":true,"output":"files","path":"b"}"#),
            call("search", r#"{"text":"two","files":"a.rs","context":1}"#),
            call("search", r#"{"text":"a.b"}"#),
        ],
        expect![[r#"
            1 starts: Search "two" in . (Search)
            1 ends: a.rs:2:     two();|b/c.rs:1: two|b/c.rs:2: two|b/d.txt:1: two and a.b|[1 file that may hold secrets or must be asked for left out; name it to search it]|
            2 starts: Search "two" in . (Search)
            2 ends: a.rs: 2|b/c.rs: 2|
            3 starts: Search "TWO" in b (Search)
            3 ends: b/c.rs|b/d.txt|
            4 starts: Search "two" in . (Search)
            4 ends: a.rs-1- fn one() {|a.rs:2:     two();|a.rs-3- }|
            5 starts: Search "a.b" in . (Search)
            5 ends: b/d.txt:1: two and a.b|[1 file that may hold secrets or must be asked for left out; name it to search it]|
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_search_is_by_lines_unless_more_is_wanted_and_never_in_secrets_by_the_way() {
    check(
        &SEARCHED,
        vec![
            call("search", r#"{"text":"^fn \\w+\\(\\) \\{$","regex":true}"#),
            call("search", r#"{"text":"two\\n","regex":true}"#),
            call("search", r#"{"text":"two\\ntwo","regex":true,"multiline":true}"#),
            call("search", r#"{"text":"two","limit":1,"path":"b"}"#),
            call("search", r#"{"text":"two","path":"bin"}"#),
            call("search", r#"{"text":"two","path":".env"}"#),
            call("search", r#"{"text":"(","regex":true}"#),
        ],
        expect![[r#"
            1 starts: Search "^fn \\w+\\(\\) \\{$" in . (Search)
            1 ends: a.rs:1: fn one() {|[1 file that may hold secrets or must be asked for left out; name it to search it]|
            2 starts: search (Search)
            2 fails: the regular expression cannot be used: the literal "\n" is not allowed in a regex; for a hit over several lines set multiline
            3 starts: Search "two\\ntwo" in . (Search)
            3 ends: b/c.rs:1: two|b/c.rs:2: two|[1 file that may hold secrets or must be asked for left out; name it to search it]|
            4 starts: Search "two" in b (Search)
            4 ends: b/c.rs:1: two|[there may be more; look for something narrower]|
            5 starts: Search "two" in bin (Search)
            5 ends: no hits|
            6 starts: Search "two" in .env (Search)
            asks Read High DIR/.env
            6 ends: .env:1: two|
            7 starts: search (Search)
            7 fails: the regular expression cannot be used: regex parse error:|    (?:()|    ^|error: unclosed group
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn every_file_tool_says_where_it_works() {
    let calls = vec![
        call("read", r#"{"path":"a","start_line":1}"#),
        call("edit", r#"{"path":"a","old":"two","new":"2"}"#),
        call("write", r#"{"path":"b","text":"b"}"#),
        patch("*** Update File: a\n-one\n+1\n*** Delete File: b\n"),
        call("search", r#"{"text":"1"}"#),
    ];
    let mut harness = Harness::with(Script::new([calls, vec![]])).await;
    harness.write("a", "one\ntwo\n");
    let events = harness.prompt("go").await;
    let shown = |location: &engine::Location| {
        let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}", location.path.strip_prefix(&harness.dir).unwrap().display())
    };
    let all = |locations: &[engine::Location]| locations.iter().map(shown).collect::<Vec<_>>().join(" ");
    let lines = events.iter().filter_map(|event| match &event.body {
        Body::ToolStarted(start) => Some(format!("{} starts at {}\n", start.tool, all(&start.locations))),
        Body::ToolEnded(end) => Some(format!("ends at {}\n", all(&end.locations))),
        _ => None,
    });
    expect![[r#"
        read starts at a:1
        ends at a:1
        edit starts at a
        ends at a:2
        write starts at b
        ends at b
        apply_patch starts at a b
        ends at a
        search starts at 
        ends at a:1
    "#]]
    .assert_eq(&lines.collect::<String>());
}

#[tokio::test]
async fn what_is_too_large_or_no_text_is_not_written() {
    let write = |text: &str| call("write", serde_json::json!({ "path": "new", "text": text }).to_string());
    let large = "x".repeat((10 << 20) + 1);
    let harness = check(
        &[("a", "a")],
        vec![write("a\0b"), call("edit", r#"{"path":"a","old":"a","new":"\u0000"}"#), write(&large)],
        expect![[r#"
            1 starts: write (Edit)
            1 fails: the text contains a NUL byte, so it is not text; let a command make the file
            2 starts: Edit a (Edit)
            2 fails: the text contains a NUL byte, so it is not text; let a command make the file
            3 starts: write (Edit)
            3 fails: the text is larger than 10 MiB; let a command make the file
            title go
            EndTurn
        "#]],
    )
    .await;
    assert!(!harness.dir.join("new").exists());
    assert_eq!(harness.read("a"), "a");
}
