//! Draws the screen from the state of the app. Nothing is decided here.

pub mod ask_panel;
pub mod faults;
mod header;
mod help;
mod hint;
mod picker;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::app::{App, ConnectionState, Focus, SessionPhase};
use crate::completion::SHOWN_MAX;
use crate::layout::{composer_width, queued};
use crate::sanitize::{one_line, sanitize_buffer};
use crate::theme::Theme;
use crate::transcript_entry::render::{plan_line, steps};
use crate::wrap::cut;

/// Draws everything, and returns the position of the cursor, if it is shown.
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
    let in_ask_panel = ask_panel::draw(app, areas.ask_panel, buffer);
    completions(app, areas.completions, buffer);
    let in_composer = composer(app, areas.rule, areas.composer, buffer);
    hint::draw(app, areas.hint, buffer);
    sanitize_buffer(buffer);
    in_ask_panel.or(in_composer)
}

pub fn plan_height(app: &App, width: usize) -> usize {
    let plan = app.state.as_ref().and_then(|state| state.plan.as_ref()).filter(|plan| !plan.steps.is_empty());
    match plan {
        None => 0,
        Some(plan) if app.plan_open => 1 + steps(plan, width, app.options.theme).len(),
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
    let theme = app.options.theme;
    let visible = app.transcript.visible();
    if visible.is_empty() {
        put(&welcome(app), area, buffer);
        return;
    }
    // A short transcript stands at the bottom, next to the composer.
    let skip = area.height.saturating_sub(u16::try_from(visible.len()).unwrap_or(area.height));
    for (line, y) in visible.iter().zip(area.y + skip..area.bottom()) {
        let Some(line) = line else { continue };
        buffer.set_line(area.x, y, line.line, area.width);
        if app.focus == Focus::Transcript && app.transcript.chosen == Some(line.row) {
            buffer.set_style(Rect { y, height: 1, ..area }, theme.chosen());
        }
    }
    if app.loading {
        put(&[Line::styled("loading earlier entries…", theme.quiet())], area, buffer);
    }
}

fn welcome(app: &App) -> Vec<Line<'static>> {
    let theme = app.options.theme;
    match (&app.phase, &app.connection) {
        (SessionPhase::Over(why), _) => vec![
            Line::default(),
            Line::styled(format!("  This session was closed: {why}"), theme.bad()),
            Line::styled("  /sessions lists the others, Ctrl-D quits", theme.quiet()),
        ],
        (_, ConnectionState::Down { why, .. }) => vec![
            Line::default(),
            Line::styled("  Could not reach the server. Trying again.", theme.warn()),
            Line::styled(format!("  {}", one_line(why)), theme.quiet()),
        ],
        (SessionPhase::Opening(_), _) => vec![Line::default(), Line::styled("  Opening…", theme.quiet())],
        (SessionPhase::Open, _) => vec![
            Line::default(),
            Line::styled("  What should the agent do?", theme.plain()),
            Line::styled("  / lists commands, @ names a file, ? shows the keys", theme.quiet()),
        ],
    }
}

fn plan(app: &App, area: Rect, buffer: &mut Buffer) {
    let Some(plan) = app.state.as_ref().and_then(|state| state.plan.as_ref()) else { return };
    let theme = app.options.theme;
    let key = if app.plan_open { "Ctrl-P closes" } else { "Ctrl-P opens" };
    let width = usize::from(area.width);
    let text = cut(&plan_line(plan), width.saturating_sub(key.len() + 2));
    let head =
        Line::from(vec![Span::styled(text, theme.accent()), Span::styled(format!("  {key}"), theme.quiet())]);
    let mut lines = vec![head];
    if app.plan_open {
        lines.extend(steps(plan, width, theme));
    }
    put(&lines, area, buffer);
}

fn queue(app: &App, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let width = usize::from(area.width);
    let line = |word: &str, text: &str| {
        Line::styled(cut(&format!("{word}: {}", one_line(text)), width), theme.quiet())
    };
    let waiting =
        app.state.iter().flat_map(|state| &state.queue).map(|waiting| line("queued", &waiting.text));
    let unsent = app.unsent.iter().map(|unsent| line("sending", &unsent.text));
    let mut lines: Vec<Line<'_>> = waiting.chain(unsent).collect();
    let room = usize::from(area.height);
    if lines.len() > room && room > 0 {
        lines.truncate(room - 1);
        let hidden = queued(app) - lines.len();
        lines.push(Line::styled(format!("and {hidden} more (Ctrl-X removes the last one)"), theme.quiet()));
    }
    put(&lines, area, buffer);
}

fn completions(app: &App, area: Rect, buffer: &mut Buffer) {
    let theme = app.options.theme;
    let shown = usize::from(area.height).min(SHOWN_MAX);
    let first = (app.completions.chosen + 1).saturating_sub(shown);
    let names = app.completions.list.iter().map(|completion| completion.name.width()).max().unwrap_or(0);
    let names = names.min(usize::from(area.width) / 2);
    let rows = app.completions.list.iter().enumerate().skip(first).take(shown);
    for ((at, completion), y) in rows.zip(area.y..area.bottom()) {
        let name = cut(
            &completion.name,
            if completion.about.is_empty() { usize::from(area.width) - 2 } else { names },
        );
        let pad = " ".repeat(names.saturating_sub(name.width()));
        let about = Span::styled(format!("{pad}  {}", completion.about), theme.quiet());
        let line = Line::from(vec![Span::raw("  "), Span::styled(name, theme.accent()), about]);
        buffer.set_line(area.x, y, &line, area.width);
        if at == app.completions.chosen {
            buffer.set_style(Rect { y, height: 1, ..area }, theme.chosen());
        }
    }
}

fn composer(app: &App, rule: Rect, area: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let theme = app.options.theme;
    let focused = app.focus == Focus::Composer && app.picker.is_none();
    let style = if focused { theme.accent() } else { theme.quiet() };
    put(&[Line::styled("─".repeat(usize::from(rule.width)), style)], rule, buffer);
    field(&app.composer, placeholder(app), area, theme, style, buffer).filter(|_| focused && !app.help)
}

fn placeholder(app: &App) -> &'static str {
    match (app.focus, app.is_busy()) {
        (Focus::AskPanel, _) => "Tab to write here",
        (_, true) => "Write the next prompt; it is queued",
        (_, false) => "Ask a question or describe a task",
    }
}

/// A text field with its mark, scrolled to the cursor. Returns the position of the cursor.
fn field(
    composer: &crate::composer::Composer,
    empty: &'static str,
    area: Rect,
    theme: Theme,
    mark: Style,
    buffer: &mut Buffer,
) -> Option<(u16, u16)> {
    let wrapped = composer.wrapped(composer_width(area.width));
    let rows = usize::from(area.height);
    if rows == 0 {
        return None;
    }
    let first = (wrapped.row + 1).saturating_sub(rows);
    for (at, y) in (first..wrapped.lines.len()).zip(area.y..area.bottom()) {
        let sign = if at == 0 { "› " } else { "  " };
        let text = wrapped.lines.get(at).map(String::as_str).unwrap_or_default();
        let text =
            if composer.is_empty() { Span::styled(empty, theme.quiet()) } else { Span::raw(text.to_owned()) };
        buffer.set_line(area.x, y, &Line::from(vec![Span::styled(sign, mark), text]), area.width);
    }
    let x = area.x + 2 + u16::try_from(wrapped.column).unwrap_or(0);
    let y = area.y + u16::try_from(wrapped.row - first).unwrap_or(0);
    Some((x.min(area.right().saturating_sub(1)), y))
}
