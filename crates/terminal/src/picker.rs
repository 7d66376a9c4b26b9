//! Sessions to choose from: those that need somebody first.

use wire::native::{Card, CardState};

use crate::clean::one_line;

#[derive(Debug, Default)]
pub struct Picker {
    /// Letters that a title, a folder or an id must have.
    pub filter: String,
    pub chosen: usize,
}

impl Picker {
    pub fn listed<'a>(&self, cards: &'a [Card]) -> Vec<&'a Card> {
        let words = self.filter.to_lowercase();
        let matches = |card: &&Card| {
            let title = card.title.as_deref().unwrap_or_default().to_lowercase();
            title.contains(&words)
                || card.folder.to_lowercase().contains(&words)
                || card.session.starts_with(&words)
        };
        let mut listed: Vec<&Card> = cards.iter().filter(matches).collect();
        listed.sort_by_key(|card| (!needs_somebody(card), -card.updated_at));
        listed
    }

    pub fn step(&mut self, down: bool, count: usize) {
        let last = count.saturating_sub(1);
        self.chosen =
            if down { (self.chosen + 1).min(last) } else { self.chosen.min(last).saturating_sub(1) };
    }
}

pub fn needs_somebody(card: &Card) -> bool {
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

pub fn title_of(card: &Card) -> String {
    card.title.as_deref().or(card.line.as_deref()).map_or_else(|| "(nothing said yet)".into(), one_line)
}
