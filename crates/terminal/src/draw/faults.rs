//! Warnings, faults of the machine, and status lines of the program that runs the client, below the header of every
//! screen.

use ratatui_core::text::{Line, Span};

use crate::app::App;
use crate::sanitize::one_line;
use crate::wrap::{Margin, wrap};

pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let theme = app.options.theme;
    let line = |fault: &String| {
        let margin = Margin::hanging(Span::styled("! ", theme.bad()));
        wrap(&[Span::styled(fault.clone(), theme.bad())], width, &margin)
    };
    let mut lines: Vec<Line<'static>> =
        app.options.warnings.iter().chain(&app.faults).flat_map(line).collect();
    for text in &app.status {
        lines.extend(wrap(&[Span::styled(one_line(text), theme.quiet())], width, &Margin::default()));
    }
    lines
}
