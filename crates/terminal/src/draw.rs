//! The screen, drawn from what the app is. Nothing is decided here.

pub mod faults;
mod header;
mod help;
mod hint;
mod picker;
pub mod shelf;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::app::{App, Connection, Focus, Stage};
use crate::clean::{one_line, scrub};
use crate::entry::set::{plan_line, steps};
use crate::layout::{composer_width, queued};
use crate::look::Look;
use crate::offers::SHOWN_MAX;
use crate::wrap::cut;

/// Draws everything, and answers where the cursor stands, if it is shown.
pub fn draw(app: &App, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let areas = app.areas;
    header::draw(app, areas.header, buffer);
    put(&faults::lines(app, usize::from(areas.faults.width)), areas.faults, buffer);
    if app.help {
        help::draw(app, areas.transcript, buffer);
    } else if let Some(picker) = &app.picker {
        picker::draw(app, picker, areas.transcript, buffer);
    } else {
        transcript(app, areas.transcript, buffer);
    }
    plan(app, areas.plan, buffer);
    queue(app, areas.queue, buffer);
    let in_shelf = shelf::draw(app, areas.shelf, buffer);
    offers(app, areas.offers, buffer);
    let in_composer = composer(app, areas.rule, areas.composer, buffer);
    hint::draw(app, areas.hint, buffer);
    scrub(buffer);
    in_shelf.or(in_composer)
}

pub fn plan_height(app: &App, width: usize) -> usize {
    let plan = app.state.as_ref().and_then(|state| state.plan.as_ref()).filter(|plan| !plan.steps.is_empty());
    match plan {
        None => 0,
        Some(plan) if app.plan_open => 1 + steps(plan, width, app.manner.look).len(),
        Some(_) => 1,
    }
}

/// Puts lines into an area, from its top.
fn put(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

fn transcript(app: &App, area: Rect, buffer: &mut Buffer) {
    let look = app.manner.look;
    let visible = app.transcript.visible();
    if visible.is_empty() {
        put(&welcome(app), area, buffer);
        return;
    }
    // What is little stands at the bottom, next to where it goes on.
    let skip = area.height.saturating_sub(u16::try_from(visible.len()).unwrap_or(area.height));
    for (line, y) in visible.iter().zip(area.y + skip..area.bottom()) {
        let Some(line) = line else { continue };
        buffer.set_line(area.x, y, line.line, area.width);
        if app.focus == Focus::Transcript && app.transcript.chosen == Some(line.row) {
            buffer.set_style(Rect { y, height: 1, ..area }, look.chosen());
        }
    }
    if app.loading {
        put(&[Line::styled("loading what came before…", look.quiet())], area, buffer);
    }
}

fn welcome(app: &App) -> Vec<Line<'static>> {
    let look = app.manner.look;
    match (&app.stage, &app.connection) {
        (Stage::Over(why), _) => vec![
            Line::default(),
            Line::styled(format!("  This session cannot be shown on: {why}"), look.bad()),
            Line::styled("  /sessions shows the others, Ctrl-D leaves", look.quiet()),
        ],
        (_, Connection::Down { why, .. }) => vec![
            Line::default(),
            Line::styled("  The server does not answer; it is tried again.", look.warn()),
            Line::styled(format!("  {}", one_line(why)), look.quiet()),
        ],
        (Stage::Opening(_), _) => vec![Line::default(), Line::styled("  Opening…", look.quiet())],
        (Stage::Open, _) => vec![
            Line::default(),
            Line::styled("  Say what is to be done.", look.plain()),
            Line::styled("  / shows commands, @ names a file, ? explains the keys", look.quiet()),
        ],
    }
}

fn plan(app: &App, area: Rect, buffer: &mut Buffer) {
    let Some(plan) = app.state.as_ref().and_then(|state| state.plan.as_ref()) else { return };
    let look = app.manner.look;
    let key = if app.plan_open { "Ctrl-P folds" } else { "Ctrl-P unfolds" };
    let width = usize::from(area.width);
    let text = cut(&plan_line(plan), width.saturating_sub(key.len() + 2));
    let head =
        Line::from(vec![Span::styled(text, look.accent()), Span::styled(format!("  {key}"), look.quiet())]);
    let mut lines = vec![head];
    if app.plan_open {
        lines.extend(steps(plan, width, look));
    }
    put(&lines, area, buffer);
}

fn queue(app: &App, area: Rect, buffer: &mut Buffer) {
    let look = app.manner.look;
    let width = usize::from(area.width);
    let line = |word: &str, text: &str| {
        Line::styled(cut(&format!("{word}: {}", one_line(text)), width), look.quiet())
    };
    let waiting = app.state.iter().flat_map(|state| &state.queue).map(|waiting| line("waits", &waiting.text));
    let unsent = app.unsent.iter().map(|unsent| line("sending", &unsent.text));
    let mut lines: Vec<Line<'_>> = waiting.chain(unsent).collect();
    let room = usize::from(area.height);
    if lines.len() > room && room > 0 {
        lines.truncate(room - 1);
        let hidden = queued(app) - lines.len();
        lines.push(Line::styled(
            format!("and {hidden} more that wait (Ctrl-X takes the last one back)"),
            look.quiet(),
        ));
    }
    put(&lines, area, buffer);
}

fn offers(app: &App, area: Rect, buffer: &mut Buffer) {
    let look = app.manner.look;
    let shown = usize::from(area.height).min(SHOWN_MAX);
    let first = (app.offers.chosen + 1).saturating_sub(shown);
    let names = app.offers.list.iter().map(|offer| offer.name.width()).max().unwrap_or(0);
    let names = names.min(usize::from(area.width) / 2);
    let rows = app.offers.list.iter().enumerate().skip(first).take(shown);
    for ((at, offer), y) in rows.zip(area.y..area.bottom()) {
        let name = cut(&offer.name, if offer.about.is_empty() { usize::from(area.width) - 2 } else { names });
        let pad = " ".repeat(names.saturating_sub(name.width()));
        let about = Span::styled(format!("{pad}  {}", offer.about), look.quiet());
        let line = Line::from(vec![Span::raw("  "), Span::styled(name, look.accent()), about]);
        buffer.set_line(area.x, y, &line, area.width);
        if at == app.offers.chosen {
            buffer.set_style(Rect { y, height: 1, ..area }, look.chosen());
        }
    }
}

fn composer(app: &App, rule: Rect, area: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let look = app.manner.look;
    let focused = app.focus == Focus::Composer && app.picker.is_none();
    let style = if focused { look.accent() } else { look.quiet() };
    put(&[Line::styled("─".repeat(usize::from(rule.width)), style)], rule, buffer);
    field(&app.composer, placeholder(app), area, look, style, buffer).filter(|_| focused && !app.help)
}

fn placeholder(app: &App) -> &'static str {
    match (app.focus, app.is_busy()) {
        (Focus::Shelf, _) => "Tab writes here",
        (_, true) => "What comes next waits for its turn",
        (_, false) => "Ask, or say what to do",
    }
}

/// A field of text with its mark, scrolled to the cursor. Answers where that is.
fn field(
    composer: &crate::composer::Composer,
    empty: &'static str,
    area: Rect,
    look: Look,
    mark: Style,
    buffer: &mut Buffer,
) -> Option<(u16, u16)> {
    let laid = composer.lay(composer_width(area.width));
    let rows = usize::from(area.height);
    if rows == 0 {
        return None;
    }
    let first = (laid.row + 1).saturating_sub(rows);
    for (at, y) in (first..laid.lines.len()).zip(area.y..area.bottom()) {
        let sign = if at == 0 { "› " } else { "  " };
        let text = laid.lines.get(at).map(String::as_str).unwrap_or_default();
        let text =
            if composer.is_empty() { Span::styled(empty, look.quiet()) } else { Span::raw(text.to_owned()) };
        buffer.set_line(area.x, y, &Line::from(vec![Span::styled(sign, mark), text]), area.width);
    }
    let x = area.x + 2 + u16::try_from(laid.column).unwrap_or(0);
    let y = area.y + u16::try_from(laid.row - first).unwrap_or(0);
    Some((x.min(area.right().saturating_sub(1)), y))
}
