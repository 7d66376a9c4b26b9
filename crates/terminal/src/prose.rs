//! Markdown on a terminal, as it comes in.
//!
//! Line by line: a line is set once it has ended, and only the last one, still growing, is set again
//! with every piece, so that a long answer costs as much as its length. Line ends are kept, because
//! what agents write is often a list without the marks of one. A table waits for its end, as its
//! columns are as wide as their widest cell.

mod inline;
mod table;

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use self::table::Table;
use crate::clean::clean;
use crate::look::Look;
use crate::wrap::{Margin, chop, wrap};

/// A deeper list is not indented further.
const INDENT_MAX: usize = 12;
const RULE_CELLS_MAX: usize = 40;

#[derive(Debug, Clone)]
pub struct Prose {
    look: Look,
    width: usize,
    base: Style,
    /// Of everything that has ended.
    lines: Vec<Line<'static>>,
    state: State,
    /// The line that has not.
    open: String,
    /// Bytes that were taken in.
    fed: usize,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// What closes the code that is being read.
    fence: Option<String>,
    table: Option<Table>,
}

impl Prose {
    pub fn new(width: usize, look: Look, base: Style) -> Self {
        Self {
            look,
            width: width.max(4),
            base,
            lines: Vec::new(),
            state: State::default(),
            open: String::new(),
            fed: 0,
        }
    }

    /// Takes in a text of which what was taken in before is the beginning.
    pub fn grow(&mut self, whole: &str) {
        let Some(more) = whole.get(self.fed..) else { return };
        self.fed = whole.len();
        let mut pieces = more.split('\n');
        if let Some(first) = pieces.next() {
            self.open.push_str(first);
        }
        for piece in pieces {
            let line = std::mem::replace(&mut self.open, piece.to_owned());
            let mut state = std::mem::take(&mut self.state);
            let mut out = std::mem::take(&mut self.lines);
            self.set(&line, &mut state, &mut out);
            (self.state, self.lines) = (state, out);
        }
    }

    pub fn fed(&self) -> usize {
        self.fed
    }

    /// All of it, without blank lines around.
    pub fn lines(&self) -> Vec<Line<'static>> {
        let mut out = self.lines.clone();
        let mut state = self.state.clone();
        if !self.open.is_empty() {
            self.set(&self.open, &mut state, &mut out);
        }
        self.end_table(&mut state, &mut out);
        while out.last().is_some_and(is_blank) {
            out.pop();
        }
        let blank = out.iter().take_while(|line| is_blank(line)).count();
        out.drain(..blank);
        out
    }

    fn set(&self, line: &str, state: &mut State, out: &mut Vec<Line<'static>>) {
        let line = clean(line);
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
                out.push(Line::styled(format!("  {language}"), self.look.quiet()));
            }
            return;
        }
        self.block(&line, text, out);
    }

    /// A line that stands for itself.
    fn block(&self, line: &str, text: &str, out: &mut Vec<Line<'static>>) {
        let indent = (line.len() - text.len()).min(INDENT_MAX);
        if text.is_empty() {
            if !out.last().is_none_or(is_blank) {
                out.push(Line::default());
            }
        } else if let Some((level, title)) = heading(text) {
            let style = self.base.patch(self.look.strong()).patch(if level == 1 {
                self.look.accent()
            } else {
                self.look.plain()
            });
            out.extend(wrap(&inline::spans(title, style, self.look), self.width, &Margin::none()));
        } else if is_rule(text) {
            out.push(Line::styled("─".repeat(self.width.min(RULE_CELLS_MAX)), self.look.quiet()));
        } else if let Some(quoted) = text.strip_prefix('>') {
            let style = self.base.patch(self.look.quiet());
            let spans = inline::spans(quoted.trim_start(), style, self.look);
            out.extend(wrap(&spans, self.width, &Margin::every(Span::styled("▏ ", self.look.quiet()))));
        } else if let Some((mark, item)) = list_item(text) {
            let mark = Span::styled(format!("{}{mark} ", " ".repeat(indent)), self.look.accent());
            let spans = inline::spans(item, self.base, self.look);
            out.extend(wrap(&spans, self.width, &Margin::hanging(mark)));
        } else {
            let margin = Margin::every(Span::raw(" ".repeat(indent)));
            out.extend(wrap(&inline::spans(text, self.base, self.look), self.width, &margin));
        }
    }

    fn code(&self, line: &str) -> Vec<Line<'static>> {
        let spans = [Span::styled(line.to_owned(), self.look.code())];
        chop(&spans, self.width, &Margin::every(Span::styled("│ ", self.look.quiet())))
    }

    fn end_table(&self, state: &mut State, out: &mut Vec<Line<'static>>) {
        if let Some(table) = state.table.take() {
            out.extend(table.lines(self.width, self.base, self.look));
        }
    }
}

fn is_blank(line: &Line<'_>) -> bool {
    line.spans.iter().all(|span| span.content.trim().is_empty())
}

/// The mark that opens a block of code.
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

/// The mark of a list's item, as it is shown, and what follows it.
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
