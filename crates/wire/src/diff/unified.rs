//! Differences in the form that `patch` and `git apply` read.

use std::path::Path;

use engine::FileChange;
use engine::diff::{DiffHunk, DiffLine, compare, counts, ranges};

/// Follows a last line without a line end.
const NO_LINE_END: &str = "\n\\ No newline at end of file\n";

/// The change as a diff of one file that applies in `folder`. Only the names, if nothing changed.
pub(crate) fn unified(change: &FileChange, folder: &Path) -> String {
    // Lines include their line ends here, because the line ends may be what changed.
    let before: Vec<_> = change.before.as_deref().unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<_> = change.after.as_deref().unwrap_or_default().split_inclusive('\n').collect();
    let lines = compare(&before, &after);
    let named = |side| name(side, &change.path, folder);
    // An empty file has no lines that could show its creation or deletion.
    let empty = match (change.before.as_deref(), change.after.as_deref()) {
        (None, Some("")) => Some("new"),
        (Some(""), None) => Some("deleted"),
        _ => None,
    };
    if let Some(what) = empty {
        return format!(
            "diff --git {} {}\n{what} file mode 100644\n",
            quoted(&named("a")),
            quoted(&named("b"))
        );
    }
    let header = |side| {
        let name = named(side);
        // The tab says that a space does not end the name.
        let end = if name.contains(' ') { "\t" } else { "" };
        quoted(&name) + end
    };
    let none = || "/dev/null".to_owned();
    let mut out = format!(
        "--- {}\n+++ {}\n",
        change.before.as_ref().map_or_else(none, |_| header("a")),
        change.after.as_ref().map_or_else(none, |_| header("b")),
    );
    for range in ranges(&lines) {
        put_hunk(&mut out, &lines[..range.start], &lines[range]);
    }
    out
}

/// The hunks as data.
pub(crate) fn hunks(change: &FileChange) -> Vec<DiffHunk> {
    let before: Vec<_> = change.before.as_deref().unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<_> = change.after.as_deref().unwrap_or_default().split_inclusive('\n').collect();
    let lines = compare(&before, &after);
    ranges(&lines).into_iter().map(|range| DiffHunk::of(&lines, range)).collect()
}

/// The path from the folder, or from the root if the file is not below the folder.
fn name(side: &str, path: &Path, folder: &Path) -> String {
    let below = path.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty());
    let path = below.unwrap_or(path).to_string_lossy();
    format!("{side}/{}", path.trim_start_matches('/'))
}

/// A name as git writes it: quoted if a character could end the line.
fn quoted(name: &str) -> String {
    if !name.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    quoted.push_str(&format!("\\{byte:03o}"));
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn put_hunk(out: &mut String, head: &[DiffLine<'_>], body: &[DiffLine<'_>]) {
    let (old_before, new_before) = counts(head);
    let (old, new) = counts(body);
    // A side without lines has the number of the line before it, as the format requires.
    let first = |before: usize, count: usize| if count == 0 { before } else { before + 1 };
    out.push_str(&format!("@@ -{},{old} +{},{new} @@\n", first(old_before, old), first(new_before, new)));
    for line in body {
        let text = line.text();
        out.push_str(text.strip_suffix('\n').unwrap_or(&text));
        out.push_str(if text.ends_with('\n') { "\n" } else { NO_LINE_END });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn diff(before: Option<&str>, after: Option<&str>) -> String {
        let text = |text: Option<&str>| text.map(Arc::from);
        let change = FileChange { path: "/project/a.txt".into(), before: text(before), after: text(after) };
        unified(&change, Path::new("/project"))
    }

    fn check(before: Option<&str>, after: Option<&str>, expected: &Expect) {
        expected.assert_eq(&diff(before, after));
    }

    /// What `patch` does, for diffs without fuzz.
    fn applied(before: &str, diff: &str) -> String {
        let old: Vec<_> = before.split_inclusive('\n').collect();
        let (mut at, mut new) = (0, String::new());
        let mut lines = diff.split_inclusive('\n').skip(2).peekable();
        while let Some(line) = lines.next() {
            if let Some(numbers) = line.strip_prefix("@@ -") {
                let (first, rest) = numbers.split_once(',').unwrap();
                let count: usize = rest.split_once(' ').unwrap().0.parse().unwrap();
                let first: usize = first.parse().unwrap();
                let from = if count == 0 { first } else { first - 1 };
                new.extend(old[at..from].iter().copied());
                at = from;
                continue;
            }
            let bare = lines.next_if(|next| next.starts_with('\\')).is_some();
            let text = if bare { line[1..].strip_suffix('\n').unwrap() } else { &line[1..] };
            match &line[..1] {
                "+" => new.push_str(text),
                side => {
                    assert_eq!(old[at], text, "the diff speaks of another text");
                    at += 1;
                    if side == " " {
                        new.push_str(text);
                    }
                }
            }
        }
        new.extend(old[at..].iter().copied());
        new
    }

    fn any_file() -> impl Strategy<Value = String> {
        let line =
            proptest::sample::select(vec!["a\n", "b\n", "c\n", "\n", "d\r\n", "é\u{2028}x\n", "--- a\n"]);
        let last = proptest::sample::select(vec!["", "end", "\\ No newline", "a"]);
        (proptest::collection::vec(line, 0..24), last).prop_map(|(lines, last)| lines.concat() + last)
    }

    proptest! {
        #[test]
        fn a_diff_turns_the_old_text_into_the_new(before in any_file(), after in any_file()) {
            prop_assert_eq!(applied(&before, &diff(Some(&before), Some(&after))), after);
        }
    }

    #[test]
    fn a_change_is_shown_as_patch_reads_it() {
        check(
            Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
            Some("1\n2\n3\n4\nfive\n6\n7\n8\n9"),
            &expect![[r#"
                --- a/a.txt
                +++ b/a.txt
                @@ -2,8 +2,8 @@
                 2
                 3
                 4
                -5
                +five
                 6
                 7
                 8
                -9
                +9
                \ No newline at end of file
            "#]],
        );
        check(
            None,
            Some("a\n"),
            &expect![[r#"
            --- /dev/null
            +++ b/a.txt
            @@ -0,0 +1,1 @@
            +a
        "#]],
        );
        check(
            Some("a\n"),
            None,
            &expect![[r#"
            --- a/a.txt
            +++ /dev/null
            @@ -1,1 +0,0 @@
            -a
        "#]],
        );
        check(None, Some(""), &expect![["diff --git a/a.txt b/a.txt\nnew file mode 100644\n"]]);
        check(Some(""), None, &expect![["diff --git a/a.txt b/a.txt\ndeleted file mode 100644\n"]]);
        check(
            Some("a"),
            Some("a"),
            &expect![[r#"
            --- a/a.txt
            +++ b/a.txt
        "#]],
        );
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let path = "/a\nb\"\u{7f}".into();
        let text = unified(&FileChange { path, before: None, after: Some("x\n".into()) }, Path::new("/"));
        assert_eq!(text.lines().nth(1), Some(r#"+++ "b/a\nb\"\177""#));
    }

    #[test]
    fn a_name_begins_at_the_folder_or_at_the_root() {
        let new = |path: &str, folder: &str| {
            let change = FileChange { path: path.into(), before: None, after: Some("x\n".into()) };
            unified(&change, Path::new(folder)).lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(new("/p/src/a.rs", "/p"), "+++ b/src/a.rs");
        assert_eq!(new("/p/src/a.rs", "/p/"), "+++ b/src/a.rs");
        assert_eq!(new("/p/a b.txt", "/p"), "+++ b/a b.txt\t");
        assert_eq!(new("/p/\u{fc}.txt", "/p"), "+++ b/\u{fc}.txt");
        assert_eq!(new("/q/a.rs", "/p"), "+++ b/q/a.rs");
        assert_eq!(new("/pq/a.rs", "/p"), "+++ b/pq/a.rs");
        assert_eq!(new("/a.rs", "/"), "+++ b/a.rs");
        assert_eq!(new("a.rs", "/p"), "+++ b/a.rs");
        assert_eq!(new("/p/a.rs", ""), "+++ b/p/a.rs");
    }
}
