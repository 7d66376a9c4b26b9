//! Changes of files as hunks.

use engine::{Changed, FileChange};

use crate::diff;
use crate::native::{Diff, DiffStatus, Hunk};

/// A change as it is shown, of at most so many lines.
pub(super) fn diff_of(change: &FileChange, lines_max: usize) -> Diff {
    let status = status(change.before.is_some(), change.after.is_some());
    let hunks = diff::hunks(change).into_iter().map(|hunk| Hunk {
        id: None,
        old: hunk.old,
        new: hunk.new,
        lines: hunk.lines,
    });
    shortened(change.path.display().to_string(), status, hunks.collect(), lines_max)
}

/// What is to be reviewed of a file, with the names by which its hunks can be kept or taken back.
pub fn changed_diff(changed: &Changed, lines_max: usize) -> Diff {
    let status = if changed.opaque {
        DiffStatus::Opaque
    } else {
        status(changed.before.is_some(), changed.after.is_some())
    };
    let hunks = changed.hunks.iter().map(|hunk| Hunk {
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
        (true, false) => DiffStatus::Gone,
        (true, true) => DiffStatus::Changed,
    }
}

/// Whole hunks as long as there is room, then a part of one.
fn shortened(path: String, status: DiffStatus, hunks: Vec<Hunk>, lines_max: usize) -> Diff {
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
    Diff { path, status, added, removed, hunks: kept, more }
}
