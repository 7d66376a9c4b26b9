//! The difference between two texts, line by line, as people read it.
//!
//! The longest common subsequence, for texts that are small enough; what is larger is shown as one
//! block that went and one that came. It need not be minimal, but a unified diff applies: it turns the
//! text that was into the text that is, to the last byte.

mod unified;

use engine::FileChange;

pub(crate) use unified::{hunks, unified};

/// Cells of the comparison's table: a megabyte or two, a few milliseconds.
const CELLS_MAX: usize = 1 << 20;
/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Same(&'a str),
    Gone(&'a str),
    Came(&'a str),
    /// This many unchanged lines are left out.
    Skipped(usize),
}

impl Line<'_> {
    /// The line as a unified diff has it.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Same(text) => format!(" {text}"),
            Self::Gone(text) => format!("-{text}"),
            Self::Came(text) => format!("+{text}"),
            Self::Skipped(count) => format!("@@ {count} lines unchanged @@"),
        }
    }
}

pub(crate) fn lines(change: &FileChange) -> Vec<Line<'_>> {
    let before: Vec<_> = change.before.as_deref().unwrap_or_default().lines().collect();
    let after: Vec<_> = change.after.as_deref().unwrap_or_default().lines().collect();
    shortened(&compare(&before, &after))
}

fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (gone, came) = (&before[head..before.len() - tail], &after[head..after.len() - tail]);
    let mut lines: Vec<_> = before[..head].iter().map(|line| Line::Same(line)).collect();
    if (gone.len() + 1).saturating_mul(came.len() + 1) <= CELLS_MAX {
        lines.extend(middle(gone, came));
    } else {
        lines.extend(gone.iter().map(|line| Line::Gone(line)));
        lines.extend(came.iter().map(|line| Line::Came(line)));
    }
    lines.extend(before[before.len() - tail..].iter().map(|line| Line::Same(line)));
    lines
}

/// `lengths[a][b]` is how many lines `gone[a..]` and `came[b..]` have in common, in order.
fn middle<'a>(gone: &[&'a str], came: &[&'a str]) -> Vec<Line<'a>> {
    let width = came.len() + 1;
    let mut lengths = vec![0_u32; (gone.len() + 1) * width];
    for a in (0..gone.len()).rev() {
        for b in (0..came.len()).rev() {
            lengths[a * width + b] = if gone[a] == came[b] {
                lengths[(a + 1) * width + b + 1] + 1
            } else {
                lengths[(a + 1) * width + b].max(lengths[a * width + b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut lines = Vec::new();
    while a < gone.len() || b < came.len() {
        if a < gone.len() && b < came.len() && gone[a] == came[b] {
            lines.push(Line::Same(gone[a]));
            (a, b) = (a + 1, b + 1);
        } else if a < gone.len()
            && (b == came.len() || lengths[(a + 1) * width + b] >= lengths[a * width + b + 1])
        {
            lines.push(Line::Gone(gone[a]));
            a += 1;
        } else {
            lines.push(Line::Came(came[b]));
            b += 1;
        }
    }
    lines
}

/// Leaves out unchanged lines that are far from any change.
fn shortened<'a>(lines: &[Line<'a>]) -> Vec<Line<'a>> {
    let mut near = vec![false; lines.len()];
    for (at, line) in lines.iter().enumerate() {
        if !matches!(line, Line::Same(_)) {
            let end = (at + CONTEXT_LINES + 1).min(lines.len());
            near[at.saturating_sub(CONTEXT_LINES)..end].fill(true);
        }
    }
    let mut kept = Vec::new();
    for (line, near) in lines.iter().zip(near) {
        match kept.last_mut() {
            _ if near => kept.push(*line),
            Some(Line::Skipped(count)) => *count += 1,
            _ => kept.push(Line::Skipped(1)),
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
