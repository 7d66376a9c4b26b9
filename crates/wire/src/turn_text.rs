//! What the agent said in a turn, put together from its pieces: for answers and updates that tell all of it at the turn's
//! end.

use engine::{Body, Event};

/// How much of it is kept where every reader of a session keeps its own until the turn ends.
pub(crate) const TOLD_AGAIN_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnText {
    pub text: String,
    /// More was said than is kept.
    pub cut: bool,
}

impl TurnText {
    /// Takes what an event of the turn adds. What a sub-agent says is for the agent, and no part of it.
    pub fn take(&mut self, event: &Event, bytes_max: usize) {
        if let Body::Text { text, .. } = &event.body
            && event.origin.task().is_none()
        {
            self.say(text, bytes_max);
        }
    }

    fn say(&mut self, text: &str, bytes_max: usize) {
        // A piece that fits behind one that did not would leave a hole.
        let room = if self.cut { 0 } else { bytes_max.saturating_sub(self.text.len()) };
        let kept = text.floor_char_boundary(room.min(text.len()));
        self.text.push_str(&text[..kept]);
        self.cut |= kept < text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept_without_holes_and_whole_characters() {
        let mut said = TurnText::default();
        said.say("abc", 5);
        assert_eq!((said.text.as_str(), said.cut), ("abc", false));
        said.say("dé", 5);
        assert_eq!((said.text.as_str(), said.cut), ("abcd", true));
        said.say("f", 5);
        assert_eq!((said.text.as_str(), said.cut), ("abcd", true));
    }
}
