//! What this client was told to warn of, what is wrong with the machine, and what the program around the client says of its
//! state, below the header of every screen.

use ratatui_core::text::{Line, Span};

use crate::app::App;
use crate::clean::one_line;
use crate::wrap::{Margin, wrap};

pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let look = app.manner.look;
    let line = |fault: &String| {
        let margin = Margin::hanging(Span::styled("! ", look.bad()));
        wrap(&[Span::styled(fault.clone(), look.bad())], width, &margin)
    };
    let mut lines: Vec<Line<'static>> =
        app.manner.warnings.iter().chain(&app.faults).flat_map(line).collect();
    for text in &app.status {
        lines.extend(wrap(&[Span::styled(one_line(text), look.quiet())], width, &Margin::default()));
    }
    lines
}
