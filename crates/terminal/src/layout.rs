//! Where things are on a screen of a size. The transcript has what the others leave.

use ratatui_core::layout::Rect;

use crate::app::App;
use crate::draw;
use crate::offers::SHOWN_MAX;

const COMPOSER_LINES_MAX: usize = 6;
const QUEUE_LINES_MAX: usize = 3;
const FAULT_LINES_MAX: usize = 6;
/// A lower screen has one line of header.
const LOW: u16 = 14;

#[derive(Debug, Default, Clone, Copy)]
pub struct Areas {
    pub header: Rect,
    pub faults: Rect,
    pub transcript: Rect,
    pub plan: Rect,
    pub queue: Rect,
    pub shelf: Rect,
    pub offers: Rect,
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
        let text = app.composer.lay(composer_width(width)).lines.len();
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
        let shelf = take(draw::shelf::height(app, usize::from(width)), height / 2);
        let offers = take(app.offers.list.len().min(SHOWN_MAX), height / 3);
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
            shelf: next(shelf),
            offers: next(offers),
            rule: next(rule),
            composer: next(composer),
            hint: next(hint),
        }
    }
}

/// What is left of a line beside the composer's mark.
pub fn composer_width(width: u16) -> usize {
    usize::from(width).saturating_sub(2).max(2)
}

/// Prompts that wait, here or at the server.
pub fn queued(app: &App) -> usize {
    app.unsent.len() + app.state.as_ref().map_or(0, |state| state.queue.len())
}

fn fit(wanted: usize, most: u16) -> u16 {
    u16::try_from(wanted).unwrap_or(u16::MAX).min(most)
}
