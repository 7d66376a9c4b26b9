//! How each kind of row looks.

use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use wire::native::{Ended, Level, Plan, StepState, Tool, ToolState, What};

use super::{Entry, Opening};
use crate::clean::{clean, one_line};
use crate::look::Look;
use crate::prose::Prose;
use crate::wrap::{Margin, chop, cut, wrap};
use crate::{ansi, diff, words};

const INSIDE: &str = "    ";

pub fn lines(entry: &mut Entry, width: usize, look: Look) -> Vec<Line<'static>> {
    let indent = "│ ".repeat(entry.depth);
    let room = width.saturating_sub(entry.depth * 2).max(8);
    let opening = entry.opening();
    let mut lines = match &entry.row.what {
        What::Said { .. } => said(entry, room, look, Style::new()),
        What::Thought { .. } if opening == Opening::Open => {
            let mut lines = vec![Line::styled("∴ Thought", look.quiet())];
            lines.extend(said(entry, room, look, look.quiet().add_modifier(Modifier::ITALIC)));
            lines
        }
        What::Thought { text, .. } => {
            let first = format!("∴ {}", one_line(text));
            vec![Line::styled(cut(&first, room), look.quiet().add_modifier(Modifier::ITALIC))]
        }
        What::Prompt { from, text, more, attached } => prompt((from, text, *more), attached, room, look),
        What::Tool(tool) => tool_lines(tool, opening, room, look),
        What::Plan(plan) => plan_lines(plan, opening, room, look),
        What::Question { text, reply, by } => question(text, reply.as_deref(), by.as_deref(), room, look),
        What::Notice { level, text } => notice(*level, text, room, look),
        What::Note { text } => marked("·", &one_line(text), look.quiet(), room),
        What::Ended(ended) => vec![end(ended, room, look)],
    };
    if entry.depth > 0 {
        for line in &mut lines {
            line.spans.insert(0, Span::styled(indent.clone(), look.quiet()));
        }
    }
    lines
}

fn said(entry: &mut Entry, width: usize, look: Look, base: Style) -> Vec<Line<'static>> {
    let (What::Said { text, more } | What::Thought { text, more }) = &entry.row.what else {
        return Vec::new();
    };
    let prose = entry.prose.get_or_insert_with(|| Prose::new(width, look, base));
    if prose.fed() > text.len() {
        *prose = Prose::new(width, look, base);
    }
    prose.grow(text);
    let mut lines = prose.lines();
    lines.extend(missing(*more, look));
    lines
}

fn missing(more: u64, look: Look) -> Option<Line<'static>> {
    (more > 0).then(|| Line::styled(format!("… {} more (w shows all)", words::bytes(more)), look.quiet()))
}

fn prompt(
    (from, text, more): (&str, &str, u64),
    attached: &[String],
    width: usize,
    look: Look,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let text = clean(text);
    for (at, line) in text.trim_end().split('\n').enumerate() {
        let mark = if at == 0 { "› " } else { "  " };
        let margin = Margin::hanging(Span::styled(mark, look.accent().add_modifier(Modifier::BOLD)));
        lines.extend(wrap(&[Span::styled(line.to_owned(), look.strong())], width, &margin));
    }
    lines.extend(missing(more, look));
    for name in attached {
        lines.push(Line::styled(format!("  + {}", one_line(name)), look.quiet()));
    }
    if from != crate::NAME {
        lines.push(Line::styled(format!("  from {}", one_line(from)), look.quiet()));
    }
    lines
}

fn tool_lines(tool: &Tool, opening: Opening, width: usize, look: Look) -> Vec<Line<'static>> {
    let mut lines = vec![headline(tool, width, look)];
    let inside = width.saturating_sub(INSIDE.len()).max(8);
    let mut body = Vec::new();
    if tool.state == ToolState::Refused
        && let Some(reason) = &tool.reason
    {
        lines.extend(indented(wrap(&[Span::styled(one_line(reason), look.warn())], inside, &Margin::none())));
    }
    match opening {
        Opening::Folded => return lines,
        Opening::Peek(count) => {
            body.extend(output(tool, inside, look));
            let hidden = body.len().saturating_sub(count);
            body.drain(..hidden);
            if hidden > 0 && tool.state == ToolState::Failed {
                body.insert(0, Line::styled(format!("… {hidden} lines before (e opens)"), look.quiet()));
            }
        }
        Opening::Open => {
            for diff in &tool.diffs {
                body.extend(diff::lines(diff, inside, look));
            }
            if tool.diffs.is_empty() {
                body.extend(input(tool, inside, look));
            }
            body.extend(missing(tool.more, look));
            body.extend(output(tool, inside, look));
        }
    }
    lines.extend(indented(body));
    lines
}

/// State, kind, what it is about, and what is worth knowing of it.
fn headline(tool: &Tool, width: usize, look: Look) -> Line<'static> {
    let (mark, style) = match tool.state {
        ToolState::Running => ("◌", look.warn()),
        ToolState::Done => ("✓", look.good()),
        ToolState::Failed => ("✗", look.bad()),
        ToolState::Refused => ("⊘", look.bad()),
    };
    let letter = match tool.kind.as_str() {
        "read" => "R",
        "edit" => "E",
        "delete" => "D",
        "move" => "M",
        "search" => "S",
        "execute" => "$",
        "think" => "T",
        "fetch" => "F",
        _ => "*",
    };
    let mut facts = Vec::new();
    match tool.state {
        ToolState::Running => facts.push("running".to_owned()),
        ToolState::Refused => facts.push("refused".to_owned()),
        ToolState::Failed => match (tool.exit, &tool.signal) {
            (_, Some(signal)) => facts.push(format!("ended by {}", one_line(signal))),
            (Some(code), None) => facts.push(format!("exit {code}")),
            (None, None) => facts.push("failed".to_owned()),
        },
        ToolState::Done => {}
    }
    facts.extend(diff::sum(&tool.diffs));
    facts.extend(tool.elapsed_ms.map(words::elapsed));
    facts.extend(tool.decided.as_deref().map(one_line));
    let facts = cut(&facts.join(" · "), width / 2);
    let taken = 6 + unicode_width::UnicodeWidthStr::width(facts.as_str());
    let title = cut(&one_line(&tool.title), width.saturating_sub(taken).max(6));
    Line::from(vec![
        Span::styled(format!("{mark} "), style),
        Span::styled(format!("{letter} "), look.accent()),
        Span::raw(title),
        Span::styled(format!("  {facts}"), look.quiet()),
    ])
}

/// What the tool was given: only where the title does not say it.
fn input(tool: &Tool, width: usize, look: Look) -> Vec<Line<'static>> {
    let text = tool.input.trim();
    if text.is_empty() || text == "{}" || text == "null" {
        return Vec::new();
    }
    chop(&[Span::styled(one_line(text), look.quiet())], width, &Margin::none())
}

fn output(tool: &Tool, width: usize, look: Look) -> Vec<Line<'static>> {
    let lines = ansi::lines(tool.output.trim_end(), look);
    lines.iter().flat_map(|spans| chop(spans, width, &Margin::none())).collect()
}

fn indented(lines: Vec<Line<'static>>) -> impl Iterator<Item = Line<'static>> {
    lines.into_iter().map(|mut line| {
        line.spans.insert(0, Span::raw(INSIDE));
        line
    })
}

fn plan_lines(plan: &Plan, opening: Opening, width: usize, look: Look) -> Vec<Line<'static>> {
    if opening == Opening::Open {
        let mut lines = vec![Line::styled("≡ Plan", look.accent())];
        lines.extend(steps(plan, width, look));
        return lines;
    }
    vec![Line::styled(cut(&format!("≡ {}", plan_line(plan)), width), look.accent())]
}

/// `Plan 2/5: what is being done`.
pub fn plan_line(plan: &Plan) -> String {
    let done = plan.steps.iter().filter(|step| step.state == StepState::Done).count();
    let total = plan.steps.len();
    let current = plan.steps.iter().find(|step| step.state == StepState::Running);
    match current.or_else(|| plan.steps.iter().find(|step| step.state == StepState::Pending)) {
        Some(step) => format!("Plan {done}/{total}: {}", one_line(&step.text)),
        None => format!("Plan {done}/{total}"),
    }
}

pub fn steps(plan: &Plan, width: usize, look: Look) -> Vec<Line<'static>> {
    let set = |step: &wire::native::PlanStep| {
        let (mark, style) = match step.state {
            StepState::Pending => ("  ☐ ", look.quiet()),
            StepState::Running => ("  ▸ ", look.strong()),
            StepState::Done => ("  ☑ ", look.good()),
        };
        wrap(&[Span::styled(one_line(&step.text), style)], width, &Margin::hanging(Span::styled(mark, style)))
    };
    plan.steps.iter().flat_map(set).collect()
}

fn question(
    text: &str,
    reply: Option<&str>,
    by: Option<&str>,
    width: usize,
    look: Look,
) -> Vec<Line<'static>> {
    let mut lines = marked("?", &one_line(text), look.warn(), width);
    if let Some(reply) = reply {
        let by =
            by.filter(|by| *by != crate::NAME).map(|by| format!(" ({})", one_line(by))).unwrap_or_default();
        lines.extend(marked("→", &format!("{}{by}", one_line(reply)), look.plain(), width));
    }
    lines
}

fn notice(level: Level, text: &str, width: usize, look: Look) -> Vec<Line<'static>> {
    let (mark, style) = match level {
        Level::Info => ("i", look.quiet()),
        Level::Warning => ("!", look.warn()),
        Level::Error => ("✗", look.bad()),
    };
    let text = clean(text);
    text.trim_end().split('\n').flat_map(|line| marked(mark, line, style, width)).collect()
}

fn marked(mark: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let margin = Margin::hanging(Span::styled(format!("{mark} "), style));
    wrap(&[Span::styled(text.to_owned(), style)], width, &margin)
}

fn end(ended: &Ended, width: usize, look: Look) -> Line<'static> {
    let (mark, word, style) = match ended.stop.as_str() {
        "endTurn" => ("✓", "done".to_owned(), look.quiet()),
        "cancelled" => ("■", "stopped".to_owned(), look.warn()),
        "maxTokens" => ("!", "the model's answer was cut off".to_owned(), look.warn()),
        "maxTurnRequests" => ("!", "a limit ended the turn".to_owned(), look.warn()),
        "refusal" => ("!", "the model declined".to_owned(), look.warn()),
        "interrupted" => ("✗", "interrupted: the program ended".to_owned(), look.bad()),
        _ => ("✗", "failed".to_owned(), look.bad()),
    };
    let mut parts = vec![match &ended.error {
        Some(error) => format!("{word}: {}", one_line(error)),
        None => word,
    }];
    parts.push(words::elapsed(ended.elapsed_ms));
    if ended.tools > 0 {
        parts.push(words::counted(ended.tools, "action"));
    }
    if ended.files > 0 {
        parts.push(words::counted(ended.files, "file"));
    }
    parts.extend(ended.cost_usd.map(words::money));
    Line::styled(cut(&format!("{mark} {}", parts.join(" · ")), width), style)
}
