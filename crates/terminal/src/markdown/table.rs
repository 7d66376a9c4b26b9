//! Renders a table: columns as wide as their widest cell, or, where the screen is too narrow, one line per cell.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::inline;
use crate::theme::Theme;
use crate::wrap::{Margin, wrap};

const GAP: &str = "  ";
/// Nobody reads more, and columns are measured over all of them.
const ROWS_MAX: usize = 500;

#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The first row is a header.
    headed: bool,
}

impl Table {
    pub fn push(&mut self, line: &str) {
        let inner = line.trim().trim_start_matches('|');
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
        let divides =
            cells.iter().all(|cell| cell.contains('-') && cell.chars().all(|c| matches!(c, '-' | ':')));
        if divides && self.rows.len() == 1 {
            self.headed = true;
        } else if self.rows.len() < ROWS_MAX {
            self.rows.push(cells);
        }
    }

    pub fn lines(&self, width: usize, base: Style, theme: Theme) -> Vec<Line<'static>> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |text: &str, style| inline::spans(text, style, theme);
        let measure = |text: &str| cell(text, base).iter().map(|span| span.content.width()).sum::<usize>();
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|text| measure(text)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        if widths.iter().sum::<usize>() + GAP.len() * columns.saturating_sub(1) > width {
            return self.stacked(width, base, theme);
        }
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let head = self.headed && at == 0;
            let style = if head { base.patch(theme.strong()) } else { base };
            let mut spans = Vec::new();
            for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
                spans.extend(cell(text, style));
                if column + 1 < row.len() {
                    spans.push(Span::raw(" ".repeat(width.saturating_sub(measure(text)) + GAP.len())));
                }
            }
            lines.push(Line::from(spans));
            if head {
                let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::styled(rule.join(GAP), theme.quiet()));
            }
        }
        lines
    }

    fn stacked(&self, width: usize, base: Style, theme: Theme) -> Vec<Line<'static>> {
        let (head, rows) = match self.rows.split_first() {
            Some((head, rows)) if self.headed => (head.as_slice(), rows),
            _ => (&[][..], self.rows.as_slice()),
        };
        let mut lines = Vec::new();
        for row in rows {
            for (at, text) in row.iter().enumerate() {
                let mut spans = Vec::new();
                if let Some(name) = head.get(at).filter(|name| !name.is_empty()) {
                    spans.push(Span::styled(format!("{name}: "), theme.quiet()));
                }
                spans.extend(inline::spans(text, base, theme));
                let mark = if at == 0 { "• " } else { "  " };
                lines.extend(wrap(&spans, width, &Margin::hanging(Span::styled(mark, theme.accent()))));
            }
        }
        lines
    }
}
