//! Renders each kind of row.

use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use wire::native::{
    NoticeSeverity, PlanStepState, PlanView, RowContent, ToolCallState, ToolCallView, TurnSummary,
};

use super::{Entry, FoldState};
use crate::markdown::Markdown;
use crate::sanitize::{one_line, sanitize};
use crate::theme::Theme;
use crate::wrap::{Margin, cut, wrap, wrap_chars};
use crate::{ansi_parser, diff, formatting};

const INSIDE: &str = "    ";

pub fn lines(entry: &mut Entry, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let indent = "│ ".repeat(entry.depth);
    let room = width.saturating_sub(entry.depth * 2).max(8);
    let fold_state = entry.fold_state();
    let mut lines = match &entry.row.what {
        RowContent::AgentMessage { .. } => said(entry, room, theme, Style::new()),
        RowContent::Thought { .. } if fold_state == FoldState::Open => {
            let mut lines = vec![Line::styled("∴ Thought", theme.quiet())];
            lines.extend(said(entry, room, theme, theme.quiet().add_modifier(Modifier::ITALIC)));
            lines
        }
        RowContent::Thought { text, .. } => {
            let first = format!("∴ {}", one_line(text));
            vec![Line::styled(cut(&first, room), theme.quiet().add_modifier(Modifier::ITALIC))]
        }
        RowContent::Prompt { from, text, more, attached } => {
            prompt((from, text, *more), attached, room, theme)
        }
        RowContent::Tool(tool) => tool_lines(tool, fold_state, room, theme),
        RowContent::Plan(plan) => plan_lines(plan, fold_state, room, theme),
        RowContent::Question { text, reply, by } => {
            question(text, reply.as_deref(), by.as_deref(), room, theme)
        }
        RowContent::Notice { level, text } => notice(*level, text, room, theme),
        RowContent::Note { text } => marked("·", &one_line(text), theme.quiet(), room),
        RowContent::TurnEnd(ended) => vec![end(ended, room, theme)],
    };
    if entry.depth > 0 {
        for line in &mut lines {
            line.spans.insert(0, Span::styled(indent.clone(), theme.quiet()));
        }
    }
    lines
}

fn said(entry: &mut Entry, width: usize, theme: Theme, base: Style) -> Vec<Line<'static>> {
    let (RowContent::AgentMessage { text, more } | RowContent::Thought { text, more }) = &entry.row.what
    else {
        return Vec::new();
    };
    let markdown = entry.markdown.get_or_insert_with(|| Markdown::new(width, theme, base));
    if markdown.bytes_read() > text.len() {
        *markdown = Markdown::new(width, theme, base);
    }
    markdown.grow(text);
    let mut lines = markdown.lines();
    lines.extend(missing(*more, theme));
    lines
}

fn missing(more: u64, theme: Theme) -> Option<Line<'static>> {
    (more > 0)
        .then(|| Line::styled(format!("… {} more (w shows all)", formatting::bytes(more)), theme.quiet()))
}

fn prompt(
    (from, text, more): (&str, &str, u64),
    attached: &[String],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let text = sanitize(text);
    for (at, line) in text.trim_end().split('\n').enumerate() {
        let mark = if at == 0 { "› " } else { "  " };
        let margin = Margin::hanging(Span::styled(mark, theme.accent().add_modifier(Modifier::BOLD)));
        lines.extend(wrap(&[Span::styled(line.to_owned(), theme.strong())], width, &margin));
    }
    lines.extend(missing(more, theme));
    for name in attached {
        lines.push(Line::styled(format!("  + {}", one_line(name)), theme.quiet()));
    }
    if from != crate::NAME {
        lines.push(Line::styled(format!("  from {}", one_line(from)), theme.quiet()));
    }
    lines
}

fn tool_lines(tool: &ToolCallView, fold_state: FoldState, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![headline(tool, width, theme)];
    let inside = width.saturating_sub(INSIDE.len()).max(8);
    let mut body = Vec::new();
    if tool.state == ToolCallState::Refused
        && let Some(reason) = &tool.reason
    {
        lines.extend(indented(wrap(
            &[Span::styled(one_line(reason), theme.warn())],
            inside,
            &Margin::none(),
        )));
    }
    match fold_state {
        FoldState::Folded => return lines,
        FoldState::Peek(count) => {
            body.extend(output(tool, inside, theme));
            let hidden = body.len().saturating_sub(count);
            body.drain(..hidden);
            if hidden > 0 && tool.state == ToolCallState::Failed {
                body.insert(0, Line::styled(format!("… {hidden} earlier lines (e opens)"), theme.quiet()));
            }
        }
        FoldState::Open => {
            for diff in &tool.diffs {
                body.extend(diff::lines(diff, inside, theme));
            }
            if tool.diffs.is_empty() {
                body.extend(input(tool, inside, theme));
            }
            body.extend(missing(tool.more, theme));
            body.extend(output(tool, inside, theme));
        }
    }
    lines.extend(indented(body));
    lines
}

/// State, kind, title and facts of a tool call.
fn headline(tool: &ToolCallView, width: usize, theme: Theme) -> Line<'static> {
    let (mark, style) = match tool.state {
        ToolCallState::Running => ("◌", theme.warn()),
        ToolCallState::Done => ("✓", theme.good()),
        ToolCallState::Failed => ("✗", theme.bad()),
        ToolCallState::Refused => ("⊘", theme.bad()),
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
        ToolCallState::Running => facts.push("running".to_owned()),
        ToolCallState::Refused => facts.push("refused".to_owned()),
        ToolCallState::Failed => match (tool.exit, &tool.signal) {
            (_, Some(signal)) => facts.push(format!("killed by {}", one_line(signal))),
            (Some(code), None) => facts.push(format!("exit {code}")),
            (None, None) => facts.push("failed".to_owned()),
        },
        ToolCallState::Done => {}
    }
    facts.extend(diff::sum(&tool.diffs));
    facts.extend(tool.elapsed_ms.map(formatting::elapsed));
    facts.extend(tool.decided.as_deref().map(one_line));
    let facts = cut(&facts.join(" · "), width / 2);
    let taken = 6 + unicode_width::UnicodeWidthStr::width(facts.as_str());
    let title = cut(&one_line(&tool.title), width.saturating_sub(taken).max(6));
    Line::from(vec![
        Span::styled(format!("{mark} "), style),
        Span::styled(format!("{letter} "), theme.accent()),
        Span::raw(title),
        Span::styled(format!("  {facts}"), theme.quiet()),
    ])
}

/// The input of the tool.
fn input(tool: &ToolCallView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let text = tool.input.trim();
    if text.is_empty() || text == "{}" || text == "null" {
        return Vec::new();
    }
    wrap_chars(&[Span::styled(one_line(text), theme.quiet())], width, &Margin::none())
}

fn output(tool: &ToolCallView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let lines = ansi_parser::lines(tool.output.trim_end(), theme);
    lines.iter().flat_map(|spans| wrap_chars(spans, width, &Margin::none())).collect()
}

fn indented(lines: Vec<Line<'static>>) -> impl Iterator<Item = Line<'static>> {
    lines.into_iter().map(|mut line| {
        line.spans.insert(0, Span::raw(INSIDE));
        line
    })
}

fn plan_lines(plan: &PlanView, fold_state: FoldState, width: usize, theme: Theme) -> Vec<Line<'static>> {
    if fold_state == FoldState::Open {
        let mut lines = vec![Line::styled("≡ Plan", theme.accent())];
        lines.extend(steps(plan, width, theme));
        return lines;
    }
    vec![Line::styled(cut(&format!("≡ {}", plan_line(plan)), width), theme.accent())]
}

/// `Plan 2/5: what is being done`.
pub fn plan_line(plan: &PlanView) -> String {
    let done = plan.steps.iter().filter(|step| step.state == PlanStepState::Done).count();
    let total = plan.steps.len();
    let current = plan.steps.iter().find(|step| step.state == PlanStepState::Running);
    match current.or_else(|| plan.steps.iter().find(|step| step.state == PlanStepState::Pending)) {
        Some(step) => format!("Plan {done}/{total}: {}", one_line(&step.text)),
        None => format!("Plan {done}/{total}"),
    }
}

pub fn steps(plan: &PlanView, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let set = |step: &wire::native::PlanStepView| {
        let (mark, style) = match step.state {
            PlanStepState::Pending => ("  ☐ ", theme.quiet()),
            PlanStepState::Running => ("  ▸ ", theme.strong()),
            PlanStepState::Done => ("  ☑ ", theme.good()),
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
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = marked("?", &one_line(text), theme.warn(), width);
    if let Some(reply) = reply {
        let by =
            by.filter(|by| *by != crate::NAME).map(|by| format!(" ({})", one_line(by))).unwrap_or_default();
        lines.extend(marked("→", &format!("{}{by}", one_line(reply)), theme.plain(), width));
    }
    lines
}

fn notice(level: NoticeSeverity, text: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let (mark, style) = match level {
        NoticeSeverity::Info => ("i", theme.quiet()),
        NoticeSeverity::Warning => ("!", theme.warn()),
        NoticeSeverity::Error => ("✗", theme.bad()),
    };
    let text = sanitize(text);
    text.trim_end().split('\n').flat_map(|line| marked(mark, line, style, width)).collect()
}

fn marked(mark: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let margin = Margin::hanging(Span::styled(format!("{mark} "), style));
    wrap(&[Span::styled(text.to_owned(), style)], width, &margin)
}

fn end(ended: &TurnSummary, width: usize, theme: Theme) -> Line<'static> {
    let (mark, word, style) = match ended.stop.as_str() {
        "endTurn" => ("✓", "done".to_owned(), theme.quiet()),
        "cancelled" => ("■", "stopped".to_owned(), theme.warn()),
        "maxTokens" => ("!", "the answer reached the model's length limit".to_owned(), theme.warn()),
        "maxTurnRequests" => ("!", "the turn reached a limit".to_owned(), theme.warn()),
        "refusal" => ("!", "the model refused to continue".to_owned(), theme.warn()),
        "interrupted" => ("✗", "interrupted: the program stopped".to_owned(), theme.bad()),
        _ => ("✗", "failed".to_owned(), theme.bad()),
    };
    let mut parts = vec![match &ended.error {
        Some(error) => format!("{word}: {}", one_line(error)),
        None => word,
    }];
    parts.push(formatting::elapsed(ended.elapsed_ms));
    if ended.tools > 0 {
        parts.push(formatting::counted(ended.tools, "action"));
    }
    if ended.files > 0 {
        parts.push(formatting::counted(ended.files, "file"));
    }
    parts.extend(ended.cost_usd.map(formatting::money));
    Line::styled(cut(&format!("{mark} {}", parts.join(" · ")), width), style)
}
