//! The ask panel: what is asked and how risky it is, exactly what would be done, and the keys.
//!
//! Nothing is left out: what does not fit is scrolled, and what the server left out is counted.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use wire::native::{AskView, Decision};

use super::{field, put};
use crate::app::{App, Focus};
use crate::ask_panel::{AskInput, AskPanel};
use crate::diff;
use crate::formatting;
use crate::sanitize::{one_line, sanitize};
use crate::theme::Theme;
use crate::wrap::{Margin, cut, wrap, wrap_chars};

/// The lines of the head and of the keys.
const AROUND: usize = 2;
/// Below this width, the keys are described in fewer words.
const NARROW: usize = 60;

pub fn height(app: &App, width: usize) -> usize {
    app.ask_panel.current().map_or(0, |ask| body(ask, width, app.options.theme).len() + AROUND)
}

/// Draws the panel, and returns the position of the cursor if something is being written in it.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let theme = app.options.theme;
    let ask = app.ask_panel.current()?;
    if usize::from(area.height) < AROUND {
        return None;
    }
    let width = usize::from(area.width);
    let focused = app.focus == Focus::AskPanel;
    put(&[head(&app.ask_panel, ask, width, focused, theme)], area, buffer);
    let lines = body(ask, width, theme);
    let room = usize::from(area.height) - AROUND;
    let first = app.ask_panel.scroll.min(lines.len().saturating_sub(room));
    let inside = Rect { y: area.y + 1, height: area.height - 2, ..area };
    put(lines.get(first..).unwrap_or_default(), inside, buffer);
    let hidden = lines.len().saturating_sub(first + room);
    if hidden > 0 {
        let last = Rect { y: inside.bottom().saturating_sub(1), height: 1, ..inside };
        let text = format!("… {} more lines, ↓ shows them", hidden + 1);
        buffer.set_style(last, Style::reset());
        put(&[Line::styled(format!("{text:<width$}"), theme.warn())], last, buffer);
    }
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    if let (true, AskInput::Writing(text, decision)) = (focused, &app.ask_panel.input) {
        let empty = if *decision == Decision::Reply { "Your answer" } else { "Reason, sent to the agent" };
        return field(text, empty, foot, theme, theme.warn(), buffer);
    }
    put(&[foot_line(app, ask, width)], foot, buffer);
    None
}

fn head(ask_panel: &AskPanel, ask: &AskView, width: usize, focused: bool, theme: Theme) -> Line<'static> {
    let risk = match ask.risk.as_str() {
        "critical" => theme.bad().add_modifier(Modifier::BOLD | Modifier::REVERSED),
        "high" => theme.bad().add_modifier(Modifier::BOLD),
        "medium" => theme.warn(),
        _ => theme.good(),
    };
    let count = if ask_panel.asks.len() > 1 {
        format!(" {} of {}", ask_panel.at + 1, ask_panel.asks.len())
    } else {
        String::new()
    };
    let title = if ask.question.is_some() { "Question".to_owned() } else { one_line(&ask.title) };
    let mark = if focused { "▌" } else { "│" };
    let mut spans = vec![
        Span::styled(mark, theme.warn()),
        Span::styled(format!(" {}", cut(&title, width.saturating_sub(24).max(16))), theme.strong()),
        Span::styled(count, theme.quiet()),
    ];
    if ask.question.is_none() {
        spans.push(Span::styled(format!("  {} risk", one_line(&ask.risk)), risk));
    }
    Line::from(spans)
}

/// What exactly would be done.
fn body(ask: &AskView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let margin = Margin::every(Span::styled("│ ", theme.warn()));
    let mut lines = Vec::new();
    if let Some(question) = &ask.question {
        for line in sanitize(&question.text).trim_end().split('\n') {
            lines.extend(wrap(&[Span::raw(line.to_owned())], width, &margin));
        }
        for (at, choice) in question.choices.iter().enumerate() {
            let mark =
                vec![Span::styled("│ ", theme.warn()), Span::styled(format!("{} ", at + 1), theme.accent())];
            let rest = vec![Span::styled("│ ", theme.warn()), Span::raw("  ")];
            lines.extend(wrap(&[Span::raw(one_line(choice))], width, &Margin { first: mark, rest }));
        }
        if ask.more > 0 {
            lines.extend(wrap(&[Span::styled(formatting::unshown(ask.more), theme.bad())], width, &margin));
        }
        return lines;
    }
    if !ask.reason.is_empty() {
        lines.extend(wrap(&[Span::styled(one_line(&ask.reason), theme.quiet())], width, &margin));
    }
    if ask.more > 0 {
        lines.extend(wrap(&[Span::styled(formatting::unshown(ask.more), theme.bad())], width, &margin));
    }
    // The line ends of a command are part of it. A diff names its file itself.
    let named = ask.diffs.iter().any(|diff| diff.path == ask.subject);
    for line in sanitize(&ask.subject).split('\n').filter(|_| !named) {
        lines.extend(wrap_chars(&[Span::styled(line.to_owned(), theme.strong())], width, &margin));
    }
    for diff in &ask.diffs {
        let set = diff::lines(diff, width.saturating_sub(2), theme);
        lines.extend(set.into_iter().map(|mut line| {
            line.spans.insert(0, Span::styled("│ ", theme.warn()));
            line
        }));
    }
    if !ask.text.trim().is_empty() && ask.text != ask.subject {
        for line in sanitize(&ask.text).trim_end().split('\n') {
            lines.extend(wrap_chars(&[Span::raw(line.to_owned())], width, &margin));
        }
    }
    lines.extend(wrap_chars(
        &[Span::styled(format!("in {}", one_line(&ask.folder)), theme.quiet())],
        width,
        &margin,
    ));
    lines
}

fn foot_line(app: &App, ask: &AskView, width: usize) -> Line<'static> {
    let (ask_panel, theme, makes_rules) = (&app.ask_panel, app.options.theme, app.makes_rules());
    if ask_panel.is_sent() {
        return Line::styled("│ sent…", theme.quiet());
    }
    let (text, style) = match (&ask_panel.input, &ask.question) {
        (_, Some(question)) if question.choices.is_empty() => {
            ("Enter writes an answer, n declines".to_owned(), theme.accent())
        }
        (_, Some(question)) if question.free_text => {
            ("1-9 chooses, Enter writes another answer, n declines".to_owned(), theme.accent())
        }
        (_, Some(_)) => ("1-9 chooses, n declines".to_owned(), theme.accent()),
        (AskInput::Armed(Decision::AllowAlways), None) => {
            (format!("press A again: {}", always(ask, makes_rules)), theme.bad())
        }
        (AskInput::Armed(_), None) => {
            (format!("press y again to allow: {} risk", one_line(&ask.risk)), theme.bad())
        }
        (AskInput::Typing(word, Decision::AllowAlways), None) => {
            (format!("type yes and Enter: {word}_ {}", always(ask, makes_rules)), theme.bad())
        }
        (AskInput::Typing(word, _), None) => (format!("type yes and Enter: {word}_"), theme.bad()),
        (AskInput::Choosing | AskInput::Writing(..), None) if width < NARROW => {
            let always = if makes_rules { "rule" } else { "session" };
            (format!("y once  A {always}  n deny  D say why"), theme.accent())
        }
        (AskInput::Choosing | AskInput::Writing(..), None) => {
            let always = if makes_rules { "always, by a rule" } else { "for this session" };
            (format!("y allow once  A {always}  n deny  D deny, say why"), theme.accent())
        }
    };
    let text = cut(&text, width.saturating_sub(2));
    Line::from(vec![Span::styled("│ ", theme.warn()), Span::styled(text, style)])
}

/// How long an "always" answer holds, and what it covers: its rule, or exactly this file, command or arguments.
fn always(ask: &AskView, makes_rules: bool) -> String {
    let exactly = || format!("exactly {} {}", ask.tool, ask.subject);
    let what = ask.rule.clone().filter(|_| makes_rules).unwrap_or_else(exactly);
    format!("always {}: {}", formatting::lasts(makes_rules), one_line(&what))
}
