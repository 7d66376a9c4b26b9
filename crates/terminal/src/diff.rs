//! A file's diff: hunks with line numbers, added lines in green and removed lines in red.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use wire::native::{DiffStatus, DiffView};

use crate::sanitize::{one_line, sanitize};
use crate::theme::Theme;
use crate::wrap::{Margin, wrap_chars};

/// The number of lines in all hunks.
pub fn height(diffs: &[DiffView]) -> usize {
    diffs.iter().flat_map(|diff| &diff.hunks).map(|hunk| hunk.lines.len()).sum()
}

/// `+3 −1`, for all files together.
pub fn sum(diffs: &[DiffView]) -> Option<String> {
    let (added, removed) = diffs.iter().fold((0u64, 0u64), |(added, removed), diff| {
        (added + u64::from(diff.added), removed + u64::from(diff.removed))
    });
    (!diffs.is_empty()).then(|| format!("+{added} −{removed}"))
}

pub fn lines(diff: &DiffView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let status = match diff.status {
        DiffStatus::New => "new",
        DiffStatus::Deleted => "deleted",
        DiffStatus::Changed => "",
        DiffStatus::Opaque => "not shown: not text, or too large",
    };
    let mut head = vec![
        Span::styled(one_line(&diff.path), theme.strong()),
        Span::styled(format!("  +{}", diff.added), theme.good()),
        Span::styled(format!(" −{}", diff.removed), theme.bad()),
    ];
    if !status.is_empty() {
        head.push(Span::styled(format!("  {status}"), theme.quiet()));
    }
    let mut out = wrap_chars(&head, width, &Margin::none());
    let digits = numbers_width(diff);
    for (at, hunk) in diff.hunks.iter().enumerate() {
        if at > 0 {
            out.push(Line::styled(format!("{:>digits$} ⋮", ""), theme.quiet()));
        }
        let (mut old, mut new) = (hunk.old, hunk.new);
        for line in &hunk.lines {
            let (mark, text) = match line.chars().next() {
                Some(mark @ (' ' | '+' | '-')) => (mark, &line[1..]),
                _ => (' ', line.as_str()),
            };
            let (number, style) = match mark {
                '-' => (next(&mut old), theme.bad()),
                '+' => (next(&mut new), theme.good()),
                _ => {
                    next(&mut old);
                    (next(&mut new), Style::new())
                }
            };
            let number = Span::styled(format!("{number:>digits$} "), theme.quiet());
            let margin = Margin {
                first: vec![number, Span::styled(format!("{mark} "), style)],
                rest: vec![Span::raw(" ".repeat(digits + 3))],
            };
            let text = sanitize(text).replace('\n', "␊");
            out.extend(wrap_chars(&[Span::styled(text, style)], width, &margin));
        }
    }
    if diff.more > 0 {
        out.push(Line::styled(format!("… {} more lines", diff.more), theme.quiet()));
    }
    out
}

fn next(number: &mut u32) -> u32 {
    let this = *number;
    *number = number.saturating_add(1);
    this
}

/// The width of the highest line number.
fn numbers_width(diff: &DiffView) -> usize {
    let last = |hunk: &wire::native::HunkView| {
        let lines = u32::try_from(hunk.lines.len()).unwrap_or(u32::MAX);
        hunk.old.max(hunk.new).saturating_add(lines)
    };
    diff.hunks.iter().map(last).max().unwrap_or(0).to_string().len()
}
