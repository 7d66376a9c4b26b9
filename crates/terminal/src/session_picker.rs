//! The list of sessions to choose from: those that wait for a person first.

use wire::native::{CardState, SessionCard};

use crate::sanitize::one_line;

#[derive(Debug, Default)]
pub struct Picker {
    /// Text that the title or folder must contain, or the id must begin with.
    pub filter: String,
    pub chosen: usize,
}

impl Picker {
    pub fn listed<'a>(&self, cards: &'a [SessionCard]) -> Vec<&'a SessionCard> {
        let words = self.filter.to_lowercase();
        let matches = |card: &&SessionCard| {
            let title = card.title.as_deref().unwrap_or_default().to_lowercase();
            title.contains(&words)
                || card.folder.to_lowercase().contains(&words)
                || card.session.starts_with(&words)
        };
        let mut listed: Vec<&SessionCard> = cards.iter().filter(matches).collect();
        listed.sort_by_key(|card| (!needs_somebody(card), -card.updated_at));
        listed
    }

    pub fn step(&mut self, down: bool, count: usize) {
        let last = count.saturating_sub(1);
        self.chosen =
            if down { (self.chosen + 1).min(last) } else { self.chosen.min(last).saturating_sub(1) };
    }
}

pub fn needs_somebody(card: &SessionCard) -> bool {
    card.state == CardState::Waiting || !card.asks.is_empty()
}

pub fn state_word(state: CardState) -> &'static str {
    match state {
        CardState::Waiting => "Waiting",
        CardState::Working => "Working",
        CardState::Elsewhere => "Elsewhere",
        CardState::Done => "Done",
        CardState::Failed => "Failed",
        CardState::Empty => "New",
    }
}

pub fn title_of(card: &SessionCard) -> String {
    card.title.as_deref().or(card.line.as_deref()).map_or_else(|| "(no prompts yet)".into(), one_line)
}
