//! The areas of the screen, for its size. The transcript gets what the others leave.

use ratatui_core::layout::Rect;

use crate::app::App;
use crate::completion::SHOWN_MAX;
use crate::draw;

const COMPOSER_LINES_MAX: usize = 6;
const QUEUE_LINES_MAX: usize = 3;
const FAULT_LINES_MAX: usize = 6;
/// A screen of fewer lines has a header of one line.
const LOW: u16 = 14;

#[derive(Debug, Default, Clone, Copy)]
pub struct Areas {
    pub header: Rect,
    pub faults: Rect,
    pub transcript: Rect,
    pub plan: Rect,
    pub queue: Rect,
    pub ask_panel: Rect,
    pub completions: Rect,
    /// The line above the composer.
    pub rule: Rect,
    pub composer: Rect,
    pub hint: Rect,
}

impl Areas {
    pub fn of(app: &App, width: u16, height: u16) -> Self {
        let header = if height < LOW { 1 } else { 2 };
        let hint = 1;
        let alone = app.picker.is_some() || app.help;
        let text = app.composer.wrapped(composer_width(width)).lines.len();
        let composer =
            if app.picker.is_some() { 0 } else { fit(text.clamp(1, COMPOSER_LINES_MAX), height / 3) };
        let rule = u16::from(composer > 0);
        let faults = draw::faults::lines(app, usize::from(width)).len().min(FAULT_LINES_MAX);
        let faults = fit(faults, height / 3);
        let mut left = height.saturating_sub(header + faults + hint + composer + rule + 1);
        let mut take = |wanted: usize, most: u16| {
            let taken = if alone { 0 } else { fit(wanted, most.min(left)) };
            left -= taken;
            taken
        };
        let ask_panel = take(draw::ask_panel::height(app, usize::from(width)), height / 2);
        let completions = take(app.completions.list.len().min(SHOWN_MAX), height / 3);
        let queue = take(queued(app).min(QUEUE_LINES_MAX), height / 4);
        let plan = take(draw::plan_height(app, usize::from(width)), height / 3);
        let transcript = left + 1;
        let mut y = 0;
        let mut next = |rows: u16| {
            let area = Rect::new(0, y.min(height), width, rows.min(height.saturating_sub(y)));
            y += rows;
            area
        };
        Self {
            header: next(header),
            faults: next(faults),
            transcript: next(transcript),
            plan: next(plan),
            queue: next(queue),
            ask_panel: next(ask_panel),
            completions: next(completions),
            rule: next(rule),
            composer: next(composer),
            hint: next(hint),
        }
    }
}

/// The width of the composer's text, beside its mark.
pub fn composer_width(width: u16) -> usize {
    usize::from(width).saturating_sub(2).max(2)
}

/// Prompts that wait, in this client or at the server.
pub fn queued(app: &App) -> usize {
    app.unsent.len() + app.state.as_ref().map_or(0, |state| state.queue.len())
}

fn fit(wanted: usize, most: u16) -> u16 {
    u16::try_from(wanted).unwrap_or(u16::MAX).min(most)
}
