//! Neighbouring pieces of one message as one text, so a client that is behind gets less, not later.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Body, CallId, Event, MessageId};

/// Merged text in one update. Larger answers become several.
const MERGED_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Said,
    Thought,
}

impl Voice {
    /// The kind of update that a piece of it is.
    pub(crate) fn chunk(self) -> &'static str {
        match self {
            Self::Said => "agent_message_chunk",
            Self::Thought => "agent_thought_chunk",
        }
    }
}

pub(crate) struct Merged<'a> {
    pub(crate) voice: Voice,
    pub(crate) message: MessageId,
    pub(crate) text: Cow<'a, str>,
    /// The call whose sub-agent said it.
    pub(crate) parent: Option<&'a CallId>,
    /// How many events it is made of.
    pub(crate) taken: usize,
}

/// As many pieces from the first on as belong together and fit; nothing, if the first is none.
pub(crate) fn merged(events: &[Arc<Event>]) -> Option<Merged<'_>> {
    let event = events.first()?;
    let (voice, message, first) = piece(event)?;
    let parent = event.origin.task();
    let mut merged = Merged { voice, message, text: Cow::Borrowed(first), parent, taken: 1 };
    // A history from elsewhere may give sub-agents the same messages.
    let further = events.iter().skip(1).take_while(|event| event.origin.task() == parent);
    let further = further.map_while(|event| piece(event));
    for (_, _, text) in further.take_while(|piece| (piece.0, piece.1) == (voice, message)) {
        if merged.text.len() + text.len() > MERGED_BYTES_MAX {
            break;
        }
        merged.text.to_mut().push_str(text);
        merged.taken += 1;
    }
    Some(merged)
}

/// What an external agent said in a way of its own stays as it is.
fn piece(event: &Event) -> Option<(Voice, MessageId, &str)> {
    if event.relayed.is_some() {
        return None;
    }
    if let Body::Text { message, text } = &event.body {
        return Some((Voice::Said, *message, text));
    }
    if let Body::Thought { message, text } = &event.body {
        return Some((Voice::Thought, *message, text));
    }
    None
}
