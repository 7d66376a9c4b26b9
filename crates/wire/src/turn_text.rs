//! The agent's text in a turn, put together from its chunks: for responses and updates that have all of it
//! at the turn's end.

use engine::{Body, Event};

/// The limit where every reader of a session keeps its own copy until the turn ends.
pub(crate) const TOLD_AGAIN_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnText {
    pub text: String,
    /// There was more text than is kept.
    pub cut: bool,
    /// Where the last message begins.
    last: usize,
    /// A tool was called, or the plan changed, since the last text: further text is another message.
    acted: bool,
}

impl TurnText {
    /// Adds the text of an event. A sub-agent's text is for the agent, and not part of it.
    pub fn observe(&mut self, event: &Event, bytes_max: usize) {
        if event.origin.task().is_some() {
            return;
        }
        if let Body::Text { text, .. } = &event.body {
            if std::mem::take(&mut self.acted) {
                self.last = self.text.len();
            }
            self.say(text, bytes_max);
        } else if let Body::ToolStarted(_) | Body::Plan { .. } = &event.body {
            self.acted = true;
        }
    }

    /// The agent's last message: its text after the last tool call, or, if there is none, before it.
    pub fn last_message(&self) -> &str {
        let last = self.text.get(self.last..).unwrap_or_default();
        if last.is_empty() { &self.text } else { last }
    }

    fn say(&mut self, text: &str, bytes_max: usize) {
        // A chunk that fits after one that did not would leave a hole.
        let room = if self.cut { 0 } else { bytes_max.saturating_sub(self.text.len()) };
        let kept = text.floor_char_boundary(room.min(text.len()));
        self.text.push_str(&text[..kept]);
        self.cut |= kept < text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: Body) -> Event {
        let origin = engine::Origin::Agent;
        Event { seq: engine::Seq(1), at: engine::Timestamp(0), turn: None, origin, body, relayed: None }
    }

    #[test]
    fn the_last_message_is_what_was_said_after_the_last_call() {
        let text = |text: &str| event(Body::Text { message: engine::MessageId(1), text: text.into() });
        let act = || event(Body::Plan { entries: Vec::new() });
        let mut said = TurnText::default();
        for (event, last) in [
            (text("one "), "one "),
            (text("and "), "one and "),
            (act(), "one and "),
            (act(), "one and "),
            (text("two"), "two"),
            (text(" three"), "two three"),
            (act(), "two three"),
        ] {
            said.observe(&event, 100);
            assert_eq!(said.last_message(), last);
        }
        assert_eq!(said.text, "one and two three");
    }

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
