//! The help screen with all keys.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use super::put;
use crate::app::App;

const KEYS: [(&str, &str); 18] = [
    ("Enter", "send; while a turn runs, it waits for its turn"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Up, Down", "what was sent before"),
    ("/ and @", "commands and settings; files"),
    ("Esc Esc, Ctrl-C", "stop the turn"),
    ("Ctrl-X", "take back the last prompt that waits"),
    ("PgUp, PgDn, wheel", "look back; Ctrl-Home, Ctrl-End: first, last"),
    ("Tab", "to the question, to the rows, back to writing"),
    ("e, Enter", "open or fold the chosen row; Ctrl-O the last"),
    ("w, [ and ]", "all of a shortened row; previous and next prompt"),
    ("Ctrl-P", "open or fold the plan"),
    ("o", "the address of this session for a browser"),
    ("y or a", "allow once (twice where it is risky)"),
    ("A", "allow always; shows what and for how long, then once more"),
    ("n or d, D", "deny; deny and say why"),
    ("1 to 9", "a question's choice; Enter writes another"),
    ("/new, /copy", "another session; the last answer to the clipboard"),
    ("Ctrl-D, /exit, /quit", "leave, a turn on a server goes on; Ctrl-L draws anew"),
];
const NAMES_CELLS: usize = 20;

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let narrow = usize::from(area.width) < 60;
    let line = |(keys, what): &(&'static str, &'static str)| {
        let gap = if narrow { 2 } else { NAMES_CELLS.saturating_sub(keys.chars().count()).max(1) };
        Line::from(vec![Span::styled(*keys, theme.accent()), Span::raw(" ".repeat(gap)), Span::raw(*what)])
    };
    let mut lines: Vec<Line<'_>> = KEYS.iter().map(line).collect();
    lines.push(Line::styled("Shift and the mouse select text, as the terminal does", theme.quiet()));
    put(&lines, area, buffer);
}
