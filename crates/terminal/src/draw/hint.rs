//! The last line: the status message, or the keys that work here.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::put;
use crate::app::{App, Focus, SessionPhase};
use crate::wrap::cut;

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let width = usize::from(area.width);
    let below = app.transcript.below();
    let right = if below > 0 && app.picker.is_none() && !app.help {
        format!("↓ {below} below")
    } else {
        String::new()
    };
    let room = width.saturating_sub(right.width() + 1);
    let (text, style) = match (&app.status_message, &app.phase) {
        (Some(status_message), _) if status_message.bad => (status_message.text.clone(), theme.bad()),
        (Some(status_message), _) => (status_message.text.clone(), theme.accent()),
        (None, SessionPhase::Over(why)) => {
            (format!("Closed: {why}; /sessions lists the others"), theme.bad())
        }
        (None, _) => (fitting(keys(app), room), theme.quiet()),
    };
    let text = cut(&text, room);
    let gap = width.saturating_sub(text.width() + right.width());
    let line = Line::from(vec![
        Span::styled(text, style),
        Span::raw(" ".repeat(gap)),
        Span::styled(right, theme.warn()),
    ]);
    put(&[line], area, buffer);
}

/// As many keys as fit.
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
        return &["Enter opens", "↑↓ choose", "type to filter", "Esc goes back"];
    }
    if app.completions.is_open() {
        return &["Enter selects", "↑↓ choose", "Esc closes"];
    }
    match app.focus {
        Focus::AskPanel if app.ask_panel.is_writing() => &["Enter sends", "Esc goes back"],
        Focus::AskPanel => &["Tab to prompt", "↑↓ scroll", "←→ other requests", "? help"],
        Focus::Composer if !app.ask_panel.asks.is_empty() => &["Tab or F2 to answer", "Enter queues"],
        Focus::Composer if app.is_busy() => {
            &["Enter queues", "Esc Esc stops", "Tab transcript", "Ctrl-X unqueues", "? help"]
        }
        Focus::Composer => {
            &["Enter sends", "Alt-Enter new line", "/ commands", "@ files", "Tab transcript", "? help"]
        }
        Focus::Transcript => {
            &["↑↓ choose", "e opens", "w full text", "[ ] prompts", "o link", "Esc to prompt", "? help"]
        }
    }
}
