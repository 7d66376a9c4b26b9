//! File changes as hunks.

use engine::{ChangedFile, FileChange};

use crate::diff;
use crate::native::{DiffStatus, DiffView, HunkView};

/// A change as it is shown, with at most `lines_max` lines.
pub(super) fn diff_of(change: &FileChange, lines_max: usize) -> DiffView {
    let status = status(change.before.is_some(), change.after.is_some());
    let hunks = diff::hunks(change).into_iter().map(|hunk| HunkView {
        id: None,
        old: hunk.old,
        new: hunk.new,
        lines: hunk.lines,
    });
    shortened(change.path.display().to_string(), status, hunks.collect(), lines_max)
}

/// A file's changes for the review, with the ids by which hunks are kept or reverted.
pub fn changed_diff(changed: &ChangedFile, lines_max: usize) -> DiffView {
    let status = if changed.opaque {
        DiffStatus::Opaque
    } else {
        status(changed.before.is_some(), changed.after.is_some())
    };
    let hunks = changed.hunks.iter().map(|hunk| HunkView {
        id: Some(hunk.id.to_string()),
        old: hunk.old,
        new: hunk.new,
        lines: hunk.lines.iter().map(ToString::to_string).collect(),
    });
    shortened(changed.path.display().to_string(), status, hunks.collect(), lines_max)
}

fn status(before: bool, after: bool) -> DiffStatus {
    match (before, after) {
        (false, _) => DiffStatus::New,
        (true, false) => DiffStatus::Deleted,
        (true, true) => DiffStatus::Changed,
    }
}

/// Complete hunks as long as they fit, then a part of one.
fn shortened(path: String, status: DiffStatus, hunks: Vec<HunkView>, lines_max: usize) -> DiffView {
    let count = |sign: char| {
        let lines = hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.starts_with(sign));
        u32::try_from(lines.count()).unwrap_or(u32::MAX)
    };
    let (added, removed) = (count('+'), count('-'));
    let (mut kept, mut left, mut more) = (Vec::new(), lines_max, 0);
    for mut hunk in hunks {
        more += hunk.lines.len().saturating_sub(left) as u64;
        hunk.lines.truncate(left);
        left -= hunk.lines.len();
        if !hunk.lines.is_empty() {
            kept.push(hunk);
        }
    }
    DiffView { path, status, added, removed, hunks: kept, more }
}
