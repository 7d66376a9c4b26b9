//! The last line: what was just said, or what the keys do here.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::put;
use crate::app::{App, Focus, Stage};
use crate::wrap::cut;

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let look = app.manner.look;
    let width = usize::from(area.width);
    let below = app.transcript.below();
    let right = if below > 0 && app.picker.is_none() && !app.help {
        format!("↓ {below} below")
    } else {
        String::new()
    };
    let room = width.saturating_sub(right.width() + 1);
    let (text, style) = match (&app.remark, &app.stage) {
        (Some(remark), _) if remark.bad => (remark.text.clone(), look.bad()),
        (Some(remark), _) => (remark.text.clone(), look.accent()),
        (None, Stage::Over(why)) => (format!("Over: {why}; /sessions shows the others"), look.bad()),
        (None, _) => (fitting(keys(app), room), look.quiet()),
    };
    let text = cut(&text, room);
    let gap = width.saturating_sub(text.width() + right.width());
    let line = Line::from(vec![
        Span::styled(text, style),
        Span::raw(" ".repeat(gap)),
        Span::styled(right, look.warn()),
    ]);
    put(&[line], area, buffer);
}

/// As many as fit, whole.
fn fitting(keys: &[&str], room: usize) -> String {
    let mut text = String::new();
    for key in keys {
        let gap = if text.is_empty() { "" } else { " · " };
        if text.width() + gap.width() + key.width() > room {
            break;
        }
        text.push_str(gap);
        text.push_str(key);
    }
    text
}

fn keys(app: &App) -> &'static [&'static str] {
    if app.help {
        return &["any key goes back"];
    }
    if app.picker.is_some() {
        return &["Enter opens", "↑↓ choose", "letters filter", "Esc goes back"];
    }
    if app.offers.is_open() {
        return &["Enter takes it", "↑↓ choose", "Esc closes"];
    }
    match app.focus {
        Focus::Shelf if app.shelf.is_writing() => &["Enter sends", "Esc goes back"],
        Focus::Shelf => &["Tab writes", "↑↓ scroll", "←→ other questions", "? help"],
        Focus::Composer if !app.shelf.asks.is_empty() => &["Tab or F2 answers the question", "Enter queues"],
        Focus::Composer if app.is_busy() => {
            &["Enter queues", "Esc Esc stops", "Tab looks back", "Ctrl-X takes back", "? help"]
        }
        Focus::Composer => {
            &["Enter sends", "Alt-Enter new line", "/ commands", "@ files", "Tab looks back", "? help"]
        }
        Focus::Transcript => {
            &["↑↓ choose", "e opens", "w all of it", "[ ] prompts", "o link", "Esc writes", "? help"]
        }
    }
}
