//! The difference between two texts, line by line.
//!
//! Small texts are compared by their longest common subsequence; a larger text is one block of removed lines and one of
//! added lines. The result need not be minimal, but it is exact: the unchanged and removed lines are the old
//! text, the unchanged and added lines the new one.

use std::ops::Range;

/// Cells of the comparison's table: a megabyte or two, a few milliseconds.
const CELLS_MAX: usize = 1 << 20;
/// Unchanged lines shown around a change.
pub const CONTEXT_LINES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffLine<'a> {
    Same(&'a str),
    Gone(&'a str),
    Came(&'a str),
    /// This many unchanged lines are left out.
    Skipped(usize),
}

impl DiffLine<'_> {
    /// The line as a unified diff has it.
    pub fn text(self) -> String {
        match self {
            Self::Same(text) => format!(" {text}"),
            Self::Gone(text) => format!("-{text}"),
            Self::Came(text) => format!("+{text}"),
            Self::Skipped(count) => format!("@@ {count} lines unchanged @@"),
        }
    }
}

/// A hunk of a difference, with its context lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffHunk {
    /// The number of its first line, before and after; counted from 1.
    pub old: u32,
    pub new: u32,
    /// As a unified diff has them, without their line feeds.
    pub lines: Vec<String>,
}

impl DiffHunk {
    pub fn of(lines: &[DiffLine<'_>], range: Range<usize>) -> Self {
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        let (old, new) = counts(&lines[..range.start]);
        let text = |line: &DiffLine<'_>| {
            let text = line.text();
            text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
        };
        Self { old: number(old), new: number(new), lines: lines[range].iter().map(text).collect() }
    }
}

/// Every line of both texts. Ends of lines are part of them where the caller leaves them on.
pub fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<DiffLine<'a>> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (gone, came) = (&before[head..before.len() - tail], &after[head..after.len() - tail]);
    let mut lines: Vec<_> = before[..head].iter().map(|line| DiffLine::Same(line)).collect();
    if (gone.len() + 1).saturating_mul(came.len() + 1) <= CELLS_MAX {
        lines.extend(middle(gone, came));
    } else {
        lines.extend(gone.iter().map(|line| DiffLine::Gone(line)));
        lines.extend(came.iter().map(|line| DiffLine::Came(line)));
    }
    lines.extend(before[before.len() - tail..].iter().map(|line| DiffLine::Same(line)));
    lines
}

/// `lengths[a][b]` is the number of lines that `gone[a..]` and `came[b..]` have in common, in order.
fn middle<'a>(gone: &[&'a str], came: &[&'a str]) -> Vec<DiffLine<'a>> {
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
            lines.push(DiffLine::Same(gone[a]));
            (a, b) = (a + 1, b + 1);
        } else if a < gone.len()
            && (b == came.len() || lengths[(a + 1) * width + b] >= lengths[a * width + b + 1])
        {
            lines.push(DiffLine::Gone(gone[a]));
            a += 1;
        } else {
            lines.push(DiffLine::Came(came[b]));
            b += 1;
        }
    }
    lines
}

/// Where the lines of each hunk are: the changes, with a little around them.
pub fn ranges(lines: &[DiffLine<'_>]) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| !matches!(line, DiffLine::Same(_))) {
        let begin = at.saturating_sub(CONTEXT_LINES);
        let end = (at + CONTEXT_LINES + 1).min(lines.len());
        match hunks.last_mut() {
            Some(last) if begin <= last.end => last.end = end,
            Some(_) | None => hunks.push(begin..end),
        }
    }
    hunks
}

/// Lines of the old and of the new text.
pub fn counts(lines: &[DiffLine<'_>]) -> (usize, usize) {
    let old = lines.iter().filter(|line| !matches!(line, DiffLine::Came(_))).count();
    let new = lines.iter().filter(|line| !matches!(line, DiffLine::Gone(_))).count();
    (old, new)
}
