//! What this client was told to warn of, and what is wrong with the machine, below the header of every screen.

use ratatui_core::text::{Line, Span};

use crate::app::App;
use crate::wrap::{Margin, wrap};

pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let look = app.manner.look;
    let line = |fault: &String| {
        let margin = Margin::hanging(Span::styled("! ", look.bad()));
        wrap(&[Span::styled(fault.clone(), look.bad())], width, &margin)
    };
    app.manner.warnings.iter().chain(&app.faults).flat_map(line).collect()
}
