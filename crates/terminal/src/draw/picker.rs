//! The session picker.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;
use wire::native::{CardState, SessionCard};

use super::put;
use crate::app::App;
use crate::formatting;
use crate::sanitize::one_line;
use crate::session_picker::{Picker, needs_somebody, state_word, title_of};
use crate::wrap::cut;

const STATE_CELLS: usize = 10;

pub fn draw(app: &App, picker: &Picker, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let listed = picker.listed(&app.cards);
    let head = match (picker.filter.is_empty(), listed.is_empty()) {
        (true, true) => "No sessions yet".to_owned(),
        (true, false) => {
            let waiting = listed.iter().filter(|card| needs_somebody(card)).count();
            if waiting > 0 { format!("Needs you: {waiting}") } else { "Sessions, newest first".into() }
        }
        (false, _) => format!("Filter: {}", one_line(&picker.filter)),
    };
    put(&[Line::styled(head, theme.strong())], area, buffer);
    let rows = usize::from(area.height.saturating_sub(1)) / 2;
    let chosen = picker.chosen.min(listed.len().saturating_sub(1));
    let first = (chosen + 1).saturating_sub(rows.max(1));
    for (at, card) in listed.iter().enumerate().skip(first).take(rows) {
        let y = area.y + 1 + u16::try_from((at - first) * 2).unwrap_or(0);
        let place = Rect { y, height: 2, ..area };
        put(&lines(app, card), place, buffer);
        if at == chosen {
            buffer.set_style(Rect { height: 1, ..place }, theme.chosen());
        }
    }
}

fn lines(app: &App, card: &SessionCard) -> [Line<'static>; 2] {
    let theme = app.options.theme;
    let width = usize::from(app.areas.transcript.width);
    let style = match card.state {
        CardState::Waiting => theme.warn(),
        CardState::Working | CardState::Elsewhere => theme.accent(),
        CardState::Done | CardState::Empty => theme.quiet(),
        CardState::Failed => theme.bad(),
    };
    let age = formatting::age(app.server_now().saturating_sub(card.updated_at));
    let word = state_word(card.state);
    let title = cut(&title_of(card), width.saturating_sub(STATE_CELLS + age.width() + 2));
    let gap = width.saturating_sub(STATE_CELLS + title.width() + age.width() + 1);
    let first = Line::from(vec![
        Span::styled(format!("{word:<STATE_CELLS$}"), style),
        Span::raw(title),
        Span::raw(" ".repeat(gap)),
        Span::styled(age, theme.quiet()),
    ]);
    let about = match card.asks.first() {
        Some(ask) => format!("asks: {}", one_line(&ask.title)),
        None => one_line(&card.folder),
    };
    let second = format!("{}{}", " ".repeat(STATE_CELLS), cut(&about, width.saturating_sub(STATE_CELLS)));
    [first, Line::styled(second, theme.quiet())]
}
