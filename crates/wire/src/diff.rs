//! The difference between two texts, for people. A unified diff can be applied: it turns the old text into
//! the new one, byte for byte.

mod unified;

use engine::FileChange;
use engine::diff::{CONTEXT_LINES, compare};

pub(crate) use engine::diff::DiffLine;
pub(crate) use unified::{hunks, unified};

pub(crate) fn lines(change: &FileChange) -> Vec<DiffLine<'_>> {
    let before: Vec<_> = change.before.as_deref().unwrap_or_default().lines().collect();
    let after: Vec<_> = change.after.as_deref().unwrap_or_default().lines().collect();
    shortened(&compare(&before, &after))
}

/// Omits unchanged lines that are far from any change.
fn shortened<'a>(lines: &[DiffLine<'a>]) -> Vec<DiffLine<'a>> {
    let mut near = vec![false; lines.len()];
    for (at, line) in lines.iter().enumerate() {
        if !matches!(line, DiffLine::Same(_)) {
            let end = (at + CONTEXT_LINES + 1).min(lines.len());
            near[at.saturating_sub(CONTEXT_LINES)..end].fill(true);
        }
    }
    let mut kept = Vec::new();
    for (line, near) in lines.iter().zip(near) {
        match kept.last_mut() {
            _ if near => kept.push(*line),
            Some(DiffLine::Skipped(count)) => *count += 1,
            _ => kept.push(DiffLine::Skipped(1)),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(before: Option<&str>, after: Option<&str>, expected: &Expect) {
        let change =
            FileChange { path: "a".into(), before: before.map(Into::into), after: after.map(Into::into) };
        let text: String = lines(&change).into_iter().map(|line| line.text() + "\n").collect();
        expected.assert_eq(&text);
    }

    #[test]
    fn changes_are_shown_with_a_little_around_them() {
        let before: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let after = before.replace("line 10\n", "line ten\nand a half\n").replace("line 20\n", "");
        check(
            Some(&before),
            Some(&after),
            &expect![[r#"
                @@ 6 lines unchanged @@
                 line 7
                 line 8
                 line 9
                -line 10
                +line ten
                +and a half
                 line 11
                 line 12
                 line 13
                @@ 3 lines unchanged @@
                 line 17
                 line 18
                 line 19
                -line 20
            "#]],
        );
    }

    #[test]
    fn new_and_removed_files_are_all_of_one_kind() {
        check(None, Some("a\nb\n"), &expect![["+a\n+b\n"]]);
        check(Some("a\n"), None, &expect![["-a\n"]]);
        check(Some("same\n"), Some("same\n"), &expect![["@@ 1 lines unchanged @@\n"]]);
    }
}
