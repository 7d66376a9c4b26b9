//! The rows of a session, and the part of them that is on the screen.
//!
//! While a person reads earlier rows, these stay in place when more rows arrive below: the scroll position is a row
//! and a line within it, not a distance from the end.

use ratatui_core::text::Line;
use wire::native::{Row, RowContent, TextAppend, ViewUpdate};

use crate::theme::Theme;
use crate::transcript_entry::Entry;

/// Rows that are kept here; the server has all of them.
const ROWS_MAX: usize = 3_000;
/// Sub-agents of sub-agents are not indented further.
const DEPTH_MAX: usize = 3;

#[derive(Debug, Default)]
pub struct Transcript {
    entries: Vec<Entry>,
    /// The server has rows before the first one.
    pub earlier: bool,
    scroll_position: ScrollPosition,
    /// The row that keys act on, by id.
    pub chosen: Option<u64>,
    width: usize,
    height: usize,
}

/// What is at the top of the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ScrollPosition {
    /// The transcript follows its end.
    #[default]
    End,
    At {
        row: u64,
        line: usize,
    },
}

/// A line on the screen.
pub struct VisibleLine<'a> {
    pub line: &'a Line<'static>,
    pub row: u64,
}

impl Transcript {
    pub fn take(&mut self, view: ViewUpdate) {
        if view.reset {
            self.reset(view.rows, view.earlier);
        } else {
            for row in view.rows {
                self.put(row);
            }
        }
        for append in view.appends {
            self.append(&append);
        }
        if self.entries.len() > ROWS_MAX && self.is_at_end() {
            self.entries.drain(..self.entries.len() - ROWS_MAX);
            self.earlier = true;
        }
    }

    /// Rows from before the first one.
    pub fn take_earlier(&mut self, rows: Vec<Row>, earlier: bool) {
        if self.scroll_position == ScrollPosition::End
            && let Some(top) = self.top()
        {
            self.scroll_position = top;
        }
        for row in rows {
            self.put(row);
        }
        self.earlier = earlier;
    }

    pub fn first(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.row.id)
    }

    pub fn row(&self, id: u64) -> Option<&Row> {
        self.entry(id).map(|entry| &entry.row)
    }

    pub fn entry(&self, id: u64) -> Option<&Entry> {
        self.entries.get(self.find(id).ok()?)
    }

    pub fn entry_mut(&mut self, id: u64) -> Option<&mut Entry> {
        let at = self.find(id).ok()?;
        self.entries.get_mut(at)
    }

    /// The agent's last message, and how many more bytes of it the server has.
    pub fn last_said(&self) -> Option<(&str, u64)> {
        self.entries.iter().rev().find_map(|entry| match &entry.row.what {
            RowContent::AgentMessage { text, more } => Some((text.as_str(), *more)),
            _ => None,
        })
    }

    /// The newest row that can be unfolded.
    pub fn last_folding(&self) -> Option<u64> {
        self.entries.iter().rev().find(|entry| entry.folds()).map(|entry| entry.row.id)
    }

    /// Renders what changed, for a screen of this size.
    pub fn prepare(&mut self, width: usize, height: usize, theme: Theme) {
        let resized = width != self.width;
        (self.width, self.height) = (width, height);
        for entry in &mut self.entries {
            entry.prepare(width, theme, resized);
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.scroll_position == ScrollPosition::End
    }

    pub fn follow(&mut self) {
        self.scroll_position = ScrollPosition::End;
    }

    /// Scrolls up (negative) or down by this many lines. At the end, new rows are followed again.
    pub fn scroll(&mut self, lines: isize) {
        let start = self.start().saturating_add_signed(lines);
        self.scroll_position = self.scroll_position_of(start);
    }

    pub fn page(&self) -> isize {
        isize::try_from(self.height.saturating_sub(2).max(1)).unwrap_or(isize::MAX)
    }

    /// Chooses the row before or after the chosen one, and shows it.
    pub fn choose(&mut self, down: bool) {
        let at = match self.chosen.and_then(|id| self.find(id).ok()) {
            Some(at) if down => (at + 1).min(self.entries.len().saturating_sub(1)),
            Some(at) => at.saturating_sub(1),
            None => self.entries.len().saturating_sub(1),
        };
        self.chosen = self.entries.get(at).map(|entry| entry.row.id);
        self.show_chosen();
    }

    /// Chooses the next prompt before or after the chosen row.
    pub fn choose_prompt(&mut self, down: bool) {
        let is_prompt = |entry: &&Entry| matches!(entry.row.what, RowContent::Prompt { .. });
        let from = self.chosen.unwrap_or(u64::MAX);
        let found = if down {
            self.entries.iter().filter(is_prompt).find(|entry| entry.row.id > from)
        } else {
            self.entries.iter().filter(is_prompt).rev().find(|entry| entry.row.id < from)
        };
        if let Some(entry) = found {
            self.chosen = Some(entry.row.id);
            self.show_chosen();
        }
    }

    /// The lines on the screen, from its top. `None` is a blank line.
    pub fn visible(&self) -> Vec<Option<VisibleLine<'_>>> {
        let start = self.start();
        let mut shown = Vec::with_capacity(self.height);
        let mut at = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            let gap = self.gap(index);
            let height = gap + entry.lines().len();
            if at + height > start {
                let lines = entry.lines().iter().map(|line| Some(VisibleLine { line, row: entry.row.id }));
                let all = std::iter::repeat_with(|| None).take(gap).chain(lines);
                shown.extend(all.skip(start.saturating_sub(at)).take(self.height - shown.len()));
            }
            at += height;
            if shown.len() == self.height {
                break;
            }
        }
        shown
    }

    /// The row on this line of the screen. A short transcript stands at the bottom.
    pub fn row_at(&self, line: usize) -> Option<u64> {
        let visible = self.visible();
        let at = line.checked_sub(self.height - visible.len())?;
        visible.get(at)?.as_ref().map(|visible| visible.row)
    }

    /// Whether earlier rows are wanted: the person scrolled to the first row, or everything fits on the screen.
    pub fn wants_earlier(&self) -> bool {
        let fits = self.total() <= self.height;
        self.earlier
            && self.height > 0
            && (fits || (self.start() == 0 && self.scroll_position != ScrollPosition::End))
    }

    /// Lines below the screen.
    pub fn below(&self) -> usize {
        self.total().saturating_sub(self.start() + self.height)
    }

    fn reset(&mut self, rows: Vec<Row>, earlier: bool) {
        let mut old = std::mem::take(&mut self.entries);
        self.earlier = earlier;
        for row in rows {
            // Rows that the person unfolded stay unfolded.
            let kept = old.iter().position(|entry| entry.row.id == row.id).map(|at| old.swap_remove(at));
            match kept {
                Some(mut entry) => {
                    entry.replace(row);
                    self.insert(entry);
                }
                None => self.put(row),
            }
        }
        if let ScrollPosition::At { row, .. } = self.scroll_position
            && self.find(row).is_err()
        {
            self.scroll_position = ScrollPosition::End;
        }
    }

    fn put(&mut self, row: Row) {
        match self.find(row.id) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at)
                    && row.rev >= entry.row.rev
                {
                    entry.replace(row);
                }
            }
            Err(_) => {
                let depth = self.depth(row.under);
                self.insert(Entry::new(row, depth));
            }
        }
    }

    fn insert(&mut self, entry: Entry) {
        if let Err(at) = self.find(entry.row.id) {
            self.entries.insert(at, entry);
        }
    }

    fn append(&mut self, append: &TextAppend) {
        if let Some(entry) = self.entry_mut(append.row) {
            entry.append(append);
        }
    }

    fn depth(&self, under: Option<u64>) -> usize {
        let Some(under) = under else { return 0 };
        self.entry(under).map_or(1, |entry| entry.depth + 1).min(DEPTH_MAX)
    }

    fn find(&self, id: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.row.id)
    }

    /// Blank lines before an entry: none between tool calls, plans and notes.
    fn gap(&self, index: usize) -> usize {
        let Some(before) = index.checked_sub(1).and_then(|at| self.entries.get(at)) else { return 0 };
        let Some(entry) = self.entries.get(index) else { return 0 };
        let is_short = |what: &RowContent| {
            matches!(
                what,
                RowContent::Tool(_)
                    | RowContent::Thought { .. }
                    | RowContent::Plan(_)
                    | RowContent::Note { .. }
                    | RowContent::Notice { .. }
            )
        };
        usize::from(!(is_short(&before.row.what) && is_short(&entry.row.what)))
    }

    fn total(&self) -> usize {
        (0..self.entries.len()).map(|index| self.height_of(index)).sum()
    }

    fn height_of(&self, index: usize) -> usize {
        self.gap(index) + self.entries.get(index).map_or(0, |entry| entry.lines().len())
    }

    /// The first line on the screen, counted from the first of all.
    fn start(&self) -> usize {
        let last = self.total().saturating_sub(self.height);
        match self.scroll_position {
            ScrollPosition::End => last,
            ScrollPosition::At { row, line } => match self.find(row) {
                Ok(at) | Err(at) => {
                    ((0..at).map(|index| self.height_of(index)).sum::<usize>() + line).min(last)
                }
            },
        }
    }

    fn top(&self) -> Option<ScrollPosition> {
        (!self.entries.is_empty()).then(|| self.at(self.start()))
    }

    fn scroll_position_of(&self, start: usize) -> ScrollPosition {
        if start + self.height >= self.total() { ScrollPosition::End } else { self.at(start) }
    }

    fn at(&self, start: usize) -> ScrollPosition {
        let mut before = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            let height = self.height_of(index);
            if start < before + height {
                return ScrollPosition::At { row: entry.row.id, line: start - before };
            }
            before += height;
        }
        ScrollPosition::End
    }

    fn show_chosen(&mut self) {
        let Some(at) = self.chosen.and_then(|id| self.find(id).ok()) else { return };
        let begin: usize = (0..at).map(|index| self.height_of(index)).sum::<usize>() + self.gap(at);
        let end = begin + self.entries.get(at).map_or(0, |entry| entry.lines().len());
        let start = self.start();
        if begin < start {
            self.scroll_position = self.at(begin);
        } else if end > start + self.height {
            self.scroll_position = self.scroll_position_of(end.saturating_sub(self.height).min(begin));
        }
    }
}
