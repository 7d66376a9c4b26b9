//! The header: the session's title and state, its settings and its folder.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::put;
use crate::app::{App, ConnectionState};
use crate::formatting;
use crate::sanitize::one_line;
use crate::wrap::cut;

/// Settings that are shown, in this order.
const SHOWN: [&str; 3] = ["model", "mode", "approval"];

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let width = usize::from(area.width);
    let title = match (&app.state, &app.picker) {
        (_, Some(_)) => "Sessions".to_owned(),
        (Some(state), None) => state.title.as_deref().map_or_else(|| "New session".into(), one_line),
        (None, None) => "ropewalk".to_owned(),
    };
    let (dot, style) = match &app.connection {
        ConnectionState::Up => ("●", theme.good()),
        ConnectionState::Connecting | ConnectionState::Down { .. } => ("○", theme.warn()),
    };
    let state = || if app.picker.is_some() { String::new() } else { app.state_word() };
    let word = app.connection_word().unwrap_or_else(state);
    let word_style = match app.state.as_ref() {
        Some(state) if !state.asks.is_empty() => theme.warn(),
        Some(state) if state.busy => theme.accent(),
        _ => theme.quiet(),
    };
    let right = word.width() + 3;
    let title = cut(&title, width.saturating_sub(right + 2));
    let gap = width.saturating_sub(title.width() + right);
    let first = Line::from(vec![
        Span::styled(title, theme.strong()),
        Span::raw(" ".repeat(gap)),
        Span::styled(word, word_style),
        Span::raw(" "),
        Span::styled(dot, style),
    ]);
    let second = Line::styled(facts(app, width), theme.quiet());
    put(&[first, second], area, buffer);
}

/// The second line, as much as fits; the folder is shortened first.
fn facts(app: &App, width: usize) -> String {
    let Some(state) = &app.state else {
        let host = app.hello.as_ref().map(|hello| one_line(&hello.host)).unwrap_or_default();
        return cut(&host, width);
    };
    let value = |id: &&str| state.settings.iter().find(|setting| setting.id == **id);
    let mut parts: Vec<String> =
        SHOWN.iter().filter_map(value).map(|setting| one_line(&setting.value)).collect();
    let percent = state.context_used.saturating_mul(100).checked_div(state.context_size);
    parts.extend(percent.map(|percent| format!("{percent} % context")));
    if let Some(cost) = state.cost_usd {
        let more = if state.unpriced { "+" } else { "" };
        parts.push(format!("{}{more}", formatting::money(cost)));
    }
    if !state.others.is_empty() {
        let others: Vec<String> = state.others.iter().take(3).map(|name| one_line(name)).collect();
        parts.push(format!("with {}", others.join(", ")));
    }
    let rest = parts.join(" · ");
    let folder = short_folder(&one_line(&state.folder), app.options.home.as_deref());
    let room = width.saturating_sub(rest.width() + 3);
    if room < 8 {
        return cut(&rest, width);
    }
    format!("{} · {rest}", cut_front(&folder, room))
}

fn short_folder(folder: &str, home: Option<&str>) -> String {
    match home.and_then(|home| folder.strip_prefix(home)) {
        Some("") => "~".into(),
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        _ => folder.to_owned(),
    }
}

/// Shortens a path at its beginning, which matters less than its end.
fn cut_front(text: &str, cells_max: usize) -> String {
    if text.width() <= cells_max {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars().rev() {
        if kept.width() + 2 > cells_max {
            break;
        }
        kept.insert(0, c);
    }
    format!("…{kept}")
}
