//! Renders streamed Markdown for a terminal.
//!
//! Line by line: a line is rendered once it has ended, and only the last one, still growing, is rendered
//! again with every piece, so that the cost of a long answer is linear. Line ends are kept, because
//! agents often write lists without list marks. A table is rendered at its end, because its columns
//! are as wide as their widest cell.

mod inline;
mod table;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use self::table::Table;
use crate::sanitize::sanitize;
use crate::theme::Theme;
use crate::wrap::{Margin, wrap, wrap_chars};

/// A deeper list is not indented further.
const INDENT_MAX: usize = 12;
const RULE_CELLS_MAX: usize = 40;

#[derive(Debug, Clone)]
pub struct Markdown {
    theme: Theme,
    width: usize,
    base: Style,
    /// The rendered lines that have ended.
    lines: Vec<Line<'static>>,
    state: State,
    /// The line that has not ended.
    open: String,
    /// Bytes that were read.
    bytes_read: usize,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// The fence that closes the code block being read.
    fence: Option<String>,
    table: Option<Table>,
}

impl Markdown {
    pub fn new(width: usize, theme: Theme, base: Style) -> Self {
        Self {
            theme,
            width: width.max(4),
            base,
            lines: Vec::new(),
            state: State::default(),
            open: String::new(),
            bytes_read: 0,
        }
    }

    /// Reads a text that continues the one that was read before.
    pub fn grow(&mut self, whole: &str) {
        let Some(more) = whole.get(self.bytes_read..) else { return };
        self.bytes_read = whole.len();
        let mut pieces = more.split('\n');
        if let Some(first) = pieces.next() {
            self.open.push_str(first);
        }
        for piece in pieces {
            let line = std::mem::replace(&mut self.open, piece.to_owned());
            let mut state = std::mem::take(&mut self.state);
            let mut out = std::mem::take(&mut self.lines);
            self.render_line(&line, &mut state, &mut out);
            (self.state, self.lines) = (state, out);
        }
    }

    pub fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// All lines, without blank lines around.
    pub fn lines(&self) -> Vec<Line<'static>> {
        let mut out = self.lines.clone();
        let mut state = self.state.clone();
        if !self.open.is_empty() {
            self.render_line(&self.open, &mut state, &mut out);
        }
        self.end_table(&mut state, &mut out);
        while out.last().is_some_and(is_blank) {
            out.pop();
        }
        let blank = out.iter().take_while(|line| is_blank(line)).count();
        out.drain(..blank);
        out
    }

    fn render_line(&self, line: &str, state: &mut State, out: &mut Vec<Line<'static>>) {
        let line = sanitize(line);
        let text = line.trim_start();
        if let Some(fence) = &state.fence {
            if text.starts_with(fence.as_str()) && text.trim_end().chars().all(|c| fence.starts_with(c)) {
                state.fence = None;
            } else {
                out.extend(self.code(&line));
            }
            return;
        }
        if text.starts_with('|') {
            state.table.get_or_insert_default().push(text);
            return;
        }
        self.end_table(state, out);
        if let Some(fence) = fence_of(text) {
            state.fence = Some(fence.to_owned());
            let language = text[fence.len()..].trim();
            if !language.is_empty() {
                out.push(Line::styled(format!("  {language}"), self.theme.quiet()));
            }
            return;
        }
        self.block(&line, text, out);
    }

    /// A line outside of code blocks and tables.
    fn block(&self, line: &str, text: &str, out: &mut Vec<Line<'static>>) {
        let indent = (line.len() - text.len()).min(INDENT_MAX);
        if text.is_empty() {
            if !out.last().is_none_or(is_blank) {
                out.push(Line::default());
            }
        } else if let Some((level, title)) = heading(text) {
            let style = self.base.patch(self.theme.strong()).patch(if level == 1 {
                self.theme.accent()
            } else {
                self.theme.plain()
            });
            out.extend(wrap(&inline::spans(title, style, self.theme), self.width, &Margin::none()));
        } else if is_rule(text) {
            out.push(Line::styled("─".repeat(self.width.min(RULE_CELLS_MAX)), self.theme.quiet()));
        } else if let Some(quoted) = text.strip_prefix('>') {
            let style = self.base.patch(self.theme.quiet());
            let spans = inline::spans(quoted.trim_start(), style, self.theme);
            out.extend(wrap(&spans, self.width, &Margin::every(Span::styled("▏ ", self.theme.quiet()))));
        } else if let Some((mark, item)) = list_item(text) {
            let mark = Span::styled(format!("{}{mark} ", " ".repeat(indent)), self.theme.accent());
            let spans = inline::spans(item, self.base, self.theme);
            out.extend(wrap(&spans, self.width, &Margin::hanging(mark)));
        } else {
            let margin = Margin::every(Span::raw(" ".repeat(indent)));
            out.extend(wrap(&inline::spans(text, self.base, self.theme), self.width, &margin));
        }
    }

    fn code(&self, line: &str) -> Vec<Line<'static>> {
        let spans = [Span::styled(line.to_owned(), self.theme.code())];
        wrap_chars(&spans, self.width, &Margin::every(Span::styled("│ ", self.theme.quiet())))
    }

    fn end_table(&self, state: &mut State, out: &mut Vec<Line<'static>>) {
        if let Some(table) = state.table.take() {
            out.extend(table.lines(self.width, self.base, self.theme));
        }
    }
}

fn is_blank(line: &Line<'_>) -> bool {
    line.spans.iter().all(|span| span.content.trim().is_empty())
}

/// The mark that opens a code block.
fn fence_of(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.chars().take_while(|c| *c == mark).count();
    (length >= 3 && !text[length..].contains('`')).then(|| &text[..length])
}

fn heading(text: &str) -> Option<(usize, &str)> {
    let level = text.bytes().take_while(|b| *b == b'#').count();
    let title = text.get(level..)?.strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

fn is_rule(text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    bare.len() >= 3 && ["-", "*", "_"].iter().any(|mark| bare.replace(mark, "").is_empty())
}

/// The mark of a list item, as it is shown, and the text that follows it.
fn list_item(text: &str) -> Option<(String, &str)> {
    if let Some(item) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        let item = item.trim_start();
        for (box_, shown) in [("[ ] ", "☐"), ("[x] ", "☑"), ("[X] ", "☑")] {
            if let Some(task) = item.strip_prefix(box_) {
                return Some((shown.into(), task));
            }
        }
        return Some(("•".into(), item));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.get(digits..)?;
    let item = rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))?;
    (1..=9).contains(&digits).then(|| (text[..=digits].to_owned(), item.trim_start()))
}

#[cfg(test)]
mod tests;
