//! A file's change: its hunks with line numbers, what came in green and what went in red.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use wire::native::{Diff, DiffStatus};

use crate::clean::{clean, one_line};
use crate::look::Look;
use crate::wrap::{Margin, chop};

/// Lines that all hunks of these have.
pub fn height(diffs: &[Diff]) -> usize {
    diffs.iter().flat_map(|diff| &diff.hunks).map(|hunk| hunk.lines.len()).sum()
}

/// `+3 −1`, over all of them.
pub fn sum(diffs: &[Diff]) -> Option<String> {
    let (added, removed) = diffs.iter().fold((0u64, 0u64), |(added, removed), diff| {
        (added + u64::from(diff.added), removed + u64::from(diff.removed))
    });
    (!diffs.is_empty()).then(|| format!("+{added} −{removed}"))
}

pub fn lines(diff: &Diff, width: usize, look: Look) -> Vec<Line<'static>> {
    let status = match diff.status {
        DiffStatus::New => "new",
        DiffStatus::Gone => "deleted",
        DiffStatus::Changed => "",
        DiffStatus::Opaque => "not shown: no text, or too large",
    };
    let mut head = vec![
        Span::styled(one_line(&diff.path), look.strong()),
        Span::styled(format!("  +{}", diff.added), look.good()),
        Span::styled(format!(" −{}", diff.removed), look.bad()),
    ];
    if !status.is_empty() {
        head.push(Span::styled(format!("  {status}"), look.quiet()));
    }
    let mut out = chop(&head, width, &Margin::none());
    let digits = numbers_width(diff);
    for (at, hunk) in diff.hunks.iter().enumerate() {
        if at > 0 {
            out.push(Line::styled(format!("{:>digits$} ⋮", ""), look.quiet()));
        }
        let (mut old, mut new) = (hunk.old, hunk.new);
        for line in &hunk.lines {
            let (mark, text) = match line.chars().next() {
                Some(mark @ (' ' | '+' | '-')) => (mark, &line[1..]),
                _ => (' ', line.as_str()),
            };
            let (number, style) = match mark {
                '-' => (next(&mut old), look.bad()),
                '+' => (next(&mut new), look.good()),
                _ => {
                    next(&mut old);
                    (next(&mut new), Style::new())
                }
            };
            let number = Span::styled(format!("{number:>digits$} "), look.quiet());
            let margin = Margin {
                first: vec![number, Span::styled(format!("{mark} "), style)],
                rest: vec![Span::raw(" ".repeat(digits + 3))],
            };
            let text = clean(text).replace('\n', "␊");
            out.extend(chop(&[Span::styled(text, style)], width, &margin));
        }
    }
    if diff.more > 0 {
        out.push(Line::styled(format!("… {} more lines", diff.more), look.quiet()));
    }
    out
}

fn next(number: &mut u32) -> u32 {
    let this = *number;
    *number = number.saturating_add(1);
    this
}

/// Digits of the highest number.
fn numbers_width(diff: &Diff) -> usize {
    let last = |hunk: &wire::native::Hunk| {
        let lines = u32::try_from(hunk.lines.len()).unwrap_or(u32::MAX);
        hunk.old.max(hunk.new).saturating_add(lines)
    };
    diff.hunks.iter().map(last).max().unwrap_or(0).to_string().len()
}
