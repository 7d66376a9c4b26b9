use proptest::prelude::*;

use super::*;

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}*** End Patch\n")
}

/// A text before and after an update that has this body.
fn check(before: &str, body: &str, expected: Result<&str, &str>) {
    let file_patches = parse::parse(&patch(&format!("*** Update File: f\n{body}"))).unwrap();
    let [FilePatch::Update { chunks, .. }] = file_patches.as_slice() else { panic!("{file_patches:?}") };
    let outcome = apply_chunks(before, chunks);
    assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{before:?} {body:?}");
}

#[test]
fn a_patch_is_read_as_codex_writes_it() {
    let text = patch(
        "*** Add File: new.txt\n+one\n+\n+two\n*** Delete File: old.txt\n*** Update File: a.rs\n*** Move to: b.rs\n\
         @@ class A\n@@ fn f()\n keep\n-take\n+put\n\n+more\n*** End of File\n",
    );
    let file_patches = parse::parse(&text).unwrap();
    let expected = [
        FilePatch::Add { path: "new.txt".into(), text: "one\n\ntwo\n".into() },
        FilePatch::Delete { path: "old.txt".into() },
        FilePatch::Update {
            path: "a.rs".into(),
            moved: Some("b.rs".into()),
            chunks: vec![Chunk {
                after: vec!["class A".into(), "fn f()".into()],
                lines: vec![
                    ChunkLine::Keep("keep".into()),
                    ChunkLine::Remove("take".into()),
                    ChunkLine::Add("put".into()),
                    ChunkLine::Keep(String::new()),
                    ChunkLine::Add("more".into()),
                ],
                at_end: true,
            }],
        },
    ];
    assert_eq!(file_patches, expected);
    for wrapped in
        [format!("<<'EOF'\n{text}EOF\n"), format!("apply_patch <<\"X\"\n{text}X"), format!("\n{text}\n\n")]
    {
        assert_eq!(parse::parse(&wrapped).unwrap(), expected, "{wrapped}");
    }
}

#[test]
fn what_is_no_patch_is_refused_with_a_reason() {
    for (text, reason) in [
        ("", "the patch must begin with"),
        ("--- a\n+++ b\n", "the patch must begin with"),
        ("*** Begin Patch\n*** Delete File: a\n", "the patch must end with"),
        ("*** Begin Patch\n*** End Patch", "the patch names no file"),
        ("*** Begin Patch\n*** Delete File:  \n*** End Patch", "line 2 of the patch is not understood"),
        ("*** Begin Patch\n*** Rename File: a\n*** End Patch", "line 2 of the patch is not understood"),
        ("*** Begin Patch\n*** Update File: a\n@@ x\n*** End Patch", "the patch has a part without lines"),
        ("*** Begin Patch\n*** End Patch\nrm -rf x", "line 3 of the patch comes after"),
    ] {
        let error = parse::parse(text).unwrap_err();
        assert!(error.starts_with(reason), "{text:?}: {error}");
    }
}

#[test]
fn lines_are_changed_where_they_stand() {
    check("a\nb\nc\n", "@@\n a\n-b\n+x\n c\n", Ok("a\nx\nc\n"));
    check("a\nb\nc\n", " a\n-b\n+x\n", Ok("a\nx\nc\n"));
    // The same lines again, after another line.
    check("f\n x\ng\n x\n", "@@ g\n- x\n+ y\n", Ok("f\n x\ng\n y\n"));
    check("a\nx\nb\nx\n", "@@\n-x\n+1\n@@\n-x\n+2\n", Ok("a\n1\nb\n2\n"));
    check("x\ny\nx\n", "-x\n+z\n*** End of File\n", Ok("x\ny\nz\n"));
    check("a\nb\n", "@@ a\n+x\n", Ok("a\nx\nb\n"));
    check("a\n", "+x\n", Ok("a\nx\n"));
    check("", "+x\n", Ok("x\n"));
    check("a\nb\n", "-a\n-b\n", Ok(""));
}

#[test]
fn what_stays_keeps_its_blanks_marks_and_endings() {
    check("a \nb\nc\n", " a\n-b\n+x\n", Ok("a \nx\nc\n"));
    check("“a”\nb\n", " \"a\"\n-b\n+x\n", Ok("“a”\nx\n"));
    check("a\r\nb\r\n", " a\n-b\n+x\n+y\n", Ok("a\r\nx\r\ny\r\n"));
    check("a\nb", "-b\n+x\n+y\n", Ok("a\nx\ny"));
    check("a", "@@ a\n+b\n", Ok("a\nb"));
    check("\u{feff}a\nb\n", "-b\n+x\n", Ok("\u{feff}a\nx\n"));
}

#[test]
fn what_cannot_be_found_is_refused() {
    check("a\n", "-b\n+x\n", Err("these lines are not in the file as the patch has them; read it again:\nb"));
    check("a\n", "@@ nope\n-a\n+x\n", Err("the line after @@ is not in the file; read it again:\nnope"));
    check(
        "  a\n",
        "-a\n+x\n",
        Err("these lines are not in the file as the patch has them; read it again:\na"),
    );
    check(
        "“a”\n„a”\n",
        "-\"a\"\n+x\n",
        Err("these lines fit 2 places of the file; take more of what is around them"),
    );
}

proptest! {
    /// A patch made from two texts leads from one to the other.
    #[test]
    fn a_patch_of_the_difference_makes_the_new_text(
        old in proptest::collection::vec("[a-c]{1,2}", 1..8),
        new in proptest::collection::vec("[a-c]{1,2}", 0..8),
        shared in 0usize..4,
    ) {
        let head: Vec<String> = (0..shared).map(|n| format!("head {n}")).collect();
        let text = |lines: &[String]| head.iter().chain(lines).map(|line| format!("{line}\n")).collect::<String>();
        let mut body: String = head.iter().map(|line| format!(" {line}\n")).collect();
        body.extend(old.iter().map(|line| format!("-{line}\n")));
        body.extend(new.iter().map(|line| format!("+{line}\n")));
        let file_patches = parse::parse(&patch(&format!("*** Update File: f\n{body}"))).unwrap();
        let [FilePatch::Update { chunks, .. }] = file_patches.as_slice() else { panic!("{file_patches:?}") };
        prop_assert_eq!(apply_chunks(&text(&old), chunks).unwrap(), text(&new));
    }

    #[test]
    fn no_text_breaks_the_reader(text in "(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: b|Move to: c|End of File)\n|@@ ?x?\n|[ +-]?[ab]?\n){0,12}") {
        if let Ok(file_patches) = parse::parse(&text) {
            for file_patch in file_patches {
                if let FilePatch::Update { chunks, .. } = file_patch {
                    apply_chunks("a\nb\n", &chunks).ok();
                }
            }
        }
    }
}
