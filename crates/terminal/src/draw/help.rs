//! The help screen with all keys.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use super::put;
use crate::app::App;

const KEYS: [(&str, &str); 18] = [
    ("Enter", "send; while a turn runs, the prompt is queued"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Up, Down", "prompts that you sent before"),
    ("/ and @", "commands and settings; files"),
    ("Esc Esc, Ctrl-C", "stop the turn"),
    ("Ctrl-X", "remove the last queued prompt"),
    ("PgUp, PgDn, wheel", "scroll; Ctrl-Home, Ctrl-End: to the start, to the end"),
    ("Tab", "switch between request, transcript and prompt"),
    ("e, Enter", "open or close the selected entry; Ctrl-O the last"),
    ("w, [ and ]", "show a shortened entry in full; previous, next prompt"),
    ("Ctrl-P", "open or close the plan"),
    ("o", "show the address of this session for a browser"),
    ("y or a", "allow once (press twice if it is risky)"),
    ("A", "allow always: shows what and how long, then A again"),
    ("n or d, D", "deny; deny and say why"),
    ("1 to 9", "choose an answer to a question; Enter writes another"),
    ("/new, /copy", "start a new session; copy the last answer"),
    ("Ctrl-D, /exit, /quit", "quit, a turn on a server continues; Ctrl-L redraws"),
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
    lines.push(Line::styled("To select text, hold Shift and use the mouse", theme.quiet()));
    put(&lines, area, buffer);
}
