use proptest::prelude::*;

use super::*;

fn edit(old: &str, new: &str) -> Replacement {
    Replacement { old: old.into(), new: new.into(), replace_all: false }
}

fn check(text: &str, old: &str, new: &str, expected: Result<(&str, u32), &str>) {
    let outcome = apply_edits(text, &[edit(old, new)]).map(|(text, spans)| {
        let line = line_at(&text, spans[0].start);
        (text, line)
    });
    let outcome = outcome.as_ref().map(|(text, line)| (text.as_str(), *line)).map_err(String::as_str);
    assert_eq!(outcome, expected, "{text:?} {old:?} {new:?}");
}

#[test]
fn the_exact_and_unique_text_is_replaced() {
    check("a\nb\nc\n", "b", "x", Ok(("a\nx\nc\n", 2)));
    check("\u{feff}a\n", "a", "b", Ok(("\u{feff}b\n", 1)));
    check("a\r\nb\r\n", "a\nb", "x\ny", Ok(("x\r\ny\r\n", 1)));
    check("a", "a", "x\ny", Ok(("x\ny", 1)));
    // Each place has the endings that are around it.
    check("a\r\nb\nc\n", "b\nc", "x\ny", Ok(("a\r\nx\ny\n", 2)));
    check("a\r\nb\nc\n", "a", "x\ny", Ok(("x\r\ny\r\nb\nc\n", 1)));
    check("a\r\nb", "b", "x\ny", Ok(("a\r\nx\r\ny", 2)));
    check("a\r\nb", "\nb", "\nx", Ok(("a\r\nx", 1)));
}

#[test]
fn blanks_at_line_ends_do_not_matter() {
    check("if x {  \n\ty();\t\n}\n", "if x {\n\ty();\n}", "z", Ok(("z\n", 1)));
    check("a  \nb\n", "a\nb\n", "c\n", Ok(("c\n", 1)));
    check("a \r\nb\r\n", "a\nb\n", "c\n", Ok(("c\r\n", 1)));
}

#[test]
fn typographic_marks_are_what_a_keyboard_makes_of_them() {
    check("say(“hi”) – it’s\n", "say(\"hi\") - it's", "x", Ok(("x\n", 1)));
    check("a\u{a0}b\nc\n", "a b\nc\n", "x\n", Ok(("x\n", 1)));
    // Only as a whole line: what is around a place cannot be guessed.
    check(
        "let s = “hi”;\n",
        "\"hi\"",
        "x",
        Err("the old text is not in the file; read the file again and copy the text from it"),
    );
}

#[test]
fn what_is_not_there_once_is_refused() {
    let times = |count, lines| {
        format!(
            "the old text is in the file {count} times (line {lines}); take more of what is around it, or set replace_all"
        )
    };
    check("a a", "a", "b", Err(&times(2, "1, 1")));
    check("aaa", "aa", "b", Err(&times(2, "1, 1")));
    check("a \nb\na  \nb\n", "a\nb", "c", Err(&times(2, "1, 3")));
    check("ab\ncd\r\nab\r\ncd\n", "ab\ncd", "x", Err(&times(2, "1, 3")));
    let again = "the old text is not in the file; read the file again and copy the text from it";
    check("abc", "x", "y", Err(again));
    check("abc", "", "y", Err("the old text is empty; write the file instead"));
    check("abc", "a", "a", Err("the old and the new text are the same"));
    check("a\n\nb", "  \n", "y", Err(again));
    check(
        "one\n  let a = 1;\n  let b = 2;\n}\n",
        "let a = 1;\nlet c = 3;",
        "y",
        Err(
            "the old text is not in the file; its line 1 is on line 2. From line 2 on the file has:\n  let a = 1;\n  let b = 2;\n}",
        ),
    );
}

#[test]
fn all_places_are_replaced_if_that_is_wanted() {
    let all = |text: &str, old: &str, new: &str| {
        let edit = Replacement { replace_all: true, ..edit(old, new) };
        apply_edits(text, &[edit]).map(|(text, spans)| (text, spans.len()))
    };
    assert_eq!(all("a b a", "a", "aa"), Ok(("aa b aa".into(), 2)));
    assert_eq!(all("aaa", "aa", "b"), Ok(("ba".into(), 1)));
    assert_eq!(all("x \ny\nx\n", "x\n", "z\n"), Ok(("x \ny\nz\n".into(), 1)));
    assert_eq!(all("“a” \nb\n“a”\n", "\"a\"", "c"), Ok(("c\nb\nc\n".into(), 2)));
}

#[test]
fn several_edits_are_done_in_order_all_or_none() {
    let both = [edit("a", "b c"), edit("c", "d")];
    assert_eq!(apply_edits("a\n", &both).unwrap().0, "b d\n");
    let wrong = apply_edits("a\n", &[edit("a", "b"), edit("a", "c")]).unwrap_err();
    assert!(wrong.starts_with("edit 2 of 2: the old text is not in the file"), "{wrong}");
    assert!(wrong.ends_with(". Nothing was changed"), "{wrong}");
    assert_eq!(
        apply_edits("a\n", &[edit("a", "b"), edit("b", "a")]).unwrap_err(),
        "the edits leave the file as it is"
    );
}

/// The lines as they are compared. A blank one at the end may be nothing but its place.
fn plain(text: &str) -> Vec<String> {
    let mut plain: Vec<String> = text.lines().map(|line| line_matching::plain(line).to_string()).collect();
    plain.truncate(plain.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
    plain
}

proptest! {
    /// Whatever is asked: only the place that was named changes, and it was the only one.
    #[test]
    fn nothing_outside_the_named_place_changes(
        text in "[ab \u{201C}\"\r\n]{0,24}",
        old in "[ab \u{201D}\"\n]{1,6}",
        new in "[xy\n]{0,4}",
    ) {
        let Ok((after, spans)) = apply_edits(&text, &[edit(&old, &new)]) else { return Ok(()) };
        prop_assert_eq!(spans.len(), 1);
        let span = spans[0].clone();
        let tail = after.len() - span.end;
        prop_assert!(text.len() >= span.start + tail);
        let place = span.start..text.len() - tail;
        prop_assert_eq!(&text[..place.start], &after[..span.start]);
        prop_assert_eq!(&text[place.end..], &after[span.end..]);
        // What was taken out is what was named, line by line.
        prop_assert_eq!(plain(&old), plain(&text[place.clone()]));
        prop_assert_eq!(after[span].replace("\r\n", "\n"), new);
    }
}
