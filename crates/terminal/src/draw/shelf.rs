//! What waits for a person: what is asked and how risky it is, exactly what would be done, and the keys.
//!
//! Nothing of it is left out: what does not fit is scrolled, and what the server left out is counted.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use wire::native::{AskView, Decision};

use super::{field, put};
use crate::app::{App, Focus};
use crate::clean::{clean, one_line};
use crate::diff;
use crate::look::Look;
use crate::shelf::{Shelf, Stage};
use crate::words;
use crate::wrap::{Margin, chop, cut, wrap};

/// The head and the keys.
const AROUND: usize = 2;
/// Below this, the keys are said in fewer words.
const NARROW: usize = 60;

pub fn height(app: &App, width: usize) -> usize {
    app.shelf.current().map_or(0, |ask| body(ask, width, app.manner.look).len() + AROUND)
}

/// Draws it, and answers where the cursor stands if something is written in it.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let look = app.manner.look;
    let ask = app.shelf.current()?;
    if usize::from(area.height) < AROUND {
        return None;
    }
    let width = usize::from(area.width);
    let focused = app.focus == Focus::Shelf;
    put(&[head(&app.shelf, ask, width, focused, look)], area, buffer);
    let lines = body(ask, width, look);
    let room = usize::from(area.height) - AROUND;
    let first = app.shelf.scroll.min(lines.len().saturating_sub(room));
    let inside = Rect { y: area.y + 1, height: area.height - 2, ..area };
    put(lines.get(first..).unwrap_or_default(), inside, buffer);
    let hidden = lines.len().saturating_sub(first + room);
    if hidden > 0 {
        let last = Rect { y: inside.bottom().saturating_sub(1), height: 1, ..inside };
        let text = format!("… {} more lines, ↓ shows them", hidden + 1);
        buffer.set_style(last, Style::reset());
        put(&[Line::styled(format!("{text:<width$}"), look.warn())], last, buffer);
    }
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    if let (true, Stage::Writing(text, decision)) = (focused, &app.shelf.stage) {
        let empty = if *decision == Decision::Reply { "Your answer" } else { "Why not? The agent is told" };
        return field(text, empty, foot, look, look.warn(), buffer);
    }
    put(&[foot_line(app, ask, width)], foot, buffer);
    None
}

fn head(shelf: &Shelf, ask: &AskView, width: usize, focused: bool, look: Look) -> Line<'static> {
    let risk = match ask.risk.as_str() {
        "critical" => look.bad().add_modifier(Modifier::BOLD | Modifier::REVERSED),
        "high" => look.bad().add_modifier(Modifier::BOLD),
        "medium" => look.warn(),
        _ => look.good(),
    };
    let count = if shelf.asks.len() > 1 {
        format!(" {} of {}", shelf.at + 1, shelf.asks.len())
    } else {
        String::new()
    };
    let title = if ask.question.is_some() { "Question".to_owned() } else { one_line(&ask.title) };
    let mark = if focused { "▌" } else { "│" };
    let mut spans = vec![
        Span::styled(mark, look.warn()),
        Span::styled(format!(" {}", cut(&title, width.saturating_sub(24).max(16))), look.strong()),
        Span::styled(count, look.quiet()),
    ];
    if ask.question.is_none() {
        spans.push(Span::styled(format!("  {} risk", one_line(&ask.risk)), risk));
    }
    Line::from(spans)
}

/// What exactly would be done.
fn body(ask: &AskView, width: usize, look: Look) -> Vec<Line<'static>> {
    let margin = Margin::every(Span::styled("│ ", look.warn()));
    let mut lines = Vec::new();
    if let Some(question) = &ask.question {
        for line in clean(&question.text).trim_end().split('\n') {
            lines.extend(wrap(&[Span::raw(line.to_owned())], width, &margin));
        }
        for (at, choice) in question.choices.iter().enumerate() {
            let mark =
                vec![Span::styled("│ ", look.warn()), Span::styled(format!("{} ", at + 1), look.accent())];
            let rest = vec![Span::styled("│ ", look.warn()), Span::raw("  ")];
            lines.extend(wrap(&[Span::raw(one_line(choice))], width, &Margin { first: mark, rest }));
        }
        if ask.more > 0 {
            lines.extend(wrap(&[Span::styled(words::unshown(ask.more), look.bad())], width, &margin));
        }
        return lines;
    }
    if !ask.reason.is_empty() {
        lines.extend(wrap(&[Span::styled(one_line(&ask.reason), look.quiet())], width, &margin));
    }
    if ask.more > 0 {
        lines.extend(wrap(&[Span::styled(words::unshown(ask.more), look.bad())], width, &margin));
    }
    // The line ends of a command are part of it. A difference names its file itself.
    let named = ask.diffs.iter().any(|diff| diff.path == ask.subject);
    for line in clean(&ask.subject).split('\n').filter(|_| !named) {
        lines.extend(chop(&[Span::styled(line.to_owned(), look.strong())], width, &margin));
    }
    for diff in &ask.diffs {
        let set = diff::lines(diff, width.saturating_sub(2), look);
        lines.extend(set.into_iter().map(|mut line| {
            line.spans.insert(0, Span::styled("│ ", look.warn()));
            line
        }));
    }
    if !ask.text.trim().is_empty() && ask.text != ask.subject {
        for line in clean(&ask.text).trim_end().split('\n') {
            lines.extend(chop(&[Span::raw(line.to_owned())], width, &margin));
        }
    }
    lines.extend(chop(
        &[Span::styled(format!("in {}", one_line(&ask.folder)), look.quiet())],
        width,
        &margin,
    ));
    lines
}

fn foot_line(app: &App, ask: &AskView, width: usize) -> Line<'static> {
    let (shelf, look, makes_rules) = (&app.shelf, app.manner.look, app.makes_rules());
    if shelf.is_sent() {
        return Line::styled("│ sent…", look.quiet());
    }
    let (text, style) = match (&shelf.stage, &ask.question) {
        (_, Some(question)) if question.choices.is_empty() => {
            ("Enter writes an answer, n declines".to_owned(), look.accent())
        }
        (_, Some(question)) if question.free_text => {
            ("1-9 chooses, Enter writes another answer, n declines".to_owned(), look.accent())
        }
        (_, Some(_)) => ("1-9 chooses, n declines".to_owned(), look.accent()),
        (Stage::Armed(Decision::AllowAlways), None) => {
            (format!("A again: {}", always(ask, makes_rules)), look.bad())
        }
        (Stage::Armed(_), None) => (format!("y again allows it: {} risk", one_line(&ask.risk)), look.bad()),
        (Stage::Typing(word, Decision::AllowAlways), None) => {
            (format!("type yes and Enter: {word}_ {}", always(ask, makes_rules)), look.bad())
        }
        (Stage::Typing(word, _), None) => (format!("type yes and Enter: {word}_"), look.bad()),
        (Stage::Choosing | Stage::Writing(..), None) if width < NARROW => {
            let always = if makes_rules { "rule" } else { "session" };
            (format!("y once  A {always}  n deny  D say why"), look.accent())
        }
        (Stage::Choosing | Stage::Writing(..), None) => {
            let always = if makes_rules { "always, by a rule" } else { "in this session" };
            (format!("y allow once  A {always}  n deny  D deny, say why"), look.accent())
        }
    };
    let text = cut(&text, width.saturating_sub(2));
    Line::from(vec![Span::styled("│ ", look.warn()), Span::styled(text, style)])
}

/// How long an answer for good holds, and what it is about: its rule, or the same file, command or arguments.
fn always(ask: &AskView, makes_rules: bool) -> String {
    let exactly = || format!("exactly {} {}", ask.tool, ask.subject);
    let what = ask.rule.clone().filter(|_| makes_rules).unwrap_or_else(exactly);
    format!("always {}: {}", words::lasts(makes_rules), one_line(&what))
}
